package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/client"
)

func TestApprovals(t *testing.T) {
	t.Parallel()
	peopleStages(t, func(p *peopleStage) {
		quiet := p.openQuiet()
		p.step("a call waits on one stream, is approved and goes on", approvedOnOneStream)
		p.step("what is refused, or expires, is not called", refusedCalls)
		p.step("an approver may change the arguments", changedArguments)
		p.step("several wait at once, each is decided once", severalAtOnce)
		p.step("of many who decide at once, one does", oneOfMany)
		p.step("only those who may decide", onlyApprovers)
		p.step("a run that is cancelled asks nobody", cancelledWhileWaiting)
		p.step("starts and answers may wait as well", startsAndAnswers)
		p.step("a reader leaves and comes back", leavesAndComesBack)
		p.step("somebody is notified", notified)
		p.step("what waits survives a kill", survivesAKill)
		p.step("a stream that waits is kept alive", quiet)
		p.step("the audit log holds", (*peopleStage).audited)
	})
}

// approvedOnOneStream reads the run's own connection through the wait.
func approvedOnOneStream(p *peopleStage) {
	agent := p.agent("one_stream", mailing("one_stream"), nil, nil)
	hook := p.guard(agent, client.HookConfigInput{Message: "May it write?"})
	var asked hob.ApprovalRequestedEvent
	events := p.stream(agent, func(e hob.Event) {
		if e.Type != hob.EventApprovalRequested {
			return
		}
		p.must(json.Unmarshal(e.Data, &asked))
		if got := p.done("one_stream"); len(got) != 0 {
			p.t.Errorf("the tool was called before anybody had decided: %q", got)
		}
		run := runOf(p.t, e)
		p.resting(run)
		waiting, err := p.c.Approvals(p.t.Context(), run, hob.ApprovalPending)
		p.must(err)
		if len(waiting) != 1 || waiting[0].ApprovalID != asked.ApprovalID || !waiting[0].CanDecide || waiting[0].HookID != hook.ID ||
			waiting[0].Digest != asked.Digest || string(waiting[0].ToolInput) != calling {
			p.t.Errorf("the run waits for %+v, and its log says %+v", waiting, asked)
		}
		decided := p.decide(run, client.Decision{Approved: true, ApprovalID: asked.ApprovalID, Digest: asked.Digest, Reason: "fine"})
		if decided.Status != hob.ApprovalApproved || !strings.HasPrefix(decided.DecidedBy, "service:") || decided.DecidedAt.IsZero() {
			p.t.Errorf("the answer has %+v", decided)
		}
	})
	if asked.Message != "May it write?" || asked.ToolName != "one_stream" || asked.ExpiresAt.IsZero() {
		p.t.Errorf("the log asks %+v", asked)
	}
	checkLog(p.t, nil, events)
	resolved := of[hob.ApprovalResolvedEvent](p.t, events, hob.EventApprovalResolved)
	if len(resolved) != 1 || !resolved[0].Approved || !strings.HasPrefix(resolved[0].By, "service:") || resolved[0].Reason != "fine" || resolved[0].ApprovalID != asked.ApprovalID {
		p.t.Errorf("the log says that it became %+v", resolved)
	}
	if diff := cmp.Diff([]string{calling}, p.done("one_stream")); diff != "" {
		p.t.Errorf("calls (-want +got):\n%s", diff)
	}
	end := of[hob.CompleteEvent](p.t, events, hob.EventComplete)[0]
	var steps []int
	for _, s := range of[hob.StepStartedEvent](p.t, events, hob.EventStepStarted) {
		steps = append(steps, s.Step)
	}
	if diff := cmp.Diff([]int{1, 2}, steps); diff != "" || end.Steps != 2 {
		p.t.Errorf("it has %d steps (-want +started):\n%s", end.Steps, diff)
	}
	if end.Status != hob.Completed || end.Content != "I read: did "+calling || slices.ContainsFunc(events, func(e hob.Event) bool { return e.Type == hob.EventAttempt }) {
		p.t.Errorf("it ends %+v; an attempt that is told is one too many", end)
	}
	_, err := p.c.Approve(p.t.Context(), runOf(p.t, events[0]), client.Decision{Approved: false, ApprovalID: asked.ApprovalID})
	p.refuses("a second decision", err, hob.Conflict, "approval_decided")
}

