package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func agentCases() map[string]func(*world) {
	return map[string]func(*world){
		"AgentIsKeptAsGiven":             agentKept,
		"AgentIsRefusedWhenInvalid":      agentInvalid,
		"AgentPatchChangesWhatIsSet":     agentPatch,
		"AgentDeletionKeepsItsSessions":  agentDeletion,
		"AgentListSearchesLiterally":     agentSearch,
		"AgentListSorts":                 agentSort,
		"AgentListPages":                 agentPages,
		"AgentListCountsVisibleSessions": agentSums,
		"IdsOfAnotherFormAreAbsent":      malformed,
	}
}

func agentKept(w *world) {
	prompt := ""
	in := hob.Agent{Name: "Näme", Model: "openai/gpt", SystemPrompt: &prompt, Settings: json.RawMessage(`{"temperature": 0.5, "custom":[1]}`), Workspace: "elsewhere", Owner: "user:x", ID: "mine"}
	a, err := w.s.CreateAgent(w.ctx, w.key, in)
	w.must(err)
	if !hob.IsUUID(string(a.ID)) || a.Workspace != hob.DefaultWorkspace || a.Owner != w.key.Owner() || a.CreatedAt.IsZero() {
		w.t.Fatalf("id, workspace, owner and time are the store's to give: %+v", a)
	}
	got, err := w.s.Agent(w.ctx, w.alice, a.ID)
	w.must(err)
	if d := cmp.Diff(a, got); d != "" {
		w.t.Fatalf("-created +read:\n%s", d)
	}
	same(w, "settings", string(got.Settings), string(in.Settings))
	got, err = w.s.Agent(w.ctx, w.alice, hob.AgentID(strings.ToUpper(string(a.ID))))
	w.must(err)
	same(w, "id asked for in capitals", got.ID, a.ID)

	bare := w.newAgent("bare")
	if bare.SystemPrompt != nil || string(bare.Settings) != "{}" {
		w.t.Fatalf("without prompt and settings: %v %s", bare.SystemPrompt, bare.Settings)
	}
}

func agentInvalid(w *world) {
	for _, a := range []hob.Agent{{Model: "m"}, {Name: "n"}, {Name: "n", Model: "m", Settings: json.RawMessage(`[]`)}, {Name: strings.Repeat("n", 256), Model: "m"}} {
		_, err := w.s.CreateAgent(w.ctx, w.service, a)
		w.want(hob.Invalid, err)
	}
	_, err := w.s.UpdateAgent(w.ctx, w.service, w.agent.ID, hob.AgentPatch{Name: point(" ")})
	w.want(hob.Invalid, err)
	got, err := w.s.Agent(w.ctx, w.service, w.agent.ID)
	w.must(err)
	same(w, "name after a refused patch", got.Name, w.agent.Name)
	_, err = w.s.CreateAgent(w.ctx, w.boundTo(w.agent.ID), hob.Agent{Name: "n", Model: "m"})
	w.want(hob.Forbidden, err)
}

func agentPatch(w *world) {
	prompt := point("be brief")
	a, err := w.s.UpdateAgent(w.ctx, w.service, w.agent.ID, hob.AgentPatch{SystemPrompt: &prompt, Settings: json.RawMessage(`{"a":1}`)})
	w.must(err)
	same(w, "name", a.Name, w.agent.Name)
	same(w, "prompt", *a.SystemPrompt, "be brief")
	var none *string
	_, err = w.s.UpdateAgent(w.ctx, w.service, w.agent.ID, hob.AgentPatch{SystemPrompt: &none, Name: point("New"), Model: point("m2"), Settings: json.RawMessage(`{"b":2}`)})
	w.must(err)
	got, err := w.s.Agent(w.ctx, w.service, w.agent.ID)
	w.must(err)
	if got.SystemPrompt != nil || got.Name != "New" || got.Model != "m2" || string(got.Settings) != `{"b":2}` {
		w.t.Fatalf("after the patch: %+v", got)
	}
	if got.UpdatedAt.Before(w.agent.UpdatedAt.Time) || !got.CreatedAt.Equal(w.agent.CreatedAt.Time) {
		w.t.Fatalf("times after the patch: created %v updated %v", got.CreatedAt, got.UpdatedAt)
	}
	page, err := w.s.Agents(w.ctx, w.service, hob.ListOptions{Limit: 10, Query: "new"})
	w.must(err)
	same(w, "found by its new name", page.Total, 1)
}

