package agentsql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hob/internal/agentsql"
)

// writers are the agents' logins to write with rights in this database.
func writers(t *testing.T, where string) []string {
	t.Helper()
	return scanAll(t, where, `SELECT DISTINCT a.rolname::text FROM pg_roles a JOIN pg_shdepend d ON d.refobjid = a.oid
		WHERE a.rolname ~ '^hob_write_' AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// The writer's login alone, with nothing of ours in front of it, is a wall.
func TestPostgres_TheWritersLoginItselfIsAWall(t *testing.T) {
	t.Parallel()
	d := newDesk(t, postgresEngine(t))
	d.grant.Operations = map[string][]agentsql.Operation{"hob_demo.orders": {agentsql.Update}, "hob_demo.parents": {}}
	d.grant.Columns = map[string][]string{"hob_demo.orders": {"note"}}
	w := d.write("update orders", `{"note":"x"}`, `{"id":1}`)
	w.Key = "theirs"
	if _, err := d.db.Write(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	names := writers(t, d.where)
	if len(names) != 1 {
		t.Fatalf("logins %q, want one", names)
	}
	conn, err := pgx.Connect(t.Context(), asUser(t, d.where, names[0], ""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, statement := range []string{
		"SELECT * FROM public.secrets", "INSERT INTO public.secrets VALUES (9, 'x')", "DELETE FROM hob_demo.secrets",
		"DELETE FROM hob_demo.orders", "INSERT INTO hob_demo.orders VALUES (99, 1, 'open', '2025-01-01', NULL)",
		"UPDATE hob_demo.orders SET status = 'paid'", "UPDATE hob_demo.parents SET name = 'x'", "DELETE FROM hob_demo.children",
		"TRUNCATE hob_demo.notes", "DROP TABLE hob_demo.notes", "ALTER TABLE hob_demo.notes ADD x int", "CREATE TABLE hob_demo.x (a int)",
		"CREATE TRIGGER t AFTER INSERT ON hob_demo.notes EXECUTE FUNCTION hob_demo.log_it()", "CREATE INDEX ON hob_demo.notes (stars)",
		"DELETE FROM hob_agent_calls.calls", "UPDATE hob_agent_calls.calls SET result = ''", "CREATE TABLE hob_agent_calls.x (a int)",
		"INSERT INTO hob_agent_calls.calls VALUES ('forged', '', '')", "SET ROLE postgres", "CREATE ROLE x",
		"COPY hob_demo.notes TO PROGRAM 'cat'", "SELECT nextval('hob_demo.counter')",
	} {
		_, err := conn.Exec(t.Context(), statement)
		var e interface{ SQLState() string }
		if !errors.As(err, &e) || e.SQLState() != "42501" {
			t.Errorf("%s: %v", statement, err)
		}
	}
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM hob_agent_calls.calls").Scan(&n); err != nil || n != 0 {
		t.Errorf("without its key a session sees %d markers, %v", n, err)
	}
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM hob_agent_calls.calls WHERE set_config('hob.call_key', 'theirs', false) <> ''").Scan(&n); err != nil {
		t.Error(err)
	}
	if tag, err := conn.Exec(t.Context(), "UPDATE hob_demo.orders SET note = 'y' WHERE id = 1"); err != nil || tag.RowsAffected() != 1 {
		t.Errorf("what is granted: %v, %v", tag, err)
	}
}

func TestPostgres_RefusesAPowerfulWriter(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ give, text string }{
		"member":       {"GRANT pg_write_all_data TO %s", "pg_write_all_data"},
		"owner":        {"ALTER TABLE hob_demo.notes OWNER TO %s", "owns"},
		"another verb": {"GRANT TRUNCATE ON hob_demo.notes TO %s", "TRUNCATE"},
		"more table":   {"GRANT INSERT ON public.secrets TO %s", "secrets"},
		"column":       {"GRANT UPDATE (token) ON public.secrets TO %s", "token"},
		"markers":      {"GRANT DELETE ON hob_agent_calls.calls TO %s", "hob_agent_calls"},
		"function":     {"GRANT EXECUTE ON FUNCTION hob_demo.steal() TO %s", "EXECUTE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, postgresEngine(t))
			plain := maker(t, d.where)
			write := func(key string) error {
				db, err := agentsql.OpenPostgres(t.Context(), plain, agentsql.Options{Secret: agentSecret()})
				if err != nil {
					t.Fatal(err)
				}
				defer closeDB(t, db)
				w := d.write("insert notes", `{"body":"`+key+`"}`, "")
				w.Key = key
				_, err = db.Write(t.Context(), w)
				return err
			}
			if err := write("before"); err != nil {
				t.Fatal(err)
			}
			writePostgres(t, d.where, fmt.Sprintf(tc.give, writers(t, d.where)[0]))
			err := write("after")
			var own *agentsql.Error
			if !errors.As(err, &own) || own.Kind != agentsql.Unavailable || own.Cause() == nil || !strings.Contains(own.Cause().Error(), tc.text) {
				t.Errorf("%v, want %s because of %s", err, agentsql.Unavailable, tc.text)
			}
			if n := d.read(t, "SELECT count(*)||'' FROM notes WHERE body = 'after'"); n != "0" {
				t.Error("it wrote all the same")
			}
		})
	}
}

// A maker that may not make the markers' schema says what it needs; queries go on.
func TestPostgres_SaysWhyWritesAreOff(t *testing.T) {
	t.Parallel()
	d := newDesk(t, postgresEngine(t))
	plain := maker(t, d.where)
	writePostgres(t, d.where, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO postgres', current_database()); END $$")
	db, err := agentsql.OpenPostgres(t.Context(), plain, agentsql.Options{Secret: agentSecret()})
	if err != nil {
		t.Fatal(err)
	}
	defer closeDB(t, db)
	_, err = db.Write(t.Context(), d.write("insert notes", `{"body":"x"}`, ""))
	if kindOf(err) != agentsql.Unavailable || !strings.Contains(err.Error(), "GRANT CREATE ON DATABASE") {
		t.Errorf("error %v", err)
	}
	if !hasFinding(db.Check(t.Context()), agentsql.Fault, "GRANT CREATE ON DATABASE") {
		t.Errorf("the doctor does not tell: %v", db.Check(t.Context()))
	}
	if _, err := db.Query(t.Context(), agentsql.Query{Grant: d.engine.grant, SQL: "SELECT count(*) FROM orders"}); err != nil {
		t.Errorf("a query: %v", err)
	}
}

// A session that wrote is handed on with nothing of the change in it, whatever
// the database's own triggers did.
func TestPostgres_AWritersSessionIsCleanForTheNext(t *testing.T) {
	t.Parallel()
	d := newDesk(t, postgresEngine(t))
	d.script(t, `CREATE OR REPLACE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF current_setting('hob.mess', true) = 'yes' OR EXISTS (SELECT FROM pg_class WHERE relname = 'left_over')
			OR EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 77)
			OR EXISTS (SELECT FROM pg_prepared_statements) OR EXISTS (SELECT FROM pg_listening_channels())
			OR EXISTS (SELECT FROM pg_cursors WHERE name = 'left_over') THEN
			RAISE EXCEPTION 'something was left';
		END IF;
		PERFORM set_config('hob.mess', 'yes', false), pg_advisory_lock(77);
		CREATE TEMP TABLE left_over (a int);
		EXECUTE 'LISTEN gossip'; EXECUTE 'PREPARE left_over AS SELECT 1'; EXECUTE 'DECLARE left_over CURSOR WITH HOLD FOR SELECT 1';
		RETURN NEW; END $$`)
	d.grant.SideEffects = true
	for i := range 3 {
		w := d.write("insert logged", `{"body":"x"}`, "")
		w.Key = fmt.Sprint("clean ", i)
		if _, err := d.db.Preview(t.Context(), w); err != nil {
			t.Errorf("preview %d: %v %v", i, err, causeOf(err))
		}
		if _, err := d.db.Write(t.Context(), w); err != nil {
			t.Errorf("write %d: %v %v", i, err, causeOf(err))
		}
	}
	if n := scanAll(t, d.where, "SELECT count(*)::text FROM pg_stat_activity WHERE usename ~ '^hob_write_' AND datname = current_database()"); n[0] != "1" {
		t.Errorf("%s sessions of the writer, want one that was used again", n[0])
	}
}

func causeOf(err error) error {
	var own *agentsql.Error
	if errors.As(err, &own) {
		return own.Cause()
	}
	return nil
}
