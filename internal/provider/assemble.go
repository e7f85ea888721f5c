package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"hob"
)

// MaxCallBytes bounds the arguments and reasoning artefacts that one answer may gather.
const MaxCallBytes = 4 << 20

var (
	errMalformed    = errors.New("the stream holds an event that is no valid JSON")
	errCallsTooLong = errors.New("the answer's tool calls exceed 4 MiB")
	errNoAnswer     = errors.New("the provider ended the stream without an answer")
)

// callPart is what one delta says of one tool call. Any of its fields may be absent.
type callPart struct {
	indexed bool
	index   int
	id      string
	name    string
	args    []byte
	object  bool // args came as a JSON object, hence whole
	extra   json.RawMessage
}

// assembler puts tool calls together from the pieces in which providers send them. Servers differ in every respect: the
// index is missing or 0 throughout, ids are missing, come late or change with each piece, names are repeated, split or
// cumulative, arguments come in pieces, whole, as an object, or from the start with each piece. The assembler goes by
// what is there, in this order: index, id, place in the delta, and whether the call so far is complete.
type assembler struct {
	known   func(name string) bool // a tool of this request
	sameIDs bool                   // every call has the same id, which says nothing
	calls   []*pendingCall
	batch   int // first call of the last delta that began several
	size    int
}

// pendingCall is a call under way.
type pendingCall struct {
	indexed bool
	index   int
	id      string
	name    string

	args   []byte
	last   int    // where the last piece begins in args
	prev   []byte // the last piece, while every piece began with the one before
	grown  int    // how many pieces did so, each longer than the one before
	repeat bool   // still true: every piece began with the one before
	pieces int
	extra  json.RawMessage // extra_content, see sealedCalls
}

// stands says whether the pieces became a call. One without a name does: whoever asked answers it, and the others are not
// lost.
func (c *pendingCall) stands() bool { return c.name != "" || len(c.args) > 0 }

// add takes the calls of one delta.
func (a *assembler) add(parts []callPart) error {
	start := len(a.calls)
	for i, p := range parts {
		c := a.find(p, i, len(parts), start)
		if c == nil {
			if p.id == "" && p.name == "" && len(p.args) == 0 {
				continue
			}
			c = &pendingCall{indexed: p.indexed, index: p.index, repeat: true}
			a.calls = append(a.calls, c)
		}
		if c.id == "" {
			c.id = p.id
		}
		a.mergeName(c, p.name)
		c.merge(p.args, p.object)
		if present(p.extra) {
			c.extra = p.extra
		}
		if a.size += len(p.args) + len(p.extra); a.size > MaxCallBytes {
			return errCallsTooLong
		}
	}
	if len(a.calls)-start > 1 {
		a.batch = start
	}
	return nil
}

// find returns the call that p belongs to, nil where it begins one. pos and n are its place in the delta and the delta's
// length, fresh is the number of calls before the delta.
func (a *assembler) find(p callPart, pos, n, fresh int) *pendingCall {
	if p.indexed {
		c := a.atIndex(p.index)
		if c == nil && p.name == "" && p.index >= 0 && p.index < len(a.calls) && !a.calls[p.index].indexed {
			return a.calls[p.index] // whose beginning came without its index
		}
		if c == nil || a.another(c, p) {
			return nil
		}
		return c
	}
	if c := a.withID(p.id); c != nil {
		if a.another(c, p) {
			return nil
		}
		return c
	}
	if n > 1 { // place in the delta tells the calls of one delta apart
		at := a.batch + pos
		if at >= fresh || p.name != "" && a.another(a.calls[at], p) {
			return nil
		}
		return a.calls[at]
	}
	if len(a.calls) == 0 {
		return nil
	}
	c := a.calls[len(a.calls)-1]
	if a.another(c, p) {
		return nil
	}
	return c
}

func (a *assembler) atIndex(index int) *pendingCall {
	for i := len(a.calls) - 1; i >= 0; i-- {
		if c := a.calls[i]; c.indexed && c.index == index {
			return c
		}
	}
	return nil
}

func (a *assembler) withID(id string) *pendingCall {
	for i := len(a.calls) - 1; i >= 0 && id != ""; i-- {
		if a.calls[i].id == id {
			return a.calls[i]
		}
	}
	return nil
}

