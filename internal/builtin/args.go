package builtin

import (
	"encoding/json"

	"hob"
)

// maxEcho bounds what an error repeats of an argument, in characters.
const maxEcho = 64

// decode reads a call's arguments; none count as {}. The error is Invalid and names the argument.
func decode(args json.RawMessage, into any) error {
	if len(args) == 0 {
		return nil
	}
	if err := json.Unmarshal(args, into); err != nil {
		return hob.FieldError("", err)
	}
	return nil
}

// shorten cuts what an error repeats.
func shorten(s string) string {
	if s, more := cut(s, maxEcho); more {
		return s + "…"
	}
	return s
}
