package fakeai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

type errorBody struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
}

func openAIError(f fault) errorBody {
	var b errorBody
	b.Error.Message, b.Error.Type = f.Message, f.Type
	if f.Param != "" {
		b.Error.Param = &f.Param
	}
	if f.Code != "" {
		b.Error.Code = &f.Code
	}
	return b
}

func writeOpenAIError(w http.ResponseWriter, status int, f fault) {
	writeJSON(w, status, openAIError(f))
}

// openAIWords are the error of a reply in OpenAI's words, where it has none of its own.
func openAIWords(r Reply) fault {
	f := fault{Message: r.Message, Type: r.Type, Code: r.Code}
	if r.Code != "" {
		return f
	}
	switch r.Type {
	case "rate_limit_error":
		f.Type, f.Code = "requests", "rate_limit_exceeded"
	case "authentication_error":
		f.Type, f.Code = "invalid_request_error", "invalid_api_key"
	case "api_error", "overloaded_error":
		f.Type = "server_error"
	case "not_found_error", "permission_error", "request_too_large":
		f.Type = "invalid_request_error"
	}
	return f
}

// event is one server-sent event of OpenAI's dialect.
func event(data []byte) []byte {
	out := make([]byte, 0, len(data)+8)
	out = append(out, "data: "...)
	out = append(out, data...)
	return append(out, "\n\n"...)
}

type chunk struct {
	ID                string        `json:"id"`
	Object            string        `json:"object"`
	Created           int64         `json:"created"`
	Model             string        `json:"model"`
	ServiceTier       string        `json:"service_tier"`
	SystemFingerprint string        `json:"system_fingerprint"`
	Choices           []chunkChoice `json:"choices"`
	Usage             *chatUsage    `json:"usage"`
}

type chunkChoice struct {
	Index        int            `json:"index"`
	Delta        map[string]any `json:"delta"`
	Logprobs     *struct{}      `json:"logprobs"`
	FinishReason *string        `json:"finish_reason"`
}

type chatUsage struct {
	Prompt        int `json:"prompt_tokens"`
	Completion    int `json:"completion_tokens"`
	Total         int `json:"total_tokens"`
	PromptDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	Served *servedUse `json:"server_tool_use,omitempty"` // OpenRouter's
}

func (u Usage) chat() *chatUsage {
	out := &chatUsage{Prompt: u.Prompt, Completion: u.Completion, Total: u.Prompt + u.Completion}
	out.PromptDetails.Cached = u.Cached
	out.CompletionDetails.Reasoning = u.Reasoning
	return out
}

// chatUsage counts the searches beside the tokens, as OpenRouter does.
func (r Reply) chatUsage(p Parsed) *chatUsage {
	u := r.usage(p).chat()
	if strings.Contains(p.Model, "/") {
		u.Served = r.servedUse()
	}
	return u
}

// annotations name the pages that were found, nil where there are none. What was searched for they do not tell.
func annotations(r Reply) []any {
	var notes []any
	for _, s := range r.Searches {
		for _, page := range s.Pages {
			notes = append(notes, map[string]any{"type": "url_citation", "url_citation": map[string]any{
				"url": page.URL, "title": page.Title, "start_index": 0, "end_index": 1,
			}})
		}
	}
	return notes
}

func answerID(p Parsed) string { return "chatcmpl-fake" + strconv.Itoa(p.Number) }

// chatEvents are the events of a streamed answer.
func chatEvents(p Parsed, r Reply) [][]byte {
	frame := func(delta map[string]any, finish *string) []byte {
		return event(mustJSON(chunk{
			ID: answerID(p), Object: "chat.completion.chunk", Created: created, Model: r.model(p), ServiceTier: "default",
			SystemFingerprint: "fp_fake", Choices: []chunkChoice{{Delta: delta, FinishReason: finish}},
		}))
	}
	events := [][]byte{frame(map[string]any{"role": "assistant", "content": "", "refusal": nil}, nil)}
	for _, s := range r.Reasoning {
		events = append(events, frame(map[string]any{"reasoning_content": s}, nil))
	}
	const place = "HEREGOESTHETEXT"
	before, behind, _ := bytes.Cut(frame(map[string]any{"content": place}, nil), []byte(`"`+place+`"`))
	for _, s := range r.Text {
		events = append(events, slices.Concat(before, mustJSON(s), behind))
	}
	if notes := annotations(r); notes != nil {
		events = append(events, frame(map[string]any{"content": "", "annotations": notes}, nil))
	}
	for _, d := range callDeltas(r) {
		events = append(events, frame(d, nil))
	}
	finish := r.finish()
	events = append(events, frame(map[string]any{}, &finish))
	if p.IncludeUsage {
		events = append(events, event(mustJSON(chunk{
			ID: answerID(p), Object: "chat.completion.chunk", Created: created, Model: r.model(p), ServiceTier: "default",
			SystemFingerprint: "fp_fake", Choices: []chunkChoice{}, Usage: r.chatUsage(p),
		})))
	}
	return append(events, event([]byte("[DONE]")))
}

