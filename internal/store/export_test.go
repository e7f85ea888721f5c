package store

import (
	"context"
	"strings"
)

// Statements are the texts of all statements that the store has run so far, in its dialect.
func (s *DB) Statements() []string {
	var list []string
	s.d.texts.Range(func(_, text any) bool {
		list = append(list, text.(string))
		return true
	})
	return list
}

// Plan is how SQLite would carry out a statement, a line per table.
func (s *DB) Plan(ctx context.Context, statement string) ([]string, error) {
	return many(ctx, s.read(), func(r row) (string, error) {
		var id, parent, unused int64
		var detail string
		err := r.Scan(&id, &parent, &unused, &detail)
		return detail, err
	}, "EXPLAIN QUERY PLAN "+statement, make([]any, strings.Count(statement, "?"))...)
}

// DumpTables are the names of the tables that a dump holds.
func DumpTables() []string {
	var names []string
	for _, t := range dumpTables() {
		names = append(names, t.name)
	}
	return names
}
