package api

import (
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"hob"
)

// eventsSchema is the name of the schema of a frame of a stream.
const eventsSchema = "Event"

// eventKind is a kind of event with its payload and when it comes.
type eventKind struct {
	kind  hob.EventType
	frame any
	about string
}

// eventKinds are the events that runs of this version have; docs/events.md tells their order.
func eventKinds() []eventKind {
	return []eventKind{
		{hob.EventStart, hob.StartEvent{}, "opens every log"},
		{hob.EventAttempt, hob.AttemptEvent{}, "the run goes on after its process ended"},
		{hob.EventReasoningDropped, hob.ReasoningDroppedEvent{}, "signed thoughts of another provider's model are not sent"},
		{hob.EventWarning, hob.WarningEvent{}, "something that does not stop the run"},
		{hob.EventStepStarted, hob.StepStartedEvent{}, "a step begins; a repeated one with the same number"},
		{hob.EventContentDelta, hob.DeltaEvent{}, "a piece of the answer's text"},
		{hob.EventReasoningDelta, hob.DeltaEvent{}, "a piece of reasoning"},
		{hob.EventReasoning, hob.ReasoningEvent{}, "the whole reasoning of a step"},
		{hob.EventWebSearch, hob.WebSearchEvent{}, "the model's provider searched the web by itself"},
		{hob.EventToolCall, hob.ToolCallEvent{}, "a call with the arguments that will be used"},
		{hob.EventHookResult, hob.HookResultEvent{}, "what a hook, or a rule of a tool's assignment, decided"},
		{hob.EventApprovalRequested, hob.ApprovalRequestedEvent{}, "the run waits for a person to decide"},
		{hob.EventApprovalResolved, hob.ApprovalResolvedEvent{}, "what became of an approval"},
		{hob.EventToolResult, hob.ToolResultEvent{}, "the result of a call"},
		{hob.EventStepCompleted, hob.StepCompletedEvent{}, "a step ends"},
		{hob.EventOutputRecovery, hob.OutputRecoveryEvent{}, "a cut answer is being continued"},
		{hob.EventStepReset, hob.StepResetEvent{}, "the step's text so far is void, but for the reason output_recovery"},
		{hob.EventModelFallback, hob.ModelFallbackEvent{}, "the run goes on with another model"},
		{hob.EventProactiveCompact, hob.ProactiveCompactEvent{}, "the conversation was made shorter before a call"},
		{hob.EventReactiveCompact, hob.ReactiveCompactEvent{}, "the provider refused the prompt as too long"},
		{hob.EventReactiveTruncate, hob.ReactiveTruncateEvent{}, "the conversation was cut, since it could not be summarised"},
		{hob.EventCompaction, hob.CompactionEvent{}, "the conversation is summarised after a step's tools"},
		{hob.EventResponseRepair, hob.ResponseRepairEvent{}, "the answer is not in the wanted form, and asked for again"},
		{hob.EventChunk, hob.ChunkEvent{}, "answer text: with tools the whole of it, without tools a piece"},
		{hob.EventOnRunComplete, hob.OnRunCompleteEvent{}, "the run completed, and its OnRunComplete hooks will be told"},
		{hob.EventError, hob.ErrorEvent{}, "why the run fails; complete follows"},
		{hob.EventComplete, hob.CompleteEvent{}, "ends every log, whatever the outcome"},
	}
}

// events makes the schema of a frame: one form for each kind of event.
func (t schemas) events() error {
	all := &jsonschema.Schema{Description: "the data of one frame of a stream, by the kind that event names"}
	for _, k := range eventKinds() {
		s, err := jsonschema.ForType(reflect.TypeOf(k.frame), &jsonschema.ForOptions{TypeSchemas: wireTypes()})
		if err != nil {
			return err
		}
		loosen(s)
		s.Title, s.Description = string(k.kind), k.about
		for _, field := range []string{"event", "type"} {
			s.Properties[field] = &jsonschema.Schema{Type: "string", Enum: []any{string(k.kind)}}
		}
		if code := s.Properties["code"]; k.kind == hob.EventComplete || k.kind == hob.EventError {
			codes(code)
		}
		for _, name := range []string{"arguments", "tool_input", "modified_input"} {
			if args := s.Properties[name]; args != nil {
				args.Type = "object"
			}
		}
		all.OneOf = append(all.OneOf, s)
	}
	t.byName[eventsSchema] = all
	return nil
}

// runCodes are the codes with which a run can end.
func runCodes() []string {
	return []string{
		hob.CodeProviderError, string(hob.ClassPromptTooLong), string(hob.ClassTooLarge), hob.CodeBudget, hob.CodeContentFilter,
		hob.CodeResponseFormat, hob.CodeOutputCut, hob.CodeDoomLoop, hob.CodeTimeout, hob.CodeCancelled, hob.CodeClientDisconnected,
		hob.CodeKeyRevoked, hob.CodeAttempts, hob.CodeHookBlocked, hob.CodeInternal,
	}
}

// codes makes a field one of the codes of a run, or null where it may be.
func codes(s *jsonschema.Schema) {
	s.Enum = nil
	for _, code := range runCodes() {
		s.Enum = append(s.Enum, code)
	}
	if s.Type == "" {
		s.Enum = append(s.Enum, nil)
	}
}

// describeFacts gives the facts of a model's profile their members, which the package knows that reads them.
func (t schemas) describeFacts(profile *jsonschema.Schema) error {
	facts := &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{}}
	if t.facts != nil {
		made, err := jsonschema.ForType(reflect.TypeOf(t.facts), &jsonschema.ForOptions{TypeSchemas: wireTypes()})
		if err != nil {
			return err
		}
		loosen(made)
		facts = made
	}
	facts.Description = "how the model deviates from what the server's tables say; what is absent was not found out"
	profile.Properties["facts"] = facts
	return nil
}

// valuesOf are the values of parameters that have few.
func valuesOf(parameter string) []any {
	switch parameter {
	case "group_by":
		return anyOf(usageGroups())
	case "status":
		return anyOf(approvalStatuses())
	case "order":
		return []any{"desc", "asc"}
	case "sort":
		return []any{"created_at", "name", "updated_at", "last_run_at"}
	}
	return nil
}
