package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"

	"hob"
)

// probe is one question to an endpoint, or a few that find out one thing.
type probe struct {
	name string
	run  func(*prober, context.Context) Check
}

// probes are asked in this order: what one finds out is used by those behind it.
var probes = []probe{
	{"plain answer", (*prober).plain},
	{"streaming", (*prober).streaming},
	{"usage", (*prober).usage},
	{"instructions", (*prober).instructions},
	{"max tokens", (*prober).maxTokens},
	{"temperature", (*prober).temperature},
	{"reasoning effort", (*prober).effort},
	{"tool call", (*prober).toolCall},
	{"reasoning sent back", (*prober).reasoningBack},
	{"tool result", (*prober).toolResult},
	{"parallel calls", (*prober).parallel},
	{"last step", (*prober).lastStep},
	{"tool_choice none", (*prober).toolChoiceNone},
	{"tool name of 64", (*prober).name64},
	{"tool name of 65", (*prober).name65},
	{"response format", (*prober).format},
	{"image", (*prober).picture},
	{"window", (*prober).window},
}

// plain asks without anything special. Where that is refused, it is asked again without what OpenAI's dialect adds.
func (p *prober) plain(ctx context.Context) Check {
	ask := plainAsk("Reply with the single word pong.")
	h := p.call(ctx, p.facts, ask)
	if p.openai() && h.refused() {
		trial := p.facts
		trial.StreamOptions = no()
		if h = p.call(ctx, trial, ask); h.answered() {
			p.facts.StreamOptions = no()
		}
	} else if p.openai() && h.answered() {
		p.facts.StreamOptions = yes()
	}
	if !h.answered() {
		return Check{Outcome: No, Note: h.why()}
	}
	p.first = h
	note := fmt.Sprintf("answers %q", h.words())
	if h.text == "" {
		note = "answers, with an empty text"
	}
	return Check{Outcome: Yes, Note: note}
}

// streaming looks at the plain answer.
func (p *prober) streaming(context.Context) Check {
	w := p.first.wire
	if w.events == 0 {
		return Check{Outcome: No, Note: "one document instead of a stream; it is read all the same"}
	}
	return Check{Outcome: Yes, Note: fmt.Sprintf("%d events, %d with text; finish reason %s", w.events, w.texts, strings.Join(w.finish, ", "))}
}

// usage looks at the plain answer.
func (p *prober) usage(context.Context) Check {
	told := p.first.wire.usage
	switch {
	case !p.openai() && told:
		return Check{Outcome: Yes, Note: "told"}
	case !told:
		p.facts.Usage = usageNever
		if isFalse(p.facts.StreamOptions) {
			return Check{Outcome: No, Note: "not told, and stream_options is refused; it is estimated"}
		}
		return Check{Outcome: No, Note: "not told; it is estimated"}
	case isFalse(p.facts.StreamOptions):
		p.facts.Usage = usageAlways
		return Check{Outcome: Yes, Note: "told unasked; stream_options is refused"}
	}
	p.facts.Usage = usageAsked
	return Check{Outcome: Yes, Note: "told; stream_options is taken"}
}

