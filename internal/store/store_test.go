package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"hob"
	"hob/internal/pgtest"
	"hob/internal/seal"
	"hob/internal/store"
	"hob/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a seal key of its own for a test.
func box(t testing.TB) *seal.Box {
	t.Helper()
	b, err := seal.Open(filepath.Join(t.TempDir(), "seal.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(t testing.TB, c store.Config) *store.DB {
	t.Helper()
	if c.Box == nil {
		c.Box = box(t)
	}
	db, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

// engines are the databases by name: how to get the Config of an empty one. Short tests are those on SQLite alone.
func engines() map[string]func(testing.TB) store.Config {
	all := map[string]func(testing.TB) store.Config{
		"sqlite": func(t testing.TB) store.Config { return store.Config{Dir: t.TempDir()} },
	}
	if !testing.Short() {
		all["postgres"] = func(t testing.TB) store.Config { return store.Config{DSN: pgtest.URL(t), MaxConns: 8} }
	}
	return all
}

// onEach runs a test on every engine.
func onEach(t *testing.T, run func(t *testing.T, c store.Config)) {
	t.Helper()
	for name, config := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, config(t))
		})
	}
}

func TestStore_KeepsTheContract(t *testing.T) {
	t.Parallel()
	for name, config := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			statements := map[string]bool{}
			t.Run("contract", func(t *testing.T) {
				storetest.Exercise(t, func(t *testing.T) hob.Store {
					db := open(t, config(t))
					t.Cleanup(func() {
						mu.Lock()
						defer mu.Unlock()
						for _, s := range db.Statements() {
							statements[s] = true
						}
					})
					return db
				})
			})
			if name == "sqlite" {
				checkPlans(t, open(t, config(t)), statements)
			}
		})
	}
}

// checkPlans says whether a statement walks through a table that grows with use: its cost would grow with what is stored.
func checkPlans(t *testing.T, db *store.DB, statements map[string]bool) {
	t.Helper()
	if len(statements) < 60 {
		t.Errorf("the contract ran %d statements only", len(statements))
	}
	scan := regexp.MustCompile(`^SCAN (\S+)`)
	for s := range statements {
		if word, _, _ := strings.Cut(s, " "); !strings.Contains("SELECT INSERT UPDATE DELETE", word) {
			continue
		}
		plan, err := db.Plan(t.Context(), s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
		}
		for _, line := range plan {
			// Agents, tools and models are few; runs_open and runs_resting hold the unfinished runs alone.
			m := scan.FindStringSubmatch(line)
			if m == nil || strings.Contains(line, "runs_open") || strings.Contains(line, "runs_resting") || strings.Contains(line, "VALUES CLAUSE") {
				continue
			}
			switch m[1] {
			case "agents", "tools", "keys", "model_profiles", "a", "schema_migrations", "CONSTANT":
			default:
				t.Errorf("%s\n\t%s", line, strings.Join(strings.Fields(s), " "))
			}
		}
	}
}

// raw runs statements on a store's database beside the store.
func raw(t *testing.T, c store.Config, statements ...string) {
	t.Helper()
	for _, stmt := range statements {
		if c.DSN != "" {
			conn, err := pgx.Connect(t.Context(), c.DSN)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), "SET search_path = hob"); err != nil {
				t.Fatal(err)
			}
			_, err = conn.Exec(t.Context(), stmt)
			if err := conn.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Fatalf("%s: %v", stmt, err)
			}
			continue
		}
		db, err := sql.Open("sqlite", filepath.Join(c.Dir, store.FileName))
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.ExecContext(t.Context(), stmt)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
}

func system() hob.Principal { return hob.System(hob.DefaultWorkspace) }

