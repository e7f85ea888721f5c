package agentsql_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"hob/internal/agentsql"
)

// kindOf is the kind of an *agentsql.Error, or the error's type.
func kindOf(err error) agentsql.Kind {
	var own *agentsql.Error
	if errors.As(err, &own) {
		return own.Kind
	}
	return agentsql.Kind(fmt.Sprintf("%T", err))
}

// endless runs until it is stopped.
const endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT (n + 1) % 1000 FROM t) SELECT count(*) FROM t"

// endlessOf avoids what each engine runs out of before the time.
func endlessOf(e engine) string {
	if e.name == "postgres" {
		return "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 1000000) b WHERE a # b = -1"
	}
	return endless
}

func TestQuery_StopsAtItsTimeout(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		const timeout = 300 * time.Millisecond
		start := time.Now()
		_, err := e.db.Query(t.Context(), agentsql.Query{Grant: e.grant, SQL: endlessOf(e), Limits: agentsql.Limits{Timeout: timeout}})
		if kindOf(err) != agentsql.Timeout {
			t.Errorf("kind %s (%v), want %s", kindOf(err), err, agentsql.Timeout)
		}
		if took := time.Since(start); took > timeout+2*time.Second {
			t.Errorf("took %v, at most the timeout and 2 s", took)
		}
		e.checkMessage(t, endless, err)
		e.works(t)
	})
}

// works checks that an ordinary statement is answered.
func (e engine) works(t *testing.T) {
	t.Helper()
	rows, err := e.query(t.Context(), "SELECT count(*) AS n FROM orders")
	if err != nil || string(rows.JSON) != `[{"n":60}]` {
		t.Errorf("the next statement: %s, %v", rows.JSON, err)
	}
}

func TestQuery_CutsRows(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		for _, tc := range []struct {
			sql       string
			limit     int
			count     int
			truncated bool
		}{
			{"SELECT id FROM orders ORDER BY id", 59, 59, true},
			{"SELECT id FROM orders ORDER BY id", 60, 60, false},
			{"SELECT id FROM orders ORDER BY id", 1, 1, true},
			{"SELECT id FROM orders WHERE id < 0", 1, 0, false},
			{"SELECT a.id FROM orders a, orders b", 0, agentsql.DefaultRows, true},
		} {
			rows, err := e.db.Query(t.Context(), agentsql.Query{Grant: e.grant, SQL: tc.sql, Limits: agentsql.Limits{Rows: tc.limit}})
			if err != nil {
				t.Errorf("%s: %v", tc.sql, err)
				continue
			}
			var list []map[string]any
			if err := json.Unmarshal(rows.JSON, &list); err != nil || len(list) != rows.Count {
				t.Errorf("%s: %d rows in JSON, Count %d, %v", tc.sql, len(list), rows.Count, err)
			}
			if rows.Count != tc.count || rows.Truncated != tc.truncated {
				t.Errorf("%s with %d: %d rows, truncated %t; want %d, %t", tc.sql, tc.limit, rows.Count, rows.Truncated, tc.count, tc.truncated)
			}
			if len(rows.Columns) != 1 || rows.Columns[0] != "id" {
				t.Errorf("%s: columns %q, want id", tc.sql, rows.Columns)
			}
		}
		e.works(t)
	})
}

func TestQuery_CutsCharactersAndKeepsJSON(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		long := map[string]string{
			"sqlite":   "SELECT replace(printf('%050000d', 0), '0', 'ä') AS x, id FROM orders",
			"postgres": "SELECT string_agg('ä', '') AS x, 1 AS id FROM generate_series(1, 50000) UNION ALL SELECT 'b', 2",
		}[e.name]
		for _, bytes := range []int{60, 300, 1000, 30_000, 0} {
			for _, sql := range []string{long, "SELECT * FROM orders, products"} {
				rows, err := e.db.Query(t.Context(), agentsql.Query{Grant: e.grant, SQL: sql, Limits: agentsql.Limits{Bytes: bytes, Rows: 5000}})
				if err != nil {
					t.Errorf("%d: %v", bytes, err)
					continue
				}
				limit := bytes
				if limit == 0 {
					limit = agentsql.DefaultBytes
				}
				if n := utf8.RuneCount(rows.JSON); n > limit || !rows.Truncated || !json.Valid(rows.JSON) {
					t.Errorf("limit %d: %d characters, truncated %t, valid %t", limit, n, rows.Truncated, json.Valid(rows.JSON))
				}
				if rows.Count == 0 && bytes != 60 {
					t.Errorf("limit %d: nothing left of %s", limit, sql)
				}
			}
		}
		e.works(t)
	})
}

