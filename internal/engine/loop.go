package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"

	"hob"
)

// drive takes the run from where its stored state is to its end, or as far as this process may: false says that the run
// is stored without an end and goes on elsewhere. Everything else in this package is a detail of it.
func (a *active) drive() bool {
	end, ok := a.guarded()
	if !ok {
		if errors.Is(a.cause(), errNotAccepted) {
			return true
		}
		_ = a.log.sync() // what was written before is still ours, where it can be stored at all
		return false
	}
	a.conclude(end)
	if err := a.log.sync(); err != nil {
		return errors.Is(a.cause(), errNotAccepted)
	}
	a.e.finished.Add(1)
	a.remember(end)
	if end.status == hob.Failed {
		a.e.failed.Add(1)
		a.e.Log.Warn("a run failed",
			slog.String("run", string(a.id)), slog.String("agent", string(a.run.Agent)), slog.String("model", a.run.Model),
			slog.String("code", end.code), slog.String("error", end.text))
	}
	return true
}

// guarded is loop behind a recover: a fault of ours fails this run, not the server.
func (a *active) guarded() (end ending, ok bool) {
	defer func() {
		if v := recover(); v != nil {
			a.e.Log.Error("a run met a fault of the server",
				slog.String("run", string(a.id)), slog.Any("fault", v), slog.String("stack", string(debug.Stack())))
			end, ok = ending{hob.Failed, hob.CodeInternal, "an internal error ended the run; its trace is in the server's log"}, true
		}
	}()
	return a.loop()
}

// loop reasons and acts until the model answers without calling a tool. ok is false where the run is not ours to end.
func (a *active) loop() (ending, bool) {
	if end, ok, done := a.begin(); done {
		return end, ok
	}
	for {
		if a.cause() != nil {
			return a.halt()
		}
		if calls := a.pending(); len(calls) > 0 {
			if end, ok, done := a.act(calls); done {
				return end, ok
			}
			continue
		}
		if a.answered() {
			return ending{status: hob.Completed}, true
		}
		if end, ok, done := a.think(a.run.Steps + 1); done {
			return end, ok
		}
	}
}

// begin tells readers that a run is taken up again, and ends one that was tried too often or is to be cancelled.
func (a *active) begin() (end ending, ok, done bool) {
	at := a.plan.attempt
	if at == nil {
		return end, true, false
	}
	for _, m := range a.plan.own {
		if m.Role == hob.RoleAssistant {
			a.run.Steps++
		}
	}
	a.log.write(func(b *batch) {
		b.event(hob.EventAttempt, func(h hob.EventHead) any {
			at.EventHead = h
			return *at
		})
		if at.VoidFrom > 0 && at.Step > a.run.Steps {
			b.event(hob.EventStepReset, func(h hob.EventHead) any {
				return hob.StepResetEvent{EventHead: h, Step: at.Step, Reason: "recovered"}
			})
		}
	})
	if a.run.CancelCode != "" {
		a.stop(marked(a.run.CancelCode))
		end, ok = a.halt()
		return end, ok, true
	}
	if at.Attempt > a.e.Limits.Attempts {
		a.settlePending("Not executed: the run was interrupted too often.")
		text := fmt.Sprintf("the run was interrupted %d times and is not tried again", at.Attempt-1)
		return ending{hob.Failed, hob.CodeAttempts, text}, true, true
	}
	return end, true, false
}

// halt ends a run whose context has ended.
func (a *active) halt() (ending, bool) {
	end, ok := verdict(a.cause())
	if ok {
		a.settlePending("Cancelled before it was executed.")
	}
	return end, ok
}

// pending gives the calls of the last assistant message that have no result in the history yet.
func (a *active) pending() []hob.ToolCall {
	for i := len(a.plan.own) - 1; i >= 0; i-- {
		switch m := a.plan.own[i]; m.Role {
		case hob.RoleAssistant:
			return m.Calls
		case hob.RoleTool:
			return nil
		case hob.RoleUser, hob.RoleSystem:
			return nil
		}
	}
	return nil
}

// answered says whether the history ends with an answer.
func (a *active) answered() bool {
	last := a.plan.own[len(a.plan.own)-1]
	return last.Role == hob.RoleAssistant && len(last.Calls) == 0
}

// answer is what a model call gave, continuations joined.
type answer struct {
	text      strings.Builder
	reasoning strings.Builder
	artefact  []byte
	calls     []hob.ModelCall
	finish    string
	usage     *hob.Usage
	model     string
}

const continuation = "Your answer was cut off. Continue exactly where you left off, without repeating anything and without a remark about the interruption."

