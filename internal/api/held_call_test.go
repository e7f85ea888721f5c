package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func TestHeld_TheLastCallIsTheLastThatWasBegun(t *testing.T) {
	t.Parallel()
	call := func(id hob.CallID, status hob.CallStatus) hob.CallState {
		return hob.CallState{ID: id, Name: "mail", Status: status}
	}
	unknown := call("c", hob.CallDone)
	unknown.Result.IsError, unknown.Result.Unknown = true, true
	for name, test := range map[string]struct {
		calls []hob.CallState
		want  *heldCall
	}{
		"no call":                {nil, nil},
		"one under way":          {[]hob.CallState{call("a", hob.CallDone), call("b", hob.CallIntent)}, &heldCall{CallID: "b", ToolName: "mail", Status: hob.CallIntent}},
		"planned ones behind it": {[]hob.CallState{call("a", hob.CallIntent), call("b", hob.CallPlanned)}, &heldCall{CallID: "a", ToolName: "mail", Status: hob.CallIntent}},
		"nothing but planned":    {[]hob.CallState{call("a", hob.CallPlanned), call("b", hob.CallWaiting)}, &heldCall{CallID: "b", ToolName: "mail", Status: hob.CallWaiting}},
		"an unknown outcome":     {[]hob.CallState{call("a", hob.CallDone), unknown}, &heldCall{CallID: "c", ToolName: "mail", Status: hob.CallDone, IsError: true, OutcomeUnknown: true}},
	} {
		if diff := cmp.Diff(test.want, lastCall(test.calls)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