func TestQuery_CutsOneHugeValue(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		sql := map[string]string{
			"sqlite":   "SELECT printf('%0240000d', 0) AS x, 7 AS y",
			"postgres": "SELECT string_agg(repeat('0', 10000), '') AS x, 7 AS y FROM generate_series(1, 24)",
		}[e.name]
		rows, err := e.query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		var list []struct {
			X string `json:"x"`
			Y int    `json:"y"`
		}
		if err := json.Unmarshal(rows.JSON, &list); err != nil || len(list) != 1 {
			t.Fatalf("%d rows, %v", len(list), err)
		}
		want := strings.Repeat("0", agentsql.DefaultValue) + "… [cut: the value has 240000 bytes]"
		if list[0].X != want || list[0].Y != 7 || !rows.Truncated {
			t.Errorf("x has %d bytes ending %q, y %d, truncated %t", len(list[0].X), list[0].X[len(list[0].X)-40:], list[0].Y, rows.Truncated)
		}
	})
}

func TestQuery_RefusesLongStatements(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		for name, sql := range map[string]string{
			"bytes":       "SELECT '" + strings.Repeat("x", agentsql.DefaultSQLBytes) + "'",
			"parentheses": "SELECT " + strings.Repeat("(", 101) + "1" + strings.Repeat(")", 101),
			"words":       "SELECT 1" + strings.Repeat("+1", 4100),
		} {
			if _, err := e.query(t.Context(), sql); kindOf(err) != agentsql.Invalid {
				t.Errorf("%s: %v, want %s", name, err, agentsql.Invalid)
			}
		}
		just := "SELECT 1 AS n -- " + strings.Repeat("x", agentsql.DefaultSQLBytes-17)
		if _, err := e.query(t.Context(), just); err != nil {
			t.Errorf("%d bytes: %v", len(just), err)
		}
	})
}

func TestQuery_BoundsConcurrencyPerAgent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		limits := agentsql.Limits{Timeout: 6 * time.Second, Concurrency: 2}
		var wg sync.WaitGroup
		kinds := make(chan agentsql.Kind, 3)
		for range 3 {
			wg.Go(func() {
				_, err := e.db.Query(t.Context(), agentsql.Query{Grant: e.grant, SQL: endlessOf(e), Agent: "greedy", Limits: limits})
				kinds <- kindOf(err)
			})
		}
		if k := <-kinds; k != agentsql.Busy {
			t.Errorf("the third of the agent's statements: %s, want %s", k, agentsql.Busy)
		}
		e.works(t) // another agent is not held up
		wg.Wait()
		close(kinds)
		for k := range kinds {
			if k != agentsql.Timeout {
				t.Errorf("a running statement ended with %s, want %s", k, agentsql.Timeout)
			}
		}
	})
}

