package main_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hob"
	"hob/client"
	"hob/internal/store"
)

// sealKey is an operator's seal key.
const sealKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// must carries out a command that has to work, and gives what it printed.
func (in *installation) must(args ...string) string {
	in.t.Helper()
	out := in.run(args...)
	if out.code != 0 {
		in.t.Fatalf("hob %s: exit code %d\n%s%s", strings.Join(args, " "), out.code, out.stdout, out.stderr)
	}
	return out.stdout
}

// elsewhere is an empty installation with the same variables, but for the database, and the same seal key.
func (in *installation) elsewhere(database string) *installation {
	in.t.Helper()
	out := install(in.t, in.env)
	out.env["HOB_DATA"], out.env["HOB_ADDR"], out.env["HOB_DATABASE_URL"] = out.dir, "127.0.0.1:0", database
	if err := os.MkdirAll(out.dir, 0o700); err != nil {
		in.t.Fatal(err)
	}
	for _, name := range []string{"seal.key", "service.key"} {
		key, err := os.ReadFile(filepath.Join(in.dir, name))
		if err != nil {
			if in.env["HOB_SEAL_KEY"] != "" {
				continue
			}
			in.t.Fatal(err)
		}
		write(in.t, out, name, string(key))
	}
	return out
}

// number asks a SQLite store for one.
func number(t *testing.T, in *installation, query string) (n int64) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(in.dir, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// consistent wants every run of a SQLite store to be whole.
func consistent(t *testing.T, in *installation) (runs int64) {
	t.Helper()
	for what, query := range map[string]string{
		"runs without all of their events": `SELECT count(*) FROM runs r WHERE last_seq <> (SELECT count(*) FROM run_events e WHERE e.run_n = r.n)
			OR last_seq <> (SELECT coalesce(max(seq), 0) FROM run_events e WHERE e.run_n = r.n)
			OR last_seq > 0 AND 1 <> (SELECT min(seq) FROM run_events e WHERE e.run_n = r.n)`,
		"completed runs without an answer": `SELECT count(*) FROM runs r WHERE status = 'completed'
			AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.run_n = r.n AND m.role = 'assistant')`,
		"runs without a message": `SELECT count(*) FROM runs r WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.run_n = r.n AND m.idx = 0)`,
		"runs without details":   `SELECT count(*) FROM runs r WHERE NOT EXISTS (SELECT 1 FROM run_details d WHERE d.run_n = r.n)`,
		"runs without a session": `SELECT count(*) FROM runs r WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.n = r.session_n)`,
		"events of no run":       `SELECT count(*) FROM run_events e WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.n = e.run_n)`,
		"messages of no run":     `SELECT count(*) FROM messages m WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.n = m.run_n)`,
		"runs not held":          `SELECT count(*) FROM runs WHERE completed_at = 0 AND (held = 0 OR lease_owner <> '')`,
	} {
		if n := number(t, in, query); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	return number(t, in, `SELECT count(*) FROM runs`)
}

func TestBackup_WhileRunsAreWrittenIsConsistent(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, map[string]string{"HOB_DATABASE_URL": database, "HOB_SEAL_KEY": sealKey})
			s := in.serve()
			c := s.client()
			agent := scripted(t, c, "text: done")
			var started atomic.Int64
			stop := make(chan struct{})
			var writers sync.WaitGroup
			for range 6 {
				writers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						if _, err := c.Run(t.Context(), agent, client.RunRequest{Message: "go"}); err != nil {
							t.Errorf("run: %v", err)
							return
						}
						started.Add(1)
					}
				})
			}
			began, last := time.Now(), int64(0)
			for i := range 3 {
				for until := time.Now().Add(patience); started.Load() < int64(25*(i+1)) && time.Now().Before(until); {
					time.Sleep(10 * time.Millisecond)
				}
				before := started.Load()
				file := filepath.Join(t.TempDir(), "b.tar.gz")
				in.on(t).must("backup", file)
				there := in.on(t).elsewhere("")
				mustContain(t, "the restore", there.must("restore", file), "every row was read back")
				runs := consistent(t, there)
				if runs < before || runs <= last {
					t.Errorf("backup %d has %d runs; %d had ended before it, %d were in the one before", i+1, runs, before, last)
				}
				last = runs
			}
			close(stop)
			writers.Wait()
			t.Logf("%d runs in %v", started.Load(), time.Since(began))
		})
	}
}

