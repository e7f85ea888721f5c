package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/builtin"
)

// whole is the assignment whose results tell all of an answer.
const whole = `{"result":"full"}`

func TestHTTPRequest_TheResultIsTheBodyUnlessTheAssignmentAsksForAll(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/gone":
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, "moved away")
		case "/moved":
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		case "/long":
			_, _ = io.WriteString(w, strings.Repeat("long ", 5000))
		default:
			_, _ = io.WriteString(w, `{"a":"<b>"}`)
		}
	})
	s := newSet(t, builtin.Deps{}, srv)
	long := strings.Repeat("long ", 2000)
	for _, config := range []string{"", `{"result":"body"}`} {
		r := one(t, s, assign("http_request", config))
		for args, want := range map[string]hob.Result{
			`"}`:                         {Text: `{"a":"<b>"}`},
			`/empty"}`:                   {Text: `{"ok":true,"status":204}`},
			`/gone"}`:                    {Text: `{"error":"HTTP 410: Gone","status":410,"body":"moved away"}`, IsError: true},
			`/moved","method":"POST"}`:   {Text: `{"error":"HTTP 307: the server answered with a redirect, which is not followed for POST","status":307,"location":"/"}`, IsError: true},
			`/long"}`:                    {Text: long + "\n[truncated: only the first 10000 characters are shown]"},
			`/empty","method":"DELETE"}`: {Text: `{"ok":true,"status":204}`},
		} {
			if diff := cmp.Diff(want, call(t, r, `{"url":"`+srv.URL+args)); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", config, args, diff)
			}
		}
		if a := read(t, call(t, r, `{"url":"`+srv.URL+`","method":"HEAD"}`)); a.Status != 200 || a.Headers["content-length"] != "11" {
			t.Errorf("HEAD: %+v", a)
		}
	}
}

func TestHTTPRequest_AnAssignmentSetsLimits(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Second):
			}
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 30_000))
	})
	s := newSet(t, builtin.Deps{}, srv)
	at := func(config, args string) hob.Result {
		return call(t, one(t, s, assign("http_request", config)), `{"url":"`+srv.URL+args)
	}
	if r := at(`{"methods":["get","HEAD"]}`, `","method":"POST"}`); r.Text != `{"error":"the method POST is not allowed here; use GET, HEAD"}` || !r.IsError {
		t.Errorf("methods: %+v", r)
	}
	if r := at(`{"methods":["get"]}`, `"}`); r.IsError {
		t.Errorf("an allowed method: %+v", r)
	}
	for most, want := range map[string]string{"100": "first 100 characters", "20000": "first 20000 characters"} {
		if r := at(`{"max_chars":`+most+`}`, `"}`); !strings.Contains(r.Text, want) {
			t.Errorf("max_chars %s: %d characters", most, len(r.Text))
		}
	}
	if r := at(`{"timeout_seconds":0.2}`, `/slow"}`); r.Text != `{"error":"no complete answer within 200ms"}` {
		t.Errorf("timeout_seconds: %+v", r)
	}
	if spec := one(t, s, assign("http_request", `{"timeout_seconds":300}`)).Spec(); spec.Timeout < 300*time.Second {
		t.Errorf("the call may take %s", spec.Timeout)
	}
}

func TestLimits_CallsAreBoundedPerRun(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") })
	s := newSet(t, builtin.Deps{}, srv)
	row := customRow(srv.URL, "GET")
	for name, tool := range map[string]hob.AssignedTool{
		"http_request": assign("http_request", `{"max_calls_per_run":2}`), "custom": assignCustom(row, `{"max_calls_per_run":2}`),
	} {
		for _, run := range []hob.RunID{"run_1", "run_2"} {
			var got []bool
			for range 3 { // a runner is made anew when a run goes on after an approval
				r := one(t, s, tool)
				args := `{}`
				if name == "http_request" {
					args = `{"url":"` + srv.URL + `"}`
				}
				c := callOf(r, args)
				c.Run = run
				res, err := r.Call(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if res.IsError && !strings.Contains(res.Text, "may be called 2 times in a run, which it was") {
					t.Errorf("%s: %s", name, res.Text)
				}
				got = append(got, res.IsError)
			}
			if diff := cmp.Diff([]bool{false, false, true}, got); diff != "" {
				t.Errorf("%s in %s: refused (-want +got):\n%s", name, run, diff)
			}
		}
	}
}

func TestHTTPRequest_ReportsStatusHeadersAndBody(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-RateLimit-Remaining", "7")
		w.Header().Set("Set-Cookie", "session=1")
		_, _ = io.WriteString(w, `{"a":"<b>&"}`)
	})
	res := call(t, one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", whole)), `{"url":"`+srv.URL+`"}`)
	want := `{"status":200,"headers":{"content-length":"12","content-type":"application/json","x-ratelimit-remaining":"7"},"body":"{\"a\":\"<b>&\"}","truncated":false}`
	if diff := cmp.Diff(want, res.Text); diff != "" || res.IsError {
		t.Errorf("error %t\n%s", res.IsError, diff)
	}
}

