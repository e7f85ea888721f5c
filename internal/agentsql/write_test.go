package agentsql_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"hob/internal/agentsql"
)

// desk is an engine with tables to write: notes are numbered by the database,
// parents have children that go with them, logged has a trigger, kinds a column
// of every kind.
type desk struct {
	engine

	schema string
	grant  agentsql.WriteGrant
}

// deskTables are granted; children, audit and secrets are not.
var deskTables = []string{"notes", "parents", "logged", "kinds", "orders", "shown"}

func eachDesk(t *testing.T, f func(*testing.T, desk)) {
	t.Helper()
	each(t, func(t *testing.T, e engine) { f(t, newDesk(t, e)) })
}

func newDesk(t testing.TB, e engine) desk {
	t.Helper()
	d := desk{engine: e, schema: "main"}
	if e.name == "postgres" {
		d.schema = "hob_demo"
		writePostgres(t, e.where, `SET search_path = hob_demo;
			CREATE TABLE notes (id serial PRIMARY KEY, body text NOT NULL UNIQUE, stars integer CHECK (stars < 6), made date DEFAULT '2025-01-01');
			CREATE TABLE parents (id integer PRIMARY KEY, name text);
			CREATE TABLE children (id integer PRIMARY KEY, parent integer REFERENCES parents (id) ON DELETE CASCADE ON UPDATE SET NULL);
			CREATE TABLE logged (id integer GENERATED ALWAYS AS IDENTITY, body text);
			CREATE TABLE audit (what text);
			CREATE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN INSERT INTO hob_demo.audit VALUES (NEW.body); RETURN NEW; END';
			CREATE TRIGGER log_it AFTER INSERT ON logged FOR EACH ROW EXECUTE FUNCTION log_it();
			CREATE TABLE kinds (id integer PRIMARY KEY, i bigint, n numeric, f double precision, b boolean, t text, j jsonb, a text[], d date, twice bigint GENERATED ALWAYS AS (i * 2) STORED);
			CREATE VIEW shown AS SELECT * FROM notes;`)
	} else {
		writeSQLite(t, e.where, `
			CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE, stars INTEGER CHECK (stars < 6), made DATE DEFAULT '2025-01-01');
			CREATE TABLE parents (id INT PRIMARY KEY, name TEXT);
			CREATE TABLE children (id INTEGER PRIMARY KEY, parent INT REFERENCES parents (id) ON DELETE CASCADE ON UPDATE SET NULL);
			CREATE TABLE logged (id INTEGER PRIMARY KEY, body TEXT);
			CREATE TABLE audit (what TEXT);
			CREATE TRIGGER log_it AFTER INSERT ON logged BEGIN INSERT INTO audit VALUES (NEW.body); END;
			CREATE TABLE kinds (id INT PRIMARY KEY, i INTEGER, n NUMERIC, f REAL, b BOOLEAN, t TEXT, j JSON, a BLOB, d DATE, twice INTEGER AS (i * 2) STORED);
			CREATE VIEW shown AS SELECT * FROM notes;`)
	}
	d.script(t, "INSERT INTO notes (body, stars) VALUES ('first', 1), ('second', 2), ('third', NULL)")
	d.script(t, "INSERT INTO parents VALUES (1, 'one'), (2, 'two'); INSERT INTO children VALUES (10, 1), (11, 1)")
	d.grant = agentsql.WriteGrant{Tables: agentsql.Grant{d.schema: deskTables}}
	return d
}

// script runs statements as the administrator.
func (d desk) script(t testing.TB, script string) {
	t.Helper()
	if d.name == "postgres" {
		writePostgres(t, d.where, "SET search_path = hob_demo; "+script)
	} else {
		writeSQLite(t, d.where, script)
	}
}

// read answers a query of the administrator that gives one text.
func (d desk) read(t testing.TB, query string) string {
	t.Helper()
	var got sql.NullString
	if d.name == "postgres" {
		conn, err := pgx.Connect(t.Context(), d.where)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		if _, err := conn.Exec(t.Context(), "SET search_path = hob_demo"); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(t.Context(), query).Scan(&got); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return got.String
	}
	u := url.URL{Scheme: "file", OmitHost: true, Path: d.where}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), query).Scan(&got); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return got.String
}

// write is a change of the desk's grant, told as "operation table" and JSON.
func (d desk) write(what, data, where string) agentsql.Write {
	op, table, _ := strings.Cut(what, " ")
	return agentsql.Write{
		Grant: d.grant, Operation: agentsql.Operation(op), Table: table, Agent: "writer",
		Data: json.RawMessage(data), Where: json.RawMessage(where),
	}
}

