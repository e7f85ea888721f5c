package provider_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/provider"
)

func TestParsePrices_FindsTheNearestName(t *testing.T) {
	t.Parallel()
	p, err := provider.ParsePrices(`{
		"openai/gpt-4o": {"input": 1, "output": 2, "cached_input": 0.5},
		"gpt-4o": {"input": 3, "output": 4},
		"GPT-4o-Mini*": {"input": 5, "output": 6},
		"named/*": {"input": 7, "output": 8},
		"named/big-*": {"input": 9, "output": 10},
		"free": {"input": 0, "output": 0}
	}`)
	if err != nil {
		t.Fatal(err)
	}
	half := 0.5
	cases := []struct {
		provider, model string
		want            *hob.Price
	}{
		{"openai", "gpt-4o", &hob.Price{Input: 1, Output: 2, Cached: &half}},
		{"named", "gpt-4o", &hob.Price{Input: 3, Output: 4}},
		{"openrouter", "openai/gpt-4o", &hob.Price{Input: 1, Output: 2, Cached: &half}},
		{"openrouter", "azure/gpt-4o", &hob.Price{Input: 3, Output: 4}},
		{"openai", "gpt-4o-mini-2024-07-18", &hob.Price{Input: 5, Output: 6}},
		{"openai", "GPT-4o-mini", &hob.Price{Input: 5, Output: 6}},
		{"named", "small", &hob.Price{Input: 7, Output: 8}},
		{"named", "big-one", &hob.Price{Input: 9, Output: 10}},
		{"openai", "free", &hob.Price{}},
		{"openai", "gpt-4o-audio", nil},
		{"openai", "", nil},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, p.Of(c.provider, c.model)); diff != "" {
			t.Errorf("%s/%s (-want +got):\n%s", c.provider, c.model, diff)
		}
	}
	if empty, err := provider.ParsePrices("  "); err != nil || empty.Of("openai", "gpt-4o") != nil {
		t.Errorf("an empty text: %v", err)
	}
	all, err := provider.ParsePrices(`{"*": {"input": 1, "output": 1}}`)
	if err != nil || all.Of("any", "model") == nil {
		t.Errorf("a star alone: %v", err)
	}
}

func TestParsePrices_NamesTheFault(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`x`:                                    "JSON object",
		`null`:                                 "JSON object",
		`[]`:                                   "JSON object",
		`{"a": {"input": 1, "output": 1}} {}`:  "JSON object",
		`{"a": 1}`:                             `"a"`,
		`{"a": null}`:                          "input and output",
		`{"a": {"input": 1}}`:                  "output is missing",
		`{"a": {"input": "1", "output": 2}}`:   "input is no number",
		`{"a": {"in": 1, "output": 2}}`:        "input and output",
		`{"a": {"input": -1, "output": 2}}`:    "input must be 0 to",
		`{"a": {"input": 1, "output": 1e9}}`:   "0 to",
		`{"a": {"input": 1, "output": 1e999}}`: "input and output",
		`{"": {"input": 1, "output": 1}}`:      "name",
		`{"a*b": {"input": 1, "output": 1}}`:   "star",
		`{"a": {"input": 1, "output": 1, "cached_input": -1}}`:          "cached_input must be 0 to",
		`{"a": "` + strings.Repeat("x", provider.MaxPricesBytes) + `"}`: "longer",
	} {
		_, err := provider.ParsePrices(text)
		if hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want Invalid with %q", text, err, want)
		}
	}
}

