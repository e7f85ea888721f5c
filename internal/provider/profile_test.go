package provider

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hob"
)

func TestReadFacts_NamesTheFactThatIsWrong(t *testing.T) {
	t.Parallel()
	for raw, field := range map[string]string{
		`{"deltas":"odd"}`: "deltas", `{"call_ids":"x"}`: "call_ids", `{"usage":"x"}`: "usage", `{"reasoning_echo":"x"}`: "reasoning_echo",
		`{"response_format":"x"}`: "response_format", `{"system_role":"tool"}`: "system_role", `{"max_tokens_field":"x"}`: "max_tokens_field",
		`{"name_limit":15}`: "name_limit", `{"name_limit":1025}`: "name_limit", `{"window":511}`: "window", `{"window":-1}`: "window",
		`{"window":100000001}`: "window", `{"reasoning_effort":"high"}`: "reasoning_effort",
	} {
		_, err := ReadFacts(json.RawMessage(raw))
		var e *hob.Error
		if !errors.As(err, &e) || e.Kind != hob.Invalid || e.Details["field"] != "facts."+field || !strings.Contains(e.Message, field) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for _, raw := range []string{``, `[]`, `{"images":"yes"}`, `{"window":"big"}`} {
		if _, err := ReadFacts(json.RawMessage(raw)); hob.KindOf(err) != hob.Invalid {
			t.Errorf("%s: %v", raw, err)
		}
	}
	f, err := ReadFacts(json.RawMessage(`{"name_limit":16,"window":512,"deltas":"whole","later_version":[1],"images":null}`))
	if err != nil || f.NameLimit != 16 || f.Window != 512 || f.Deltas != deltasWhole || f.Images != nil {
		t.Errorf("got %+v, %v", f, err)
	}
}

func TestFacts_OverrideTheTableOnlyWhereTheyAreKnown(t *testing.T) {
	t.Parallel()
	table := familyOf("gpt-5")
	if got := (&Facts{}).over(table); got != table {
		t.Errorf("facts of nothing changed %+v to %+v", table, got)
	}
	f := Facts{
		MaxTokensField: fieldMaxTokens, Temperature: yes(), SystemRole: "user", ResponseFormat: factNone, Images: no(), Window: 1000,
		ReasoningEcho: echoNeeded, StreamOptions: no(), StrictSchemas: no(), NameLimit: 20, ParallelCalls: no(),
		ToolsNeededOnLastStep: yes(), ToolChoiceNone: no(), CallIDs: idsDuplicate, Reasoning: reasoningPlain,
		ReasoningEffort: string(hob.EffortLow),
	}
	got := f.over(table)
	if got.completionTokens || got.noTemperature || got.system != "user" || got.form != formWords || !got.textOnly || got.window != 1000 || !got.echo ||
		got.effort != effortClassic {
		t.Errorf("got %+v", got)
	}
	if got.quirks != (quirks{noStreamOptions: true, noStrict: true, nameLimit: 20, oneCall: true, toolsOnLast: true, noToolChoice: true, echoPlain: true, sameIDs: true}) {
		t.Errorf("quirks %+v", got.quirks)
	}
	f.ParallelField = no()
	if f.over(table).quirks.oneCall {
		t.Error("a field that is refused would be sent")
	}
}

func TestProfileEndpoint_IsTheSameForAllSpellings(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://Host.example/v1/": "https://host.example", "https://host.example": "https://host.example",
		" HTTPS://host.example:443/v1": "https://host.example", "http://host:80/v1": "http://host", "http://host:8000/v1": "http://host:8000",
		"https://u:p@host/api/v1": "https://host/api", "https://host/v1beta": "https://host", "https://host/v2": "https://host/v2",
		"here": "here", "": "",
	} {
		if got := ProfileEndpoint(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestProfiles_AreKeptAndOutliveAFailure(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	var reads atomic.Int32
	var fail atomic.Bool
	window := 1_000
	p := newProfiles(Config{Profiles: func(context.Context) ([]hob.ModelProfile, error) {
		reads.Add(1)
		if fail.Load() {
			return nil, errors.New("no store")
		}
		facts, _ := json.Marshal(Facts{Window: window})
		return []hob.ModelProfile{
			{Endpoint: "https://host/v1", Model: "m", Facts: facts}, {Endpoint: "https://host/v1", Model: "wrong", Facts: json.RawMessage(`{"window":1}`)},
		}, nil
	}}, clock.now)
	of := func(model string) int {
		p.refresh(t.Context())
		return p.family("https://host", model).window
	}
	if of("m") != 1_000 || of("wrong") != DefaultWindow || of("other") != DefaultWindow {
		t.Errorf("windows %d, %d, %d", of("m"), of("wrong"), of("other"))
	}
	if p.family("https://elsewhere", "m").window != DefaultWindow {
		t.Error("a profile counts at another endpoint")
	}
	window = 2_000
	if of("m") != 1_000 || reads.Load() != 1 {
		t.Errorf("read %d times at once", reads.Load())
	}
	clock.forward(profilesKept + time.Second)
	if of("m") != 2_000 || reads.Load() != 2 {
		t.Errorf("window %d after %d reads", of("m"), reads.Load())
	}
	fail.Store(true)
	clock.forward(profilesKept + time.Second)
	if first, second := of("m"), of("m"); first != 2_000 || second != 2_000 || reads.Load() != 3 {
		t.Errorf("after a failure windows %d and %d, %d reads", first, second, reads.Load())
	}
	fail.Store(false)
	window = 3_000
	clock.forward(profilesAgain + time.Second)
	if of("m") != 3_000 {
		t.Error("a failure is not made good soon")
	}
	var none *profiles
	none.refresh(t.Context())
	if none.family("https://host", "m").window != DefaultWindow {
		t.Error("without profiles the table does not hold")
	}
}

// renderedWith is what an adapter sends of a request under facts.
func renderedWith(t *testing.T, dialect, model string, facts Facts, r hob.Request) string {
	t.Helper()
	r.Model = model
	f := facts.over(familyOf(model))
	n := newNames(r, f.takesName)
	form, err := readForm(dialect, r.ResponseFormat)
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	if dialect == anthropicName {
		body, _ = (&messages{caller: caller{name: dialect}}).render(r, f, n, form)
	} else {
		body, _ = (&chat{caller: caller{name: dialect}, style: chatStyle{details: true}}).render(r, f, n, form)
	}
	if !json.Valid(body) {
		t.Errorf("the request is no JSON: %s", body)
	}
	return string(body)
}

func TestFacts_ChangeWhatIsSent(t *testing.T) {
	t.Parallel()
	temperature := 0.5
	call := hob.Message{
		Role: hob.RoleAssistant, Calls: []hob.ToolCall{{ID: "a", Name: "weather", Arguments: json.RawMessage(`{}`)}},
		Reasoning: &hob.Reasoning{Provider: openaiName, Text: "hm", Artefact: json.RawMessage(`[{"type":"reasoning.text"}]`)},
	}
	plain := hob.Request{
		Temperature: &temperature, MaxTokens: 9, System: "Be brief.",
		Tools:    []hob.ToolSpec{{Name: "weather"}, {Name: "a_tool_with_quite_a_long_name"}},
		Messages: []hob.Message{{Role: hob.RoleUser, Content: "hi"}, call, {Role: hob.RoleTool, CallID: "a", Name: "weather", Content: "rain"}},
	}
	last := plain
	last.NoToolUse = true
	for name, c := range map[string]struct {
		dialect, model string
		facts          Facts
		r              hob.Request
		has, lacks     []string
	}{
		"chat, none": {
			openaiName, "m", Facts{}, plain, []string{
				`"stream_options":{"include_usage":true}`, `"max_tokens":9`, `"temperature":0.5`, `"role":"system"`,
				"reasoning_details", "a_tool_with_quite_a_long_name",
			}, []string{"tool_choice", "parallel_tool_calls", "reasoning_content"},
		},
		"chat, all": {
			openaiName, "m", Facts{
				StreamOptions: no(), MaxTokensField: fieldCompletion, Temperature: no(), SystemRole: roleDeveloper, NameLimit: 20,
				ParallelCalls: no(), ReasoningEcho: echoNeeded,
			}, plain, []string{
				`"max_completion_tokens":9`, `"role":"developer"`, `"parallel_tool_calls":false`, `"reasoning_content":"hm"`, "a_tool_with_",
			}, []string{"stream_options", `"max_tokens"`, "temperature", "a_tool_with_quite_a_long_name"},
		},
		"chat, another field of reasoning": {
			openaiName, "m",
			Facts{ReasoningEcho: echoNeeded, Reasoning: reasoningPlain},
			plain,
			[]string{`"reasoning":"hm"`},
			[]string{"reasoning_content"},
		},
		"chat, reasoning refused": {
			openaiName, "deepseek-reasoner", Facts{ReasoningEcho: echoRefused}, plain, nil, []string{"reasoning_content", "reasoning_details"},
		},
		"chat, parallel field unknown": {openaiName, "m", Facts{ParallelCalls: no(), ParallelField: no()}, plain, nil, []string{"parallel_tool_calls"}},
		"chat, last step":              {openaiName, "m", Facts{}, last, nil, []string{`"tools"`, "tool_choice"}},
		"chat, tools on the last step": {openaiName, "m", Facts{ToolsNeededOnLastStep: yes()}, last, []string{`"tools"`, `"tool_choice":"none"`}, nil},
		"chat, tools, no choice": {
			openaiName, "m", Facts{ToolsNeededOnLastStep: yes(), ToolChoiceNone: no()}, last, []string{`"tools"`}, []string{"tool_choice"},
		},
		"messages, none": {
			anthropicName, "claude-3-5-haiku-latest", Facts{}, last, []string{`"tool_choice":{"type":"none"}`, `"temperature":0.5`}, nil,
		},
		"messages, all": {
			anthropicName, "claude-3-5-haiku-latest",
			Facts{ToolChoiceNone: no(), Temperature: no(), NameLimit: 20},
			last,
			[]string{"a_tool_with_"},
			[]string{"tool_choice", "temperature", "a_tool_with_quite_a_long_name"},
		},
		"messages, one call": {
			anthropicName, "claude-3-5-haiku-latest", Facts{ParallelCalls: no()}, plain, []string{`"disable_parallel_tool_use":true`}, nil,
		},
	} {
		body := renderedWith(t, c.dialect, c.model, c.facts, c.r)
		for _, part := range c.has {
			if !strings.Contains(body, part) {
				t.Errorf("%s: the request lacks %s\n%s", name, part, body)
			}
		}
		for _, part := range c.lacks {
			if strings.Contains(body, part) {
				t.Errorf("%s: the request has %s\n%s", name, part, body)
			}
		}
	}
}
