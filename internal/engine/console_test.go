package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/engine"
)

// books is what is on the books by action.
func (w *world) books() map[string]int64 {
	w.t.Helper()
	rows, err := w.store.Usage(w.t.Context(), w.by, hob.UsageFilter{GroupBy: hob.ByAction})
	if err != nil {
		w.t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, r := range rows {
		counts[r.Key] = r.Quantity
	}
	return counts
}

// trail writes a trace on one line: refused stages with a !, skipped ones with a -.
func trail(list []engine.Passage) string {
	var out []string
	for _, p := range list {
		out = append(out, map[engine.Outcome]string{engine.Passed: "", engine.Refused: "!", engine.Skipped: "-"}[p.Outcome]+string(p.Stage))
	}
	return strings.Join(out, " ")
}

const wholeTrail = "pin parse schema -rules -PreToolUse -OnDelegation -intent execute result -PostToolUse cap"

func (w *world) try(in engine.Trial) engine.Tried {
	w.t.Helper()
	got, err := w.engine.Try(w.t.Context(), w.by, in)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func TestConsole_ACallPassesTheGateAsInARun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in    engine.Trial
		text  string
		trail string
		calls int
		want  map[string]int64
	}{
		"carried out": {engine.Trial{Builtin: "read", Arguments: `{"n":1}`}, `read got {"n":1}`, wholeTrail, 1, map[string]int64{hob.ActionToolCall: 1}},
		"pinned":      {engine.Trial{Builtin: "pinned", Arguments: `{"n":1,"s":"a"}`}, `pinned got {"n":7,"s":"a"}`, wholeTrail, 1, map[string]int64{hob.ActionToolCall: 1}},
		"no JSON":     {engine.Trial{Builtin: "read", Arguments: `{"n":`}, "Error: Input validation failed — the arguments are no JSON object: ", "pin !parse", 0, map[string]int64{}},
		"an array":    {engine.Trial{Builtin: "read", Arguments: `[1]`}, "Error: Input validation failed — the arguments are no JSON object: ", "pin !parse", 0, map[string]int64{}},
		"twice":       {engine.Trial{Builtin: "read", Arguments: `{"n":1,"n":2}`}, "Error: Input validation failed — the arguments are no JSON object: ", "pin !parse", 0, map[string]int64{}},
		"schema":      {engine.Trial{Builtin: "read", Arguments: `{"n":"x","m":1}`}, `Error: Input validation failed — unknown argument "m"`, "pin parse !schema", 0, map[string]int64{}},
		"it fails":    {engine.Trial{Builtin: "fail", Arguments: `{}`}, "Error: it broke", wholeTrail, 1, map[string]int64{hob.ActionToolCall: 1}},
		"a fault":     {engine.Trial{Builtin: "panic", Arguments: `{}`}, "Error: the tool met an internal fault", wholeTrail, 1, map[string]int64{}},
		"too slow":    {engine.Trial{Builtin: "brief", Arguments: `{}`}, "Error: The tool did not answer within 20ms; it may have taken effect all the same", wholeTrail, 1, map[string]int64{}},
		"too long":    {engine.Trial{Builtin: "big", Arguments: `{}`}, "ää", wholeTrail, 1, map[string]int64{hob.ActionToolCall: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.tools.hold = make(chan struct{})
			w.begin(nil)
			got := w.try(c.in)
			if !strings.HasPrefix(got.Result.Text, c.text) || trail(got.Trace) != c.trail {
				t.Errorf("the result is %.200q by the way of %s", got.Result.Text, trail(got.Trace))
			}
			if n := len(w.tools.calls()); n != c.calls || !maps.Equal(w.books(), c.want) {
				t.Errorf("%d calls were carried out, on the books are %v, want %v", n, w.books(), c.want)
			}
			if name == "too long" && !strings.HasSuffix(got.Result.Text, "[Truncated: 60000 chars total]") {
				t.Errorf("the result ends %q", got.Result.Text[len(got.Result.Text)-60:])
			}
		})
	}
}

