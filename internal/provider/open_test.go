package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/egress"
	"hob/internal/provider"
)

// seen is a request that reached a server, as far as it tells who was asked with which key.
type seen struct{ Client, URL, Key string }

// spy is a set of clients that answer every request themselves and note it.
type spy struct {
	mu     sync.Mutex
	seen   []seen
	made   int
	status int
	body   string
}

type spyTransport struct {
	spy    *spy
	client string
}

func (s *spy) OperatorClient(string) (*http.Client, error) { return s.client("operator"), nil }
func (s *spy) UserClient(string) (*http.Client, error)     { return s.client("user"), nil }

func (s *spy) client(kind string) *http.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	return &http.Client{Transport: spyTransport{s, kind}}
}

func (t spyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key") + r.Header.Get("X-Goog-Api-Key")
	t.spy.mu.Lock()
	defer t.spy.mu.Unlock()
	t.spy.seen = append(t.spy.seen, seen{t.client, r.URL.String(), strings.TrimPrefix(key, "Bearer ")})
	rec := httptest.NewRecorder()
	rec.WriteHeader(max(t.spy.status, http.StatusOK))
	rec.WriteString(t.spy.body)
	res := rec.Result()
	res.Request = r
	return res, nil
}

func (s *spy) took() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.seen
	s.seen = nil
	return out
}

// rings are the keys of workspaces.
type rings struct {
	mu   sync.Mutex
	keys map[hob.WorkspaceID][]hob.ProviderKey
	err  error
	asks int
}

func (k *rings) get(_ context.Context, ws hob.WorkspaceID) ([]hob.ProviderKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asks++
	return k.keys[ws], k.err
}

func (k *rings) set(ws hob.WorkspaceID, keys ...hob.ProviderKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		k.keys = map[hob.WorkspaceID][]hob.ProviderKey{}
	}
	k.keys[ws] = keys
}

func openFor(t *testing.T, r *provider.Registry, ws hob.WorkspaceID, model string) hob.Model {
	t.Helper()
	m, err := r.Open(t.Context(), ws, model)
	if err != nil {
		t.Fatalf("open %s: %v", model, err)
	}
	return m
}

const theirs, others = hob.WorkspaceID("theirs"), hob.WorkspaceID("others")

// TestOpen_KeysGoNowhereElse is the rule that must never break: a key is sent to the address that stands beside it, or to
// the vendor's own.
func TestOpen_KeysGoNowhereElse(t *testing.T) {
	t.Parallel()
	operator := provider.Config{
		OpenAI:     provider.Endpoint{Key: "op-openai", BaseURL: "http://gateway.internal/v1"},
		Anthropic:  provider.Endpoint{Key: "op-anthropic"},
		Gemini:     provider.Endpoint{Key: "op-gemini", BaseURL: "http://gateway.internal"},
		OpenRouter: provider.Endpoint{Key: "op-openrouter"},
		Retries:    -1,
	}
	vendor := map[string]string{
		"openai": "https://api.openai.com/", "anthropic": "https://api.anthropic.com/",
		"gemini": "https://generativelanguage.googleapis.com/", "openrouter": "https://openrouter.ai/",
	}
	operators := map[string]string{
		"openai": "http://gateway.internal/", "anthropic": vendor["anthropic"], "gemini": "http://gateway.internal/",
		"openrouter": vendor["openrouter"],
	}
	for name := range vendor {
		cases := []struct {
			what        string
			key         *hob.ProviderKey
			client, url string
			sent        string
		}{
			{"the operator's", nil, "operator", operators[name], "op-" + name},
			{"a key alone", &hob.ProviderKey{Provider: name, Key: "ws-key"}, "operator", vendor[name], "ws-key"},
			{
				"a key and an address", &hob.ProviderKey{Provider: name, Key: "ws-key", BaseURL: "https://mine.example/v1"},
				"user", "https://mine.example/", "ws-key",
			},
			{
				"an address alone", &hob.ProviderKey{Provider: name, BaseURL: "https://mine.example/v1"},
				"user", "https://mine.example/", "",
			},
			{"nothing", &hob.ProviderKey{Provider: name}, "operator", operators[name], "op-" + name},
		}
		for _, c := range cases {
			t.Run(name+" "+c.what, func(t *testing.T) {
				t.Parallel()
				s, k := &spy{status: http.StatusTeapot}, &rings{}
				if c.key != nil {
					k.set(theirs, *c.key)
				}
				config := operator
				config.Clients, config.Keys = s, k.get
				m := openFor(t, provider.New(config), theirs, name+"/some-model")
				if m.Name != name {
					t.Errorf("the provider is %s", m.Name)
				}
				collect(t, m, ask("hi"))
				got := s.took()
				if len(got) != 1 || got[0].Client != c.client || !strings.HasPrefix(got[0].URL, c.url) || got[0].Key != c.sent {
					t.Errorf("sent %+v, want key %q to %s by the %s's client", got, c.sent, c.url, c.client)
				}
			})
		}
	}
}

