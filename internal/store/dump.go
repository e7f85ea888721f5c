package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"hob"
)

// dumpChunk is how many bytes of rows are handed on at once; a row that is larger comes alone.
const dumpChunk = 1 << 20

// Chunk is a part of a table: whole lines of rows.
type Chunk struct {
	Table string
	Lines []byte // valid until the next chunk is asked for
}

// Dump reads everything a database holds, of either dialect, as it was at one moment. A server may write to it meanwhile;
// on SQLite its write-ahead log grows until the dump is closed.
type Dump struct {
	link   *link
	shape  Shape
	tables []Table // those whose rows were read, with their digests
}

// OpenDump takes the moment. Nothing is made, migrated or locked; no seal key is needed. A database that holds nothing of
// Hob's is NotFound, one with a newer schema than this program knows Invalid.
func OpenDump(ctx context.Context, c Config) (*Dump, error) {
	known, err := knownMigrations()
	if err != nil {
		return nil, err
	}
	l, err := c.link(ctx, false)
	if err != nil {
		return nil, err
	}
	d := &Dump{link: l}
	if err := l.define(ctx, l.d.snapshot); err != nil {
		return nil, errors.Join(fmt.Errorf("look into the database: %w", err), l.close())
	}
	if err := d.look(ctx, len(known)); err != nil {
		return nil, errors.Join(fmt.Errorf("look into the database: %w", err), d.Close())
	}
	return d, nil
}

func (d *Dump) look(ctx context.Context, known int) error {
	l := d.link
	version, err := l.version(ctx)
	if err != nil {
		return err
	}
	if version == 0 {
		return hob.Errorf(hob.NotFound, "the database holds nothing of Hob's yet")
	}
	if version > known {
		return hob.Errorf(hob.Invalid, "the database has schema version %d, but this Hob knows only up to %d: use the newer Hob", version, known)
	}
	d.shape = Shape{Schema: version, Dialect: l.d.name}
	if d.shape.Tables, err = l.d.tables(ctx, &l.tx); err != nil {
		return err
	}
	d.shape.Seal, err = one(ctx, &l.tx, scanText, `SELECT value FROM meta WHERE name = '`+metaSeal+`'`)
	if none(err) { // it was migrated, and never opened with a key
		err = nil
	}
	return err
}

// Shape says what is dumped, without counts and digests.
func (d *Dump) Shape() Shape { return d.shape }

// Tables are the tables that were read to their end, with their counts and digests.
func (d *Dump) Tables() []Table { return d.tables }

// Close ends the moment.
func (d *Dump) Close() error {
	d.link.rollback()
	return d.link.close()
}

// Chunks reads the rows of all tables, in order. It can be gone through once.
func (d *Dump) Chunks(ctx context.Context) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		for _, table := range d.shape.Tables {
			sum := NewSum()
			for lines, err := range d.link.rows(ctx, table) {
				if err != nil {
					yield(Chunk{}, fmt.Errorf("dump table %s: %w", table.Name, err))
					return
				}
				sum.Add(lines)
				if !yield(Chunk{table.Name, lines}, nil) {
					return
				}
			}
			d.tables = append(d.tables, sum.Table(table.Name, table.Columns))
		}
	}
}

// Counts says how many rows each table has, at one moment.
func (d *Dump) Counts(ctx context.Context) ([]Table, error) {
	list := make([]Table, 0, len(d.shape.Tables))
	for _, table := range d.shape.Tables {
		n, err := one(ctx, &d.link.tx, scanInt, `SELECT count(*) FROM `+table.Name)
		if err != nil {
			return nil, fmt.Errorf("count table %s: %w", table.Name, err)
		}
		table.Rows = n
		list = append(list, table)
	}
	return list, nil
}

// link is one connection to a database, beside any store, with the transaction that the caller has begun on it.
type link struct {
	tx
	d    *dialect
	db   *sql.DB
	conn *sql.Conn
}

// postgres says whether the store is on Postgres.
func (c Config) postgres() bool {
	return strings.HasPrefix(c.DSN, "postgres://") || strings.HasPrefix(c.DSN, "postgresql://")
}

// path is the SQLite file.
func (c Config) path() string {
	if c.DSN != "" {
		return c.DSN
	}
	return filepath.Join(c.Dir, FileName)
}

