package agentsql

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Describe implements DB. The maker reads the catalogues, limited to the
// granted tables.
func (d *postgresDB) Describe(ctx context.Context, g Grant) (Description, error) {
	if err := g.check(); err != nil {
		return Description{Dialect: "postgres"}, err
	}
	l, err := d.login(ctx, g, true)
	if err != nil {
		return Description{Dialect: "postgres"}, err
	}
	return d.describe(ctx, l, g)
}

// DescribeWrites implements DB.
func (d *postgresDB) DescribeWrites(ctx context.Context, g WriteGrant) (Description, error) {
	if err := g.check(); err != nil {
		return Description{}, err
	}
	l, err := d.writeLogin(ctx, g, true)
	if err != nil {
		return Description{Dialect: "postgres"}, err
	}
	out, err := d.describe(ctx, l, g.Tables)
	return out.withoutViews(), err
}

func (d *postgresDB) describe(ctx context.Context, l *login, g Grant) (Description, error) {
	out := Description{Dialect: "postgres"}
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
		Auto          bool
		Computed      bool
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
			a.attidentity <> '' OR coalesce(pg_get_expr(ad.adbin, ad.adrelid) LIKE 'nextval(%', false), a.attgenerated <> '',
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
		c := Column{Name: r.Column, Type: r.Type, NotNull: r.NotNull, PrimaryKey: r.Key, Default: r.Default, Auto: r.Auto, Computed: r.Computed}
		if target, ok := state.tables[r.Target]; ok {
			c.References = fmt.Sprintf("%s.%s.%s", target.schema, target.name, r.TargetColumn)
		}
		t.Columns = append(t.Columns, c)
	}
	return nil
}

// Text is the description as a model that queries reads it: one line per table.
func (d Description) Text() string {
	b := fmt.Appendf(nil, "Dialect: %s\n", d.Dialect)
	for _, t := range d.Tables {
		b = append(d.line(b, t), '\n')
	}
	return string(b)
}

// WriteText is the description as a model that writes reads it: one line per
// table with its verbs and what an insert needs.
func (d Description) WriteText(g WriteGrant) string {
	var b []byte
	for _, t := range d.Tables {
		full := t.Schema + "." + t.Name
		verbs := []string{}
		for _, op := range g.verbs(full) {
			verbs = append(verbs, string(op))
		}
		b = d.line(b, t)
		if len(verbs) == 0 {
			verbs = []string{"nothing"}
		}
		b = fmt.Appendf(b, "; allowed: %s", strings.Join(verbs, ", "))
		if columns, limited := g.Columns[full]; limited {
			b = fmt.Appendf(b, "; writable columns: %s", strings.Join(sorted(columns), ", "))
		}
		if hint := t.insertHint(); hint != "" && g.may(full, Insert) {
			b = append(b, "; "+hint...)
		}
		b = append(b, '\n')
	}
	return string(b)
}

// insertHint tells which columns an insert must name and which it need not.
func (t Table) insertHint() string {
	var required, automatic []string
	for _, c := range t.Columns {
		switch {
		case c.Auto || c.Computed:
			automatic = append(automatic, c.Name)
		case (c.NotNull || c.PrimaryKey) && c.Default == "":
			required = append(required, c.Name)
		}
	}
	var parts []string
	if len(required) > 0 {
		parts = append(parts, "insert needs: "+strings.Join(required, ", "))
	}
	if len(automatic) > 0 {
		parts = append(parts, "filled in by the database: "+strings.Join(automatic, ", "))
	}
	return strings.Join(parts, "; ")
}

// line appends a table with its columns.
func (d Description) line(b []byte, t Table) []byte {
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
	return append(b, ')')
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