func TestHTTPRequest_AnErrorStatusIsAnErrorWithItsBody(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 404, 429, 500, 503} {
		srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "why")
		})
		res := call(t, one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", whole)), `{"url":"`+srv.URL+`"}`)
		if a := read(t, res); !res.IsError || a.Status != status || a.Body != "why" || a.Headers["retry-after"] != "3" {
			t.Errorf("status %d: %+v", status, res)
		}
	}
}

// echo answers with what it was sent.
func echo(t *testing.T) *httptest.Server {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"method": r.Method, "uri": r.URL.RequestURI(), "body": string(body), "type": r.Header.Get("Content-Type"),
			"key": r.Header.Get("Idempotency-Key"), "accept": r.Header.Get("Accept"), "auth": r.Header.Get("Authorization"),
			"run": r.Header.Get("X-Run-Id"), "call": r.Header.Get("X-Tool-Call-Id"),
		})
	})
}

func echoed(t *testing.T, text string) map[string]string {
	t.Helper()
	var got map[string]string
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("echo: %v: %s", err, text)
	}
	return got
}

func TestHTTPRequest_SendsWhatTheArgumentsSay(t *testing.T) {
	t.Parallel()
	srv := echo(t)
	r := one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", whole))
	tests := map[string]struct {
		args string // after the url
		want map[string]string
	}{
		"get":                {``, map[string]string{"method": "GET", "body": "", "type": ""}},
		"get, empty body":    {`,"body":{}`, map[string]string{"method": "GET", "body": ""}},
		"lower case":         {`,"method":"delete"`, map[string]string{"method": "DELETE", "body": ""}},
		"object":             {`,"method":"POST","body":{"a":[1,1.50]}`, map[string]string{"body": `{"a":[1,1.50]}`, "type": "application/json"}},
		"empty object":       {`,"method":"POST","body":{}`, map[string]string{"body": `{}`, "type": "application/json"}},
		"list":               {`,"method":"PUT","body":[1]`, map[string]string{"method": "PUT", "body": `[1]`}},
		"text":               {`,"method":"POST","body":"hi"`, map[string]string{"body": `"hi"`}},
		"JSON as text":       {`,"method":"POST","body":"{\"a\":1}"`, map[string]string{"body": `{"a":1}`, "type": "application/json"}},
		"text of other type": {`,"method":"POST","body":"a=1&b=2","headers":{"content-type":"application/x-www-form-urlencoded"}`, map[string]string{"body": "a=1&b=2", "type": "application/x-www-form-urlencoded"}},
		"JSON of other name": {`,"method":"PATCH","body":"x","headers":{"Content-Type":"application/merge-patch+json"}`, map[string]string{"body": `"x"`}},
		"header":             {`,"headers":{"accept":"text/csv"}`, map[string]string{"accept": "text/csv"}},
		"our key wins":       {`,"headers":{"idempotency-key":"mine"}`, map[string]string{"key": "run_1:call_1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := echoed(t, read(t, call(t, r, `{"url":"`+srv.URL+`"`+tt.args+`}`)).Body)
			for k, v := range tt.want {
				if got[k] != v {
					t.Errorf("%s = %q, want %q", k, got[k], v)
				}
			}
		})
	}
}

func TestHTTPRequest_RefusesBadArguments(t *testing.T) {
	t.Parallel()
	srv := echo(t)
	r := one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", whole))
	for args, want := range map[string]string{
		`{"url":5}`: "url must be text, not number",
		`{"url":"` + srv.URL + `","method":"TRACE"}`:                       "method must be",
		`{"url":"` + srv.URL + `","body":{"a":1}}`:                         "a GET request has no body",
		`{"url":"` + srv.URL + `","headers":{"Authorization":"Bearer x"}}`: `header \"Authorization\" cannot be set here`,
		`{"url":"` + srv.URL + `","headers":{"Host":"x"}}`:                 `header \"Host\" is set by the server`,
		`{"url":"` + srv.URL + `","headers":{"Accept":"a","ACCEPT":"b"}}`:  `\"Accept\" stands twice`,
		`{"url":"` + srv.URL + `","headers":{"Accept":"a\r\nX: b"}}`:       "control characters",
		`{"url":"file:///etc/passwd"}`:                                     "only http and https",
		`{"url":"http://u:p@example.com/"}`:                                "credentials do not belong",
		`{"url":"` + srv.URL + `","headers":["a"]}`:                        "headers must be an object",
	} {
		res := call(t, r, args)
		if !res.IsError || !strings.HasPrefix(res.Text, `{"error":"`) || !strings.Contains(res.Text, want) {
			t.Errorf("%s: %+v, want %q", args, res, want)
		}
	}
}

