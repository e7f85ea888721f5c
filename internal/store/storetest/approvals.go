package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hob"
)

func approvalCases() map[string]func(*world) {
	return map[string]func(*world){
		"ApprovalsAreKeptWhole":                      approvalsKept,
		"ApprovalsAreListedForThoseWhoMaySeeThem":    approvalsSeen,
		"ApprovalsListIsNarrowed":                    approvalsNarrowed,
		"ADecisionIsMadeOnce":                        decidedOnce,
		"ADecisionIsForThoseWhoAreAsked":             decidedByApprovers,
		"AKeyOfTheRequestersOwnIsNoSecondPairOfEyes": decidedByAnotherHand,
		"AnApprovalExpiresByItself":                  approvalExpires,
		"TheRunsCommitsSayWhatBecameOfAnApproval":    approvalSettled,
		"WhatAnEndedRunAskedIsCancelled":             approvalsCancelled,
		"OneOfManyDecisionsAtTheSameTimeIsTheOnly":   decisionsAtOnce,
	}
}

// pending is an approval that a run asks for.
func pending(id string, approvers ...string) hob.Approval {
	return hob.Approval{
		ApprovalID: id, HookID: "h", HookEvent: hob.PreToolUse, CallID: "c", ToolName: "shell", Status: hob.ApprovalPending,
		Approvers: approvers, ToolInput: json.RawMessage(`{}`),
	}
}

// ask is the commit with which a run asks people, and rests.
func ask(r hob.Run, list ...hob.Approval) hob.RunCommit {
	c := step(r, event(r.LastSeq+1, hob.EventApprovalRequested, ""))
	c.Approvals, c.Outcome = list, &hob.Outcome{Status: hob.AwaitingApproval}
	return c
}

// asking is a run of alice that waits for her to decide.
func (w *world) asking(ids ...string) hob.Run {
	w.t.Helper()
	r := w.begin(w.alice, hob.NewSessionID())
	list := make([]hob.Approval, len(ids))
	for i, id := range ids {
		list[i] = pending(id, hob.ApproverOwner)
	}
	w.must(w.s.Commit(w.ctx, ask(r, list...)))
	return r
}

func (w *world) decide(by hob.Principal, r hob.Run, id string) hob.Approval {
	w.t.Helper()
	a, err := w.s.Decide(w.ctx, by, hob.Decision{Run: r.ID, Approval: id, Approved: true})
	w.must(err)
	return a
}

// statuses are those of a run's approvals, in order.
func (w *world) statuses(id hob.RunID) string {
	w.t.Helper()
	st, err := w.s.Load(w.ctx, id)
	w.must(err)
	var list []hob.ApprovalStatus
	for _, a := range st.Approvals {
		list = append(list, a.Status)
	}
	return fmt.Sprint(list)
}

// status is the run's.
func (w *world) status(id hob.RunID) hob.Status {
	w.t.Helper()
	r, err := w.s.Run(w.ctx, w.service, id)
	w.must(err)
	return r.Status
}

