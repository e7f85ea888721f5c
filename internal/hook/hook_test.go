package hook_test

import (
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/hook"
)

// What arrives is the event as it is, under the hook's headers and the server's, signed so that a receiver that knows the
// secret can tell by itself.
func TestCallHook_SendsTheEventSigned(t *testing.T) {
	t.Parallel()
	var got http.Header
	var body []byte
	receiver := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
		if r.Method != http.MethodPost {
			t.Errorf("sent with %s", r.Method)
		}
		_, _ = w.Write([]byte(`{}`))
	})
	r := request(receiver.URL + "/in?x=1")
	r.Hook.Config.Headers["user-agent"] = "somebody else"
	r.Hook.Config.Headers["X-Hob-Signature"] = "t=1,v1=00"
	if a, err := newSender(t, nil, hook.Limits{}, receiver).CallHook(t.Context(), r); err != nil || a.Deny {
		t.Fatalf("answer %+v, %v", a, err)
	}
	if string(body) != string(r.Body) {
		t.Errorf("body %s", body)
	}
	for name, want := range map[string]string{
		"X-Api-Key": "k-123", "Content-Type": "application/json", "User-Agent": "hob/1.2.3",
		"X-Hob-Event": "PreToolUse", "X-Hob-Delivery": "del-1", "X-Hob-Attempt": "2",
	} {
		if diff := cmp.Diff([]string{want}, got.Values(name)); diff != "" {
			t.Errorf("header %s (-want +got):\n%s", name, diff)
		}
	}
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", moment.Unix(), r.Body)
	if want := fmt.Sprintf("t=%d,v1=%s", moment.Unix(), hex.EncodeToString(mac.Sum(nil))); got.Get("X-Hob-Signature") != want {
		t.Errorf("signature %s, want %s", got.Get("X-Hob-Signature"), want)
	}
}

// answering makes a Sender and asks a receiver that answers so.
func answering(t *testing.T, status int, body string) (hob.HookAnswer, error) {
	t.Helper()
	receiver := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	return newSender(t, nil, hook.Limits{}, receiver).CallHook(t.Context(), request(receiver.URL))
}

func TestCallHook_ReadsTheDecision(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	for name, tt := range map[string]struct {
		body string
		want hob.HookAnswer
	}{
		"nothing said":        {`{}`, hob.HookAnswer{}},
		"blanks around":       {" \n{ \"action\" : \"allow\" }\n", hob.HookAnswer{}},
		"deny":                {`{"action":"deny"}`, hob.HookAnswer{Deny: true}},
		"deny with reason":    {`{"action":"deny","message":"no"}`, hob.HookAnswer{Deny: true, Message: "no"}},
		"unknown keys":        {`{"action":"allow","score":[1,{"a":2}],"Action":"deny"}`, hob.HookAnswer{}},
		"null is absent":      {`{"message":null,"modified_input":null,"modified_output":null}`, hob.HookAnswer{}},
		"input":               {`{"modified_input":{"b":1e0,"a":12345678901234567890}}`, hob.HookAnswer{ModifiedInput: []byte(`{"a":12345678901234567890,"b":1e0}`)}},
		"empty input":         {`{"modified_input":{}}`, hob.HookAnswer{ModifiedInput: []byte(`{}`)}},
		"empty output":        {`{"modified_output":""}`, hob.HookAnswer{ModifiedOutput: text("")}},
		"deny and output":     {`{"action":"deny","modified_output":"***"}`, hob.HookAnswer{Deny: true, ModifiedOutput: text("***")}},
		"deny stays deny":     {`{"action":"deny","message":5,"modified_input":[],"modified_output":{}}`, hob.HookAnswer{Deny: true}},
		"long message is cut": {`{"action":"deny","message":"` + strings.Repeat("ä", hob.MaxHookMessage+1) + `"}`, hob.HookAnswer{Deny: true, Message: strings.Repeat("ä", hob.MaxHookMessage-1) + "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := answering(t, http.StatusOK, tt.body)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestCallHook_MalformedAnswersAreNoDecision(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		want   string // in the error
	}{
		"empty":            {200, ``, "not usable"},
		"no JSON":          {200, `<html>ok</html>`, "not usable"},
		"cut":              {200, `{"action":"allow"`, "not usable"},
		"trailing":         {200, `{"action":"allow"} {"action":"deny"}`, "more data after the end"},
		"twice":            {200, `{"action":"allow","action":"deny"}`, "stands twice"},
		"twice inside":     {200, `{"modified_input":{"a":1,"a":2}}`, "stands twice"},
		"not UTF-8":        {200, "{\"message\":\"\xff\"}", "not valid UTF-8"},
		"NaN":              {200, `{"modified_input":{"a":NaN}}`, "not usable"},
		"too deep":         {200, strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100), "nested too deep"},
		"list":             {200, `[{"action":"deny"}]`, "no JSON object"},
		"text":             {200, `"deny"`, "no JSON object"},
		"null":             {200, `null`, "no JSON object"},
		"unknown action":   {200, `{"action":"block"}`, "neither allow nor deny"},
		"ask":              {200, `{"action":"ask"}`, "neither allow nor deny"},
		"action of a case": {200, `{"action":"DENY"}`, "neither allow nor deny"},
		"null action":      {200, `{"action":null}`, "neither allow nor deny"},
		"boolean action":   {200, `{"action":false}`, "neither allow nor deny"},
		"number message":   {200, `{"message":5}`, "message that is not text"},
		"list input":       {200, `{"modified_input":[]}`, "modified_input that is not an object"},
		"text input":       {200, `{"modified_input":"{}"}`, "modified_input that is not an object"},
		"object output":    {200, `{"modified_output":{}}`, "modified_output that is not text"},
		"too large":        {200, `{"message":"` + strings.Repeat("x", hook.MaxAnswer) + `"}`, "longer than"},
		"created":          {201, `{"action":"deny"}`, "HTTP 201"},
		"no content":       {204, ``, "HTTP 204"},
		"moved":            {302, `{}`, "redirect"},
		"not found":        {404, `{"action":"deny"}`, "HTTP 404"},
		"fault":            {500, `{"action":"deny","message":"` + secret + `"}`, "HTTP 500"},
		"not now":          {503, ``, "HTTP 503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := answering(t, tt.status, tt.body)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("answer %+v, error %v, want one with %q", got, err, tt.want)
			}
			if diff := cmp.Diff(hob.HookAnswer{}, got); diff != "" || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), secret) {
				t.Errorf("error %v, answer (-want +got):\n%s", err, diff)
			}
		})
	}
}

