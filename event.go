package hob

import "encoding/json"

// EventType names an event of a run's log.
type EventType string

// The events. Their payloads are the structs below; docs/events.md tells the order.
const (
	EventStart             EventType = "start"
	EventAttempt           EventType = "attempt"
	EventReasoningDropped  EventType = "reasoning_dropped_at_provider_switch"
	EventWarning           EventType = "warning"
	EventStepStarted       EventType = "step_started"
	EventContentDelta      EventType = "content_delta"
	EventReasoningDelta    EventType = "reasoning_delta"
	EventReasoning         EventType = "reasoning"
	EventWebSearch         EventType = "web_search"
	EventToolCall          EventType = "tool_call"
	EventToolResult        EventType = "tool_result"
	EventStepCompleted     EventType = "step_completed"
	EventOutputRecovery    EventType = "output_recovery"
	EventStepReset         EventType = "step_reset"
	EventModelFallback     EventType = "model_fallback"
	EventProactiveCompact  EventType = "proactive_compact"
	EventReactiveCompact   EventType = "reactive_compact"
	EventReactiveTruncate  EventType = "reactive_truncate"
	EventCompaction        EventType = "compaction"
	EventResponseRepair    EventType = "response_repair"
	EventHookResult        EventType = "hook_result"
	EventApprovalRequested EventType = "approval_requested"
	EventApprovalResolved  EventType = "approval_resolved"
	EventOnRunComplete     EventType = "on_run_complete"
	EventChunk             EventType = "chunk"
	EventError             EventType = "error"
	EventComplete          EventType = "complete"
)

// Delta says whether events of this type carry pieces of streamed text; run records leave them out.
func (t EventType) Delta() bool {
	return t == EventContentDelta || t == EventReasoningDelta
}

// Event is one entry of a run's log: its stream, trace, audit and recovery state. Data is the frame exactly as every
// reader gets it, seq included.
type Event struct {
	Seq  int64
	Type EventType
	Data json.RawMessage
	Time Time
}

// EventHead is what every frame begins with.
type EventHead struct {
	Event EventType `json:"event"`
	Type  EventType `json:"type"`
	Seq   int64     `json:"seq"` // from 1, without gaps, per run
	Run   RunID     `json:"run_id"`
	TS    Time      `json:"ts"`
}

// StartEvent opens every log.
type StartEvent struct {
	EventHead
	Session            SessionID `json:"session_id"`
	Agent              AgentID   `json:"agent_id"`
	Model              string    `json:"model"`
	ContextHandlerID   *string   `json:"context_handler_id"`
	ReasoningRequested bool      `json:"reasoning_requested"`
	IsNewSession       bool      `json:"is_new_session"`
	Tools              []string  `json:"tools"` // the names the run may use
}

// AttemptEvent says that a run goes on after its process ended, and which text of the step is void.
type AttemptEvent struct {
	EventHead
	Attempt  int   `json:"attempt"` // 2 for the first restart
	Step     int   `json:"step"`
	VoidFrom int64 `json:"void_from"` // text deltas with this seq or a later one, before this event, are void; 0 = none
}

// WarningEvent tells of something that does not stop the run.
type WarningEvent struct {
	EventHead
	Code    string `json:"code"`
	Message string `json:"message"`
}

// ReasoningDroppedEvent says that the conversation holds signed thoughts of another provider's model, which the run's model
// is not sent.
type ReasoningDroppedEvent struct {
	EventHead
	FromProvider string `json:"from_provider"`
	ToProvider   string `json:"to_provider"`
}

// StepStartedEvent opens a step; a repeated step opens again with the same number.
type StepStartedEvent struct {
	EventHead
	Step       int  `json:"step"`
	IsLastStep bool `json:"is_last_step"`
}

// DeltaEvent is a piece of streamed text: content_delta, or reasoning_delta with Step and Source.
type DeltaEvent struct {
	EventHead
	Step   int    `json:"step"`
	Source string `json:"source,omitempty"`
	Delta  string `json:"delta"`
}

// ReasoningEvent is the whole reasoning text of a step.
type ReasoningEvent struct {
	EventHead
	Step    int    `json:"step"`
	Source  string `json:"source"`
	Content string `json:"content"`
}

// WebSearchEvent tells of a search that the model's provider made by itself while the model answered.
type WebSearchEvent struct {
	EventHead
	Step     int         `json:"step"`
	ToolName string      `json:"tool_name"` // the tool that allows it; web_search where the agent's setting does
	Query    string      `json:"query"`     // "" where the provider does not tell
	Results  []WebResult `json:"results"`
	Error    string      `json:"error,omitempty"` // the provider's word for why nothing came of it
}

