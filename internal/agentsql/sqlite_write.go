package agentsql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// markerTable holds the markers of changes in a SQLite project database. No
// grant reaches it.
const markerTable = "hob_agent_calls"

// Write implements DB.
func (d *sqliteDB) Write(ctx context.Context, w Write) (Written, error) {
	w.Limits = w.Limits.withDefaults()
	var out Written
	err := d.writing(ctx, w, func(r *sqliteWrite) (err error) {
		out, err = r.once()
		return err
	})
	return out, err
}

// Preview implements DB.
func (d *sqliteDB) Preview(ctx context.Context, w Write) (Preview, error) {
	w.Limits = w.Limits.withDefaults()
	var out Preview
	err := d.writing(ctx, w, func(r *sqliteWrite) (err error) {
		out, err = r.preview()
		return err
	})
	return out, err
}

// SideEffects implements DB.
func (d *sqliteDB) SideEffects(_ context.Context, g WriteGrant) ([]string, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	c, err := openSQLiteConn(d.path)
	if err != nil {
		return nil, unavailable(err, "The project database cannot be opened")
	}
	defer c.close()
	objects, err := c.objects()
	if err != nil {
		return nil, unavailable(err, "The project database cannot be read")
	}
	known, err := c.relations(objects)
	if err != nil {
		return nil, unavailable(err, "The project database cannot be read")
	}
	return known.sideEffects(g), nil
}

// writing runs f in a write transaction with the limits of w around it. Unless
// f commits, the transaction is rolled back.
func (d *sqliteDB) writing(ctx context.Context, w Write, f func(*sqliteWrite) error) (err error) {
	if err := w.Grant.check(); err != nil {
		return err
	}
	for schema := range w.Grant.Tables.clean() {
		if schema != SQLiteSchema {
			return invalid("Schema '%s' does not exist: the one schema of this database is '%s'", schema, SQLiteSchema)
		}
	}
	table, err := w.resolveTable()
	if err != nil {
		return err
	}
	if err := w.checkForm(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.Limits.Timeout)
	defer cancel()
	leave, err := d.gate.enter(ctx, w.Agent, DefaultConcurrency)
	if err != nil {
		return err
	}
	defer leave()

	// A fault inside the engine ends the change and not the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &Error{Kind: Failed, Message: "The change broke the database engine and was stopped", cause: fmt.Errorf("sqlite: %v", p)}
		}
	}()
	select {
	case d.writer <- struct{}{}:
		defer func() { <-d.writer }()
	case <-ctx.Done():
		return &Error{Kind: Busy, Message: "The project database is locked by another writer; try again shortly", cause: ctx.Err()}
	}
	mode := writeMode()
	mode.temp = d.temp
	c, err := openSQLiteFor(d.path, mode)
	if err != nil {
		var e *sqliteError
		if errors.As(err, &e) && e.primary() == sqlite3.SQLITE_BUSY {
			return &Error{Kind: Busy, Message: "The project database is locked by another writer; try again shortly", cause: err}
		}
		return unavailable(err, "The project database cannot be opened for writing")
	}
	defer c.close()
	meter := newMemoryMeter()
	defer meter.close()
	r := &sqliteWrite{c: c, w: w, table: table, guard: &writeGuard{sqliteGuard: sqliteGuard{ctx: ctx, memory: meter}}}
	if err := f(r); err != nil {
		return r.wording(err)
	}
	return nil
}

// sqliteWrite is one change on its way, inside its transaction.
type sqliteWrite struct {
	c     *sqliteConn
	w     Write
	table string // schema.table, as granted
	guard *writeGuard
	reach reach
}

// once carries the change out, unless its marker tells that it was.
func (r *sqliteWrite) once() (Written, error) {
	if r.w.Key != "" {
		if err := r.c.makeMarkers(); err != nil {
			return Written{}, err
		}
		done, found, err := r.marked()
		if err != nil || found {
			return done, err
		}
	}
	c, err := r.open()
	if err != nil {
		return Written{}, err
	}
	b := newBuilder(columnNames(c.returning), Limits{Bytes: r.w.Limits.Bytes}.withDefaults())
	rows, err := r.apply(c, taking{c.returning, DefaultValue, b.add})
	if err != nil {
		return Written{}, err
	}
	out := Written{Rows: rows}
	if len(c.returning) > 0 {
		all := b.rows()
		out.Returned, out.Truncated = all.JSON, all.Truncated
	}
	if err := r.mark(out); err != nil {
		return Written{}, err
	}
	return out, r.commit()
}