// resting waits until a run is at rest.
func (p *peopleStage) resting(run hob.RunID) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		r, err := p.c.RunRecord(p.t.Context(), run)
		p.must(err)
		if r.Status == hob.AwaitingApproval {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("the run is %s, and should wait", r.Status)
		}
	}
}

// openQuiet opens a stream of a run that waits, and gives the step that looks what came of it: comments that keep it alive,
// and then the rest, on the same connection.
func (p *peopleStage) openQuiet() func(*peopleStage) {
	p.t.Helper()
	agent := p.agent("quiet", mailing("quiet"), nil, nil)
	p.guard(agent, client.HookConfigInput{})
	r, asked := p.waits(agent)
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.s.url+"/api/agents/runs/"+string(r.RunID)+"/events", nil)
	p.must(err)
	req.Header.Set("Authorization", "Bearer "+p.key())
	res, err := http.DefaultClient.Do(req)
	p.must(err)
	var mu sync.Mutex
	var text strings.Builder
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer res.Body.Close()
		buffer := make([]byte, 4096)
		for {
			n, err := res.Body.Read(buffer)
			mu.Lock()
			text.Write(buffer[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	read := func() string { mu.Lock(); defer mu.Unlock(); return text.String() }
	return func(p *peopleStage) {
		for end := time.Now().Add(patience); !strings.Contains(read(), ": keepalive\n\n"); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				p.t.Fatalf("nothing keeps the stream alive:\n%s", read())
			}
		}
		p.decide(r.RunID, client.Decision{Approved: true, CallID: asked[0].CallID})
		select {
		case <-ended:
		case <-time.After(patience):
			p.t.Fatalf("the stream does not end:\n%s", read())
		}
		mustContain(p.t, "the stream behind the wait", read()[strings.Index(read(), ": keepalive"):],
			`"event":"approval_resolved"`, `"event":"tool_result"`, `"status":"completed"`)
	}
}

func refusedCalls(p *peopleStage) {
	short, zero := 0.4, 0.0
	for name, tt := range map[string]struct {
		config client.HookConfigInput
		reason string
		decide bool
		status hob.ApprovalStatus
		reads  string
	}{
		"no_reason": {client.HookConfigInput{Timeout: &zero}, "", true, hob.ApprovalDenied, "Error: Blocked by hook — Denied by user"},
		"a_reason":  {client.HookConfigInput{}, "not on a Sunday", true, hob.ApprovalDenied, "Error: Blocked by hook — Denied by user: not on a Sunday"},
		"too_late":  {client.HookConfigInput{Timeout: &short}, "", false, hob.ApprovalExpired, "Error: Blocked by hook — Approval timed out"},
	} {
		agent := p.agent(name, mailing(name), nil, nil)
		p.guard(agent, tt.config)
		r, asked := p.asks(agent)
		if asked[0].ExpiresAt.IsZero() != (tt.config.Timeout == &zero) {
			p.t.Errorf("%s: it expires at %v", name, asked[0].ExpiresAt)
		}
		if tt.decide {
			p.decide(r.RunID, client.Decision{Reason: tt.reason, ApprovalID: asked[0].ApprovalID})
		}
		record := p.completes(r.RunID)
		if got := record.ToolCalls[0]; got.Result != tt.reads || !got.IsError || len(p.done(name)) != 0 {
			p.t.Errorf("%s: the model reads %q, and the tool was called %d times", name, got.Result, len(p.done(name)))
		}
		a, err := p.c.Approval(p.t.Context(), asked[0].ApprovalID)
		p.must(err)
		if a.Status != tt.status || a.Reason != tt.reason || a.CanDecide {
			p.t.Errorf("%s: the approval became %+v", name, a)
		}
		_, err = p.c.Approve(p.t.Context(), r.RunID, client.Decision{Approved: true, ApprovalID: a.ApprovalID})
		want := map[hob.ApprovalStatus]string{hob.ApprovalDenied: "approval_decided", hob.ApprovalExpired: "approval_expired"}[tt.status]
		p.refuses(name+": a decision behind it", err, hob.Conflict, want)
		if len(p.done(name)) != 0 {
			p.t.Errorf("%s: the late decision called the tool", name)
		}
	}
}

