package engine

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"hob"
	"hob/internal/seeded"
)

var (
	usableCallID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	unusableName = regexp.MustCompile(`[^A-Za-z0-9_-]`)
)

// uniqueCallID is the length from which on a provider's id is taken for unique by itself.
const uniqueCallID = 20

// callsOf turns what the model wrote into calls that can be stored and sent back: ids are well formed and new in the
// conversation, names fit every provider, arguments are JSON objects.
func (a *active) callsOf(written []hob.ModelCall) []hob.ToolCall {
	if len(written) == 0 {
		return nil
	}
	if a.used == nil {
		a.used = map[hob.CallID]bool{}
		note := func(messages []hob.Message) {
			for i := range messages {
				for _, c := range messages[i].Calls {
					a.used[c.ID] = true
				}
			}
		}
		for _, r := range a.plan.past.Runs { // also of turns that this run leaves out: the next one may send them again
			note(r.Messages)
		}
		note(a.plan.own)
	}
	// Where not all of the session was read, an id that may be a counter may have been used before.
	unseen := a.plan.past.Summary != nil || a.plan.past.Cut
	calls := make([]hob.ToolCall, 0, len(written))
	for _, w := range written {
		c := hob.ToolCall{ID: hob.CallID(w.ID), Name: unusableName.ReplaceAllString(w.Name, "_")}
		if !usableCallID.MatchString(w.ID) || a.used[c.ID] || unseen && len(w.ID) < uniqueCallID {
			c.ID = hob.NewCallID()
		}
		a.used[c.ID] = true
		if c.Name == "" {
			c.Name = "unnamed"
		}
		if c.Name = preview(c.Name, 64); c.Name != w.Name && a.plan.tools[c.Name] != nil { // a name that is like a tool's is none
			c.Name = preview(c.Name, 63) + "_"
		}
		c.Arguments, c.Bad = parseCall(w.Arguments)
		calls = append(calls, c)
	}
	return calls
}

// planCalls puts the calls of a step into the log with the message that asks for them. Those that will be carried out
// first are stored as intents at once, so that one commit lies between the model's wish and the deed.
func (a *active) planCalls(b *batch, step int, calls []hob.ToolCall) {
	base := len(a.calls)
	for i, c := range calls {
		s := hob.CallState{ID: c.ID, Step: step, Index: i, Name: c.Name, Arguments: c.Arguments, Status: hob.CallPlanned}
		if t := a.plan.tools[c.Name]; t != nil {
			s.Recovery, s.Arguments = t.spec.Recovery, t.effective(c.Arguments)
		}
		a.calls = append(a.calls, s)
	}
	states := a.calls[base:]
	a.verdicts = a.judge(calls, states) // by the standing that was looked at before the log was locked
	a.clear = a.unguarded(states)
	if a.repeats() == "" && !slices.Contains(a.clear, unscreened) {
		for _, i := range a.next(states) {
			a.intend(b, &states[i])
		}
	}
	for _, s := range states {
		b.call(s)
	}
}

// announce tells of a call, once: before hooks are asked about it, it is carried out or refused.
func (a *active) announce(b *batch, s *hob.CallState) {
	if s.Status != hob.CallPlanned || !s.StartedAt.IsZero() {
		return
	}
	s.StartedAt = hob.Time{Time: a.e.Clock()}
	var bad string
	if calls := a.pending(); s.Index < len(calls) {
		bad = calls[s.Index].Bad
	}
	b.event(hob.EventToolCall, func(h hob.EventHead) any {
		return hob.ToolCallEvent{
			EventHead: h, Step: s.Step, ToolName: s.Name, Arguments: s.Arguments, CallID: s.ID, BadArguments: bad,
		}
	})
	if s.Index < len(a.told) && a.told[s.Index] != nil {
		a.hookResult(b, *a.told[s.Index])
	}
}

