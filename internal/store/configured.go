package store

import (
	"context"
	"slices"
	"sync"

	"hob"
)

// maxConfigured is how many agents the cache knows; at the bound it begins anew.
const maxConfigured = 4096

// configured remembers agents and what is assigned to them, which every start of a run asks for. It is on where this
// process alone writes the database; where others may, every question goes to the database. What it gives is shared and
// must not be changed.
type configured struct {
	on bool

	mu       sync.Mutex
	writes   uint64 // grows with every change of the configuration
	agents   map[hob.AgentID]hob.Agent
	assigned map[hob.AgentID][]hob.AssignedTool
}

// configure is write for changes of agents, tools and assignments. Its caller is told of the success only when nothing
// older is remembered any more.
func (s *DB) configure(ctx context.Context, what string, fn func(context.Context, *tx) error) error {
	defer s.configured.forget()
	return s.write(ctx, what, fn)
}

func (c *configured) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	c.agents, c.assigned = nil, nil
}

// recall gives what from remembers of an agent, or reads and keeps it. What was read while the configuration changed is
// not kept.
func recall[T any](c *configured, from func(*configured) *map[hob.AgentID]T, id hob.AgentID, read func() (T, error)) (T, error) {
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
			*m = map[hob.AgentID]T{}
		}
		(*m)[id] = got
	}
	return got, nil
}

func agentsOf(c *configured) *map[hob.AgentID]hob.Agent            { return &c.agents }
func assignedOf(c *configured) *map[hob.AgentID][]hob.AssignedTool { return &c.assigned }

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
	if _, err := s.Agent(ctx, by, id); err != nil {
		return nil, err
	}
	list, err := recall(&s.configured, assignedOf, id, func() ([]hob.AssignedTool, error) { return s.assignments(ctx, id) })
	return slices.Clone(list), err
}
