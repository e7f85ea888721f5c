package store_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"hob"
	"hob/internal/seal"
	"hob/internal/store"
)

// nullable are the columns that may be NULL.
const nullable = " agents.system_prompt agents.tool_ids tools.headers tool_versions.headers assignments.tool_id messages.body settings.sealed provider_keys.sealed hooks.sealed approvals.preview approvals.modified "

// oddTexts are what people and models write.
func oddTexts() []string {
	return []string{
		"", "plain", `quotes " ' and \ slashes \u0000`, "lines\r\n\tand tabs", "\x01\x1f\x7f control", "ünï © 日本語 🙂",
		"\u2028\u2029\ufeff\ufffd", "</script>&amp;", strings.Repeat("long ", 1000), "null", "12", `{"base64":"eA=="}`, "$1 ? {now}",
	}
}

// value is the i-th value of a column as SQL, and whether it is a text of the odd ones.
func value(table string, c store.Column, i int, postgres bool) string {
	name := table + "." + c.Name
	text := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	switch {
	case i%3 == 2 && strings.Contains(nullable, " "+name+" "):
		return "NULL"
	case name == "assignments.agent_id" || name == "hooks.agent_id":
		return text(fmt.Sprintf("agents-%d", i))
	case name == "assignments.tool_id" || name == "tool_versions.tool_id":
		return text(fmt.Sprintf("tools-%d", i))
	case name == "objects.bucket_id":
		return text(fmt.Sprintf("buckets-%d", i))
	case c.Name == "workspace_id":
		return text("default")
	case c.Kind == "blob":
		b := "00ff" + hex.EncodeToString([]byte(name)) + fmt.Sprintf("%02x", i)
		if i == 1 && name != "keys.hash" {
			b = ""
		}
		if postgres {
			return `'\x` + b + `'`
		}
		return "X'" + b + "'"
	case name == "runs.held" || name == "runs.lease_until":
		return "0"
	case name == "runs.lease_owner":
		return "''"
	case name == "audit.place":
		return fmt.Sprint(i + 1)
	case c.Name == "n" || c.Name == "run_n" || c.Name == "session_n" || c.Name == "turn" || c.Name == "seq" || c.Name == "idx":
		return fmt.Sprint(1000 + i)
	case c.Kind == "int":
		return fmt.Sprint([]int64{math.MaxInt64, math.MinInt64 + 1, 0, -1, 1 << 53, 1<<53 + 1}[i%6])
	case c.Name == "id" || c.Name == "key" || c.Name == "digest" || c.Name == "name" || c.Name == "call_id" || c.Name == "scope" ||
		c.Name == "tool_name" || c.Name == "provider" || c.Name == "endpoint" || c.Name == "model":
		return text(fmt.Sprintf("%s-%d", table, i))
	}
	return text(oddTexts()[i%len(oddTexts())])
}

// fillAll puts rows into every table.
func fillAll(t *testing.T, c store.Config, tables []store.Table) {
	t.Helper()
	var list []string
	for _, table := range tables {
		if table.Name == "workspaces" {
			continue // the default one is there, and rows of others would be seen by nobody
		}
		var names []string
		for _, column := range table.Columns {
			names = append(names, `"`+column.Name+`"`)
		}
		for i := range 13 {
			var values []string
			for _, column := range table.Columns {
				values = append(values, value(table.Name, column, i, c.DSN != ""))
			}
			list = append(list, "INSERT INTO "+table.Name+" ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(values, ", ")+")")
		}
	}
	raw(t, c, list...)
}

func dump(t testing.TB, c store.Config) *store.Dump {
	t.Helper()
	d, err := store.OpenDump(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the dump: %v", err)
		}
	})
	return d
}

// drain reads a dump to its end and gives the tables.
func drain(t testing.TB, c store.Config) []store.Table {
	t.Helper()
	d, err := store.OpenDump(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range d.Chunks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Errorf("close the dump: %v", err)
	}
	return d.Tables()
}