// next gives the open calls that are to be carried out now: all parallel ones, else the first exclusive one, which waits for
// its approval before those behind it are begun. Calls that the gate refused are not among them.
func (a *active) next(states []hob.CallState) []int {
	var parallel []int
	exclusive := -1
	for i := range states {
		if states[i].Status == hob.CallDone || a.verdicts[i] != nil {
			continue
		}
		switch {
		case !a.plan.tools[states[i].Name].spec.Parallel:
			if exclusive < 0 {
				exclusive = i
			}
		case a.clear[i] == cleared:
			parallel = append(parallel, i)
		}
	}
	if len(parallel) == 0 && exclusive >= 0 && a.clear[exclusive] == cleared {
		return []int{exclusive}
	}
	return parallel
}

// intend marks a call as about to be carried out by this process. The mark must be durable before the deed.
func (a *active) intend(b *batch, s *hob.CallState) {
	a.announce(b, s)
	s.Status = hob.CallIntent
	s.Attempt++
	s.StartedAt = hob.Time{Time: a.e.Clock()}
	a.mine[s.ID] = true
	b.call(*s)
}

// act carries out the calls of the last step and puts their results into the history, in call order.
func (a *active) act(calls []hob.ToolCall) (end ending, ok, done bool) {
	states := a.calls[len(a.calls)-len(calls):]
	if why := a.repeats(); why != "" && !begun(states) {
		a.settleRest(calls, states, "Not executed: "+why)
		return ending{hob.Failed, hob.CodeDoomLoop, why}, true, true
	}
	if a.verdicts == nil { // taken up again
		a.look(calls)
		a.verdicts = a.judge(calls, states)
		a.clear = a.unguarded(states)
	}
	a.takeUp(states)
	a.refuse(states)
	a.screen(states)
	a.refuse(states)
	for a.cause() == nil {
		now := a.next(states)
		if len(now) == 0 && slices.Contains(a.clear, waiting) {
			end, ok = a.rest()
			return end, ok, true
		}
		if len(now) == 0 {
			a.closeStep(calls, states)
			return end, true, false
		}
		if !a.recheck(calls, states, now) {
			continue
		}
		if !a.ready(states, now) {
			break
		}
		a.carryOut(states, now)
	}
	end, ok = a.halt()
	return end, ok, true
}

// begun says whether a call of a step has left its first state.
func begun(states []hob.CallState) bool {
	return slices.ContainsFunc(states, func(s hob.CallState) bool { return s.Status != hob.CallPlanned || !s.StartedAt.IsZero() })
}

// refuse finishes the calls that the gate or the hooks refused.
func (a *active) refuse(states []hob.CallState) {
	for i := range states {
		if r := a.verdicts[i]; r != nil && states[i].Status != hob.CallDone && a.cause() == nil {
			a.finish(&states[i], *r, a.log.note)
			a.clear[i] = cleared
		}
	}
}

// takeUp settles what a process before this one had intended and may have done: what can be repeated is intended anew,
// the rest gets the result that says so. What had come to a result is asked about on.
func (a *active) takeUp(states []hob.CallState) {
	for i := range states {
		s := &states[i]
		if s.Status == hob.CallReturned {
			if r, ok := a.after(s, s.Result); ok {
				a.finish(s, a.deed(*s).trim(r, nil), a.log.note)
			}
			continue
		}
		if s.Status != hob.CallIntent || a.mine[s.ID] {
			continue
		}
		if r := a.verdicts[i]; r != nil { // it may not be repeated, but may have been done
			if s.Recovery != hob.RecoverRead {
				r = new(unknownOutcome())
			}
			a.finish(s, *r, a.log.note)
			continue
		}
		switch s.Recovery {
		case hob.RecoverRead, hob.RecoverKeyed, hob.RecoverLocal:
			a.log.note(func(b *batch) { a.intend(b, s) })
		case hob.RecoverOnce:
			fallthrough
		default:
			if seeded.Bug("repeat_once") {
				a.log.note(func(b *batch) { a.intend(b, s) })
				continue
			}
			a.finish(s, unknownOutcome(), a.log.note)
		}
	}
}

