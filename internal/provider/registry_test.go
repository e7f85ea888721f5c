package provider_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/egress"
	"hob/internal/provider"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

// fromEnv is a configuration as an operator would write it.
func fromEnv(getenv func(string) string) provider.Config {
	return provider.Config{
		OpenAI:     provider.Endpoint{Key: hob.Secret(getenv("OPENAI_API_KEY")), BaseURL: getenv("OPENAI_BASE_URL")},
		Anthropic:  provider.Endpoint{Key: hob.Secret(getenv("ANTHROPIC_API_KEY")), BaseURL: getenv("ANTHROPIC_BASE_URL")},
		Gemini:     provider.Endpoint{Key: hob.Secret(getenv("GEMINI_API_KEY")), BaseURL: getenv("GEMINI_BASE_URL")},
		OpenRouter: provider.Endpoint{Key: hob.Secret(getenv("OPENROUTER_API_KEY")), BaseURL: getenv("OPENROUTER_BASE_URL")},
		OllamaHost: getenv("OLLAMA_HOST"),
	}
}

func (d direct) UserClient(string) (*http.Client, error) { return d.client, nil }

func registry(pairs ...string) *provider.Registry {
	c := fromEnv(env(pairs...))
	c.Clients = direct{http.DefaultClient}
	return provider.New(c)
}

func TestOpen_RoutesModelStrings(t *testing.T) {
	t.Parallel()
	all := registry("OPENAI_API_KEY", "k", "ANTHROPIC_API_KEY", "k", "OPENROUTER_API_KEY", "k", "GEMINI_API_KEY", "k",
		"OLLAMA_HOST", "localhost")
	router := registry("OPENROUTER_API_KEY", "k")
	cases := []struct {
		registry        *provider.Registry
		in, name, model string
		window          int
	}{
		{all, "openai/gpt-4.1", "openai", "gpt-4.1", 1_047_576},
		{all, "OpenAI/gpt-4o", "openai", "gpt-4o", 128_000},
		{all, " gpt-4 ", "openai", "gpt-4", 8_192},
		{all, "gpt-4-turbo-2024-04-09", "openai", "gpt-4-turbo-2024-04-09", 128_000},
		{all, "o1", "openai", "o1", 200_000},
		{all, "o4-mini", "openai", "o4-mini", 200_000},
		{all, "claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5", 200_000},
		{all, "google/gemini-3-pro-preview", "gemini", "gemini-3-pro-preview", 1_048_576},
		{all, "gemini/gemini-1.5-pro", "gemini", "gemini-1.5-pro", 2_097_152},
		{all, "openrouter/google/gemini-2.5-pro", "openrouter", "google/gemini-2.5-pro", 1_048_576},
		{all, "openrouter/anthropic/claude-sonnet-4.5", "openrouter", "anthropic/claude-sonnet-4.5", 200_000},
		{all, "ollama/gpt-oss:20b", "ollama", "gpt-oss:20b", 131_072},
		{all, "ollama/library/llama3.2", "ollama", "library/llama3.2", 131_072},
		{all, "gemini-2.5-pro", "gemini", "gemini-2.5-pro", 1_048_576},
		{all, "google/gemini-2.5-pro", "gemini", "gemini-2.5-pro", 1_048_576},
		{all, "opus-of-mine", "openai", "opus-of-mine", provider.DefaultWindow},
		{all, "o1000", "openai", "o1000", 200_000},
		{router, "meta-llama/llama-3.3-70b", "openrouter", "meta-llama/llama-3.3-70b", 131_072},
		{router, "some-model", "openrouter", "some-model", provider.DefaultWindow},
		{router, "scripted", "scripted", "script", provider.DefaultWindow},
		{router, "scripted/demo", "scripted", "demo", provider.DefaultWindow},
		{router, "ollama/x", "ollama", "x", provider.DefaultWindow}, // at its usual port, without configuration
	}
	for _, c := range cases {
		m, err := c.registry.Open(context.Background(), hob.DefaultWorkspace, c.in)
		if err != nil {
			t.Errorf("%s: %s", c.in, err)
			continue
		}
		if m.Name != c.name || m.Model != c.model || m.Window != c.window || m.Provider == nil {
			t.Errorf("%s became %s, %q, %d; want %s, %q, %d", c.in, m.Name, m.Model, m.Window, c.name, c.model, c.window)
		}
	}
}

