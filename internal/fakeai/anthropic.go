package fakeai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

type messagesBody struct {
	Model       string            `json:"model"`
	MaxTokens   *int              `json:"max_tokens"`
	System      json.RawMessage   `json:"system"`
	Messages    []messagesMessage `json:"messages"`
	Tools       []messagesTool    `json:"tools"`
	ToolChoice  *messagesChoice   `json:"tool_choice"`
	Stream      bool              `json:"stream"`
	Temperature *float64          `json:"temperature"`
	Thinking    *messagesThinking `json:"thinking"`
	Output      json.RawMessage   `json:"output_config"`
}

type messagesMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type messagesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	MaxUses     *int            `json:"max_uses"`
	Allowed     []string        `json:"allowed_domains"`
	Blocked     []string        `json:"blocked_domains"`
}

type messagesChoice struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

type messagesThinking struct {
	Type   string `json:"type"`
	Budget int    `json:"budget_tokens"`
}

type messagesBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Thinking  *string         `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	Source    *struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
		URL       string `json:"url"`
	} `json:"source"`
}

var messagesMembers = []string{
	"model", "max_tokens", "system", "messages", "tools", "tool_choice", "stream", "temperature",
	"thinking", "output_config", "metadata", "stop_sequences", "top_p", "top_k",
}

func (s *Server) messagesVoice() voice {
	return voice{
		parse: s.parseMessages, refuse: writeAnthropicError, events: messagesEvents, answer: messagesAnswer,
		words: func(r Reply) fault { return fault{Message: r.Message, Type: r.Type} },
		event: func(f fault) []byte { return named("error", anthropicError(f)) },
		window: func(tokens, most int) fault {
			return invalid("", "prompt is too long: %d tokens > %d maximum", tokens, most)
		},
	}
}

func (s *Server) parseMessages(w http.ResponseWriter, r *http.Request) (Parsed, error) {
	switch key := r.Header.Get("X-Api-Key"); {
	case s.opts.Key == "" || key == s.opts.Key:
	case key == "":
		return Parsed{}, fault{Status: http.StatusUnauthorized, Type: "authentication_error", Message: "x-api-key header is required"}
	default:
		return Parsed{}, fault{Status: http.StatusUnauthorized, Type: "authentication_error", Message: "invalid x-api-key"}
	}
	if r.Header.Get("Anthropic-Version") == "" {
		return Parsed{}, invalid("", "anthropic-version: header is required")
	}
	raw, err := readBody(w, r)
	if err != nil {
		return Parsed{}, err
	}
	var b messagesBody
	if err := s.decode(raw, messagesMembers, &b); err != nil {
		return Parsed{}, err
	}
	if err := s.knownModel(b.Model); err != nil {
		return Parsed{}, err
	}
	if b.MaxTokens == nil || *b.MaxTokens < 1 {
		return Parsed{}, invalid("", "max_tokens: Field required")
	}
	p := Parsed{
		Dialect: Anthropic, Model: b.Model, Stream: b.Stream, IncludeUsage: true, MaxTokens: *b.MaxTokens,
		Header: r.Header.Clone(), Body: raw,
	}
	for _, check := range []func(*messagesBody, *Parsed) error{checkSystem, checkMessagesTools, checkTurns, checkThinking, checkOutputConfig} {
		if err := check(&b, &p); err != nil {
			return Parsed{}, err
		}
	}
	return p, nil
}

func checkSystem(b *messagesBody, p *Parsed) error {
	raw := bytes.TrimSpace(b.System)
	if len(raw) == 0 {
		return nil
	}
	if raw[0] == '"' {
		return json.Unmarshal(raw, &p.System)
	}
	var blocks []messagesBlock
	if json.Unmarshal(raw, &blocks) != nil {
		return invalid("", "system: Input should be a valid string or list")
	}
	for i, block := range blocks {
		if block.Type != "text" || block.Text == "" {
			return invalid("", "system.%d: text content blocks must be non-empty", i)
		}
		p.System = strings.TrimPrefix(p.System+"\n\n"+block.Text, "\n\n")
	}
	return nil
}

func checkMessagesTools(b *messagesBody, p *Parsed) error {
	for i, t := range b.Tools {
		if t.Type == searchTool {
			if t.Name != "web_search" || strings.HasPrefix(b.Model, "claude-2") {
				return invalid("", "tools.%d: '%s' is not a valid server tool for this model", i, t.Name)
			}
			if err := checkServerSearch(i, t); err != nil {
				return err
			}
			p.Search = true
			continue
		}
		switch {
		case t.Type != "" && t.Type != "custom":
			return invalid("", "tools.%d: Input tag '%s' found using 'type' does not match any of the expected tags", i, t.Type)
		case p.Search && t.Name == "web_search":
			return invalid("", "tools: Tool names must be unique.")
		case !toolName.MatchString(t.Name):
			return invalid("", "tools.%d.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'", i)
		case slices.ContainsFunc(p.Tools, func(o Tool) bool { return o.Name == t.Name }):
			return invalid("", "tools: Tool names must be unique.")
		case len(t.InputSchema) == 0:
			return invalid("", "tools.%d.custom.input_schema: Field required", i)
		}
		if err := checkSchema(t.InputSchema); err != nil {
			return invalid("", "tools.%d.custom.input_schema: %s", i, err)
		}
		p.Tools = append(p.Tools, Tool{t.Name, t.Description, t.InputSchema})
	}
	c := b.ToolChoice
	switch {
	case c == nil:
		return nil
	case len(b.Tools) == 0:
		return invalid("", "tool_choice may only be specified while providing tools")
	case c.Type == "any":
		p.ToolChoice = "required"
	case c.Type == "tool":
		p.ToolChoice = c.Name
	case c.Type == "auto" || c.Type == "none":
		p.ToolChoice = c.Type
	default:
		return invalid("", "tool_choice: Input tag '%s' found using 'type' does not match any of the expected tags", c.Type)
	}
	return nil
}

// turnState walks through the messages of a request.
type turnState struct {
	p        *Parsed
	open     []string // calls of the last assistant message
	seen     map[string]bool
	toolUse  bool
	thinking bool   // the last assistant message with calls began with its thoughts
	served   string // the search whose result must follow
}

func checkTurns(b *messagesBody, p *Parsed) error {
	if len(b.Messages) == 0 {
		return invalid("", "messages: at least one message is required")
	}
	s := &turnState{p: p, seen: map[string]bool{}, thinking: true}
	role := "assistant"
	for i, m := range b.Messages {
		switch {
		case m.Role != "user" && m.Role != "assistant":
			return invalid("", "messages.%d.role: Input should be 'user' or 'assistant'", i)
		case i == 0 && m.Role != "user":
			return invalid("", "messages: first message must use the \"user\" role")
		case m.Role == role:
			return invalid("", "messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"%s\" roles in a row", role)
		}
		role = m.Role
		blocks, err := readBlocks(i, m.Content)
		if err != nil {
			return err
		}
		if role == "user" {
			err = s.user(i, blocks)
		} else {
			err = s.assistant(i, blocks, i == len(b.Messages)-1)
		}
		if err != nil {
			return err
		}
	}
	if len(s.open) > 0 {
		return s.unanswered(len(b.Messages) - 1)
	}
	if s.toolUse && len(p.Tools) == 0 {
		return invalid("", "Requests which include `tool_use` or `tool_result` blocks must define tools")
	}
	if b.Thinking != nil && b.Thinking.Type != "disabled" && !s.thinking {
		return invalid("", "Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final "+
			"`assistant` message must start with a thinking block")
	}
	return nil
}

func readBlocks(at int, raw json.RawMessage) ([]messagesBlock, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) > 0 && raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
		return []messagesBlock{{Type: "text", Text: text}}, nil
	}
	var blocks []messagesBlock
	if err := json.Unmarshal(raw, &blocks); err != nil || len(blocks) == 0 {
		return nil, invalid("", "messages.%d: content must be non-empty", at)
	}
	return blocks, nil
}

func (s *turnState) unanswered(at int) error {
	return invalid("", "messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` "+
		"block must have a corresponding `tool_result` block in the next message.", at, strings.Join(s.open, ", "))
}

