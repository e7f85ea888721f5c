package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
)

// tx is what statements run on: a transaction, or for reads the pool.
type tx struct {
	q     querier
	wrote bool          // a statement changed something
	bound time.Duration // of one statement with all its rows; 0 = none but the context's

	notes   []hob.AuditEntry // what is to be stored in the audit log at the end of the write
	unnoted error            // why something could not be noted
	origin  hob.Origin       // of the request that asked for the write
	chain   *chain           // links entries to their chains at once; nil: they are linked later
}

// bounded gives a statement its time. The returned function ends it, and makes the error of a statement that took longer
// one that asks to try again.
func (t *tx) bounded(ctx context.Context) (context.Context, func(error) error) {
	if t.bound <= 0 {
		return ctx, func(err error) error { return err }
	}
	inner, cancel := context.WithTimeout(ctx, t.bound)
	return inner, func(err error) error {
		late := err != nil && inner.Err() != nil && ctx.Err() == nil
		cancel()
		if late {
			return unavailable(err)
		}
		return err
	}
}

// none says whether one found no row.
func none(err error) bool { return errors.Is(err, sql.ErrNoRows) }

func (t *tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	clean(args)
	res, err := t.q.exec(ctx, query, args)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("count changed rows: %w", err)
	}
	t.wrote = t.wrote || n > 0
	return n, nil
}

// define runs a statement of a migration, which is run once and not kept prepared.
func (t *tx) define(ctx context.Context, stmt string) error {
	t.wrote = true
	return t.q.define(ctx, stmt)
}

func (t *tx) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	clean(args)
	return t.q.query(ctx, query, args)
}

// clean makes every text among the arguments storable. JSON is not touched by it, since there NUL is an escape.
func clean(args []any) {
	for i, a := range args {
		if s, ok := a.(string); ok && (strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s)) {
			args[i] = storable(s)
		}
	}
}

// storable is a text as both databases keep it: Postgres refuses NUL and what is not UTF-8, so both read as U+FFFD, on
// either.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// held ends a statement that reads a row. One that is read to be written anew is kept from others until the transaction
// ends, or the second of two changes would undo the first.
func held(change bool) string {
	if change {
		return " {hold}"
	}
	return ""
}

// row is a result row to scan.
type row interface{ Scan(dest ...any) error }

// one reads the first row; see none where there is no row.
func one[T any](ctx context.Context, t *tx, scan func(row) (T, error), query string, args ...any) (_ T, err error) {
	var zero T
	ctx, end := t.bounded(ctx)
	defer func() { err = end(err) }()
	rows, err := t.query(ctx, query, args...)
	if err != nil {
		return zero, err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return zero, err
		}
		return zero, sql.ErrNoRows
	}
	v, err := scan(rows)
	if err != nil {
		return zero, err
	}
	return v, errors.Join(rows.Err(), rows.Close())
}

// returning is one for a statement that writes and tells what it wrote.
func returning[T any](ctx context.Context, t *tx, scan func(row) (T, error), query string, args ...any) (T, error) {
	v, err := one(ctx, t, scan, query, args...)
	t.wrote = t.wrote || err == nil
	return v, err
}

// many reads all rows.
func many[T any](ctx context.Context, t *tx, scan func(row) (T, error), query string, args ...any) (_ []T, err error) {
	ctx, end := t.bounded(ctx)
	defer func() { err = end(err) }()
	rows, err := t.query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

func scanInt(r row) (n int64, err error) { err = r.Scan(&n); return n, err }

func scanText(r row) (s string, err error) { err = r.Scan(&s); return s, err }

// bulk is an INSERT of several rows at once: one statement per number of rows, made once, so that each is prepared once.
type bulk struct {
	width int
	texts [bulkRows + 1]string
}

// bulkRows is how many rows one statement inserts at most.
const bulkRows = 16

func newBulk(head string, width int, tail string) *bulk { return newBulkWith(head, width, "", tail) }

// newBulkWith is newBulk for rows that have some values, as SQL, in common behind those that are given.
func newBulkWith(head string, width int, common, tail string) *bulk {
	b := &bulk{width: width}
	line := "(" + strings.TrimSuffix(strings.Repeat("?, ", width), ", ") + common + ")"
	for n := 1; n <= bulkRows; n++ {
		b.texts[n] = head + " VALUES " + strings.TrimSuffix(strings.Repeat(line+", ", n), ", ") + tail
	}
	return b
}

// insert writes the rows that args hold one after the other.
func (b *bulk) insert(ctx context.Context, t *tx, args []any) error {
	for len(args) > 0 {
		n := min(len(args)/b.width, bulkRows)
		if _, err := t.exec(ctx, b.texts[n], args[:n*b.width]...); err != nil {
			return err
		}
		args = args[n*b.width:]
	}
	return nil
}

// inList gives "(?, ?, …)" and the values for it. The number of places is rounded up to a power of two, the last value
// repeated, so that there are few different statements.
func inList[T any](values []T) (string, []any) {
	n := 1
	for n < len(values) {
		n *= 2
	}
	args := make([]any, n)
	for i := range args {
		args[i] = values[min(i, len(values)-1)]
	}
	return "(" + strings.TrimSuffix(strings.Repeat("?, ", n), ", ") + ")", args
}

// flag is a truth value as both databases keep it.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
