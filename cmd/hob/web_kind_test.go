package main_test

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"hob"
	"hob/client"
	"hob/internal/fakeai"
	"hob/internal/fakeweb"
)

// browser is a server with an agent that has tools, and what its model and Exa were asked.
type browser struct {
	t     *testing.T
	c     *client.Client
	agent hob.AgentID
	fake  *fakeai.Server
}

// browse starts a server whose model answers by reply, and makes an agent with tools.
func browse(t *testing.T, model string, env map[string]string, reply func(fakeai.Parsed) fakeai.Reply, settings string, tools ...client.AssignmentInput) *browser {
	t.Helper()
	b := &browser{t: t, fake: fakeai.New(fakeai.Options{Reply: reply, Extra: []string{"reasoning", "plugins"}})}
	srv := httptest.NewServer(b.fake)
	t.Cleanup(srv.Close)
	switch vendor, _, _ := strings.Cut(model, "/"); vendor {
	case "openrouter":
		env["OPENROUTER_BASE_URL"], env["OPENROUTER_API_KEY"] = srv.URL+"/v1", "key"
	case "anthropic":
		env["ANTHROPIC_BASE_URL"] = srv.URL
	}
	b.c = install(t, env).serve().client()
	name := "browser"
	a, err := b.c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &model, Settings: json.RawMessage(settings)})
	if err != nil {
		t.Fatal(err)
	}
	b.agent = a.ID
	for _, in := range tools {
		b.assign(in)
	}
	return b
}

func (b *browser) assign(in client.AssignmentInput) {
	b.t.Helper()
	if _, err := b.c.Assign(b.t.Context(), b.agent, in); err != nil {
		b.t.Fatal(err)
	}
}

// row makes a tool of the type web and gives it to the agent.
func (b *browser) row(name string, config client.ToolConfigInput) {
	b.t.Helper()
	kind := string(hob.WebTool)
	row, err := b.c.CreateTool(b.t.Context(), client.ToolInput{
		Name: &name, Description: &name, Type: &kind, InputSchema: json.RawMessage(`{"type":"object","properties":{}}`), Config: &config,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.assign(client.AssignmentInput{ToolID: &row.ID})
}

// told is what a run's stream told.
type told struct {
	order    []hob.EventType // of text, searches and calls; pieces of text that follow each other once
	searches []hob.WebSearchEvent
	warnings []string
	end      hob.CompleteEvent
}

func (b *browser) ask(message string, session hob.SessionID) told {
	b.t.Helper()
	var got told
	for e, err := range b.c.RunStream(b.t.Context(), b.agent, client.RunRequest{Message: message, SessionID: session}) {
		if err != nil {
			b.t.Fatal(err)
		}
		var search hob.WebSearchEvent
		var warning hob.WarningEvent
		switch e.Type {
		case hob.EventWebSearch:
			if err := json.Unmarshal(e.Data, &search); err != nil {
				b.t.Fatal(err)
			}
			got.searches = append(got.searches, search)
		case hob.EventWarning:
			if err := json.Unmarshal(e.Data, &warning); err != nil {
				b.t.Fatal(err)
			}
			got.warnings = append(got.warnings, warning.Code+": "+warning.Message)
		case hob.EventComplete:
			if err := json.Unmarshal(e.Data, &got.end); err != nil {
				b.t.Fatal(err)
			}
		case hob.EventContentDelta, hob.EventToolCall:
		default:
			continue
		}
		if n := len(got.order); n == 0 || e.Type != hob.EventContentDelta || got.order[n-1] != e.Type {
			got.order = append(got.order, e.Type)
		}
	}
	if got.end.Status != hob.Completed || len(b.fake.Refusals()) > 0 {
		b.t.Fatalf("the run ended as %+v; the vendor refused %v", got.end, b.fake.Refusals())
	}
	return got
}

var (
	yrPage  = fakeai.Page{Title: "Yr", URL: "https://yr.no/oslo"}
	metPage = fakeai.Page{Title: "MET", URL: "https://met.no"}
)

// TestWebKind_OpenRouterSearches: the model is offered no function of the tool's name, but OpenRouter's own search.
func TestWebKind_OpenRouterSearches(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply := fakeai.Text("It rains in Oslo.")
			reply.Searches = []fakeai.Search{{Query: "weather", Pages: []fakeai.Page{yrPage, metPage}}, {Query: "more", Pages: []fakeai.Page{yrPage}}}
			b := browse(t, "openrouter/meta/llama-3", map[string]string{"HOB_DATABASE_URL": database}, fakeai.Always(reply), `{}`,
				client.AssignmentInput{ToolName: "web_browsing"}, client.AssignmentInput{ToolName: "current_time"})
			got := b.ask("Weather?", "")
			if len(got.searches) != 1 || got.searches[0].ToolName != "web_browsing" || len(got.searches[0].Results) != 2 || len(got.warnings) > 0 {
				t.Errorf("searches %+v, warnings %q", got.searches, got.warnings)
			}
			if got.end.Content != "It rains in Oslo." || len(got.end.ToolCalls) != 0 || got.end.Actions[hob.ActionWebSearch] != 2 {
				t.Errorf("ended as %+v", got.end)
			}
			sent := b.fake.Requests()[0]
			if !sent.Search || len(sent.Tools) != 1 || sent.Tools[0].Name != "current_time" || !strings.Contains(string(sent.Body), "openrouter:web_search") {
				t.Errorf("sent %s", sent.Body)
			}
			if books := actions(t, b.c, hob.UsageFilter{Run: got.end.Run}); books[hob.ActionWebSearch] != 2 || books[hob.ActionToolCall] != 0 {
				t.Errorf("on the books are %v", books)
			}
			record, err := b.c.RunRecord(t.Context(), got.end.Run)
			if err != nil {
				t.Fatal(err)
			}
			if all := string(slices.Concat(record.Events...)); !strings.Contains(all, `"web_search"`) || !strings.Contains(all, yrPage.URL) {
				t.Errorf("the record has no search: %s", all)
			}
		})
	}
}

