package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"hob"
	"hob/internal/provider"
)

func updating() bool { return flag.Lookup("update").Value.String() == "true" }

func ptr[T any](v T) *T { return &v }

// requestOf is a request with everything in it.
func requestOf(reasoningProvider string) hob.Request {
	return hob.Request{
		System: "Be brief.\n<b>\u2028", Temperature: ptr(0.5), MaxTokens: 100, Step: 2,
		Tools: []hob.ToolSpec{weather, {Name: "clock"}, {Name: "mcp__" + strings.Repeat("long_", 14) + "näme", Description: "odd"}},
		Messages: []hob.Message{
			{Role: hob.RoleUser, Parts: []hob.Part{
				{Type: hob.TextPart, Text: "What is this?"},
				{Type: hob.ImagePart, URL: "https://example.com/a.png"},
				{Type: hob.ImagePart, URL: "data:image/png;base64,iVBORw0KGgo="},
				{Type: hob.ImagePart, MediaType: "image/jpeg", Data: []byte{0xff, 0xd8, 0xff}},
			}},
			{Role: hob.RoleAssistant, Content: "A \"map\"\\.", Reasoning: &hob.Reasoning{Provider: "elsewhere", Text: "hm", Artefact: json.RawMessage(`[{"type":"thinking","thinking":"x","signature":"y"}]`)}},
			{Role: hob.RoleSystem, Content: "The user is now in Rome."},
			{Role: hob.RoleUser, Content: "Weather here and in Oslo?"},
			{
				Role: hob.RoleAssistant,
				Calls: []hob.ToolCall{
					{ID: "call_1", Name: "weather", Arguments: json.RawMessage(`{"city":"Rome"}`)},
					{ID: "call_2", Name: "weather", Arguments: json.RawMessage(`{"city":"Oslo"}`)},
					{ID: "call_3", Name: "mcp__" + strings.Repeat("long_", 14) + "näme", Arguments: json.RawMessage(`{}`)},
				},
				Reasoning: &hob.Reasoning{Provider: reasoningProvider, Text: "two places", Artefact: json.RawMessage(
					`[{"type":"thinking","thinking":"two places","signature":"sig"}]`)},
			},
			{Role: hob.RoleTool, CallID: "call_1", Name: "weather", Content: "sun"},
			{Role: hob.RoleTool, CallID: "call_2", Name: "weather", Content: "no such city", IsError: true},
			{Role: hob.RoleTool, CallID: "call_3", Name: "x", Content: ""},
		},
	}
}

// withoutImages is for models that read none.
func withoutImages(r *hob.Request) {
	r.Messages[0] = hob.Message{Role: hob.RoleUser, Content: "What is this?"}
}

