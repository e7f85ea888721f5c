package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"hob"
	"hob/client"
	"hob/internal/fakeai"
)

// rowStage is a whole server, a model whose answers the test decides, and an HTTP server that notes who called it.
type rowStage struct {
	t     *testing.T
	c     *client.Client
	model *fakeai.Server
	at    string // address of the tools

	mu    sync.Mutex
	reply func(fakeai.Parsed) fakeai.Reply
	calls []string // "path header" of each call that reached the tools
	onHit func(path string)
}

func rowStages(t *testing.T, play func(*rowStage)) {
	t.Helper()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(newRowStage(t, database))
		})
	}
}

func newRowStage(t *testing.T, database string) *rowStage {
	t.Helper()
	s := &rowStage{t: t}
	s.model = fakeai.New(fakeai.Options{Reply: func(p fakeai.Parsed) fakeai.Reply {
		s.mu.Lock()
		reply := s.reply
		s.mu.Unlock()
		return reply(p)
	}})
	models := httptest.NewServer(s.model)
	t.Cleanup(models.Close)
	tools := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls = append(s.calls, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("X-Key")))
		hit := s.onHit
		s.mu.Unlock()
		if hit != nil {
			hit(r.URL.Path)
		}
		_, _ = io.WriteString(w, "it is "+strings.TrimPrefix(r.URL.Path, "/"))
	}))
	t.Cleanup(tools.Close)
	s.at = tools.URL
	env := map[string]string{
		"OPENAI_BASE_URL": models.URL + "/v1", "OPENAI_API_KEY": "sk-fake",
		"HOB_EGRESS_ALLOW": strings.TrimPrefix(tools.URL, "http://") + "," + strings.TrimPrefix(models.URL, "http://"),
	}
	if database != "" {
		env["HOB_DATABASE_URL"] = database
	}
	s.c = install(t, env).serve().client()
	return s
}

// calling lets the model name tools, one in each step, and then answer.
func (s *rowStage) calling(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
	s.reply = func(p fakeai.Parsed) fakeai.Reply {
		done := 0 // of this turn
		for _, m := range p.Messages {
			switch m.Role {
			case "user":
				done = 0
			case "tool":
				done++
			}
		}
		if done == len(names) {
			return fakeai.Text("Done.")
		}
		return fakeai.Calls(fakeai.Call{ID: fmt.Sprintf("call_%s_%d", hob.RandomHex(4), done), Name: names[done], Arguments: `{}`})
	}
}

func (s *rowStage) reached() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// tool makes an HTTP tool whose path is its name.
func (s *rowStage) tool(name string, headers map[string]string) client.Tool {
	s.t.Helper()
	kind := string(hob.HTTPTool)
	t, err := s.c.CreateTool(s.t.Context(), client.ToolInput{
		Name: &name, Description: &name, Type: &kind, InputSchema: json.RawMessage(`{"type":"object"}`),
		Config: &client.ToolConfigInput{Endpoint: s.at + "/" + name, Headers: headers},
	})
	s.must(err)
	return t
}

func (s *rowStage) switchTool(id hob.ToolID, on bool) {
	_, err := s.c.UpdateTool(s.t.Context(), id, client.ToolInput{IsActive: &on})
	if err != nil {
		s.t.Errorf("switch a tool: %v", err)
	}
}

// agent makes an agent with tool_ids, nil for none, and assigns tools by their names.
func (s *rowStage) agent(ids *[]string, assigned ...string) hob.AgentID {
	s.t.Helper()
	name, model := "a", "openai/fake-model"
	a, err := s.c.CreateAgent(s.t.Context(), client.AgentInput{Name: &name, Model: &model, ToolIDs: ids})
	s.must(err)
	for _, tool := range assigned {
		_, err := s.c.Assign(s.t.Context(), a.ID, client.AssignmentInput{ToolName: tool})
		s.must(err)
	}
	return a.ID
}

