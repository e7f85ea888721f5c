package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hob"
)

const pageScript = "call: page {\"s\":\"{{message}}\"}\n---\ntext: I have read the page for {{message}}.\n"

// names lists the events of a run without the text deltas.
func (w *world) names(id hob.RunID) []string {
	w.t.Helper()
	var out []string
	for _, ev := range w.log(id) {
		if !ev.Type.Delta() {
			out = append(out, string(ev.Type))
		}
	}
	return out
}

// one gives the payload of the only event of a type, which must be there.
func one[T any](w *world, id hob.RunID, typ hob.EventType) T {
	w.t.Helper()
	var got []T
	for _, ev := range w.log(id) {
		if ev.Type == typ {
			var v T
			if err := json.Unmarshal(ev.Data, &v); err != nil {
				w.t.Fatal(err)
			}
			got = append(got, v)
		}
	}
	if len(got) != 1 {
		w.t.Fatalf("there are %d %s events in %v", len(got), typ, w.names(id))
	}
	return got[0]
}

func tokens(r hob.Request) int {
	n := len(r.System)
	for _, m := range r.Messages {
		n += 16 + m.Chars()
	}
	for _, t := range r.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	return n / 4
}

func TestCompact_ALongConversationStaysUnderItsWindow(t *testing.T) {
	t.Parallel()
	const window, turns = 8192, 60
	w := newWorld(t, map[string]any{"script": pageScript, "context_window": window}, "page")
	asked := w.watchModel()
	w.begin(nil)
	var session hob.SessionID
	var last hob.Run
	summaries, quiet := 0, 0
	ids := map[hob.CallID]bool{}
	for i := range turns {
		before := len(asked())
		last = w.wait(w.startIn(session, fmt.Sprintf("topic number %d", i), hob.RunOptions{}).ID)
		session = last.Session
		want := fmt.Sprintf("I have read the page for topic number %d.", i)
		if last.Status != hob.Completed || last.Content != want {
			t.Fatalf("turn %d: %s %s %q", i, last.Status, last.Error, last.Content)
		}
		for _, m := range w.valid(last) {
			for _, c := range m.Calls {
				if ids[c.ID] {
					t.Fatalf("turn %d: the call id %s is used a second time", i, c.ID)
				}
				ids[c.ID] = true
			}
		}
		made := 0
		for _, r := range asked()[before:] {
			if n := tokens(r); n > window {
				t.Fatalf("turn %d: a request of about %d tokens was sent", i, n)
			}
			if err := hob.Validate(r.Messages); err != nil {
				t.Fatalf("turn %d: %v", i, err)
			}
			if r.Component == hob.ComponentCompaction {
				made++
				continue
			}
			if !holdsUser(r, fmt.Sprintf("topic number %d", i)) {
				t.Fatalf("turn %d: the user's message is not in the request as it was", i)
			}
			if i > 10 && !strings.Contains(r.Messages[0].Content, "summarised here") {
				t.Fatalf("turn %d: the request begins with %q", i, r.Messages[0].Content)
			}
		}
		summaries += made
		if made == 0 {
			quiet++
		}
	}
	if summaries == 0 || quiet < turns/4 {
		t.Fatalf("%d summaries were made, and %d turns of %d needed none", summaries, quiet, turns)
	}
	rows, err := w.store.Usage(t.Context(), w.by, hob.UsageFilter{GroupBy: hob.ByComponent})
	if err != nil {
		t.Fatal(err)
	}
	booked := map[string]hob.UsageRow{}
	for _, r := range rows {
		booked[r.Key] = r
	}
	if c := booked[hob.ComponentCompaction]; c.Calls != int64(summaries) || c.TotalTokens == 0 || booked[hob.ComponentRun].Calls != 2*turns {
		t.Fatalf("the ledger has %+v for %d summaries", booked, summaries)
	}
	// Another process knows no more than the store, and goes on from the same summary.
	w.stop()
	w.begin(nil)
	before := len(asked())
	last = w.wait(w.startIn(session, "one more", hob.RunOptions{}).ID)
	r := asked()[before]
	if last.Status != hob.Completed || !strings.Contains(r.Messages[0].Content, "summarised here") && r.Component == "" {
		t.Fatalf("after a restart: %s, first message %q", last.Status, r.Messages[0].Content)
	}
}

