package agentsql

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Describe implements DB. The maker reads the catalogues, limited to the
// granted tables.
func (d *postgresDB) Describe(ctx context.Context, g Grant) (Description, error) {
	out := Description{Dialect: "postgres"}
	if err := g.check(); err != nil {
		return out, err
	}
	l, err := d.login(ctx, g, true)
	if err != nil {
		return out, err
	}
	l.mu.Lock()
	state := l.state
	l.mu.Unlock()

	conn, err := pgx.ConnectConfig(ctx, d.maker)
	if err != nil {
		return out, unavailable(err, "The project database cannot be reached")
	}
	defer drop(conn)
	byName := map[string]*Table{}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return describeTables(ctx, tx, state, byName)
	})
	if err != nil {
		return out, unavailable(err, "The tables cannot be described")
	}
	for _, name := range g.clean().names() {
		if t := byName[name]; t != nil {
			out.Tables = append(out.Tables, *t)
		} else {
			out.Missing = append(out.Missing, name)
		}
	}
	return out, nil
}

func describeTables(ctx context.Context, tx pgx.Tx, state loginState, byName map[string]*Table) error {
	type row struct {
		Schema, Table string
		View          bool
		Column, Type  string
		NotNull, Key  bool
		Default       string
		Target        uint32
		TargetColumn  string
	}
	oids := make([]uint32, 0, len(state.tables))
	for oid := range state.tables {
		oids = append(oids, oid)
	}
	rows, err := collect[row](ctx, tx, `
		SELECT n.nspname, c.relname, c.relkind IN ('v', 'm'), a.attname, format_type(a.atttypid, a.atttypmod),
			a.attnotnull, coalesce(pk.conkey @> ARRAY[a.attnum], false),
			CASE WHEN a.attidentity <> '' OR pg_get_expr(ad.adbin, ad.adrelid) LIKE 'nextval(%' THEN 'auto-increment' ELSE coalesce(pg_get_expr(ad.adbin, ad.adrelid), '') END,
			coalesce(fk.confrelid, 0), coalesce(fa.attname, '')
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_catalog.pg_attrdef ad ON ad.adrelid = c.oid AND ad.adnum = a.attnum
		LEFT JOIN pg_catalog.pg_constraint pk ON pk.conrelid = c.oid AND pk.contype = 'p'
		LEFT JOIN LATERAL (SELECT f.confrelid, f.confkey[array_position(f.conkey, a.attnum)] AS key FROM pg_catalog.pg_constraint f
			WHERE f.conrelid = c.oid AND f.contype = 'f' AND f.conkey @> ARRAY[a.attnum] ORDER BY f.oid LIMIT 1) fk ON true
		LEFT JOIN pg_catalog.pg_attribute fa ON fa.attrelid = fk.confrelid AND fa.attnum = fk.key
		WHERE c.oid = ANY($1) ORDER BY n.nspname, c.relname, a.attnum`, oids)
	if err != nil {
		return err
	}
	for _, r := range rows {
		name := r.Schema + "." + r.Table
		t := byName[name]
		if t == nil {
			t = &Table{Schema: r.Schema, Name: r.Table, View: r.View}
			byName[name] = t
		}
		c := Column{Name: r.Column, Type: r.Type, NotNull: r.NotNull, PrimaryKey: r.Key, Default: r.Default}
		if target, ok := state.tables[r.Target]; ok {
			c.References = fmt.Sprintf("%s.%s.%s", target.schema, target.name, r.TargetColumn)
		}
		t.Columns = append(t.Columns, c)
	}
	return nil
}

// Text is the description as a model reads it: one line per table.
func (d Description) Text() string {
	var b []byte
	b = fmt.Appendf(b, "Dialect: %s\n", d.Dialect)
	for _, t := range d.Tables {
		kind := "Table"
		if t.View {
			kind = "View"
		}
		name := t.Schema + "." + t.Name
		if d.Dialect == "sqlite" {
			name = t.Name
		}
		b = fmt.Appendf(b, "%s %s (", kind, name)
		for i, c := range t.Columns {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(b, c.text()...)
		}
		b = append(b, ")\n"...)
	}
	return string(slices.Clip(b))
}

func (c Column) text() string {
	s := c.Name + " " + c.Type
	if c.PrimaryKey {
		s += " PRIMARY KEY"
	} else if c.NotNull {
		s += " NOT NULL"
	}
	if c.Default != "" {
		s += " DEFAULT " + headRunes(c.Default, 60)
	}
	if c.References != "" {
		s += " REFERENCES " + c.References
	}
	return s
}
