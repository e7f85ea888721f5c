package agentsql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteDB is a DB over a SQLite file.
type sqliteDB struct {
	path string // absolute
	gate *gate
	temp *tempFiles // nil where there is no folder for them
	// writer is held by the one change under way: the file takes one at a time,
	// and its own lock serves no one in turn.
	writer chan struct{}
}

var _ DB = (*sqliteDB)(nil)

// OpenSQLite returns a DB over the file at path, which must be a SQLite
// database and must not be Hob's own. Queries open the file read-only, writes
// for reading and writing; other programs may write to it meanwhile.
func OpenSQLite(path string, _ Options) (DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("project database: %w", err)
	}
	if err := recoverSQLite(abs); err != nil {
		return nil, fmt.Errorf("recover project database %s: %w", abs, err)
	}
	c, err := openSQLiteConn(abs)
	if err != nil {
		return nil, fmt.Errorf("open project database %s: %w", abs, err)
	}
	c.close()
	d := &sqliteDB{path: abs, gate: newGate(), writer: make(chan struct{}, 1)}
	if tempFolder() != "" {
		if d.temp, err = newTempFiles(); err != nil {
			return nil, fmt.Errorf("open project database %s: %w", abs, err)
		}
	}
	return d, nil
}

// recoverSQLite takes back what a write left half done when its process died;
// connections that only read cannot.
func recoverSQLite(path string) error {
	if _, err := os.Stat(path + "-journal"); err != nil {
		return nil //nolint:nilerr // there is none, or none that can be used: opening the file tells
	}
	c, err := openSQLiteFor(path, writeMode())
	if err != nil {
		return err
	}
	c.close()
	return nil
}

// Close ends no statement: a connection lives as long as its own.
func (d *sqliteDB) Close() error {
	if d.temp != nil {
		d.temp.close()
	}
	return nil
}

// Query implements DB.
func (d *sqliteDB) Query(ctx context.Context, q Query) (Rows, error) {
	q.Limits = q.Limits.withDefaults()
	s, err := prepareQuery(q, sqliteDialect)
	if err != nil {
		return Rows{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, q.Limits.Timeout)
	defer cancel()
	leave, err := d.gate.enter(ctx, q.Agent, q.Limits.Concurrency)
	if err != nil {
		return Rows{}, err
	}
	rows, err := d.bounded(ctx, q, s)
	crowded := d.gate.crowded()
	leave()
	var own *Error
	if !errors.As(err, &own) || !errors.Is(own.cause, errMemory) || !crowded {
		return rows, err
	}
	// What another statement took may have been charged to this one.
	alone, ok := d.gate.enterAlone(ctx)
	if !ok {
		return Rows{}, err
	}
	defer alone()
	ctx, cancel = context.WithTimeout(ctx, aloneTime)
	defer cancel()
	return d.bounded(ctx, q, s)
}

// aloneTime bounds a statement that nothing runs beside.
const aloneTime = 2 * time.Second

// errMemory is the cause of the error of a statement that met maxSQLiteMemory.
var errMemory = errors.New("sqlite: the process grew too much")

// abandonAfter is how long past its deadline a statement is waited for.
const abandonAfter = time.Second

// bounded returns soon after the deadline even when the engine does not: it
// looks at the time between operations and at loops only, so a row of costly
// functions can hold it. Such a statement is left to end by itself, on its own
// connection; maxFunctionCost bounds how long that takes.
func (d *sqliteDB) bounded(ctx context.Context, q Query, s statement) (Rows, error) {
	type outcome struct {
		rows Rows
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		rows, err := d.guarded(ctx, q, s)
		done <- outcome{rows, err}
	}()
	select {
	case o := <-done:
		return o.rows, o.err
	case <-ctx.Done():
	}
	patience := time.NewTimer(abandonAfter)
	defer patience.Stop()
	select {
	case o := <-done:
		return o.rows, o.err
	case <-patience.C:
		return Rows{}, timedOut(q.Limits, ctx.Err())
	}
}

// prepareQuery checks what needs no database.
func prepareQuery(q Query, d dialect) (statement, error) {
	if err := q.Grant.check(); err != nil {
		return statement{}, err
	}
	if d == sqliteDialect {
		for schema := range q.Grant.clean() {
			if schema != SQLiteSchema {
				return statement{}, invalid("Schema '%s' does not exist: the one schema of this database is '%s'", schema, SQLiteSchema)
			}
		}
	}
	return split(q.SQL, d, q.Limits.SQLBytes)
}

// guarded runs a statement so that a fault inside the engine ends the
// statement and not the process.
func (d *sqliteDB) guarded(ctx context.Context, q Query, s statement) (rows Rows, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			rows, err = Rows{}, &Error{Kind: Failed, Message: "The query broke the database engine and was stopped", cause: fmt.Errorf("sqlite: %v", p)}
		}
	}()
	return d.query(ctx, q, s)
}

