package provider_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/egress"
	"hob/internal/provider"
)

func TestValidate_AsksTheRightPlaceWithTheKeyAlone(t *testing.T) {
	t.Parallel()
	cases := []struct {
		key  hob.ProviderKey
		want seen
	}{
		{hob.ProviderKey{Provider: "openai", Key: "k"}, seen{"operator", "https://api.openai.com/v1/models", "k"}},
		{hob.ProviderKey{Provider: "anthropic", Key: "k"}, seen{"operator", "https://api.anthropic.com/v1/models?limit=1", "k"}},
		{hob.ProviderKey{Provider: "google", Key: "k"}, seen{"operator", "https://generativelanguage.googleapis.com/v1beta/models?pageSize=1", "k"}},
		{hob.ProviderKey{Provider: "gemini", Key: "k"}, seen{"operator", "https://generativelanguage.googleapis.com/v1beta/models?pageSize=1", "k"}},
		{hob.ProviderKey{Provider: "openrouter", Key: "k"}, seen{"operator", "https://openrouter.ai/api/v1/key", "k"}},
		{hob.ProviderKey{Provider: "openai", Key: "k", BaseURL: "https://mine.example/v1/"}, seen{"user", "https://mine.example/v1/models", "k"}},
		{hob.ProviderKey{Provider: "named", BaseURL: "https://mine.example/v1"}, seen{"user", "https://mine.example/v1/models", ""}},
	}
	for _, c := range cases {
		s := &spy{body: `{"data":[]}`}
		r := provider.New(provider.Config{
			OpenAI:     provider.Endpoint{Key: "op", BaseURL: "http://gateway.internal/v1"},
			OpenRouter: provider.Endpoint{Key: "op", BaseURL: "http://gateway.internal/v1"}, Clients: s,
		})
		valid, reason, err := r.Validate(t.Context(), c.key)
		if !valid || reason != "" || err != nil {
			t.Errorf("%+v: %t %q %v", c.key, valid, reason, err)
		}
		if diff := cmp.Diff([]seen{c.want}, s.took()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.key.Provider, diff)
		}
	}
}

func TestValidate_AsksWhetherTheVersionIsMissing(t *testing.T) {
	t.Parallel()
	for base, asks := range map[string]bool{
		"https://mine.example": true, "https://mine.example/openai": true, "https://mine.example/v1": false, "https://mine.example/api/paas/v4": false,
	} {
		for body, status := range map[string]int{"not found": http.StatusNotFound, "<html>": http.StatusOK} {
			r := provider.New(provider.Config{Clients: &spy{status: status, body: body}})
			_, reason, err := r.Validate(t.Context(), hob.ProviderKey{Provider: "my-server", BaseURL: base})
			if err != nil || strings.Contains(reason, "lack /v1?") != asks || !strings.Contains(reason, "the provider key my-server") {
				t.Errorf("%s answers %d: %q, %v", base, status, reason, err)
			}
		}
	}
}

func TestValidate_TellsRefusedKeysFromOtherFailures(t *testing.T) {
	t.Parallel()
	const secret = "sk-secret-0123456789"
	cases := []struct {
		what, provider string
		status         int
		body           string
		hard           bool
		says           string
	}{
		{"wrong key", "openai", 401, `{"error":{"message":"Incorrect API key provided: ` + secret + `"}}`, true, "Incorrect API key"},
		{"no right", "anthropic", 403, `{"type":"error","error":{"type":"permission_error","message":"no"}}`, true, "403"},
		{"wrong key as Google says it", "gemini", 400, `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT",
			"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}`, true, "API key not valid"},
		{"another bad request", "gemini", 400, `{"error":{"code":400,"message":"no such page","status":"INVALID_ARGUMENT"}}`, false, "no such page"},
		{"no credit", "openai", 402, `{"error":{"message":"pay"}}`, false, "pay"},
		{"no list", "openai", 404, `not found`, false, "404"},
		{"too many", "openai", 429, `{"error":{"message":"slow down"}}`, false, "slow down"},
		{"broken", "openai", 500, secret, false, "500"},
		{"moved", "openai", 307, ``, false, "redirects are not followed"},
		{"web page", "openai", 200, `<html>`, false, "web page"},
		{"nothing", "openai", 200, ``, false, "web page"},
	}
	for _, c := range cases {
		s := &spy{status: c.status, body: c.body}
		r := provider.New(provider.Config{Clients: s})
		valid, reason, err := r.Validate(t.Context(), hob.ProviderKey{Provider: c.provider, Key: secret})
		if valid || !strings.Contains(reason, c.says) || strings.Contains(reason, secret) {
			t.Errorf("%s: %t, %q, want the reason %q", c.what, valid, reason, c.says)
		}
		if c.hard != (hob.KindOf(err) == hob.Invalid) || !c.hard && err != nil {
			t.Errorf("%s: error %v, want one: %t", c.what, err, c.hard)
		}
		if err != nil && (strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: error %v", c.what, err)
		}
		if n := len(s.took()); n != 1 {
			t.Errorf("%s: asked %d times", c.what, n)
		}
	}
}

