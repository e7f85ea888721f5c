package agentsql

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// need is a right that a role must have.
type need struct {
	have  string // query that is true when there is nothing to do
	args  []any
	grant string
	why   string
}

// commonNeeds are the rights of every role of the login.
func (m maker) commonNeeds(state loginState) []need {
	var needs []need
	schemas := map[string]bool{}
	for _, t := range state.tables {
		schemas[t.schema] = true
	}
	for _, role := range m.l.roles() {
		needs = append(needs, need{
			"SELECT has_database_privilege($1, current_database(), 'CONNECT')",
			[]any{role},
			"GRANT CONNECT ON DATABASE " + pgx.Identifier{m.l.db.server.database}.Sanitize() + " TO " + role, "connecting to the database",
		})
		for s := range schemas {
			needs = append(needs, schemaNeed(role, s))
		}
	}
	return needs
}

func schemaNeed(role, schema string) need {
	return need{
		"SELECT has_schema_privilege($1, $2, 'USAGE')",
		[]any{role, schema},
		"GRANT USAGE ON SCHEMA " + pgx.Identifier{schema}.Sanitize() + " TO " + role, "the use of schema " + schema,
	}
}

func tableNeed(role string, oid uint32, t tableFacts, privilege string) need {
	return need{
		"SELECT has_table_privilege($1, $2::oid, '" + privilege + "')",
		[]any{role, oid},
		"GRANT " + privilege + " ON TABLE " + pgx.Identifier{t.schema, t.name}.Sanitize() + " TO " + role,
		privilege + " on " + t.schema + "." + t.name,
	}
}

// readNeeds are the rights of a reader and a checker.
func (m maker) readNeeds(state loginState) []need {
	needs := []need{{
		"SELECT has_database_privilege($1, current_database(), 'TEMP')",
		[]any{m.l.checker},
		"GRANT TEMPORARY ON DATABASE " + pgx.Identifier{m.l.db.server.database}.Sanitize() + " TO " + m.l.checker, "temporary objects",
	}}
	for oid, t := range state.tables {
		needs = append(needs, tableNeed(m.l.reader, oid, t, "SELECT"))
	}
	return needs
}

// grant gives the roles what they need and lack. A role that can do it already,
// through PUBLIC perhaps, is left alone.
func (m maker) grant(ctx context.Context, needs []need) error {
	for _, n := range needs {
		have, err := m.yes(ctx, n.have, n.args...)
		if err != nil {
			return err
		}
		if have {
			continue
		}
		// A GRANT without the right to it is only a warning to the server.
		if _, err := m.tx.Exec(ctx, n.grant, pgx.QueryExecModeExec); err != nil {
			return unavailable(err, "The user of the project database may not grant %s; it needs ownership", n.why)
		}
		if have, err = m.yes(ctx, n.have, n.args...); err != nil {
			return err
		}
		if !have {
			return unavailable(nil, "The user of the project database may not grant %s; it needs ownership", n.why)
		}
	}
	return nil
}
