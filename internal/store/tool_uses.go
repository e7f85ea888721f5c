package store

import (
	"context"

	"hob"
)

// ToolUses lists the assignments of a tool.
func (s *DB) ToolUses(ctx context.Context, by hob.Principal, id hob.ToolID) ([]hob.ToolUse, error) {
	ctx, t := s.lookUp(ctx)
	tool, err := s.readTool(ctx, t, by, "", id)
	if err != nil {
		return nil, err
	}
	scan := func(r row) (hob.ToolUse, error) {
		var x assignmentRow
		var name string
		err := r.Scan(append(x.dest(), &name)...)
		return hob.ToolUse{Assignment: x.assignment(), Name: name}, err
	}
	list, err := many(ctx, t, scan, `SELECT `+assignmentColumns+`, g.name FROM assignments a JOIN agents g ON g.id = a.agent_id
		WHERE a.tool_id = ? ORDER BY g.name_key, g.id`, string(tool.ID))
	return list, hob.Wrap("list the assignments of a tool", err)
}
