package builtin_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/builtin"
)

// custom returns the runner of a custom tool at a server.
func custom(t *testing.T, srv *httptest.Server, change func(*hob.Tool)) hob.ToolRunner {
	t.Helper()
	row := customRow(srv.URL, "POST")
	if change != nil {
		change(&row)
	}
	return one(t, newSet(t, builtin.Deps{}, srv), assignCustom(row, ""))
}

func TestCustom_BodyMethodsSendTheArgumentsAsJSON(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"", "POST", "put", "PATCH"} {
		r := custom(t, echo(t), func(row *hob.Tool) { row.Config.Method = method })
		got := echoed(t, call(t, r, `{"city":"Zürich","days":2}`).Text)
		want := strings.ToUpper(method)
		if want == "" {
			want = "POST"
		}
		if got["method"] != want || got["body"] != `{"city":"Zürich","days":2}` || got["type"] != "application/json" || got["uri"] != "/weather" {
			t.Errorf("%s: sent %v", method, got)
		}
		if got["key"] != "run_1:call_1" || got["run"] != "run_1" || got["call"] != "call_1" {
			t.Errorf("%s: ids %v", method, got)
		}
	}
}

func TestCustom_OtherMethodsSendTheArgumentsInTheQuery(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "DELETE"} {
		r := custom(t, echo(t), func(row *hob.Tool) {
			row.Config.Method = method
			row.Config.Endpoint += "?api=1#part"
		})
		got := echoed(t, call(t, r, `{"city":"São & Paulo","days":2,"tags":["a","b"],"where":{"x":[1]},"skip":null}`).Text)
		want := "/weather?api=1&city=S%C3%A3o%20%26%20Paulo&days=2&tags=a&tags=b&where=%7B%22x%22%3A%5B1%5D%7D"
		if got["method"] != method || got["uri"] != want || got["body"] != "" || got["type"] != "" {
			t.Errorf("%s: sent %v\nwant %s", method, got, want)
		}
	}
}

func TestCustom_ArgumentsCannotOverruleTheEndpointsQuery(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") })
	r := custom(t, srv, func(row *hob.Tool) {
		row.Config.Method = "GET"
		row.Config.Endpoint += "?user=me"
	})
	if res := call(t, r, `{"user":"root"}`); !res.IsError || res.Text != `Error: the argument "user" is fixed by the tool's endpoint and cannot be given` {
		t.Errorf("%+v", res)
	}
}

func TestCustom_TheKeyIsEqualOverAttempts(t *testing.T) {
	t.Parallel()
	r := custom(t, echo(t), func(row *hob.Tool) { row.Config.Headers = map[string]hob.Secret{"Idempotency-Keys": "x"} })
	c := callOf(r, `{}`)
	var keys []string
	for c.Attempt = 1; c.Attempt <= 3; c.Attempt++ {
		res, err := r.Call(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, echoed(t, res.Text)["key"])
	}
	if keys[0] != "run_1:call_1" || keys[1] != keys[0] || keys[2] != keys[0] {
		t.Errorf("keys %q", keys)
	}
}

func TestCustom_StatusesBecomeResults(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 600)
	tests := map[string]struct {
		status  int
		body    string
		want    string
		isError bool
	}{
		"ok":             {200, "fine", "fine", false},
		"created":        {201, `{"id":1}`, `{"id":1}`, false},
		"empty":          {204, "", `{"ok":true,"status":204}`, false},
		"redirect":       {302, "", "Error: HTTP 302: the endpoint answered with a redirect, which is not followed for POST", true},
		"bad request":    {400, "city is unknown\n", "Error: HTTP 400: city is unknown", true},
		"without a word": {404, "", "Error: HTTP 404: Not Found", true},
		"no such status": {599, "", "Error: HTTP 599: no further information", true},
		"long error":     {500, long, "Error: HTTP 500: " + long[:1000], true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := custom(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}), nil)
			if res := call(t, r, `{}`); !cmp.Equal(res, hob.Result{Text: tt.want, IsError: tt.isError}) {
				t.Errorf("%+v, want %q", res, tt.want)
			}
		})
	}
}