// Forbidden and unreachable targets read alike, or the tool would scan the private network.
func TestHTTPRequest_OneTextForForbiddenAndUnreachable(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a forbidden server was reached") })
	s := newSet(t, builtin.Deps{}, closed)
	closed.Close()
	r := one(t, s, assign("http_request", whole))
	seen := func(u string) hob.Result { // by runs, in their results and in the ledger
		res := call(t, r, `{"url":"`+u+`"}`)
		res.Note = ""
		return res
	}
	first := seen(closed.URL)
	for _, u := range []string{other.URL, "http://169.254.169.254/latest", "http://10.0.0.1:8080/", "http://[::1]/"} {
		if res := seen(u); !cmp.Equal(res, first) || !res.IsError {
			t.Errorf("%s: %+v, want %+v", u, res, first)
		}
	}
}

func TestHTTPRequest_AllowedHostsAreAllThatIsReached(t *testing.T) {
	t.Parallel()
	in, out := echo(t), echo(t)
	hop := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, out.URL, http.StatusFound) })
	s := newSet(t, builtin.Deps{}, in, out, hop)
	config := fmt.Sprintf(`{"result":"full","allowed_hosts":[%q,%q]}`, in.Listener.Addr(), hop.Listener.Addr())
	r := one(t, s, assign("http_request", config))
	if res := call(t, r, `{"url":"`+in.URL+`"}`); res.IsError {
		t.Errorf("the allowed host: %+v", res)
	}
	for _, u := range []string{out.URL, hop.URL} {
		if res := call(t, r, `{"url":"`+u+`"}`); !res.IsError || !strings.Contains(res.Text, "not allowed or not reachable") {
			t.Errorf("%s: %+v", u, res)
		}
	}
}

func TestHTTPRequest_OnlyGetAndHeadFollowRedirects(t *testing.T) {
	t.Parallel()
	var srv *httptest.Server
	srv = serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/from":
			http.Redirect(w, r, srv.URL+"/to", http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			_, _ = io.WriteString(w, r.Method)
		}
	})
	r := one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", whole))
	if a := read(t, call(t, r, `{"url":"`+srv.URL+`/from"}`)); a.Body != "GET" || a.URL != srv.URL+"/to" {
		t.Errorf("GET: %+v", a)
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		a := read(t, call(t, r, fmt.Sprintf(`{"url":"%s/from","method":%q}`, srv.URL, method)))
		if a.Status != http.StatusTemporaryRedirect || a.Headers["location"] != srv.URL+"/to" || a.URL != "" {
			t.Errorf("%s: %+v", method, a)
		}
	}
	if a := read(t, call(t, r, `{"url":"`+srv.URL+`/loop"}`)); a.Error != "more than 5 redirects" {
		t.Errorf("loop: %+v", a)
	}
}

func TestHTTPRequest_CutsTheBodyBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"a", "ü", "日", "🙂"} {
		body := strings.Repeat(unit, 10_001)
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if r.URL.Path == "/fits" {
				_, _ = io.WriteString(w, body[len(unit):])
				return
			}
			_, _ = io.WriteString(w, body+body)
		})
		r := one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", whole))
		if a := read(t, call(t, r, `{"url":"`+srv.URL+`"}`)); a.Body != body[len(unit):] || !a.Truncated {
			t.Errorf("%s: %d characters, truncated %t", unit, utf8.RuneCountInString(a.Body), a.Truncated)
		}
		if a := read(t, call(t, r, `{"url":"`+srv.URL+`/fits"}`)); a.Body != body[len(unit):] || a.Truncated {
			t.Errorf("%s, exactly the cap: %d characters, truncated %t", unit, utf8.RuneCountInString(a.Body), a.Truncated)
		}
	}
}

// What JSON must escape takes more room than it had; the result stays whole JSON below the cap of all results.
func TestHTTPRequest_EscapesDoNotBreakTheCapOfResults(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, strings.Repeat("\x01", 20_000))
	})
	res := call(t, one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", whole)), `{"url":"`+srv.URL+`"}`)
	if a := read(t, res); utf8.RuneCountInString(res.Text) > builtin.DefaultMaxResult || !a.Truncated || a.Body == "" {
		t.Errorf("%d characters, truncated %t", utf8.RuneCountInString(res.Text), a.Truncated)
	}
}

func TestHTTPRequest_SettingsSetTheCap(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789abc") })
	s := newSet(t, builtin.Deps{Settings: builtin.Settings{MaxOutput: 10}}, srv)
	if a := read(t, call(t, one(t, s, assign("http_request", whole)), `{"url":"`+srv.URL+`"}`)); a.Body != "0123456789" || !a.Truncated {
		t.Errorf("%+v", a)
	}
}

