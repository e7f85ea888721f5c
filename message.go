package hob

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Role says whose turn a message is.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one turn of a conversation as it is stored. A stored history is valid for every provider: an assistant
// message with calls is followed by exactly one tool message per call, in call order; no message is empty; all text is
// valid UTF-8; arguments are JSON objects. Providers render it to their own form and mend nothing.
type Message struct {
	Role      Role       `json:"role"`
	Content   string     `json:"content"`
	Parts     []Part     `json:"parts,omitempty"`        // user messages with more than text: the whole content, in order
	Calls     []ToolCall `json:"tool_calls,omitempty"`   // assistant
	CallID    CallID     `json:"tool_call_id,omitempty"` // tool: which call this answers
	Name      string     `json:"name,omitempty"`         // tool: the tool's name
	IsError   bool       `json:"is_error,omitempty"`     // tool: the call failed
	Reasoning *Reasoning `json:"reasoning,omitempty"`    // assistant
}

// PartType is a kind of content.
type PartType string

// The kinds of content.
const (
	TextPart  PartType = "text"
	ImagePart PartType = "image"
)

// Part is a piece of a message's content.
type Part struct {
	Type      PartType `json:"type"`
	Text      string   `json:"text,omitempty"`
	URL       string   `json:"url,omitempty"`        // image: https: or data: address
	MediaType string   `json:"media_type,omitempty"` // image with Data
	Data      []byte   `json:"data,omitempty"`       // image: its bytes
}

// ToolCall is a call the model asked for.
type ToolCall struct {
	ID        CallID          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // a JSON object, always valid; {} where the model's text was not
	// Bad holds the model's argument text when it was no JSON object; the call is then answered with an error.
	Bad string `json:"bad_arguments,omitempty"`
}

// Reasoning is what the model thought aloud, and the signed artefact that its provider wants back with the message.
type Reasoning struct {
	Provider string          `json:"provider,omitempty"` // artefacts are sent back to this provider only
	Text     string          `json:"text,omitempty"`
	Artefact json.RawMessage `json:"artefact,omitempty"` // in the provider's own form
}

// Text returns the message's text: its content, or the text parts joined by newlines.
func (m Message) Text() string {
	if len(m.Parts) == 0 {
		return m.Content
	}
	var texts []string
	for _, p := range m.Parts {
		if p.Type == TextPart {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// Chars is the length of a message for budgets: the characters of its text, and the bytes of its calls.
func (m Message) Chars() int {
	n := utf8.RuneCountInString(m.Text())
	for _, c := range m.Calls {
		n += len(c.Name) + len(c.Arguments)
	}
	return n
}

// Validate reports the first rule of the message model that a history breaks, as an Invalid error.
func Validate(history []Message) error {
	var open []ToolCall
	for i, m := range history {
		if !utf8.ValidString(m.Content) {
			return Errorf(Invalid, "message %d is not valid UTF-8", i)
		}
		if len(open) > 0 && (m.Role != RoleTool || m.CallID != open[0].ID) {
			return Errorf(Invalid, "message %d should answer the call %s", i, open[0].ID)
		}
		switch m.Role {
		case RoleTool:
			if len(open) == 0 {
				return Errorf(Invalid, "message %d answers the call %s, which is not open", i, m.CallID)
			}
			open = open[1:]
		case RoleAssistant:
			if err := validCalls(i, m); err != nil {
				return err
			}
			open = m.Calls
		case RoleUser, RoleSystem:
			if blank(m.Content) && len(m.Parts) == 0 {
				return Errorf(Invalid, "message %d is empty", i)
			}
		default:
			return Errorf(Invalid, "message %d has the unknown role %q", i, m.Role)
		}
	}
	if len(open) > 0 {
		return Errorf(Invalid, "the call %s has no result", open[0].ID)
	}
	return nil
}

// blank says whether a text has nothing but space, which providers refuse like no text at all.
func blank(s string) bool { return strings.TrimSpace(s) == "" }

func validCalls(i int, m Message) error {
	if blank(m.Content) && (m.Content != "" || len(m.Calls) == 0) {
		return Errorf(Invalid, "message %d is empty", i)
	}
	seen := map[CallID]bool{}
	for _, c := range m.Calls {
		if c.ID == "" || c.Name == "" || seen[c.ID] {
			return Errorf(Invalid, "message %d has a call without name or with an id used twice (%q)", i, c.ID)
		}
		seen[c.ID] = true
		if len(c.Arguments) == 0 || c.Arguments[0] != '{' || !json.Valid(c.Arguments) {
			return Errorf(Invalid, "the arguments of call %s are no JSON object", c.ID)
		}
	}
	return nil
}

// ParseArguments turns a model's argument text into a canonical JSON object. No text at all, and null, count as {}:
// models leave them out for tools without parameters. Anything else that is no object is an Invalid error telling why.
func ParseArguments(text string) (json.RawMessage, error) {
	if s := strings.TrimSpace(text); s == "" || s == "null" {
		return json.RawMessage("{}"), nil
	}
	args, err := Canonical([]byte(text))
	if err != nil {
		return nil, err
	}
	if args[0] != '{' {
		return nil, Errorf(Invalid, "the arguments must be a JSON object, not %s", quote(string(args)))
	}
	return args, nil
}

// Truncate keeps the first limit characters (not bytes) of s and says so behind them; limit 0 means no limit. The
// second result tells whether it cut.
func Truncate(s string, limit int) (string, bool) {
	if limit <= 0 || len(s) <= limit {
		return s, false
	}
	total := utf8.RuneCountInString(s)
	if total <= limit {
		return s, false
	}
	n := 0
	for i := range s {
		if n == limit {
			return s[:i] + "\n\n[Truncated: " + strconv.Itoa(total) + " chars total]", true
		}
		n++
	}
	return s, false
}
