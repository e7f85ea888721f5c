package storetest

import (
	"encoding/json"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func assignmentCases() map[string]func(*world) {
	return map[string]func(*world){
		"AssignmentsComeInOrderWithTheirTools": assignmentsListed,
		"AssignmentIsUniquePerAgent":           assignmentUnique,
		"AssignmentConfigIsReplaced":           assignmentConfig,
		"AssignmentOfAnotherAgentIsAbsent":     assignmentForeign,
	}
}

func (w *world) assign(a hob.AgentID, name string, tool *hob.ToolID) hob.Assignment {
	w.t.Helper()
	kind := "builtin"
	if tool != nil {
		kind = "custom"
	}
	got, err := w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: a, ToolType: kind, ToolName: name, ToolID: tool})
	w.must(err)
	return got
}

func assignmentsListed(w *world) {
	active, idle := w.newTool("active", map[string]hob.Secret{"K": "v"}), w.newTool("idle", nil)
	_, err := w.s.UpdateTool(w.ctx, w.service, idle.ID, hob.ToolPatch{IsActive: point(false)})
	w.must(err)
	made := []hob.Assignment{
		w.assign(w.agent.ID, "zz", nil), w.assign(w.agent.ID, "active", &active.ID), w.assign(w.agent.ID, "idle", &idle.ID), w.assign(w.agent.ID, "aa", nil),
	}
	w.assign(w.other.ID, "zz", nil)
	list, err := w.s.Assignments(w.ctx, w.alice, w.agent.ID)
	w.must(err)
	same(w, "number", len(list), len(made))
	for i, a := range list {
		if d := cmp.Diff(made[i], a.Assignment); d != "" {
			w.t.Fatalf("assignment %d (-made +listed):\n%s", i, d)
		}
		if set := a.Tool != nil; set != (a.ToolID != nil) {
			w.t.Fatalf("assignment %s has a row: %v", a.ToolName, set)
		}
		same(w, a.ToolName+" is off", a.Off(), a.ToolName == "idle")
	}
	same(w, "config", string(list[0].ConfigOverride), "{}")
	w.headers(*list[1].Tool, map[string]hob.Secret{"K": "v"})
}

func assignmentUnique(w *world) {
	w.assign(w.agent.ID, "current_time", nil)
	_, err := w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: w.agent.ID, ToolType: "builtin", ToolName: "current_time"})
	w.want(hob.Conflict, err)
	_, err = w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: w.agent.ID, ToolType: "custom", ToolName: "x", ToolID: point(hob.ToolID(hob.NewUUID()))})
	w.want(hob.NotFound, err)
	_, err = w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: hob.AgentID(hob.NewUUID()), ToolType: "builtin", ToolName: "current_time"})
	w.want(hob.NotFound, err)
}

func assignmentConfig(w *world) {
	a := w.assign(w.agent.ID, "current_time", nil)
	_, err := w.s.UpdateAssignment(w.ctx, w.service, w.agent.ID, a.ID, json.RawMessage(`{"zone":"UTC"}`))
	w.must(err)
	got, err := w.s.UpdateAssignment(w.ctx, w.service, w.agent.ID, a.ID, nil)
	w.must(err)
	same(w, "config after nil", string(got.ConfigOverride), `{"zone":"UTC"}`)
	w.must(w.s.Unassign(w.ctx, w.service, w.agent.ID, a.ID))
	w.want(hob.NotFound, w.s.Unassign(w.ctx, w.service, w.agent.ID, a.ID))
	_, err = w.s.UpdateAssignment(w.ctx, w.service, w.agent.ID, a.ID, json.RawMessage(`{}`))
	w.want(hob.NotFound, err)
	w.assign(w.agent.ID, "current_time", nil) // free again
}

func assignmentForeign(w *world) {
	a := w.assign(w.agent.ID, "current_time", nil)
	_, err := w.s.UpdateAssignment(w.ctx, w.service, w.other.ID, a.ID, json.RawMessage(`{"x":1}`))
	w.want(hob.NotFound, err)
	w.want(hob.NotFound, w.s.Unassign(w.ctx, w.service, w.other.ID, a.ID))
	w.want(hob.Forbidden, w.s.Unassign(w.ctx, w.alice, w.agent.ID, a.ID))
	list, err := w.s.Assignments(w.ctx, w.service, w.agent.ID)
	w.must(err)
	same(w, "config", string(list[0].ConfigOverride), "{}")
}