func TestWrite_ChangesRows(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		for _, tc := range []struct {
			what, data, where string
			rows              int
			check, want       string
		}{
			{"insert notes", `{"body":"new","stars":5}`, "", 1, "SELECT count(*)||'' FROM notes WHERE body = 'new' AND stars = 5", "1"},
			{"insert SCHEMA.notes", `[{"body":"a","stars":1},{"stars":null,"body":"b"}]`, "", 2, "SELECT count(*)||'' FROM notes WHERE body IN ('a', 'b')", "2"},
			{"insert notes", `{"id":77,"body":"numbered"}`, "", 1, "SELECT count(*)||'' FROM notes WHERE id = 77", "0"},
			{"update notes", `{"stars":3}`, `{"body":"first"}`, 1, "SELECT stars||'' FROM notes WHERE body = 'first'", "3"},
			{"update notes", `{"stars":4,"made":"2025-02-03"}`, `{"stars":null}`, 3, "SELECT count(*)||'' FROM notes WHERE stars = 4 AND made = '2025-02-03'", "3"},
			{"update notes", `{"stars":null}`, `{"body":["a","new","nobody"]}`, 2, "SELECT count(*)||'' FROM notes WHERE stars IS NULL AND body IN ('a', 'new')", "2"},
			{"update notes", `{"stars":0}`, `{"stars":[null,3],"body":"first"}`, 1, "SELECT stars||'' FROM notes WHERE body = 'first'", "0"},
			{"update notes", `{"stars":0}`, `{"body":"nobody"}`, 0, "SELECT count(*)||'' FROM notes WHERE stars = 0", "1"},
			{"delete notes", "", `{"body":"second","stars":2}`, 1, "SELECT count(*)||'' FROM notes WHERE body = 'second'", "0"},
			{"update parents", `{"name":"uno"}`, `{"id":1}`, 1, "SELECT count(*)||'' FROM children WHERE parent = 1", "2"},
			{"delete notes", "null", `{"body":"' OR 1=1 --"}`, 0, "SELECT count(*)||'' FROM notes", "6"},
		} {
			w := d.write(strings.ReplaceAll(tc.what, "SCHEMA", d.schema), tc.data, tc.where)
			got, err := d.db.Write(t.Context(), w)
			if err != nil || got.Rows != tc.rows || got.Returned != nil {
				t.Errorf("%s %s %s: %+v, %v; want %d rows", tc.what, tc.data, tc.where, got, err, tc.rows)
			}
			if is := d.read(t, tc.check); is != tc.want {
				t.Errorf("%s %s %s: %s gives %s, want %s", tc.what, tc.data, tc.where, tc.check, is, tc.want)
			}
		}
	})
}

func TestWrite_GivesColumnsBack(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		w := d.write("insert notes", `[{"body":"x"},{"body":"y"}]`, "")
		w.Returning = []string{"id", "body"}
		got, err := d.db.Write(t.Context(), w)
		if want := `[{"id":4,"body":"x"},{"id":5,"body":"y"}]`; err != nil || string(got.Returned) != want || got.Truncated {
			t.Errorf("%s, %v, want %s", got.Returned, err, want)
		}
		w = d.write("delete notes", "", `{"body":["x","y"]}`)
		w.Returning, w.Limits.Bytes = []string{"body"}, 15
		got, err = d.db.Write(t.Context(), w)
		if err != nil || got.Rows != 2 || !got.Truncated || string(got.Returned) != `[{"body":"x"}]` {
			t.Errorf("cut: %+v %s, %v", got, got.Returned, err)
		}
	})
}