func (s *turnState) user(at int, blocks []messagesBlock) error {
	said := Message{Role: "user"}
	spoke := false
	for i, b := range blocks {
		switch b.Type {
		case "tool_result":
			n := slices.Index(s.open, b.ToolUseID)
			if n < 0 {
				return invalid("", "messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s", at, i, b.ToolUseID)
			}
			if spoke {
				return invalid("", "messages.%d: `tool_result` blocks must come first", at)
			}
			s.open = slices.Delete(s.open, n, n+1)
			result := Message{Role: "tool", CallID: b.ToolUseID, IsError: b.IsError}
			if len(b.Content) > 0 {
				inner, err := readBlocks(at, b.Content)
				if err != nil {
					return err
				}
				for _, in := range inner {
					result.Text += in.Text
				}
			}
			s.p.Messages = append(s.p.Messages, result)
			continue
		case "text":
			if strings.TrimSpace(b.Text) == "" {
				return invalid("", "messages: text content blocks must be non-empty")
			}
			said.Text += b.Text
		case "image":
			if !b.imageOK() {
				return invalid("", "messages.%d.content.%d.image.source: invalid source", at, i)
			}
			said.Images++
		default:
			return invalid("", "messages.%d.content.%d: Input tag '%s' is not allowed in a user message", at, i, b.Type)
		}
		spoke = true
	}
	if len(s.open) > 0 {
		return s.unanswered(at)
	}
	if spoke {
		s.p.Messages = append(s.p.Messages, said)
		s.thinking = true // a new turn
	}
	return nil
}

