package engine

import (
	"log/slog"
	"slices"
	"time"

	"hob"
)

// A run's tools are frozen when it starts, but switching a tool off or taking it from the agent holds at once: before
// calls are carried out, the run looks how their tools stand to the agent now. It looks before the intents are written, so
// that a call which is refused was never begun, and again for calls of the step whose turn comes later than standingAge.

// standingAge is how long a look at the tools' standing is believed.
const standingAge = 250 * time.Millisecond

// unsure is the standing of a tool where the store could not be asked: its calls are refused.
const unsure hob.Standing = -1

// standing is how the tools of a run stood to its agent when they were last looked at.
type standing struct {
	refs []string
	now  []hob.Standing
	at   time.Time
}

// ruled says whether an agent's tools are what decides about a tool: its row, or the switch of a builtin.
func ruled(spec *hob.ToolSpec) bool {
	switch spec.Kind {
	case hob.BuiltinTool, hob.HTTPTool, hob.WebTool:
		return true
	case hob.MCPTool, hob.KnowledgeTool, hob.DelegateTool:
	}
	return false
}

// look asks the store how the tools that are called stand now.
func (a *active) look(calls []hob.ToolCall) {
	s := &a.standing
	s.refs = s.refs[:0]
	for i := range calls {
		t := a.plan.tools[calls[i].Name]
		if t != nil && ruled(&t.spec) && !slices.Contains(s.refs, t.spec.Ref) {
			s.refs = append(s.refs, t.spec.Ref)
		}
	}
	s.now, s.at = nil, monotonic()
	if len(s.refs) == 0 {
		return
	}
	now, err := a.e.Store.Standing(a.ctx, a.run.Workspace, a.run.Agent, s.refs)
	if err != nil {
		if a.cause() == nil {
			a.e.Log.Error("whether a run may use its tools could not be found out; their calls are refused",
				slog.String("run", string(a.id)), slog.Any("error", err))
		}
		return
	}
	s.now = now
}

// stands says how a tool stood when it was last looked at.
func (a *active) stands(t *tool) hob.Standing {
	if t == nil || !ruled(&t.spec) {
		return hob.Offered
	}
	if i := slices.Index(a.standing.refs, t.spec.Ref); i >= 0 && i < len(a.standing.now) {
		return a.standing.now[i]
	}
	return unsure
}

// recheck looks again at the tools of calls that are about to be carried out, where the last look is old, and refuses
// those that may not be used any more. false: some were refused.
func (a *active) recheck(calls []hob.ToolCall, states []hob.CallState, now []int) bool {
	if monotonic().Sub(a.standing.at) < standingAge {
		return true
	}
	a.look(calls)
	all := true
	for _, i := range now {
		t := a.plan.tools[states[i].Name]
		if why := (&entrant{name: states[i].Name, tool: t, standing: a.stands(t)}).pinned(); why != "" {
			a.verdicts[i] = (*trace)(nil).refuse(StagePin, why)
			if s := &states[i]; s.Attempt > 1 && s.Recovery != hob.RecoverRead { // an earlier try may have done it
				a.verdicts[i] = new(unknownOutcome())
			}
			a.finish(&states[i], *a.verdicts[i], a.log.note)
			all = false
		}
	}
	return all
}
