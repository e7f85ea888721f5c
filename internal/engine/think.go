package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"hob"
	"hob/internal/seeded"
)

// answer is what a model call gave, continuations joined.
type answer struct {
	text      strings.Builder
	reasoning strings.Builder
	artefact  []byte
	calls     []hob.ModelCall
	lost      bool // the answer that was cut asked for tools
	finish    string
	usage     *hob.Usage
}

// Texts that ask a model to go on with an answer that did not come whole.
const (
	continuation = "Your answer was cut off. Continue exactly where you left off, without repeating anything and without a remark about the interruption."
	callAgain    = "Your answer was cut off before your tool call was complete, so the tool was not called. Make the call again; keep its arguments short, or split the work into several smaller calls."
)

// think makes the model call of a step and records its answer. The step's text is streamed as it comes.
func (a *active) think(step int) (end ending, ok, done bool) {
	a.fit(step)
	last := a.lastStep(step)
	ans := &answer{}
	a.openStep(step, last)
	for {
		err := a.stream(step, last, ans)
		if cause := a.cause(); cause != nil {
			a.keepPartial(step, ans)
			end, ok = verdict(cause)
			return end, ok, true
		}
		switch {
		case err != nil && a.mend(step, err, ans):
			continue
		case err != nil:
			a.keepPartial(step, ans)
			return a.modelFailed(step, err)
		case ans.finish == hob.FinishLength && !last && a.recovered < a.e.Limits.Recoveries:
			a.recovered++
			a.resume(step, a.recovered, ans)
			continue
		case a.misfit(step, last, ans), a.nothing(step, ans):
			continue
		}
		break
	}
	if end, failed := unusable(ans); failed {
		a.run.Steps = step
		return end, true, true
	}
	a.record(step, last, ans)
	if a.run.Steps = step; len(a.pending()) > 0 {
		return end, true, false
	}
	end, ok = a.respond()
	return end, ok, true
}

// nothing asks once more where the model said nothing at all. false: the answer stands.
func (a *active) nothing(step int, ans *answer) bool {
	if a.empty || ans.finish == hob.FinishContentFilter || len(ans.calls) > 0 || strings.TrimSpace(ans.text.String()) != "" {
		return false
	}
	a.empty = true
	a.log.write(func(b *batch) {
		b.event(hob.EventWarning, func(h hob.EventHead) any {
			return hob.WarningEvent{EventHead: h, Code: "empty_answer", Message: fmt.Sprintf("the model said nothing in step %d and is asked once more", step)}
		})
	})
	return true
}

// unusable tells how a run fails whose answer came to its end and is still of no use. A call that may be cut is not
// carried out: it is taken out of the answer.
func unusable(ans *answer) (ending, bool) {
	cut := ans.finish == hob.FinishLength && len(ans.calls) > 0
	if cut {
		ans.calls = nil
	}
	switch said := strings.TrimSpace(ans.text.String()) != ""; {
	case cut && !said:
		return ending{hob.Failed, hob.CodeOutputCut, "the model's answer was cut off in a tool call each time; raise max_tokens, or ask for less at once"}, true
	case ans.finish == hob.FinishContentFilter && !said && len(ans.calls) == 0:
		return ending{hob.Failed, hob.CodeContentFilter, "the model's provider let it say nothing about this (content filter)"}, true
	}
	return ending{}, false
}

// answerEnds is how a run ends whose history ends with an answer.
func (a *active) answerEnds() (ending, bool) {
	answer := a.plan.own[len(a.plan.own)-1]
	if a.plan.format != nil && answer.Role == hob.RoleAssistant && !a.edited(hob.PreResponse, "") {
		if wrong := a.plan.format.check(answer.Content); wrong != "" {
			return ending{hob.Failed, hob.CodeResponseFormat, "the answer is not in the form that was asked for: " + wrong}, true
		}
	}
	if a.spent != "" || a.passed() != "" {
		return ending{status: hob.Completed, code: hob.CodeBudget}, true
	}
	return ending{status: hob.Completed}, true
}

func (a *active) openStep(step int, last bool) {
	if a.opened {
		a.opened = false
		return
	}
	a.log.soon(func(b *batch) {
		b.event(hob.EventStepStarted, func(h hob.EventHead) any {
			return hob.StepStartedEvent{EventHead: h, Step: step, IsLastStep: last}
		})
	})
}

// request is the model call for a step; so far is what a cut answer has given already.
func (a *active) request(step int, last bool, soFar *answer) hob.Request {
	p := a.plan
	r := hob.Request{
		Model: p.model.Model, System: a.system(), Temperature: p.tuning.Temperature,
		ResponseFormat: p.tuning.ResponseFormat, ReasoningEffort: p.tuning.ReasoningEffort,
		WebSearch: p.search(last), Script: p.settings.Script, Tools: p.functions(), NoToolUse: last,
		Step: step + a.repairs + a.recovered + a.cuts,
	}
	if p.tuning.MaxTokens != nil {
		r.MaxTokens = *p.tuning.MaxTokens
	}
	c := a.talk()
	r.Messages = c.sent[:len(c.sent):len(c.sent)]
	if len(r.Tools) > 0 && !last && a.wrong == nil && soFar.text.Len() == 0 && !soFar.lost { // more steps may follow with the same beginning
		if c.memo == nil {
			c.memo = &hob.Memo{}
		}
		r.Memo = c.memo
	}
	if a.wrong != nil { // the answer before this one was not in the form that was asked for
		r.Messages = append(r.Messages, a.wrong...)
	}
	text := soFar.text.String()
	if strings.TrimSpace(text) == "" {
		text = ""
	}
	if text != "" {
		r.Messages = append(r.Messages, hob.Message{Role: hob.RoleAssistant, Content: lastPart(text, a.space.threshold/2)})
	}
	switch {
	case soFar.lost:
		r.Messages = append(r.Messages, hob.Message{Role: hob.RoleUser, Content: callAgain})
	case text != "":
		r.Messages = append(r.Messages, hob.Message{Role: hob.RoleUser, Content: continuation})
	}
	return r
}

