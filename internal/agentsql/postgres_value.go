package agentsql

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// postgresValue returns how a column's text becomes JSON: numbers, booleans and
// JSON as such, arrays of them and of the types in lists as arrays, everything
// else as text.
func postgresValue(oid uint32, lists map[uint32]bool) func(string) value {
	if lists[oid] {
		return arrayOf(textValue)
	}
	switch oid {
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.NumericOID, pgtype.Float4OID, pgtype.Float8OID:
		return numberValue
	case pgtype.BoolOID:
		return func(s string) value { return rawValue(map[bool]string{true: "true", false: "false"}[s == "t"]) }
	case pgtype.JSONOID, pgtype.JSONBOID:
		return jsonValue
	case pgtype.Int2ArrayOID, pgtype.Int4ArrayOID, pgtype.Int8ArrayOID, pgtype.NumericArrayOID, pgtype.Float4ArrayOID, pgtype.Float8ArrayOID:
		return arrayOf(numberValue)
	case pgtype.BoolArrayOID:
		return arrayOf(postgresValue(pgtype.BoolOID, nil))
	case pgtype.JSONArrayOID, pgtype.JSONBArrayOID:
		return arrayOf(jsonValue)
	case pgtype.TextArrayOID, pgtype.VarcharArrayOID, pgtype.BPCharArrayOID, pgtype.UUIDArrayOID, pgtype.DateArrayOID,
		pgtype.TimestampArrayOID, pgtype.TimestamptzArrayOID:
		return arrayOf(textValue)
	}
	return textValue
}

func textValue(s string) value { return value{text: s} }

// numberValue keeps every digit the server wrote; NaN and Infinity, for which
// JSON has no number, stay text.
func numberValue(s string) value {
	if json.Valid([]byte(s)) {
		return rawValue(s)
	}
	return value{text: s}
}

func jsonValue(s string) value {
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(s)) == nil {
		return value{raw: compact.Bytes()}
	}
	return value{text: s}
}

// arrayOf reads the server's text of an array, {1,NULL,"a b",{2}}. A text it
// does not understand (other lower bounds: [0:1]={…}) is shown as it is.
func arrayOf(element func(string) value) func(string) value {
	return func(s string) value {
		r := arrayReader{src: s, element: element}
		out, ok := r.array()
		if !ok || r.pos != len(s) {
			return value{text: s}
		}
		return rawValue(out)
	}
}

type arrayReader struct {
	src     string
	pos     int
	element func(string) value
}

func (r *arrayReader) next() byte {
	if r.pos >= len(r.src) {
		return 0
	}
	return r.src[r.pos]
}

func (r *arrayReader) array() (string, bool) {
	if r.next() != '{' {
		return "", false
	}
	r.pos++
	var items []string
	for r.next() != '}' {
		if len(items) > 0 {
			if r.next() != ',' {
				return "", false
			}
			r.pos++
		}
		item, ok := r.item()
		if !ok {
			return "", false
		}
		items = append(items, item)
	}
	r.pos++
	return "[" + strings.Join(items, ",") + "]", true
}

func (r *arrayReader) item() (string, bool) {
	switch r.next() {
	case '{':
		return r.array()
	case '"':
		text, ok := r.quoted()
		return r.show(text), ok
	}
	end := strings.IndexAny(r.src[r.pos:], ",}")
	if end <= 0 {
		return "", false
	}
	text := r.src[r.pos : r.pos+end]
	r.pos += end
	if text == "NULL" {
		return "null", true
	}
	return r.show(text), true
}

func (r *arrayReader) quoted() (string, bool) {
	var text strings.Builder
	for r.pos++; r.pos < len(r.src); r.pos++ {
		switch c := r.src[r.pos]; c {
		case '"':
			r.pos++
			return text.String(), true
		case '\\':
			if r.pos++; r.pos == len(r.src) {
				return "", false
			}
			text.WriteByte(r.src[r.pos])
		default:
			text.WriteByte(c)
		}
	}
	return "", false
}

func (r *arrayReader) show(text string) string {
	v := r.element(text)
	if v.raw != nil {
		return string(v.raw)
	}
	return string(jsonString(v.text))
}
