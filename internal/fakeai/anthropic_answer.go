package fakeai

import (
	"encoding/json"
	"net/http"
	"strconv"
)

type anthropicErrorBody struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id,omitempty"`
}

func anthropicError(f fault) anthropicErrorBody {
	b := anthropicErrorBody{Type: "error"}
	b.Error.Type, b.Error.Message = f.Type, f.Message
	return b
}

func writeAnthropicError(w http.ResponseWriter, status int, f fault) {
	b := anthropicError(f)
	b.RequestID = "req_fake"
	writeJSON(w, status, b)
}

// named is one server-sent event of Anthropic's dialect.
func named(name string, v any) []byte {
	data := mustJSON(v)
	out := make([]byte, 0, len(data)+len(name)+20)
	out = append(out, "event: "...)
	out = append(out, name...)
	out = append(out, "\ndata: "...)
	out = append(out, data...)
	return append(out, "\n\n"...)
}

type messagesUsage struct {
	Input       int        `json:"input_tokens"`
	CacheCreate int        `json:"cache_creation_input_tokens"`
	CacheRead   int        `json:"cache_read_input_tokens"`
	Output      int        `json:"output_tokens"`
	Served      *servedUse `json:"server_tool_use,omitempty"`
}

type servedUse struct {
	Searches int `json:"web_search_requests"`
}

// servedUse counts the searches that came to something, as vendors bill them; nil where there were none.
func (r Reply) servedUse() *servedUse {
	n := 0
	for _, s := range r.Searches {
		if s.Error == "" {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return &servedUse{n}
}

// messages counts the cached tokens beside the others, as Anthropic does.
func (u Usage) messages() messagesUsage {
	return messagesUsage{Input: u.Prompt - u.Cached, CacheRead: u.Cached, Output: u.Completion}
}

var stopReasons = map[string]string{
	"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal",
}

func (r Reply) stopReason() string {
	if s, ok := stopReasons[r.finish()]; ok {
		return s
	}
	return r.finish()
}

// Signature is what the thinking blocks of Anthropic's dialect are signed with.
const Signature = "c2lnbmVkIGJ5IGZha2VhaQ=="

type deltaEvent struct {
	Type  string          `json:"type"`
	Index int             `json:"index"`
	Delta json.RawMessage `json:"delta"`
}

// blockEvents brings one content block: its start, its pieces, its end.
func blockEvents(index int, start any, kind, member string, pieces []string) [][]byte {
	events := [][]byte{named("content_block_start", map[string]any{
		"type": "content_block_start", "index": index, "content_block": start,
	})}
	for _, s := range pieces {
		delta := `{"type":"` + kind + `","` + member + `":` + string(mustJSON(s)) + `}`
		events = append(events, named("content_block_delta", deltaEvent{"content_block_delta", index, json.RawMessage(delta)}))
	}
	return append(events, named("content_block_stop", map[string]any{"type": "content_block_stop", "index": index}))
}

// messagesEvents are the events of a streamed answer.
func messagesEvents(p Parsed, r Reply) [][]byte {
	usage := r.usage(p).messages()
	begin := usage
	begin.Output = 1
	usage.Served = r.servedUse()
	events := [][]byte{
		named("message_start", map[string]any{"type": "message_start", "message": map[string]any{
			"id": "msg_fake" + strconv.Itoa(p.Number), "type": "message", "role": "assistant", "content": []any{},
			"model": r.model(p), "stop_reason": nil, "stop_sequence": nil, "usage": begin,
		}}),
		named("ping", map[string]any{"type": "ping"}),
	}
	index := 0
	if len(r.Reasoning) > 0 {
		block := blockEvents(index, map[string]any{"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking", r.Reasoning)
		signed := named("content_block_delta", deltaEvent{
			"content_block_delta", index, json.RawMessage(`{"type":"signature_delta","signature":"` + Signature + `"}`),
		})
		last := len(block) - 1
		events = append(events, block[:last]...)
		events = append(events, signed, block[last])
		index++
	}
	for _, block := range servedBlocks(p, r) {
		start, pieces := block, []string(nil)
		if block["type"] == "server_tool_use" { // its input is streamed
			input := string(mustJSON(block["input"]))
			start = map[string]any{"type": block["type"], "id": block["id"], "name": block["name"], "input": struct{}{}}
			pieces = []string{"", input[:len(input)/2], input[len(input)/2:]}
		}
		events = append(events, blockEvents(index, start, "input_json_delta", "partial_json", pieces)...)
		index++
	}
	if len(r.Text) > 0 {
		events = append(events, blockEvents(index, map[string]any{"type": "text", "text": ""}, "text_delta", "text", r.Text)...)
		index++
	}
	for _, c := range r.Calls {
		var pieces []string
		from := 0
		for _, to := range thirds(c.Arguments) {
			pieces = append(pieces, c.Arguments[from:to])
			from = to
		}
		start := map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": struct{}{}}
		events = append(events, blockEvents(index, start, "input_json_delta", "partial_json", pieces)...)
		index++
	}
	return append(events,
		named("message_delta", map[string]any{
			"type": "message_delta", "delta": map[string]any{"stop_reason": r.stopReason(), "stop_sequence": nil}, "usage": usage,
		}),
		named("message_stop", map[string]any{"type": "message_stop"}),
	)
}

// messagesAnswer is an answer that is no stream.
func messagesAnswer(p Parsed, r Reply) any {
	blocks := []any{}
	if len(r.Reasoning) > 0 {
		blocks = append(blocks, map[string]any{"type": "thinking", "thinking": join(r.Reasoning), "signature": Signature})
	}
	for _, b := range servedBlocks(p, r) {
		blocks = append(blocks, b)
	}
	if len(r.Text) > 0 {
		blocks = append(blocks, map[string]any{"type": "text", "text": join(r.Text)})
	}
	for _, c := range r.Calls {
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(c.Arguments)})
	}
	usage := r.usage(p).messages()
	usage.Served = r.servedUse()
	return map[string]any{
		"id": "msg_fake" + strconv.Itoa(p.Number), "type": "message", "role": "assistant", "model": r.model(p), "content": blocks,
		"stop_reason": r.stopReason(), "stop_sequence": nil, "usage": usage,
	}
}

// servedBlocks are the two blocks of each search.
func servedBlocks(p Parsed, r Reply) []map[string]any {
	var blocks []map[string]any
	for i, s := range r.Searches {
		id := "srvtoolu_" + strconv.Itoa(p.Number) + "_" + strconv.Itoa(i)
		var content any = map[string]any{"type": "web_search_tool_result_error", "error_code": s.Error}
		if s.Error == "" {
			pages := []any{}
			for _, page := range s.Pages {
				pages = append(pages, map[string]any{
					"type": "web_search_result", "url": page.URL, "title": page.Title, "encrypted_content": "c2VhbGVk", "page_age": nil,
				})
			}
			content = pages
		}
		blocks = append(blocks,
			map[string]any{"type": "server_tool_use", "id": id, "name": "web_search", "input": map[string]any{"query": s.Query}},
			map[string]any{"type": "web_search_tool_result", "tool_use_id": id, "content": content},
		)
	}
	return blocks
}
