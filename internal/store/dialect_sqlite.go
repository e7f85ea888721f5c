package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"hob"
	"hob/internal/seeded"
)

// Settings of a SQLite database.
const (
	sqliteReaders     = 8    // connections that read at the same time
	sqliteBusyMS      = 5000 // how long a lock of another process is waited for
	sqlitePause       = 10 * time.Millisecond
	sqliteCheckpoint  = 4000     // pages of write-ahead log after which it is carried over: 16 MB
	sqliteJournalSize = 64 << 20 // bytes of log file kept after that
	sqliteWriterCache = 16 << 10 // KiB of pages that the writer keeps
	sqliteReaderCache = 2 << 10  // the same for each reader
)

func sqliteDialect() *dialect {
	return &dialect{
		name:  "sqlite",
		whole: true,
		types: strings.NewReplacer("{key}", "TEXT", "{json}", "TEXT", "{blob}", "BLOB", "{int}", "INTEGER",
			"{serial}", "INTEGER PRIMARY KEY", " {fill}", ""),
		words: strings.NewReplacer("{now}", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)", "{like}", "LIKE", "{skip}", "", "{keep}", "", "{hold}", ""),
		conflict: func(err error) bool {
			code := sqliteCode(err)
			return code == sqlite3.SQLITE_CONSTRAINT_UNIQUE || code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
		},
		again:    func(error) bool { return false },
		snapshot: "BEGIN",
		begin:    "BEGIN IMMEDIATE",
		migrated: `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations'`,
		columns:  `SELECT name, type FROM pragma_table_info(?) ORDER BY cid`,
	}
}

// full says whether a write failed because the disk is full or does not work: nothing the caller could mend.
func full(err error) bool {
	code := sqliteCode(err) & 0xff
	return code == sqlite3.SQLITE_FULL || code == sqlite3.SQLITE_IOERR
}

// Locked says whether something failed because another program has locked the SQLite file.
func Locked(err error) bool {
	code := sqliteCode(err) & 0xff
	return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED
}

func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// openSQLite opens or makes the file: one connection that writes, a pool that reads.
func openSQLite(ctx context.Context, d *dialect, path string, keep keepFunc) (_ *engine, err error) {
	if err := whole(path); err != nil {
		return nil, err
	}
	if err := privateFile(path); err != nil {
		return nil, err
	}
	durable := "synchronous(full)"
	if seeded.Bug("no_sync") {
		durable = "synchronous(off)"
	}
	writers, err := sql.Open("sqlite", sqliteDSN(path, "rwc", sqliteWriterCache,
		"journal_mode(wal)", durable, "foreign_keys(1)",
		fmt.Sprintf("wal_autocheckpoint(%d)", sqliteCheckpoint), fmt.Sprintf("journal_size_limit(%d)", sqliteJournalSize)))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	writers.SetMaxOpenConns(1)
	conn, err := connectWriter(ctx, writers)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), writers.Close())
	}
	readers, err := sql.Open("sqlite", sqliteDSN(path, "ro", sqliteReaderCache, "query_only(1)"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), conn.Close(), writers.Close())
	}
	readers.SetMaxOpenConns(sqliteReaders)
	readers.SetMaxIdleConns(sqliteReaders)

	b := newBatcher(&prepared{d: d, conn: conn, stmts: map[string]*sql.Stmt{}})
	b.keep = keep
	pool := &preparedPool{d: d, db: readers}
	return &engine{
		reads: pool, write: b.write, migrate: b.write, ping: func(ctx context.Context) error {
			return errors.Join(readers.PingContext(ctx), b.probe(ctx))
		}, stats: b.stats,
		close: func() error {
			return errors.Join(b.close(), pool.close(), readers.Close(), writers.Close())
		},
	}, nil
}

// connectWriter opens the connection that writes. The switch of a new file to its log is the one thing that does not wait
// for a lock by itself: processes that start on it together try again.
func connectWriter(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	patience := time.NewTimer(sqliteBusyMS * time.Millisecond)
	defer patience.Stop()
	for {
		conn, err := db.Conn(ctx)
		if err == nil || !Locked(err) {
			return conn, err
		}
		pause := time.NewTimer(sqlitePause)
		select {
		case <-pause.C:
		case <-patience.C:
			pause.Stop()
			return nil, err
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		}
	}
}

// whole refuses a database that is not there while its log is, and one that is shorter than it says. While there is a log,
// the latter may be the state of a carry-over that a crash cut short, which SQLite mends.
func whole(path string) error {
	size, log := fileSize(path), fileSize(path+"-wal")
	if size == 0 && log > 0 {
		return hob.Errorf(hob.Conflict, "%s is missing or empty, but what was written behind it is in %s-wal: put the file back, "+
			"restore a backup, or move %s-wal away to begin anew", path, filepath.Base(path), filepath.Base(path))
	}
	if size == 0 || log > 0 {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // who opens it next tells why
	}
	defer f.Close()
	var head [100]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || !bytes.HasPrefix(head[:], []byte("SQLite format 3\x00")) {
		return nil // SQLite says what it is instead
	}
	page := int64(binary.BigEndian.Uint16(head[16:]))
	if page == 1 { // how 65,536 is written
		page = 64 << 10
	}
	if want := page * int64(binary.BigEndian.Uint32(head[28:])); bytes.Equal(head[24:28], head[92:96]) && size < want {
		return hob.Errorf(hob.Conflict, "%s has %d bytes of %d: it was cut; restore a backup", path, size, want)
	}
	return nil
}

// fileSize is 0 where there is no file.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// privateFile makes the database file, or an existing one, readable by its owner alone; SQLite gives the files beside it
// the same mode.
func privateFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	return nil
}

// sqliteDSN is an address in URI form: only there does mode=ro mean read-only.
func sqliteDSN(path, mode string, cacheKiB int, pragmas ...string) string {
	q := url.Values{"mode": {mode}}
	// busy_timeout comes first, so that it already holds while the others wait for a lock.
	for _, p := range append([]string{fmt.Sprintf("busy_timeout(%d)", sqliteBusyMS)}, pragmas...) {
		q.Add("_pragma", p)
	}
	q.Add("_pragma", fmt.Sprintf("cache_size(-%d)", cacheKiB))
	q.Add("_pragma", "temp_store(memory)")
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// preparedPool is a pool of connections, each of which keeps its prepared statements.
type preparedPool struct {
	d     *dialect
	db    *sql.DB
	stmts sync.Map // statement → *sql.Stmt
}

func (p *preparedPool) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := p.stmts.Load(query); ok {
		return s.(*sql.Stmt), nil
	}
	s, err := p.db.PrepareContext(ctx, p.d.rebind(query))
	if err != nil {
		return nil, err
	}
	first, there := p.stmts.LoadOrStore(query, s)
	if there { // another reader was faster
		defer s.Close() //nolint:errcheck // it was never used
	}
	return first.(*sql.Stmt), nil
}

func (p *preparedPool) exec(ctx context.Context, query string, args []any) (sql.Result, error) {
	s, err := p.stmt(ctx, query) //nolint:sqlclosecheck // kept for the next time and closed with the connection
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args...)
}

func (p *preparedPool) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	s, err := p.stmt(ctx, query) //nolint:sqlclosecheck // kept for the next time and closed with the connection
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (p *preparedPool) define(ctx context.Context, stmt string) error {
	_, err := p.db.ExecContext(ctx, stmt)
	return err
}

func (p *preparedPool) close() error {
	var errs []error
	p.stmts.Range(func(_, s any) bool {
		errs = append(errs, s.(*sql.Stmt).Close())
		return true
	})
	return errors.Join(errs...)
}
