package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hob"
	"hob/client"
	"hob/internal/fakeai"
	"hob/internal/settings"
)

// stage is a whole server with a model and a tool that the test plays.
type stage struct {
	t     *testing.T
	c     *client.Client
	model *fakeai.Server
	tools string // address of the tools
	at    string // address of the model
	web   *web
	seen  string // what a proof has looked at already
}

// setStage starts it. env comes on top of what the server needs.
func setStage(t *testing.T, reply func(fakeai.Parsed) fakeai.Reply, env map[string]string) *stage {
	t.Helper()
	fake := fakeai.New(fakeai.Options{Reply: reply})
	models := httptest.NewServer(fake)
	t.Cleanup(models.Close)
	tools := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-time.After(6 * time.Second):
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, strings.Repeat("long ", 1000))
	}))
	t.Cleanup(tools.Close)
	w := newWeb(t)
	all := map[string]string{
		"OPENAI_BASE_URL": models.URL + "/v1", "OPENAI_API_KEY": "sk-fake", "EXA_BASE_URL": w.exaURL,
		"HOB_EGRESS_ALLOW": w.allow() + "," + strings.TrimPrefix(tools.URL, "http://") + "," + strings.TrimPrefix(models.URL, "http://"),
	}
	for k, v := range env {
		all[k] = v
	}
	return &stage{t: t, c: install(t, all).serve().client(), model: fake, tools: tools.URL, at: models.URL, web: w}
}

