package fakeai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// chatBody is the body of a chat completion request.
type chatBody struct {
	Model               string          `json:"model"`
	Messages            []chatMessage   `json:"messages"`
	Tools               *[]chatTool     `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	Temperature         *float64        `json:"temperature"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	ResponseFormat      json.RawMessage `json:"response_format"`
	ReasoningEffort     string          `json:"reasoning_effort"`
	WebSearchOptions    json.RawMessage `json:"web_search_options"`
	Plugins             []chatPlugin    `json:"plugins"` // OpenRouter's
}

type chatPlugin struct {
	ID string `json:"id"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  []chatCall      `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

type chatTool struct {
	Type       string          `json:"type"`
	Parameters json.RawMessage `json:"parameters"` // of OpenRouter's server tools
	Function   struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

var chatMembers = []string{
	"model", "messages", "tools", "tool_choice", "stream", "stream_options", "temperature",
	"max_tokens", "max_completion_tokens", "response_format", "reasoning_effort", "web_search_options", "parallel_tool_calls", "top_p", "n", "stop",
	"seed", "user", "metadata", "store", "presence_penalty", "frequency_penalty",
}

func invalid(param, format string, args ...any) fault {
	return fault{
		Status: http.StatusBadRequest, Type: "invalid_request_error", Param: param, Message: fmt.Sprintf(format, args...),
	}
}

func (s *Server) chatVoice() voice {
	return voice{
		parse: s.parseChat, refuse: writeOpenAIError, words: openAIWords, events: chatEvents, answer: chatAnswer,
		event: func(f fault) []byte { return event(mustJSON(openAIError(f))) },
		window: func(tokens, most int) fault {
			f := invalid("messages", "This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. "+
				"Please reduce the length of the messages.", most, tokens)
			f.Code = "context_length_exceeded"
			return f
		},
	}
}

// bearer checks the key in OpenAI's way.
func (s *Server) bearer(r *http.Request) (fault, bool) {
	got := r.Header.Get("Authorization")
	switch {
	case s.opts.Key == "" || got == "Bearer "+s.opts.Key:
		return fault{}, true
	case got == "":
		return fault{Status: http.StatusUnauthorized, Type: "invalid_request_error", Message: "You didn't provide an API key."}, false
	}
	return fault{
		Status: http.StatusUnauthorized, Type: "invalid_request_error", Code: "invalid_api_key",
		Message: "Incorrect API key provided: " + strings.TrimPrefix(got, "Bearer ") + ".",
	}, false
}

// decode reads a JSON object, refusing members that are not known.
func (s *Server) decode(body []byte, known []string, v any) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return invalid("", "We could not parse the JSON body of your request: %s", err)
	}
	for name := range members {
		if !slices.Contains(known, name) && !slices.Contains(s.opts.Extra, name) {
			return invalid(name, "Unrecognized request argument supplied: %s", name)
		}
	}
	if err := json.Unmarshal(body, v); err != nil {
		return invalid("", "Invalid type: %s", err)
	}
	return nil
}

func (s *Server) parseChat(w http.ResponseWriter, r *http.Request) (Parsed, error) {
	if f, ok := s.bearer(r); !ok {
		return Parsed{}, f
	}
	raw, err := readBody(w, r)
	if err != nil {
		return Parsed{}, err
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return Parsed{}, invalid("", "Content-Type must be application/json")
	}
	var b chatBody
	if err := s.decode(raw, chatMembers, &b); err != nil {
		return Parsed{}, err
	}
	if err := s.knownModel(b.Model); err != nil {
		return Parsed{}, err
	}
	p := Parsed{
		Dialect: OpenAI, Model: b.Model, Stream: b.Stream, Header: r.Header.Clone(), Body: raw,
		IncludeUsage: b.StreamOptions != nil && b.StreamOptions.IncludeUsage,
	}
	for _, check := range []func(*chatBody, *Parsed) error{checkChatTools, checkChatTuning, checkChatMessages, checkChatForm} {
		if err := check(&b, &p); err != nil {
			return Parsed{}, err
		}
	}
	return p, nil
}

func (s *Server) knownModel(model string) error {
	if model == "" {
		return invalid("model", "you must provide a model parameter")
	}
	if s.opts.Models != nil && !slices.Contains(s.opts.Models, model) {
		return fault{
			Status: http.StatusNotFound, Type: "invalid_request_error", Code: "model_not_found",
			Message: fmt.Sprintf("The model `%s` does not exist or you do not have access to it.", model),
		}
	}
	return nil
}

// maxDescription is the longest description of a tool, in characters.
const maxDescription = 1_024

