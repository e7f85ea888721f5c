package agentsql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// commitTime bounds a commit, which the end of the caller's time does not stop.
const commitTime = 5 * time.Second

// Write implements DB.
func (d *postgresDB) Write(ctx context.Context, w Write) (Written, error) {
	w.Limits = w.Limits.withDefaults()
	var out Written
	err := d.writing(ctx, w, func(r *postgresWrite) (err error) {
		out, err = r.once()
		return err
	})
	return out, err
}

// Preview implements DB.
func (d *postgresDB) Preview(ctx context.Context, w Write) (Preview, error) {
	w.Limits = w.Limits.withDefaults()
	var out Preview
	err := d.writing(ctx, w, func(r *postgresWrite) (err error) {
		out, err = r.preview()
		return err
	})
	return out, err
}

// SideEffects implements DB.
func (d *postgresDB) SideEffects(ctx context.Context, g WriteGrant) ([]string, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, d.maker)
	if err != nil {
		return nil, unavailable(err, "The project database cannot be reached")
	}
	defer drop(conn)
	var all []string
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		known, err := postgresRelations(ctx, tx)
		all = known.sideEffects(g)
		return err
	})
	if err != nil {
		return nil, unavailable(err, "The tables cannot be described")
	}
	return all, nil
}

// writing runs f as the grant's writer, in a transaction with the limits of w
// around it. Unless f commits, it is rolled back.
func (d *postgresDB) writing(ctx context.Context, w Write, f func(*postgresWrite) error) error {
	if err := w.Grant.check(); err != nil {
		return err
	}
	table, err := w.resolveTable()
	if err != nil {
		return err
	}
	if err := w.checkForm(); err != nil {
		return err
	}
	l, err := d.writeLogin(ctx, w.Grant, false)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.Limits.Timeout)
	defer cancel()
	leave, err := d.gate.enter(ctx, w.Agent, DefaultConcurrency)
	if err != nil {
		return err
	}
	defer leave()
	r := &postgresWrite{l: l, w: w, table: table}
	err = r.try(ctx, f)
	if sqlState(err) == "42501" || errors.Is(err, errRelation) {
		// A granted table may have been made or replaced a moment ago.
		if r.l, err = d.writeLogin(ctx, w.Grant, true); err == nil {
			err = r.try(ctx, f)
		}
	}
	if err == nil {
		return nil
	}
	return r.wording(err)
}

// postgresWrite is one change on its way.
type postgresWrite struct {
	l     *login
	w     Write
	table string // schema.table, as granted

	ctx   context.Context //nolint:containedctx // of the one try
	conn  *pgx.Conn
	reach reach
}

// try runs f in a transaction of a session of the writer.
func (r *postgresWrite) try(ctx context.Context, f func(*postgresWrite) error) error {
	conn, err := r.l.session(ctx, r.l.writer)
	if err != nil {
		return err
	}
	r.ctx, r.conn, r.reach = ctx, conn, reach{}
	err = r.begin()
	if err == nil {
		err = f(r)
	}
	fit := err == nil || sqlState(err) != "" || isOwn(err)
	if fit && ctx.Err() == nil && clean(ctx, conn) == nil {
		r.l.keep(r.l.writer, conn)
		return err
	}
	pid := conn.PgConn().PID()
	drop(conn)
	if ctx.Err() != nil {
		r.l.terminate(pid)
	}
	return err
}

func isOwn(err error) bool {
	var own *Error
	return errors.As(err, &own) && own.Kind != OutcomeUnknown
}

// begin starts the transaction and names its key.
func (r *postgresWrite) begin() error {
	stop := r.w.Limits.Timeout + cancelGrace // the server's own, should this process die
	for _, sql := range []string{"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", fmt.Sprintf("SET LOCAL statement_timeout = %d", stop.Milliseconds())} {
		if err := r.run(sql); err != nil {
			return err
		}
	}
	s := &sqlText{params: []param{{kind: textParam, text: r.w.Key}}}
	s.WriteString("SELECT pg_catalog.set_config('" + keySetting + "', $1, true)")
	_, err := r.execute(s, nil)
	return err
}

func (r *postgresWrite) run(sql string) error {
	s := &sqlText{}
	s.WriteString(sql)
	_, err := r.execute(s, nil)
	return err
}

// execute runs one statement by the extended protocol and returns how many rows
// it changed. Parameters go as text, which the server reads by the type that
// the statement gives them.
func (r *postgresWrite) execute(s *sqlText, row func(fields []pgconn.FieldDescription, values [][]byte)) (int, error) {
	params := make([][]byte, len(s.params))
	for i, p := range s.params {
		if p.kind != nullParam {
			params[i] = []byte(p.text)
		}
	}
	var fields []pgconn.FieldDescription
	result := r.conn.PgConn().ExecParams(r.ctx, s.String(), params, nil, nil, nil)
	for result.NextRow() {
		if fields == nil {
			fields = slices.Clone(result.FieldDescriptions())
		}
		if row != nil {
			row(fields, result.Values())
		}
	}
	tag, err := result.Close()
	return int(tag.RowsAffected()), err
}

