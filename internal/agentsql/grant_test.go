package agentsql_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob/internal/agentsql"
)

func TestParseGrant(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]agentsql.Grant{
		`{"main":["orders","products"]}`:         {"main": {"orders", "products"}},
		`{"main":["b","a","b"],"Other_1":["_"]}`: {"main": {"a", "b"}, "Other_1": {"_"}},
		`{"main":[],"public":["a"]}`:             {"public": {"a"}},
		`{"a":["x"],"a":["y"]}`:                  {"a": {"x", "y"}},
		`{}`:                                     {},
		`null`:                                   {},
		``:                                       {},
		` {"main" : ["t"]} `:                     {"main": {"t"}},
	} {
		got, err := agentsql.ParseGrant(json.RawMessage(raw))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", raw, err, diff)
		}
	}
}

func TestParseGrant_GivesTheContractsErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 65)
	for raw, want := range map[string]string{
		`[]`:                                `schemas must be a dict`,
		`"main"`:                            `schemas must be a dict`,
		`1`:                                 `schemas must be a dict`,
		`{"main":["a"]`:                     `schemas must be a dict`,
		`{"main":["a"]} x`:                  `schemas must be a dict`,
		`{"1a":["x"]}`:                      `Invalid schema name: 1a`,
		`{"a-b":["x"]}`:                     `Invalid schema name: a-b`,
		`{"":["x"]}`:                        `Invalid schema name: `,
		`{"` + long + `":["x"]}`:            `Invalid schema name: ` + long,
		`{"a\"; DROP":["x"]}`:               `Invalid schema name: a"; DROP`,
		`{"pg_catalog":["x"]}`:              `System schema 'pg_catalog' is not allowed`,
		`{"PG_Catalog":["x"]}`:              `System schema 'PG_Catalog' is not allowed`,
		`{"pg_temp_3":["x"]}`:               `System schema 'pg_temp_3' is not allowed`,
		`{"information_schema":["tables"]}`: `System schema 'information_schema' is not allowed`,
		`{"hob":["runs"]}`:                  `System schema 'hob' is not allowed`,
		`{"auth":[]}`:                       `System schema 'auth' is not allowed`,
		`{"vault":["x"]}`:                   `System schema 'vault' is not allowed`,
		`{"main":"orders"}`:                 `Invalid table names in schema 'main'`,
		`{"main":null}`:                     `Invalid table names in schema 'main'`,
		`{"main":[1]}`:                      `Invalid table names in schema 'main'`,
		`{"main":["a b"]}`:                  `Invalid table names in schema 'main'`,
		`{"main":["a","x.y"]}`:              `Invalid table names in schema 'main'`,
		`{"main":{"a":1}}`:                  `Invalid table names in schema 'main'`,
		`{"main":["` + long + `"]}`:         `Invalid table names in schema 'main'`,
	} {
		_, err := agentsql.ParseGrant(json.RawMessage(raw))
		if kindOf(err) != agentsql.Invalid || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}

func TestParseGrant_NamesTheEntryThatCannotBeGranted(t *testing.T) {
	t.Parallel()
	_, err := agentsql.ParseGrant(json.RawMessage(`{"main":["fine","my table"]}`))
	if err == nil || !strings.Contains(err.Error(), `"my table"`) || !strings.Contains(err.Error(), "letters, digits and _") {
		t.Errorf("got %v", err)
	}
}

// A grant made in code is judged like one from a configuration.
func TestQuery_RefusesABadGrant(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		for _, g := range []agentsql.Grant{
			{"pg_catalog": {"pg_class"}}, {"information_schema": {"tables"}}, {"hob": {"runs"}}, {`x"; DROP`: {"a"}}, {"main": {`a"b`}},
		} {
			if _, err := e.db.Query(t.Context(), agentsql.Query{Grant: g, SQL: "SELECT 1"}); kindOf(err) != agentsql.Invalid {
				t.Errorf("query with %v: %v", g, err)
			}
			if _, err := e.db.Describe(t.Context(), g); kindOf(err) != agentsql.Invalid {
				t.Errorf("describe %v: %v", g, err)
			}
		}
	})
}
