package provider

import (
	"encoding/json"
	"strings"

	"hob"
)

// MaxPauses is how often one answer of Anthropic's may pause while it searches; what has come by then is the answer.
const MaxPauses = 4

// pausedTurn is an answer of Anthropic's that paused: the API wants it back as it is, and goes on with it.
type pausedTurn struct {
	blocks   []json.RawMessage // of the answer so far, all of them
	back     []backBlock
	usage    messagesUsage
	told     bool // usage was
	searches int
}

// goesOn is the answer after a further part of it.
func (t *pausedTurn) goesOn(d *messagesDecoder) {
	t.blocks, t.back = d.kept, d.back
	t.searches += d.searches
	if d.usage != nil {
		t.told = true
		t.usage.sum(d.usage)
	}
}

// backBlock is a block that goes back with the message; served ones only while the turn is under way.
type backBlock struct {
	raw    json.RawMessage
	served bool
}

// textKept is a block of text as it goes back in a turn that paused.
func textKept(text []byte, cited []json.RawMessage) json.RawMessage {
	said := strings.TrimRight(string(text), " \t\r\n") // no turn may end in blanks
	if strings.TrimSpace(said) == "" {
		return nil
	}
	out := append([]byte(nil), `{"type":"text","text":`...)
	out = appendString(out, said)
	if len(cited) > 0 {
		out = append(append(out, `,"citations":`...), joinBlocks(cited)...)
	}
	return append(out, '}')
}

// call is the search with an id that the answer began before it paused, nil where there is none.
func (t *pausedTurn) call(id string) json.RawMessage {
	if t == nil {
		return nil
	}
	for _, b := range t.blocks {
		var block struct {
			Type string `json:"type"`
			ID   string `json:"id"`
		}
		if unmarshal(b, &block) == nil && block.Type == servedCall && block.ID == id {
			return b
		}
	}
	return nil
}

// append writes a turn that paused behind the others.
func (t *pausedTurn) append(body []byte) []byte {
	body = body[:len(body)-len(turnsEnd)-1]
	body = append(body, `]},{"role":"assistant","content":`...)
	body = append(body, joinBlocks(t.blocks)...)
	return append(body, `}]}`...)
}

// keep notes a block for a turn that may pause.
func (d *messagesDecoder) keep(raw json.RawMessage) {
	if d.keeps && len(raw) > 0 {
		d.kept = append(d.kept, raw)
	}
}

// thought notes a block that goes back with the message.
func (d *messagesDecoder) thought(raw json.RawMessage) {
	d.back = append(d.back, backBlock{raw: raw})
	d.keep(raw)
}

// search notes that the model searches; what it finds comes with a block of its own.
func (d *messagesDecoder) search(b *contentBlock) {
	input := json.RawMessage(b.arguments())
	if !isObject(input) {
		input = json.RawMessage(`{}`)
	}
	out := append([]byte(nil), `{"type":"`+servedCall+`","id":`...)
	out = appendString(out, b.id)
	out = append(out, `,"name":`...)
	out = appendString(out, b.name)
	out = append(append(append(out, `,"input":`...), input...), '}')
	if d.served == nil {
		d.served = map[string]json.RawMessage{}
	}
	d.served[b.id] = out
	d.keep(out)
}

// found tells what a search found. It may be one that was begun before the turn paused.
func (d *messagesDecoder) found(b *contentBlock) {
	if !present(b.result) {
		return
	}
	call, ok := d.served[b.answers]
	if !ok {
		call = d.turn.call(b.answers)
	}
	var in struct {
		Input json.RawMessage `json:"input"`
	}
	_ = unmarshal(call, &in) // what cannot be read has no query
	d.flush()
	s := servedSearch(queryOf(in.Input), b.result)
	if s.Error == "" {
		d.searches++
	}
	d.out.emit(hob.Delta{Searches: []hob.WebSearch{s}})
	out := append([]byte(nil), `{`+servedMark+`,"tool_use_id":`...)
	out = appendString(out, b.answers)
	out = append(append(append(out, `,"content":`...), b.result...), '}')
	d.keep(out)
	if call != nil {
		d.back = append(d.back, backBlock{call, true}, backBlock{out, true})
	}
}

// pauseTurn is the stop reason of an answer that is not at its end.
const pauseTurn = "pause_turn"

// artefact is what goes back with the message, nil where nothing does. Searches go back only where calls follow: the turn
// goes on, and the model wants to know what it has found.
func (d *messagesDecoder) artefact() json.RawMessage {
	var blocks []json.RawMessage
	for _, b := range d.back {
		if !b.served || d.calls > 0 {
			blocks = append(blocks, b.raw)
		}
	}
	if len(blocks) == 0 {
		return nil
	}
	return joinBlocks(blocks)
}

// used are the counts of all calls that the answer took, nil where none told any.
func (d *messagesDecoder) used() *messagesUsage {
	if d.turn == nil || !d.turn.told {
		return d.usage
	}
	all := d.turn.usage
	if d.usage != nil {
		all.sum(d.usage)
	}
	return &all
}