// link opens a connection that writes, and makes a SQLite file where there is none, or one that only reads.
func (c Config) link(ctx context.Context, writes bool) (*link, error) {
	l, explain := &link{}, func(err error) error { return hob.Wrap("open the database", err) }
	if c.postgres() {
		cfg, err := pgx.ParseConfig(c.DSN)
		if err != nil {
			return nil, errors.New("the database address is not a valid postgres:// URL")
		}
		cfg.RuntimeParams["search_path"] = postgresSchema
		cfg.RuntimeParams["synchronous_commit"] = "on"
		cfg.RuntimeParams["application_name"] = "hob"
		l.d, l.db = postgresDialect(), sql.OpenDB(&connector{cfg: cfg, clock: hob.SystemClock})
		explain = func(err error) error { return unreached(cfg, err) }
	} else {
		path, mode, pragmas := c.path(), "ro", []string{"query_only(1)"}
		if writes {
			mode, pragmas = "rw", []string{"journal_mode(wal)", "synchronous(full)", "foreign_keys(1)"}
			if err := privateFile(path); err != nil {
				return nil, err
			}
		} else if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, hob.Errorf(hob.NotFound, "there is no Hob in %s: no file %s", filepath.Dir(path), filepath.Base(path))
		}
		var err error
		if l.db, err = sql.Open("sqlite", sqliteDSN(path, mode, sqliteWriterCache, pragmas...)); err != nil {
			return nil, err
		}
		l.d = sqliteDialect()
	}
	var err error
	if l.conn, err = l.db.Conn(ctx); err != nil {
		_ = l.db.Close() // nothing is open
		return nil, explain(err)
	}
	if l.q = querier(rebinder{l.d, l.conn}); writes && !c.postgres() {
		l.q = &prepared{d: l.d, conn: l.conn, stmts: map[string]*sql.Stmt{}}
	}
	return l, nil
}

func (l *link) close() error {
	var errs []error
	if p, ok := l.q.(*prepared); ok {
		errs = append(errs, p.close())
	} else {
		errs = append(errs, l.conn.Close())
	}
	return errors.Join(append(errs, l.db.Close())...)
}

// rollback ends the transaction. Its error only says that it has ended.
func (l *link) rollback() { _ = l.define(context.Background(), "ROLLBACK") }

// version is that of the schema, 0 where there is none.
func (l *link) version(ctx context.Context) (int, error) {
	there, err := one(ctx, &l.tx, scanInt, l.d.migrated)
	if err != nil || there == 0 {
		return 0, err
	}
	n, err := one(ctx, &l.tx, scanInt, `SELECT coalesce(max(version), 0) FROM schema_migrations`)
	return int(n), err
}

// rows reads a table, in chunks.
func (l *link) rows(ctx context.Context, table Table) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		rows, err := l.query(ctx, selectAll(table))
		if err != nil {
			yield(nil, err)
			return
		}
		defer rows.Close()
		values, into := make([]any, len(table.Columns)), make([]any, len(table.Columns))
		for i := range values {
			into[i] = &values[i]
		}
		var lines []byte
		for n := 1; rows.Next(); n++ {
			if err = rows.Scan(into...); err != nil {
				break
			}
			from := len(lines)
			if lines, err = appendRow(lines, table.Columns, values); err == nil && len(lines)-from > MaxDumpRow {
				err = fmt.Errorf("it has more than %d bytes", MaxDumpRow)
			}
			if err != nil {
				err = fmt.Errorf("row %d: %w", n, err)
				break
			}
			if len(lines) >= dumpChunk {
				if !yield(lines, nil) {
					return
				}
				lines = lines[:0]
			}
		}
		if err = errors.Join(err, rows.Err()); err != nil {
			yield(nil, err)
			return
		}
		if len(lines) > 0 {
			yield(lines, nil)
		}
	}
}

func selectAll(table Table) string {
	query := `SELECT ` + table.columns() + ` FROM ` + table.Name
	for _, known := range dumpTables() {
		if known.name != table.Name {
			continue
		}
		if known.where != "" {
			query += ` WHERE ` + known.where
		}
		query += ` ORDER BY ` + known.key
	}
	return query
}

// CopySQLite copies a SQLite file, Hob's or not, as it is at one moment, to a new one. Others may write to it meanwhile.
func CopySQLite(ctx context.Context, from, to string) (err error) {
	db, err := sql.Open("sqlite", sqliteDSN(from, "ro", sqliteReaderCache))
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, `VACUUM INTO ?`, to); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}
