package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hob"
	"hob/client"
	"hob/internal/fakeai"
)

// library answers with pages of 1,000 to 9,500 characters.
func library(w http.ResponseWriter, r *http.Request) {
	var in struct{ N int }
	_ = json.NewDecoder(r.Body).Decode(&in)
	size := 1_000 + in.N*977%8_500
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "Shelf %d, line %d: the quick brown fox jumps over %d lazy dogs.\n", in.N, i, i*i)
	}
	_, _ = w.Write([]byte(b.String()[:size]))
}

// reader is a model with a bad memory: it knows only what is in the request. It looks up a page for every question, sums up
// when asked to, and tells the code word when it can still read it.
func reader(word string) func(fakeai.Parsed) fakeai.Reply {
	return func(p fakeai.Parsed) fakeai.Reply {
		knows := ""
		for _, m := range p.Messages {
			if strings.Contains(m.Text, word) {
				knows = "The code word is " + word + "."
			}
		}
		last := p.LastText()
		switch {
		case strings.Contains(last, "<summary>"):
			return fakeai.Text("<analysis>Pages were read.</analysis><summary>The user reads shelf by shelf. " + knows + "</summary>")
		case strings.Contains(last, "code word?"):
			return fakeai.Text("I say: " + knows)
		case p.Results() == 0 && len(p.Tools) > 0 && p.ToolChoice != "none":
			var n int
			_, _ = fmt.Sscanf(last, "Read shelf %d", &n)
			return fakeai.Calls(fakeai.Call{ID: fmt.Sprintf("call_%d", p.Number), Name: "page", Arguments: fmt.Sprintf(`{"n":%d}`, n)})
		}
		return fakeai.Text("I have read it.")
	}
}

// TestLong_FourHundredTurnsInASmallWindow talks for 400 turns with large tool results under a window of 8,192 tokens, in
// each dialect, on the real binary. The fake counts with a tokenizer of its own and refuses what is over the window or not
// as the vendor wants it; not one request may be refused, and what was said first must be known at the end.
func TestLong_FourHundredTurnsInASmallWindow(t *testing.T) {
	t.Parallel()
	const window, turns, word = 8_192, 400, "marmot-42"
	tools := httptest.NewServer(http.HandlerFunc(library))
	t.Cleanup(tools.Close)
	fake := fakeai.New(fakeai.Options{Reply: reader(word), Window: window, Keep: 8 * turns})
	at := httptest.NewServer(fake)
	t.Cleanup(at.Close)
	in := install(t, map[string]string{
		"HOB_EGRESS_ALLOW": strings.TrimPrefix(tools.URL, "http://"), "HOB_RATE_LIMIT": "off",
		"OPENAI_BASE_URL": at.URL + "/v1", "ANTHROPIC_BASE_URL": at.URL, "GEMINI_BASE_URL": at.URL,
	})
	s := in.serve()
	c := s.client()
	if _, err := c.SetSetting(t.Context(), "MODEL_PRICES", `{"gpt-4o-mini":{"input":0.15,"output":0.6},"claude-*":{"input":3,"output":15},"gemini-*":{"input":0.3,"output":2.5}}`); err != nil {
		t.Fatal(err)
	}
	tool, kind := "page", string(hob.HTTPTool)
	made, err := c.CreateTool(t.Context(), client.ToolInput{
		Name: &tool, Description: &tool, Type: &kind, Config: &client.ToolConfigInput{Endpoint: tools.URL},
		InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{"openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash"} {
		name := "reader of " + model
		a, err := c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &model, Settings: json.RawMessage(fmt.Sprintf(`{"context_window":%d}`, window))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Assign(t.Context(), a.ID, client.AssignmentInput{ToolName: tool, ToolID: &made.ID}); err != nil {
			t.Fatal(err)
		}
		before := len(fake.Requests())
		readOn(t, c, a.ID, turns, word)
		if refused := fake.Refusals(); len(refused) > 0 {
			t.Fatalf("%s: requests were refused: %v", model, refused)
		}
		most := 0
		for _, r := range fake.Requests()[before:] {
			most = max(most, r.Tokens)
		}
		used, err := c.Usage(t.Context(), hob.UsageFilter{Agent: a.ID, GroupBy: hob.ByComponent})
		if err != nil {
			t.Fatal(err)
		}
		parts := map[string]hob.UsageRow{}
		for _, r := range used.Usage {
			parts[r.Key] = r
		}
		run, sums := parts[hob.ComponentRun], parts[hob.ComponentCompaction]
		if run.Calls != 2*turns-1 || sums.Calls < turns/10 || sums.Cost <= 0 || sums.TotalTokens <= 0 || used.Total.Cost < sums.Cost+run.Cost {
			t.Fatalf("%s: the ledger has %+v", model, used)
		}
		t.Logf("%s: %d turns, largest request %d of %d tokens; run: %d calls, %d tokens, $%s; compaction: %d calls, %d tokens, $%s",
			model, turns, most, window, run.Calls, run.TotalTokens, run.Cost, sums.Calls, sums.TotalTokens, sums.Cost)
	}
}

// readOn tells the code word, reads shelf by shelf, and asks for the word at the end.
func readOn(t *testing.T, c *client.Client, agent hob.AgentID, turns int, word string) {
	t.Helper()
	session := hob.SessionID("")
	for i := range turns {
		say, want := fmt.Sprintf("Read shelf %d.", i), "I have read it."
		switch i {
		case 0:
			say = fmt.Sprintf("Read shelf 0. And keep in mind: the code word is %s.", word)
		case turns - 1:
			say, want = "What was the code word?", "I say: The code word is "+word+"."
		}
		r, err := c.Run(t.Context(), agent, client.RunRequest{Message: say, SessionID: session, Tools: true})
		if err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
		if session = r.SessionID; r.Status != hob.Completed || r.Content != want {
			t.Fatalf("turn %d: %s %q, code %s: %s", i, r.Status, r.Content, orNone(r.Code), orNone(r.Error))
		}
	}
}

func orNone(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}
