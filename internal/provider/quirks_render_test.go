package provider

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"hob"
)

// rendered makes the JSON that a request becomes in a dialect, or the error it is refused with before it is sent.
func rendered(dialect, model string, r hob.Request) (json.RawMessage, error) {
	r.Model = model
	f := familyOf(model)
	c := caller{name: dialect}
	switch dialect {
	case anthropicName:
		p := &messages{caller: c}
		form, err := p.check(&r, f)
		if err != nil {
			return nil, err
		}
		body, _ := p.render(r, f, newNames(r, plainName), form)
		return body, nil
	case geminiName:
		p := &gemini{caller: c}
		form, err := p.check(&r, f)
		if err != nil {
			return nil, err
		}
		body, _ := p.render(r, f, newNames(r, geminiToolName), form)
		return body, nil
	}
	p := &chat{caller: c}
	if dialect == openrouterName {
		p.style = chatStyle{reasoningObject: true, details: true, forms: true, searches: true}
	}
	form, err := p.check(&r, f)
	if err != nil {
		return nil, err
	}
	body, _ := p.render(r, f, newNames(r, plainName), form)
	return body, nil
}

// renderCase is a quirk in one dialect: which model is asked, and where in the request the outcome is seen. no tells
// what must not be there.
type renderCase struct {
	dialect, model string // dialect "" = the column's
	paths          []string
	no             []string
	refused        bool
}

// thinker is a request whose last turn has the reasoning of a provider.
func thinker(provider, artefact string) hob.Request {
	r := asking()
	r.Messages = append(r.Messages,
		hob.Message{
			Role: hob.RoleAssistant, Content: "Let me look.", Calls: []hob.ToolCall{{ID: "a", Name: "weather", Arguments: json.RawMessage(oslo)}},
			Reasoning: &hob.Reasoning{Provider: provider, Text: "Let me think.", Artefact: json.RawMessage(artefact)},
		},
		hob.Message{Role: hob.RoleTool, CallID: "a", Name: "weather", Content: "rain"})
	return r
}

func asking() hob.Request {
	return hob.Request{
		System: "Be brief.", Messages: []hob.Message{{Role: hob.RoleUser, Content: "Hi."}},
		Tools: []hob.ToolSpec{{Name: "weather", Description: "the weather", Schema: json.RawMessage(`{"type":"object"}`)}},
	}
}

func with(change func(*hob.Request)) func(string) hob.Request {
	return func(string) hob.Request {
		r := asking()
		change(&r)
		return r
	}
}

func picture(p hob.Part) func(string) hob.Request {
	p.Type = hob.ImagePart
	return with(func(r *hob.Request) {
		r.Tools = nil
		r.Messages = []hob.Message{{Role: hob.RoleUser, Parts: []hob.Part{{Type: hob.TextPart, Text: "What is it?"}, p}}}
	})
}

// artefacts are the reasoning of one step as each provider gave it.
var artefacts = map[string]string{
	openaiName:     `null`,
	openrouterName: `[{"type":"reasoning.text","text":"Let me think.","signature":"c2ln"}]`,
	anthropicName:  `[{"type":"thinking","thinking":"Let me think.","signature":"c2ln"}]`,
	geminiName:     `[{"part":"thought","text":"Let me think."},{"part":"call","signature":"c2ln"}]`,
}

const (
	closedForm = `{"type":"json_schema","json_schema":{"name":"w","strict":true,"schema":{"type":"object","properties":{"c":{"type":"string"}},"required":["c"],"additionalProperties":false}}}`
	looseForm  = `{"type":"json_schema","json_schema":{"name":"w","strict":true,"schema":{"type":"object"}}}`
)

const (
	gpt     = "gpt-4o"
	sonnet  = "claude-sonnet-4-5"
	flash   = "gemini-2.5-flash"
	gemini3 = "gemini-3-pro-preview"
)

