package engine

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"hob"
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }} //nolint:gochecknoglobals // scratch space

// encodeFrame is the one encoder of event frames: one line of JSON, which no content can split.
func encodeFrame(v any) json.RawMessage {
	buf := buffers.Get().(*bytes.Buffer) //nolint:forcetypeassert // the pool holds nothing else
	buf.Reset()
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	var out []byte
	if err := enc.Encode(v); err == nil {
		out = bytes.Clone(bytes.TrimRight(buf.Bytes(), "\n"))
	} else { // only a RawMessage that is no JSON could do this; the gate lets none through
		out = []byte(`{}`)
	}
	if buf.Cap() <= 64<<10 {
		buffers.Put(buf)
	}
	return out
}

// textKind is a kind of streamed text: its event type and where the text goes.
type textKind struct {
	event hob.EventType
	field string
	step  int
}

// encodeText is encodeFrame for the three events that carry streamed text, which are most of all events.
func encodeText(k textKind, run hob.RunID, seq int64, at time.Time, text []byte) json.RawMessage {
	b := make([]byte, 0, 160+len(text)+len(text)/8)
	b = append(b, `{"event":"`...)
	b = append(b, k.event...)
	b = append(b, `","type":"`...)
	b = append(b, k.event...)
	b = append(b, `","seq":`...)
	b = strconv.AppendInt(b, seq, 10)
	b = append(b, `,"run_id":"`...)
	b = append(b, run...)
	b = append(b, `","ts":"`...)
	b = at.AppendFormat(b, "2006-01-02T15:04:05.000000Z07:00")
	b = append(b, '"')
	if k.event != hob.EventChunk {
		b = append(b, `,"step":`...)
		b = strconv.AppendInt(b, int64(k.step), 10)
	}
	if k.event == hob.EventReasoningDelta {
		b = append(b, `,"source":"thinking"`...)
	}
	b = append(b, `,"`...)
	b = append(b, k.field...)
	b = append(b, `":`...)
	b = appendJSONString(b, text)
	return append(b, '}')
}

const hexDigits = "0123456789abcdef"

// appendJSONString appends valid UTF-8 text as a JSON string, with the escapes that encoding/json uses without HTML.
func appendJSONString(b, s []byte) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f && c != 0xe2 {
			continue
		}
		if c == 0xe2 { // U+2028 and U+2029 end lines for some readers
			if i+2 < len(s) && s[i+1] == 0x80 && (s[i+2] == 0xa8 || s[i+2] == 0xa9) {
				b = append(append(b, s[from:i]...), `\u202`...)
				b = append(b, hexDigits[s[i+2]&0xf])
				i += 2
				from = i + 1
			}
			continue
		}
		if c == 0x7f {
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
		from = i + 1
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

// clean makes text from outside storable: valid UTF-8 without NUL, which Postgres cannot hold.
func clean(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	return s
}

// preview is the first n characters of s.
func preview(s string, n int) string {
	i := 0
	for at := range s {
		if i == n {
			return s[:at]
		}
		i++
	}
	return s
}
