package builtin

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
)

//go:embed database_query.md
var databaseQueryText string

const (
	// schemasKey is the key of config_override that lists the tables an agent may read.
	schemasKey = "schemas"
	// describeTimeout bounds looking at the tables when a run starts.
	describeTimeout = 5 * time.Second
	// maxRowsKey is that of the rows of one result.
	maxRowsKey = "max_rows"
	// MaxQueryRows is the ceiling of max_rows.
	MaxQueryRows = 100_000
	// MaxDatabaseTimeout is that of timeout_seconds, of both tools.
	MaxDatabaseTimeout = MaxToolTimeout
	// databaseGrace is what a call may take beyond the time of its statement: a login is made once, and a commit that was
	// sent is waited for.
	databaseGrace = 25*time.Second + callGrace
	// noTables says how to give a database tool its tables.
	noTables  = `its assignment lists no tables; set config_override.schemas, for example {"schemas":{"main":["customers"]}}`
	ungranted = `nothing grants it tables; config_override.schemas does, in an assignment of the agent: POST /api/agents/{id}/tools ` +
		`{"tool_name":"%s","config_override":{"schemas":{"main":["customers"]}}}`
)

func init() {
	add(builtin{
		name:        "database_query",
		description: databaseQueryText,
		schema: json.RawMessage(`{"type":"object","properties":{` +
			`"query":{"type":"string","description":"One SQL SELECT statement"}` +
			`},"required":["query"],"additionalProperties":false}`),
		effect: hob.EffectRead, recovery: hob.RecoverRead, parallel: true,
		keys:        []string{schemasKey, maxRowsKey, timeoutKey},
		options:     readTables,
		check:       checkTables,
		unavailable: func(_ context.Context, s *Set, _ hob.WorkspaceID) string { return s.databaseOff() },
		open:        openDatabaseQuery,
	})
}

// tableGrant is what an assignment of database_query may read.
type tableGrant struct {
	tables  map[string][]string
	key     string // the same in one spelling
	rows    int
	timeout time.Duration
}

// readTables reads "schemas", which without a database cannot be judged and stays unread, and the limits.
func readTables(s *Set, keys map[string]json.RawMessage) (any, error) {
	g := &tableGrant{}
	var err error
	if g.tables, err = s.readSchemas(keys); err != nil {
		return nil, err
	}
	if g.timeout, err = readDatabaseTimeout(keys); err != nil {
		return nil, err
	}
	if raw, ok := keys[maxRowsKey]; ok {
		if err := readCount(raw, maxRowsKey, 1, MaxQueryRows, &g.rows); err != nil {
			return nil, err
		}
	}
	g.key = string(encode(g.tables))
	return g, nil
}

// readSchemas reads "schemas".
func (s *Set) readSchemas(keys map[string]json.RawMessage) (map[string][]string, error) {
	raw, ok := keys[schemasKey]
	if !ok || s.deps.Database == nil {
		return map[string][]string{}, nil
	}
	grant, err := s.deps.Database.CheckGrant(raw)
	var e *hob.Error
	if errors.As(err, &e) && e.Kind == hob.Invalid {
		return nil, hob.Errorf(hob.Invalid, `%s; it is written like {"schemas":{"main":["customers","orders"]}}`, e.Message).
			With("field", "config_override."+schemasKey)
	}
	return grant, err
}

// readDatabaseTimeout reads the time of one statement; 0 where the assignment says nothing.
func readDatabaseTimeout(keys map[string]json.RawMessage) (time.Duration, error) {
	raw, ok := keys[timeoutKey]
	if !ok {
		return 0, nil
	}
	l := &limits{}
	err := l.readTimeout(raw)
	return l.timeout, err
}

// databaseOff says why there are no database tools; "" where there are.
func (s *Set) databaseOff() string {
	switch {
	case s.deps.Database != nil:
		return ""
	case s.deps.DatabaseOff != "":
		return "database tools are off: " + s.deps.DatabaseOff
	}
	return "database tools are off"
}

// granted is what a grant comes to now.
type granted struct {
	text    string // for the model
	missing string // names of tables that do not exist, in one text
	why     string // the tool would not be loaded; "" where it would
}

// findTables is where an operator sees which tables there are.
const findTables = "; hob doctor lists those that can be granted"

// maxMissing is how many tables that do not exist are named.
const maxMissing = 10

