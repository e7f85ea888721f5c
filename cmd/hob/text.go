package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Terminal styles. A style that is "" writes plainly.
type style string

const (
	dim    style = "\x1b[2m"
	bold   style = "\x1b[1m"
	cyan   style = "\x1b[36m"
	green  style = "\x1b[32m"
	yellow style = "\x1b[33m"
	red    style = "\x1b[31m"
	reset        = "\x1b[0m"
)

// colours says whether a stream is a terminal whose user wants colours.
func colours(w io.Writer, getenv func(string) string) bool {
	return terminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// terminal says whether a stream is a terminal (or another device that shows characters).
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

// plain makes text from models, tools and servers harmless on a terminal: control characters (but for newlines and
// tabs) and the invisible ones that reorder text are dropped, so that nobody else's text moves the cursor, sets the
// title or hides what was called.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), r == utf8.RuneError,
			r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f:
			return -1
		}
		return r
	}, s)
}

// indent puts a margin before every line.
func indent(s, margin string) string {
	return margin + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n"+margin)
}

// shorten keeps the first lines and characters of a text and says how much is left out.
func shorten(s string, lines, chars int) string {
	s = strings.TrimSpace(s)
	kept := s
	if cut, ok := nthLine(kept, lines); ok {
		kept = kept[:cut]
	}
	if utf8.RuneCountInString(kept) > chars {
		kept = string([]rune(kept)[:chars])
	}
	if len(kept) == len(s) {
		return s
	}
	left := utf8.RuneCountInString(s) - utf8.RuneCountInString(kept)
	return strings.TrimRight(kept, "\n") + " … (" + count(left, "more character") + ")"
}

// nthLine finds where the first n lines of a text end, if it has more.
func nthLine(s string, n int) (int, bool) {
	at := 0
	for range n {
		i := strings.IndexByte(s[at:], '\n')
		if i < 0 {
			return 0, false
		}
		at += i + 1
	}
	return at - 1, true
}

// arguments renders a call's arguments: SQL as SQL, the rest as JSON.
func arguments(raw json.RawMessage) string {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return string(raw)
	}
	for _, name := range []string{"query", "sql"} {
		var sql string
		if json.Unmarshal(fields[name], &sql) == nil && looksLikeSQL(sql) {
			delete(fields, name)
			if len(fields) == 0 {
				return readableSQL(sql)
			}
			return readableSQL(sql) + "\n" + compact(fields)
		}
	}
	return compact(fields)
}

func compact(fields map[string]json.RawMessage) string {
	if len(fields) == 0 {
		return "{}"
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(fields) != nil {
		return "{}"
	}
	line := strings.TrimSpace(b.String())
	if len(line) <= maxLine {
		return line
	}
	var wide bytes.Buffer
	if json.Indent(&wide, []byte(line), "", "  ") != nil {
		return line
	}
	return wide.String()
}

// maxLine is the longest line of arguments before they are broken up.
const maxLine = 76

func looksLikeSQL(s string) bool {
	word, _, _ := strings.Cut(strings.TrimSpace(strings.ToUpper(s)), " ")
	switch strings.TrimRight(word, "\n\t") {
	case "SELECT", "WITH", "VALUES", "EXPLAIN", "INSERT", "UPDATE", "DELETE":
		return true
	}
	return strings.HasPrefix(word, "SELECT\n") || strings.HasPrefix(word, "WITH\n")
}

// readableSQL breaks a long one-line statement before its clauses. Text inside quotes, parentheses and comments stays as
// it is, and so does a statement that has line breaks of its own: what is shown is what runs, but for blanks.
func readableSQL(sql string) string {
	sql = strings.TrimSpace(sql)
	if len(sql) <= maxLine || strings.Contains(sql, "\n") {
		return sql
	}
	var b strings.Builder
	depth := 0
	for i := 0; i < len(sql); {
		if end := skipQuoted(sql, i); end > i {
			b.WriteString(sql[i:end])
			i = end
			continue
		}
		switch sql[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ' ':
			if depth == 0 && startsClause(sql[i+1:]) {
				b.WriteByte('\n')
				i++
				continue
			}
		}
		b.WriteByte(sql[i])
		i++
	}
	return b.String()
}

// skipQuoted gives the end of a literal, quoted name or comment that begins at i, or i.
func skipQuoted(sql string, i int) int {
	var closing string
	switch {
	case sql[i] == '\'' || sql[i] == '"' || sql[i] == '`':
		closing = sql[i : i+1]
	case strings.HasPrefix(sql[i:], "--"):
		return len(sql) // a one-line statement: the comment is its end
	case strings.HasPrefix(sql[i:], "/*"):
		closing = "*/"
	default:
		return i
	}
	from := i + len(closing)
	j := strings.Index(sql[from:], closing)
	if j < 0 {
		return len(sql)
	}
	return from + j + len(closing)
}

func startsClause(s string) bool {
	upper := strings.ToUpper(s[:min(len(s), 16)])
	for _, clause := range []string{
		"FROM ", "WHERE ", "GROUP BY ", "HAVING ", "ORDER BY ", "LIMIT ", "JOIN ", "LEFT JOIN ", "LEFT OUTER JOI", "INNER JOIN ",
		"CROSS JOIN ", "UNION ", "INTERSECT ", "EXCEPT ", "SET ", "VALUES ", "VALUES(", "RETURNING ", "SELECT ", "ON CONFLICT ",
	} {
		if strings.HasPrefix(upper, clause) {
			return true
		}
	}
	return false
}
