package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"unicode/utf8"

	"hob"
)

// MaxDumpRow bounds one row of a dump, in bytes as it is written there.
const MaxDumpRow = 128 << 20

// A row of a dump is a line: a JSON array with a number for an integer, a string for a text, a base64 string for bytes,
// null for NULL. A text that is not valid UTF-8, as only a hand can have put into SQLite, is {"base64":"…"}. There is one
// way to write a row, so that equal rows have equal digests.

// appendRow writes a row's line.
func appendRow(line []byte, columns []Column, values []any) ([]byte, error) {
	for i, v := range values {
		if i == 0 {
			line = append(line, '[')
		} else {
			line = append(line, ',')
		}
		var err error
		if line, err = appendValue(line, columns[i], v); err != nil {
			return nil, err
		}
	}
	return append(line, ']', '\n'), nil
}

func appendValue(line []byte, c Column, v any) ([]byte, error) {
	var text string
	switch v := v.(type) {
	case nil:
		return append(line, "null"...), nil
	case int64:
		if c.Kind == kindInt {
			return strconv.AppendInt(line, v, 10), nil
		}
		return nil, fmt.Errorf("column %s holds a number", c.Name)
	case string:
		text = v
	case []byte:
		text = string(v)
	default:
		return nil, fmt.Errorf("column %s holds a %T", c.Name, v)
	}
	switch {
	case c.Kind == kindInt:
		return nil, fmt.Errorf("column %s holds no number", c.Name)
	case c.Kind == kindBlob:
		line = append(line, '"')
		line = base64.StdEncoding.AppendEncode(line, []byte(text))
		return append(line, '"'), nil
	case !utf8.ValidString(text):
		line = append(line, `{"base64":"`...)
		line = base64.StdEncoding.AppendEncode(line, []byte(text))
		return append(line, `"}`...), nil
	}
	return appendText(line, text), nil
}

// appendText writes a JSON string with the fewest escapes that JSON allows.
func appendText(line []byte, text string) []byte {
	const digits = "0123456789abcdef"
	line = append(line, '"')
	from := 0
	for i := range len(text) {
		c := text[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		line = append(line, text[from:i]...)
		if from = i + 1; c == '"' || c == '\\' {
			line = append(line, '\\', c)
		} else {
			line = append(line, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(line, text[from:]...), '"')
}

// readRow reads a line and appends its values to args. strict refuses texts that Postgres does not keep.
func readRow(args []any, line []byte, columns []Column, strict bool) ([]any, error) {
	var values []json.RawMessage
	if err := json.Unmarshal(line, &values); err != nil {
		return nil, fmt.Errorf("it is no JSON array: %w", err)
	}
	if len(values) != len(columns) {
		return nil, fmt.Errorf("it has %d values for %d columns", len(values), len(columns))
	}
	for i, raw := range values {
		v, err := readValue(raw, columns[i], strict)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", columns[i].Name, err)
		}
		args = append(args, v)
	}
	return args, nil
}

func readValue(raw json.RawMessage, c Column, strict bool) (any, error) {
	if string(raw) == "null" {
		return nil, nil //nolint:nilnil // the value NULL
	}
	if c.Kind == kindInt {
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("it is no 64-bit integer")
		}
		return n, nil
	}
	var text string
	if c.Kind == kindText && bytes.HasPrefix(raw, []byte("{")) {
		var odd struct {
			Base64 []byte `json:"base64"`
		}
		if err := json.Unmarshal(raw, &odd); err != nil {
			return nil, err
		}
		if strict {
			return nil, hob.Errorf(hob.Invalid, "the text is not valid UTF-8, which Postgres does not keep; "+
				"mend its session where it comes from: hob doctor --session ID --repair")
		}
		// The store never writes such a text: as bytes it stays what it is, and reads the same.
		return odd.Base64, nil
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, err
	}
	if c.Kind == kindBlob {
		return base64.StdEncoding.Strict().DecodeString(text)
	}
	if strings.IndexByte(text, 0) >= 0 {
		if strict {
			return nil, hob.Errorf(hob.Invalid, "the text holds a NUL, which Postgres does not keep")
		}
		return []byte(text), nil
	}
	return text, nil
}

// Sum adds up a table as its rows go by.
type Sum struct {
	rows int64
	sum  hash.Hash
}

// NewSum is the sum of no rows.
func NewSum() *Sum { return &Sum{sum: sha256.New()} }

// Add takes whole lines.
func (s *Sum) Add(lines []byte) {
	_, _ = s.sum.Write(lines) // a hash takes everything
	s.rows += int64(bytes.Count(lines, []byte("\n")))
}

// Table gives the table with its count and digest: SHA-256 over the rows' lines and a line for each column. It ends the
// sum.
func (s *Sum) Table(name string, columns []Column) Table {
	for _, c := range columns {
		_, _ = s.sum.Write([]byte(c.Name + ":" + c.Kind + "\n"))
	}
	return Table{Name: name, Columns: columns, Rows: s.rows, SHA256: hex.EncodeToString(s.sum.Sum(nil))}
}
