package provider_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/egress"
	"hob/internal/provider"
)

// tags is an Ollama as far as it lists its models.
type tags struct {
	asked atomic.Int32
	body  atomic.Value // string
	down  atomic.Bool
}

func (o *tags) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.asked.Add(1)
	if r.URL.Path != "/api/tags" || o.down.Load() {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, o.body.Load().(string))
}

const twoModels = `{"models":[
	{"name":"nomic-embed-text:latest","details":{"family":"nomic-bert"}},
	{"name":"qwen3:8b","modified_at":"2026-03-02T10:00:00Z","details":{"family":"qwen3"}},
	{"name":"llama3.2:latest","modified_at":"2026-01-02T10:00:00Z","details":{"family":"llama"}}]}`

// world is a registry that looks for an Ollama where a fake one listens, and a clock to turn.
func findingWorld(t *testing.T, body string, change func(*provider.Config)) (*provider.Registry, *tags, *atomic.Int64) {
	t.Helper()
	o := &tags{}
	o.body.Store(body)
	srv := httptest.NewServer(o)
	guard := egress.New(egress.Config{})
	t.Cleanup(func() { guard.Close(); srv.Close() })
	passed := &atomic.Int64{}
	began := time.Now()
	c := provider.Config{
		Clients: guard, FindOllama: strings.TrimPrefix(srv.URL, "http://"),
		Clock: func() time.Time { return began.Add(time.Duration(passed.Load())) },
	}
	if change != nil {
		change(&c)
	}
	return provider.New(c), o, passed
}

func TestFindOllama_CountsAsConfiguredOnceFound(t *testing.T) {
	t.Parallel()
	r, o, _ := findingWorld(t, twoModels, nil)
	info := func() provider.Info {
		for _, p := range r.Providers() {
			if p.Name == "ollama" {
				return p
			}
		}
		t.Fatal("ollama is not listed")
		return provider.Info{}
	}
	if info().Configured || o.asked.Load() != 0 {
		t.Error("making a registry or listing its providers looked for an Ollama")
	}
	base, models, found := r.FindOllama(t.Context())
	if !found || !strings.HasPrefix(base, "http://127.0.0.1:") || strings.HasSuffix(base, "/v1") {
		t.Fatalf("found %t at %q", found, base)
	}
	if diff := cmp.Diff([]string{"qwen3:8b", "llama3.2:latest"}, models); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	if i := info(); !i.Configured || i.Model != "ollama/qwen3:8b" {
		t.Errorf("listed as %+v", i)
	}
	if model, ok := r.Default(); !ok || model != "ollama/qwen3:8b" {
		t.Errorf("the default is %q, %t", model, ok)
	}
	m := openFor(t, r, hob.DefaultWorkspace, "some-model")
	if m.Name != "ollama" || m.Model != "some-model" || m.Price == nil || m.Price.Input != 0 {
		t.Errorf("a bare name became %s, %q, %v", m.Name, m.Model, m.Price)
	}
	if n := o.asked.Load(); n != 1 {
		t.Errorf("asked %d times within a minute", n)
	}
}

func TestFindOllama_IsReachedWhereItWasFound(t *testing.T) {
	t.Parallel()
	r, o, _ := findingWorld(t, twoModels, func(c *provider.Config) { c.Retries = -1 })
	a := collect(t, openFor(t, r, hob.DefaultWorkspace, "ollama/qwen3:8b"), ask("hi"))
	if a.Err == nil || a.Err.Status != http.StatusNotFound || o.asked.Load() != 1 {
		t.Errorf("%+v after %d requests, want the fake's 404", a.Err, o.asked.Load())
	}
}

