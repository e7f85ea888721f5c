package fakeai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// chatState walks through the messages of a request.
type chatState struct {
	p    *Parsed
	open []string        // calls without an answer
	seen map[string]bool // ids of all calls
}

func checkChatMessages(b *chatBody, p *Parsed) error {
	if len(b.Messages) == 0 {
		return invalid("messages", "Invalid 'messages': empty array. Expected an array with minimum length 1.")
	}
	s := &chatState{p: p, seen: map[string]bool{}}
	for i, m := range b.Messages {
		at := fmt.Sprintf("messages.[%d]", i)
		if m.Role != "tool" && len(s.open) > 0 {
			return s.unanswered(at)
		}
		var err error
		switch m.Role {
		case "system", "developer":
			err = s.system(at, m)
		case "user":
			err = s.user(at, m)
		case "assistant":
			err = s.assistant(at, m)
		case "tool":
			err = s.tool(at, m)
		default:
			err = invalid(at+".role", "Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'tool', and 'developer'.", m.Role)
		}
		if err != nil {
			return err
		}
	}
	if len(s.open) > 0 {
		return s.unanswered("messages")
	}
	return nil
}

func (s *chatState) unanswered(at string) error {
	return invalid(at+".role", "An assistant message with 'tool_calls' must be followed by tool messages responding to each "+
		"'tool_call_id'. The following tool_call_ids did not have response messages: %s", strings.Join(s.open, ", "))
}

// content reads a content that must be there: a text, or a list of parts.
func content(at string, raw json.RawMessage, images bool) (text string, pictures int, err error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return "", 0, invalid(at+".content", "Invalid value for 'content': expected a string, got null.")
	}
	if raw[0] == '"' {
		err = json.Unmarshal(raw, &text)
		return text, 0, err
	}
	var parts []struct {
		Type  string  `json:"type"`
		Text  *string `json:"text"`
		Image *struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if json.Unmarshal(raw, &parts) != nil || len(parts) == 0 {
		return "", 0, invalid(at+".content", "Invalid 'content': expected a string or an array with minimum length 1.")
	}
	for i, part := range parts {
		switch {
		case part.Type == "text" && part.Text != nil && *part.Text != "":
			text += *part.Text
		case part.Type == "image_url" && images && part.Image != nil && imageAddress(part.Image.URL):
			pictures++
		default:
			return "", 0, invalid(fmt.Sprintf("%s.content[%d]", at, i), "Invalid content part of type '%s'.", part.Type)
		}
	}
	return text, pictures, nil
}

func imageAddress(u string) bool {
	return strings.HasPrefix(u, "https://") || strings.HasPrefix(u, "http://") ||
		strings.HasPrefix(u, "data:image/") && strings.Contains(u, ";base64,")
}

func (s *chatState) system(at string, m chatMessage) error {
	text, _, err := content(at, m.Content, false)
	if err != nil {
		return err
	}
	if text == "" {
		return invalid(at+".content", "Invalid '%s.content': empty string.", at)
	}
	s.p.System = strings.TrimPrefix(s.p.System+"\n\n"+text, "\n\n")
	return nil
}

func (s *chatState) user(at string, m chatMessage) error {
	text, images, err := content(at, m.Content, true)
	if err != nil {
		return err
	}
	if text == "" && images == 0 {
		return invalid(at+".content", "Invalid '%s.content': empty string.", at)
	}
	s.p.Messages = append(s.p.Messages, Message{Role: "user", Text: text, Images: images})
	return nil
}

func (s *chatState) assistant(at string, m chatMessage) error {
	out := Message{Role: "assistant"}
	if raw := bytes.TrimSpace(m.Content); len(raw) > 0 && string(raw) != "null" {
		text, _, err := content(at, m.Content, false)
		if err != nil {
			return err
		}
		out.Text = text
	}
	if out.Text == "" && len(m.ToolCalls) == 0 {
		return invalid(at+".content", "Invalid value for 'content': an assistant message needs content or tool_calls.")
	}
	for i, c := range m.ToolCalls {
		call := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		var args string
		switch {
		case c.ID == "":
			return invalid(call+".id", "Missing required parameter: '%s.id'.", call)
		case s.seen[c.ID]:
			return invalid(call+".id", "Duplicate value for 'tool_call_id' of '%s'.", c.ID)
		case c.Type != "function":
			return invalid(call+".type", "Missing required parameter: '%s.type'.", call)
		case !toolName.MatchString(c.Function.Name):
			return invalid(call+".function.name", "Invalid '%s.function.name': string does not match pattern.", call)
		case json.Unmarshal(c.Function.Arguments, &args) != nil:
			return invalid(call+".function.arguments", "Invalid type for '%s.function.arguments': expected a string.", call)
		case !object([]byte(args)):
			return invalid(call+".function.arguments", "Invalid '%s.function.arguments': it is no JSON object.", call)
		}
		s.seen[c.ID] = true
		s.open = append(s.open, c.ID)
		out.Calls = append(out.Calls, Call{c.ID, c.Function.Name, args})
	}
	s.p.Messages = append(s.p.Messages, out)
	return nil
}

func object(b []byte) bool {
	b = bytes.TrimSpace(b)
	return len(b) > 0 && b[0] == '{' && json.Valid(b)
}

func (s *chatState) tool(at string, m chatMessage) error {
	i := slices.Index(s.open, m.ToolCallID)
	if i < 0 {
		return invalid(at+".role", "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")
	}
	text, _, err := content(at, m.Content, false)
	if err != nil {
		return err
	}
	s.open = slices.Delete(s.open, i, i+1)
	s.p.Messages = append(s.p.Messages, Message{Role: "tool", Text: text, CallID: m.ToolCallID})
	return nil
}
