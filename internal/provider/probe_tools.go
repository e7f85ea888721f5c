package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"hob"
)

// probedTool is what the model is to call.
var probedTool = hob.ToolSpec{
	Name: "lookup_weather", Description: "Looks up the weather of one city.",
	Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`),
}

// toolAsk asks for calls of a tool.
func toolAsk(tool hob.ToolSpec, cities ...string) hob.Request {
	text := "Call the tool " + tool.Name + " for the city " + cities[0] + ". Say nothing else."
	if len(cities) > 1 {
		text = "Call the tool " + tool.Name + " for each of these cities, all at once in one answer: " + strings.Join(cities, ", ") +
			". Say nothing else."
	}
	r := plainAsk(text)
	r.Tools = []hob.ToolSpec{tool}
	return r
}

// answerCalls is a request behind the calls of an answer, each with a result. Calls without an id, or with that of another
// one, get one, as in a run.
func (p *prober) answerCalls(ask hob.Request, h heard, result string) hob.Request {
	m := hob.Message{Role: hob.RoleAssistant, Content: h.text}
	if h.reasoning != "" || len(h.artefact) > 0 {
		m.Reasoning = &hob.Reasoning{Provider: p.config.Dialect, Text: h.reasoning, Artefact: h.artefact}
	}
	seen := map[string]bool{"": true}
	for i, c := range h.calls {
		if seen[c.ID] {
			c.ID = fmt.Sprintf("call_%d", i+1)
		}
		seen[c.ID] = true
		args, err := hob.ParseArguments(c.Arguments)
		if err != nil {
			args = json.RawMessage("{}")
		}
		m.Calls = append(m.Calls, hob.ToolCall{ID: hob.CallID(c.ID), Name: c.Name, Arguments: args})
	}
	r := ask
	r.Messages = append(slices.Clone(ask.Messages), m)
	for _, c := range m.Calls {
		r.Messages = append(r.Messages, hob.Message{Role: hob.RoleTool, CallID: c.ID, Name: c.Name, Content: result})
	}
	return r
}

// madeUp is an answer that calls the tool, for where the model made none.
func madeUp(cities ...string) heard {
	var h heard
	for i, city := range cities {
		args, _ := json.Marshal(map[string]string{"city": city}) // a map of strings can be encoded
		h.calls = append(h.calls, hob.ModelCall{ID: fmt.Sprintf("call_%d", i+1), Name: probedTool.Name, Arguments: string(args)})
	}
	return h
}

// behindCall is a request behind one call, the model's own where it made one.
func (p *prober) behindCall() hob.Request {
	ask := toolAsk(probedTool, "Oslo")
	h := p.called
	if len(h.calls) == 0 {
		h = madeUp("Oslo")
	}
	return p.answerCalls(ask, h, "Rain, 7 degrees.")
}

func (p *prober) toolCall(ctx context.Context) Check {
	h := p.call(ctx, p.facts, toolAsk(probedTool, "Oslo"))
	switch {
	case h.refused():
		p.facts.Tools = no()
		return Check{Outcome: No, Note: h.why()}
	case !h.answered():
		return unclear(h)
	case len(h.calls) == 0:
		return Check{Outcome: Unclear, Note: fmt.Sprintf("a tool may be offered, but the model answered %q", h.words())}
	}
	p.called = h
	p.facts.Tools = yes()
	p.facts.Deltas, p.facts.CallIDs = h.wire.deltas, h.wire.callIDs
	if _, err := hob.ParseArguments(h.calls[0].Arguments); err != nil {
		return Check{Outcome: No, Note: "called, but the arguments are no JSON object: " + quote(h.calls[0].Arguments)}
	}
	note := "called"
	if h.wire.deltas != "" {
		note += "; arguments " + h.wire.deltas + ", ids " + h.wire.callIDs
	}
	return Check{Outcome: Yes, Note: note}
}

// reasoningBack finds out whether reasoning is to be sent back within a turn. Only OpenAI's dialect leaves that open.
func (p *prober) reasoningBack(ctx context.Context) Check {
	if !p.openai() || p.called.reasoning == "" {
		if !p.thought {
			p.facts.Reasoning = factNone
		}
		return Check{Outcome: Unclear, Note: "no reasoning beside a call to send back"}
	}
	trial := p.facts
	trial.ReasoningEcho = echoRefused // so that none is sent
	bare := p.call(ctx, trial, p.behindCall())
	trial.ReasoningEcho = echoNeeded
	echoed := p.call(ctx, trial, p.behindCall())
	switch {
	case bare.answered() && echoed.answered():
		p.facts.ReasoningEcho = echoIgnored
		return Check{Outcome: Yes, Note: "taken with and without"}
	case bare.refused() && echoed.answered():
		p.facts.ReasoningEcho = echoNeeded
		return Check{Outcome: Yes, Note: "needed in " + p.facts.Reasoning}
	case bare.answered() && echoed.refused():
		p.facts.ReasoningEcho = echoRefused
		return Check{Outcome: No, Note: echoed.why()}
	case !bare.answered():
		return unclear(bare)
	}
	return unclear(echoed)
}

func (p *prober) toolResult(ctx context.Context) Check {
	return p.simple(ctx, p.behindCall(), func(h heard) Check {
		if h.said("rain") || h.said("7") {
			return Check{Outcome: Yes, Note: "read"}
		}
		return Check{Outcome: Yes, Note: "taken"}
	})
}

// parallel asks for two calls at once and sends both results back.
func (p *prober) parallel(ctx context.Context) Check {
	ask := toolAsk(probedTool, "Oslo", "Rome")
	h := p.call(ctx, p.facts, ask)
	switch {
	case h.refused():
		return Check{Outcome: No, Note: h.why()}
	case !h.answered():
		return unclear(h)
	}
	if h.wire.callIDs == idsDuplicate || h.wire.callIDs == idsMissing {
		p.facts.CallIDs = h.wire.callIDs
	}
	note := fmt.Sprintf("%d in one answer, and their results", len(h.calls))
	if p.facts.CallIDs == idsDuplicate {
		note += "; the ids are the same"
		h = p.call(ctx, p.facts, ask) // now that they are passed over
	}
	single := len(h.calls) < 2
	if single {
		h = madeUp("Oslo", "Rome")
	}
	back := p.call(ctx, p.facts, p.answerCalls(ask, h, "Rain, 7 degrees."))
	switch {
	case back.answered() && single:
		return Check{Outcome: Unclear, Note: "the model makes one call at a time; results of two are taken"}
	case back.answered():
		p.facts.ParallelCalls = yes()
		return Check{Outcome: Yes, Note: note}
	case !back.refused():
		return unclear(back)
	}
	p.facts.ParallelCalls = no()
	trial := p.facts
	trial.ParallelField = yes()
	only := p.call(ctx, trial, toolAsk(probedTool, "Oslo"))
	switch {
	case only.answered():
		p.facts.ParallelField = yes()
	case only.refused():
		p.facts.ParallelField = no()
	}
	return Check{Outcome: No, Note: "the results of two calls are refused, so one at a time is asked for: " + back.why()}
}

// lastStep sends a history with a call when no tool may be used any more.
func (p *prober) lastStep(ctx context.Context) Check {
	ask := p.behindCall()
	ask.NoToolUse = true
	if !p.openai() {
		return p.simple(ctx, ask, func(heard) Check { return Check{Outcome: Yes, Note: "answered in text"} })
	}
	h := p.call(ctx, p.facts, ask)
	if h.answered() {
		p.facts.ToolsNeededOnLastStep = no()
		return Check{Outcome: Yes, Note: "taken without the list of tools"}
	}
	if !h.refused() {
		return unclear(h)
	}
	for _, choice := range []*bool{yes(), no()} {
		trial := p.facts
		trial.ToolsNeededOnLastStep, trial.ToolChoiceNone = yes(), choice
		if again := p.call(ctx, trial, ask); again.answered() {
			p.facts.ToolsNeededOnLastStep, p.facts.ToolChoiceNone = yes(), choice
			return Check{Outcome: Yes, Note: "taken with the list of tools only"}
		}
	}
	return Check{Outcome: No, Note: h.why()}
}

// toolChoiceNone offers tools and forbids their use.
func (p *prober) toolChoiceNone(ctx context.Context) Check {
	if p.config.Dialect == geminiName {
		return Check{Outcome: Unclear, Note: "not a choice of this dialect's profile"}
	}
	ask := toolAsk(probedTool, "Oslo")
	ask.NoToolUse = true
	trial := p.facts
	trial.ToolChoiceNone, trial.ToolsNeededOnLastStep = yes(), yes()
	h := p.call(ctx, trial, ask)
	switch {
	case h.answered() && len(h.calls) == 0:
		p.facts.ToolChoiceNone = yes()
		return Check{Outcome: Yes, Note: "kept"}
	case h.answered():
		return Check{Outcome: Unclear, Note: "taken, but a tool was called all the same"}
	case h.refused():
		p.facts.ToolChoiceNone = no()
		return Check{Outcome: No, Note: h.why()}
	}
	return unclear(h)
}

// calledNamed asks for a call of a tool with a name of n characters, sent under a limit.
func (p *prober) calledNamed(ctx context.Context, n, limit int) (heard, bool) {
	tool := probedTool
	tool.Name = "lookup_weather" + strings.Repeat("_of_city", 8)[:n-len("lookup_weather")]
	trial := p.facts
	trial.NameLimit = limit
	h := p.call(ctx, trial, toolAsk(tool, "Oslo"))
	return h, h.answered() && (len(h.calls) == 0 || h.calls[0].Name == tool.Name)
}

func (p *prober) name64(ctx context.Context) Check {
	h, taken := p.calledNamed(ctx, MaxToolName, MaxToolName)
	if taken {
		p.usual = true
		return Check{Outcome: Yes, Note: "taken"}
	}
	if h.err != nil && !h.refused() {
		return unclear(h)
	}
	for _, limit := range []int{48, 32, minNameLimit} {
		if _, taken := p.calledNamed(ctx, MaxToolName, limit); taken {
			p.facts.NameLimit = limit
			return Check{Outcome: No, Note: fmt.Sprintf("not taken; shortened to %d it is", limit)}
		}
	}
	return Check{Outcome: No, Note: "not taken, nor shortened"}
}

// name65 looks for a limit just above the length that is taken for granted. Where there is none, no fact is kept: names are
// shortened to the usual length all the same.
func (p *prober) name65(ctx context.Context) Check {
	const length = MaxToolName + 1
	h, taken := p.calledNamed(ctx, length, length)
	switch {
	case taken:
		return Check{Outcome: Yes, Note: fmt.Sprintf("taken; no limit was found, and names beyond %d are shortened all the same", MaxToolName)}
	case h.err == nil || h.refused():
		if p.usual {
			p.facts.NameLimit = MaxToolName
		}
		return Check{Outcome: No, Note: "not taken; longer names are shortened"}
	}
	return unclear(h)
}

// maxModels bounds an endpoint's list of models.
const maxModels = 8 << 20

// window reads the context window from the list of models, where it has one.
func (p *prober) window(ctx context.Context) Check {
	const nobody = "not told by the list of models"
	if !p.openai() {
		return Check{Outcome: Unclear, Note: nobody}
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Each)
	defer cancel()
	client, err := p.config.Clients.OperatorClient(p.report.Endpoint)
	if err != nil {
		return Check{Outcome: Unclear, Note: nobody}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.report.Endpoint+"/models", nil)
	if err != nil {
		return Check{Outcome: Unclear, Note: nobody}
	}
	req.Header = bearer(p.config.Key)
	res, err := client.Do(req)
	if err != nil {
		return Check{Outcome: Unclear, Note: nobody}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxModels))
	if n := windowIn(body, p.config.Model); err == nil && res.StatusCode == http.StatusOK && n > 0 {
		p.facts.Window = n
		return Check{Outcome: Yes, Note: fmt.Sprintf("%d tokens", n)}
	}
	return Check{Outcome: Unclear, Note: nobody}
}

// windowIn finds a model's window in a list of models, under the names that servers have for it; 0 where it is not there.
func windowIn(list []byte, model string) int {
	var in struct {
		Data []struct {
			ID      string `json:"id"`
			Length  int    `json:"context_length"`     // OpenRouter, Together
			Most    int    `json:"max_model_len"`      // vLLM
			Window  int    `json:"context_window"`     // Groq
			Longest int    `json:"max_context_length"` // LM Studio, Mistral
		} `json:"data"`
	}
	if unmarshal(list, &in) != nil {
		return 0
	}
	for _, m := range in.Data {
		if n := max(m.Length, m.Most, m.Window, m.Longest); m.ID == model && n >= minWindow && n <= maxWindow {
			return n
		}
	}
	return 0
}