func TestCustom_LongResponsesAreCutAndMarked(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("日", builtin.DefaultMaxOutput)
	for path, want := range map[string]string{"/fits": body, "/more": body + "\n[truncated: only the first 10000 characters are shown]"} {
		r := custom(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, body)
			if r.URL.Path == "/more" {
				_, _ = io.WriteString(w, strings.Repeat(body, 9))
			}
		}), func(row *hob.Tool) { row.Config.Endpoint = strings.Replace(row.Config.Endpoint, "/weather", path, 1) })
		if res := call(t, r, `{}`); res.Text != want || res.IsError {
			t.Errorf("%s: %d bytes, ends in %q", path, len(res.Text), res.Text[max(0, len(res.Text)-60):])
		}
	}
}

func TestCustom_AnAssignmentSetsLimits(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		tries.Add(1)
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 500))
	})
	s := newSet(t, builtin.Deps{}, srv)
	row := customRow(srv.URL, "GET")
	if r := call(t, one(t, s, assignCustom(row, `{"max_chars":100}`)), `{}`); r.Text != strings.Repeat("x", 100)+"\n[truncated: only the first 100 characters are shown]" {
		t.Errorf("max_chars: %s", r.Text)
	}
	if r := call(t, one(t, s, assignCustom(row, `{"allowed_hosts":["api.example.com"]}`)), `{}`); !strings.HasPrefix(r.Text, "Error: destination not allowed") || tries.Load() != 1 {
		t.Errorf("allowed_hosts: %s", r.Text)
	}
	if r := call(t, one(t, s, assignCustom(row, `{"allowed_hosts":["127.0.0.1"]}`)), `{}`); r.IsError {
		t.Errorf("an allowed host: %s", r.Text)
	}
	row.Config.Endpoint = srv.URL + "/slow"
	row.Config.TimeoutSeconds = 200
	if r := call(t, one(t, s, assignCustom(row, `{"timeout_seconds":0.1}`)), `{}`); r.Text != "Error: no complete answer within 100ms" {
		t.Errorf("timeout_seconds: %s", r.Text)
	}
	// What the tool itself calls so is an argument, and pinned.
	row.InputSchema = []byte(`{"type":"object","properties":{"max_chars":{"type":"string"}}}`)
	if got := string(one(t, s, assignCustom(row, `{"max_chars":"few"}`)).Spec().Pinned["max_chars"]); got != `"few"` {
		t.Errorf("the argument of the same name is pinned as %s", got)
	}
	if _, err := s.CheckCustomAssignment(customRow(srv.URL, "GET"), []byte(`{"max_chars":"few"}`)); hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "config_override.max_chars must be") {
		t.Errorf("a limit of the wrong type: %v", err)
	}
}

func TestCustom_TheRowSetsTheEffect(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	for effect, want := range map[hob.Effect]hob.Effect{"": hob.EffectExternal, hob.EffectRead: hob.EffectRead, hob.EffectWrite: hob.EffectWrite} {
		row := customRow("https://example.com", "GET")
		row.Config.Effect = effect
		if got := one(t, s, assignCustom(row, "")).Spec().Effect; got != want {
			t.Errorf("%q: the effect is %q", effect, got)
		}
	}
}

func TestCustom_BinaryResponsesAreANote(t *testing.T) {
	t.Parallel()
	r := custom(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		_, _ = io.WriteString(w, "%PDF-1.7\x00\xff")
	}), nil)
	if res := call(t, r, `{}`); res.Text != "[binary content not shown: application/pdf, 10 bytes]" {
		t.Errorf("%+v", res)
	}
}

func TestCustom_GetFollowsRedirectsAndLeavesSecretsBehind(t *testing.T) {
	t.Parallel()
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "auth="+r.Header.Get("Authorization")+" key="+r.Header.Get("X-Api-Key"))
	})
	first := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			t.Error("the endpoint itself got no secret")
		}
		if r.URL.Path == "/loop" {
			http.Redirect(w, r, "/loop", http.StatusFound)
			return
		}
		http.Redirect(w, r, other.URL, http.StatusFound)
	})
	s := newSet(t, builtin.Deps{}, first, other)
	row := customRow(first.URL, "GET")
	row.Config.Headers = map[string]hob.Secret{"Authorization": "Bearer top-secret", "X-Api-Key": "top-secret"}
	if res := call(t, one(t, s, assignCustom(row, "")), `{}`); res.Text != "auth= key=" {
		t.Errorf("the other host got %+v", res)
	}
	row.Config.Endpoint = first.URL + "/loop"
	if res := call(t, one(t, s, assignCustom(row, "")), `{}`); res.Text != "Error: more than 5 redirects" || !res.IsError {
		t.Errorf("loop: %+v", res)
	}
}