func TestConsole_TheCallHasIdsOfItsOwnAndTheCallersRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, "read")
	w.begin(nil)
	first, second := w.try(engine.Trial{Builtin: "read", Arguments: "{}"}), w.try(engine.Trial{Builtin: "read", Arguments: "{}", Agent: w.agent.ID})
	calls := w.tools.calls()
	for i, c := range calls {
		if !strings.HasPrefix(string(c.Run), "run_") || c.Key != fmt.Sprintf("%s:%s", c.Run, c.ID) || c.Attempt != 1 || c.Session != "" || !cmp.Equal(c.Principal, w.by) {
			t.Errorf("call %d: %+v", i, c)
		}
	}
	if calls[0].Run == calls[1].Run || calls[0].Agent != "" || calls[1].Agent != w.agent.ID || first.Call.ID != calls[0].ID || second.Call.ID != calls[1].ID {
		t.Errorf("%+v", calls)
	}
	if _, err := w.store.Run(t.Context(), w.by, calls[0].Run); hob.KindOf(err) != hob.NotFound {
		t.Errorf("there is a run of the call: %v", err)
	}
	rows, err := w.store.Usage(t.Context(), w.by, hob.UsageFilter{Agent: w.agent.ID})
	if err != nil || rows[0].Quantity != 1 {
		t.Errorf("of the agent there is on the books %+v: %v", rows, err)
	}
}

func TestConsole_AKeyNamesTheSameCallAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, "keyed")
	w.begin(nil)
	other := hob.Principal{Kind: hob.KeyPrincipal, ID: "k", Workspace: w.by.Workspace, Scopes: []hob.Scope{hob.ScopeAdmin}}
	key := func(by hob.Principal, in engine.Trial) string {
		in.Builtin = "keyed"
		got, err := w.engine.Try(t.Context(), by, in)
		if err != nil {
			t.Fatal(err)
		}
		return got.Call.Key
	}
	one := key(w.by, engine.Trial{Arguments: `{"n":1,"s":"a"}`, Key: "k"})
	if again := key(w.by, engine.Trial{Arguments: `{ "s":"a", "n":1 }`, Key: "k"}); again != one {
		t.Errorf("the same call has the keys %s and %s", one, again)
	}
	seen := map[string]string{one: "the first"}
	for name, k := range map[string]string{
		"other arguments": key(w.by, engine.Trial{Arguments: `{"n":2}`, Key: "k"}),
		"another key":     key(w.by, engine.Trial{Arguments: `{"n":1,"s":"a"}`, Key: "l"}),
		"another caller":  key(other, engine.Trial{Arguments: `{"n":1,"s":"a"}`, Key: "k"}),
		"an agent":        key(w.by, engine.Trial{Arguments: `{"n":1,"s":"a"}`, Key: "k", Agent: w.agent.ID}),
		"no key":          key(w.by, engine.Trial{Arguments: `{"n":1,"s":"a"}`}),
	} {
		if seen[k] != "" {
			t.Errorf("%s has the key of %s", name, seen[k])
		}
		seen[k] = name
	}
}

func TestConsole_ASwitchedOffToolIsTriedWithAWarning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, "read")
	w.switched("read", false)
	w.begin(nil)
	for _, agent := range []hob.AgentID{"", w.agent.ID} {
		got := w.try(engine.Trial{Builtin: "read", Arguments: "{}", Agent: agent})
		if got.Result.IsError || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "switched off") {
			t.Errorf("as %q: %+v", agent, got)
		}
	}
}

func TestConsole_RefusesWhatCannotBeTried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, "read")
	w.begin(nil)
	member := hob.Principal{Kind: hob.UserPrincipal, ID: "u", Workspace: w.by.Workspace, Scopes: []hob.Scope{hob.ScopeRead, hob.ScopeRun}}
	bound := hob.Principal{Kind: hob.KeyPrincipal, ID: "k", Workspace: w.by.Workspace, Scopes: []hob.Scope{hob.ScopeAdmin}, Agent: w.agent.ID}
	for name, c := range map[string]struct {
		by   hob.Principal
		in   engine.Trial
		kind hob.Kind
		code string
	}{
		"a member":                 {member, engine.Trial{Builtin: "read"}, hob.Forbidden, "scope_missing"},
		"a bound key":              {bound, engine.Trial{Builtin: "read"}, hob.Forbidden, "key_bound"},
		"a tool that is not there": {w.by, engine.Trial{Tool: hob.ToolID(hob.NewUUID())}, hob.NotFound, "tool_not_found"},
		"an agent not there":       {w.by, engine.Trial{Builtin: "read", Agent: hob.AgentID(hob.NewUUID())}, hob.NotFound, "agent_not_found"},
		"not the agent's":          {w.by, engine.Trial{Builtin: "keyed", Agent: w.agent.ID}, hob.Invalid, "tool_not_assigned"},
		"not to be loaded":         {w.by, engine.Trial{Builtin: "gone"}, hob.Conflict, "tool_unavailable"},
		"no preview":               {w.by, engine.Trial{Builtin: "read", Arguments: "{}", DryRun: true}, hob.Invalid, engine.CodeNoPreview},
	} {
		_, err := w.engine.Try(t.Context(), c.by, c.in)
		var e *hob.Error
		if !errors.As(err, &e) || e.Kind != c.kind || e.Code != c.code {
			t.Errorf("%s: %v, want %s (%s)", name, err, c.kind, c.code)
		}
	}
	if len(w.tools.calls()) != 0 || len(w.books()) != 0 {
		t.Errorf("%d calls were carried out, on the books are %v", len(w.tools.calls()), w.books())
	}
}

