package api_test

import (
	"bufio"
	"bytes"
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
		"application/x-www-form-urlencoded": 415, "multipart/form-data; boundary=x": 415,
	} {
		r := w.do(ask{"POST", "/api/agents", w.service, `{"name":"x"}`, map[string]string{"Content-Type": kind}})
		if r.status != status {
			t.Errorf("content type %q: status %d, want %d", kind, r.status, status)
		}
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

func TestServer_SettingsAndHeads(t *testing.T) {
	t.Parallel()
	s := api.Server("127.0.0.1:1", http.NotFoundHandler())
	if s.Addr != "127.0.0.1:1" || s.ReadHeaderTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes != 64<<10 || s.WriteTimeout != 0 || s.ReadTimeout != 0 {
		t.Errorf("the server is %+v", s)
	}
	w := begin(t, nil)
	r := w.do(ask{"GET", "/health", "", "", map[string]string{"X-Big": strings.Repeat("x", 80<<10)}})
	if r.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a head of 80 KB: status %d", r.status)
	}
}

func TestListen_OneConnectionTooManyIsToldSo(t *testing.T) {
	t.Parallel()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := api.Listen(inner, api.ConnLimits{Total: 2, PerAddress: 1}) // this machine counts for the total alone
	s := api.Server("", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		_ = s.Close()
		<-served
	}()
	get := func() (net.Conn, *http.Response) {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c, answer
	}
	a, r1 := get()
	b, r2 := get()
	c, r3 := get()
	if r1.StatusCode != 204 || r2.StatusCode != 204 || r3.StatusCode != 503 || r3.Header.Get("Retry-After") == "" {
		t.Errorf("statuses %d, %d, %d", r1.StatusCode, r2.StatusCode, r3.StatusCode)
	}
	body, err := io.ReadAll(r3.Body)
	if err != nil || !strings.Contains(string(body), "too_many_connections") {
		t.Errorf("the answer is %q (%v)", body, err)
	}
	_ = c.Close()
	_ = a.Close()
	for end := time.Now().Add(5 * time.Second); ; {
		d, r := get()
		_ = d.Close()
		if r.StatusCode == 204 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a closed connection never gave its place back")
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = b.Close()
}

func TestListen_CountsOtherMachinesByAddress(t *testing.T) {
	t.Parallel()
	from := func(ip string) net.Conn { return addressed{remote: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}} }
	queue := make(queued, 8)
	l := api.Listen(queue, api.ConnLimits{PerAddress: 1})
	queue <- from("192.0.2.1")
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	queue <- from("192.0.2.1") // refused
	queue <- from("192.0.2.2")
	second, err := l.Accept()
	if err != nil || second.RemoteAddr().String() != "192.0.2.2:1" {
		t.Fatalf("accepted %v (%v)", second.RemoteAddr(), err)
	}
	_ = first.Close()
	_ = first.Close() // twice counts once
	queue <- from("192.0.2.1")
	queue <- from("192.0.2.1")
	close(queue)
	if third, err := l.Accept(); err != nil || third.RemoteAddr().String() != "192.0.2.1:1" {
		t.Fatalf("accepted %v (%v)", third, err)
	}
	if extra, err := l.Accept(); err == nil {
		t.Errorf("accepted %v beyond the limit", extra.RemoteAddr())
	}
}

// queued is a listener that gives the connections of a channel.
type queued chan net.Conn

func (q queued) Accept() (net.Conn, error) {
	if c, ok := <-q; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (queued) Close() error   { return nil }
func (queued) Addr() net.Addr { return nil }

// addressed is a connection of which only the far end's address matters.
type addressed struct {
	net.Conn
	remote net.Addr
}

func (a addressed) RemoteAddr() net.Addr      { return a.remote }
func (addressed) SetDeadline(time.Time) error { return nil }
func (addressed) Write(b []byte) (int, error) { return len(b), nil }
func (addressed) Close() error                { return nil }

func TestCORS_OnlyListedOriginsAndNoKeyForPreflight(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	ask1 := func(method, origin string, key string) reply {
		h := map[string]string{"Origin": origin}
		if method == "OPTIONS" {
			h["Access-Control-Request-Method"] = "POST"
			h["Access-Control-Request-Headers"] = "authorization, idempotency-key"
		}
		return w.do(ask{method, "/api/agents", key, "", h})
	}
	const origin = "https://app.example.com"
	r := ask1("OPTIONS", origin, "")
	if r.status != 204 || r.header.Get("Access-Control-Allow-Origin") != origin || len(r.body) != 0 {
		t.Errorf("preflight: %d %v", r.status, r.header)
	}
	for _, name := range []string{"Content-Type", "Authorization", "apikey", "X-Requested-With", "Idempotency-Key", "Last-Event-ID"} {
		if !strings.Contains(r.header.Get("Access-Control-Allow-Headers"), name) {
			t.Errorf("the header %s is not allowed", name)
		}
	}
	for _, name := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if !strings.Contains(r.header.Get("Access-Control-Allow-Methods"), name) {
			t.Errorf("the method %s is not allowed", name)
		}
	}
	for _, key := range []string{w.service, ""} { // errors can be read too
		r := ask1("GET", origin, key)
		if r.header.Get("Access-Control-Allow-Origin") != origin || r.header.Get("Vary") != "Origin" || r.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("GET: %d %v", r.status, r.header)
		}
	}
	for _, bad := range []string{"https://evil.example.com", "http://app.example.com", "null", "https://app.example.com.evil.com"} {
		for _, method := range []string{"OPTIONS", "GET"} {
			if r := ask1(method, bad, w.service); r.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s from %s is allowed", method, bad)
			}
		}
	}
	if r := w.do(ask{"OPTIONS", "/api/agents", "", "", nil}); r.status != 204 || r.header.Get("Allow") == "" {
		t.Errorf("OPTIONS without an origin: %d %v", r.status, r.header)
	}
	star := begin(t, func(c *api.Config) { c.CORSOrigins = []string{"*", ""} })
	if r := star.do(ask{"GET", "/health", "", "", map[string]string{"Origin": origin}}); r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("a star allows an origin")
	}
}