func TestOpen_PricesOfTheWorkspaceComeFirst(t *testing.T) {
	t.Parallel()
	texts := map[hob.WorkspaceID]string{
		theirs: `{"gpt-4o": {"input": 1, "output": 1}, "ollama/*": {"input": 2, "output": 2}, "scripted/*": {"input": 3, "output": 3}}`,
		others: `{"gpt-4o": broken`,
	}
	var fault error
	r := provider.New(provider.Config{
		OpenAI: provider.Endpoint{Key: "k", BaseURL: "https://proxy.example/v1"}, Clients: &spy{},
		Settings: func(_ context.Context, ws hob.WorkspaceID, key string) (string, error) {
			if key != "MODEL_PRICES" {
				t.Errorf("the setting %s was read", key)
			}
			return texts[ws], fault
		},
	})
	price := func(ws hob.WorkspaceID, model string) float64 {
		t.Helper()
		if m := openFor(t, r, ws, model); m.Price != nil {
			return m.Price.Input
		}
		return -1
	}
	for _, c := range []struct {
		ws    hob.WorkspaceID
		model string
		want  float64
	}{
		{theirs, "gpt-4o", 1},
		{theirs, "gpt-5", -1},
		{theirs, "ollama/x", 2},
		{theirs, "scripted/demo", 3},
		{others, "gpt-4o", -1},
		{others, "ollama/x", 0}, // a broken text is as none
	} {
		if got := price(c.ws, c.model); got != c.want {
			t.Errorf("%s for %s costs %g, want %g", c.model, c.ws, got, c.want)
		}
	}
	texts[theirs] = `{"gpt-4o": {"input": 4, "output": 1}}`
	if got := price(theirs, "gpt-4o"); got != 4 {
		t.Errorf("after a change it costs %g", got)
	}
	// A budget must not be counted with the wrong price because a read failed.
	fault = hob.Errorf(hob.Unavailable, "the store is away")
	if _, err := r.Open(t.Context(), theirs, "gpt-4o"); hob.KindOf(err) != hob.Unavailable {
		t.Errorf("without its settings: %v", err)
	}
}

func TestOpen_ListPricesAreOfTheModelAlone(t *testing.T) {
	t.Parallel()
	r := registry("OPENAI_API_KEY", "k", "ANTHROPIC_API_KEY", "k", "GEMINI_API_KEY", "k", "OPENROUTER_API_KEY", "k")
	const unknown = -1.0
	for model, want := range map[string][2]float64{
		"gpt-5": {1.25, 10}, "gpt-5-2025-08-07": {1.25, 10}, "gpt-5-mini": {0.25, 2}, "gpt-5.4-mini": {0.75, 4.5},
		"gpt-5.9": {unknown}, "gpt-5.9-mini": {unknown}, "gpt-50": {unknown}, "gpt-6": {unknown},
		"gpt-4": {30, 60}, "gpt-4-0613": {30, 60}, "gpt-4-32k": {60, 120}, "gpt-4-turbo-2024-04-09": {10, 30},
		"gpt-4o-2024-08-06": {2.5, 10}, "gpt-4o-2024-05-13": {5, 15}, "o3": {2, 8}, "o3-2025-04-16": {2, 8}, "o3-pro": {20, 80},
		"claude-opus-4-20250514": {15, 75}, "claude-opus-4-1-20250805": {15, 75}, "claude-opus-4-5-20251101": {5, 25},
		"claude-opus-4-99": {unknown}, "claude-sonnet-9": {unknown}, "claude-haiku-4-5": {1, 5},
		"gemini-2.5-flash-lite": {0.1, 0.4}, "gemini-2.5-flash-preview-09-2025": {0.3, 2.5}, "gemini-9-pro": {unknown},
		"openrouter/anthropic/claude-opus-4.5": {5, 25}, "openrouter/google/gemini-2.5-pro": {1.25, 10},
		"openrouter/x-ai/grok-4-fast": {0.2, 0.5}, "openrouter/deepseek/deepseek-chat": {unknown},
		"openrouter/someone/gpt-4o": {unknown}, "openai/claude-sonnet-4-5": {unknown},
	} {
		m := openFor(t, r, hob.DefaultWorkspace, model)
		got := [2]float64{unknown}
		if m.Price != nil {
			got = [2]float64{m.Price.Input, m.Price.Output}
		}
		if got != want {
			t.Errorf("%s costs %v, want %v", model, got, want)
		}
		if p := m.Price; p != nil && p.Cached != nil && (*p.Cached <= 0 || *p.Cached >= p.Input) {
			t.Errorf("%s: cached input costs %g, input %g", model, *p.Cached, p.Input)
		}
	}
}