func TestFindOllama_HasTheLowestRank(t *testing.T) {
	t.Parallel()
	k := &rings{}
	k.set(theirs, hob.ProviderKey{Provider: "anthropic", Key: "k"})
	r, o, _ := findingWorld(t, twoModels, func(c *provider.Config) {
		c.OpenRouter.Key, c.Keys = "k", k.get
	})
	if m := openFor(t, r, others, "some-model"); m.Name != "openrouter" {
		t.Errorf("a bare name went to %s", m.Name)
	}
	if model, _, err := r.DefaultFor(t.Context(), theirs); err != nil || !strings.HasPrefix(model, "anthropic/") {
		t.Errorf("the default is %q, %v", model, err)
	}
	if o.asked.Load() != 0 {
		t.Error("an Ollama was looked for that nobody needs")
	}
}

func TestFindOllama_RemembersForAWhile(t *testing.T) {
	t.Parallel()
	r, o, passed := findingWorld(t, twoModels, nil)
	find := func(want bool, asked int32, what string) {
		t.Helper()
		if _, _, found := r.FindOllama(t.Context()); found != want || o.asked.Load() != asked {
			t.Errorf("%s: found %t after %d requests, want %t after %d", what, found, o.asked.Load(), want, asked)
		}
	}
	find(true, 1, "first")
	o.down.Store(true)
	passed.Store(int64(59 * time.Second))
	find(true, 1, "within a minute")
	passed.Store(int64(61 * time.Second))
	find(false, 2, "after a minute")
	find(false, 2, "at once again")
	if model, ok := r.Default(); ok {
		t.Errorf("the default is %q", model)
	}
	o.down.Store(false)
	passed.Store(int64(65 * time.Second))
	find(true, 3, "soon after it was missed")
}

func TestFindOllama_TakesOnlyAnOllama(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		`{"models":[]}`:    true,
		`{"models":null}`:  false,
		`{}`:               false,
		`<html>hello`:      false,
		``:                 false,
		`[{"models":[]}]`:  false,
		`{"models":"all"}`: false,
	} {
		r, _, _ := findingWorld(t, body, nil)
		if _, _, found := r.FindOllama(t.Context()); found != want {
			t.Errorf("%s: found %t", body, found)
		}
		if model, ok := r.Default(); ok {
			t.Errorf("%s: the default is %q", body, model)
		}
	}
}

func TestFindOllama_LooksNowhereWhereConfiguredOrNotAsked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*provider.Config){
		"configured": func(c *provider.Config) { c.OllamaHost = c.FindOllama },
		"not asked":  func(c *provider.Config) { c.FindOllama = "" },
	} {
		r, o, _ := findingWorld(t, twoModels, change)
		if base, _, found := r.FindOllama(t.Context()); found || base != "" {
			t.Errorf("%s: found at %q", name, base)
		}
		if model, ok := r.Default(); ok || o.asked.Load() != 0 {
			t.Errorf("%s: the default is %q, asked %d times", name, model, o.asked.Load())
		}
	}
}

func TestFindOllama_NeverWaitsLong(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	guard := egress.New(egress.Config{})
	t.Cleanup(func() { close(hold); guard.Close(); srv.Close() })
	r := provider.New(provider.Config{Clients: guard, FindOllama: strings.TrimPrefix(srv.URL, "http://")})
	began := time.Now()
	if _, ok := r.Default(); ok {
		t.Error("a silent server was taken for an Ollama")
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("a silent server was waited for during %s", took)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, found := r.FindOllama(ended); found {
		t.Error("found without asking")
	}
}

func TestFindOllama_NeverAsksHobItself(t *testing.T) {
	t.Parallel()
	o := &tags{}
	o.body.Store(twoModels)
	srv := httptest.NewServer(o)
	own := netip.MustParseAddrPort(strings.TrimPrefix(srv.URL, "http://"))
	guard := egress.New(egress.Config{Own: func() []netip.AddrPort { return []netip.AddrPort{own} }})
	t.Cleanup(func() { guard.Close(); srv.Close() })
	r := provider.New(provider.Config{Clients: guard, FindOllama: own.String()})
	if _, _, found := r.FindOllama(t.Context()); found || o.asked.Load() != 0 {
		t.Errorf("found %t after %d requests", found, o.asked.Load())
	}
}
