package client

import (
	"context"
	"encoding/json"
	"net/http"

	"hob"
)

// RunRequest asks an agent for a turn. Message is text; Parts, where set, is used in its stead, in OpenAI's content form.
type RunRequest struct {
	Message            string
	Parts              json.RawMessage
	SessionID          hob.SessionID // "" for a new session
	ContextOverride    string        // text for this run only
	ReasoningRequested *bool
	CitationsEnabled   bool
	Tools              bool // for Run alone: use the agent's tools
	Tuning             hob.Tuning
	// IdempotencyKey makes a repeated request find the run of the first one.
	IdempotencyKey string
}

// MarshalJSON writes the body of the request.
func (r RunRequest) MarshalJSON() ([]byte, error) {
	message := r.Parts
	if len(message) == 0 {
		var err error
		if message, err = json.Marshal(r.Message); err != nil {
			return nil, err
		}
	}
	return json.Marshal(struct {
		Message            json.RawMessage `json:"message"`
		SessionID          hob.SessionID   `json:"session_id,omitempty"`
		ContextOverride    string          `json:"context_override,omitempty"`
		ReasoningRequested *bool           `json:"reasoning_requested,omitempty"`
		CitationsEnabled   bool            `json:"citations_enabled,omitempty"`
		Tools              bool            `json:"tools,omitempty"`
		hob.Tuning
	}{message, r.SessionID, r.ContextOverride, r.ReasoningRequested, r.CitationsEnabled, r.Tools, r.Tuning})
}

// Run runs an agent and waits for its answer.
func (c *Client) Run(ctx context.Context, agent hob.AgentID, in RunRequest) (hob.RunResult, error) {
	var r hob.RunResult
	req := request{method: http.MethodPost, path: path("api", "agents", string(agent), "run"), header: idempotent(in.IdempotencyKey), body: in}
	return r, c.call(ctx, req, &r)
}

// RunRecord reads a run with its whole story.
func (c *Client) RunRecord(ctx context.Context, id hob.RunID) (hob.RunRecord, error) {
	var r hob.RunRecord
	return r, c.call(ctx, request{method: http.MethodGet, path: path("api", "agents", "runs", string(id))}, &r)
}

// Cancel asks a run to end and returns "cancelling", or the state in which it had ended before.
func (c *Client) Cancel(ctx context.Context, id hob.RunID) (string, error) {
	var answer struct {
		Status string `json:"status"`
	}
	err := c.call(ctx, request{method: http.MethodPost, path: path("api", "agents", "runs", string(id), "cancel"), again: true}, &answer)
	return answer.Status, err
}

// Decision answers an approval. CallID and ApprovalID narrow it where a run waits for several.
type Decision struct {
	Approved   bool       `json:"approved"`
	Reason     string     `json:"reason,omitempty"`
	CallID     hob.CallID `json:"call_id,omitempty"`
	ApprovalID string     `json:"approval_id,omitempty"`
	// Digest is the input_digest of what was shown: where the approval has another one by now, nothing is decided.
	Digest string `json:"digest,omitempty"`
	// ModifiedInput are arguments for the call in the place of those asked for.
	ModifiedInput json.RawMessage `json:"modified_input,omitempty"`
}

// Approve decides what a run waits for; NotFound when it waits for nothing, Conflict when it is decided already.
func (c *Client) Approve(ctx context.Context, id hob.RunID, d Decision) (hob.Approval, error) {
	var answer struct {
		Approval hob.Approval `json:"approval"`
	}
	err := c.call(ctx, request{method: http.MethodPost, path: path("api", "agents", "runs", string(id), "approve"), body: d}, &answer)
	return answer.Approval, err
}