// What is refused leaves no trace, and says what to change.
func TestWrite_RefusesAndTellsWhy(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		before := d.digest(t)
		for _, tc := range []struct{ what, data, where, want string }{
			{"upsert notes", `{"body":"x"}`, "", "Invalid operation: 'upsert'. Use insert, update or delete."},
			{"insert secrets", `{"id":2}`, "", "Table 'secrets' not found. Available tables: SCHEMA.kinds, SCHEMA.logged, SCHEMA.notes, SCHEMA.orders, SCHEMA.parents, SCHEMA.shown"},
			{"insert other.notes", `{"body":"x"}`, "", "Table 'other.notes' not found"},
			{"delete hob_agent_calls", "", `{"key":"x"}`, "Table 'hob_agent_calls' not found"},
			{"delete notes;--", "", `{"id":1}`, "Invalid identifier: 'notes;--'"},
			{`delete "notes"`, "", `{"id":1}`, "Invalid identifier"},
			{"delete a.b.c", "", `{"id":1}`, "Invalid identifier"},
			{"delete ", "", `{"id":1}`, "Invalid identifier"},
			{"insert shown", `{"body":"x"}`, "", ""},
			{"insert notes", "", "", "INSERT requires non-empty data."},
			{"insert notes", "{}", "", "INSERT requires non-empty data."},
			{"insert notes", " [ ] ", "", "INSERT requires non-empty data."},
			{"insert notes", "[{}]", "", "INSERT requires non-empty data."},
			{"insert notes", `[{"body":"x"},{}]`, "", "INSERT requires non-empty data."},
			{"insert notes", `{"body":"x"}`, `{"id":1}`, "INSERT takes no where."},
			{"insert notes", `5`, "", "data must be an object, or an array of objects."},
			{"insert notes", `[5]`, "", "data must be an object, or an array of objects."},
			{"insert notes", `[{"body":"x"},{"body":"y","stars":1}]`, "", "All rows must have the same columns."},
			{"insert notes", `{"id":5}`, "", "INSERT data has only auto-generated columns."},
			{"insert notes", `{"body":"x","body":"y"}`, "", "Column 'body' is named twice"},
			{"insert notes", `{"nosuch":1}`, "", "Column 'nosuch' not found in table 'SCHEMA.notes'. Available columns: id, body, stars, made"},
			{"insert notes", `{"body) VALUES (1);--":1}`, "", "Invalid identifier"},
			{"insert kinds", `{"id":1,"twice":4}`, "", "Column 'twice' is computed"},
			{"update notes", "", `{"id":1}`, "UPDATE requires non-empty data."},
			{"update notes", `{"stars":1}`, "", "UPDATE requires non-empty where (mass updates not allowed)."},
			{"update notes", `{"stars":1}`, "{}", "UPDATE requires non-empty where (mass updates not allowed)."},
			{"update notes", `[{"stars":1},{"stars":2}]`, `{"id":1}`, "UPDATE takes one object as data, not an array."},
			{"update notes", `[{"stars":1}]`, `{"id":1}`, "UPDATE takes one object as data, not an array."},
			{"delete notes", "", "", "DELETE requires non-empty where (mass deletes not allowed)."},
			{"delete notes", "", "null", "DELETE requires non-empty where (mass deletes not allowed)."},
			{"delete notes", "", "[]", "DELETE requires non-empty where (mass deletes not allowed)."},
			{"delete notes", `{"id":1}`, `{"id":1}`, "DELETE takes no data."},
			{"delete notes", "", `{"id":[]}`, "The condition on 'id' is empty"},
			{"delete notes", "", `{"id":{"$gt":0}}`, "The condition on 'id' must be"},
			{"delete notes", "", `{"id":[[1]]}`, "The condition on 'id' must be"},
			{"delete notes", "", `{"1=1 OR id":1}`, "Invalid identifier"},
			{"delete notes", "", `"id = 1"`, "where must be an object"},
			{"delete notes", "", `{"id":1,"id":2}`, "Column 'id' is named twice"},
			{"insert notes", `{"body":"x","stars":"many"}`, "", "integer"},
			{"insert notes", `{"body":"x","stars":1.5}`, "", ""},
			{"insert notes", `{"body":"x","stars":99999999999999999999}`, "", ""},
			{"insert notes", `{"body":"x","stars":1e999999}`, "", "out of range"},
			{"insert notes", `{"body":"x","stars":{"a":1}}`, "", "takes no object"},
			{"insert notes", `{"body":"x\u0000"}`, "", "NUL character"},
			{"insert notes", `{"body":"first"}`, "", "constraint"},
			{"insert notes", `{"body":null}`, "", "body"},
			{"insert notes", `{"body":"x","stars":9}`, "", "constraint"},
			{"insert orders", `{"id":900,"customer_id":999,"ordered_on":"2025-01-01"}`, "", "A foreign key forbids the change"},
			{"delete orders", "", `{"id":1}`, "A foreign key forbids the change"},
			{"delete parents", "", `{"id":1}`, "data outside the grant"},
			{"update parents", `{"id":5}`, `{"id":1}`, "data outside the grant"},
			{"insert logged", `{"body":"x"}`, "", "data outside the grant"},
			{"insert notes", `{"body":"` + strings.Repeat("x", agentsql.MaxWriteBytes) + `"}`, "", "too long"},
		} {
			w := d.write(tc.what, tc.data, tc.where)
			w.Key = "refused"
			got, err := d.db.Write(t.Context(), w)
			want := strings.ReplaceAll(tc.want, "SCHEMA", d.schema)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %.80s %.80s: %+v, %v; want %q", tc.what, tc.data, tc.where, got, err, want)
				continue
			}
			d.checkMessage(t, tc.what+tc.data+tc.where+strings.Join(deskTables, " ")+" hob_agent_calls", err)
		}
		if after := d.digest(t); after != before {
			t.Errorf("something changed:\n%s\n%s", before, after)
		}
	})
}

// digest tells what lies in the desk's tables.
func (d desk) digest(t testing.TB) string {
	t.Helper()
	var all []string
	for _, table := range append([]string{"children", "audit", "secrets", "order_items"}, deskTables...) {
		all = append(all, table+" "+d.read(t, "SELECT count(*)||'' FROM "+table))
	}
	return strings.Join(append(all, d.read(t, "SELECT coalesce(sum(stars), 0)||'' FROM notes")), ", ")
}

