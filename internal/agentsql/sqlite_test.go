package agentsql_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hob/internal/agentsql"
)

// Nothing is handed on: no connection outlives its statement, and the file and
// its folder stay as they were.
func TestSQLite_LeavesNoConnectionAndNoTrace(t *testing.T) {
	e := sqliteEngine(t) // not parallel: it counts the process's files
	before := digest(t, e.where)
	for _, statement := range statements(t, "hostile_sqlite.sql", "honest_common.sql") {
		_, err := e.query(t.Context(), statement)
		_ = err // judged elsewhere
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && name == e.where {
			t.Errorf("descriptor %s still holds %s", fd.Name(), name)
		}
	}
	if digest(t, e.where) != before {
		t.Error("the file changed")
	}
	left, err := os.ReadDir(filepath.Dir(e.where))
	if err != nil || len(left) != 1 {
		t.Errorf("folder holds %v, %v, want the file alone", left, err)
	}
}

func TestSQLite_ReadsAWALDatabaseThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a ?#% odd name.db")
	writeSQLite(t, path, "PRAGMA journal_mode = WAL; CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)")
	db, err := agentsql.OpenSQLite(path, agentsql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	writeSQLite(t, path, "INSERT INTO t VALUES (2); CREATE TABLE later (b INTEGER); INSERT INTO later VALUES (3)")
	rows, err := db.Query(t.Context(), agentsql.Query{Grant: agentsql.Grant{"main": {"t", "later"}}, SQL: "SELECT count(*) AS n, (SELECT b FROM later) AS b FROM t"})
	if err != nil || string(rows.JSON) != `[{"n":2,"b":3}]` {
		t.Errorf("%s, %v", rows.JSON, err)
	}
}

// The planner's own statistics do not need a grant, and are not readable.
func TestSQLite_AnswersOnAnAnalysedDatabase(t *testing.T) {
	t.Parallel()
	e := sqliteEngine(t)
	writeSQLite(t, e.where, "ANALYZE")
	e.works(t)
	for _, table := range []string{"sqlite_stat1", "sqlite_stat4"} {
		if rows, err := e.query(t.Context(), "SELECT * FROM "+table); kindOf(err) != agentsql.Refused {
			t.Errorf("%s: %s, %v", table, rows.JSON, err)
		}
	}
}

func TestSQLite_KnowsOnlyTheSchemaMain(t *testing.T) {
	t.Parallel()
	e := sqliteEngine(t)
	e.grant = agentsql.Grant{"public": {"orders"}}
	_, err := e.query(t.Context(), "SELECT * FROM orders")
	if kindOf(err) != agentsql.Invalid || !strings.Contains(err.Error(), "'main'") {
		t.Errorf("%v, want %s naming main", err, agentsql.Invalid)
	}
}

func TestSQLite_CheckNamesWhatIsLoose(t *testing.T) {
	t.Parallel()
	e := sqliteEngine(t)
	if all := e.db.Check(t.Context()); len(all) != 1 || all[0].Level != agentsql.OK {
		t.Errorf("a sound file: %v", all)
	}
	if err := os.Chmod(e.where, 0o644); err != nil {
		t.Fatal(err)
	}
	if all := e.db.Check(t.Context()); !hasFinding(all, agentsql.Warning, "0644") {
		t.Errorf("a file others can read: %v", all)
	}
	if err := os.Remove(e.where); err != nil {
		t.Fatal(err)
	}
	if all := e.db.Check(t.Context()); !hasFinding(all, agentsql.Fault, "no such file") {
		t.Errorf("a file that is gone: %v", all)
	}
	if _, err := e.query(t.Context(), "SELECT 1"); kindOf(err) != agentsql.Unavailable || strings.Contains(err.Error(), e.where) {
		t.Errorf("query without the file: %v", err)
	}
}

func TestOpenSQLite_NeverMakesAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "absent.db")
	if _, err := agentsql.OpenSQLite(path, agentsql.Options{}); err == nil {
		t.Error("a file that is not there was opened")
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file was made: %v", err)
	}
}
