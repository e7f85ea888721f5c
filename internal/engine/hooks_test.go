package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
)

// once1 is a script with one call, once2 one with two in the same step.
const (
	once1 = "call#c1: once {\"n\":1}\n---\ntext: done\n"
	once2 = "call#c1: once {\"n\":1}\ncall#c2: once {\"n\":2}\n---\ntext: done\n"
)

// hooked makes a world with a scripted agent, hooks, and the services behind them.
func hooked(t *testing.T, script string, answers map[string]answerFunc, hooks []hob.Hook, tools ...string) (*world, *service) {
	t.Helper()
	w := newWorld(t, map[string]any{"script": script}, tools...)
	s := w.serve(answers)
	w.hook(hooks...)
	return w, s
}

// lines are what hooks decided in a run, in words.
func (w *world) lines(id hob.RunID) []string {
	w.t.Helper()
	var out []string
	for _, r := range told[hob.HookResultEvent](w, id, hob.EventHookResult) {
		out = append(out, fmt.Sprintf("%s %s %s: %s", r.HookEvent, r.HookType, r.CallID, resultLine(r)))
	}
	return out
}

func (w *world) wantLines(id hob.RunID, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.lines(id)); diff != "" {
		w.t.Errorf("what hooks decided (-want +got):\n%s", diff)
	}
}

// did are the arguments with which tools were called, in order.
func (w *world) did() []string {
	var out []string
	for _, c := range w.tools.calls() {
		out = append(out, c.Name+string(c.Arguments))
	}
	return out
}

func (w *world) wantDid(want ...string) {
	w.t.Helper()
	if got := w.did(); !slices.Equal(got, want) {
		w.t.Errorf("carried out were %v, want %v", got, want)
	}
}

func bodyOf(t *testing.T, r hob.HookRequest) (body map[string]any) {
	t.Helper()
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	return body
}

func TestHooks_EachSeesWhatTheOnesBeforeItChanged(t *testing.T) {
	t.Parallel()
	w, s := hooked(t, once1, map[string]answerFunc{
		"a": input(`{"n":2}`), "b": input(`{"n":3}`), "x": output("one"), "y": output("two"), "p": output("first"), "q": output("second"),
	}, []hob.Hook{
		httpHook(hob.PreToolUse, "a"), httpHook(hob.PreToolUse, "b"), httpHook(hob.PostToolUse, "x"), httpHook(hob.PostToolUse, "y"),
		httpHook(hob.PreResponse, "p"), httpHook(hob.PreResponse, "q"),
	}, "once")
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	var saw []string
	for _, r := range s.asked() {
		b := bodyOf(t, r)
		saw = append(saw, fmt.Sprintf("%s %s %v %v", b["event"], b["tool_name"], b["data"], b["output"]))
	}
	want := []string{
		"PreToolUse once map[n:1] <nil>", "PreToolUse once map[n:2] <nil>", "PreToolUse once map[n:3] <nil>", // the first once more
		`PostToolUse once map[n:3] once got {"n":3}`, "PostToolUse once map[n:3] one",
		"PreResponse  map[] done", "PreResponse  map[] first",
	}
	if diff := cmp.Diff(want, saw); diff != "" {
		t.Errorf("hooks saw (-want +got):\n%s", diff)
	}
	w.wantDid(`once{"n":3}`)
	d := w.detail(run)
	if got := d.Calls[0]; string(got.Arguments) != `{"n":3}` || got.Result.Text != "two" || run.Content != "second" {
		t.Errorf("the call is %+v, the answer %q", got, run.Content)
	}
}

func TestHooks_AreAskedByPositionThenByAgeUntilOneDenies(t *testing.T) {
	t.Parallel()
	at := func(h hob.Hook, position int) hob.Hook { h.Position = position; return h }
	off := httpHook(hob.PreToolUse, "off")
	w, s := hooked(t, once1, map[string]answerFunc{"denies": denies("")}, []hob.Hook{
		at(httpHook(hob.PreToolUse, "behind"), 9), at(httpHook(hob.PreToolUse, "denies"), 5), at(approvalHook(hob.PreToolUse), -9),
		at(httpHook(hob.PreToolUse, "older"), 1), at(httpHook(hob.PreToolUse, "younger"), 1), at(httpHook(hob.PreToolUse, "first"), -1), off,
	}, "once")
	list, err := w.store.Hooks(t.Context(), w.by, w.agent.ID)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(h hob.Hook) bool { return h.Config.URL == address("off") })
	if _, err := w.store.UpdateHook(t.Context(), w.by, w.agent.ID, list[i].ID, hob.HookPatch{Enabled: new(false)}); err != nil {
		t.Fatal(err)
	}
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	var order []string
	for _, r := range s.asked() {
		order = append(order, strings.TrimPrefix(r.URL, address("")))
	}
	if got := strings.Join(order, " "); got != "first older younger denies" {
		t.Errorf("asked were %s", got)
	}
	w.wantDid()
	if got := w.detail(run).Calls[0].Result; got.Text != "Error: Blocked by hook — Blocked by webhook" || !got.IsError {
		t.Errorf("the result is %+v", got)
	}
	if n := len(w.approvals(run.ID, "")); n != 0 {
		t.Errorf("people were asked %d times about what policy denies", n)
	}
}