func (d *sqliteDB) query(ctx context.Context, q Query, s statement) (Rows, error) {
	mode := readMode()
	mode.temp = d.temp
	c, err := openSQLiteFor(d.path, mode)
	if err != nil {
		return Rows{}, unavailable(err, "The project database cannot be opened")
	}
	defer c.close()
	objects, err := c.objects()
	if err != nil {
		return Rows{}, unavailable(err, "The project database cannot be read")
	}
	meter := newMemoryMeter()
	defer meter.close()
	g := &sqliteGuard{ctx: ctx, tables: objects.granted(q.Grant), defined: definedNames(s.tokens), memory: meter}
	if err := c.guardWith(g); err != nil {
		return Rows{}, unavailable(err, "The project database cannot be guarded")
	}
	r := sqliteRun{c: c, g: g, q: q, s: s, objects: objects}
	rows, err := r.rows()
	if err != nil {
		return Rows{}, r.wording(err)
	}
	return rows, nil
}

// sqliteRun is one statement on its way.
type sqliteRun struct {
	c       *sqliteConn
	g       *sqliteGuard
	q       Query
	s       statement
	objects sqliteObjects
}

// errNotGranted stands for any refusal of the engine's walls; wording gives it
// its text.
var errNotGranted = errors.New("not granted")

func (r sqliteRun) rows() (Rows, error) {
	if err := r.openedTables(); err != nil {
		return Rows{}, err
	}
	stmt, tail, err := r.c.prepare(r.q.SQL)
	if err != nil {
		return Rows{}, err
	}
	defer stmt.close()
	switch {
	case stmt.p == 0:
		return Rows{}, invalid("The query is empty")
	case len(lex(tail, sqliteDialect)) > 0:
		return Rows{}, refuse(msgMulti)
	case !stmt.readOnly():
		return Rows{}, refuse(msgOnlySelect)
	case stmt.parameters() > 0:
		return Rows{}, invalid("The query may not have parameters")
	}
	b := newBuilder(stmt.names(), r.q.Limits)
	values := make([]value, len(b.keys))
	for {
		more, err := stmt.step()
		if err != nil {
			return Rows{}, err
		}
		if !more {
			return b.rows(), nil
		}
		room := r.q.Limits.Bytes
		for i := range values {
			// Of a row that is too large as a whole only the heads are read.
			limit := max(min(r.q.Limits.Value, room), 16)
			values[i] = stmt.value(i, limit)
			room -= len(values[i].text)
		}
		if !b.add(values) {
			return b.rows(), nil
		}
	}
}

// openedTables is the second wall beside the authorizer: it reads the compiled
// program and refuses one that opens anything but b-trees of granted tables.
// Programs name b-trees by number, so no play with names deceives it.
func (r sqliteRun) openedTables() error {
	stmt, _, err := r.c.prepare("EXPLAIN " + r.s.body[r.s.tokens[0].start:])
	if err != nil {
		return err
	}
	defer stmt.close()
	cost := 0
	for {
		more, err := stmt.step()
		if err != nil || !more {
			return err
		}
		const opcode, p2, p3, p4 = 1, 3, 4, 5 // columns of EXPLAIN
		switch stmt.text(opcode) {
		case "OpenRead", "ReopenIdx":
			if stmt.int(p3) != 0 || !r.objects.root(stmt.int(p2), r.g.tables) {
				return errNotGranted
			}
		case "OpenWrite":
			return errNotGranted
		case "Function", "PureFunc", "Concat", "AggFinal", "AggValue":
			name, _, _ := strings.Cut(stmt.text(p4), "(")
			cost += functionCost(name)
		case "Copy": // p3 + 1 values at once
			cost += copyCost * int(1+stmt.int(p3))
		case "Column":
			cost += columnCost
		}
		if cost > maxFunctionCost {
			return &Error{Kind: TooLarge, Message: "The query has too many functions or computed columns; split it"}
		}
	}
}

// sqliteObject is a row of the schema table.
type sqliteObject struct {
	kind, name, table string
	root              int64
	sql               string
}

type sqliteObjects []sqliteObject

