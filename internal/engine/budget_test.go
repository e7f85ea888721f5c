package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"hob"
	"hob/internal/engine"
)

// priced gives the model a price.
func (w *world) priced(p *hob.Price) {
	inner := w.models
	w.models = func(ctx context.Context, ws hob.WorkspaceID, name string) (hob.Model, error) {
		m, err := inner(ctx, ws, name)
		m.Price = p
		return m, err
	}
}

func endless(usage string) string {
	var s strings.Builder
	for i := range 30 {
		fmt.Fprintf(&s, "call: read {\"n\":%d}\n%s\n---\n", i, usage)
	}
	s.WriteString("text: I ran out of steps.\n")
	return s.String()
}

func number[T any](n T) *T { return &n }

func TestBudget_EachEndsTheRunWithAnAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		tune  hob.Tuning
		price *hob.Price
		steps int
	}{
		{"max_tokens_total", hob.Tuning{MaxTokensTotal: number(int64(1000))}, nil, 7},
		{"max_cost", hob.Tuning{MaxCost: number(0.001)}, &hob.Price{Input: 1, Output: 1}, 7},
		{"max_tool_calls", hob.Tuning{MaxToolCalls: number(3)}, nil, 4},
		{"max_tool_calls none", hob.Tuning{MaxToolCalls: number(0)}, nil, 1},
		{"a tiny one", hob.Tuning{MaxTokensTotal: number(int64(1))}, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]any{"script": endless("usage: 100 10")}, "read")
			w.priced(c.price)
			w.begin(nil)
			run := w.wait(w.start("go", hob.RunOptions{Tuning: c.tune}).ID)
			if run.Status != hob.Completed || run.Code != hob.CodeBudget || run.Error != "" || run.Steps != c.steps {
				t.Fatalf("%s (%s) %q after %d steps", run.Status, run.Code, run.Error, run.Steps)
			}
			if n := c.tune.MaxTokensTotal; n != nil && *n > 100 && run.Usage.TotalTokens > *n {
				t.Fatalf("%d tokens of %d were used", run.Usage.TotalTokens, *n)
			}
			if n := c.tune.MaxCost; n != nil && run.Usage.Cost > hob.Dollars(*n) {
				t.Fatalf("$%s of $%g were spent", run.Usage.Cost, *n)
			}
			if n := len(w.tools.calls()); c.tune.MaxToolCalls != nil && n > *c.tune.MaxToolCalls {
				t.Fatalf("%d tool calls were carried out", n)
			}
			if warn := one[hob.WarningEvent](w, run.ID, hob.EventWarning); warn.Code != hob.CodeBudget {
				t.Fatalf("%+v", warn)
			}
			end := one[hob.CompleteEvent](w, run.ID, hob.EventComplete)
			if end.Code == nil || *end.Code != hob.CodeBudget || end.Error != nil || end.Status != hob.Completed {
				t.Fatalf("complete says %+v", end)
			}
			w.valid(run)
		})
	}
}

func TestBudget_CallsBeyondItAreRefusedInTheStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: read {\"n\":1}\ncall: read {\"n\":2}\ncall: read {\"n\":3}\n---\ntext: Two of three.\n"}, "read")
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{Tuning: hob.Tuning{MaxToolCalls: number(2)}}).ID)
	if run.Status != hob.Completed || run.Code != hob.CodeBudget || run.Content != "Two of three." || len(w.tools.calls()) != 2 {
		t.Fatalf("%s (%s) %q, %d calls", run.Status, run.Code, run.Content, len(w.tools.calls()))
	}
	w.valid(run)
}

func TestBudget_WallTimeEndsWithAnAnswerAndBoundsCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: hang {}\n---\ncall: read {\"n\":1}\n---\ntext: It took too long.\n"}, "hang", "read")
	w.tools.hold = make(chan struct{})
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{Tuning: hob.Tuning{MaxSeconds: number(0.05)}}).ID)
	took := run.CompletedAt.Sub(run.StartedAt.Time)
	if run.Status != hob.Completed || run.Code != hob.CodeBudget || run.Steps != 2 || took > 10*time.Second {
		t.Fatalf("%s (%s) %q after %d steps and %s", run.Status, run.Code, run.Content, run.Steps, took)
	}
}

func TestBudget_OfAnAgentRefusesRunsOnceItIsUsedUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{
		"script": "text: hello\nusage: 100 10\n", "agent_budget": map[string]any{"period": "day", "max_tokens_total": 300},
	})
	w.begin(nil)
	for i, code := range []string{"", "", hob.CodeBudget} { // the last one passes it
		run := w.wait(w.start("go", hob.RunOptions{}).ID)
		if run.Status != hob.Completed || run.Code != code {
			t.Fatalf("run %d: %s (%s) %s", i, run.Status, run.Code, run.Error)
		}
	}
	_, err := w.engine.Start(t.Context(), w.by, engine.StartInput{Agent: w.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"}})
	if hob.KindOf(err) != hob.RateLimited || !strings.Contains(err.Error(), "330 tokens of 300") {
		t.Fatalf("the run was accepted, or refused with: %v", err)
	}
}

func TestBudget_InMoneyNeedsAKnownPrice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "text: hello\n"})
	w.priced(nil)
	w.begin(nil)
	_, err := w.engine.Start(t.Context(), w.by, engine.StartInput{
		Agent: w.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"},
		Options: hob.RunOptions{Tuning: hob.Tuning{MaxCost: number(1.0)}},
	})
	if hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "MODEL_PRICES") {
		t.Fatalf("the run was accepted, or refused with: %v", err)
	}
}

func TestUsage_CostAndActionsAreBooked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: read {\"n\":1}\nusage: 1000 100\n---\ntext: done\nusage: 2000 50\n"}, "read")
	w.priced(&hob.Price{Input: 0.5, Output: 2})
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	if want := hob.Dollars(0.0005 + 0.0002 + 0.001 + 0.0001); run.Usage.Cost != want || run.Usage.TotalTokens != 3150 {
		t.Fatalf("the run is booked with %+v, not $%s", run.Usage, want)
	}
	rows, err := w.store.Usage(t.Context(), w.by, hob.UsageFilter{GroupBy: hob.ByAction})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, r := range rows {
		got[r.Key] = r.Quantity
	}
	if got[hob.ActionModelCall] != 2 || got[hob.ActionRun] != 1 || got[hob.ActionToolCall] != 1 {
		t.Fatalf("the ledger counts %v", got)
	}
}

func TestUsage_ACallThatFailedAtOnceIsNotBookedAndPricesGoByTheModelAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "error: 400 no\n", "fallback_model": "scripted/echo"})
	w.priced(&hob.Price{Input: 1, Output: 1})
	w.begin(nil)
	failed := w.wait(w.start("a question of some length", hob.RunOptions{}).ID)
	if failed.Status != hob.Failed || failed.Usage != (hob.Usage{}) {
		t.Fatalf("%s, booked with %+v", failed.Status, failed.Usage)
	}
	model := "scripted/demo"
	if _, err := w.store.UpdateAgent(t.Context(), w.by, w.agent.ID, hob.AgentPatch{Model: &model}); err != nil {
		t.Fatal(err)
	}
	w.wait(w.start("hello", hob.RunOptions{}).ID)
	rows, err := w.store.Usage(t.Context(), w.by, hob.UsageFilter{Model: model})
	if err != nil || len(rows) != 1 || rows[0].Calls != 1 {
		t.Fatalf("%+v %v", rows, err)
	}
}
