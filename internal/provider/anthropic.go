package provider

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"hob"
)

const (
	anthropicName    = "anthropic"
	anthropicVersion = "2023-06-01"
)

func init() {
	add(maker{
		name: anthropicName, rank: 2, vars: "ANTHROPIC_API_KEY (or ANTHROPIC_BASE_URL)", model: "claude-sonnet-4-5",
		endpoint: func(c Config) (Endpoint, bool) { return c.Anthropic, c.Anthropic.set() },
		open: func(e env) (hob.Provider, error) {
			c, err := e.caller(anthropicName, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com")
			if err != nil {
				return nil, err
			}
			c.base = strings.TrimSuffix(c.base, "/v1") // the variable is meant without the version, and often has it
			h := http.Header{"Anthropic-Version": {anthropicVersion}}
			if e.endpoint.Key != "" {
				h.Set("X-Api-Key", string(e.endpoint.Key))
			}
			return &messages{caller: c, header: h}, nil
		},
	})
}

// messages speaks Anthropic's Messages API.
type messages struct {
	caller caller
	header http.Header
}

// Stream sends one request; see hob.Provider.
func (p *messages) Stream(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
	return func(yield func(hob.Delta, error) bool) {
		f := p.family(r.Model)
		form, err := p.check(&r, f)
		if err != nil {
			yield(hob.Delta{}, err)
			return
		}
		n := newNames(r, func(name string) bool { return f.takesName(name) && (r.WebSearch == nil || name != searchTool) })
		p.answer(ctx, answering{request: r, family: f, names: n, form: form}, yield)
	}
}

// answering is a request with what its answer is read by.
type answering struct {
	request hob.Request
	family  family
	names   names
	form    answerForm
}

// answer makes the calls that an answer takes: one, and a further one each time that it pauses amid a search. What one call
// gave is passed on, so a fault of a later one is a cut.
func (p *messages) answer(ctx context.Context, a answering, yield func(hob.Delta, error) bool) {
	r, turn := a.request, &pausedTurn{}
	for pauses := 0; ; pauses++ {
		var d *messagesDecoder
		body, text := p.render(r, a.family, a.names, a.form)
		if pauses > 0 {
			body = turn.append(body)
		}
		p.caller.stream(ctx, exchange{
			path: "/v1/messages", header: p.header, body: body, text: text, window: a.family.window, aside: aside(r),
			decode: func() decoder {
				d = &messagesDecoder{names: a.names, keeps: r.WebSearch != nil, pauses: r.WebSearch != nil && pauses < MaxPauses, turn: turn}
				d.back, d.kept = slices.Clone(turn.back), slices.Clone(turn.blocks)
				return d
			},
		}, func(delta hob.Delta, err error) bool { return yield(delta, cutLate(err, pauses)) })
		if d == nil || !d.paused {
			return
		}
		turn.goesOn(d)
		left := *r.WebSearch
		left.MaxUses = max(searches(a.request.WebSearch)-turn.searches, 1)
		r.WebSearch = &left
	}
}

// cutLate makes a fault behind the first part of an answer the cut that it is.
func cutLate(err error, pauses int) error {
	var e *hob.ProviderError
	if pauses > 0 && errors.As(err, &e) && (e.Class == hob.ClassModelError || e.Class == hob.ClassRateLimit) {
		e.Class = hob.ClassCut
	}
	return err
}

// searchTool is the name of Anthropic's own search. A function of the same name would be refused beside it, so it goes by
// another one.
const searchTool = "web_search"

// check reads the wanted form and refuses what the API cannot do.
func (p *messages) check(r *hob.Request, f family) (answerForm, error) {
	if err := checkSearch(p.caller.name, r, searchOf(p, r.Model)); err != nil {
		return answerForm{}, err
	}
	if err := checkImages(p.caller.name, r, f, anthropicImages); err != nil {
		return answerForm{}, err
	}
	return readForm(p.caller.name, r.ResponseFormat)
}

// Tokens a model may think with, by effort, and the least that is allowed.
const (
	minBudget    = 1_024
	lowBudget    = 2_048
	mediumBudget = 8_192
	highBudget   = 24_576
)

// plan is what max_tokens and thinking come to.
type plan struct {
	maxTokens int
	budget    int    // 0 = no budget is sent
	effort    string // of adaptive thinking, "" = none is sent
}

// planOf weighs the wanted length and effort. max_tokens bounds thinking and answer together, so the budget is added to a
// length the caller wanted for the answer. Thinking is left out where the turn under way has tool calls without the
// signed thoughts that led to them, as after a change of provider: the API refuses such a history.
func planOf(r hob.Request, f family) plan {
	p := plan{maxTokens: r.MaxTokens}
	if p.maxTokens <= 0 {
		p.maxTokens = f.output
	}
	e := r.ReasoningEffort
	if e == "" || e == hob.EffortNone || f.thinking == thinkNever || !thoughtsKept(r.Messages) {
		return p
	}
	budget := effortBudget(e)
	answer := p.maxTokens
	p.maxTokens += budget
	if f.ceiling > 0 {
		p.maxTokens = max(min(p.maxTokens, f.ceiling), answer)
	}
	if f.thinking == thinkBudget {
		p.budget = budget
		return p
	}
	p.effort = string(e)
	if e == effortLeast {
		p.effort = string(hob.EffortLow)
	}
	return p
}

// effortBudget is how many tokens an effort may take.
func effortBudget(e hob.ReasoningEffort) int {
	switch e {
	case hob.EffortHigh:
		return highBudget
	case hob.EffortMedium:
		return mediumBudget
	case hob.EffortLow:
		return lowBudget
	case hob.EffortNone:
		return 0
	}
	return minBudget
}

// thoughtsKept says whether every assistant message with calls since the user's last message has its thoughts.
func thoughtsKept(history []hob.Message) bool {
	for i := len(history) - 1; i >= 0 && history[i].Role != hob.RoleUser; i-- {
		m := &history[i]
		if m.Role == hob.RoleAssistant && len(m.Calls) > 0 && !hasThoughts(m) {
			return false
		}
	}
	return true
}

// hasThoughts says whether thoughts are among what the provider wants back with a message.
func hasThoughts(m *hob.Message) bool {
	return hasArtefact(m) && (!bytes.Contains(m.Reasoning.Artefact, []byte(servedMark)) || len(withoutServed(m.Reasoning.Artefact)) > 2)
}

// hasArtefact says whether the provider wants something back with a message.
func hasArtefact(m *hob.Message) bool {
	return m.Reasoning != nil && m.Reasoning.Provider == anthropicName && len(m.Reasoning.Artefact) > 2
}

// render writes the request's JSON. text counts the bytes of it that are text.
func (p *messages) render(r hob.Request, f family, n names, form answerForm) (body []byte, text int) {
	size, text := requestSize(r)
	plan := planOf(r, f)
	b := make([]byte, 0, size)
	b = append(b, `{"model":`...)
	b = appendString(b, r.Model)
	b = append(b, `,"stream":true,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(plan.maxTokens), 10)
	native := form.kind == formSchema && f.form == formNative && r.WebSearch == nil && anthropicRules.fits(form.schema)
	switch {
	case plan.budget > 0:
		b = append(b, `,"thinking":{"type":"enabled","budget_tokens":`...)
		b = strconv.AppendInt(b, int64(plan.budget), 10)
		b = append(b, '}')
	case plan.effort != "":
		b = append(b, `,"thinking":{"type":"adaptive","display":"summarized"}`...)
	case r.Temperature != nil && !f.noTemperature: // not beside thinking
		b = append(b, `,"temperature":`...)
		b = strconv.AppendFloat(b, min(*r.Temperature, 1), 'g', -1, 64) // the scale ends at 1
	}
	words := form.words()
	if native {
		words = ""
	}
	b = appendOutputConfig(b, plan.effort, form, native)
	history := r.Messages
	system := systemText(r.System, words, &history)
	if system != "" {
		b = append(b, `,"system":[`...)
		b = mark(appendTextBlock(b, system), len(r.Tools) > 0)
		b = append(b, ']')
	}
	b = p.tools(b, r, f, n)
	b = appendTurns(append(b, `,"messages":`...), history, n, r.WebSearch != nil)
	b = mark(b[:len(b)-len(turnsEnd)], len(r.Tools) > 0)
	return append(append(b, turnsEnd...), '}'), text
}

// appendOutputConfig writes the effort, and the form where the API enforces it.
func appendOutputConfig(b []byte, effort string, form answerForm, native bool) []byte {
	if effort == "" && !native {
		return b
	}
	b = append(b, `,"output_config":{`...)
	start := len(b)
	if effort != "" {
		b = append(b, `"effort":`...)
		b = appendString(b, effort)
	}
	if native {
		b = comma(b, start)
		b = append(b, `"format":{"type":"json_schema","schema":`...)
		b = append(append(b, form.schema...), '}')
	}
	return append(b, '}')
}

// turnsEnd closes the last turn and the list of turns.
const turnsEnd = `]}]`

// mark tells the API to keep everything up to the object that b ends in for the next request, at a tenth of the price. It
// is used where a run with tools will send the same beginning again and again.
func mark(b []byte, use bool) []byte {
	if !use || b[len(b)-1] != '}' {
		return b
	}
	return append(b[:len(b)-1], `,"cache_control":{"type":"ephemeral"}}`...)
}

// systemText joins the instructions, the system messages that lead the history, which it takes off, and the words that
// ask for the wanted form of answer where the API has no field for it.
func systemText(system, words string, history *[]hob.Message) string {
	parts := make([]string, 0, 3)
	if system != "" {
		parts = append(parts, system)
	}
	for len(*history) > 0 && (*history)[0].Role == hob.RoleSystem {
		parts = append(parts, (*history)[0].Text())
		*history = (*history)[1:]
	}
	if words != "" {
		parts = append(parts, words)
	}
	return strings.Join(parts, "\n\n")
}

// called are the tools that a history has calls of. The API wants the list of tools wherever there are calls, also when the
// agent has lost its tools since.
func called(history []hob.Message) []hob.ToolSpec {
	var tools []hob.ToolSpec
	for i := range history {
		for _, c := range history[i].Calls {
			if !slices.ContainsFunc(tools, func(t hob.ToolSpec) bool { return t.Name == c.Name }) {
				tools = append(tools, hob.ToolSpec{Name: c.Name})
			}
		}
	}
	return tools
}

func (p *messages) tools(b []byte, r hob.Request, f family, n names) []byte {
	switch {
	case len(r.Tools) > 0:
	case r.WebSearch != nil:
		r.NoToolUse = false // it would bar the search, which is the only tool
	default:
		if r.Tools = called(r.Messages); len(r.Tools) == 0 {
			return b
		}
		r.NoToolUse = true
	}
	b = append(b, `,"tools":[`...)
	start := len(b)
	if o := r.WebSearch; o != nil {
		b = append(b, `{"type":"web_search_20250305","name":"`+searchTool+`","max_uses":`...)
		b = strconv.AppendInt(b, int64(searches(o)), 10)
		b = appendDomains(b, "allowed_domains", o.AllowedDomains)
		b = append(appendDomains(b, "blocked_domains", o.BlockedDomains), '}')
	}
	for i := range r.Tools {
		b = comma(b, start)
		b = append(b, `{"name":`...)
		b = appendString(b, n.wire(r.Tools[i].Name))
		if r.Tools[i].Description != "" {
			b = append(b, `,"description":`...)
			b = appendString(b, r.Tools[i].Description)
		}
		b = append(b, `,"input_schema":`...)
		b = append(appendSchema(b, r.Tools[i]), '}')
	}
	b = append(b, ']')
	switch {
	case r.NoToolUse && !f.quirks.noToolChoice:
		b = append(b, `,"tool_choice":{"type":"none"}`...)
	case f.quirks.oneCall:
		b = append(b, `,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`...)
	}
	return b
}
