package agentsql

import (
	"fmt"
	"strings"
)

// sqlText writes a statement and collects its parameters in their order. Every
// name in it comes from the catalogue.
type sqlText struct {
	strings.Builder
	params []param
}

func quoteName(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func (b *sqlText) bind(d dialect, p param) {
	b.params = append(b.params, p)
	mark := "$"
	if d == sqliteDialect {
		mark = "?"
	}
	fmt.Fprintf(b, "%s%d", mark, len(b.params))
}

func (b *sqlText) names(columns []targetColumn) {
	for i, c := range columns {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoteName(c.name))
	}
}

// tableName writes the table; an insert has no ONLY.
func (b *sqlText) tableName(t targetTable, only bool) {
	if only && t.only {
		b.WriteString("ONLY ")
	}
	b.WriteString(quoteName(t.schema) + "." + quoteName(t.name))
}

// statements are the change as SQL: one per row of an insert, else one.
func (c change) statements(d dialect, returning []targetColumn) []*sqlText {
	if c.op != Insert {
		return []*sqlText{c.statement(d, nil, returning)}
	}
	all := make([]*sqlText, 0, len(c.rows))
	for _, row := range c.rows {
		all = append(all, c.statement(d, row, returning))
	}
	return all
}

func (c change) statement(d dialect, row []param, returning []targetColumn) *sqlText {
	b := &sqlText{}
	switch c.op {
	case Insert:
		b.WriteString("INSERT INTO ")
		b.tableName(c.table, false)
		b.WriteString(" (")
		b.names(c.columns)
		b.WriteString(") VALUES (")
		for i, p := range row {
			if i > 0 {
				b.WriteString(", ")
			}
			b.bind(d, p)
		}
		b.WriteString(")")
	case Update:
		b.WriteString("UPDATE ")
		b.tableName(c.table, true)
		b.WriteString(" SET ")
		for i, col := range c.columns {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(quoteName(col.name) + " = ")
			b.bind(d, c.rows[0][i])
		}
	case Delete:
		b.WriteString("DELETE FROM ")
		b.tableName(c.table, true)
	}
	b.conditions(d, c.where)
	if len(returning) > 0 {
		b.WriteString(" RETURNING ")
		b.names(returning)
	}
	return b
}

// meets reads whether the change would meet more rows than limit: one row if so.
func (c change) meets(d dialect, limit int) *sqlText {
	b := &sqlText{}
	b.WriteString("SELECT 1 FROM ")
	b.tableName(c.table, true)
	b.conditions(d, c.where)
	fmt.Fprintf(b, " LIMIT 1 OFFSET %d", limit)
	return b
}

// selection reads the rows that the change would meet, at most limit of them.
func (c change) selection(d dialect, columns []targetColumn, limit int) *sqlText {
	b := &sqlText{}
	b.WriteString("SELECT ")
	b.names(columns)
	b.WriteString(" FROM ")
	b.tableName(c.table, true)
	b.conditions(d, c.where)
	fmt.Fprintf(b, " LIMIT %d", limit)
	return b
}

func (b *sqlText) conditions(d dialect, where []condition) {
	for i, w := range where {
		b.WriteString([]string{" WHERE ", " AND "}[min(i, 1)])
		name := quoteName(w.column.name)
		switch {
		case len(w.values) == 0:
			b.WriteString(name + " IS NULL")
			continue
		case w.null:
			b.WriteString("(" + name + " IS NULL OR ")
		}
		b.WriteString(name + " IN (")
		for j, p := range w.values {
			if j > 0 {
				b.WriteString(", ")
			}
			b.bind(d, p)
		}
		b.WriteString(")")
		if w.null {
			b.WriteString(")")
		}
	}
}
