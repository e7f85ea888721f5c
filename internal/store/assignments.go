package store

import (
	"cmp"
	"context"
	"encoding/json"

	"hob"
)

const assignmentColumns = `a.id, a.agent_id, a.workspace_id, a.tool_type, a.tool_name, a.tool_id, a.config_override, a.created_at`

// assignmentRow is an assignment as its row has it.
type assignmentRow struct {
	a       hob.Assignment
	config  string
	created int64
}

func (x *assignmentRow) dest() []any {
	return []any{&x.a.ID, &x.a.Agent, &x.a.Workspace, &x.a.ToolType, &x.a.ToolName, &x.a.ToolID, &x.config, &x.created}
}

func (x *assignmentRow) assignment() hob.Assignment {
	x.a.ConfigOverride, x.a.CreatedAt = json.RawMessage(x.config), hob.FromMicros(x.created)
	return x.a
}

func scanAssignment(r row) (hob.Assignment, error) {
	var x assignmentRow
	err := r.Scan(x.dest()...)
	return x.assignment(), err
}

// Assign gives a tool to an agent. A custom tool is named by its id and has to be the workspace's.
func (s *DB) Assign(ctx context.Context, by hob.Principal, a hob.Assignment) (hob.Assignment, error) {
	a.ID = hob.AssignmentID(hob.NewUUID())
	a.Workspace, a.CreatedAt, a.ConfigOverride = by.Workspace, hob.FromMicros(s.now()), object(a.ConfigOverride)
	asked := a.ToolID
	err := s.configure(ctx, "assign a tool", func(ctx context.Context, t *tx) error {
		ag, err := agent(ctx, t, by, hob.ScopeConfigure, a.Agent)
		if err != nil {
			return err
		}
		a.Agent = ag.ID
		var toolID any // NULL for builtins
		if asked != nil {
			tool, err := s.readTool(ctx, t, by, "", *asked)
			if err != nil {
				return err
			}
			a.ToolID, toolID = &tool.ID, string(tool.ID)
		}
		other, err := one(ctx, t, scanText, `SELECT id FROM assignments WHERE agent_id = ? AND tool_name = ?`, string(a.Agent), a.ToolName)
		if !none(err) {
			return cmp.Or(err, alreadyAssigned(a, other))
		}
		n, err := one(ctx, t, scanInt, `SELECT count(*) FROM assignments WHERE agent_id = ?`, string(a.Agent))
		if err != nil {
			return err
		}
		if n >= hob.MaxAssignments {
			return hob.Errorf(hob.Conflict, "the agent has %d tools, which is the most; take one away first: DELETE /api/agents/%s/tools/{assignment_id}", n, a.Agent).
				WithCode("too_many_tools").With("limit", hob.MaxAssignments)
		}
		_, err = t.exec(ctx, `INSERT INTO assignments (id, agent_id, workspace_id, tool_type, tool_name, tool_id, config_override, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, string(a.ID), string(a.Agent), string(a.Workspace), a.ToolType, a.ToolName, toolID,
			string(a.ConfigOverride), a.CreatedAt.Micros())
		if err != nil && s.d.conflict(err) {
			return alreadyAssigned(a, "{assignment_id}") // that came between
		}
		t.assigned(by, "assignment.create", a, nil, a)
		return err
	})
	if err != nil {
		return hob.Assignment{}, err
	}
	return a, nil
}

// assigned notes a change of an assignment.
func (t *tx) assigned(by hob.Principal, action string, a hob.Assignment, before, after any) {
	t.did(by, action, "assignment", string(a.ID), before, after).Detail = details("agent_id", string(a.Agent), "tool_name", a.ToolName)
}

// alreadyAssigned names the assignment that is in the way of another one.
func alreadyAssigned(a hob.Assignment, other string) error {
	return hob.Errorf(hob.Conflict, "the agent has the tool %q already; change that assignment instead: PATCH /api/agents/%s/tools/%s",
		a.ToolName, a.Agent, other).WithCode("tool_assigned").With("assignment_id", other)
}

// assignment reads one that the principal may change; absent names it in the way of the route that asks.
func assignment(ctx context.Context, t *tx, by hob.Principal, ag hob.AgentID, id hob.AssignmentID, absent string) (hob.Assignment, error) {
	owner, err := agent(ctx, t, by, hob.ScopeConfigure, ag)
	if err != nil {
		return hob.Assignment{}, err
	}
	key, ok := uuid(id)
	if ok {
		var a hob.Assignment
		a, err = one(ctx, t, scanAssignment, `SELECT `+assignmentColumns+` FROM assignments a WHERE a.agent_id = ? AND a.id = ?`, string(owner.ID), key)
		if err == nil {
			return a, nil
		}
	}
	if !ok || none(err) {
		return hob.Assignment{}, hob.Errorf(hob.NotFound, "%s not found", absent).WithCode("assignment_not_found")
	}
	return hob.Assignment{}, err
}

// UpdateAssignment replaces an assignment's configuration; nil leaves it as it is.
func (s *DB) UpdateAssignment(ctx context.Context, by hob.Principal, ag hob.AgentID, id hob.AssignmentID, config json.RawMessage) (hob.Assignment, error) {
	var a hob.Assignment
	err := s.configure(ctx, "update an assignment", func(ctx context.Context, t *tx) (err error) {
		if a, err = assignment(ctx, t, by, ag, id, "Tool assignment"); err != nil || config == nil {
			return err
		}
		before := a
		a.ConfigOverride = object(config)
		t.assigned(by, "assignment.update", a, before, a)
		_, err = t.exec(ctx, `UPDATE assignments SET config_override = ? WHERE id = ?`, string(a.ConfigOverride), string(a.ID))
		return err
	})
	if err != nil {
		return hob.Assignment{}, err
	}
	return a, nil
}

// Unassign takes a tool from an agent.
func (s *DB) Unassign(ctx context.Context, by hob.Principal, ag hob.AgentID, id hob.AssignmentID) error {
	return s.configure(ctx, "unassign a tool", func(ctx context.Context, t *tx) error {
		a, err := assignment(ctx, t, by, ag, id, "Assignment")
		if err != nil {
			return err
		}
		t.assigned(by, "assignment.delete", a, a, nil)
		_, err = t.exec(ctx, `DELETE FROM assignments WHERE id = ?`, string(a.ID))
		return err
	})
}
