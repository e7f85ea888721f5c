package store_test

import (
	"bytes"
	"database/sql"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hob"
	"hob/internal/store"
)

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

// TestSQLite_ADamagedFolderIsRefused opens folders whose database was lost or cut, and finds nothing changed in them.
func TestSQLite_ADamagedFolderIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		damage func(path string) error
		want   string
	}{
		"the database is gone and its log is there": {func(path string) error {
			return os.Rename(path, path+"-wal")
		}, "missing or empty"},
		"the database is empty and its log is there": {func(path string) error {
			return errors.Join(os.Rename(path, path+"-wal"), os.WriteFile(path, nil, 0o600))
		}, "missing or empty"},
		"the database was cut": {func(path string) error { return os.Truncate(path, 16<<10) }, "it was cut"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := store.Config{Dir: t.TempDir()}
			db := open(t, c)
			agentOf(t, db, "x")
			if err := db.Close(); err != nil { // carries the log over
				t.Fatal(err)
			}
			path := filepath.Join(c.Dir, store.FileName)
			if err := tc.damage(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadDir(c.Dir)
			if err != nil {
				t.Fatal(err)
			}
			c.Box = box(t)
			if _, err := store.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("opened with %v, want an error with %q", err, tc.want)
			}
			after, err := os.ReadDir(c.Dir)
			if err != nil || len(after) != len(before) {
				t.Errorf("files %v became %v, %v", before, after, err)
			}
		})
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

// TestCommit_IsInTheFilesWhenItReturns takes the files as a power cut would leave them.
func TestCommit_IsInTheFilesWhenItReturns(t *testing.T) {
	t.Parallel()
	c := store.Config{Dir: t.TempDir(), Box: box(t)}
	db := open(t, c)
	a := agentOf(t, db, "a")
	const writers = 20
	ids := make([]hob.RunID, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			n := keyed(a.ID, string(rune('a'+i)), time.Hour)
			ids[i] = n.Run.ID
			if _, err := db.StartRun(t.Context(), n); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	left := store.Config{Dir: t.TempDir(), Box: c.Box}
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(filepath.Join(c.Dir, store.FileName) + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(left.Dir, store.FileName)+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	after := open(t, left)
	for _, id := range ids {
		if _, err := after.Load(t.Context(), id); err != nil {
			t.Errorf("run %s: %v", id, err)
		}
	}
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
