package agentsql

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
)

// Grant names the tables an agent may read: schema → tables. SQLite's only
// schema is "main". An empty grant lets nothing be read.
type Grant map[string][]string

// SQLiteSchema is the one schema of a SQLite grant.
const SQLiteSchema = "main"

// maxIdentifier is the longest schema or table name of a grant.
const maxIdentifier = 64

// ParseGrant reads the `schemas` object of a tool's configuration. Empty lists
// are dropped, doubles removed; JSON null and an absent value give an empty
// grant. What is not well formed, or names a system schema, is an *Error of
// kind Invalid with the text of the wire contract.
func ParseGrant(raw json.RawMessage) (Grant, error) {
	raw = bytes.TrimSpace(raw)
	g := Grant{}
	if len(raw) == 0 || string(raw) == "null" {
		return g, nil
	}
	members, err := objectMembers(raw)
	if err != nil {
		return nil, invalid("schemas must be a dict")
	}
	for _, m := range members {
		if !identifier(m.name) {
			return nil, invalid("Invalid schema name: %s", short(m.name))
		}
		if systemSchema(m.name) {
			return nil, invalid("System schema '%s' is not allowed", m.name)
		}
		var tables []string
		var items []any
		if json.Unmarshal(m.value, &items) != nil || items == nil {
			return nil, invalid("Invalid table names in schema '%s'", m.name)
		}
		for _, item := range items {
			name, ok := item.(string)
			if !ok {
				return nil, invalid("Invalid table names in schema '%s'", m.name)
			}
			if !identifier(name) {
				return nil, errTableName(m.name, name)
			}
			tables = append(tables, name)
		}
		if len(tables) > 0 {
			g[m.name] = append(g[m.name], tables...)
		}
	}
	return g.clean(), nil
}

// member is a name and value of a JSON object, doubles kept: a map would let
// the second of two equal names hide the first.
type member struct {
	name  string
	value json.RawMessage
}

func objectMembers(raw []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	open, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	var all []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var m member
		m.name, _ = name.(string) // inside an object the decoder gives names only
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text after the object")
	}
	return all, nil
}

// identifier is ^[a-zA-Z_][a-zA-Z0-9_]{0,63}$.
func identifier(s string) bool {
	if s == "" || len(s) > maxIdentifier {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// systemSchema names schemas that are never granted: Postgres's own, those of
// platforms built on it, and the one that holds Hob's tables.
func systemSchema(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "ai", "auth", "storage", "extensions", "graphql", "graphql_public", "realtime", "vault",
		"pgsodium", "pgsodium_masks", "supabase_functions", "supabase_migrations",
		"information_schema", "hob", markerSchema:
		return true
	}
	return strings.HasPrefix(name, "pg_")
}

// clean returns the grant sorted and without empty lists and doubles.
func (g Grant) clean() Grant {
	out := Grant{}
	for schema, tables := range g {
		if len(tables) > 0 {
			t := slices.Clone(tables)
			slices.Sort(t)
			out[schema] = slices.Compact(t)
		}
	}
	return out
}

// check is ParseGrant's judgement for grants made in code.
func (g Grant) check() error {
	for schema, tables := range g {
		switch {
		case !identifier(schema):
			return invalid("Invalid schema name: %s", short(schema))
		case systemSchema(schema):
			return invalid("System schema '%s' is not allowed", schema)
		}
		for _, t := range tables {
			if !identifier(t) {
				return errTableName(schema, t)
			}
		}
	}
	return nil
}

func errTableName(schema, table string) error {
	return invalid("Invalid table names in schema '%s': %q; a table can be granted whose name has ASCII letters, digits and _ only, "+
		"at most %d, and does not begin with a digit; a view of that table can have such a name", schema, short(table), maxIdentifier)
}

// Empty reports whether the grant names no table at all.
func (g Grant) Empty() bool { return len(g.clean()) == 0 }

// schemas are the grant's schemas in order.
func (g Grant) schemas() []string { return slices.Sorted(maps.Keys(g)) }

// names lists the tables as schema.table, in order.
func (g Grant) names() []string {
	var all []string
	for _, s := range g.schemas() {
		for _, t := range g[s] {
			all = append(all, s+"."+t)
		}
	}
	return all
}

// key is equal for equal grants and different for different ones: the names
// hold none of its separators.
func (g Grant) key() string { return strings.Join(g.clean().names(), ",") }

// short bounds a name that is echoed in an error.
func short(s string) string {
	const limit = 80
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}
