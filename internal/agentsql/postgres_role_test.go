package agentsql_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hob/internal/agentsql"
	"hob/internal/pgtest"
)

// asUser is a database's URL with another user.
func asUser(t *testing.T, where, user, password string) string {
	t.Helper()
	u, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// scanAll runs a query of the administrator that gives one text per row.
func scanAll(t *testing.T, where, sql string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// readers are the agents' logins with rights in this database.
func readers(t *testing.T, where string) []string {
	t.Helper()
	return scanAll(t, where, `SELECT DISTINCT a.rolname::text FROM pg_roles a JOIN pg_shdepend d ON d.refobjid = a.oid
		WHERE a.rolname ~ '^hob_agent_' AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// The login alone, with none of our checks in front of it, is a wall.
func TestPostgres_TheLoginItselfIsAWall(t *testing.T) {
	t.Parallel()
	e := postgresEngine(t)
	e.works(t)
	names := readers(t, e.where)
	if len(names) != 1 {
		t.Fatalf("logins %q, want one", names)
	}
	conn, err := pgx.Connect(t.Context(), asUser(t, e.where, names[0], "any: the test cluster trusts"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for statement, code := range map[string]string{
		"SELECT * FROM public.secrets":                            "42501",
		"SELECT * FROM hob_demo.customers":                        "42501",
		"SELECT * FROM private.secrets":                           "42501",
		"SELECT rolpassword FROM pg_authid":                       "42501",
		"SELECT pg_read_file('PG_VERSION')":                       "42501",
		"SET ROLE postgres":                                       "42501",
		"SELECT set_config('role', 'postgres', true)":             "42501",
		"CREATE TABLE public.x (a int)":                           "25006",
		"BEGIN READ WRITE; CREATE TABLE public.x (a int)":         "42501",
		"BEGIN READ WRITE; CREATE TABLE hob_demo.x (a int)":       "42501",
		"BEGIN READ WRITE; DELETE FROM hob_demo.orders":           "42501",
		"BEGIN READ WRITE; UPDATE hob_demo.orders SET note = 'x'": "42501",
		"BEGIN READ WRITE; CREATE ROLE x":                         "42501",
		"BEGIN READ WRITE; CREATE DATABASE x":                     "42501",
		"DELETE FROM hob_demo.orders":                             "42501",
		"COPY hob_demo.orders TO PROGRAM 'cat'":                   "42501",
		"SELECT nextval('hob_demo.counter')":                      "42501",
	} {
		_, err := conn.Exec(t.Context(), statement)
		var e interface{ SQLState() string }
		if !errors.As(err, &e) || e.SQLState() != code && e.SQLState() != "25006" && e.SQLState() != "25001" {
			t.Errorf("%s: %v, want code %s", statement, err, code)
		}
		if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM hob_demo.orders").Scan(&n); err != nil || n != 60 {
		t.Errorf("the granted table: %d rows, %v", n, err)
	}
	for setting, want := range map[string]string{
		"default_transaction_read_only": "on", "lock_timeout": "2s", "work_mem": "16MB", "temp_file_limit": "256MB",
		"statement_timeout": "5min", "idle_in_transaction_session_timeout": "15s",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", setting, got, err, want)
		}
	}
	attributes := scanAll(t, e.where, `SELECT concat_ws(',', rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls, rolinherit, rolcanlogin, rolconnlimit)
		FROM pg_roles WHERE rolname = '`+names[0]+`'`)
	if want := "f,f,f,f,f,f,t,64"; attributes[0] != want {
		t.Errorf("attributes %s, want %s", attributes[0], want)
	}
}

func TestPostgres_EachGrantHasItsOwnLogin(t *testing.T) {
	t.Parallel()
	e := postgresEngine(t)
	e.works(t)
	e.grant = agentsql.Grant{"hob_demo": {"products"}}
	if _, err := e.query(t.Context(), "SELECT count(*) FROM orders"); kindOf(err) != agentsql.Refused {
		t.Errorf("orders under the smaller grant: %v", err)
	}
	if _, err := e.query(t.Context(), "SELECT count(*) FROM products"); err != nil {
		t.Errorf("products under the smaller grant: %v", err)
	}
	e.grant = agentsql.Grant{"public": {"secrets"}, "hob_demo": {"orders"}}
	rows, err := e.query(t.Context(), "SELECT s.token, o.id FROM secrets s JOIN orders o USING (id)")
	if err == nil {
		t.Errorf("hob_demo.secrets is not granted, and first in the path: %s", rows.JSON)
	}
	if rows, err = e.query(t.Context(), "SELECT token FROM public.secrets"); err != nil || !strings.Contains(string(rows.JSON), secret) {
		t.Errorf("a granted table: %s, %v", rows.JSON, err)
	}
	if names := readers(t, e.where); len(names) != 3 {
		t.Errorf("logins %q, want three", names)
	}
}

func TestPostgres_SaysWhyItIsOff(t *testing.T) {
	t.Parallel()
	where := pgtest.URL(t)
	if err := agentsql.SeedPostgres(t.Context(), where); err != nil {
		t.Fatal(err)
	}
	suffix := strings.TrimPrefix(scanAll(t, where, "SELECT current_database()::text")[0], "hob_test_")
	plain, maker, owner := "plain_"+suffix, "maker_"+suffix, "owner_"+suffix
	writePostgres(t, where, fmt.Sprintf(`CREATE ROLE %s LOGIN; CREATE ROLE %s LOGIN CREATEROLE; CREATE ROLE %s LOGIN CREATEROLE;
		CREATE SCHEMA owned AUTHORIZATION %[3]s; CREATE TABLE owned.things (id int); ALTER TABLE owned.things OWNER TO %[3]s;`, plain, maker, owner))
	t.Cleanup(func() {
		dropLogins(t, where)
		writePostgres(t, where, fmt.Sprintf("DROP OWNED BY %s, %s, %s CASCADE; DROP ROLE %[1]s, %[2]s, %[3]s", plain, maker, owner))
	})
	options := agentsql.Options{Secret: agentSecret()}

	_, err := agentsql.OpenPostgres(t.Context(), where, options)
	if kindOf(err) != agentsql.Powerful || !strings.Contains(err.Error(), "postgres, is a superuser") {
		t.Errorf("a superuser: %v", err)
	}
	if _, err := agentsql.OpenPostgres(t.Context(), where, agentsql.Options{Secret: []byte("short")}); err == nil {
		t.Error("a short secret was accepted")
	}
	_, err = agentsql.OpenPostgres(t.Context(), asUser(t, where, plain, ""), options)
	if kindOf(err) != agentsql.Unavailable || !strings.Contains(err.Error(), "CREATEROLE") {
		t.Errorf("a user without CREATEROLE: %v", err)
	}
	_, err = agentsql.OpenPostgres(t.Context(), "postgres://nobody:hidden@127.0.0.1:1/x", options)
	if kindOf(err) != agentsql.Unavailable || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("a server that is not there: %v", err)
	}

	db, err := agentsql.OpenPostgres(t.Context(), asUser(t, where, maker, ""), options)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDB(t, db)
	_, err = db.Query(t.Context(), agentsql.Query{Grant: agentsql.Grant{"hob_demo": {"orders"}}, SQL: "SELECT 1"})
	if kindOf(err) != agentsql.Unavailable || !strings.Contains(err.Error(), "ownership") {
		t.Errorf("a maker that owns nothing: %v", err)
	}

	owned, err := agentsql.OpenPostgres(t.Context(), asUser(t, where, owner, ""), options)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDB(t, owned)
	rows, err := owned.Query(t.Context(), agentsql.Query{Grant: agentsql.Grant{"owned": {"things"}}, SQL: "SELECT count(*) AS n FROM things"})
	if err != nil || string(rows.JSON) != `[{"n":0}]` {
		t.Errorf("a maker with CREATEROLE and ownership, no superuser: %s, %v", rows.JSON, err)
	}
	if !hasFinding(owned.Check(t.Context()), agentsql.Warning, "temp_file_limit") {
		t.Errorf("no warning of the cap that could not be set: %v", owned.Check(t.Context()))
	}
}

func hasFinding(all []agentsql.Finding, level agentsql.Level, text string) bool {
	return slices.ContainsFunc(all, func(f agentsql.Finding) bool { return f.Level == level && strings.Contains(f.Text, text) })
}

func TestPostgres_RefusesAPowerfulLogin(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ give, text string }{
		"superuser":  {"ALTER ROLE %s SUPERUSER", "SUPERUSER"},
		"member":     {"GRANT pg_read_all_data TO %s", "pg_read_all_data"},
		"owner":      {"ALTER TABLE hob_demo.orders OWNER TO %s", "owns"},
		"more table": {"GRANT SELECT ON public.secrets TO %s", "secrets"},
		"writing":    {"GRANT UPDATE ON hob_demo.orders TO %s", "UPDATE"},
		"function":   {"GRANT EXECUTE ON FUNCTION hob_demo.steal() TO %s", "EXECUTE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := postgresEngine(t)
			plain := maker(t, e.where)
			open := func() agentsql.DB {
				db, err := agentsql.OpenPostgres(t.Context(), plain, agentsql.Options{Secret: agentSecret()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { closeDB(t, db) })
				return db
			}
			if _, err := open().Query(t.Context(), agentsql.Query{Grant: e.grant, SQL: "SELECT 1"}); err != nil {
				t.Fatal(err)
			}
			reader := readers(t, e.where)[0]
			writePostgres(t, e.where, fmt.Sprintf(tc.give, reader))

			_, err := open().Query(t.Context(), agentsql.Query{Grant: e.grant, SQL: "SELECT 1"})
			var own *agentsql.Error
			if !errors.As(err, &own) || own.Kind != agentsql.Unavailable || !strings.Contains(strings.ToUpper(own.Cause().Error()), strings.ToUpper(tc.text)) {
				t.Errorf("query: %v, want %s because of %s", err, agentsql.Unavailable, tc.text)
			} else if strings.Contains(own.Message, reader) || strings.Contains(own.Message, "secrets") {
				t.Errorf("the model is told %s", own.Message)
			}
			visible, err := agentsql.OpenPostgres(t.Context(), e.where, agentsql.Options{Secret: agentSecret(), AllowPowerfulRole: true})
			if err != nil {
				t.Fatal(err)
			}
			defer closeDB(t, visible)
			if _, err := visible.Query(t.Context(), agentsql.Query{Grant: e.grant, SQL: "SELECT count(*) FROM orders"}); err != nil {
				t.Errorf("overridden: %v", err)
			}
			if !hasFinding(visible.Check(t.Context()), agentsql.Fault, tc.text) {
				t.Errorf("overridden, the fault is not shown: %v", visible.Check(t.Context()))
			}
		})
	}
}

func TestPostgres_FollowsTablesThatComeAndGo(t *testing.T) {
	t.Parallel()
	e := postgresEngine(t)
	e.grant = agentsql.Grant{"hob_demo": {"orders", "later"}}
	d, err := e.db.Describe(t.Context(), e.grant)
	if err != nil || !slices.Equal(d.Missing, []string{"hob_demo.later"}) {
		t.Fatalf("missing %q, %v", d.Missing, err)
	}
	writePostgres(t, e.where, "CREATE TABLE hob_demo.later AS SELECT 5 AS n")
	again := openPostgres(t, e.where)
	rows, err := again.Query(t.Context(), agentsql.Query{Grant: e.grant, SQL: "SELECT n FROM later"})
	if err != nil || string(rows.JSON) != `[{"n":5}]` {
		t.Errorf("%s, %v", rows.JSON, err)
	}
}

// The test cluster trusts everybody; a server that asks for passwords shows
// that ours are set right.
func TestPostgres_LogsInWithItsDerivedPassword(t *testing.T) {
	t.Parallel()
	where, stop, err := pgtest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	writePostgres(t, where, `DO $$ BEGIN EXECUTE format('COPY (SELECT unnest(ARRAY[''host all postgres 127.0.0.1/32 trust'', ''host all all 127.0.0.1/32 scram-sha-256''])) TO %L',
		current_setting('hba_file')); PERFORM pg_reload_conf(); END $$`)
	if err := agentsql.SeedPostgres(t.Context(), where); err != nil {
		t.Fatal(err)
	}
	open := func() agentsql.DB {
		db, err := agentsql.OpenPostgres(t.Context(), where, agentsql.Options{Secret: agentSecret(), AllowPowerfulRole: true})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	grant := agentsql.Grant{"hob_demo": {"orders"}}
	for range 2 { // the second finds the roles made
		db := open()
		rows, err := db.Query(t.Context(), agentsql.Query{Grant: grant, SQL: "SELECT count(*) AS n FROM orders"})
		if err != nil || string(rows.JSON) != `[{"n":60}]` {
			t.Errorf("%s, %v", rows.JSON, err)
		}
		closeDB(t, db)
	}
	reader := scanAll(t, where, "SELECT rolname::text FROM pg_roles WHERE rolname ~ '^hob_agent_'")[0]
	if _, err := pgx.Connect(t.Context(), asUser(t, where, reader, "guessed")); err == nil {
		t.Error("a wrong password was accepted")
	}
}
