package store

import (
	"slices"
	"strconv"

	"hob"
)

// noteStart notes that a run was accepted.
func noteStart(t *tx, r hob.Run) {
	e := t.did(r.Principal, "run.start", "run", string(r.ID), nil, nil)
	e.Run, e.Detail = r.ID, details("agent_id", string(r.Agent), "session_id", string(r.Session))
}

// noteStep notes what a step of a run tells: calls that are about to be carried out and their results, what hooks decided,
// and the run's end. Each is an act of whoever started the run.
func noteStep(t *tx, c hob.RunCommit, m place) {
	if len(c.Calls) > 0 {
		t.notes = slices.Grow(t.notes, len(c.Calls)+len(c.Audit)+1)
	}
	for i := range c.Calls {
		if told := &c.Calls[i]; !toldLater(c.Calls[i+1:], told) {
			noteCall(t, c.Run, m, told)
		}
	}
	for _, e := range c.Audit {
		e.Run = c.Run
		t.note(m.entry(e))
	}
	if o := c.Outcome; o != nil && o.Status.Final() {
		t.note(m.entry(hob.AuditEntry{
			Action: "run.end", Kind: "run", Object: string(c.Run), Run: c.Run, Decision: string(o.Status), Rule: o.Code,
		}))
	}
}

// entry says whose act an entry of a run tells.
func (m place) entry(e hob.AuditEntry) hob.AuditEntry {
	e.Workspace, e.Actor = hob.WorkspaceID(m.ws), m.by
	return e
}

// toldLater says whether a commit has the same state of a call once more.
func toldLater(later []hob.CallState, c *hob.CallState) bool {
	for i := range later {
		if l := &later[i]; l.ID == c.ID && l.Status == c.Status && l.Attempt == c.Attempt {
			return true
		}
	}
	return false
}

// What a run tells of its calls.
const (
	intentAction = "tool_call.intent"
	resultAction = "tool_call.result"
)

// noteCall notes a call that is about to be carried out, or its result. A result that no intent came before is a refusal.
func noteCall(t *tx, run hob.RunID, m place, c *hob.CallState) {
	e := hob.AuditEntry{Kind: "tool_call", Object: c.Name, Run: run, Call: c.ID}
	switch c.Status {
	case hob.CallIntent:
		e.Action, e.Digest = intentAction, digest(object(c.Arguments))
		e.Detail = append(e.Detail, `{"attempt":`...)
		e.Detail = strconv.AppendInt(e.Detail, int64(c.Attempt), 10)
		e.Detail = append(e.Detail, `,"recovery":`...)
		e.Detail = strconv.AppendQuote(e.Detail, string(c.Recovery)) // one of a few words
		e.Detail = append(e.Detail, '}')
	case hob.CallDone:
		e.Action, e.Decision = resultAction, hob.AuditOK
		switch {
		case c.Attempt == 0:
			e.Decision, e.Digest = hob.AuditRefused, digest(object(c.Arguments))
		case c.Result.Unknown:
			e.Decision = hob.AuditUnknown
		case c.Result.IsError:
			e.Decision = hob.AuditError
		}
	case hob.CallPlanned, hob.CallWaiting, hob.CallReturned:
		return
	default:
		return
	}
	t.note(m.entry(e))
}

// maxReason is how many characters of a reason an entry keeps.
const maxReason = 500

// noteApproval notes what became of an approval.
func noteApproval(t *tx, action, actor string, a *hob.Approval) {
	e := hob.AuditEntry{
		Workspace: a.Workspace, Actor: actor, Action: action, Kind: "approval", Object: a.ApprovalID, Run: a.RunID, Call: a.CallID,
		Digest: a.Digest, Rule: string(a.HookID), Decision: string(a.Status),
		Detail: details("tool_name", a.ToolName, "event", string(a.HookEvent)),
	}
	if action == "approval.decide" {
		reason, _ := firstChars(a.Reason, maxReason)
		e.Detail = details("tool_name", a.ToolName, "event", string(a.HookEvent), "reason", reason)
		if a.ModifiedInput != nil {
			e.After = digest(a.ModifiedInput)
		}
	}
	t.note(e)
}
