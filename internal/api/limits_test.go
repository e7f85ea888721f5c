package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hob"
	"hob/internal/api"
)

func TestBody_CapsAndTypes(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.Body, c.Limits.BigBody = 1000, 4000 })
	agent := string(w.agent("fixed"))
	pad := func(n int) string { return `{"name":"x","message":"hi","pad":"` + strings.Repeat("x", n) + `"}` }
	chunked := func(path, body string) reply {
		r := w.request(ask{"POST", path, w.service, "", nil})
		r.Body = io.NopCloser(strings.NewReader(body)) // no length: it is sent in chunks
		answer, err := w.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		b, _ := io.ReadAll(answer.Body)
		return reply{answer.StatusCode, answer.Header, b}
	}
	run, seed := "/api/agents/"+agent+"/run", "/api/agents/"+agent+"/sessions"
	for _, c := range []struct {
		path   string
		size   int
		status int
	}{
		{"/api/agents", 900, 201}, {"/api/agents", 1000, 413}, {run, 1000, 200}, {run, 3900, 200}, {run, 4000, 413}, {seed, 3900, 201}, {seed, 4000, 413},
	} {
		if r := w.do(ask{"POST", c.path, w.service, pad(c.size), nil}); r.status != c.status {
			t.Errorf("%s with %d bytes: status %d, want %d", c.path, c.size, r.status, c.status)
		}
		if r := chunked(c.path, pad(c.size)); r.status != c.status {
			t.Errorf("%s with %d bytes in chunks: status %d, want %d", c.path, c.size, r.status, c.status)
		}
	}
	wantFault(t, w.do(ask{"POST", "/api/agents", w.service, pad(2000), nil}), 413, "at most 1000 bytes")
	for kind, status := range map[string]int{
		"": 201, "application/json; charset=utf-8": 201, "text/plain": 201, "application/octet-stream": 201, "odd;;;": 201,
		"application/x-www-form-urlencoded": 201, // what curl says of any -d
	} {
		r := w.do(ask{"POST", "/api/agents", w.service, `{"name":"x"}`, map[string]string{"Content-Type": kind}})
		if r.status != status {
			t.Errorf("content type %q: status %d, want %d", kind, r.status, status)
		}
	}
	for kind, body := range map[string]string{
		"application/x-www-form-urlencoded": "name=x", "multipart/form-data; boundary=x": "--x\r\n\r\n--x--",
	} {
		r := w.do(ask{"POST", "/api/agents", w.service, body, map[string]string{"Content-Type": kind}})
		wantFault(t, r, 415, "application/json")
	}
	wantFault(t, w.do(ask{"POST", "/api/agents", w.service, `{"name":"x"}`, map[string]string{"Content-Encoding": "gzip"}}), 415, "Content-Encoding")
}

func TestBody_DefaultCapsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	d := api.DefaultLimits()
	if d.Body != 1<<20 || d.BigBody != 8<<20 || d.PerKey != 50 || d.Streams != 10_000 || d.KeepAlive != 15*time.Second ||
		d.Rate != (api.Rate{PerSecond: 50, Burst: 100}) || d.Service.PerSecond < 200 || 2*d.Recheck > 5*time.Second {
		t.Errorf("the limits are %+v", d)
	}
}

func TestBody_OneThatComesTooSlowlyIsRefused(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.BodyTime = 100 * time.Millisecond })
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "POST /api/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{", w.service)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d", answer.StatusCode)
	}
}

func TestRate_PerPrincipalWithRetryAfter(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) {
		c.Limits.Rate, c.Limits.Service = api.Rate{PerSecond: 0.001, Burst: 3}, api.Rate{PerSecond: 0.001, Burst: 5}
	})
	for name, c := range map[string]struct {
		key   string
		burst int
	}{"key": {w.scoped(hob.ScopeRead), 3}, "user": {user(t, "u1"), 3}, "service key": {w.service, 5}} {
		for i := range c.burst + 1 {
			r := w.do(ask{"GET", "/api/me", c.key, "", nil})
			if i < c.burst {
				if r.status != 200 {
					t.Errorf("%s, request %d: status %d", name, i, r.status)
				}
				continue
			}
			wantFault(t, r, http.StatusTooManyRequests, "too many requests")
			if n, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || n < 1 {
				t.Errorf("%s: Retry-After %q", name, r.header.Get("Retry-After"))
			}
		}
	}
	if r := w.do(ask{"GET", "/api/me", user(t, "u1"), "", nil}); r.status != 429 {
		t.Errorf("another token of the same user: status %d", r.status)
	}
	if r := w.do(ask{"GET", "/api/me", user(t, "u2"), "", nil}); r.status != 200 {
		t.Errorf("another user: status %d", r.status)
	}
}

