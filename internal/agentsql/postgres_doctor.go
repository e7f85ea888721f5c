package agentsql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// powers looks for what a grant's roles can do beyond their need. Faults turn
// the tool off unless Options.AllowPowerfulRole is set.
func (m maker) powers(ctx context.Context, state loginState) ([]Finding, error) {
	var found []Finding
	for _, role := range m.l.roles() {
		faults, err := m.faults(ctx, role, state)
		if err != nil {
			return nil, err
		}
		found = append(found, faults...)
	}
	warnings, err := m.warnings(ctx)
	return append(found, warnings...), err
}

// faults are powers of one role that its makers did not give it.
func (m maker) faults(ctx context.Context, role string, state loginState) ([]Finding, error) {
	var found []Finding
	fault := func(fix, format string, args ...any) {
		found = append(found, Finding{Fault, "agents' login " + role + " " + fmt.Sprintf(format, args...), fix})
	}
	type attributes struct {
		Super, CreateDB, CreateRole, Replication, BypassRLS bool
		Owned                                               int64
		Memberships                                         []string
	}
	all, err := collect[attributes](ctx, m.tx, `
		SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls,
			(SELECT count(*) FROM pg_shdepend d WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = r.oid AND d.deptype = 'o'),
			ARRAY(SELECT pg_get_userbyid(m.roleid)::text FROM pg_auth_members m WHERE m.member = r.oid)
		FROM pg_roles r WHERE rolname = $1`, role)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		for what, has := range map[string]bool{
			"SUPERUSER": a.Super, "CREATEDB": a.CreateDB, "CREATEROLE": a.CreateRole, "REPLICATION": a.Replication, "BYPASSRLS": a.BypassRLS,
		} {
			if has {
				fault(fmt.Sprintf("ALTER ROLE %s NO%s", role, what), "is %s", what)
			}
		}
		if a.Owned > 0 {
			fault("REASSIGN OWNED BY "+role+" TO CURRENT_USER", "owns %d objects", a.Owned)
		}
		if len(a.Memberships) > 0 {
			fault(fmt.Sprintf("REVOKE %s FROM %s", strings.Join(a.Memberships, ", "), role), "is a member of %s", strings.Join(a.Memberships, ", "))
		}
	}
	meant, err := m.meant(ctx, role, state)
	if err != nil {
		return nil, err
	}
	// What was granted to the role itself; PUBLIC's grants are no part of it.
	extra, err := collect[struct{ Name, Privilege string }](ctx, m.tx, `
		SELECT c.oid::regclass::text, a.privilege_type FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
		WHERE a.grantee = $1::regrole AND NOT (c.oid::text || ' ' || a.privilege_type = ANY($2))
		UNION ALL
		SELECT t.attrelid::regclass::text || '.' || t.attname, a.privilege_type FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) a
		WHERE t.attacl IS NOT NULL AND a.grantee = $1::regrole AND NOT (t.attrelid::text || '.' || t.attname || ' ' || a.privilege_type = ANY($2))
		UNION ALL
		SELECT p.oid::regprocedure::text, a.privilege_type FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
		WHERE a.grantee = $1::regrole LIMIT 20`, role, meant)
	for _, e := range extra {
		fault(fmt.Sprintf("REVOKE %s ON %s FROM %s", e.Privilege, e.Name, role), "has %s on %s", e.Privilege, e.Name)
	}
	return found, err
}

// meant are the rights that a role has of its makers, as "oid privilege" and
// "oid.column privilege".
func (m maker) meant(ctx context.Context, role string, state loginState) ([]string, error) {
	meant := []string{}
	switch role {
	case m.l.reader:
		for oid := range state.tables {
			meant = append(meant, fmt.Sprintf("%d SELECT", oid))
		}
	case m.l.writer:
		return m.meantWriter(ctx, state)
	}
	return meant, nil
}

