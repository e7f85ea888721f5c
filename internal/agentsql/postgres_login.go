package agentsql

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// renewAfter is how long a login's tables are taken as they were found.
	renewAfter = time.Minute
	// renewLeast is the least time between renewals on an agent's behalf: a
	// stream of statements on unknown tables must not make the maker busy.
	renewLeast = 2 * time.Second
	// loginConnections is the server's own cap on a reader's sessions.
	loginConnections = 64
	// scramRounds are the iterations of the stored password verifier.
	scramRounds = 4096
)

// login is a grant's roles and the sessions they keep: reader and checker of a
// grant to read, writer of a grant to write.
type login struct {
	db       *postgresDB
	grant    Grant
	reader   string
	checker  string
	writer   string
	writes   WriteGrant // the writer's
	settings map[string]string

	setup   sync.Mutex // one renewal at a time
	made    bool       // in this process: passwords are set
	renewed time.Time  // guarded by setup, as are made and failure
	failure error      // of the last renewal

	mu    sync.Mutex
	state loginState
	idle  map[string][]idleSession // by role
	prune *time.Timer              // runs while sessions are idle
}

// loginState is what the grant's tables are at the moment.
type loginState struct {
	tables         map[uint32]tableFacts
	enums, columns map[uint32]bool
	lists          map[uint32]bool // arrays of enums
	cast           map[uint32]bool // types with a cast of their own, see walk
	findings       []Finding
}

type tableFacts struct {
	schema, name string
	view         bool // its plan would show what lies behind it
}

// roleNames derive from the secret, the database and the grant: equal on all
// replicas, and different for another Hob on the same server.
func (d *postgresDB) roleNames(g Grant) (reader, checker string) {
	tag := hex.EncodeToString(d.derive("role", g.key()))[:24]
	return "hob_agent_" + tag, "hob_check_" + tag
}

func (d *postgresDB) derive(purpose, what string) []byte {
	mac := hmac.New(sha256.New, d.secret)
	fmt.Fprintf(mac, "agentsql\x00%s\x00%s\x00%s", purpose, d.server.database, what)
	return mac.Sum(nil)
}

func (d *postgresDB) password(role string) string {
	return base64.RawURLEncoding.EncodeToString(d.derive("password", role))
}

