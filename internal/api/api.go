// Package api is Hob's HTTP surface: routes, authentication, limits, JSON in and out, event streams, the OpenAPI
// document and the pages that explain them. It decides nothing about runs (package engine does) and nothing about rights
// beyond a route's scope (hob.Can, asked by the store, does); it knows no SQL and calls nothing outside.
package api

import (
	"context"
	"encoding/json"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"hob"
	"hob/internal/engine"
)

// Limits are the API's numbers; zero values take those of DefaultLimits.
type Limits struct {
	Body    int64 // bytes of a request's body
	BigBody int64 // bytes of a body of run and session-seeding routes
	Upload  int64 // bytes of an uploaded file
	Streams int   // open event streams of the whole server; more are refused with Unavailable
	PerKey  int   // open event streams of one user or API key; service keys are bounded by Streams alone
	Uploads int   // uploads under way on the whole server; more are refused with Unavailable
	// UploadsPerKey is how many of them are one user's or API key's; service keys are bounded by Uploads alone.
	UploadsPerKey int
	Rate          Rate          // requests of one user or API key
	Service       Rate          // requests of one service key
	BadKeys       Rate          // requests with unknown keys from one address
	Off           bool          // no rates, no PerKey and no UploadsPerKey; Streams, Uploads and the sizes stay
	BodyTime      time.Duration // a request's body must have come within this; an upload must not stand still for it
	// UploadTime is how long an upload may take as a whole.
	UploadTime time.Duration
	// WriteTime is how long a reader may leave one piece of an answer unread before its connection is cut.
	WriteTime time.Duration
	KeepAlive time.Duration // silence on a stream before a comment is sent
	TakeOver  time.Duration // a stream that lasts longer is kept in a way that needs little memory
	Recheck   time.Duration // how long a key's state is believed, also under an open stream
}

// Rate is a token bucket: so many per second, and so many at once.
type Rate struct {
	PerSecond float64
	Burst     float64
}

// DefaultLimits are the documented limits.
func DefaultLimits() Limits {
	return Limits{
		Body: 1 << 20, BigBody: 8 << 20, Upload: hob.MaxFileSize, Streams: 10_000, PerKey: 50,
		Uploads: 256, UploadsPerKey: 16,
		Rate: Rate{50, 100}, Service: Rate{1000, 2000}, BadKeys: Rate{20, 200},
		BodyTime: 30 * time.Second, UploadTime: 30 * time.Minute, WriteTime: 10 * time.Second, KeepAlive: 15 * time.Second,
		TakeOver: 100 * time.Millisecond, Recheck: 2 * time.Second,
	}
}

// withDefaults fills what is not set.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	fill(&l.Body, d.Body)
	fill(&l.BigBody, d.BigBody)
	fill(&l.Upload, d.Upload)
	fill(&l.UploadTime, d.UploadTime)
	fill(&l.Streams, d.Streams)
	fill(&l.PerKey, d.PerKey)
	fill(&l.Uploads, d.Uploads)
	fill(&l.UploadsPerKey, d.UploadsPerKey)
	fill(&l.Rate, d.Rate)
	fill(&l.Service, d.Service)
	fill(&l.BadKeys, d.BadKeys)
	fill(&l.BodyTime, d.BodyTime)
	fill(&l.WriteTime, d.WriteTime)
	fill(&l.KeepAlive, d.KeepAlive)
	fill(&l.TakeOver, d.TakeOver)
	fill(&l.Recheck, d.Recheck)
	return l
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Config is what the API needs. Store and Engine must be set; the functions may be nil where their part is not there.
type Config struct {
	Store  hob.Store
	Engine *engine.Engine
	// Builtins are the rows of the builtin tools, in the order in which they are listed.
	Builtins func() []hob.Tool
	// Previews names the builtin tools that can be tried with dry_run.
	Previews func() []string
	// CheckAssignment judges the config_override of an assignment; row is the custom tool's, nil for a builtin. The warning
	// says what in it has no effect; errors are Invalid.
	CheckAssignment func(ctx context.Context, a hob.Assignment, row *hob.Tool) (warning string, err error)
	// CheckURL judges the address of a tool by the rules for outgoing calls; its error says what would allow it.
	CheckURL func(address string) error
	// CheckTool judges a whole custom tool beyond what the API checks itself; its error is Invalid. Header values that are
	// kept and not known here stand as "x".
	CheckTool func(t hob.Tool) error

	// Unavailable says why a tool of a workspace cannot do its work now, "" where it can; a builtin tool has no id.
	Unavailable func(ctx context.Context, ws hob.WorkspaceID, t hob.Tool) string

	// NotLoaded says of each tool of a grant why a run would go without it, "" where it would not.
	NotLoaded func(ctx context.Context, g hob.Grant) ([]string, error)

	// CheckScript judges an agent's settings.script; its error is Invalid, and names the line and what mends it.
	CheckScript func(source string) error
	// Models resolves a model string, or says why nobody serves it.
	Models hob.ModelOpener
	// DefaultModel is the model of an agent of a workspace that is made without one, with a warning where it is only a demo.
	// For the workspace "" it is what holds where a workspace has no wish of its own.
	DefaultModel func(ctx context.Context, ws hob.WorkspaceID) (model, warning string)
	// Settings are behind the routes of that name, which answer Unavailable without.
	Settings Settings
	// Providers lists the server's model providers, whose names no endpoint of a workspace may take.
	Providers func() []Provider
	// ValidateKey asks a provider whether it takes a key. An Invalid error: it does not, or the key cannot be used; not valid
	// without an error: that could not be found out. The texts are for the client.
	ValidateKey func(ctx context.Context, k hob.ProviderKey) (valid bool, reason string, err error)
	// CheckFacts says what is wrong with the facts of a model's profile; nil = nothing is looked at.
	CheckFacts func(json.RawMessage) error
	// Facts is a zero value of the type that such facts have, for the description of the API; nil = any object.
	Facts any
	// Files is behind the routes of object storage, which answer Unavailable without.
	Files Files
	// Ready says whether the parts behind the API work.
	Ready func(ctx context.Context) error
	// Metrics gives further counters for /metrics, by their full names, behind which labels may stand: name{label="value"}.
	Metrics func() map[string]int64

	Version     string
	CORSOrigins []string // exact origins, as https://app.example.com; "*" is none
	JWTSecret   string   // empty: no user tokens
	Limits      Limits
	Clock       hob.Clock
	Log         *slog.Logger
}

