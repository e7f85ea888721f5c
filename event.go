package hob

import "encoding/json"

// EventType names an event of a run's log.
type EventType string

// The events. Their payloads are the structs below; docs/events.md tells the order.
const (
	EventStart            EventType = "start"
	EventAttempt          EventType = "attempt"
	EventReasoningDropped EventType = "reasoning_dropped_at_provider_switch"
	EventWarning          EventType = "warning"
	EventStepStarted      EventType = "step_started"
	EventContentDelta     EventType = "content_delta"
	EventReasoningDelta   EventType = "reasoning_delta"
	EventReasoning        EventType = "reasoning"
	EventWebSearch        EventType = "web_search"
	EventToolCall         EventType = "tool_call"
	EventToolResult       EventType = "tool_result"
	EventStepCompleted    EventType = "step_completed"
	EventOutputRecovery   EventType = "output_recovery"
	EventStepReset        EventType = "step_reset"
	EventModelFallback    EventType = "model_fallback"
	EventProactiveCompact EventType = "proactive_compact"
	EventReactiveCompact  EventType = "reactive_compact"
	EventReactiveTruncate EventType = "reactive_truncate"
	EventCompaction       EventType = "compaction"
	EventResponseRepair   EventType = "response_repair"
	EventHookResult       EventType = "hook_result"
	EventChunk            EventType = "chunk"
	EventError            EventType = "error"
	EventComplete         EventType = "complete"
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
	Reason string `json:"reason"` // output_recovery, rate_limit, model_error, prompt_too_long, response_format, recovered
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
