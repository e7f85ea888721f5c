package agentsql

import (
	"slices"
	"strings"
)

// vocabulary is what a statement may speak of: the grant and the written
// lists, nothing that is found out from the database's other contents.
type vocabulary struct {
	grant     Grant
	schemas   bool // names may be schema-qualified by more than "main"
	functions map[string]bool
	types     map[string]bool // nil: any type word is harmless (SQLite)
}

// stranger finds the first name in a statement that stands where a table,
// function or type does and is not in the vocabulary.
//
// It words refusals. An engine's error tells apart "no such table" from "no
// such column in that table", which would let an agent find out what exists
// outside its grant. So the engine's own text is passed on only for statements
// that name nothing but known things; for others the refusal names the first
// stranger, which is the agent's own word, whether or not it exists. It errs
// towards finding strangers, and never decides whether a statement runs.
func (v vocabulary) stranger(tokens []token) *Error {
	defined := definedNames(tokens)
	for _, r := range relationPlaces(tokens) {
		if !v.table(r, defined) {
			return v.unknownTable(r)
		}
	}
	for i, t := range tokens {
		if i+1 < len(tokens) && t.named() && tokens[i+1].punct("(") && !v.functions[t.text] && !notAFunction[t.text] && !defined[t.text] {
			return refuse("Function %s is not available", short(t.text))
		}
		if v.types == nil || !t.named() {
			continue
		}
		cast := i > 1 && tokens[i-1].punct(":") && tokens[i-2].punct(":")
		if word, ok := castTarget(tokens, i); (cast || ok) && !v.types[t.text] {
			return refuse("Type %s is not available", short(word))
		}
	}
	return nil
}

// table reports whether a name in a table's place is granted or defined by the
// statement itself.
func (v vocabulary) table(name []string, defined map[string]bool) bool {
	switch len(name) {
	case 1:
		if defined[name[0]] {
			return true
		}
		for _, tables := range v.grant {
			if slices.ContainsFunc(tables, func(t string) bool { return v.same(t, name[0]) }) {
				return true
			}
		}
		return false
	case 2:
		for schema, tables := range v.grant {
			if v.same(schema, name[0]) && slices.ContainsFunc(tables, func(t string) bool { return v.same(t, name[1]) }) {
				return true
			}
		}
	}
	return false
}

// same compares names as the engine does: SQLite ignores case.
func (v vocabulary) same(granted, written string) bool {
	if v.schemas {
		return granted == written
	}
	return strings.EqualFold(granted, written)
}

// unknownTable is the one answer for tables that do not exist and for tables
// that are not granted.
func (v vocabulary) unknownTable(name []string) *Error {
	return refuse("Table %s does not exist or is not granted. %s", short(strings.Join(name, ".")), v.offer())
}

// offer lists what may be queried.
func (v vocabulary) offer() string {
	names := v.grant.names()
	if !v.schemas {
		names = slices.Clone(v.grant[SQLiteSchema])
		slices.Sort(names)
	}
	const most = 40
	if len(names) > most {
		names = append(names[:most:most], "…")
	}
	return "Tables you may query: " + strings.Join(names, ", ")
}

// definedNames are the names of common table expressions: a name before
// AS [NOT] [MATERIALIZED] (, with or without a list of columns between.
func definedNames(tokens []token) map[string]bool {
	defined := map[string]bool{}
	for i, t := range tokens {
		if !t.is("as") || i == 0 {
			continue
		}
		next := i + 1
		for next < len(tokens) && (tokens[next].is("not") || tokens[next].is("materialized")) {
			next++
		}
		if next >= len(tokens) || !tokens[next].punct("(") {
			continue
		}
		before := i - 1
		if tokens[before].punct(")") {
			for before > 0 && !tokens[before].punct("(") {
				before--
			}
			before--
		}
		if before >= 0 && tokens[before].named() {
			defined[tokens[before].text] = true
		}
	}
	return defined
}

// relationPlaces finds names that stand in a FROM list, after JOIN, or that are
// otherwise read as a table. A column after FROM in extract(year FROM d) is
// among them: the caller errs on that side.
func relationPlaces(tokens []token) [][]string {
	var found [][]string
	inFrom := []bool{false} // one entry per level of parentheses
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		top := len(inFrom) - 1
		switch {
		case t.punct("("):
			// (a JOIN b) groups tables, but only where a table may stand.
			inFrom = append(inFrom, inFrom[top] && i > 0 && startsRelation(tokens[i-1]))
		case t.punct(")"):
			if top > 0 {
				inFrom = inFrom[:top]
			}
		case t.is("from"), t.is("join"), t.is("table"), t.is("only"), t.is("lateral"):
			inFrom[top] = true
		case endsFrom[t.text] && t.kind == wordToken:
			inFrom[top] = false
		}
		if !t.named() || !inFrom[top] || i == 0 || !startsRelation(tokens[i-1]) || startsRelation(t) {
			continue
		}
		name := []string{t.text}
		for i+2 < len(tokens) && tokens[i+1].punct(".") && tokens[i+2].named() {
			i += 2
			name = append(name, tokens[i].text)
		}
		if i+1 < len(tokens) && tokens[i+1].punct("(") {
			continue // a function, judged as such
		}
		found = append(found, name)
	}
	return found
}

// startsRelation is what stands before a table's name in a FROM list.
func startsRelation(t token) bool {
	if t.kind == punctToken {
		return t.text == "," || t.text == "("
	}
	return t.is("from") || t.is("join") || t.is("only") || t.is("lateral") || t.is("table")
}

// endsFrom are the words that end a FROM list on the same level.
var endsFrom = wordSet(`where group having window union intersect except order limit offset fetch for select on using`)

// notAFunction are words that may stand before a parenthesis without being a
// function's name.
var notAFunction = wordSet(`select from where and or not in exists any some all as on using values with over by
	partition case when then else end is between like ilike glob limit offset having filter within group order join
	lateral row array cast union intersect except distinct recursive materialized interval rollup cube sets grouping
	returning precision varying numeric decimal varchar char character bit timestamp time float fetch first next
	extract overlay position substring trim both leading trailing explain window only tablesample bernoulli system
	nullif coalesce greatest least collate isnull notnull escape similar to return at zone int integer text real`)

// castTarget reports whether token i is the type of CAST(x AS type), and its
// name for the message.
func castTarget(tokens []token, i int) (string, bool) {
	if i == 0 || !tokens[i-1].is("as") {
		return tokens[i].text, false
	}
	depth := 0
	for j := i - 2; j >= 0; j-- {
		switch {
		case tokens[j].punct(")"):
			depth++
		case tokens[j].punct("("):
			if depth--; depth < 0 {
				return tokens[i].text, j > 0 && tokens[j-1].is("cast")
			}
		}
	}
	return tokens[i].text, false
}

// wordSet is the set of the words in a text.
func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}
