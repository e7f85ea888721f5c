package builtin

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
)

//go:embed database_write.md
var databaseWriteText string

// Keys of config_override of database_write, beside schemas and timeout_seconds.
const (
	operationsKey     = "operations"
	columnsKey        = "columns"
	maxAffectedKey    = "max_rows_affected"
	confirmEffectsKey = "confirm_side_effects"
)

// Bounds of an assignment of database_write.
const (
	MaxAffectedRows = 10_000 // ceiling of max_rows_affected
	// defaultWriteTimeout is the time of one change.
	defaultWriteTimeout = 10 * time.Second
)

// operations are the verbs of database_write.
var operations = []string{"insert", "update", "delete"}

func init() {
	add(builtin{
		name:        "database_write",
		description: databaseWriteText,
		schema: json.RawMessage(`{"type":"object","properties":{` +
			`"table":{"type":"string","description":"Table to change, bare or as schema.table"},` +
			`"operation":{"type":"string","enum":["insert","update","delete"]},` +
			`"data":{"type":["object","array"],"items":{"type":"object"},"description":"Columns and their values. For insert also an array of such objects, all with the same columns"},` +
			`"where":{"type":"object","description":"For update and delete: columns and the values they must equal, all of them. null means IS NULL, an array means any of its values"},` +
			`"returning":{"type":"array","items":{"type":"string"},"description":"Columns of the changed rows to give back, such as the new id"}` +
			`},"required":["table","operation"],"additionalProperties":false}`),
		effect: hob.EffectWrite, recovery: hob.RecoverLocal, previews: true,
		keys:        []string{schemasKey, operationsKey, columnsKey, maxAffectedKey, confirmEffectsKey, timeoutKey},
		options:     readWrites,
		check:       checkWrites,
		unavailable: func(_ context.Context, s *Set, _ hob.WorkspaceID) string { return s.databaseOff() },
		open:        openDatabaseWrite,
	})
}

// writeGrant is what an assignment of database_write may change.
type writeGrant struct {
	DatabaseGrant

	key     string // the same in one spelling
	rows    int
	timeout time.Duration
}

// readWrites reads the keys; without a database none but the limits can be judged.
func readWrites(s *Set, keys map[string]json.RawMessage) (any, error) {
	g := &writeGrant{timeout: defaultWriteTimeout}
	timeout, err := readDatabaseTimeout(keys)
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		g.timeout = timeout
	}
	if raw, ok := keys[maxAffectedKey]; ok {
		if err := readCount(raw, maxAffectedKey, 1, MaxAffectedRows, &g.rows); err != nil {
			return nil, err
		}
	}
	if raw, ok := keys[confirmEffectsKey]; ok {
		switch string(raw) {
		case "true":
			g.SideEffects = true
		case "false":
		default:
			return nil, badKey(confirmEffectsKey, "must be true or false")
		}
	}
	if g.Tables, err = s.readSchemas(keys); err != nil {
		return nil, err
	}
	if s.deps.Database != nil {
		if err := g.readOperations(keys[operationsKey]); err != nil {
			return nil, err
		}
		if err := g.readColumns(keys[columnsKey]); err != nil {
			return nil, err
		}
	}
	g.key = "write " + string(encode(g.DatabaseGrant))
	return g, nil
}

// names are the granted tables as schema.table.
func (g *writeGrant) names() []string {
	var all []string
	for schema, tables := range g.Tables {
		for _, t := range tables {
			all = append(all, schema+"."+t)
		}
	}
	slices.Sort(all)
	return all
}

// readOperations reads a list of verbs for all tables, or an object of lists by table, which then leaves the tables that
// it does not name without any.
func (g *writeGrant) readOperations(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	byTable := map[string][]string{}
	var same []string
	switch {
	case raw[0] == '[' && json.Unmarshal(raw, &same) == nil:
		for _, t := range g.names() {
			byTable[t] = same
		}
		if len(same) == 0 {
			return badKey(operationsKey, `must list at least one of "insert", "update" and "delete"`)
		}
	case raw[0] == '{' && json.Unmarshal(raw, &byTable) == nil:
		if err := g.known(operationsKey, byTable); err != nil {
			return err
		}
		for _, t := range g.names() {
			if byTable[t] == nil {
				byTable[t] = []string{}
			}
		}
	default:
		return badKey(operationsKey, `must be a list like ["insert","update"], or an object of lists like {"main.orders":["insert"]}`)
	}
	for _, verbs := range append([][]string{same}, values(byTable)...) {
		for _, v := range verbs {
			if !slices.Contains(operations, v) {
				return badKey(operationsKey, `has %q; the operations are insert, update, delete`, shorten(v))
			}
		}
	}
	g.Operations = byTable
	return nil
}

