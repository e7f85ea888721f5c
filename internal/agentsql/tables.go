package agentsql

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// grantable are the names that a grant can have, as schema.table in order.
func grantable(names [][2]string) []string {
	var all []string
	for _, n := range names {
		if identifier(n[0]) && identifier(n[1]) && !systemSchema(n[0]) {
			all = append(all, n[0]+"."+n[1])
		}
	}
	slices.Sort(all)
	return all
}

// Tables implements DB.
func (d *sqliteDB) Tables(context.Context) ([]string, error) {
	c, err := openSQLiteConn(d.path)
	if err != nil {
		return nil, unavailable(err, "The project database cannot be opened")
	}
	defer c.close()
	objects, err := c.objects()
	if err != nil {
		return nil, unavailable(err, "The project database cannot be read")
	}
	all := Grant{}
	for _, o := range objects {
		all[SQLiteSchema] = append(all[SQLiteSchema], o.name)
	}
	var names [][2]string
	for name := range maps.Keys(objects.granted(all)) {
		names = append(names, [2]string{SQLiteSchema, name})
	}
	return grantable(names), nil
}

// Tables implements DB.
func (d *postgresDB) Tables(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, d.maker)
	if err != nil {
		return nil, unavailable(err, "the project database cannot be reached")
	}
	defer drop(conn)
	rows, err := conn.Query(ctx, `SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class c
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm') AND NOT c.relispartition`, pgx.QueryExecModeExec)
	if err != nil {
		return nil, unavailable(err, "the project database cannot be looked at")
	}
	names, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (n [2]string, err error) { return n, r.Scan(&n[0], &n[1]) })
	if err != nil {
		return nil, unavailable(err, "the project database cannot be looked at")
	}
	return grantable(names), nil
}
