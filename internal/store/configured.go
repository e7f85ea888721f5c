package store

import (
	"context"
	"maps"
	"slices"
	"sync"

	"hob"
)

// maxConfigured is how many agents, or workspaces, the cache knows; at the bound it begins anew.
const maxConfigured = 4096

// configured remembers what every start of a run asks for: agents, their hooks, what they are offered, a workspace's settings and
// provider keys, model profiles. It is on where this process alone writes the database; where others may, every question
// goes to the database. What it gives is shared and must not be changed.
type configured struct {
	on bool

	mu       sync.Mutex
	writes   uint64 // grows with every change of the configuration
	agents   map[hob.AgentID]hob.Agent
	assigned map[hob.AgentID][]hob.AssignedTool
	scopes   map[hob.AgentID][]hob.AssignedTool
	builtins map[hob.WorkspaceID]map[string]hob.BuiltinChange
	settings map[hob.WorkspaceID]map[string]hob.StoredSetting
	keys     map[hob.WorkspaceID][]hob.ProviderKey
	profiles map[everybody][]hob.ModelProfile
	hooks    map[hob.AgentID][]hob.Hook
}

// everybody is the key of what belongs to the server as a whole.
type everybody struct{}

// configure is write for changes of what configured remembers. Its caller is told of the success only when nothing
// older is remembered any more.
func (s *DB) configure(ctx context.Context, what string, fn func(context.Context, *tx) error) error {
	defer s.configured.forget()
	return s.write(ctx, what, fn)
}

func (c *configured) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	c.agents, c.assigned, c.scopes, c.builtins = nil, nil, nil, nil
	c.settings, c.keys, c.profiles, c.hooks = nil, nil, nil, nil
}

// recall gives what from remembers under an id, or reads and keeps it. What was read while the configuration changed is
// not kept.
func recall[K comparable, T any](c *configured, from func(*configured) *map[K]T, id K, read func() (T, error)) (T, error) {
	if !c.on {
		return read()
	}
	c.mu.Lock()
	got, ok := (*from(c))[id]
	writes := c.writes
	c.mu.Unlock()
	if ok {
		return got, nil
	}
	got, err := read()
	if err != nil {
		return got, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes == writes {
		m := from(c)
		if *m == nil || len(*m) >= maxConfigured {
			*m = map[K]T{}
		}
		(*m)[id] = got
	}
	return got, nil
}

func agentsOf(c *configured) *map[hob.AgentID]hob.Agent            { return &c.agents }
func assignedOf(c *configured) *map[hob.AgentID][]hob.AssignedTool { return &c.assigned }
func scopesOf(c *configured) *map[hob.AgentID][]hob.AssignedTool   { return &c.scopes }
func builtinsOf(c *configured) *map[hob.WorkspaceID]map[string]hob.BuiltinChange {
	return &c.builtins
}
func keysOf(c *configured) *map[hob.WorkspaceID][]hob.ProviderKey { return &c.keys }
func profilesOf(c *configured) *map[everybody][]hob.ModelProfile  { return &c.profiles }
func hooksOf(c *configured) *map[hob.AgentID][]hob.Hook           { return &c.hooks }
func settingsOf(c *configured) *map[hob.WorkspaceID]map[string]hob.StoredSetting {
	return &c.settings
}

// Agent reads one agent.
func (s *DB) Agent(ctx context.Context, by hob.Principal, id hob.AgentID) (hob.Agent, error) {
	a, err := recall(&s.configured, agentsOf, id, func() (hob.Agent, error) {
		ctx, t := s.lookUp(ctx)
		return agent(ctx, t, by, "", id)
	})
	if err != nil {
		return hob.Agent{}, err
	}
	return a, see(by, agentObject(a)) // remembered for whoever asked first
}

// Assignments lists what an agent was given.
func (s *DB) Assignments(ctx context.Context, by hob.Principal, id hob.AgentID) ([]hob.AssignedTool, error) {
	a, err := s.Agent(ctx, by, id)
	if err != nil {
		return nil, err
	}
	list, err := s.assigned(ctx, by, a.ID)
	return slices.Clone(list), err
}

// assigned is Assignments for an agent that the principal is known to see.
func (s *DB) assigned(ctx context.Context, by hob.Principal, id hob.AgentID) ([]hob.AssignedTool, error) {
	return recall(&s.configured, assignedOf, id, func() ([]hob.AssignedTool, error) { return s.assignments(ctx, by, id) })
}

// Scope lists what runs of an agent may use.
func (s *DB) Scope(ctx context.Context, by hob.Principal, id hob.AgentID) ([]hob.AssignedTool, error) {
	a, err := s.Agent(ctx, by, id)
	if err != nil {
		return nil, err
	}
	list, err := recall(&s.configured, scopesOf, a.ID, func() ([]hob.AssignedTool, error) { return s.scope(ctx, by, a) })
	return slices.Clone(list), err
}

// Builtins gives what the workspace changed of builtin tools.
func (s *DB) Builtins(ctx context.Context, by hob.Principal) (map[string]hob.BuiltinChange, error) {
	if err := see(by, hob.Object{Kind: hob.ToolObject, Workspace: by.Workspace}); err != nil {
		return nil, err
	}
	all, err := s.builtins(ctx, by.Workspace)
	return maps.Clone(all), err
}

// builtins is Builtins for a workspace whose tools may be seen.
func (s *DB) builtins(ctx context.Context, ws hob.WorkspaceID) (map[string]hob.BuiltinChange, error) {
	return recall(&s.configured, builtinsOf, ws, func() (map[string]hob.BuiltinChange, error) {
		ctx, t := s.lookUp(ctx)
		rows, err := many(ctx, t, scanBuiltin, `SELECT name, is_active, suffix, config, version FROM builtin_tools WHERE workspace_id = ?`, string(ws))
		if err != nil {
			return nil, hob.Wrap("list the changes of builtin tools", err)
		}
		all := make(map[string]hob.BuiltinChange, len(rows))
		for _, b := range rows {
			all[b.name] = b.BuiltinChange
		}
		return all, nil
	})
}