func approvalsKept(w *world) {
	r := w.begin(w.alice, "s")
	full := hob.Approval{
		ApprovalID: "appr_1", HookID: hob.HookID(hob.NewUUID()), HookEvent: hob.PreToolUse, CallID: "call_1", ToolName: "shell",
		ToolInput: json.RawMessage(`{"cmd":"rm -r <x>","n":1.50}`), Preview: json.RawMessage(`{"diff":"-a"}`), Digest: "d1", Message: "May it?",
		Status: hob.ApprovalPending, Approvers: []string{hob.ApproverOwner, "user:" + w.bob.ID}, FourEyes: false, Timeout: time.Hour,
	}
	bare := hob.Approval{ApprovalID: "appr_2", HookEvent: hob.PreResponse, Status: hob.ApprovalPending, Output: "the answer", FourEyes: true}
	w.must(w.s.Commit(w.ctx, ask(r, full, bare)))

	for i, a := range []*hob.Approval{&full, &bare} {
		a.RunID, a.SessionID, a.AgentID, a.Workspace = r.ID, "s", w.agent.ID, hob.DefaultWorkspace
		a.RequestedBy, a.Owner = w.alice.Name(), w.alice.Owner()
		if a.Timeout = 0; i == 1 {
			a.ToolInput, a.Approvers = json.RawMessage(`{}`), []string{}
		}
	}
	check := func(what string, got []hob.Approval) {
		w.t.Helper()
		if d := cmp.Diff([]hob.Approval{full, bare}, got, cmpopts.IgnoreFields(hob.Approval{}, "CreatedAt", "ExpiresAt")); d != "" {
			w.t.Fatalf("-want +%s:\n%s", what, d)
		}
		left := time.Until(got[0].ExpiresAt.Time)
		if left < 50*time.Minute || left > 70*time.Minute || !got[1].ExpiresAt.IsZero() || time.Since(got[0].CreatedAt.Time) > time.Minute {
			w.t.Fatalf("%s: times of %+v", what, got)
		}
	}
	st, err := w.s.Load(w.ctx, r.ID)
	w.must(err)
	check("loaded", st.Approvals)
	full.CanDecide = true // nobody is named for the other one
	page, err := w.s.Approvals(w.ctx, w.alice, hob.ApprovalFilter{})
	w.must(err)
	same(w, "the answer, for who may not decide about it", page.Items[1].Output, "")
	page.Items[1].Output = bare.Output // which the run keeps
	check("listed", page.Items)

	got, err := w.s.Decide(w.ctx, w.bob, hob.Decision{
		Run: r.ID, Approval: "appr_1", Approved: true, Reason: "but gently", ModifiedInput: json.RawMessage(`{"cmd":"rm x"}`),
	})
	w.must(err)
	full.Status, full.Reason, full.ModifiedInput, full.DecidedBy, full.CanDecide = hob.ApprovalApproved, "but gently", json.RawMessage(`{"cmd":"rm x"}`), w.bob.Name(), false
	full.DecidedAt = got.DecidedAt
	if time.Since(got.DecidedAt.Time).Abs() > time.Minute {
		w.t.Fatalf("decided at %v", got.DecidedAt)
	}
	check("decided", []hob.Approval{got, page.Items[1]})
	st, err = w.s.Load(w.ctx, r.ID)
	w.must(err)
	check("loaded after the decision", st.Approvals)
	// The same commit again adds nothing: its run is not in that place any more.
	w.want(hob.Fenced, w.s.Commit(w.ctx, ask(r, full)))
	// An id is one run's.
	other := w.begin(w.bob, "t")
	if err := w.s.Commit(w.ctx, ask(other, pending("appr_1"))); err == nil {
		w.t.Fatal("an approval of another run was taken over")
	}
}

// approvalsSeen compares the list with the rule of hob.MaySee, for everybody and every kind of approval.
func approvalsSeen(w *world) {
	odd := hob.Principal{Kind: hob.UserPrincipal, ID: `x","any"`, Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeRead}}
	reader := w.bob
	reader.Scopes = []hob.Scope{hob.ScopeRead}
	bound := w.boundTo(w.other.ID)
	principals := []hob.Principal{w.service, w.alice, w.bob, w.key, w.stranger, reader, odd, bound, w.boundTo(w.agent.ID)}
	var all []hob.Approval
	n := 0
	for _, by := range []hob.Principal{w.alice, w.key, w.service} {
		for _, agent := range []hob.AgentID{w.agent.ID, w.other.ID} {
			r := w.start(w.newRun(by, agent, hob.NewSessionID()))
			var list []hob.Approval
			for _, names := range [][]string{
				nil,
				{hob.ApproverOwner},
				{hob.ApproverAdmins},
				{hob.ApproverAny},
				{"user:other", "user:" + w.bob.ID},
				{odd.Name()},
				{`user:"any`, `user:["any"]`, `user:any`},
				{"user:" + w.bob.ID + "0"},
				{bound.Name(), hob.ApproverOwner},
			} {
				n++
				a := pending(fmt.Sprint("a", n), names...)
				a.FourEyes = n%2 == 0
				list = append(list, a)
			}
			w.must(w.s.Commit(w.ctx, ask(r, list...)))
			st, err := w.s.Load(w.ctx, r.ID)
			w.must(err)
			all = append(all, st.Approvals...)
		}
	}
	seen := 0
	for _, p := range principals {
		var want []string
		for _, a := range all {
			if hob.MaySee(p, &a) {
				want = append(want, fmt.Sprint(a.ApprovalID, hob.MayDecide(p, &a) == nil))
			}
		}
		page, err := w.s.Approvals(w.ctx, p, hob.ApprovalFilter{Limit: 1000})
		w.must(err)
		var got []string
		for _, a := range page.Items {
			got = append(got, fmt.Sprint(a.ApprovalID, a.CanDecide))
		}
		if d := cmp.Diff(want, got); d != "" {
			w.t.Errorf("%s %v: -may see +listed:\n%s", p.Name(), p.Scopes, d)
		}
		same(w, "total", page.Total, int64(len(want)))
		seen += len(want)
	}
	same(w, "sightings of all, as the service key's", seen > len(all), true)
}

