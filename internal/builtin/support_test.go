package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hob"
	"hob/internal/builtin"
	"hob/internal/egress"
)

// moment is the time that every set of these tests tells: a Tuesday in UTC, already Wednesday in Tokyo.
var moment = time.Date(2026, time.March, 3, 20, 30, 0, 0, time.UTC)

// newSet returns a toolset whose guard reaches the given servers and nothing else on this machine.
func newSet(t testing.TB, d builtin.Deps, servers ...*httptest.Server) *builtin.Set {
	t.Helper()
	var allow []string
	for _, s := range servers {
		allow = append(allow, s.Listener.Addr().String())
	}
	entries, err := egress.ParseAllow(strings.Join(allow, ","))
	if err != nil {
		t.Fatal(err)
	}
	d.Egress = egress.New(egress.Config{Allow: entries})
	t.Cleanup(d.Egress.Close)
	d.Clock = func() time.Time { return moment }
	return builtin.New(d)
}

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func assign(name, config string) hob.AssignedTool {
	return hob.AssignedTool{Assignment: hob.Assignment{
		ID: hob.AssignmentID("as-" + name), ToolType: "builtin", ToolName: name, ConfigOverride: json.RawMessage(config),
	}}
}

func assignCustom(row hob.Tool, config string) hob.AssignedTool {
	return hob.AssignedTool{Tool: &row, Assignment: hob.Assignment{
		ToolType: "custom", ToolName: row.Name, ToolID: &row.ID, ConfigOverride: json.RawMessage(config),
	}}
}

func grant(assigned ...hob.AssignedTool) hob.Grant {
	return hob.Grant{Agent: hob.Agent{ID: "a1", Workspace: hob.DefaultWorkspace}, Assigned: assigned}
}

// load returns the runners of assignments and the warnings about the rest.
func load(t testing.TB, s *builtin.Set, assigned ...hob.AssignedTool) ([]hob.ToolRunner, []string) {
	t.Helper()
	tools, warnings, err := s.Tools(t.Context(), grant(assigned...))
	if err != nil {
		t.Fatal(err)
	}
	return tools, warnings
}

// one returns the runner of the only assignment.
func one(t testing.TB, s *builtin.Set, a hob.AssignedTool) hob.ToolRunner {
	t.Helper()
	tools, warnings := load(t, s, a)
	if len(tools) != 1 {
		t.Fatalf("got %d tools, warnings %q", len(tools), warnings)
	}
	return tools[0]
}

// call runs a tool as the engine would.
func call(t testing.TB, r hob.ToolRunner, args string) hob.Result {
	t.Helper()
	res, err := r.Call(t.Context(), callOf(r, args))
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	return res
}

func callOf(r hob.ToolRunner, args string) hob.Call {
	return hob.Call{
		Run: "run_1", ID: "call_1", Agent: "a1", Step: 1, Attempt: 1, Name: r.Spec().Name, Key: "run_1:call_1",
		Arguments: json.RawMessage(args),
	}
}

// answer is the JSON of http_request.
type answer struct {
	Status    int
	URL       string
	Headers   map[string]string
	Body      string
	Truncated bool
	Error     string
}

func read(t testing.TB, res hob.Result) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(res.Text), &a); err != nil {
		t.Fatalf("result is not JSON: %v\n%.200s", err, res.Text)
	}
	return a
}

// tables is a database whose answers are set: for failures that a real one does not show on demand.
type tables struct {
	text      string
	count     int
	err       error
	rows      string
	truncated bool
	queryErr  error
	written   builtin.DatabaseWritten
	effects   []string

	query  builtin.DatabaseQuery  // the last one
	change builtin.DatabaseChange // the last one

	described atomic.Int64
	hold      chan struct{} // Describe waits for it, or for its context
}

func (d *tables) CheckGrant(raw json.RawMessage) (map[string][]string, error) {
	var g map[string][]string
	if json.Unmarshal(raw, &g) != nil {
		return nil, hob.Errorf(hob.Invalid, "schemas must be an object of lists")
	}
	return g, nil
}

func (d *tables) Describe(ctx context.Context, grant map[string][]string) (string, []string, error) {
	d.described.Add(1)
	if d.hold != nil {
		select {
		case <-d.hold:
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	}
	var missing []string // of each schema those behind the first count
	for schema, names := range grant {
		for _, n := range names[min(d.count, len(names)):] {
			missing = append(missing, schema+"."+n)
		}
	}
	return d.text, missing, d.err
}

func (d *tables) Query(ctx context.Context, q builtin.DatabaseQuery) (json.RawMessage, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	d.query = q
	return json.RawMessage(d.rows), d.truncated, d.queryErr
}

func (d *tables) DescribeWrites(ctx context.Context, g builtin.DatabaseGrant) (string, []string, error) {
	return d.Describe(ctx, g.Tables)
}

func (d *tables) SideEffects(context.Context, builtin.DatabaseGrant) ([]string, error) {
	return d.effects, d.err
}

func (d *tables) Write(ctx context.Context, c builtin.DatabaseChange) (builtin.DatabaseWritten, error) {
	d.change = c
	if err := ctx.Err(); err != nil {
		return builtin.DatabaseWritten{}, err
	}
	return d.written, d.queryErr
}

func (d *tables) Preview(_ context.Context, c builtin.DatabaseChange) (json.RawMessage, error) {
	d.change = c
	return json.RawMessage(d.rows), d.queryErr
}

var errDown = errors.New("dial tcp 10.1.2.3:5432: refused")
