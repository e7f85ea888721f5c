package agentsql

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// markerSchema holds the markers of changes, one row per key. No grant reaches
// it: a writer may add the row of the key that its transaction names, and read
// that one alone.
const markerSchema = "hob_agent_calls"

// keySetting names the transaction's key to the policy of the markers.
const keySetting = "hob.call_key"

// newWriteLogin is the login of a grant to write; its role may not exist yet.
func (d *postgresDB) newWriteLogin(g WriteGrant) *login {
	g.Tables = g.Tables.clean()
	l := d.emptyLogin(g.Tables)
	l.writes = g
	l.writer = "hob_write_" + hex.EncodeToString(d.derive("role", g.key()))[:24]
	return l
}

// writeLogin returns the login of a grant to write, as login does of one to
// read.
func (d *postgresDB) writeLogin(ctx context.Context, g WriteGrant, unsure bool) (*login, error) {
	return d.ready(ctx, "write "+g.key(), unsure, func() *login { return d.newWriteLogin(g) })
}

// privilege is a verb's name among the server's.
func (op Operation) privilege() string { return strings.ToUpper(string(op)) }

// writeNeeds are the rights of a writer: SELECT, for conditions; the verbs, by
// column where columns are listed; the sequences that number new rows; its
// markers.
func (m maker) writeNeeds(ctx context.Context, state loginState) ([]need, error) {
	if err := m.markers(ctx); err != nil {
		return nil, err
	}
	role := m.l.writer
	needs := []need{schemaNeed(role, markerSchema)}
	for _, privilege := range []string{"SELECT", "INSERT"} {
		needs = append(needs, need{
			"SELECT has_table_privilege($1, '" + markerSchema + ".calls', '" + privilege + "')",
			[]any{role},
			"GRANT " + privilege + " ON TABLE " + markerSchema + ".calls TO " + role, privilege + " on the markers of changes",
		})
	}
	for oid, t := range state.tables {
		needs = append(needs, tableNeed(role, oid, t, "SELECT"))
		for _, op := range m.l.writes.verbs(t.full()) {
			columns, limited := m.l.writes.Columns[t.full()]
			if !limited || op == Delete {
				needs = append(needs, tableNeed(role, oid, t, op.privilege()))
				continue
			}
			there, err := collect[string1](ctx, m.tx, `SELECT attname::text FROM pg_attribute
				WHERE attrelid = $1::oid AND attname = ANY($2) AND attnum > 0 AND NOT attisdropped`, oid, columns)
			if err != nil {
				return nil, err
			}
			for _, c := range there {
				needs = append(needs, columnNeed(role, oid, t, op, c.Value))
			}
		}
	}
	sequences, err := m.sequences(ctx, state)
	for _, s := range sequences {
		needs = append(needs, need{
			"SELECT has_sequence_privilege($1, $2::oid, 'USAGE')",
			[]any{role, s.OID},
			"GRANT USAGE ON SEQUENCE " + pgx.Identifier{s.Schema, s.Name}.Sanitize() + " TO " + role, "USAGE on a sequence of a table",
		})
	}
	return needs, err
}

func (t tableFacts) full() string { return t.schema + "." + t.name }

func columnNeed(role string, oid uint32, t tableFacts, op Operation, column string) need {
	return need{
		"SELECT has_column_privilege($1, $2::oid, $3::text, '" + op.privilege() + "')",
		[]any{role, oid, column},
		fmt.Sprintf("GRANT %s (%s) ON TABLE %s TO %s", op.privilege(), pgx.Identifier{column}.Sanitize(), pgx.Identifier{t.schema, t.name}.Sanitize(), role),
		op.privilege() + " of a column of " + t.full(),
	}
}

type sequence struct {
	OID          uint32
	Schema, Name string
}

// sequences number the rows of the tables that may be inserted into.
func (m maker) sequences(ctx context.Context, state loginState) ([]sequence, error) {
	oids := []uint32{}
	for oid, t := range state.tables {
		if m.l.writes.may(t.full(), Insert) {
			oids = append(oids, oid)
		}
	}
	return collect[sequence](ctx, m.tx, `
		SELECT s.oid, n.nspname::text, s.relname::text FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
		JOIN pg_namespace n ON n.oid = s.relnamespace
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'a' AND d.refobjid = ANY($1)`, oids)
}

