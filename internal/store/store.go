// Package store keeps everything Hob knows, in SQLite or Postgres: agents, tools, sessions, runs with their event logs,
// keys. It implements hob.Store. One SQL text serves both databases; what differs is a dialect value.
//
// Writes are durable when they return. On SQLite one writer takes all that wait into one transaction, so that they share
// its fsync. Who may see and do what is decided by hob.Can, for every read and write; lists carry the same rule as SQL.
//
// The package is not for the tables that agents query with SQL, which are another package's and another connection's, and
// it decides nothing about runs: it keeps what the engine says, in order, or refuses it as fenced.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"hob"
	"hob/internal/seal"
)

// FileName is the SQLite database in the data folder.
const FileName = "hob.db"

// Config says where the data lies.
type Config struct {
	// DSN is a postgres:// (or postgresql://) address, the path of a SQLite file, or empty: FileName in Dir.
	DSN string
	// Dir is the data folder; it exists.
	Dir string
	// Box seals the secrets of the rows. It has to be the one the database was filled under.
	Box *seal.Box
	// Clock tells the times that rows carry; hob.SystemClock where nil. Leases count by the database's own clock.
	Clock hob.Clock
	// MaxConns bounds the connections to Postgres; DefaultMaxConns where 0.
	MaxConns int
}

// Stats are numbers for metrics, counted since Open.
type Stats struct {
	Writes       int64 // writes that were begun
	Commits      int64 // transactions that carried them; fewer on SQLite, where writes share one
	Reruns       int64 // transactions that were done over, because one of their writes failed or the server asked for it
	Failed       int64 // writes that the database did not take; those that were refused for what they say are not among them
	LargestBatch int64 // the most writes that shared a transaction
	Waiting      int64 // writes that wait now
}

// DB is an open store. It is safe for concurrent use.
type DB struct {
	d     *dialect
	e     *engine
	box   *seal.Box
	clock hob.Clock
	texts texts
	// pins are the digests of pins that are known to be stored; places are where the runs' rows are.
	pins   cache[string, struct{}]
	places cache[hob.RunID, place]

	linker     *linker
	configured configured
	failed     atomic.Int64 // see Stats
	once       sync.Once
	ended      error
}

var _ hob.Store = (*DB)(nil)

// Open opens the database, brings its schema up to date and checks that the seal key is the one it was filled under. A
// schema newer than this program's is refused.
func Open(ctx context.Context, c Config) (*DB, error) {
	if c.Box == nil {
		return nil, errors.New("open the store: a seal key is needed")
	}
	s := &DB{box: c.Box, clock: c.Clock, texts: newTexts()}
	if s.clock == nil {
		s.clock = hob.SystemClock
	}
	var err error
	switch {
	case c.postgres():
		s.d = postgresDialect()
		s.e, err = openPostgres(ctx, s.d, c.DSN, c.MaxConns, s.clock)
	case strings.Contains(c.DSN, "://"):
		return nil, errors.New("open the store: the database must be a postgres:// address or the path of a SQLite file")
	default:
		s.d = sqliteDialect()
		s.configured.on = true // the folder's lock lets one process in
		s.e, err = openSQLite(ctx, s.d, c.path(), s.insertNotes)
	}
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	if err = s.migrate(ctx); err == nil {
		err = errors.Join(s.checkSeal(ctx), s.checkMoved(ctx))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the store: %w", err), s.Close())
	}
	if s.d.alone != "" {
		s.linker = newLinker(s.linkLoose)
		s.linker.wake() // a process that ended may have left some
	}
	return s, nil
}

// Close carries out the writes that were handed in and closes the database. Later calls of any method fail.
func (s *DB) Close() error {
	s.once.Do(func() {
		s.linker.close()
		s.ended = s.e.close()
	})
	return s.ended
}

// Ping says whether the database answers.
func (s *DB) Ping(ctx context.Context) error { return hob.Wrap("reach the database", s.e.ping(ctx)) }

// Dialect is "sqlite" or "postgres".
func (s *DB) Dialect() string { return s.d.name }

// Stats tells what the store has done so far.
func (s *DB) Stats() Stats {
	st := s.e.stats()
	st.Failed = s.failed.Load()
	return st
}

// now is the time that rows carry.
func (s *DB) now() int64 { return s.clock().UnixMicro() }

// read is what reads run on: each statement sees what was committed before it.
func (s *DB) read() *tx { return &tx{q: s.e.reads, bound: s.e.bound} }

// lookUp is read for what takes no longer than finding a few rows by their keys.
func (s *DB) lookUp(ctx context.Context) (context.Context, *tx) {
	if s.d.whole && ctx.Err() == nil {
		ctx = context.WithoutCancel(ctx)
	}
	return ctx, s.read()
}

// write runs fn in a durable transaction; what names the operation for errors that are not typed.
func (s *DB) write(ctx context.Context, what string, fn func(context.Context, *tx) error) error {
	var noted bool
	err := s.e.write(ctx, s.noting(ctx, fn, &noted))
	if k := hob.KindOf(err); (k == hob.Internal || k == hob.Unavailable) && ctx.Err() == nil {
		s.failed.Add(1)
	}
	if noted && err == nil {
		s.linker.wake()
	}
	return hob.Wrap(what, err)
}
