package agentsql_test

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hob/internal/agentsql"
	"hob/internal/pgtest"
)

// secret is a value that lies outside every grant of the tests.
const secret = "TOP-SECRET-VALUE"

// engine is one of the two databases with the sample shop, things outside the
// grant, and things meant to deceive.
type engine struct {
	name  string
	db    agentsql.DB
	grant agentsql.Grant
	// forbidden must not occur in any answer or message.
	forbidden []string
	where     string // path or URL
}

// each runs f on both engines, each with databases of its own.
func each(t *testing.T, f func(*testing.T, engine)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, sqliteEngine(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f(t, postgresEngine(t))
	})
}

func sqliteEngine(t testing.TB) engine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "project.db")
	if err := agentsql.SeedSQLite(path); err != nil {
		t.Fatal(err)
	}
	writeSQLite(t, path, `
		CREATE TABLE secrets (id INTEGER PRIMARY KEY, token TEXT);
		INSERT INTO secrets VALUES (1, '`+secret+`');
		CREATE INDEX secret_index ON secrets (token);
		CREATE TABLE wide (id INTEGER PRIMARY KEY, body TEXT);
		INSERT INTO wide VALUES (1, printf('%0260000d', 0)), (2, printf('%0270000d', 0));
		CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT);
		CREATE VIEW secret_view AS SELECT * FROM secrets;
		CREATE VIEW order_totals AS SELECT order_id, sum(quantity * unit_cents) AS cents FROM order_items GROUP BY order_id;
		CREATE VIEW leaky AS SELECT orders.id, token FROM orders, secrets;
		CREATE VIRTUAL TABLE docs USING fts5 (body);
		INSERT INTO docs VALUES ('`+secret+` word');
		CREATE VIRTUAL TABLE hidden_docs USING fts5 (body);
		INSERT INTO hidden_docs VALUES ('`+secret+` word');`)
	db, err := agentsql.OpenSQLite(path, agentsql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeDB(t, db) })
	return engine{
		name: "sqlite", db: db, where: path,
		grant:     agentsql.Grant{"main": {"products", "orders", "order_items", "order_totals", "leaky", "docs", "wide"}},
		forbidden: []string{secret, "@example.com", filepath.Dir(path)},
	}
}

func writeSQLite(t testing.TB, path, script string) {
	t.Helper()
	u := url.URL{Scheme: "file", OmitHost: true, Path: path}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(script); err != nil {
		t.Fatal(err)
	}
}

// agentSecret is the key the logins of the tests derive from.
func agentSecret() []byte { return []byte("sixteen bytes or more of a secret") }

