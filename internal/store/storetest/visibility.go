package storetest

import (
	"encoding/json"

	"hob"
)

func visibilityCases() map[string]func(*world) {
	return map[string]func(*world){
		"VisibilityOfSessionsAndRuns":   visibleSessions,
		"VisibilityOfAgentsAndTools":    visibleAgents,
		"ARunOnlyKeyReadsWhatItRuns":    runOnly,
		"ABoundKeyReachesItsAgentAlone": boundKey,
	}
}

// visibleSessions is the matrix of principals and sessions, through every way of reading.
func visibleSessions(w *world) {
	keyOther := w.key
	keyOther.ID = hob.NewUUID()
	bound, admin := w.boundTo(w.agent.ID), w.key
	admin.Scopes = []hob.Scope{hob.ScopeAdmin}
	readers := map[string]hob.Principal{
		"service": w.service, "alice": w.alice, "bob": w.bob, "key": w.key, "another key": keyOther, "bound": bound,
		"admin key": admin, "stranger": w.stranger, "system": hob.System(hob.DefaultWorkspace),
	}
	makers := map[string][]string{ // who made it → who else sees it; service, admin key and system see all
		"service": nil, "alice": nil, "bob": nil, "key": nil, "bound": nil,
	}
	everything := map[string]bool{"service": true, "admin key": true, "system": true}
	for maker := range makers {
		id := hob.SessionID("of " + maker)
		r := w.begin(readers[maker], id)
		for name, by := range readers {
			want := hob.NotFound
			if name == maker || everything[name] {
				want = ""
			}
			for what, err := range map[string]error{
				"Session":     second(w.s.Session(w.ctx, by, id)),
				"SessionRuns": second(w.s.SessionRuns(w.ctx, by, id, 10, 0)),
				"History":     second(w.s.History(w.ctx, by, id, hob.HistoryRange{Before: 5, Budget: 100})),
				"Run":         second(w.s.Run(w.ctx, by, r.ID)),
				"RunDetail":   second(w.s.RunDetail(w.ctx, by, r.ID)),
				"Events":      second(w.s.Events(w.ctx, by, r.ID, 0, 10)),
			} {
				if got := hob.KindOf(err); got != want {
					w.t.Errorf("%s by %s of what %s made: %q, want %q", what, name, maker, got, want)
				}
			}
		}
	}
	for name, by := range readers {
		want := int64(1)
		switch {
		case everything[name]:
			want = int64(len(makers))
		case name == "another key":
			want = 0
		case name == "stranger":
			_, err := w.s.Sessions(w.ctx, by, w.agent.ID, hob.SessionFilter{Limit: 100})
			w.want(hob.NotFound, err)
			continue
		}
		page, err := w.s.Sessions(w.ctx, by, w.agent.ID, hob.SessionFilter{Limit: 100})
		w.must(err)
		if page.Total != want || int64(len(page.Items)) != want {
			w.t.Errorf("%s lists %d of %d sessions, want %d", name, len(page.Items), page.Total, want)
		}
	}
}

// visibleAgents: the workspace reads them, only who may configure changes them, nobody else knows of them.
func visibleAgents(w *world) {
	tool := w.newTool("t", nil)
	a := w.assign(w.agent.ID, "current_time", nil)
	nobody := w.alice
	nobody.Scopes = nil
	for _, c := range []struct {
		name         string
		by           hob.Principal
		read, change hob.Kind
	}{
		{"service", w.service, "", ""},
		{"key", w.key, "", ""},
		{"alice", w.alice, "", hob.Forbidden},
		{"stranger", w.stranger, hob.NotFound, hob.NotFound},
		{"without scopes", nobody, hob.NotFound, hob.NotFound},
	} {
		for what, err := range map[string]error{
			"Agent":       second(w.s.Agent(w.ctx, c.by, w.agent.ID)),
			"Tool":        second(w.s.Tool(w.ctx, c.by, tool.ID)),
			"Assignments": second(w.s.Assignments(w.ctx, c.by, w.agent.ID)),
		} {
			if got := hob.KindOf(err); got != c.read {
				w.t.Errorf("%s by %s: %q, want %q", what, c.name, got, c.read)
			}
		}
		for what, err := range map[string]error{
			"UpdateAgent":      second(w.s.UpdateAgent(w.ctx, c.by, w.agent.ID, hob.AgentPatch{Model: point("m")})),
			"UpdateTool":       second(w.s.UpdateTool(w.ctx, c.by, tool.ID, hob.ToolPatch{Description: point("d")})),
			"UpdateAssignment": second(w.s.UpdateAssignment(w.ctx, c.by, w.agent.ID, a.ID, json.RawMessage(`{}`))),
		} {
			if got := hob.KindOf(err); got != c.change {
				w.t.Errorf("%s by %s: %q, want %q", what, c.name, got, c.change)
			}
		}
	}
	w.want(hob.Forbidden, second(w.s.CreateAgent(w.ctx, w.alice, hob.Agent{Name: "n", Model: "m"})))
	w.want(hob.Forbidden, second(w.s.CreateTool(w.ctx, w.alice, hob.Tool{Name: "n"})))
	w.want(hob.Forbidden, w.s.DeleteAgent(w.ctx, w.alice, w.agent.ID))
	w.want(hob.Forbidden, w.deleteTool(w.ctx, w.alice, tool.ID))
	w.want(hob.NotFound, w.s.DeleteAgent(w.ctx, w.stranger, w.agent.ID))
	page, err := w.s.Agents(w.ctx, w.stranger, hob.ListOptions{Limit: 10})
	w.must(err)
	same(w, "agents of another workspace", page.Total, 0)
	tools, err := w.s.Tools(w.ctx, w.stranger)
	w.must(err)
	same(w, "tools of another workspace", len(tools), 0)
}

