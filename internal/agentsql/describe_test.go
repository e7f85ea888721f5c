package agentsql_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob/internal/agentsql"
)

func TestDescribe_TellsGrantedTablesOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		schema := map[string]string{"sqlite": "main", "postgres": "hob_demo"}[e.name]
		grant := agentsql.Grant{schema: {"orders", "order_items", "order_totals", "secret_view", "absent"}}
		d, err := e.db.Describe(t.Context(), grant)
		if err != nil {
			t.Fatal(err)
		}
		if d.Dialect != e.name {
			t.Errorf("dialect %q, want %q", d.Dialect, e.name)
		}
		missing := []string{schema + ".absent"}
		if e.name == "sqlite" { // a view needs the tables behind it
			missing = append(missing, schema+".secret_view")
		}
		if diff := cmp.Diff(missing, d.Missing); diff != "" {
			t.Errorf("missing (-want +got)\n%s", diff)
		}
		byName := map[string]agentsql.Table{}
		for _, table := range d.Tables {
			byName[table.Name] = table
		}
		column := func(table, name string) agentsql.Column {
			for _, c := range byName[table].Columns {
				if c.Name == name {
					return c
				}
			}
			t.Errorf("no column %s.%s", table, name)
			return agentsql.Column{}
		}
		if c := column("orders", "id"); !c.PrimaryKey {
			t.Errorf("orders.id is no primary key: %+v", c)
		}
		if c := column("orders", "status"); !c.NotNull || !strings.HasPrefix(c.Default, "'open'") {
			t.Errorf("orders.status: %+v", c)
		}
		if c := column("orders", "note"); c.NotNull || c.References != "" || !strings.EqualFold(c.Type, "text") {
			t.Errorf("orders.note: %+v", c)
		}
		if c := column("orders", "customer_id"); c.References != "" {
			t.Errorf("orders.customer_id tells of a table that is not granted: %+v", c)
		}
		if c := column("order_items", "order_id"); !strings.HasSuffix(c.References, "orders.id") {
			t.Errorf("order_items.order_id: %+v", c)
		}
		if !byName["order_totals"].View || byName["orders"].View {
			t.Error("views and tables are not told apart")
		}
		text := d.Text()
		if !strings.Contains(text, "orders (id ") || strings.Contains(text, "secrets") || strings.Contains(text, "customers") {
			t.Errorf("text:\n%s", text)
		}
	})
}

func TestRows_AnswerSaysWhenItIsCut(t *testing.T) {
	t.Parallel()
	r := agentsql.Rows{JSON: json.RawMessage(`[{"a":1}]`), Count: 1}
	if got := string(r.Answer()); got != `[{"a":1}]` {
		t.Errorf("whole: %s", got)
	}
	r.Truncated = true
	if got := string(r.Answer()); got != `{"rows":[{"a":1}],"truncated":true}` {
		t.Errorf("cut: %s", got)
	}
}

func TestTables_ListsWhatCanBeGranted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		schema := map[string]string{"sqlite": "main", "postgres": "hob_demo"}[e.name]
		all, err := e.db.Tables(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		grant := agentsql.Grant{}
		for _, name := range all {
			s, table, _ := strings.Cut(name, ".")
			grant[s] = append(grant[s], table)
		}
		for _, want := range []string{"orders", "order_totals"} {
			if !slices.Contains(grant[schema], want) {
				t.Errorf("%s.%s is not among %v", schema, want, all)
			}
		}
		raw, err := json.Marshal(grant)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agentsql.ParseGrant(raw); err != nil || !slices.IsSorted(all) {
			t.Errorf("%v cannot be granted: %v", all, err)
		}
	})
}
