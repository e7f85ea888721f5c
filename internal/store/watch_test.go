package store_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hob"
	"hob/internal/pgtest"
	"hob/internal/store"
)

// ear is what one process hears of the others.
type ear struct {
	mu    sync.Mutex
	heard []hob.RunID
	any   int // news about no run in particular
	ended chan error
}

// listen begins to watch a store, and returns once it hears.
func listen(ctx context.Context, t *testing.T, s *store.DB) *ear {
	t.Helper()
	e := &ear{ended: make(chan error, 1)}
	go func() { e.ended <- s.Watch(ctx, e.changed) }()
	e.wait(t, "the beginning", func() bool { return e.any > 0 })
	e.forget()
	return e
}

func (e *ear) changed(runs []hob.RunID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(runs) == 0 {
		e.any++
	}
	e.heard = append(e.heard, runs...)
}

func (e *ear) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard, e.any = nil, 0
}

func (e *ear) has(ok func() bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return ok()
}

func (e *ear) wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if e.has(ok) {
			return
		}
	}
	t.Fatalf("%s was not heard", what)
}

func (e *ear) about(id hob.RunID) func() bool {
	return func() bool { return slices.Contains(e.heard, id) }
}

// pair is two processes on one Postgres, with an agent.
type pair struct {
	a, b  *store.DB
	agent hob.Agent
	by    hob.Principal
}

func newPair(t *testing.T) pair {
	t.Helper()
	c := store.Config{DSN: pgtest.URL(t), Box: box(t), MaxConns: 4}
	p := pair{a: open(t, c), b: open(t, c), by: hob.System(hob.DefaultWorkspace)}
	var err error
	if p.agent, err = p.a.CreateAgent(t.Context(), p.by, hob.Agent{Name: "a", Model: "m"}); err != nil {
		t.Fatal(err)
	}
	return p
}

// start begins a run that process "a" drives.
func (p pair) start(t *testing.T) hob.Run {
	t.Helper()
	now := hob.Time{Time: time.Now()}
	got, err := p.a.StartRun(t.Context(), hob.NewRun{
		Run: hob.Run{
			ID: hob.NewRunID(), Workspace: p.by.Workspace, Agent: p.agent.ID, Principal: p.by, Model: "m", Status: hob.Running,
			CreatedAt: now, StartedAt: now, LeaseOwner: "a", Epoch: 1, Attempt: 1,
		},
		Lease: time.Minute, Session: hob.Session{ID: hob.NewSessionID()}, Message: hob.Message{Role: hob.RoleUser, Content: "go"},
		Pin: json.RawMessage(`{}`), Events: []hob.Event{{Seq: 1, Type: hob.EventStart, Data: json.RawMessage(`{}`), Time: now}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got.Run
}

func step(r hob.Run, seq int64) hob.RunCommit {
	return hob.RunCommit{
		Run: r.ID, Epoch: 1, Owner: "a", Lease: time.Minute,
		Events: []hob.Event{{Seq: seq, Type: hob.EventWarning, Data: json.RawMessage(`{}`), Time: hob.Time{Time: time.Now()}}},
	}
}

func TestWatch_ProcessesHearOfEachOthersChangesAndNotOfTheirOwn(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	ctx, cancel := context.WithCancel(t.Context())
	own, other := listen(ctx, t, p.a), listen(ctx, t, p.b)
	run := p.start(t)
	other.forget()
	if err := p.a.Commit(t.Context(), step(run, 2)); err != nil {
		t.Fatal(err)
	}
	other.wait(t, "a commit", other.about(run.ID))
	other.forget()
	if _, err := p.a.RequestCancel(t.Context(), p.by, run.ID, hob.CodeCancelled); err != nil {
		t.Fatal(err)
	}
	other.wait(t, "a cancel request", other.about(run.ID))
	other.forget()
	if err := p.a.Release(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	other.wait(t, "the release of all", func() bool { return other.any > 0 })
	// What "b" does comes behind all that on one channel: were "a" told of its own changes, it would have been by then.
	if _, err := p.b.RequestCancel(t.Context(), p.by, run.ID, hob.CodeCancelled); err != nil {
		t.Fatal(err)
	}
	own.wait(t, "the other's cancel request", own.about(run.ID))
	if !own.has(func() bool { return len(own.heard) == 1 && own.any == 0 }) {
		t.Errorf("a process heard of its own changes: %v, and %d about none", own.heard, own.any)
	}
	cancel()
	for _, e := range []*ear{own, other} {
		if err := <-e.ended; err != nil {
			t.Errorf("a watch that was told to end: %v", err)
		}
	}
}

func TestWatch_ManyChangesAtOnceAreAllTold(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	other := listen(t.Context(), t, p.b)
	const runs = 600 // of 16 bytes and more each: beyond what one notification holds
	var list []hob.Run
	for range runs {
		list = append(list, p.start(t))
	}
	var group sync.WaitGroup
	for _, r := range list {
		group.Go(func() {
			if err := p.a.Commit(t.Context(), step(r, 2)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	other.wait(t, "one of the commits", func() bool {
		known := map[hob.RunID]bool{}
		for _, id := range other.heard {
			known[id] = true
		}
		return len(known) == runs
	})
}

func TestWatch_EndsWithAnErrorWhenItsConnectionIsCut(t *testing.T) {
	t.Parallel()
	c := store.Config{DSN: pgtest.URL(t), Box: box(t), MaxConns: 4}
	s := open(t, c)
	e := listen(t.Context(), t, s)
	cutListeners(t, c.DSN)
	select {
	case err := <-e.ended:
		if err == nil {
			t.Error("it ended without an error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it did not end")
	}
	listen(t.Context(), t, s) // and can begin anew
}

// cutListeners ends the connections of a database that listen.
func cutListeners(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var n int
	if err := conn.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE 'LISTEN%'`).Scan(&n); err != nil || n != 1 {
		t.Fatalf("%d listeners were cut: %v", n, err)
	}
}

func TestWatch_TellsNothingWhereNoOtherProcessCanBe(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Dir: t.TempDir()})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Watch(ctx, func(runs []hob.RunID) { t.Errorf("told of %v", runs) }); err != nil {
		t.Error(err)
	}
}
