package store_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"hob"
	"hob/internal/store"
)

// bench is a store with one agent.
type bench struct {
	b     *testing.B
	db    *store.DB
	by    hob.Principal
	agent hob.AgentID
}

func newBench(b *testing.B, c store.Config) *bench {
	b.Helper()
	x := &bench{b: b, db: open(b, c), by: hob.System(hob.DefaultWorkspace)}
	a, err := x.db.CreateAgent(b.Context(), x.by, hob.Agent{Name: "bench", Model: "m"})
	if err != nil {
		b.Fatal(err)
	}
	x.agent = a.ID
	return x
}

func benchEvent(seq int64) hob.Event {
	data := fmt.Sprintf(`{"event":"content_delta","type":"content_delta","seq":%d,"run_id":"run_0123456789ab","ts":"2026-01-02T03:04:05.678901Z","step":1,"delta":"%064d"}`, seq, seq)
	return hob.Event{Seq: seq, Type: hob.EventContentDelta, Data: json.RawMessage(data), Time: hob.Time{Time: hob.SystemClock()}}
}

func (x *bench) start(id hob.SessionID) hob.RunID {
	x.b.Helper()
	n := hob.NewRun{
		Run: hob.Run{
			ID: hob.NewRunID(), Workspace: hob.DefaultWorkspace, Agent: x.agent, Principal: x.by, Model: "m", Status: hob.Running,
			Epoch: 1, LeaseOwner: "p1", CreatedAt: hob.Time{Time: hob.SystemClock()},
		},
		Lease: time.Minute, Session: hob.Session{ID: id}, Message: hob.Message{Role: hob.RoleUser, Content: "hello"},
		Pin: json.RawMessage(`{"agent":{}}`), Events: []hob.Event{benchEvent(1)},
	}
	if _, err := x.db.StartRun(x.b.Context(), n); err != nil {
		x.b.Fatal(err)
	}
	return n.Run.ID
}

func (x *bench) commit(id hob.RunID, seq int64) {
	c := hob.RunCommit{Run: id, Epoch: 1, Owner: "p1", Lease: time.Minute, Events: []hob.Event{benchEvent(seq)}}
	if err := x.db.Commit(x.b.Context(), c); err != nil {
		x.b.Error(err)
	}
}

// report adds how many writes were durable per second, and how many shared a transaction.
func (x *bench) report(before store.Stats) {
	s := x.db.Stats()
	x.b.ReportMetric(float64(x.b.N)/x.b.Elapsed().Seconds(), "durable/s")
	x.b.ReportMetric(float64(s.Writes-before.Writes)/float64(max(1, s.Commits-before.Commits)), "writes/commit")
}

// BenchmarkCommit writes one event per step: alone, and with 64 runs at once, which share their fsyncs on SQLite.
func BenchmarkCommit(b *testing.B) {
	for name, config := range engines() {
		b.Run(name+"/alone", func(b *testing.B) {
			x := newBench(b, config(b))
			id, seq := x.start("s"), int64(1)
			before := x.db.Stats()
			for b.Loop() {
				seq++
				x.commit(id, seq)
			}
			x.report(before)
		})
		b.Run(name+"/64 at once", func(b *testing.B) { commitsAtOnce(b, config(b)) })
	}
	c := filled(b)
	b.Run("sqlite/64 at once beside 1,000,000 events", func(b *testing.B) { commitsAtOnce(b, c) })
}

func commitsAtOnce(b *testing.B, c store.Config) {
	b.Helper()
	x := newBench(b, c)
	before := x.db.Stats()
	b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		id, seq := x.start(hob.NewSessionID()), int64(1)
		for pb.Next() {
			seq++
			x.commit(id, seq)
		}
	})
	x.report(before)
}