func TestWrite_KeepsValuesExact(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		data := `{"id":1,"i":9007199254740993,"n":1.5e3,"f":0.1,"b":true,"t":"ä'\"\\","j":{"k":[1,2.50,"x"]},"d":"2025-03-04"}`
		if d.name == "postgres" {
			data = strings.TrimSuffix(data, "}") + `,"a":["x","y, {z}",null,"\"q\\"]}`
		}
		if _, err := d.db.Write(t.Context(), d.write("insert kinds", data, "")); err != nil {
			t.Fatal(err)
		}
		for query, want := range map[string]string{
			"SELECT i||'' FROM kinds":                     "9007199254740993",
			"SELECT twice||'' FROM kinds":                 "18014398509481986",
			"SELECT t FROM kinds":                         `ä'"\`,
			"SELECT count(*)||'' FROM kinds WHERE b":      "1",
			"SELECT (n = 1500)||'' FROM kinds":            map[string]string{"sqlite": "1", "postgres": "true"}[d.name],
			"SELECT f||'' FROM kinds":                     "0.1",
			"SELECT (j -> 'k' ->> 1)||'' FROM kinds":      "2.50",
			"SELECT d||'' FROM kinds":                     "2025-03-04",
			"SELECT coalesce(a, NULL) IS NULL FROM kinds": map[string]string{"sqlite": "1", "postgres": "false"}[d.name],
		} {
			if d.name == "sqlite" {
				query = strings.ReplaceAll(query, "j -> 'k' ->> 1", "j -> '$.k[1]'")
			}
			if got := d.read(t, query); got != want {
				t.Errorf("%s = %s, want %s", query, got, want)
			}
		}
		if d.name == "postgres" {
			if got, want := d.read(t, "SELECT array_to_json(a)::text FROM kinds"), `["x","y, {z}",null,"\"q\\"]`; got != want {
				t.Errorf("the array is %s, want %s", got, want)
			}
		}
		w := d.write("update kinds", `{"j":"{\"a\":1}","b":false,"n":12345678901234567890}`, `{"b":true,"i":9007199254740993}`)
		if got, err := d.db.Write(t.Context(), w); err != nil || got.Rows != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if got := d.read(t, "SELECT CAST(j AS text) FROM kinds"); got != `"{\"a\":1}"` {
			t.Errorf("a text in a JSON column is %s", got)
		}
	})
}

func TestWrite_HoldsToVerbsAndColumns(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		notes := d.schema + ".notes"
		d.grant.Operations = map[string][]agentsql.Operation{notes: {agentsql.Insert, agentsql.Update}, d.schema + ".parents": {}}
		d.grant.Columns = map[string][]string{notes: {"body", "stars"}}
		for what, want := range map[[3]string]string{
			{"insert notes", `{"body":"x"}`, ""}:                          "",
			{"update notes", `{"stars":1}`, `{"made":"2025-01-01"}`}:      "",
			{"delete notes", ``, `{"id":1}`}:                              "Table '" + notes + "' does not allow delete. Allowed operations: insert, update",
			{"insert notes", `{"body":"z","made":"2025-01-01"}`, ""}:      "Column 'made' of table '" + notes + "' may not be written. Writable columns: body, stars",
			{"update notes", `{"made":"2025-01-01"}`, `{"body":"first"}`}: "Column 'made' of table",
			{"update parents", `{"name":"x"}`, `{"id":1}`}:                "Allowed operations: none",
		} {
			_, err := d.db.Write(t.Context(), d.write(what[0], what[1], what[2]))
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%v: %v, want %q", what, err, want)
			}
		}
		d.grant.Operations["other.table"] = nil
		if _, err := d.db.Write(t.Context(), d.write("insert notes", `{"body":"y"}`, "")); kindOf(err) != agentsql.Invalid {
			t.Errorf("a grant of verbs on a table that is not granted: %v", err)
		}
	})
}

func TestWrite_ATableOfTwoSchemasIsAmbiguous(t *testing.T) {
	t.Parallel()
	d := newDesk(t, postgresEngine(t))
	d.grant.Tables = agentsql.Grant{"hob_demo": {"secrets"}, "public": {"secrets"}}
	_, err := d.db.Write(t.Context(), d.write("delete secrets", "", `{"id":1}`))
	if want := "Table 'secrets' is ambiguous. Use one of: hob_demo.secrets, public.secrets"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if got, err := d.db.Write(t.Context(), d.write("delete public.secrets", "", `{"id":1}`)); err != nil || got.Rows != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if n := d.read(t, "SELECT count(*)||'' FROM hob_demo.secrets"); n != "1" {
		t.Errorf("the other table has %s rows", n)
	}
}

// Over the cap nothing is changed, however the rows were met.
func TestWrite_TakesBackWhatIsOverTheCap(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		d.grant.SideEffects = true
		before := d.digest(t)
		for what, w := range map[string]agentsql.Write{
			"insert":  d.write("insert notes", `[{"body":"a"},{"body":"b"},{"body":"c"}]`, ""),
			"update":  d.write("update notes", `{"stars":5}`, `{"made":"2025-01-01"}`),
			"delete":  d.write("delete notes", "", `{"body":["first","second","third"]}`),
			"cascade": d.write("delete parents", "", `{"id":1}`),
		} {
			w.Limits.Rows, w.Key = 2, "over "+what
			_, err := d.db.Write(t.Context(), w)
			if kindOf(err) != agentsql.Refused || !strings.Contains(err.Error(), "more than 2 rows; nothing was changed") {
				t.Errorf("%s: %v", what, err)
			}
			if _, err := d.db.Preview(t.Context(), w); kindOf(err) != agentsql.Refused {
				t.Errorf("preview of %s: %v", what, err)
			}
			if after := d.digest(t); after != before {
				t.Errorf("%s changed something:\n%s\n%s", what, before, after)
			}
			w.Limits.Rows = 3
			if got, err := d.db.Preview(t.Context(), w); err != nil || got.Rows == 0 {
				t.Errorf("%s with room: %+v, %v", what, got, err)
			}
		}
		w := d.write("update notes", `{"stars":5}`, `{"made":"2025-01-01"}`)
		d.script(t, "INSERT INTO notes (body) "+map[string]string{
			"sqlite":   "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 98) SELECT 'n' || n FROM c",
			"postgres": "SELECT 'n' || n FROM generate_series(1, 98) n",
		}[d.name])
		if _, err := d.db.Write(t.Context(), w); kindOf(err) != agentsql.Refused || !strings.Contains(err.Error(), "more than 100 rows") {
			t.Errorf("101 rows with the default: %v", err)
		}
		d.script(t, "DELETE FROM notes WHERE body = 'n1'")
		if got, err := d.db.Write(t.Context(), w); err != nil || got.Rows != agentsql.DefaultWriteRows {
			t.Errorf("100 rows with the default: %+v, %v", got, err)
		}
	})
}

// A where of a thousand values is one statement; one more is refused.
func TestWrite_BoundsValues(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		where := func(n int) string { return `{"id":[` + strings.Repeat("9,", n-1) + `9]}` }
		if _, err := d.db.Write(t.Context(), d.write("delete notes", "", where(agentsql.MaxWriteValues))); err != nil {
			t.Errorf("%d values: %v", agentsql.MaxWriteValues, err)
		}
		if _, err := d.db.Write(t.Context(), d.write("delete notes", "", where(agentsql.MaxWriteValues+1))); kindOf(err) != agentsql.Invalid {
			t.Errorf("%d values: %v", agentsql.MaxWriteValues+1, err)
		}
	})
}

func TestWrite_SideEffectsAreNamedAndNeedConsent(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		key := map[string]string{"sqlite": "children.parent", "postgres": "children_parent_fkey"}[d.name]
		s := d.schema
		got, err := d.db.SideEffects(t.Context(), d.grant)
		want := []string{
			"delete on " + s + ".parents goes on to delete rows of " + s + ".children (foreign key " + key + ")",
			"insert on " + s + `.logged runs trigger "log_it"`,
			"update on " + s + ".parents goes on to update rows of " + s + ".children (foreign key " + key + ")",
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("side effects (-want +got):\n%s%v", diff, err)
		}
		whole := d.grant
		whole.Tables = agentsql.Grant{s: append([]string{"children"}, deskTables...)}
		if got, err := d.db.SideEffects(t.Context(), whole); err != nil || len(got) != 1 {
			t.Errorf("with the children granted: %q, %v", got, err)
		}
		d.grant.SideEffects = true
		for what, check := range map[[2]string]string{
			{"delete parents", `{"id":1}`}:    "SELECT (count(*) = 0)||'' FROM children",
			{"insert logged", `{"body":"x"}`}: "SELECT (count(*) = 1)||'' FROM audit WHERE what = 'x'",
		} {
			w := d.write(what[0], "", what[1])
			if w.Operation == agentsql.Insert {
				w.Data, w.Where = w.Where, nil
			}
			if got, err := d.db.Write(t.Context(), w); err != nil || got.Rows != 1 {
				t.Errorf("%v: %+v, %v", what, got, err)
			}
			if got := d.read(t, check); got != "true" && got != "1" {
				t.Errorf("%v: %s is %s", what, check, got)
			}
		}
	})
}

// Of all tries with one key a single one takes effect.
func TestWrite_HappensOncePerKey(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		w := d.write("insert notes", `{"body":"once"}`, "")
		w.Key, w.Returning = "run:call", []string{"id"}
		first, err := d.db.Write(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		d.script(t, "DELETE FROM notes WHERE body = 'once'")
		again := d.reopen(t) // another process takes the run over
		second, err := again.Write(t.Context(), w)
		if diff := cmp.Diff(first, second); err != nil || diff != "" {
			t.Errorf("the second try (-first +second):\n%s%v", diff, err)
		}
		if n := d.read(t, "SELECT count(*)||'' FROM notes WHERE body = 'once'"); n != "0" {
			t.Errorf("the second try made %s rows", n)
		}
		w.Data = json.RawMessage(`{"body":"other"}`)
		if _, err := again.Write(t.Context(), w); kindOf(err) != agentsql.Refused || !strings.Contains(err.Error(), "key was used for another change") {
			t.Errorf("the key with other arguments: %v", err)
		}
		w.Key = "run:call2"
		if got, err := again.Write(t.Context(), w); err != nil || got.Rows != 1 {
			t.Errorf("another key: %+v, %v", got, err)
		}
	})
}

// reopen is the database as another process opens it.
func (d desk) reopen(t *testing.T) agentsql.DB {
	t.Helper()
	if d.name == "postgres" {
		return openPostgres(t, d.where)
	}
	db, err := agentsql.OpenSQLite(d.where, agentsql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeDB(t, db) })
	return db
}

func TestWrite_TriesAtTheSameTimeHappenOnce(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		w := d.write("update notes", `{"made":"2025-05-05"}`, `{"body":"first"}`)
		insert := d.write("insert parents", `{"id":50,"name":"x"}`, "")
		insert.Key, w.Key = "same", "same too"
		other := d.reopen(t)
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				db := []agentsql.DB{d.db, other}[i%2]
				for _, w := range []agentsql.Write{insert, w} {
					got, err := db.Write(t.Context(), w)
					if k := kindOf(err); err != nil && k != agentsql.Busy || err == nil && got.Rows != 1 {
						t.Errorf("%+v, %v", got, err)
					}
				}
			})
		}
		wg.Wait()
		if n := d.read(t, "SELECT count(*)||'' FROM parents WHERE id = 50"); n != "1" {
			t.Errorf("%s rows, want one", n)
		}
	})
}

// A try that may not begin any more changes nothing, though it got all the way.
func TestWrite_IsTakenBackWhenItIsTooLate(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		before := d.digest(t)
		w := d.write("insert notes", `{"body":"late"}`, "")
		w.Key, w.BeginBy = "late", time.Now().Add(-time.Second)
		if _, err := d.db.Write(t.Context(), w); kindOf(err) != agentsql.Busy {
			t.Errorf("error %v", err)
		}
		if after := d.digest(t); after != before {
			t.Errorf("something changed:\n%s\n%s", before, after)
		}
		w.BeginBy = time.Now().Add(time.Minute)
		if got, err := d.db.Write(t.Context(), w); err != nil || got.Rows != 1 {
			t.Errorf("in time: %+v, %v", got, err)
		}
	})
}

func TestWrite_ForgetsOldMarkers(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		w := d.write("insert notes", `{"body":"old"}`, "")
		w.Key = "old"
		if _, err := d.db.Write(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		table := "hob_agent_calls"
		if d.name == "postgres" {
			table = "hob_agent_calls.calls"
			d.script(t, "UPDATE hob_agent_calls.calls SET at = now() - interval '8 days'")
		} else {
			d.script(t, "UPDATE hob_agent_calls SET at = at - 8 * 24 * 3600")
		}
		w.Key, w.Data = "new", json.RawMessage(`{"body":"new"}`)
		if _, err := d.reopen(t).Write(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if got := d.read(t, "SELECT min(key) || count(*) FROM "+table); got != "new1" {
			t.Errorf("the markers are %s, want new1", got)
		}
	})
}

// Markers are out of agents' reach, by query and by write.
func TestWrite_MarkersAreOutOfReach(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		w := d.write("insert notes", `{"body":"x"}`, "")
		w.Key = "mine"
		if _, err := d.db.Write(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		e := d.engine
		if d.name == "sqlite" {
			e.grant = agentsql.Grant{"main": {"hob_agent_calls", "orders"}}
		}
		for _, statement := range []string{"SELECT * FROM hob_agent_calls", "SELECT * FROM hob_agent_calls.calls", "SELECT count(*) FROM calls"} {
			if rows, err := e.query(t.Context(), statement); err == nil {
				t.Errorf("%s: %s", statement, rows.JSON)
			}
		}
		d.grant.Tables = e.grant
		if _, err := d.db.Write(t.Context(), d.write("delete hob_agent_calls", "", `{"key":"mine"}`)); err == nil {
			t.Error("a marker was deleted")
		}
		if _, err := agentsql.ParseGrant(json.RawMessage(`{"hob_agent_calls":["calls"]}`)); kindOf(err) != agentsql.Invalid {
			t.Errorf("the schema of markers was granted: %v", err)
		}
	})
}

func TestPreview_TellsTheChangeAndLeavesNothing(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		before := d.digest(t)
		for _, tc := range []struct{ what, data, where, want string }{
			{
				"insert notes", `{"body":"new","stars":5}`, "",
				`{"operation":"insert","table":"SCHEMA.notes","rows_affected":1,"rows":[{"before":null,"after":{"id":4,"body":"new","stars":5,"made":"2025-01-01"}}],"truncated":false}`,
			},
			{
				"update notes", `{"stars":5}`, `{"body":["second","first"]}`,
				`{"operation":"update","table":"SCHEMA.notes","rows_affected":2,"rows":[` +
					`{"before":{"id":1,"body":"first","stars":1,"made":"2025-01-01"},"after":{"id":1,"body":"first","stars":5,"made":"2025-01-01"}},` +
					`{"before":{"id":2,"body":"second","stars":2,"made":"2025-01-01"},"after":{"id":2,"body":"second","stars":5,"made":"2025-01-01"}}],"truncated":false}`,
			},
			{
				"delete notes", "", `{"stars":null}`,
				`{"operation":"delete","table":"SCHEMA.notes","rows_affected":1,"rows":[{"before":{"id":3,"body":"third","stars":null,"made":"2025-01-01"},"after":null}],"truncated":false}`,
			},
			{"delete notes", "", `{"id":99}`, `{"operation":"delete","table":"SCHEMA.notes","rows_affected":0,"rows":[],"truncated":false}`},
		} {
			w := d.write(tc.what, tc.data, tc.where)
			w.Key = "previewed"
			p, err := d.db.Preview(t.Context(), w)
			if err != nil {
				t.Errorf("%s: %v", tc.what, err)
				continue
			}
			got, err := json.Marshal(p)
			if diff := cmp.Diff(strings.ReplaceAll(tc.want, "SCHEMA", d.schema), string(got)); err != nil || diff != "" {
				t.Errorf("%s (-want +got):\n%s%v", tc.what, diff, err)
			}
		}
		if after := d.digest(t); after != before {
			t.Errorf("something changed:\n%s\n%s", before, after)
		}
		w := d.write("delete notes", "", `{"id":1}`)
		w.Key = "previewed"
		if got, err := d.db.Write(t.Context(), w); err != nil || got.Rows != 1 {
			t.Errorf("a preview used the key up: %+v, %v", got, err)
		}
		d.script(t, "INSERT INTO notes (body) "+map[string]string{
			"sqlite":   "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 30) SELECT 'n' || n FROM c",
			"postgres": "SELECT 'n' || n FROM generate_series(1, 30) n",
		}[d.name])
		p, err := d.db.Preview(t.Context(), d.write("update notes", `{"stars":1}`, `{"made":"2025-01-01"}`))
		if err != nil || p.Rows != 32 || len(p.Changes) != 20 || !p.Truncated {
			t.Errorf("%d rows, %d shown, truncated %t, %v", p.Rows, len(p.Changes), p.Truncated, err)
		}
		if _, err := d.db.Preview(t.Context(), d.write("delete notes", "", "")); kindOf(err) != agentsql.Invalid {
			t.Errorf("a preview without where: %v", err)
		}
	})
}

func TestDescribeWrites_TellsVerbsAndWhatAnInsertNeeds(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		d.grant.Tables = agentsql.Grant{d.schema: {"notes", "parents", "shown", "nothing"}}
		d.grant.Operations = map[string][]agentsql.Operation{d.schema + ".parents": {agentsql.Update}}
		d.grant.Columns = map[string][]string{d.schema + ".parents": {"name"}}
		got, err := d.db.DescribeWrites(t.Context(), d.grant)
		if err != nil || len(got.Tables) != 2 || len(got.Missing) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		text := got.WriteText(d.grant)
		for _, want := range []string{
			"; allowed: insert, update, delete; insert needs: body; filled in by the database: id\n", "; allowed: update; writable columns: name\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q lacks %q", text, want)
			}
		}
	})
}

// A change ends at its time, and leaves nothing behind.
func TestWrite_StopsAtItsTimeout(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		if d.name == "postgres" {
			d.script(t, "CREATE OR REPLACE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END'")
		} else {
			d.script(t, "CREATE TRIGGER slow AFTER INSERT ON logged BEGIN INSERT INTO audit SELECT count(*) FROM ("+endless+"); END")
		}
		d.grant.SideEffects = true
		before := d.digest(t)
		w := d.write("insert logged", `{"body":"slow"}`, "")
		w.Limits.Timeout, w.Key = 300*time.Millisecond, "slow"
		start := time.Now()
		_, err := d.db.Write(t.Context(), w)
		if took := time.Since(start); kindOf(err) != agentsql.Timeout || took > w.Limits.Timeout+2*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if after := d.digest(t); after != before {
			t.Errorf("something changed:\n%s\n%s", before, after)
		}
		if got, err := d.db.Write(t.Context(), d.write("insert notes", `{"body":"next"}`, "")); err != nil || got.Rows != 1 {
			t.Errorf("the next change: %+v, %v", got, err)
		}
	})
}

// Rows that another transaction holds are not waited for without end.
func TestWrite_DoesNotWaitForLocksWithoutEnd(t *testing.T) {
	t.Parallel()
	eachDesk(t, func(t *testing.T, d desk) {
		release := d.hold(t)
		start := time.Now()
		_, err := d.db.Write(t.Context(), d.write("update notes", `{"stars":1}`, `{"body":"first"}`))
		if took := time.Since(start); kindOf(err) != agentsql.Busy || took > 5*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		release()
		if got, err := d.db.Write(t.Context(), d.write("update notes", `{"stars":1}`, `{"body":"first"}`)); err != nil || got.Rows != 1 {
			t.Errorf("behind the lock: %+v, %v", got, err)
		}
	})
}

// hold locks the notes until the returned function is called.
func (d desk) hold(t *testing.T) (release func()) {
	t.Helper()
	if d.name == "postgres" {
		conn, err := pgx.Connect(t.Context(), d.where)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "BEGIN; SELECT * FROM hob_demo.notes FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		return func() { conn.Close(context.WithoutCancel(t.Context())) }
	}
	u := url.URL{Scheme: "file", OmitHost: true, Path: d.where, RawQuery: "_txlock=immediate"}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = tx.Rollback()
		db.Close()
	}
}

// What a process that died left half written is taken back at the next start,
// and queries read on.
func TestOpenSQLite_TakesBackWhatACrashLeft(t *testing.T) {
	t.Parallel()
	d := newDesk(t, sqliteEngine(t))
	before := d.digest(t)
	page := make([]byte, 512)
	f, err := os.Open(d.where)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(page); err != nil {
		t.Fatal(err)
	}
	f.Close()
	// A journal of zero pages: its header alone says that a write was under way.
	journal := []byte{0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7}
	journal = append(journal, make([]byte, 4)...)                                        // no records
	journal = append(journal, 1, 2, 3, 4)                                                // nonce
	journal = binary.BigEndian.AppendUint32(journal, binary.BigEndian.Uint32(page[28:])) // pages of the file
	journal = binary.BigEndian.AppendUint32(journal, 512)
	journal = binary.BigEndian.AppendUint32(journal, uint32(binary.BigEndian.Uint16(page[16:])))
	journal = append(journal, make([]byte, 512-len(journal))...)
	if err := os.WriteFile(d.where+"-journal", journal, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.query(t.Context(), "SELECT count(*) FROM orders"); err == nil {
		t.Error("a file with a journal to roll back was read as it is")
	}
	again := d.reopen(t)
	if rows, err := again.Query(t.Context(), agentsql.Query{Grant: d.engine.grant, SQL: "SELECT count(*) AS n FROM orders"}); err != nil || string(rows.JSON) != `[{"n":60}]` {
		t.Errorf("behind the next start: %s, %v", rows.JSON, err)
	}
	if after := d.digest(t); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
}

// Consent gives no rights: a trigger that works with those of the agents' login may need more, and the refusal says so.
func TestWrite_ATriggerThatMayNotDoItsWorkIsNamed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, postgresEngine(t))
	d.script(t, "ALTER FUNCTION log_it() SECURITY INVOKER")
	d.grant.SideEffects = true
	_, err := d.db.Write(t.Context(), agentsql.Write{
		Grant: d.grant, Table: "logged", Operation: agentsql.Insert, Data: json.RawMessage(`{"body":"x"}`), Agent: "tester",
	})
	if kindOf(err) != agentsql.Refused || !strings.Contains(err.Error(), "trigger log_it") || !strings.Contains(err.Error(), "SECURITY DEFINER") || strings.Contains(err.Error(), "audit") {
		t.Errorf("got %v", err)
	}
}

func TestWrite_KeepsEveryDigitOrRefuses(t *testing.T) {
	t.Parallel()
	d := newDesk(t, sqliteEngine(t))
	d.script(t, "CREATE TABLE anything (id INTEGER PRIMARY KEY, v ANY); CREATE TABLE free (id INTEGER PRIMARY KEY, v)")
	d.grant.Tables = agentsql.Grant{"main": {"anything", "free"}}
	for _, table := range []string{"anything", "free"} {
		for value, ok := range map[string]bool{"9223372036854775807": true, "9223372036854775808": false, "12345678901234567890123": false, "1.5": true, `"12345678901234567890123"`: true} {
			_, err := d.db.Write(t.Context(), agentsql.Write{
				Grant: d.grant, Table: table, Operation: agentsql.Insert, Data: json.RawMessage(`{"v":` + value + `}`), Agent: "tester",
			})
			if (err == nil) != ok {
				t.Errorf("%s into %s: %v", value, table, err)
			}
		}
	}
}