func TestPanics_AnswerAFixedTextWithTheRequestID(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	w.handler = api.PanicOn(w.handler, "/api/boom")
	r := w.do(ask{"GET", "/api/boom", "", "", map[string]string{"X-Request-Id": "my-id"}})
	f := wantFault(t, r, 500, "Something went wrong")
	if f.Details["request_id"] != "my-id" || r.header.Get("X-Request-Id") != "my-id" || bytes.Contains(r.body, []byte("secret detail")) {
		t.Errorf("the answer is %s, %v", r.body, r.header)
	}
	if log := w.log.String(); !strings.Contains(log, "secret detail") || !strings.Contains(log, "my-id") {
		t.Errorf("the log is %q", log)
	}
	r = w.do(ask{"GET", "/health", "", "", map[string]string{"X-Request-Id": `a"b`}})
	if id := r.header.Get("X-Request-Id"); id == `a"b` || len(id) != 16 {
		t.Errorf("an odd request id became %q", id)
	}
}

func TestLog_HasNoBodiesNoQueriesNoKeys(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := string(w.agent("fixed"))
	w.do(ask{"POST", "/api/agents/" + agent + "/run?note=querysecret", w.service, `{"message":"bodysecret"}`, nil})
	_ = w.store.Close() // what follows fails inside
	r := w.do(ask{"GET", "/api/agents?q=querysecret", w.service, "", nil})
	wantFault(t, r, 500, "Something went wrong")
	log := w.log.String()
	if !strings.Contains(log, "GET /api/agents") {
		t.Errorf("the fault is not logged: %q", log)
	}
	for _, secret := range []string{"querysecret", "bodysecret", w.service} {
		if strings.Contains(log, secret) || bytes.Contains(r.body, []byte(secret)) {
			t.Errorf("%q is told: %s", secret, log)
		}
	}
}

func TestMetrics_NeedAnAdminFromElsewhere(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	get := func(peer, host, key string, header ...string) int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
		r.RemoteAddr, r.Host = peer, host
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		if len(header) == 2 {
			r.Header.Set(header[0], header[1])
		}
		rec := httptest.NewRecorder()
		w.handler.ServeHTTP(rec, r)
		return rec.Code
	}
	for name, c := range map[string]struct{ got, want int }{
		"this machine":                   {get("127.0.0.1:5", "localhost:8787", ""), 200},
		"this machine, IPv6":             {get("[::1]:5", "[::1]:8787", ""), 200},
		"this machine by another name":   {get("127.0.0.1:5", "evil.example.com", ""), 401},
		"handed on by a proxy":           {get("127.0.0.1:5", "localhost", "", "X-Forwarded-For", "8.8.8.8"), 401},
		"elsewhere":                      {get("8.8.8.8:5", "localhost", ""), 401},
		"elsewhere, an admin":            {get("8.8.8.8:5", "hob.example.com", w.service), 200},
		"elsewhere, a key without admin": {get("8.8.8.8:5", "hob.example.com", w.scoped(hob.ScopeRead)), 403},
	} {
		if c.got != c.want {
			t.Errorf("%s: status %d, want %d", name, c.got, c.want)
		}
	}
	r := w.do(ask{"GET", "/metrics", "", "", nil})
	for _, line := range []string{`hob_http_requests_total{method="GET",route="/metrics",status="2xx"}`, "hob_open_streams 0", `hob_build_info{version="1.2.3"} 1`} {
		if !strings.Contains(string(r.body), line) {
			t.Errorf("no %s in:\n%s", line, r.body)
		}
	}
}

func TestReady_SaysNoWithoutTheStore(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	_ = w.store.Close()
	r := w.do(ask{"GET", "/health/ready", "", "", nil})
	if f := wantFault(t, r, 503, "not ready"); f.Code != "not_ready" || r.header.Get("Retry-After") == "" {
		t.Errorf("the answer is %s %v", r.body, r.header)
	}
	if r := w.do(ask{"GET", "/health", "", "", nil}); r.status != 200 {
		t.Errorf("health: status %d", r.status)
	}
}
