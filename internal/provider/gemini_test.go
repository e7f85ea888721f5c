package provider_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/fakeai"
	"hob/internal/provider"
)

// geminiBed is a bed of one model of Gemini's.
func geminiBed(t *testing.T, model string, reply func(fakeai.Parsed) fakeai.Reply, change func(*provider.Config)) *bed {
	t.Helper()
	return newBed(t, vendorOf(t, "gemini/"+model), reply, change)
}

func TestGemini_SignaturesGoBackAsTheyCame(t *testing.T) {
	t.Parallel()
	b := geminiBed(t, "gemini-3-pro-preview", fakeai.Steps(
		fakeai.Reply{Reasoning: []string{"Let me ", "think."}, Calls: []fakeai.Call{
			{ID: "a", Name: "weather", Arguments: `{"city":"Oslo"}`}, {ID: "b", Name: "weather", Arguments: `{"city":"Rome"}`},
		}},
		fakeai.Calls(fakeai.Call{ID: "c", Name: "weather", Arguments: `{}`}),
		fakeai.Text("Done."),
	), nil)
	r := ask("weather?")
	r.Tools, r.ReasoningEffort = []hob.ToolSpec{weather}, hob.EffortLow
	for step := 1; ; step++ {
		a := collect(t, b.model, r)
		if a.Err != nil {
			t.Fatalf("step %d: %s", step, a.Err.Message)
		}
		if len(a.Calls) == 0 {
			break
		}
		r = turn(r, a, "rain", "sun")
		at := len(r.Messages) - 1 - len(a.Calls)
		r.Messages[at].Reasoning = &hob.Reasoning{Provider: b.model.Name, Text: a.Reasoning, Artefact: a.Artefact}
	}
	sent := b.fake.Requests()[2].Messages
	want := []fakeai.Message{
		{Role: "user", Text: "weather?"},
		{Role: "assistant", Thoughts: 1, Calls: []fakeai.Call{{ID: "a", Name: "weather", Arguments: `{"city":"Oslo"}`}, {ID: "b", Name: "weather", Arguments: `{"city":"Rome"}`}}},
		{Role: "tool", Text: "rain", CallID: "a"},
		{Role: "tool", Text: "sun", CallID: "b"},
		{Role: "assistant", Thoughts: 1, Calls: []fakeai.Call{{ID: "c", Name: "weather", Arguments: `{}`}}},
		{Role: "tool", Text: "rain", CallID: "c"},
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("the third request's history (-want +got):\n%s", diff)
	}

	r.Messages[1].Reasoning.Provider, r.Messages[4].Reasoning = "openai", nil
	if a := collect(t, b.model, r); a.Err != nil {
		t.Errorf("a history made by another model is refused: %s", a.Err.Message)
	}
	for _, m := range b.fake.Requests()[3].Messages {
		if m.Thoughts != 0 {
			t.Errorf("another provider's thoughts were sent: %+v", m)
		}
	}
}

func TestGemini_TextSignatureGoesBackWithTheText(t *testing.T) {
	t.Parallel()
	b := geminiBed(t, "gemini-2.5-flash", fakeai.Always(fakeai.Reply{Reasoning: []string{"Hm."}, Text: []string{"Hi."}}), nil)
	r := ask("hi")
	a := collect(t, b.model, r)
	if a.Reasoning != "Hm." || a.Artefact == nil || a.Last.Usage.ReasoningTokens != 1 {
		t.Fatalf("got %+v", a)
	}
	r.Messages = append(r.Messages,
		hob.Message{Role: hob.RoleAssistant, Content: a.Text, Reasoning: &hob.Reasoning{Provider: "gemini", Text: a.Reasoning, Artefact: a.Artefact}},
		hob.Message{Role: hob.RoleUser, Content: "and?"})
	if a = collect(t, b.model, r); a.Err != nil || b.fake.Requests()[1].Messages[1].Thoughts != 1 {
		t.Errorf("%v, sent %+v", a.Err, b.fake.Requests()[1].Messages)
	}
	r.Messages[1].Reasoning.Artefact = json.RawMessage(`{"not":"a list"}`)
	if a = collect(t, b.model, r); a.Err != nil {
		t.Errorf("an artefact of another form: %s", a.Err.Message)
	}
}