func unknownOutcome() hob.Result {
	if seeded.Bug("silent_unknown") {
		return hob.Result{Text: "done"}
	}
	return hob.Result{IsError: true, Unknown: true, Text: "outcome_unknown: the run was interrupted while this call was under way. " +
		"It may or may not have taken effect, and it was not repeated. Check before you try it again."}
}

// ready makes the intents of the calls durable. false means that the run is not ours any more.
func (a *active) ready(states []hob.CallState, now []int) bool {
	for _, i := range now {
		if states[i].Status == hob.CallPlanned || states[i].Status == hob.CallWaiting {
			a.log.note(func(b *batch) { a.intend(b, &states[i]) })
		}
	}
	if seeded.Bug("intent_after_act") {
		return a.cause() == nil
	}
	return a.log.sync() == nil && a.cause() == nil
}

// carryOut executes calls whose intents are durable, side by side where there are several, and stores their results.
func (a *active) carryOut(states []hob.CallState, now []int) {
	if len(now) == 1 { // the result leaves with whatever follows it
		s := &states[now[0]]
		if r, ok := a.execute(s); ok {
			a.finish(s, r, a.log.note)
		}
		return
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, a.e.Limits.Parallel)
	for _, i := range now {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if r, ok := a.execute(&states[i]); ok {
				a.finish(&states[i], r, a.log.write)
			}
		})
	}
	group.Wait()
}

// execute carries out a call whose intent is durable. false means that the run goes to another process while the call was
// under way: nothing is stored, and whoever takes the run up finds the intent.
func (a *active) execute(s *hob.CallState) (hob.Result, bool) {
	if !a.log.alive() {
		return hob.Result{}, false
	}
	d := a.deed(*s)
	r, cut := a.e.perform(a.ctx, d, nil)
	if cut {
		if _, ours := verdict(a.cause()); !ours {
			return hob.Result{}, false
		}
		if r = unknownOutcome(); s.Recovery == hob.RecoverRead {
			r = hob.Result{IsError: true, Text: "Error: The run ended while this call was under way."}
		}
	}
	r = a.e.receive(d, r, nil)
	if !cut && !r.Unknown && a.plan.hooked(hob.PostToolUse, s.Name) {
		var ours bool
		if r, ours = a.after(s, r); !ours {
			return hob.Result{}, false
		}
	}
	return d.trim(r, nil), true
}

// deed is a call as it is carried out.
func (a *active) deed(s hob.CallState) deed {
	key := string(a.id) + ":" + string(s.ID)
	if seeded.Bug("new_key_each_try") {
		key += fmt.Sprintf(":%d", s.Attempt)
	}
	return deed{
		tool: a.plan.tools[s.Name], most: a.plan.knobs.resultChars,
		limit: max(a.secondsLeft(), time.Second), // what is left of the budget, but enough for a call that was begun
		call: hob.Call{
			Run: a.id, Session: a.run.Session, Agent: a.run.Agent, Principal: a.run.Principal, ID: s.ID, Step: s.Step,
			Name: s.Name, Arguments: s.Arguments, Key: key, Attempt: s.Attempt,
			BeginBy: a.log.leased(),
		},
	}
}

// finish stores the result of a call. The state of a call is touched by one goroutine at a time.
func (a *active) finish(s *hob.CallState, r hob.Result, write func(func(*batch))) {
	if r.Unknown {
		a.e.unknown.Add(1)
	}
	write(func(b *batch) {
		a.announce(b, s)
		a.withdraw(b, false, s.ID)
		s.EndedAt = hob.Time{Time: a.e.Clock()}
		s.Status, s.Result = hob.CallDone, r
		s.Result.Used = nil
		a.spendInside(b, s.Step, r.Used)
		b.event(hob.EventToolResult, func(h hob.EventHead) any {
			return hob.ToolResultEvent{
				EventHead: h, Step: s.Step, ToolName: s.Name, CallID: s.ID,
				ResultPreview: preview(r.Text, 200), Result: r.Text,
				ResultMeta: &hob.ResultMeta{ResultType: "text", CharCount: utf8.RuneCountInString(r.Text)},
				IsError:    r.IsError, OutcomeUnknown: r.Unknown, DurationMS: s.EndedAt.Sub(s.StartedAt.Time).Milliseconds(),
			}
		})
		b.call(*s)
	})
}