func TestConsole_ADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.begin(nil)
	got := w.try(engine.Trial{Builtin: "shown", Arguments: `{"n":3}`, DryRun: true})
	if string(got.Preview) != `{"would":{"n":3}}` || got.Result.IsError || !got.Result.Free || trail(got.Trace) !=
		"pin parse schema -rules -PreToolUse -OnDelegation -intent -execute result -PostToolUse -cap" {
		t.Errorf("%s %+v by the way of %s", got.Preview, got.Result, trail(got.Trace))
	}
	if bad := w.try(engine.Trial{Builtin: "shown", Arguments: `{"n":"x"}`, DryRun: true}); bad.Preview != nil || !strings.Contains(bad.Result.Text, "Input validation") {
		t.Errorf("%+v", bad)
	}
	failed := w.try(engine.Trial{Builtin: "shown", Arguments: `{"n":0}`, DryRun: true})
	last := failed.Trace[len(failed.Trace)-1]
	if failed.Preview != nil || failed.Result.Text != "Error: nothing to show" || !failed.Result.IsError || last.Stage != engine.StageResult || last.Outcome != engine.Refused {
		t.Errorf("%+v", failed)
	}
	if len(w.tools.calls()) != 0 || len(w.books()) != 0 {
		t.Errorf("%d calls were carried out, on the books are %v", len(w.tools.calls()), w.books())
	}
}

// trials is what the audit log tells of calls of the console, a line each.
func (w *world) trials() []string {
	w.t.Helper()
	list, err := w.store.Audit(w.t.Context(), w.by, hob.AuditFilter{Kind: "tool_test"})
	if err != nil {
		w.t.Fatal(err)
	}
	out := []string{}
	for _, e := range list {
		if e.Actor != w.by.Name() || e.Call == "" {
			w.t.Errorf("%+v", e)
		}
		out = append(out, strings.Join([]string{e.Action, e.Object, e.Digest, e.Decision, string(e.Detail)}, " "))
	}
	return out
}

func TestConsole_TheAuditLogTellsOfCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, "read")
	w.begin(nil)
	w.try(engine.Trial{Builtin: "read", Arguments: `{"n":1}`, Agent: w.agent.ID})
	w.try(engine.Trial{Builtin: "fail", Arguments: `{}`})
	w.try(engine.Trial{Builtin: "read", Arguments: `{"n":"x"}`})
	w.try(engine.Trial{Builtin: "shown", Arguments: `{"n":3}`, DryRun: true})
	line := func(action, tool, args, decision, agent string, dry bool) string {
		return fmt.Sprintf(`%s %s %x %s {"agent_id":"%s","dry_run":%t,"ref":"builtin:%[2]s"}`, action, tool, sha256.Sum256([]byte(args)), decision, agent, dry)
	}
	agent := string(w.agent.ID)
	if diff := cmp.Diff([]string{
		line("tool_test.intent", "read", `{"n":1}`, "", agent, false),
		line("tool_test.result", "read", `{"n":1}`, "ok", agent, false),
		line("tool_test.intent", "fail", `{}`, "", "", false),
		line("tool_test.result", "fail", `{}`, "error", "", false),
		line("tool_test.result", "read", `{"n":"x"}`, "refused", "", false),
		line("tool_test.intent", "shown", `{"n":3}`, "", "", true),
	}, w.trials()); diff != "" {
		t.Errorf("-want +noted:\n%s", diff)
	}
}

// mutedStore cannot write audit entries of some action.
type mutedStore struct {
	hob.Store
	action string
}

func (s mutedStore) NoteAudit(ctx context.Context, by hob.Principal, a hob.AuditEntry) error {
	if a.Action == s.action {
		return errDeaf
	}
	return s.Store.NoteAudit(ctx, by, a)
}