func holdsUser(r hob.Request, text string) bool {
	for _, m := range r.Messages {
		if m.Role == hob.RoleUser && m.Content == text {
			return true
		}
	}
	return false
}

func TestCompact_ALongRunIsCondensedWithinItself(t *testing.T) {
	t.Parallel()
	const window, steps = 8192, 20
	w := newWorld(t, map[string]any{"script": pages(steps), "context_window": window}, "page")
	asked := w.watchModel()
	w.begin(nil)
	run := w.wait(w.start("read everything", hob.RunOptions{}).ID)
	if run.Status != hob.Completed || run.Content != "All pages are read." || run.Steps != steps+1 {
		t.Fatalf("%s %s %q after %d steps", run.Status, run.Error, run.Content, run.Steps)
	}
	made := 0
	for _, r := range asked() {
		if tokens(r) > window {
			t.Fatalf("a request of about %d tokens was sent", tokens(r))
		}
		if err := hob.Validate(r.Messages); err != nil {
			t.Fatal(err)
		}
		if r.Component == hob.ComponentCompaction {
			made++
		} else if !holdsUser(r, "read everything") {
			t.Fatal("the user's message was lost")
		}
	}
	if made == 0 || !strings.Contains(strings.Join(w.names(run.ID), " "), "step_completed compaction ") {
		t.Fatalf("%d summaries; %v", made, w.names(run.ID))
	}
	// The next turn begins with the summary of this one, not with its pages.
	before := len(asked())
	next := w.wait(w.startIn(run.Session, "thanks", hob.RunOptions{}).ID)
	if first := asked()[before]; next.Status != hob.Completed || first.Component != "" ||
		!strings.Contains(first.Messages[0].Content, "summarised here") {
		t.Fatalf("%s; the next turn began with a request for %q: %q", next.Status, first.Component, first.Messages[0].Content)
	}
}

func TestCompact_ARefusalAsTooLongIsAnsweredByASummary(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "limit: 1500\n" + pageScript + "limit: 2500\n"}, "page")
	w.begin(nil)
	run := w.wait(w.start("first", hob.RunOptions{}).ID)
	second := w.wait(w.startIn(run.Session, "second", hob.RunOptions{}).ID)
	if run.Status != hob.Completed || second.Status != hob.Completed || second.Content != "I have read the page for second." {
		t.Fatalf("%s, then %s %s %q", run.Status, second.Status, second.Error, second.Content)
	}
	got := strings.Join(w.names(second.ID), " ")
	if !strings.Contains(got, "reactive_compact step_reset") {
		t.Fatal(got)
	}
	if reset := one[hob.StepResetEvent](w, second.ID, hob.EventStepReset); reset.Reason != "prompt_too_long" {
		t.Fatalf("the step was reset for %q", reset.Reason)
	}
	w.valid(second)
}

// failSummaries makes every request for a summary fail.
func (w *world) failSummaries() func() int {
	inner, n := w.models, 0
	w.models = func(ctx context.Context, ws hob.WorkspaceID, name string) (hob.Model, error) {
		m, err := inner(ctx, ws, name)
		p := m.Provider
		m.Provider = streamFunc(func(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
			if r.Component != hob.ComponentCompaction {
				return p.Stream(ctx, r)
			}
			n++
			return func(yield func(hob.Delta, error) bool) {
				_ = yield(hob.Delta{Text: "<analysis>only this</analysis>"}, nil) && yield(hob.Delta{Finish: hob.FinishStop}, nil)
			}
		})
		return m, err
	}
	return func() int { return n }
}