// TestWebKind_ClaudeSearchesPausesAndCallsTools: what was found goes back while the turn is under way, and no longer.
func TestWebKind_ClaudeSearchesPausesAndCallsTools(t *testing.T) {
	t.Parallel()
	paused := fakeai.Text("I look.")
	paused.Searches, paused.Finish = []fakeai.Search{{Query: "a", Pages: []fakeai.Page{yrPage}}}, "pause_turn"
	calls := fakeai.Calls(fakeai.Call{ID: "call_1", Name: "current_time", Arguments: `{}`})
	calls.Reasoning, calls.Searches = []string{"Hm."}, []fakeai.Search{{Query: "b", Pages: []fakeai.Page{metPage}}}
	b := browse(t, "anthropic/claude-sonnet-4-5", map[string]string{}, func(p fakeai.Parsed) fakeai.Reply {
		switch {
		case p.Results() > 0 || p.LastText() == "Thanks.":
			return fakeai.Text("It rains.")
		case p.Steps() > 0:
			return calls
		}
		return paused
	}, `{}`, client.AssignmentInput{ToolName: "web_browsing"}, client.AssignmentInput{ToolName: "current_time"}, client.AssignmentInput{ToolName: "web_search"})
	got := b.ask("Weather?", "")
	want := []hob.EventType{hob.EventWebSearch, hob.EventContentDelta, hob.EventWebSearch, hob.EventToolCall, hob.EventContentDelta, hob.EventComplete}
	if !slices.Equal(got.order, want) || len(got.end.ToolCalls) != 1 || got.end.Actions[hob.ActionWebSearch] != 2 || got.end.Content != "It rains." {
		t.Errorf("order %v, ended as %+v", got.order, got.end)
	}
	b.ask("Thanks.", got.end.Session)
	var back []int
	for _, p := range b.fake.Requests() {
		n := 0
		for _, m := range p.Messages {
			n += m.Searches
		}
		back = append(back, n)
	}
	if !slices.Equal(back, []int{0, 1, 2, 0}) {
		t.Errorf("searches sent back with each request: %v", back)
	}
}