func approvalsNarrowed(w *world) {
	old := w.asking("a1", "a2")
	other := w.start(w.newRun(w.alice, w.other.ID, "other"))
	brief1 := pending("b1", hob.ApproverOwner)
	brief1.Timeout = brief
	w.must(w.s.Commit(w.ctx, ask(other, brief1, pending("b2", hob.ApproverOwner))))
	w.decide(w.alice, old, "a2")
	_, err := w.s.Decide(w.ctx, w.alice, hob.Decision{Run: other.ID, Approval: "b2"})
	w.must(err)
	ended := w.asking("c1")
	c := step(ended)
	c.Outcome = &hob.Outcome{Status: hob.Cancelled, Code: hob.CodeCancelled}
	w.must(w.s.Commit(w.ctx, c))
	over()
	for _, tt := range []struct {
		f     hob.ApprovalFilter
		want  string
		total int64
	}{
		{hob.ApprovalFilter{}, "[a1 a2 b1 b2 c1]", 5},
		{hob.ApprovalFilter{Status: hob.ApprovalPending}, "[a1]", 1},
		{hob.ApprovalFilter{Status: hob.ApprovalExpired}, "[b1]", 1},
		{hob.ApprovalFilter{Status: hob.ApprovalApproved}, "[a2]", 1},
		{hob.ApprovalFilter{Status: hob.ApprovalDenied}, "[b2]", 1},
		{hob.ApprovalFilter{Status: hob.ApprovalCancelled}, "[c1]", 1},
		{hob.ApprovalFilter{Run: old.ID}, "[a1 a2]", 2},
		{hob.ApprovalFilter{Run: "run_none"}, "[]", 0},
		{hob.ApprovalFilter{Agent: w.other.ID}, "[b1 b2]", 2},
		{hob.ApprovalFilter{Agent: w.other.ID, Run: old.ID}, "[]", 0},
		{hob.ApprovalFilter{Limit: 2, Offset: 1}, "[a2 b1]", 5},
		{hob.ApprovalFilter{Offset: 7}, "[]", 5},
	} {
		page, err := w.s.Approvals(w.ctx, w.alice, tt.f)
		w.must(err)
		ids := []string{}
		for _, a := range page.Items {
			ids = append(ids, a.ApprovalID)
		}
		if fmt.Sprint(ids) != tt.want || page.Total != tt.total {
			w.t.Errorf("%+v: %v of %d, want %s of %d", tt.f, ids, page.Total, tt.want, tt.total)
		}
	}
	_, err = w.s.Approvals(w.ctx, w.alice, hob.ApprovalFilter{Status: "open"})
	w.want(hob.Invalid, err)
}

