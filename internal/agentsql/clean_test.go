package agentsql

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"hob/internal/pgtest"
)

// A session that is handed on holds nothing of the one before, whatever that
// had managed to do.
func TestClean_LeavesNothingInTheSession(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	const mess = `SET statement_timeout = 70000; SET search_path = nowhere; LISTEN gossip; PREPARE left_over AS SELECT 1;
		CREATE TEMP TABLE left_over (a int); SELECT pg_advisory_lock(77); DECLARE left_over CURSOR WITH HOLD FOR SELECT 1;
		SELECT setseed(0.5); SET ROLE pg_monitor; BEGIN; SELECT set_config('hob.note', 'x', false)`
	if _, err := conn.Exec(t.Context(), mess); err != nil {
		t.Fatal(err)
	}
	if err := clean(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"SELECT current_setting('statement_timeout')":                                                "0",
		"SELECT current_setting('search_path')":                                                      `"$user", public`,
		"SELECT count(*)::text FROM pg_listening_channels()":                                         "0",
		"SELECT count(*)::text FROM pg_prepared_statements":                                          "0",
		"SELECT count(*)::text FROM pg_cursors WHERE name <> ''":                                     "0",
		"SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()": "0",
		"SELECT count(*)::text FROM pg_class WHERE relname = 'left_over'":                            "0",
		"SELECT current_user::text":                                                                  "postgres",
		"SELECT coalesce(nullif(current_setting('hob.note', true), ''), 'nothing')":                  "nothing",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), query, pgx.QueryExecModeExec).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", query, got, err, want)
		}
	}
}

// A session that is not its login's is not handed on.
func TestClean_RefusesASessionOfAnotherUser(t *testing.T) {
	t.Parallel()
	where := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	// What DISCARD ALL goes back to is the database's default for the role.
	if _, err := conn.Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER ROLE postgres IN DATABASE %I SET role = pg_monitor', current_database()); END $$"); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.WithoutCancel(t.Context()))
	if err := clean(t.Context(), other); err == nil {
		t.Error("a session that acts as another user was taken for clean")
	}
}