// meantWriter are the rights that writeNeeds gives.
func (m maker) meantWriter(ctx context.Context, state loginState) ([]string, error) {
	meant := []string{}
	for _, oid := range slices.Sorted(maps.Keys(state.tables)) {
		t := state.tables[oid]
		meant = append(meant, fmt.Sprintf("%d SELECT", oid))
		for _, op := range m.l.writes.verbs(t.full()) {
			columns, limited := m.l.writes.Columns[t.full()]
			if !limited || op == Delete {
				meant = append(meant, fmt.Sprintf("%d %s", oid, op.privilege()))
				continue
			}
			for _, c := range columns {
				meant = append(meant, fmt.Sprintf("%d.%s %s", oid, c, op.privilege()))
			}
		}
	}
	sequences, err := m.sequences(ctx, state)
	if err != nil {
		return nil, err
	}
	for _, s := range sequences {
		meant = append(meant, fmt.Sprintf("%d USAGE", s.OID))
	}
	markers, err := collect[struct{ OID uint32 }](ctx, m.tx, `SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = 'calls'`, markerSchema)
	for _, t := range markers {
		meant = append(meant, fmt.Sprintf("%d SELECT", t.OID), fmt.Sprintf("%d INSERT", t.OID))
	}
	return meant, err
}

// markers makes the schema of markers where there is none, and forgets those
// whose time is over.
func (m maker) markers(ctx context.Context) error {
	there, err := m.yes(ctx, "SELECT to_regclass($1) IS NOT NULL", markerSchema+".calls")
	if err != nil {
		return err
	}
	if !there {
		for _, sql := range []string{
			"CREATE SCHEMA " + markerSchema,
			"CREATE TABLE " + markerSchema + `.calls (key text PRIMARY KEY, digest text NOT NULL, result text NOT NULL, at timestamptz NOT NULL DEFAULT now())`,
			"CREATE INDEX calls_by_age ON " + markerSchema + ".calls (at)",
			"ALTER TABLE " + markerSchema + ".calls ENABLE ROW LEVEL SECURITY",
			"CREATE POLICY own_read ON " + markerSchema + ".calls FOR SELECT USING (key = current_setting('" + keySetting + "', true))",
			"CREATE POLICY own_add ON " + markerSchema + ".calls FOR INSERT WITH CHECK (key = current_setting('" + keySetting + "', true))",
		} {
			if _, err := m.tx.Exec(ctx, sql, pgx.QueryExecModeExec); err != nil {
				return unavailable(err, "The user of the project database may not make the schema %s for the markers of changes; it needs: GRANT CREATE ON DATABASE %s",
					markerSchema, m.l.db.server.database)
			}
		}
		return nil
	}
	_, err = m.tx.Exec(ctx, "DELETE FROM "+markerSchema+".calls WHERE at < now() - $1::interval", pgx.QueryExecModeExec, fmt.Sprintf("%d seconds", int(MarkerAge.Seconds())))
	if err != nil {
		return unavailable(err, "The user of the project database does not own the schema %s of the markers of changes", markerSchema)
	}
	return nil
}

// checkMarkers tells an operator of the markers.
func (d *postgresDB) checkMarkers(ctx context.Context) []Finding {
	conn, err := pgx.ConnectConfig(ctx, d.maker)
	if err != nil {
		return []Finding{faultOf(unavailable(err, "the project database cannot be reached"))}
	}
	defer drop(conn)
	var there bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", pgx.QueryExecModeExec, markerSchema+".calls").Scan(&there); err != nil {
		return []Finding{faultOf(unavailable(err, "the markers of changes cannot be looked at"))}
	}
	if !there {
		return []Finding{{OK, "agents' changes: the schema " + markerSchema + " for their markers is made with the first one", ""}}
	}
	var n int64
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM "+markerSchema+".calls", pgx.QueryExecModeExec).Scan(&n); err != nil {
		return []Finding{faultOf(unavailable(err, "the markers of changes cannot be looked at"))}
	}
	return []Finding{{OK, fmt.Sprintf("agents' changes: a login of their own per grant with nothing but its verbs; %d markers in schema %s", n, markerSchema), ""}}
}