// callDeltas bring the calls in the reply's shape.
func callDeltas(r Reply) []map[string]any {
	if len(r.Calls) == 0 {
		return nil
	}
	if r.Shape == Legacy {
		c := r.Calls[0]
		return []map[string]any{
			{"function_call": map[string]any{"name": c.Name, "arguments": ""}},
			{"function_call": map[string]any{"arguments": c.Arguments}},
		}
	}
	if r.Shape == WholeCalls {
		all := make([]any, len(r.Calls))
		for i, c := range r.Calls {
			all[i] = callDelta(r.Shape, i, c, c.Name, c.Arguments, true)
		}
		return []map[string]any{{"tool_calls": all}}
	}
	var out []map[string]any
	add := func(d map[string]any) { out = append(out, map[string]any{"tool_calls": []any{d}}) }
	for i, c := range r.Calls {
		switch r.Shape {
		case ObjectArgs:
			add(callDelta(r.Shape, i, c, c.Name, c.Arguments, true))
		case Cumulative:
			for n := range thirds(c.Arguments) {
				add(callDelta(r.Shape, i, c, c.Name, c.Arguments[:thirds(c.Arguments)[n]], true))
			}
		default:
			add(callDelta(r.Shape, i, c, c.Name, "", true))
			from := 0
			for _, to := range thirds(c.Arguments) {
				add(callDelta(r.Shape, i, c, "", c.Arguments[from:to], false))
				from = to
			}
		}
	}
	return out
}

// thirds are the ends of three pieces of about equal length.
func thirds(s string) []int { return []int{len(s) / 3, len(s) * 2 / 3, len(s)} }

func callDelta(shape Shape, index int, c Call, name, args string, begins bool) map[string]any {
	function := map[string]any{"arguments": args}
	if shape == ObjectArgs {
		function["arguments"] = json.RawMessage(args)
	}
	if name != "" {
		function["name"] = name
	}
	d := map[string]any{"function": function}
	if shape != NoIndex {
		d["index"] = index
	}
	if begins {
		d["type"] = "function"
		if shape != NoIDs {
			d["id"] = c.ID
		}
	}
	return d
}

// chatAnswer is an answer that is no stream.
func chatAnswer(p Parsed, r Reply) any {
	message := map[string]any{"role": "assistant", "refusal": nil, "content": nil}
	if text := join(r.Text); text != "" || len(r.Calls) == 0 {
		message["content"] = text
	}
	if len(r.Reasoning) > 0 {
		message["reasoning_content"] = join(r.Reasoning)
	}
	calls := make([]any, 0, len(r.Calls))
	for _, c := range r.Calls {
		calls = append(calls, map[string]any{
			"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": c.Arguments},
		})
	}
	if len(calls) > 0 {
		message["tool_calls"] = calls
	}
	if notes := annotations(r); notes != nil {
		message["annotations"] = notes
	}
	return map[string]any{
		"id": answerID(p), "object": "chat.completion", "created": created, "model": r.model(p), "service_tier": "default",
		"system_fingerprint": "fp_fake", "usage": r.chatUsage(p),
		"choices": []any{map[string]any{"index": 0, "message": message, "logprobs": nil, "finish_reason": r.finish()}},
	}
}

func join(pieces []string) string {
	n := 0
	for _, s := range pieces {
		n += len(s)
	}
	out := make([]byte, 0, n)
	for _, s := range pieces {
		out = append(out, s...)
	}
	return string(out)
}