func TestOpen_NamedEndpointsAndAliases(t *testing.T) {
	t.Parallel()
	s, k := &spy{status: http.StatusTeapot}, &rings{}
	k.set(theirs,
		hob.ProviderKey{Provider: "Groq", Key: "gk", BaseURL: "https://api.groq.example/openai/v1/"},
		hob.ProviderKey{Provider: "lan", BaseURL: "http://model.lan:8000/v1"},
		hob.ProviderKey{Provider: "google", Key: "goog"},
		hob.ProviderKey{Provider: "broken", Key: "x"},
		hob.ProviderKey{Provider: "scripted", Key: "x", BaseURL: "https://evil.example/v1"})
	r := provider.New(provider.Config{OpenRouter: provider.Endpoint{Key: "op"}, Clients: s, Keys: k.get, Retries: -1})
	cases := []struct {
		model, name, inner string
		want               seen
	}{
		{"groq/meta/llama-3.3-70b", "groq", "meta/llama-3.3-70b", seen{"user", "https://api.groq.example/openai/v1/chat/completions", "gk"}},
		{"lan/qwen3", "lan", "qwen3", seen{"user", "http://model.lan:8000/v1/chat/completions", ""}},
		{"gemini/gemini-2.5-pro", "gemini", "gemini-2.5-pro", seen{Client: "operator", Key: "goog"}},
		{"google/gemini-2.5-pro", "gemini", "gemini-2.5-pro", seen{Client: "operator", Key: "goog"}},
		{"gemini-2.5-pro", "gemini", "gemini-2.5-pro", seen{Client: "operator", Key: "goog"}},
		{"openrouter/a/b", "openrouter", "a/b", seen{"operator", "https://openrouter.ai/api/v1/chat/completions", "op"}},
		{"some-model", "gemini", "some-model", seen{Client: "operator", Key: "goog"}}, // the workspace's own before the operator's
	}
	for _, c := range cases {
		m := openFor(t, r, theirs, c.model)
		if m.Name != c.name || m.Model != c.inner {
			t.Errorf("%s became %s, %q", c.model, m.Name, m.Model)
		}
		collect(t, m, ask("hi"))
		got := s.took()
		if c.want.URL == "" && len(got) == 1 {
			got[0].URL = ""
		}
		if diff := cmp.Diff([]seen{c.want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.model, diff)
		}
	}
	if m := openFor(t, r, theirs, "scripted/demo"); m.Name != "scripted" {
		t.Errorf("a key took the place of the script: %s", m.Name)
	}
	for model, want := range map[string]string{
		"broken/x": "base_url", "groq/": "missing", "gpt-4o": "add a provider key", "openai/x": "gemini/openai/x",
	} {
		_, err := r.Open(t.Context(), theirs, model)
		var e *hob.Error
		if !errors.As(err, &e) || e.Kind != hob.Invalid || e.Code != "invalid_model" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want invalid_model with %q", model, err, want)
		}
	}
	// Another workspace has none of this: the name belongs to the model.
	if m := openFor(t, r, others, "groq/llama"); m.Name != "openrouter" || m.Model != "groq/llama" {
		t.Errorf("another workspace's groq/llama became %s, %q", m.Name, m.Model)
	}
}

