package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/client"
)

// Two approvals: of a call that can be edited, and of a run's start, which cannot.
const (
	asksWrite = `{"event":"approval_requested","seq":4,"run_id":"run_1","approval_id":"appr_1","hook_event":"PreToolUse","tool_name":"database_write",` +
		`"tool_input":{"sql":"DELETE FROM orders\u001b[2J"},"preview":{"rows":7},"input_digest":"d1","message":"May it?","expires_at":"2030-01-02T15:04:05Z"}`
	asksStart = `{"event":"approval_requested","seq":5,"run_id":"run_1","approval_id":"appr_2","hook_event":"OnRunStart","tool_name":"",` +
		`"tool_input":{"message":"hi"},"input_digest":"d2","message":"Begin?","expires_at":null}`
)

// sitting is a person before a decider: what is shown to it, and what it decided.
type sitting struct {
	*decider
	t     *testing.T
	shown strings.Builder
	said  []client.Decision
	fails error // what deciding meets
}

func sit(t *testing.T) *sitting {
	t.Helper()
	s := &sitting{t: t}
	s.decider = &decider{p: &printer{out: &s.shown}, person: true, decide: func(_ context.Context, run hob.RunID, d client.Decision) error {
		if run != "run_1" {
			t.Errorf("a decision about %s", run)
		}
		s.said = append(s.said, d)
		return s.fails
	}}
	return s
}

