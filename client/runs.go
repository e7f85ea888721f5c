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

func (r RunRequest) header() http.Header {
	h := http.Header{}
	if r.IdempotencyKey != "" {
		h.Set("Idempotency-Key", r.IdempotencyKey)
	}
	return h
}

// RunResult is the answer to a run that was waited for. Look at Status: a failed run is no error of the call.
type RunResult struct {
	RunID            hob.RunID     `json:"run_id"`
	SessionID        hob.SessionID `json:"session_id"`
	ContextHandlerID *string       `json:"context_handler_id"`
	Content          string        `json:"content"`
	Error            *string       `json:"error"`
	Code             *string       `json:"code"`
	Usage            hob.Usage     `json:"usage"`
	RetrievedItems   int           `json:"retrieved_items"`
	Status           hob.Status    `json:"status"`
	Steps            int           `json:"steps"`
	IsNewSession     bool          `json:"is_new_session"`
	Warnings         []string      `json:"warnings"`
}

// RunRecord is a run as it is told afterwards.
type RunRecord struct {
	ID                        hob.RunID         `json:"id"`
	RunID                     hob.RunID         `json:"run_id"`
	SessionID                 hob.SessionID     `json:"session_id"`
	AgentID                   hob.AgentID       `json:"agent_id"`
	Model                     string            `json:"model"`
	ContextHandlerID          *string           `json:"context_handler_id"`
	ParentOrchestrationRunID  *string           `json:"parent_orchestration_run_id"`
	ParentWorkflowExecutionID *string           `json:"parent_workflow_execution_id"`
	Status                    hob.Status        `json:"status"`
	Code                      *string           `json:"code"`
	Error                     *string           `json:"error"`
	InputMessages             []hob.Message     `json:"input_messages"`
	OutputMessages            []hob.Message     `json:"output_messages"`
	Content                   string            `json:"content"`
	Usage                     hob.Usage         `json:"usage"`
	RetrievedContext          []json.RawMessage `json:"retrieved_context"`
	Steps                     int               `json:"steps"`
	Attempt                   int               `json:"attempt"`
	LastSeq                   int64             `json:"last_seq"`
	Events                    []json.RawMessage `json:"events"` // as streamed, but for pieces of text
	ToolCalls                 []hob.CallRecord  `json:"tool_calls"`
	ReasoningSteps            []ReasoningStep   `json:"reasoning_steps"`
	CreatedAt                 hob.Time          `json:"created_at"`
	StartedAt                 hob.Time          `json:"started_at"`
	CompletedAt               hob.Time          `json:"completed_at"`
}

// ReasoningStep is what a step thought and which tools it called.
type ReasoningStep struct {
	Step      int      `json:"step"`
	Content   string   `json:"content"`
	ToolCalls []string `json:"tool_calls"`
}

// Run runs an agent and waits for its answer.
func (c *Client) Run(ctx context.Context, agent hob.AgentID, in RunRequest) (RunResult, error) {
	var r RunResult
	req := request{method: http.MethodPost, path: path("api", "agents", string(agent), "run"), header: in.header(), body: in}
	return r, c.call(ctx, req, &r)
}

// RunRecord reads a run with its whole story.
func (c *Client) RunRecord(ctx context.Context, id hob.RunID) (RunRecord, error) {
	var r RunRecord
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

// Approval is something a run waits for.
type Approval struct {
	ApprovalID string          `json:"approval_id"`
	RunID      hob.RunID       `json:"run_id"`
	CallID     hob.CallID      `json:"call_id"`
	ToolName   string          `json:"tool_name"`
	ToolInput  json.RawMessage `json:"tool_input"`
	Message    string          `json:"message"`
	Status     string          `json:"status"`
	ExpiresAt  hob.Time        `json:"expires_at"`
}

// Approvals lists what a run waits for.
func (c *Client) Approvals(ctx context.Context, id hob.RunID) ([]Approval, error) {
	var list struct {
		Approvals []Approval `json:"approvals"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("api", "agents", "runs", string(id), "approvals")}, &list)
	return list.Approvals, err
}

// Decision answers an approval. CallID and ApprovalID narrow it where a run waits for several.
type Decision struct {
	Approved   bool       `json:"approved"`
	Reason     string     `json:"reason,omitempty"`
	CallID     hob.CallID `json:"call_id,omitempty"`
	ApprovalID string     `json:"approval_id,omitempty"`
}

// Approve decides what a run waits for; NotFound when it waits for nothing.
func (c *Client) Approve(ctx context.Context, id hob.RunID, d Decision) error {
	return c.call(ctx, request{method: http.MethodPost, path: path("api", "agents", "runs", string(id), "approve"), body: d}, nil)
}
