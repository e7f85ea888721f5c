package provider

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"hob"
)

const geminiName = "gemini"

func init() {
	add(maker{
		name: geminiName, rank: 3, aliases: []string{"google"}, vars: "GEMINI_API_KEY (or GEMINI_BASE_URL)", model: "gemini-2.5-flash",
		endpoint: func(c Config) (Endpoint, bool) { return c.Gemini, c.Gemini.set() },
		open: func(e env) (hob.Provider, error) {
			c, err := e.caller(geminiName, "GEMINI_API_KEY", "GEMINI_BASE_URL", "https://generativelanguage.googleapis.com")
			if err != nil {
				return nil, err
			}
			c.base = strings.TrimSuffix(c.base, geminiVersion) // the variable is meant without the version
			h := http.Header{}
			if e.endpoint.Key != "" {
				h.Set("X-Goog-Api-Key", string(e.endpoint.Key))
			}
			return &gemini{caller: c, header: h}, nil
		},
	})
}

// geminiVersion is the only version of the API that has JSON Schemas, thinking and signatures.
const geminiVersion = "/v1beta"

// gemini speaks Google's Gemini API in its own form.
type gemini struct {
	caller caller
	header http.Header
}

// Stream sends one request; see hob.Provider.
func (p *gemini) Stream(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
	return func(yield func(hob.Delta, error) bool) {
		f := p.family(r.Model)
		form, err := p.check(r, f)
		if err != nil {
			yield(hob.Delta{}, err)
			return
		}
		n := newNames(r, func(name string) bool { return geminiToolName(name) && f.takesName(name) })
		body, text := p.render(r, f, n, form)
		p.caller.stream(ctx, exchange{
			path: geminiPath(r.Model), header: p.header, body: body, text: text, window: f.window,
			decode: func() decoder { return &geminiDecoder{names: n} },
		}, yield)
	}
}

func (p *gemini) family(model string) family {
	return p.caller.profiles.family(p.caller.endpoint, model)
}

// geminiPath is where a model streams. A name may hold its collection: "tunedModels/x".
func geminiPath(model string) string {
	collection, name, ok := strings.Cut(model, "/")
	if !ok || collection != "models" && collection != "tunedModels" {
		collection, name = "models", model
	}
	return geminiVersion + "/" + collection + "/" + url.PathEscape(name) + ":streamGenerateContent?alt=sse"
}

// geminiToolName says whether the API takes a tool's name: it may not begin with a digit or a dash.
func geminiToolName(name string) bool {
	return plainName(name) && name[0] != '-' && (name[0] < '0' || name[0] > '9')
}

// check reads the wanted form and refuses what the API cannot do. Its own search cannot stand beside functions: the
// second generation refuses the pair, and later ones want the search's own calls in the history, which other providers
// could not read.
func (p *gemini) check(r hob.Request, f family) (answerForm, error) {
	switch {
	case r.WebSearch && !f.search:
		return answerForm{}, noSearch(p.caller.name, r.Model)
	case r.WebSearch && len(r.Tools) > 0:
		return answerForm{}, refusedBefore(p.caller.name, "web_search cannot be used together with tools; turn one of them off")
	}
	if err := checkImages(p.caller.name, r, f, geminiImages); err != nil {
		return answerForm{}, err
	}
	return readForm(p.caller.name, r.ResponseFormat)
}

// render writes the request's JSON. text counts the bytes of it that are text.
func (p *gemini) render(r hob.Request, f family, n names, form answerForm) (body []byte, text int) {
	size, text := requestSize(r)
	kind := f.form
	if form.kind != "" && f.formAlone && (len(r.Tools) > 0 || r.WebSearch) {
		kind = formWords
	}
	history := r.Messages
	words := ""
	if kind == formWords || kind == formObject && form.kind == formSchema {
		words = form.words()
	}
	b := make([]byte, 0, size)
	b = append(b, '{')
	if system := systemText(r.System, words, &history); system != "" {
		b = append(b, `"systemInstruction":{"parts":[{"text":`...)
		b = appendString(b, system)
		b = append(b, `}]},`...)
	}
	b = p.tools(b, r, n)
	b = append(b, `"contents":`...)
	b = appendContents(b, history, f, n)
	b = p.tuning(b, r, f, form, kind)
	return append(b, '}'), text
}