func changedArguments(p *peopleStage) {
	rules, err := json.Marshal(map[string]any{"rules": []hob.Rule{{Condition: "to STARTS_WITH boss"}}})
	p.must(err)
	agent := p.agent("changed", mailing("changed"), nil, rules)
	p.guard(agent, client.HookConfigInput{})
	r, asked := p.waits(agent)
	for args, why := range map[string]string{`{"n":"x"}`: "schema", `{"to":"boss"}`: "rule", `{"who":"x"}`: "schema"} {
		_, err := p.c.Approve(p.t.Context(), r.RunID, client.Decision{Approved: true, ModifiedInput: json.RawMessage(args)})
		if hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), why) {
			p.t.Errorf("%s in place of the arguments: %v, want a refusal that names the %s", args, err, why)
		}
	}
	_, err = p.c.Approve(p.t.Context(), r.RunID, client.Decision{Approved: true, Digest: strings.Repeat("0", 64)})
	p.refuses("a decision about something else", err, hob.Conflict, "approval_stale")
	decided := p.decide(r.RunID, client.Decision{Approved: true, Digest: asked[0].Digest, ModifiedInput: json.RawMessage(`{"to":"carol","n":2}`)})
	record := p.completes(r.RunID)
	const want = `{"n":2,"to":"carol"}`
	if diff := cmp.Diff([]string{want}, p.done("changed")); diff != "" {
		p.t.Errorf("calls (-want +got):\n%s", diff)
	}
	if string(decided.ModifiedInput) != want || string(record.ToolCalls[0].Arguments) != want || string(decided.ToolInput) != calling {
		p.t.Errorf("the approval has %s for %s, the record %s", decided.ModifiedInput, decided.ToolInput, record.ToolCalls[0].Arguments)
	}
}

func severalAtOnce(p *peopleStage) {
	agent := p.agent("several", `call: several {"n":1}
call: several {"n":2}
call: several {"n":3}
---
text: Done.`, nil, nil)
	p.guard(agent, client.HookConfigInput{})
	r, asked := p.waits(agent)
	if len(asked) != 3 {
		p.t.Fatalf("the run waits for %d approvals, want 3", len(asked))
	}
	_, err := p.c.Approve(p.t.Context(), r.RunID, client.Decision{Approved: true})
	p.refuses("a decision that names none of several", err, hob.Invalid, "approval_ambiguous")
	inbox, err := p.c.Inbox(p.t.Context(), client.InboxQuery{Status: hob.ApprovalPending, Agent: agent})
	p.must(err)
	if inbox.Total != 3 || len(inbox.Approvals) != 3 || inbox.Approvals[0].ApprovalID != asked[0].ApprovalID {
		p.t.Errorf("the inbox has %d of %d", len(inbox.Approvals), inbox.Total)
	}
	p.decide(r.RunID, client.Decision{ApprovalID: asked[1].ApprovalID, Reason: "no"})
	p.decide(r.RunID, client.Decision{Approved: true, CallID: asked[2].CallID})
	p.decide(r.RunID, client.Decision{Approved: true}) // the only one that is left
	record := p.completes(r.RunID)
	got := p.done("several")
	slices.Sort(got)
	if diff := cmp.Diff([]string{`{"n":1}`, `{"n":3}`}, got); diff != "" {
		p.t.Errorf("calls (-want +got):\n%s", diff)
	}
	if len(record.ToolCalls) != 3 || !record.ToolCalls[1].IsError || record.ToolCalls[0].IsError || record.ToolCalls[2].IsError {
		p.t.Errorf("the record has %+v", record.ToolCalls)
	}
}

