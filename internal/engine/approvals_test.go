package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hob"
	"hob/internal/engine"
)

// refusedWith wants an error of a kind and code.
func refusedWith(t *testing.T, err error, kind hob.Kind, code string) *hob.Error {
	t.Helper()
	var e *hob.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Code != code {
		t.Errorf("got %v, want %s (%s)", err, kind, code)
		return &hob.Error{}
	}
	return e
}

func TestApproval_OfRewrittenArgumentsIsAboutThose(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, once1, map[string]answerFunc{"a": input(`{"n":2}`)}, []hob.Hook{approvalHook(hob.PreToolUse), httpHook(hob.PreToolUse, "a")}, "once")
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	p := w.rests(run.ID, 1)[0]
	event := told[hob.ApprovalRequestedEvent](w, run.ID, hob.EventApprovalRequested)[0]
	want := hob.ApprovalDigest(run.ID, "c1", "once", json.RawMessage(`{"n":2}`))
	for what, got := range map[string][2]string{
		"the row": {string(p.ToolInput), p.Digest}, "the event": {string(event.ToolInput), event.Digest},
	} {
		if got[0] != `{"n":2}` || got[1] != want {
			t.Errorf("%s has %s with the digest %s", what, got[0], got[1])
		}
	}
	if event.ApprovalID != p.ApprovalID || event.HookID != p.HookID || event.CallID != "c1" || event.ToolName != "once" || event.Message != "May it?" || event.ExpiresAt.IsZero() {
		t.Errorf("the event is %+v", event)
	}
	if c := w.detail(run).Calls[0]; c.Status != hob.CallWaiting || string(c.Arguments) != `{"n":2}` {
		t.Errorf("the call is %+v", c)
	}
	w.wantDid()
	w.decide(p, true, "")
	got := w.ends(run.ID)
	w.wantDid(`once{"n":2}`)
	if c := w.detail(got).Calls[0]; string(c.Arguments) != `{"n":2}` || c.Status != hob.CallDone {
		t.Errorf("the call is %+v", c)
	}
	resolved := told[hob.ApprovalResolvedEvent](w, run.ID, hob.EventApprovalResolved)
	if len(resolved) != 1 || !resolved[0].Approved || resolved[0].By != "service:" || resolved[0].ApprovalID != p.ApprovalID {
		t.Errorf("told is %+v", resolved)
	}
	if got.Attempt != 1 || got.Steps != 2 || got.Status != hob.Completed {
		t.Errorf("it ended as %s in attempt %d after %d steps", got.Status, got.Attempt, got.Steps)
	}
	d := w.detail(got)
	if d.Actions[hob.ActionModelCall] != 2 || d.Actions[hob.ActionToolCall] != 1 || d.Actions[hob.ActionRun] != 1 || got.Usage.TotalTokens == 0 {
		t.Errorf("on the books are %v and %+v", d.Actions, got.Usage)
	}
	var steps []int
	for _, s := range told[hob.StepStartedEvent](w, run.ID, hob.EventStepStarted) {
		steps = append(steps, s.Step)
	}
	if !slices.Equal(steps, []int{1, 2}) {
		t.Errorf("the steps are %v", steps)
	}
	w.valid(got)
}