// once carries the change out, unless its marker tells that it was.
func (r *postgresWrite) once() (Written, error) {
	if done, found, err := r.marked(); err != nil || found {
		return done, err
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

// open finds the change's names in the catalogue, and sees how far it would go.
func (r *postgresWrite) open() (change, error) {
	target, err := r.target()
	if err != nil {
		return change{}, err
	}
	c, err := r.w.bind(target, postgresDialect)
	if err != nil {
		return change{}, err
	}
	known, err := postgresRelations(r.ctx, r.conn)
	if err != nil {
		return change{}, err
	}
	r.reach = known.reach(r.w.Grant, r.table, r.w.Operation, columnNames(c.columns))
	if len(r.reach.outside) > 0 && !r.w.Grant.SideEffects {
		return change{}, errEffects()
	}
	return c, nil
}

// apply executes the change and holds the number of rows against the limit.
func (r *postgresWrite) apply(c change, t taking) (int, error) {
	if c.op != Insert {
		over := false
		if _, err := r.execute(c.meets(postgresDialect, r.w.Limits.Rows), func([]pgconn.FieldDescription, [][]byte) { over = true }); err != nil {
			return 0, err
		}
		if over {
			return 0, tooMany(r.w.Limits)
		}
	}
	before, err := r.touched()
	if err != nil {
		return 0, err
	}
	rows := 0
	for _, s := range c.statements(postgresDialect, t.columns) {
		n, err := r.execute(s, func(fields []pgconn.FieldDescription, raw [][]byte) { t.row(r.row(fields, raw, t.value)) })
		if err != nil {
			return 0, err
		}
		rows += n
	}
	// What is checked at the end is checked now, while it can be told.
	if err := r.run("SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
		return 0, err
	}
	after, err := r.touched()
	if err != nil {
		return 0, err
	}
	if max(rows, after-before) > r.w.Limits.Rows {
		return 0, tooMany(r.w.Limits)
	}
	return rows, nil
}

// touched counts the rows that this connection changed so far in any table, where
// a change may go beyond its own. The server counts what foreign keys and
// triggers do with the rest.
func (r *postgresWrite) touched() (n int, err error) {
	if !r.reach.beyond() {
		return 0, nil
	}
	s := &sqlText{}
	s.WriteString("SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_catalog.pg_stat_xact_user_tables")
	_, err = r.execute(s, func(_ []pgconn.FieldDescription, values [][]byte) { _, err = fmt.Sscan(string(values[0]), &n) })
	return n, err
}

// row turns a row as the server writes it into JSON values of at most
// limit characters.
func (r *postgresWrite) row(fields []pgconn.FieldDescription, raw [][]byte, limit int) []value {
	r.l.mu.Lock()
	lists := r.l.state.lists
	r.l.mu.Unlock()
	row := make([]value, len(raw))
	for i, b := range raw {
		const widest = 4 // bytes of a character
		switch {
		case b == nil:
			row[i] = nullValue()
		case len(b) > widest*limit:
			row[i] = value{text: string(b[:widest*limit]), size: len(b)}
		default:
			row[i] = postgresValue(fields[i].DataTypeOID, lists)(string(b))
		}
	}
	return row
}

// preview carries the change out and tells what became of the rows; the
// transaction is rolled back by whoever cleans the session.
func (r *postgresWrite) preview() (Preview, error) {
	out := Preview{Operation: r.w.Operation, Table: r.table, Changes: []PreviewRow{}}
	c, err := r.open()
	if err != nil {
		return out, err
	}
	p := newPairs(c)
	if c.op != Insert {
		_, err := r.execute(c.selection(postgresDialect, p.columns, previewRows), func(fields []pgconn.FieldDescription, raw [][]byte) {
			p.before(r.row(fields, raw, previewValue+1))
		})
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

// marked looks for the change's marker.
func (r *postgresWrite) marked() (out Written, found bool, err error) {
	if r.w.Key == "" {
		return out, false, nil
	}
	// Of tries at the same time the second waits here for the outcome of the
	// first.
	lock := &sqlText{params: []param{{kind: textParam, text: r.w.Key}}}
	lock.WriteString("SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, 7235416720541))")
	if _, err := r.execute(lock, nil); err != nil {
		return out, false, err
	}
	s := &sqlText{params: lock.params}
	s.WriteString("SELECT digest, result FROM " + markerSchema + ".calls WHERE key = $1")
	var digest, result string
	_, err = r.execute(s, func(_ []pgconn.FieldDescription, values [][]byte) {
		digest, result, found = string(values[0]), string(values[1]), true
	})
	if err != nil || !found {
		return out, false, err
	}
	out, err = stored(r.w, digest, result)
	return out, true, err
}

// mark writes the change's marker. The maker forgets old ones.
func (r *postgresWrite) mark(out Written) error {
	if r.w.Key == "" {
		return nil
	}
	result, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	s := &sqlText{params: []param{
		{kind: textParam, text: r.w.Key}, {kind: textParam, text: r.w.digest()}, {kind: textParam, text: string(result)},
	}}
	s.WriteString("INSERT INTO " + markerSchema + ".calls (key, digest, result) VALUES ($1, $2, $3)")
	_, err = r.execute(s, nil)
	return err
}

// commit ends the transaction, as long as there is time. Once it is sent it is
// waited for: the caller's end would leave its outcome open.
func (r *postgresWrite) commit() error {
	if by := r.w.BeginBy; !by.IsZero() && !time.Now().Before(by) { //nolint:forbidigo // of another process's making
		return errLate()
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), commitTime)
	defer cancel()
	tag, err := r.conn.PgConn().ExecParams(ctx, "COMMIT", nil, nil, nil, nil).Close()
	switch {
	case sqlState(err) != "":
		return err
	case err != nil:
		return &Error{Kind: OutcomeUnknown, Message: "The connection was lost while the change was being committed; it may or may not have been made. Look before you try it again", cause: err}
	case tag.String() != "COMMIT":
		return &Error{Kind: Failed, Message: "The change was taken back by the database", cause: errors.New(tag.String())}
	}
	return nil
}