// oneOfMany has clients decide at once: exactly one is taken, and what it said counts.
func oneOfMany(p *peopleStage) {
	agent := p.agent("race", mailing("race"), nil, nil)
	p.guard(agent, client.HookConfigInput{})
	called := 0
	for range 3 {
		r, asked := p.waits(agent)
		var taken atomic.Int32
		var approved atomic.Bool
		var group sync.WaitGroup
		for i := range 6 {
			group.Go(func() {
				a, err := p.c.Approve(context.WithoutCancel(p.t.Context()), r.RunID, client.Decision{Approved: i%2 == 0, ApprovalID: asked[0].ApprovalID})
				var e *hob.Error
				switch {
				case err == nil:
					taken.Add(1)
					approved.Store(a.Status == hob.ApprovalApproved)
				case !errors.As(err, &e) || e.Code != "approval_decided":
					p.root.Errorf("a decision that came too late: %v", err)
				}
			})
		}
		group.Wait()
		record := p.completes(r.RunID)
		if approved.Load() {
			called++
		}
		if taken.Load() != 1 || record.ToolCalls[0].IsError == approved.Load() || len(p.done("race")) != called {
			p.t.Errorf("%d decisions were taken, approved: %t; the tool was called %d times, want %d", taken.Load(), approved.Load(), len(p.done("race")), called)
		}
	}
}

// as makes a key with scopes, and a client with it.
func (p *peopleStage) as(name string, scopes ...hob.Scope) (*client.Client, string) {
	p.t.Helper()
	k, err := p.c.CreateKey(p.t.Context(), client.KeyInput{Name: name, Scopes: scopes})
	p.must(err)
	c := client.New(p.s.url, k.Secret)
	p.root.Cleanup(c.Close)
	return c, "key:" + string(k.ID)
}

func onlyApprovers(p *peopleStage) {
	ctx := p.t.Context()
	starter, starterName := p.as("starter", hob.ScopeRead, hob.ScopeRun, hob.ScopeApprove)
	boss, bossName := p.as("boss", hob.ScopeApprove)
	stranger, _ := p.as("stranger", hob.ScopeRead, hob.ScopeApprove)
	powerless, _ := p.as("powerless", hob.ScopeRead, hob.ScopeRun)
	agent := p.agent("rights", mailing("rights"), nil, nil)
	p.guard(agent, client.HookConfigInput{Approvers: []string{"owner", bossName}, FourEyes: true})
	r, err := starter.Run(ctx, agent, client.RunRequest{Message: "go", Tools: true})
	p.must(err)
	asked := r.Approvals
	if len(asked) != 1 || asked[0].RequestedBy != starterName || asked[0].CanDecide {
		p.t.Fatalf("the starter is shown %+v", asked)
	}
	yes := client.Decision{Approved: true, ApprovalID: asked[0].ApprovalID}
	_, err = starter.Approve(ctx, r.RunID, yes)
	p.refuses("who started the run, where four eyes are needed", err, hob.Forbidden, "four_eyes")
	_, err = p.c.Approve(ctx, r.RunID, yes)
	p.refuses("the service key, which is not among the approvers", err, hob.Forbidden, "not_an_approver")
	_, err = stranger.Approve(ctx, r.RunID, yes)
	p.refuses("a stranger", err, hob.NotFound, "approval_not_found")
	if _, err = powerless.Approve(ctx, r.RunID, yes); hob.KindOf(err) != hob.Forbidden {
		p.t.Errorf("a key without the scope: %v", err)
	}
	for who, c := range map[string]*client.Client{"boss": boss, "starter": starter, "stranger": stranger} {
		list, err := c.Inbox(ctx, client.InboxQuery{Status: hob.ApprovalPending, Run: r.RunID})
		p.must(err)
		if sees := len(list.Approvals) == 1; sees != (who != "stranger") || sees && list.Approvals[0].CanDecide != (who == "boss") {
			p.t.Errorf("the %s's inbox has %+v", who, list.Approvals)
		}
	}
	if len(p.done("rights")) != 0 {
		p.t.Error("a refused decision called the tool")
	}
	a, err := boss.Approve(ctx, r.RunID, yes)
	p.must(err)
	if p.completes(r.RunID); a.DecidedBy != bossName || len(p.done("rights")) != 1 {
		p.t.Errorf("decided by %s; the tool was called %d times", a.DecidedBy, len(p.done("rights")))
	}
}

