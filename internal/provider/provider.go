package provider

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"hob"
)

// Clients makes HTTP clients for addresses that the operator configured; egress.Guard is one.
type Clients interface {
	OperatorClient(baseURL string) (*http.Client, error)
}

// Endpoint is where a provider is reached and with which key. A provider is configured when one of the two is set.
type Endpoint struct {
	Key     hob.Secret
	BaseURL string // "" = the vendor's own
}

func (e Endpoint) set() bool { return e.Key != "" || e.BaseURL != "" }

// Config is what the operator gave. Zero durations and counts mean the defaults of this package.
type Config struct {
	OpenAI     Endpoint // base URL with the version, as OPENAI_BASE_URL has it
	Anthropic  Endpoint // base URL without the version
	OpenRouter Endpoint // base URL with the version
	OllamaHost string   // as OLLAMA_HOST: host, host:port or a URL
	Clients    Clients

	Scripts map[string]string // further scripts, played by the model "scripted/NAME"
	NoDelay bool              // scripts do not wait; for tests

	Retries     int           // further tries of one call; negative = none
	RetryBase   time.Duration // the first wait between two tries
	FirstWait   time.Duration // silence before the first delta
	ThinkerWait time.Duration // the same for models that think without a sign of life
	Idle        time.Duration // silence between two deltas
	Stall       time.Duration // signs of life without progress; never less than FirstWait before the first delta
	Total       time.Duration // of one call with its retries
	BreakAfter  int           // failed tries in a row after which an endpoint is left alone; negative = never
	BreakFor    time.Duration // for this long, doubling
	BreakMost   time.Duration // up to this long
	Clock       hob.Clock     // nil = the system's
}

// maker is what a provider's file registers.
type maker struct {
	name    string
	rank    int      // the lowest configured one is the default; 0 = never
	aliases []string // other first parts of a model string
	vars    string   // what to set, for messages
	model   string   // used where an agent names none; "" = there is no such model
	// endpoint tells whether the operator configured the provider. It is nil for providers that need nothing.
	endpoint func(Config) (Endpoint, bool)
	open     func(env) (hob.Provider, error)
}

// env is what a provider is made of.
type env struct {
	config   Config
	endpoint Endpoint
	limits   limits
	circuits *circuits
}

var makers = map[string]maker{}

// add registers a provider. It is called by the init functions of this package only.
func add(m maker) { makers[m.name] = m }

// Registry knows the providers and opens models.
type Registry struct {
	config    Config
	limits    limits
	providers map[string]func() (hob.Provider, error) // the configured ones, each made at its first use
	byName    map[string]string                       // names and aliases
	circuits  *circuits
}

// New makes a registry. Nothing is contacted, and faults of one provider's configuration are reported when it is opened.
func New(c Config) *Registry {
	r := &Registry{
		config: c, limits: c.limits(), providers: map[string]func() (hob.Provider, error){}, byName: map[string]string{},
		circuits: &circuits{},
	}
	for name, m := range makers {
		for _, alias := range append([]string{name}, m.aliases...) {
			r.byName[alias] = name
		}
		e := env{config: c, limits: r.limits, circuits: r.circuits}
		if m.endpoint != nil {
			e.endpoint, _ = m.endpoint(c)
		}
		r.providers[name] = sync.OnceValues(func() (hob.Provider, error) { return m.open(e) })
	}
	return r
}

func (c Config) limits() limits {
	l := limits{
		retries: c.Retries, retryBase: c.RetryBase, first: c.FirstWait, thinker: c.ThinkerWait, idle: c.Idle,
		stall: c.Stall, total: c.Total, now: c.Clock,
		breaker: breakLimits{after: c.BreakAfter, first: c.BreakFor, most: c.BreakMost},
	}
	if l.retries == 0 {
		l.retries = DefaultRetries
	}
	if l.breaker.after == 0 {
		l.breaker.after = DefaultBreakAfter
	}
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{
		{&l.retryBase, DefaultRetryBase},
		{&l.first, DefaultFirstWait},
		{&l.thinker, DefaultThinkerWait},
		{&l.idle, DefaultIdle},
		{&l.stall, DefaultStall},
		{&l.breaker.first, DefaultBreakFor},
		{&l.breaker.most, DefaultBreakMost},
		{&l.total, DefaultTotal},
	} {
		if *d.at <= 0 {
			*d.at = d.value
		}
	}
	if l.now == nil {
		l.now = hob.SystemClock
	}
	return l
}

// Info describes a provider for people.
type Info struct {
	Name       string
	Configured bool
	Variables  string // what configures it, "" where nothing is needed
	Model      string // its model for agents that name none, "" where it has none
}

// Providers lists all providers in the order of preference, the ones that are never the default behind the others.
func (r *Registry) Providers() []Info {
	out := make([]Info, 0, len(makers))
	for _, m := range ranked() {
		out = append(out, Info{Name: m.name, Configured: r.configured(m), Variables: m.vars, Model: m.defaultModel()})
	}
	return out
}

func ranked() []maker {
	var list []maker
	for _, m := range makers {
		list = append(list, m)
	}
	last := func(m maker) int {
		if m.rank == 0 {
			return len(makers) + 1
		}
		return m.rank
	}
	slices.SortFunc(list, func(a, b maker) int {
		if d := last(a) - last(b); d != 0 {
			return d
		}
		return strings.Compare(a.name, b.name)
	})
	return list
}

