package agentsql

import (
	"strings"
	"unicode/utf8"
)

// dialect is what differs between the engines' lexical rules.
type dialect int

const (
	sqliteDialect dialect = iota
	postgresDialect
)

type tokenKind int

const (
	wordToken   tokenKind = iota // SELECT, orders
	quotedToken                  // "orders", `orders`, [orders]
	stringToken                  // 'x', E'x', $$x$$, x'00'
	numberToken
	punctToken // one of ( ) , ; . or an operator character
	paramToken // $1, ?1, :name
	badToken   // an unterminated literal or comment
)

// token is one lexical element. text is folded for words (lower case) and
// unescaped for quoted identifiers; for other kinds it is the source.
type token struct {
	kind       tokenKind
	text       string
	start, end int
}

// is reports whether t is the unquoted word w, given in lower case.
func (t token) is(w string) bool { return t.kind == wordToken && t.text == w }

func (t token) punct(p string) bool { return t.kind == punctToken && t.text == p }

// named reports whether t can be a name.
func (t token) named() bool { return t.kind == wordToken || t.kind == quotedToken }

// lexer splits a statement as the engine's own scanner does. It finds where a
// statement ends and which words it uses; what the words mean is the engine's
// business.
type lexer struct {
	src string
	pos int
	d   dialect
}

// lex returns all tokens, without comments and white space.
func lex(src string, d dialect) []token {
	l := lexer{src: src, d: d}
	var all []token
	for {
		t, ok := l.next()
		if !ok {
			return all
		}
		all = append(all, t)
	}
}

func (l *lexer) peek(ahead int) byte {
	if l.pos+ahead < len(l.src) {
		return l.src[l.pos+ahead]
	}
	return 0
}

func (l *lexer) next() (token, bool) {
	if bad, ok := l.skipBlanks(); !ok {
		return bad, true
	}
	if l.pos >= len(l.src) {
		return token{}, false
	}
	start := l.pos
	t := l.scan()
	t.start, t.end = start, l.pos
	if t.text == "" && t.kind != quotedToken {
		t.text = l.src[start:l.pos]
	}
	if t.kind == wordToken {
		t.text = strings.ToLower(l.src[start:l.pos])
	}
	return t, true
}

// skipBlanks passes white space and comments. It is not ok on a comment that
// never ends in Postgres; in SQLite the end of the text ends it.
func (l *lexer) skipBlanks() (token, bool) {
	for l.pos < len(l.src) {
		switch c := l.src[l.pos]; {
		case c == ' ' || c >= '\t' && c <= '\r':
			l.pos++
		case c == '-' && l.peek(1) == '-':
			// Only Postgres ends a line at a lone carriage return.
			ends := "\n"
			if l.d == postgresDialect {
				ends = "\r\n"
			}
			if i := strings.IndexAny(l.src[l.pos:], ends); i >= 0 {
				l.pos += i + 1
			} else {
				l.pos = len(l.src)
			}
		case c == '/' && l.peek(1) == '*':
			start := l.pos
			if !l.skipBlockComment() && l.d == postgresDialect {
				return token{kind: badToken, start: start, end: l.pos}, false
			}
		default:
			return token{}, true
		}
	}
	return token{}, true
}

// skipBlockComment passes /* … */, nested in Postgres.
func (l *lexer) skipBlockComment() bool {
	depth := 0
	for l.pos < len(l.src) {
		switch {
		case l.peek(0) == '/' && l.peek(1) == '*' && (depth == 0 || l.d == postgresDialect):
			depth++
			l.pos += 2
		case l.peek(0) == '*' && l.peek(1) == '/':
			depth--
			l.pos += 2
			if depth == 0 {
				return true
			}
		default:
			l.pos++
		}
	}
	return false
}

func (l *lexer) scan() token {
	c := l.src[l.pos]
	if t, ok := l.prefixed(c); ok {
		return t
	}
	switch {
	case c == '\'':
		return l.quoted('\'', stringToken)
	case c == '"':
		return l.quoted('"', quotedToken)
	case c == '`' && l.d == sqliteDialect:
		return l.quoted('`', quotedToken)
	case c == '[' && l.d == sqliteDialect:
		return l.bracketed()
	case c == '$' && l.d == postgresDialect:
		return l.dollar()
	case l.d == sqliteDialect && strings.IndexByte("?:@$#", c) >= 0:
		l.pos++
		l.word()
		return token{kind: paramToken}
	case c >= '0' && c <= '9', c == '.' && digit(l.peek(1)):
		return l.number()
	case wordStart(c):
		l.word()
		return token{kind: wordToken}
	default:
		_, size := utf8.DecodeRuneInString(l.src[l.pos:])
		l.pos += size
		return token{kind: punctToken}
	}
}

