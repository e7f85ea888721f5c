package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"hob"
)

// chat speaks OpenAI's chat completions, to OpenAI and to every server that copies it.
type chat struct {
	caller caller
	header http.Header
	style  chatStyle
}

// chatStyle is what differs between servers rather than between models.
type chatStyle struct {
	reasoningObject bool // "reasoning":{"effort":…} for every model, instead of reasoning_effort where known (OpenRouter)
	details         bool // wants reasoning_details back
	forms           bool // takes every form of answer, whatever the family (OpenRouter brings it to the model)
	searches        bool // has a plugin that searches the web for every model (OpenRouter)
}

// Stream sends one request; see hob.Provider.
func (p *chat) Stream(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
	return func(yield func(hob.Delta, error) bool) {
		f := p.family(r.Model)
		form, err := p.check(&r, f)
		if err != nil {
			yield(hob.Delta{}, err)
			return
		}
		n := newNames(r, f.takesName)
		body, text := p.render(r, f, n, form)
		known := func(name string) bool {
			name = n.original(name)
			for i := range r.Tools {
				if r.Tools[i].Name == name {
					return true
				}
			}
			return false
		}
		p.caller.stream(ctx, exchange{
			path: "/chat/completions", header: p.header, body: body, text: text, window: f.window, silent: f.silent, aside: aside(r),
			decode: func() decoder {
				d := &chatDecoder{names: n}
				d.calls.sameIDs = f.quirks.sameIDs
				if len(r.Tools) > 0 {
					d.calls.known = known
				}
				return d
			},
		}, yield)
	}
}

// check reads the wanted form and refuses what the server cannot do.
func (p *chat) check(r *hob.Request, f family) (answerForm, error) {
	if err := checkSearch(p.caller.name, r, p.searches(f)); err != nil {
		return answerForm{}, err
	}
	if err := checkImages(p.caller.name, r, f, nil); err != nil {
		return answerForm{}, err
	}
	return readForm(p.caller.name, r.ResponseFormat)
}

// render writes the request's JSON. text counts the bytes of it that are text.
func (p *chat) render(r hob.Request, f family, n names, form answerForm) (body []byte, text int) {
	size, text := requestSize(r)
	b := make([]byte, 0, size)
	b = append(b, `{"model":`...)
	b = appendString(b, r.Model)
	b = append(b, `,"messages":[`...)
	kind := f.form
	if p.style.forms {
		kind = formNative
	}
	system := instructions(r, f, n)
	if form.kind == formJSON || form.kind == formSchema && kind != formNative { // the mode json_object wants the word said
		system = strings.TrimPrefix(system+"\n\n"+form.words(), "\n\n")
	}
	if system != "" {
		b = appendRole(b, f.systemRole())
		b = appendString(b, system)
		b = append(b, `},`...)
	}
	b = p.conversation(b, r, f, n)
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	b = append(b, `],"stream":true`...)
	if !f.quirks.noStreamOptions {
		b = append(b, `,"stream_options":{"include_usage":true}`...)
	}
	functions := len(r.Tools) > 0 && (!r.NoToolUse || f.quirks.toolsOnLast)
	plugin := r.WebSearch != nil && r.WebSearch.Always && len(r.WebSearch.AllowedDomains)+len(r.WebSearch.BlockedDomains) == 0
	switch served := r.WebSearch != nil && p.style.searches && !plugin; {
	case functions && served:
		b = p.tools(b, r.Tools, f, n)
		b = append(appendServerSearch(append(b[:len(b)-1], ','), r.WebSearch), ']')
	case functions:
		b = p.tools(b, r.Tools, f, n)
	case served:
		b = append(appendServerSearch(append(b, `,"tools":[`...), r.WebSearch), ']')
	}
	if functions {
		b = f.quirks.appendToolUse(b, r.NoToolUse)
	}
	b = p.tuning(b, r, f)
	if f.quirks.noStrict {
		form.strict = false
	}
	b = appendFormat(b, form, kind)
	switch {
	case r.WebSearch == nil:
	case !p.style.searches:
		b = append(b, `,"web_search_options":{}`...)
	case plugin:
		b = append(b, `,"plugins":[{"id":"web"}]`...)
	}
	return append(b, '}'), text
}