// tools offers functions with their schemas as they are: parametersJsonSchema takes JSON Schema, while the older
// parameters takes a part of OpenAPI's and refuses the rest, additionalProperties and $schema among it.
func (p *gemini) tools(b []byte, r hob.Request, n names) []byte {
	if r.WebSearch {
		return append(b, `"tools":[{"googleSearch":{}}],`...)
	}
	if len(r.Tools) == 0 {
		return b
	}
	b = append(b, `"tools":[{"functionDeclarations":[`...)
	for i := range r.Tools {
		t := &r.Tools[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendString(b, n.wire(t.Name))
		b = append(b, `,"description":`...)
		if t.Description != "" {
			b = appendString(b, t.Description)
		} else { // the API's reference calls it required
			b = appendString(b, t.Name)
		}
		if present(t.Schema) {
			b = append(b, `,"parametersJsonSchema":`...)
			b = append(b, t.Schema...)
		}
		b = append(b, '}')
	}
	b = append(b, `]}],`...)
	if r.NoToolUse {
		b = append(b, `"toolConfig":{"functionCallingConfig":{"mode":"NONE"}},`...)
	}
	return b
}

// maxGeminiTemperature is where the scale ends.
const maxGeminiTemperature = 2

// tuning writes generationConfig, as far as there is something in it.
func (p *gemini) tuning(b []byte, r hob.Request, f family, form answerForm, kind formKind) []byte {
	start := len(b)
	b = append(b, `,"generationConfig":{`...)
	open := len(b)
	member := func(name string) {
		b = comma(b, open)
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
	}
	if r.Temperature != nil {
		member("temperature")
		b = strconv.AppendFloat(b, min(*r.Temperature, maxGeminiTemperature), 'g', -1, 64)
	}
	plan := geminiPlan(r, f)
	if plan.maxTokens > 0 {
		member("maxOutputTokens")
		b = strconv.AppendInt(b, int64(plan.maxTokens), 10)
	}
	if form.kind != "" && kind != formWords {
		member("responseMimeType")
		b = append(b, `"application/json"`...)
		if form.kind == formSchema && kind == formNative {
			member("responseJsonSchema")
			b = append(b, form.schema...)
		}
	}
	if r.ReasoningEffort != "" && f.thinking != thinkNever {
		member("thinkingConfig")
		if plan.level != "" {
			b = append(b, `{"thinkingLevel":`...)
			b = appendString(b, plan.level)
		} else {
			b = append(b, `{"thinkingBudget":`...)
			b = strconv.AppendInt(b, int64(plan.budget), 10)
		}
		if r.ReasoningEffort != hob.EffortNone {
			b = append(b, `,"includeThoughts":true`...)
		}
		b = append(b, '}')
	}
	if len(b) == open {
		return b[:start]
	}
	return append(b, '}')
}

// thought is what maxOutputTokens and thinkingConfig come to.
type thought struct {
	maxTokens int // 0 = the API's default
	budget    int
	level     string // "" = the budget counts
}

// geminiPlan weighs the wanted length and effort. maxOutputTokens bounds thoughts and answer together, so what the effort
// may take is added to a length the caller wanted for the answer. A family that cannot help thinking does so as little as
// it can where no thinking is wanted.
func geminiPlan(r hob.Request, f family) thought {
	t := thought{maxTokens: max(r.MaxTokens, 0)}
	if r.ReasoningEffort == "" || f.thinking == thinkNever {
		return t
	}
	t.budget = max(effortBudget(r.ReasoningEffort), f.leastBudget)
	if f.thinking == thinkLevel {
		t.level = effortLevel(r.ReasoningEffort, f.levels)
	}
	if t.maxTokens > 0 {
		t.maxTokens += t.budget
		if f.ceiling > 0 {
			t.maxTokens = max(min(t.maxTokens, f.ceiling), r.MaxTokens)
		}
	}
	return t
}

// effortLevel is the word for an effort, of those a family knows: the next one up, else the last one.
func effortLevel(e hob.ReasoningEffort, levels string) string {
	words := strings.Fields(levels)
	order := []string{effortLeast, string(hob.EffortLow), string(hob.EffortMedium), string(hob.EffortHigh)}
	if e == hob.EffortNone {
		e = effortLeast
	}
	wanted := false
	for _, word := range order {
		wanted = wanted || word == string(e)
		for _, w := range words {
			if wanted && w == word {
				return w
			}
		}
	}
	return words[len(words)-1]
}

// geminiThought is an entry of the artefact: a thought, or the signature of a text or of a call. Signatures are sealed
// thoughts; the API wants each back with the part it came with.
type geminiThought struct {
	Part      string `json:"part"` // thought, text or call
	Call      int    `json:"call,omitempty"`
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// The parts of geminiThought.
const (
	thoughtPart = "thought"
	textPart    = "text"
	signedCall  = "call"
)

// geminiThoughts are the thoughts of a message, nil where it has none of this provider's.
func geminiThoughts(m *hob.Message) []geminiThought {
	if m.Reasoning == nil || m.Reasoning.Provider != geminiName || len(m.Reasoning.Artefact) == 0 {
		return nil
	}
	var list []geminiThought
	if json.Unmarshal(m.Reasoning.Artefact, &list) != nil {
		return nil
	}
	return list
}

// unsignedCall stands for the signature of a call that another model made. Google documents it for such histories;
// without it, families that check signatures refuse the turn.
const unsignedCall = "skip_thought_signature_validator"

// geminiGoOn stands where the API wants a user's message and the history has none.
const geminiGoOn = `{"text":"(The conversation goes on.)"}`

// The API's roles.
const (
	geminiUser  = "user"
	geminiModel = "model"
)

// appendContents writes the history as contents of user and model that alternate. Function responses, and system messages
// amid the history, belong to the user's content.
func appendContents(b []byte, history []hob.Message, f family, n names) []byte {
	b = append(b, '[')
	open := "" // role of the content under way
	content := func(role string) {
		switch {
		case role == open:
			b = append(b, ',')
			return
		case open != "":
			b = append(b, `]},`...)
		case role == geminiModel:
			b = append(b, `{"role":"user","parts":[`+geminiGoOn+`]},`...)
		}
		open = role
		b = append(b, `{"role":"`...)
		b = append(b, role...)
		b = append(b, `","parts":[`...)
	}
	var calls []hob.ToolCall // of the last assistant message
	for i := range history {
		m := &history[i]
		switch m.Role {
		case hob.RoleAssistant:
			content(geminiModel)
			b = appendModelParts(b, m, n, f.signed)
			calls = m.Calls
		case hob.RoleTool:
			content(geminiUser)
			b = appendFunctionResponse(b, m, calls, n)
		case hob.RoleSystem:
			content(geminiUser)
			b = appendGeminiText(b, "<system-context>\n"+m.Text()+"\n</system-context>")
		case hob.RoleUser:
			content(geminiUser)
			b = appendGeminiUser(b, m)
		}
	}
	if open == "" {
		content(geminiUser)
		b = append(b, geminiGoOn...)
	}
	return append(b, `]}]`...)
}

func appendGeminiText(b []byte, text string) []byte {
	b = append(b, `{"text":`...)
	b = appendString(b, text)
	return append(b, '}')
}

// appendModelParts writes thoughts, text and calls. sign tells that a turn under way whose calls have no signature would be
// refused; of several calls in one message only the first has one. Where a turn begins is the API's to say, so older
// calls get the stand-in too.
func appendModelParts(b []byte, m *hob.Message, n names, sign bool) []byte {
	start := len(b)
	thoughts := geminiThoughts(m)
	signed := func(part string, call int) bool {
		for _, t := range thoughts {
			if t.Part == part && t.Call == call && t.Signature != "" {
				b = append(b, `,"thoughtSignature":`...)
				b = appendString(b, t.Signature)
				return true
			}
		}
		return false
	}
	for _, t := range thoughts {
		if t.Part != thoughtPart {
			continue
		}
		b = comma(b, start)
		b = append(b, `{"text":`...)
		b = appendString(b, t.Text)
		b = append(b, `,"thought":true`...)
		if t.Signature != "" {
			b = append(b, `,"thoughtSignature":`...)
			b = appendString(b, t.Signature)
		}
		b = append(b, '}')
	}
	if m.Content != "" {
		b = comma(b, start)
		b = append(b, `{"text":`...)
		b = appendString(b, m.Content)
		signed(textPart, 0)
		b = append(b, '}')
	}
	for i, c := range m.Calls {
		b = comma(b, start)
		b = append(b, `{"functionCall":{"id":`...)
		b = appendString(b, string(c.ID))
		b = append(b, `,"name":`...)
		b = appendString(b, n.wire(c.Name))
		b = append(b, `,"args":`...)
		b = append(b, c.Arguments...)
		b = append(b, '}')
		if !signed(signedCall, i) && sign && i == 0 {
			b = append(b, `,"thoughtSignature":"`+unsignedCall+`"`...)
		}
		b = append(b, '}')
	}
	return b
}

// appendFunctionResponse writes a result under the name of the call it answers.
func appendFunctionResponse(b []byte, m *hob.Message, calls []hob.ToolCall, n names) []byte {
	name := m.Name
	for _, c := range calls {
		if c.ID == m.CallID {
			name = c.Name
		}
	}
	b = append(b, `{"functionResponse":{"id":`...)
	b = appendString(b, string(m.CallID))
	b = append(b, `,"name":`...)
	b = appendString(b, n.wire(name))
	if m.IsError {
		b = append(b, `,"response":{"error":`...)
	} else {
		b = append(b, `,"response":{"output":`...)
	}
	b = appendString(b, m.Content)
	return append(b, `}}}`...)
}

// appendGeminiUser writes a user's content. Images at an address are fetched by Google: Hob would have to reach an
// address that a user chose.
func appendGeminiUser(b []byte, m *hob.Message) []byte {
	if len(m.Parts) == 0 {
		return appendGeminiText(b, m.Content)
	}
	start := len(b)
	for _, p := range m.Parts {
		b = comma(b, start)
		if p.Type != hob.ImagePart {
			b = appendGeminiText(b, p.Text)
			continue
		}
		mediaType, data, inline := splitDataURL(p.URL)
		switch {
		case len(p.Data) > 0:
			b = append(b, `{"inlineData":{"mimeType":`...)
			b = appendString(b, strings.ToLower(p.MediaType))
			b = append(b, `,"data":`...)
			b = appendBase64(b, p.Data)
		case inline:
			b = append(b, `{"inlineData":{"mimeType":`...)
			b = appendString(b, strings.ToLower(mediaType))
			b = append(b, `,"data":`...)
			b = appendString(b, data)
		default:
			b = append(b, `{"fileData":{`...)
			if t := guessType(p.URL); t != "" {
				b = append(b, `"mimeType":`...)
				b = appendString(b, t)
				b = append(b, ',')
			}
			b = append(b, `"fileUri":`...)
			b = appendString(b, p.URL)
		}
		b = append(b, `}}`...)
	}
	return b
}
