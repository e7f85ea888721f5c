package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"hob"
	"hob/internal/api"
)

// An answer that is held back is nowhere to be read but for those who decide about it: not before, and not once it is refused.
func TestApprovals_AnAnswerThatIsHeldBackIsForTheApproversAlone(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	me := user(t, "me")
	agent := "/api/agents/" + string(w.agent("fixed"))
	as[map[string]any](t, w.do(ask{"PATCH", agent, w.service, `{"settings":{"response_buffering":"hold"}}`, nil}), 200)
	as[map[string]any](t, w.do(ask{
		"POST", agent + "/hooks", w.service,
		`{"event":"PreResponse","type":"approval","config":{"approvers":["admins"]}}`, nil,
	}), 201)
	answer := w.do(ask{"POST", agent + "/run", me, `{"message":"hi","response_buffering":"stream"}`, nil})
	r := as[hob.RunResult](t, answer, 200)
	if r.Status != hob.AwaitingApproval || len(r.Approvals) != 1 {
		t.Fatalf("the run is %+v", r)
	}
	a := as[hob.Approval](t, w.do(ask{"GET", "/api/approvals/" + r.Approvals[0].ApprovalID, w.service, "", nil}), 200)
	if a.Output == "" {
		t.Fatalf("who decides sees %+v", a)
	}
	word := strings.Fields(a.Output)[0] // of one piece, and as it is in JSON
	unseen := func(when string) {
		t.Helper()
		for _, path := range []string{
			"/api/agents/runs/" + string(r.RunID), "/api/sessions/" + string(r.SessionID) + "/runs", "/api/sessions/" + string(r.SessionID) + "/messages",
			"/api/agents/runs/" + string(r.RunID) + "/approvals", "/api/approvals", "/api/approvals/" + a.ApprovalID,
		} {
			if got := w.do(ask{"GET", path, me, "", nil}); got.status != 200 || strings.Contains(string(got.body), word) {
				t.Errorf("%s, GET %s: %d %s", when, path, got.status, got.body)
			}
		}
	}
	if strings.Contains(string(answer.body), word) {
		t.Errorf("the answer tells: %s", answer.body)
	}
	unseen("while it waits")
	as[map[string]any](t, w.decide(r.RunID, w.service, `{"approved":false}`), 200)
	if rec := w.ended(r.RunID, me); rec.Content != "[Response blocked: Denied by user]" {
		t.Errorf("the run ended with %q", rec.Content)
	}
	unseen("once it is refused")
	if got := w.do(ask{"GET", "/api/agents/runs/" + string(r.RunID) + "/events", me, "", nil}); strings.Contains(string(got.body), word) {
		t.Errorf("the stream told: %s", got.body)
	}
}

// Until a run is final its record tells the steps before the answer, but neither the answer nor what was thought for it.
func TestRecord_AnAnswerIsNoneBeforeTheRunIsFinal(t *testing.T) {
	t.Parallel()
	thought := func(step int, text string) hob.Event {
		data, err := json.Marshal(hob.ReasoningEvent{Step: step, Content: text})
		if err != nil {
			t.Fatal(err)
		}
		return hob.Event{Type: hob.EventReasoning, Data: data}
	}
	d := hob.RunDetail{
		Messages: []hob.Message{
			{Role: hob.RoleUser, Content: "hi"},
			{Role: hob.RoleAssistant, Content: "let me see", Calls: []hob.ToolCall{{ID: "c", Name: "clock"}}},
			{Role: hob.RoleTool, Content: "12:00", CallID: "c"},
			{Role: hob.RoleAssistant, Content: "noon", Reasoning: &hob.Reasoning{Text: "midday"}},
		},
		Calls:  []hob.CallState{{ID: "c", Step: 1, Name: "clock"}},
		Events: []hob.Event{thought(1, "the clock knows"), thought(2, "midday")},
	}
	for status, want := range map[hob.Status]string{
		hob.Running: "[let me see 12:00] [the clock knows]", hob.AwaitingApproval: "[let me see 12:00] [the clock knows]",
		hob.Completed: "[let me see 12:00 noon] [the clock knows midday]",
	} {
		d.Run.Status = status
		rec := api.Record(d)
		said, thoughts := []string{}, []string{}
		for _, m := range rec.OutputMessages {
			said = append(said, m.Content)
		}
		for _, s := range rec.ReasoningSteps {
			thoughts = append(thoughts, s.Content)
		}
		if got := fmt.Sprint(said, " ", thoughts); got != want {
			t.Errorf("%s: %s, want %s", status, got, want)
		}
	}
}
