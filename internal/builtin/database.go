package builtin

import (
	"context"
	"encoding/json"
	"time"

	"hob"
)

// Database is the agents' guarded access to SQL. It enforces the grant, the single reading statement, the exactly once of
// a change, and every limit of time, rows and characters; the tools in front of it only speak with the model. A grant
// maps a schema to its tables. An error that is a *hob.Error may be shown.
type Database interface {
	// CheckGrant reads config_override.schemas. Schemas without tables are dropped. The error is Invalid. No I/O.
	CheckGrant(raw json.RawMessage) (map[string][]string, error)
	// Describe tells a model the columns of the granted tables; missing are those that do not exist, as schema.table.
	Describe(ctx context.Context, grant map[string][]string) (text string, missing []string, err error)
	// Query runs one reading statement; rows is a JSON array of objects.
	Query(ctx context.Context, q DatabaseQuery) (rows json.RawMessage, truncated bool, err error)

	// DescribeWrites is Describe for a grant to change: it tells the verbs and what an insert needs, too.
	DescribeWrites(ctx context.Context, g DatabaseGrant) (text string, missing []string, err error)
	// SideEffects tells an operator what changes under a grant do beyond it, one sentence each.
	SideEffects(ctx context.Context, g DatabaseGrant) ([]string, error)
	// Write carries out a change, all of it or nothing, and once for all calls with its key. An error whose code is
	// CodeOutcomeUnknown says that the change may have been made.
	Write(ctx context.Context, c DatabaseChange) (DatabaseWritten, error)
	// Preview tells as a JSON object what Write would do, and leaves nothing behind.
	Preview(ctx context.Context, c DatabaseChange) (json.RawMessage, error)
}

// CodeStatementRefused is the code of an Invalid error of Database that came before anything was carried out.
const CodeStatementRefused = "statement_refused"

// CodeOutcomeUnknown is the code of an error of Database.Write when the change may have been made.
const CodeOutcomeUnknown = "outcome_unknown"

// DatabaseQuery is a reading statement. Limits of zero have the database's default.
type DatabaseQuery struct {
	Agent   hob.AgentID
	Grant   map[string][]string
	SQL     string
	Rows    int
	Timeout time.Duration
}

// DatabaseGrant is what may be changed. Operations and Columns are by "schema.table"; a table that is not named has all.
type DatabaseGrant struct {
	Tables      map[string][]string `json:"tables"`
	Operations  map[string][]string `json:"operations,omitempty"`
	Columns     map[string][]string `json:"columns,omitempty"`
	SideEffects bool                `json:"side_effects,omitempty"` // beyond the grant are allowed
}

// DatabaseChange is a change of an agent, as its call names it. Limits of zero have the database's default.
type DatabaseChange struct {
	Grant     DatabaseGrant
	Call      hob.Call
	Table     string
	Operation string
	Data      json.RawMessage
	Where     json.RawMessage
	Returning []string
	Rows      int
	Timeout   time.Duration
}

// DatabaseWritten is what came of a change.
type DatabaseWritten struct {
	Rows      int
	Returned  json.RawMessage // of the columns in Returning; nil when there are none
	Truncated bool            // Returned is not all
}