// TestWebKind_ExaStepsIn where the model's provider does not search: a function of the tool's name.
func TestWebKind_ExaStepsIn(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exa := fakeweb.NewExa("exa-key")
			srv := httptest.NewServer(exa)
			t.Cleanup(srv.Close)
			b := browse(t, "scripted", map[string]string{"HOB_DATABASE_URL": database, "EXA_API_KEY": "exa-key", "EXA_BASE_URL": srv.URL}, nil,
				`{"script":"call: web_browsing {\"query\":\"agents\",\"num_results\":1}\ncall: docs {\"query\":\"iter\"}\n---\ntext: {{results.0}}"}`,
				client.AssignmentInput{ToolName: "web_browsing", ToolType: "web"})
			b.row("docs", client.ToolConfigInput{AllowedDomains: []string{"go.dev"}})
			got := b.ask("Search.", "")
			if len(got.searches) != 0 || len(got.end.ToolCalls) != 2 || got.end.Actions[hob.ActionWebSearch] != 2 || got.end.Actions[hob.ActionToolCall] != 0 ||
				!strings.Contains(got.end.Content, "agents, part 1") {
				t.Errorf("ended as %+v", got.end)
			}
			var held bool
			for _, r := range exa.Requests() {
				only, _ := r.Body["includeDomains"].([]any)
				held = held || r.Body["query"] == "iter" && len(only) == 1 && only[0] == "go.dev"
			}
			if len(exa.Requests()) != 2 || !held {
				t.Errorf("Exa was asked %v", exa.Requests())
			}
		})
	}
}

// TestWebKind_WithNeitherItIsUnavailable: the run says so, and the tool's row, and what would help.
func TestWebKind_WithNeitherItIsUnavailable(t *testing.T) {
	t.Parallel()
	b := browse(t, "scripted", map[string]string{}, nil, `{"script":"call: web_browsing {\"query\":\"x\"}\n---\ntext: {{result}}"}`,
		client.AssignmentInput{ToolName: "web_browsing"})
	b.row("docs", client.ToolConfigInput{BlockedDomains: []string{"spam.example"}})
	got := b.ask("Search.", "")
	if len(got.warnings) != 2 || !strings.Contains(got.end.Content, "Unknown tool 'web_browsing'") {
		t.Errorf("warnings %q, ended as %q", got.warnings, got.end.Content)
	}
	for i, w := range got.warnings {
		if !strings.HasPrefix(w, `tool_unavailable: tool "`+[]string{"web_browsing", "docs"}[i]) || !strings.Contains(w, "Exa API key not configured") {
			t.Errorf("warning %q", w)
		}
	}
	tools, err := b.c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, tool := range tools {
		if tool.Name == "web_browsing" || tool.Name == "docs" {
			seen++
			if tool.Type != hob.WebTool || tool.Status != "unavailable" || !strings.Contains(tool.Reason, "no configured model provider searches the web by itself") {
				t.Errorf("%s is %s, %s: %s", tool.Name, tool.Type, tool.Status, tool.Reason)
			}
			if tool.Name == "web_browsing" && (tool.ID != "" || !tool.IsActive) {
				t.Errorf("%+v", tool)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d of the tools are listed", seen)
	}
}

// TestWebKind_ARowOfItsOwnIsHeldToItsDomains by the provider that searches.
func TestWebKind_ARowOfItsOwnIsHeldToItsDomains(t *testing.T) {
	t.Parallel()
	reply := fakeai.Text("It is there.")
	reply.Searches = []fakeai.Search{{Query: "iter", Pages: []fakeai.Page{{Title: "iter", URL: "https://go.dev/iter"}}}}
	b := browse(t, "anthropic/claude-sonnet-4-5", map[string]string{}, fakeai.Always(reply), `{}`)
	b.row("go_docs", client.ToolConfigInput{AllowedDomains: []string{"go.dev"}, MaxUses: 2})
	got := b.ask("Iterators?", "")
	if len(got.searches) != 1 || got.searches[0].ToolName != "go_docs" || got.searches[0].Query != "iter" {
		t.Errorf("%+v", got.searches)
	}
	if body := string(b.fake.Requests()[0].Body); !strings.Contains(body, `"max_uses":2,"allowed_domains":["go.dev"]`) {
		t.Errorf("sent %s", body)
	}
}
