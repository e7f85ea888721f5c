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
	// noTables says how to give database_query its tables.
	noTables = `its assignment lists no tables; set config_override.schemas, for example {"schemas":{"main":["customers"]}}`
)

// Database is the agents' guarded access to SQL. It enforces the grant, the single reading statement, and every limit
// of time, rows and characters; the tool in front of it only speaks with the model. A grant maps a schema to its tables.
type Database interface {
	// CheckGrant reads config_override.schemas. Schemas without tables are dropped. The error is Invalid. No I/O.
	CheckGrant(raw json.RawMessage) (map[string][]string, error)
	// Describe tells a model the columns of the granted tables, and how many of the tables exist.
	Describe(ctx context.Context, grant map[string][]string) (text string, tables int, err error)
	// Query runs one reading statement; rows is a JSON array of objects. An error that is a *hob.Error may be shown.
	Query(ctx context.Context, agent hob.AgentID, grant map[string][]string, sql string) (rows json.RawMessage, truncated bool, err error)
}

func init() {
	add(builtin{
		name:        "database_query",
		description: databaseQueryText,
		schema: json.RawMessage(`{"type":"object","properties":{` +
			`"query":{"type":"string","description":"One SQL SELECT statement"}` +
			`},"required":["query"],"additionalProperties":false}`),
		effect: hob.EffectRead, recovery: hob.RecoverRead, parallel: true,
		keys:    []string{schemasKey},
		options: readTables,
		check:   checkTables,
		open:    openDatabaseQuery,
	})
}

// tableGrant is what an assignment of database_query may read.
type tableGrant struct {
	tables map[string][]string
	key    string // the same in one spelling
}

// readTables reads "schemas"; without a database it cannot be judged and stays unread.
func readTables(s *Set, keys map[string]json.RawMessage) (any, error) {
	g := &tableGrant{}
	raw, ok := keys[schemasKey]
	if !ok || s.deps.Database == nil {
		return g, nil
	}
	var err error
	if g.tables, err = s.deps.Database.CheckGrant(raw); err != nil {
		return nil, err
	}
	g.key = string(encode(g.tables))
	return g, nil
}

// describe tells the tables of a grant, and how many there are.
func (s *Set) describe(ctx context.Context, g *tableGrant) (string, int, error) {
	return s.tables.get(ctx, g.key, func(ctx context.Context) (string, int, error) {
		return s.deps.Database.Describe(ctx, g.tables)
	})
}

// usable says why the tool would not be loaded, or gives the description of its tables.
func (s *Set) usable(ctx context.Context, g *tableGrant) (text, why string) {
	switch {
	case s.deps.Database == nil && s.deps.DatabaseOff != "":
		return "", "database tools are off: " + s.deps.DatabaseOff
	case s.deps.Database == nil:
		return "", "database tools are off"
	case len(g.tables) == 0:
		return "", noTables
	}
	text, tables, err := s.describe(ctx, g)
	switch {
	case err != nil:
		return "", "its tables cannot be looked at now: " + databaseText(err)
	case tables == 0:
		return "", "none of the tables in config_override.schemas exists"
	}
	return text, ""
}

func checkTables(c checking) string {
	_, why := c.set.usable(c.ctx, c.options.(*tableGrant))
	if why != "" {
		return "database_query will not be loaded: " + why
	}
	return ""
}

func openDatabaseQuery(o opening) (hob.ToolRunner, string) {
	g := o.options.(*tableGrant)
	text, why := o.set.usable(o.ctx, g)
	if why != "" {
		return nil, why
	}
	o.spec.Description += "\n" + text
	return &databaseQuery{database: o.set.deps.Database, spec: o.spec, tables: g.tables, most: o.numbers.MaxResult}, ""
}

// databaseQuery reads the tables of one grant.
type databaseQuery struct {
	database Database
	spec     hob.ToolSpec
	tables   map[string][]string
	most     int // characters of a result
}

// Spec describes the tool; the description names the tables.
func (t *databaseQuery) Spec() hob.ToolSpec { return t.spec }

// Call runs the query. The error is that of a cancelled ctx.
func (t *databaseQuery) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	var in struct {
		Query string `json:"query"`
	}
	if err := decode(c.Arguments, &in); err != nil {
		return errorJSON("%s", messageOf(err)), nil
	}
	if strings.TrimSpace(in.Query) == "" {
		return errorJSON("query is required"), nil
	}
	rows, truncated, err := t.database.Query(ctx, c.Agent, t.tables, in.Query)
	if gone := cancelled(ctx, t.spec.Name); gone != nil {
		return hob.Result{}, gone
	}
	switch {
	case err != nil:
		return errorJSON("%s", databaseText(err)), nil
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
