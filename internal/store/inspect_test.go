package store_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"hob"
	"hob/internal/store"
)

func TestInspect_TellsTheFactsAndChangesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		fresh, err := store.Inspect(t.Context(), c)
		if c.DSN == "" {
			if hob.KindOf(err) != hob.NotFound {
				t.Errorf("before the first start: %v, want not_found", err)
			}
			if _, err := os.Stat(filepath.Join(c.Dir, store.FileName)); err == nil {
				t.Error("Inspect made the file")
			}
		} else if err != nil || fresh.Schema != 0 {
			t.Errorf("before the first start: %+v, %v; want schema 0", fresh, err)
		}
		open(t, c)
		f, err := store.Inspect(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if f.Schema != f.Known || f.Known < 1 || f.Server == "" || f.Dialect == "" {
			t.Errorf("%+v: schema and known should be equal and above 0", f)
		}
		if off := time.Since(f.Clock).Abs(); off > time.Minute {
			t.Errorf("the database's clock differs by %s on one machine", off)
		}
	})
}

func TestInspect_NamesSettingsThatLoseData(t *testing.T) {
	t.Parallel()
	weak := store.Facts{Settings: map[string]string{"journal_mode": "delete", "fsync": "off", "full_page_writes": "on"}}.Weak()
	if len(weak) != 2 || weak[0] != "journal_mode = delete" || weak[1] != "fsync = off" {
		t.Errorf("weak settings are %q", weak)
	}
	c := store.Config{Dir: t.TempDir()}
	open(t, c)
	f, err := store.Inspect(t.Context(), c)
	if err != nil || len(f.Weak()) != 0 {
		t.Errorf("a store as Hob makes it: %q, %v", f.Weak(), err)
	}
}