func TestHooks_AMatcherIsANameAPatternOrAListOfThem(t *testing.T) {
	t.Parallel()
	for matcher, want := range map[string]string{
		"once": "once", "*": "once read keyed", "re?d": "read", "o*|keyed": "once keyed", " read | nothing ": "read", "onc": "", "ONCE": "",
	} {
		t.Run(matcher, func(t *testing.T) {
			t.Parallel()
			w, s := hooked(t, "call: once {\"n\":1}\ncall: read {\"n\":2}\ncall: keyed {\"n\":3}\n---\ntext: done\n", nil,
				[]hob.Hook{about(httpHook(hob.PreToolUse, "a"), matcher)}, "once", "read", "keyed")
			w.begin(nil)
			w.wait(w.start("go", hob.RunOptions{}).ID)
			var names []string
			for _, r := range s.asked() {
				names = append(names, fmt.Sprint(bodyOf(t, r)["tool_name"]))
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("asked about %q, want %q", got, want)
			}
		})
	}
}

func TestHooks_ARequestHasTheRunWhereItIsWantedAndADeliveryOfItsOwn(t *testing.T) {
	t.Parallel()
	with := httpHook(hob.PreToolUse, "with")
	with.Config.IncludeRunContext = true
	with.Config.Secret, with.Config.TimeoutSeconds = "s3cret", 0.25
	w, s := hooked(t, once2, nil, []hob.Hook{with, httpHook(hob.PreToolUse, "without"), httpHook(hob.PostToolUse, "after")}, "once")
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	seen := map[string]bool{}
	for _, r := range s.asked() {
		if seen[r.Delivery] || !strings.HasPrefix(r.Delivery, "dlv_") {
			t.Errorf("the delivery %q is not its own", r.Delivery)
		}
		seen[r.Delivery] = true
		b := bodyOf(t, r)
		run1, has := b["run"].(map[string]any)
		switch {
		case r.URL != address("with"):
			if has || r.Timeout != hob.DefaultHookSeconds*time.Second {
				t.Errorf("%s was sent %v with the time %s", r.URL, b, r.Timeout)
			}
		case !has, r.Hook.Config.Secret != "s3cret", r.Timeout != 250*time.Millisecond, r.Attempt != 1:
			t.Errorf("%s was sent %v by %+v", r.URL, b, r)
		default:
			delete(run1, "call_id")
			want := map[string]any{
				"run_id": string(run.ID), "session_id": string(run.Session), "agent_id": string(run.Agent),
				"execution_id": string(run.ID), "orchestration_run_id": nil,
			}
			if diff := cmp.Diff(want, run1); diff != "" {
				t.Errorf("the run (-want +got):\n%s", diff)
			}
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d requests were sent, want 6", len(seen))
	}
}

func TestRulesOfATool_DecideBeforeItsHooks(t *testing.T) {
	t.Parallel()
	w, s := hooked(t, "call#c1: once {\"n\":1}\ncall#c2: once {\"n\":2}\ncall#c3: once {\"n\":3}\ncall#c4: once {\"n\":4}\n---\ntext: done\n", nil,
		[]hob.Hook{httpHook(hob.PreToolUse, "a")}, "once")
	w.tools.rules = map[string][]hob.Rule{"once": {
		{Condition: "n IN [1]", Action: "deny", Message: "not one"}, {Condition: "n IN [2]", Action: "allow"}, {Condition: "n IN [2, 3]"},
	}}
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	d := w.detail(run)
	for i, want := range []string{
		"Error: Blocked by rule — not one", `once got {"n":2}`, "Error: Blocked by rule — Blocked by rule", `once got {"n":4}`,
	} {
		if got := d.Calls[i].Result; got.Text != want || got.IsError != strings.HasPrefix(want, "Error") {
			t.Errorf("call %d has %+v, want %q", i+1, got, want)
		}
	}
	if n := len(s.asked()); n != 2 {
		t.Errorf("the hook was asked %d times, want 2: what a rule denies is not asked about", n)
	}
	var rules []string
	for _, r := range told[hob.HookResultEvent](w, run.ID, hob.EventHookResult) {
		if r.Source == "tool_rule" {
			rules = append(rules, fmt.Sprintf("%s by rule %d, hook %q: %s", r.CallID, r.Position, r.HookID, resultLine(r)))
		}
	}
	slices.Sort(rules)
	want := []string{
		`c1 by rule 0, hook "": deny succeeded blocked: not one`, `c2 by rule 1, hook "": allow succeeded`,
		`c3 by rule 2, hook "": deny succeeded blocked: Blocked by rule`,
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if d.Actions[hob.ActionToolCall] != 2 {
		t.Errorf("on the books are %v, want two calls", d.Actions)
	}
}

// What a hook puts in place of a call's arguments is judged like what the model writes.
func TestHooks_ChangedArgumentsAreJudgedAgain(t *testing.T) {
	t.Parallel()
	rule := ruleHook(hob.PreToolUse, hob.Rule{Condition: "n IN [7]", Message: "not seven"})
	for name, c := range map[string]struct {
		changed string
		mode    hob.FailMode
		rules   []hob.Rule
		hooks   []hob.Hook // before the one that changes
		result  string
		line    string // of the last decision
	}{
		"they do not fit the schema, and it may fail": {
			changed: `{"n":"x"}`, result: `once got {"n":1}`,
			line: "pass failed: its modified_input does not fit the tool's schema: ",
		},
		"they do not fit the schema": {
			changed: `{"other":1}`, mode: hob.FailDeny, result: "Error: Blocked by hook — the hook failed, and denies then: its modified_input",
			line: "deny failed blocked: the hook failed, and denies then: its modified_input does not fit",
		},
		"they are no object": {changed: `[1]`, result: `once got {"n":1}`, line: "pass failed: its modified_input is no JSON object"},
		"they hold a key twice": {
			changed: `{"n":2,"n":7}`, result: `once got {"n":1}`, line: "pass failed: its modified_input is no JSON object of arguments: ",
		},
		"a rule of the tool denies them": {
			changed: `{"n":7}`, rules: []hob.Rule{{Condition: "n IN [7]", Message: "never seven"}},
			result: "Error: Blocked by rule — never seven", line: "deny succeeded blocked: never seven",
		},
		"a rule hook that was asked before denies them": {
			changed: `{"n":7}`, hooks: []hob.Hook{rule}, result: "Error: Blocked by hook — not seven", line: "deny succeeded blocked: not seven",
		},
		"nothing is against them": {changed: `{"n":8}`, hooks: []hob.Hook{rule}, result: `once got {"n":8}`, line: "allow succeeded modified"},
		"they are none":           {changed: `{}`, result: `once got {}`, line: "allow succeeded modified"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := hooked(t, once1, map[string]answerFunc{"a": input(c.changed)}, append(c.hooks, failing(httpHook(hob.PreToolUse, "a"), c.mode)), "once")
			w.tools.rules = map[string][]hob.Rule{"once": c.rules}
			w.begin(nil)
			run := w.wait(w.start("go", hob.RunOptions{}).ID)
			if got := w.detail(run).Calls[0].Result.Text; !strings.HasPrefix(got, c.result) {
				t.Errorf("the result is %q, want %q", got, c.result)
			}
			results := told[hob.HookResultEvent](w, run.ID, hob.EventHookResult)
			if got := resultLine(results[len(results)-1]); !strings.HasPrefix(got, c.line) {
				t.Errorf("the last decision is %q, want %q", got, c.line)
			}
			if n := len(w.tools.calls()); n != map[bool]int{true: 1}[strings.HasPrefix(c.result, "once")] {
				t.Errorf("%d calls were carried out", n)
			}
		})
	}
}

// An http hook sees the arguments that are carried out, whoever changed them behind it: it may deny them then, and change
// nothing more.
func TestHooks_AreAskedAgainAboutWhatOthersChanged(t *testing.T) {
	t.Parallel()
	guard := func(_ context.Context, r hob.HookRequest) (hob.HookAnswer, error) {
		switch {
		case strings.Contains(string(r.Body), `{"n":7}`):
			return hob.HookAnswer{Deny: true, Message: "not seven"}, nil
		case strings.Contains(string(r.Body), `{"n":8}`):
			return hob.HookAnswer{ModifiedInput: json.RawMessage(`{"n":9}`)}, nil
		}
		return hob.HookAnswer{}, nil
	}
	for name, c := range map[string]struct{ changed, result string }{
		"it denies them":            {`{"n":7}`, "Error: Blocked by hook — not seven"},
		"it would change them once": {`{"n":8}`, `once got {"n":8}`},
		"it has nothing to say":     {`{"n":5}`, `once got {"n":5}`},
	} {
		for _, by := range []string{"a hook", "an approver"} {
			t.Run(name+", by "+by, func(t *testing.T) {
				t.Parallel()
				hooks := []hob.Hook{httpHook(hob.PreToolUse, "guard"), approvalHook(hob.PreToolUse)}
				if by == "a hook" {
					hooks[1] = httpHook(hob.PreToolUse, "changes")
				}
				w, s := hooked(t, once1, map[string]answerFunc{"guard": guard, "changes": input(c.changed)}, hooks, "once")
				w.begin(nil)
				run := w.start("go", hob.RunOptions{})
				if by == "an approver" {
					w.decide(w.rests(run.ID, 1)[0], true, c.changed)
				}
				run = w.ends(run.ID)
				if got := w.detail(run).Calls[0]; got.Result.Text != c.result || string(got.Arguments) != c.changed {
					t.Errorf("the call is %s with %q, want %q", got.Arguments, got.Result.Text, c.result)
				}
				deliveries := map[string]bool{}
				guards := 0
				for _, r := range s.asked() {
					if deliveries[r.Delivery] = true; r.URL == address("guard") {
						guards++
					}
				}
				if guards != 2 || len(deliveries) != len(s.asked()) {
					t.Errorf("the guard was asked %d times, under %d deliveries of %d", guards, len(deliveries), len(s.asked()))
				}
			})
		}
	}
}

func TestHooks_APinnedArgumentStaysWhatItIs(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, "call: pinned {\"s\":\"a\"}\n---\ntext: done\n", map[string]answerFunc{"a": input(`{"n":1,"s":"b"}`)},
		[]hob.Hook{httpHook(hob.PreToolUse, "a")}, "pinned")
	w.begin(nil)
	w.wait(w.start("go", hob.RunOptions{}).ID)
	w.wantDid(`pinned{"n":7,"s":"b"}`)
}

