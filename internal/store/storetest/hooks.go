package storetest

import (
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func hookCases() map[string]func(*world) {
	return map[string]func(*world){
		"HooksAreKeptInTheOrderInWhichTheyAreAsked": hooksKept,
		"HooksAreForThoseWhoConfigureTheAgent":      hooksGuarded,
		"HooksAreBoundedPerAgent":                   hooksBounded,
		"HooksAreCountedWhoeverChangesThem":         hooksAtOnce,
	}
}

func (w *world) newHook(name string, change func(*hob.Hook)) hob.Hook {
	w.t.Helper()
	h := hob.Hook{
		Agent: w.agent.ID, Event: hob.PreToolUse, Type: hob.HTTPHook, Enabled: true,
		Config: hob.HookConfig{URL: "https://" + name + ".example/hook"},
	}
	if change != nil {
		change(&h)
	}
	made, err := w.s.CreateHook(w.ctx, w.service, h)
	w.must(err)
	return made
}

// hookNames are the hosts of an agent's hooks, in order.
func (w *world) hookNames(a hob.AgentID) string {
	w.t.Helper()
	list, err := w.s.Hooks(w.ctx, w.key, a)
	w.must(err)
	var names []string
	for _, h := range list {
		names = append(names, h.Config.URL[len("https://"):len(h.Config.URL)-len(".example/hook")])
	}
	return fmt.Sprint(names)
}

// counted is how many enabled hooks an agent says it has.
func (w *world) counted(a hob.AgentID) int {
	w.t.Helper()
	got, err := w.s.Agent(w.ctx, w.service, a)
	w.must(err)
	return got.Hooks
}

func hooksKept(w *world) {
	same(w, "hooks of a new agent", w.hookNames(w.agent.ID), "[]")
	full := w.newHook("full", func(h *hob.Hook) {
		h.Matcher, h.Position, h.Event = point("shell|write_*"), 5, hob.PostToolUse
		h.Config.OnError, h.Config.TimeoutSeconds, h.Config.IncludeRunContext = hob.FailDeny, 2.5, true
		h.Config.Headers = map[string]hob.Secret{"Authorization": "Bearer t0ken", "X-Team": "red"}
		h.Config.Secret = "whsec_1"
	})
	person := w.newHook("person", func(h *hob.Hook) {
		h.Type = hob.ApprovalHook
		h.Config.Timeout, h.Config.Approvers, h.Config.FourEyes = point(0.0), []string{hob.ApproverAny}, true
	})
	off := w.newHook("off", func(h *hob.Hook) { h.Enabled = false })
	w.newHook("last", func(h *hob.Hook) { h.Position = 5 })
	same(w, "order", w.hookNames(w.agent.ID), "[person off full last]")
	list, err := w.s.Hooks(w.ctx, w.service, w.agent.ID)
	w.must(err)
	if d := cmp.Diff([]hob.Hook{person, off, full}, list[:3]); d != "" {
		w.t.Fatalf("-made +listed:\n%s", d)
	}
	same(w, "secret", string(list[2].Config.Secret)+string(list[2].Config.Headers["Authorization"]), "whsec_1Bearer t0ken")
	same(w, "enabled", w.counted(w.agent.ID), 3)

	changed, err := w.s.UpdateHook(w.ctx, w.service, w.agent.ID, off.ID, hob.HookPatch{Enabled: point(true), Position: point(9)})
	w.must(err)
	off.Enabled, off.Position = true, 9
	if d := cmp.Diff(off, changed); d != "" {
		w.t.Fatalf("-want +changed:\n%s", d)
	}
	if changed, err = w.s.UpdateHook(w.ctx, w.service, w.agent.ID, full.ID, hob.HookPatch{Enabled: point(false)}); err != nil || changed.Config.Secret != "whsec_1" {
		w.t.Fatalf("switched off: %+v, %v", changed, err)
	}
	same(w, "order", w.hookNames(w.agent.ID), "[person full last off]")
	same(w, "enabled", w.counted(w.agent.ID), 3)
	w.must(w.s.DeleteHook(w.ctx, w.service, w.agent.ID, person.ID))
	same(w, "order", w.hookNames(w.agent.ID), "[full last off]")
	same(w, "enabled", w.counted(w.agent.ID), 2)
	page, err := w.s.Agents(w.ctx, w.service, hob.ListOptions{Query: "first"})
	w.must(err)
	same(w, "enabled, of the list", page.Items[0].Hooks, 2)
	_, err = w.s.UpdateHook(w.ctx, w.service, w.agent.ID, person.ID, hob.HookPatch{})
	w.want(hob.NotFound, err)
	w.must(w.s.DeleteAgent(w.ctx, w.service, w.agent.ID))
	_, err = w.s.Hooks(w.ctx, w.service, w.agent.ID)
	w.want(hob.NotFound, err)
}

func hooksGuarded(w *world) {
	h := w.newHook("guard", func(h *hob.Hook) { h.Config.Secret = "s" })
	foreign := w.newHook("foreign", func(h *hob.Hook) { h.Agent = w.other.ID })
	bound := w.boundTo(w.other.ID)
	for _, tt := range []struct {
		by   hob.Principal
		want hob.Kind
	}{{w.alice, hob.Forbidden}, {w.stranger, hob.NotFound}, {bound, hob.NotFound}} {
		_, err := w.s.CreateHook(w.ctx, tt.by, hob.Hook{Agent: w.agent.ID, Event: hob.PreToolUse, Type: hob.RuleHook})
		w.want(tt.want, err)
		_, err = w.s.UpdateHook(w.ctx, tt.by, w.agent.ID, h.ID, hob.HookPatch{Enabled: point(false)})
		w.want(tt.want, err)
		w.want(tt.want, w.s.DeleteHook(w.ctx, tt.by, w.agent.ID, h.ID))
	}
	_, err := w.s.Hooks(w.ctx, w.stranger, w.agent.ID)
	w.want(hob.NotFound, err)
	_, err = w.s.Hooks(w.ctx, bound, w.agent.ID)
	w.want(hob.NotFound, err)
	_, err = w.s.Deliveries(w.ctx, w.stranger, w.agent.ID, h.ID, 10)
	w.want(hob.NotFound, err)
	for _, id := range []hob.HookID{foreign.ID, "nonsense", hob.HookID(hob.NewUUID())} {
		for what, err := range map[string]error{
			"change": func() error { _, err := w.s.UpdateHook(w.ctx, w.service, w.agent.ID, id, hob.HookPatch{}); return err }(),
			"delete": w.s.DeleteHook(w.ctx, w.service, w.agent.ID, id),
			"tell":   func() error { _, err := w.s.Deliveries(w.ctx, w.service, w.agent.ID, id, 1); return err }(),
		} {
			if e := w.refused(err, hob.NotFound, "hook_not_found"); e.Message != "Hook not found" {
				w.t.Fatalf("%s hook %s, which the agent does not have: %v", what, id, err)
			}
		}
	}
	for name, c := range map[string]hob.HookConfig{
		"a masked header": {Headers: map[string]hob.Secret{"A": hob.Mask}},
		"a masked secret": {Secret: hob.Mask + "abcd"},
	} {
		if _, err := w.s.CreateHook(w.ctx, w.service, hob.Hook{Agent: w.agent.ID, Config: c}); hob.KindOf(err) != hob.Invalid {
			w.t.Fatalf("%s: %v", name, err)
		}
	}
}

func hooksBounded(w *world) {
	for i := range hob.MaxHooks {
		w.newHook(fmt.Sprint("h", i), func(h *hob.Hook) { h.Enabled = i%2 == 0 })
	}
	_, err := w.s.CreateHook(w.ctx, w.service, hob.Hook{Agent: w.agent.ID, Event: hob.PreToolUse, Type: hob.RuleHook})
	same(w, "limit", w.refused(err, hob.Conflict, "too_many_hooks").Details["limit"], any(hob.MaxHooks))
	same(w, "enabled", w.counted(w.agent.ID), hob.MaxHooks/2)
}

func hooksAtOnce(w *world) {
	const callers = 8
	made := make([]hob.Hook, callers)
	for i := range made {
		made[i] = w.newHook(fmt.Sprint("h", i), nil)
	}
	together(callers, func(i int) {
		var err error
		switch i % 3 {
		case 0:
			err = w.s.DeleteHook(w.ctx, w.service, w.agent.ID, made[i].ID)
		case 1:
			_, err = w.s.UpdateHook(w.ctx, w.service, w.agent.ID, made[i].ID, hob.HookPatch{Enabled: point(false)})
		default:
			_, err = w.s.CreateHook(w.ctx, w.service, hob.Hook{Agent: w.agent.ID, Event: hob.OnRunStart, Type: hob.HTTPHook, Enabled: true})
		}
		if err != nil {
			w.t.Errorf("caller %d: %v", i, err)
		}
	})
	list, err := w.s.Hooks(w.ctx, w.service, w.agent.ID)
	w.must(err)
	off := func(h hob.Hook) bool { return !h.Enabled }
	same(w, "enabled", w.counted(w.agent.ID), len(slices.DeleteFunc(list, off)))
}
