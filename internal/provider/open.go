package provider

import (
	"context"
	"strings"

	"hob"
)

// keyring is what a workspace brings to the choice of a provider: its own keys and addresses, by provider.
type keyring map[string]hob.ProviderKey

// keyring asks for the keys of a workspace. One without key and address says nothing.
func (r *Registry) keyring(ctx context.Context, ws hob.WorkspaceID) (keyring, error) {
	if r.config.Keys == nil {
		return keyring{}, nil
	}
	list, err := r.config.Keys(ctx, ws)
	if err != nil {
		return nil, hob.Wrap("read the workspace's provider keys", err)
	}
	var own keyring
	for _, k := range list {
		if k.Key == "" && k.BaseURL == "" {
			continue
		}
		if own == nil {
			own = make(keyring, len(list))
		}
		own[r.canonical(k.Provider)] = k
	}
	return own, nil
}

// canonical is the one spelling of a provider's name: google is gemini.
func (r *Registry) canonical(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if known, ok := r.byName[name]; ok {
		return known
	}
	return name
}

// route is where a model string leads.
type route struct {
	maker maker
	model string           // as the provider names it
	key   *hob.ProviderKey // the workspace's own; nil = the operator's configuration
}

// Open resolves a model string: "provider/model", "name/model" for an endpoint that the workspace named, or a bare name
// that is routed by its beginning and else goes to the default provider, the workspace's own before the operator's. A
// first part that names neither belongs to the model's name. The error is Invalid and names what is to be set.
//
// A provider for which the workspace has a key is reached with that key alone, and at the address that stands beside it
// or, where none does, at the vendor's own. The operator's key goes to no address of a workspace, and a workspace's key to
// no address of the operator's: who wrote down the one did not choose the other. Such an address may be any, so it is
// judged as a tool's is; the operator's is not.
//
// Nothing is contacted, but that a bare name which no configured provider takes may look for an Ollama on this machine.
func (r *Registry) Open(ctx context.Context, ws hob.WorkspaceID, model string) (hob.Model, error) {
	model = strings.TrimSpace(model)
	var own keyring
	if !r.isScripted(model) {
		var err error
		if own, err = r.keyring(ctx, ws); err != nil {
			return hob.Model{}, err
		}
	}
	to, err := r.route(ctx, model, own)
	if err != nil {
		return hob.Model{}, err
	}
	p, err := r.provider(to)
	if err != nil {
		return hob.Model{}, err
	}
	if s, ok := p.(*scripted); ok {
		if err := s.check(to.model); err != nil {
			return hob.Model{}, err
		}
	}
	r.profiles.refresh(ctx)
	price, err := r.price(ctx, ws, to)
	if err != nil {
		return hob.Model{}, err
	}
	search := searchOf(p, to.model)
	return hob.Model{
		Provider: p, Name: to.maker.name, Model: to.model, Window: windowOf(p, to.model),
		Light: r.light(to), Price: price, Count: counterOf(to.model), Effort: effortOf(p, to.model),
		Search: search.can, SearchAlone: search.alone, SearchDomains: search.domains,
	}, nil
}

// Searches says whether a provider that a workspace can use searches the web by itself, going by the model that it has for
// agents that name none.
func (r *Registry) Searches(ctx context.Context, ws hob.WorkspaceID) bool {
	own, err := r.keyring(ctx, ws)
	if err != nil {
		return false
	}
	for _, m := range ranked() {
		to := route{maker: m, model: m.model}
		if k, ok := own[m.name]; ok {
			to.key = &k
		} else if m.endpoint == nil || !r.configured(m) {
			continue
		}
		if p, err := r.provider(to); err == nil && searchOf(p, m.model).can {
			return true
		}
	}
	return false
}

// isScripted says whether a model string names the provider that needs nothing, so that nobody is asked for keys.
func (r *Registry) isScripted(model string) bool {
	first, _, _ := strings.Cut(model, "/")
	return r.byName[strings.ToLower(first)] == scriptedName
}