func (a *active) system() string {
	var s string
	if p := a.plan.pin.Agent.SystemPrompt; p != nil {
		s = *p
	}
	if c := a.run.Options.Context; c != "" {
		s += "\n\nContext:\n" + c
	}
	return s
}

// stream makes one model call and gathers its answer, streaming text into the log as it comes.
func (a *active) stream(step int, last bool, ans *answer) error {
	ctx, cancel := context.WithTimeout(a.ctx, a.plan.knobs.modelTimeout)
	defer cancel()
	text := textKind{hob.EventChunk, "content", 0}
	if len(a.plan.tools) > 0 {
		text = textKind{hob.EventContentDelta, "delta", step}
	}
	thought := textKind{hob.EventReasoningDelta, "delta", step}
	req := a.request(step, last, ans)
	book := spending{component: hob.ComponentRun, model: a.run.Model, price: a.plan.model.Price, step: step, estimate: a.fixed + a.talk().total}
	said, thoughts := ans.text.Len(), ans.reasoning.Len()
	book.before = said + thoughts
	join := newJoint(ans.text.String())
	ans.finish, ans.lost = "", false
	seen, counted := 0, 0
	defer func() { a.spendSearches(step, seen, counted) }()
	write := func(s string) {
		if s != "" {
			ans.text.WriteString(s)
			if !a.holds() {
				a.log.write(func(b *batch) { b.streamed(text, s) })
			}
		}
	}
	for d, err := range a.plan.model.Provider.Stream(ctx, req) {
		if err != nil {
			write(join.rest())
			a.spend(book, ans, err)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) && a.cause() == nil {
				return &hob.ProviderError{Class: hob.ClassModelError, Message: fmt.Sprintf("the model gave no whole answer within %s", a.plan.knobs.modelTimeout), Err: err}
			}
			return err
		}
		if d.Text != "" {
			write(join.next(clean(d.Text)))
		}
		if d.Reasoning != "" {
			s := clean(d.Reasoning)
			ans.reasoning.WriteString(s)
			if !a.holds() {
				a.log.write(func(b *batch) { b.streamed(thought, s) })
			}
		}
		if len(d.Searches) > 0 {
			seen += fruitful(d.Searches)
			a.searched(step, d.Searches)
		}
		if d.Call != nil {
			ans.calls = append(ans.calls, *d.Call)
		}
		if len(d.Artefact) > 0 {
			ans.artefact = d.Artefact
		}
		if most := a.e.Limits.AnswerBytes; ans.text.Len()+ans.reasoning.Len() > most {
			a.spend(book, ans, nil)
			return &hob.ProviderError{Class: hob.ClassTooLarge, Message: fmt.Sprintf("the model's answer is longer than %d bytes", most)}
		}
		if d.Finish != "" {
			ans.finish, ans.usage, counted = d.Finish, d.Usage, d.Searched
		}
		if a.log.full() {
			if err := a.log.sync(); err != nil {
				return err
			}
		}
	}
	write(join.rest())
	if u := ans.usage; u != nil && plausible(*u) {
		a.learn(book.estimate, u.PromptTokens)
	}
	a.spend(book, ans, nil)
	if ans.finish == "" {
		return &hob.ProviderError{Class: hob.ClassCut, Message: "the model's answer ended without an end"}
	}
	return nil
}

// record puts the answer into the history. Calls are planned with the same commit.
func (a *active) record(step int, last bool, ans *answer) {
	m := hob.Message{Role: hob.RoleAssistant, Content: ans.text.String()}
	if !last {
		m.Calls = a.callsOf(ans.calls)
		a.look(m.Calls)
	}
	if a.plan.format != nil && len(m.Calls) == 0 {
		m.Content = bareJSON(m.Content)
	}
	if strings.TrimSpace(m.Content) == "" { // to providers it is no text
		m.Content = ""
	}
	if ans.reasoning.Len() > 0 || len(ans.artefact) > 0 {
		m.Reasoning = &hob.Reasoning{Provider: a.plan.model.Name, Text: ans.reasoning.String(), Artefact: ans.artefact}
	}
	write := a.log.write
	if len(m.Calls) == 0 || seeded.Bug("intent_after_act") {
		write = a.log.note // the end of the run follows
	}
	write(func(b *batch) {
		a.released(b, step, m)
		if s := ans.reasoning.String(); s != "" && (!a.holds() || len(m.Calls) > 0) {
			b.event(hob.EventReasoning, func(h hob.EventHead) any {
				return hob.ReasoningEvent{EventHead: h, Step: step, Source: "thinking", Content: s}
			})
		}
		if m.Content != "" || len(m.Calls) > 0 {
			b.message(m)
			a.plan.own = append(a.plan.own, m)
		}
		if len(m.Calls) > 0 {
			a.planCalls(b, step, m.Calls)
			return
		}
		b.event(hob.EventStepCompleted, func(h hob.EventHead) any {
			return hob.StepCompletedEvent{EventHead: h, Step: step, FinishReason: ans.finish}
		})
		a.run.Content = m.Content
	})
}

// keepPartial keeps the text of an answer that did not come to its end, for the commit that ends the run: stored alone it
// would look like an answer.
func (a *active) keepPartial(step int, ans *answer) {
	a.run.Steps = step
	if strings.TrimSpace(ans.text.String()) != "" && !a.holds() {
		a.partial = ans.text.String()
		a.run.Content = a.partial
	}
}