func (s *sitting) tell(events ...string) {
	s.t.Helper()
	for _, text := range events {
		var head hob.EventHead
		if err := json.Unmarshal([]byte(text), &head); err != nil {
			s.t.Fatal(err)
		}
		if err := s.event(hob.Event{Seq: head.Seq, Type: head.Event, Data: json.RawMessage(text)}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func TestDecider_TakesWhatIsTyped(t *testing.T) {
	t.Parallel()
	first := client.Decision{ApprovalID: "appr_1", Digest: "d1"}
	with := func(change func(*client.Decision)) []client.Decision {
		d := first
		change(&d)
		return []client.Decision{d}
	}
	for typed, want := range map[string][]client.Decision{
		"y":                with(func(d *client.Decision) { d.Approved = true }),
		"YES fine by me":   with(func(d *client.Decision) { d.Approved, d.Reason = true, "fine by me" }),
		"n|too much":       with(func(d *client.Decision) { d.Reason = "too much" }),
		"no too much":      with(func(d *client.Decision) { d.Reason = "too much" }),
		"|":                with(func(*client.Decision) {}),
		"perhaps|y":        with(func(d *client.Decision) { d.Approved = true }),
		"e|not JSON|e||y":  with(func(d *client.Decision) { d.Approved = true }),
		"e|[1]|n|":         with(func(*client.Decision) {}),
		`edit|{"sql":"x"}`: with(func(d *client.Decision) { d.Approved, d.ModifiedInput = true, json.RawMessage(`{"sql":"x"}`) }),
		"n":                nil, // the reason is still to come
	} {
		s := sit(t)
		s.tell(asksWrite)
		for line := range strings.SplitSeq(typed, "|") {
			if !s.wants() {
				t.Errorf("%q: nothing is asked before %q", typed, line)
			}
			s.line(t.Context(), line)
		}
		if diff := cmp.Diff(want, s.said); diff != "" {
			t.Errorf("%q (-want +got):\n%s", typed, diff)
		}
	}
}

func TestDecider_ShowsWhatIsAskedAndAsksOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := sit(t)
	s.tell(asksWrite, asksStart)
	got := s.shown.String()
	for _, text := range []string{"? database_write: May it?", "DELETE FROM orders", `would do: {"rows":7}`, "until ", "approve? y/N, e to edit the arguments: "} {
		if !strings.Contains(got, text) {
			t.Errorf("%q is not in\n%s", text, got)
		}
	}
	if strings.Contains(got, "\x1b") || strings.Contains(got, "Begin?") {
		t.Errorf("shown is %q", got)
	}
	s.line(t.Context(), "y")
	if s.wants() {
		t.Error("it asks again before the run has told what became of it")
	}
	s.tell(`{"event":"approval_resolved","seq":6,"approval_id":"appr_1","approved":true,"status":"approved"}`)
	if !strings.Contains(s.shown.String(), "? OnRunStart: Begin?") || !s.wants() {
		t.Errorf("the second is not asked about:\n%s", s.shown.String())
	}
	s.line(t.Context(), "e")
	if !strings.Contains(s.shown.String(), "only the arguments of a tool call can be edited") || !s.wants() {
		t.Errorf("a start was to be edited:\n%s", s.shown.String())
	}
	s.tell(`{"event":"approval_resolved","seq":7,"approval_id":"appr_2","approved":false,"status":"denied","by":"user:boss"}`)
	if s.wants() || len(s.said) != 1 {
		t.Errorf("what somebody else decided is still asked about; said: %+v", s.said)
	}
	s.tell(asksWrite, `{"event":"complete","seq":9}`)
	if s.wants() {
		t.Error("it asks behind the end")
	}
}

func TestDecider_LeavesItToOthersWhereItMust(t *testing.T) {
	t.Parallel()
	const hint = "hob approvals approve appr_1   or: hob approvals deny appr_1"
	nobody := sit(t)
	nobody.person = false
	nobody.tell(asksWrite)
	left := sit(t)
	left.tell(asksWrite)
	left.gone()
	forbidden := sit(t)
	forbidden.fails = hob.Errorf(hob.Forbidden, "this needs somebody else").WithCode("four_eyes")
	forbidden.tell(asksWrite)
	forbidden.line(t.Context(), "y")
	for name, s := range map[string]*sitting{"nobody is there": nobody, "the input ended": left, "it may not": forbidden} {
		if !strings.Contains(s.shown.String(), hint) || s.wants() {
			t.Errorf("%s: it waits: %t, and shows\n%s", name, s.wants(), s.shown.String())
		}
	}
	if !strings.Contains(forbidden.shown.String(), "somebody else") {
		t.Errorf("the reason is not told:\n%s", forbidden.shown.String())
	}
	wrong := sit(t)
	wrong.fails = hob.Errorf(hob.Invalid, "modified_input does not fit")
	wrong.tell(asksWrite)
	wrong.line(t.Context(), "e")
	wrong.line(t.Context(), `{"sql":7}`)
	if !strings.Contains(wrong.shown.String(), "does not fit") || !wrong.wants() {
		t.Errorf("arguments that do not fit: %s", wrong.shown.String())
	}
	late := sit(t)
	late.fails = hob.Errorf(hob.Conflict, "it is decided").WithCode("approval_decided")
	late.tell(asksWrite)
	late.line(t.Context(), "y")
	if late.wants() || strings.Contains(late.shown.String(), hint) {
		t.Errorf("one that is decided: %s", late.shown.String())
	}
	quiet := &decider{}
	if err := quiet.event(hob.Event{Type: hob.EventApprovalRequested, Data: json.RawMessage(asksWrite)}); err != nil || quiet.wants() {
		t.Errorf("where programs read: %v, %t", err, quiet.wants())
	}
}

func TestPrinter_ShowsWhatHooksAndPeopleDecided(t *testing.T) {
	t.Parallel()
	got := show(t, `
{"event":"hook_result","seq":1,"source":"hook","hook_type":"http","hook_event":"PreToolUse","action":"allow","status":"succeeded","message":"silent"}
{"event":"hook_result","seq":2,"source":"tool_rule","hook_type":"rule","hook_event":"PreToolUse","tool_name":"clock","action":"deny","status":"succeeded","blocked":true,"message":"not \u001b[31mthere"}
{"event":"hook_result","seq":3,"source":"hook","hook_type":"http","hook_event":"PreToolUse","status":"succeeded","modified":true,"modified_input":{"zone":"CET"}}
{"event":"hook_result","seq":4,"source":"hook","hook_type":"http","hook_event":"PostToolUse","status":"timed_out","message":"no answer in 5 s"}
{"event":"hook_result","seq":5,"source":"hook","hook_type":"approval","hook_event":"PreToolUse","status":"succeeded","blocked":true,"message":"Denied by user: no"}
{"event":"approval_resolved","seq":6,"status":"approved","approved":true,"by":"user:me","modified_input":{"zone":"UTC"}}
{"event":"approval_resolved","seq":7,"status":"denied","by":"user:boss","reason":"no"}
{"event":"approval_resolved","seq":8,"status":"expired"}`)
	want := `rule of clock blocked: not [31mthere
http hook at PreToolUse modified
    {"zone":"CET"}
http hook at PostToolUse timed out: no answer in 5 s
approved by user:me
    with {"zone":"UTC"}
denied by user:boss: no
expired: nobody decided in time
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
}
