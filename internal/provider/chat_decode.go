package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"hob"
)

// heldText is how much text may be held back while further events wait in the buffer.
const heldText = 4 << 10

// text holds back answer and reasoning text, so that pieces that arrived together are passed on together. Nothing is held
// while reading on could block.
type text struct {
	out       *sink
	answer    []byte
	reasoning []byte
}

func (t *text) addAnswer(s []byte) {
	if len(t.reasoning) > 0 {
		t.flush()
	}
	if t.answer = append(t.answer, s...); len(t.answer) > heldText {
		t.flush()
	}
}

func (t *text) addReasoning(s string) {
	if len(t.answer) > 0 {
		t.flush()
	}
	if t.reasoning = append(t.reasoning, s...); len(t.reasoning) > heldText {
		t.flush()
	}
}

func (t *text) flush() {
	if len(t.reasoning) > 0 {
		d := hob.Delta{Reasoning: string(t.reasoning)}
		t.reasoning = t.reasoning[:0]
		t.out.emit(d)
	}
	if len(t.answer) > 0 {
		d := hob.Delta{Text: string(t.answer)}
		t.answer = t.answer[:0]
		t.out.emit(d)
	}
}

// chatDecoder reads the stream of OpenAI's chat completions in all the variants that compatible servers send.
type chatDecoder struct {
	text
	calls   assembler
	names   names
	details reasoningDetails
	found   sources
	counted int // searches, as the provider counts them
	model   string
	ended   string // the finish reason as it was sent
	usage   *hob.Usage
	refused bool
	chosen  bool // a choice was seen
	scratch []byte
	before  []byte // what stood around the text of the last event, see scanText
	behind  []byte
}

type chatChunk struct {
	Object  string          `json:"object"`
	Type    string          `json:"type"`
	Model   string          `json:"model"`
	Choices []chatChoice    `json:"choices"`
	Usage   *chatUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Groq    *struct {
		Usage *chatUsage `json:"usage"`
	} `json:"x_groq"`
}

type chatChoice struct {
	Index        int          `json:"index"`
	Delta        *chatMessage `json:"delta"`
	Message      *chatMessage `json:"message"` // of an answer that is no stream
	FinishReason string       `json:"finish_reason"`
	Usage        *chatUsage   `json:"usage"`
}

type chatMessage struct {
	Content          json.RawMessage `json:"content"`
	Refusal          json.RawMessage `json:"refusal"`
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ReasoningDetails json.RawMessage `json:"reasoning_details"`
	Annotations      json.RawMessage `json:"annotations"`
	ToolCalls        []chatCall      `json:"tool_calls"`
	FunctionCall     *chatFunction   `json:"function_call"`
}

type chatCall struct {
	Index    *int            `json:"index"`
	ID       string          `json:"id"`
	Function chatFunction    `json:"function"`
	Extra    json.RawMessage `json:"extra_content"`
	// Name and Arguments: some servers leave the function object out.
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type chatFunction struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type chatUsage struct {
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	Total         int64 `json:"total_tokens"`
	CacheHit      int64 `json:"prompt_cache_hit_tokens"`
	PromptDetails *struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails *struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	Served *searchUsage `json:"server_tool_use"`
}

func (u *chatUsage) usage() *hob.Usage {
	out := &hob.Usage{
		PromptTokens: u.Prompt, CompletionTokens: u.Completion, TotalTokens: u.Total, CachedTokens: u.CacheHit,
	}
	if u.PromptDetails != nil && u.PromptDetails.Cached > 0 {
		out.CachedTokens = u.PromptDetails.Cached
	}
	if u.CompletionDetails != nil {
		out.ReasoningTokens = u.CompletionDetails.Reasoning
	}
	return plausible(out)
}

func (d *chatDecoder) attach(s *sink) { d.out = s }

// event takes one event. The common one, a piece of text and nothing else, is read by hand.
func (d *chatDecoder) event(data []byte) (bool, error) {
	if d.scanText(data) {
		return false, nil
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return false, nil
	}
	if string(data) == doneMark {
		return true, nil
	}
	return false, d.decode(data)
}

// unmarshal is json.Unmarshal that passes over members of a wrong type: what a server sends there is not understood and
// counts as absent.
func unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var wrong *json.UnmarshalTypeError
	if err != nil && !errors.As(err, &wrong) {
		return errMalformed
	}
	return nil
}

func (d *chatDecoder) decode(data []byte) error {
	var c chatChunk
	if !scanChunk(data, &c) {
		c = chatChunk{}
		if err := unmarshal(data, &c); err != nil {
			return err
		}
	}
	if present(c.Error) || c.Object == "error" || c.Type == "error" {
		e, _ := readVendorError(data)
		return &streamError{status: e.status(), vendorError: e}
	}
	if d.model == "" {
		d.model = c.Model
	}
	if c.Groq != nil && c.Usage == nil {
		c.Usage = c.Groq.Usage
	}
	for i := range c.Choices {
		if c.Choices[i].Index != 0 {
			continue // one answer was asked for
		}
		if c.Usage == nil {
			c.Usage = c.Choices[i].Usage
		}
		if err := d.choice(&c.Choices[i]); err != nil {
			return err
		}
	}
	if c.Usage != nil {
		if s := c.Usage.Served; s != nil {
			d.counted = max(d.counted, plausibleSearches(s.Requests))
		}
		if u := c.Usage.usage(); u != nil {
			d.usage = u
		}
	}
	return nil
}

