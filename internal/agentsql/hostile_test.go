package agentsql_test

import (
	"errors"
	"strings"
	"testing"

	"hob/internal/agentsql"
)

// leastOf is how many statements of each class an engine is tried with.
func leastOf(e engine) map[string]int {
	least := map[string]int{
		"other tables": 90, "several statements": 6, "writes and utilities": 30, "writes inside a select": 3,
		"text and syntax": 12, "catalogues": 20, "functions": 35, "exhaustion": 40,
	}
	if e.name == "postgres" {
		least["functions"], least["catalogues"], least["writes inside a select"], least["exhaustion"] = 110, 40, 8, 25
		least["casts, types and operators"], least["locking"] = 40, 5
	}
	return least
}

// leastHostile is how many hostile statements each engine is tried with.
const leastHostile = 120

func TestQuery_RefusesHostileStatements(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		all, count := classes(t, "hostile_common.sql", "hostile_"+e.name+".sql")
		if len(all) < leastHostile {
			t.Fatalf("%d hostile statements, want at least %d", len(all), leastHostile)
		}
		count["exhaustion"] += len(bombs(e)) // which are run elsewhere
		for class, least := range leastOf(e) {
			if count[class] < least {
				t.Errorf("%d statements of the class %q, want at least %d", count[class], class, least)
			}
		}
		if len(count) != len(leastOf(e)) {
			t.Errorf("the classes are %v, want those of %v", count, leastOf(e))
		}
		t.Logf("%d hostile statements: %v", len(all), count)
		for _, statement := range all {
			if statement == "SELECT 1; --" { // one final semicolon and a comment are fine
				continue
			}
			rows, err := e.query(t.Context(), statement)
			if err == nil {
				t.Errorf("answered: %s\n%s", statement, rows.JSON)
				continue
			}
			e.checkMessage(t, statement, err)
		}
		// Nothing above did anything, and the guard works on.
		rows, err := e.query(t.Context(), "SELECT count(*) AS n, count(note) AS notes FROM orders")
		if err != nil || string(rows.JSON) != `[{"n":60,"notes":12}]` {
			t.Errorf("after all that: %s, %v", rows.JSON, err)
		}
	})
}

// checkMessage holds a refusal to what an agent may read: no value, address,
// path or name from outside the grant, except the agent's own words.
func (e engine) checkMessage(t *testing.T, statement string, err error) {
	t.Helper()
	var own *agentsql.Error
	if !errors.As(err, &own) {
		t.Errorf("%s\nerror %T is not an *agentsql.Error: %v", statement, err, err)
		return
	}
	if own.Message == "" || own.Kind == "" || own.Kind == agentsql.Unavailable {
		t.Errorf("%s\nkind %q, message %q", statement, own.Kind, own.Message)
	}
	words := strings.ToLower(strings.NewReplacer(`\0073`, "s", `!0073`, "s", `\+000073`, "s").Replace(statement))
	for _, f := range append(e.forbidden, "secrets", "secret_view", "customers", "secret_index", "steal") {
		if strings.Contains(own.Message, f) && !strings.Contains(words, f) {
			t.Errorf("%s\nthe message tells %q: %s", statement, f, own.Message)
		}
	}
}

// What is not granted and what does not exist are answered alike, so that
// refusals tell nothing of the database.
func TestQuery_HiddenAndAbsentLookAlike(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		for _, pattern := range []string{
			"SELECT * FROM NAME", "SELECT nosuch FROM NAME", "SELECT token FROM NAME", "SELECT count(*) FROM NAME",
			"SELECT id FROM orders WHERE id IN (SELECT x FROM NAME)", "SELECT o.id FROM orders o JOIN NAME n ON n.z = o.id",
			"WITH a AS (SELECT nosuch FROM NAME) SELECT * FROM a", "SELECT id + nosuch FROM orders, NAME",
			"SELECT 1 FROM orders UNION SELECT a, b FROM NAME", "EXPLAIN SELECT * FROM NAME",
			"SELECT * FROM orders, (SELECT 1 FROM NAME) x", "SELECT (SELECT max(q) FROM NAME)", "SELECT 'x'::NAME", "SELECT CAST('x' AS NAME)",
			"SELECT NAME(1)", "SELECT * FROM orders NATURAL JOIN NAME", "SELECT orders.* FROM orders, NAME WHERE token = 1",
		} {
			if e.name == "sqlite" && strings.Contains(pattern, "'x'") {
				continue // SQLite takes any word for a type
			}
			var messages []string
			for _, name := range []string{"secrets", "absents"} {
				statement := strings.ReplaceAll(pattern, "NAME", name)
				_, err := e.query(t.Context(), statement)
				if err == nil {
					t.Fatalf("answered: %s", statement)
				}
				messages = append(messages, strings.ReplaceAll(err.Error(), name, "NAME"))
			}
			if messages[0] != messages[1] {
				t.Errorf("%s\nhidden: %s\nabsent: %s", pattern, messages[0], messages[1])
			}
		}
	})
}

func TestQuery_GivesTheContractsMessages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		for statement, want := range map[string]string{
			"DELETE FROM orders":                      "Only SELECT queries are allowed",
			"WITH x AS (SELECT 1) DELETE FROM orders": "Only SELECT queries are allowed",
			"SELECT 1; SELECT 2":                      "Multi-statement queries are not allowed",
			"SELECT 1 /* a */; -- b\n DROP TABLE x":   "Multi-statement queries are not allowed",
			"SELECT 1\x00":                            "The query holds a NUL character",
			"SELECT '\xff'":                           "The query is not valid UTF-8",
			" \n -- nothing":                          "The query is empty",
			"":                                        "The query is empty",
		} {
			if _, err := e.query(t.Context(), statement); err == nil || err.Error() != want {
				t.Errorf("%q: %v, want %q", statement, err, want)
			}
		}
	})
}

func TestQuery_AnEmptyGrantReadsNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		e.grant = agentsql.Grant{}
		if rows, err := e.query(t.Context(), "SELECT * FROM orders"); err == nil {
			t.Errorf("answered %s", rows.JSON)
		}
		if rows, err := e.query(t.Context(), "SELECT 1 AS n"); err != nil || string(rows.JSON) != `[{"n":1}]` {
			t.Errorf("SELECT 1: %s, %v", rows.JSON, err)
		}
	})
}
