package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"hob"
)

// dumpTable is a table that a dump holds.
type dumpTable struct {
	name  string
	key   string // the columns that its rows are dumped in order of: its primary key
	where string // which rows belong to what is stored, where not all do
}

// The rows of meta that are about one database and mean nothing in another.
const (
	metaSeal  = "seal_fingerprint"
	metaMoved = "moved_to"
	metaProbe = "probe"
	// metaStorage says which store the bytes of files belong to.
	metaStorage = "storage_id"
)

// dumpTables are all tables but that of the migrations, which a dump tells as its version. Each comes after those that it
// refers to.
func dumpTables() []dumpTable {
	return []dumpTable{
		{name: "meta", key: "name", where: "name NOT IN ('" + metaMoved + "', '" + metaProbe + "', '" + metaStorage + "')"},
		{name: "workspaces", key: "id"},
		{name: "keys", key: "id"},
		{name: "agents", key: "id"},
		{name: "tools", key: "id"},
		{name: "tool_versions", key: "tool_id, version"},
		{name: "builtin_tools", key: "workspace_id, name"},
		{name: "buckets", key: "workspace_id, id"},
		{name: "objects", key: "id"},
		{name: "object_writes", key: "workspace_id, key"},
		{name: "assignments", key: "n"},
		{name: "hooks", key: "n"},
		{name: "sessions", key: "n"},
		{name: "run_pins", key: "digest"},
		{name: "runs", key: "n"},
		{name: "run_details", key: "run_n"},
		{name: "run_events", key: "run_n, seq"},
		{name: "messages", key: "run_n, idx"},
		{name: "tool_calls", key: "run_n, call_id"},
		{name: "approvals", key: "n"},
		{name: "deliveries", key: "n"},
		{name: "summaries", key: "n"},
		{name: "usage", key: "n"},
		{name: "idempotency", key: "scope, key"},
		{name: "answers", key: "scope, key"},
		{name: "settings", key: "workspace_id, key"},
		{name: "provider_keys", key: "id"},
		{name: "model_profiles", key: "endpoint, model"},
		{name: "audit", key: "n"},
	}
}

// The kinds of columns, the same on both databases.
const (
	kindInt  = "int"
	kindText = "text"
	kindBlob = "blob"
)

// Column is a column of a dumped table.
type Column struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // int, text or blob
}

// Table is a dumped table. Rows and SHA256 are there once its rows were read.
type Table struct {
	Name    string   `json:"name"`
	Columns []Column `json:"columns"`
	Rows    int64    `json:"rows"`
	// SHA256 is over the columns and the rows in order, as a dump writes them: equal on SQLite and Postgres.
	SHA256 string `json:"sha256"`
}

// Shape says what a dump's rows are: the version of their schema and the tables in order.
type Shape struct {
	Schema  int     `json:"schema"`
	Dialect string  `json:"dialect"` // of the database that was dumped; any dialect loads it
	Seal    string  `json:"seal_fingerprint"`
	Tables  []Table `json:"tables"`
}

// columns is the list for a statement.
func (t Table) columns() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = `"` + c.Name + `"`
	}
	return strings.Join(names, ", ")
}

// tables looks at which of the tables a database has, and at their columns.
func (d *dialect) tables(ctx context.Context, t *tx) ([]Table, error) {
	kinds := map[string]string{"INTEGER": kindInt, "BIGINT": kindInt, "TEXT": kindText, "BLOB": kindBlob, "BYTEA": kindBlob}
	var list []Table
	for _, known := range dumpTables() {
		columns, err := many(ctx, t, func(r row) (c Column, err error) {
			var kind string
			if err = r.Scan(&c.Name, &kind); err != nil {
				return c, err
			}
			var ok bool
			if c.Kind, ok = kinds[strings.ToUpper(kind)]; !ok {
				err = fmt.Errorf("column %s of table %s has the type %s, which is not Hob's", c.Name, known.name, kind)
			}
			return c, err
		}, d.columns, known.name)
		if err != nil {
			return nil, fmt.Errorf("look at table %s: %w", known.name, err)
		}
		if len(columns) > 0 { // an older schema lacks some
			list = append(list, Table{Name: known.name, Columns: columns})
		}
	}
	return list, nil
}

// sameShape compares tables that a dump has with those of a schema of its version.
func sameShape(dump, schema []Table) error {
	for i := range max(len(dump), len(schema)) {
		switch {
		case i >= len(dump):
			return hob.Errorf(hob.Invalid, "the dump lacks the table %s", schema[i].Name)
		case i >= len(schema) || dump[i].Name != schema[i].Name:
			return hob.Errorf(hob.Invalid, "the dump has a table %.40q that its schema does not have there", dump[i].Name)
		case !slices.Equal(dump[i].Columns, schema[i].Columns):
			return hob.Errorf(hob.Invalid, "table %s of the dump does not have the columns of its schema", dump[i].Name)
		}
	}
	return nil
}
