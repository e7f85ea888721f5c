package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"hob"
)

// grammar is how a condition is written, for errors.
const grammar = "field [NOT] CONTAINS|STARTS_WITH|MATCHES|IN value, as in: query NOT STARTS_WITH SELECT"

// parseCondition reads a condition. bad tells what is wrong with it, and what would be right.
func parseCondition(text string, fold bool) (c condition, field, bad string) {
	switch text = strings.TrimSpace(text); {
	case text == "":
		return c, "", "must be text of the form " + grammar
	case utf8.RuneCountInString(text) > hob.MaxCondition:
		return c, "", fmt.Sprintf("must have at most %d characters", hob.MaxCondition)
	case !utf8.ValidString(text):
		return c, "", "must be valid UTF-8"
	}
	field, rest := nextWord(text)
	if !isField(field) {
		return c, "", fmt.Sprintf("begins with %q, which is no field: names of letters, digits, _, - and $, parted by dots. A condition is %s", short(field), grammar)
	}
	word, rest := nextWord(rest)
	if word == "NOT" {
		c.not = true
		word, rest = nextWord(rest)
	}
	c.operate, c.fold = operator(word), fold
	switch c.operate {
	case opContains, opStartsWith, opMatches, opIn:
	default:
		return c, "", fmt.Sprintf("has %q in the place of the operator, which must be CONTAINS, STARTS_WITH, MATCHES or IN, in capitals. A condition is %s", short(word), grammar)
	}
	if rest == "" {
		return c, "", fmt.Sprintf("has no value behind %s; for empty text write \"\"", word)
	}
	return c, field, c.read(rest)
}

// nextWord cuts the first word off a text, and the blanks behind it.
func nextWord(text string) (word, rest string) {
	i := strings.IndexFunc(text, unicode.IsSpace)
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.TrimLeftFunc(text[i:], unicode.IsSpace)
}

// isField says whether a word can name an argument: names parted by dots.
func isField(word string) bool {
	for name := range strings.SplitSeq(word, ".") {
		odd := func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-$", r)
		}
		if name == "" || strings.ContainsFunc(name, odd) {
			return false
		}
	}
	return true
}

// read takes the value of a condition, and tells what is wrong with it.
func (c *condition) read(value string) (bad string) {
	switch c.operate {
	case opIn:
		return c.readList(value)
	case opMatches:
		return c.readPattern(unquoted(value))
	case opContains, opStartsWith:
		c.want = comparableText(unquoted(value), c.fold)
	}
	return ""
}

// unquoted takes one pair of equal quotes off a text.
func unquoted(s string) string {
	if n := len(s); n >= 2 && s[0] == s[n-1] && (s[0] == '"' || s[0] == '\'') {
		return s[1 : n-1]
	}
	return s
}

func (c *condition) readPattern(pattern string) (bad string) {
	if n := utf8.RuneCountInString(pattern); n > hob.MaxPattern {
		return fmt.Sprintf("has a pattern of %d characters; %d are allowed", n, hob.MaxPattern)
	}
	pattern = norm.NFC.String(pattern)
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		why := "it cannot be read"
		var fault *syntax.Error
		if errors.As(err, &fault) {
			why = fmt.Sprintf("%s: %q", fault.Code, short(fault.Expr))
		}
		return "has a pattern that is not valid (" + why + "); the syntax is that of RE2, without look-around and back references"
	}
	if c.size = instructions(parsed); c.size > ruleProgram {
		return fmt.Sprintf("has a pattern that is too large: its repetitions make more than %d instructions of it", ruleProgram)
	}
	flags := "(?s)"
	if c.fold {
		flags = "(?is)"
	}
	if c.pattern, err = regexp.Compile(flags + pattern); err != nil {
		return "has a pattern that is not valid; the syntax is that of RE2"
	}
	return ""
}

// instructions is about how many a pattern has once it is compiled, known without compiling it: what repetitions make of a
// short pattern need not be built to be refused. Of patterns that are far too large it is some number above the bound.
func instructions(re *syntax.Regexp) int {
	sum := 0
	for _, sub := range re.Sub {
		sum = min(sum+instructions(sub), 2*ruleProgram)
	}
	switch re.Op {
	case syntax.OpLiteral:
		sum = len(re.Rune)
	case syntax.OpRepeat: // x{2,5} is xx(x(x(x)?)?)?, and x{2,} is xx+
		sum = sum*max(re.Min, re.Max, 1) + max(re.Max-re.Min, 2)
	case syntax.OpAlternate:
		sum += len(re.Sub) - 1
	case syntax.OpConcat:
	default: // one of its own, or two around another
		sum += min(1+len(re.Sub), 2)
	}
	return min(sum, 2*ruleProgram)
}

func (c *condition) readList(value string) (bad string) {
	const right = `must have a JSON list behind IN, as in: table IN ["orders", "customers"]`
	list := []byte(value)
	if hob.CheckJSON(list) != nil {
		list = doubleQuoted(value)
	}
	if err := hob.CheckJSON(list); err != nil {
		return right
	}
	var members []any
	d := json.NewDecoder(bytes.NewReader(list))
	d.UseNumber()
	if err := d.Decode(&members); err != nil || members == nil {
		return right
	}
	c.list = make(map[string]struct{}, len(members))
	for _, m := range members {
		c.list[comparableText(textOf(m), c.fold)] = struct{}{}
	}
	return ""
}

// doubleQuoted writes the strings of a JSON text that are in single quotes in double ones.
func doubleQuoted(text string) []byte {
	out := make([]byte, 0, len(text)+16)
	var in byte // the quote of the string that i is in
	for i := 0; i < len(text); i++ {
		switch ch := text[i]; {
		case in == 0 && (ch == '\'' || ch == '"'):
			in, out = ch, append(out, '"')
		case in != 0 && ch == in:
			in, out = 0, append(out, '"')
		case in == '\'' && ch == '"':
			out = append(out, '\\', '"')
		case in != 0 && ch == '\\' && i+1 < len(text):
			i++
			if text[i] != '\'' { // JSON knows no such escape
				out = append(out, '\\')
			}
			out = append(out, text[i])
		default:
			out = append(out, ch)
		}
	}
	return out
}