// bombs need more time or memory than there is; each ends soon, one way or
// another, and leaves the guard working.
func bombs(e engine) []string {
	if e.name == "sqlite" {
		calls := func(call string, n int) string {
			return "SELECT " + strings.TrimSuffix(strings.Repeat(call+",", n), ",") +
				" FROM (SELECT printf('%0240000d', 0) AS x, printf('%0120000d', 0) || 'b' AS y)"
		}
		return []string{
			endless,
			"WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t a, t b",
			"WITH RECURSIVE t(n) AS (SELECT 1 UNION SELECT n + 1 FROM t) SELECT max(n) FROM t",
			"WITH RECURSIVE t(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM t) SELECT max(length(s)) FROM t",
			"WITH RECURSIVE t(n, s) AS (SELECT 1, printf('%0240000d', 0) UNION ALL SELECT n + 1, s FROM t) SELECT count(*) FROM (SELECT DISTINCT n, s FROM t)",
			"WITH RECURSIVE t(n, s) AS (SELECT 1, printf('%0240000d', 0) UNION ALL SELECT n + 1, s FROM t) SELECT group_concat(s) FROM t",
			"WITH RECURSIVE t(n, s) AS (SELECT 1, printf('%0240000d', 0) UNION ALL SELECT n + 1, s FROM t) SELECT json_group_array(s) FROM t",
			"WITH RECURSIVE t(n, s) AS (SELECT 1, printf('%0200000d', 0) UNION ALL SELECT n + 1, s FROM t) SELECT n, s FROM t ORDER BY n DESC",
			"SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e, orders f",
			"SELECT a.id FROM orders a, orders b, orders c, orders d, orders e ORDER BY a.note || b.note || c.note",
			"SELECT count(*) FROM json_each('[' || replace(printf('%0100000d', 0), '0', '0,') || '0]') a, json_each('[' || replace(printf('%0100000d', 0), '0', '0,') || '0]') b",
			"SELECT " + strings.Repeat("body,", 200) + "id FROM wide WHERE id = 1",
			"SELECT " + strings.Repeat("body,", 1500) + "id FROM wide WHERE id = 1",
			"SELECT " + strings.Repeat("(SELECT body FROM wide WHERE id = 1),", 300) + "id FROM wide WHERE id = 1",
			"SELECT length(body) FROM wide WHERE id = 2",
			"SELECT printf('%2000000000d', 1)",
			"SELECT printf('%.2000000000f', 1.5)",
			"SELECT printf('%.*c', 2000000000, 'x')",
			calls("x || y", 400), calls("substr(x, 1, 120000) || y", 110), calls("x || 'a'", 120), calls("x || 'a'", 500), calls("x", 1500),
			"WITH t AS MATERIALIZED (SELECT printf('%0240000d', 0) AS x UNION ALL SELECT 'a') SELECT " + strings.Repeat("x,", 1500) + "x FROM t",
			"WITH t AS MATERIALIZED (SELECT printf('%0240000d', 0) AS x UNION ALL SELECT 'a') SELECT " + strings.Repeat("x,", 1500) + "x FROM t ORDER BY x DESC",
			"WITH t AS MATERIALIZED (SELECT printf('%0240000d', 0) AS x UNION ALL SELECT 'a') SELECT " + strings.Repeat("max(x),", 1500) + "x FROM t",
			"WITH t AS MATERIALIZED (SELECT printf('%0240000d', 0) AS x UNION ALL SELECT 'a') SELECT " + strings.Repeat("group_concat(x),", 900) + "x FROM t",
			"WITH t AS MATERIALIZED (SELECT printf('%0240000d', 0) AS x UNION ALL SELECT 'a') SELECT " + strings.Repeat("coalesce(x,1),", 1000) + "x FROM t",
			"WITH t AS MATERIALIZED (SELECT printf('%0240000d', 0) AS x UNION ALL SELECT 'a') SELECT " + strings.Repeat("CAST(x AS BLOB),", 900) + "x FROM t",
			"WITH t AS MATERIALIZED (SELECT printf('%0240000d', 0) AS x UNION ALL SELECT 'a') SELECT " + strings.Repeat("-x,", 900) + "x FROM t",
			"WITH t AS MATERIALIZED (SELECT printf('%0240000d', 0) AS x UNION ALL SELECT 'a') SELECT * FROM " + strings.TrimSuffix(strings.Repeat("t,", 60), ","),
			calls("instr(x, y)", 15), calls("instr(x, y)", 400), calls("replace(x, y, 'a')", 15),
			calls("trim(x, y)", 200), calls("x LIKE '%' || substr(y, 1, 90) || 'c%'", 90), calls("json_array(x)", 300), calls("quote(x)", 400),
			calls("x GLOB '*' || substr(y, 1, 90) || 'c*'", 90), "SELECT concat(" + strings.Repeat("x,", 38) + "x) FROM (SELECT printf('%0240000d', 0) AS x)",
			"SELECT json_array(" + strings.Repeat("x,", 38) + "x) FROM (SELECT printf('%0240000d', 0) AS x)",
			doubling(24), doubling(60),
			"SELECT 1" + strings.Repeat(" UNION ALL SELECT 1", 600),
			"SELECT " + strings.Repeat("1+", 3000) + "1",
			"SELECT 1 WHERE " + strings.Repeat("NOT ", 3000) + "1",
			"SELECT * FROM " + strings.Repeat("orders,", 70) + "orders",
			"SELECT " + strings.Repeat("*,", 400) + "1 FROM orders a, orders b, orders c",
		}
	}
	return []string{
		endlessOf(e), endless,
		"SELECT count(*) FROM generate_series(1, 1000000000)",
		"SELECT generate_series(1, 1000000000)",
		"WITH RECURSIVE t(s) AS (SELECT 'x'::text UNION ALL SELECT s || s FROM t) SELECT s FROM t",
		"WITH RECURSIVE t(s) AS (SELECT 'x'::text UNION ALL SELECT s || s FROM t WHERE length(s) < 30000000) SELECT s FROM t ORDER BY length(s) DESC",
		"SELECT string_agg(repeat('x', 10000), '') FROM generate_series(1, 5000)",
		"SELECT array_agg(repeat('x', 10000)) FROM generate_series(1, 5000)",
		"SELECT jsonb_agg(repeat('x', 10000)) FROM generate_series(1, 5000)",
		"SELECT repeat('x', 10000) FROM generate_series(1, 1000000)",
		"SELECT replace(repeat('x', 10000), 'x', repeat('y', 10000))",
		"SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e, orders f WHERE a.id + b.id + c.id + d.id + e.id + f.id = -1",
		"SELECT a.id FROM orders a, orders b, orders c, orders d ORDER BY random()",
		"SELECT repeat('a', 10000) ~ '(a*)*(a*)*(a*)*b'",
		"SELECT repeat('a', 10000) ~ '^(((((a{1,100}){1,100}){1,100}))){1,100}$'",
		`SELECT regexp_replace(repeat('ab', 5000), '(.*)(.*)(.*)(.*)(.*)\1\2\3z', 'x', 'g')`,
		"SELECT 9::numeric ^ 99999::numeric",
		"SELECT factorial(30000)",
		"SELECT array_fill(1, ARRAY[10000, 10000])",
		doubling(24),
		"SELECT 1" + strings.Repeat(" UNION ALL SELECT 1", 600),
		"SELECT " + strings.Repeat("1+", 3000) + "1",
		"SELECT 1 WHERE " + strings.Repeat("NOT ", 3000) + "true",
		"SELECT * FROM " + joined(60),
		"SELECT to_json(string_to_array(repeat('x,', 10000), ',')) FROM generate_series(1, 1000)",
	}
}

