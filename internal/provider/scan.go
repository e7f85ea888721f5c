package provider

import (
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks JSON by hand. Every method reports false on anything it does not expect; the caller then falls back on
// the general decoder, so the scanner may be narrow but never lenient: what it accepts is valid JSON.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) blank() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// byte consumes c, and blanks before it.
func (s *scanner) byte(c byte) bool {
	s.blank()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// word consumes a literal, and blanks before it.
func (s *scanner) word(w string) bool {
	s.blank()
	if len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
		s.i += len(w)
		return true
	}
	return false
}

// str returns the raw inside of a string. plain tells that it has neither escapes nor bytes above 0x7f.
func (s *scanner) str() (raw []byte, plain, ok bool) {
	if !s.byte('"') {
		return nil, false, false
	}
	from := s.i
	plain = true
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			raw = s.b[from:s.i]
			s.i++
			return raw, plain, true
		case c == '\\':
			plain = false
			s.i += 2
		case c < 0x20:
			return nil, false, false
		case c >= utf8.RuneSelf:
			plain = false
			s.i++
		default:
			s.i++
		}
	}
	return nil, false, false
}

// key consumes a member's name without escapes and its colon.
func (s *scanner) key() ([]byte, bool) {
	k, plain, ok := s.str()
	return k, ok && plain && s.byte(':')
}

// scalar passes over a string, number, true, false or null.
func (s *scanner) scalar() bool {
	s.blank()
	if s.i >= len(s.b) {
		return false
	}
	switch c := s.b[s.i]; {
	case c == '"':
		raw, plain, ok := s.str()
		return ok && (plain || validEscapes(raw))
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	return s.word("null") || s.word("true") || s.word("false")
}

func (s *scanner) digits() bool {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > from
}

func (s *scanner) number() bool {
	if s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return false
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return false
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		return s.digits()
	}
	return true
}

// end says whether nothing but blanks is left.
func (s *scanner) end() bool {
	s.blank()
	return s.i == len(s.b)
}

// validEscapes says whether raw is the inside of a valid JSON string in valid UTF-8.
func validEscapes(raw []byte) bool {
	_, ok := appendUnescaped(nil, raw, true)
	return ok
}

// appendUnescaped appends the text of a raw JSON string to dst; dry only checks. It is false for invalid escapes and
// invalid UTF-8. Lone surrogates become U+FFFD, as in encoding/json.
func appendUnescaped(dst, raw []byte, dry bool) ([]byte, bool) {
	if !utf8.Valid(raw) {
		return dst, false
	}
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			from := i
			for i < len(raw) && raw[i] != '\\' {
				i++
			}
			if !dry {
				dst = append(dst, raw[from:i]...)
			}
			continue
		}
		if i+1 >= len(raw) {
			return dst, false
		}
		r, n := unescape(raw[i:])
		if n == 0 {
			return dst, false
		}
		if !dry {
			dst = utf8.AppendRune(dst, r)
		}
		i += n
	}
	return dst, true
}

// unescape reads one escape sequence, a surrogate pair as one; n is 0 where it is invalid.
func unescape(b []byte) (r rune, n int) {
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r := hex4(b[2:])
		if r < 0 {
			return 0, 0
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(b[8:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return utf8.RuneError, 6
	}
	return 0, 0
}

// hex4 reads four hex digits, -1 where there are none.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
