package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"hob"
)

// Standing says how tools stand to runs of an agent now. Where this process alone writes the database, that is what it
// remembers of the agent's scope; else it is one statement.
func (s *DB) Standing(ctx context.Context, ws hob.WorkspaceID, id hob.AgentID, refs []string) ([]hob.Standing, error) {
	out := make([]hob.Standing, len(refs))
	key, ok := uuid(id)
	if !ok || len(refs) == 0 {
		return out, nil
	}
	id = hob.AgentID(key)
	if !s.configured.on {
		return out, hob.Wrap("see how tools stand", s.lookAtStanding(ctx, ws, id, refs, out))
	}
	by := hob.System(ws)
	list, err := recall(&s.configured, scopesOf, id, func() ([]hob.AssignedTool, error) {
		a, err := s.Agent(ctx, by, id)
		if err != nil {
			return nil, err
		}
		return s.scope(ctx, by, a)
	})
	switch {
	case hob.KindOf(err) == hob.NotFound:
		return out, nil
	case err != nil:
		return nil, err
	}
	for i, ref := range refs {
		at := slices.IndexFunc(list, func(t hob.AssignedTool) bool { return t.Is(ref) })
		switch {
		case at < 0, list[at].Workspace != ws, list[at].ToolID != nil && list[at].Tool == nil:
		case list[at].Off():
			out[i] = hob.SwitchedOff
		default:
			out[i] = hob.Offered
		}
	}
	return out, nil
}

// The facts that lookAtStanding reads, each with a name.
const (
	factToolIDs  = 'i' // the agent's tool_ids, as JSON; "" where its assignments decide
	factAssigned = 'a' // the id of a custom tool, or the name of a builtin one
	factOff      = 'o' // of a builtin that was switched off
	factOn       = 'n' // the id of a custom tool that is there and on
	factThere    = 't' // and of one that is off
)

// lookAtStanding is Standing by a look into the database.
func (s *DB) lookAtStanding(ctx context.Context, ws hob.WorkspaceID, id hob.AgentID, refs []string, out []hob.Standing) error {
	ctx, t := s.lookUp(ctx)
	in, args := inList(refs)
	type fact struct{ kind, name string }
	facts, err := many(ctx, t, func(r row) (f fact, err error) { err = r.Scan(&f.kind, &f.name); return f, err },
		`SELECT 'i', coalesce(tool_ids, '') FROM agents WHERE id = ? AND workspace_id = ?
		UNION ALL SELECT 'a', coalesce(tool_id, tool_name) FROM assignments WHERE agent_id = ?
		UNION ALL SELECT 'o', name FROM builtin_tools WHERE workspace_id = ? AND is_active = 0
		UNION ALL SELECT CASE WHEN is_active = 1 THEN 'n' ELSE 't' END, id FROM tools WHERE workspace_id = ? AND id IN `+in,
		append([]any{string(id), string(ws), string(id), string(ws), string(ws)}, args...)...)
	if err != nil {
		return err
	}
	known := map[fact]bool{}
	var ids *[]string // nil: the assignments decide
	found := false
	for _, f := range facts {
		known[f] = true
		if f.kind != string(factToolIDs) {
			continue
		}
		if found = true; f.name != "" {
			if err := json.Unmarshal([]byte(f.name), &ids); err != nil {
				return fmt.Errorf("read the tool_ids of agent %s: %w", id, err)
			}
		}
	}
	if !found {
		return nil
	}
	is := func(kind rune, name string) bool { return known[fact{string(kind), name}] }
	for i, ref := range refs {
		name, builtin := strings.CutPrefix(ref, hob.BuiltinRef)
		has := is(factAssigned, name)
		if ids != nil {
			has = slices.Contains(*ids, name)
		}
		switch {
		case !has:
		case builtin && is(factOff, name), !builtin && is(factThere, name):
			out[i] = hob.SwitchedOff
		case builtin || is(factOn, name):
			out[i] = hob.Offered
		}
	}
	return nil
}