func TestOpen_RefusalsNameTheWayOut(t *testing.T) {
	t.Parallel()
	none, router := registry(), registry("OPENROUTER_API_KEY", "k")
	cases := []struct {
		registry *provider.Registry
		in       string
		want     []string
	}{
		{none, "openai/gpt-4o", []string{"OPENAI_API_KEY", "OPENAI_BASE_URL"}},
		{none, "gpt-4o", []string{"OPENAI_API_KEY"}},
		{router, "gpt-4o", []string{"OPENAI_API_KEY", "openrouter/gpt-4o"}},
		{none, "claude-x", []string{"ANTHROPIC_API_KEY"}},
		{none, "openrouter/a/b", []string{"OPENROUTER_API_KEY"}},
		{none, "mine", []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "OLLAMA_HOST", "scripted/demo", "add a provider key"}},
		{router, "gemini/gemini-2.5-pro", []string{"GEMINI_API_KEY", "add a provider key"}},
		{router, "google/gemini-2.5-pro", []string{"GEMINI_API_KEY", "openrouter/google/gemini-2.5-pro"}},
		{router, "gemini-2.5-pro", []string{"GEMINI_API_KEY"}},
		{router, "", []string{"provider/model"}},
		{router, "openrouter/", []string{"missing"}},
		{router, "scripted/none", []string{"demo", "echo"}},
		{registry("OPENAI_BASE_URL", "localhost:8080/v1"), "gpt-4o", []string{"OPENAI_BASE_URL", "https://host/v1"}},
		{registry("OPENAI_BASE_URL", "https://h/v1?key=sk-secret"), "gpt-4o", []string{"OPENAI_BASE_URL"}},
		{registry("OLLAMA_HOST", "ftp://x"), "ollama/x", []string{"OLLAMA_HOST"}},
	}
	for _, c := range cases {
		_, err := c.registry.Open(context.Background(), hob.DefaultWorkspace, c.in)
		if hob.KindOf(err) != hob.Invalid {
			t.Errorf("%q gave %v, which is not Invalid", c.in, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: the message lacks %q: %s", c.in, w, err)
			}
		}
		if strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%q: the message holds a secret: %s", c.in, err)
		}
	}
}

func TestDefault_IsTheFirstConfiguredOne(t *testing.T) {
	t.Parallel()
	cases := []struct {
		env   []string
		model string
		ok    bool
	}{
		{nil, "scripted/demo", false},
		{[]string{"OPENAI_API_KEY", "k", "ANTHROPIC_API_KEY", "k"}, "openai/", true},
		{[]string{"OPENAI_BASE_URL", "http://localhost/v1"}, "openai/", true},
		{[]string{"ANTHROPIC_API_KEY", "k", "OPENROUTER_API_KEY", "k"}, "anthropic/claude-", true},
		{[]string{"GEMINI_API_KEY", "k", "OPENROUTER_API_KEY", "k"}, "gemini/gemini-2.5-flash", true},
		{[]string{"OPENROUTER_API_KEY", "k", "OLLAMA_HOST", "h"}, "openrouter/", true},
		{[]string{"OLLAMA_HOST", "h"}, "scripted/demo", false}, // which models it has is not known
	}
	for _, c := range cases {
		r := registry(c.env...)
		model, ok := r.Default()
		if !strings.HasPrefix(model, c.model) || ok != c.ok {
			t.Errorf("%v: %s, %t", c.env, model, ok)
		}
		if _, err := r.Open(context.Background(), hob.DefaultWorkspace, model); err != nil {
			t.Errorf("%v: the default cannot be opened: %s", c.env, err)
		}
	}
}