func agentDeletion(w *world) {
	_, err := w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: w.agent.ID, ToolType: "builtin", ToolName: "current_time"})
	w.must(err)
	done, open, elsewhere := w.begin(w.alice, "s-done"), w.begin(w.alice, "s-open"), w.start(w.newRun(w.alice, w.other.ID, "s-other"))
	w.finish(done, "bye")
	w.must(w.s.DeleteAgent(w.ctx, w.service, w.agent.ID))
	w.want(hob.NotFound, w.s.DeleteAgent(w.ctx, w.service, w.agent.ID))
	_, err = w.s.Agent(w.ctx, w.service, w.agent.ID)
	w.want(hob.NotFound, err)
	_, err = w.s.Assignments(w.ctx, w.service, w.agent.ID)
	w.want(hob.NotFound, err)
	for _, id := range []hob.SessionID{"s-done", "s-open"} {
		ses, err := w.s.Session(w.ctx, w.alice, id)
		w.must(err)
		if ses.Agent != nil {
			w.t.Fatalf("session %s still has the agent %s", id, *ses.Agent)
		}
	}
	codes := map[hob.RunID]string{done.ID: "", open.ID: hob.CodeCancelled, elsewhere.ID: ""}
	for id, code := range codes {
		r, err := w.s.Run(w.ctx, w.alice, id)
		w.must(err)
		same(w, "cancel mark of "+string(id), r.CancelCode, code)
	}
	_, err = w.s.StartRun(w.ctx, w.newRun(w.alice, w.agent.ID, "s-new"))
	w.want(hob.NotFound, err)
	_, err = w.s.StartRun(w.ctx, w.newRun(w.alice, w.other.ID, "s-done"))
	w.want(hob.Conflict, err)
}