func cancelledWhileWaiting(p *peopleStage) {
	agent := p.agent("cancelled", mailing("cancelled"), nil, nil)
	p.guard(agent, client.HookConfigInput{})
	r, asked := p.waits(agent)
	_, err := p.c.Cancel(p.t.Context(), r.RunID)
	p.must(err)
	_, err = p.c.Approve(p.t.Context(), r.RunID, client.Decision{Approved: true, ApprovalID: asked[0].ApprovalID})
	p.refuses("a decision behind a cancel", err, hob.Conflict, "approval_cancelled")
	waitFor(p.t, p.c, r.RunID, hob.Cancelled)
	a, err := p.c.Approval(p.t.Context(), asked[0].ApprovalID)
	p.must(err)
	if a.Status != hob.ApprovalCancelled || len(p.done("cancelled")) != 0 {
		p.t.Errorf("the approval is %s, the tool was called %d times", a.Status, len(p.done("cancelled")))
	}
}

func startsAndAnswers(p *peopleStage) {
	agent := p.agent("gates", mailing("gates"), map[string]any{"response_buffering": "hold"}, nil)
	for _, e := range []hob.HookEvent{hob.OnRunStart, hob.PreResponse} {
		p.hook(agent, client.HookInput{Event: e, Type: hob.ApprovalHook, Config: client.HookConfigInput{Message: string(e)}})
	}
	r, asked := p.waits(agent)
	if a := asked[0]; a.HookEvent != hob.OnRunStart || a.ToolName != "" || string(a.ToolInput) != `{"message":"go"}` || len(p.done("gates")) != 0 {
		p.t.Errorf("the start waits for %+v", a)
	}
	p.decide(r.RunID, client.Decision{Approved: true})
	p.restingAgain(r.RunID, 2)
	asked, err := p.c.Approvals(p.t.Context(), r.RunID, hob.ApprovalPending)
	p.must(err)
	if len(asked) != 1 || asked[0].HookEvent != hob.PreResponse || asked[0].Output != "I read: did "+calling {
		p.t.Fatalf("the answer waits for %+v", asked)
	}
	p.decide(r.RunID, client.Decision{Reason: "too short"})
	record := p.completes(r.RunID)
	if want := "[Response blocked: Denied by user: too short]"; record.Content != want || len(p.done("gates")) != 1 {
		p.t.Errorf("the answer is %q, want %q; the tool was called %d times", record.Content, want, len(p.done("gates")))
	}
	refused, _ := p.waits(agent)
	p.decide(refused.RunID, client.Decision{Reason: "closed"})
	if end := waitFor(p.t, p.c, refused.RunID, hob.Failed); end.Code == nil || *end.Code != hob.CodeHookBlocked || !strings.Contains(*end.Error, "closed") {
		p.t.Errorf("the refused run ended %v %v", end.Code, end.Error)
	}
}

