package provider

import (
	"container/list"
	"strings"
	"sync"

	"hob"
)

// MaxEndpoints is how many endpoints of workspaces are kept ready, with what is known of their health. The least recently
// used one is forgotten first; that costs nothing but this knowledge.
const MaxEndpoints = 1024

// endpointID is what makes an endpoint another one. A changed key is another endpoint, so it takes effect at once.
type endpointID struct {
	provider string
	base     string
	key      hob.Secret
}

// endpoints keeps what was made for workspaces, so that opening a model costs a look into a table.
type endpoints struct {
	mu     sync.Mutex
	byID   map[endpointID]*list.Element // of *keptEndpoint
	recent list.List                    // the last used first
}

type keptEndpoint struct {
	id       endpointID
	provider hob.Provider
}

// get finds an endpoint or makes it. What cannot be made is not kept.
func (e *endpoints) get(id endpointID, open func() (hob.Provider, error)) (hob.Provider, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, ok := e.byID[id]; ok {
		e.recent.MoveToFront(at)
		return at.Value.(*keptEndpoint).provider, nil
	}
	p, err := open()
	if err != nil {
		return nil, err
	}
	if e.byID == nil {
		e.byID = map[endpointID]*list.Element{}
	}
	e.byID[id] = e.recent.PushFront(&keptEndpoint{id, p})
	if e.recent.Len() > MaxEndpoints {
		last := e.recent.Remove(e.recent.Back()).(*keptEndpoint)
		delete(e.byID, last.id)
	}
	return p, nil
}

// provider gives the provider that a route leads to.
func (r *Registry) provider(to route) (hob.Provider, error) {
	if to.key == nil {
		return r.providers[to.maker.name]()
	}
	id := endpointID{provider: to.maker.name, base: to.key.BaseURL, key: to.key.Key}
	return r.endpoints.get(id, func() (hob.Provider, error) { return to.maker.open(r.ownEnv(*to.key)) })
}

// ownEnv is what a provider with a workspace's key is made of. Nothing of the operator's endpoint is in it.
func (r *Registry) ownEnv(k hob.ProviderKey) env {
	return env{
		config: r.config, limits: r.limits, circuits: r.circuits, profiles: r.profiles, own: true,
		endpoint: Endpoint{Key: k.Key, BaseURL: strings.TrimSpace(k.BaseURL)},
	}
}

// namedMaker makes the provider of an endpoint that a workspace named: OpenAI's dialect at an address of its own.
func namedMaker(name string) maker {
	return maker{
		name: name,
		open: func(e env) (hob.Provider, error) {
			if e.endpoint.BaseURL == "" {
				return nil, badModel("the provider key %s has no base_url, and %s is no provider that is known without one", name, name)
			}
			c, err := e.caller(name, "", "", "")
			if err != nil {
				return nil, err
			}
			return &chat{caller: c, header: bearer(e.endpoint.Key)}, nil
		},
	}
}
