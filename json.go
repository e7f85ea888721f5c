package hob

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"time"
	"unicode/utf8"
)

// Limits of any JSON that comes from outside. A route sets its own byte cap on top.
const (
	MaxJSONDepth = 64
	MaxJSONKeys  = 10_000 // object members in one document
)

// Time is a moment on the wire: RFC 3339 in UTC with microseconds, null when zero.
type Time struct{ time.Time }

// MarshalJSON writes RFC 3339 or null.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	b := make([]byte, 0, 34)
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z07:00")
	return append(b, '"'), nil
}

// UnmarshalJSON reads RFC 3339 or null.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		t.Time = time.Time{}
		return nil
	}
	return t.Time.UnmarshalJSON(b)
}

// Micros is the time as the store keeps it: microseconds since 1970, 0 for the zero time.
func (t Time) Micros() int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// FromMicros is the inverse of Micros.
func FromMicros(us int64) Time {
	if us == 0 {
		return Time{}
	}
	return Time{time.UnixMicro(us).UTC()}
}

// CheckJSON says whether data is one JSON value of at most MaxJSONDepth levels and MaxJSONKeys members, in valid UTF-8,
// with no object naming a key twice and nothing behind it. The error is Invalid and says what is wrong and where.
func CheckJSON(data []byte) error {
	_, err := parse(data)
	return err
}

// Canonical is the one form of a JSON value: keys sorted, no blanks, numbers as they were written. Two arguments are
// identical when their canonical forms are. Errors are those of CheckJSON.
func Canonical(data []byte) (json.RawMessage, error) {
	v, err := parse(data)
	if err != nil {
		return nil, err
	}
	return encode(v), nil
}

// encode marshals a value made by parse: sorted keys, exact numbers, no HTML escapes.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // only maps, slices, strings, json.Number, bool and nil: cannot fail
	return bytes.TrimRight(b.Bytes(), "\n")
}

func parse(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, Errorf(Invalid, "the JSON is not valid UTF-8").WithCode("invalid_json")
	}
	p := parser{dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.Token(); err != io.EOF {
		return nil, p.bad("more data after the end of the JSON value")
	}
	return v, nil
}

type parser struct {
	dec  *json.Decoder
	keys int
}

func (p *parser) bad(what string) error {
	return Errorf(Invalid, "invalid JSON at byte %d: %s", p.dec.InputOffset(), what).WithCode("invalid_json")
}

func (p *parser) value(depth int) (any, error) {
	t, err := p.dec.Token()
	if err == io.EOF {
		return nil, p.bad("unexpected end")
	}
	if err != nil {
		return nil, p.bad(err.Error())
	}
	d, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth == MaxJSONDepth {
		return nil, p.bad("nested too deep")
	}
	if d == '[' {
		return p.array(depth)
	}
	return p.object(depth)
}

func (p *parser) array(depth int) (any, error) {
	list := []any{}
	for p.dec.More() {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if _, err := p.dec.Token(); err != nil {
		return nil, p.bad("the array does not end")
	}
	return list, nil
}

func (p *parser) object(depth int) (any, error) {
	m := map[string]any{}
	for p.dec.More() {
		t, err := p.dec.Token()
		if err != nil {
			return nil, p.bad(err.Error())
		}
		key, ok := t.(string)
		if !ok {
			return nil, p.bad("an object key must be a string")
		}
		if p.keys++; p.keys > MaxJSONKeys {
			return nil, p.bad("too many object keys")
		}
		if _, twice := m[key]; twice {
			return nil, p.bad("the key " + quote(key) + " stands twice in one object")
		}
		if m[key], err = p.value(depth + 1); err != nil {
			return nil, err
		}
	}
	if _, err := p.dec.Token(); err != nil {
		return nil, p.bad("the object does not end")
	}
	return m, nil
}

func quote(s string) string {
	if len(s) > 64 {
		s = string(bytes.ToValidUTF8([]byte(s[:64]), nil)) + "…"
	}
	return string(encode(s))
}

// Overlay returns the JSON object base with the members of top laid over it, in canonical form. A nil or null base
// counts as {}; a base that is no object is Invalid.
func Overlay(base json.RawMessage, top map[string]json.RawMessage) (json.RawMessage, error) {
	if len(top) == 0 && len(base) > 0 {
		return base, nil
	}
	m := map[string]json.RawMessage{}
	if len(base) > 0 && !slices.Equal(base, []byte("null")) {
		if err := json.Unmarshal(base, &m); err != nil {
			return nil, Errorf(Invalid, "the arguments must be a JSON object")
		}
	}
	for k, v := range top {
		m[k] = v
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, Errorf(Invalid, "the arguments cannot be encoded")
	}
	return Canonical(b)
}
