package provider

import (
	"context"
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
		form, err := p.check(&r, f)
		if err != nil {
			yield(hob.Delta{}, err)
			return
		}
		n := newNames(r, func(name string) bool { return geminiToolName(name) && f.takesName(name) })
		body, text := p.render(r, f, n, form)
		p.caller.stream(ctx, exchange{
			path: geminiPath(r.Model), header: p.header, body: body, text: text, window: f.window, aside: aside(r),
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
func (p *gemini) check(r *hob.Request, f family) (answerForm, error) {
	if err := checkSearch(p.caller.name, r, searchOf(p, r.Model)); err != nil {
		return answerForm{}, err
	}
	if r.WebSearch != nil && len(r.Tools) > 0 {
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
	if form.kind != "" && f.formAlone && (len(r.Tools) > 0 || r.WebSearch != nil) {
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
	if r.WebSearch != nil {
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
