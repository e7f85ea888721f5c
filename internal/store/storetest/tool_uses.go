package storetest

import (
	"encoding/json"
	"fmt"

	"hob"
)

func toolUses(w *world) {
	tool, other := w.newTool("weather", nil), w.newTool("other", nil)
	for _, t := range []hob.Tool{tool, other} {
		_, err := w.s.Assign(w.ctx, w.service, hob.Assignment{
			Agent: w.agent.ID, ToolType: "custom", ToolName: t.Name, ToolID: &t.ID, ConfigOverride: json.RawMessage(`{"tenant":7}`),
		})
		w.must(err)
	}
	uses, err := w.s.ToolUses(w.ctx, w.service, tool.ID)
	w.must(err)
	if len(uses) != 1 || uses[0].Agent != w.agent.ID || uses[0].Name != w.agent.Name || string(uses[0].ConfigOverride) != `{"tenant":7}` {
		w.t.Fatalf("uses: %+v", uses)
	}
	_, err = w.s.ToolUses(w.ctx, w.stranger, tool.ID)
	w.want(hob.NotFound, err)
}

func assignmentsBounded(w *world) {
	assign := func(name string) error {
		_, err := w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: w.agent.ID, ToolType: "builtin", ToolName: name})
		return err
	}
	for i := range hob.MaxAssignments {
		w.must(assign(fmt.Sprint("tool_", i)))
	}
	w.want(hob.Conflict, assign("one_more"))
	list, err := w.s.Assignments(w.ctx, w.service, w.agent.ID)
	w.must(err)
	same(w, "assignments", len(list), hob.MaxAssignments)
	w.must(w.s.Unassign(w.ctx, w.service, w.agent.ID, list[0].ID))
	w.must(assign("one_more"))
}
