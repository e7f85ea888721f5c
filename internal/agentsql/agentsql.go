// Package agentsql runs the SQL that agents write: single read-only statements
// on a database that is not Hob's own, limited to the tables a grant names.
//
// The engine itself is the parser. On SQLite the authorizer callback judges
// every table, column and function while the statement is compiled; on Postgres
// the server analyses the statement inside a view that is never committed and
// the stored tree is walked node by node. Both hold what the statement may
// reach against written lists and refuse whatever is not on them. Behind that
// stand walls that do not depend on the lists: a file opened read-only with the
// engine's defensive settings, or a login of its own per grant with nothing but
// SELECT on the granted tables, read-only transactions that are rolled back,
// and limits on time, rows, bytes, memory and concurrency.
//
// A change comes as data: a table, a verb, values and conditions. Names are
// looked up in the grant and the catalogue, values are parameters, and the walls
// are those of the verbs: an authorizer, or another login with nothing but them.
// It takes effect once however often it is tried, by a marker in its own
// transaction.
//
// The package is not for Hob's own tables (package store) and never writes SQL
// of an agent's making.
// Text scanning in it decides only how a refusal is worded, never whether a
// statement may run.
package agentsql

import (
	"context"
	"encoding/json"
	"time"
)

// DB is the database agents may query: a SQLite file or a Postgres server.
// Its methods may be called concurrently. Every error that concerns a
// statement is an *Error whose Message may be shown to the model.
type DB interface {
	// Describe lists the granted tables as they are now: columns with type,
	// primary key, NOT NULL, DEFAULT and foreign-key target. Granted tables
	// that do not exist or cannot be read are named in Missing.
	Describe(ctx context.Context, g Grant) (Description, error)
	// Query runs one read-only statement under the query's grant and limits.
	Query(ctx context.Context, q Query) (Rows, error)
	// DescribeWrites is Describe for a grant to write. Views are Missing: they
	// cannot be written.
	DescribeWrites(ctx context.Context, g WriteGrant) (Description, error)
	// Write carries out one change under its grant and limits, all of it or
	// nothing, and at most once per Write.Key: a second try with the key gives
	// the first one's outcome.
	Write(ctx context.Context, w Write) (Written, error)
	// Preview tells what a write would change, by a transaction that is rolled
	// back. Its errors are those of Write.
	Preview(ctx context.Context, w Write) (Preview, error)
	// SideEffects tells an operator what changes under a grant do beyond it: by
	// foreign keys' actions, triggers and rules.
	SideEffects(ctx context.Context, g WriteGrant) ([]string, error)
	// Tables lists what could be granted, as schema.table.
	Tables(ctx context.Context) ([]string, error)
	// Check reports what an operator should know: powers a role has beyond its
	// need, caps that could not be set, why the database cannot be used.
	Check(ctx context.Context) []Finding
	// Close ends idle connections. Queries still running end by themselves.
	Close() error
}

// Query is one statement of an agent.
type Query struct {
	Grant Grant
	SQL   string

	// Agent is whom Limits.Concurrency counts for, an agent's id.
	Agent string

	Limits Limits
}

// Limits bound one statement. A zero field stands for its default, and no
// field can be raised above its ceiling: the memory bound rests on them.
type Limits struct {
	// Timeout is the time from Query to its return; the statement gets
	// cancelled at its end. The caller's context may end it sooner.
	Timeout time.Duration
	// Rows is the largest number of rows in the result.
	Rows int
	// Bytes is the largest size of Rows.JSON, in characters.
	Bytes int
	// Value is the largest size of one text in the result, in characters.
	// Longer ones are cut and end with a note.
	Value int
	// SQLBytes is the largest statement.
	SQLBytes int
	// Concurrency is how many statements of one agent run at once. More of
	// them wait, within their own Timeout.
	Concurrency int
}