func (s *rowStage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// turn runs an agent and gives what the model was asked meanwhile.
func (s *rowStage) turn(agent hob.AgentID, session hob.SessionID) (hob.RunResult, []fakeai.Parsed) {
	s.t.Helper()
	before := len(s.model.Requests())
	r, err := s.c.Run(s.t.Context(), agent, client.RunRequest{Message: "go", SessionID: session, Tools: true})
	s.must(err)
	if r.Status != hob.Completed || r.Content != "Done." {
		s.t.Fatalf("the run is %s: %q %v", r.Status, r.Content, r.Error)
	}
	return r, s.model.Requests()[before:]
}

// warned are the texts of a run's warnings.
func (s *rowStage) warned(run hob.RunID) string {
	s.t.Helper()
	var texts []string
	for e, err := range s.c.Events(s.t.Context(), run, 0) {
		s.must(err)
		if e.Type == hob.EventWarning {
			var w hob.WarningEvent
			s.must(json.Unmarshal(e.Data, &w))
			texts = append(texts, w.Message)
		}
	}
	return strings.Join(texts, "\n")
}

// offeredBy are the names of the tools in a request to the model; "no tools key" where it has none.
func offeredBy(t *testing.T, p fakeai.Parsed) string {
	t.Helper()
	var body map[string]json.RawMessage
	if err := json.Unmarshal(p.Body, &body); err != nil {
		t.Fatal(err)
	}
	if _, ok := body["tools"]; !ok {
		return "no tools key"
	}
	names := make([]string, len(p.Tools))
	for i, tool := range p.Tools {
		names[i] = tool.Name
	}
	return strings.Join(names, " ")
}

// A tool that an agent does not have, or that is switched off, is not offered, and naming it does not call it.
func TestToolRows_WhatIsNotOfferedIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	rowStages(t, func(s *rowStage) {
		other, off, gone := s.tool("other", nil), s.tool("off", nil), s.tool("gone", nil)
		s.tool("victim", nil)
		s.switchTool(off.ID, false)
		no := false
		_, err := s.c.ChangeBuiltin(s.t.Context(), "http_request", client.BuiltinInput{IsActive: &no})
		s.must(err)
		lost := s.agent(&[]string{string(gone.ID), string(other.ID)})
		s.must(s.c.DeleteTool(s.t.Context(), gone.ID))
		list := func(ids ...string) *[]string { return &ids }
		for _, tt := range []struct {
			name    string
			agent   hob.AgentID
			calls   string // what the model names
			offered string
			warned  string
		}{
			{"nothing assigned", s.agent(nil), "victim", "no tools key", ""},
			{"not assigned", s.agent(nil, "other"), "victim", "other", ""},
			{"switched off", s.agent(nil, "other", "off"), "off", "other", `"off" is not loaded: it is switched off`},
			{"all switched off", s.agent(nil, "off", "http_request"), "off", "no tools key", `"http_request" is not loaded: it is switched off`},
			{"builtin switched off", s.agent(nil, "other", "http_request"), "http_request", "other", `"http_request" is not loaded: it is switched off`},
			{"empty tool_ids", s.agent(&[]string{}, "other", "victim"), "victim", "no tools key", ""},
			{"assigned, but outside tool_ids", s.agent(list(string(other.ID)), "other", "victim"), "victim", "other", ""},
			{"in tool_ids, but switched off", s.agent(list(string(off.ID), string(other.ID), "http_request")), "off", "other", `"off" is not loaded: it is switched off`},
			{"in tool_ids, but deleted", lost, "gone", "other", `"` + string(gone.ID) + `" is not loaded: it no longer exists`},
		} {
			s.calling(tt.calls)
			r, asked := s.turn(tt.agent, "")
			for i, p := range asked {
				if got := offeredBy(s.t, p); got != tt.offered {
					s.t.Errorf("%s: request %d offers %q, want %q", tt.name, i+1, got, tt.offered)
				}
			}
			if got, want := asked[len(asked)-1].LastText(), "Unknown tool '"+tt.calls+"'"; !strings.Contains(got, want) {
				s.t.Errorf("%s: the model reads %q, want %q", tt.name, got, want)
			}
			if got := s.reached(); len(got) != 0 {
				s.t.Errorf("%s: run %s reached %q", tt.name, r.RunID, got)
			}
			if got := s.warned(r.RunID); !strings.Contains(got, tt.warned) || (got == "") != (tt.warned == "") {
				s.t.Errorf("%s: the run warns %q, want %q", tt.name, got, tt.warned)
			}
		}
		if a, err := s.c.Agent(s.t.Context(), lost); err != nil || len(a.Warnings) != 1 || !strings.Contains(a.Warnings[0], string(gone.ID)) {
			s.t.Errorf("the agent with a tool that is gone: %q, %v", a.Warnings, err)
		}
	})
}

// A row is all it takes: the next turn of a session has the tool. What tool_ids name needs no assignment.
func TestToolRows_ARowIsOfferedToTheNextTurn(t *testing.T) {
	t.Parallel()
	rowStages(t, func(s *rowStage) {
		agent := s.agent(nil)
		s.calling()
		first, asked := s.turn(agent, "")
		if got := offeredBy(s.t, asked[0]); got != "no tools key" {
			s.t.Errorf("before there is a row, the model is offered %q", got)
		}
		made := s.tool("weather", nil)
		_, err := s.c.Assign(s.t.Context(), agent, client.AssignmentInput{ToolName: "weather"})
		s.must(err)
		s.calling("weather")
		_, asked = s.turn(agent, first.SessionID)
		if got := offeredBy(s.t, asked[0]); got != "weather" {
			s.t.Errorf("with the row, the model is offered %q", got)
		}
		if got := asked[1].LastText(); got != "it is weather" {
			s.t.Errorf("the model reads %q", got)
		}
		if got := s.reached(); !slices.Equal(got, []string{"/weather"}) {
			s.t.Errorf("reached %q", got)
		}
		s.calling("weather")
		if s.turn(s.agent(&[]string{string(made.ID), "current_time"}), ""); len(s.reached()) != 1 {
			s.t.Errorf("a tool of tool_ids was reached %q", s.reached())
		}
	})
}