func TestGemini_WaitsAsLongAsTheErrorSays(t *testing.T) {
	t.Parallel()
	refused := fakeai.Error(http.StatusTooManyRequests, "slow down").WithRetryAfter("0.2")
	b := geminiBed(t, "gemini-2.5-flash", fakeai.Sequence(refused, fakeai.Text("Hi.")), nil)
	start := time.Now()
	if a := collect(t, b.model, ask("hi")); a.Text != "Hi." || time.Since(start) < 200*time.Millisecond {
		t.Errorf("%+v after %s", a, time.Since(start))
	}
	b = geminiBed(t, "gemini-2.5-flash", fakeai.Always(fakeai.Error(http.StatusTooManyRequests, "slow down").WithRetryAfter("33")), func(c *provider.Config) {
		c.Retries = -1
	})
	if a := collect(t, b.model, ask("hi")); a.Err == nil || a.Err.Class != hob.ClassRateLimit || a.Err.RetryAfter != 33*time.Second {
		t.Errorf("got %+v", a.Err)
	}
}

// TestGemini_Addresses pins where requests go, however the base address is written.
func TestGemini_Addresses(t *testing.T) {
	t.Parallel()
	cases := []struct{ base, model, want string }{
		{"", "gemini-2.5-flash", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"},
		{"/", "models/gemini-2.5-flash", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"},
		{"/v1beta", "tunedModels/mine", "/v1beta/tunedModels/mine:streamGenerateContent?alt=sse"},
		{"/proxy/v1beta/", "a b/c?", "/proxy/v1beta/models/a%20b%2Fc%3F:streamGenerateContent?alt=sse"},
	}
	for _, c := range cases {
		got, header := "", http.Header{}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got, header = r.RequestURI, r.Header
			w.WriteHeader(http.StatusTeapot)
		}))
		transport := &http.Transport{}
		config := provider.Config{Clients: direct{&http.Client{Transport: transport}}}
		config.Gemini = provider.Endpoint{Key: testKey, BaseURL: srv.URL + c.base}
		m, err := provider.New(config).Open(context.Background(), hob.DefaultWorkspace, "gemini/"+c.model)
		if err != nil {
			t.Fatal(err)
		}
		collect(t, m, ask("hi"))
		transport.CloseIdleConnections()
		srv.Close()
		if got != c.want || header.Get("X-Goog-Api-Key") != testKey || header.Get("Authorization") != "" {
			t.Errorf("%q %q: sent to %s with %v", c.base, c.model, got, header)
		}
	}
}

func TestGemini_BrokenCallIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := geminiBed(t, "gemini-2.5-flash", fakeai.Sequence(fakeai.Reply{Finish: "MALFORMED_FUNCTION_CALL"}, fakeai.Text("Hi.")), nil)
	if a := collect(t, b.model, ask("hi")); a.Text != "Hi." || len(b.fake.Requests()) != 2 {
		t.Errorf("%+v after %d requests", a, len(b.fake.Requests()))
	}
}

// TestProviders_PromptBeyondTheWindow sends a prompt that is too long to servers that count for themselves.
func TestProviders_PromptBeyondTheWindow(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("word ", 250_000) // more than 200,000 tokens, and 3 bytes a token of them
	cases := []struct {
		model string
		class hob.ErrorClass
		words string
	}{
		{"openai/gpt-4o", hob.ClassPromptTooLong, "maximum context length is 1000 tokens"},
		{"anthropic/claude-sonnet-4-5", hob.ClassPromptTooLong, "prompt is too long"},
		{"gemini/gemini-2.5-flash-image", hob.ClassPromptTooLong, "exceeds the maximum number of tokens"},
	}
	for _, c := range cases {
		t.Run(c.model, func(t *testing.T) {
			t.Parallel()
			v := vendorOf(t, c.model)
			fake := fakeai.New(fakeai.Options{Key: testKey, Window: 1_000})
			srv := httptest.NewServer(fake)
			defer srv.Close()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			config := provider.Config{Clients: direct{&http.Client{Transport: transport}}}
			v.config(&config, srv.URL)
			m, err := provider.New(config).Open(context.Background(), hob.DefaultWorkspace, c.model)
			if err != nil {
				t.Fatal(err)
			}
			a := collect(t, m, ask(text))
			if a.Err == nil || a.Err.Class != c.class || !strings.Contains(a.Err.Message, c.words) {
				t.Errorf("got %+v", a.Err)
			}
			if a = collect(t, m, ask("a short one")); a.Err != nil || fake.Requests()[0].Tokens != 7 {
				t.Errorf("a short prompt: %v, %+v", a.Err, fake.Requests())
			}
		})
	}
}