// think makes the model call of a step and records its answer. The step's text is streamed as it comes.
func (a *active) think(step int) (end ending, ok, done bool) {
	last := step >= a.maxSteps()
	ans := &answer{}
	a.openStep(step, last)
	for {
		err := a.stream(step, last, ans)
		if cause := a.cause(); cause != nil {
			a.keepPartial(step, ans)
			end, ok = verdict(cause)
			return end, ok, true
		}
		if err == nil {
			if ans.finish != hob.FinishLength || last || a.recovered >= a.e.Limits.Recoveries {
				break
			}
			a.recovered++
			a.resume(step, a.recovered)
			ans.calls = nil // a cut call is not executed; the model writes it again
			continue
		}
		if !a.mend(step, err, ans) {
			a.keepPartial(step, ans)
			return a.modelFailed(step, err)
		}
	}
	a.record(step, last, ans)
	if a.run.Steps = step; len(a.pending()) > 0 {
		return end, true, false
	}
	return ending{status: hob.Completed}, true, true
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

// resume announces the continuation of a cut answer.
func (a *active) resume(step, attempt int) {
	a.log.write(func(b *batch) {
		b.event(hob.EventOutputRecovery, func(h hob.EventHead) any {
			return hob.OutputRecoveryEvent{EventHead: h, Step: step, Attempt: attempt}
		})
		b.event(hob.EventStepReset, func(h hob.EventHead) any {
			return hob.StepResetEvent{EventHead: h, Step: step, Reason: "output_recovery"}
		})
	})
}

// mend decides what to do about a failed model call: continue a cut answer once, change to the fallback model, or give
// up (false).
func (a *active) mend(step int, err error, ans *answer) bool {
	var pe *hob.ProviderError
	if !errors.As(err, &pe) {
		return false
	}
	if pe.Class == hob.ClassCut && a.cuts == 0 {
		a.cuts++
		ans.calls = nil
		a.resume(step, a.recovered+1)
		return true
	}
	fallback := a.plan.settings.FallbackModel
	if pe.Class != hob.ClassRateLimit && pe.Class != hob.ClassModelError && pe.Class != hob.ClassCut ||
		fallback == "" || fallback == a.run.Model {
		return false
	}
	model, ferr := a.e.Models(a.ctx, a.run.Workspace, fallback)
	if ferr != nil {
		return false
	}
	from := a.run.Model
	a.plan.model, a.run.Model = model, fallback
	*ans = answer{}
	a.log.write(func(b *batch) {
		b.event(hob.EventModelFallback, func(h hob.EventHead) any {
			return hob.ModelFallbackEvent{EventHead: h, Step: step, From: from, To: fallback}
		})
		b.event(hob.EventStepReset, func(h hob.EventHead) any {
			return hob.StepResetEvent{EventHead: h, Step: step, Reason: string(pe.Class)}
		})
	})
	return true
}

func (a *active) modelFailed(step int, err error) (ending, bool, bool) {
	text := "the model could not be reached"
	code := hob.CodeProviderError
	var pe *hob.ProviderError
	if errors.As(err, &pe) {
		text = pe.Message
		if pe.Class == hob.ClassPromptTooLong || pe.Class == hob.ClassTooLarge {
			code = string(pe.Class)
		}
	} else {
		a.e.Log.Error("a model call failed", slog.String("run", string(a.id)), slog.Any("error", err))
	}
	a.run.Steps = step
	return ending{hob.Failed, code, clean(text)}, true, true
}

// request is the model call for a step; so far holds what a cut answer has given already.
func (a *active) request(step int, last bool, soFar string) hob.Request {
	p := a.plan
	r := hob.Request{
		Model: p.model.Model, System: a.system(), Temperature: p.tuning.Temperature,
		ResponseFormat: p.tuning.ResponseFormat, ReasoningEffort: p.tuning.ReasoningEffort,
		Script: p.settings.Script, Step: step, Tools: p.pin.Tools, NoToolUse: last,
	}
	if p.tuning.MaxTokens != nil {
		r.MaxTokens = *p.tuning.MaxTokens
	}
	if a.sent == nil {
		a.sent = slices.Grow(p.history, len(p.own)+16) // ours alone: history gives a copy
	}
	a.sent = append(a.sent, p.own[len(a.sent)-len(p.history):]...)
	r.Messages = slices.Clip(a.sent)
	if soFar != "" {
		r.Messages = append(r.Messages,
			hob.Message{Role: hob.RoleAssistant, Content: soFar}, hob.Message{Role: hob.RoleUser, Content: continuation})
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
	ctx, cancel := context.WithTimeout(a.ctx, a.e.Limits.ModelTimeout)
	defer cancel()
	text := textKind{hob.EventChunk, "content", 0}
	if len(a.plan.tools) > 0 {
		text = textKind{hob.EventContentDelta, "delta", step}
	}
	thought := textKind{hob.EventReasoningDelta, "delta", step}
	req := a.request(step, last, ans.text.String())
	ans.finish = ""
	for d, err := range a.plan.model.Provider.Stream(ctx, req) {
		if err != nil {
			a.spend(step, req, ans)
			return err
		}
		if d.Text != "" {
			s := clean(d.Text)
			ans.text.WriteString(s)
			a.log.write(func(b *batch) { b.streamed(text, s) })
		}
		if d.Reasoning != "" {
			s := clean(d.Reasoning)
			ans.reasoning.WriteString(s)
			a.log.write(func(b *batch) { b.streamed(thought, s) })
		}
		if d.Call != nil {
			ans.calls = append(ans.calls, *d.Call)
		}
		if len(d.Artefact) > 0 {
			ans.artefact = d.Artefact
		}
		if most := a.e.Limits.AnswerBytes; ans.text.Len()+ans.reasoning.Len() > most {
			a.spend(step, req, ans)
			return &hob.ProviderError{Class: hob.ClassTooLarge, Message: fmt.Sprintf("the model's answer is longer than %d bytes", most)}
		}
		if d.Finish != "" {
			ans.finish, ans.usage, ans.model = d.Finish, d.Usage, d.Model
		}
		if a.log.full() {
			if err := a.log.sync(); err != nil {
				return err
			}
		}
	}
	a.spend(step, req, ans)
	if ans.finish == "" {
		return &hob.ProviderError{Class: hob.ClassCut, Message: "the model's answer ended without an end"}
	}
	return nil
}

// spend books a model call. A provider that tells no usage, or an impossible one, gets an estimate of four characters a
// token.
func (a *active) spend(step int, req hob.Request, ans *answer) {
	u, estimated := hob.Usage{}, false
	if ans.usage != nil && plausible(*ans.usage) {
		u = *ans.usage
		u.TotalTokens = max(u.TotalTokens, u.PromptTokens+u.CompletionTokens)
	} else {
		estimated = true
		u = estimate(req, ans)
	}
	ans.usage = nil
	a.run.Usage = a.run.Usage.Add(u)
	model := ans.model
	if model == "" {
		model = a.run.Model
	}
	a.log.note(func(b *batch) {
		b.usage(hob.UsageEntry{Component: "run", Model: model, Step: step, Usage: u, Estimated: estimated})
	})
}

// maxTokens is more than any one model call can use; counts beyond it are not believed.
const maxTokens = 100_000_000

func plausible(u hob.Usage) bool {
	for _, n := range []int64{u.PromptTokens, u.CompletionTokens, u.ReasoningTokens, u.CachedTokens, u.TotalTokens} {
		if n < 0 || n > maxTokens {
			return false
		}
	}
	return true
}

// estimate counts four characters a token.
func estimate(req hob.Request, ans *answer) hob.Usage {
	chars := len(req.System)
	for _, m := range req.Messages {
		chars += m.Chars()
	}
	u := hob.Usage{PromptTokens: int64(chars / 4), CompletionTokens: int64((ans.text.Len() + ans.reasoning.Len() + 3) / 4)}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// record puts the answer into the history. Calls are planned with the same commit.
func (a *active) record(step int, last bool, ans *answer) {
	m := hob.Message{Role: hob.RoleAssistant, Content: ans.text.String()}
	if !last {
		m.Calls = a.callsOf(ans.calls)
	}
	if ans.reasoning.Len() > 0 || len(ans.artefact) > 0 {
		m.Reasoning = &hob.Reasoning{Provider: a.plan.model.Name, Text: ans.reasoning.String(), Artefact: ans.artefact}
	}
	write := a.log.write
	if len(m.Calls) == 0 {
		write = a.log.note // the end of the run follows
	}
	write(func(b *batch) {
		if s := ans.reasoning.String(); s != "" {
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
	if ans.text.Len() > 0 {
		a.partial = ans.text.String()
		a.run.Content = a.partial
	}
}

// conclude writes the end of the run: the last events and the outcome, in one commit.
func (a *active) conclude(end ending) {
	if end.status == hob.Completed && a.run.Content == "" { // taken up after the answer was stored
		if last := a.plan.own[len(a.plan.own)-1]; last.Role == hob.RoleAssistant {
			a.run.Content = last.Content
		}
	}
	a.log.write(func(b *batch) {
		if a.partial != "" {
			b.message(hob.Message{Role: hob.RoleAssistant, Content: a.partial})
		}
		if end.status == hob.Failed || end.code == hob.CodeTimeout {
			b.event(hob.EventError, func(h hob.EventHead) any {
				return hob.ErrorEvent{EventHead: h, Error: end.text, Message: end.text, Code: end.code, Step: a.run.Steps}
			})
		}
		if len(a.plan.tools) > 0 && end.status == hob.Completed {
			b.event(hob.EventChunk, func(h hob.EventHead) any {
				return hob.ChunkEvent{EventHead: h, Content: a.run.Content}
			})
		}
		b.event(hob.EventComplete, func(h hob.EventHead) any { return a.completeEvent(h, end) })
		b.outcome(hob.Outcome{
			Status: end.status, Code: end.code, Error: end.text, Content: a.run.Content, Steps: a.run.Steps, Usage: a.run.Usage,
		})
	})
}

func (a *active) completeEvent(h hob.EventHead, end ending) any {
	c := hob.CompleteEvent{
		EventHead: h, Session: a.run.Session, Content: a.run.Content, Status: end.status, Steps: a.run.Steps,
		ToolCalls: make([]hob.CallRecord, 0, len(a.calls)), Usage: a.run.Usage, IsNewSession: a.run.NewSession,
	}
	if end.code != "" {
		c.Code, c.Error = &end.code, &end.text
	}
	for _, s := range a.calls {
		c.ToolCalls = append(c.ToolCalls, s.Record())
	}
	return c
}