// doubling is a statement whose analysis doubles n times.
func doubling(n int) string {
	s := "WITH t0 AS (SELECT 1 AS x)"
	for i := range n {
		s += fmt.Sprintf(", t%d AS (SELECT a.x FROM t%d a, t%d b)", i+1, i, i)
	}
	return s + fmt.Sprintf(" SELECT count(*) FROM t%d", n)
}

func joined(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("orders o%d", i)
	}
	return strings.Join(names, ", ")
}

// maxGrowth is what one statement may add to the process's resident memory.
const maxGrowth = 64 << 20

// Not parallel: it measures the whole process.
func TestQuery_SurvivesBombs(t *testing.T) {
	for _, open := range []func(testing.TB) engine{sqliteEngine, postgresEngine} {
		e := open(t)
		for _, bomb := range bombs(e) {
			const timeout = 300 * time.Millisecond
			peak := watchMemory(t)
			start := time.Now()
			rows, err := e.db.Query(t.Context(), agentsql.Query{Grant: e.grant, SQL: bomb, Limits: agentsql.Limits{Timeout: timeout}})
			took := time.Since(start)
			grown := peak()
			title := bomb[:min(len(bomb), 100)]
			if took > timeout+2*time.Second {
				t.Errorf("%s: took %v", title, took)
			}
			if grown > maxGrowth {
				t.Errorf("%s: memory grew by %d MB", title, grown>>20)
			}
			if err == nil && (len(rows.JSON) > 4*agentsql.DefaultBytes || !json.Valid(rows.JSON)) {
				t.Errorf("%s: answered %d bytes", title, len(rows.JSON))
			}
			if err != nil {
				e.checkMessage(t, bomb, err)
			}
			e.works(t)
			t.Logf("%4d ms %3d MB %v %s", took.Milliseconds(), grown>>20, kindOf(err), title)
		}
	}
}

// watchMemory samples the resident memory until the returned function is
// called, which gives the growth's peak in bytes.
func watchMemory(t *testing.T) func() int64 {
	t.Helper()
	resident := func() int64 {
		b, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			t.Fatal(err)
		}
		pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return pages * int64(os.Getpagesize())
	}
	base := resident()
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		peak := base
		for {
			select {
			case <-stop:
				done <- peak - base
				return
			case <-time.After(2 * time.Millisecond):
				peak = max(peak, resident())
			}
		}
	}()
	return func() int64 { close(stop); return <-done }
}