// filled is a database in which 10,000 runs have left 100 events each.
func filled(b *testing.B) store.Config {
	b.Helper()
	c := store.Config{Dir: b.TempDir(), Box: box(b)}
	db, err := store.Open(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	file, err := sql.Open("sqlite", filepath.Join(c.Dir, store.FileName)+"?_pragma=synchronous(off)")
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	for _, stmt := range []string{
		`INSERT INTO sessions (n, id, workspace_id, uuid, owner, agent_id, user_id, session_data, metadata, turns, run_count, first_message,
				created_at, updated_at, last_activity_at)
			WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 10000)
			SELECT n, 'sess_' || hex(randomblob(6)), 'default', 'u', '', 'a', '', '{}', '{}', 1, 1, 'hi', n, n, n FROM i`,
		`INSERT INTO runs (n, id, workspace_id, started_by, agent_id, session_n, turn, status, epoch, attempt, lease_owner, lease_until, last_seq,
				cancel_code, created_at, started_at, completed_at)
			SELECT n, 'run_' || hex(randomblob(6)), 'default', '', 'a', n, 1, 'completed', 1, 1, '', 0, 100, '', n, n, n FROM sessions`,
		`INSERT INTO run_events WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 100)
			SELECT r.n, i.n, 'content_delta', 0, hex(zeroblob(100)) FROM runs r, i`,
	} {
		if _, err := file.ExecContext(b.Context(), stmt); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

// BenchmarkHistory reads what fits into 20,000 characters, of a short session and of a long one.
func BenchmarkHistory(b *testing.B) {
	for _, turns := range []int{100, 1000} {
		b.Run(fmt.Sprintf("sqlite/%d turns", turns), func(b *testing.B) {
			x := newBench(b, store.Config{Dir: b.TempDir()})
			seed := make([]hob.SeedTurn, turns)
			for i := range seed {
				seed[i] = hob.SeedTurn{User: strings.Repeat("u", 200), Assistant: strings.Repeat("a", 200)}
			}
			ses, err := x.db.CreateSession(b.Context(), x.by, hob.Session{Agent: &x.agent}, seed)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				list, err := x.db.History(b.Context(), x.by, ses.ID, hob.HistoryRange{Before: int64(turns + 1), Budget: 20_000})
				if err != nil || len(list.Runs)*2 != 100 {
					b.Fatalf("%d runs, %v", len(list.Runs), err)
				}
			}
		})
	}
}

// BenchmarkStart accepts runs in new sessions, 64 at once.
func BenchmarkStart(b *testing.B) {
	for name, config := range engines() {
		b.Run(name, func(b *testing.B) {
			x := newBench(b, config(b))
			before := x.db.Stats()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					x.start(hob.NewSessionID())
				}
			})
			x.report(before)
		})
	}
}

// BenchmarkRead reads what a live reader, a history and a run's page read.
func BenchmarkRead(b *testing.B) {
	for name, config := range engines() {
		x := newBench(b, config(b))
		id := x.start("s")
		for seq := int64(2); seq <= 100; seq++ {
			x.commit(id, seq)
		}
		if err := x.db.Commit(b.Context(), hob.RunCommit{
			Run: id, Epoch: 1, Owner: "p1", Base: 1, Messages: []hob.Message{{Role: hob.RoleAssistant, Content: "hi"}},
			Outcome: &hob.Outcome{Status: hob.Completed, Content: "hi"},
		}); err != nil {
			b.Fatal(err)
		}
		for what, read := range map[string]func() error{
			"last event": func() error { _, err := x.db.Events(b.Context(), x.by, id, 99, 100); return err },
			"100 events": func() error { _, err := x.db.Events(b.Context(), x.by, id, 0, 100); return err },
			"run":        func() error { _, err := x.db.Run(b.Context(), x.by, id); return err },
			"history": func() error {
				_, err := x.db.History(b.Context(), x.by, "s", hob.HistoryRange{Before: 2, Budget: 1000})
				return err
			},
		} {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := read(); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkClaim looks for runs to drive, and finds none, beside 10,000 that rest until somebody decides.
func BenchmarkClaim(b *testing.B) {
	c := filled(b)
	for _, resting := range []bool{false, true} {
		b.Run(fmt.Sprintf("sqlite/10,000 rest: %v", resting), func(b *testing.B) {
			if resting {
				rest(b, c)
			}
			x := newBench(b, c)
			for b.Loop() {
				list, err := x.db.Claim(b.Context(), "p1", time.Minute, 100, false)
				if err != nil || len(list) > 0 {
					b.Fatalf("claimed %d, %v", len(list), err)
				}
			}
		})
	}
}

// rest lays all runs of a filled database to rest.
func rest(b *testing.B, c store.Config) {
	b.Helper()
	file, err := sql.Open("sqlite", filepath.Join(c.Dir, store.FileName))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if _, err := file.ExecContext(b.Context(), `UPDATE runs SET status = 'awaiting_approval', completed_at = 0, woken = 1,
		wake_at = CASE n % 2 WHEN 0 THEN 0 ELSE 1 << 60 END`); err != nil {
		b.Fatal(err)
	}
}