// another says whether p begins a new call although its address leads to c.
func (a *assembler) another(c *pendingCall, p callPart) bool {
	sameID := p.id == c.id || p.id == "" || c.id == ""
	switch {
	case p.name == "" || c.name == "": // a piece without a name continues
		return false
	case a.sameIDs: // a name begins a call unless it repeats the one before
		return c.complete() && !bytes.Equal(p.args, c.args)
	case p.id != "" && p.id == c.id:
		return false
	case c.complete():
		if p.name != c.name || !sameID {
			return true
		}
		return len(p.args) > 0 && !bytes.Equal(p.args, c.args) && string(c.args) != "{}"
	case p.name == c.name: // without an index, another id and no arguments yet are a further call without any
		return !p.indexed && !sameID && len(c.args) == 0
	case len(c.args) > 0: // in the midst of its arguments: only the index says for sure that it goes on
		return !p.indexed
	}
	if a.known == nil {
		return !p.indexed
	}
	return a.known(c.name) && !a.known(c.name+p.name)
}

// mergeName adds a name that may be repeated, split or cumulative.
func (a *assembler) mergeName(c *pendingCall, name string) {
	known := func(n string) bool { return a.known != nil && a.known(n) }
	switch {
	case name == "" || name == c.name:
	case c.name == "":
		c.name = name
	case len(c.args) > 0:
	case strings.HasPrefix(name, c.name) && (known(name) || !known(c.name+name)):
		c.name = name
	case !known(c.name) || known(c.name+name):
		c.name += name
	}
}

func (c *pendingCall) complete() bool {
	return len(c.args) > 0 && c.args[0] == '{' && json.Valid(c.args)
}

// cumulativeAfter is the number of ever longer pieces after which arguments are taken for cumulative for good.
const cumulativeAfter = 3

// merge adds arguments.
func (c *pendingCall) merge(piece []byte, object bool) {
	if len(piece) == 0 {
		return
	}
	c.pieces++
	if object || string(c.args) == "{}" && piece[0] == '{' { // whole, or behind a placeholder
		c.args, c.last = append(c.args[:0], piece...), 0
		return
	}
	if c.repeat && c.pieces > 1 {
		switch {
		case !bytes.HasPrefix(piece, c.prev):
			c.repeat = false
		case len(piece) > len(c.prev):
			c.grown++
		}
	}
	if c.repeat {
		c.prev = append(c.prev[:0], piece...)
	}
	if c.repeat && c.grown >= cumulativeAfter {
		c.args, c.last = append(c.args[:0], piece...), 0
		return
	}
	c.last = len(c.args)
	c.args = append(c.args, piece...)
}

// arguments decides how the pieces are to be read: one behind the other unless that is no JSON object while another
// reading is.
func (c *pendingCall) arguments() string {
	if c.pieces < 2 || c.complete() {
		return string(c.args)
	}
	if c.repeat && isObject(c.prev) {
		return string(c.prev)
	}
	head, tail := c.args[:c.last], c.args[c.last:]
	if isObject(tail) && isObject(head) && sameJSON(head, tail) { // said again as a whole at the end
		return string(tail)
	}
	return string(c.args)
}

func isObject(b []byte) bool { return len(b) > 0 && b[0] == '{' && json.Valid(b) }

func sameJSON(x, y []byte) bool {
	a, errA := hob.Canonical(x)
	b, errB := hob.Canonical(y)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// done returns the calls in the order in which they began.
func (a *assembler) done() ([]*hob.ModelCall, error) {
	if len(a.calls) == 0 {
		return nil, nil
	}
	out := make([]*hob.ModelCall, 0, len(a.calls))
	for _, c := range a.calls {
		if !c.stands() {
			continue
		}
		args := c.arguments()
		if a.sameIDs {
			c.id = ""
		}
		out = append(out, &hob.ModelCall{
			ID: strings.ToValidUTF8(c.id, ""), Name: c.name, Arguments: strings.ToValidUTF8(args, "\uFFFD"),
		})
	}
	return out, nil
}

// documents parts a body into the JSON values it holds. whole is false where the last one is broken off.
func documents(body []byte) (docs [][]byte, whole bool) {
	dec := json.NewDecoder(bytes.NewReader(body))
	for dec.More() {
		var doc json.RawMessage
		if dec.Decode(&doc) != nil {
			return docs, false
		}
		docs = append(docs, doc)
	}
	return docs, len(docs) > 0
}

func validJSON(b []byte) bool { return json.Valid(b) }