const postgresFixture = `
	CREATE TABLE public.secrets (id integer PRIMARY KEY, token text);
	INSERT INTO public.secrets VALUES (1, '` + secret + `');
	CREATE TABLE public.secret_ids (id integer);
	CREATE SCHEMA private;
	CREATE TABLE private.secrets (id integer PRIMARY KEY, token text);
	INSERT INTO private.secrets VALUES (1, '` + secret + `');
	CREATE TABLE hob_demo.secrets (id integer PRIMARY KEY, token text);
	INSERT INTO hob_demo.secrets VALUES (1, '` + secret + `');
	CREATE VIEW hob_demo.secret_view AS SELECT * FROM public.secrets;
	CREATE VIEW hob_demo.order_totals AS SELECT order_id, sum(quantity * unit_cents) AS cents FROM hob_demo.order_items GROUP BY order_id;
	CREATE SEQUENCE hob_demo.counter;
	CREATE TYPE hob_demo.mood AS ENUM ('glad', 'sad');
	CREATE FUNCTION hob_demo.steal() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT token FROM public.secrets LIMIT 1';
	CREATE FUNCTION hob_demo.lower(text) RETURNS text LANGUAGE sql AS 'SELECT hob_demo.steal()';
	CREATE FUNCTION hob_demo.plus(integer, integer) RETURNS text LANGUAGE sql AS 'SELECT hob_demo.steal()';
	CREATE OPERATOR hob_demo.+ (LEFTARG = integer, RIGHTARG = integer, FUNCTION = hob_demo.plus);
	CREATE OPERATOR hob_demo.<<< (LEFTARG = integer, RIGHTARG = integer, FUNCTION = hob_demo.plus);
	CREATE AGGREGATE hob_demo.total (integer) (SFUNC = int4pl, STYPE = integer);
	CREATE FUNCTION hob_demo.fine(text) RETURNS boolean LANGUAGE sql AS 'SELECT hob_demo.steal() IS NOT NULL';
	CREATE DOMAIN hob_demo.guarded AS text CHECK (hob_demo.fine(VALUE));
	CREATE DOMAIN hob_demo.code AS text CHECK (VALUE ~ '^[a-z]+$');
	CREATE TYPE hob_demo.pair AS (a integer);
	CREATE TYPE hob_demo.money_like AS (cents integer);
	CREATE FUNCTION hob_demo.to_money(integer) RETURNS hob_demo.money_like LANGUAGE sql AS 'SELECT ROW($1)::hob_demo.money_like';
	CREATE CAST (integer AS hob_demo.money_like) WITH FUNCTION hob_demo.to_money(integer);
	CREATE FUNCTION hob_demo.peek(hob_demo.orders) RETURNS text LANGUAGE sql AS 'SELECT hob_demo.steal()';
	CREATE TABLE hob_demo.moods (id integer PRIMARY KEY, feels hob_demo.mood, tags text[], data jsonb, code hob_demo.code);
	INSERT INTO hob_demo.moods VALUES (1, 'glad', '{a,b}', '{"k": [1, 2]}', 'abc'), (2, 'sad', '{}', NULL, NULL);
	CREATE TYPE hob_demo.shade AS ENUM ('dark', 'light');
	CREATE FUNCTION hob_demo.shade_json(hob_demo.shade) RETURNS json LANGUAGE sql SECURITY DEFINER AS 'SELECT to_json(hob_demo.steal())';
	CREATE CAST (hob_demo.shade AS json) WITH FUNCTION hob_demo.shade_json(hob_demo.shade);
	CREATE FUNCTION hob_demo.shade_jsonb(hob_demo.shade) RETURNS jsonb LANGUAGE sql SECURITY DEFINER AS 'SELECT to_jsonb(hob_demo.steal())';
	CREATE CAST (hob_demo.shade AS jsonb) WITH FUNCTION hob_demo.shade_jsonb(hob_demo.shade);
	CREATE TYPE hob_demo.blend AS (a integer, b text);
	CREATE FUNCTION hob_demo.blend_text(hob_demo.blend) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT hob_demo.steal()';
	CREATE CAST (hob_demo.blend AS text) WITH FUNCTION hob_demo.blend_text(hob_demo.blend) AS ASSIGNMENT;
	CREATE TABLE hob_demo.shades (id integer PRIMARY KEY, s hob_demo.shade, list hob_demo.shade[], mix hob_demo.blend);
	INSERT INTO hob_demo.shades VALUES (1, 'dark', '{dark,light}', ROW(1, 'x'));
	CREATE TABLE hob_demo.tints (id integer PRIMARY KEY, name text);
	INSERT INTO hob_demo.tints VALUES (1, 'red');
	CREATE FUNCTION hob_demo.tint_text(hob_demo.tints) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT hob_demo.steal()';
	CREATE CAST (hob_demo.tints AS text) WITH FUNCTION hob_demo.tint_text(hob_demo.tints);
	ANALYZE;`

func postgresEngine(t testing.TB) engine {
	t.Helper()
	where := pgtest.URL(t)
	if err := agentsql.SeedPostgres(t.Context(), where); err != nil {
		t.Fatal(err)
	}
	writePostgres(t, where, postgresFixture)
	db := openPostgres(t, where)
	u, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	return engine{
		name: "postgres", db: db, where: where,
		grant: agentsql.Grant{"hob_demo": {"products", "orders", "order_items", "order_totals", "moods", "shades", "tints"}},
		forbidden: []string{
			secret, "@example.com", u.Host, "127.0.0.1", "postgres", "hob_agent_", "hob_check_", "hob_write_", "hob_test_", "private",
		},
	}
}