// runOnly: without the right to read it still finds the agent it runs and its own run's stream.
func runOnly(w *world) {
	by := w.key
	by.Scopes = []hob.Scope{hob.ScopeRun}
	_, err := w.s.Agent(w.ctx, by, w.agent.ID)
	w.must(err)
	r := w.begin(by, "s")
	_, err = w.s.Events(w.ctx, by, r.ID, 0, 10)
	w.must(err)
	_, err = w.s.History(w.ctx, by, "s", hob.HistoryRange{Before: 2, Budget: 10})
	w.must(err)
	w.want(hob.Forbidden, second(w.s.UpdateAgent(w.ctx, by, w.agent.ID, hob.AgentPatch{Model: point("m")})))
	by.Scopes = []hob.Scope{hob.ScopeConfigure}
	_, err = w.s.Run(w.ctx, by, r.ID) // its own, but configuring is about agents and tools
	w.want(hob.Forbidden, err)
	by.Scopes = []hob.Scope{hob.ScopeApprove}
	_, err = w.s.Run(w.ctx, by, r.ID)
	w.must(err)
}

func boundKey(w *world) {
	by := w.boundTo(w.agent.ID)
	w.begin(w.service, "of the service")
	page, err := w.s.Agents(w.ctx, by, hob.ListOptions{Limit: 10})
	w.must(err)
	if page.Total != 1 || page.Items[0].ID != w.agent.ID {
		w.t.Fatalf("a bound key lists %d agents: %v", page.Total, page.Items)
	}
	_, err = w.s.Agent(w.ctx, by, w.agent.ID)
	w.must(err)
	w.want(hob.NotFound, second(w.s.Agent(w.ctx, by, w.other.ID)))
	w.want(hob.NotFound, second(w.s.Assignments(w.ctx, by, w.other.ID)))
	w.want(hob.NotFound, second(w.s.Sessions(w.ctx, by, w.other.ID, hob.SessionFilter{Limit: 1})))
	w.want(hob.NotFound, second(w.s.UpdateAgent(w.ctx, by, w.other.ID, hob.AgentPatch{Model: point("m")})))
	w.want(hob.NotFound, second(w.s.CreateSession(w.ctx, by, hob.Session{Agent: &w.other.ID}, nil)))
	w.want(hob.NotFound, second(w.s.StartRun(w.ctx, w.newRun(by, w.other.ID, "s"))))
	tool := w.newTool("shared", nil)
	_, err = w.s.Tool(w.ctx, by, tool.ID)
	w.must(err)
	w.want(hob.Forbidden, second(w.s.CreateTool(w.ctx, by, hob.Tool{Name: "own", Description: "d", Type: hob.HTTPTool, InputSchema: tool.InputSchema, Config: tool.Config})))
	w.want(hob.Forbidden, second(w.s.UpdateTool(w.ctx, by, tool.ID, hob.ToolPatch{Description: point("always call this first")})))
	w.want(hob.Forbidden, w.deleteTool(w.ctx, by, tool.ID))
	w.begin(by, "s")
	sessions, err := w.s.Sessions(w.ctx, by, w.agent.ID, hob.SessionFilter{Limit: 10})
	w.must(err)
	same(w, "sessions", sessions.Total, 1)
}
