package provider_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob/internal/provider"
)

func TestChanges_SayWhatRunsDoOtherwise(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dialect, model, facts string
		want                  []string
	}{
		"as the table says": {
			model: "gpt-5", facts: `{"max_tokens_field":"max_completion_tokens","system_role":"developer","temperature":false,"reasoning_effort":"minimal","name_limit":64,"tools":true}`,
		},
		"unknown": {
			model: "m", facts: `{"reasoning_effort":"low","window":4096,"system_role":"user","max_tokens_field":"max_completion_tokens","temperature":false,
				"response_format":"json_object","images":false,"reasoning_echo":"needed"}`,
			want: []string{
				"instructions are sent as user", "the length is bounded by max_completion_tokens", "temperature is not sent",
				"reasoning_effort is sent, from low on", "the form of an answer is asked for as JSON, with the schema in words",
				"images are refused", "reasoning is sent back within a turn", "the window is 4096 tokens",
			},
		},
		"the other way": {
			model: "o3-mini", facts: `{"reasoning_effort":"refused","temperature":true,"images":true}`,
			want: []string{"temperature is sent", "reasoning_effort is not sent", "images are sent"},
		},
		"quirks": {
			model: "m", facts: `{"stream_options":false,"strict_schemas":false,"name_limit":32,"parallel_calls":false,"tools_needed_on_last_step":true,
				"tool_choice_none":false,"call_ids":"duplicate"}`,
			want: []string{
				"stream_options is not sent", "schemas are not called strict", "names of tools have at most 32 characters", "one call at a time is asked for",
				"the list of tools is sent on the last step, too", "tool_choice is not sent", "ids of calls are passed over",
			},
		},
		"an adapter without facts": {dialect: "gemini", model: "m", facts: `{"window":4096}`},
	} {
		facts, err := provider.ReadFacts(json.RawMessage(c.facts))
		if err != nil {
			t.Fatal(err)
		}
		r := provider.ProbeReport{Dialect: c.dialect, Model: c.model, Facts: facts}
		if diff := cmp.Diff(c.want, r.Changes()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"reasoning_effort", "tools", "window"}, provider.Facts{Window: 4096, Tools: new(bool), ReasoningEffort: "low"}.Known()); diff != "" {
		t.Errorf("known (-want +got):\n%s", diff)
	}
}
