package api

import (
	"encoding/json"
	"net/http"

	"hob"
)

// maxReleased bounds the ids of one request; all held runs are released by naming none.
const maxReleased = 1000

// heldRun is a run that a restore brought back unfinished.
type heldRun struct {
	RunID     hob.RunID     `json:"run_id"`
	AgentID   hob.AgentID   `json:"agent_id"`
	AgentName string        `json:"agent_name" jsonschema:"empty where the agent was deleted"`
	SessionID hob.SessionID `json:"session_id"`
	Turn      int64         `json:"turn"`
	Status    hob.Status    `json:"status"`
	Cancel    bool          `json:"cancel_requested"`
	CreatedAt hob.Time      `json:"created_at"`
	LastEvent *heldEvent    `json:"last_event" jsonschema:"the last that is known of it; null where it has no events"`
	LastCall  *heldCall     `json:"last_call" jsonschema:"the last call of a tool, which is what may have happened in the world; null where it made none"`
}

// heldCall is the last call of a held run: what it may have done, and whether that is known.
type heldCall struct {
	CallID         hob.CallID     `json:"call_id"`
	ToolName       string         `json:"tool_name"`
	Status         hob.CallStatus `json:"status" jsonschema:"planned, awaiting_approval, intent (it may have been made) or result"`
	IsError        bool           `json:"is_error"`
	OutcomeUnknown bool           `json:"outcome_unknown"`
}

// heldEvent is the end of a held run's log.
type heldEvent struct {
	Seq  int64         `json:"seq"`
	Type hob.EventType `json:"type"`
	At   hob.Time      `json:"at"`
	Tool string        `json:"tool,omitempty" jsonschema:"which it was about"`
}

type heldList struct {
	Runs []heldRun `json:"runs"`
}

type releaseInput struct {
	RunIDs []string `json:"run_ids,omitempty" jsonschema:"which; at least one, unless all is true"`
	All    bool     `json:"all,omitempty" jsonschema:"all of them; then no ids are named"`
}

type releasedAnswer struct {
	Released int64    `json:"released"`
	Warnings []string `json:"warnings,omitempty"`
}

// listHeld tells, beside each run, the last that is known of it: that is what an operator judges by.
func listHeld(c *call) error {
	runs, err := c.s.Store.HeldRuns(c.Context(), c.by)
	if err != nil {
		return err
	}
	list := heldList{Runs: make([]heldRun, 0, len(runs))}
	names := map[hob.AgentID]string{}
	for _, r := range runs {
		if _, known := names[r.Agent]; !known {
			a, err := c.s.Store.Agent(c.Context(), c.by, r.Agent)
			if err != nil && hob.KindOf(err) != hob.NotFound {
				return err
			}
			names[r.Agent] = a.Name
		}
		h := heldRun{
			RunID: r.ID, AgentID: r.Agent, AgentName: names[r.Agent], SessionID: r.Session, Turn: r.Turn, Status: r.Status, Cancel: r.CancelCode != "",
			CreatedAt: r.CreatedAt,
		}
		events, err := c.s.Store.Events(c.Context(), c.by, r.ID, r.LastSeq-1, 1)
		if hob.KindOf(err) == hob.NotFound {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		for _, e := range events {
			var about struct {
				Tool string `json:"tool_name"`
			}
			_ = json.Unmarshal(e.Data, &about) // most are about none
			h.LastEvent = &heldEvent{Seq: e.Seq, Type: e.Type, At: e.Time, Tool: about.Tool}
		}
		d, err := c.s.Store.RunDetail(c.Context(), c.by, r.ID)
		if hob.KindOf(err) == hob.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		h.LastCall = lastCall(d.Calls)
		list.Runs = append(list.Runs, h)
	}
	return c.reply(http.StatusOK, list)
}

// lastCall is the call to judge a run by: of those that were begun the last one, for what is only planned has done nothing.
func lastCall(calls []hob.CallState) *heldCall {
	var last *hob.CallState
	for i, call := range calls {
		begun := call.Status == hob.CallIntent || call.Status == hob.CallDone
		if last == nil || begun || last.Status != hob.CallIntent && last.Status != hob.CallDone {
			last = &calls[i]
		}
	}
	if last == nil {
		return nil
	}
	return &heldCall{last.ID, last.Name, last.Status, last.Result.IsError, last.Result.Unknown}
}

func releaseHeld(c *call) error {
	var in releaseInput
	b, err := c.decode(&in, false)
	if err != nil {
		return err
	}
	switch { // a slip, such as an empty list, must not let all of them go
	case in.All == (len(in.RunIDs) > 0):
		return b.hint(hob.Errorf(hob.Invalid, `name the runs to release in run_ids, or send {"all": true} to release all that are held`).With("field", "run_ids"))
	case len(in.RunIDs) > maxReleased:
		return hob.Errorf(hob.Invalid, `run_ids must have at most %d entries; {"all": true} releases all`, maxReleased).With("field", "run_ids")
	}
	ids := make([]hob.RunID, len(in.RunIDs))
	for i, id := range in.RunIDs {
		ids[i] = hob.RunID(id)
	}
	n, err := c.s.Store.ReleaseHeld(c.Context(), c.by, ids...)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, releasedAnswer{Released: n, Warnings: b.warnings})
}
