// Package builtin holds the tools the platform brings along and the custom HTTP tools of a workspace, both as one
// [hob.Toolset]: a [Set] turns the assignments of an agent into tools that a run can call.
//
// A builtin is one file NAME.go that calls add in its init, and a file NAME.md beside it: the description the model
// reads. testdata/inventory.golden lists them all. A custom tool is a row of the workspace; http_tool.go carries out
// every one of them.
//
// An assignment may pin arguments: they vanish from the schema the model is told and are laid over what it sends. The
// package computes both schemas; laying over, checking arguments, rules, approvals and caps on top of a tool's own
// belong to the engine. The package is not for MCP servers, knowledge search or delegation, opens no connection but
// through package egress, and reaches SQL only through the Database it is given.
package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"hob"
	"hob/internal/egress"
)

// Defaults and bounds of Settings.
const (
	DefaultToolTimeout = 30 * time.Second
	MaxToolTimeout     = 300 * time.Second // longest a custom tool may ask for
	DefaultMaxOutput   = 10_000
	DefaultMaxResult   = 50_000

	// maxRead bounds what is read of a response, whatever part of it is shown.
	maxRead = 2 << 20
	// maxErrorBody is how many characters of an error response's body are shown.
	maxErrorBody = 500
	// callGrace is what a call may take beyond its own timeout, so that the tool's precise text wins over the
	// engine's general one.
	callGrace = 2 * time.Second
)

// Settings are the numbers that can be changed, for the server here and for a workspace through Deps.Setting. Fields of
// zero or below have their default.
type Settings struct {
	HTTPTimeout   time.Duration // of one http_request; 30 s
	CustomTimeout time.Duration // of a custom tool whose row names none, CUSTOM_TOOL_TIMEOUT; 30 s
	MaxOutput     int           // characters of a response body shown, MAX_TOOL_OUTPUT_LENGTH; 10,000
	MaxResult     int           // characters of any result that is JSON, so that nobody needs to cut it, DEFAULT_MAX_RESULT_CHARS; 50,000
	DescribeFor   time.Duration // how long the description of an agent's tables is reused; 30 s
}

func (s Settings) withDefaults() Settings {
	s.HTTPTimeout = orDefault(s.HTTPTimeout, DefaultToolTimeout)
	s.CustomTimeout = orDefault(s.CustomTimeout, DefaultToolTimeout)
	s.MaxOutput = orDefault(s.MaxOutput, DefaultMaxOutput)
	s.MaxResult = orDefault(s.MaxResult, DefaultMaxResult)
	s.DescribeFor = orDefault(s.DescribeFor, defaultDescribeFor)
	return s
}

func orDefault[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Deps is what the tools need from outside.
type Deps struct {
	Egress *egress.Guard // required
	// Database is what database_query reaches; nil turns the tool off and DatabaseOff says why.
	Database    Database
	DatabaseOff string
	// Exa and Firecrawl are what the operator gave for web_search and web_scrape; what a workspace sets comes first.
	Exa, Firecrawl Service
	// CodeService is the operator's sandbox elsewhere. Where it has no address Code runs programs on this machine, nil: none.
	CodeService Service
	Code        CodeSandbox
	// Files is the workspaces' object storage; nil turns the tools that need it off.
	Files hob.FileService
	// Models opens the model that describes images for web_scrape; nil: none is described.
	Models hob.ModelOpener
	// Searches says whether a model provider of a workspace searches the web by itself; nil: none does.
	Searches func(context.Context, hob.WorkspaceID) bool
	Clock    hob.Clock // nil means hob.SystemClock
	// Log tells the operator why a request of a tool came to no answer, which models and users do not read; nil: nothing.
	Log      *slog.Logger
	Settings Settings
	// Setting reads what a workspace set for itself, which comes before Settings; nil: nothing. It is asked whenever the
	// tools of a run are loaded.
	Setting hob.SettingReader
}

// The settings of a workspace that the tools read.
const (
	settingCustomTimeout = "CUSTOM_TOOL_TIMEOUT"      // seconds
	settingMaxOutput     = "MAX_TOOL_OUTPUT_LENGTH"   // characters
	settingMaxResult     = "DEFAULT_MAX_RESULT_CHARS" // characters
)

// settingsOf are the numbers of a workspace. One that cannot be read is the server's own: the run meets a store that
// does not answer by itself.
func (s *Set) settingsOf(ctx context.Context, ws hob.WorkspaceID) *Settings {
	if s.deps.Setting == nil {
		return &s.deps.Settings
	}
	own := s.deps.Settings
	read := func(key string, to func(n int)) {
		text, err := s.deps.Setting(ctx, ws, key)
		if err != nil {
			return
		}
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			to(n)
		}
	}
	read(settingCustomTimeout, func(n int) { own.CustomTimeout = time.Duration(n) * time.Second })
	read(settingMaxOutput, func(n int) { own.MaxOutput = n })
	read(settingMaxResult, func(n int) { own.MaxResult = n })
	return &own
}