func values(m map[string][]string) [][]string {
	all := make([][]string, 0, len(m))
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// readColumns reads the columns that data may name, by table.
func (g *writeGrant) readColumns(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	if raw[0] != '{' || json.Unmarshal(raw, &g.Columns) != nil {
		return badKey(columnsKey, `must be an object of lists like {"main.orders":["status","note"]}`)
	}
	for table, columns := range g.Columns {
		if len(columns) == 0 {
			return badKey(columnsKey, "lists no column of %s; leave the table out to allow all, or use operations", shorten(table))
		}
		for _, c := range columns {
			if !isIdentifier(c) {
				return badKey(columnsKey, "has %q, which is no name of a column", shorten(c))
			}
		}
	}
	return g.known(columnsKey, g.Columns)
}

// isIdentifier is ^[a-zA-Z_][a-zA-Z0-9_]{0,63}$.
func isIdentifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// known says whether all tables of a key are granted.
func (g *writeGrant) known(key string, byTable map[string][]string) error {
	for t := range byTable {
		if !slices.Contains(g.names(), t) {
			return badKey(key, "names %q, which is not among the schemas; write schema.table", shorten(t))
		}
	}
	return nil
}

func (g *writeGrant) look(ctx context.Context, s *Set) granted {
	return s.look(ctx, g.key, g.Tables, func(ctx context.Context) (string, []string, error) {
		return s.deps.Database.DescribeWrites(ctx, g.DatabaseGrant)
	})
}

// checkWrites names what changes would do beyond the grant, while whoever assigns the tool looks.
func checkWrites(c checking) string {
	g := c.options.(*writeGrant)
	now := g.look(c.ctx, c.set)
	if now.why != "" {
		return now.warning("database_write")
	}
	warnings := []string{now.warning("database_write"), g.beyond(c)}
	return strings.Join(slices.DeleteFunc(warnings, func(w string) bool { return w == "" }), "; ")
}

// beyond is what changes do beyond the grant.
func (g *writeGrant) beyond(c checking) string {
	ctx, cancel := context.WithTimeout(c.ctx, describeTimeout)
	defer cancel()
	effects, err := c.set.deps.Database.SideEffects(ctx, g.DatabaseGrant)
	switch {
	case err != nil:
		return "what changes do beyond the grant cannot be looked at now: " + databaseText(err)
	case len(effects) == 0:
		return ""
	case g.SideEffects:
		return "config_override.confirm_side_effects allows changes to go on beyond the grant: " + strings.Join(effects, "; ")
	}
	return "changes that go on beyond the grant will be refused, unless config_override.confirm_side_effects is true: " + strings.Join(effects, "; ")
}

func openDatabaseWrite(o opening) (hob.ToolRunner, string) {
	g := o.options.(*writeGrant)
	t := &databaseWrite{database: o.set.deps.Database, spec: o.spec, grant: g, most: o.numbers.MaxResult, off: o.set.databaseOff()}
	t.spec.Timeout = g.timeout + databaseGrace
	if t.off != "" {
		return t, ""
	}
	now := g.look(o.ctx, o.set)
	if now.why != "" {
		return nil, now.why
	}
	t.spec.Description += "\n" + now.text
	return t, ""
}

// databaseWrite changes the tables of one grant.
type databaseWrite struct {
	database Database
	spec     hob.ToolSpec
	grant    *writeGrant
	most     int    // characters of a result
	off      string // why there is no database; "" where there is one
}

var _ hob.Previewer = (*databaseWrite)(nil)

// Spec describes the tool; the description names the tables.
func (t *databaseWrite) Spec() hob.ToolSpec { return t.spec }

// written is the result of a change that was made.
type written struct {
	Success   bool            `json:"success"`
	Rows      int             `json:"rows_affected"`
	Message   string          `json:"message"`
	Returned  json.RawMessage `json:"rows,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
}

// notWritten is the result of one that was not.
func notWritten(message string) hob.Result {
	type refusal struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
	}
	return hob.Result{Text: string(encode(refusal{Message: message})), IsError: true}
}

// change reads a call's arguments.
func (t *databaseWrite) change(c hob.Call) (DatabaseChange, error) {
	var in struct {
		Table     string          `json:"table"`
		Operation string          `json:"operation"`
		Data      json.RawMessage `json:"data"`
		Where     json.RawMessage `json:"where"`
		Returning []string        `json:"returning"`
	}
	if err := decode(c.Arguments, &in); err != nil {
		return DatabaseChange{}, err
	}
	return DatabaseChange{
		Grant: t.grant.DatabaseGrant, Call: c, Table: in.Table, Operation: in.Operation, Data: in.Data, Where: in.Where,
		Returning: in.Returning, Rows: t.grant.rows, Timeout: t.grant.timeout,
	}, nil
}

// Call makes the change. The error is that of a cancelled ctx.
func (t *databaseWrite) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	if t.off != "" {
		r := notWritten(t.off)
		r.Free = true
		return r, nil
	}
	change, err := t.change(c)
	if err != nil {
		r := notWritten(messageOf(err))
		r.Free = true
		return r, nil
	}
	done, err := t.database.Write(ctx, change)
	if err == nil { // also when ctx has ended meanwhile: it was done
		return hob.Result{Text: t.text(change.Operation, done)}, nil
	}
	r := notWritten(databaseText(err))
	var e *hob.Error
	if errors.As(err, &e) && e.Code == CodeOutcomeUnknown {
		r.Unknown = true
		return r, nil
	}
	if gone := cancelled(ctx, t.spec.Name); gone != nil {
		return hob.Result{}, gone
	}
	r.Free = notCarriedOut(err)
	return r, nil
}

// text is the result of a change. Rows that would make it too long are left out.
func (t *databaseWrite) text(operation string, done DatabaseWritten) string {
	out := written{Success: true, Rows: done.Rows, Message: operation + " completed.", Returned: done.Returned, Truncated: done.Truncated}
	text := encode(out)
	if utf8.RuneCount(text) <= t.most {
		return string(text)
	}
	var rows []json.RawMessage
	_ = json.Unmarshal(done.Returned, &rows) // what is no array is left out whole
	out.Truncated = true
	for n := len(rows) / 2; ; n /= 2 {
		out.Returned = encode(append([]json.RawMessage{}, rows[:n]...))
		if text = encode(out); n == 0 || utf8.RuneCount(text) <= t.most {
			return string(text)
		}
	}
}

// Preview tells what the change would do.
func (t *databaseWrite) Preview(ctx context.Context, c hob.Call) (json.RawMessage, error) {
	if t.off != "" {
		return nil, hob.Errorf(hob.Unavailable, "%s", t.off)
	}
	change, err := t.change(c)
	if err != nil {
		return nil, err
	}
	return t.database.Preview(ctx, change)
}
