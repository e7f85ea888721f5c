package storetest

import (
	"github.com/google/go-cmp/cmp"

	"hob"
)

// stand asks how a builtin, two custom tools and a builtin that nobody has stand to the first agent, and wants each as in
// a letter: o offered, s switched off, w withdrawn.
func (w *world) stand(ids [2]hob.ToolID, what, want string) {
	w.t.Helper()
	refs := []string{hob.BuiltinRef + "clock", string(ids[0]), string(ids[1]), hob.BuiltinRef + "other"}
	got, err := w.s.Standing(w.ctx, hob.DefaultWorkspace, w.agent.ID, refs)
	w.must(err)
	letters := ""
	for _, s := range got {
		letters += map[hob.Standing]string{hob.Offered: "o", hob.SwitchedOff: "s", hob.Withdrawn: "w"}[s]
	}
	same(w, what, letters, want)
}

func standings(w *world) {
	ids := [2]hob.ToolID{w.newTool("one", nil).ID, w.newTool("two", nil).ID}
	w.stand(ids, "of an agent without tools", "wwww")
	clock := w.assign(w.agent.ID, "clock", nil)
	w.assign(w.agent.ID, "one", &ids[0])
	w.assign(w.other.ID, "two", &ids[1])
	w.stand(ids, "as assigned", "ooww")

	switched := func(id hob.ToolID, on bool) {
		_, err := w.s.UpdateTool(w.ctx, w.service, id, hob.ToolPatch{IsActive: &on})
		w.must(err)
	}
	switched(ids[0], false)
	w.stand(ids, "with a custom tool off", "osww")
	w.must(w.s.ChangeBuiltin(w.ctx, w.service, "clock", hob.BuiltinChange{}))
	w.stand(ids, "with the builtin off", "ssww")
	switched(ids[0], true)
	changes, err := w.s.Builtins(w.ctx, w.service)
	w.must(err)
	on := changes["clock"]
	on.IsActive = true
	w.must(w.s.ChangeBuiltin(w.ctx, w.service, "clock", on))
	w.stand(ids, "with both on again", "ooww")

	scoped := func(list *[]string) {
		_, err := w.s.UpdateAgent(w.ctx, w.service, w.agent.ID, hob.AgentPatch{ToolIDs: &list})
		w.must(err)
	}
	scoped(&[]string{string(ids[1]), "clock"})
	w.stand(ids, "with tool_ids, which need no assignment", "owow")
	scoped(&[]string{})
	w.stand(ids, "with none in tool_ids", "wwww")
	scoped(nil)
	w.must(w.s.Unassign(w.ctx, w.service, w.agent.ID, clock.ID))
	w.stand(ids, "with the builtin taken away", "woww")
	w.must(w.deleteTool(w.ctx, w.service, ids[0]))
	w.stand(ids, "with the custom tool deleted", "wwww")

	w.assign(w.agent.ID, "clock", nil)
	none, err := w.s.Standing(w.ctx, hob.DefaultWorkspace, w.agent.ID, nil)
	w.must(err)
	if d := cmp.Diff([]hob.Standing{}, none); d != "" {
		w.t.Errorf("of no refs: %s", d)
	}
	elsewhere, err := w.s.Standing(w.ctx, "elsewhere", w.agent.ID, []string{hob.BuiltinRef + "clock"})
	w.must(err)
	same(w, "in another workspace", elsewhere[0], hob.Withdrawn)
	w.must(w.s.DeleteAgent(w.ctx, w.service, w.agent.ID))
	w.stand(ids, "of an agent that is gone", "wwww")
}