func decidedOnce(w *world) {
	r := w.asking("a", "b")
	first := w.decide(w.alice, r, "a")
	for _, again := range []hob.Decision{{Run: r.ID, Approval: "a", Approved: true}, {Run: r.ID, Approval: "a"}} {
		_, err := w.s.Decide(w.ctx, w.alice, again)
		e := w.refused(err, hob.Conflict, "approval_decided")
		if e.Details["status"] != hob.ApprovalApproved || e.Details["decided_by"] != w.alice.Name() || e.Details["decided_at"] != first.DecidedAt {
			w.t.Fatalf("details %v of %v", e.Details, first)
		}
	}
	_, err := w.s.Decide(w.ctx, w.alice, hob.Decision{Run: r.ID, Approval: "b", Reason: "no"})
	w.must(err)
	same(w, "statuses", w.statuses(r.ID), "[approved denied]")
	for name, d := range map[string]hob.Decision{
		"no such approval": {Run: r.ID, Approval: "x"},
		"no such run":      {Run: "run_none", Approval: "a"},
		"of another run":   {Run: w.begin(w.alice, "o").ID, Approval: "a"},
	} {
		if _, err := w.s.Decide(w.ctx, w.alice, d); hob.KindOf(err) != hob.NotFound {
			w.t.Errorf("%s: %v", name, err)
		}
	}
}

func decidedByApprovers(w *world) {
	r := w.begin(w.alice, "s")
	eyes := pending("eyes", hob.ApproverOwner, "user:"+w.bob.ID)
	eyes.FourEyes = true
	w.must(w.s.Commit(w.ctx, ask(r, pending("mine", hob.ApproverOwner), pending("any", hob.ApproverAny), eyes)))
	weak := w.alice
	weak.Scopes = []hob.Scope{hob.ScopeRead, hob.ScopeRun}
	for _, tt := range []struct {
		by   hob.Principal
		id   string
		kind hob.Kind
		code string
	}{
		{w.bob, "mine", hob.NotFound, "approval_not_found"},
		{w.stranger, "mine", hob.NotFound, "approval_not_found"},
		{w.service, "mine", hob.Forbidden, "not_an_approver"},
		{hob.System(hob.DefaultWorkspace), "any", hob.Forbidden, "not_an_approver"},
		{weak, "mine", hob.Forbidden, "scope_missing"},
		{w.key, "any", hob.NotFound, "approval_not_found"},
		{w.alice, "eyes", hob.Forbidden, "four_eyes"},
	} {
		_, err := w.s.Decide(w.ctx, tt.by, hob.Decision{Run: r.ID, Approval: tt.id, Approved: true})
		_ = w.refused(err, tt.kind, tt.code)
	}
	same(w, "statuses", w.statuses(r.ID), "[pending pending pending]")
	w.decide(w.bob, r, "any")
	w.decide(w.bob, r, "eyes")
	w.decide(w.alice, r, "mine")
}

func approvalExpires(w *world) {
	r := w.begin(w.alice, "s")
	soon, late := pending("soon", hob.ApproverOwner), pending("late", hob.ApproverOwner)
	soon.Timeout, late.Timeout = brief, time.Hour
	w.must(w.s.Commit(w.ctx, ask(r, late, soon)))
	over()
	same(w, "statuses", w.statuses(r.ID), "[pending expired]")
	_, err := w.s.Decide(w.ctx, w.alice, hob.Decision{Run: r.ID, Approval: "soon", Approved: true})
	same(w, "status", w.refused(err, hob.Conflict, "approval_expired").Details["status"], any(hob.ApprovalExpired))
	page, err := w.s.Approvals(w.ctx, w.alice, hob.ApprovalFilter{})
	w.must(err)
	if got := []bool{page.Items[0].CanDecide, page.Items[1].CanDecide}; !slices.Equal(got, []bool{true, false}) {
		w.t.Fatalf("can be decided: %v", got)
	}
	got := w.claim("p2", false) // it is taken up for that
	same(w, "claimed", len(got), 1)
	r.Epoch = got[0].Epoch
	c := step(r, event(3, hob.EventApprovalResolved, ""))
	c.Approvals = []hob.Approval{{ApprovalID: "soon", Status: hob.ApprovalExpired, Settled: true}}
	c.Outcome = &hob.Outcome{Status: hob.AwaitingApproval}
	w.must(w.s.Commit(w.ctx, c))
	same(w, "run", w.status(r.ID), hob.AwaitingApproval) // for the other one
	same(w, "claimed", len(w.claim("p2", false)), 0)
}