func TestValidate_RefusesWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	guard := egress.New(egress.Config{Own: func() []netip.AddrPort { return nil }})
	t.Cleanup(guard.Close)
	r := provider.New(provider.Config{Clients: guard})
	for _, c := range []struct {
		key         hob.ProviderKey
		field, says string
	}{
		{hob.ProviderKey{Provider: "openai"}, "api_key", "missing"},
		{hob.ProviderKey{Key: "k"}, "provider", "one word"},
		{hob.ProviderKey{Provider: "a/b", Key: "k", BaseURL: "https://x.example"}, "provider", "one word"},
		{hob.ProviderKey{Provider: "scripted", Key: "k"}, "provider", "takes no key"},
		{hob.ProviderKey{Provider: "unheard", Key: "k"}, "base_url", "base_url"},
		{hob.ProviderKey{Provider: "ollama", Key: "k"}, "base_url", "base_url"},
		{hob.ProviderKey{Provider: "openai", Key: "k\r\nX-Evil: 1"}, "api_key", "line breaks"},
		{hob.ProviderKey{Provider: "named", Key: "k", BaseURL: "mine.example/v1"}, "base_url", "https://host/v1"},
		{hob.ProviderKey{Provider: "named", Key: "k", BaseURL: "https://x.example/v1?key=1"}, "base_url", "without a query"},
		{hob.ProviderKey{Provider: "named", Key: "k", BaseURL: "https://u:p@x.example/v1"}, "base_url", "credentials"},
		{hob.ProviderKey{Provider: "named", Key: "k", BaseURL: "http://127.0.0.1:11434/v1"}, "base_url", "HOB_EGRESS_ALLOW"},
		{hob.ProviderKey{Provider: "openai", Key: "k", BaseURL: "http://169.254.169.254/v1"}, "base_url", "HOB_EGRESS_ALLOW"},
		{hob.ProviderKey{Provider: "named", Key: "k", BaseURL: "http://10.0.0.1/v1"}, "base_url", "HOB_EGRESS_ALLOW"},
	} {
		valid, reason, err := r.Validate(t.Context(), c.key)
		var e *hob.Error
		if valid || !errors.As(err, &e) || e.Kind != hob.Invalid || e.Code != "invalid_provider_key" ||
			e.Details["field"] != c.field || !strings.Contains(reason, c.says) {
			t.Errorf("%s %s: %t %q %v, want field %s and %q", c.key.Provider, c.key.BaseURL, valid, reason, err, c.field, c.says)
		}
	}
}

// silent never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestValidate_EndsWithItsContextAndItsTime(t *testing.T) {
	t.Parallel()
	r := provider.New(provider.Config{Clients: direct{&http.Client{Transport: silent{}}}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	valid, reason, err := r.Validate(ctx, hob.ProviderKey{Provider: "openai", Key: "k"})
	if valid || err != nil || reason == "" {
		t.Errorf("%t %q %v", valid, reason, err)
	}
	if provider.ValidateTime != 10*time.Second {
		t.Errorf("the limit is %s", provider.ValidateTime)
	}
	var deadline time.Duration
	slow := direct{&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		at, _ := r.Context().Deadline()
		deadline = time.Until(at)
		return nil, io.ErrUnexpectedEOF
	})}}
	if _, _, err := provider.New(provider.Config{Clients: slow}).Validate(t.Context(), hob.ProviderKey{Provider: "openai", Key: "k"}); err != nil {
		t.Error(err)
	}
	if deadline <= 0 || deadline > provider.ValidateTime {
		t.Errorf("asked with a deadline of %s", deadline)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestValidate_WorksThroughTheAllowList(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("got %s %s %q", r.Method, r.URL, r.Header.Get("Authorization"))
		}
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m"}]}`)
	}))
	entries, err := egress.ParseAllow(strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	guard := egress.New(egress.Config{Allow: entries})
	t.Cleanup(func() { guard.Close(); srv.Close() })
	valid, reason, err := provider.New(provider.Config{Clients: guard}).Validate(t.Context(),
		hob.ProviderKey{Provider: "lan", Key: "k", BaseURL: srv.URL + "/v1"})
	if !valid || err != nil {
		t.Errorf("%t %q %v", valid, reason, err)
	}
}