// instructions finds the role in which the model obeys its instructions.
func (p *prober) instructions(ctx context.Context) Check {
	const word = "BANANA"
	ask := plainAsk("What is the capital of France?")
	ask.System = "Whatever you are asked, answer with the single word " + word + " and nothing else."
	if !p.openai() {
		return p.simple(ctx, ask, func(h heard) Check {
			return Check{Outcome: Yes, Note: obeyed(h.said(word))}
		})
	}
	roles := []string{p.table().systemRole()}
	for _, role := range []string{string(hob.RoleSystem), roleDeveloper, string(hob.RoleUser)} {
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	return p.choose(ctx, ask, choice{
		values: roles, set: func(f *Facts, role string) { f.SystemRole = role },
		kept: func(h heard) bool { return h.said(word) }, yes: "obeyed", otherwise: "not obeyed",
	})
}

// choice is a fact with several values, of which an endpoint may take some and keep what is asked under some.
type choice struct {
	values    []string // in the order in which they are tried
	set       func(*Facts, string)
	kept      func(heard) bool // the answer shows that the model kept to what was asked
	yes       string           // a note: how that is called
	otherwise string           // and what a request that was merely taken lacks
}

// choose finds the first value that is kept, else the first that is taken, and keeps it as the fact.
func (p *prober) choose(ctx context.Context, ask hob.Request, c choice) Check {
	var refused []string
	taken, last := "", heard{}
	for _, value := range c.values {
		trial := p.facts
		c.set(&trial, value)
		h := p.call(ctx, trial, ask)
		switch {
		case h.answered() && c.kept(h):
			c.set(&p.facts, value)
			return Check{Outcome: Yes, Note: c.yes + " as " + value + without(refused)}
		case h.answered() && taken == "":
			taken = value
		case h.refused():
			refused = append(refused, value)
		}
		last = h
	}
	switch {
	case taken != "":
		c.set(&p.facts, taken)
		return Check{Outcome: Unclear, Note: "taken as " + taken + ", but " + c.otherwise + without(refused)}
	case len(refused) == len(c.values):
		return Check{Outcome: No, Note: "refused as " + strings.Join(refused, " and as ")}
	}
	return unclear(last)
}

func obeyed(did bool) string {
	if did {
		return "obeyed"
	}
	return "taken, but not obeyed"
}

// without names what was refused, for a note.
func without(refused []string) string {
	if len(refused) == 0 {
		return ""
	}
	return "; refused as " + strings.Join(refused, ", ")
}

// simple is a check that one call answers with yes or no.
func (p *prober) simple(ctx context.Context, ask hob.Request, judge func(heard) Check) Check {
	h := p.call(ctx, p.facts, ask)
	switch {
	case h.answered():
		return judge(h)
	case h.refused():
		return Check{Outcome: No, Note: h.why()}
	}
	return unclear(h)
}

// maxTokens finds the field that bounds an answer.
func (p *prober) maxTokens(ctx context.Context) Check {
	ask := plainAsk("Count from 1 to 100 in words.")
	ask.MaxTokens = 16
	kept := func(h heard) bool { return h.finish == hob.FinishLength }
	const otherwise = "the answer did not end at it"
	if !p.openai() {
		return p.simple(ctx, ask, func(h heard) Check {
			if kept(h) {
				return Check{Outcome: Yes, Note: "kept, and told by the finish reason"}
			}
			return Check{Outcome: Unclear, Note: "taken, but " + otherwise}
		})
	}
	fields := []string{fieldMaxTokens, fieldCompletion}
	if p.table().completionTokens {
		slices.Reverse(fields)
	}
	return p.choose(ctx, ask, choice{
		values: fields, set: func(f *Facts, field string) { f.MaxTokensField = field }, kept: kept, yes: "kept", otherwise: otherwise,
	})
}

// flag is a check that sets one fact: yes where the endpoint takes the request under it, no where it refuses it.
func (p *prober) flag(ctx context.Context, ask hob.Request, fact func(*Facts) **bool, taken string) Check {
	trial := p.facts
	*fact(&trial) = yes()
	h := p.call(ctx, trial, ask)
	switch {
	case h.answered():
		*fact(&p.facts) = yes()
		return Check{Outcome: Yes, Note: taken}
	case h.refused():
		*fact(&p.facts) = no()
		return Check{Outcome: No, Note: h.why()}
	}
	return unclear(h)
}

func (p *prober) temperature(ctx context.Context) Check {
	ask := plainAsk("Reply with the single word pong.")
	t := 0.2
	ask.Temperature = &t
	return p.flag(ctx, ask, func(f *Facts) **bool { return &f.Temperature }, "may be set")
}

// effort finds out whether the endpoint takes a reasoning effort, and the least that it takes. A server that passes over
// fields it does not know takes all of them, which does no harm. Only OpenAI's dialect leaves open whether the field is known.
func (p *prober) effort(ctx context.Context) Check {
	if !p.openai() {
		return Check{Outcome: Unclear, Note: "not a choice of this dialect's profile"}
	}
	asked := func(word string) heard {
		ask := plainAsk("Reply with the single word pong.")
		ask.ReasoningEffort = hob.ReasoningEffort(word)
		trial := p.facts
		trial.ReasoningEffort = word
		return p.call(ctx, trial, ask)
	}
	const sure = string(hob.EffortLow) // whoever knows the field knows this word
	switch h := asked(sure); {
	case h.refused():
		p.facts.ReasoningEffort = effortRefused
		return Check{Outcome: No, Note: h.why()}
	case !h.answered():
		return unclear(h)
	}
	p.facts.ReasoningEffort = sure
	for _, word := range []string{string(hob.EffortNone), effortLeast} {
		if asked(word).answered() {
			p.facts.ReasoningEffort = word
			break
		}
	}
	return Check{Outcome: Yes, Note: "taken, from " + p.facts.ReasoningEffort + " on"}
}

// picture shows a red square.
func (p *prober) picture(ctx context.Context) Check {
	const side = 32
	square := image.NewRGBA(image.Rect(0, 0, side, side))
	for i := range side * side {
		square.Set(i%side, i/side, color.RGBA{R: 255, A: 255})
	}
	var file bytes.Buffer
	if err := png.Encode(&file, square); err != nil {
		return Check{Outcome: Unclear, Note: err.Error()}
	}
	ask := hob.Request{Messages: []hob.Message{{Role: hob.RoleUser, Parts: []hob.Part{
		{Type: hob.TextPart, Text: "Which colour is this square? Answer with one English word."},
		{Type: hob.ImagePart, MediaType: "image/png", Data: file.Bytes()},
	}}}}
	trial := p.facts
	trial.Images = yes()
	h := p.call(ctx, trial, ask)
	switch {
	case h.answered() && h.said("red"):
		p.facts.Images = yes()
		return Check{Outcome: Yes, Note: "seen"}
	case h.answered():
		return Check{Outcome: Unclear, Note: fmt.Sprintf("taken, but a red square was answered with %q", h.words())}
	case h.refused():
		p.facts.Images = no()
		return Check{Outcome: No, Note: h.why()}
	}
	return unclear(h)
}

// probedForm is an answer's form that keeps every vendor's rules of strictness.
const probedForm = `{"type":"json_schema","json_schema":{"name":"colour","strict":true,"schema":{"type":"object",` +
	`"properties":{"colour":{"type":"string"}},"required":["colour"],"additionalProperties":false}}}`

// format finds the strongest promise of a form that the endpoint makes and keeps.
func (p *prober) format(ctx context.Context) Check {
	ask := plainAsk("Name a colour.")
	ask.ResponseFormat = json.RawMessage(probedForm)
	kept := func(h heard) bool {
		var answer struct {
			Colour *string `json:"colour"`
		}
		return json.Unmarshal([]byte(h.text), &answer) == nil && answer.Colour != nil
	}
	if p.config.Dialect == geminiName { // which has no facts
		return p.simple(ctx, ask, func(h heard) Check {
			if kept(h) {
				return Check{Outcome: Yes, Note: "kept"}
			}
			return Check{Outcome: Unclear, Note: "taken, but not kept"}
		})
	}
	steps := []struct {
		format string
		strict *bool
		note   string
	}{
		{formSchema, yes(), "strict json_schema"},
		{formSchema, no(), "json_schema"},
		{formJSON, nil, "json_object"},
		{factNone, nil, "in words alone"},
	}
	if !p.openai() {
		steps = slices.Delete(steps, 1, 3) // Anthropic's dialect knows the schema or nothing
	}
	var notes []string
	last := heard{}
	for _, s := range steps {
		trial := p.facts
		trial.ResponseFormat, trial.StrictSchemas = s.format, s.strict
		last = p.call(ctx, trial, ask)
		switch {
		case last.answered() && (kept(last) || s.format == factNone):
			p.facts.ResponseFormat = s.format
			if p.openai() && s.format == formSchema {
				p.facts.StrictSchemas = s.strict
			}
			outcome := Yes
			if s.format == factNone {
				outcome = No
			}
			return Check{Outcome: outcome, Note: strings.Join(append([]string{"asked for as " + s.note}, notes...), "; ")}
		case last.answered():
			notes = append(notes, "does not keep "+s.note)
		case !last.refused():
			return unclear(last)
		default:
			notes = append(notes, "refuses "+s.note)
		}
	}
	return unclear(last)
}