func TestHooks_OnRunStartComesBeforeAnyModelCall(t *testing.T) {
	t.Parallel()
	came, let := make(chan struct{}, 1), make(chan struct{})
	w, _ := hooked(t, "text: done\n", map[string]answerFunc{"gate": func(ctx context.Context, _ hob.HookRequest) (hob.HookAnswer, error) {
		came <- struct{}{}
		select {
		case <-let:
			return hob.HookAnswer{Deny: true}, nil
		case <-ctx.Done():
			return hob.HookAnswer{}, ctx.Err()
		}
	}}, []hob.Hook{httpHook(hob.OnRunStart, "gate")})
	reqs := w.watchModel()
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	<-came
	time.Sleep(30 * time.Millisecond)
	if n := len(reqs()); n != 0 {
		t.Errorf("%d model calls were made while the hook was asked", n)
	}
	close(let)
	got := w.wait(run.ID)
	if got.Status != hob.Failed || got.Code != hob.CodeHookBlocked || got.Error != "Blocked by webhook" || len(reqs()) != 0 {
		t.Errorf("ended as %s (%s) %q after %d model calls", got.Status, got.Code, got.Error, len(reqs()))
	}
	if d := w.detail(got); len(d.Actions) != 0 {
		t.Errorf("on the books are %v", d.Actions)
	}
	next := w.wait(w.startIn(got.Session, "again", hob.RunOptions{}).ID)
	w.valid(next)
}

