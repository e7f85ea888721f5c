package store

import (
	"context"
	"encoding/json"
	"slices"

	"hob"
)

// assignments reads what an agent that the caller may see was given.
func (s *DB) assignments(ctx context.Context, by hob.Principal, id hob.AgentID) ([]hob.AssignedTool, error) {
	ctx, t := s.lookUp(ctx)
	list, err := many(ctx, t, scanAssignment, `SELECT `+assignmentColumns+` FROM assignments a WHERE a.agent_id = ? ORDER BY a.n`, string(id))
	if err != nil {
		return nil, hob.Wrap("list assignments", err)
	}
	out := make([]hob.AssignedTool, len(list))
	for i, a := range list {
		out[i].Assignment = a
	}
	return out, s.withTools(ctx, t, by, out)
}

// withTools adds the rows of custom tools and what was changed of builtin ones.
func (s *DB) withTools(ctx context.Context, t *tx, by hob.Principal, list []hob.AssignedTool) error {
	var ids []string
	for i := range list {
		if list[i].ToolID != nil {
			ids = append(ids, string(*list[i].ToolID))
		}
	}
	byID := map[hob.ToolID]*hob.Tool{}
	if len(ids) > 0 {
		in, args := inList(ids)
		tools, err := many(ctx, t, s.scanTool, `SELECT `+toolColumns+` FROM tools WHERE workspace_id = ? AND id IN `+in,
			append([]any{string(by.Workspace)}, args...)...)
		if err != nil {
			return hob.Wrap("list assigned tools", err)
		}
		for i := range tools {
			byID[tools[i].ID] = &tools[i]
		}
	}
	var changes map[string]hob.BuiltinChange
	if len(ids) < len(list) {
		var err error
		if changes, err = s.builtins(ctx, by.Workspace); err != nil {
			return err
		}
	}
	for i := range list {
		a := &list[i]
		if a.ToolID != nil {
			a.Tool = byID[*a.ToolID]
		} else if c, ok := changes[a.ToolName]; ok {
			a.Builtin = &c
		}
	}
	return nil
}

// scope reads what runs of an agent may use.
func (s *DB) scope(ctx context.Context, by hob.Principal, a hob.Agent) ([]hob.AssignedTool, error) {
	assigned, err := s.assigned(ctx, by, a.ID)
	if err != nil || a.ToolIDs == nil {
		return assigned, err
	}
	list := make([]hob.AssignedTool, 0, len(*a.ToolIDs))
	var bare []int // those without an assignment
	for _, name := range *a.ToolIDs {
		at := slices.IndexFunc(assigned, func(t hob.AssignedTool) bool {
			return t.ToolID == nil && t.ToolName == name || t.ToolID != nil && string(*t.ToolID) == name
		})
		if at >= 0 {
			list = append(list, assigned[at])
			continue
		}
		bare = append(bare, len(list))
		list = append(list, hob.AssignedTool{Assignment: unassigned(a, name)})
	}
	if len(bare) == 0 {
		return list, nil
	}
	found := make([]hob.AssignedTool, len(bare))
	for i, at := range bare {
		found[i] = list[at]
	}
	ctx, t := s.lookUp(ctx)
	if err := s.withTools(ctx, t, by, found); err != nil {
		return nil, err
	}
	for i, at := range bare {
		if row := found[i].Tool; row != nil {
			found[i].ToolName = row.Name
		}
		list[at] = found[i]
	}
	return list, nil
}

// unassigned stands for the assignment of a tool that only an agent's tool_ids name.
func unassigned(a hob.Agent, name string) hob.Assignment {
	x := hob.Assignment{Agent: a.ID, Workspace: a.Workspace, ToolType: string(hob.BuiltinTool), ToolName: name, ConfigOverride: json.RawMessage("{}")}
	if hob.IsUUID(name) {
		id := hob.ToolID(name)
		x.ToolType, x.ToolID = "custom", &id
	}
	return x
}
