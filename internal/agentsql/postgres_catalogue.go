package agentsql

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// querier is a session that reads the catalogues, a writer's or the maker's.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func catalogue[T any](ctx context.Context, q querier, sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	return all, nil
}

// target reads the columns of the change's table as they are now. A table that
// is not there, or not where the login was made for, is errRelation.
func (r *postgresWrite) target() (targetTable, error) {
	type row struct {
		Schema, Table       string
		Plain               bool // no partitions
		Column, Type        string
		Key, Auto, Computed bool
		Base, Element       uint32
		IsArray             bool
	}
	var oid uint32
	r.l.mu.Lock()
	for o, t := range r.l.state.tables {
		if t.full() == r.table {
			oid = o
		}
	}
	r.l.mu.Unlock()
	rows, err := catalogue[row](r.ctx, r.conn, `
		SELECT n.nspname::text, c.relname::text, c.relkind = 'r', a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod),
			coalesce(pk.conkey @> ARRAY[a.attnum], false),
			a.attidentity <> '' OR coalesce(pg_catalog.pg_get_expr(ad.adbin, ad.adrelid) LIKE 'nextval(%', false), a.attgenerated <> '',
			b.oid, b.typelem, b.typcategory = 'A'
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
		JOIN pg_catalog.pg_type b ON b.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
		LEFT JOIN pg_catalog.pg_attrdef ad ON ad.adrelid = c.oid AND ad.adnum = a.attnum
		LEFT JOIN pg_catalog.pg_constraint pk ON pk.conrelid = c.oid AND pk.contype = 'p'
		WHERE c.oid = $1::oid AND n.nspname || '.' || c.relname = $2 AND c.relkind IN ('r', 'p') ORDER BY a.attnum`, oid, r.table)
	if err != nil {
		return targetTable{}, err
	}
	if len(rows) == 0 {
		return targetTable{}, errRelation
	}
	t := targetTable{schema: rows[0].Schema, name: rows[0].Table, only: rows[0].Plain}
	for _, c := range rows {
		column := targetColumn{name: c.Column, typ: c.Type, key: c.Key, auto: c.Auto, computed: c.Computed}
		switch {
		case isJSON(c.Base):
			column.kind = jsonColumn
		case c.IsArray:
			column.kind = arrayColumn
			if isJSON(c.Element) {
				column.element = jsonColumn
			}
		}
		t.columns = append(t.columns, column)
	}
	return t, nil
}

func isJSON(oid uint32) bool { return oid == 114 || oid == 3802 } // json, jsonb

// postgresRelations reads the foreign keys with an action, the triggers, rules
// and partitions of the database.
func postgresRelations(ctx context.Context, q querier) (relations, error) {
	out := relations{parts: map[string][]string{}}
	keys, err := catalogue[struct {
		Name, Child, Parent         string
		ChildColumns, ParentColumns []string
		OnDelete, OnUpdate          string
	}](ctx, q, `
		SELECT k.conname::text, cn.nspname || '.' || c.relname, pn.nspname || '.' || p.relname,
			ARRAY(SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = k.conrelid AND attnum = ANY (k.conkey)),
			ARRAY(SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = k.confrelid AND attnum = ANY (k.confkey)),
			k.confdeltype::text, k.confupdtype::text
		FROM pg_catalog.pg_constraint k
		JOIN pg_catalog.pg_class c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace cn ON cn.oid = c.relnamespace
		JOIN pg_catalog.pg_class p ON p.oid = k.confrelid JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
		WHERE k.contype = 'f' AND (k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd'))`)
	if err != nil {
		return out, err
	}
	for _, k := range keys {
		out.keys = append(out.keys, foreignKey{
			name: k.Name, child: k.Child, parent: k.Parent, childColumns: k.ChildColumns, parentColumns: k.ParentColumns,
			onDelete: postgresAction(k.OnDelete), onUpdate: postgresAction(k.OnUpdate),
		})
	}
	triggers, err := catalogue[struct {
		What, Name, Table       string
		Inserts, Updates, Delet bool
	}](ctx, q, `
		SELECT 'trigger', t.tgname::text, n.nspname || '.' || c.relname, t.tgtype & 4 <> 0, t.tgtype & 16 <> 0, t.tgtype & 8 <> 0
		FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE NOT t.tgisinternal AND t.tgenabled <> 'D'
		UNION ALL
		SELECT 'rule', r.rulename::text, n.nspname || '.' || c.relname, r.ev_type = '3', r.ev_type = '2', r.ev_type = '4'
		FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE r.ev_type <> '1' AND r.ev_enabled <> 'D'
		UNION ALL
		SELECT 'partition on another server', c.relname::text, n.nspname || '.' || c.relname, true, true, true
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'f' AND c.relispartition`)
	if err != nil {
		return out, err
	}
	for _, t := range triggers {
		one := trigger{what: t.What, name: t.Name, table: t.Table}
		for op, has := range map[Operation]bool{Insert: t.Inserts, Update: t.Updates, Delete: t.Delet} {
			if has {
				one.ops = append(one.ops, op)
			}
		}
		out.triggers = append(out.triggers, one)
	}
	parts, err := catalogue[struct{ Root, Part string }](ctx, q, `
		WITH RECURSIVE tree(root, part) AS (
			SELECT i.inhparent, i.inhrelid FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class p ON p.oid = i.inhparent AND p.relkind = 'p'
			UNION SELECT tree.root, i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.part)
		SELECT rn.nspname || '.' || r.relname, pn.nspname || '.' || p.relname FROM tree
		JOIN pg_catalog.pg_class r ON r.oid = tree.root JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
		JOIN pg_catalog.pg_class p ON p.oid = tree.part JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace`)
	for _, p := range parts {
		out.parts[p.Root] = append(out.parts[p.Root], p.Part)
	}
	return out, err
}

func postgresAction(letter string) action {
	switch letter {
	case "c":
		return cascade
	case "n", "d":
		return setNull
	}
	return noAction
}
