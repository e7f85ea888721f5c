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

// Clients makes HTTP clients; egress.Guard is one.
type Clients interface {
	OperatorClient(baseURL string) (*http.Client, error) // for what the operator configured, and for vendors' own addresses
	UserClient(baseURL string) (*http.Client, error)     // for what a user wrote down: judged, private addresses refused
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
	Gemini     Endpoint // base URL without the version
	OpenRouter Endpoint // base URL with the version
	OllamaHost string   // as OLLAMA_HOST: host, host:port or a URL
	Clients    Clients

	// FindOllama is where an Ollama is looked for that nobody configured, as OllamaHost; see UsualOllama. It counts only
	// where OllamaHost is empty. "" = nowhere.
	FindOllama string
	// Keys gives the provider keys of a workspace with their secrets. It is asked whenever a model is opened, so it should
	// answer from memory. nil = workspaces have none.
	Keys func(context.Context, hob.WorkspaceID) ([]hob.ProviderKey, error)
	// Settings gives a workspace's MODEL_PRICES. nil = the built-in prices hold.
	Settings hob.SettingReader

	Scripts map[string]string // further scripts, played by the model "scripted/NAME"
	NoDelay bool              // scripts do not wait; for tests

	// Profiles gives what probing found out about models; see Facts. It is read when a model is opened and kept for a short
	// time. nil = the tables of this package are all there is.
	Profiles func(context.Context) ([]hob.ModelProfile, error)

	names *endpointNames // of one endpoint that is tried out; nil = by the variables

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

// endpointNames is how messages call where an endpoint's key and address come from.
type endpointNames struct{ key, url string }

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
	profiles *profiles
	own      bool // the endpoint is a workspace's, not the operator's
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
	profiles  *profiles
	endpoints endpoints // of workspaces
	prices    priceCache
	ollama    *ollamaFinder
}

// New makes a registry. Nothing is contacted, and faults of one provider's configuration are reported when it is opened.
func New(c Config) *Registry {
	r := &Registry{
		config: c, limits: c.limits(), providers: map[string]func() (hob.Provider, error){}, byName: map[string]string{},
		circuits: &circuits{}, ollama: newOllamaFinder(c),
	}
	r.profiles = newProfiles(c, r.limits.now)
	for name, m := range makers {
		for _, alias := range append([]string{name}, m.aliases...) {
			r.byName[alias] = name
		}
		e := env{config: c, limits: r.limits, circuits: r.circuits, profiles: r.profiles}
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
		info := Info{Name: m.name, Configured: r.configured(m), Variables: m.vars, Model: m.defaultModel()}
		if found := r.ollama.last(); m.name == ollamaName && found.found {
			info.Configured = true
			if len(found.models) > 0 {
				info.Model = ollamaName + "/" + found.models[0]
			}
		}
		out = append(out, info)
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

// defaultModel is the model string for agents that name none, "" where there is none.
func (m maker) defaultModel() string {
	if m.model == "" {
		return ""
	}
	return m.name + "/" + m.model
}

// configured says whether the operator configured a provider.
func (r *Registry) configured(m maker) bool {
	if m.endpoint == nil {
		return true
	}
	_, ok := m.endpoint(r.config)
	return ok
}

// caller makes the sender of a provider over HTTP. base is the vendor's own address. An address of a workspace's is judged
// by the guard, the vendor's own is as good as one of the operator's.
func (e env) caller(name, keyVar, urlVar, base string) (caller, error) {
	client := e.config.Clients
	if client == nil {
		return caller{}, hob.Errorf(hob.Internal, "provider: no HTTP clients were given")
	}
	open := client.OperatorClient
	switch n := e.config.names; {
	case e.own:
		keyVar = "the provider key " + name
		urlVar = "the base_url of the provider key " + name
	case n != nil:
		keyVar, urlVar = n.key, n.url
	}
	if e.endpoint.BaseURL != "" {
		base = e.endpoint.BaseURL
		if e.own {
			open = client.UserClient
		}
	}
	base = strings.TrimRight(strings.TrimSpace(base), "/")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return caller{}, badModel("%s must be an address like https://host/v1, without a query", urlVar)
	}
	return caller{
		name: name, keyVar: keyVar, urlVar: urlVar, base: base, limits: e.limits,
		client:  sync.OnceValues(func() (*http.Client, error) { return open(base) }),
		clean:   redactorFor(e.endpoint.Key, u),
		breaker: newBreaker(name, base, e.limits, e.circuits), profiles: e.profiles, endpoint: ProfileEndpoint(base),
	}, nil
}
