package provider

import (
	"encoding/json"
	"slices"

	"hob"
)

// sealedCalls is the artefact of an answer whose tool calls bear extra_content: Google's servers, and gateways to them, put
// the signature of a call there when they speak OpenAI's dialect, and refuse the call without it. The list is in the order
// of the calls, null where a call has none.
type sealedCalls struct {
	Extra []json.RawMessage `json:"extra_content"`
}

// sealed is what the calls bear, nil where none bears anything.
func (a *assembler) sealed() json.RawMessage {
	if !slices.ContainsFunc(a.calls, func(c *pendingCall) bool { return present(c.extra) }) {
		return nil
	}
	var s sealedCalls
	for _, c := range a.calls {
		if c.stands() {
			s.Extra = append(s.Extra, c.extra)
		}
	}
	out, err := json.Marshal(s)
	if err != nil {
		return nil // every extra was decoded as JSON
	}
	return out
}

// readSealed reads the artefact of a message, for calls calls; nil where it is of another kind.
func readSealed(t *hob.Reasoning, calls int) []json.RawMessage {
	if len(t.Artefact) == 0 || t.Artefact[0] != '{' {
		return nil
	}
	var s sealedCalls
	if json.Unmarshal(t.Artefact, &s) != nil || len(s.Extra) > calls {
		return nil
	}
	return s.Extra
}