func TestRestore_HoldsWhatWasUnderWay(t *testing.T) {
	t.Parallel()
	for from, database := range databases(t) {
		for to, target := range databases(t) {
			t.Run(from+" into "+to, func(t *testing.T) {
				t.Parallel()
				if from == "postgres" {
					database = databases(t)[from] // each test has one of its own
				}
				tools := newToolServer(t, "mail")
				in := crashInstallation(t, database, tools)
				s := in.serve()
				agent := worker(t, s.client(), tools.URL)
				id := startAndKill(t, s, tools, agent)
				tools.release()
				file := filepath.Join(t.TempDir(), "b.tar.gz")
				in.must("backup", file)
				there := in.elsewhere(target)
				mustContain(t, "the restore", there.must("restore", file), "held: 1 run", "hob restore --release")
				hits := len(tools.calls("mail")) + len(tools.calls("charge"))

				c := there.serve().client()
				time.Sleep(3 * time.Second) // several looks for abandoned runs
				r, err := c.RunRecord(t.Context(), id)
				if err != nil || r.Status != hob.Running || !r.Held || len(tools.calls("mail"))+len(tools.calls("charge")) != hits {
					t.Fatalf("before its release the run is %s, held %v, attempt %d, %v", r.Status, r.Held, r.Attempt, err)
				}
				mustContain(t, "the list", there.must("restore", "--held"), string(id), "agent worker ("+string(agent)+")", string(r.SessionID), "its last call: ")
				mustContain(t, "doctor", there.run("doctor").stdout, "1 run restored unfinished")
				if out := there.run("restore", "--release", "run_000000000000"); out.code != 1 || !strings.Contains(out.stderr, "run_000000000000 not found; none was released") {
					t.Errorf("an unknown run: %+v", out)
				}
				mustContain(t, "the release", there.must("restore", "--release", string(id)), "released 1 run\n")
				mustContain(t, "the second release", there.must("restore", "--release", string(id)), "released 0 runs (1 was not held any more)")
				r = waitFor(t, c, id, hob.Completed)
				unknown := 0
				for _, call := range r.ToolCalls {
					if call.OutcomeUnknown {
						unknown++
						if call.ToolName != "mail" {
							t.Errorf("the outcome of %s is unknown", call.ToolName)
						}
					}
				}
				if unknown != 1 || r.Held {
					t.Errorf("%d calls of unknown outcome, held %v, want the one that was under way", unknown, r.Held)
				}
				for _, tool := range []string{"mail", "charge"} {
					if repeats := checkLedger(t, tools.calls(tool)); repeats != 0 {
						t.Errorf("%d calls of %s were made twice", repeats, tool)
					}
				}
				mustContain(t, "the list", there.must("restore", "--held"), "no run is held")
			})
		}
	}
}

// large makes a store of many events in a moment.
func large(t *testing.T) *installation {
	t.Helper()
	in := install(t, nil)
	s := in.serve()
	talked(t, s)
	if code := s.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	damage(t, in, `WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 100000)
		INSERT INTO run_events SELECT 1000000, i, 'chunk', i, '{"content":"`+strings.Repeat("word ", 20)+`"}' FROM c`)
	return in
}