// made gives the Config of a database with the newest schema and no rows.
func made(t *testing.T, config func(testing.TB) store.Config, b *seal.Box) store.Config {
	t.Helper()
	c := config(t)
	c.Box = b
	db, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDump_HoldsEveryTableOfTheSchema(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c = made(t, func(testing.TB) store.Config { return c }, box(t))
		var names []string
		if c.DSN == "" {
			db, err := sql.Open("sqlite", filepath.Join(c.Dir, store.FileName))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := db.QueryRowContext(t.Context(), `SELECT group_concat(name, ' ') FROM sqlite_master WHERE type = 'table'`).
				Scan(sliced{&names}); err != nil {
				t.Fatal(err)
			}
		} else {
			conn, err := pgx.Connect(t.Context(), c.DSN)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			if err := conn.QueryRow(t.Context(), `SELECT array_agg(tablename::text) FROM pg_tables WHERE schemaname = 'hob'`).Scan(&names); err != nil {
				t.Fatal(err)
			}
		}
		want := append(store.DumpTables(), "schema_migrations")
		slices.Sort(want)
		slices.Sort(names)
		if d := cmp.Diff(want, names); d != "" {
			t.Errorf("a table without a row in dumpTables (dump_tables.go) is lost with every restore (-dumped +there):\n%s", d)
		}
	})
}

// sliced scans words.
type sliced struct{ into *[]string }

func (s sliced) Scan(v any) error { *s.into = strings.Fields(fmt.Sprint(v)); return nil }

