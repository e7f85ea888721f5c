package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"hob"
	"hob/internal/agentsql"
	"hob/internal/builtin"
)

// project is agents' SQL behind the tool, as the program wires it.
type project struct{ db agentsql.DB }

func (p project) CheckGrant(raw json.RawMessage) (map[string][]string, error) {
	g, err := agentsql.ParseGrant(raw)
	return g, told(err)
}

func (p project) Describe(ctx context.Context, grant map[string][]string) (string, []string, error) {
	d, err := p.db.Describe(ctx, grant)
	var names []string
	for _, t := range d.Tables {
		names = append(names, t.Name)
	}
	return "Tables: " + strings.Join(names, ", "), d.Missing, told(err)
}

func (p project) Query(ctx context.Context, q builtin.DatabaseQuery) (json.RawMessage, bool, error) {
	rows, err := p.db.Query(ctx, agentsql.Query{
		Grant: q.Grant, SQL: q.SQL, Agent: string(q.Agent), Limits: agentsql.Limits{Rows: q.Rows, Timeout: q.Timeout},
	})
	return rows.JSON, rows.Truncated, told(err)
}

func (p project) DescribeWrites(ctx context.Context, grant builtin.DatabaseGrant) (string, []string, error) {
	g := writes(grant)
	d, err := p.db.DescribeWrites(ctx, g)
	return d.WriteText(g), d.Missing, told(err)
}

func (p project) SideEffects(ctx context.Context, grant builtin.DatabaseGrant) ([]string, error) {
	effects, err := p.db.SideEffects(ctx, writes(grant))
	return effects, told(err)
}

func (p project) Write(ctx context.Context, c builtin.DatabaseChange) (builtin.DatabaseWritten, error) {
	done, err := p.db.Write(ctx, change(c))
	return builtin.DatabaseWritten(done), told(err)
}

func (p project) Preview(ctx context.Context, c builtin.DatabaseChange) (json.RawMessage, error) {
	preview, err := p.db.Preview(ctx, change(c))
	if err != nil {
		return nil, told(err)
	}
	return json.Marshal(preview)
}

func writes(g builtin.DatabaseGrant) agentsql.WriteGrant {
	out := agentsql.WriteGrant{Tables: g.Tables, Columns: g.Columns, SideEffects: g.SideEffects, Operations: map[string][]agentsql.Operation{}}
	for table, verbs := range g.Operations {
		out.Operations[table] = []agentsql.Operation{}
		for _, v := range verbs {
			out.Operations[table] = append(out.Operations[table], agentsql.Operation(v))
		}
	}
	return out
}

func change(c builtin.DatabaseChange) agentsql.Write {
	return agentsql.Write{
		Grant: writes(c.Grant), Table: c.Table, Operation: agentsql.Operation(c.Operation), Data: c.Data, Where: c.Where,
		Returning: c.Returning, Key: c.Call.Key, Limits: agentsql.WriteLimits{Rows: c.Rows, Timeout: c.Timeout},
	}
}

func told(err error) error {
	var e *agentsql.Error
	if errors.As(err, &e) {
		return hob.Errorf(hob.Invalid, "%s", e.Message)
	}
	return err
}

// sample is a toolset over the sample shop in a SQLite file.
func sample(t *testing.T) *builtin.Set {
	t.Helper()
	path := filepath.Join(t.TempDir(), "project.db")
	if err := agentsql.SeedSQLite(path); err != nil {
		t.Fatal(err)
	}
	db, err := agentsql.OpenSQLite(path, agentsql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return newSet(t, builtin.Deps{Database: project{db}})
}

func TestDatabaseQuery_OnARealDatabase(t *testing.T) {
	t.Parallel()
	r := one(t, sample(t), assign("database_query", `{"schemas":{"main":["orders","nothing"],"empty":[]}}`))
	if !strings.HasSuffix(r.Spec().Description, "\nTables: orders") {
		t.Errorf("description %q", r.Spec().Description)
	}
	for query, want := range map[string]string{
		`SELECT count(*) AS n FROM orders WHERE status = 'open';`: `[{"n":7}]`,
		`SELECT ';' AS s`:      `[{"s":";"}]`,
		`SELECT 1 WHERE 1 = 0`: `[]`,
		`DELETE FROM orders`:   `{"error":"Only SELECT queries are allowed"}`,
		`SELECT 1; SELECT 2`:   `{"error":"Multi-statement queries are not allowed"}`,
	} {
		args, err := json.Marshal(map[string]string{"query": query})
		if err != nil {
			t.Fatal(err)
		}
		res := call(t, r, string(args))
		if res.Text != want || res.IsError != strings.HasPrefix(want, `{"error"`) {
			t.Errorf("%s: %+v, want %s", query, res, want)
		}
	}
	for _, query := range []string{`SELECT * FROM customers`, `SELECT name FROM sqlite_master`, `SELECT nothing FROM orders`} {
		if res := call(t, r, `{"query":"`+query+`"}`); !res.IsError || !strings.HasPrefix(res.Text, `{"error":"`) {
			t.Errorf("%s: %+v", query, res)
		}
	}
	long := call(t, r, `{"query":"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n < 5000) SELECT n FROM c"}`)
	var cut struct {
		Rows      []struct{ N int }
		Truncated bool
	}
	if err := json.Unmarshal([]byte(long.Text), &cut); err != nil || !cut.Truncated || len(cut.Rows) != agentsql.DefaultRows || long.IsError {
		t.Errorf("%d rows, truncated %t, %v", len(cut.Rows), cut.Truncated, err)
	}
}

func TestDatabaseQuery_BadGrantsAreRefusedWhenWritten(t *testing.T) {
	t.Parallel()
	s := sample(t)
	for config, want := range map[string]string{
		`{"schemas":"main"}`:               "schemas must be a dict",
		`{"schemas":{"a-b":["t"]}}`:        "Invalid schema name: a-b",
		`{"schemas":{"pg_catalog":["t"]}}`: "System schema 'pg_catalog' is not allowed",
		`{"schemas":{"hob":["runs"]}}`:     "System schema 'hob' is not allowed",
		`{"schemas":{"main":["t; DROP"]}}`: "Invalid table names in schema 'main'",
	} {
		_, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, "database_query", json.RawMessage(config))
		checkInvalid(t, err, want)
	}
	warning, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, "database_query", json.RawMessage(`{"schemas":{"main":["nothing"]}}`))
	if err != nil || !strings.Contains(warning, "none of the tables") {
		t.Errorf("warning %q, error %v", warning, err)
	}
}
