package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"hob"
)

// messagesDecoder reads the stream of Anthropic's Messages API.
type messagesDecoder struct {
	text
	names    names
	keeps    bool        // the answer may pause: its blocks are kept as they came
	pauses   bool        // and is then asked to go on
	turn     *pausedTurn // what it gave before, nil where it cannot pause
	blocks   map[int]*contentBlock
	back     []backBlock       // to be sent back, as they came
	kept     []json.RawMessage // every block
	served   map[string]json.RawMessage
	searches int
	paused   bool
	calls    int
	size     int
	model    string
	ended    string // the stop reason as it was sent
	usage    *messagesUsage
	begun    bool
	whole    bool // message_stop was seen
	scratch  []byte
}

// contentBlock is a block under way.
type contentBlock struct {
	kind      string
	id        string
	name      string
	input     []byte
	first     json.RawMessage // the input it began with
	thinking  []byte
	signature string
	data      string
	text      []byte            // where it is kept
	cited     []json.RawMessage // with it
	answers   string            // the id of the search whose result it is
	result    json.RawMessage
}

type messagesEvent struct {
	Type    string          `json:"type"`
	Index   int             `json:"index"`
	Message *messagesAnswer `json:"message"`
	Block   *messagesBlock  `json:"content_block"`
	Delta   *messagesDelta  `json:"delta"`
	Usage   *messagesUsage  `json:"usage"`
	Error   json.RawMessage `json:"error"`

	// of an answer that is no stream
	Content    []messagesBlock `json:"content"`
	StopReason string          `json:"stop_reason"`
	Model      string          `json:"model"`
}

type messagesAnswer struct {
	Model string         `json:"model"`
	Usage *messagesUsage `json:"usage"`
}

type messagesBlock struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

type messagesDelta struct {
	Type       string          `json:"type"`
	Text       string          `json:"text"`
	Partial    string          `json:"partial_json"`
	Thinking   string          `json:"thinking"`
	Signature  string          `json:"signature"`
	StopReason string          `json:"stop_reason"`
	Citation   json.RawMessage `json:"citation"`
}

type messagesUsage struct {
	Input       int64       `json:"input_tokens"`
	Output      int64       `json:"output_tokens"`
	CacheRead   int64       `json:"cache_read_input_tokens"`
	CacheCreate int64       `json:"cache_creation_input_tokens"`
	Served      searchUsage `json:"server_tool_use"`
}

// sum adds the counts of another call.
func (u *messagesUsage) sum(v *messagesUsage) {
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
	u.CacheCreate += v.CacheCreate
	u.Served.Requests += v.Served.Requests
}

func (d *messagesDecoder) attach(s *sink) { d.out = s }

func (d *messagesDecoder) event(data []byte) (bool, error) {
	if !d.keeps && d.scanText(data) {
		return false, nil
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return false, nil
	}
	if string(data) == doneMark { // some gateways add it
		return true, nil
	}
	var e messagesEvent
	if err := unmarshal(data, &e); err != nil {
		return false, err
	}
	return d.take(&e, data)
}

func (d *messagesDecoder) take(e *messagesEvent, data []byte) (bool, error) {
	if present(e.Error) || e.Type == "error" {
		v, _ := readVendorError(data)
		return false, &streamError{status: v.status(), vendorError: v}
	}
	switch e.Type {
	case "message_start":
		d.begun = true
		if e.Message != nil {
			d.model = e.Message.Model
			d.count(e.Message.Usage)
		}
	case "content_block_start":
		if e.Block != nil {
			return false, d.start(e.Index, e.Block)
		}
	case "content_block_delta":
		if e.Delta != nil {
			return false, d.piece(e.Index, e.Delta)
		}
	case "content_block_stop":
		return false, d.stop(e.Index)
	case "message_delta":
		if e.Delta != nil && e.Delta.StopReason != "" {
			d.ended = e.Delta.StopReason
		}
		d.count(e.Usage)
	case "message_stop":
		d.whole = true
		return true, nil
	case "message":
		return false, d.message(e)
	}
	return false, nil // ping, and whatever is added one day
}

// count lays reported numbers over the earlier ones; they are totals, and 0 where they do not apply.
func (d *messagesDecoder) count(u *messagesUsage) {
	if u == nil {
		return
	}
	if d.usage == nil {
		d.usage = &messagesUsage{}
	}
	d.usage.Input = max(d.usage.Input, u.Input)
	d.usage.Output = max(d.usage.Output, u.Output)
	d.usage.CacheRead = max(d.usage.CacheRead, u.CacheRead)
	d.usage.CacheCreate = max(d.usage.CacheCreate, u.CacheCreate)
	d.usage.Served.Requests = max(d.usage.Served.Requests, plausibleSearches(u.Served.Requests))
}

func (d *messagesDecoder) grow(n int) error {
	if d.size += n; d.size > MaxCallBytes {
		return errCallsTooLong
	}
	return nil
}

func (d *messagesDecoder) start(index int, b *messagesBlock) error {
	if d.blocks == nil {
		d.blocks = map[int]*contentBlock{}
	}
	d.blocks[index] = &contentBlock{
		kind: b.Type, id: b.ID, name: b.Name, first: b.Input, thinking: []byte(b.Thinking), signature: b.Signature, data: b.Data,
		answers: b.ToolUseID, result: b.Content, text: []byte(b.Text),
	}
	if b.Text != "" {
		d.addAnswer([]byte(b.Text))
	}
	if b.Thinking != "" {
		d.addReasoning(b.Thinking)
	}
	return d.grow(len(b.Input) + len(b.Data) + len(b.Thinking) + len(b.Content))
}