func TestProviders_SearchIsAskedForOrRefusedBeforeAnyCall(t *testing.T) {
	t.Parallel()
	cases := []struct {
		model string
		tools []hob.ToolSpec
		error string // "" = it is asked for
	}{
		{"openrouter/meta/llama-3", []hob.ToolSpec{weather}, ""},
		{"openai/gpt-4o-search-preview", nil, ""},
		{"openai/gpt-4o", nil, "cannot search the web"},
		{"ollama/llama3", nil, "cannot search the web"},
		{"anthropic/claude-sonnet-4-5", []hob.ToolSpec{weather}, ""},
		{"anthropic/claude-sonnet-4-5", []hob.ToolSpec{{Name: "web_search"}}, ""},
		{"anthropic/claude-3-haiku-20240307", nil, "cannot search the web"},
		{"gemini/gemini-2.5-flash", nil, ""},
		{"gemini/gemini-2.5-flash", []hob.ToolSpec{weather}, "together with tools"},
		{"gemini/gemini-1.5-flash", nil, "cannot search the web"},
	}
	for _, c := range cases {
		t.Run(c.model+c.error, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, vendorOf(t, c.model), nil, nil)
			r := ask("What is new?")
			r.WebSearch, r.Tools = &hob.WebSearchOptions{}, c.tools
			a := collect(t, b.model, r)
			if c.error == "" {
				if a.Err != nil || !b.fake.Requests()[0].Search {
					t.Errorf("%v, asked %+v", a.Err, b.fake.Requests())
				}
				return
			}
			if a.Err == nil || a.Err.Class != hob.ClassBadRequest || !strings.Contains(a.Err.Message, c.error) ||
				len(b.fake.Requests())+len(b.fake.Refusals()) != 0 {
				t.Errorf("got %+v after %d requests", a.Err, len(b.fake.Requests()))
			}
		})
	}
}

func TestProviders_FormsOfAnswer(t *testing.T) {
	t.Parallel()
	const closed = `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`
	form := func(strict, schema string) string {
		return `{"type":"json_schema","json_schema":{"name":"x","strict":` + strict + `,"schema":` + schema + `}}`
	}
	recursive := `{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"],"additionalProperties":false,` +
		`"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"],"additionalProperties":false}}}`
	cases := []struct {
		model, form string
		want        fakeai.AnswerForm
		words       bool // it is asked for in the instructions
	}{
		{"openai/gpt-4o", form("true", closed), fakeai.AnswerForm{JSON: true, Schema: json.RawMessage(closed), Strict: true}, false},
		{"openai/gpt-4o", form("false", closed), fakeai.AnswerForm{JSON: true, Schema: json.RawMessage(closed)}, false},
		{"openai/gpt-4o", form("true", `{"type":"object"}`), fakeai.AnswerForm{JSON: true, Schema: json.RawMessage(`{"type":"object"}`)}, false},
		{"openai/gpt-4o", form("true", recursive), fakeai.AnswerForm{JSON: true, Schema: json.RawMessage(recursive)}, false},
		{"openai/gpt-4o", `{"type":"json_object"}`, fakeai.AnswerForm{JSON: true}, true},
		{"openai/gpt-4o", `{"type":"text"}`, fakeai.AnswerForm{}, false},
		{"openai/gpt-4", form("true", closed), fakeai.AnswerForm{}, true},
		{"openrouter/openai/gpt-4", form("true", closed), fakeai.AnswerForm{JSON: true, Schema: json.RawMessage(closed), Strict: true}, false},
		{"anthropic/claude-sonnet-4-5", form("true", closed), fakeai.AnswerForm{JSON: true, Schema: json.RawMessage(closed), Strict: true}, false},
		{"anthropic/claude-sonnet-4-5", form("true", recursive), fakeai.AnswerForm{}, true},
		{"anthropic/claude-sonnet-4-5", `{"type":"json_object"}`, fakeai.AnswerForm{}, true},
		{"anthropic/claude-sonnet-4-20250514", form("true", closed), fakeai.AnswerForm{}, true},
		{"gemini/gemini-2.5-flash", form("true", recursive), fakeai.AnswerForm{JSON: true, Schema: json.RawMessage(recursive), Strict: true}, false},
		{"gemini/gemini-2.5-flash", `{"type":"json_object"}`, fakeai.AnswerForm{JSON: true}, false},
		{"gemini/gemini-2.0-flash", form("true", closed), fakeai.AnswerForm{JSON: true}, true},
	}
	for _, c := range cases {
		t.Run(c.model, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, vendorOf(t, c.model), nil, nil)
			r := ask("hi")
			r.ResponseFormat = json.RawMessage(c.form)
			if a := collect(t, b.model, r); a.Err != nil {
				t.Fatal(a.Err.Message)
			}
			got := b.fake.Requests()[0]
			if diff := cmp.Diff(c.want, got.Form); diff != "" || strings.Contains(got.System, "JSON") != c.words {
				t.Errorf("%s: instructions %q (-want +got):\n%s", c.form, got.System, diff)
			}
		})
	}
}