// server is the handler that New returns.
type server struct {
	Config
	mux      *http.ServeMux
	runs     *http.ServeMux  // of the paths below runsPrefix, which mux would find to collide with those of agents
	bare     map[string]bool // patterns that are unrouted's
	origins  map[string]bool
	methods  []string // that any route has
	auth     *authenticator
	limits   *limiter
	streams  *streams
	uploads  *uploads
	refusals *refusals
	refused  refused
	lines    lines
	metrics  metrics
	unready  engine.Outage
	builtins map[string]hob.Tool
	openapi  func() ([]byte, error)
	index    func() (*template.Template, error)
	pieces   sync.Pool // of *piece
}

// runsPrefix is where runs are found; "runs" is no agent's id.
const runsPrefix = "/api/agents/runs/"

// muxFor is the mux that knows a path.
func (s *server) muxFor(path string) *http.ServeMux {
	if strings.HasPrefix(path, runsPrefix) {
		return s.runs
	}
	return s.mux
}

// New makes the handler of all routes.
func New(c Config) http.Handler {
	c.Limits = c.Limits.withDefaults()
	if c.Clock == nil {
		c.Clock = hob.SystemClock
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Builtins == nil {
		c.Builtins = func() []hob.Tool { return nil }
	}
	s := &server{Config: c, mux: http.NewServeMux(), runs: http.NewServeMux(), bare: map[string]bool{"/": true}, origins: map[string]bool{}, builtins: map[string]hob.Tool{}}
	for _, o := range c.CORSOrigins {
		if o = strings.TrimRight(strings.TrimSpace(o), "/"); o != "" && o != "*" {
			s.origins[o] = true
		}
	}
	for _, t := range c.Builtins() {
		s.builtins[t.Name] = t
	}
	s.unready.Log, s.unready.Fault, s.unready.Over = c.Log, "not ready", "ready again"
	s.auth = newAuthenticator(c)
	s.limits = newLimiter(c.Limits, c.Clock)
	s.uploads = newUploads(c.Limits)
	s.streams = newStreams(c.Limits, s.auth)
	s.refusals = newRefusals()
	s.openapi = sync.OnceValues(s.describe)
	s.index = sync.OnceValues(parseIndex)
	s.pieces.New = newPiece
	table := routes()
	for i := range table {
		rt := &table[i]
		counts := s.metrics.route(rt.method, rt.path)
		s.muxFor(rt.path).HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			s.serve(rt, counts, w, r)
		})
		if !slices.Contains(s.methods, rt.method) {
			s.methods = append(s.methods, rt.method)
		}
	}
	s.mux.HandleFunc("/", s.unrouted)
	s.runs.HandleFunc("/", s.unrouted)
	for _, pattern := range folders(table) { // the mux would answer with a redirect, and a page
		s.mux.HandleFunc(pattern, s.unrouted)
		s.bare[pattern] = true
	}
	return s
}

// folders are the patterns above those whose paths go on without end, where they are no route's own.
func folders(table []route) []string {
	own := map[string]bool{}
	for _, rt := range table {
		own[rt.method+" "+rt.path] = true
	}
	var patterns []string
	for _, rt := range table {
		at := strings.LastIndex(rt.path, "/{")
		if !strings.HasSuffix(rt.path, "...}") {
			continue
		}
		if p := rt.method + " " + rt.path[:at]; !own[p] {
			own[p], patterns = true, append(patterns, p)
		}
	}
	return patterns
}
