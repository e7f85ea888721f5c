package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hob"
)

// connector opens connections of pgx for database/sql, which keeps the pool. It does what the store needs and no more:
// statements are prepared and kept by pgx per connection, values are integers, texts and bytes.
type connector struct {
	cfg   *pgx.ConnConfig
	clock hob.Clock
	// doubt is when a connection was last found broken, in µs: those that were used before it are asked whether they
	// still answer, since a server that ends tends to end all of them.
	doubt atomic.Int64
}

// Connect opens a connection.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, c.cfg)
	if err != nil {
		return nil, err
	}
	return &pgConn{conn: conn, of: c, used: c.clock()}, nil
}

// Driver names the driver; connections come from the connector alone.
func (c *connector) Driver() driver.Driver { return noDriver{} }

type noDriver struct{}

func (noDriver) Open(string) (driver.Conn, error) {
	return nil, errors.New("connections are opened by the connector")
}

// pgIdle is how long a connection may lie unused before it is asked whether it still answers.
const pgIdle = time.Second

type pgConn struct {
	conn *pgx.Conn
	of   *connector
	used time.Time
}

var (
	_ driver.QueryerContext  = (*pgConn)(nil)
	_ driver.ExecerContext   = (*pgConn)(nil)
	_ driver.ConnBeginTx     = (*pgConn)(nil)
	_ driver.Pinger          = (*pgConn)(nil)
	_ driver.SessionResetter = (*pgConn)(nil)
	_ driver.Validator       = (*pgConn)(nil)
)

func (c *pgConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("statements are prepared by pgx itself")
}

// Begin is not called by database/sql, which finds BeginTx.
func (c *pgConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *pgConn) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return c.conn.Close(ctx)
}

func (c *pgConn) Ping(ctx context.Context) error { return c.bad(c.conn.Ping(ctx)) }

// IsValid keeps broken connections out of the pool.
func (c *pgConn) IsValid() bool { return !c.conn.IsClosed() }

// ResetSession is called before a pooled connection is used again.
func (c *pgConn) ResetSession(ctx context.Context) error {
	if c.conn.IsClosed() {
		return driver.ErrBadConn
	}
	now := c.of.clock()
	doubtful := now.Sub(c.used) > pgIdle || c.used.UnixMicro() <= c.of.doubt.Load()
	if doubtful && c.conn.Ping(ctx) != nil {
		c.of.doubt.Store(now.UnixMicro())
		return driver.ErrBadConn
	}
	c.used = now
	return nil
}

// errGone says that the connection broke; what was asked on it may have happened.
var errGone = errors.New("the connection to the database broke")

// bad says driver.ErrBadConn where nothing reached the server, so that database/sql takes another connection, and errGone
// where the connection broke later.
func (c *pgConn) bad(err error) error {
	if err == nil {
		return nil
	}
	closed := c.conn.IsClosed()
	if closed {
		c.of.doubt.Store(c.of.clock().UnixMicro())
	}
	switch {
	case pgconn.SafeToRetry(err):
		return fmt.Errorf("%w: %w", driver.ErrBadConn, err)
	case closed:
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

func (c *pgConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o.ReadOnly || o.Isolation != 0 {
		return nil, errors.New("only the server's own isolation level is used")
	}
	tx, err := c.conn.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return nil, c.bad(err)
	}
	return pgTx{ctx, c, tx}, nil
}

// pgTx carries the context of its transaction, since driver.Tx's methods take none.
type pgTx struct {
	ctx context.Context //nolint:containedctx // see above
	on  *pgConn
	tx  pgx.Tx
}

func (t pgTx) Commit() error   { return t.on.bad(t.tx.Commit(t.ctx)) }
func (t pgTx) Rollback() error { return t.tx.Rollback(context.WithoutCancel(t.ctx)) }

func values(args []driver.NamedValue) []any {
	list := make([]any, len(args))
	for i, a := range args {
		list[i] = a.Value
	}
	return list
}

func (c *pgConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	tag, err := c.conn.Exec(ctx, query, values(args)...)
	if err != nil {
		return nil, c.bad(err)
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

func (c *pgConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.conn.Query(ctx, query, values(args)...)
	if err != nil {
		return nil, c.bad(err)
	}
	r := &pgRows{rows: rows}
	// The first row is read now: what the server has against the statement is then this call's error.
	if r.more = rows.Next(); !r.more && rows.Err() != nil {
		return nil, c.bad(rows.Err())
	}
	return r, nil
}

type pgRows struct {
	rows pgx.Rows
	more bool // the current row is read and not yet given
}

func (r *pgRows) Columns() []string {
	fields := r.rows.FieldDescriptions()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

func (r *pgRows) Close() error {
	r.rows.Close()
	return r.rows.Err()
}

// Next gives a row in the types of database/sql.
func (r *pgRows) Next(dest []driver.Value) error {
	if !r.more {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	row, err := r.rows.Values()
	if err != nil {
		return err
	}
	for i, v := range row {
		switch v := v.(type) {
		case nil, int64, float64, bool, string, []byte:
			dest[i] = v
		case int32:
			dest[i] = int64(v)
		case int16:
			dest[i] = int64(v)
		default:
			return fmt.Errorf("column %d has the type %T, which the store does not use", i, v)
		}
	}
	r.more = r.rows.Next()
	return nil
}
