package store_test

import (
	"os"
	"path/filepath"
	"testing"

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

func TestStore_KeepsTheContract(t *testing.T) {
	t.Parallel()
	for name, config := range engines() {
		t.Run(name, func(t *testing.T) {
			storetest.Exercise(t, func(t *testing.T) hob.Store { return open(t, config(t)) })
		})
	}
}

var _ = os.Getenv
