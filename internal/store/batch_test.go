package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hob"
)

// scratch is a SQLite engine with one table, and a way to hold its writer still so that what is handed in meanwhile
// becomes one batch.
type scratch struct {
	t   *testing.T
	e   *engine
	dsn string // of Postgres
}

func newScratch(t *testing.T) *scratch {
	t.Helper()
	e, err := openSQLite(t.Context(), sqliteDialect(), filepath.Join(t.TempDir(), "scratch.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.close() })
	err = e.write(t.Context(), func(ctx context.Context, t *tx) error {
		return t.define(ctx, `CREATE TABLE x (n INTEGER PRIMARY KEY, v INTEGER NOT NULL UNIQUE)`)
	})
	if err != nil {
		t.Fatal(err)
	}
	return &scratch{t: t, e: e}
}

func insert(v int) func(context.Context, *tx) error {
	return func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO x (v) VALUES (?)`, int64(v))
		return err
	}
}

func (s *scratch) values() []int64 {
	s.t.Helper()
	list, err := many(s.t.Context(), &tx{q: s.e.reads}, scanInt, `SELECT v FROM x ORDER BY n`)
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// hold makes the writer wait inside a write; what is handed in until the returned function is called waits behind it.
func (s *scratch) hold() (release func()) {
	s.t.Helper()
	begun, gate, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		done <- s.e.write(context.Background(), func(context.Context, *tx) error {
			once.Do(func() { close(begun) })
			<-gate
			return nil
		})
	}()
	<-begun
	return func() {
		s.t.Helper()
		close(gate)
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
}

// handIn hands in writes one after the other while the writer is held, and gives their answers, in order, once released.
func (s *scratch) handIn(writes ...func(context.Context, *tx) error) []error {
	s.t.Helper()
	release := s.hold()
	errs := make([]error, len(writes))
	var wg sync.WaitGroup
	for i, fn := range writes {
		before := s.e.stats().Waiting
		wg.Go(func() { errs[i] = s.e.write(context.Background(), fn) })
		s.until(func() bool { return s.e.stats().Waiting == before+1 })
	}
	release()
	wg.Wait()
	return errs
}

func (s *scratch) until(cond func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("waited in vain")
		}
	}
}

func TestBatch_WaitingWritesShareOneCommitInTheirOrder(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	before := s.e.stats()
	var writes []func(context.Context, *tx) error
	var want []int64
	for i := range 50 {
		writes, want = append(writes, insert(i)), append(want, int64(i))
	}
	for i, err := range s.handIn(writes...) {
		if err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if got := s.values(); !slices.Equal(got, want) {
		t.Errorf("values in order of writing: %v", got)
	}
	after := s.e.stats()
	if after.Commits-before.Commits != 1 || after.Writes-before.Writes != 51 || after.LargestBatch != 50 || after.Reruns != 0 {
		t.Errorf("stats before %+v, after %+v: want one commit for 50 writes", before, after)
	}
}

func TestBatch_IsBounded(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	var writes []func(context.Context, *tx) error
	for i := range maxBatch + 40 {
		writes = append(writes, insert(i))
	}
	before := s.e.stats()
	for i, err := range s.handIn(writes...) {
		if err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if got := s.e.stats(); got.LargestBatch != maxBatch || got.Commits-before.Commits != 2 {
		t.Errorf("stats %+v, want two batches of at most %d", got, maxBatch)
	}
}

func TestBatch_FailureThatWroteNothingIsAnsweredAlone(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	refused := hob.Errorf(hob.Fenced, "not yours")
	runs := 0
	counted := func(ctx context.Context, t *tx) error {
		runs++
		return insert(2)(ctx, t)
	}
	errs := s.handIn(insert(1), func(ctx context.Context, t *tx) error {
		if n, err := t.exec(ctx, `UPDATE x SET v = 9 WHERE v = 1000`); err != nil || n != 0 {
			return fmt.Errorf("%d rows, %w", n, err)
		}
		return refused
	}, counted)
	if errs[0] != nil || !errors.Is(errs[1], refused) || errs[2] != nil {
		t.Errorf("answers: %v", errs)
	}
	if got := s.e.stats(); got.Reruns != 0 || runs != 1 {
		t.Errorf("the batch was done over: %+v, %d runs", got, runs)
	}
	if got := s.values(); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("values %v", got)
	}
}

func TestBatch_FailureThatWroteIsUndoneAndTheOthersStay(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context, *tx) error{
		"typed error behind a write": func(ctx context.Context, t *tx) error {
			if err := insert(100)(ctx, t); err != nil {
				return err
			}
			return hob.Errorf(hob.Conflict, "second thoughts")
		},
		"statement that fails behind a write": func(ctx context.Context, t *tx) error {
			if err := insert(100)(ctx, t); err != nil {
				return err
			}
			return insert(100)(ctx, t)
		},
		"statement that fails at once": insert(1),
		"bad SQL": func(ctx context.Context, t *tx) error {
			_, err := t.exec(ctx, `NONSENSE`)
			return err
		},
		"panic behind a write": func(ctx context.Context, t *tx) error {
			if err := insert(100)(ctx, t); err != nil {
				return err
			}
			panic("out of the blue")
		},
		"panic between rows": func(ctx context.Context, t *tx) error {
			_, err := many(ctx, t, func(row) (int, error) { panic("out of the blue") }, `SELECT v FROM x`)
			return err
		},
		"SQLite ends the transaction": func(ctx context.Context, t *tx) error {
			_, err := t.exec(ctx, `INSERT OR ROLLBACK INTO x (v) VALUES (1)`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScratch(t)
			errs := s.handIn(insert(1), insert(2), fail, insert(3), fail, insert(4))
			for i, err := range errs {
				if wantErr := i == 2 || i == 4; (err != nil) != wantErr {
					t.Errorf("answer %d: %v", i, err)
				}
			}
			if strings.HasPrefix(name, "panic") && !strings.Contains(fmt.Sprint(errs[2]), "out of the blue") {
				t.Errorf("the panic is not told: %v", errs[2])
			}
			if got := s.values(); !slices.Equal(got, []int64{1, 2, 3, 4}) {
				t.Errorf("values %v", got)
			}
			if got := s.e.stats(); got.Reruns != 1 {
				t.Errorf("stats %+v, want one batch done over", got)
			}
			if err := s.e.write(t.Context(), insert(5)); err != nil {
				t.Errorf("the writer is not well afterwards: %v", err)
			}
		})
	}
}

func TestBatch_CallerThatLeavesBeforeItsTurnWritesNothing(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	release := s.hold()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- s.e.write(ctx, insert(1)) }()
	s.until(func() bool { return s.e.stats().Waiting == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left got %v", err)
	}
	stayed := make(chan error, 1)
	go func() { stayed <- s.e.write(t.Context(), insert(2)) }()
	s.until(func() bool { return s.e.stats().Waiting == 2 })
	release()
	if err := <-stayed; err != nil {
		t.Error(err)
	}
	if got := s.values(); !slices.Equal(got, []int64{2}) {
		t.Errorf("values %v, want those of the caller that stayed", got)
	}
	if err := s.e.write(ctx, insert(3)); !errors.Is(err, context.Canceled) {
		t.Errorf("a write of a caller that had left before: %v", err)
	}
}

func TestBatch_CallerThatLeavesDuringItsTurnLearnsTheTruth(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- s.e.write(ctx, func(wctx context.Context, t *tx) error {
			close(begun)
			<-ctx.Done()
			return insert(1)(wctx, t)
		})
	}()
	<-begun
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the write happened, but its caller got %v", err)
	}
	if got := s.values(); !slices.Equal(got, []int64{1}) {
		t.Errorf("values %v", got)
	}
}

func TestBatch_FullQueueBlocksUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	release := s.hold()
	const more = 50
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range queueBound + more {
		wg.Go(func() {
			if s.e.write(context.Background(), insert(i)) != nil {
				failed.Add(1)
			}
		})
	}
	s.until(func() bool { return s.e.stats().Waiting == queueBound })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.e.write(ctx, insert(-1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write beyond the bound: %v", err)
	}
	release()
	wg.Wait()
	if got := len(s.values()); got != queueBound+more || failed.Load() != 0 {
		t.Errorf("%d values, %d failed; want %d and none", got, failed.Load(), queueBound+more)
	}
}

func TestBatch_CloseCarriesOutWhatWasHandedIn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "scratch.db")
	e, err := openSQLite(t.Context(), sqliteDialect(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &scratch{t: t, e: e}
	if err := e.write(t.Context(), func(ctx context.Context, t *tx) error {
		return t.define(ctx, `CREATE TABLE x (n INTEGER PRIMARY KEY, v INTEGER NOT NULL UNIQUE)`)
	}); err != nil {
		t.Fatal(err)
	}
	release := s.hold()
	const callers = 30
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { errs[i] = e.write(context.Background(), insert(i)) })
	}
	s.until(func() bool { return e.stats().Waiting == callers })
	closed := make(chan error, 1)
	go func() { closed <- e.close() }()
	// Whoever comes from now on is refused or carried out, and answered in either case.
	late := make([]error, callers)
	for i := range callers {
		wg.Go(func() { late[i] = e.write(context.Background(), insert(1000+i)) })
	}
	time.Sleep(time.Millisecond)
	release()
	wg.Wait()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := e.write(t.Context(), insert(-1)); hob.KindOf(err) != hob.Unavailable {
		t.Errorf("a write after the end: %v", err)
	}
	again, err := openSQLite(t.Context(), sqliteDialect(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	kept := (&scratch{t: t, e: again}).values()
	for i := range callers {
		if errs[i] != nil || !slices.Contains(kept, int64(i)) {
			t.Errorf("write %d, handed in before the end: %v, kept %v", i, errs[i], slices.Contains(kept, int64(i)))
		}
		if there := slices.Contains(kept, int64(1000+i)); there != (late[i] == nil) {
			t.Errorf("late write %d: answer %v, kept %v", i, late[i], there)
		}
	}
}
