package client

import (
	"context"
	"net/http"

	"hob"
)

// HeldRun is a run that a restore brought back unfinished and that waits until it is released.
type HeldRun struct {
	ID              hob.RunID     `json:"run_id"`
	Agent           hob.AgentID   `json:"agent_id"`
	AgentName       string        `json:"agent_name"` // "" where the agent was deleted
	Session         hob.SessionID `json:"session_id"`
	Turn            int64         `json:"turn"`
	Status          hob.Status    `json:"status"`
	CancelRequested bool          `json:"cancel_requested"`
	CreatedAt       hob.Time      `json:"created_at"`
	LastEvent       *HeldEvent    `json:"last_event"`
	LastCall        *HeldCall     `json:"last_call"` // nil where it made none
}

// HeldCall is the last call of a held run. Where its status is an intent it may have been made.
type HeldCall struct {
	ID             hob.CallID     `json:"call_id"`
	Tool           string         `json:"tool_name"`
	Status         hob.CallStatus `json:"status"`
	IsError        bool           `json:"is_error"`
	OutcomeUnknown bool           `json:"outcome_unknown"`
}

// HeldEvent is the last that is known of a held run.
type HeldEvent struct {
	Seq  int64         `json:"seq"`
	Type hob.EventType `json:"type"`
	At   hob.Time      `json:"at"`
	Tool string        `json:"tool,omitempty"`
}

// HeldRuns lists the runs that wait since a restore, oldest first. The key needs the scope admin.
func (c *Client) HeldRuns(ctx context.Context) ([]HeldRun, error) {
	var list struct {
		Runs []HeldRun `json:"runs"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/api/runs/held"}, &list)
	return list.Runs, err
}

// ReleaseHeld lets the given runs, or all of them, go on, and says how many were held. NotFound where an id is no run's;
// then none is released.
func (c *Client) ReleaseHeld(ctx context.Context, runs ...hob.RunID) (int64, error) {
	var answer struct {
		Released int64 `json:"released"`
	}
	body := map[string]any{"run_ids": runs}
	if len(runs) == 0 {
		body = map[string]any{"all": true}
	}
	err := c.call(ctx, request{method: http.MethodPost, path: "/api/runs/held/release", body: body, again: true}, &answer)
	return answer.Released, err
}