func agentOf(t *testing.T, db *store.DB, name string) hob.Agent {
	t.Helper()
	a, err := db.CreateAgent(t.Context(), system(), hob.Agent{Name: name, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestPostgres_TablesLieInTheSchemaHob(t *testing.T) {
	t.Parallel()
	config, ok := engines()["postgres"]
	if !ok {
		return // a short test
	}
	c := config(t)
	open(t, c)
	conn, err := pgx.Connect(t.Context(), c.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var inside, outside int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE schemaname = 'hob'), count(*) FILTER (WHERE schemaname <> 'hob')
		FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`).Scan(&inside, &outside); err != nil {
		t.Fatal(err)
	}
	if inside < 15 || outside != 0 {
		t.Errorf("%d tables in schema hob, %d elsewhere", inside, outside)
	}
}

func TestClose_EndsEveryMethod(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db, err := store.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		a := agentOf(t, db, "a")
		if err := db.Ping(t.Context()); err != nil {
			t.Errorf("ping: %v", err)
		}
		for range 2 {
			if err := db.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if db.Ping(t.Context()) == nil {
			t.Error("a closed store answers")
		}
		if _, err := db.Agent(t.Context(), system(), a.ID); err == nil || hob.KindOf(err) == hob.NotFound {
			t.Errorf("reading from a closed store: %v", err)
		}
		if err := db.DeleteAgent(t.Context(), system(), a.ID); hob.KindOf(err) != hob.Unavailable {
			t.Errorf("writing to a closed store: %v", err)
		}
	})
}

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.at = c.at.Add(d) }

func keyed(a hob.AgentID, key string, keep time.Duration) hob.NewRun {
	return hob.NewRun{
		Run: hob.Run{
			ID: hob.NewRunID(), Workspace: hob.DefaultWorkspace, Agent: a, Principal: system(), Model: "m",
			Status: hob.Running, Epoch: 1, LeaseOwner: "p",
		},
		Lease: time.Minute, Session: hob.Session{ID: hob.NewSessionID()}, Message: hob.Message{Role: hob.RoleUser, Content: "x"},
		Pin: json.RawMessage(`{}`), Idempotency: &hob.Idempotency{Scope: "s", Key: key, Digest: "d", Keep: keep},
	}
}

func TestSweepIdempotency_DeletesWhatIsOver(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		at := &clock{at: hob.SystemClock()}
		c.Clock = at.now
		db := open(t, c)
		a := agentOf(t, db, "a")
		for i, keep := range []time.Duration{time.Hour, time.Hour, 3 * time.Hour} {
			if _, err := db.StartRun(t.Context(), keyed(a.ID, string(rune('a'+i)), keep)); err != nil {
				t.Fatal(err)
			}
		}
		for key, keep := range map[string]time.Duration{"x": time.Hour, "y": 3 * time.Hour} {
			once := hob.Idempotency{Scope: "s", Key: key, Digest: "d", Keep: keep}
			if _, _, err := db.Once(t.Context(), once, func(context.Context, hob.Store) (hob.Answer, error) {
				return hob.Answer{Status: 201, Body: []byte("made")}, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			after time.Duration
			want  int64
		}{{0, 0}, {time.Hour, 3}, {0, 0}, {2 * time.Hour, 2}} {
			at.add(step.after)
			if n, err := db.SweepIdempotency(t.Context()); err != nil || n != step.want {
				t.Errorf("after %v more: %d deleted, %v, want %d", step.after, n, err, step.want)
			}
		}
	})
}

func TestStats_CountWritesAndCommits(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		db := open(t, c)
		if d := db.Dialect(); d != "sqlite" && d != "postgres" || (c.DSN != "") != (d == "postgres") {
			t.Errorf("dialect %q", d)
		}
		before := db.Stats()
		agentOf(t, db, "a")
		_, _ = db.UpdateAgent(t.Context(), system(), hob.AgentID(hob.NewUUID()), hob.AgentPatch{}) // absent: nothing to commit
		after := db.Stats()
		if after.Writes-before.Writes != 2 || after.Commits-before.Commits != 1 || after.Reruns != 0 || after.Waiting != 0 ||
			after.LargestBatch != 1 || after.Failed != 0 {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := db.UpdateAgent(t.Context(), system(), hob.AgentID(hob.NewUUID()), hob.AgentPatch{}); hob.KindOf(err) == hob.NotFound {
			t.Error("a closed store finds nothing")
		}
		if got := db.Stats().Failed; got != 1 {
			t.Errorf("%d writes failed, want the one to a closed store", got)
		}
	})
}