// Set is the toolset of the builtins and the custom HTTP tools. It is safe for concurrent use.
type Set struct {
	deps     Deps
	builtins map[string]*builtin
	names    []string // of the builtins, sorted
	bindings *bindings
	tables   *descriptions

	services                 services
	exaLimit, firecrawlLimit *limiter
	pages                    chan struct{} // a place for each page that is made into text
	largePages               chan struct{} // and one more for those that are large
	calls                    *callCounts
}

var _ hob.Toolset = (*Set)(nil)

// noAnswer logs why a request came to no answer. What the guard refused it has told
// itself, and what is no URL the model reads. hide takes secrets out.
func (s *Set) noAnswer(c hob.Call, err error, hide func(string) string) {
	var e *egress.Error
	if s.deps.Log == nil || !errors.As(err, &e) || e.Kind == egress.Refused || e.Kind == egress.BadURL {
		return
	}
	s.deps.Log.Info("a tool's request came to no answer", slog.String("run", string(c.Run)), slog.String("tool", c.Name),
		slog.String("call", string(c.ID)), slog.String("reason", hide(e.Detail())))
}

// New returns the toolset. It does no I/O.
func New(d Deps) *Set {
	if d.Clock == nil {
		d.Clock = hob.SystemClock
	}
	d.Settings = d.Settings.withDefaults()
	return &Set{
		deps:           d,
		builtins:       maps.Clone(registry),
		names:          slices.Sorted(maps.Keys(registry)),
		bindings:       newBindings(maxBindingBytes),
		tables:         newDescriptions(d.Clock, d.Settings.DescribeFor),
		services:       services{d.Setting},
		exaLimit:       newLimiter(d.Clock),
		firecrawlLimit: newLimiter(d.Clock),
		pages:          make(chan struct{}, maxPages),
		largePages:     make(chan struct{}, 1),
		calls:          newCallCounts(),
	}
}

// Has says whether a name is that of a builtin, whatever its case: a model would take one for the other.
func (s *Set) Has(name string) bool { return s.builtins[strings.ToLower(name)] != nil }

// Rows lists the builtins as rows of GET /api/tools, by name: no id, active, with the whole input schema.
func (s *Set) Rows() []hob.Tool {
	rows := make([]hob.Tool, 0, len(s.names))
	for _, name := range s.names {
		b := s.builtins[name]
		rows = append(rows, hob.Tool{
			Name: b.name, Description: b.description, Type: cmp.Or(b.kind, hob.BuiltinTool), InputSchema: b.schema, IsActive: true,
		})
	}
	return rows
}

// Previews names the builtins that can say what a call of them would change, whether they can be used now or not.
func (s *Set) Previews() []string {
	var names []string
	for _, name := range s.names {
		if s.builtins[name].previews {
			names = append(names, name)
		}
	}
	return names
}

// Unavailable says why a tool of a workspace cannot do its work now, in a sentence that names the way out; "" where it
// can. A builtin is one without an id. That a tool is switched off is another matter.
func (s *Set) Unavailable(ctx context.Context, ws hob.WorkspaceID, t hob.Tool) string {
	if t.ID != "" {
		if why := s.unusable(&t); why != "" || t.Type != hob.WebTool {
			return why
		}
		return s.noWeb(ctx, ws)
	}
	b := s.builtins[t.Name]
	switch {
	case b == nil:
		return noSuchBuiltin
	case b.unavailable == nil:
		return ""
	}
	return b.unavailable(ctx, s, ws)
}

// builtin is a tool of the platform: what the inventory shows, and how an assignment makes a runner of it.
type builtin struct {
	name        string
	kind        hob.ToolKind    // hob.BuiltinTool where empty
	description string          // NAME.md
	schema      json.RawMessage // of all arguments
	effect      hob.Effect
	recovery    hob.Recovery
	parallel    bool
	previews    bool // its runner is a hob.Previewer

	// keys are those of config_override that are no arguments; "rules" is one for every tool.
	keys []string
	// options reads these keys. The result must not be changed: it is shared by all runs with the same assignment.
	// The error is Invalid and names the key.
	options func(s *Set, keys map[string]json.RawMessage) (any, error)
	// check looks at options when an assignment is written; the text warns of what will not work. May be nil.
	check func(c checking) (warning string)
	// unavailable says what the tool lacks in a workspace, as Set.Unavailable. The tool is offered all the same, and a call
	// of it says the same. nil: it lacks nothing.
	unavailable func(ctx context.Context, s *Set, ws hob.WorkspaceID) string
	// open makes the runner of one run. A text instead of a runner says why the tool cannot be used now.
	open func(o opening) (hob.ToolRunner, string)
}

// registry has the builtins by name; filled by add at start-up and read-only from then on.
var registry = map[string]*builtin{}

// add makes a builtin known. It is called from the init of the tool's own file only.
func add(b builtin) {
	if registry[b.name] != nil {
		panic("builtin tool " + b.name + " is registered twice") //nolint:forbidigo // a slip in the source; no test passes
	}
	b.keys = append(b.keys, rulesKey)
	registry[b.name] = &b
}
