package main_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hob"
	"hob/client"
	"hob/internal/pgtest"
	"hob/internal/store"
)

// tamper changes a store behind Hob's back.
func tamper(t *testing.T, in *installation, statement string) {
	t.Helper()
	if dsn := in.env["HOB_DATABASE_URL"]; dsn != "" {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		if _, err := conn.Exec(t.Context(), strings.ReplaceAll(statement, " audit ", " hob.audit ")); err != nil {
			t.Fatal(err)
		}
		return
	}
	db, err := sql.Open("sqlite", filepath.Join(in.dir, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// holds gives what hob audit verify says of the one chain, which has to hold.
func holds(t *testing.T, in *installation) store.AuditChain {
	t.Helper()
	var answer struct {
		OK     bool               `json:"ok"`
		Chains []store.AuditChain `json:"chains"`
	}
	if err := json.Unmarshal([]byte(in.must("audit", "verify", "--json")), &answer); err != nil {
		t.Fatal(err)
	}
	if !answer.OK || len(answer.Chains) != 1 {
		t.Fatalf("%+v", answer)
	}
	return answer.Chains[0]
}

// linked is holds once a server that runs, or ran, has linked everything.
func linked(t *testing.T, in *installation) store.AuditChain {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if chain := holds(t, in); chain.Loose == 0 {
			return chain
		} else if time.Now().After(until) {
			t.Fatalf("not all is linked: %+v", chain)
		}
	}
}

// exported is what hob audit export writes.
func exported(t *testing.T, in *installation, args ...string) (list []hob.AuditEntry) {
	t.Helper()
	for lines := bufio.NewScanner(strings.NewReader(in.must(append([]string{"audit", "export"}, args...)...))); lines.Scan(); {
		var e hob.AuditEntry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		list = append(list, e)
	}
	return list
}

func TestAudit_IsVerifiedWhileTheServerRunsAndFindsWhatWasTamperedWith(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, map[string]string{"HOB_DATABASE_URL": database, "HOB_SEAL_KEY": sealKey})
			s := in.serve()
			c := s.client()
			agent := scripted(t, c, "text: done")
			for range 3 {
				if _, err := c.Run(t.Context(), agent, client.RunRequest{Message: "go"}); err != nil {
					t.Fatal(err)
				}
			}
			noted := linked(t, in)
			if list := exported(t, in); int64(len(list)) != noted.Linked || list[len(list)-1].Hash != noted.Head {
				t.Errorf("%d entries are exported of %+v", len(list), noted)
			}
			if list := exported(t, in, "--until", "2001-01-01", "--workspace", "default"); len(list) != 0 {
				t.Errorf("%d entries of before there was anything", len(list))
			}
			// A backup is noted while the server runs, and the server goes on behind it.
			file := filepath.Join(t.TempDir(), "b.tar.gz")
			in.must("backup", file)
			if _, err := c.Run(t.Context(), agent, client.RunRequest{Message: "go"}); err != nil {
				t.Fatal(err)
			}
			if code := s.stop(); code != 0 {
				t.Fatalf("the server ended with %d", code)
			}
			if got := linked(t, in); got.Linked != noted.Linked+3 {
				t.Errorf("%d entries are linked, want %d and a backup and a run's two", got.Linked, noted.Linked)
			}
			mustContain(t, "verify", in.must("audit", "verify", "--expect", noted.Head), "the expected hash is at place")

			there := in.elsewhere("")
			there.must("restore", file)
			if got := holds(t, there); got.Entries != noted.Linked+2 {
				t.Errorf("%d entries after the restore, want %d and the backup and the restore", got.Entries, noted.Linked)
			}
			mustContain(t, "verify", there.must("audit", "verify", "--expect", noted.Head), "the expected hash is at place")

			fails := func(what string, args ...string) {
				t.Helper()
				out := in.run(append([]string{"audit", "verify"}, args...)...)
				if out.code != 1 {
					t.Errorf("exit code %d, want 1", out.code)
				}
				mustContain(t, "the error", out.stderr, what)
			}
			head := linked(t, in).Head
			tamper(t, in, `DELETE FROM audit WHERE place > 4`)
			in.must("audit", "verify")
			fails("no chain has the hash", "--expect", head)
			tamper(t, in, `UPDATE audit SET actor = 'user:nobody' WHERE place = 3`)
			fails("the chain of default is broken at place 3: it does not have the hash of its content")
			tamper(t, in, `DELETE FROM audit WHERE place = 2`)
			fails("the entry 2 is missing")
			if database == "" { // entries are linked as they are written, and a server does not link what others put there
				tamper(t, there, `INSERT INTO audit (workspace_id, place, at, actor, action, kind, object, run_id, call_id, digest, decision, detail,
					prev, hash) VALUES ('default', 0, 1, 'user:nobody', 'key.create', 'key', 'k', '', '', '', '', '', '', '')`)
				there.serve().stop()
				out := there.run("audit", "verify")
				if out.code != 1 {
					t.Errorf("exit code %d of a log with an entry that was put there, want 1", out.code)
				}
				mustContain(t, "the error", out.stderr, "not written by Hob")
			}
		})
	}
}

// TestAudit_ChainMovesToPostgres: what was verified on SQLite is verified there.
func TestAudit_ChainMovesToPostgres(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		return
	}
	in := install(t, map[string]string{"HOB_SEAL_KEY": sealKey})
	s := in.serve()
	scripted(t, s.client(), "text: done")
	s.stop()
	before := linked(t, in)
	to := owned(t, pgtest.URL(t))
	in.must("migrate", "--to", to)
	there := in.elsewhere(to)
	moved := there.must("audit", "verify", "--expect", before.Head)
	if !regexp.MustCompile(`(?m)^default +\d+ +\d+ +1 +yes`).MatchString(moved) {
		t.Errorf("the move itself is not noted:\n%s", moved)
	}
	there.serve()
	if got := linked(t, there); got.Linked <= before.Linked {
		t.Errorf("%+v after %+v", got, before)
	}
}

func TestAudit_CommandLine(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no verb":       {[]string{"audit"}, 2, "verify or export"},
		"another verb":  {[]string{"audit", "erase"}, 2, `"erase"`},
		"a word":        {[]string{"audit", "verify", "now"}, 2, `"now"`},
		"a bad day":     {[]string{"audit", "export", "--since", "yesterday"}, 2, "--since"},
		"verify a part": {[]string{"audit", "verify", "--since", "2020-01-01"}, 2, "verified whole"},
		"export a head": {[]string{"audit", "export", "--expect", "x"}, 2, "of verify"},
		"no store":      {[]string{"audit", "verify"}, 1, "there is no Hob in"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := in.on(t).run(tc.args...)
			if out.code != tc.code || out.stdout != "" {
				t.Errorf("exit code %d, want %d; %q", out.code, tc.code, out.stdout)
			}
			mustContain(t, "the error", out.stderr, tc.want)
		})
	}
}
