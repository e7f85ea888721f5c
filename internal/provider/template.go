package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"hob"
)

// maxTableRows is how many rows {{rows}} shows.
const maxTableRows = 20

// template is a text with places that are filled from the history:
//
//	{{message}}           the user's message
//	{{result}}            the last tool result
//	{{result.0.count}}    a value in it, by members and places
//	{{results.1.name}}    the same for the second result of the last step's calls
//	{{rows}}              the last result's list of rows as a table; {{rows.items}} a list inside it
type template struct {
	parts []templatePart
}

type templatePart struct {
	literal string
	name    string // "" = literal
	path    []string
	index   int // results.N
}

// scene is what templates are filled from.
type scene struct {
	message string
	results []string // of the last step's calls, in call order
	failed  bool     // the last of them is an error
}

func (s scene) last() string {
	if len(s.results) == 0 {
		return ""
	}
	return s.results[len(s.results)-1]
}

func parseTemplate(text string) (*template, error) {
	t := &template{}
	for text != "" {
		before, rest, open := strings.Cut(text, "{{")
		if before != "" {
			t.parts = append(t.parts, templatePart{literal: before})
		}
		if !open {
			break
		}
		inside, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return nil, errors.New("{{ has no }}")
		}
		part, err := parsePlace(strings.TrimSpace(inside))
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part)
		text = after
	}
	return t, nil
}

func parsePlace(inside string) (templatePart, error) {
	path := strings.Split(inside, ".")
	p := templatePart{name: path[0], path: path[1:]}
	switch p.name {
	case "message":
		if len(p.path) > 0 {
			return p, errors.New("{{message}} has no parts")
		}
	case "result", "rows":
	case "results":
		if len(p.path) == 0 {
			return p, errors.New("{{results.N}} wants the number of a result, counted from 0")
		}
		n, err := strconv.Atoi(p.path[0])
		if err != nil || n < 0 {
			return p, errors.New("{{results.N}} wants the number of a result, counted from 0")
		}
		p.index, p.path = n, p.path[1:]
	default:
		return p, fmt.Errorf("unknown place {{%s}}; known are {{message}}, {{result}}, {{results.N}}, {{rows}}", quote(inside))
	}
	return p, nil
}

// fill returns the text with its places filled; escape is laid over each filled value.
func (t *template) fill(s scene, escape func(string) string) string {
	if t == nil {
		return ""
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.name == "" {
			b.WriteString(p.literal)
			continue
		}
		v := p.value(s)
		if escape != nil {
			v = escape(v)
		}
		b.WriteString(v)
	}
	return b.String()
}

func (p templatePart) value(s scene) string {
	text := s.last()
	switch p.name {
	case "message":
		return s.message
	case "results":
		if p.index >= len(s.results) {
			return fmt.Sprintf("(there is no result %d)", p.index)
		}
		text = s.results[p.index]
	}
	if p.name != "rows" && len(p.path) == 0 {
		return text
	}
	raw, ok := walk(json.RawMessage(text), p.path)
	if !ok {
		return "(the result has no " + strings.Join(p.path, ".") + ")"
	}
	if p.name == "rows" {
		return table(raw)
	}
	return jsonText(raw)
}

// walk follows a path of members and places into a JSON value.
func walk(raw json.RawMessage, path []string) (json.RawMessage, bool) {
	raw = bytes.TrimSpace(raw)
	for _, at := range path {
		if len(raw) == 0 {
			return nil, false
		}
		switch raw[0] {
		case '[':
			var list []json.RawMessage
			n, err := strconv.Atoi(at)
			if err != nil || json.Unmarshal(raw, &list) != nil || n < 0 || n >= len(list) {
				return nil, false
			}
			raw = list[n]
		case '{':
			var members map[string]json.RawMessage
			if json.Unmarshal(raw, &members) != nil {
				return nil, false
			}
			next, ok := members[at]
			if !ok {
				return nil, false
			}
			raw = next
		default:
			return nil, false
		}
	}
	return raw, true
}

// table renders a list of rows, or an object with such a list named rows, as a Markdown table. Anything else is given as
// it stands.
func table(raw json.RawMessage) string {
	if inner, ok := walk(raw, []string{"rows"}); ok {
		raw = inner
	}
	var rows []json.RawMessage
	if json.Unmarshal(raw, &rows) != nil {
		return jsonText(raw)
	}
	if len(rows) == 0 {
		return "(no rows)"
	}
	columns := memberNames(rows[0])
	if len(columns) == 0 {
		return jsonText(raw)
	}
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, c := range cells {
			b.WriteString(" " + c + " |")
		}
		b.WriteString("\n")
	}
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = cell(c)
	}
	line(cells)
	b.WriteString("|" + strings.Repeat(" --- |", len(columns)) + "\n")
	for _, row := range rows[:min(len(rows), maxTableRows)] {
		for i, c := range columns {
			v, _ := walk(row, []string{c})
			cells[i] = cell(jsonText(v))
		}
		line(cells)
	}
	if more := len(rows) - maxTableRows; more > 0 {
		fmt.Fprintf(&b, "\n… and %d more rows", more)
	}
	return strings.TrimRight(b.String(), "\n")
}

func cell(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.ReplaceAll(s, "|", `\|`)
}

// memberNames are an object's members in the order in which they stand.
func memberNames(object json.RawMessage) []string {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	var names []string
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil
		}
		names = append(names, name)
		var skip json.RawMessage
		if dec.Decode(&skip) != nil {
			return nil
		}
	}
	return names
}

// look gathers what templates are filled from: the message the turn answers, and the results behind the last assistant
// message.
func look(history []hob.Message, user int) scene {
	s := scene{}
	if user >= 0 {
		s.message = history[user].Text()
	}
	end := len(history)
	for end > 0 && history[end-1].Role == hob.RoleUser && end-1 > user { // images a tool gave
		end--
	}
	from := end
	for from > 0 && history[from-1].Role == hob.RoleTool {
		from--
	}
	for _, m := range history[from:end] {
		s.results = append(s.results, m.Content)
		s.failed = m.IsError
	}
	return s
}
