package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"os"
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
			// Agents and tools are few; runs_open holds the unfinished runs alone.
			m := scan.FindStringSubmatch(line)
			if m == nil || strings.Contains(line, "runs_open") || strings.Contains(line, "VALUES CLAUSE") {
				continue
			}
			switch m[1] {
			case "agents", "tools", "keys", "a", "schema_migrations", "CONSTANT":
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

func TestOpen_AgainFindsEverything(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db, err := store.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		a := agentOf(t, db, "kept")
		tool, err := db.CreateTool(t.Context(), system(), hob.Tool{
			Name: "t", Config: hob.ToolConfig{Headers: map[string]hob.Secret{"A": "s3cret"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = open(t, c)
		if got, err := db.Agent(t.Context(), system(), a.ID); err != nil || got.Name != "kept" {
			t.Errorf("agent: %v, %v", got, err)
		}
		if got, err := db.Tool(t.Context(), system(), tool.ID); err != nil || string(got.Config.Headers["A"]) != "s3cret" {
			t.Errorf("tool: %v, %v", got, err)
		}
	})
}

func TestOpen_RefusesANewerSchema(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db, err := store.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		raw(t, c, `INSERT INTO schema_migrations (version, name, applied_at) VALUES (9999, '9999_future.sql', 0)`)
		if db, err := store.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "schema version 9999") {
			t.Errorf("open: %v, %v", db, err)
		}
		raw(t, c, `DELETE FROM schema_migrations WHERE version = 9999`)
		open(t, c)
	})
}

func TestOpen_TellsAWrongSealKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		right, wrong := box(t), box(t)
		c.Box = right
		db, err := store.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		tool, err := db.CreateTool(t.Context(), system(), hob.Tool{
			Name: "t", Config: hob.ToolConfig{Headers: map[string]hob.Secret{"A": "s3cret"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		c.Box = wrong
		_, err = store.Open(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), right.Fingerprint()) || !strings.Contains(err.Error(), wrong.Source()) {
			t.Fatalf("with another key: %v", err)
		}
		c.Box = right
		if got, err := open(t, c).Tool(t.Context(), system(), tool.ID); err != nil || string(got.Config.Headers["A"]) != "s3cret" {
			t.Errorf("with the right key again: %v, %v", got, err)
		}
	})
}

func TestOpen_TogetherMigratesOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				db, err := store.Open(t.Context(), c)
				if err != nil {
					t.Error(err)
					return
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		agentOf(t, open(t, c), "works")
	})
}

func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, c := range map[string]store.Config{
		"no seal key":       {Dir: folder},
		"another scheme":    {DSN: "mysql://root@localhost/x", Box: box(t)},
		"a folder":          {DSN: folder, Box: box(t)},
		"a missing folder":  {DSN: filepath.Join(folder, "no", "hob.db"), Box: box(t)},
		"no database at it": {DSN: write(t, strings.Repeat("this is not a database", 100)), Box: box(t)},
		"nobody listening":  {DSN: "postgres://u:s3cret@127.0.0.1:1/x?connect_timeout=2", Box: box(t)},
	} {
		db, err := store.Open(t.Context(), c)
		if err == nil {
			t.Errorf("%s: opened", name)
			_ = db.Close()
			continue
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSQLite_FilesAreTheOwnersAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "odd name?#%20é") // the address is a URI
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, store.FileName), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	agentOf(t, open(t, store.Config{Dir: dir}), "x")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Fatalf("files %v, %v; want the database, its log and index", files, err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

// TestTool_SecretsAreNotInTheFiles reads what a thief of the disk reads.
func TestTool_SecretsAreNotInTheFiles(t *testing.T) {
	t.Parallel()
	c := store.Config{Dir: t.TempDir()}
	db := open(t, c)
	secret := "tops3cret-value"
	tool, err := db.CreateTool(t.Context(), system(), hob.Tool{
		Name: "visible-name", Config: hob.ToolConfig{Headers: map[string]hob.Secret{"Authorization": hob.Secret(secret)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	sum := []byte("\x01\x02hash-of-a-key")
	if _, err := db.CreateKey(t.Context(), system(), hob.Key{Name: "k", Scopes: []hob.Scope{hob.ScopeRead}}, sum); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(filepath.Join(c.Dir, store.FileName) + suffix)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	if !bytes.Contains(all, []byte("visible-name")) {
		t.Fatal("the files do not hold the tool at all")
	}
	for _, hidden := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
		if bytes.Contains(all, []byte(hidden)) {
			t.Errorf("the files hold the secret as %s", hidden)
		}
	}
	// A sealed value is bound to its row: copied to another one it does not open.
	other, err := db.CreateTool(t.Context(), system(), hob.Tool{Name: "thief"})
	if err != nil {
		t.Fatal(err)
	}
	raw(t, c, `UPDATE tools SET headers = (SELECT headers FROM tools WHERE id = '`+string(tool.ID)+`') WHERE id = '`+string(other.ID)+`'`)
	if got, err := db.Tool(t.Context(), system(), other.ID); err == nil {
		t.Errorf("the copied value opened: %v", got.Config.Headers)
	}
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
		for _, step := range []struct {
			after time.Duration
			want  int64
		}{{0, 0}, {time.Hour, 2}, {0, 0}, {2 * time.Hour, 1}} {
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
		if after.Writes-before.Writes != 2 || after.Commits-before.Commits != 1 || after.Reruns != 0 || after.Waiting != 0 || after.LargestBatch != 1 {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})
}

// TestUsage_OutlivesItsRun: the ledger keeps the numbers of a deleted session.
func TestUsage_OutlivesItsRun(t *testing.T) {
	t.Parallel()
	c := store.Config{Dir: t.TempDir()}
	db := open(t, c)
	n := keyed(agentOf(t, db, "a").ID, "k", time.Hour)
	if _, err := db.StartRun(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if err := db.Commit(t.Context(), hob.RunCommit{
		Run: n.Run.ID, Epoch: 1, Owner: "p", Lease: time.Minute,
		Usage: []hob.UsageEntry{{Component: "run", Model: "m", Step: 1, Usage: hob.Usage{PromptTokens: 3, TotalTokens: 7}, Estimated: true}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.DeleteSession(t.Context(), system(), "", n.Session.ID); err != nil {
		t.Fatal(err)
	}
	file, err := sql.Open("sqlite", filepath.Join(c.Dir, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var run string
	var total, estimated int
	if err := file.QueryRowContext(t.Context(), `SELECT run_id, total_tokens, estimated FROM usage`).Scan(&run, &total, &estimated); err != nil {
		t.Fatal(err)
	}
	if run != string(n.Run.ID) || total != 7 || estimated != 1 {
		t.Errorf("ledger: run %s, %d tokens, estimated %d", run, total, estimated)
	}
	for _, table := range []string{"runs", "run_details", "run_events", "messages", "tool_calls", "sessions"} {
		var rows int
		if err := file.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%s has %d rows left, %v", table, rows, err)
		}
	}
}
