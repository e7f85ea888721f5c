package agentsql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

const (
	// setupTimeout bounds making or renewing a login.
	setupTimeout = 20 * time.Second
	// cancelGrace is how long a cancelled statement may take to end before its
	// connection is dropped; terminateGrace how long the server is then asked to
	// end the backend.
	cancelGrace    = time.Second
	terminateGrace = 700 * time.Millisecond
	// maxWireMessage is the largest message taken from the server, in bytes: one
	// row. It bounds what a statement can make this process hold.
	maxWireMessage = 8 << 20
	// oldestServer and newestServer are the major versions whose query trees are
	// known.
	oldestServer = 13
	newestServer = 18
)

// postgresDB is a DB over a Postgres server.
//
// Four kinds of login take part. The maker is the user of the project
// database's URL: it makes the others and never sees an agent's text. For each
// grant there are a reader, which has SELECT on the granted tables and runs the
// statements, and a checker, which can read no table and only has statements
// analysed, in transactions that are rolled back. For each grant to write there
// is a writer, which has the granted verbs on the granted tables and carries out
// changes that come as data. Each logs in itself: SET ROLE could be undone from
// inside a SELECT.
type postgresDB struct {
	maker    *pgx.ConnConfig
	secret   []byte
	powerful bool // Options.AllowPowerfulRole
	allow    allowList
	server   serverFacts
	gate     *gate

	mu     sync.Mutex
	logins map[string]*login
	closed bool
}

var _ DB = (*postgresDB)(nil)

// serverFacts are what the maker found when it looked at the server.
type serverFacts struct {
	version   int // major
	database  string
	superuser bool // the maker is one
}

// OpenPostgres returns a DB over the database of url. Its user makes the
// agents' logins: it needs CREATEROLE and ownership (or the grant option) of
// what it shall grant, and for changes CREATE on the database. An *Error of kind
// Unavailable says, for the operator, why the tool has to stay off; one of kind
// Powerful that the user is a superuser, which Options.AllowPowerfulRole must
// allow.
func OpenPostgres(ctx context.Context, url string, o Options) (DB, error) {
	if len(o.Secret) < MinSecret {
		return nil, fmt.Errorf("agents' logins: the secret has %d bytes, at least %d are needed", len(o.Secret), MinSecret)
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		// pgx shows the URL, without its password.
		return nil, unavailable(err, "the project database's URL cannot be read")
	}
	d := &postgresDB{maker: config, secret: o.Secret, powerful: o.AllowPowerfulRole, gate: newGate(), logins: map[string]*login{}}
	if err := d.look(ctx); err != nil {
		return nil, err
	}
	if d.server.superuser && !d.powerful {
		return nil, errPowerful(config.User)
	}
	if d.server.superuser && o.Warn != nil {
		o.Warn(errPowerful(config.User).Message)
	}
	return d, nil
}

// errPowerful tells of a maker that nothing on the server stops: what is wrong
// in front of it would be wrong with all data.
func errPowerful(user string) *Error {
	return &Error{Kind: Powerful, Message: fmt.Sprintf("the user of the project database, %s, is a superuser", user)}
}

// FixPowerful tells an operator what to do about an Error of kind Powerful.
const FixPowerful = "give --project-database a user with CREATEROLE that owns the agents' tables, or allow this one with --allow-powerful-role"

// look finds out what the maker can do and resolves the allow lists.
func (d *postgresDB) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, d.maker)
	if err != nil {
		return unavailable(err, "the project database cannot be reached")
	}
	defer drop(conn)
	var number string
	var mayCreate bool
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version_num'), current_database(), rolsuper, rolsuper OR rolcreaterole
		FROM pg_catalog.pg_roles WHERE rolname = current_user`, pgx.QueryExecModeExec).
		Scan(&number, &d.server.database, &d.server.superuser, &mayCreate)
	if err != nil {
		return unavailable(err, "the project database cannot be looked at")
	}
	version, err := strconv.Atoi(number)
	if err != nil {
		return unavailable(err, "the project database has the version %q", number)
	}
	d.server.version = version / 10_000
	if d.server.version < oldestServer {
		return unavailable(nil, "Postgres %d is too old for agents' SQL; %d or later is needed", d.server.version, oldestServer)
	}
	if !mayCreate {
		return unavailable(nil, "the user of the project database may not make the agents' logins; it needs CREATEROLE: ALTER ROLE %s CREATEROLE", d.maker.User)
	}
	if d.allow, err = loadAllowList(ctx, conn); err != nil {
		return unavailable(err, "the project database cannot be looked at")
	}
	return nil
}

// Close implements DB.
func (d *postgresDB) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, l := range d.logins {
		l.closeIdle()
	}
	return nil
}

// sessionSettings are the settings of every session on an agent's behalf. What
// the two sessions could read differently (quoting, search path) is fixed, so
// that what is checked is what runs.
func sessionSettings(searchPath string) map[string]string {
	return map[string]string{
		"application_name":                    "hob agent",
		"search_path":                         searchPath,
		"standard_conforming_strings":         "on",
		"backslash_quote":                     "safe_encoding",
		"client_encoding":                     "UTF8",
		"DateStyle":                           "ISO, YMD",
		"IntervalStyle":                       "postgres",
		"TimeZone":                            "UTC",
		"bytea_output":                        "hex",
		"extra_float_digits":                  "1",
		"transform_null_equals":               "off",
		"row_security":                        "on",
		"lock_timeout":                        "2s",
		"idle_in_transaction_session_timeout": "15s",
		"work_mem":                            "16MB",
		"jit":                                 "off",
		"max_parallel_workers_per_gather":     "0",
		"cursor_tuple_fraction":               "1",
	}
}

// connect opens a session of an agent's login.
func (d *postgresDB) connect(ctx context.Context, user, password string, settings map[string]string) (*pgx.Conn, error) {
	config := d.maker.Copy()
	config.User, config.Password = user, password
	config.RuntimeParams = settings
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.StatementCacheCapacity, config.DescriptionCacheCapacity = 0, 0
	config.MaxProtocolMessageBodyLen = maxWireMessage
	config.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {}
	config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: cancelGrace}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("log in as %s: %w", user, err)
	}
	return conn, nil
}

// Query implements DB.
func (d *postgresDB) Query(ctx context.Context, q Query) (Rows, error) {
	q.Limits = q.Limits.withDefaults()
	s, err := prepareQuery(q, postgresDialect)
	if err != nil {
		return Rows{}, err
	}
	// A login is made once, and not at the expense of the statement's time.
	l, err := d.login(ctx, q.Grant, false)
	if err != nil {
		return Rows{}, d.wording(q, s, err, false)
	}
	ctx, cancel := context.WithTimeout(ctx, q.Limits.Timeout)
	defer cancel()
	leave, err := d.gate.enter(ctx, q.Agent, q.Limits.Concurrency)
	if err != nil {
		return Rows{}, err
	}
	defer leave()
	err = l.check(ctx, s)
	if errors.Is(err, errRelation) || sqlState(err) == "42P01" {
		// A granted table may have been made or replaced a moment ago.
		if l, err = d.login(ctx, q.Grant, true); err == nil {
			err = l.check(ctx, s)
		}
	}
	if err != nil {
		return Rows{}, d.wording(q, s, err, false)
	}
	rows, err := l.run(ctx, q, s)
	if err != nil {
		return Rows{}, d.wording(q, s, err, true)
	}
	return rows, nil
}

// sqlState is the server's code of an error, "" for other errors.
func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