// restingAgain waits until a run rests for its n-th approval.
func (p *peopleStage) restingAgain(run hob.RunID, n int) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		all, err := p.c.Approvals(p.t.Context(), run, "")
		p.must(err)
		if len(all) == n {
			p.resting(run)
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("the run has asked for %d approvals, want %d", len(all), n)
		}
	}
}

// leavesAndComesBack reads up to the wait, leaves, and reads on behind the last event it saw once it is decided.
func leavesAndComesBack(p *peopleStage) {
	agent := p.agent("comes_back", mailing("comes_back"), nil, nil)
	p.guard(agent, client.HookConfigInput{})
	ctx, leave := context.WithCancel(p.t.Context())
	defer leave()
	var before []hob.Event
	var run hob.RunID
	for e, err := range p.c.RunStream(ctx, agent, client.RunRequest{Message: "go"}) {
		p.must(err)
		before = append(before, e)
		if e.Type == hob.EventApprovalRequested {
			run = runOf(p.t, e)
			break
		}
	}
	leave()
	p.resting(run)
	p.decide(run, client.Decision{Approved: true})
	p.completes(run)
	all := slices.Clone(before)
	for e, err := range p.c.Events(p.t.Context(), run, before[len(before)-1].Seq) {
		p.must(err)
		all = append(all, e)
	}
	checkLog(p.t, before, all)
	if len(all) == len(before) || all[len(all)-1].Type != hob.EventComplete || len(p.done("comes_back")) != 1 {
		p.t.Errorf("%d events came behind the wait; the tool was called %d times", len(all)-len(before), len(p.done("comes_back")))
	}
}

func notified(p *peopleStage) {
	agent := p.agent("notify", mailing("notify"), nil, nil)
	hook := p.guard(agent, client.HookConfigInput{NotifyURL: p.at + "/notify", Message: "Look at this"})
	r, asked := p.waits(agent)
	got := p.eventually("/notify", 1)[0]
	var body struct {
		Event string `json:"event"`
		hob.Approval
	}
	p.must(json.Unmarshal([]byte(got.body), &body))
	if got.event != hob.ApprovalRequested || body.Event != hob.ApprovalRequested || body.ApprovalID != asked[0].ApprovalID || body.RunID != r.RunID ||
		string(body.ToolInput) != calling || body.Message != "Look at this" || body.Digest != asked[0].Digest {
		p.t.Errorf("it is told %s: %s", got.event, got.body)
	}
	p.decide(r.RunID, client.Decision{})
	p.completes(r.RunID)
	list, err := p.c.Deliveries(p.t.Context(), agent, hook.ID, 0)
	p.must(err)
	if len(list) != 1 || list[0].ID != got.delivery || list[0].Status != hob.DeliveryDelivered || list[0].Attempts != 1 {
		p.t.Errorf("the deliveries are %+v", list)
	}
}

