package agentsql

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// check has the server analyse a statement and walks the result. The statement
// stands in a temporary view, so it is not run, and the view's transaction is
// rolled back. Only SELECT and VALUES can stand there.
func (l *login) check(ctx context.Context, s statement) error {
	conn, err := l.session(ctx, l.checker)
	if err != nil {
		return err
	}
	view, tree, sound, err := analyse(ctx, conn, s.body)
	if sound {
		l.keep(l.checker, conn)
	} else {
		drop(conn)
	}
	if err != nil {
		return err
	}
	v, err := parseTree(tree)
	if err != nil {
		return &Error{Kind: Refused, Message: errUnknown.Message, cause: err}
	}
	l.mu.Lock()
	state := l.state
	l.mu.Unlock()
	w := walk{allow: l.db.allow, tables: map[uint32]bool{}, view: view, enums: state.enums, columns: state.columns, cast: state.cast}
	for oid := range state.tables {
		w.tables[oid] = true
	}
	if err := w.statement(v); err != nil {
		return err
	}
	if s.explain {
		return l.mayExplain(v, state)
	}
	return nil
}

// storedTree reads what the server made of the view of analyse, unless that is
// larger than 4 MB.
const storedTree = `SELECT c.oid, CASE WHEN octet_length(r.ev_action::text) <= 4194304 THEN r.ev_action::text ELSE '' END
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_rewrite r ON r.ev_class = c.oid
	WHERE c.relname = 'hob_check' AND c.relnamespace = pg_catalog.pg_my_temp_schema()`

// analyse returns the stored tree of a statement and the oid of the view it
// stood in. sound says that the session may be used again.
func analyse(ctx context.Context, conn *pgx.Conn, body string) (view uint32, tree string, sound bool, err error) {
	t, err := send(ctx, conn, []string{
		"BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE",
		// The line break ends a comment at the end of the statement. A statement
		// that tries to close the parenthesis early is not a statement when it
		// is run by itself.
		"CREATE TEMPORARY VIEW hob_check AS SELECT 1 FROM (" + body + "\n) hob_statement",
		storedTree,
	}, []string{"ROLLBACK"})
	if err != nil {
		return 0, "", false, err
	}
	for range 2 {
		if err := t.skip(); err != nil {
			return 0, "", t.end() == nil, err
		}
	}
	row, err := t.row()
	if err != nil {
		return 0, "", t.end() == nil, err
	}
	sound = t.end() == nil
	oid, err := strconv.ParseUint(row[0], 10, 32)
	if err != nil {
		return 0, "", false, fmt.Errorf("oid of the view: %w", err)
	}
	if row[1] == "" {
		return 0, "", sound, &Error{Kind: TooLarge, Message: "The query is too large"}
	}
	return uint32(oid), row[1], sound, nil
}

// mayExplain refuses the plan of a view or of a table with row security: it
// would show the tables and conditions behind them.
func (l *login) mayExplain(v treeValue, state loginState) error {
	hidden := false
	var look func(treeValue)
	look = func(v treeValue) {
		for _, item := range v.list {
			look(item)
		}
		if v.node == nil {
			return
		}
		for _, f := range v.node.fields {
			if f.key == ":relid" {
				if oid, err := f.value.oid(); err == nil && state.tables[oid].view {
					hidden = true
				}
			}
			look(f.value)
		}
	}
	look(v)
	if hidden {
		return refuse("EXPLAIN is not available for views and for tables with row security")
	}
	return nil
}

// wording turns an error into one the model may read. ran says that the
// statement had passed its check, so that every name in it is granted.
func (d *postgresDB) wording(q Query, s statement, err error, ran bool) error {
	var own *Error
	if errors.As(err, &own) && own.Kind != Refused {
		if errors.Is(own.cause, context.DeadlineExceeded) || errors.Is(own.cause, context.Canceled) {
			return timedOut(q.Limits, own.cause)
		}
		return own
	}
	code := sqlState(err)
	message := ""
	if e := pgError(err); e != nil {
		message = e.Message
	}
	switch {
	case (code == "42601" || code == "0A000") && s.writes():
		return refuse(msgOnlySelect)
	case code == "42601" && isPlainSyntax(message):
		// Found before any name is looked up.
		return &Error{Kind: Invalid, Message: short200(message), cause: err}
	case code == "57014", code == "25P03", code == "57P01", errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return timedOut(q.Limits, err)
	}
	vocabulary := vocabulary{grant: q.Grant, schemas: true, functions: postgresFunctions, types: d.allow.words}
	if stranger := vocabulary.stranger(s.tokens); stranger != nil && !ran {
		stranger.cause = err
		return stranger
	}
	if own != nil {
		return own
	}
	if errors.Is(err, errRelation) || code == "42P01" || code == "42501" || code == "3F000" {
		return &Error{Kind: Refused, Message: "The query uses a table or alias that does not exist or is not granted. " + vocabulary.offer(), cause: err}
	}
	return serverWording(err, code, message)
}

// serverWording words the errors of statements whose every name is known.
func serverWording(err error, code, message string) error {
	class := code
	if len(code) == 5 {
		class = code[:2]
	}
	switch class {
	case "42", "0A": // names and types of granted things
		return &Error{Kind: Invalid, Message: short200(message), cause: err}
	case "21", "22", "2F": // division by zero, a text that is no number …
		return &Error{Kind: Failed, Message: short200(message), cause: err}
	case "53", "54":
		return &Error{Kind: TooLarge, Message: "The query needs more than the server allows it", cause: err}
	case "55":
		return &Error{Kind: Busy, Message: "A table of the query is locked; try again shortly", cause: err}
	}
	if tooLarge(err) {
		return &Error{Kind: TooLarge, Message: fmt.Sprintf("A row of the result is larger than %d MB; select less of it", maxWireMessage>>20), cause: err}
	}
	return &Error{Kind: Failed, Message: "The project database could not answer the query", cause: err}
}
