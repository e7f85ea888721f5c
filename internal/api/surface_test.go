package api_test

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"hob"
	"hob/internal/api"
)

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
	for _, name := range []string{"X-Request-Id", "Retry-After", "Idempotency-Replayed"} {
		if !strings.Contains(r.header.Get("Access-Control-Expose-Headers"), name) {
			t.Errorf("the header %s cannot be read", name)
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