func agentSearch(w *world) {
	for _, name := range []string{"100% sure", "1000 sure", "snake_case", "snakeXcase", `back\slash`, "ÄRGER", "plain"} {
		w.newAgent(name)
	}
	for q, want := range map[string]string{
		"100%":      "100% sure",
		"snake_":    "snake_case",
		`\`:         `back\slash`,
		"ärger":     "ÄRGER",
		"PLAIN":     "plain",
		"'; DROP--": "",
		"%":         "100% sure",
	} {
		page, err := w.s.Agents(w.ctx, w.alice, hob.ListOptions{Limit: 10, Query: q})
		w.must(err)
		names := make([]string, 0, 1)
		for _, a := range page.Items {
			names = append(names, a.Name)
		}
		if got := strings.Join(names, ","); got != want || int(page.Total) != len(names) {
			w.t.Errorf("query %q: got %q of %d, want %q", q, got, page.Total, want)
		}
	}
}

func agentSort(w *world) {
	third := w.newAgent("Bravo")
	w.finish(w.start(w.newRun(w.service, w.other.ID, "s1")), "x")
	w.finish(w.start(w.newRun(w.service, third.ID, "s2")), "x")
	_, err := w.s.UpdateAgent(w.ctx, w.service, w.agent.ID, hob.AgentPatch{Name: point("alpha")})
	w.must(err)
	for _, c := range []struct {
		sort string
		asc  bool
		want string
	}{
		{"", false, "Bravo second alpha"},
		{"created_at", true, "alpha second Bravo"},
		{"name", true, "alpha Bravo second"},
		{"name", false, "second Bravo alpha"},
		{"updated_at", false, "alpha Bravo second"},
		{"last_run_at", true, "second Bravo alpha"},
		{"last_run_at", false, "Bravo second alpha"}, // alpha never ran: last, either way
	} {
		page, err := w.s.Agents(w.ctx, w.service, hob.ListOptions{Limit: 10, Sort: c.sort, Asc: c.asc})
		w.must(err)
		var names []string
		for _, a := range page.Items {
			names = append(names, a.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			w.t.Errorf("sort %q asc=%v: got %q, want %q", c.sort, c.asc, got, c.want)
		}
	}
	_, err = w.s.Agents(w.ctx, w.service, hob.ListOptions{Limit: 10, Sort: "name; DROP TABLE agents"})
	w.want(hob.Invalid, err)
}

func agentPages(w *world) {
	for i := range 5 {
		w.newAgent(fmt.Sprintf("page %d", i))
	}
	var seen []string
	for offset := 0; ; offset += 2 {
		page, err := w.s.Agents(w.ctx, w.service, hob.ListOptions{Limit: 2, Offset: offset, Query: "page", Sort: "name", Asc: true})
		w.must(err)
		same(w, "total", page.Total, 5)
		if len(page.Items) == 0 {
			break
		}
		for _, a := range page.Items {
			seen = append(seen, a.Name[5:])
		}
	}
	same(w, "pages", strings.Join(seen, ""), "01234")
	// Equal sort values are told apart by id, so that pages neither repeat nor lose a row.
	var ids []string
	for range 4 {
		ids = append(ids, string(w.newAgent("twin").ID))
	}
	page, err := w.s.Agents(w.ctx, w.service, hob.ListOptions{Limit: 10, Query: "twin", Sort: "name"})
	w.must(err)
	for i := 1; i < len(page.Items); i++ {
		if page.Items[i-1].ID >= page.Items[i].ID {
			w.t.Fatalf("twins are not in order of id: %v of %v", page.Items, ids)
		}
	}
}

func agentSums(w *world) {
	for i := range 3 {
		w.begin(w.alice, "alice-1")
		w.begin(w.bob, hob.SessionID(fmt.Sprintf("bob-%d", i)))
	}
	last := w.begin(w.service, "service-1")
	for _, c := range []struct {
		who            string
		by             hob.Principal
		sessions, runs int64
	}{{"service", w.service, 5, 7}, {"alice", w.alice, 1, 3}, {"bob", w.bob, 3, 3}, {"key", w.key, 0, 0}} {
		for _, sort := range []string{"name", "last_run_at"} {
			page, err := w.s.Agents(w.ctx, c.by, hob.ListOptions{Limit: 10, Sort: sort, Query: "first"})
			w.must(err)
			a := page.Items[0]
			if a.SessionCount != c.sessions || a.TotalRuns != c.runs || a.LastRunAt.IsZero() != (c.runs == 0) {
				w.t.Errorf("%s sees %d sessions, %d runs, last %v; want %d, %d", c.who, a.SessionCount, a.TotalRuns, a.LastRunAt, c.sessions, c.runs)
			}
			if c.who == "service" && a.LastRunAt.Before(last.CreatedAt.Add(-1)) {
				w.t.Errorf("last run at %v, want not before %v", a.LastRunAt, last.CreatedAt)
			}
		}
	}
}

// malformed ids cannot name a row; they are absent like ids that could.
func malformed(w *world) {
	for _, id := range []string{"", "x", "' OR 1=1", strings.Repeat("a", 5000), "00000000-0000-0000-0000-00000000000g", hob.NewUUID()} {
		_, err := w.s.Agent(w.ctx, w.service, hob.AgentID(id))
		w.want(hob.NotFound, err)
		_, err = w.s.Tool(w.ctx, w.service, hob.ToolID(id))
		w.want(hob.NotFound, err)
		_, err = w.s.RevokeKey(w.ctx, w.service, hob.KeyID(id))
		w.want(hob.NotFound, err)
		w.want(hob.NotFound, w.s.DeleteAgent(w.ctx, w.service, hob.AgentID(id)))
		w.want(hob.NotFound, w.deleteTool(w.ctx, w.service, hob.ToolID(id)))
		w.want(hob.NotFound, w.s.Unassign(w.ctx, w.service, w.agent.ID, hob.AssignmentID(id)))
		_, err = w.s.Run(w.ctx, w.service, hob.RunID(id))
		w.want(hob.NotFound, err)
		_, err = w.s.Session(w.ctx, w.service, hob.SessionID(id))
		w.want(hob.NotFound, err)
	}
}