func TestRestore_InterruptedLeavesNothingOrAll(t *testing.T) {
	t.Parallel()
	in := large(t)
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	in.must("backup", file)
	there := in.elsewhere("")
	// Killed in the midst of writing, and once more by a signal that it hears.
	for _, sig := range []os.Signal{os.Kill, os.Interrupt} {
		cmd := there.command("restore", file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
			if info, err := os.Stat(filepath.Join(there.dir, store.FileName+"-wal")); err == nil && info.Size() > 1<<20 {
				break
			}
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the restore was faster than the signal")
		}
		if out := there.run("migrate", "status"); !strings.Contains(out.stdout+out.stderr, "nothing of Hob's") {
			t.Fatalf("after %v: %+v", sig, out)
		}
	}
	there.must("restore", file)
	if n := number(t, there, `SELECT count(*) FROM run_events WHERE run_n = 1000000`); n != 100_000 {
		t.Errorf("%d events", n)
	}
	for _, name := range []string{"seal.key", "service.key", "project.db", "hob.db"} {
		if info, err := os.Stat(filepath.Join(there.dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(there.dir, ".project.db-*")); len(left) > 1 { // the killed one's
		t.Errorf("left behind: %v", left)
	}
	if r, err := there.serve().client().Session(t.Context(), "old"); err != nil || r.ID != "old" {
		t.Errorf("the session: %+v, %v", r, err)
	}
}

func TestRestore_SaysWhyNot(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	talked(t, s)
	dir := t.TempDir()
	file := filepath.Join(dir, "b.tar.gz")
	mustContain(t, "the backup", in.must("backup", file), file, "1 agent", "1 session, 2 runs", "project.db", "seal key", "service.key", "hob.toml")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out := in.run("backup", file); out.code != 1 || !strings.Contains(out.stderr, "is there already") {
		t.Errorf("a second backup of the name: %+v", out)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("it was overwritten (%v)", err)
	}
	streamed := in.run("backup", "-")
	if streamed.code != 0 || !strings.HasPrefix(streamed.stdout, "\x1f\x8b") || !strings.Contains(streamed.stderr, "wrote the backup") {
		t.Errorf("to standard output: exit code %d, %d bytes, %q", streamed.code, len(streamed.stdout), streamed.stderr)
	}
	in.must("backup", dir) // a folder: under a name of its own
	if list, _ := filepath.Glob(filepath.Join(dir, "*")); len(list) != 2 {
		t.Errorf("in the folder: %v", list)
	}
	if out := in.run("restore", file); out.code != 1 || !strings.Contains(out.stderr, "uses the data folder") {
		t.Errorf("under a running server: %+v", out)
	}
	s.stop()
	if out := in.run("restore", file); out.code != 1 || !strings.Contains(out.stderr, "is not empty") {
		t.Errorf("into a full store: %+v", out)
	}
	cut := filepath.Join(dir, "cut.tar.gz")
	if err := os.WriteFile(cut, before[:len(before)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		prepare func(*testing.T, *installation)
		args    []string
		code    int
		want    string
	}{
		"no file":          {nil, []string{"restore"}, 2, "which file?"},
		"two files":        {nil, []string{"restore", file, file}, 2, "unexpected word"},
		"an absent file":   {nil, []string{"restore", "nowhere.tar.gz"}, 1, "nowhere.tar.gz cannot be read"},
		"a cut file":       {nil, []string{"restore", cut}, 1, "damaged"},
		"list and release": {nil, []string{"restore", "--held", "--release"}, 2, "one of them"},
		"no size":          {nil, []string{"restore", "--max-size", "0", file}, 2, "--max-size"},
		"no seal key":      {func(t *testing.T, in *installation) { remove(t, in, "seal.key") }, []string{"restore", file}, 1, "is missing: put it into"},
		"another seal key": {func(t *testing.T, in *installation) { in.env["HOB_SEAL_KEY"] = sealKey }, []string{"restore", file}, 1, "put the old key into its place"},
		"another project.db": {
			func(t *testing.T, in *installation) { write(t, in, "project.db", "somebody's") },
			[]string{"restore", file},
			1,
			"project.db is there and is not the backup's",
		},
		"nothing to back up":         {nil, []string{"backup", "x"}, 1, "there is no Hob in"},
		"a folder that is not there": {nil, []string{"backup", "nowhere/x"}, 1, "the folder nowhere is not there"},
		"no store":                   {nil, []string{"migrate", "status"}, 1, "there is no Hob in"},
		"no target":                  {nil, []string{"migrate", "--to", ""}, 2, "--to is empty"},
		"two backups":                {nil, []string{"backup", "x", "y"}, 2, "unexpected word"},
		"nothing to move":            {nil, []string{"migrate", "--to", "postgres://127.0.0.1:1/x"}, 1, "there is no Hob on SQLite"},
		"nothing to migrate":         {nil, []string{"migrate"}, 2, "what to do is missing"},
		"an unknown migration":       {nil, []string{"migrate", "down"}, 2, `"down"`},
		"two migrations":             {nil, []string{"migrate", "up", "--reopen"}, 2, "one thing at a time"},
		"to another database":        {nil, []string{"migrate", "--to", "mysql://x/y"}, 2, "postgres:// URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there := in.on(t).elsewhere("")
			if tc.prepare != nil {
				tc.prepare(t, there)
			}
			out := there.run(tc.args...)
			if out.code != tc.code || !strings.Contains(out.stderr, tc.want) {
				t.Errorf("exit code %d, want %d, and %q:\n%s", out.code, tc.code, tc.want, out.stderr)
			}
			if exists, _ := filepath.Glob(filepath.Join(there.dir, "hob.db")); len(exists) > 0 && out.code != 0 {
				if s := there.run("migrate", "status"); !strings.Contains(s.stdout, "nothing of Hob's") {
					t.Errorf("it left a store: %+v", s)
				}
			}
		})
	}
}

func TestMigrate_MovesToPostgresWithAllThatIsUnderWay(t *testing.T) {
	t.Parallel()
	database, both := databases(t)["postgres"]
	if !both {
		return // the quick tests know SQLite alone
	}
	tools := newToolServer(t, "charge")
	in := crashInstallation(t, "", tools)
	s := in.serve()
	talked(t, s)
	if out := in.run("migrate", "--to", database); out.code != 1 || !strings.Contains(out.stderr, "uses the data folder") {
		t.Errorf("under a running server: %+v", out)
	}
	id := startAndKill(t, s, tools, worker(t, s.client(), tools.URL))
	tools.release()
	if out := in.run("migrate", "--to", "postgres://hob:hush@127.0.0.1:1/x"); out.code != 1 ||
		out.stderr != "hob migrate: cannot reach Postgres at 127.0.0.1:1 (connection refused); nothing was changed\n" {
		t.Errorf("a server that is not there: %+v", out)
	}
	mustContain(t, "status", in.must("migrate", "status"), "schema ", "this program knows the schemas 1 to", "run_events", "sqlite")
	moved := in.must("migrate", "--to", database)
	mustContain(t, "the move", moved, "all tables are equal", "run_events", "project.db", "1 run under way", "HOB_PROJECT_DATABASE_URL",
		`has no schema "main"`, "agent demo (", ", tool database_query: PATCH /api/agents/", "is the schema hob_demo on Postgres")
	if strings.Contains(moved, "agent worker") {
		t.Errorf("an agent without a grant is warned of:\n%s", moved)
	}
	if n := strings.Count(moved, "equal\n"); n < 20 || strings.Contains(moved, "DIFFERENT") {
		t.Errorf("%d tables are equal:\n%s", n, moved)
	}
	in.env["HOB_ADDR"] = "127.0.0.1:0"
	for _, args := range [][]string{{"serve"}, {"migrate", "up"}} {
		if out := in.run(args...); out.code != 1 || !strings.Contains(out.stderr, "was moved to postgres://") || !strings.Contains(out.stderr, "hob migrate --reopen") {
			t.Errorf("hob %v on what was moved: %+v", args, out)
		}
	}
	mustContain(t, "status", in.must("migrate", "status"), "moved to postgres://")
	if out := in.run("migrate", "--to", database); out.code != 1 || !strings.Contains(out.stderr, "was moved there already, and nothing is left to do") {
		t.Errorf("moved again: %+v", out)
	}
	if out := in.run("migrate", "--to", strings.Replace(database, "/hob", "/other", 1)+"x"); out.code != 1 {
		t.Errorf("moved to yet another: %+v", out)
	}
	in.env["HOB_DATABASE_URL"] = database
	c := in.serve().client()
	r := waitFor(t, c, id, hob.Completed)
	if r.Held || checkLedger(t, tools.calls("charge")) != 1 || checkLedger(t, tools.calls("mail")) != 0 {
		t.Errorf("held %v; the call under way is sent again with its key, and no other", r.Held)
	}
	if x, err := c.Session(t.Context(), "old"); err != nil || x.ID != "old" {
		t.Errorf("the session: %+v, %v", x, err)
	}
	if again, err := c.Run(t.Context(), r.AgentID, client.RunRequest{Message: "more", SessionID: "old"}); err == nil {
		t.Errorf("a run of another agent's session: %+v", again)
	}
	talk, err := c.Run(t.Context(), demo(t, c), client.RunRequest{Message: question, SessionID: "old", Tools: true})
	if err != nil || talk.IsNewSession || talk.Status != hob.Completed {
		t.Errorf("a new turn of the old session: %+v, %v", talk, err)
	}
	in.env["HOB_DATABASE_URL"], in.env["HOB_ADDR"] = "", "127.0.0.1:0"
	mustContain(t, "the way back", in.must("migrate", "--reopen"), "in use again")
	if out := in.run("migrate", "--reopen"); out.code != 1 || !strings.Contains(out.stderr, "was not moved") {
		t.Errorf("twice: %+v", out)
	}
	mustContain(t, "up", in.must("migrate", "up"), "is up to date")
}

func TestMigrate_UpMakesTheSchemaBeforeAServer(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, map[string]string{"HOB_DATABASE_URL": database})
			mustContain(t, "up", in.must("migrate", "up"), "schema 0 → ")
			mustContain(t, "up again", in.must("migrate", "up"), "is up to date")
			mustContain(t, "status", in.must("migrate", "status"), fmt.Sprintf("%-14s  %d", "workspaces", 1))
			demo(t, in.serve().client()) // the server still finds a new store
		})
	}
}
