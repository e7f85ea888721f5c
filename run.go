package hob

import "encoding/json"

// Status is the state of a run.
type Status string

// The states. Completed, Failed and Cancelled are final.
const (
	Queued           Status = "queued"
	Running          Status = "running"
	AwaitingApproval Status = "awaiting_approval"
	Completed        Status = "completed"
	Failed           Status = "failed"
	Cancelled        Status = "cancelled"
)

// Final says whether a run in this state will never change again.
func (s Status) Final() bool { return s == Completed || s == Failed || s == Cancelled }

// CanBecome is the state machine of a run.
func (s Status) CanBecome(next Status) bool {
	switch s {
	case Queued:
		return next == Running || next == Cancelled || next == Failed
	case Running:
		return next == AwaitingApproval || next == Queued || next.Final()
	case AwaitingApproval:
		return next == Running || next == Cancelled || next == Failed
	case Completed, Failed, Cancelled:
	}
	return false
}

// The codes a finished run can carry: why it did not simply complete.
const (
	CodeDoomLoop           = "doom_loop"
	CodeTimeout            = "timeout"
	CodeCancelled          = "cancelled"
	CodeClientDisconnected = "client_disconnected"
	CodeKeyRevoked         = "key_revoked"
	CodeProviderError      = "provider_error"
	CodeInternal           = "internal"
	CodeAttempts           = "too_many_attempts"
	CodeBudget             = "budget"          // completed: a budget was used up, and the answer is what could be said by then
	CodeOutputCut          = "output_cut"      // the answer was cut in the midst of a tool call, again and again
	CodeContentFilter      = "content_filter"  // the provider let the model say nothing
	CodeResponseFormat     = "response_format" // the answer is not in the form that was asked for
	CodeHookBlocked        = "hook_blocked"    // an OnRunStart hook did not let it begin
)

// RunOptions are the request's wishes, kept with the run so that a restart goes on with the same.
type RunOptions struct {
	Tuning
	Stream             bool   `json:"stream,omitempty"`   // started by a streaming request
	NoTools            bool   `json:"no_tools,omitempty"` // the seed's sync run: one model call, no tools
	Context            string `json:"context,omitempty"`  // context_override: laid behind the system prompt, for this run only
	MaxContextTokens   *int   `json:"max_context_tokens,omitempty"`
	CitationsEnabled   bool   `json:"citations_enabled,omitempty"`
	ReasoningRequested *bool  `json:"reasoning_requested,omitempty"`
}

// Run is one turn of an agent: a message in, steps of model calls and tool calls, an answer out. It is a state machine
// whose state rests in the store.
type Run struct {
	ID        RunID
	Workspace WorkspaceID
	Agent     AgentID
	Session   SessionID
	Turn      int64 // position among the session's runs, from 1
	Principal Principal
	Model     string
	Options   RunOptions

	Status  Status
	Code    string // why, when it did not simply complete
	Error   string // the same for people
	Content string // the final answer
	Steps   int
	Usage   Usage

	CreatedAt   Time
	StartedAt   Time
	CompletedAt Time

	LastSeq    int64  // number of the last event in the log
	LeaseOwner string // the process that drives it
	Epoch      int64  // grows with every claim; a writer with an older one is fenced off
	Attempt    int    // how often it was claimed, 1 for the process that accepted it
	Stalls     int    // how often it was claimed since it last got on, handovers left out
	Held       bool   // restored from a backup: nobody drives it until it is released
	CancelCode string // set: somebody asked to cancel it, with this code
	NewSession bool   // this run made its session
}

// CallStatus is where a tool call is in its life.
type CallStatus string

// The life of a tool call: planned → (awaiting approval) → intent → (returned) → result.
const (
	CallPlanned  CallStatus = "planned"
	CallWaiting  CallStatus = "awaiting_approval"
	CallIntent   CallStatus = "intent"
	CallReturned CallStatus = "returned" // the tool has answered, and PostToolUse hooks are asked about its answer
	CallDone     CallStatus = "result"
)

// CallState is the stored state of one tool call.
type CallState struct {
	ID        CallID
	Step      int
	Index     int // position in its step
	Name      string
	Arguments json.RawMessage
	Status    CallStatus
	Recovery  Recovery
	Attempt   int
	Result    Result
	StartedAt Time
	EndedAt   Time
}

// Pin is what a run froze at its start: the agent as it was and the tools it may use.
type Pin struct {
	Agent Agent      `json:"agent"`
	Tools []ToolSpec `json:"tools"`
	Hooks []Hook     `json:"hooks,omitempty"` // in the order in which they are asked, their secrets masked
}

// Session is a conversation with one agent.
type Session struct {
	ID        SessionID       `json:"session_id"`
	UUID      string          `json:"id"`
	Workspace WorkspaceID     `json:"-"`
	Agent     *AgentID        `json:"agent_id"` // null once the agent was deleted
	Owner     string          `json:"-"`
	UserID    *string         `json:"user_id"`
	Data      json.RawMessage `json:"session_data"`
	Metadata  json.RawMessage `json:"metadata"`
	Turns     int64           `json:"-"`
	CreatedAt Time            `json:"created_at"`
	UpdatedAt Time            `json:"updated_at"`
}

// SessionRow is a session in a list.
type SessionRow struct {
	ID             SessionID `json:"session_id"`
	RunCount       int64     `json:"run_count"`
	LastActivityAt Time      `json:"last_activity_at"`
	CreatedAt      Time      `json:"created_at"`
	FirstMessage   string    `json:"first_message"` // at most 100 characters
}

// SessionFilter narrows a list of sessions. Zero values mean no bound.
type SessionFilter struct {
	Limit, Offset               int
	Search                      string
	CreatedAfter, CreatedBefore Time
	MinRuns, MaxRuns            *int64
}

// RunDetail is a run with its whole story.
type RunDetail struct {
	Run      Run
	Actions  map[string]int64 // of the usage ledger so far
	Messages []Message        // its own turn: the user message first
	Calls    []CallState
	Events   []Event // without text deltas
}

// Record is the call as run records and the complete event show it.
func (c CallState) Record() CallRecord {
	r := CallRecord{
		Step: c.Step, ToolName: c.Name, CallID: c.ID, Arguments: c.Arguments, Result: c.Result.Text,
		IsError: c.Result.IsError, OutcomeUnknown: c.Result.Unknown, Status: c.Status,
	}
	if c.Status == CallReturned { // hooks may withhold it
		r.Result = ""
	}
	if !c.EndedAt.IsZero() && !c.StartedAt.IsZero() {
		r.DurationMS = c.EndedAt.Sub(c.StartedAt.Time).Milliseconds()
	}
	return r
}