func TestCompact_ThreeFailuresThenNoMoreAndTheRunGoesOnCut(t *testing.T) {
	t.Parallel()
	const window, steps = 8192, 24
	w := newWorld(t, map[string]any{"script": pages(steps), "context_window": window}, "page")
	asked := w.watchModel()
	failed := w.failSummaries()
	w.begin(nil)
	run := w.wait(w.start("read everything", hob.RunOptions{}).ID)
	if run.Status != hob.Completed || failed() != 3 {
		t.Fatalf("%s %s after %d attempts to summarise", run.Status, run.Error, failed())
	}
	for _, r := range asked() {
		if tokens(r) > window || hob.Validate(r.Messages) != nil || !holdsUser(r, "read everything") {
			t.Fatalf("a request of %d tokens: %v", tokens(r), hob.Validate(r.Messages))
		}
	}
	if got := fmt.Sprint(w.names(run.ID)); !strings.Contains(got, "proactive_compact") || strings.Count(got, "warning") != 3 {
		t.Fatal(got)
	}
	// Later turns of the session try once each.
	if next := w.wait(w.startIn(run.Session, "and now?", hob.RunOptions{}).ID); next.Status != hob.Completed || failed() != 4 {
		t.Fatalf("%s %s after %d attempts to summarise", next.Status, next.Error, failed())
	}
}

func TestCompact_ASummaryIsMadeByTheModelThatTheWorkspaceChose(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ setting, light, want string }{
		{"", "scripted/echo", "echo"},
		{"same", "scripted/echo", "script"},
		{"scripted/demo", "scripted/echo", "demo"},
		{"", "", "script"},
		{"nobody/has-this", "", "script"},
	} {
		t.Run(c.setting+"_"+c.light, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]any{"script": pageScript, "context_window": 8192}, "page")
			w.settings = map[string]string{"COMPACTION_MODEL": c.setting}
			inner := w.models
			w.models = func(ctx context.Context, ws hob.WorkspaceID, name string) (hob.Model, error) {
				m, err := inner(ctx, ws, name)
				m.Light = c.light
				return m, err
			}
			asked := w.watchModel()
			w.begin(nil)
			var session hob.SessionID
			for i := range 12 {
				run := w.wait(w.startIn(session, fmt.Sprint("topic ", i), hob.RunOptions{}).ID)
				if session = run.Session; run.Status != hob.Completed {
					t.Fatal(run.Error)
				}
			}
			n := 0
			for _, r := range asked() {
				if r.Component == hob.ComponentCompaction {
					if n++; r.Model != c.want {
						t.Fatalf("the summary was made by %q", r.Model)
					}
				}
			}
			if n == 0 {
				t.Fatal("nothing was summarised")
			}
		})
	}
}

func TestCompact_ATurnThatWasUnderWayIsNotLostToLaterOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{
		"script": "when: wait\ncall: hang {}\n---\ntext: I waited.\n===\n" + pageScript, "context_window": 8192,
	}, "page", "hang")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 1)
	asked := w.watchModel()
	w.begin(nil)
	var session hob.SessionID
	turn := func(text string) hob.Run {
		run := w.wait(w.startIn(session, text, hob.RunOptions{}).ID)
		session = run.Session
		return run
	}
	for i := range 3 {
		turn(fmt.Sprint("topic ", i))
	}
	slow := w.startIn(session, "wait for the marmot", hob.RunOptions{})
	<-w.tools.came
	for i := range 6 { // these summarise while the slow turn is under way
		turn(fmt.Sprint("later topic ", i))
	}
	close(w.tools.hold)
	if run := w.wait(slow.ID); run.Content != "I waited." {
		t.Fatalf("%s %q", run.Status, run.Content)
	}
	w.stop()
	w.begin(nil)
	before := len(asked())
	turn("last")
	for _, r := range asked()[before:] {
		for _, m := range r.Messages {
			if strings.Contains(m.Content, "marmot") {
				return
			}
		}
	}
	t.Fatal("the slow turn is in no request of the turn behind it")
}