func TestApproval_IsOfWhatWasShownAlone(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, once2, nil, []hob.Hook{approvalHook(hob.PreToolUse)}, "once")
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	open := w.rests(run.ID, 2)
	say := func(by hob.Principal, in engine.DecideInput) error {
		in.Run = run.ID
		_, err := w.engine.Decide(t.Context(), by, in)
		return err
	}
	e := refusedWith(t, say(person, engine.DecideInput{Approved: true}), hob.Invalid, "approval_ambiguous")
	if ids, _ := e.Details["approval_ids"].([]string); len(ids) != 2 {
		t.Errorf("the details are %v", e.Details)
	}
	e = refusedWith(t, say(person, engine.DecideInput{Call: "c1", Digest: open[1].Digest, Approved: true}), hob.Conflict, "approval_stale")
	if e.Details["input_digest"] != open[0].Digest {
		t.Errorf("the details are %v", e.Details)
	}
	refusedWith(t, say(person, engine.DecideInput{Approval: "appr_nobody"}), hob.NotFound, "approval_not_found")
	refusedWith(t, say(w.by, engine.DecideInput{Approval: open[0].ApprovalID, Approved: true}), hob.Forbidden, "not_an_approver")
	stranger := hob.Principal{Kind: hob.UserPrincipal, ID: "x", Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeRead, hob.ScopeApprove}}
	refusedWith(t, say(stranger, engine.DecideInput{Approval: open[0].ApprovalID, Approved: true}), hob.NotFound, "approval_not_found")
	for _, modified := range []string{`{"n":"x"}`, `[]`, `{"n":1,"n":2}`, `{"m":1}`} {
		refusedWith(t, say(person, engine.DecideInput{Call: "c1", Approved: true, ModifiedInput: json.RawMessage(modified)}), hob.Invalid, "modified_input_invalid")
	}
	refusedWith(t, say(person, engine.DecideInput{Call: "c1", ModifiedInput: json.RawMessage(`{"n":1}`)}), hob.Invalid, "modified_input_invalid")
	if err := say(person, engine.DecideInput{Call: "c1", Digest: open[0].Digest, Approved: true}); err != nil {
		t.Fatal(err)
	}
	e = refusedWith(t, say(person, engine.DecideInput{Call: "c1", Digest: open[0].Digest}), hob.Conflict, "approval_decided")
	if e.Details["status"] != hob.ApprovalApproved {
		t.Errorf("the details are %v", e.Details)
	}
	w.rests(run.ID, 1)
	if err := say(person, engine.DecideInput{Reason: "no more"}); err != nil { // the only one that is left
		t.Fatal(err)
	}
	w.ends(run.ID)
	w.wantDid(`once{"n":1}`)
	refusedWith(t, say(person, engine.DecideInput{Approved: true}), hob.Conflict, "approval_decided")
	refusedWith(t, say(person, engine.DecideInput{Call: "c2", Approved: true}), hob.Conflict, "approval_decided")
}

// An approver's own arguments are judged like a model's, before the decision is taken.
func TestApproval_AnApproversArgumentsAreJudgedByEveryRule(t *testing.T) {
	t.Parallel()
	deny := func(n int) hob.Rule {
		return hob.Rule{Condition: fmt.Sprintf("n IN [%d]", n), Message: fmt.Sprint("never ", n)}
	}
	w, _ := hooked(t, "call#c1: delegate {\"n\":1}\n---\ntext: done\n", nil, []hob.Hook{
		ruleHook(hob.PreToolUse, deny(2)), ruleHook(hob.OnDelegation, deny(3)), approvalHook(hob.PreToolUse),
		failing(ruleHook(hob.PreToolUse, hob.Rule{Condition: "s MATCHES y"}), hob.FailDeny),
	}, "delegate")
	w.tools.rules = map[string][]hob.Rule{"delegate": {deny(4)}}
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	p := w.rests(run.ID, 1)[0]
	for args, why := range map[string]string{
		`{"n":2}`: "is refused by a rule hook: never 2", `{"n":3}`: "is refused by a rule hook: never 3", `{"n":4}`: "is refused by a rule of the tool: never 4",
		fmt.Sprintf(`{"s":%q}`, tooLong): "cannot be judged by a rule hook, which denies then",
	} {
		_, err := w.engine.Decide(t.Context(), person, engine.DecideInput{Run: run.ID, Approval: p.ApprovalID, Approved: true, ModifiedInput: json.RawMessage(args)})
		if refusedWith(t, err, hob.Invalid, "modified_input_invalid"); err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%.20s: %v, want %s", args, err, why)
		}
	}
	w.decide(p, true, `{"n":5}`)
	w.ends(run.ID)
	w.wantDid(`delegate{"n":5}`)
}

// Whoever decided in the store itself, past the engine's checks, has not decided what policy forbids: the run judges again.
func TestApproval_TheRunJudgesAnApproversArgumentsItself(t *testing.T) {
	t.Parallel()
	deny := func(n int) hob.Rule {
		return hob.Rule{Condition: fmt.Sprintf("n IN [%d]", n), Message: fmt.Sprint("never ", n)}
	}
	for args, want := range map[string]string{
		`{"n":2}`: "Error: Blocked by hook — never 2", `{"n":3}`: "Delegation blocked: never 3", `{"n":4}`: "Error: Blocked by rule — never 4",
		`{"n":"x"}`: "Error: Input validation failed", `{"n":5}`: `delegate got {"n":5}`,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			w, _ := hooked(t, "call#c1: delegate {\"n\":1}\n---\ntext: done\n", nil,
				[]hob.Hook{ruleHook(hob.PreToolUse, deny(2)), ruleHook(hob.OnDelegation, deny(3)), approvalHook(hob.PreToolUse)}, "delegate")
			w.tools.rules = map[string][]hob.Rule{"delegate": {deny(4)}}
			w.begin(nil)
			run := w.start("go", hob.RunOptions{})
			p := w.rests(run.ID, 1)[0]
			if _, err := w.store.Decide(t.Context(), person, hob.Decision{Run: run.ID, Approval: p.ApprovalID, Approved: true, ModifiedInput: json.RawMessage(args)}); err != nil {
				t.Fatal(err)
			}
			w.engine.Wake()
			if got := w.detail(w.ends(run.ID)).Calls[0].Result.Text; !strings.HasPrefix(got, want) {
				t.Errorf("the result is %q, want %q", got, want)
			}
			if n := len(w.tools.calls()); n != map[bool]int{true: 1}[strings.HasPrefix(want, "delegate")] {
				t.Errorf("%d calls were carried out", n)
			}
		})
	}
}