func (r *Registry) route(ctx context.Context, model string, own keyring) (route, error) {
	if model == "" {
		return route{}, badModel("the model must be named, as provider/model")
	}
	first, rest, slash := strings.Cut(model, "/")
	name := r.canonical(first)
	m, known := makers[name]
	switch {
	case known && (slash || name == scriptedName):
		if slash && rest == "" {
			return route{}, badModel("the model's name is missing behind %q", model)
		}
		if rest == "" {
			rest = ownName
		}
		return r.configuredRoute(ctx, m, rest, model, own)
	case slash && own.names(name):
		if rest == "" {
			return route{}, badModel("the model's name is missing behind %q", model)
		}
		k := own[name]
		return route{maker: namedMaker(name), model: rest, key: &k}, nil
	}
	if name := prefixProvider(model); name != "" {
		return r.configuredRoute(ctx, makers[name], model, model, own)
	}
	m, ok := r.fallback(ctx, own)
	if !ok {
		return route{}, badModel("no model provider is configured for %q: set one of %s, or add a provider key, or use %s/%s",
			model, allVars(), scriptedName, demoName)
	}
	return r.configuredRoute(ctx, m, model, model, own)
}

// names says whether the workspace named an endpoint so. A name that providers have is none.
func (k keyring) names(name string) bool {
	_, known := makers[name]
	_, ok := k[name]
	return ok && !known
}

// configuredRoute leads to a provider if somebody configured it: the workspace, else the operator. An Ollama at its usual
// address needs no configuration.
func (r *Registry) configuredRoute(ctx context.Context, m maker, name, model string, own keyring) (route, error) {
	if m.endpoint == nil {
		return route{maker: m, model: name}, nil
	}
	if k, ok := own[m.name]; ok {
		return route{maker: m, model: name, key: &k}, nil
	}
	if m.name != ollamaName && !r.configured(m) {
		return route{}, r.unconfigured(ctx, m, model, own)
	}
	return route{maker: m, model: name}, nil
}

// fallback is the default provider: of those that the workspace has a key for the one of the lowest rank, else of those
// that the operator configured, else an Ollama on this machine.
func (r *Registry) fallback(ctx context.Context, own keyring) (maker, bool) {
	list := ranked()
	for _, m := range list {
		if _, ok := own[m.name]; ok && m.rank > 0 {
			return m, true
		}
	}
	for _, m := range list {
		if m.rank > 0 && r.configured(m) {
			return m, true
		}
	}
	if r.ollama.find(ctx).found {
		return makers[ollamaName], true
	}
	return maker{}, false
}

// Default is the model for agents of no workspace in particular that name none: see DefaultFor.
func (r *Registry) Default() (model string, ok bool) {
	return r.defaultModel(context.Background(), nil)
}

// DefaultFor is the model for a workspace's agents that name none. ok is false when no provider is configured: the model
// is then the scripted demo, which needs none. The error is that of reading the workspace's keys.
func (r *Registry) DefaultFor(ctx context.Context, ws hob.WorkspaceID) (model string, ok bool, err error) {
	own, err := r.keyring(ctx, ws)
	if err != nil {
		return "", false, err
	}
	model, ok = r.defaultModel(ctx, own)
	return model, ok, nil
}

func (r *Registry) defaultModel(ctx context.Context, own keyring) (model string, ok bool) {
	list := ranked()
	for _, m := range list {
		if _, ok := own[m.name]; ok && m.rank > 0 && m.model != "" {
			return m.defaultModel(), true
		}
	}
	for _, m := range list {
		if m.rank > 0 && m.model != "" && r.configured(m) {
			return m.defaultModel(), true
		}
	}
	if found := r.ollama.find(ctx); len(found.models) > 0 {
		return ollamaName + "/" + found.models[0], true
	}
	return scriptedName + "/" + demoName, false
}

// prefixProvider is the vendor that a bare name belongs to by its beginning, "" for any other name.
func prefixProvider(model string) string {
	switch {
	case strings.HasPrefix(model, "gpt-"), oSeries(model):
		return openaiName
	case strings.HasPrefix(model, "claude-"):
		return anthropicName
	case strings.HasPrefix(model, "gemini-"):
		return geminiName
	}
	return ""
}

// oSeries says whether a name is of OpenAI's o1, o3 and so on. A name like o1000 is somebody else's.
func oSeries(model string) bool {
	return len(model) >= 2 && model[0] == 'o' && model[1] >= '1' && model[1] <= '9' && (len(model) == 2 || model[2] == '-')
}

func (r *Registry) unconfigured(ctx context.Context, m maker, model string, own keyring) error {
	hint := ""
	if d, ok := r.fallback(ctx, own); ok {
		hint = "; to use " + d.name + " for it write " + d.name + "/" + model
	}
	return badModel("the model %q needs the provider %s, which is not configured: set %s, or add a provider key%s", model,
		m.name, m.vars, hint).With("provider", m.name)
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