func TestDump_LoadsFromEitherIntoEither(t *testing.T) {
	t.Parallel()
	b := box(t)
	for from, source := range engines() {
		for to, target := range engines() {
			t.Run(from+" into "+to, func(t *testing.T) {
				t.Parallel()
				c := made(t, source, b)
				fillAll(t, c, dump(t, c).Shape().Tables)
				raw(t, c, `INSERT INTO meta (name, value) VALUES ('probe', 'x')`)
				into := target(t)
				into.Box = b
				d := dump(t, c)
				loaded, err := store.Load(t.Context(), into, store.Loading{Shape: d.Shape(), Chunks: d.Chunks(t.Context())})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(d.Tables(), loaded.Tables); diff != "" {
					t.Errorf("-dumped +loaded:\n%s", diff)
				}
				if diff := cmp.Diff(d.Tables(), drain(t, into)); diff != "" {
					t.Errorf("-dumped +dumped again:\n%s", diff)
				}
				for _, table := range loaded.Tables {
					want := int64(13)
					switch table.Name {
					case "workspaces":
						want = 1
					case "meta":
						want = 14
					}
					if table.Rows != want {
						t.Errorf("%s has %d rows, want %d", table.Name, table.Rows, want)
					}
				}
				// New rows are numbered behind the loaded ones.
				db := open(t, into)
				a := agentOf(t, db, "new")
				if _, err := db.StartRun(t.Context(), keyed(a.ID, "k", 1)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestDump_DigestsTellRowsApart compares with a digest made by hand, so that it stays what it is from version to version.
func TestDump_DigestsTellRowsApart(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c = made(t, func(testing.TB) store.Config { return c }, box(t))
		find := func() store.Table {
			for _, table := range drain(t, c) {
				if table.Name == "run_pins" {
					return table
				}
			}
			t.Fatal("no run_pins")
			return store.Table{}
		}
		empty := find()
		// printf 'digest:text\npin:text\n' | sha256sum
		if want := "1c4598f8cc676e2f2134ee22870f8fe70aca27f9b317ef7cc3ae2465de24aaa8"; empty.SHA256 != want || empty.Rows != 0 {
			t.Errorf("empty: %+v, want %s", empty, want)
		}
		raw(t, c, `INSERT INTO run_pins VALUES ('a', '"x"')`)
		// printf '["a","\\"x\\""]\ndigest:text\npin:text\n' | sha256sum
		one := find()
		if want := "0ff667f56c223f098ced6cb88a48c5418a866706692bd4ea3d9cc6091855765f"; one.SHA256 != want || one.Rows != 1 {
			t.Errorf("one row: %+v, want %s", one, want)
		}
		raw(t, c, `UPDATE run_pins SET pin = '"y"'`)
		if find().SHA256 == one.SHA256 {
			t.Error("another row has the same digest")
		}
	})
}

// chunks are those of a dump, changed on their way.
func chunks(d *store.Dump, ctx context.Context, change func(store.Chunk) (store.Chunk, error)) iter.Seq2[store.Chunk, error] {
	return func(yield func(store.Chunk, error) bool) {
		for c, err := range d.Chunks(ctx) {
			if err == nil {
				c, err = change(c)
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

func TestLoad_IsAllOrNothing(t *testing.T) {
	t.Parallel()
	b := box(t)
	lost := errors.New("the file ended")
	for _, tt := range []struct {
		name   string
		change func(*store.Loading)
		chunk  func(store.Chunk) (store.Chunk, error)
		want   string
	}{
		{name: "the source breaks off", chunk: func(c store.Chunk) (store.Chunk, error) {
			if c.Table == "messages" {
				return c, lost
			}
			return c, nil
		}, want: lost.Error()},
		{name: "the last step fails", change: func(l *store.Loading) { l.Ready = func() error { return lost } }, want: lost.Error()},
		{name: "a line is no row", chunk: func(c store.Chunk) (store.Chunk, error) {
			if c.Table == "runs" {
				c.Lines = append(slices.Clone(c.Lines), "[1]\n"...)
			}
			return c, nil
		}, want: "row 14: it has 1 values for"},
		{name: "an integer is none", chunk: func(c store.Chunk) (store.Chunk, error) {
			if c.Table == "run_events" {
				c.Lines = []byte(`["x",1,"t",1,"{}"]` + "\n")
			}
			return c, nil
		}, want: "column run_n: it is no 64-bit integer"},
		{name: "rows of an unknown table", chunk: func(c store.Chunk) (store.Chunk, error) {
			if c.Table == "runs" {
				c.Table = "runs; DROP TABLE runs"
			}
			return c, nil
		}, want: "come in a place where none belong"},
		{name: "a row is written in another way", chunk: func(c store.Chunk) (store.Chunk, error) {
			if c.Table == "run_pins" {
				c.Lines = []byte(`["\u0061","x"]` + "\n")
			}
			return c, nil
		}, want: "table run_pins reads back as 1 rows"},
		{name: "the digest is another", change: func(l *store.Loading) {
			l.Shape.Tables = slices.Clone(l.Shape.Tables)
			l.Shape.Tables[3].SHA256 = strings.Repeat("0", 64)
		}, want: "table agents reads back as 13 rows"},
		{name: "a newer schema", change: func(l *store.Loading) { l.Shape.Schema = 99 }, want: "schema version 99"},
		{name: "no schema", change: func(l *store.Loading) { l.Shape.Schema = 0 }, want: "which schema version"},
		{name: "another seal key", change: func(l *store.Loading) { l.Shape.Seal = "0123456789abcdef" }, want: "fingerprint 0123456789abcdef"},
		{name: "a column more", change: func(l *store.Loading) {
			l.Shape.Tables = slices.Clone(l.Shape.Tables)
			l.Shape.Tables[1].Columns = append(slices.Clone(l.Shape.Tables[1].Columns), store.Column{Name: `x"; DROP TABLE runs; --`, Kind: "text"})
		}, want: "does not have the columns of its schema"},
		{name: "a table more", change: func(l *store.Loading) {
			l.Shape.Tables = append(slices.Clone(l.Shape.Tables), store.Table{Name: "more"})
		}, want: `a table "more"`},
		{name: "a table less", change: func(l *store.Loading) { l.Shape.Tables = l.Shape.Tables[:5] }, want: "lacks the table tool_versions"},
		{name: "no tables", change: func(l *store.Loading) { l.Shape.Tables = nil }, want: "lacks the table meta"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, into store.Config) {
				c := made(t, engines()["sqlite"], b)
				fillAll(t, c, dump(t, c).Shape().Tables)
				into.Box = b
				d := dump(t, c)
				l := store.Loading{Shape: d.Shape(), Chunks: d.Chunks(t.Context())}
				if tt.chunk != nil {
					l.Chunks = chunks(d, t.Context(), tt.chunk)
				}
				if tt.change != nil {
					tt.change(&l)
				}
				if _, err := store.Load(t.Context(), into, l); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want one with %q", err, tt.want)
				}
				if _, err := store.OpenDump(t.Context(), into); hob.KindOf(err) != hob.NotFound {
					t.Errorf("after it there is something: %v", err)
				}
				// What is right goes in afterwards.
				d = dump(t, c)
				if _, err := store.Load(t.Context(), into, store.Loading{Shape: d.Shape(), Chunks: d.Chunks(t.Context())}); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

func TestLoad_OnlyIntoAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	b := box(t)
	onEach(t, func(t *testing.T, into store.Config) {
		c := made(t, engines()["sqlite"], b)
		into.Box = b
		db := open(t, into)
		agentOf(t, db, "somebody's")
		if _, err := db.Audit(t.Context(), system(), hob.AuditFilter{}); err != nil { // which links what it noted
			t.Fatal(err)
		}
		before := drain(t, into)
		d := dump(t, c)
		_, err := store.Load(t.Context(), into, store.Loading{Shape: d.Shape(), Chunks: d.Chunks(t.Context())})
		if hob.KindOf(err) != hob.Conflict || !strings.Contains(err.Error(), "its table agents has rows") {
			t.Errorf("error %v", err)
		}
		if diff := cmp.Diff(before, drain(t, into)); diff != "" {
			t.Errorf("it was changed:\n%s", diff)
		}
	})
}

func TestLoad_AnOlderSchemaIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	b := box(t)
	for from, source := range engines() {
		for to, target := range engines() {
			t.Run(from+" into "+to, func(t *testing.T) {
				t.Parallel()
				c, into := source(t), target(t)
				define(t, c, firstSchema(t))
				into.Box = b
				made(t, func(testing.TB) store.Config { return into }, b) // an empty one of the newest schema makes room
				d := dump(t, c)
				if d.Shape().Schema != 1 {
					t.Fatalf("schema %d", d.Shape().Schema)
				}
				loaded, err := store.Load(t.Context(), into, store.Loading{Shape: d.Shape(), Chunks: d.Chunks(t.Context()), Hold: true})
				if err != nil {
					t.Fatalf("%v\nA table that a new migration makes needs a row in dumpTables (dump_tables.go): only those are cleared away", err)
				}
				if diff := cmp.Diff(d.Tables(), loaded.Tables); diff != "" || loaded.Unfinished != 1 {
					t.Errorf("%d unfinished, -dumped +loaded:\n%s", loaded.Unfinished, diff)
				}
				db := open(t, into)
				held, err := db.HeldRuns(t.Context(), system())
				if err != nil || len(held) != 1 || held[0].ID != "run_2" || !held[0].Held {
					t.Errorf("held: %+v, %v", held, err)
				}
			})
		}
	}
}

func TestLoad_KeepsWhatIsNoUTF8WhereItCan(t *testing.T) {
	t.Parallel()
	b := box(t)
	onEach(t, func(t *testing.T, into store.Config) {
		c := made(t, engines()["sqlite"], b)
		raw(t, c, `INSERT INTO messages VALUES (1, 0, 'user', 3, CAST(X'61ff62' AS TEXT), NULL)`)
		into.Box = b
		d := dump(t, c)
		_, err := store.Load(t.Context(), into, store.Loading{Shape: d.Shape(), Chunks: d.Chunks(t.Context())})
		if into.DSN != "" {
			if hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "not valid UTF-8") {
				t.Errorf("error %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d.Tables(), drain(t, into)); diff != "" {
			t.Errorf("-dumped +loaded:\n%s", diff)
		}
	})
}

func TestOpenDump_SaysWhatCannotBeDumped(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		if _, err := store.OpenDump(t.Context(), c); hob.KindOf(err) != hob.NotFound {
			t.Errorf("nothing there: %v", err)
		}
		c = made(t, func(testing.TB) store.Config { return c }, box(t))
		raw(t, c, `INSERT INTO schema_migrations VALUES (99, 'future', 1)`)
		if _, err := store.OpenDump(t.Context(), c); hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "schema version 99") {
			t.Errorf("a newer one: %v", err)
		}
	})
}

func TestSetMoved_ClosesTheDatabaseUntilItIsTakenBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c = made(t, func(testing.TB) store.Config { return c }, box(t))
		before := drain(t, c)
		const to = "postgres://db.example.com:5432/hob"
		if was, err := store.SetMoved(t.Context(), c, to); err != nil || was != "" {
			t.Fatalf("%q, %v", was, err)
		}
		_, err := store.Open(t.Context(), c)
		if hob.KindOf(err) != hob.Conflict || !strings.Contains(err.Error(), to) || !strings.Contains(err.Error(), "hob migrate --reopen") {
			t.Errorf("opened: %v", err)
		}
		if diff := cmp.Diff(before, drain(t, c)); diff != "" {
			t.Errorf("the mark is in the dump:\n%s", diff)
		}
		if was, err := store.SetMoved(t.Context(), c, ""); err != nil || was != to {
			t.Errorf("%q, %v", was, err)
		}
		open(t, c)
	})
	c := store.Config{DSN: "postgres://me:secret@db.example.com/hob?sslmode=require"}
	if got := c.Address(); got != "postgres://db.example.com:5432/hob" {
		t.Errorf("the address reads %s", got)
	}
}