// openPostgres opens the database as agents get it, by the cluster's superuser;
// the logins it made are dropped with the test.
func openPostgres(t testing.TB, where string) agentsql.DB {
	t.Helper()
	db, err := agentsql.OpenPostgres(t.Context(), where, agentsql.Options{Secret: agentSecret(), AllowPowerfulRole: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeDB(t, db)
		dropLogins(t, where)
	})
	return db
}

// maker is the database's URL for a user that may make the agents' logins and no
// more: it has CREATEROLE and owns the database and what is in it.
func maker(t testing.TB, where string) string {
	t.Helper()
	u, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	name := "maker_" + strings.TrimPrefix(strings.Trim(u.Path, "/"), "hob_test_")
	writePostgres(t, where, strings.ReplaceAll(`CREATE ROLE NAME LOGIN CREATEROLE;
		DO $$ DECLARE c record; BEGIN
			EXECUTE format('ALTER DATABASE %I OWNER TO NAME', current_database());
			FOR c IN SELECT n.nspname, r.relname, r.relkind FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace
				WHERE n.nspname IN ('public', 'private', 'hob_demo') AND (r.relkind IN ('r', 'p', 'v', 'm')
				OR r.relkind = 'S' AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = r.oid AND d.deptype IN ('a', 'i'))) LOOP
				EXECUTE format('ALTER TABLE %I.%I OWNER TO NAME', c.nspname, c.relname);
			END LOOP;
			FOR c IN SELECT nspname FROM pg_namespace WHERE nspname IN ('public', 'private', 'hob_demo') LOOP
				EXECUTE format('ALTER SCHEMA %I OWNER TO NAME', c.nspname);
			END LOOP;
		END $$`, "NAME", name))
	t.Cleanup(func() {
		dropLogins(t, where)
		writePostgres(t, where, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO postgres', current_database()); END $$; REASSIGN OWNED BY "+
			name+" TO postgres; DROP OWNED BY "+name+"; DROP ROLE "+name)
	})
	u.User = url.User(name)
	return u.String()
}

func closeDB(t testing.TB, db agentsql.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func writePostgres(t testing.TB, where, script string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), script); err != nil {
		t.Fatal(err)
	}
}

// dropLogins removes the roles whose rights lie in this database.
func dropLogins(t testing.TB, where string) {
	t.Helper()
	writePostgres(t, where, `DO $$ DECLARE r text; BEGIN
		FOR r IN SELECT DISTINCT a.rolname FROM pg_roles a JOIN pg_shdepend d ON d.refobjid = a.oid
			WHERE a.rolname ~ '^hob_(agent|check|write)_' AND d.dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
			AND (d.dbid <> 0 OR d.objid = (SELECT oid FROM pg_database WHERE datname = current_database())) LOOP
			EXECUTE 'REASSIGN OWNED BY ' || r || ' TO CURRENT_USER';
			EXECUTE 'DROP OWNED BY ' || r;
			EXECUTE 'DROP ROLE IF EXISTS ' || r;
		END LOOP; END $$`)
}

// statements reads files of one statement per line; a line that begins with a
// space, and the one after a comment, continue the statement before. "#### "
// begins a class of statements.
func statements(t testing.TB, names ...string) []string {
	t.Helper()
	all, _ := classes(t, names...)
	return all
}

// classes is statements, and how many there are of each class.
func classes(t testing.TB, names ...string) ([]string, map[string]int) {
	t.Helper()
	var all []string
	count, class := map[string]int{}, ""
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
		for i, line := range lines {
			if name, head := strings.CutPrefix(line, "#### "); head {
				class = name
				continue
			}
			if len(all) > 0 && (strings.HasPrefix(line, " ") || i > 0 && strings.HasPrefix(lines[i-1], "--")) {
				all[len(all)-1] += "\n" + line
				continue
			}
			all = append(all, line)
			count[class]++
		}
	}
	return all, count
}

func (e engine) query(ctx context.Context, statement string) (agentsql.Rows, error) {
	return e.db.Query(ctx, agentsql.Query{Grant: e.grant, SQL: statement, Agent: "tester"})
}