// Defaults and ceilings of Limits.
const (
	DefaultTimeout     = 10 * time.Second
	DefaultRows        = 1000
	DefaultBytes       = 50_000
	DefaultValue       = 20_000
	DefaultSQLBytes    = 16 << 10
	DefaultConcurrency = 4

	MaxTimeout     = 5 * time.Minute
	MaxRows        = 100_000
	MaxBytes       = 4 << 20
	MaxSQLBytes    = 64 << 10
	MaxConcurrency = 32
)

// totalConcurrency bounds the statements of all agents on one DB.
const totalConcurrency = 32

// withDefaults fills what is unset and lowers what is above its ceiling.
func (l Limits) withDefaults() Limits {
	clamp := func(v, def, ceiling int) int {
		if v <= 0 {
			return def
		}
		return min(v, ceiling)
	}
	l.Rows = clamp(l.Rows, DefaultRows, MaxRows)
	l.Bytes = clamp(l.Bytes, DefaultBytes, MaxBytes)
	l.Value = clamp(l.Value, DefaultValue, MaxBytes)
	l.SQLBytes = clamp(l.SQLBytes, DefaultSQLBytes, MaxSQLBytes)
	l.Concurrency = clamp(l.Concurrency, DefaultConcurrency, MaxConcurrency)
	l.Timeout = time.Duration(clamp(int(l.Timeout), int(DefaultTimeout), int(MaxTimeout)))
	return l
}

// Rows is the result of a statement.
type Rows struct {
	// Columns are the names used as keys, in order. A name that occurs twice
	// gets a suffix (id, id_2), so that no value is lost.
	Columns []string
	// JSON is an array of row objects with their keys in column order. It is
	// valid JSON whatever was cut.
	JSON json.RawMessage
	// Count is the number of rows in JSON.
	Count int
	// Truncated says that rows were left out or values cut.
	Truncated bool
}

// Answer is what the model reads: the bare array, or, when something was cut,
// {"rows":[…],"truncated":true}.
func (r Rows) Answer() json.RawMessage {
	if !r.Truncated {
		return r.JSON
	}
	b := make([]byte, 0, len(r.JSON)+len(`{"rows":,"truncated":true}`))
	b = append(b, `{"rows":`...)
	b = append(b, r.JSON...)
	return append(b, `,"truncated":true}`...)
}

// Description is what an agent may know of the database.
type Description struct {
	// Dialect is "sqlite" or "postgres"; a model writes SQL accordingly.
	Dialect string
	Tables  []Table
	// Missing are granted tables, as schema.table, that do not exist or that
	// the tool cannot read.
	Missing []string
}

// Table is a granted table or view.
type Table struct {
	Schema  string
	Name    string
	View    bool
	Columns []Column
}

// Column is a column of a granted table.
type Column struct {
	Name       string
	Type       string
	PrimaryKey bool
	NotNull    bool
	// Default is the expression as the engine writes it, empty when none.
	Default string
	// Auto columns are numbered by the database: serial, identity, SQLite's
	// rowid. Computed ones cannot be written.
	Auto, Computed bool
	// References is the foreign key's target, "table.column" or
	// "schema.table.column"; empty when there is none or when the target's
	// table is not granted.
	References string
}

// Level grades a Finding.
type Level string

// Fault means the tool is off or a wall is missing, Warning that something
// could be better, OK that a point was looked at and holds.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Fault   Level = "fault"
)

// Finding is one line of `hob doctor` about agents' SQL.
type Finding struct {
	Level Level
	// Text says the fact; it is for the operator and may name roles.
	Text string
	// Fix is the command or setting that mends it, empty when nothing is to do.
	Fix string
}

// Options configure a DB.
type Options struct {
	// Secret is the key the passwords and names of Postgres logins are derived
	// from; at least MinSecret bytes. All replicas on one database share it.
	// SQLite does not use it.
	Secret []byte
	// AllowPowerfulRole keeps the tool on although an agent's login can do
	// more than it should (superuser, owner, member of other roles), or the
	// database's user is a superuser. Check reports the fact as a fault all the
	// same.
	AllowPowerfulRole bool
	// Warn is told what AllowPowerfulRole lets pass at the opening; nil: nobody.
	Warn func(text string)
}

// MinSecret is the smallest Options.Secret.
const MinSecret = 16
