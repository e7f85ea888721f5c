package agentsql_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

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

// bigSQLite adds a table of 24 MB, which no sort or group of may take into memory.
func bigSQLite(t *testing.T) engine {
	t.Helper()
	e := sqliteEngine(t)
	writeSQLite(t, e.where, `CREATE TABLE big (id INTEGER PRIMARY KEY, t TEXT, bl BLOB);
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
		INSERT INTO big SELECT i, hex(randomblob(150)), randomblob(300) FROM n;`)
	e.grant["main"] = append(e.grant["main"], "big")
	return e
}

// honestBig sort, group and join the whole of the big table.
func honestBig() []string {
	return []string{
		"SELECT id FROM big ORDER BY t", "SELECT id, t FROM big ORDER BY t LIMIT 10", "SELECT id, t, bl FROM big ORDER BY bl LIMIT 10",
		"SELECT substr(t, 1, 2) AS p, count(*) FROM big GROUP BY p ORDER BY 2 DESC LIMIT 3", "SELECT t, count(*) FROM big GROUP BY t LIMIT 3",
		"SELECT count(DISTINCT t) FROM big", "SELECT a.id FROM big a JOIN big b ON a.t = b.t LIMIT 5",
		"SELECT id, row_number() OVER (ORDER BY t) FROM big LIMIT 3", "SELECT id, lag(t) OVER (ORDER BY id) FROM big LIMIT 3",
		"SELECT t FROM big UNION SELECT hex(bl) FROM big LIMIT 3",
	}
}

// Not parallel: it measures the whole process.
func TestSQLite_SortsMoreThanItMayTake(t *testing.T) {
	e := bigSQLite(t)
	for _, statement := range honestBig() {
		peak := watchMemory(t)
		_, err := e.query(t.Context(), statement)
		if grown := peak(); err != nil || grown > maxGrowth {
			t.Errorf("%s: grew by %d MB, %v", statement, grown>>20, err)
		}
	}
}

func TestSQLite_AnswersBesideAHostileStatement(t *testing.T) {
	t.Parallel()
	e := bigSQLite(t)
	ctx, cancel := context.WithCancel(t.Context())
	var hostile sync.WaitGroup
	for _, statement := range []string{
		"SELECT t FROM big ORDER BY t || bl", "WITH t AS MATERIALIZED (SELECT printf('%0240000d', 0) AS x UNION ALL SELECT 'a') SELECT " +
			strings.Repeat("group_concat(x),", 900) + "x FROM t",
	} {
		hostile.Go(func() {
			for ctx.Err() == nil {
				_, _ = e.db.Query(ctx, agentsql.Query{Grant: e.grant, SQL: statement, Agent: "hostile"}) // however it ends
			}
		})
	}
	for _, statement := range honestBig()[2:4] { // a sort and a group; how fast beside the others is not asked here
		_, err := e.db.Query(t.Context(), agentsql.Query{
			Grant: e.grant, SQL: statement, Agent: "honest", Limits: agentsql.Limits{Timeout: 2 * time.Minute},
		})
		if err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	cancel()
	hostile.Wait()
}

func TestSQLite_BoundsTemporaryFiles(t *testing.T) {
	t.Parallel()
	e := bigSQLite(t)
	began := time.Now()
	_, err := e.db.Query(t.Context(), agentsql.Query{
		Grant: e.grant, SQL: "SELECT a.id FROM big a, big b ORDER BY a.t || b.t", Limits: agentsql.Limits{Timeout: time.Minute},
	})
	if kindOf(err) != agentsql.TooLarge || !strings.Contains(err.Error(), "256 MB") {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	e.works(t)
}

func TestSQLite_ChangesTakeTurns(t *testing.T) {
	t.Parallel()
	e := sqliteEngine(t)
	var writers sync.WaitGroup
	for i := range 16 {
		writers.Go(func() {
			_, err := e.db.Write(t.Context(), agentsql.Write{
				Grant: agentsql.WriteGrant{Tables: agentsql.Grant{"main": {"orders"}}}, Table: "orders", Operation: agentsql.Update,
				Data: json.RawMessage(`{"note":"x"}`), Where: json.RawMessage(`{"id":` + strconv.Itoa(i+1) + `}`), Agent: strconv.Itoa(i),
			})
			if err != nil {
				t.Errorf("change %d: %v", i, err)
			}
		})
	}
	writers.Wait()
}