func (b messagesBlock) imageOK() bool {
	if b.Source == nil {
		return false
	}
	return b.Source.Type == "base64" && strings.HasPrefix(b.Source.MediaType, "image/") && b.Source.Data != "" ||
		b.Source.Type == "url" && strings.HasPrefix(b.Source.URL, "http")
}

func (s *turnState) assistant(at int, blocks []messagesBlock, last bool) error {
	out := Message{Role: "assistant"}
	for i, b := range blocks {
		switch b.Type {
		case "text":
			if strings.TrimSpace(b.Text) == "" {
				return invalid("", "messages: text content blocks must be non-empty")
			}
			if last && i == len(blocks)-1 && strings.TrimRight(b.Text, " \n\t") != b.Text {
				return invalid("", "messages: final assistant content cannot end with trailing whitespace")
			}
			out.Text += b.Text
		case "server_tool_use":
			if err := s.search(at, i, b); err != nil {
				return err
			}
			continue
		case "web_search_tool_result":
			if b.ToolUseID == "" || b.ToolUseID != s.served || len(b.Content) == 0 {
				return invalid("", "messages.%d.content.%d: unexpected `tool_use_id` found in `web_search_tool_result` blocks: %s", at, i, b.ToolUseID)
			}
			s.served = ""
			out.Searches++
		case "thinking", "redacted_thinking":
			if b.Type == "thinking" && (b.Thinking == nil || b.Signature == "") || b.Type == "redacted_thinking" && b.Data == "" {
				return invalid("", "messages.%d.content.%d.%s.signature: Field required", at, i, b.Type)
			}
			out.Thoughts++
		case "tool_use":
			switch {
			case !toolName.MatchString(b.ID):
				return invalid("", "messages.%d.content.%d.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", at, i)
			case s.seen[b.ID]:
				return invalid("", "messages: `tool_use` ids must be unique")
			case !toolName.MatchString(b.Name):
				return invalid("", "messages.%d.content.%d.tool_use.name: invalid", at, i)
			case !object(b.Input):
				return invalid("", "messages.%d.content.%d.tool_use.input: Input should be a valid dictionary", at, i)
			}
			s.seen[b.ID], s.toolUse = true, true
			s.open = append(s.open, b.ID)
			out.Calls = append(out.Calls, Call{b.ID, b.Name, string(b.Input)})
		default:
			return invalid("", "messages.%d.content.%d: Input tag '%s' is not allowed in an assistant message", at, i, b.Type)
		}
		if s.served != "" {
			return invalid("", "messages.%d: `web_search` tool use with id `%s` was found without a corresponding `web_search_tool_result` block", at, s.served)
		}
	}
	if s.served != "" && !last { // a turn that paused may end so
		return invalid("", "messages.%d: `web_search` tool use with id `%s` was found without a corresponding `web_search_tool_result` block", at, s.served)
	}
	if len(out.Calls) > 0 {
		s.thinking = strings.HasSuffix(blocks[0].Type, "thinking")
	}
	s.p.Messages = append(s.p.Messages, out)
	return nil
}

// adaptiveOnly are the models that refuse a thinking budget.
func adaptiveOnly(model string) bool {
	return strings.HasPrefix(model, "claude-opus-4-7") || strings.HasPrefix(model, "claude-opus-4-8") ||
		strings.HasPrefix(model, "claude-opus-5") || strings.HasPrefix(model, "claude-sonnet-5")
}

const minThinkingBudget = 1_024

func checkThinking(b *messagesBody, p *Parsed) error {
	if b.Temperature != nil {
		switch {
		case *b.Temperature < 0 || *b.Temperature > 1:
			return invalid("", "temperature: range: 0..1")
		case adaptiveOnly(b.Model):
			return invalid("", "`temperature` is not supported for this model")
		case b.Thinking != nil && b.Thinking.Type != "disabled" && *b.Temperature != 1:
			return invalid("", "`temperature` may only be set to 1 when thinking is enabled.")
		}
	}
	if b.Thinking == nil {
		return nil
	}
	switch t := b.Thinking; {
	case t.Type == "adaptive" && t.Budget == 0:
	case t.Type == "enabled" && adaptiveOnly(b.Model):
		return invalid("", "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\"")
	case t.Type == "enabled" && t.Budget < minThinkingBudget:
		return invalid("", "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
	case t.Type == "enabled" && t.Budget >= p.MaxTokens:
		return invalid("", "`max_tokens` must be greater than `thinking.budget_tokens`.")
	case t.Type == "enabled" || t.Type == "disabled":
	default:
		return invalid("", "thinking: Input tag '%s' is not expected", t.Type)
	}
	if p.ToolChoice == "required" {
		return invalid("", "Thinking may not be enabled when tool_choice forces tool use.")
	}
	return nil
}
