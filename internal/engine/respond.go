package engine

import (
	"cmp"
	"slices"

	"hob"
)

// admit asks the OnRunStart hooks, before anything else is done in a run. done: the run ends, or waits.
func (a *active) admit() (end ending, ok, done bool) {
	if a.run.Steps > 0 || !a.plan.hooked(hob.OnRunStart, "") {
		return end, true, false
	}
	o := &occasion{event: hob.OnRunStart, data: encodeFrame(struct {
		Message string `json:"message"`
	}{a.plan.own[0].Content})}
	why, blocked := a.consult(o)
	wait := false
	if !blocked && a.cause() == nil {
		var no *objection
		if wait, no = a.seek(o); no != nil {
			why, blocked = no.why, true
		}
	}
	switch {
	case a.cause() != nil:
		end, ok = a.halt()
		return end, ok, true
	case blocked:
		return ending{hob.Failed, hob.CodeHookBlocked, cmp.Or(why, "Blocked by OnRunStart hook")}, true, true
	case wait:
		end, ok = a.rest()
		return end, ok, true
	}
	return end, true, false
}

// respond ends a run whose history ends with an answer, once the PreResponse hooks have decided about it.
func (a *active) respond() (ending, bool) {
	end, ok := a.answerEnds()
	last := &a.plan.own[len(a.plan.own)-1]
	if !ok || end.status != hob.Completed || last.Role != hob.RoleAssistant || last.Content == "" || !a.plan.hooked(hob.PreResponse, "") {
		a.vetted = end.status == hob.Completed
		return end, ok
	}
	text := last.Content
	rewrite := func(b *batch) {
		last.Content, last.Reasoning = text, nil // signed thoughts belong to the text that was
		a.run.Content, a.rewritten = text, true
		b.rewrite(*last)
	}
	o := &occasion{event: hob.PreResponse, data: []byte(`{}`), output: &text, keep: rewrite}
	why, blocked := a.consult(o)
	wait := false
	if !blocked && a.cause() == nil {
		var no *objection
		if wait, no = a.seek(o); no != nil {
			why, blocked = no.why, true
		}
	}
	a.run.Content, a.rewritten = text, a.rewritten || o.changed
	switch {
	case a.cause() != nil:
		return a.halt()
	case wait:
		return a.rest()
	case blocked:
		text = "[Response blocked: " + cmp.Or(why, "PreResponse hook denied") + "]"
		a.log.note(rewrite)
	}
	a.vetted = true
	return end, true
}

// heldBack stands for an answer that was to be shown only once hooks had decided about it, in a run that ended before.
const heldBack = "[Response withheld: the run ended before its hooks had decided about it]"

// holdBack takes back an answer that nobody has decided about, in the commit that ends the run.
func (a *active) holdBack(b *batch) {
	if a.vetted || !a.holds() || !a.answered() {
		return
	}
	last := &a.plan.own[len(a.plan.own)-1]
	last.Content, last.Reasoning, a.run.Content = heldBack, nil, ""
	b.rewrite(*last)
}

// holds says whether the text of answers is shown only once the PreResponse hooks have decided about it.
func (a *active) holds() bool {
	return a.plan.tuning.ResponseBuffering == hob.BufferHold &&
		slices.ContainsFunc(a.plan.pin.Hooks, func(h hob.Hook) bool { return h.Event == hob.PreResponse })
}

// released shows the text of a step that turned out not to be the answer.
func (a *active) released(b *batch, step int, m hob.Message) {
	if !a.holds() || len(m.Calls) == 0 || m.Content == "" {
		return
	}
	b.streamed(textKind{hob.EventContentDelta, "delta", step}, m.Content)
}

// shown puts the end of the answer's text into the log: the whole answer, for runs with tools and where readers have none
// of it yet or another one.
func (a *active) shown(b *batch) {
	if a.rewritten && !a.holds() {
		b.event(hob.EventStepReset, func(h hob.EventHead) any {
			return hob.StepResetEvent{EventHead: h, Step: a.run.Steps, Reason: "pre_response"}
		})
	}
	if len(a.plan.tools) > 0 || a.holds() || a.rewritten {
		b.event(hob.EventChunk, func(h hob.EventHead) any {
			return hob.ChunkEvent{EventHead: h, Content: a.run.Content}
		})
	}
}

// completed tells the OnRunComplete hooks, from the store: the run does not wait for them.
func (a *active) completed(b *batch) {
	if len(a.plan.hooks) == 0 {
		return
	}
	b.event(hob.EventOnRunComplete, func(h hob.EventHead) any {
		return hob.OnRunCompleteEvent{EventHead: h, Status: hob.Completed, Steps: a.run.Steps}
	})
	data := encodeFrame(struct {
		Status  hob.Status `json:"status"`
		Content string     `json:"content"`
		Steps   int        `json:"steps"`
	}{hob.Completed, a.run.Content, a.run.Steps})
	for _, h := range a.plan.hooks {
		if h.Event != hob.OnRunComplete || h.Type != hob.HTTPHook {
			continue
		}
		d := hob.Delivery{
			ID: deliveryID(string(a.id), "", string(h.Event), string(h.ID)), Hook: h.ID, Agent: a.run.Agent, Workspace: a.run.Workspace,
			Run: a.id, Event: string(h.Event), URL: h.Config.URL, Body: a.hookBody(h, hookBody{Event: h.Event, Data: data}, ""),
		}
		b.delivery(d)
		r := a.resultOf(&occasion{event: h.Event}, h)
		r.Status, r.DeliveryID = hob.HookQueued, d.ID
		a.hookResult(b, r)
	}
}