func (c *sqliteConn) objects() (sqliteObjects, error) {
	var all sqliteObjects
	err := c.each("SELECT type, lower(name), lower(tbl_name), rootpage, sql FROM main.sqlite_schema", func(s *sqliteStmt) {
		all = append(all, sqliteObject{s.text(0), s.text(1), s.text(2), s.int(3), s.text(4)})
	})
	return all, err
}

// granted are the tables and views of the grant that exist, in lower case.
// Virtual tables are left out: their engines run statements of their own. So
// is the table of markers.
func (o sqliteObjects) granted(g Grant) map[string]bool {
	named := map[string]bool{}
	for _, t := range g[SQLiteSchema] {
		named[strings.ToLower(t)] = true
	}
	have := map[string]bool{}
	for _, obj := range o {
		virtual := obj.kind == "table" && obj.root == 0
		if named[obj.name] && !virtual && obj.name != markerTable && (obj.kind == "table" || obj.kind == "view") && !strings.HasPrefix(obj.name, "sqlite_") {
			have[obj.name] = true
		}
	}
	return have
}

// root reports whether a b-tree belongs to one of the tables.
func (o sqliteObjects) root(page int64, tables map[string]bool) bool {
	return slices.ContainsFunc(o, func(obj sqliteObject) bool { return obj.root == page && page != 0 && tables[obj.table] })
}

// wording turns an engine's error into one the model may read.
func (r sqliteRun) wording(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	switch r.g.stopped {
	case "time":
		return timedOut(r.q.Limits, err)
	case "memory":
		return &Error{Kind: TooLarge, Message: "The query needs too much memory and was stopped", cause: errMemory}
	}
	for _, t := range r.s.tokens {
		if t.is("insert") || t.is("update") || t.is("delete") || t.is("returning") {
			if r.g.denied && !r.g.defined[t.text] {
				return refuse(msgOnlySelect)
			}
		}
	}
	vocabulary := vocabulary{grant: r.q.Grant, functions: sqliteFunctions}
	if stranger := vocabulary.stranger(r.s.tokens); stranger != nil {
		stranger.cause = err
		return stranger
	}
	var e *sqliteError
	if r.g.denied || errors.Is(err, errNotGranted) || !errors.As(err, &e) {
		return &Error{Kind: Refused, Message: "The query uses something that is not granted. " + vocabulary.offer(), cause: err}
	}
	switch e.primary() {
	case sqlite3.SQLITE_ERROR:
		// Only known names are in the statement: the text is about them.
		return &Error{Kind: Invalid, Message: short200(e.text), cause: err}
	case sqlite3.SQLITE_TOOBIG:
		return &Error{Kind: TooLarge, Message: fmt.Sprintf("A value of the query is longer than %d bytes", maxSQLiteValue), cause: err}
	case sqlite3.SQLITE_FULL:
		return &Error{Kind: TooLarge, Message: fmt.Sprintf("The query sorts or groups more than %d MB; narrow it down", maxSQLiteTemp>>20), cause: err}
	case sqlite3.SQLITE_NOMEM:
		return &Error{Kind: TooLarge, Message: "The query needs too much memory and was stopped", cause: err}
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return &Error{Kind: Busy, Message: "The project database is locked by a writer; try again shortly", cause: err}
	case sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_CONSTRAINT:
		return &Error{Kind: Failed, Message: short200(e.text), cause: err}
	}
	return &Error{Kind: Failed, Message: "The project database could not answer the query", cause: err}
}

// short200 bounds an engine's message.
func short200(s string) string {
	if h := headRunes(s, 200); h != s {
		return h + "…"
	}
	return s
}

// Check implements DB.
func (d *sqliteDB) Check(context.Context) []Finding {
	var all []Finding
	info, err := os.Stat(d.path)
	if err != nil {
		return []Finding{{Fault, "project database: " + err.Error(), "restore the file or set --project-database"}}
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		all = append(all, Finding{Warning, fmt.Sprintf("project database %s is readable by other users (%04o)", d.path, mode), "chmod 600 " + d.path})
	}
	c, err := openSQLiteConn(d.path)
	if err != nil {
		return append(all, Finding{Fault, "project database: " + err.Error(), "restore the file or set --project-database"})
	}
	c.close()
	meter := newMemoryMeter()
	defer meter.close()
	if !meter.works() {
		all = append(all, Finding{Warning, "agents' SQL: the memory of one query cannot be measured on this system; only the engine's length limits bound it", ""})
	}
	if len(all) == 0 {
		all = append(all, Finding{OK, "agents' SQL: project database opens read-only, defensive, with authorizer and limits", ""})
	}
	return all
}