// factual makes summaries that list the facts, such as FACT-7, of what they are made of, and records them.
func (w *world) factual() func() [][]hob.Message {
	fact := regexp.MustCompile(`FACT-\d+`)
	inner := w.models
	var mu sync.Mutex
	var asked [][]hob.Message
	w.models = func(ctx context.Context, ws hob.WorkspaceID, name string) (hob.Model, error) {
		m, err := inner(ctx, ws, name)
		p := m.Provider
		m.Provider = streamFunc(func(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
			if r.Component != hob.ComponentCompaction {
				return p.Stream(ctx, r)
			}
			mu.Lock()
			asked = append(asked, r.Messages)
			mu.Unlock()
			seen := map[string]bool{}
			for _, m := range r.Messages {
				for _, f := range fact.FindAllString(m.Content, -1) {
					seen[f] = true
				}
			}
			text := "<summary>Facts: " + strings.Join(slices.Sorted(maps.Keys(seen)), " ") + "</summary>"
			return func(yield func(hob.Delta, error) bool) {
				time.Sleep(20 * time.Millisecond)
				_ = yield(hob.Delta{Text: text}, nil) && yield(hob.Delta{Finish: hob.FinishStop}, nil)
			}
		})
		return m, err
	}
	return func() [][]hob.Message {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(asked)
	}
}

// lacks names the facts that are in none of the messages.
func lacks(messages []hob.Message, n int) (missing []int) {
	all := fmt.Sprint(messages)
	for i := range n {
		if !regexp.MustCompile(fmt.Sprintf(`FACT-%d\b`, i)).MatchString(all) {
			missing = append(missing, i)
		}
	}
	return missing
}

func TestCompact_AHistoryLongerThanARequestIsReadPieceByPiece(t *testing.T) {
	t.Parallel()
	const turns = 60
	w := newWorld(t, map[string]any{"script": "text: I see.\n", "context_window": 1_000_000})
	summaries := w.factual()
	asked := w.watchModel()
	w.begin(nil)
	var session hob.SessionID
	for i := range turns {
		run := w.wait(w.startIn(session, fmt.Sprintf("FACT-%d is one. %s", i, strings.Repeat("Words about it. ", 60)), hob.RunOptions{}).ID)
		session = run.Session
	}
	if len(summaries()) != 0 {
		t.Fatal("it was summarised although it fits")
	}
	if _, err := w.store.UpdateAgent(t.Context(), w.by, w.agent.ID, hob.AgentPatch{Settings: []byte(`{"script":"text: I see.\n","context_window":8192}`)}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		run := w.wait(w.startIn(session, "what do you know?", hob.RunOptions{}).ID)
		last := asked()[len(asked())-1]
		if missing := lacks(last.Messages, turns); run.Status != hob.Completed || len(missing) > 0 || tokens(last) > 8192 {
			t.Fatalf("%s %s; the facts %v are lost", run.Status, run.Error, missing)
		}
	}
	if n := len(summaries()); n < 2 || n > 8 {
		t.Fatalf("%d requests were made for the summary", n)
	}
}

func TestCompact_RunsBesideEachOtherLoseNoTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "text: I see.\n", "context_window": 8000})
	w.factual()
	asked := w.watchModel()
	w.begin(nil)
	session := w.wait(w.start("FACT-0 begins.", hob.RunOptions{}).ID).Session
	n := 1
	for round := range 12 {
		var started []hob.Run
		for range 1 + round%3 {
			text := fmt.Sprintf("FACT-%d is one. %s", n, strings.Repeat("Words about it. ", 20+n*37%150))
			started = append(started, w.startIn(session, text, hob.RunOptions{}))
			n++
		}
		for _, r := range started {
			if run := w.wait(r.ID); run.Status != hob.Completed {
				t.Fatalf("%s %s", run.Status, run.Error)
			}
		}
		w.wait(w.startIn(session, "what do you know?", hob.RunOptions{}).ID)
		all := asked()
		if missing := lacks(all[len(all)-1].Messages, n); len(missing) > 0 {
			t.Fatalf("after round %d the facts %v of %d are lost", round, missing, n)
		}
	}
}

func TestCompact_ABudgetBoundsSummaries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": pages(20), "context_window": 8192, "max_tokens_total": 9000}, "page")
	w.begin(nil)
	run := w.wait(w.start("read everything", hob.RunOptions{}).ID)
	if run.Status != hob.Completed || run.Code != hob.CodeBudget || run.Usage.TotalTokens > 9000 {
		t.Fatalf("%s (%s) %s with %d tokens", run.Status, run.Code, run.Error, run.Usage.TotalTokens)
	}
}