// warnings are what every login of the database can do, and caps the maker may
// not set. Other walls stand before them.
func (m maker) warnings(ctx context.Context) ([]Finding, error) {
	var found []Finding
	if !m.l.db.server.superuser {
		found = append(found, Finding{
			Warning, "agents' logins have no temp_file_limit: only a superuser may set it; a sort may fill the server's disk until its timeout",
			"ALTER ROLE " + m.l.roles()[0] + " SET temp_file_limit = '256MB'",
		})
	}
	temp, err := m.yes(ctx, `SELECT has_database_privilege($1, current_database(), 'TEMP')`, m.l.roles()[0])
	if err != nil {
		return nil, err
	}
	if temp {
		found = append(found, Finding{
			Warning, "every login of the database may make temporary tables, agents' too (no statement of theirs can)",
			"REVOKE TEMPORARY ON DATABASE " + pgx.Identifier{m.l.db.server.database}.Sanitize() + " FROM PUBLIC",
		})
	}
	open, err := collect[string1](ctx, m.tx, `SELECT n.nspname::text FROM pg_namespace n
		WHERE has_schema_privilege($1, n.oid, 'CREATE') AND n.nspname !~ '^pg_temp'`, m.l.roles()[0])
	for _, s := range open {
		found = append(found, Finding{
			Warning, "every login of the database may make objects in schema " + s.Value + ", agents' too (no statement of theirs can)",
			"REVOKE CREATE ON SCHEMA " + pgx.Identifier{s.Value}.Sanitize() + " FROM PUBLIC",
		})
	}
	return found, err
}

type string1 struct{ Value string }

// Check implements DB. It looks at the server and at the logins used so far,
// or at one with no table when none was used. It makes what is missing of them
// in a transaction that is rolled back, so that nothing of it stays.
func (d *postgresDB) Check(ctx context.Context) []Finding {
	if err := (&postgresDB{maker: d.maker}).look(ctx); err != nil {
		return []Finding{faultOf(err)}
	}
	var all []Finding
	if d.server.version > newestServer {
		all = append(all, Finding{Warning, fmt.Sprintf("Postgres %d is newer than the versions agents' SQL was made for (%d to %d); statements it analyses differently are refused", d.server.version, oldestServer, newestServer), ""})
	}
	if d.server.superuser {
		all = append(all, Finding{Fault, errPowerful(d.maker.User).Message, FixPowerful})
	}
	for _, l := range d.known() {
		state, err := l.prepare(ctx, rolledBack)
		if err != nil {
			all = append(all, faultOf(err))
			continue
		}
		all = append(all, state.findings...)
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return strings.Compare(a.Text, b.Text) })
	all = slices.CompactFunc(all, func(a, b Finding) bool { return a.Text == b.Text })
	all = append(all, Finding{
		OK, "agents' SQL: the server itself caps no statement's memory, an aggregate can build a value of 1 GB until its timeout; " +
			"bound the server's process (MemoryMax= of systemd, its container's memory) or keep agents on a replica", "",
	})
	if !slices.ContainsFunc(all, func(f Finding) bool { return f.Level != OK }) {
		all = append(all, Finding{OK, "agents' SQL: logins of their own with nothing but SELECT on what is granted, read-only transactions", ""})
	}
	return append(all, d.checkMarkers(ctx)...)
}

// known are fresh twins of the logins used so far, or of a reading and a
// writing one with no table.
func (d *postgresDB) known() []*login {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*login
	reads, writes := false, false
	for _, l := range d.logins {
		if l.writer != "" {
			writes = true
			all = append(all, d.newWriteLogin(l.writes))
			continue
		}
		reads = true
		all = append(all, d.newLogin(l.grant))
	}
	if !reads {
		all = append(all, d.newLogin(Grant{}))
	}
	if !writes {
		all = append(all, d.newWriteLogin(WriteGrant{}))
	}
	return all
}

// faultOf tells the operator the cause as well.
func faultOf(err error) Finding {
	f := Finding{Level: Fault, Text: "agents' SQL is off: " + err.Error()}
	var e *Error
	if errors.As(err, &e) && e.Cause() != nil {
		f.Text += ": " + e.Cause().Error()
	}
	return f
}
