package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

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
		if a.rested.Load() {
			return true
		}
		_ = a.log.sync() // what was written before is still ours, where it can be stored at all
		return false
	}
	a.e.recall.failed(a.run.Workspace, a.run.Session, a.failures) // before anybody can begin the next turn
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
	if end, ok, done := a.admit(); done {
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
			a.settle(a.run.Steps)
			continue
		}
		if a.answered() {
			return a.respond()
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
	a.run.Steps = 0 // those that it had when it laid itself down are among them
	for _, m := range a.plan.own {
		if m.Role == hob.RoleAssistant {
			a.run.Steps++
		}
	}
	if at.Step <= a.run.Steps { // what the step said is stored, and stands
		at.VoidFrom = 0
	}
	if !a.plan.woken {
		a.announceAttempt(at)
	}
	if a.run.CancelCode != "" {
		a.stop(marked(a.run.CancelCode))
		end, ok = a.halt()
		return end, ok, true
	}
	if a.run.Stalls >= a.e.Limits.Attempts {
		a.e.parked.Add(1)
		a.settlePending("Not executed: the run was interrupted too often.")
		text := fmt.Sprintf("the run was interrupted %d times without getting on and is not tried again", a.run.Stalls)
		return ending{hob.Failed, hob.CodeAttempts, text}, true, true
	}
	return end, true, false
}

// announceAttempt tells readers that the run was interrupted, and which text is void.
func (a *active) announceAttempt(at *hob.AttemptEvent) {
	a.log.write(func(b *batch) {
		b.event(hob.EventAttempt, func(h hob.EventHead) any {
			at.EventHead = h
			return *at
		})
		if at.VoidFrom > 0 {
			b.event(hob.EventStepReset, func(h hob.EventHead) any {
				return hob.StepResetEvent{EventHead: h, Step: at.Step, Reason: "recovered"}
			})
		}
	})
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

// conclude writes the end of the run: the last events and the outcome, in one commit.
func (a *active) conclude(end ending) {
	if end.status == hob.Completed && a.run.Content == "" { // taken up after the answer was stored
		if last := a.plan.own[len(a.plan.own)-1]; last.Role == hob.RoleAssistant {
			a.run.Content = last.Content
		}
	}
	actions := a.actions(end)
	a.log.write(func(b *batch) {
		for _, u := range actions {
			b.usage(u)
		}
		if a.partial != "" {
			b.message(hob.Message{Role: hob.RoleAssistant, Content: a.partial})
		}
		if end.status == hob.Failed || end.code == hob.CodeTimeout {
			b.event(hob.EventError, func(h hob.EventHead) any {
				return hob.ErrorEvent{EventHead: h, Error: end.text, Message: end.text, Code: end.code, Step: a.run.Steps}
			})
		}
		a.withdraw(b, true, "")
		a.holdBack(b)
		if end.status == hob.Completed {
			a.completed(b)
			a.shown(b)
		}
		b.event(hob.EventComplete, func(h hob.EventHead) any { return a.completeEvent(h, end, b.actions()) })
		b.outcome(hob.Outcome{
			Status: end.status, Code: end.code, Error: end.text, Content: a.run.Content, Steps: a.run.Steps, Usage: a.run.Usage,
		})
	})
}

func (a *active) completeEvent(h hob.EventHead, end ending, actions map[string]int64) any {
	c := hob.CompleteEvent{
		EventHead: h, Session: a.run.Session, Content: a.run.Content, Status: end.status, Steps: a.run.Steps,
		ToolCalls: make([]hob.CallRecord, 0, len(a.calls)), Usage: a.run.Usage, IsNewSession: a.run.NewSession,
		Actions: actions,
	}
	if c.Actions == nil {
		c.Actions = map[string]int64{}
	}
	if end.code != "" {
		c.Code = &end.code
	}
	if end.text != "" {
		c.Error = &end.text
	}
	for _, s := range a.calls {
		c.ToolCalls = append(c.ToolCalls, s.Record())
	}
	return c
}
