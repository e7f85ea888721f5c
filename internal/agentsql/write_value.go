package agentsql

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
)

// maxExponent bounds the digits that a number written with an exponent is
// spelled out to.
const maxExponent = 400

// convert turns a JSON value into a parameter for a column. What does not fit
// the column's type is refused here where the engine would take it.
func convert(d dialect, c targetColumn, raw json.RawMessage) (param, error) {
	raw = bytes.TrimSpace(raw)
	if bytes.Contains(raw, []byte(`\u0000`)) {
		return param{}, invalid("The value of '%s' holds a NUL character", c.name)
	}
	switch {
	case string(raw) == "null":
		return param{}, nil
	case c.kind == jsonColumn:
		return param{kind: textParam, text: compactJSON(raw)}, nil
	case d == sqliteDialect:
		return convertSQLite(c, raw)
	}
	text, err := postgresText(c, c.kind, raw)
	return param{kind: textParam, text: text}, err
}

func compactJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// postgresText writes a value the way the server reads one of the column's
// type: the type itself judges it.
func postgresText(c targetColumn, kind columnKind, raw json.RawMessage) (string, error) {
	switch raw[0] {
	case '"':
		return unquote(c, raw)
	case '{':
		return "", invalid("Column '%s' (%s) takes no object", c.name, c.typ)
	case '[':
		if kind != arrayColumn {
			return "", invalid("Column '%s' (%s) takes no array", c.name, c.typ)
		}
		return postgresArray(c, raw)
	case 't', 'f':
		return string(raw), nil
	}
	return plainNumber(c, raw)
}

func unquote(c targetColumn, raw json.RawMessage) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", invalid("The value of '%s' is no JSON", c.name)
	}
	return s, nil
}

// postgresArray writes {"a",NULL,{…}}.
func postgresArray(c targetColumn, raw json.RawMessage) (string, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return "", invalid("The value of '%s' is no JSON", c.name)
	}
	parts := make([]string, len(items))
	for i, item := range items {
		switch {
		case string(item) == "null":
			parts[i] = "NULL"
		case item[0] == '[' && c.element != jsonColumn:
			inner, err := postgresArray(c, item)
			if err != nil {
				return "", err
			}
			parts[i] = inner
		default:
			text := compactJSON(item)
			if c.element != jsonColumn {
				var err error
				if text, err = postgresText(c, plainColumn, item); err != nil {
					return "", err
				}
			}
			parts[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
		}
	}
	return "{" + strings.Join(parts, ",") + "}", nil
}

// plainNumber spells a JSON number without an exponent, every digit kept: not
// all types read exponents.
func plainNumber(c targetColumn, raw json.RawMessage) (string, error) {
	text := string(raw)
	mantissa, exponent, has := strings.Cut(strings.ToLower(text), "e")
	if !has {
		return text, nil
	}
	n, err := strconv.Atoi(exponent)
	if err != nil || n > maxExponent || n < -maxExponent {
		return "", invalid("The number for '%s' is out of range", c.name)
	}
	_, fraction, _ := strings.Cut(mantissa, ".")
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return "", invalid("The value of '%s' is no number", c.name)
	}
	return r.FloatString(max(0, len(fraction)-n)), nil
}

// convertSQLite gives a value the type that the column declares. The engine
// itself would keep any value in any column.
func convertSQLite(c targetColumn, raw json.RawMessage) (param, error) {
	misfit := func(want string) (param, error) {
		return param{}, invalid("Column '%s' (%s) takes %s", c.name, c.typ, want)
	}
	switch raw[0] {
	case '"':
		s, err := unquote(c, raw)
		if err != nil {
			return param{}, err
		}
		if blob, ok := strings.CutPrefix(s, `\x`); ok && c.kind == blobColumn {
			b, err := hex.DecodeString(blob)
			if err != nil {
				return misfit(`text, or \x and hexadecimal digits`)
			}
			return param{kind: blobParam, text: string(b)}, nil
		}
		if _, err := strconv.ParseInt(s, 10, 64); c.kind == integerColumn && err != nil {
			return misfit("an integer")
		}
		if _, err := strconv.ParseFloat(s, 64); c.kind == realColumn && err != nil {
			return misfit("a number")
		}
		return param{kind: textParam, text: s}, nil
	case '{', '[':
		if c.kind != textColumn {
			return misfit("no object or array")
		}
		return param{kind: textParam, text: compactJSON(raw)}, nil
	case 't', 'f':
		if c.kind == textColumn {
			return param{kind: textParam, text: string(raw)}, nil
		}
		return param{kind: intParam, i: map[byte]int64{'t': 1, 'f': 0}[raw[0]]}, nil
	}
	text, err := plainNumber(c, raw)
	if err != nil {
		return param{}, err
	}
	if c.kind == textColumn {
		return param{kind: textParam, text: text}, nil
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return param{kind: intParam, i: i}, nil
	}
	if c.kind == integerColumn {
		// 5.0 is whole, too.
		if r, ok := new(big.Rat).SetString(text); ok && r.IsInt() && r.Num().IsInt64() {
			return param{kind: intParam, i: r.Num().Int64()}, nil
		}
		return misfit("an integer of 64 bits")
	}
	if (c.typ == "" || strings.EqualFold(c.typ, "ANY")) && !strings.ContainsAny(string(raw), ".eE") {
		// A column that keeps every value as it is would lose digits of this one.
		return misfit("an integer of 64 bits; write a longer one as text")
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return misfit("a number within the range of 64-bit floating point")
	}
	return param{kind: floatParam, f: f}, nil
}

// sqliteKind is the kind of a declared type, by the engine's own rules of
// affinity; JSON is a type of its own.
func sqliteKind(declared string) columnKind {
	t := strings.ToUpper(declared)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(t, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("INT"):
		return integerColumn
	case has("CHAR", "CLOB", "TEXT"):
		return textColumn
	case t == "JSON" || t == "JSONB":
		return jsonColumn
	case has("BLOB"):
		return blobColumn
	case has("REAL", "FLOA", "DOUB"): //nolint:misspell // as the engine has it
		return realColumn
	}
	return plainColumn // NUMERIC or none: numbers, dates, booleans
}