// renderQuirks are what requests must look like where the vendors differ.
var renderQuirks = []struct {
	name  string
	make  func(provider string) hob.Request
	cases [3]renderCase // of the columns
}{
	{
		"instructions", with(func(*hob.Request) {}),
		[3]renderCase{
			{model: gpt, paths: []string{"messages.0"}},
			{model: sonnet, paths: []string{"system.0.text"}},
			{model: flash, paths: []string{"systemInstruction"}},
		},
	},
	{
		"instructions of a model that reasons", with(func(*hob.Request) {}),
		[3]renderCase{
			{model: "gpt-5-mini", paths: []string{"messages.0"}},
			{model: "claude-opus-4-7", paths: []string{"system.0.text"}},
			{model: gemini3, paths: []string{"systemInstruction"}},
		},
	},
	{
		"a system message amid the conversation", with(func(r *hob.Request) {
			r.Messages = append(r.Messages, hob.Message{Role: hob.RoleSystem, Content: "It is noon."})
		}),
		[3]renderCase{
			{model: gpt, paths: []string{"messages.2"}},
			{model: sonnet, paths: []string{"messages.0.content.1.text"}},
			{model: flash, paths: []string{"contents.0.parts.1"}},
		},
	},
	{
		"two messages of the user in a row", with(func(r *hob.Request) {
			r.Messages = append(r.Messages, hob.Message{Role: hob.RoleUser, Content: "There?"})
		}),
		[3]renderCase{
			{model: gpt, paths: []string{"messages.1", "messages.2"}},
			{model: sonnet, paths: []string{"messages.0.role", "messages.0.content.0.text", "messages.0.content.1.text"}, no: []string{"messages.1"}},
			{model: flash, paths: []string{"contents.0"}, no: []string{"contents.1"}},
		},
	},
	{
		"a conversation that begins with the model", with(func(r *hob.Request) {
			r.Messages = []hob.Message{{Role: hob.RoleAssistant, Content: "Hello."}}
		}),
		[3]renderCase{
			{model: gpt, paths: []string{"messages.1"}},
			{model: sonnet, paths: []string{"messages.0"}},
			{model: flash, paths: []string{"contents.0"}},
		},
	},
	{
		"a tool's schema", with(func(*hob.Request) {}),
		[3]renderCase{
			{model: gpt, paths: []string{"tools.0.function.parameters"}},
			{model: sonnet, paths: []string{"tools.0.input_schema"}},
			{model: flash, paths: []string{"tools.0.functionDeclarations.0.parametersJsonSchema"}},
		},
	},
	{
		"a tool's name that is too long, or begins with a digit", with(func(r *hob.Request) {
			r.Tools = []hob.ToolSpec{{Name: strings.Repeat("long_", 14)}, {Name: "2fa"}}
		}),
		[3]renderCase{
			{model: gpt, paths: []string{"tools.0.function.name", "tools.1.function.name"}},
			{model: sonnet, paths: []string{"tools.0.name", "tools.1.name"}},
			{model: flash, paths: []string{"tools.0.functionDeclarations.0.name", "tools.0.functionDeclarations.1.name"}},
		},
	},
	{
		"a failed tool call", func(string) hob.Request {
			r := thinker("", "null")
			r.Messages[2].IsError = true
			return r
		},
		[3]renderCase{
			{model: gpt, paths: []string{"messages.3"}},
			{model: sonnet, paths: []string{"messages.2.content.0.content", "messages.2.content.0.is_error"}},
			{model: flash, paths: []string{"contents.2.parts.0.functionResponse.response"}},
		},
	},
	{
		"the last step, which may use no tool", with(func(r *hob.Request) { r.NoToolUse = true }),
		[3]renderCase{
			{model: gpt, no: []string{"tools", "tool_choice"}},
			{model: sonnet, paths: []string{"tools.0.name", "tool_choice"}},
			{model: flash, paths: []string{"tools.0.functionDeclarations.0.name", "toolConfig"}},
		},
	},
	{
		"calls of an agent that has lost its tools", func(string) hob.Request {
			r := thinker("", "null")
			r.Tools = nil
			return r
		},
		[3]renderCase{
			{model: gpt, no: []string{"tools"}},
			{model: sonnet, paths: []string{"tools.0", "tool_choice"}},
			{model: flash, no: []string{"tools", "toolConfig"}},
		},
	},
	{
		"reasoning sent back", func(provider string) hob.Request { return thinker(provider, artefacts[provider]) },
		[3]renderCase{
			{model: "deepseek-reasoner", paths: []string{"messages.2.reasoning_content"}},
			{model: sonnet, paths: []string{"messages.1.content.0"}},
			{model: gemini3, paths: []string{"contents.1.parts.0", "contents.1.parts.2.thoughtSignature"}},
		},
	},
	{
		"reasoning sent back through OpenRouter", func(string) hob.Request { return thinker(openrouterName, artefacts[openrouterName]) },
		[3]renderCase{
			{dialect: openrouterName, model: "anthropic/claude-sonnet-4.5", paths: []string{"messages.2.reasoning_details"}},
			{},
			{},
		},
	},
	{
		"signatures of calls sent back through OpenAI's API", func(string) hob.Request {
			return thinker(openaiName, `{"extra_content":[{"google":{"thought_signature":"c2ln"}}]}`)
		},
		[3]renderCase{{model: "gemini-3-pro-preview", paths: []string{"messages.2.tool_calls.0"}}, {}, {}},
	},
	{
		"reasoning of another provider", func(string) hob.Request { return thinker("elsewhere", `[{"part":"call","signature":"eHg="}]`) },
		[3]renderCase{
			{model: "deepseek-reasoner", no: []string{"messages.2.reasoning_content", "messages.2.reasoning_details"}},
			{model: sonnet, paths: []string{"messages.1.content.0"}},
			{model: gemini3, paths: []string{"contents.1.parts.0", "contents.1.parts.1.thoughtSignature"}},
		},
	},
	{
		"reasoning effort medium, 1,000 tokens of answer", with(func(r *hob.Request) { r.ReasoningEffort, r.MaxTokens = hob.EffortMedium, 1_000 }),
		[3]renderCase{
			{model: "gpt-5-mini", paths: []string{"reasoning_effort", "max_completion_tokens"}},
			{model: sonnet, paths: []string{"thinking", "max_tokens"}},
			{model: flash, paths: []string{"generationConfig"}},
		},
	},
	{
		"the same for models that take a word", with(func(r *hob.Request) { r.ReasoningEffort, r.MaxTokens = hob.EffortMedium, 1_000 }),
		[3]renderCase{
			{dialect: openrouterName, model: "x/y", paths: []string{"reasoning", "max_tokens"}},
			{model: "claude-opus-4-7", paths: []string{"thinking", "output_config", "max_tokens"}},
			{model: gemini3, paths: []string{"generationConfig"}},
		},
	},
	{
		"reasoning effort none", with(func(r *hob.Request) { r.ReasoningEffort = hob.EffortNone }),
		[3]renderCase{
			{model: "gpt-5.1", paths: []string{"reasoning_effort"}},
			{model: sonnet, no: []string{"thinking"}},
			{model: flash, paths: []string{"generationConfig"}},
		},
	},
	{
		"a closed schema for the answer", with(func(r *hob.Request) { r.ResponseFormat, r.Tools = json.RawMessage(closedForm), nil }),
		[3]renderCase{
			{model: gpt, paths: []string{"response_format.type", "response_format.json_schema.strict"}},
			{model: sonnet, paths: []string{"output_config"}},
			{model: flash, paths: []string{"generationConfig"}},
		},
	},
	{
		"the same beside tools", with(func(r *hob.Request) { r.ResponseFormat = json.RawMessage(closedForm) }),
		[3]renderCase{
			{model: gpt, paths: []string{"response_format.type", "response_format.json_schema.strict"}},
			{model: sonnet, paths: []string{"output_config"}},
			{model: flash, paths: []string{"systemInstruction.parts.0.text"}, no: []string{"generationConfig"}},
		},
	},
	{
		"an open schema called strict", with(func(r *hob.Request) { r.ResponseFormat, r.Tools = json.RawMessage(looseForm), nil }),
		[3]renderCase{
			{model: gpt, paths: []string{"response_format.type", "response_format.json_schema.strict"}},
			{model: sonnet, paths: []string{"system.0.text"}, no: []string{"output_config"}},
			{model: flash, paths: []string{"generationConfig"}},
		},
	},
	{
		"a schema for an older model", with(func(r *hob.Request) { r.ResponseFormat, r.Tools = json.RawMessage(closedForm), nil }),
		[3]renderCase{
			{model: "gpt-4-turbo", paths: []string{"response_format", "messages.0.content"}},
			{model: "claude-3-5-haiku-latest", paths: []string{"system.0.text"}, no: []string{"output_config"}},
			{model: "gemini-2.0-flash", paths: []string{"generationConfig", "systemInstruction.parts.0.text"}},
		},
	},
	{
		"an image at an https: address", picture(hob.Part{URL: "https://example.com/a.png"}),
		[3]renderCase{
			{model: gpt, paths: []string{"messages.1.content.1"}},
			{model: sonnet, paths: []string{"messages.0.content.1"}},
			{model: flash, paths: []string{"contents.0.parts.1"}},
		},
	},
	{
		"an image at a data: address", picture(hob.Part{URL: "data:image/png;base64,iVBORw0KGgo="}),
		[3]renderCase{
			{model: gpt, paths: []string{"messages.1.content.1"}},
			{model: sonnet, paths: []string{"messages.0.content.1"}},
			{model: flash, paths: []string{"contents.0.parts.1"}},
		},
	},
	{
		"an image as bytes", picture(hob.Part{MediaType: "image/jpeg", Data: []byte{0xff, 0xd8, 0xff}}),
		[3]renderCase{
			{model: gpt, paths: []string{"messages.1.content.1"}},
			{model: sonnet, paths: []string{"messages.0.content.1"}},
			{model: flash, paths: []string{"contents.0.parts.1"}},
		},
	},
	{
		"an image of another type", picture(hob.Part{MediaType: "image/tiff", Data: []byte{1}}),
		[3]renderCase{
			{model: gpt, paths: []string{"messages.1.content.1"}},
			{model: sonnet, refused: true},
			{model: flash, refused: true},
		},
	},
	{
		"what is no image", picture(hob.Part{MediaType: "application/pdf", Data: []byte{1}}),
		[3]renderCase{{model: gpt, refused: true}, {model: sonnet, refused: true}, {model: flash, refused: true}},
	},
	{
		"an image for a model that reads none", picture(hob.Part{URL: "https://example.com/a.png"}),
		[3]renderCase{{model: "o3-mini", refused: true}, {model: "claude-2.1", refused: true}, {}},
	},
	{
		"the setting `web_search`", with(func(r *hob.Request) { r.WebSearch, r.Tools = &hob.WebSearchOptions{Always: true}, nil }),
		[3]renderCase{
			{model: "gpt-4o-search-preview", paths: []string{"web_search_options"}},
			{model: sonnet, paths: []string{"tools.0"}},
			{model: flash, paths: []string{"tools"}},
		},
	},
	{
		"the setting `web_search` beside tools", with(func(r *hob.Request) { r.WebSearch = &hob.WebSearchOptions{Always: true} }),
		[3]renderCase{
			{dialect: openrouterName, model: "openai/gpt-4o", paths: []string{"plugins", "tools.0.function.name"}},
			{model: sonnet, paths: []string{"tools.0", "tools.1.name"}},
			{model: flash, refused: true},
		},
	},
	{
		"a tool of the kind `web`", with(func(r *hob.Request) { r.WebSearch = &hob.WebSearchOptions{MaxUses: 2} }),
		[3]renderCase{
			{dialect: openrouterName, model: "openai/gpt-4o", paths: []string{"tools.0.function.name", "tools.1"}, no: []string{"plugins"}},
			{model: sonnet, paths: []string{"tools.0", "tools.1.name"}},
			{model: flash, refused: true},
		},
	},
	{
		"the same, held to domains", with(func(r *hob.Request) {
			r.WebSearch, r.Tools = &hob.WebSearchOptions{AllowedDomains: []string{"yr.no"}}, nil
		}),
		[3]renderCase{
			{dialect: openrouterName, model: "openai/gpt-4o", paths: []string{"tools"}},
			{model: sonnet, paths: []string{"tools.0"}},
			{model: flash, refused: true},
		},
	},
	{
		"`web_search` of a model that has none", with(func(r *hob.Request) { r.WebSearch, r.Tools = &hob.WebSearchOptions{}, nil }),
		[3]renderCase{{model: gpt, refused: true}, {model: "claude-3-haiku-20240307", refused: true}, {model: "gemini-1.5-flash", refused: true}},
	},
}