func TestConsole_WhatCannotBeNotedIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.begin(func(s hob.Store) hob.Store { return mutedStore{s, "tool_test.intent"} })
	for _, in := range []engine.Trial{{Builtin: "read", Arguments: "{}"}, {Builtin: "shown", Arguments: `{"n":3}`, DryRun: true}} {
		if got, err := w.engine.Try(t.Context(), w.by, in); !errors.Is(err, errDeaf) || got.Preview != nil {
			t.Errorf("%s: %+v, %v", in.Builtin, got, err)
		}
	}
	if len(w.tools.calls()) != 0 || len(w.books()) != 0 {
		t.Errorf("%d calls were carried out, on the books are %v", len(w.tools.calls()), w.books())
	}
	w.stop()
	w.begin(func(s hob.Store) hob.Store { return mutedStore{s, "tool_test.result"} }) // it was made: that is told
	if got := w.try(engine.Trial{Builtin: "read", Arguments: "{}"}); got.Result.IsError || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "audit log") {
		t.Errorf("%+v", got)
	}
}

func TestConsole_BooksWhatAToolUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.tools.told = hob.Result{Text: "x", Action: hob.ActionWebScrape, Used: []hob.UsageEntry{{Component: hob.ComponentVision, Model: "eye", Usage: hob.Usage{TotalTokens: 9}}}}
	w.begin(nil)
	if got := w.try(engine.Trial{Builtin: "told", Arguments: "{}"}); got.Result.Action != hob.ActionWebScrape || got.Result.Free {
		t.Errorf("%+v", got.Result)
	}
	if want := map[string]int64{hob.ActionWebScrape: 1, hob.ActionModelCall: 1}; !maps.Equal(w.books(), want) {
		t.Errorf("on the books are %v, want %v", w.books(), want)
	}
	w.tools.told = hob.Result{Text: "no key", IsError: true, Free: true, Action: hob.ActionWebScrape}
	if got := w.try(engine.Trial{Builtin: "told", Arguments: "{}"}); got.Result.Action != "" || !got.Result.Free {
		t.Errorf("%+v", got.Result)
	}
	if n := w.books()[hob.ActionWebScrape]; n != 1 {
		t.Errorf("%d are on the books", n)
	}
}

func TestConsole_AtMostSoManyCallsOfAWorkspaceAreUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.limits.Trials = 2
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{})
	w.begin(nil)
	done := make(chan error, 2)
	for range 2 {
		go func() {
			ctx, leave := context.WithCancel(context.WithoutCancel(t.Context()))
			go func() { <-w.tools.came; leave() }() // the caller leaves; the call goes on to its end
			got, err := w.engine.Try(ctx, w.by, engine.Trial{Builtin: "hang", Arguments: "{}"})
			if err == nil && got.Result.IsError {
				err = errors.New(got.Result.Text)
			}
			done <- err
		}()
	}
	waitUntil(t, func() bool { return len(w.tools.calls()) == 2 })
	_, err := w.engine.Try(t.Context(), w.by, engine.Trial{Builtin: "read", Arguments: "{}"})
	var e *hob.Error
	if !errors.As(err, &e) || e.Kind != hob.RateLimited || e.Code != "too_many_tests" || e.RetryAfter <= 0 {
		t.Errorf("a third: %v", err)
	}
	close(w.tools.hold)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	w.try(engine.Trial{Builtin: "read", Arguments: "{}"})
}

func TestConsole_NoCallTakesLongerThanTheMost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.limits.TrialTime = 10 * time.Millisecond
	w.tools.hold = make(chan struct{})
	w.begin(nil)
	if got := w.try(engine.Trial{Builtin: "hang", Arguments: "{}"}); !strings.HasPrefix(got.Result.Text, "Error: The tool did not answer within 10ms") {
		t.Errorf("%+v", got.Result)
	}
}

func TestConsole_DrainWaitsForCallsAndEndsThemInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 1)
	w.begin(nil)
	got := make(chan engine.Tried, 1)
	go func() {
		r, err := w.engine.Try(t.Context(), w.by, engine.Trial{Builtin: "hang", Arguments: "{}"})
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	<-w.tools.came
	w.stop()
	if r := (<-got).Result; !r.Unknown || !strings.Contains(r.Text, "the server stopped") {
		t.Errorf("%+v", r)
	}
	_, err := w.engine.Try(t.Context(), w.by, engine.Trial{Builtin: "read", Arguments: "{}"})
	if hob.KindOf(err) != hob.Unavailable {
		t.Errorf("a server that ends: %v", err)
	}
}

// shownTool has a preview.
type shownTool struct{ testTool }

func (shownTool) Preview(_ context.Context, c hob.Call) (json.RawMessage, error) {
	if strings.Contains(string(c.Arguments), `"n":0`) {
		return nil, errors.New("nothing to show")
	}
	return json.RawMessage(`{"would":` + string(c.Arguments) + `}`), nil
}