func columnNames(columns []targetColumn) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names
}

// open finds the change's names in the file, and sees how far it would go.
// From here on the guard stands.
func (r *sqliteWrite) open() (change, error) {
	objects, err := r.c.objects()
	if err != nil {
		return change{}, err
	}
	_, name, _ := strings.Cut(r.table, ".")
	if !objects.granted(r.w.Grant.Tables)[strings.ToLower(name)] {
		return change{}, errNoTable(r.w.Table, slices.DeleteFunc(r.w.Grant.Tables.clean().names(), func(n string) bool { return n == r.table }))
	}
	if objects.view(name) {
		return change{}, refuse("Table '%s' is a view and cannot be written", r.table)
	}
	target, err := r.c.target(name)
	if err != nil {
		return change{}, err
	}
	c, err := r.w.bind(target, sqliteDialect)
	if err != nil {
		return change{}, err
	}
	known, err := r.c.relations(objects)
	if err != nil {
		return change{}, err
	}
	r.reach = known.reach(r.w.Grant, r.table, r.w.Operation, columnNames(c.columns))
	if len(r.reach.outside) > 0 && !r.w.Grant.SideEffects {
		return change{}, errEffects()
	}
	if r.reach.open {
		if err := r.c.config(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1); err != nil {
			return change{}, err
		}
	}
	r.guard.reach = r.reach
	return c, r.c.guardWith(r.guard)
}

// taking is what is done with the rows that a change gives back.
type taking struct {
	columns []targetColumn
	value   int                // characters of one value
	row     func([]value) bool // what it has no room for is left out
}

// apply executes the change and holds the number of rows against the limit.
func (r *sqliteWrite) apply(c change, t taking) (int, error) {
	if c.op != Insert {
		over := false
		if _, err := r.c.execute(c.meets(sqliteDialect, r.w.Limits.Rows), func(*sqliteStmt) { over = true }); err != nil {
			return 0, err
		}
		if over {
			return 0, tooMany(r.w.Limits)
		}
	}
	before, rows := r.c.totalChanges(), 0
	for _, s := range c.statements(sqliteDialect, t.columns) {
		n, err := r.c.execute(s, func(stmt *sqliteStmt) { t.row(stmt.values(len(t.columns), t.value)) })
		if err != nil {
			return 0, err
		}
		rows += n
	}
	// Those that foreign keys and triggers reached are among them.
	if r.c.totalChanges()-before > int64(r.w.Limits.Rows) {
		return 0, tooMany(r.w.Limits)
	}
	return rows, nil
}

// preview carries the change out and tells what became of the rows; the
// transaction is rolled back with the connection.
func (r *sqliteWrite) preview() (Preview, error) {
	out := Preview{Operation: r.w.Operation, Table: r.table, Changes: []PreviewRow{}}
	c, err := r.open()
	if err != nil {
		return out, err
	}
	p := newPairs(c)
	if c.op != Insert {
		_, err := r.c.execute(c.selection(sqliteDialect, p.columns, previewRows+1), func(stmt *sqliteStmt) { p.before(stmt.values(len(p.columns), previewValue+1)) })
		if err != nil {
			return out, err
		}
	}
	if c.op == Delete {
		out.Rows, err = r.apply(c, taking{})
	} else {
		out.Rows, err = r.apply(c, taking{p.columns, previewValue + 1, p.after})
	}
	if err != nil {
		return out, err
	}
	out.Changes, out.Truncated = p.rows(out.Rows)
	return out, nil
}

// values reads the first n columns of a row.
func (s *sqliteStmt) values(n, limit int) []value {
	all := make([]value, n)
	for i := range all {
		all[i] = s.value(i, limit)
	}
	return all
}

// commit ends the transaction, as long as there is time.
func (r *sqliteWrite) commit() error {
	r.guard.marking = true
	for {
		if by := r.w.BeginBy; !by.IsZero() && !time.Now().Before(by) { //nolint:forbidigo // of another process's making
			return errLate()
		}
		if err := r.guard.ctx.Err(); err != nil {
			return timedOut(Limits{Timeout: r.w.Limits.Timeout}, err)
		}
		err := r.c.run("COMMIT")
		var e *sqliteError
		if err == nil || !errors.As(err, &e) || e.primary() != sqlite3.SQLITE_BUSY {
			return err
		}
	}
}