func (d *messagesDecoder) piece(index int, p *messagesDelta) error {
	b := d.blocks[index]
	if p.Text != "" {
		if b != nil && d.keeps {
			b.text = append(b.text, p.Text...)
		}
		d.addAnswer([]byte(p.Text))
		return nil
	}
	if b == nil { // its start was lost; what it is can be told from the piece only for text and thoughts
		if p.Thinking != "" {
			d.addReasoning(p.Thinking)
		}
		return nil
	}
	b.input = append(b.input, p.Partial...)
	b.signature += p.Signature
	if p.Thinking != "" {
		b.thinking = append(b.thinking, p.Thinking...)
		d.addReasoning(p.Thinking)
	}
	if d.keeps && present(p.Citation) {
		b.cited = append(b.cited, p.Citation)
	}
	return d.grow(len(p.Partial) + len(p.Thinking) + len(p.Signature) + len(p.Citation))
}

// stop ends a block. A call is passed on at once: its arguments are complete.
func (d *messagesDecoder) stop(index int) error {
	b := d.blocks[index]
	if b == nil {
		return nil
	}
	delete(d.blocks, index)
	switch b.kind {
	case "text":
		if d.keeps {
			d.keep(textKept(b.text, b.cited))
		}
	case "tool_use":
		d.calls++
		d.flush()
		d.out.emit(hob.Delta{Call: &hob.ModelCall{
			ID: b.id, Name: d.names.original(b.name), Arguments: strings.ToValidUTF8(b.arguments(), "\uFFFD"),
		}})
	case "thinking":
		if b.signature != "" { // unsigned thoughts are refused
			out := append([]byte(nil), `{"type":"thinking","thinking":`...)
			out = appendString(out, string(b.thinking))
			out = append(out, `,"signature":`...)
			d.thought(append(appendString(out, b.signature), '}'))
		}
	case "redacted_thinking":
		out := append([]byte(nil), `{"type":"redacted_thinking","data":`...)
		d.thought(append(appendString(out, b.data), '}'))
	case servedCall:
		d.search(b)
	case servedResult:
		d.found(b)
	}
	return nil
}

// arguments is the text of a call's arguments.
func (b *contentBlock) arguments() string {
	if len(b.input) > 0 || !present(b.first) {
		return string(b.input)
	}
	if b.first[0] == '"' { // gateways that carry OpenAI's form over
		return looseText(b.first)
	}
	return string(b.first)
}

// message takes an answer that is no stream.
func (d *messagesDecoder) message(e *messagesEvent) error {
	d.begun, d.whole = true, true
	d.model, d.ended = e.Model, e.StopReason
	d.count(e.Usage)
	for i := range e.Content {
		if err := d.start(i, &e.Content[i]); err != nil {
			return err
		}
		if err := d.stop(i); err != nil {
			return err
		}
	}
	return nil
}

func (d *messagesDecoder) finish(torn error) error {
	d.flush()
	switch {
	case torn != nil && !d.whole && d.ended == "":
		if errors.Is(torn, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return torn
	case !d.begun:
		return errNoAnswer
	}
	for _, index := range slices.Sorted(maps.Keys(d.blocks)) { // whose end was not told
		if err := d.stop(index); err != nil {
			return err
		}
	}
	if d.paused = d.pauses && d.ended == pauseTurn && d.calls == 0 && len(d.kept) > 0; d.paused {
		return nil
	}
	if a := d.artefact(); a != nil {
		d.out.emit(hob.Delta{Artefact: a})
	}
	last := hob.Delta{Finish: finishReason(d.ended, d.calls, false), Model: d.model}
	if u := d.used(); u != nil {
		prompt := u.Input + u.CacheRead + u.CacheCreate
		last.Usage = plausible(&hob.Usage{PromptTokens: prompt, CompletionTokens: u.Output, CachedTokens: u.CacheRead})
		last.Searched = u.Served.Requests
	}
	d.out.emit(last)
	return nil
}

func rawBytes(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, r := range list {
		out[i] = r
	}
	return out
}

// scanText reads a text delta, by far the most common event, by hand. It is false, and nothing has changed, for others.
func (d *messagesDecoder) scanText(data []byte) bool {
	s := scanner{b: data}
	raw, plain, ok := messagesText(&s)
	if !ok || !s.end() || len(raw) == 0 {
		return false
	}
	if !plain {
		if d.scratch, ok = appendUnescaped(d.scratch[:0], raw, false); !ok {
			return false
		}
		raw = d.scratch
	}
	d.addAnswer(raw)
	return true
}

// messagesText reads {"type":"content_block_delta","index":N,"delta":{"type":"text_delta","text":"…"}}.
func messagesText(s *scanner) (raw []byte, plain, ok bool) {
	if !s.byte('{') || !s.member("type", "content_block_delta") || !s.byte(',') || !s.word(`"index"`) || !s.byte(':') ||
		!s.scalarNumber() || !s.byte(',') || !s.word(`"delta"`) || !s.byte(':') || !s.byte('{') ||
		!s.member("type", "text_delta") || !s.byte(',') || !s.word(`"text"`) || !s.byte(':') {
		return nil, false, false
	}
	raw, plain, ok = s.str()
	return raw, plain, ok && s.byte('}') && s.byte('}')
}

// member consumes "name":"value".
func (s *scanner) member(name, value string) bool {
	k, plain, ok := s.str()
	if !ok || !plain || string(k) != name || !s.byte(':') {
		return false
	}
	v, plain, ok := s.str()
	return ok && plain && string(v) == value
}

// scalarNumber passes over a number.
func (s *scanner) scalarNumber() bool {
	s.blank()
	return s.i < len(s.b) && (s.b[s.i] == '-' || s.b[s.i] >= '0' && s.b[s.i] <= '9') && s.number()
}