// An answer just within the bound is read, and one that unpacks to more than it is not.
func TestCallHook_BoundsTheAnswer(t *testing.T) {
	t.Parallel()
	frame := len(`{"modified_output":""}`)
	if a, err := answering(t, 200, `{"modified_output":"`+strings.Repeat("x", hook.MaxAnswer-frame)+`"}`); err != nil || len(*a.ModifiedOutput) != hook.MaxAnswer-frame {
		t.Errorf("the largest answer: %v", err)
	}
	receiver := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, `{"message":"`+strings.Repeat("x", 4*hook.MaxAnswer)+`"}`)
		_ = z.Close()
	})
	if _, err := newSender(t, nil, hook.Limits{}, receiver).CallHook(t.Context(), request(receiver.URL)); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an answer that unpacks to too much: %v", err)
	}
}

func TestCallHook_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); _, _ = w.Write([]byte(`{}`)) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		receiver := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, status) })
		if _, err := newSender(t, nil, hook.Limits{}, receiver, other).CallHook(t.Context(), request(receiver.URL)); err == nil || !strings.Contains(err.Error(), "redirect") {
			t.Errorf("%d: %v", status, err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}

// What is private is refused with the text of what does not answer, and nothing is sent there.
func TestCallHook_RefusesPrivateAddresses(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	receiver := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	s := newSender(t, nil, hook.Limits{})
	for _, url := range []string{
		receiver.URL, "http://localhost/", "http://10.0.0.1/", "http://192.168.1.1/", "http://169.254.169.254/latest/meta-data/", "http://[::1]/",
		"http://0.0.0.0/", "http://127.1/", "ftp://example.com/", "http://user:pass@example.com/", "not a url", "",
	} {
		_, err := s.CallHook(t.Context(), request(url))
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: %v", url, err)
		}
		if err != nil && url != "" && strings.Contains(err.Error(), strings.TrimPrefix(url, "http://")) {
			t.Errorf("%q: the error repeats the address: %v", url, err)
		}
	}
	if asked.Load() != 0 {
		t.Error("an address of this machine was called")
	}
}

// However a receiver is slow, the time is over when it is, and the error says so to errors.Is.
func TestCallHook_TimesOut(t *testing.T) {
	t.Parallel()
	hold := func(w http.ResponseWriter, r *http.Request, first string) {
		_, _ = io.Copy(io.Discard, r.Body)
		if first != "" {
			_, _ = io.WriteString(w, first)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}
	for name, h := range map[string]http.HandlerFunc{
		"no answer": func(w http.ResponseWriter, r *http.Request) { hold(w, r, "") },
		"slow body": func(w http.ResponseWriter, r *http.Request) { hold(w, r, `{"action":`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := serve(t, h)
			s := newSender(t, nil, hook.Limits{}, receiver)
			r := request(receiver.URL)
			r.Timeout = 50 * time.Millisecond
			if _, err := s.CallHook(t.Context(), r); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "within 50ms") {
				t.Errorf("its own time: %v", err)
			}
			r.Timeout = time.Minute
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := s.CallHook(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the caller's time: %v", err)
			}
			gone, leave := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, leave)
			if _, err := s.CallHook(gone, r); !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller that left: %v", err)
			}
		})
	}
}

func TestCallHook_NeedsItsSecrets(t *testing.T) {
	t.Parallel()
	receiver := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was called") })
	s := newSender(t, nil, hook.Limits{}, receiver)
	for name, change := range map[string]func(*hob.HookConfig){
		"no secret":     func(c *hob.HookConfig) { c.Secret = "" },
		"masked secret": func(c *hob.HookConfig) { c.Secret = hob.Mask },
		"masked header": func(c *hob.HookConfig) { c.Headers["X-Api-Key"] = hob.Mask },
	} {
		r := request(receiver.URL)
		change(&r.Hook.Config)
		if _, err := s.CallHook(t.Context(), r); err == nil || !strings.Contains(err.Error(), "is not there") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCallHook_ToldAsItIs(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	s := newSender(t, nil, hook.Limits{}, gone)
	gone.Close()
	if _, err := s.CallHook(t.Context(), request(gone.URL)); err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not reachable") {
		t.Errorf("nobody listens: %v", err)
	}
	broken := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
			_ = conn.Close()
		}
	})
	if _, err := newSender(t, nil, hook.Limits{}, broken).CallHook(t.Context(), request(broken.URL)); err == nil || !strings.Contains(err.Error(), "closed the connection") {
		t.Errorf("cut: %v", err)
	}
}
