package agentsql

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds on a statement's form, checked before an engine sees it.
const (
	maxTokens = 8192
	maxParens = 100
)

// statement is a text with one statement in it, as far as its form shows.
type statement struct {
	// body is the text without the final semicolon and what follows it, and
	// on Postgres without EXPLAIN and its options.
	body   string
	tokens []token // of body

	explain bool
	options []string // of EXPLAIN, upper case: VERBOSE, FORMAT JSON …
}

// split checks the form of sql: length, characters, one statement, nesting, a
// first word that begins a query. Whether it may run is decided later, by the
// engine's own analysis; this only gives plain errors early.
func split(sql string, d dialect, limit int) (statement, error) {
	var s statement
	switch {
	case len(sql) > limit:
		return s, invalid("The query is too long: %d bytes, at most %d", len(sql), limit)
	case strings.ContainsRune(sql, 0):
		return s, invalid("The query holds a NUL character")
	case !utf8.ValidString(sql):
		return s, invalid("The query is not valid UTF-8")
	}
	tokens := lex(sql, d)
	if err := checkForm(tokens); err != nil {
		return s, err
	}
	s.body, s.tokens = sql, tokens
	if i := slices.IndexFunc(tokens, func(t token) bool { return t.punct(";") }); i >= 0 {
		if i != len(tokens)-1 {
			return s, refuse(msgMulti)
		}
		s.body, s.tokens = sql[:tokens[i].start], tokens[:i]
	}
	if len(s.tokens) == 0 {
		return s, invalid("The query is empty")
	}
	if s.tokens[0].is("explain") {
		if err := s.takeExplain(d); err != nil {
			return s, err
		}
	}
	if !beginsQuery(s.tokens) {
		return s, refuse(msgOnlySelect)
	}
	return s, nil
}

func checkForm(tokens []token) error {
	if len(tokens) > maxTokens {
		return invalid("The query is too long: %d words, at most %d", len(tokens), maxTokens)
	}
	depth := 0
	for _, t := range tokens {
		switch {
		case t.kind == badToken:
			return invalid("The query ends inside a quoted text or comment")
		case t.punct("("):
			depth++
		case t.punct(")"):
			depth--
		}
		if depth > maxParens {
			return invalid("The query is nested too deeply: at most %d levels of parentheses", maxParens)
		}
		if depth < 0 {
			return invalid("The query has a closing parenthesis without an opening one")
		}
	}
	return nil
}

// beginsQuery looks past opening parentheses at the first word.
func beginsQuery(tokens []token) bool {
	for _, t := range tokens {
		if !t.punct("(") {
			return t.is("select") || t.is("with") || t.is("values")
		}
	}
	return false
}

// takeExplain reads EXPLAIN and its options. SQLite's stays in the body, since
// its engine judges the statement behind it anyway; Postgres's is taken off, so
// that the statement behind it can be checked by itself.
func (s *statement) takeExplain(d dialect) error {
	s.explain = true
	rest := s.tokens[1:]
	if d == sqliteDialect {
		if len(rest) > 1 && rest[0].is("query") && rest[1].is("plan") {
			rest = rest[2:]
		}
		s.tokens = rest
		return nil
	}
	var err error
	if len(rest) > 0 && rest[0].punct("(") && len(rest) > 1 && explainOption(rest[1]) {
		rest, err = s.explainList(rest[1:])
	} else {
		rest, err = s.explainWords(rest)
	}
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return invalid("EXPLAIN without a query")
	}
	s.body = s.body[rest[0].start:]
	s.tokens = rest
	return nil
}

// explainOption tells EXPLAIN (VERBOSE) … from EXPLAIN (SELECT …).
func explainOption(t token) bool {
	return t.kind == wordToken && !t.is("select") && !t.is("with") && !t.is("values")
}

func (s *statement) explainWords(rest []token) ([]token, error) {
	for len(rest) > 0 && (rest[0].is("verbose") || rest[0].is("analyze") || rest[0].is("analyse")) {
		if !rest[0].is("verbose") {
			return nil, refuse("EXPLAIN ANALYZE is not allowed: it runs the query; use EXPLAIN")
		}
		s.options = append(s.options, "VERBOSE")
		rest = rest[1:]
	}
	return rest, nil
}

// explainList reads the options in parentheses. Only those that show nothing
// but the plan itself are known.
func (s *statement) explainList(rest []token) ([]token, error) {
	for len(rest) > 0 {
		var words []string
		for len(rest) > 0 && !rest[0].punct(",") && !rest[0].punct(")") {
			words = append(words, strings.ToUpper(rest[0].text))
			rest = rest[1:]
		}
		option := strings.Join(words, " ")
		switch option {
		case "VERBOSE", "VERBOSE TRUE", "VERBOSE ON", "COSTS", "COSTS TRUE", "COSTS ON", "COSTS OFF", "COSTS FALSE",
			"FORMAT TEXT", "FORMAT JSON", "FORMAT XML", "FORMAT YAML", "VERBOSE OFF", "VERBOSE FALSE":
			s.options = append(s.options, option)
		case "ANALYZE OFF", "ANALYZE FALSE":
		default:
			return nil, refuse("EXPLAIN takes only VERBOSE, COSTS and FORMAT here")
		}
		if len(rest) == 0 {
			break
		}
		end := rest[0].punct(")")
		rest = rest[1:]
		if end {
			return rest, nil
		}
	}
	return nil, invalid("EXPLAIN's options do not end")
}

// explainPrefix writes the options back, from our own list of words.
func (s statement) explainPrefix() string {
	if !s.explain {
		return ""
	}
	if len(s.options) == 0 {
		return "EXPLAIN "
	}
	return "EXPLAIN (" + strings.Join(s.options, ", ") + ") "
}
