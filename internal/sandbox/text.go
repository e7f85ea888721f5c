package sandbox

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean makes output fit to be shown: valid UTF-8, line feeds and tabs, and no other control characters; what terminals
// take for commands goes as a whole.
func clean(raw []byte) string {
	text := strings.ToValidUTF8(string(raw), "\ufffd")
	if strings.IndexFunc(text, unwanted) < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		if text[i] == 0x1b {
			i += escape(text[i:])
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		i += n
		switch {
		case r == '\r' && (i == len(text) || text[i] != '\n'):
			b.WriteByte('\n') // a line that would be written over
		case !unwanted(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unwanted are control characters and those that turn the direction of text round.
func unwanted(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r >= 0xe0000 && r <= 0xe007f:
		return true
	}
	return unicode.IsControl(r)
}

// escape is the length of the command at the beginning of a text.
func escape(s string) int {
	if len(s) < 2 {
		return 1
	}
	switch s[1] {
	case '[': // parameters, then one final byte
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] < 0x20 || s[i] > 0x7e {
				return i
			}
		}
		return len(s)
	case ']', 'P', 'X', '^', '_': // a text up to its terminator
		for i := 2; i < len(s); i++ {
			switch s[i] {
			case 0x07:
				return i + 1
			case '\n':
				return i
			case 0x1b:
				return min(i+2, len(s))
			}
		}
		return len(s)
	}
	if s[1] >= 0x20 && s[1] <= 0x7e {
		return 2
	}
	return 1
}

// capped keeps the first bytes of two streams, up to a bound on both together.
type capped struct {
	room    int
	kept    [2][]byte
	dropped bool
}

func (c *capped) add(stream int, b []byte) {
	if len(b) > c.room {
		b = b[:c.room]
		c.dropped = true
	}
	c.kept[stream] = append(c.kept[stream], b...)
	c.room -= len(b)
}