func TestHTTPRequest_BodiesThatAreNoPlainText(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ kind, body, want string }{
		"image":          {"image/png", "\x89PNG\r\n", "[binary content not shown: image/png, 6 bytes]"},
		"image of text":  {"image/png", "ASCII", "[binary content not shown: image/png, 5 bytes]"},
		"svg is text":    {"image/svg+xml", "<svg/>", "<svg/>"},
		"latin-1":        {"text/html; charset=ISO-8859-1", "caf\xe9 \x80", "café €"},
		"wrong charset":  {"text/html; charset=iso-8859-1", "café", "café"},
		"byte order":     {"application/json", "\ufeff{}", "{}"},
		"broken UTF-8":   {"text/plain", "a\xffb", "a\ufffdb"},
		"unknown binary": {"application/octet-stream", "\xff\xfe\x01", "[binary content not shown: application/octet-stream, 3 bytes]"},
		"unknown text":   {"application/octet-stream", "plain", "plain"},
		"UTF-16":         {"text/plain", "a\x00b\x00", "[binary content not shown: text/plain, 4 bytes]"},
		"odd type":       {";;", "x", "x"},
		"odd binary":     {";;", "\xff", "[binary content not shown: unknown type, 1 bytes]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.kind)
				_, _ = io.WriteString(w, tt.body)
			})
			r := one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", whole))
			if a := read(t, call(t, r, `{"url":"`+srv.URL+`"}`)); a.Body != tt.want {
				t.Errorf("body %q, want %q", a.Body, tt.want)
			}
		})
	}
}

func TestHTTPRequest_ALongBinaryBodyIsTruncatedToo(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100_000)) })
	a := read(t, call(t, one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", whole)), `{"url":"`+srv.URL+`"}`))
	if !a.Truncated || !strings.HasSuffix(a.Body, "more than 44096 bytes]") {
		t.Errorf("%+v", a)
	}
}

// hang answers nothing until the caller leaves.
func hang(t *testing.T, arrived chan<- struct{}) *httptest.Server {
	return serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices a closed connection only once the body is read
		if arrived != nil {
			arrived <- struct{}{}
		}
		<-r.Context().Done()
	})
}

func TestHTTPRequest_TimesOutAndSaysWhatThatMeans(t *testing.T) {
	t.Parallel()
	srv := hang(t, nil)
	s := newSet(t, builtin.Deps{Settings: builtin.Settings{HTTPTimeout: 50 * time.Millisecond}}, srv)
	r := one(t, s, assign("http_request", whole))
	if res := call(t, r, `{"url":"`+srv.URL+`"}`); res.Text != `{"error":"no complete answer within 50ms"}` || !res.IsError {
		t.Errorf("GET: %+v", res)
	}
	if res := call(t, r, `{"url":"`+srv.URL+`","method":"POST"}`); !strings.Contains(res.Text, "may have been carried out nevertheless") {
		t.Errorf("POST: %+v", res)
	}
	if got := r.Spec().Timeout; got <= 50*time.Millisecond {
		t.Errorf("spec timeout %s leaves no time for the tool's own text", got)
	}
}

func TestHTTPRequest_ACancelledCallIsAnError(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	srv := hang(t, arrived)
	r := one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", whole))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := r.Call(ctx, callOf(r, `{"url":"`+srv.URL+`"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestHTTPRequest_RecoveryIsOnceUnlessTheAssignmentSaysOtherwise(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	for config, want := range map[string]hob.Recovery{``: hob.RecoverOnce, `{"recovery":"read"}`: hob.RecoverRead, `{"recovery":"keyed"}`: hob.RecoverKeyed} {
		spec := one(t, s, assign("http_request", config)).Spec()
		if spec.Recovery != want || spec.Parallel || spec.Effect != hob.EffectExternal || spec.FullSchema != nil {
			t.Errorf("%s: %+v", config, spec)
		}
	}
}

// Headers that an admin pins may hold what a model may not set.
func TestHTTPRequest_PinnedHeadersAreTheAdmins(t *testing.T) {
	t.Parallel()
	srv := echo(t)
	r := one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", `{"result":"full","headers":{"Authorization":"Bearer x"}}`))
	args, err := hob.Overlay(json.RawMessage(`{"url":"`+srv.URL+`","headers":{"Accept":"a"}}`), r.Spec().Pinned)
	if err != nil {
		t.Fatal(err)
	}
	got := echoed(t, read(t, call(t, r, string(args))).Body)
	if got["auth"] != "Bearer x" || got["accept"] != "" {
		t.Errorf("sent %v", got)
	}
}