func (m maker) defaultModel() string {
	if m.model == "" {
		return ""
	}
	return m.name + "/" + m.model
}

func (r *Registry) configured(m maker) bool {
	if m.endpoint == nil {
		return true
	}
	_, ok := m.endpoint(r.config)
	return ok
}

// fallback is the default provider: the configured one of the lowest rank.
func (r *Registry) fallback() (maker, bool) {
	for _, m := range ranked() {
		if m.rank > 0 && r.configured(m) {
			return m, true
		}
	}
	return maker{}, false
}

// Default is the model for agents that name none. ok is false when no provider is configured: the model is then the
// scripted demo, which needs none.
func (r *Registry) Default() (model string, ok bool) {
	for _, m := range ranked() {
		if m.rank > 0 && m.model != "" && r.configured(m) {
			return m.defaultModel(), true
		}
	}
	return scriptedName + "/" + demoName, false
}

// Open resolves a model string: "provider/model", or a bare name that is routed by its beginning and else goes to the
// default provider. A first part that names no provider belongs to the model's name. The error is Invalid and names what
// is to be set.
func (r *Registry) Open(_ context.Context, _ hob.WorkspaceID, model string) (hob.Model, error) {
	m, name, err := r.route(strings.TrimSpace(model))
	if err != nil {
		return hob.Model{}, err
	}
	if m.endpoint != nil && m.name != ollamaName && !r.configured(m) {
		return hob.Model{}, r.unconfigured(m, model)
	}
	p, err := r.providers[m.name]()
	if err != nil {
		return hob.Model{}, err
	}
	if s, ok := p.(*scripted); ok {
		if err := s.check(name); err != nil {
			return hob.Model{}, err
		}
	}
	return hob.Model{Provider: p, Name: m.name, Model: name, Window: familyOf(name).window}, nil
}

// unavailable are providers that users ask for and that this build does not have.
var unavailable = map[string]string{"gemini": "gemini", "google": "gemini"}

func (r *Registry) route(model string) (maker, string, error) {
	if model == "" {
		return maker{}, "", badModel("the model must be named, as provider/model")
	}
	first, rest, slash := strings.Cut(model, "/")
	if name, ok := r.byName[strings.ToLower(first)]; ok && (slash || name == scriptedName) {
		if slash && rest == "" {
			return maker{}, "", badModel("the model's name is missing behind %q", model)
		}
		if rest == "" {
			rest = ownName
		}
		return makers[name], rest, nil
	}
	if name, ok := unavailable[strings.ToLower(first)]; ok && slash || strings.HasPrefix(model, "gemini-") {
		if !ok {
			name = "gemini"
		}
		return maker{}, "", badModel("the provider %s is not available in this version; "+
			"its models can be used through openrouter/google/…", name)
	}
	if name := prefixProvider(model); name != "" {
		return makers[name], model, nil
	}
	m, ok := r.fallback()
	if !ok {
		return maker{}, "", badModel("no model provider is configured for %q: set one of %s, or use %s/%s", model,
			allVars(), scriptedName, demoName)
	}
	return m, model, nil
}

// prefixProvider is the vendor that a bare name belongs to by its beginning, "" for any other name.
func prefixProvider(model string) string {
	switch {
	case strings.HasPrefix(model, "gpt-"):
		return openaiName
	case strings.HasPrefix(model, "claude-"):
		return anthropicName
	case len(model) >= 2 && model[0] == 'o' && model[1] >= '1' && model[1] <= '9' && (len(model) == 2 || model[2] == '-'):
		return openaiName
	}
	return ""
}

func (r *Registry) unconfigured(m maker, model string) error {
	hint := ""
	if d, ok := r.fallback(); ok {
		hint = "; to use " + d.name + " for it write " + d.name + "/" + strings.TrimSpace(model)
	}
	return badModel("the model %q needs the provider %s, which is not configured: set %s%s", model, m.name, m.vars, hint).
		With("provider", m.name)
}

func badModel(format string, args ...any) *hob.Error {
	return hob.Errorf(hob.Invalid, format, args...).WithCode("invalid_model").With("field", "model")
}

func allVars() string {
	var vars []string
	for _, m := range ranked() {
		if m.rank > 0 {
			vars = append(vars, m.vars)
		}
	}
	return strings.Join(vars, ", ")
}

// caller makes the sender of a provider over HTTP.
func (e env) caller(name, keyVar, urlVar, base string) (caller, error) {
	if e.endpoint.BaseURL != "" {
		base = e.endpoint.BaseURL
	}
	base = strings.TrimRight(strings.TrimSpace(base), "/")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return caller{}, badModel("%s must be an address like https://host/v1, without a query", urlVar)
	}
	if e.config.Clients == nil {
		return caller{}, hob.Errorf(hob.Internal, "provider: no HTTP clients were given")
	}
	clients := e.config.Clients
	return caller{
		name: name, keyVar: keyVar, urlVar: urlVar, base: base, limits: e.limits,
		client:  sync.OnceValues(func() (*http.Client, error) { return clients.OperatorClient(base) }),
		clean:   redactorFor(e.endpoint.Key, u),
		breaker: newBreaker(name, base, e.limits, e.circuits),
	}, nil
}
