package store

import (
	"context"
	"strings"
	"testing"
)

func TestSQLite_ReadersCannotWrite(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	if _, err := s.e.reads.exec(t.Context(), `INSERT INTO x (v) VALUES (1)`, nil); err == nil {
		t.Error("a reader wrote")
	}
}

func TestSQLite_WriterIsDurable(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	for pragma, want := range map[string]int64{
		"synchronous": 2, "foreign_keys": 1, "busy_timeout": sqliteBusyMS, "wal_autocheckpoint": sqliteCheckpoint, "journal_size_limit": sqliteJournalSize,
	} {
		err := s.e.write(t.Context(), func(ctx context.Context, tt *tx) error {
			got, err := one(ctx, tt, scanInt, "PRAGMA "+pragma)
			if got != want {
				t.Errorf("%s is %d, want %d", pragma, got, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mode, err := one(t.Context(), &tx{q: s.e.reads}, scanText, "PRAGMA journal_mode")
	if err != nil || mode != "wal" {
		t.Errorf("journal mode %q, %v", mode, err)
	}
}

func TestRebind_NumbersArguments(t *testing.T) {
	t.Parallel()
	d := postgresDialect()
	const query = `SELECT a {like} ? FROM x WHERE b = ? AND c < {now} LIMIT ? {skip}`
	want := `SELECT a ILIKE $1 FROM x WHERE b = $2 AND c < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint LIMIT $3 FOR UPDATE SKIP LOCKED`
	for range 2 { // the second time from memory
		if got := d.rebind(query); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestInList_HasFewLengths(t *testing.T) {
	t.Parallel()
	lengths := map[int]bool{}
	for n := 1; n <= 200; n++ {
		values := make([]int, n)
		for i := range values {
			values[i] = i
		}
		text, args := inList(values)
		if strings.Count(text, "?") != len(args) || len(args) < n || args[len(args)-1] != n-1 {
			t.Fatalf("%d values: %s with %v", n, text, args)
		}
		lengths[len(args)] = true
	}
	if len(lengths) > 9 {
		t.Errorf("%d different statements", len(lengths))
	}
}
