package agentsql

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// columnKeys makes result names unique: the first keeps its name, later ones
// get _2, _3 …, past names that are taken already.
func columnKeys(names []string) []string {
	taken := make(map[string]bool, len(names))
	for _, n := range names {
		taken[n] = true
	}
	seen := make(map[string]int, len(names))
	keys := make([]string, len(names))
	for i, n := range names {
		seen[n]++
		keys[i] = n
		if seen[n] == 1 {
			continue
		}
		for taken[keys[i]] {
			keys[i] = n + "_" + strconv.Itoa(seen[n])
			if taken[keys[i]] {
				seen[n]++
			}
		}
		taken[keys[i]] = true
	}
	return keys
}

// builder writes row objects until a limit is reached. It holds at most
// Limits.Bytes characters and one row.
type builder struct {
	limits Limits
	keys   []string
	quoted [][]byte // keys as JSON strings with their colon

	out       bytes.Buffer
	row       bytes.Buffer
	chars     int
	count     int
	truncated bool
}

func newBuilder(names []string, limits Limits) *builder {
	b := &builder{limits: limits, keys: columnKeys(names), chars: 2}
	for _, k := range b.keys {
		b.quoted = append(b.quoted, append(jsonString(k), ':'))
	}
	return b
}

// add appends a row. It reports false when the row was left out because a
// limit is reached; the caller then stops reading. A first row that is too
// large as a whole is kept with its values cut to fit.
func (b *builder) add(values []value) bool {
	if b.count >= b.limits.Rows {
		b.truncated = true
		return false
	}
	cut, n := b.render(values, b.limits.Value)
	if b.chars+n+1 > b.limits.Bytes && b.count == 0 && len(values) > 0 {
		room := b.limits.Bytes/(2*len(values)) - 40
		cut, n = b.render(values, max(room, 0))
	}
	if b.chars+n+1 > b.limits.Bytes {
		b.truncated = true
		return false
	}
	if b.count > 0 {
		b.out.WriteByte(',')
		b.chars++
	}
	b.out.Write(b.row.Bytes())
	b.chars += n
	b.count++
	b.truncated = b.truncated || cut
	return true
}

// render writes one row object and returns whether a value was cut, and the
// object's size in characters.
func (b *builder) render(values []value, limit int) (bool, int) {
	b.row.Reset()
	b.row.WriteByte('{')
	cut := false
	for i, v := range values {
		if i > 0 {
			b.row.WriteByte(',')
		}
		b.row.Write(b.quoted[i])
		cut = v.write(&b.row, limit) || cut
	}
	b.row.WriteByte('}')
	return cut, utf8.RuneCount(b.row.Bytes())
}

func (b *builder) rows() Rows {
	all := make([]byte, 0, b.out.Len()+2)
	all = append(all, '[')
	all = append(all, b.out.Bytes()...)
	all = append(all, ']')
	return Rows{Columns: b.keys, JSON: all, Count: b.count, Truncated: b.truncated}
}

// value is one field of a row: a text to be quoted, or raw JSON.
type value struct {
	text string
	raw  json.RawMessage // when not nil, instead of text
	// size is the true length in bytes when the engine's value was longer than
	// what was read of it.
	size int
}

// write appends the value as JSON and reports whether it had to be cut. Raw
// JSON longer than the limit (an object of a JSON column) becomes a cut text,
// so that the whole stays valid.
func (v value) write(w *bytes.Buffer, limit int) bool {
	if v.raw != nil && utf8.RuneCount(v.raw) <= limit {
		w.Write(v.raw)
		return false
	}
	text := v.text
	if v.raw != nil {
		text = string(v.raw)
	}
	size := max(v.size, len(text))
	head := headRunes(text, limit)
	if len(head) == size {
		w.Write(jsonString(text))
		return false
	}
	w.Write(jsonString(fmt.Sprintf("%s… [cut: the value has %d bytes]", head, size)))
	return true
}

// headRunes is the longest prefix of at most n characters.
func headRunes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// jsonString quotes s without escaping <, > and &, which models read badly.
func jsonString(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// Encoding a string cannot fail; invalid UTF-8 becomes U+FFFD.
	_ = enc.Encode(s)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func rawValue(s string) value { return value{raw: json.RawMessage(s)} }

func nullValue() value { return rawValue("null") }

// floatValue is a JSON number, or a text for what JSON has no number for.
func floatValue(f float64) value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return value{text: strconv.FormatFloat(f, 'g', -1, 64)}
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	s := strconv.FormatFloat(f, format, -1, 64)
	if format == 'f' && !strings.Contains(s, ".") {
		s += ".0" // 2.0 stays visibly a real number
	}
	return rawValue(s)
}

// bytesValue shows binary data as hexadecimal digits, as Postgres does. size is
// the true length when b is only the head of it.
func bytesValue(b []byte, size int) value {
	return value{text: fmt.Sprintf(`\x%x`, b), size: 2 + 2*size}
}
