package main_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"hob"
	"hob/client"
	"hob/internal/fakeai"
)

// vendorModels are a model of each dialect that thinks, and where its vendor is looked for.
var vendorModels = []struct{ model, baseURL, path string }{
	{"openai/deepseek-reasoner", "OPENAI_BASE_URL", "/v1"},
	{"anthropic/claude-sonnet-4-5", "ANTHROPIC_BASE_URL", ""},
	{"gemini/gemini-3-pro-preview", "GEMINI_BASE_URL", ""},
}

// TestVendors_TwoTurnsWithToolsAndThoughts has the same conversation with every vendor, each as strict as it is: two turns
// of one session, with parallel calls, thoughts that go back, and a form of answer.
func TestVendors_TwoTurnsWithToolsAndThoughts(t *testing.T) {
	t.Parallel()
	for _, v := range vendorModels {
		t.Run(v.model, func(t *testing.T) {
			t.Parallel()
			query := func(id, n string) fakeai.Call {
				return fakeai.Call{ID: id, Name: "database_query", Arguments: `{"query":"SELECT ` + n + ` AS n"}`}
			}
			fake := fakeai.New(fakeai.Options{Reply: func(p fakeai.Parsed) fakeai.Reply {
				if p.Results() == 0 {
					turn := strings.Repeat("i", len(p.Messages))
					return fakeai.Reply{Reasoning: []string{"I must ", "look."}, Calls: []fakeai.Call{query("a"+turn, "1"), query("b"+turn, "2")}}
				}
				return fakeai.Text(`{"n": 3}`)
			}})
			model := httptest.NewServer(fake)
			t.Cleanup(model.Close)
			in := install(t, map[string]string{v.baseURL: model.URL + v.path})
			c := in.serve().client()
			name := "thinker"
			a, err := c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &v.model, Settings: json.RawMessage(
				`{"reasoning_effort":"low","response_format":{"type":"json_object"}}`)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Assign(t.Context(), a.ID, client.AssignmentInput{
				ToolName: "database_query", ConfigOverride: json.RawMessage(`{"schemas":{"main":["orders"]}}`),
			}); err != nil {
				t.Fatal(err)
			}

			var session hob.SessionID
			for turn := 1; turn <= 2; turn++ {
				seen := map[hob.EventType]int{}
				var last hob.CompleteEvent
				for e, err := range c.RunStream(t.Context(), a.ID, client.RunRequest{Message: "Count.", SessionID: session}) {
					if err != nil {
						t.Fatal(err)
					}
					seen[e.Type]++
					if e.Type == hob.EventComplete {
						if err := json.Unmarshal(e.Data, &last); err != nil {
							t.Fatal(err)
						}
					}
				}
				session = last.Session
				if last.Status != hob.Completed || last.Content != `{"n": 3}` || len(last.ToolCalls) != 2 || last.ToolCalls[1].Result != `[{"n":2}]` {
					t.Fatalf("turn %d ended as %+v; the model refused %v", turn, last, fake.Refusals())
				}
				if seen[hob.EventReasoningDelta] == 0 || seen[hob.EventReasoning] != 1 || seen[hob.EventToolResult] != 2 || last.Usage.TotalTokens == 0 {
					t.Errorf("turn %d: events %v, usage %+v", turn, seen, last.Usage)
				}
			}
			requests := fake.Requests()
			if len(requests) != 4 || len(fake.Refusals()) > 0 {
				t.Fatalf("%d requests, refusals %v", len(requests), fake.Refusals())
			}
			kept := 0
			for _, m := range requests[3].Messages {
				kept += m.Thoughts
			}
			if want := map[fakeai.Dialect]int{fakeai.Anthropic: 2, fakeai.Gemini: 2}[requests[3].Dialect]; kept < want {
				t.Errorf("%d signed thoughts were sent back, want %d: %+v", kept, want, requests[3].Messages)
			}
		})
	}
}
