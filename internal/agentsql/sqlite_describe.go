package agentsql

import (
	"context"
	"fmt"
	"strings"
)

// Describe implements DB.
func (d *sqliteDB) Describe(ctx context.Context, g Grant) (Description, error) {
	out := Description{Dialect: "sqlite"}
	if err := g.check(); err != nil {
		return out, err
	}
	c, err := openSQLiteConn(d.path)
	if err != nil {
		return out, unavailable(err, "The project database cannot be opened")
	}
	defer c.close()
	objects, err := c.objects()
	if err != nil {
		return out, unavailable(err, "The project database cannot be read")
	}
	have := objects.granted(g)
	for _, name := range g.clean().names() {
		schema, table, _ := strings.Cut(name, ".")
		if schema != SQLiteSchema || !have[strings.ToLower(table)] {
			out.Missing = append(out.Missing, name)
			continue
		}
		t, err := c.describe(table, have)
		if err != nil {
			return out, unavailable(err, "The project database cannot be read")
		}
		if t.View = objects.view(table); t.View {
			// A view over tables outside the grant cannot be queried.
			probe := Query{Grant: g, SQL: `SELECT * FROM "` + table + `" LIMIT 0`}
			if _, err := d.Query(ctx, probe); err != nil {
				out.Missing = append(out.Missing, name)
				continue
			}
		}
		out.Tables = append(out.Tables, t)
	}
	return out, nil
}

// DescribeWrites implements DB.
func (d *sqliteDB) DescribeWrites(ctx context.Context, g WriteGrant) (Description, error) {
	if err := g.check(); err != nil {
		return Description{}, err
	}
	out, err := d.Describe(ctx, g.Tables)
	return out.withoutViews(), err
}

// withoutViews puts views among what is missing.
func (d Description) withoutViews() Description {
	tables := d.Tables
	d.Tables = nil
	for _, t := range tables {
		if t.View {
			d.Missing = append(d.Missing, t.Schema+"."+t.Name)
			continue
		}
		d.Tables = append(d.Tables, t)
	}
	return d
}

func (o sqliteObjects) view(name string) bool {
	for _, obj := range o {
		if obj.kind == "view" && strings.EqualFold(obj.name, name) {
			return true
		}
	}
	return false
}

// describe reads the columns of one table. The name is an identifier of a
// grant, so it needs no escaping between its quotes.
func (c *sqliteConn) describe(table string, have map[string]bool) (Table, error) {
	t := Table{Schema: SQLiteSchema, Name: table}
	targets := map[string]string{}
	err := c.each(`PRAGMA main.foreign_key_list("`+table+`")`, func(s *sqliteStmt) {
		const parent, from, to = 2, 3, 4
		if !have[strings.ToLower(s.text(parent))] {
			return
		}
		target := s.text(parent)
		if column := s.text(to); column != "" {
			target += "." + column
		}
		targets[strings.ToLower(s.text(from))] = target
	})
	if err != nil {
		return t, fmt.Errorf("foreign keys of %s: %w", table, err)
	}
	err = c.each(`PRAGMA main.table_xinfo("`+table+`")`, func(s *sqliteStmt) {
		const name, typ, notNull, def, pk, hidden = 1, 2, 3, 4, 5, 6
		if s.int(hidden) == 1 {
			return
		}
		t.Columns = append(t.Columns, Column{
			Name: s.text(name), Type: s.text(typ), PrimaryKey: s.int(pk) > 0, NotNull: s.int(notNull) != 0,
			Default: s.text(def), References: targets[strings.ToLower(s.text(name))],
		})
	})
	if err != nil {
		return t, fmt.Errorf("columns of %s: %w", table, err)
	}
	target, err := c.target(table)
	if err != nil {
		return t, err
	}
	for i, column := range target.columns {
		t.Columns[i].Auto, t.Columns[i].Computed = column.auto, column.computed
	}
	return t, nil
}