func renderRows(t *testing.T) []quirkRow {
	t.Helper()
	rows := make([]quirkRow, 0, len(renderQuirks))
	for _, q := range renderQuirks {
		row := quirkRow{name: q.name}
		for i, c := range q.cases {
			if c.model == "" {
				row.cells = append(row.cells, "–")
				continue
			}
			if c.dialect == "" {
				c.dialect = columns[i]
			}
			row.cells = append(row.cells, code(c.model)+": "+c.see(t, q.name, q.make(c.dialect)))
		}
		rows = append(rows, row)
	}
	return rows
}

// see renders a request and tells what stands at the places of interest.
func (c renderCase) see(t *testing.T, name string, r hob.Request) string {
	t.Helper()
	body, err := rendered(c.dialect, c.model, r)
	if c.refused {
		var e *hob.ProviderError
		if !errors.As(err, &e) || e.Class != hob.ClassBadRequest || body != nil {
			t.Errorf("%s, %s: it should be refused as a bad request, not %v", name, c.model, err)
			return ""
		}
		return "error bad_request before anything is sent: " + e.Message
	}
	if err != nil || !json.Valid(body) {
		t.Errorf("%s, %s: %v\n%s", name, c.model, err, body)
		return ""
	}
	var told []string
	for _, path := range c.paths {
		v, ok := walk(body, strings.Split(path, "."))
		if !ok {
			t.Errorf("%s, %s: there is no %s in\n%s", name, c.model, path, body)
		}
		told = append(told, code(path+" = "+string(v)))
	}
	for _, path := range c.no {
		if v, ok := walk(body, strings.Split(path, ".")); ok {
			t.Errorf("%s, %s: %s is %s", name, c.model, path, v)
		}
		told = append(told, "no "+code(path))
	}
	return strings.Join(told, "; ")
}