// agent makes an agent, with a tool at a path where one is named.
func (s *stage) agent(settings, tool string) hob.AgentID {
	s.t.Helper()
	name, model, kind := "a", "openai/fake-model", string(hob.HTTPTool)
	a, err := s.c.CreateAgent(s.t.Context(), client.AgentInput{Name: &name, Model: &model, Settings: json.RawMessage(settings)})
	if err != nil {
		s.t.Fatal(err)
	}
	if tool == "" {
		return a.ID
	}
	name = "tool_" + hob.RandomHex(4)
	made, err := s.c.CreateTool(s.t.Context(), client.ToolInput{
		Name: &name, Description: &name, Type: &kind, InputSchema: json.RawMessage(`{"type":"object"}`),
		Config: &client.ToolConfigInput{Endpoint: s.tools + tool, Method: "POST"},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.c.Assign(s.t.Context(), a.ID, client.AssignmentInput{ToolName: name, ToolID: &made.ID}); err != nil {
		s.t.Fatal(err)
	}
	return a.ID
}

func (s *stage) run(agent hob.AgentID, session hob.SessionID) hob.RunResult {
	s.t.Helper()
	r, err := s.c.Run(s.t.Context(), agent, client.RunRequest{Message: "go", SessionID: session, Tools: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// toolText is what the model was last told by a tool.
func (s *stage) toolText() string {
	s.t.Helper()
	asked := s.model.Requests()
	if len(asked) == 0 || len(asked[len(asked)-1].Messages) == 0 {
		s.t.Fatal("the model was not asked")
	}
	return asked[len(asked)-1].LastText()
}

// summarised runs an agent on a conversation of twelve turns, too long for its window, and gives the request for the summary
// and the one for the answer.
func (s *stage) summarised() (summary, answer fakeai.Parsed) {
	s.t.Helper()
	var seed []client.SeedMessage
	for i := range 12 {
		words := fmt.Sprintf("turn %d:", i)
		for n := range 200 {
			words += fmt.Sprintf(" w%d", i*200+n)
		}
		seed = append(seed, client.SeedMessage{Role: hob.RoleUser, Content: words}, client.SeedMessage{Role: hob.RoleAssistant, Content: "noted"})
	}
	agent := s.agent(`{"context_window":16000}`, "")
	session, err := s.c.CreateSession(s.t.Context(), agent, client.SessionInput{UserID: hob.NewUUID(), InitialMessages: seed})
	if err != nil {
		s.t.Fatal(err)
	}
	before := len(s.model.Requests())
	s.run(agent, session)
	asked := s.model.Requests()[before:]
	if len(asked) != 2 || !strings.Contains(asked[0].LastText(), "Write a summary") {
		s.t.Fatalf("the model was asked %d times, want for a summary and an answer", len(asked))
	}
	return asked[0], asked[1]
}

// proof shows that a key has a reader: what can be seen of the server before and after the key is set.
type proof struct {
	value         any
	reply         func(fakeai.Parsed) fakeai.Reply // of the model; nil = sumUp
	observe       func(s *stage) string
	before, after string
}

// sumUp answers, and sums up when it is asked to.
func sumUp(p fakeai.Parsed) fakeai.Reply {
	if strings.Contains(p.LastText(), "Write a summary") {
		return fakeai.Text("<summary>Twelve turns.</summary>")
	}
	return fakeai.Text("Fine.")
}

// callOnce asks for the tool and then answers.
func callOnce(p fakeai.Parsed) fakeai.Reply {
	return fakeai.ToolSteps(1, fakeai.Text("Done."))(p)
}

// proofs has one for each key of the registry.
func proofs() map[string]proof {
	cost := func(s *stage) string {
		return fmt.Sprintf("priced: %t", s.run(s.agent("{}", ""), "").Usage.Cost > 0)
	}
	return map[string]proof{
		settings.AgentDefaultModel: {
			value: "openai/gpt-4.1-nano", before: "openai/gpt-5.4-mini", after: "openai/gpt-4.1-nano",
			observe: func(s *stage) string {
				name := "without a model"
				a, err := s.c.CreateAgent(s.t.Context(), client.AgentInput{Name: &name})
				if err != nil {
					s.t.Fatal(err)
				}
				return a.Model
			},
		},
		settings.CustomToolTimeout: {
			value: 5, reply: callOnce, before: "long", after: "Error: no complete answer within 5s",
			observe: func(s *stage) string {
				s.run(s.agent("{}", "/slow"), "")
				return beginning(s.toolText(), " long ", ";")
			},
		},
		settings.MaxToolOutputLength: {
			value: 1000, reply: callOnce, before: "5000", after: "1000 and a note",
			observe: func(s *stage) string {
				s.run(s.agent("{}", "/"), "")
				text, cut := strings.CutSuffix(s.toolText(), "\n[truncated: only the first 1000 characters are shown]")
				if cut {
					return fmt.Sprintf("%d and a note", len(text))
				}
				return fmt.Sprint(len(text))
			},
		},
		settings.DefaultMaxResultChars: {
			value: 1000, reply: callOnce, before: "whole: true", after: "whole: false",
			observe: func(s *stage) string {
				s.run(s.agent("{}", "/"), "")
				return fmt.Sprintf("whole: %t", len(s.toolText()) == 5000)
			},
		},
		settings.ModelCallTimeout: {
			value: 10, before: "completed", after: "failed",
			reply: func(fakeai.Parsed) fakeai.Reply {
				r := fakeai.Text("At last.")
				r.Wait = 11 * time.Second
				return r
			},
			observe: func(s *stage) string { return string(s.run(s.agent("{}", ""), "").Status) },
		},
		settings.CompactionModel: {
			value: "openai/gpt-4o-mini", before: "fake-model", after: "gpt-4o-mini",
			observe: func(s *stage) string { summary, _ := s.summarised(); return summary.Model },
		},
		settings.CompactionMaxTokens: {
			value: 500, before: "at most 700 words", after: "at most 350 words",
			observe: func(s *stage) string {
				summary, _ := s.summarised()
				_, most, _ := strings.Cut(summary.LastText(), "Write ")
				_, most, _ = strings.Cut(most, "Write ")
				return beginning(most, " in the summary")
			},
		},
		settings.CompactionKeepTurns: {
			value: 1, before: "2 turns and the new one", after: "0 turns and the new one",
			observe: func(s *stage) string {
				_, answer := s.summarised()
				kept := 0
				for _, m := range answer.Messages {
					if m.Role == "user" && strings.HasPrefix(m.Text, "turn ") {
						kept++
					}
				}
				return fmt.Sprintf("%d turns and the new one", kept)
			},
		},
		settings.ModelPrices: {value: `{"fake-model":{"input":1000,"output":1000}}`, before: "priced: false", after: "priced: true", observe: cost},
	}
}

// beginning is a text up to the first of some marks.
func beginning(text string, marks ...string) string {
	for _, m := range marks {
		text, _, _ = strings.Cut(text, m)
	}
	return text
}

func TestSettings_EveryKeyChangesSomething(t *testing.T) {
	t.Parallel()
	all := proofs()
	maps.Copy(all, webProofs())
	for _, k := range settings.Registry() {
		p, ok := all[k.Name]
		if k.Name == settings.FirecrawlAPIBase {
			continue // TestSettings_FirecrawlBaseChangesWhoIsAsked
		}
		if !ok {
			t.Errorf("nothing proves that the setting %s has a reader", k.Name)
			continue
		}
		delete(all, k.Name)
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			reply := p.reply
			if reply == nil {
				reply = sumUp
			}
			s := setStage(t, reply, nil)
			if got := p.observe(s); got != p.before {
				t.Errorf("without the setting: %q, want %q", got, p.before)
			}
			if _, err := s.c.SetSetting(t.Context(), k.Name, p.value); err != nil {
				t.Fatal(err)
			}
			if got := p.observe(s); got != p.after {
				t.Errorf("with %v: %q, want %q", p.value, got, p.after)
			}
		})
	}
	for name := range all {
		t.Errorf("there is a proof for %s, which is no setting", name)
	}
}

func TestSettings_TheEnvironmentStandsIn(t *testing.T) {
	t.Parallel()
	s := setStage(t, callOnce, map[string]string{"HOB_MAX_TOOL_OUTPUT_LENGTH": "1000"})
	observe := proofs()[settings.MaxToolOutputLength].observe
	if got := observe(s); got != "1000 and a note" {
		t.Errorf("the operator's value: %q", got)
	}
	if _, err := s.c.SetSetting(t.Context(), settings.MaxToolOutputLength, 20_000); err != nil {
		t.Fatal(err)
	}
	if got := observe(s); got != "5000" {
		t.Errorf("the workspace's value: %q", got)
	}
	bad := install(t, map[string]string{"HOB_MAX_TOOL_OUTPUT_LENGTH": "7"})
	out := bad.run("serve")
	if out.code != 2 || !strings.Contains(out.stderr, "HOB_MAX_TOOL_OUTPUT_LENGTH: Value must be >= 1000") {
		t.Errorf("a bad variable: exit code %d, %s", out.code, out.stderr)
	}
}

// A workspace's endpoint is tried out, then kept, and serves its models with its own key.
func TestProviderKeys_ReachTheModel(t *testing.T) {
	t.Parallel()
	s := setStage(t, sumUp, nil)
	put := func(in client.ProviderKeyInput) (client.ProviderKey, error) {
		return s.c.PutProviderKey(t.Context(), in)
	}
	if _, err := put(client.ProviderKeyInput{Provider: "box", BaseURL: "http://127.0.0.1:9/v1"}); hob.KindOf(err) != hob.Invalid {
		t.Errorf("a private address that the operator did not open is taken: %v", err)
	}
	if k, err := put(client.ProviderKeyInput{Provider: "nowhere", BaseURL: "https://models.example.invalid/v1"}); err != nil || k.IsValid || len(k.Warnings) != 1 {
		t.Errorf("an endpoint that cannot be asked: %+v, %v", k, err)
	}
	if k, err := put(client.ProviderKeyInput{Provider: "box", APIKey: "key-of-the-box", BaseURL: s.at + "/v1"}); err != nil || !k.IsValid {
		t.Fatalf("an endpoint: %+v, %v", k, err)
	}
	name, model := "boxed", "box/llama"
	a, err := s.c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &model})
	if err != nil || len(a.Warnings) > 0 {
		t.Fatalf("an agent with a model of the endpoint: %v, %v", a.Warnings, err)
	}
	if r := s.run(a.ID, ""); r.Status != hob.Completed {
		t.Fatalf("the run is %+v", r)
	}
	asked := s.model.Requests()
	if last := asked[len(asked)-1]; last.Model != "llama" || last.Header.Get("Authorization") != "Bearer key-of-the-box" {
		t.Errorf("the model %s is asked with %v", last.Model, last.Header)
	}
	if err := s.c.DeleteProviderKey(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if a, err = s.c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &model}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.c.Run(t.Context(), a.ID, client.RunRequest{Message: "go"}); err == nil {
		if asked := s.model.Requests(); asked[len(asked)-1].Header.Get("Authorization") == "Bearer key-of-the-box" {
			t.Error("a deleted key is still used")
		}
	}
	if providers, err := s.c.PlatformProviders(t.Context()); err != nil || strings.Join(providers, " ") != "openai" {
		t.Errorf("the operator's providers: %v, %v", providers, err)
	}
}
