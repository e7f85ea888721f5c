package main_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hob"
	"hob/client"
	"hob/internal/store"
)

// damage runs statements on an installation's store, as a restore by hand might.
func damage(t *testing.T, in *installation, statements ...string) {
	t.Helper()
	if dsn := in.env["HOB_DATABASE_URL"]; dsn != "" {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := conn.Exec(t.Context(), "SET search_path = hob; "+strings.Join(statements, "; ")); err != nil {
			t.Fatal(err)
		}
		return
	}
	db, err := sql.Open("sqlite", filepath.Join(in.dir, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), strings.Join(statements, "; ")); err != nil {
		t.Fatal(err)
	}
}

// talked makes the session "old" of two turns that each call a tool, and gives their runs.
func talked(t *testing.T, s *serving) []hob.RunID {
	t.Helper()
	c := s.client()
	var runs []hob.RunID
	for range 2 {
		r, err := c.Run(t.Context(), demo(t, c), client.RunRequest{Message: question, SessionID: "old", Tools: true})
		if err != nil || r.Status != hob.Completed {
			t.Fatalf("run: %v, %+v", err, r)
		}
		runs = append(runs, r.RunID)
	}
	return runs
}

func TestDoctor_ExplainsASessionAndMendsIt(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, map[string]string{"HOB_DATABASE_URL": database})
			s := in.serve()
			runs := talked(t, s)
			healthy := in.run("doctor", "--session", "old") // beside the running server
			if healthy.code != 0 {
				t.Errorf("exit code %d:\n%s%s", healthy.code, healthy.stdout, healthy.stderr)
			}
			mustContain(t, "a healthy session", healthy.stdout, "session old: 2 turns, 8 messages, about ", "turn 1", "completed", string(runs[0]),
				string(runs[1])+": 4 messages", "No faults.")
			s.stop()
			damage(t, in, "DELETE FROM messages WHERE idx = 2 AND run_n = (SELECT n FROM runs WHERE id = '"+string(runs[0])+"')",
				"INSERT INTO summaries (session_n, turn, idx, text, created_at) SELECT session_n, turn, 1, 'what was said', 1 FROM runs WHERE id = '"+
					string(runs[1])+"'")

			fault := fmt.Sprintf("turn 1, message 1 (%s): the call ", runs[0])
			out := in.run("doctor", "--session", "old")
			if out.code != 1 {
				t.Errorf("exit code %d, want 1", out.code)
			}
			mustContain(t, "the faults", out.stdout, "fail  "+fault, "has no result", "missing from the record", "1 fault.", "--repair",
				"summary   of everything before message 1 of turn 2: what was said")
			var told struct {
				Session  store.Checkup
				Repaired bool
			}
			out = in.run("doctor", "--session", "old", "--json")
			if err := json.Unmarshal([]byte(out.stdout), &told); err != nil || out.code != 1 || told.Repaired || len(told.Session.Faults) != 1 ||
				told.Session.Faults[0].Run != runs[0] || len(told.Session.Runs) != 2 {
				t.Errorf("exit code %d, %v, %+v", out.code, err, told)
			}

			out = in.run("doctor", "--session", "old", "--repair")
			if out.code != 0 {
				t.Errorf("exit code %d of the repair:\n%s", out.code, out.stderr)
			}
			mustContain(t, "the repair", out.stdout, "mended  "+fault)
			if out = in.run("doctor", "--session", "old", "--repair"); out.code != 0 || !strings.Contains(out.stdout, "No faults.") {
				t.Errorf("the second time, exit code %d:\n%s", out.code, out.stdout)
			}
			in.env["HOB_ADDR"] = "127.0.0.1:0"
			if again := talked(t, in.serve()); len(again) != 2 {
				t.Errorf("the session does not go on: %v", again)
			}
		})
	}
}

func TestDoctor_SaysWhySessionsCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	before := in.run("doctor", "--session", "old")
	if before.code != 1 || !strings.Contains(before.stderr, "is not there") {
		t.Errorf("before the first start: exit code %d, %s", before.code, before.stderr)
	}
	s := in.serve()
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"absent":            {[]string{"--session", "none"}, 1, "Session not found"},
		"repair of nothing": {[]string{"--repair"}, 2, "--session"},
		"while it serves":   {[]string{"--session", "old", "--repair"}, 1, fmt.Sprintf("another hob serve (process %d)", s.cmd.Process.Pid)},
	} {
		out := in.run(append([]string{"doctor"}, tc.args...)...)
		if out.code != tc.code || !strings.Contains(out.stderr, tc.want) {
			t.Errorf("%s: exit code %d, want %d: %s", name, out.code, tc.code, out.stderr)
		}
	}
	s.stop()

	db, err := sql.Open("sqlite", filepath.Join(in.dir, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), "BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	out := in.run("doctor", "--session", "old", "--repair")
	if _, err := db.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if out.code != 1 || !strings.Contains(out.stderr, "another program has locked the database") {
		t.Errorf("a locked file: exit code %d, %s", out.code, out.stderr)
	}

	damage(t, in, "DELETE FROM schema_migrations WHERE version > 1")
	if out := in.run("doctor", "--session", "old"); out.code != 1 || !strings.Contains(out.stderr, "start hob serve once") {
		t.Errorf("an older schema: exit code %d, %s", out.code, out.stderr)
	}
	remove(t, in, "seal.key")
	if out := in.run("doctor", "--session", "old"); out.code != 1 {
		t.Errorf("without a seal key: exit code %d, %s", out.code, out.stderr)
	}
}
