package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"hob"
	"hob/internal/store"
)

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