// Several approvals of one call are asked for one after the other; who changes the arguments has them approved anew by those
// who were asked before.
func TestApproval_SeveralOfOneCall(t *testing.T) {
	t.Parallel()
	w, s := hooked(t, once1, nil, []hob.Hook{approvalHook(hob.PreToolUse), approvalHook(hob.PreToolUse), httpHook(hob.PreToolUse, "a")}, "once")
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	first := w.rests(run.ID, 1)[0]
	w.decide(first, true, "")
	second := w.rests(run.ID, 1)[0]
	if second.HookID == first.HookID || string(second.ToolInput) != `{"n":1}` {
		t.Errorf("the second approval is %+v", second)
	}
	w.decide(second, true, `{"n":2}`)
	again := w.rests(run.ID, 1)[0]
	if again.HookID != first.HookID || string(again.ToolInput) != `{"n":2}` || again.Digest == first.Digest {
		t.Errorf("the third approval is %+v", again)
	}
	w.decide(again, true, "")
	w.ends(run.ID)
	w.wantDid(`once{"n":2}`)
	if n := len(s.asked()); n != 2 { // about what the model wanted, and about what the second approver made of it
		t.Errorf("the http hook was asked %d times", n)
	}
	var ways []string
	for _, r := range told[hob.ApprovalResolvedEvent](w, run.ID, hob.EventApprovalResolved) {
		ways = append(ways, fmt.Sprintf("%s %s %s", r.Status, r.CallID, r.ModifiedInput))
	}
	if want := []string{"approved c1 ", `approved c1 {"n":2}`, "approved c1 "}; !slices.Equal(ways, want) {
		t.Errorf("told is %q, want %q", ways, want)
	}
}

func TestApproval_IsAskedForSoOftenAndNoMore(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, once1, nil, []hob.Hook{approvalHook(hob.PreToolUse), approvalHook(hob.PreToolUse)}, "once")
	w.limits.ApprovalRounds = 2
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	for n := range 4 { // each changes what the other agreed to
		w.decide(w.rests(run.ID, 1)[0], true, fmt.Sprintf(`{"n":%d}`, 2+n))
	}
	got := w.ends(run.ID)
	if text := w.detail(got).Calls[0].Result.Text; text != "Error: Blocked by hook — the arguments were changed again and again" {
		t.Errorf("the result is %q", text)
	}
	w.wantDid()
}