// TestRender pins what is sent, byte by byte.
func TestRender(t *testing.T) {
	t.Parallel()
	strictForm := json.RawMessage(`{"type":"json_schema","json_schema":{"name":"a b","strict":true,"schema":{"type":"object",` +
		`"properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}}`)
	openForm := json.RawMessage(`{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":{"type":"object",` +
		`"properties":{"a":{"type":"string"}},"additionalProperties":false}}}`)
	schema := json.RawMessage(`{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object"}}}`)
	cases := []struct {
		name  string
		model string
		alter func(*hob.Request)
	}{
		{"full", "openai/gpt-4o", nil},
		{"full", "anthropic/claude-sonnet-4-5", nil},
		{"full", "openrouter/anthropic/claude-sonnet-4.5", nil},
		{"full", "ollama/llama3.2", nil},
		{"last_step", "openai/gpt-4o", func(r *hob.Request) { r.NoToolUse = true }},
		{"last_step", "anthropic/claude-sonnet-4-5", func(r *hob.Request) { r.NoToolUse = true }},
		{"effort", "openai/gpt-4o", func(r *hob.Request) { r.ReasoningEffort = hob.EffortHigh }},
		{"effort", "openai/o3-mini", func(r *hob.Request) { r.ReasoningEffort = hob.EffortHigh; withoutImages(r) }},
		{"effort", "openai/gpt-5-mini", func(r *hob.Request) { r.ReasoningEffort = hob.EffortNone }},
		{"effort", "openai/gpt-5.1", func(r *hob.Request) { r.ReasoningEffort = hob.EffortNone }},
		{"effort", "openrouter/x/y", func(r *hob.Request) { r.ReasoningEffort = hob.EffortLow }},
		{"effort", "anthropic/claude-sonnet-4-5", func(r *hob.Request) { r.ReasoningEffort = hob.EffortMedium }},
		{"effort", "anthropic/claude-opus-4-1", func(r *hob.Request) { r.ReasoningEffort, r.MaxTokens = hob.EffortHigh, 0 }},
		{"effort", "anthropic/claude-opus-4-7", func(r *hob.Request) { r.ReasoningEffort = hob.EffortHigh }},
		{"effort", "anthropic/claude-3-5-haiku-latest", func(r *hob.Request) { r.ReasoningEffort = hob.EffortHigh }},
		{"effort_without_thoughts", "anthropic/claude-sonnet-4-5", func(r *hob.Request) {
			r.ReasoningEffort = hob.EffortHigh
			r.Messages[4].Reasoning = nil
		}},
		{"tools_lost", "openai/gpt-4o", func(r *hob.Request) { r.Tools = nil }},
		{"tools_lost", "anthropic/claude-sonnet-4-5", func(r *hob.Request) { r.Tools = nil }},
		{"tools_lost", "gemini/gemini-2.5-flash", func(r *hob.Request) { r.Tools = nil }},
		{"form", "openai/gpt-4o", func(r *hob.Request) { r.ResponseFormat = schema }},
		{"form", "anthropic/claude-sonnet-4-5", func(r *hob.Request) { r.ResponseFormat = schema }},
		{"reasoner", "openai/deepseek-reasoner", withoutImages},
		{"no_tools", "openai/gpt-4o", func(r *hob.Request) { r.Tools, r.Messages, r.System = nil, r.Messages[3:4], "" }},
		{"full", "gemini/gemini-2.5-flash", nil},
		{"full", "gemini/gemini-3-pro-preview", nil},
		{"last_step", "gemini/gemini-2.5-flash", func(r *hob.Request) { r.NoToolUse = true }},
		{"effort", "gemini/gemini-2.5-flash", func(r *hob.Request) { r.ReasoningEffort = hob.EffortMedium }},
		{"effort_none", "gemini/gemini-2.5-pro", func(r *hob.Request) { r.ReasoningEffort = hob.EffortNone }},
		{"effort", "gemini/gemini-3-pro-preview", func(r *hob.Request) { r.ReasoningEffort = hob.EffortMedium }},
		{"effort_none", "gemini/gemini-3-flash-preview", func(r *hob.Request) { r.ReasoningEffort = hob.EffortNone }},
		{"effort", "gemini/gemini-2.0-flash", func(r *hob.Request) { r.ReasoningEffort = hob.EffortHigh }},
		{"form", "gemini/gemini-2.5-flash", func(r *hob.Request) { r.ResponseFormat = schema }},
		{"form_alone", "gemini/gemini-2.5-flash", func(r *hob.Request) { r.ResponseFormat, r.Tools = schema, nil }},
		{"form_alone", "gemini/gemini-2.0-flash", func(r *hob.Request) { r.ResponseFormat, r.Tools = schema, nil }},
		{"form", "gemini/gemini-3-pro-preview", func(r *hob.Request) { r.ResponseFormat = schema }},
		{"search", "gemini/gemini-2.5-flash", func(r *hob.Request) { r.WebSearch, r.Tools = &hob.WebSearchOptions{}, nil }},
		{"assistant_first", "gemini/gemini-2.5-flash", func(r *hob.Request) { r.Messages = r.Messages[1:] }},
		{"search", "openrouter/openai/gpt-4o", func(r *hob.Request) { r.WebSearch = &hob.WebSearchOptions{Always: true} }},
		{"search_tool", "openrouter/openai/gpt-4o", func(r *hob.Request) {
			r.WebSearch = &hob.WebSearchOptions{MaxUses: 3, BlockedDomains: []string{"a.example", "b.example"}}
		}},
		{"search_tool", "anthropic/claude-sonnet-4-5", func(r *hob.Request) {
			r.WebSearch = &hob.WebSearchOptions{MaxUses: 3, BlockedDomains: []string{"a.example", "b.example"}}
		}},
		{"search", "openai/gpt-4o-search-preview", func(r *hob.Request) {
			r.WebSearch, r.Tools, r.Messages = &hob.WebSearchOptions{Always: true}, nil, r.Messages[3:4]
		}},
		{"search", "anthropic/claude-sonnet-4-5", func(r *hob.Request) { r.WebSearch = &hob.WebSearchOptions{} }},
		{"form_strict", "openai/gpt-4o", func(r *hob.Request) { r.ResponseFormat = strictForm }},
		{"form_strict_open", "openai/gpt-4o", func(r *hob.Request) { r.ResponseFormat = openForm }},
		{"form_json", "openai/gpt-4o", func(r *hob.Request) { r.ResponseFormat = json.RawMessage(`{"type":"json_object"}`) }},
		{"form_text", "openai/gpt-4o", func(r *hob.Request) { r.ResponseFormat = json.RawMessage(`{"type":"text"}`) }},
		{"form_strict", "openai/gpt-4-turbo", func(r *hob.Request) { r.ResponseFormat = strictForm }},
		{"form_strict", "anthropic/claude-sonnet-4-5", func(r *hob.Request) { r.ResponseFormat = strictForm }},
		{"form_strict", "anthropic/claude-3-5-haiku-latest", func(r *hob.Request) { r.ResponseFormat = strictForm }},
		{"form_strict_effort", "anthropic/claude-opus-4-7", func(r *hob.Request) { r.ResponseFormat, r.ReasoningEffort = strictForm, hob.EffortLow }},
		{"assistant_first", "anthropic/claude-sonnet-4-5", func(r *hob.Request) { r.Messages = r.Messages[1:] }},
	}
	for _, c := range cases {
		name := c.name + "_" + strings.NewReplacer("/", "_", ".", "_").Replace(c.model)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vendorName, _, _ := strings.Cut(c.model, "/")
			r := requestOf(vendorName)
			if c.alter != nil {
				c.alter(&r)
			}
			sent := capture(t, c.model, r)
			var b bytes.Buffer
			if err := json.Indent(&b, sent, "", "  "); err != nil {
				t.Fatalf("the request is no JSON: %s\n%s", err, sent)
			}
			b.WriteByte('\n')
			file := filepath.Join("testdata", "render", name+".json")
			if updating() {
				if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil { //nolint:gosec // a golden file
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func vendorOf(t *testing.T, model string) vendor {
	t.Helper()
	name, _, _ := strings.Cut(model, "/")
	for _, v := range vendors {
		if v.name == name {
			v.model = model
			return v
		}
	}
	t.Fatalf("no vendor for %s", model)
	return vendor{}
}

// capture gives the body that a request becomes.
func capture(t *testing.T, model string, r hob.Request) []byte {
	t.Helper()
	var body bytes.Buffer
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if _, err := body.ReadFrom(q.Body); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	defer srv.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c := provider.Config{Clients: direct{&http.Client{Transport: transport}}}
	vendorOf(t, model).config(&c, srv.URL)
	m, err := provider.New(c).Open(context.Background(), hob.DefaultWorkspace, model)
	if err != nil {
		t.Fatal(err)
	}
	collect(t, m, r)
	return body.Bytes()
}

// TestRender_EveryValidHistoryIsAccepted draws histories that hob.Validate accepts, and sends them to a vendor that checks
// everything.
func TestRender_EveryValidHistoryIsAccepted(t *testing.T) {
	t.Parallel()
	models := []string{
		"openai/gpt-4o", "openai/o3", "openai/gpt-5", "ollama/llama3", "anthropic/claude-sonnet-4-5",
		"anthropic/claude-opus-4-7", "anthropic/claude-3-haiku-20240307", "gemini/gemini-2.5-flash", "gemini/gemini-3-pro-preview",
		"gemini/gemini-2.5-pro", "gemini/gemini-3-flash-preview", "gemini/gemini-1.5-flash", "openrouter/google/gemini-2.5-pro",
	}
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			v := vendorOf(t, model)
			b := newBed(t, v, nil, nil)
			n := 0
			rapid.Check(t, func(rt *rapid.T) {
				r := drawRequest(rt, v.name)
				if err := hob.Validate(r.Messages); err != nil {
					rt.Fatalf("drawn history: %s", err)
				}
				n++
				if a := collect(t, b.model, r); a.Err != nil {
					rt.Fatalf("refused: %s", a.Err.Message)
				}
			})
			least := 50
			if testing.Short() { // rapid then tries a fifth
				least /= 5
			}
			if n < least || len(b.fake.Requests()) < n {
				t.Errorf("%d requests were accepted of %d", len(b.fake.Requests()), n)
			}
		})
	}
}

// drawnForms are forms of answer, among them schemas that no vendor enforces.
var drawnForms = []string{
	"", "", `{"type":"text"}`, `{"type":"json_object"}`,
	`{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},` +
		`"required":["a"],"additionalProperties":false,"$defs":{"b":{"type":"object","properties":{},"additionalProperties":false}}}}}`,
	`{"type":"json_schema","json_schema":{"name":"ö","strict":true,"schema":{"type":"object","properties":{"a":{"type":"number","minimum":1}},` +
		`"additionalProperties":false}}}`,
	`{"type":"json_schema","json_schema":{"schema":{"type":"object","properties":{"a":{"type":"object"}}}}}`,
}

func drawRequest(t *rapid.T, vendorName string) hob.Request {
	text := rapid.StringMatching(`[a-zA-Z0-9 é漢😀"\\\n<>&]{0,12}[a-z.]`)
	r := hob.Request{Step: 1, System: rapid.SampledFrom([]string{"", "Be brief."}).Draw(t, "system")}
	if rapid.Bool().Draw(t, "temperature") {
		r.Temperature = ptr(rapid.Float64Range(0, 2).Draw(t, "degrees"))
	}
	r.MaxTokens = rapid.SampledFrom([]int{0, 1, 500, 4_000}).Draw(t, "max_tokens")
	r.ReasoningEffort = rapid.SampledFrom([]hob.ReasoningEffort{"", hob.EffortNone, "minimal", hob.EffortLow, hob.EffortMedium, hob.EffortHigh}).Draw(t, "effort")
	r.Tools = []hob.ToolSpec{weather, {Name: "clock"}, {Name: strings.Repeat("é", 70)}}
	if form := rapid.SampledFrom(drawnForms).Draw(t, "form"); form != "" {
		r.ResponseFormat = json.RawMessage(form)
	}
	r.NoToolUse = (vendorName == "anthropic" || vendorName == "gemini") && rapid.Bool().Draw(t, "no tool use")
	if rapid.Bool().Draw(t, "begins amid a turn") {
		r.Messages = append(r.Messages, hob.Message{Role: hob.RoleAssistant, Content: text.Draw(t, "text")})
	}
	tools := r.Tools
	if rapid.IntRange(0, 4).Draw(t, "tools lost?") == 0 {
		r.Tools, r.NoToolUse = nil, false
	}
	calls := 0
	for range rapid.IntRange(1, 5).Draw(t, "turns") {
		if rapid.IntRange(0, 4).Draw(t, "system?") == 0 {
			r.Messages = append(r.Messages, hob.Message{Role: hob.RoleSystem, Content: text.Draw(t, "text")})
		}
		user := hob.Message{Role: hob.RoleUser, Content: text.Draw(t, "text")}
		if rapid.Bool().Draw(t, "image") {
			user = hob.Message{Role: hob.RoleUser, Parts: []hob.Part{
				{Type: hob.TextPart, Text: text.Draw(t, "text")}, {Type: hob.ImagePart, MediaType: "image/png", Data: []byte{1, 2}},
			}}
		}
		r.Messages = append(r.Messages, user)
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			m := hob.Message{Role: hob.RoleAssistant, Content: rapid.SampledFrom([]string{"", "Look."}).Draw(t, "said")}
			if rapid.Bool().Draw(t, "thought") {
				m.Reasoning = &hob.Reasoning{
					Provider: rapid.SampledFrom([]string{"openai", "anthropic", "gemini", "openrouter", "ollama"}).Draw(t, "thinker"),
					Text:     "hm", Artefact: json.RawMessage(`[{"type":"thinking","thinking":"hm","signature":"s"}]`),
				}
			}
			var results []hob.Message
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				calls++
				id := hob.CallID("call_" + strings.Repeat("x", calls))
				name := tools[rapid.IntRange(0, len(tools)-1).Draw(t, "tool")].Name
				m.Calls = append(m.Calls, hob.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(`{"a":"é\n"}`)})
				results = append(results, hob.Message{
					Role: hob.RoleTool, CallID: id, Name: name, Content: rapid.SampledFrom([]string{"", "ok", "\x00\u2028"}).Draw(t, "result"),
					IsError: rapid.Bool().Draw(t, "failed"),
				})
			}
			r.Messages = append(append(r.Messages, m), results...)
		}
		if rapid.Bool().Draw(t, "answered") {
			r.Messages = append(r.Messages, hob.Message{Role: hob.RoleAssistant, Content: text.Draw(t, "text")})
		}
	}
	return r
}