// look says why a database tool would not be loaded, or gives the description of its tables.
func (s *Set) look(ctx context.Context, key string, grant map[string][]string, load describing) granted {
	if off := s.databaseOff(); off != "" {
		return granted{why: off}
	}
	if len(grant) == 0 {
		return granted{why: noTables}
	}
	text, missing, err := s.tables.get(ctx, key, load)
	if err != nil {
		return granted{why: "its tables cannot be looked at now: " + databaseText(err)}
	}
	asked := 0
	for _, tables := range grant {
		asked += len(tables)
	}
	names := strings.Join(missing[:min(len(missing), maxMissing)], ", ")
	if more := len(missing) - maxMissing; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	if len(missing) >= asked {
		return granted{missing: names, why: "none of the tables in config_override.schemas exists: " + names + findTables}
	}
	return granted{text: text, missing: names}
}

// warning is what whoever assigns the tool should know.
func (g granted) warning(tool string) string {
	switch {
	case g.why != "":
		return tool + " will not work: " + g.why
	case g.missing != "":
		return "config_override.schemas names tables that do not exist: " + g.missing + findTables
	}
	return ""
}

func (g *tableGrant) look(ctx context.Context, s *Set) granted {
	return s.look(ctx, g.key, g.tables, func(ctx context.Context) (string, []string, error) {
		return s.deps.Database.Describe(ctx, g.tables)
	})
}

func checkTables(c checking) string {
	return c.options.(*tableGrant).look(c.ctx, c.set).warning("database_query")
}

func openDatabaseQuery(o opening) (hob.ToolRunner, string) {
	g := o.options.(*tableGrant)
	t := &databaseQuery{database: o.set.deps.Database, spec: o.spec, grant: g, most: o.numbers.MaxResult, off: o.set.databaseOff()}
	if t.off != "" {
		return t, ""
	}
	now := g.look(o.ctx, o.set)
	if now.why != "" {
		return nil, now.why
	}
	t.spec.Description += "\n" + now.text
	if g.timeout > 0 {
		t.spec.Timeout = g.timeout + databaseGrace
	}
	return t, ""
}

// databaseQuery reads the tables of one grant.
type databaseQuery struct {
	database Database
	spec     hob.ToolSpec
	grant    *tableGrant
	most     int    // characters of a result
	off      string // why there is no database; "" where there is one
}

// Spec describes the tool; the description names the tables.
func (t *databaseQuery) Spec() hob.ToolSpec { return t.spec }

// Call runs the query. The error is that of a cancelled ctx.
func (t *databaseQuery) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	var in struct {
		Query string `json:"query"`
	}
	if err := decode(c.Arguments, &in); err != nil {
		return refused("%s", messageOf(err)), nil
	}
	if strings.TrimSpace(in.Query) == "" {
		return refused("query is required"), nil
	}
	if t.off != "" {
		return *free("%s", t.off), nil
	}
	rows, truncated, err := t.database.Query(ctx, DatabaseQuery{
		Agent: c.Agent, Grant: t.grant.tables, SQL: in.Query, Rows: t.grant.rows, Timeout: t.grant.timeout,
	})
	if gone := cancelled(ctx, t.spec.Name); gone != nil {
		return hob.Result{}, gone
	}
	switch {
	case err != nil:
		r := errorJSON("%s", databaseText(err))
		r.Free = notCarriedOut(err)
		return r, nil
	case len(rows) == 0:
		rows = json.RawMessage("[]")
	}
	return hob.Result{Text: rowsText(rows, truncated, t.most)}, nil
}

// cutRows wraps rows that are not all there.
const cutRows = `{"rows":%s,"truncated":true}`

// rowsText is the array of rows, or the object that says that some are missing. Rows that would make it longer than the
// cap of results are left out whole: cut by the character, it would be no JSON.
func rowsText(rows json.RawMessage, truncated bool, most int) string {
	room := most - len(cutRows) + len("%s")
	if n := utf8.RuneCount(rows); !truncated && n <= most {
		return string(rows)
	} else if n <= room {
		return fmt.Sprintf(cutRows, rows)
	}
	var all []json.RawMessage
	if json.Unmarshal(rows, &all) != nil {
		all = nil
	}
	size, kept := len("[]"), 0
	for ; kept < len(all); kept++ {
		if size += utf8.RuneCount(all[kept]) + len(","); size > room {
			break
		}
	}
	return fmt.Sprintf(cutRows, encode(append([]json.RawMessage{}, all[:kept]...)))
}

// notCarriedOut says whether an error of the database came before it did anything, or is the platform's doing.
func notCarriedOut(err error) bool {
	var e *hob.Error
	return !errors.As(err, &e) || e.Kind != hob.Invalid || e.Code == CodeStatementRefused
}

// databaseText is what a model may read about an error of the database: the sentences made for it. Others may name
// hosts and tables that it must not know.
func databaseText(err error) string {
	var e *hob.Error
	switch {
	case errors.As(err, &e) && e.Kind != hob.Internal && e.Kind != hob.Fenced:
		return e.Message
	case errors.Is(err, context.DeadlineExceeded):
		return "the database did not answer in time"
	}
	return "the database cannot answer now"
}