// appendFormat writes the wanted form as far as the family takes it. A schema is called strict only where it keeps the
// rules of that: the request would be refused.
func appendFormat(b []byte, form answerForm, kind formKind) []byte {
	switch {
	case form.kind == "" || kind == formWords:
		return b
	case form.kind == formJSON || kind == formObject:
		return append(b, `,"response_format":{"type":"json_object"}`...)
	}
	b = append(b, `,"response_format":{"type":"json_schema","json_schema":{"name":`...)
	b = appendString(b, form.name)
	b = append(b, `,"strict":`...)
	b = strconv.AppendBool(b, form.strict && strictRules.fits(form.schema))
	b = append(b, `,"schema":`...)
	b = append(b, form.schema...)
	return append(b, `}}`...)
}

// conversation writes the messages, each with a comma behind it. Those before the turn under way are the same in each of
// its steps.
func (p *chat) conversation(b []byte, r hob.Request, f family, n names) []byte {
	turn, from, start := lastUser(r.Messages), 0, len(b)
	kept := r.Memo
	if kept != nil && kept.Owner == p && kept.Count <= turn+1 {
		b, from = append(b, kept.Bytes...), kept.Count
	}
	for i := from; i < len(r.Messages); i++ {
		b = p.message(b, &r.Messages[i], f, n, i > turn)
		b = append(b, ',')
		if i == turn && kept != nil {
			kept.Owner, kept.Count, kept.Bytes = p, i+1, bytes.Clone(b[start:])
		}
	}
	return b
}

// seeInstructions ends a description that is cut.
const seeInstructions = " … (the whole description is in the instructions)"

// fits says whether a description is within the family's limit.
func (f family) fits(description string) bool {
	return f.description == 0 || len(description) <= f.description || utf8.RuneCountInString(description) <= f.description
}

// instructions are the request's own and, where the family bounds the descriptions of tools, those that are too long for
// it, so that the model loses nothing.
func instructions(r hob.Request, f family, n names) string {
	text := r.System
	if r.NoToolUse {
		return text
	}
	for i := range r.Tools {
		if t := &r.Tools[i]; !f.fits(t.Description) {
			text += "\n\nThe tool " + n.wire(t.Name) + ":\n" + t.Description
		}
	}
	return strings.TrimPrefix(text, "\n\n")
}

// describe is a tool's description within the family's limit.
func (f family) describe(description string) string {
	if f.fits(description) {
		return description
	}
	keep := f.description - utf8.RuneCountInString(seeInstructions)
	for i := range description {
		if keep == 0 {
			return description[:i] + seeInstructions
		}
		keep--
	}
	return description
}