// ToolCallEvent announces a call with the arguments that will be used.
type ToolCallEvent struct {
	EventHead
	Step      int             `json:"step"`
	ToolName  string          `json:"tool_name"`
	Arguments json.RawMessage `json:"arguments"`
	CallID    CallID          `json:"call_id"`
	// BadArguments is the model's text where it was no JSON object; Arguments is then {}.
	BadArguments string `json:"bad_arguments,omitempty"`
}

// ResultMeta tells the size of a result.
type ResultMeta struct {
	ResultType string `json:"result_type"`
	CharCount  int    `json:"char_count"`
}

// ToolResultEvent gives the result of a call.
type ToolResultEvent struct {
	EventHead
	Step           int         `json:"step"`
	ToolName       string      `json:"tool_name"`
	CallID         CallID      `json:"call_id"`
	ResultPreview  string      `json:"result_preview"` // the first 200 characters
	Result         string      `json:"result"`         // as the model reads it
	ResultMeta     *ResultMeta `json:"result_meta,omitempty"`
	IsError        bool        `json:"is_error"`
	OutcomeUnknown bool        `json:"outcome_unknown,omitempty"`
	DurationMS     int64       `json:"duration_ms"`
}

// StepCompletedEvent closes a step.
type StepCompletedEvent struct {
	EventHead
	Step         int    `json:"step"`
	FinishReason string `json:"finish_reason"`
	HasToolCalls bool   `json:"has_tool_calls"`
}

// OutputRecoveryEvent says that a cut answer is being continued.
type OutputRecoveryEvent struct {
	EventHead
	Step    int `json:"step"`
	Attempt int `json:"attempt"`
}

// StepResetEvent says that a step's text so far is void (except for output_recovery, where it goes on).
type StepResetEvent struct {
	EventHead
	Step   int    `json:"step"`
	Reason string `json:"reason"` // output_recovery, rate_limit, model_error, prompt_too_long, response_format, pre_response, recovered
}

// ProactiveCompactEvent says that the conversation was made shorter before a model call, because it nears the model's
// window. Tokens are estimates of the whole request.
type ProactiveCompactEvent struct {
	EventHead
	Step         int    `json:"step"`
	TokensBefore int    `json:"tokens_before"`
	TokensAfter  int    `json:"tokens_after"`
	Succeeded    bool   `json:"succeeded"` // it fits now
	Method       string `json:"method"`    // prune (old tool results left out), summary or truncate
}

// ReactiveCompactEvent says that the provider refused a prompt as too long, and that the conversation is made shorter.
type ReactiveCompactEvent struct {
	EventHead
	Step int `json:"step"`
}

// ReactiveTruncateEvent says that the conversation was cut, because it could not be summarised.
type ReactiveTruncateEvent struct {
	EventHead
	Step         int  `json:"step"`
	BeforeTokens int  `json:"before_tokens"`
	AfterTokens  int  `json:"after_tokens"`
	Succeeded    bool `json:"succeeded"`
}

// CompactionEvent says that the conversation is summarised after a step's tools; MessageCount is how many messages it
// has.
type CompactionEvent struct {
	EventHead
	Step         int `json:"step"`
	MessageCount int `json:"message_count"`
}

// ResponseRepairEvent says that the answer is not in the form that was asked for, and that the model is asked again.
type ResponseRepairEvent struct {
	EventHead
	Step  int    `json:"step"`
	Error string `json:"error"` // what is wrong with it
}

// ModelFallbackEvent says that the run goes on with another model.
type ModelFallbackEvent struct {
	EventHead
	Step int    `json:"step"`
	From string `json:"from"`
	To   string `json:"to"`
}

// ChunkEvent carries answer text: with tools once, the whole answer; without tools one per batch, to be appended.
type ChunkEvent struct {
	EventHead
	Content string `json:"content"`
}

// ErrorEvent tells why the run fails; complete follows.
type ErrorEvent struct {
	EventHead
	Error   string `json:"error"`
	Message string `json:"message"` // the same text
	Code    string `json:"code"`
	Step    int    `json:"step,omitempty"`
}