// verifier is what the server stores of a password. Sending it in place of the
// password keeps that out of the server's log.
func (d *postgresDB) verifier(role string) (string, error) {
	salt := d.derive("salt", role)[:16]
	salted, err := pbkdf2.Key(sha256.New, d.password(role), salt, scramRounds, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("password verifier: %w", err)
	}
	sum := func(key []byte, text string) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(sum(salted, "Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", scramRounds, b64(salt), b64(stored[:]), b64(sum(salted, "Server Key"))), nil
}

// login returns the login of a grant to read, making or renewing it where
// needed. unsure asks for a look at the tables as they are now.
func (d *postgresDB) login(ctx context.Context, g Grant, unsure bool) (*login, error) {
	g = g.clean()
	return d.ready(ctx, "read "+g.key(), unsure, func() *login { return d.newLogin(g) })
}

// ready returns the login of a key as it should be; fresh makes an unknown one.
func (d *postgresDB) ready(ctx context.Context, key string, unsure bool, fresh func() *login) (*login, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, unavailable(nil, "The project database is closed")
	}
	l := d.logins[key]
	if l == nil {
		l = fresh()
		d.logins[key] = l
	}
	d.mu.Unlock()

	l.setup.Lock()
	defer l.setup.Unlock()
	if age := time.Since(l.renewed); l.made && (age < renewLeast || age < renewAfter && !unsure) {
		return l, nil
	}
	if l.failure != nil && time.Since(l.renewed) < renewLeast {
		return nil, l.failure
	}
	err := l.renew(ctx)
	if ctx.Err() == nil {
		l.made, l.renewed, l.failure = err == nil, time.Now(), err //nolint:forbidigo // its age is measured above
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// newLogin is the login of a grant that is clean; its roles may not exist yet.
func (d *postgresDB) newLogin(g Grant) *login {
	l := d.emptyLogin(g)
	l.reader, l.checker = d.roleNames(g)
	return l
}

func (d *postgresDB) emptyLogin(g Grant) *login {
	path := append([]string{"pg_catalog"}, append(quoteAll(g.schemas()), "pg_temp")...)
	return &login{db: d, grant: g, idle: map[string][]idleSession{}, settings: sessionSettings(strings.Join(path, ", "))}
}

// roles are the login's own.
func (l *login) roles() []string {
	if l.writer != "" {
		return []string{l.writer}
	}
	return []string{l.reader, l.checker}
}

func quoteAll(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = pgx.Identifier{n}.Sanitize()
	}
	return out
}

// renew makes the roles as they should be.
func (l *login) renew(ctx context.Context) error {
	state, err := l.prepare(ctx, kept)
	if err != nil {
		return err
	}
	for _, f := range state.findings {
		if f.Level == Fault && !l.db.powerful {
			return unavailable(errors.New(f.Text), "The project database is off: the agents' login can do more than it should; hob doctor tells what")
		}
	}
	l.mu.Lock()
	l.state = state
	l.mu.Unlock()
	return nil
}

// What becomes of the roles that prepare makes.
const (
	kept       = true
	rolledBack = false
)

// prepare makes the roles as they should be, in one transaction of the maker,
// and tells what it found.
func (l *login) prepare(ctx context.Context, keep bool) (state loginState, err error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, l.db.maker)
	if err != nil {
		return state, unavailable(err, "The project database cannot be reached")
	}
	defer drop(conn)
	tx, err := conn.Begin(ctx)
	if err != nil {
		return state, unavailable(err, "The agents' login cannot be made")
	}
	defer tx.Rollback(ctx) //nolint:errcheck // behind a commit it does nothing, and dropping the connection does the same
	if state, err = (maker{tx: tx, l: l}).all(ctx); err != nil || !keep {
		return state, err
	}
	if err := tx.Commit(ctx); err != nil {
		return state, unavailable(err, "The agents' login cannot be made")
	}
	return state, nil
}

// maker does the work of prepare.
type maker struct {
	tx pgx.Tx
	l  *login
}

func (m maker) all(ctx context.Context) (state loginState, err error) {
	if err := m.exec(ctx, "SET LOCAL search_path = pg_catalog"); err != nil {
		return state, err
	}
	// Replicas renew the same roles; the server itself would fail one of two
	// concurrent GRANTs.
	if err := m.exec(ctx, "SELECT pg_advisory_xact_lock(7235416720541)"); err != nil {
		return state, err
	}
	for _, role := range m.l.roles() {
		if err := m.role(ctx, role); err != nil {
			return state, err
		}
	}
	if state, err = m.tables(ctx); err != nil {
		return state, err
	}
	needs := m.readNeeds(state)
	if m.l.writer != "" {
		if needs, err = m.writeNeeds(ctx, state); err != nil {
			return state, err
		}
	}
	if err := m.grant(ctx, append(m.commonNeeds(state), needs...)); err != nil {
		return state, err
	}
	state.findings, err = m.powers(ctx, state)
	return state, err
}

func (m maker) exec(ctx context.Context, sql string) error {
	if _, err := m.tx.Exec(ctx, sql, pgx.QueryExecModeExec); err != nil {
		return unavailable(err, "The agents' login cannot be made")
	}
	return nil
}

// collect reads rows of the maker's own queries.
func collect[T any](ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return nil, unavailable(err, "The agents' login cannot be looked at")
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		return nil, unavailable(err, "The agents' login cannot be looked at")
	}
	return all, nil
}

func (m maker) yes(ctx context.Context, sql string, args ...any) (bool, error) {
	var yes bool
	if err := m.tx.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(&yes); err != nil {
		return false, unavailable(err, "The agents' login cannot be looked at")
	}
	return yes, nil
}