// An endpoint that echoes its request, in whatever coding, tells the model no secret; what is no secret stays readable.
func TestCustom_SecretsNeverReachTheResult(t *testing.T) {
	t.Parallel()
	const token, password = `s3cr3t"tok&en/1`, "hunter2-long"
	basic := base64.StdEncoding.EncodeToString([]byte("admin:" + password))
	for _, status := range []int{200, 500} {
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			auth, key := r.Header.Get("Authorization"), r.Header.Get("X-Api-Key")
			w.WriteHeader(status)
			quoted := strings.ReplaceAll(key, `"`, `\"`)
			for _, s := range []string{key, quoted, url.QueryEscape(key), base64.StdEncoding.EncodeToString([]byte(key)), auth, strings.TrimPrefix(auth, "Basic "), password} {
				_, _ = io.WriteString(w, s+"\n")
			}
			_, _ = io.WriteString(w, r.Header.Get("Accept")+" "+r.Header.Get("Api-Version"))
		})
		r := custom(t, srv, func(row *hob.Tool) {
			row.Config.Headers = map[string]hob.Secret{
				"authorization": hob.Secret("Basic " + basic), "X-Api-Key": token, "Accept": "application/json", "Api-Version": "2026-01-01",
			}
		})
		text := call(t, r, `{}`).Text
		for _, secret := range []string{token, `s3cr3t`, password, basic, url.QueryEscape(token), base64.RawStdEncoding.EncodeToString([]byte(token))} {
			if strings.Contains(text, secret) {
				t.Errorf("status %d: the result holds %q:\n%s", status, secret, text)
			}
		}
		if !strings.Contains(text, "application/json 2026-01-01") || !strings.Contains(text, hob.Mask) {
			t.Errorf("status %d: plain headers are gone:\n%s", status, text)
		}
	}
}

// Errors may repeat a little of what the endpoint sent.
func TestCustom_SecretsNeverReachAnError(t *testing.T) {
	t.Parallel()
	r := custom(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", r.Header.Get("X-Key"))
		_, _ = io.WriteString(w, "x")
	}), func(row *hob.Tool) { row.Config.Headers = map[string]hob.Secret{"X-Key": "top-secret"} })
	if res := call(t, r, `{}`); !strings.HasPrefix(res.Text, `Error: the server used the content encoding "`+hob.Mask) || !res.IsError {
		t.Errorf("%+v", res)
	}
}

// A text that is short only because secrets were taken out of it is still marked as cut.
func TestCustom_ACutBeforeHidingIsMarked(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("k", 100)
	r := custom(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(secret+" ", 1000))
	}), func(row *hob.Tool) { row.Config.Headers = map[string]hob.Secret{"X-Key": hob.Secret(secret)} })
	if res := call(t, r, `{}`); !strings.HasSuffix(res.Text, "[truncated: only the first 10000 characters are shown]") {
		t.Errorf("ends in %q", res.Text[len(res.Text)-80:])
	}
}

func TestCustom_LongBinaryResponsesAreOnlyANote(t *testing.T) {
	t.Parallel()
	r := custom(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "video/mp4")
		_, _ = w.Write(make([]byte, 100_000))
	}), nil)
	if res := call(t, r, `{}`); res.Text != "[binary content not shown: video/mp4, more than 44096 bytes]" {
		t.Errorf("%+v", res)
	}
}

// The cut must not halve a secret before it is found.
func TestCustom_ASecretAcrossTheCutIsHidden(t *testing.T) {
	t.Parallel()
	const secret = "abcdefghijklmnopqrstuvwxyz"
	r := custom(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("-", builtin.DefaultMaxOutput-10)+secret)
	}), func(row *hob.Tool) { row.Config.Headers = map[string]hob.Secret{"X-Key": secret} })
	if res := call(t, r, `{}`); strings.Contains(res.Text, "abcdef") {
		t.Errorf("ends in %q", res.Text[len(res.Text)-80:])
	}
}

