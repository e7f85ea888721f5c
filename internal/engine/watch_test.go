package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hob"
	"hob/internal/engine"
	"hob/internal/pgtest"
	"hob/internal/store"
)

// cluster is two processes on one Postgres: "a" drives the runs that a test starts.
type cluster struct {
	dsn   string
	a, b  *engine.Engine
	store hob.Store
	tools *toolbox
	agent hob.Agent
	by    hob.Principal
}

func newCluster(t *testing.T, script string, tools ...string) *cluster {
	t.Helper()
	c := &cluster{dsn: pgtest.URL(t), by: hob.System(hob.DefaultWorkspace), tools: &toolbox{hold: make(chan struct{}), came: make(chan struct{}, 9)}}
	key := box(t)
	for _, e := range []**engine.Engine{&c.a, &c.b} {
		s, err := store.Open(t.Context(), store.Config{DSN: c.dsn, Box: key, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		*e = engine.New(engine.Config{Store: s, Models: scripted(t), Toolsets: []hob.Toolset{c.tools}})
		serve(t, *e)
		c.store = s
	}
	raw, err := json.Marshal(map[string]any{"script": script})
	if err != nil {
		t.Fatal(err)
	}
	if c.agent, err = c.store.CreateAgent(t.Context(), c.by, hob.Agent{Name: "tester", Model: "scripted", Settings: raw}); err != nil {
		t.Fatal(err)
	}
	for _, name := range tools {
		a := hob.Assignment{Agent: c.agent.ID, ToolType: "builtin", ToolName: name, ConfigOverride: json.RawMessage(`{}`)}
		if _, err := c.store.Assign(t.Context(), c.by, a); err != nil {
			t.Fatal(err)
		}
	}
	waitUntil(t, func() bool { return listeners(t, c.dsn, false) == 2 })
	return c
}

func serve(t *testing.T, e *engine.Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		e.Serve(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-served
		_ = e.Drain(ctx)
	})
}

// listeners counts the connections of a database that listen to news, and cuts them where told to.
func listeners(t *testing.T, dsn string, cut bool) int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	count := "count(*)"
	if cut {
		count = "count(pg_terminate_backend(pid))"
	}
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT "+count+` FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE 'LISTEN%'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (c *cluster) start(t *testing.T) hob.Run {
	t.Helper()
	got, err := c.a.Start(t.Context(), c.by, engine.StartInput{Agent: c.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"}})
	if err != nil {
		t.Fatal(err)
	}
	return got.Run
}

// follow reads a run to its end, and notes when each event came.
func (c *cluster) follow(t *testing.T, e *engine.Engine, id hob.RunID) map[int64]time.Time {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	came := map[int64]time.Time{}
	for batch, err := range e.Events(ctx, c.by, id, 0, 0) {
		if err != nil {
			t.Error(err)
		}
		for _, ev := range batch {
			came[ev.Seq] = time.Now()
		}
	}
	return came
}

// soon is how long what one process does may take to reach the other; without news it is at least 200 ms, and as a rule
// a second.
const soon = 250 * time.Millisecond

// TestWatch_AFollowerElsewhereGetsEveryEventSoon compares a follower on the process that drives the run with one on another.
func TestWatch_AFollowerElsewhereGetsEveryEventSoon(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "chunks: 12\npace: 60ms\ntext: "+strings.Repeat("word ", 24)+"\n")
	run := c.start(t)
	var here, there map[int64]time.Time
	var group sync.WaitGroup
	group.Go(func() { here = c.follow(t, c.a, run.ID) })
	group.Go(func() { there = c.follow(t, c.b, run.ID) })
	group.Wait()
	if len(here) < 10 || len(there) != len(here) {
		t.Fatalf("%d events came here, %d there", len(here), len(there))
	}
	for seq, at := range here {
		if late := there[seq].Sub(at); late > soon {
			t.Errorf("event %d came %s later elsewhere", seq, late)
		}
	}
}

// TestWatch_AReaderElsewhereKeepsTheRun leaves the process that drives the run and reads on at another one.
func TestWatch_AReaderElsewhereKeepsTheRun(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "chunks: 40\npace: 60ms\ntext: "+strings.Repeat("word ", 80)+"\n")
	grace := 0.3
	started, err := c.a.Start(t.Context(), c.by, engine.StartInput{
		Agent: c.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"},
		Options: hob.RunOptions{Stream: true, Tuning: hob.Tuning{GraceSeconds: &grace}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.a.Events(t.Context(), c.by, started.Run.ID, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		break // the reader leaves
	}
	c.follow(t, c.b, started.Run.ID)
	run, err := c.store.Run(t.Context(), c.by, started.Run.ID)
	if err != nil || run.Status != hob.Completed {
		t.Fatalf("the run ended as %s (%s), %v", run.Status, run.Code, err)
	}
}

// TestWatch_ACancelElsewhereEndsTheRunSoon asks the process that does not drive the run: its lease is renewed only every
// few seconds.
func TestWatch_ACancelElsewhereEndsTheRunSoon(t *testing.T) {
	t.Parallel()
	c := newCluster(t, hangScript, "hang")
	run := c.start(t)
	<-c.tools.came
	began := time.Now()
	if _, err := c.b.Cancel(t.Context(), c.by, run.ID); err != nil {
		t.Fatal(err)
	}
	got, _, err := c.b.Wait(t.Context(), c.by, run.ID)
	if took := time.Since(began); err != nil || got.Status != hob.Cancelled || took > 2*soon {
		t.Fatalf("it ended as %s after %s: %v", got.Status, took, err)
	}
}

// TestWatch_NewsComeAgainAfterTheirConnectionWasCut cuts the connections that listen while a run is followed elsewhere.
func TestWatch_NewsComeAgainAfterTheirConnectionWasCut(t *testing.T) {
	t.Parallel()
	c := newCluster(t, hangScript, "hang")
	run := c.start(t)
	<-c.tools.came
	if n := listeners(t, c.dsn, true); n != 2 {
		t.Fatalf("%d connections were cut", n)
	}
	waitUntil(t, func() bool { return listeners(t, c.dsn, false) == 2 })
	began := time.Now()
	if _, err := c.b.Cancel(t.Context(), c.by, run.ID); err != nil {
		t.Fatal(err)
	}
	got, _, err := c.b.Wait(t.Context(), c.by, run.ID)
	if took := time.Since(began); err != nil || got.Status != hob.Cancelled || took > 2*soon {
		t.Fatalf("it ended as %s after %s: %v", got.Status, took, err)
	}
}

// TestWatch_ARunThatIsHandedOverGoesOnElsewhereAtOnce ends the process that drives a run in good order.
func TestWatch_ARunThatIsHandedOverGoesOnElsewhereAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "call: hang {}\n---\ntext: done\n", "hang")
	run := c.start(t)
	<-c.tools.came
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = c.a.Drain(ended)
	began := time.Now()
	came := c.follow(t, c.b, run.ID)
	got, err := c.store.Run(t.Context(), c.by, run.ID)
	if took := time.Since(began); err != nil || got.Status != hob.Completed || int64(len(came)) != got.LastSeq || took > 2*soon {
		t.Fatalf("it ended as %s after %s, %d of %d events came: %v", got.Status, took, len(came), got.LastSeq, err)
	}
}
