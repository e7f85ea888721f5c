package agentsql

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Operation is a verb of a write.
type Operation string

// The operations.
const (
	Insert Operation = "insert"
	Update Operation = "update"
	Delete Operation = "delete"
)

// Operations are all there are.
func Operations() []Operation { return []Operation{Insert, Update, Delete} }

// WriteGrant is what an agent may change.
type WriteGrant struct {
	Tables Grant
	// Operations are the verbs of a table, schema.table. A table that is not
	// named may be changed by every verb.
	Operations map[string][]Operation
	// Columns are those of a table, schema.table, that data may name. A table
	// that is not named lets all be written. A where may name every column.
	Columns map[string][]string
	// SideEffects lets a change go on into what the grant does not cover: by a
	// foreign key's action, a trigger or a rule of the table.
	SideEffects bool
}

// Write is one change of an agent: what to change is data, never SQL.
type Write struct {
	Grant     WriteGrant
	Table     string // schema.table, or the bare name where one schema has it
	Operation Operation
	Data      json.RawMessage // an object of columns; for Insert also an array of them
	Where     json.RawMessage // an object of columns, which all must match
	Returning []string        // columns of the changed rows to give back

	// Key names the change: of all tries with one key a single one takes
	// effect, and the others get its result. Empty: every try is a change of
	// its own.
	Key   string
	Agent string // whom the limit of concurrency counts for
	// BeginBy is the moment after which nothing is committed any more; zero:
	// there is none.
	BeginBy time.Time

	Limits WriteLimits
}

// WriteLimits bound one change. A zero field stands for its default, and none
// can be raised above its ceiling.
type WriteLimits struct {
	// Timeout is the time from Write to its return.
	Timeout time.Duration
	// Rows is the largest number of rows that a change may touch, those that
	// foreign keys and triggers reach included. Beyond it nothing is changed.
	Rows int
	// Bytes is the largest size of the rows given back, in characters.
	Bytes int
}

// Defaults and ceilings of writes.
const (
	DefaultWriteRows = 100
	MaxWriteRows     = 10_000
	// MaxWriteBytes is the largest size of data and where together.
	MaxWriteBytes = 256 << 10
	// MaxWriteValues is the largest number of values in one statement: the
	// columns of a row and the values of a where.
	MaxWriteValues = 1000
	// MarkerAge is how long a change's marker is kept, and with it the promise
	// that a repeated try does nothing.
	MarkerAge = 7 * 24 * time.Hour

	previewRows  = 20
	previewBytes = 20_000
	previewValue = 500 // characters of one value
)

func (l WriteLimits) withDefaults() WriteLimits {
	full := Limits{Timeout: l.Timeout, Bytes: l.Bytes}.withDefaults()
	l.Timeout, l.Bytes = full.Timeout, full.Bytes
	if l.Rows <= 0 {
		l.Rows = DefaultWriteRows
	}
	l.Rows = min(l.Rows, MaxWriteRows)
	return l
}

// Written is the outcome of a change.
type Written struct {
	Rows int `json:"rows_affected"`
	// Returned are the columns asked for, a JSON array of objects; nil when none
	// were.
	Returned  json.RawMessage `json:"rows,omitempty"`
	Truncated bool            `json:"truncated,omitempty"` // Returned is not all
}

// Preview is what a change would do.
type Preview struct {
	Operation Operation    `json:"operation"`
	Table     string       `json:"table"`
	Rows      int          `json:"rows_affected"`
	Changes   []PreviewRow `json:"rows"`
	Truncated bool         `json:"truncated"` // Changes are not all, or values in them are cut
}

// PreviewRow is a row as it is and as it would be; null stands for no row.
type PreviewRow struct {
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// may reports whether a verb is granted on a table of the grant.
func (g WriteGrant) may(table string, op Operation) bool {
	schema, name, _ := strings.Cut(table, ".")
	if !slices.Contains(g.Tables[schema], name) {
		return false
	}
	return slices.Contains(g.verbs(table), op)
}

func (g WriteGrant) verbs(table string) []Operation {
	if verbs, ok := g.Operations[table]; ok {
		return verbs
	}
	return Operations()
}

// writable reports whether data may name a column.
func (g WriteGrant) writable(table, column string) bool {
	columns, limited := g.Columns[table]
	return !limited || slices.Contains(columns, column)
}

// check judges a grant made in code.
func (g WriteGrant) check() error {
	if err := g.Tables.check(); err != nil {
		return err
	}
	names := g.Tables.clean().names()
	for _, table := range slices.Concat(slices.Sorted(maps.Keys(g.Operations)), slices.Sorted(maps.Keys(g.Columns))) {
		if !slices.Contains(names, table) {
			return invalid("Table '%s' is not among the schemas", short(table))
		}
	}
	for _, table := range names {
		for _, op := range g.verbs(table) {
			if !slices.Contains(Operations(), op) {
				return invalid("Invalid operation: '%s'. Use insert, update or delete", short(string(op)))
			}
		}
		for _, column := range g.Columns[table] {
			if !identifier(column) {
				return invalid("Invalid identifier: '%s'", short(column))
			}
		}
	}
	return nil
}

// key is equal for grants that need the same rights, and for no others: the
// names hold none of its separators.
func (g WriteGrant) key() string {
	var b strings.Builder
	for _, table := range g.Tables.clean().names() {
		b.WriteString(table)
		for _, op := range Operations() {
			if g.may(table, op) {
				b.WriteString("+" + string(op))
			}
		}
		if columns, limited := g.Columns[table]; limited {
			b.WriteString("(" + strings.Join(sorted(columns), " ") + ")")
		}
		b.WriteByte(',')
	}
	return b.String()
}

func sorted(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}

// digest is equal for equal changes. Data and where are compared as they are
// written.
func (w Write) digest() string {
	h := sha256.New()
	for _, part := range []string{w.Table, string(w.Operation), string(w.Data), string(w.Where), strings.Join(w.Returning, ",")} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// errOtherChange is the answer to a key that was used for another change.
func errOtherChange() *Error {
	return refuse("This call's key was used for another change; nothing was done")
}

// tooMany is the refusal of a change over its limit.
func tooMany(l WriteLimits) *Error {
	return refuse("The change would affect more than %d rows; nothing was changed. Narrow the where, or write fewer rows at a time", l.Rows)
}

// errEffects is the refusal of a change that would go on beyond the grant. It
// does not name what lies there.
func errEffects() *Error {
	return refuse("The change would go on into data outside the grant (a foreign key's action, a trigger or a rule); nothing was changed. " +
		"Whoever assigned the tool can allow it with config_override.confirm_side_effects")
}

// errLate is the refusal of a change that came too late to begin.
func errLate() *Error {
	return &Error{Kind: Busy, Message: "The change was not made in time and was taken back"}
}