func approvalSettled(w *world) {
	r := w.begin(w.alice, "s")
	c := step(r, event(2, hob.EventApprovalRequested, ""))
	c.Approvals = []hob.Approval{pending("yes", hob.ApproverOwner), pending("gone", hob.ApproverOwner), pending("open", hob.ApproverOwner)}
	w.must(w.s.Commit(w.ctx, c))
	w.decide(w.alice, r, "yes")
	c = step(r, event(3, hob.EventApprovalResolved, ""))
	c.Approvals = []hob.Approval{{ApprovalID: "yes", Status: hob.ApprovalCancelled, Settled: true}} // who tells this did not see the decision
	w.want(hob.Fenced, w.s.Commit(w.ctx, c))
	c.Approvals = []hob.Approval{
		{ApprovalID: "yes", Status: hob.ApprovalApproved, Settled: true},
		{ApprovalID: "gone", Status: hob.ApprovalCancelled},
		{ApprovalID: "none", Status: hob.ApprovalDenied},
	}
	w.must(w.s.Commit(w.ctx, c))
	st, err := w.s.Load(w.ctx, r.ID)
	w.must(err)
	var got []string
	for _, a := range st.Approvals {
		got = append(got, fmt.Sprint(a.ApprovalID, " ", a.Status, " ", a.Settled))
	}
	if d := cmp.Diff([]string{"yes approved true", "gone cancelled false", "open pending false"}, got); d != "" {
		w.t.Fatalf("-want +got:\n%s", d)
	}
}

func approvalsCancelled(w *world) {
	r := w.begin(w.alice, "s")
	c := step(r, event(2, hob.EventApprovalRequested, ""))
	c.Approvals = []hob.Approval{pending("a", hob.ApproverOwner), pending("b", hob.ApproverOwner)}
	w.must(w.s.Commit(w.ctx, c))
	w.decide(w.alice, r, "a")
	r.LastSeq = 2
	w.must(w.s.Commit(w.ctx, ending(r, hob.Failed, "")))
	same(w, "statuses", w.statuses(r.ID), "[approved cancelled]")
	_, err := w.s.Decide(w.ctx, w.alice, hob.Decision{Run: r.ID, Approval: "b", Approved: true})
	same(w, "status", w.refused(err, hob.Conflict, "approval_cancelled").Details["status"], any(hob.ApprovalCancelled))
	w.must(w.s.DeleteSession(w.ctx, w.alice, "", "s"))
	page, err := w.s.Approvals(w.ctx, w.service, hob.ApprovalFilter{})
	w.must(err)
	same(w, "approvals of a deleted session", page.Total, int64(0))
}

func decisionsAtOnce(w *world) {
	const deciders = 8
	for round := range 6 {
		id := fmt.Sprint("a", round)
		r := w.asking(id)
		var won [deciders]bool
		together(deciders, func(i int) {
			d := hob.Decision{Run: r.ID, Approval: id, Approved: i%2 == 0, Reason: fmt.Sprint(i)}
			_, err := w.s.Decide(w.ctx, w.alice, d)
			if won[i] = err == nil; err != nil && hob.KindOf(err) != hob.Conflict {
				w.t.Errorf("decider %d: %v", i, err)
			}
		})
		st, err := w.s.Load(w.ctx, r.ID)
		w.must(err)
		a := st.Approvals[0]
		for i, ok := range won {
			if ok != (a.Reason == fmt.Sprint(i)) || ok && (a.Status == hob.ApprovalApproved) != (i%2 == 0) {
				w.t.Fatalf("decider %d won: %v, but it is %s by %s", i, ok, a.Status, a.Reason)
			}
		}
		same(w, "run", st.Run.Status, hob.Queued)
	}
}