func TestOpen_EndpointsAreKeptAndChangedKeysTakeEffect(t *testing.T) {
	t.Parallel()
	s, k := &spy{status: http.StatusTeapot}, &rings{}
	r := provider.New(provider.Config{Clients: s, Keys: k.get, Retries: -1})
	k.set(theirs, hob.ProviderKey{Provider: "openai", Key: "one"})
	k.set(others, hob.ProviderKey{Provider: "openai", Key: "one"})
	first := openFor(t, r, theirs, "gpt-4o")
	if again := openFor(t, r, theirs, "gpt-4o"); again.Provider != first.Provider {
		t.Error("the same key was opened twice")
	}
	if same := openFor(t, r, others, "gpt-4o"); same.Provider != first.Provider {
		t.Error("the same key and address were opened twice for two workspaces")
	}
	k.set(theirs, hob.ProviderKey{Provider: "openai", Key: "two"})
	collect(t, openFor(t, r, theirs, "gpt-4o"), ask("hi"))
	k.set(theirs, hob.ProviderKey{Provider: "openai", Key: "two", BaseURL: "https://mine.example/v1"})
	collect(t, openFor(t, r, theirs, "gpt-4o"), ask("hi"))
	k.set(theirs)
	if _, err := r.Open(t.Context(), theirs, "gpt-4o"); hob.KindOf(err) != hob.Invalid {
		t.Errorf("after the key was removed: %v", err)
	}
	want := []seen{
		{"operator", "https://api.openai.com/v1/chat/completions", "two"},
		{"user", "https://mine.example/v1/chat/completions", "two"},
	}
	if diff := cmp.Diff(want, s.took()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Opening makes nothing, so it contacts nobody.
	before := s.made
	openFor(t, r, others, "gpt-4o")
	if s.made != before {
		t.Error("opening made a client")
	}
}

func TestOpen_EndpointsAreBounded(t *testing.T) {
	t.Parallel()
	k := &rings{}
	r := provider.New(provider.Config{Clients: &spy{}, Keys: k.get})
	k.set(theirs, hob.ProviderKey{Provider: "openai", Key: "first"})
	first := openFor(t, r, theirs, "gpt-4o")
	for i := range provider.MaxEndpoints - 1 {
		k.set(others, hob.ProviderKey{Provider: "openai", Key: hob.Secret(fmt.Sprint(i))})
		openFor(t, r, others, "gpt-4o")
	}
	if openFor(t, r, theirs, "gpt-4o").Provider != first.Provider {
		t.Fatalf("forgotten among %d", provider.MaxEndpoints)
	}
	for i := range provider.MaxEndpoints {
		k.set(others, hob.ProviderKey{Provider: "anthropic", Key: hob.Secret(fmt.Sprint(i))})
		openFor(t, r, others, "claude-x")
	}
	if openFor(t, r, theirs, "gpt-4o").Provider == first.Provider {
		t.Error("more endpoints are kept than the bound says")
	}
}

func TestOpen_FailsWhereKeysCannotBeRead(t *testing.T) {
	t.Parallel()
	k := &rings{err: hob.Errorf(hob.Unavailable, "the store is away")}
	r := provider.New(provider.Config{OpenAI: provider.Endpoint{Key: "op"}, Clients: &spy{}, Keys: k.get})
	if _, err := r.Open(t.Context(), theirs, "gpt-4o"); hob.KindOf(err) != hob.Unavailable {
		t.Errorf("the operator's key was used instead: %v", err)
	}
	if _, _, err := r.DefaultFor(t.Context(), theirs); hob.KindOf(err) != hob.Unavailable {
		t.Errorf("DefaultFor: %v", err)
	}
	asked := k.asks
	openFor(t, r, theirs, "scripted/demo") // needs no key, so none is asked for
	if k.asks != asked {
		t.Error("keys were read for a script")
	}
}

func TestDefaultFor_PrefersTheWorkspacesOwn(t *testing.T) {
	t.Parallel()
	k := &rings{}
	k.set(theirs, hob.ProviderKey{Provider: "anthropic", Key: "k"})
	k.set(others, hob.ProviderKey{Provider: "named", BaseURL: "https://mine.example/v1"})
	r := provider.New(provider.Config{OpenAI: provider.Endpoint{Key: "op"}, Clients: &spy{}, Keys: k.get})
	none := provider.New(provider.Config{Clients: &spy{}, Keys: k.get})
	cases := []struct {
		registry *provider.Registry
		ws       hob.WorkspaceID
		want     string
		ok       bool
	}{
		{r, theirs, "anthropic/", true},
		{r, others, "openai/", true},
		{none, theirs, "anthropic/", true},
		{none, others, "scripted/demo", false}, // which models a named endpoint has is not known
	}
	for _, c := range cases {
		model, ok, err := c.registry.DefaultFor(t.Context(), c.ws)
		if err != nil || ok != c.ok || !strings.HasPrefix(model, c.want) {
			t.Errorf("%s: %q %t %v, want %s…", c.ws, model, ok, err, c.want)
		}
	}
}

// TestOpen_WorkspaceAddressIsJudged runs against the real guard: the same private address is open to the operator and
// closed to a workspace.
func TestOpen_WorkspaceAddressIsJudged(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server was reached") }))
	guard := egress.New(egress.Config{})
	t.Cleanup(func() { guard.Close(); srv.Close() })
	k := &rings{}
	k.set(theirs, hob.ProviderKey{Provider: "lan", Key: testKey, BaseURL: srv.URL + "/v1"})
	r := provider.New(provider.Config{Clients: guard, Keys: k.get, Retries: -1})
	a := collect(t, openFor(t, r, theirs, "lan/x"), ask("hi"))
	if a.Err == nil || a.Err.Class != hob.ClassBadRequest || !strings.Contains(a.Err.Message, "HOB_EGRESS_ALLOW") ||
		!strings.Contains(a.Err.Message, "base_url") {
		t.Errorf("got %+v", a.Err)
	}
}

func TestOpen_MessagesNameTheWorkspacesKey(t *testing.T) {
	t.Parallel()
	s, k := &spy{status: http.StatusUnauthorized, body: `{"error":{"message":"bad key ws-secret"}}`}, &rings{}
	k.set(theirs, hob.ProviderKey{Provider: "openai", Key: "ws-secret"})
	r := provider.New(provider.Config{OpenAI: provider.Endpoint{Key: "op"}, Clients: s, Keys: k.get, Retries: -1})
	a := collect(t, openFor(t, r, theirs, "gpt-4o"), ask("hi"))
	if a.Err == nil || a.Err.Class != hob.ClassUnauthorized || strings.Contains(a.Err.Message, "ws-secret") ||
		strings.Contains(a.Err.Message, "OPENAI_API_KEY") || !strings.Contains(a.Err.Message, "the provider key openai") {
		t.Errorf("got %+v", a.Err)
	}
}

func TestOpen_SaysWhetherAnEffortReachesTheModel(t *testing.T) {
	t.Parallel()
	k := &rings{}
	k.set(theirs, hob.ProviderKey{Provider: "mine", BaseURL: "https://mine.example/v1"}, hob.ProviderKey{Provider: "openrouter", Key: "k"})
	r := provider.New(provider.Config{
		OpenAI: provider.Endpoint{Key: "k"}, Anthropic: provider.Endpoint{Key: "k"}, Gemini: provider.Endpoint{Key: "k"}, Clients: &spy{}, Keys: k.get,
		Profiles: func(context.Context) ([]hob.ModelProfile, error) {
			return []hob.ModelProfile{
				{Endpoint: "https://mine.example/v1", Model: "probed", Facts: json.RawMessage(`{"reasoning_effort":"low"}`)},
				{Endpoint: "https://mine.example/v1", Model: "o3", Facts: json.RawMessage(`{"reasoning_effort":"refused"}`)},
			}, nil
		},
	})
	for model, want := range map[string]bool{
		"gpt-5": true, "gpt-4o": false, "openai/unheard-of": false, "mine/unheard-of": false, "mine/probed": true, "mine/o3": false, "mine/o3-mini": true,
		"openrouter/who/ever": true, "claude-sonnet-4-5": true, "claude-3-haiku": false, "gemini-2.5-pro": true, "gemini-2.0-flash": false,
		"scripted/demo": true,
	} {
		if got := openFor(t, r, theirs, model).Effort; got != want {
			t.Errorf("%s: %t", model, got)
		}
	}
}

func TestOpen_LightPriceAndCount(t *testing.T) {
	t.Parallel()
	k := &rings{}
	k.set(theirs,
		hob.ProviderKey{Provider: "deep", Key: "k", BaseURL: "https://api.deepseek.com/v1"},
		hob.ProviderKey{Provider: "openrouter", Key: "k"},
		hob.ProviderKey{Provider: "gemini", Key: "k", BaseURL: "https://proxy.example"})
	all := provider.Config{
		OpenAI: provider.Endpoint{Key: "k"}, Anthropic: provider.Endpoint{Key: "k"}, Gemini: provider.Endpoint{Key: "k"},
		OpenRouter: provider.Endpoint{Key: "k"}, Clients: &spy{}, Keys: k.get,
	}
	r := provider.New(all)
	all.OpenAI.BaseURL = "https://proxy.example/v1"
	proxied := provider.New(all)
	all.OpenAI.BaseURL = "https://API.openai.com/v1/"
	spelled := provider.New(all)
	const unknown = -1.0
	cases := []struct {
		registry     *provider.Registry
		ws           hob.WorkspaceID
		model, light string
		input        float64
		counts       bool
	}{
		{r, others, "gpt-4o", "openai/gpt-4.1-nano", 2.5, true},
		{spelled, others, "gpt-4o", "openai/gpt-4.1-nano", 2.5, true},
		{proxied, others, "gpt-4o", "", unknown, true},
		{r, others, "gpt-4.1-nano", "", 0.1, true},
		{r, others, "claude-sonnet-4-5", "anthropic/claude-haiku-4-5", 3, false},
		{r, others, "gemini-2.5-pro", "gemini/gemini-2.5-flash-lite", 1.25, false},
		{r, theirs, "gemini-2.5-pro", "", unknown, false},
		{r, theirs, "openrouter/openai/gpt-4o", "openrouter/openai/gpt-4.1-nano", 2.5, true},
		{r, others, "openrouter/anthropic/claude-sonnet-4.5", "openrouter/openai/gpt-4.1-nano", 3, false},
		{r, others, "openrouter/meta/llama-3.3-70b", "openrouter/openai/gpt-4.1-nano", unknown, false},
		{r, others, "openrouter/meta/llama-3.3-70b:free", "openrouter/openai/gpt-4.1-nano", 0, false},
		{r, theirs, "deep/deepseek-chat", "", 0.28, false},
		{r, others, "scripted/demo", "", 0, false},
		{r, others, "ollama/gpt-oss:20b", "", 0, true},
	}
	for _, c := range cases {
		m := openFor(t, c.registry, c.ws, c.model)
		input := unknown
		if m.Price != nil {
			input = m.Price.Input
		}
		if m.Light != c.light || input != c.input || (m.Count != nil) != c.counts {
			t.Errorf("%s for %s: light %q, input price %g, counted %t; want %q, %g, %t", c.model, c.ws, m.Light, input,
				m.Count != nil, c.light, c.input, c.counts)
		}
		if m.Light != "" {
			if light := openFor(t, c.registry, c.ws, m.Light); light.Provider != m.Provider {
				t.Errorf("%s: the lightweight model %s is served elsewhere", c.model, m.Light)
			}
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	k := &rings{}
	k.set(theirs, hob.ProviderKey{Provider: "openai", Key: "k"})
	r := provider.New(provider.Config{Clients: &spy{}, Keys: k.get})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Open(b.Context(), theirs, "openai/gpt-4o"); err != nil {
			b.Fatal(err)
		}
	}
}