func TestRate_OffLiftsRatesAndStreamsPerKey(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) {
		c.Limits.Off, c.Limits.Rate, c.Limits.PerKey, c.Limits.BadKeys = true, api.Rate{PerSecond: 0.001, Burst: 1}, 1, api.Rate{PerSecond: 0.001, Burst: 1}
	})
	agent, key := w.agent("slow"), w.scoped(hob.ScopeRead, hob.ScopeRun)
	for range 3 {
		w.stream(ask{"POST", "/api/agents/" + string(agent) + "/run/stream", key, `{"message":"hi"}`, nil}).next()
		wantFault(t, w.do(ask{"GET", "/api/me", "hob_unknown", "", nil}), 401, "no such key")
	}
}

func TestRate_UnknownKeysAreSlowedByAddressAndKnownOnesAreNot(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.BadKeys = api.Rate{PerSecond: 0.001, Burst: 3} })
	w.do(ask{"GET", "/api/me", w.service, "", nil})
	for i := range 3 {
		wantFault(t, w.do(ask{"GET", "/api/me", fmt.Sprint("hob_", i), "", nil}), 401, "no such key")
	}
	r := w.do(ask{"GET", "/api/me", "hob_new", "", nil})
	wantFault(t, r, 429, "unknown keys")
	time.Sleep(100 * time.Millisecond) // the known key is looked up anew
	if r := w.do(ask{"GET", "/api/me", w.service, "", nil}); r.status != 200 {
		t.Errorf("a known key: status %d: %s", r.status, r.body)
	}
}

func TestRate_ABucketFillsUpAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := api.New(api.Config{Store: oneKey{}, Clock: time.Now, Limits: api.Limits{Rate: api.Rate{PerSecond: 2, Burst: 2}}})
		get := func() int {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/me", nil)
			r.Header.Set("Authorization", "Bearer x")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		want := func(statuses ...int) {
			t.Helper()
			for i, s := range statuses {
				if got := get(); got != s {
					t.Errorf("request %d: status %d, want %d", i, got, s)
				}
			}
		}
		want(200, 200, 429)
		time.Sleep(500 * time.Millisecond)
		want(200, 429)
		time.Sleep(time.Hour)
		want(200, 200, 429)
	})
}

// oneKey knows every key as the same one; nothing else is asked of it.
type oneKey struct{ hob.Store }

func (oneKey) KeyByHash(context.Context, []byte) (hob.Key, error) {
	return hob.Key{ID: "k", Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeRead}}, nil
}

func TestStreams_AreCappedPerKeyAndInAll(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.PerKey, c.Limits.Streams = 2, 5 })
	agent, key := w.agent("slow"), w.scoped(hob.ScopeRead, hob.ScopeRun)
	start := ask{"POST", "/api/agents/" + string(agent) + "/run/stream", key, `{"message":"hi"}`, nil}
	first := w.stream(start)
	run := first.next().Run
	w.stream(start).next()
	r := w.do(start)
	wantFault(t, r, 429, "too many open streams")
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	wantFault(t, w.do(ask{"GET", "/api/agents/runs/" + string(run) + "/events", key, "", nil}), 429, "too many open streams")
	start.key = w.service // not bounded by itself
	for range 3 {
		w.stream(start).next()
	}
	wantFault(t, w.do(start), 503, "as many open streams")
	if n := w.metric("hob_runs_accepted_total"); n != 5 {
		t.Errorf("%d runs were accepted, want 5: refused streams must not start any", n)
	}
	_ = first.answer.Body.Close()
	end := time.Now().Add(5 * time.Second)
	for {
		r, err := w.server.Client().Do(w.request(start))
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode == 200 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a closed stream never gave its place back")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
