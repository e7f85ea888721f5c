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
	note := fmt.Sprintf("answers %q", quote(strings.TrimSpace(h.text)))
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
	var refused []string
	taken, last := "", heard{}
	for _, role := range roles {
		trial := p.facts
		trial.SystemRole = role
		h := p.call(ctx, trial, ask)
		switch {
		case h.answered() && h.said(word):
			p.facts.SystemRole = role
			return Check{Outcome: Yes, Note: "obeyed as " + role + without(refused)}
		case h.answered() && taken == "":
			taken = role
		case h.refused():
			refused = append(refused, role)
		}
		last = h
	}
	if taken != "" {
		p.facts.SystemRole = taken
		return Check{Outcome: Unclear, Note: "taken as " + taken + ", but not obeyed" + without(refused)}
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
	kept := func(h heard) Check {
		if h.finish == hob.FinishLength {
			return Check{Outcome: Yes, Note: "kept, and told by the finish reason"}
		}
		return Check{Outcome: Unclear, Note: "taken, but the answer did not end at it"}
	}
	if !p.openai() {
		return p.simple(ctx, ask, kept)
	}
	fields := []string{fieldMaxTokens, fieldCompletion}
	if p.table().completionTokens {
		slices.Reverse(fields)
	}
	var refused []string
	taken, last := "", heard{}
	for _, field := range fields {
		trial := p.facts
		trial.MaxTokensField = field
		h := p.call(ctx, trial, ask)
		switch {
		case h.answered() && h.finish == hob.FinishLength:
			p.facts.MaxTokensField = field
			return Check{Outcome: Yes, Note: "kept as " + field + without(refused)}
		case h.answered() && taken == "":
			taken = field
		case h.refused():
			refused = append(refused, field)
		}
		last = h
	}
	if taken != "" {
		p.facts.MaxTokensField = taken
		return Check{Outcome: Unclear, Note: "taken as " + taken + ", but the answer did not end at it" + without(refused)}
	}
	if len(refused) == len(fields) {
		return Check{Outcome: No, Note: "refused as " + strings.Join(refused, " and as ")}
	}
	return unclear(last)
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
		return Check{Outcome: Unclear, Note: fmt.Sprintf("taken, but a red square was answered with %q", quote(strings.TrimSpace(h.text)))}
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
