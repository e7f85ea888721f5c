package storetest

import (
	"encoding/json"
	"strings"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func assignmentCases() map[string]func(*world) {
	return map[string]func(*world){
		"AssignmentsComeInOrderWithTheirTools": assignmentsListed,
		"AssignmentIsUniquePerAgent":           assignmentUnique,
		"AssignmentsOfAnAgentAreBounded":       assignmentsBounded,
		"AssignmentConfigIsReplaced":           assignmentConfig,
		"ScopeIsTheAssignmentsWithoutToolIDs":  scopeUnset,
		"ScopeIsWhatToolIDsName":               scopeSet,
		"ScopeFollowsEveryChange":              scopeChanges,
		"AssignmentOfAnotherAgentIsAbsent":     assignmentForeign,
		"ToolsStandAsTheyDoNow":                standings,
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

// scope lists the names of what an agent's runs may use; those without an assignment in brackets, those switched off
// with a minus, those that are gone as "gone".
func (w *world) scope(a hob.AgentID) string {
	w.t.Helper()
	list, err := w.s.Scope(w.ctx, w.alice, a)
	w.must(err)
	var names []string
	for _, x := range list {
		name := x.ToolName
		switch custom := x.ToolType == "custom"; {
		case custom != (x.ToolID != nil) || x.Agent != a || x.Workspace != hob.DefaultWorkspace:
			w.t.Fatalf("entry %+v", x)
		case custom && x.Tool == nil:
			name = "gone"
		case x.ID == "" && string(x.ConfigOverride) != "{}":
			w.t.Fatalf("a tool without an assignment has the configuration %s", x.ConfigOverride)
		case x.ID == "":
			name = "(" + name + ")"
		}
		if x.Off() {
			name = "-" + name
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func (w *world) setToolIDs(a hob.AgentID, ids *[]string) {
	w.t.Helper()
	got, err := w.s.UpdateAgent(w.ctx, w.service, a, hob.AgentPatch{ToolIDs: &ids})
	w.must(err)
	if d := cmp.Diff(ids, got.ToolIDs); d != "" {
		w.t.Fatalf("tool_ids (-set +got):\n%s", d)
	}
	got, err = w.s.Agent(w.ctx, w.alice, a)
	w.must(err)
	if d := cmp.Diff(ids, got.ToolIDs); d != "" {
		w.t.Fatalf("tool_ids (-set +read):\n%s", d)
	}
}

func scopeUnset(w *world) {
	if w.agent.ToolIDs != nil {
		w.t.Fatalf("a new agent has the tool ids %v", *w.agent.ToolIDs)
	}
	same(w, "without assignments", w.scope(w.agent.ID), "")
	one := w.newTool("one", nil)
	w.assign(w.agent.ID, "one", &one.ID)
	w.assign(w.agent.ID, "clock", nil)
	w.assign(w.other.ID, "search", nil)
	same(w, "assigned", w.scope(w.agent.ID), "one clock")
	_, err := w.s.Scope(w.ctx, w.stranger, w.agent.ID)
	w.want(hob.NotFound, err)
	_, err = w.s.Scope(w.ctx, w.boundTo(w.other.ID), w.agent.ID)
	w.want(hob.NotFound, err)
	_, err = w.s.Scope(w.ctx, w.service, hob.AgentID(hob.NewUUID()))
	w.want(hob.NotFound, err)
}

func scopeSet(w *world) {
	one, two, off := w.newTool("one", map[string]hob.Secret{"K": "v"}), w.newTool("two", nil), w.newTool("off", nil)
	_, err := w.s.UpdateTool(w.ctx, w.service, off.ID, hob.ToolPatch{IsActive: point(false)})
	w.must(err)
	w.must(w.s.ChangeBuiltin(w.ctx, w.service, "idle", hob.BuiltinChange{Version: 1}))
	w.assign(w.agent.ID, "one", &one.ID)
	w.assign(w.agent.ID, "clock", nil)
	gone := hob.NewUUID()
	for _, c := range []struct {
		ids  []string
		want string
	}{
		{[]string{}, ""},
		{[]string{"clock"}, "clock"},
		{[]string{string(two.ID), "search", string(one.ID)}, "(two) (search) one"},
		{[]string{string(off.ID), "idle", gone, "clock"}, "-(off) -(idle) gone clock"},
	} {
		w.setToolIDs(w.agent.ID, &c.ids)
		same(w, "scope", w.scope(w.agent.ID), c.want)
	}
	list, err := w.s.Assignments(w.ctx, w.alice, w.agent.ID)
	w.must(err)
	same(w, "assignments beside tool_ids", len(list), 2)
	w.setToolIDs(w.agent.ID, &[]string{string(one.ID)})
	list, err = w.s.Scope(w.ctx, w.alice, w.agent.ID)
	w.must(err)
	w.headers(*list[0].Tool, map[string]hob.Secret{"K": "v"})
	a, err := w.s.UpdateAgent(w.ctx, w.service, w.agent.ID, hob.AgentPatch{Name: point("renamed")})
	w.must(err)
	if a.ToolIDs == nil || len(*a.ToolIDs) != 1 {
		w.t.Fatalf("tool ids after another change: %v", a.ToolIDs)
	}
	w.setToolIDs(w.agent.ID, nil)
	same(w, "scope without tool_ids", w.scope(w.agent.ID), "one clock")

	made, err := w.s.CreateAgent(w.ctx, w.service, hob.Agent{Name: "n", Model: "m", ToolIDs: &[]string{"clock"}})
	w.must(err)
	same(w, "scope of an agent made with tool_ids", w.scope(made.ID), "(clock)")
}

// scopeChanges: whatever is remembered, a change is seen by the next question.
func scopeChanges(w *world) {
	one := w.newTool("one", nil)
	w.setToolIDs(w.agent.ID, &[]string{string(one.ID), "clock"})
	at := func(step, want string) {
		w.t.Helper()
		same(w, step, w.scope(w.agent.ID), want)
	}
	at("at first", "(one) (clock)")
	a := w.assign(w.agent.ID, "one", &one.ID)
	at("assigned", "one (clock)")
	_, err := w.s.UpdateTool(w.ctx, w.service, one.ID, hob.ToolPatch{Name: point("uno"), IsActive: point(false)})
	w.must(err)
	at("renamed and switched off", "-uno (clock)")
	w.must(w.s.ChangeBuiltin(w.ctx, w.service, "clock", hob.BuiltinChange{Version: 1}))
	at("builtin switched off", "-uno -(clock)")
	w.must(w.s.Unassign(w.ctx, w.service, w.agent.ID, a.ID))
	at("unassigned", "-(uno) -(clock)")
	w.must(w.deleteTool(w.ctx, w.service, one.ID))
	at("deleted", "gone -(clock)")
}