func TestCustom_TransportFailuresAreTyped(t *testing.T) {
	t.Parallel()
	t.Run("timeout of the row", func(t *testing.T) {
		t.Parallel()
		r := custom(t, hang(t, nil), func(row *hob.Tool) { row.Config.TimeoutSeconds = 0.05 })
		res := call(t, r, `{}`)
		if res.Text != "Error: no complete answer within 50ms; the request may have been carried out nevertheless" || !res.IsError {
			t.Errorf("%+v", res)
		}
	})
	t.Run("timeout of the settings", func(t *testing.T) {
		t.Parallel()
		srv := hang(t, nil)
		s := newSet(t, builtin.Deps{Settings: builtin.Settings{CustomTimeout: 40 * time.Millisecond}}, srv)
		if res := call(t, one(t, s, assignCustom(customRow(srv.URL, "GET"), "")), `{}`); res.Text != "Error: no complete answer within 40ms" {
			t.Errorf("%+v", res)
		}
	})
	t.Run("closed midway", func(t *testing.T) {
		t.Parallel()
		r := custom(t, serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), nil)
		if res := call(t, r, `{}`); !strings.HasPrefix(res.Text, "Error: the server closed the connection") {
			t.Errorf("%+v", res)
		}
	})
	t.Run("forbidden", func(t *testing.T) {
		t.Parallel()
		r := one(t, newSet(t, builtin.Deps{}), assignCustom(customRow("http://127.0.0.1:9", "POST"), ""))
		if res := call(t, r, `{}`); !strings.HasPrefix(res.Text, "Error: destination not allowed or not reachable") {
			t.Errorf("%+v", res)
		}
	})
	t.Run("bad endpoint", func(t *testing.T) {
		t.Parallel()
		for _, method := range []string{"GET", "POST"} {
			row := customRow("http://h", method)
			row.Config.Endpoint = "http://h/%zz?key=hush"
			res := call(t, one(t, newSet(t, builtin.Deps{}), assignCustom(row, "")), `{}`)
			if !res.IsError || strings.Contains(res.Text, "hush") {
				t.Errorf("%s: %+v", method, res)
			}
		}
	})
	t.Run("header of ours", func(t *testing.T) {
		t.Parallel()
		r := custom(t, echo(t), func(row *hob.Tool) { row.Config.Headers = map[string]hob.Secret{"Host": "hush-hush"} })
		if res := call(t, r, `{}`); res.Text != `Error: header "Host" is set by the server and cannot be given` {
			t.Errorf("%+v", res)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		arrived := make(chan struct{}, 1)
		r := custom(t, hang(t, arrived), nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		if _, err := r.Call(ctx, callOf(r, `{}`)); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

func TestCustom_TheRowDecidesClassAndTime(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	for recovery, parallel := range map[hob.Recovery]bool{"": false, hob.RecoverOnce: false, hob.RecoverKeyed: false, hob.RecoverRead: true} {
		row := named("weather")
		row.Config.Recovery = recovery
		spec := one(t, s, assignCustom(row, "")).Spec()
		if recovery == "" {
			recovery = hob.RecoverOnce
		}
		if spec.Recovery != recovery || spec.Parallel != parallel || spec.Effect != hob.EffectExternal || spec.Kind != hob.HTTPTool || spec.Ref != "id-weather" {
			t.Errorf("%+v", spec)
		}
		if spec.Timeout <= builtin.DefaultToolTimeout {
			t.Errorf("timeout %s", spec.Timeout)
		}
	}
}

func TestCustom_ASchemaIsAlwaysOfAnObject(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	for given, want := range map[string]string{
		``: `{"type":"object"}`, `null`: `{"type":"object"}`, `{}`: `{"type":"object"}`,
		`{"properties":{"a":{}}}`: `{"type":"object","properties":{"a":{}}}`,
	} {
		row := named("weather")
		row.InputSchema = []byte(given)
		if got := string(one(t, s, assignCustom(row, "")).Spec().Schema); got != want {
			t.Errorf("%q became %s, want %s", given, got, want)
		}
	}
}
