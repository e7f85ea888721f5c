package agentsql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// run executes a checked statement as the reader, in a read-only transaction
// that is rolled back, and cleans the session up or drops it.
func (l *login) run(ctx context.Context, q Query, s statement) (Rows, error) {
	conn, err := l.session(ctx, l.reader)
	if err != nil {
		return Rows{}, err
	}
	rows, whole, err := l.read(ctx, conn, q.Limits, s)
	if err == nil && whole && clean(ctx, conn) == nil {
		l.keep(l.reader, conn)
		return rows, nil
	}
	pid := conn.PgConn().PID()
	hung := ctx.Err() != nil
	drop(conn)
	if hung {
		l.terminate(pid)
	}
	return rows, err
}

// read returns the rows of a statement. whole says that the session has nothing
// more to send.
func (l *login) read(ctx context.Context, conn *pgx.Conn, limits Limits, s statement) (rows Rows, whole bool, err error) {
	group := []string{
		"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
		// The server's own stop, a little after ours, should this process die.
		fmt.Sprintf("SET LOCAL statement_timeout = %d", limits.Timeout.Milliseconds()+cancelGrace.Milliseconds()),
	}
	if s.explain {
		group = append(group, s.explainPrefix()+s.body)
	} else {
		// A cursor lets the server stop at the row limit. It takes no statement
		// that writes, not even inside WITH.
		group = append(group, "DECLARE hob_rows NO SCROLL CURSOR FOR "+s.body, fmt.Sprintf("FETCH FORWARD %d FROM hob_rows", limits.Rows+1))
	}
	t, err := send(ctx, conn, group)
	if err != nil {
		return rows, false, fmt.Errorf("send: %w", err)
	}
	for range len(group) - 1 {
		if err := t.skip(); err != nil {
			return rows, t.end() == nil, err
		}
	}
	r, err := t.next()
	if err != nil {
		return rows, t.end() == nil, err
	}
	l.mu.Lock()
	lists := l.state.lists
	l.mu.Unlock()
	rows, whole, err = take(r, limits, lists)
	return rows, whole && t.end() == nil, err
}

// take reads a result up to the limits.
func take(r *pgconn.ResultReader, limits Limits, lists map[uint32]bool) (Rows, bool, error) {
	var b *builder
	var convert []func(string) value
	start := func() {
		fields := r.FieldDescriptions()
		keys := make([]string, len(fields))
		for i, f := range fields {
			keys[i] = f.Name
			convert = append(convert, postgresValue(f.DataTypeOID, lists))
		}
		b = newBuilder(keys, limits)
	}
	for r.NextRow() {
		if b == nil {
			start()
		}
		values := make([]value, len(convert))
		for i, raw := range r.Values() {
			if raw == nil {
				values[i] = nullValue()
				continue
			}
			const widest = 4 // bytes of a character
			if len(raw) > widest*limits.Bytes {
				values[i] = value{text: string(raw[:widest*limits.Bytes]), size: len(raw)}
				continue
			}
			values[i] = convert[i](string(raw))
		}
		if !b.add(values) {
			// What is left may be long: the session is dropped, not drained.
			return b.rows(), b.count >= limits.Rows && drained(r), nil
		}
	}
	if b == nil {
		start()
	}
	if _, err := r.Close(); err != nil {
		return Rows{}, sqlState(err) != "", err
	}
	return b.rows(), true, nil
}

// drained reads to the end of a result of which one row was beyond the limit.
func drained(r *pgconn.ResultReader) bool {
	_, err := r.Close()
	return err == nil
}

// clean rolls back and resets everything a session can hold: settings, locks,
// listeners, cursors, prepared statements, temporary objects. It makes sure
// that the session is still the one that logged in.
func clean(ctx context.Context, conn *pgx.Conn) error {
	t, err := send(ctx, conn, []string{"ROLLBACK"}, []string{"DISCARD ALL"}, []string{"SELECT current_user, session_user"})
	if err != nil {
		return err
	}
	for range 2 {
		if err := t.skip(); err != nil {
			return err
		}
	}
	row, err := t.row()
	if err != nil {
		return err
	}
	if user := conn.Config().User; row[0] != user || row[1] != user {
		return errors.New("the session changed its user")
	}
	return t.end()
}

// terminate asks the server to end a backend that did not heed its
// cancellation. It is the last means; statement_timeout is behind it.
func (l *login) terminate(pid uint32) {
	ctx, cancel := context.WithTimeout(context.Background(), terminateGrace)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, l.db.maker)
	if err != nil {
		return
	}
	// Whether the farewell arrives does not matter: the socket is closed.
	defer func() { _ = conn.Close(ctx) }()
	// Only a backend of this login: the number may be somebody else's by now.
	_, _ = conn.Exec(ctx, `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
		WHERE pid = $1 AND usename = $2`, pgx.QueryExecModeExec, pid, l.reader)
}

func pgError(err error) *pgconn.PgError {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e
	}
	return nil
}

func tooLarge(err error) bool {
	var e *pgproto3.ExceededMaxBodyLenErr
	return errors.As(err, &e)
}

// isPlainSyntax tells the grammar's own errors, which come before any name is
// looked up, from others with the same code.
func isPlainSyntax(message string) bool {
	return strings.HasPrefix(message, "syntax error") || strings.HasPrefix(message, "unterminated") || strings.HasPrefix(message, "trailing junk")
}

// writes reports whether a writing verb stands in the statement; it
// chooses between two texts of the same refusal.
func (s statement) writes() bool {
	return slices.ContainsFunc(s.tokens, func(t token) bool {
		return t.is("insert") || t.is("update") || t.is("delete") || t.is("merge") || t.is("into")
	})
}
