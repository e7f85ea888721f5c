package hook

import (
	"cmp"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"hob"
)

// readAnswer reads the decision of a hook: an object with action (allow where absent, or deny), message, modified_input and
// modified_output. What else it has is ignored, and a null reads as absent, but for action.
//
// Nothing beside a clear deny can undo it: it holds whatever is wrong with the rest.
func readAnswer(body []byte) (hob.HookAnswer, error) {
	if err := hob.CheckJSON(body); err != nil {
		return hob.HookAnswer{}, failed("the hook's answer is not usable: %s", textOf(err))
	}
	var members map[string]json.RawMessage // exact names, unlike the fields of a struct
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return hob.HookAnswer{}, failed("the hook's answer is no JSON object")
	}
	var a hob.HookAnswer
	if raw, there := members["action"]; there {
		var action *string
		switch err := json.Unmarshal(raw, &action); {
		case err != nil, action == nil, *action != string(hob.HookAllow) && *action != string(hob.HookDeny):
			return hob.HookAnswer{}, failed("the hook's answer has an action that is neither allow nor deny")
		default:
			a.Deny = *action == string(hob.HookDeny)
		}
	}
	text, err := member[string](members, "message", "text")
	if text != nil {
		a.Message = shortened(*text)
	}
	object, badInput := member[map[string]json.RawMessage](members, "modified_input", "an object")
	if object != nil {
		a.ModifiedInput, _ = hob.Canonical(members["modified_input"]) // part of what was checked
	}
	var badOutput error
	a.ModifiedOutput, badOutput = member[string](members, "modified_output", "text")
	err = cmp.Or(err, badInput, badOutput)
	if err != nil && !a.Deny {
		return hob.HookAnswer{}, err
	}
	return a, nil
}

// member reads a member, nil where it is absent, null or of another kind.
func member[T any](members map[string]json.RawMessage, name, kind string) (*T, error) {
	raw, there := members[name]
	if !there {
		return nil, nil //nolint:nilnil // absent is no fault
	}
	var v *T
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, failed("the hook's answer has a %s that is not %s", name, kind)
	}
	return v, nil
}

// shortened cuts a message to what is kept of it.
func shortened(s string) string {
	if utf8.RuneCountInString(s) <= hob.MaxHookMessage {
		return s
	}
	return string([]rune(s)[:hob.MaxHookMessage-1]) + "…"
}

func textOf(err error) string {
	var e *hob.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return "it is no JSON"
}