func TestHooks_TheTimeOfARunsHooksIsBounded(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context, _ hob.HookRequest) (hob.HookAnswer, error) {
		select {
		case <-time.After(60 * time.Millisecond):
			return hob.HookAnswer{}, nil
		case <-ctx.Done():
			return hob.HookAnswer{}, ctx.Err()
		}
	}
	w, s := hooked(t, "text: done\n", map[string]answerFunc{"a": slow, "b": silent, "c": slow},
		[]hob.Hook{httpHook(hob.OnRunStart, "a"), httpHook(hob.OnRunStart, "b"), httpHook(hob.OnRunStart, "c"), failing(httpHook(hob.PreResponse, "d"), hob.FailDeny)})
	w.limits.HookTime = 100 * time.Millisecond
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	const over = "the run's hooks have taken 100ms together, which is as long as they may"
	w.wantLines(run.ID, "OnRunStart http : allow succeeded", "OnRunStart http : pass timed_out: context deadline exceeded",
		"OnRunStart http : pass timed_out: "+over, "PreResponse http : deny timed_out blocked: the hook failed, and denies then: "+over)
	if n := len(s.asked()); n != 2 {
		t.Errorf("%d hooks were asked, want 2", n)
	}
	if s := w.engine.Stats(); s.HooksAsked != 4 || s.HooksFailed != 3 {
		t.Errorf("counted are %+v, want four decisions, three of which failed", s)
	}
}