func (d *chatDecoder) choice(c *chatChoice) error {
	d.chosen = true
	m := c.Delta
	if m == nil {
		m = c.Message
	}
	if m != nil {
		if err := d.message(m); err != nil {
			return err
		}
	}
	if c.FinishReason == "error" {
		return &streamError{status: http.StatusBadGateway, vendorError: vendorError{
			Message: "the model behind the provider failed",
		}}
	}
	if c.FinishReason != "" {
		d.ended = c.FinishReason
	}
	return nil
}

func (d *chatDecoder) message(m *chatMessage) error {
	thought := contentText(m.ReasoningContent)
	if thought == "" {
		thought = contentText(m.Reasoning)
	}
	if present(m.ReasoningDetails) {
		said, err := d.details.add(m.ReasoningDetails)
		if err != nil {
			return err
		}
		if thought == "" {
			thought = said
		}
	}
	d.found.cite(m.Annotations)
	answer, inner := contentParts(m.Content)
	if thought == "" {
		thought = inner
	}
	if thought != "" {
		d.addReasoning(thought)
	}
	if answer != "" {
		d.addAnswer([]byte(answer))
	}
	if refusal := looseText(m.Refusal); refusal != "" {
		d.refused = true
		d.addAnswer([]byte(refusal))
	}
	return d.calls.add(m.parts())
}

// parts are the calls of a delta, the legacy single one included.
func (m *chatMessage) parts() []callPart {
	if len(m.ToolCalls) == 0 && m.FunctionCall == nil {
		return nil
	}
	parts := make([]callPart, 0, len(m.ToolCalls)+1)
	for _, c := range m.ToolCalls {
		if c.Function.Name == "" {
			c.Function.Name = c.Name
		}
		if !present(c.Function.Arguments) {
			c.Function.Arguments = c.Arguments
		}
		p := c.Function.part()
		p.id, p.extra = c.ID, c.Extra
		if c.Index != nil {
			p.indexed, p.index = true, *c.Index
		}
		parts = append(parts, p)
	}
	if m.FunctionCall != nil {
		p := m.FunctionCall.part()
		p.indexed, p.index = true, 0
		parts = append(parts, p)
	}
	return parts
}

func (f chatFunction) part() callPart {
	p := callPart{name: f.Name}
	switch {
	case !present(f.Arguments):
	case f.Arguments[0] == '"':
		p.args = []byte(looseText(f.Arguments))
	default:
		p.args, p.object = f.Arguments, true
	}
	return p
}

// contentText is the text of a content that is null, a string or a list of parts.
func contentText(raw json.RawMessage) string {
	answer, _ := contentParts(raw)
	return answer
}

// contentParts parts a content into what is said and what is thought.
func contentParts(raw json.RawMessage) (answer, thought string) {
	if !present(raw) {
		return "", ""
	}
	if raw[0] == '"' {
		return looseText(raw), ""
	}
	var parts []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if raw[0] == '{' {
		raw = append(append([]byte{'['}, raw...), ']')
	}
	if unmarshal(raw, &parts) != nil {
		return "", ""
	}
	for _, p := range parts {
		answer += p.Text
		if present(p.Thinking) {
			said, _ := contentParts(p.Thinking)
			thought += said
		}
	}
	return answer, thought
}

// finishReasons are the spellings in the field.
var finishReasons = map[string]string{
	"stop": hob.FinishStop, "eos": hob.FinishStop, "end_turn": hob.FinishStop, "stop_sequence": hob.FinishStop,
	"length": hob.FinishLength, "max_tokens": hob.FinishLength, "max_output_tokens": hob.FinishLength,
	"model_length": hob.FinishLength, "pause_turn": hob.FinishLength, "model_context_window_exceeded": hob.FinishLength,
	"tool_calls": hob.FinishToolCalls, "tool_use": hob.FinishToolCalls, "function_call": hob.FinishToolCalls,
	"content_filter": hob.FinishContentFilter, "safety": hob.FinishContentFilter, "refusal": hob.FinishContentFilter,
}

// finishReason is the one spelling of a finish reason, put right where it contradicts the answer.
func finishReason(said string, calls int, refused bool) string {
	f := finishReasons[said]
	switch {
	case f == hob.FinishLength || f == hob.FinishContentFilter:
		return f
	case calls > 0:
		return hob.FinishToolCalls
	case refused:
		return hob.FinishContentFilter
	}
	return hob.FinishStop
}

func (d *chatDecoder) finish(torn error) error {
	d.flush()
	if torn != nil && d.ended == "" {
		if errors.Is(torn, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return torn
	}
	if !d.chosen {
		return errNoAnswer
	}
	calls, err := d.calls.done()
	if err != nil {
		return err
	}
	for _, c := range calls {
		c.Name = d.names.original(c.Name)
		d.out.emit(hob.Delta{Call: c})
	}
	a := d.details.artefact()
	if a == nil {
		a = d.calls.sealed()
	}
	if a != nil {
		d.out.emit(hob.Delta{Artefact: a})
	}
	if len(d.found.list) > 0 || d.counted > 0 { // what was searched for is not told, only what was found
		d.out.emit(hob.Delta{Searches: []hob.WebSearch{{Results: append([]hob.WebResult{}, d.found.list...)}}})
	}
	d.out.emit(hob.Delta{Finish: finishReason(d.ended, len(calls), d.refused), Usage: d.usage, Model: d.model, Searched: d.counted})
	return nil
}
