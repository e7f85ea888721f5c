package agentsql

import (
	"errors"
	"fmt"
	"strconv"
)

// Bounds on a stored tree.
const (
	maxTreeDepth = 400
	maxTreeNodes = 200_000
)

// treeNode is a node of Postgres's analysed query tree as the server writes it:
// {TAG :field value :field value …}.
type treeNode struct {
	tag    string
	fields []treeField
}

type treeField struct {
	key   string // with its colon
	value treeValue
}

// treeValue is a node, a list, or an atom.
type treeValue struct {
	node *treeNode
	list []treeValue
	atom string
	// datum holds the bytes of a constant: a length and [ byte … ].
	datum []string
}

// null is how the server writes NULL, an empty list or string.
const null = "<>"

func (v treeValue) empty() bool { return v.atom == null }

// get returns a field; ok is false when the server's version does not have it.
func (n *treeNode) get(key string) (treeValue, bool) {
	for _, f := range n.fields {
		if f.key == key {
			return f.value, true
		}
	}
	return treeValue{}, false
}

// oid reads an atom that is a number.
func (v treeValue) oid() (uint32, error) {
	n, err := strconv.ParseUint(v.atom, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("query tree: %q is no oid", v.atom)
	}
	return uint32(n), nil
}

// oids reads (o 1 2 3); NULL is the empty list.
func (v treeValue) oids() ([]uint32, error) {
	if v.empty() {
		return nil, nil
	}
	if len(v.list) == 0 || v.list[0].atom != "o" {
		return nil, errors.New("query tree: a list of oids was expected")
	}
	var all []uint32
	for _, item := range v.list[1:] {
		n, err := item.oid()
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// treeReader reads the text strictly by position: after a key comes exactly one
// value, so that a column that the statement calls ":relid" stays a value.
type treeReader struct {
	src   string
	pos   int
	nodes int
}

// parseTree reads the text of pg_rewrite.ev_action. Anything unexpected is an
// error, and the statement is refused.
func parseTree(src string) (treeValue, error) {
	r := treeReader{src: src}
	v, err := r.value(0)
	if err != nil {
		return treeValue{}, err
	}
	if r.token() != "" {
		return treeValue{}, errors.New("query tree: text after its end")
	}
	return v, nil
}

func blank(c byte) bool { return c == ' ' || c == '\n' || c == '\t' }

// token returns the next element, "" at the end. A backslash hides the
// character after it and stays in the token, so an escaped brace is never
// taken for a real one.
func (r *treeReader) token() string {
	for r.pos < len(r.src) && blank(r.src[r.pos]) {
		r.pos++
	}
	start := r.pos
	for r.pos < len(r.src) {
		switch c := r.src[r.pos]; {
		case c == '(' || c == ')' || c == '{' || c == '}':
			if r.pos == start {
				r.pos++
			}
			return r.src[start:r.pos]
		case blank(c):
			return r.src[start:r.pos]
		case c == '\\':
			r.pos = min(r.pos+2, len(r.src))
		default:
			r.pos++
		}
	}
	return r.src[start:r.pos]
}

func (r *treeReader) value(depth int) (treeValue, error) {
	if depth > maxTreeDepth {
		return treeValue{}, errors.New("query tree: nested too deeply")
	}
	if r.nodes++; r.nodes > maxTreeNodes {
		return treeValue{}, errors.New("query tree: too large")
	}
	switch t := r.token(); t {
	case "":
		return treeValue{}, errors.New("query tree: ends too early")
	case ")", "}":
		return treeValue{}, fmt.Errorf("query tree: unexpected %s", t)
	case "(":
		return r.list(depth)
	case "{":
		n, err := r.node(depth)
		return treeValue{node: n}, err
	default:
		return treeValue{atom: t}, nil
	}
}

func (r *treeReader) list(depth int) (treeValue, error) {
	v := treeValue{list: []treeValue{}}
	for {
		mark := r.pos
		if r.token() == ")" {
			return v, nil
		}
		r.pos = mark
		item, err := r.value(depth + 1)
		if err != nil {
			return treeValue{}, err
		}
		v.list = append(v.list, item)
	}
}

func (r *treeReader) node(depth int) (*treeNode, error) {
	n := &treeNode{tag: r.token()}
	for {
		key := r.token()
		if key == "}" {
			return n, nil
		}
		if len(key) < 2 || key[0] != ':' {
			return nil, fmt.Errorf("query tree: field of %s expected", n.tag)
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if key == ":constvalue" && !v.empty() {
			if v.datum, err = r.datum(); err != nil {
				return nil, err
			}
		}
		n.fields = append(n.fields, treeField{key, v})
	}
}

// datum reads [ 1 0 0 0 ].
func (r *treeReader) datum() ([]string, error) {
	if r.token() != "[" {
		return nil, errors.New("query tree: a constant without its bytes")
	}
	var all []string
	for {
		switch t := r.token(); t {
		case "]":
			return all, nil
		case "", "(", ")", "{", "}":
			return nil, errors.New("query tree: a constant does not end")
		default:
			all = append(all, t)
		}
	}
}