func TestHooks_WithoutASenderTheyFail(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, once1, nil, []hob.Hook{httpHook(hob.PreToolUse, "a"), failing(httpHook(hob.PreToolUse, "b"), hob.FailDeny)}, "once")
	w.hooks = nil
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	const none = "this server sends nothing to http hooks"
	w.wantLines(run.ID, "PreToolUse http c1: pass failed: "+none, "PreToolUse http c1: deny failed blocked: the hook failed, and denies then: "+none)
	w.wantDid()
}

func TestHooks_AFaultInTheSenderIsAHookThatFails(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, once1, map[string]answerFunc{"a": func(context.Context, hob.HookRequest) (hob.HookAnswer, error) { panic("a fault of ours") }},
		[]hob.Hook{httpHook(hob.PreToolUse, "a")}, "once")
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	w.wantLines(run.ID, "PreToolUse http c1: pass failed: an internal fault of the server")
	w.wantDid(`once{"n":1}`)
}

// What a hook is asked about is stored: whoever takes the run up asks about the same.
func TestHooks_AreAskedAboutWhatIsStored(t *testing.T) {
	t.Parallel()
	var w *world
	stored := map[hob.HookEvent]string{}
	look := func(_ context.Context, r hob.HookRequest) (hob.HookAnswer, error) {
		run := runsOf(w)[0]
		d := w.detail(run)
		last := d.Messages[len(d.Messages)-1]
		stored[r.Hook.Event] = fmt.Sprintf("%s %q", last.Role, last.Content)
		for _, c := range d.Calls {
			stored[r.Hook.Event] += fmt.Sprintf(", %s is %s %q", c.ID, c.Status, c.Result.Text)
		}
		return hob.HookAnswer{}, nil
	}
	var hooks []hob.Hook
	for _, event := range []hob.HookEvent{hob.OnRunStart, hob.PreToolUse, hob.PostToolUse, hob.PreResponse} {
		hooks = append(hooks, httpHook(event, "look"))
	}
	w, _ = hooked(t, once1, map[string]answerFunc{"look": look}, hooks, "once")
	w.begin(nil)
	w.wait(w.start("go", hob.RunOptions{}).ID)
	got := `once got {"n":1}`
	want := map[hob.HookEvent]string{
		hob.OnRunStart: `user "go"`, hob.PreToolUse: `assistant "", c1 is planned ""`,
		hob.PostToolUse: fmt.Sprintf(`assistant "", c1 is returned %q`, got), hob.PreResponse: fmt.Sprintf(`assistant "done", c1 is result %q`, got),
	}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("when hooks were asked the store had (-want +got):\n%s", diff)
	}
}

// What hooks have taken before a run laid itself down counts when it is taken up.
func TestHooks_TheirTimeIsOfTheRunNotOfTheProcess(t *testing.T) {
	t.Parallel()
	slow := func(context.Context, hob.HookRequest) (hob.HookAnswer, error) {
		time.Sleep(150 * time.Millisecond)
		return hob.HookAnswer{}, nil
	}
	w, s := hooked(t, "text: done\n", map[string]answerFunc{"slow": slow},
		[]hob.Hook{httpHook(hob.OnRunStart, "slow"), approvalHook(hob.OnRunStart), httpHook(hob.PreResponse, "see")})
	w.limits.HookTime = 100 * time.Millisecond
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	w.decide(w.rests(run.ID, 1)[0], true, "")
	w.ends(run.ID)
	w.wantLines(run.ID, "OnRunStart http : allow succeeded", "OnRunStart approval : allow succeeded",
		"PreResponse http : pass timed_out: the run's hooks have taken 100ms together, which is as long as they may")
	if n := len(s.asked()); n != 1 {
		t.Errorf("%d hooks were asked, want one", n)
	}
}