// CallRecord is a finished tool call in complete and in run records.
type CallRecord struct {
	Step           int             `json:"step"`
	ToolName       string          `json:"tool_name"`
	CallID         CallID          `json:"call_id"`
	Arguments      json.RawMessage `json:"arguments"`
	Result         string          `json:"result"`
	IsError        bool            `json:"is_error"`
	OutcomeUnknown bool            `json:"outcome_unknown,omitempty"`
	Status         CallStatus      `json:"status"`
	DurationMS     int64           `json:"duration_ms"`
}

// HookStatus is how the asking of a hook went.
type HookStatus string

// The statuses.
const (
	HookSucceeded HookStatus = "succeeded"
	HookFailed    HookStatus = "failed"    // its fail mode decided
	HookTimedOut  HookStatus = "timed_out" // the same
	HookQueued    HookStatus = "queued"    // it is told from the store, beside the run
)

// HookResultEvent tells what a hook, or a rule of a tool's assignment, decided.
type HookResultEvent struct {
	EventHead
	HookID        HookID          `json:"hook_id"` // "" for a rule of an assignment
	Source        string          `json:"source"`  // hook or tool_rule
	HookEvent     HookEvent       `json:"hook_event"`
	HookType      HookType        `json:"hook_type"`
	Position      int             `json:"position"` // of the hook; of a tool_rule its place in the list, from 0
	CallID        CallID          `json:"call_id,omitempty"`
	ToolName      string          `json:"tool_name,omitempty"`
	Action        HookAction      `json:"action"`
	Status        HookStatus      `json:"status"`
	Modified      bool            `json:"modified"` // what it gave took the place of the input or output
	Blocked       bool            `json:"blocked"`
	LatencyMS     int64           `json:"latency_ms"`
	Message       string          `json:"message"`
	ModifiedInput json.RawMessage `json:"modified_input,omitempty"` // the arguments from here on, where they were modified
	InputDigest   string          `json:"input_digest,omitempty"`   // of an http hook before a call: of the arguments that it decided about, as ApprovalDigest
	Again         bool            `json:"again,omitempty"`          // it was asked once more, because others changed the arguments: its own changes are not taken
	DeliveryID    string          `json:"delivery_id,omitempty"`    // under which an http hook was asked
	ApprovalID    string          `json:"approval_id,omitempty"`
}

// ApprovalRequestedEvent tells that the run waits for a person to decide.
type ApprovalRequestedEvent struct {
	EventHead
	ApprovalID string          `json:"approval_id"`
	HookID     HookID          `json:"hook_id"`
	HookEvent  HookEvent       `json:"hook_event"`
	CallID     CallID          `json:"call_id"`
	ToolName   string          `json:"tool_name"`
	ToolInput  json.RawMessage `json:"tool_input"`
	Preview    json.RawMessage `json:"preview,omitempty"`
	Digest     string          `json:"input_digest"`
	Message    string          `json:"message"`
	ExpiresAt  Time            `json:"expires_at"` // about; the approval itself has it exactly. null = never
}

// ApprovalResolvedEvent tells what became of an approval.
type ApprovalResolvedEvent struct {
	EventHead
	ApprovalID    string          `json:"approval_id"`
	CallID        CallID          `json:"call_id"`
	ToolName      string          `json:"tool_name"`
	Approved      bool            `json:"approved"`
	Status        ApprovalStatus  `json:"status"` // approved, denied, expired or cancelled
	By            string          `json:"by"`     // as Principal.Name, "" where nobody decided
	Reason        string          `json:"reason"`
	ModifiedInput json.RawMessage `json:"modified_input,omitempty"`
	WaitedMS      int64           `json:"waited_ms"`
}

// OnRunCompleteEvent tells that the run completed and its OnRunComplete hooks will be told.
type OnRunCompleteEvent struct {
	EventHead
	Status Status `json:"status"`
	Steps  int    `json:"steps"`
}

// CompleteEvent ends every log, whatever the outcome.
type CompleteEvent struct {
	EventHead
	Session          SessionID    `json:"session_id"`
	ContextHandlerID *string      `json:"context_handler_id"`
	Content          string       `json:"content"`
	Status           Status       `json:"status"`
	Code             *string      `json:"code"`
	Error            *string      `json:"error"`
	Steps            int          `json:"steps"`
	ToolCalls        []CallRecord `json:"tool_calls"`
	Usage            Usage        `json:"usage"`
	// Actions are those of the run in the usage ledger: how many of each.
	Actions        map[string]int64 `json:"actions"`
	RetrievedItems int              `json:"retrieved_items"`
	IsNewSession   bool             `json:"is_new_session"`
}
