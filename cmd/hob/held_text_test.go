package main

import (
	"strings"
	"testing"

	"hob"
	"hob/client"
)

func TestHeldLine_TellsWhatAPersonJudgesBy(t *testing.T) {
	t.Parallel()
	for want, run := range map[string]client.HeldRun{
		"agent Ada (a-1), session s, turn 2, since ":       {Agent: "a-1", AgentName: "Ada", Session: "s", Turn: 2},
		"run_1  cancelling, agent a-1, ":                   {ID: "run_1", Agent: "a-1", CancelRequested: true},
		"; it called no tool":                              {},
		"its last call: mail, under way: it may have been": {LastCall: &client.HeldCall{Tool: "mail", Status: hob.CallIntent}},
		"its last call: mail, whose outcome is unknown":    {LastCall: &client.HeldCall{Tool: "mail", Status: hob.CallDone, IsError: true, OutcomeUnknown: true}},
		"its last call: mail, which failed":                {LastCall: &client.HeldCall{Tool: "mail", Status: hob.CallDone, IsError: true}},
		"its last call: mail, which succeeded":             {LastCall: &client.HeldCall{Tool: "mail", Status: hob.CallDone}},
		"its last call: mail, not made yet":                {LastCall: &client.HeldCall{Tool: "mail", Status: hob.CallPlanned}},
		"; last seen 1970-01-01T00:00:01Z":                 {LastEvent: &client.HeldEvent{At: hob.FromMicros(1_000_000)}},
		"agent [2Jred (a), session ":                       {Agent: "a", AgentName: "\x1b[2Jred"},
	} {
		if got := heldLine(run); !strings.Contains(got, want) {
			t.Errorf("%q, want %q in it", got, want)
		}
	}
}