// survivesAKill kills a server of its own: what was asked before is there behind it, is decided then, and happens once; what
// was to be told is told.
func survivesAKill(p *peopleStage) {
	t := p.t
	database := ""
	if p.in.env["HOB_DATABASE_URL"] != "" {
		database = databases(t)["postgres"]
	}
	p = newPeopleStage(t, database)
	short := 1.0
	waiting, decided := p.agent("waiting", mailing("waiting"), nil, nil), p.agent("decided", mailing("decided"), nil, nil)
	expiring, ending := p.agent("expiring", mailing("expiring"), nil, nil), p.agent("ending", "text: done", nil, nil)
	p.guard(waiting, client.HookConfigInput{NotifyURL: p.at + "/late-notice"})
	p.guard(decided, client.HookConfigInput{})
	p.guard(expiring, client.HookConfigInput{Timeout: &short})
	told := p.tell(ending, hob.OnRunComplete, "/ending")
	var up atomic.Bool
	for _, path := range []string{"/ending", "/late-notice"} {
		p.answering(path, func(heard) (int, string) {
			if up.Load() {
				return http.StatusOK, ""
			}
			return http.StatusServiceUnavailable, ""
		})
	}

	done := p.stream(ending, nil)
	first := p.eventually("/ending", 1)[0]
	w, asked := p.waits(waiting)
	p.eventually("/late-notice", 1)
	d, _ := p.waits(decided)
	e, _ := p.asks(expiring)
	p.decide(d.RunID, client.Decision{Approved: true})
	p.s.kill() // the decision stands; its call may be anywhere
	up.Store(true)
	p.serve()

	inbox, err := p.c.Inbox(t.Context(), client.InboxQuery{Status: hob.ApprovalPending})
	p.must(err)
	if !slices.ContainsFunc(inbox.Approvals, func(a hob.Approval) bool {
		return a.ApprovalID == asked[0].ApprovalID && a.Digest == asked[0].Digest && a.CanDecide
	}) {
		t.Fatalf("behind the kill the inbox has %+v", inbox.Approvals)
	}
	p.decide(w.RunID, client.Decision{Approved: true, ApprovalID: asked[0].ApprovalID})
	if r := p.completes(w.RunID); r.Attempt != 1 || len(p.done("waiting")) != 1 {
		t.Errorf("the run that waited ends in attempt %d; its tool was called %d times", r.Attempt, len(p.done("waiting")))
	}
	if r := p.completes(d.RunID); len(p.done("decided")) != 1 && (len(p.done("decided")) != 0 || !r.ToolCalls[0].OutcomeUnknown) {
		t.Errorf("the decided call reached its tool %d times, outcome unknown: %t", len(p.done("decided")), r.ToolCalls[0].OutcomeUnknown)
	}
	if r := p.completes(e.RunID); !strings.Contains(r.ToolCalls[0].Result, "Approval timed out") || len(p.done("expiring")) != 0 {
		t.Errorf("what expired reads %q, and its tool was called %d times", r.ToolCalls[0].Result, len(p.done("expiring")))
	}

	again := p.eventually("/ending", 2)[1]
	if again.delivery != first.delivery || again.body != first.body || again.attempt != first.attempt+1 {
		t.Errorf("told first %+v, then %+v", first, again)
	}
	if notices := p.eventually("/late-notice", 2); notices[0].delivery != notices[1].delivery {
		t.Errorf("the notices are %+v", notices)
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		list, err := p.c.Deliveries(t.Context(), ending, told.ID, 0)
		p.must(err)
		if len(list) == 1 && list[0].Status == hob.DeliveryDelivered && list[0].Run == runOf(t, done[0]) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the deliveries are %+v", list)
		}
	}
	p.audited()
}

// Two servers share one Postgres: one drives, the other is where people decide.
func TestApprovals_AreDecidedAtAnotherServer(t *testing.T) {
	t.Parallel()
	database, both := databases(t)["postgres"]
	if !both {
		return // the quick tests know SQLite alone, which has one server
	}
	p := newPeopleStage(t, database)
	agent := p.agent("elsewhere", mailing("elsewhere"), nil, nil)
	p.guard(agent, client.HookConfigInput{})
	second := install(t, p.in.env)
	second.args, second.env["HOB_DATA"], second.env["HOB_ADDR"] = p.in.args, second.dir, "127.0.0.1:0"
	other := second.serve().client()
	events := p.stream(agent, func(e hob.Event) {
		if e.Type == hob.EventApprovalRequested {
			p.resting(runOf(t, e))
			_, err := other.Approve(t.Context(), runOf(t, e), client.Decision{Approved: true})
			p.must(err)
		}
	})
	end := of[hob.CompleteEvent](t, events, hob.EventComplete)[0]
	if end.Status != hob.Completed || len(p.done("elsewhere")) != 1 {
		t.Errorf("the run is %s; the tool was called %d times", end.Status, len(p.done("elsewhere")))
	}
	p.audited()
}