// TestProviders_Inventory is reviewed when a provider is added.
func TestProviders_Inventory(t *testing.T) {
	t.Parallel()
	want := []provider.Info{
		{Name: "openai", Configured: true, Variables: "OPENAI_API_KEY (or OPENAI_BASE_URL)", Model: "openai/gpt-5.4-mini"},
		{Name: "anthropic", Variables: "ANTHROPIC_API_KEY (or ANTHROPIC_BASE_URL)", Model: "anthropic/claude-sonnet-4-5"},
		{Name: "gemini", Variables: "GEMINI_API_KEY (or GEMINI_BASE_URL)", Model: "gemini/gemini-2.5-flash"},
		{Name: "openrouter", Variables: "OPENROUTER_API_KEY", Model: "openrouter/openai/gpt-5.4-mini"},
		{Name: "ollama", Variables: "OLLAMA_HOST"},
		{Name: "scripted", Configured: true},
	}
	if diff := cmp.Diff(want, registry("OPENAI_API_KEY", "k").Providers()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// refusing is a guard that lets nothing through.
type refusing struct{}

func (refusing) UserClient(string) (*http.Client, error) {
	return nil, errors.New("no user's address is asked for")
}

func (refusing) OperatorClient(string) (*http.Client, error) {
	return nil, &egress.Error{Kind: egress.Refused, Message: "the address 169.254.169.254 is not allowed"}
}

func TestProviders_GuardsRefusalIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"openai/x", "anthropic/x"} {
		c := fromEnv(env("OPENAI_API_KEY", testKey, "ANTHROPIC_API_KEY", testKey))
		c.Clients = refusing{}
		m, err := provider.New(c).Open(context.Background(), hob.DefaultWorkspace, model)
		if err != nil {
			t.Fatal(err)
		}
		a := collect(t, m, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassBadRequest || !strings.Contains(a.Err.Message, "169.254.169.254 is not allowed") {
			t.Errorf("%s: %+v", model, a.Err)
		}
	}
}

func TestProviders_NoServerNamesTheVariable(t *testing.T) {
	t.Parallel()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c := fromEnv(env("OLLAMA_HOST", "127.0.0.1:1"))
	c.Clients, c.RetryBase = direct{&http.Client{Transport: transport}}, 1
	m, err := provider.New(c).Open(context.Background(), hob.DefaultWorkspace, "ollama/llama3")
	if err != nil {
		t.Fatal(err)
	}
	a := collect(t, m, ask("hi"))
	if a.Err == nil || a.Err.Class != hob.ClassModelError || !strings.Contains(a.Err.Message, "OLLAMA_HOST") || errors.Unwrap(a.Err) == nil {
		t.Errorf("got %+v", a.Err)
	}
}

// secretive fails with an error that names the whole address, as net/http does.
type secretive struct{}

func (secretive) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, errors.New("cannot reach " + r.URL.String() + " with " + r.Header.Get("Authorization"))
}

func TestProviders_KeyIsInNoErrorOfTheConnection(t *testing.T) {
	t.Parallel()
	c := fromEnv(env("OPENAI_API_KEY", testKey, "OPENAI_BASE_URL", "https://user:hunter2@example.com/v1"))
	c.Clients, c.RetryBase = direct{&http.Client{Transport: secretive{}}}, 1
	m, err := provider.New(c).Open(context.Background(), hob.DefaultWorkspace, "openai/x")
	if err != nil {
		t.Fatal(err)
	}
	a := collect(t, m, ask("hi"))
	if a.Err == nil || a.Err.Err == nil {
		t.Fatalf("got %+v", a)
	}
	for _, text := range []string{a.Err.Message, a.Err.Err.Error()} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, testKey) {
			t.Errorf("a secret is in %q", text)
		}
	}
}