// role makes a role, or sets the password of one that is there.
func (m maker) role(ctx context.Context, role string) error {
	verifier, err := m.l.db.verifier(role)
	if err != nil {
		return err
	}
	there, err := m.yes(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role)
	if err != nil {
		return err
	}
	if there {
		if m.l.made {
			return nil
		}
		return m.exec(ctx, fmt.Sprintf("ALTER ROLE %s LOGIN PASSWORD '%s'", role, verifier))
	}
	err = m.exec(ctx, fmt.Sprintf(`CREATE ROLE %s LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT
		CONNECTION LIMIT %d PASSWORD '%s'`, role, loginConnections, verifier))
	if err != nil {
		return err
	}
	settings := []string{
		"statement_timeout = '5min'", "lock_timeout = '2s'", "idle_in_transaction_session_timeout = '15s'", "work_mem = '16MB'",
	}
	if role == m.l.reader {
		settings = append(settings, "default_transaction_read_only = on")
	}
	if role != m.l.checker && m.l.db.server.superuser { // nobody else may set it
		settings = append(settings, "temp_file_limit = '256MB'")
	}
	for _, s := range settings {
		if err := m.exec(ctx, "ALTER ROLE "+role+" SET "+s); err != nil {
			return err
		}
	}
	return nil
}

// tables finds the granted tables that exist and the types of their columns.
// Foreign tables are left out: they act on other servers. So are views for a
// writer, which would write what lies behind them.
func (m maker) tables(ctx context.Context) (loginState, error) {
	state := loginState{tables: map[uint32]tableFacts{}, enums: map[uint32]bool{}, columns: map[uint32]bool{}, lists: map[uint32]bool{}}
	type row struct {
		OID      uint32
		Schema   string
		Name     string
		View     bool
		RowTypes []uint32
	}
	var schemas, tables []string
	for _, s := range m.l.grant.schemas() {
		for _, t := range m.l.grant[s] {
			schemas, tables = append(schemas, s), append(tables, t)
		}
	}
	found, err := collect[row](ctx, m.tx, `
		SELECT c.oid, n.nspname, c.relname, c.relkind = 'v' OR c.relrowsecurity, ARRAY[c.reltype, t.typarray]
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type t ON t.oid = c.reltype
		JOIN unnest($1::text[], $2::text[]) g(s, t) ON g.s = n.nspname AND g.t = c.relname
		WHERE c.relkind IN ('r', 'p', 'v', 'm') AND (c.relkind IN ('r', 'p') OR NOT $3) AND c.relpersistence <> 't'`,
		schemas, tables, m.l.writer != "")
	if err != nil {
		return state, err
	}
	oids := []uint32{}
	for _, r := range found {
		state.tables[r.OID] = tableFacts{schema: r.Schema, name: r.Name, view: r.View}
		oids = append(oids, r.OID)
		for _, t := range r.RowTypes {
			state.columns[t] = true
		}
	}
	type column struct {
		OID, Array    uint32
		Enum, IsArray bool
	}
	types, err := collect[column](ctx, m.tx, `
		SELECT DISTINCT t.oid, t.typarray, coalesce(e.typtype, t.typtype) = 'e', t.typcategory = 'A' FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
		WHERE a.attrelid = ANY($1) AND a.attnum > 0 AND NOT a.attisdropped`, oids)
	for _, t := range types {
		into := state.columns
		if t.Enum {
			into = state.enums
			state.lists[t.Array] = true
			if t.IsArray {
				state.lists[t.OID] = true
			}
		}
		into[t.OID], into[t.Array] = true, true
	}
	delete(state.columns, 0)
	delete(state.enums, 0)
	delete(state.lists, 0)
	if err != nil {
		return state, err
	}
	state.cast, err = m.casts(ctx)
	return state, err
}

// casts are the types from which a cast to a built-in type leads by a function that is none, with the domains, arrays and
// rows that hold them.
func (m maker) casts(ctx context.Context) (map[uint32]bool, error) {
	found, err := collect[struct{ OID uint32 }](ctx, m.tx, `
		WITH RECURSIVE own(oid) AS (
			SELECT castsource FROM pg_cast WHERE castfunc >= 16384 AND casttarget < 16384
			UNION
			SELECT t.oid FROM own JOIN pg_type t ON t.typelem = own.oid OR t.typbasetype = own.oid
				OR t.typrelid <> 0 AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.atttypid = own.oid AND a.attnum > 0 AND NOT a.attisdropped))
		SELECT oid FROM own`)
	all := map[uint32]bool{}
	for _, t := range found {
		all[t.OID] = true
	}
	return all, err
}
