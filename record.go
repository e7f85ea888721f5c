package hob

import "encoding/json"

// RunResult is the answer to a run that was waited for. Look at Status: a failed run is an answer, not an error.
type RunResult struct {
	RunID            RunID            `json:"run_id"`
	SessionID        SessionID        `json:"session_id"`
	ContextHandlerID *string          `json:"context_handler_id" jsonschema:"not available yet: always null"`
	Content          string           `json:"content"`
	Error            *string          `json:"error"`
	Code             *string          `json:"code"`
	Usage            Usage            `json:"usage"`
	Actions          map[string]int64 `json:"actions"` // of the usage ledger, model calls and the run itself included
	RetrievedItems   int              `json:"retrieved_items" jsonschema:"not available yet: always 0"`
	Status           Status           `json:"status"`
	Steps            int              `json:"steps"`
	IsNewSession     bool             `json:"is_new_session"`
	Approvals        []Approval       `json:"approvals,omitempty" jsonschema:"of status awaiting_approval: what the run waits for"`
	Warnings         []string         `json:"warnings,omitempty"`
}

// RunRecord is a run as it is told afterwards.
type RunRecord struct {
	ID                        RunID             `json:"id"`
	RunID                     RunID             `json:"run_id"`
	SessionID                 SessionID         `json:"session_id"`
	AgentID                   AgentID           `json:"agent_id"`
	Model                     string            `json:"model"`
	ContextHandlerID          *string           `json:"context_handler_id" jsonschema:"not available yet: always null"`
	ParentOrchestrationRunID  *string           `json:"parent_orchestration_run_id" jsonschema:"not available yet: always null"`
	ParentWorkflowExecutionID *string           `json:"parent_workflow_execution_id" jsonschema:"not available yet: always null"`
	Status                    Status            `json:"status"`
	Code                      *string           `json:"code"`
	Error                     *string           `json:"error"`
	InputMessages             []Message         `json:"input_messages"`
	OutputMessages            []Message         `json:"output_messages"`
	Content                   string            `json:"content"`
	Usage                     Usage             `json:"usage"`
	Actions                   map[string]int64  `json:"actions"` // of the usage ledger, model calls and their own run included
	RetrievedContext          []json.RawMessage `json:"retrieved_context" jsonschema:"not available yet: always empty"`
	Steps                     int               `json:"steps"`
	Attempt                   int               `json:"attempt"`
	Held                      bool              `json:"held,omitempty" jsonschema:"restored from a backup unfinished: it waits until it is released"`
	LastSeq                   int64             `json:"last_seq"`
	Events                    []json.RawMessage `json:"events"` // as streamed, but for pieces of text
	ToolCalls                 []CallRecord      `json:"tool_calls"`
	ReasoningSteps            []ReasoningStep   `json:"reasoning_steps"`
	Warnings                  []string          `json:"warnings"` // the messages of its events of that type
	CreatedAt                 Time              `json:"created_at"`
	StartedAt                 Time              `json:"started_at"`
	CompletedAt               Time              `json:"completed_at"`
}

// ReasoningStep is what a step of a run thought and which tools it then called.
type ReasoningStep struct {
	Step      int      `json:"step"`
	Content   string   `json:"content,omitempty"`
	ToolCalls []string `json:"tool_calls,omitempty"`
}
