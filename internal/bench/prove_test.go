//go:build linux

package main

import (
	"net/http/httptest"
	"testing"

	"hob/internal/fakeai"
)

func TestRetell_AddsUpBothFormsOfText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		lines []string
		want  told
	}{
		{"without tools the pieces are chunks", []string{
			`data: {"event":"step_started","step":1}`, "", `data: {"event":"chunk","content":"a "}`, `data: {"event":"chunk","content":"b"}`,
			`data: {"event":"complete","content":"a b"}`,
		}, told{Text: "a b", Pieces: "a b"}},
		{"with tools the last chunk repeats the deltas", []string{
			`data: {"event":"step_started","step":1}`, `data: {"event":"content_delta","delta":"let me see"}`,
			`data: {"event":"tool_result","is_error":false}`, `data: {"event":"step_started","step":2}`,
			`data: {"event":"content_delta","delta":"done"}`, `data: {"event":"chunk","content":"done"}`, `data: {"event":"complete","content":"done"}`,
		}, told{Text: "done", Pieces: "done", Tools: 1}},
	}
	for _, tt := range tests {
		if got, err := retell(tt.lines); err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
	for _, bad := range []string{`data: {"event":"tool_result","is_error":true,"result":"refused"}`, "data: {"} {
		if got, err := retell([]string{bad}); err == nil {
			t.Errorf("%s is taken: %+v", bad, got)
		}
	}
}

// The straight way of a ten-tool run is tried on the fake model and the bench's own tool.
func TestConverse_MakesAllCallsAndRepeatsThem(t *testing.T) {
	t.Parallel()
	tools, err := startTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tools.stop)
	fake := httptest.NewServer(fakeai.Bench{Tokens: textTokens, Steps: toolSteps}.Handler())
	t.Cleanup(fake.Close)
	m := &model{addr: fake.Listener.Addr().String()}
	b := &bench{clock: newClock(), tools: tools}
	turns, err := b.converse(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if len(turns) != toolSteps+1 || turns[toolSteps-1].tool == nil || turns[toolSteps].tool != nil {
		t.Fatalf("%d turns, want %d, each but the last with a tool call", len(turns), toolSteps+1)
	}
	o, err := slice{clock: b.clock, clients: 2, runs: 3, open: b.conversations(m, turns)}.load(t.Context())
	if err != nil || o.err() != nil || o.runs != 6 {
		t.Errorf("%d repeated conversations, %v, %v", o.runs, err, o.err())
	}
	said, err := answer(t.Context(), b.clock, m)
	if err != nil || said == "" {
		t.Errorf("without tools the model says %q, %v", said, err)
	}
}

// A model that asks for fewer tools than the measurement means is noticed.
func TestConverse_RefusesAShorterConversation(t *testing.T) {
	t.Parallel()
	tools, err := startTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tools.stop)
	for _, steps := range []int{toolSteps - 1, toolSteps + 1} {
		fake := httptest.NewServer(fakeai.Bench{Tokens: 1, Steps: steps}.Handler())
		t.Cleanup(fake.Close)
		b := &bench{clock: newClock(), tools: tools}
		if turns, err := b.converse(t.Context(), &model{addr: fake.Listener.Addr().String()}); err == nil {
			t.Errorf("%d tool steps are taken for ten: %d turns", steps, len(turns))
		}
	}
}
