//go:build linux

package main

import (
	"path/filepath"
	"testing"

	"hob"
	"hob/internal/seal"
	"hob/internal/store"
)

func TestFill_CopiesAWholeRun(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	box, err := seal.Open(filepath.Join(folder, "key"), "")
	if err != nil {
		t.Fatal(err)
	}
	open := func() *store.DB {
		db, err := store.Open(t.Context(), store.Config{Dir: folder, Box: box})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open()
	c := committers{db: db}
	if c.agent, err = c.newAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	one, err := c.open(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // with the first one, five events
		if _, err := one.run(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	stored, err := fill(t.Context(), filepath.Join(folder, store.FileName), 103)
	if err != nil || stored != 105 {
		t.Fatalf("asked for 103 events of runs with 5: %d, %v", stored, err)
	}
	db = open()
	defer db.Close()
	by := hob.System(hob.DefaultWorkspace)
	for _, id := range []hob.RunID{"run_000000000001", "run_000000000014"} {
		run, err := db.Run(t.Context(), by, id)
		if err != nil {
			t.Fatal(err)
		}
		events, err := db.Events(t.Context(), by, id, 0, 100)
		if err != nil || len(events) != 5 || run.LastSeq != 5 {
			t.Errorf("copy %s has %d events, its row says %d, %v", id, len(events), run.LastSeq, err)
		}
	}
	if _, err := db.Run(t.Context(), by, "run_000000000015"); hob.KindOf(err) != hob.NotFound {
		t.Errorf("a copy too many: %v", err)
	}
	if _, err := fill(t.Context(), filepath.Join(folder, store.FileName), 10); err == nil {
		t.Error("a store with more than one run is filled")
	}
}

func TestDisk_MeasuresCommits(t *testing.T) {
	t.Parallel()
	d, err := openDisk(t.Context(), t.TempDir(), newClock())
	if err != nil {
		t.Fatal(err)
	}
	var l latencies
	if err := d.measure(t.Context(), 5, &l); err != nil {
		t.Fatal(err)
	}
	if l.commit.count() != 5 || l.fsync.count() != 5 || l.commit.p50() <= 0 {
		t.Errorf("commits %s, fsyncs %s", &l.commit, &l.fsync)
	}
	var mode string
	if err := d.db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("journal mode %q, %v, want wal", mode, err)
	}
	var sync int
	if err := d.db.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&sync); err != nil || sync != 2 {
		t.Errorf("synchronous is %d, %v, want 2 (full)", sync, err)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
}
