package engine

import (
	"cmp"

	"hob"
)

// clearance is how far a call of the step under way is through the hooks.
type clearance int

const (
	unscreened clearance = iota
	waiting              // for a person
	cleared
)

// guarded says whether hooks are asked before a tool is called.
func (a *active) guardedBy(t *tool) bool {
	return a.plan.hooked(hob.PreToolUse, t.spec.Name) || t.spec.Kind == hob.DelegateTool && a.plan.hooked(hob.OnDelegation, t.spec.Name)
}

// unguarded gives the clearance of calls on which no hook is asked, and of those that were let through before.
func (a *active) unguarded(states []hob.CallState) []clearance {
	out := make([]clearance, len(states))
	for i := range states {
		t := a.plan.tools[states[i].Name]
		switch states[i].Status {
		case hob.CallIntent, hob.CallReturned, hob.CallDone:
			out[i] = cleared
		case hob.CallPlanned, hob.CallWaiting:
			if a.verdicts[i] != nil || !a.guardedBy(t) {
				out[i] = cleared
			}
		}
	}
	return out
}

// screen asks the hooks about the calls of a step that are yet to be let through, in call order.
func (a *active) screen(states []hob.CallState) {
	for i := range states {
		if a.cause() != nil {
			return
		}
		if a.clear[i] != cleared && a.verdicts[i] == nil {
			a.clear[i], a.verdicts[i] = a.screenOne(&states[i])
		}
	}
}

// screenOne asks the hooks about a call. A result refuses it.
func (a *active) screenOne(s *hob.CallState) (clearance, *hob.Result) {
	t := a.plan.tools[s.Name]
	a.log.note(func(b *batch) {
		a.announce(b, s)
		b.call(*s)
	})
	pre := &occasion{event: hob.PreToolUse, call: s, tool: t, data: s.Arguments, keep: func(b *batch) { b.call(*s) }}
	why, blocked := a.consult(pre)
	switch {
	case a.cause() != nil:
		return unscreened, nil
	case blocked:
		return cleared, blockedByHook(why)
	case a.edited(hob.PreToolUse, s.ID):
		if r := a.again(pre); r != nil {
			return cleared, r
		}
	}
	var hand *occasion
	if t.spec.Kind == hob.DelegateTool {
		hand = &occasion{event: hob.OnDelegation, call: s, tool: t, data: s.Arguments}
		if why, blocked := a.consult(hand); blocked {
			return cleared, delegationBlocked(why)
		}
	}
	wait, no := a.seek(pre)
	switch {
	case a.cause() != nil:
		return unscreened, nil
	case no != nil && no.result != nil:
		return cleared, no.result
	case no != nil:
		return cleared, blockedByHook(no.why)
	case wait || hand == nil:
		return passed(wait), nil
	}
	if hand.data = s.Arguments; a.edited(hob.PreToolUse, s.ID) { // by an approver, since its rules were asked
		if why, blocked := a.rejudge(hand); blocked {
			return cleared, delegationBlocked(why)
		}
	}
	if wait, no = a.seek(hand); no != nil {
		return cleared, delegationBlocked(no.why)
	}
	return passed(wait), nil
}

func passed(wait bool) clearance {
	if wait {
		return waiting
	}
	return cleared
}

func delegationBlocked(why string) *hob.Result {
	return denial("Delegation blocked: " + cmp.Or(why, "OnDelegation hook denied"))
}

// unvetted is the result of a call whose run ended while hooks were asked about it.
const unvetted = "Error: The call was carried out; the run ended before its hooks had decided about the result."

// after asks the PostToolUse hooks about the result of a call that was carried out. The result is kept first, so that it is
// not lost while they are asked.
func (a *active) after(s *hob.CallState, r hob.Result) (hob.Result, bool) {
	if s.Status != hob.CallReturned {
		a.log.write(func(b *batch) {
			a.spendInside(b, s.Step, r.Used)
			r.Used = nil
			s.Status, s.Result = hob.CallReturned, r
			b.call(*s)
		})
	}
	text := r.Text
	o := &occasion{
		event: hob.PostToolUse, call: s, tool: a.plan.tools[s.Name], data: s.Arguments, output: &text,
		keep: func(b *batch) {
			if s.Result.Text = text; text == withheld {
				s.Result.IsError = true
			}
			b.call(*s)
		},
	}
	a.consult(o)
	if a.cause() != nil {
		if _, ours := verdict(a.cause()); !ours {
			return hob.Result{}, false
		}
		r := s.Result
		r.IsError, r.Text = true, unvetted
		return r, true
	}
	return s.Result, true
}