func checkChatTools(b *chatBody, p *Parsed) error {
	choice := strings.TrimSpace(string(b.ToolChoice))
	if b.Tools == nil {
		if choice != "" && choice != "null" {
			return invalid("tool_choice", "'tool_choice' is only allowed when 'tools' are specified.")
		}
		return nil
	}
	if len(*b.Tools) == 0 {
		return invalid("tools", "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	for i, t := range *b.Tools {
		at := fmt.Sprintf("tools[%d].function", i)
		if t.Type == serverSearch && strings.Contains(b.Model, "/") { // OpenRouter's names
			if err := checkServerTool(i, t.Parameters); err != nil {
				return err
			}
			p.Search = true
			continue
		}
		switch {
		case t.Type != "function":
			return invalid(fmt.Sprintf("tools[%d].type", i), "Invalid value: '%s'. Supported values are: 'function'.", t.Type)
		case !toolName.MatchString(t.Function.Name):
			return invalid(at+".name", "Invalid '%s.name': string does not match pattern.", at)
		case slices.ContainsFunc(p.Tools, func(o Tool) bool { return o.Name == t.Function.Name }):
			return invalid(at+".name", "Tool names must be unique: %s", t.Function.Name)
		}
		if n := utf8.RuneCountInString(t.Function.Description); n > maxDescription {
			f := invalid(at+".description", "Invalid '%s.description': string too long. Expected a string with maximum length %d, "+
				"but got a string with length %d instead.", at, maxDescription, n)
			f.Code = "string_above_max_length"
			return f
		}
		if err := checkSchema(t.Function.Parameters); err != nil {
			return invalid(at+".parameters", "Invalid schema for function '%s': %s", t.Function.Name, err)
		}
		p.Tools = append(p.Tools, Tool{t.Function.Name, t.Function.Description, t.Function.Parameters})
	}
	var word string
	if len(b.ToolChoice) > 0 && json.Unmarshal(b.ToolChoice, &word) == nil {
		if word != "none" && word != "auto" && word != "required" {
			return invalid("tool_choice", "Invalid value: '%s'.", word)
		}
		p.ToolChoice = word
	}
	return nil
}

// serverSearch is the type of OpenRouter's own web search.
const serverSearch = "openrouter:web_search"

// checkServerTool checks the parameters of OpenRouter's search.
func checkServerTool(at int, raw json.RawMessage) error {
	var in struct {
		Engine   string   `json:"engine"`
		Total    *int     `json:"max_total_results"`
		Allowed  []string `json:"allowed_domains"`
		Excluded []string `json:"excluded_domains"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if len(raw) > 0 {
		if err := d.Decode(&in); err != nil {
			return invalid("tools", "tools[%d].parameters: %s", at, err)
		}
	}
	switch {
	case len(in.Allowed) > 0 && len(in.Excluded) > 0:
		return invalid("tools", "tools[%d].parameters: allowed_domains cannot be used with excluded_domains", at)
	case in.Total != nil && *in.Total < 1:
		return invalid("tools", "tools[%d].parameters.max_total_results: too small", at)
	case in.Engine != "" && !slices.Contains([]string{"auto", "native", "exa", "firecrawl", "parallel"}, in.Engine):
		return invalid("tools", "tools[%d].parameters.engine: Invalid option", at)
	}
	return nil
}

// checkSchema wants a schema of an object; none at all is one without members.
func checkSchema(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	var s struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("it is no object")
	}
	if s.Type != "object" {
		return fmt.Errorf("schema must be a JSON Schema of 'type: \"object\"', got 'type: \"%s\"'", s.Type)
	}
	return nil
}

// reasons says whether a model is one of those that think and take other parameters for it.
func reasons(model string) bool {
	return strings.HasPrefix(model, "gpt-5") && !strings.HasPrefix(model, "gpt-5-chat") ||
		len(model) > 1 && model[0] == 'o' && model[1] >= '1' && model[1] <= '9'
}

func unsupported(param, model, instead string) fault {
	f := invalid(param, "Unsupported parameter: '%s' is not supported with this model (%s). %s", param, model, instead)
	f.Code = "unsupported_parameter"
	return f
}

func checkChatTuning(b *chatBody, p *Parsed) error {
	switch {
	case b.StreamOptions != nil && !b.Stream:
		return invalid("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case b.MaxTokens != nil && b.MaxCompletionTokens != nil:
		return invalid("max_tokens", "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	case b.MaxTokens != nil && reasons(b.Model):
		return unsupported("max_tokens", b.Model, "Use 'max_completion_tokens' instead.")
	case b.Temperature != nil && (*b.Temperature < 0 || *b.Temperature > 2):
		return invalid("temperature", "Invalid 'temperature': must be between 0 and 2.")
	case b.Temperature != nil && *b.Temperature != 1 && reasons(b.Model):
		f := unsupported("temperature", b.Model, "Only the default (1) value is supported.")
		f.Code = "unsupported_value"
		return f
	case b.ReasoningEffort != "" && !reasons(b.Model):
		return unsupported("reasoning_effort", b.Model, "")
	case b.ReasoningEffort != "" && !slices.Contains([]string{"none", "minimal", "low", "medium", "high"}, b.ReasoningEffort):
		return invalid("reasoning_effort", "Invalid value: '%s'.", b.ReasoningEffort)
	case len(b.WebSearchOptions) > 0 && !strings.Contains(b.Model, "-search"):
		return unsupported("web_search_options", b.Model, "")
	}
	p.Search = p.Search || len(b.WebSearchOptions) > 0
	for _, plugin := range b.Plugins {
		if plugin.ID != "web" {
			return invalid("plugins", "Invalid plugin: '%s'.", plugin.ID)
		}
		p.Search = true
	}
	for _, n := range []*int{b.MaxTokens, b.MaxCompletionTokens} {
		if n != nil {
			if *n < 1 {
				return invalid("max_tokens", "Invalid 'max_tokens': integer below minimum value.")
			}
			p.MaxTokens = *n
		}
	}
	return nil
}