// A tool that is switched off while a run is under way is not called any more, although it was offered.
func TestToolRows_SwitchedOffDuringARun(t *testing.T) {
	t.Parallel()
	rowStages(t, func(s *rowStage) {
		s.tool("first", nil)
		second := s.tool("second", nil)
		agent := s.agent(nil, "first", "second")
		s.onHit = func(path string) {
			if path == "/first" {
				s.switchTool(second.ID, false)
			}
		}
		s.calling("first", "second")
		_, asked := s.turn(agent, "")
		if got := asked[len(asked)-1].LastText(); !strings.Contains(got, "tool_disabled") {
			s.t.Errorf("the model reads %q, want tool_disabled", got)
		}
		if got := s.reached(); !slices.Equal(got, []string{"/first"}) {
			s.t.Errorf("reached %q, want the first tool alone", got)
		}
	})
}

// Going back to a version brings its secrets back to where they went then.
func TestToolRows_ARestoredVersionHasItsSecrets(t *testing.T) {
	t.Parallel()
	rowStages(t, func(s *rowStage) {
		ctx := s.t.Context()
		made := s.tool("weather", map[string]string{"X-Key": "first"})
		agent := s.agent(nil, "weather")
		_, err := s.c.UpdateTool(ctx, made.ID, client.ToolInput{
			Config: &client.ToolConfigInput{Endpoint: s.at + "/elsewhere", Headers: map[string]string{"X-Key": "second"}},
		})
		s.must(err)
		s.calling("weather")
		s.turn(agent, "")
		if got := s.reached(); !slices.Equal(got, []string{"/elsewhere second"}) {
			s.t.Errorf("after the change: %q", got)
		}
		restored, err := s.c.RestoreTool(ctx, made.ID, 1)
		s.must(err)
		if restored.Version != 3 || restored.Config.Headers["X-Key"] != hob.Mask {
			s.t.Errorf("restored: %+v", restored.Tool)
		}
		s.calling("weather")
		s.turn(agent, "")
		if got := s.reached(); !slices.Equal(got, []string{"/weather first"}) {
			s.t.Errorf("after the restore: %q", got)
		}
		versions, err := s.c.ToolVersions(ctx, made.ID)
		s.must(err)
		for _, v := range versions {
			if len(versions) != 3 || v.Config.Headers["X-Key"] != hob.Mask || !strings.HasPrefix(v.By, "service:") {
				s.t.Errorf("version %d of %d by %q shows %q", v.Version, len(versions), v.By, string(v.Config.Headers["X-Key"]))
			}
		}
	})
}

// What a workspace sets of a builtin tool is what its runs get; it cannot be deleted, and no row can take its name.
func TestToolRows_BuiltinsAreChangedByTheirNames(t *testing.T) {
	t.Parallel()
	rowStages(t, func(s *rowStage) {
		ctx := s.t.Context()
		suffix := "Ask for the zone first."
		got, err := s.c.ChangeBuiltin(ctx, "current_time", client.BuiltinInput{Suffix: &suffix, Config: json.RawMessage(`{"timezone":"Asia/Tokyo"}`)})
		s.must(err)
		if got.ID != "" || got.Status != "available" || !strings.HasSuffix(got.Description, suffix) {
			s.t.Errorf("the changed tool is %+v", got)
		}
		s.calling("current_time")
		_, asked := s.turn(s.agent(nil, "current_time"), "")
		body := string(asked[0].Body)
		if !strings.Contains(body, suffix) || strings.Contains(body, `"timezone"`) {
			s.t.Errorf("the model is offered %s", body)
		}
		if text := asked[1].LastText(); !strings.Contains(text, "Asia/Tokyo") {
			s.t.Errorf("the model reads %q", text)
		}

		if err := s.c.DeleteTool(ctx, "current_time"); hob.KindOf(err) != hob.Conflict || !strings.Contains(err.Error(), "switch it off") {
			s.t.Errorf("deleting a builtin tool: %v", err)
		}
		s.tool("mine", nil)
		kind := string(hob.HTTPTool)
		for name, want := range map[string]struct {
			kind hob.Kind
			text string
		}{
			"current_time":          {hob.Conflict, "choose another"},
			"web_search":            {hob.Conflict, "choose another"},
			"mine":                  {hob.Conflict, "choose another name"},
			"mcp__server__tool":     {hob.Invalid, "reserved"},
			"delegate_to_someone":   {hob.Invalid, "reserved"},
			"knowledge_search":      {hob.Invalid, "reserved"},
			"the weather":           {hob.Invalid, "A-Z, a-z, 0-9"},
			"":                      {hob.Invalid, "name"},
			strings.Repeat("n", 65): {hob.Invalid, "1 to 64"},
		} {
			_, err := s.c.CreateTool(ctx, client.ToolInput{
				Name: &name, Description: &kind, Type: &kind, InputSchema: json.RawMessage(`{"type":"object"}`),
				Config: &client.ToolConfigInput{Endpoint: s.at},
			})
			if hob.KindOf(err) != want.kind || !strings.Contains(err.Error(), want.text) {
				s.t.Errorf("a tool called %q: %v, want %s with %q", name, err, want.kind, want.text)
			}
		}
	})
}