func (p *chat) tools(b []byte, tools []hob.ToolSpec, f family, n names) []byte {
	b = append(b, `,"tools":[`...)
	for i := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"type":"function","function":{"name":`...)
		b = appendString(b, n.wire(tools[i].Name))
		if tools[i].Description != "" {
			b = append(b, `,"description":`...)
			b = appendString(b, f.describe(tools[i].Description))
		}
		b = append(b, `,"parameters":`...)
		b = appendSchema(b, tools[i])
		b = append(b, `}}`...)
	}
	return append(b, ']')
}

// tuning writes what steers the answer, as far as the model's family knows it.
func (p *chat) tuning(b []byte, r hob.Request, f family) []byte {
	if r.Temperature != nil && !f.noTemperature {
		b = append(b, `,"temperature":`...)
		b = strconv.AppendFloat(b, *r.Temperature, 'g', -1, 64)
	}
	if r.MaxTokens > 0 {
		if f.completionTokens {
			b = append(b, `,"max_completion_tokens":`...)
		} else {
			b = append(b, `,"max_tokens":`...)
		}
		b = strconv.AppendInt(b, int64(r.MaxTokens), 10)
	}
	if r.ReasoningEffort == "" {
		return b
	}
	if p.style.reasoningObject {
		b = append(b, `,"reasoning":{"effort":`...)
		b = appendString(b, string(r.ReasoningEffort))
		return append(b, '}')
	}
	if e := f.effort.spell(r.ReasoningEffort); e != "" {
		b = append(b, `,"reasoning_effort":`...)
		b = appendString(b, e)
	}
	return b
}

const effortLeast = "minimal"

// spell is the word a family has for an effort, "" where it has none.
func (e effort) spell(want hob.ReasoningEffort) string {
	switch {
	case e == effortUnknown:
		return ""
	case want == hob.EffortNone && e == effortMinimal:
		return effortLeast
	case want == hob.EffortNone && e == effortClassic:
		return string(hob.EffortLow)
	case want == effortLeast && e == effortNone:
		return string(hob.EffortNone)
	case want == effortLeast && e == effortClassic:
		return string(hob.EffortLow)
	}
	return string(want)
}

func (f family) systemRole() string {
	if f.system != "" {
		return f.system
	}
	return string(hob.RoleSystem)
}

func appendRole(b []byte, role string) []byte {
	b = append(b, `{"role":"`...)
	b = append(b, role...)
	return append(b, `","content":`...)
}

// lastUser is the index of the last message of the user, -1 without one.
func lastUser(history []hob.Message) int {
	for i := len(history) - 1; i >= 0; i-- {
		if history[i].Role == hob.RoleUser {
			return i
		}
	}
	return -1
}

// message writes one message. current tells that it belongs to the turn under way.
func (p *chat) message(b []byte, m *hob.Message, f family, n names, current bool) []byte {
	switch m.Role {
	case hob.RoleSystem:
		b = appendRole(b, f.systemRole())
		b = appendString(b, m.Text())
	case hob.RoleTool:
		b = append(b, `{"role":"tool","tool_call_id":`...)
		b = appendString(b, string(m.CallID))
		b = append(b, `,"content":`...)
		b = appendString(b, m.Content)
	case hob.RoleAssistant:
		return append(p.assistant(b, m, f, n, current), '}')
	case hob.RoleUser:
		b = appendRole(b, string(hob.RoleUser))
		b = appendParts(b, m)
	}
	return append(b, '}')
}

func (p *chat) assistant(b []byte, m *hob.Message, f family, n names, current bool) []byte {
	b = appendRole(b, string(hob.RoleAssistant))
	if m.Content == "" && len(m.Calls) > 0 {
		b = append(b, `null`...)
	} else {
		b = appendString(b, m.Content)
	}
	var seals []json.RawMessage
	if t := m.Reasoning; t != nil && t.Provider == p.caller.name && !f.quirks.noEcho {
		if f.echo && current && t.Text != "" {
			b = append(b, ',')
			b = appendString(b, f.echoField())
			b = append(b, ':')
			b = appendString(b, t.Text)
		}
		seals = readSealed(t, len(m.Calls))
		if p.style.details && len(t.Artefact) > 0 && t.Artefact[0] == '[' {
			b = append(b, `,"reasoning_details":`...)
			b = append(b, t.Artefact...)
		}
	}
	for i, c := range m.Calls {
		if i == 0 {
			b = append(b, `,"tool_calls":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, `{"id":`...)
		b = appendString(b, string(c.ID))
		b = append(b, `,"type":"function","function":{"name":`...)
		b = appendString(b, n.wire(c.Name))
		b = append(b, `,"arguments":`...)
		b = appendString(b, string(c.Arguments))
		b = append(b, '}')
		if i < len(seals) && present(seals[i]) {
			b = append(b, `,"extra_content":`...)
			b = append(b, seals[i]...)
		}
		b = append(b, '}')
	}
	if len(m.Calls) > 0 {
		b = append(b, ']')
	}
	return b
}

// appendParts writes a user's content: a string, or a list where there are images.
func appendParts(b []byte, m *hob.Message) []byte {
	if len(m.Parts) == 0 {
		return appendString(b, m.Content)
	}
	b = append(b, '[')
	for i, p := range m.Parts {
		if i > 0 {
			b = append(b, ',')
		}
		switch p.Type {
		case hob.ImagePart:
			b = append(b, `{"type":"image_url","image_url":{"url":`...)
			if len(p.Data) > 0 {
				b = appendDataURL(b, p.MediaType, p.Data)
			} else {
				b = appendString(b, p.URL)
			}
			b = append(b, `}}`...)
		case hob.TextPart:
			b = append(b, `{"type":"text","text":`...)
			b = appendString(b, p.Text)
			b = append(b, '}')
		}
	}
	return append(b, ']')
}