// closeStep puts the results into the history, in call order.
func (a *active) closeStep(calls []hob.ToolCall, states []hob.CallState) {
	a.verdicts, a.clear, a.told = nil, nil, nil
	a.log.note(func(b *batch) {
		a.answer(b, calls, states)
		b.event(hob.EventStepCompleted, func(h hob.EventHead) any {
			return hob.StepCompletedEvent{
				EventHead: h, Step: a.run.Steps, FinishReason: hob.FinishToolCalls, HasToolCalls: true,
			}
		})
	})
}

func (a *active) answer(b *batch, calls []hob.ToolCall, states []hob.CallState) {
	for i, c := range calls {
		r := states[i].Result
		m := hob.Message{Role: hob.RoleTool, CallID: c.ID, Name: c.Name, Content: r.Text, IsError: r.IsError}
		b.message(m)
		a.plan.own = append(a.plan.own, m)
	}
}

// settleRest answers every call of the step that has no result, so that the history stays valid. A call that was intended
// more than once may have been made by whoever intended it first.
func (a *active) settleRest(calls []hob.ToolCall, states []hob.CallState, why string) {
	for i := range states {
		s := &states[i]
		switch {
		case s.Status == hob.CallDone:
		case s.Status == hob.CallReturned:
			r := s.Result
			r.IsError, r.Text = true, unvetted
			a.finish(s, r, a.log.note)
		case s.Status == hob.CallIntent && (!a.mine[s.ID] || s.Attempt > 1):
			a.finish(s, unknownOutcome(), a.log.note)
		default:
			a.finish(s, hob.Result{IsError: true, Free: true, Text: why}, a.log.note)
		}
	}
	a.log.note(func(b *batch) { a.answer(b, calls, states) })
}

// settlePending is settleRest for the calls that still wait when the run ends, if any do.
func (a *active) settlePending(why string) {
	if calls := a.pending(); len(calls) > 0 {
		a.settleRest(calls, a.calls[len(a.calls)-len(calls):], why)
	}
}

// repeats says whether the run goes in circles: the same call with the same arguments three times in a row, or a cycle
// of two or three calls four times. Identical calls of one step count once. It goes by what the model asks for, whatever
// hooks and approvers make of it. "" means no.
func (a *active) repeats() string {
	var keys, seen []string
	for i := range a.plan.own {
		seen = seen[:0]
		for _, c := range a.plan.own[i].Calls {
			args := c.Arguments
			if t := a.plan.tools[c.Name]; t != nil {
				args = t.effective(args)
			}
			k := c.Name + "\x00" + string(args)
			if !slices.Contains(seen, k) {
				seen, keys = append(seen, k), append(keys, k)
			}
		}
	}
	if cycle(keys, 1, 3) {
		return "Doom loop detected: 3 identical tool calls in a row"
	}
	if cycle(keys, 2, 4) || cycle(keys, 3, 4) {
		return "Doom loop detected: the same tool calls repeat in a cycle"
	}
	return ""
}

// cycle says whether the last times·size keys are times repetitions of the last size keys.
func cycle(keys []string, size, times int) bool {
	n := size * times
	if len(keys) < n {
		return false
	}
	tail := keys[len(keys)-n:]
	for i := size; i < n; i++ {
		if tail[i] != tail[i-size] {
			return false
		}
	}
	return true
}
