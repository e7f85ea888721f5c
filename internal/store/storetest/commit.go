package storetest

import (
	"encoding/json"
	"strings"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func commitCases() map[string]func(*world) {
	return map[string]func(*world){
		"CommitKeepsAWholeStep":                commitKept,
		"CommitReplacesACall":                  commitCalls,
		"CommitEndsTheRun":                     commitOutcome,
		"CommitsAddUpWhatTheRunCost":           commitUsage,
		"CommitIsFenced":                       commitFenced,
		"CommitFollowsTheStateMachine":         commitStates,
		"CommitThatFailsLeavesNothing":         commitAtomic,
		"CommitTakesManyRowsAtOnce":            commitMany,
		"CommitOfManyRunsDoesNotMixThem":       commitApart,
		"CommitWithoutEventsNeedsOnlyTheEpoch": commitBare,
		"LongEventsAreReadInSeveralGoes":       commitLong,
	}
}

func commitKept(w *world) {
	r := w.begin(w.alice, "s")
	messages := []hob.Message{
		{Role: hob.RoleAssistant, Content: "let me see", Calls: []hob.ToolCall{{ID: "c1", Name: "t", Arguments: json.RawMessage(`{"x":1}`)}, {ID: "c2", Name: "t", Arguments: json.RawMessage(`{}`), Bad: "{x"}}, Reasoning: &hob.Reasoning{Provider: "p", Text: "hm", Artefact: json.RawMessage(`{"sig":"x"}`)}},
		{Role: hob.RoleTool, CallID: "c1", Name: "t", Content: "42"},
		{Role: hob.RoleTool, CallID: "c2", Name: "t", Content: "bad arguments", IsError: true},
	}
	calls := []hob.CallState{
		{ID: "c1", Step: 1, Index: 0, Name: "t", Arguments: json.RawMessage(`{"x":1}`), Status: hob.CallDone, Recovery: hob.RecoverOnce, Attempt: 1, Result: hob.Result{Text: "42", Action: "web_search"}, StartedAt: now(), EndedAt: now()},
		{ID: "c2", Step: 1, Index: 1, Name: "t", Arguments: json.RawMessage(`{}`), Status: hob.CallDone, Recovery: hob.RecoverRead, Attempt: 2, Result: hob.Result{Text: "bad", IsError: true, Unknown: true, Free: true}},
	}
	c := step(r, event(2, hob.EventStepStarted, ""), event(3, hob.EventContentDelta, "let me see"), event(4, hob.EventToolCall, ""))
	c.Base, c.Messages, c.Calls = 1, messages, calls
	spent := hob.Usage{PromptTokens: 5, CompletionTokens: 2, ReasoningTokens: 1, CachedTokens: 3, TotalTokens: 7}
	c.Usage = []hob.UsageEntry{{Component: "run", Model: "m", Step: 1, Usage: spent}, {Component: "run", Model: "m", Step: 1, Usage: spent}}
	w.must(w.s.Commit(w.ctx, c))
	st, err := w.s.Load(w.ctx, r.ID)
	w.must(err)
	want := r
	want.LastSeq, want.Usage = 4, spent.Add(spent)
	if d := cmp.Diff(hob.RunState{
		Run: want, Actions: map[string]int64{hob.ActionModelCall: 2}, Calls: calls, VoidFrom: 3, Step: 1, Told: 1,
		Pin:      json.RawMessage(`{"agent":{"name":"first"},"tools":[]}`),
		Messages: append([]hob.Message{{Role: hob.RoleUser, Content: "hello from " + string(r.ID)}}, messages...),
	}, st); d != "" {
		w.t.Fatalf("-want +loaded:\n%s", d)
	}
	// A new step begins: the text before it is not void.
	w.must(w.s.Commit(w.ctx, step(r, event(5, hob.EventStepStarted, ""))))
	st, err = w.s.Load(w.ctx, r.ID)
	w.must(err)
	same(w, "void from", st.VoidFrom, 0)
}

func commitCalls(w *world) {
	r := w.begin(w.alice, "s")
	call := hob.CallState{ID: "c1", Step: 1, Name: "t", Arguments: json.RawMessage(`{}`), Status: hob.CallPlanned, Recovery: hob.RecoverOnce}
	c := step(r)
	c.Calls = []hob.CallState{call}
	w.must(w.s.Commit(w.ctx, c))
	intent, done := call, call
	intent.Status, intent.Attempt = hob.CallIntent, 1
	done.Status, done.Attempt, done.Result = hob.CallDone, 1, hob.Result{Text: "ok"}
	c.Calls = []hob.CallState{intent, done} // twice in one commit: the last counts
	w.must(w.s.Commit(w.ctx, c))
	d, err := w.s.RunDetail(w.ctx, w.alice, r.ID)
	w.must(err)
	if diff := cmp.Diff([]hob.CallState{done}, d.Calls); diff != "" {
		w.t.Fatalf("-want +read:\n%s", diff)
	}
}

func commitOutcome(w *world) {
	r := w.begin(w.alice, "s")
	usage := hob.Usage{PromptTokens: 1, CompletionTokens: 2, ReasoningTokens: 3, CachedTokens: 4, TotalTokens: 10}
	c := step(r, event(2, hob.EventError, ""), event(3, hob.EventComplete, ""))
	c.Outcome = &hob.Outcome{Status: hob.Failed, Code: hob.CodeDoomLoop, Error: "went in circles", Content: "so far", Steps: 3, Usage: usage}
	c.Usage = []hob.UsageEntry{{Component: "run", Model: "m", Step: 1, Usage: usage}, {Component: "run", Model: "m", Step: 2, Usage: usage, Estimated: true}}
	w.must(w.s.Commit(w.ctx, c))
	got, err := w.s.Run(w.ctx, w.alice, r.ID)
	w.must(err)
	want := r
	want.Status, want.Code, want.Error, want.Content = hob.Failed, hob.CodeDoomLoop, "went in circles", "so far"
	want.Steps, want.Usage, want.LastSeq, want.LeaseOwner, want.CompletedAt = 3, usage, 3, "", got.CompletedAt
	if d := cmp.Diff(want, got); d != "" || got.CompletedAt.IsZero() {
		w.t.Fatalf("completed at %v; -want +read:\n%s", got.CompletedAt, d)
	}
}

func commitUsage(w *world) {
	r, other := w.begin(w.alice, "s"), w.begin(w.alice, "other")
	usage := hob.Usage{PromptTokens: 1, CompletionTokens: 2, ReasoningTokens: 3, CachedTokens: 4, TotalTokens: 10}
	want := hob.Usage{}
	for i, run := range []hob.Run{r, other, r, r} {
		st, err := w.s.Load(w.ctx, r.ID)
		w.must(err)
		same(w, "cost so far", st.Run.Usage, want)
		c := step(run)
		c.Usage = []hob.UsageEntry{{Component: "run", Model: "m", Step: i, Usage: usage}}
		w.must(w.s.Commit(w.ctx, c))
		if run.ID == r.ID {
			want = want.Add(usage)
		}
	}
	// A run that takes the place of a deleted one begins at nothing.
	w.must(w.s.DeleteSession(w.ctx, w.alice, "", "other"))
	st, err := w.s.Load(w.ctx, w.begin(w.alice, "other").ID)
	w.must(err)
	same(w, "cost of a new run", st.Run.Usage, hob.Usage{})
}

func commitFenced(w *world) {
	r := w.begin(w.alice, "s")
	older := step(r, event(2, hob.EventChunk, "x"))
	older.Epoch = 0
	w.want(hob.Fenced, w.s.Commit(w.ctx, older))
	newer := step(r, event(2, hob.EventChunk, "x"))
	newer.Epoch = 2
	w.want(hob.Fenced, w.s.Commit(w.ctx, newer))
	for _, seq := range []int64{1, 3} { // written already; a gap
		w.want(hob.Fenced, w.s.Commit(w.ctx, step(r, event(seq, hob.EventChunk, "x"))))
	}
	w.want(hob.Fenced, w.s.Commit(w.ctx, hob.RunCommit{Run: "run_none", Epoch: 1}))
	claimed, err := w.s.Claim(w.ctx, "p2", lease, 10, true)
	w.must(err)
	same(w, "claimed", len(claimed), 1)
	w.want(hob.Fenced, w.s.Commit(w.ctx, step(r, event(2, hob.EventChunk, "x"))))
	r.Epoch = claimed[0].Epoch
	w.finish(r, "done")
	w.want(hob.Fenced, w.s.Commit(w.ctx, step(r, event(3, hob.EventChunk, "x"))))
	w.want(hob.Fenced, w.s.Commit(w.ctx, step(r)))
	events, err := w.s.Events(w.ctx, w.alice, r.ID, 0, 10)
	w.must(err)
	same(w, "events", seqs(events), "[1 2]")
}

func commitStates(w *world) {
	to := func(r hob.Run, s hob.Status) error {
		c := step(r)
		c.Outcome = &hob.Outcome{Status: s}
		return w.s.Commit(w.ctx, c)
	}
	r := w.begin(w.alice, "s")
	for _, s := range []hob.Status{hob.AwaitingApproval, hob.Running, hob.Queued, hob.Running} {
		w.must(to(r, s))
		got, err := w.s.Run(w.ctx, w.alice, r.ID)
		w.must(err)
		owner := map[bool]string{true: "p1"}[s == hob.Running]
		if got.Status != s || !got.CompletedAt.IsZero() || got.LeaseOwner != owner {
			w.t.Fatalf("after %s: status %s, completed %v, owner %q", s, got.Status, got.CompletedAt, got.LeaseOwner)
		}
	}
	w.must(to(r, hob.AwaitingApproval))
	w.want(hob.Conflict, to(r, hob.Completed))
	w.want(hob.Conflict, to(r, hob.Queued))
	w.must(to(r, hob.Cancelled))
	for _, s := range []hob.Status{hob.Running, hob.Queued, hob.Completed, hob.Cancelled} {
		w.want(hob.Fenced, to(r, s))
	}
	if err := to(w.begin(w.alice, "s2"), "odd"); err == nil {
		w.t.Fatal("a state that is none was taken")
	}
}

func commitAtomic(w *world) {
	r := w.begin(w.alice, "s")
	c := step(r, event(2, hob.EventChunk, "x"))
	c.Base, c.Messages = 0, []hob.Message{{Role: hob.RoleAssistant, Content: "stands on the user's place"}}
	c.Calls = []hob.CallState{{ID: "c1", Name: "t", Status: hob.CallPlanned}}
	c.Outcome = &hob.Outcome{Status: hob.Completed, Content: "x"}
	if err := w.s.Commit(w.ctx, c); err == nil {
		w.t.Fatal("a message was put on another one's place")
	}
	gap := step(r, event(2, hob.EventChunk, "x"), event(4, hob.EventChunk, "y"))
	if err := w.s.Commit(w.ctx, gap); err == nil {
		w.t.Fatal("events with a gap were taken")
	}
	d, err := w.s.RunDetail(w.ctx, w.alice, r.ID)
	w.must(err)
	if d.Run.Status != hob.Running || d.Run.LastSeq != 1 || len(d.Events) != 1 || len(d.Messages) != 1 || len(d.Calls) != 0 || d.Run.Content != "" {
		w.t.Fatalf("failed commits left: %+v", d)
	}
	c.Base = 1
	w.must(w.s.Commit(w.ctx, c))
}

func commitMany(w *world) {
	r := w.begin(w.alice, "s")
	c := step(r)
	const n = 100 // several statements' worth
	for i := range n {
		c.Events = append(c.Events, event(int64(i+2), hob.EventContentDelta, "x"))
		c.Messages = append(c.Messages, hob.Message{Role: hob.RoleAssistant, Content: string(rune('a' + i%26))})
		c.Calls = append(c.Calls, hob.CallState{ID: hob.CallID(hob.NewUUID()), Step: 1, Index: i, Name: "t", Status: hob.CallPlanned})
		c.Usage = append(c.Usage, hob.UsageEntry{Component: "run", Model: "m", Step: i})
	}
	c.Base = 1
	w.must(w.s.Commit(w.ctx, c))
	st, err := w.s.Load(w.ctx, r.ID)
	w.must(err)
	if len(st.Messages) != n+1 || len(st.Calls) != n || st.Run.LastSeq != n+1 || st.VoidFrom != 2 {
		w.t.Fatalf("%d messages, %d calls, last seq %d, void from %d", len(st.Messages), len(st.Calls), st.Run.LastSeq, st.VoidFrom)
	}
	for i, c := range st.Calls {
		if c.Index != i || st.Messages[i+1].Content != string(rune('a'+i%26)) {
			w.t.Fatalf("place %d has call %d and message %q", i, c.Index, st.Messages[i+1].Content)
		}
	}
}

func commitApart(w *world) {
	a, b := w.begin(w.alice, "a"), w.begin(w.bob, "b")
	for seq := int64(2); seq < 6; seq++ {
		w.must(w.s.Commit(w.ctx, step(a, event(seq, hob.EventChunk, "a"))))
		w.must(w.s.Commit(w.ctx, step(b, event(seq, hob.EventChunk, "b"))))
	}
	for text, r := range map[string]hob.Run{"a": a, "b": b} {
		events, err := w.s.Events(w.ctx, w.service, r.ID, 1, 100)
		w.must(err)
		same(w, "events", seqs(events), "[2 3 4 5]")
		for _, e := range events {
			same(w, "data", string(e.Data), string(event(e.Seq, hob.EventChunk, text).Data))
		}
	}
}

func commitLong(w *world) {
	const many, most = 12, 128 << 10
	r := w.begin(w.alice, "s")
	text := strings.Repeat("x", 30<<10)
	for seq := int64(2); seq < many; seq++ {
		w.must(w.s.Commit(w.ctx, step(r, event(seq, hob.EventChunk, text))))
	}
	var list []hob.Event
	for {
		events, err := w.s.Events(w.ctx, w.alice, r.ID, int64(len(list)), 100)
		w.must(err)
		if len(events) == 0 {
			break
		}
		size := 0
		for _, e := range events {
			size += len(e.Data)
		}
		same(w, "one go is small", size < most, true)
		list = append(list, events...)
	}
	same(w, "events", seqs(list), "[1 2 3 4 5 6 7 8 9 10 11]")
}

func commitBare(w *world) {
	r := w.begin(w.alice, "s")
	w.must(w.s.Commit(w.ctx, step(r)))
	got, err := w.s.Run(w.ctx, w.alice, r.ID)
	w.must(err)
	same(w, "last seq", got.LastSeq, 1)
	r.Epoch = 7
	w.want(hob.Fenced, w.s.Commit(w.ctx, step(r)))
}
