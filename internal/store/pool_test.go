package store

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hob"
	"hob/internal/pgtest"
)

// newPool is a Postgres engine with one table.
func newPool(t *testing.T) *scratch {
	t.Helper()
	d, dsn := postgresDialect(), pgtest.URL(t)
	e, err := openPostgres(t.Context(), d, dsn, 6, hob.SystemClock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.close() })
	err = e.write(t.Context(), func(ctx context.Context, t *tx) error {
		for _, stmt := range append(d.lock, `CREATE TABLE x (n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v BIGINT NOT NULL UNIQUE)`) {
			if err := t.define(ctx, stmt); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return &scratch{t: t, e: e, dsn: dsn}
}

// TestPool runs the cases below. Short tests are those on SQLite alone.
func TestPool(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*testing.T){
		"FailingWriteLeavesNothing":            poolFailingWriteLeavesNothing,
		"DeadlockIsTriedAgain":                 poolDeadlockIsTriedAgain,
		"FasterTransactionIsSeenTheSecondTime": poolFasterTransactionIsSeenTheSecondTime,
		"LostAnswerIsReported":                 poolLostAnswerIsReported,
		"BrokenConnectionIsNobodysFault":       poolBrokenConnectionIsNobodysFault,
		"NothingWaitsForever":                  poolNothingWaitsForever,
		"EndedConnectionsAreReplaced":          poolEndedConnectionsAreReplaced,
	}
	if testing.Short() {
		clear(cases)
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

// poolBrokenConnectionIsNobodysFault ends the server's side in a statement, behind one, and before the commit.
func poolBrokenConnectionIsNobodysFault(t *testing.T) {
	s := newPool(t)
	const end = `SELECT CAST(pg_terminate_backend(pg_backend_pid()) AS int)`
	for name, fn := range map[string]func(context.Context, *tx) error{
		"in a statement": func(ctx context.Context, t *tx) error {
			_, err := t.exec(ctx, end)
			return err
		},
		"before the commit": func(ctx context.Context, t *tx) error {
			if _, err := t.exec(ctx, `INSERT INTO x (v) VALUES (1)`); err != nil {
				return err
			}
			_, _ = t.exec(ctx, end)
			return nil
		},
	} {
		err := s.e.write(t.Context(), fn)
		if hob.KindOf(err) != hob.Unavailable {
			t.Errorf("%s: %v (%s), want an error that asks to try again", name, err, hob.KindOf(err))
		}
	}
}

// poolNothingWaitsForever asks a server that does not answer in time, a pool without a free connection, and an address
// that takes connections and says nothing.
func poolNothingWaitsForever(t *testing.T) {
	s := newPool(t)
	_, err := one(t.Context(), &tx{q: s.e.reads, bound: 100 * time.Millisecond}, scanText, `SELECT CAST(pg_sleep(20) AS text)`)
	if hob.KindOf(err) != hob.Unavailable {
		t.Errorf("a slow statement: %v", err)
	}
	db := sql.OpenDB(&connector{cfg: must(pgx.ParseConfig(s.dsn))(t), clock: hob.SystemClock})
	defer db.Close()
	db.SetMaxOpenConns(1)
	p := &pool{d: postgresDialect(), db: db, wait: 100 * time.Millisecond}
	err = p.write(t.Context(), func(context.Context, *tx) error {
		err := p.write(t.Context(), func(context.Context, *tx) error { return nil })
		if hob.KindOf(err) != hob.Unavailable {
			t.Errorf("a write without a connection: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, err = openPostgres(t.Context(), postgresDialect(), "postgres://u@"+silent.Addr().String()+"/x?sslmode=disable&connect_timeout=1", 1, hob.SystemClock)
	if err == nil {
		t.Error("a server that says nothing was opened")
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func poolFailingWriteLeavesNothing(t *testing.T) {
	s := newPool(t)
	refused := hob.Errorf(hob.Conflict, "second thoughts")
	for name, fail := range map[string]func(context.Context, *tx) error{
		"error": func(context.Context, *tx) error { return refused },
		"panic": func(context.Context, *tx) error { panic("out of the blue") },
		"statement": func(ctx context.Context, t *tx) error {
			_, err := t.exec(ctx, `NONSENSE`)
			return err
		},
	} {
		err := s.e.write(t.Context(), func(ctx context.Context, t *tx) error {
			if err := insert(1)(ctx, t); err != nil {
				return err
			}
			return fail(ctx, t)
		})
		if err == nil || name == "error" && !errors.Is(err, refused) {
			t.Errorf("%s: answer %v", name, err)
		}
	}
	if got := s.values(); len(got) != 0 {
		t.Errorf("values %v", got)
	}
	if err := s.e.write(t.Context(), insert(2)); err != nil {
		t.Error(err)
	}
}

func poolDeadlockIsTriedAgain(t *testing.T) {
	s := newPool(t)
	if err := s.e.write(t.Context(), func(ctx context.Context, t *tx) error {
		return errors.Join(insert(1)(ctx, t), insert(2)(ctx, t))
	}); err != nil {
		t.Fatal(err)
	}
	var met sync.WaitGroup
	met.Add(2)
	var runs atomic.Int64
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range 2 {
		first := true
		wg.Go(func() {
			errs[i] = s.e.write(t.Context(), func(ctx context.Context, t *tx) error {
				runs.Add(1)
				if _, err := t.exec(ctx, `UPDATE x SET v = v + 10 WHERE n = ?`, int64(1+i)); err != nil {
					return err
				}
				if first { // both hold one row now and want the other's
					first = false
					met.Done()
					met.Wait()
				}
				_, err := t.exec(ctx, `UPDATE x SET v = v + 10 WHERE n = ?`, int64(2-i))
				return err
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if got := s.values(); !slices.Equal(got, []int64{21, 22}) || runs.Load() < 3 || s.e.stats().Reruns < 1 {
		t.Errorf("values %v after %d runs, stats %+v", got, runs.Load(), s.e.stats())
	}
}

func poolFasterTransactionIsSeenTheSecondTime(t *testing.T) {
	s := newPool(t)
	runs := 0
	err := s.e.write(t.Context(), func(ctx context.Context, t *tx) error {
		if runs++; runs < 3 {
			return errAgain
		}
		return insert(runs)(ctx, t)
	})
	if got := s.values(); err != nil || !slices.Equal(got, []int64{3}) {
		t.Errorf("values %v, %v", got, err)
	}
	always := 0
	err = s.e.write(t.Context(), func(context.Context, *tx) error { always++; return errAgain })
	if !errors.Is(err, errAgain) || always != postgresTries {
		t.Errorf("tried %d times, want %d: %v", always, postgresTries, err)
	}
}

// poolLostAnswerIsReported: the server ends the connection while it works on COMMIT, so nobody knows.
func poolLostAnswerIsReported(t *testing.T) {
	s := newPool(t)
	runs := 0
	err := s.e.write(t.Context(), func(ctx context.Context, t *tx) error {
		runs++
		if err := insert(1)(ctx, t); err != nil {
			return err
		}
		pid, err := one(ctx, t, scanInt, `SELECT pg_backend_pid()::bigint`)
		if err != nil {
			return err
		}
		_, err = s.e.reads.exec(ctx, `SELECT pg_terminate_backend($1::int)`, []any{pid})
		return err
	})
	if err == nil || runs != 1 {
		t.Errorf("after %d runs: %v, want an error after one", runs, err)
	}
	if err := s.e.write(t.Context(), insert(2)); err != nil {
		t.Errorf("the pool is not well afterwards: %v", err)
	}
}

func poolEndedConnectionsAreReplaced(t *testing.T) {
	s := newPool(t)
	var wg sync.WaitGroup
	for i := range 20 { // fill the pool
		wg.Go(func() {
			if err := s.e.write(t.Context(), insert(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	other, err := openPostgres(t.Context(), postgresDialect(), s.dsn, 1, hob.SystemClock)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if _, err := other.reads.exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := s.e.write(t.Context(), insert(100+i)); err != nil {
			t.Fatalf("write %d after the server ended all connections: %v", i, err)
		}
	}
}

func TestPostgres_AddressIsNeverShown(t *testing.T) {
	t.Parallel()
	_, err := openPostgres(t.Context(), postgresDialect(), "postgres://u:s3cret@[bad/x", 1, hob.SystemClock)
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %v", err)
	}
	_, err = openPostgres(t.Context(), postgresDialect(), "postgres://u:s3cret@127.0.0.1:1/x", 1, hob.SystemClock)
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %v", err)
	}
}