func TestProviders_WrongFormIsRefusedBeforeAnyCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, nil, nil)
		for _, form := range []string{
			`"json"`, `{"type":"xml"}`, `{"type":"json_schema"}`, `{"type":"json_schema","json_schema":{"name":"x"}}`,
			`{"type":"json_schema","json_schema":{"name":"x","schema":true}}`, `{}`,
		} {
			r := ask("hi")
			r.ResponseFormat = json.RawMessage(form)
			a := collect(t, b.model, r)
			if a.Err == nil || a.Err.Class != hob.ClassBadRequest || !strings.Contains(a.Err.Message, "response_format") {
				t.Errorf("%s: %+v", form, a.Err)
			}
		}
		if n := len(b.fake.Requests()) + len(b.fake.Refusals()); n != 0 {
			t.Errorf("%d requests were made", n)
		}
	})
}

func TestProviders_Images(t *testing.T) {
	t.Parallel()
	parts := []hob.Part{
		{Type: hob.TextPart, Text: "What is it?"},
		{Type: hob.ImagePart, URL: "https://example.com/a"},
		{Type: hob.ImagePart, URL: "data:image/PNG;base64,iVBORw0KGgo="},
		{Type: hob.ImagePart, MediaType: "image/webp", Data: []byte{1, 2, 3}},
	}
	bad := []hob.Part{
		{Type: hob.ImagePart, URL: "file:///etc/passwd"},
		{Type: hob.ImagePart, URL: "data:image/png,xyz"},
		{Type: hob.ImagePart, URL: "data:text/html;base64,eA=="},
		{Type: hob.ImagePart, Data: []byte{1}},
		{Type: hob.ImagePart},
	}
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, nil, nil)
		r := ask("")
		r.Messages[0] = hob.Message{Role: hob.RoleUser, Parts: parts}
		if a := collect(t, b.model, r); a.Err != nil || b.fake.Requests()[0].Messages[0].Images != 3 {
			t.Fatalf("%v, sent %+v", a.Err, b.fake.Requests())
		}
		for _, p := range bad {
			r.Messages[0].Parts = []hob.Part{p}
			if a := collect(t, b.model, r); a.Err == nil || a.Err.Class != hob.ClassBadRequest || len(b.fake.Requests()) != 1 {
				t.Errorf("%+v: %+v after %d requests", p, a.Err, len(b.fake.Requests()))
			}
		}
	})
}

func TestGemini_EffortInTheWordsOfTheFamily(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]map[hob.ReasoningEffort]string{
		"gemini-2.5-pro":         {hob.EffortNone: `{"thinkingBudget":128}`, hob.EffortHigh: `{"thinkingBudget":24576,"includeThoughts":true}`},
		"gemini-2.5-flash-lite":  {hob.EffortNone: `{"thinkingBudget":0}`, "minimal": `{"thinkingBudget":1024,"includeThoughts":true}`},
		"gemini-3-pro-preview":   {hob.EffortNone: `{"thinkingLevel":"low"}`, hob.EffortMedium: `{"thinkingLevel":"high","includeThoughts":true}`},
		"gemini-3-flash-preview": {hob.EffortNone: `{"thinkingLevel":"minimal"}`, hob.EffortMedium: `{"thinkingLevel":"medium","includeThoughts":true}`},
		"gemini-3.1-pro-preview": {"minimal": `{"thinkingLevel":"low","includeThoughts":true}`, hob.EffortHigh: `{"thinkingLevel":"high","includeThoughts":true}`},
		"gemini-2.0-flash":       {hob.EffortHigh: ``},
	} {
		b := geminiBed(t, model, nil, nil)
		for effort, thinking := range want {
			r := ask("hi")
			r.ReasoningEffort, r.MaxTokens = effort, 60_000
			if a := collect(t, b.model, r); a.Err != nil {
				t.Errorf("%s, %s: %s", model, effort, a.Err.Message)
				continue
			}
			sent := b.fake.Requests()[len(b.fake.Requests())-1]
			var body struct {
				Config struct {
					Thinking json.RawMessage `json:"thinkingConfig"`
				} `json:"generationConfig"`
			}
			if err := json.Unmarshal(sent.Body, &body); err != nil || string(body.Config.Thinking) != thinking {
				t.Errorf("%s, %s: %s, want %s", model, effort, body.Config.Thinking, thinking)
			}
			if sent.MaxTokens < 60_000 || sent.MaxTokens > 65_536 {
				t.Errorf("%s, %s: maxOutputTokens is %d", model, effort, sent.MaxTokens)
			}
		}
	}
}
