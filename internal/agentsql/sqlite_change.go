package agentsql

import (
	"fmt"
	"strings"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// writeGuard judges the statements that a change is made into. They hold no
// text of an agent; the guard stands between a mistake of ours, or a trigger of
// the database, and whatever the grant does not cover.
type writeGuard struct {
	sqliteGuard

	reach   reach
	marking bool // the change is made: only the markers may be touched now
}

func (g *writeGuard) authorize(action int32, a, b, database string) bool {
	ok := false
	table := SQLiteSchema + "." + strings.ToLower(a)
	own := strings.EqualFold(a, markerTable)
	here := database == "" || database == SQLiteSchema
	switch {
	case action == sqlite3.SQLITE_SELECT, action == sqlite3.SQLITE_RECURSIVE:
		ok = true
	case action == sqlite3.SQLITE_FUNCTION:
		// Of checks, defaults and computed columns; trusted_schema is off.
		ok = !strings.EqualFold(b, "load_extension")
	case action == sqlite3.SQLITE_TRANSACTION:
		ok = g.marking && a == "COMMIT"
	case g.marking:
		switch action {
		case sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_DELETE:
			ok = own && here
		}
	case own || !here:
	default:
		switch action {
		case sqlite3.SQLITE_READ:
			ok = g.reach.open || g.reach.related[table] || g.reaches(table)
		case sqlite3.SQLITE_INSERT:
			ok = g.reach.open || g.reach.tables[Insert][table]
		case sqlite3.SQLITE_UPDATE:
			ok = g.reach.open || g.reach.tables[Update][table]
		case sqlite3.SQLITE_DELETE:
			ok = g.reach.open || g.reach.tables[Delete][table]
		}
	}
	if !ok {
		g.denied = true
	}
	return ok && g.goOn()
}

func (g *writeGuard) reaches(table string) bool {
	for _, tables := range g.reach.tables {
		if tables[table] {
			return true
		}
	}
	return false
}

// target reads the columns of a table that is there.
func (c *sqliteConn) target(table string) (targetTable, error) {
	t := targetTable{schema: SQLiteSchema, name: table}
	keys, rowid := 0, true
	err := c.each(`PRAGMA main.table_xinfo(`+quoteName(table)+`)`, func(s *sqliteStmt) {
		const name, typ, pk, hidden = 1, 2, 5, 6
		if s.int(hidden) == 1 {
			return
		}
		column := targetColumn{
			name: s.text(name), typ: s.text(typ), key: s.int(pk) > 0, computed: s.int(hidden) > 1, kind: sqliteKind(s.text(typ)),
		}
		if column.key {
			keys++
		}
		t.columns = append(t.columns, column)
	})
	if err != nil {
		return t, fmt.Errorf("columns of %s: %w", table, err)
	}
	err = c.each(`PRAGMA main.table_list(`+quoteName(table)+`)`, func(s *sqliteStmt) {
		const withoutRowid = 4
		rowid = s.int(withoutRowid) == 0
	})
	for i, column := range t.columns {
		// The one key of this very type is the row's number.
		t.columns[i].auto = rowid && keys == 1 && column.key && strings.EqualFold(column.typ, "INTEGER")
	}
	return t, err
}

// relations reads the foreign keys and triggers of all tables.
func (c *sqliteConn) relations(objects sqliteObjects) (relations, error) {
	var out relations
	for _, o := range objects {
		switch {
		case o.kind == "trigger":
			out.triggers = append(out.triggers, trigger{what: "trigger", name: o.name, table: SQLiteSchema + "." + o.table, ops: triggerOps(o.sql)})
		case o.kind == "table" && o.root != 0:
			keys, err := c.foreignKeys(o.name)
			if err != nil {
				return out, fmt.Errorf("foreign keys of %s: %w", o.name, err)
			}
			out.keys = append(out.keys, keys...)
		}
	}
	return out, nil
}

func (c *sqliteConn) foreignKeys(table string) ([]foreignKey, error) {
	var keys []foreignKey
	child := SQLiteSchema + "." + table
	err := c.each(`PRAGMA main.foreign_key_list(`+quoteName(table)+`)`, func(s *sqliteStmt) {
		const seq, parent, from, to, onUpdate, onDelete = 1, 2, 3, 4, 5, 6
		if s.int(seq) == 0 {
			keys = append(keys, foreignKey{
				name: table + "." + s.text(from), child: child, parent: SQLiteSchema + "." + strings.ToLower(s.text(parent)),
				onUpdate: sqliteAction(s.text(onUpdate)), onDelete: sqliteAction(s.text(onDelete)),
			})
		}
		k := &keys[len(keys)-1]
		k.childColumns = append(k.childColumns, s.text(from))
		if column := s.text(to); column != "" {
			k.parentColumns = append(k.parentColumns, column)
		}
	})
	return keys, err
}

func sqliteAction(s string) action {
	switch s {
	case "CASCADE":
		return cascade
	case "SET NULL", "SET DEFAULT":
		return setNull
	}
	return noAction
}

// triggerOps is the verb of a trigger's text: the first of the three, which
// cannot be names without quotes. A text that shows none counts for all.
func triggerOps(sql string) []Operation {
	for _, t := range lex(sql, sqliteDialect) {
		for _, op := range Operations() {
			if t.is(string(op)) {
				return []Operation{op}
			}
		}
	}
	return Operations()
}

func (c *sqliteConn) totalChanges() int64 { return int64(sqlite3.Xsqlite3_total_changes(c.tls, c.db)) }

// execute runs one statement with its parameters and returns how many rows it
// changed.
func (c *sqliteConn) execute(s *sqlText, row func(*sqliteStmt)) (int, error) {
	stmt, _, err := c.prepare(s.String())
	if err != nil {
		return 0, err
	}
	defer stmt.close()
	for i, p := range s.params {
		if err := stmt.bind(int32(i+1), p); err != nil {
			return 0, err
		}
	}
	for {
		more, err := stmt.step()
		if err != nil {
			return 0, err
		}
		if !more {
			return int(sqlite3.Xsqlite3_changes(c.tls, c.db)), nil
		}
		if row != nil {
			row(stmt)
		}
	}
}

// bind sets a parameter; the engine keeps a copy of what is no number.
func (s *sqliteStmt) bind(i int32, p param) error {
	tls := s.c.tls
	rc := int32(sqlite3.SQLITE_OK)
	switch p.kind {
	case nullParam:
		rc = sqlite3.Xsqlite3_bind_null(tls, s.p, i)
	case intParam:
		rc = sqlite3.Xsqlite3_bind_int64(tls, s.p, i, p.i)
	case floatParam:
		rc = sqlite3.Xsqlite3_bind_double(tls, s.p, i, p.f)
	case textParam, blobParam:
		text, err := libc.CString(p.text)
		if err != nil {
			return fmt.Errorf("sqlite: %w", err)
		}
		defer libc.Xfree(tls, text)
		transient := ^uintptr(0)
		if p.kind == textParam {
			rc = sqlite3.Xsqlite3_bind_text(tls, s.p, i, text, int32(len(p.text)), transient)
		} else {
			rc = sqlite3.Xsqlite3_bind_blob(tls, s.p, i, text, int32(len(p.text)), transient)
		}
	}
	if rc != sqlite3.SQLITE_OK {
		return s.c.errorOf(rc)
	}
	return nil
}