// makeMarkers makes the markers' table where there is none.
func (c *sqliteConn) makeMarkers() error {
	err := c.run("CREATE TABLE IF NOT EXISTS main." + markerTable + " (key TEXT PRIMARY KEY, digest TEXT NOT NULL, result TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID")
	if err != nil {
		return fmt.Errorf("make the table of markers: %w", err)
	}
	return nil
}

// marked looks for the change's marker.
func (r *sqliteWrite) marked() (out Written, found bool, err error) {
	s := &sqlText{params: []param{{kind: textParam, text: r.w.Key}}}
	s.WriteString("SELECT digest, result FROM main." + markerTable + " WHERE key = ?1")
	var digest, result string
	if _, err := r.c.execute(s, func(stmt *sqliteStmt) { digest, result, found = stmt.text(0), stmt.text(1), true }); err != nil || !found {
		return out, false, err
	}
	out, err = stored(r.w, digest, result)
	return out, true, err
}

// stored is the outcome that a marker keeps.
func stored(w Write, digest, result string) (out Written, err error) {
	if digest != w.digest() {
		return out, errOtherChange()
	}
	if err := json.Unmarshal([]byte(result), &out); err != nil {
		return out, &Error{Kind: Failed, Message: "The change was made before, but its result cannot be read", cause: err}
	}
	return out, nil
}

// mark writes the change's marker and forgets old ones.
func (r *sqliteWrite) mark(out Written) error {
	if r.w.Key == "" {
		return nil
	}
	r.guard.marking = true
	result, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	now := time.Now() //nolint:forbidigo // the age of a marker is the clock's
	s := &sqlText{params: []param{
		{kind: textParam, text: r.w.Key},
		{kind: textParam, text: r.w.digest()},
		{kind: textParam, text: string(result)},
		{kind: intParam, i: now.Unix()},
	}}
	s.WriteString("INSERT INTO main." + markerTable + " (key, digest, result, at) VALUES (?1, ?2, ?3, ?4)")
	if _, err := r.c.execute(s, nil); err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	old := &sqlText{params: []param{{kind: intParam, i: now.Add(-MarkerAge).Unix()}}}
	old.WriteString("DELETE FROM main." + markerTable + " WHERE at < ?1")
	if _, err := r.c.execute(old, nil); err != nil {
		return fmt.Errorf("forget old markers: %w", err)
	}
	return nil
}

// wording turns an engine's error into one the model may read.
func (r *sqliteWrite) wording(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	switch r.guard.stopped {
	case "time":
		return timedOut(Limits{Timeout: r.w.Limits.Timeout}, err)
	case "memory":
		return &Error{Kind: TooLarge, Message: "The change needs too much memory and was stopped", cause: err}
	}
	var e *sqliteError
	if !errors.As(err, &e) {
		return &Error{Kind: Failed, Message: "The project database could not make the change", cause: err}
	}
	said := func(format string, args ...any) error {
		return &Error{Kind: Failed, Message: fmt.Sprintf(format, args...), cause: err}
	}
	switch e.primary() {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return &Error{Kind: Busy, Message: "The project database is locked by another program; try again shortly", cause: err}
	case sqlite3.SQLITE_TOOBIG:
		return &Error{Kind: TooLarge, Message: fmt.Sprintf("A value is longer than %d bytes", maxSQLiteValue), cause: err}
	case sqlite3.SQLITE_NOMEM:
		return &Error{Kind: TooLarge, Message: "The change needs too much memory and was stopped", cause: err}
	case sqlite3.SQLITE_AUTH:
		return &Error{Kind: Refused, Message: "The change needs something that is not granted", cause: err}
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR:
		return unavailable(err, "The project database cannot be written")
	case sqlite3.SQLITE_CONSTRAINT:
		if r.reach.beyond() { // the text may be about a table outside the grant
			return said("A constraint of the database forbids the change")
		}
		switch e.code {
		case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
			return said("A foreign key forbids the change: a row that it refers to is missing, or other rows refer to the changed ones")
		default:
			return said("%s", short200(e.text))
		}
	}
	return said("The project database could not make the change")
}