// prefixed reads literals with a letter before the quote.
func (l *lexer) prefixed(c byte) (token, bool) {
	lower := c | 0x20
	switch {
	case (lower == 'x' || lower == 'b' && l.d == postgresDialect || lower == 'n' && l.d == postgresDialect) && l.peek(1) == '\'':
		l.pos++
		return l.quoted('\'', stringToken), true
	case l.d == postgresDialect && lower == 'e' && l.peek(1) == '\'':
		l.pos++
		return l.escaped(), true
	case l.d == postgresDialect && lower == 'u' && l.peek(1) == '&' && (l.peek(2) == '\'' || l.peek(2) == '"'):
		l.pos += 2
		if l.src[l.pos] == '\'' {
			return l.quoted('\'', stringToken), true
		}
		t := l.quoted('"', quotedToken)
		t.text = unicodeEscapes(t.text)
		return t, true
	}
	return token{}, false
}

// quoted reads up to the closing quote; a doubled quote stands for itself.
func (l *lexer) quoted(quote byte, kind tokenKind) token {
	l.pos++
	var text strings.Builder
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		if c != quote {
			text.WriteByte(c)
			l.pos++
			continue
		}
		if l.peek(1) != quote {
			l.pos++
			return token{kind: kind, text: text.String()}
		}
		text.WriteByte(quote)
		l.pos += 2
	}
	return token{kind: badToken}
}

// escaped reads Postgres's E'…', where a backslash hides the next character.
func (l *lexer) escaped() token {
	l.pos++
	for l.pos < len(l.src) {
		switch {
		case l.src[l.pos] == '\\':
			l.pos = min(l.pos+2, len(l.src))
		case l.src[l.pos] != '\'':
			l.pos++
		case l.peek(1) == '\'':
			l.pos += 2
		default:
			l.pos++
			return token{kind: stringToken}
		}
	}
	return token{kind: badToken}
}

func (l *lexer) bracketed() token {
	end := strings.IndexByte(l.src[l.pos:], ']')
	if end < 0 {
		l.pos = len(l.src)
		return token{kind: badToken}
	}
	text := l.src[l.pos+1 : l.pos+end]
	l.pos += end + 1
	return token{kind: quotedToken, text: text}
}

// dollar reads $tag$…$tag$ or a parameter.
func (l *lexer) dollar() token {
	end := l.pos + 1
	for end < len(l.src) && (wordStart(l.src[end]) || digit(l.src[end]) && end > l.pos+1) {
		end++
	}
	if end < len(l.src) && l.src[end] == '$' {
		tag := l.src[l.pos : end+1]
		body := strings.Index(l.src[end+1:], tag)
		if body < 0 {
			l.pos = len(l.src)
			return token{kind: badToken}
		}
		l.pos = end + 1 + body + len(tag)
		return token{kind: stringToken}
	}
	l.pos++
	for digit(l.peek(0)) {
		l.pos++
	}
	return token{kind: paramToken}
}

func (l *lexer) number() token {
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		sign := (c == '+' || c == '-') && l.src[l.pos-1]|0x20 == 'e'
		if !digit(c) && c != '.' && !wordStart(c) && !sign {
			break
		}
		l.pos++
	}
	return token{kind: numberToken}
}

func (l *lexer) word() {
	for l.pos < len(l.src) && (wordStart(l.src[l.pos]) || digit(l.src[l.pos]) || l.src[l.pos] == '$') {
		l.pos++
	}
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// wordStart counts every byte of a non-ASCII character as a letter, as both
// engines do.
func wordStart(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// unicodeEscapes resolves \0061 and \+000061 of U&"…" with the usual escape
// character; another one (UESCAPE) leaves the text as it is.
func unicodeEscapes(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		digits := 4
		from := i + 1
		if s[i] == '\\' && from < len(s) && s[from] == '+' {
			digits, from = 6, from+1
		}
		r := rune(0)
		ok := s[i] == '\\' && from+digits <= len(s)
		for j := from; ok && j < from+digits; j++ {
			h := strings.IndexByte("0123456789abcdef", s[j]|0x20)
			if digit(s[j]) {
				h = int(s[j] - '0')
			}
			ok = h >= 0
			r = r<<4 | rune(h)
		}
		if !ok {
			out.WriteByte(s[i])
			continue
		}
		out.WriteRune(r)
		i = from + digits - 1
	}
	return out.String()
}