func TestApproval_SeveralInOneStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		decide []int // the order of the decisions, by call
		deny   int   // which one is denied; -1 for none
		before []string
		after  []string
	}{
		"exclusive ones keep their order": {
			script: "call#c0: once {\"n\":0}\ncall#c1: once {\"n\":1}\n---\ntext: done\n", decide: []int{1, 0}, deny: -1,
			after: []string{`once{"n":0}`, `once{"n":1}`},
		},
		"one that is denied lets the next go": {
			script: "call#c0: once {\"n\":0}\ncall#c1: once {\"n\":1}\n---\ntext: done\n", decide: []int{1, 0}, deny: 0, after: []string{`once{"n":1}`},
		},
		"what needs no approval does not wait, unless it is behind one that does": {
			script: "call#c2: read {\"n\":2}\ncall#c0: once {\"n\":0}\ncall#c3: keyed {\"n\":3}\ncall#c1: once {\"n\":1}\n---\ntext: done\n", decide: []int{1, 0}, deny: -1,
			before: []string{`read{"n":2}`}, after: []string{`read{"n":2}`, `once{"n":0}`, `keyed{"n":3}`, `once{"n":1}`},
		},
		"parallel ones go as soon as they may": {
			script: "call#c0: slow {\"n\":0}\ncall#c1: slow {\"n\":1}\ncall#c3: keyed {\"n\":3}\n---\ntext: done\n", decide: []int{1, 0}, deny: -1,
			before: []string{`keyed{"n":3}`}, after: []string{`keyed{"n":3}`, `slow{"n":1}`, `slow{"n":0}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := hooked(t, c.script, nil, []hob.Hook{about(approvalHook(hob.PreToolUse), "once|slow")}, "once", "read", "keyed", "slow")
			w.begin(nil)
			run := w.start("go", hob.RunOptions{})
			w.rests(run.ID, 2)
			w.wantDid(c.before...)
			for i, n := range c.decide {
				open := w.approvals(run.ID, hob.ApprovalPending)
				at := slices.IndexFunc(open, func(p hob.Approval) bool { return p.CallID == hob.CallID(fmt.Sprint("c", n)) })
				if w.decide(open[at], n != c.deny, ""); i == 0 {
					w.rests(run.ID, 1)
				}
			}
			got := w.ends(run.ID)
			w.wantDid(c.after...)
			if n := len(told[hob.ToolCallEvent](w, run.ID, hob.EventToolCall)); got.Attempt != 1 || n != strings.Count(c.script, "call#") {
				t.Errorf("attempt %d, and %d calls were announced", got.Attempt, n)
			}
			w.valid(got)
		})
	}
}

func TestApproval_AnOnDelegationOneIsAskedForBehindThatOfPreToolUse(t *testing.T) {
	t.Parallel()
	w, s := hooked(t, "call#c1: delegate {\"n\":1}\n---\ntext: done\n", nil, []hob.Hook{
		approvalHook(hob.OnDelegation), httpHook(hob.OnDelegation, "d"), approvalHook(hob.PreToolUse),
	}, "delegate")
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	p := w.rests(run.ID, 1)[0]
	if p.HookEvent != hob.PreToolUse || len(s.asked()) != 1 {
		t.Errorf("the first approval is of %s, after %d hooks", p.HookEvent, len(s.asked()))
	}
	w.decide(p, true, `{"n":2}`)
	if p = w.rests(run.ID, 1)[0]; p.HookEvent != hob.OnDelegation || string(p.ToolInput) != `{"n":2}` || p.Digest != hob.ApprovalDigest(run.ID, "c1", "delegate", p.ToolInput) {
		t.Errorf("the second approval is %+v", p)
	}
	w.decide(p, false, "")
	if text := w.detail(w.ends(run.ID)).Calls[0].Result.Text; text != "Delegation blocked: Denied by user: not now" {
		t.Errorf("the result is %q", text)
	}
	w.wantDid()
}

// shown is a tool that can tell what a call would change.
func TestApproval_ShowsWhatTheCallWouldChange(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, "call#c1: shown {\"n\":1}\ncall#c2: once {\"n\":2}\n---\ntext: done\n", nil, []hob.Hook{approvalHook(hob.PreToolUse)}, "shown", "once")
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	open := w.rests(run.ID, 2)
	if len(open[0].Preview) == 0 || open[1].Preview != nil {
		t.Errorf("the previews are %s and %s", open[0].Preview, open[1].Preview)
	}
	if e := told[hob.ApprovalRequestedEvent](w, run.ID, hob.EventApprovalRequested)[0]; string(e.Preview) != string(open[0].Preview) {
		t.Errorf("the event shows %s", e.Preview)
	}
	w.wantDid()
}

// Whoever is to be told that an approval waits is told from the store.
func TestApproval_TellsItsAddress(t *testing.T) {
	t.Parallel()
	h := approvalHook(hob.PreToolUse)
	h.Config.NotifyURL = address("notify")
	w, s := hooked(t, once1, nil, []hob.Hook{h}, "once")
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	p := w.rests(run.ID, 1)[0]
	due, err := w.store.DueDeliveries(t.Context(), time.Minute, 9)
	if err != nil || len(due) != 1 || due[0].URL != address("notify") || due[0].Event != hob.ApprovalRequested || len(s.asked()) != 0 {
		t.Fatalf("due are %+v, %v", due, err)
	}
	var body struct {
		Event string `json:"event"`
		hob.Approval
	}
	if err := json.Unmarshal(due[0].Body, &body); err != nil {
		t.Fatal(err)
	}
	if body.Event != hob.ApprovalRequested || body.ApprovalID != p.ApprovalID || body.Digest != p.Digest || body.ExpiresAt.IsZero() || body.Status != hob.ApprovalPending {
		t.Errorf("the body is %s", due[0].Body)
	}
}
