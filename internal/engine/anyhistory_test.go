package engine_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"hob"
	"hob/internal/egress"
	"hob/internal/engine"
	"hob/internal/fakeai"
	"hob/internal/provider"
)

// The models of the three dialects, behind one strict server that speaks all of them.
var dialectModels = []string{"openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash"}

// drawReply draws what a model answers: anything that models and the way to them are known to do.
func drawReply(t *rapid.T) fakeai.Reply {
	r := fakeai.Reply{}
	kind := rapid.SampledFrom([]string{"text", "text", "calls", "calls", "calls", "both", "thoughts", "empty", "error", "cut", "length"}).Draw(t, "kind")
	words := func() []string {
		return strings.SplitAfter(rapid.SampledFrom([]string{"Here it is.", "One moment, I look.", "```go\nx := 1\n", " ", "日本 ä €"}).Draw(t, "text"), " ")
	}
	call := func() fakeai.Call {
		return fakeai.Call{
			ID:        rapid.SampledFrom([]string{"", "call_1", "call_1", "toolu_a b", strings.Repeat("x", 90), "call_2"}).Draw(t, "id"),
			Name:      rapid.SampledFrom([]string{"page", "read", "once", "fail", "nobody", "bad name!", strings.Repeat("n", 80)}).Draw(t, "name"),
			Arguments: rapid.SampledFrom([]string{`{"s":"a"}`, `{"n":1}`, ``, `{"n":"x"}`, `{"s":`, `[1]`, `null`}).Draw(t, "arguments"),
		}
	}
	calls := func() (out []fakeai.Call) {
		for range rapid.IntRange(1, 3).Draw(t, "calls") {
			out = append(out, call())
		}
		return out
	}
	switch kind {
	case "text":
		r.Text = words()
	case "calls":
		r.Calls = calls()
		r.Shape = fakeai.Shape(rapid.IntRange(0, int(fakeai.StopWithCall)).Draw(t, "shape"))
	case "both":
		r.Text, r.Calls = words(), calls()
	case "thoughts":
		r.Reasoning, r.Text, r.Calls = []string{"I think ", "hard."}, words(), calls()
	case "error":
		r = fakeai.Error(rapid.SampledFrom([]int{400, 429, 500, 529}).Draw(t, "status"), "no")
	case "cut":
		r.Text, r.Calls, r.CutAfter = words(), calls(), rapid.IntRange(1, 6).Draw(t, "cut")
	case "length":
		r.Text, r.Finish = words(), "length"
		if rapid.Bool().Draw(t, "with a call") {
			r.Calls = calls()
		}
	}
	return r
}

// TestHistory_IsValidForEveryProviderWhateverHappened plays sessions in which models answer anything, runs are cancelled,
// the provider changes and the window is small. The servers check every request as strictly as the vendors do: not one
// may be refused.
func TestHistory_IsValidForEveryProviderWhateverHappened(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var next []fakeai.Reply
	summaries := 0
	srv := fakeai.New(fakeai.Options{Window: 8192, Reply: func(p fakeai.Parsed) fakeai.Reply {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(p.LastText(), "<summary>") {
			summaries++
			return fakeai.Text("<analysis>long</analysis><summary>what was said</summary>")
		}
		if len(next) == 0 {
			return fakeai.Text("That is all.")
		}
		r := next[0]
		next = next[1:]
		return r
	}})
	at := httptest.NewServer(srv)
	defer at.Close()
	guard := egress.New(egress.Config{})
	defer guard.Close()
	models := provider.New(provider.Config{
		Clients: guard, Retries: 1, RetryBase: time.Millisecond,
		OpenAI: provider.Endpoint{BaseURL: at.URL + "/v1"}, Anthropic: provider.Endpoint{BaseURL: at.URL}, Gemini: provider.Endpoint{BaseURL: at.URL},
	}).Open
	w := newWorld(t, map[string]any{"context_window": 8192, "max_steps": 6}, "page", "read", "once", "fail")
	w.models = models
	w.begin(nil)
	rapid.Check(t, func(rt *rapid.T) {
		var session hob.SessionID
		before := len(srv.Refusals())
		for range rapid.IntRange(1, 8).Draw(rt, "turns") {
			model := rapid.SampledFrom(dialectModels).Draw(rt, "model")
			settings := fmt.Sprintf(`{"context_window":%d,"max_steps":6,"fallback_model":%q,"reasoning_effort":%q}`,
				rapid.SampledFrom([]int{1000, 3000, 8192}).Draw(rt, "window"),
				rapid.SampledFrom(dialectModels).Draw(rt, "fallback"), rapid.SampledFrom([]string{"", "low"}).Draw(rt, "effort"))
			if _, err := w.store.UpdateAgent(t.Context(), w.by, w.agent.ID, hob.AgentPatch{Model: &model, Settings: []byte(settings)}); err != nil {
				rt.Fatal(err)
			}
			replies := rapid.SliceOfN(rapid.Custom(drawReply), 0, 5).Draw(rt, "replies") // which may not return
			mu.Lock()
			next = replies
			mu.Unlock()
			got, err := w.engine.Start(t.Context(), w.by, engine.StartInput{
				Agent: w.agent.ID, Session: session, Message: hob.Message{Role: hob.RoleUser, Content: "question"},
			})
			if err != nil {
				rt.Fatal(err)
			}
			session = got.Run.Session
			if rapid.IntRange(0, 5).Draw(rt, "cancelled") == 0 {
				time.Sleep(time.Duration(rapid.IntRange(0, 20).Draw(rt, "after")) * time.Millisecond)
				if _, err := w.engine.Cancel(t.Context(), w.by, got.Run.ID); err != nil {
					rt.Fatal(err)
				}
			}
			run, _, err := w.engine.Wait(t.Context(), w.by, got.Run.ID)
			if err != nil || !run.Status.Final() {
				rt.Fatalf("%s: %v", run.Status, err)
			}
			h, err := w.store.History(t.Context(), w.by, session, hob.HistoryRange{Before: run.Turn + 1, Budget: 1 << 30})
			if err != nil {
				rt.Fatal(err)
			}
			if err := hob.Validate(h.Messages()); err != nil {
				rt.Fatalf("the history is not valid: %v", err)
			}
		}
		if refused := srv.Refusals()[before:]; len(refused) > 0 {
			rt.Fatalf("a server refused: %v", refused)
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if summaries == 0 {
		t.Error("no conversation was summarised")
	}
}
