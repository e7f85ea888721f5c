package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"hob"
)

func auditCases() map[string]func(*world) {
	return map[string]func(*world){
		"AuditIsForAdmins":                auditIsForAdmins,
		"AuditTellsOfConfiguration":       auditTellsOfConfiguration,
		"AuditTellsOfRuns":                auditTellsOfRuns,
		"AuditTellsOfApprovals":           auditTellsOfApprovals,
		"AuditTellsNothingThatWasNotDone": auditTellsNothingThatWasNotDone,
		"AuditIsReadInParts":              auditIsReadInParts,
		"AuditOutlivesWhatItTellsOf":      auditOutlivesWhatItTellsOf,
		"AuditOfOnceIsOfTheOneRequest":    auditOfOnce,
	}
}

// told are the entries that a filter picks, each as its action and what more tells it from others.
func (w *world) told(f hob.AuditFilter, more func(hob.AuditEntry) string) []string {
	w.t.Helper()
	list, err := w.s.Audit(w.ctx, w.service, f)
	w.must(err)
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.Action
		if more != nil {
			out[i] += " " + more(e)
		}
	}
	return out
}

func (w *world) tells(what string, got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Fatalf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

func auditIsForAdmins(w *world) {
	for _, by := range []hob.Principal{w.alice, w.key} {
		_, err := w.s.Audit(w.ctx, by, hob.AuditFilter{})
		_ = w.refused(err, hob.Forbidden, "scope_missing")
	}
	bound := w.boundTo(w.agent.ID)
	bound.Scopes = []hob.Scope{hob.ScopeAdmin}
	_, err := w.s.Audit(w.ctx, bound, hob.AuditFilter{})
	_ = w.refused(err, hob.Forbidden, "key_bound")
	list, err := w.s.Audit(w.ctx, w.stranger, hob.AuditFilter{})
	w.must(err)
	same(w, "entries of another workspace", len(list), 0)
}

func auditTellsOfConfiguration(w *world) {
	name := "renamed"
	before := w.told(hob.AuditFilter{Object: string(w.agent.ID)}, func(e hob.AuditEntry) string { return e.Before + ">" + e.After })
	made := strings.TrimPrefix(before[0], "agent.create >")
	_, err := w.s.UpdateAgent(w.ctx, w.key, w.agent.ID, hob.AgentPatch{Name: &name})
	w.must(err)
	first := w.agent.Name
	_, err = w.s.UpdateAgent(w.ctx, w.service, w.agent.ID, hob.AgentPatch{Name: &first})
	w.must(err)
	w.must(w.s.DeleteAgent(w.ctx, w.service, w.agent.ID))
	list, err := w.s.Audit(w.ctx, w.service, hob.AuditFilter{Kind: "agent", Object: string(w.agent.ID)})
	w.must(err)
	same(w, "entries", len(list), 4)
	same(w, "who made it", list[0].Actor, w.service.Name())
	same(w, "who changed it", list[1].Actor, w.key.Name())
	// The digests follow one another, and what is put back as it was has the digest it had.
	same(w, "changed from", list[1].Before, made)
	same(w, "changed back from", list[2].Before, list[1].After)
	same(w, "changed back to", list[2].After, made)
	same(w, "deleted", list[3].Action+list[3].Before+list[3].After, "agent.delete"+made)
}

func auditTellsOfRuns(w *world) {
	id := w.begin(w.alice, "s").ID
	args := json.RawMessage(`{"a":1}`)
	call := hob.CallState{ID: "c1", Step: 1, Name: "write", Arguments: args, Status: hob.CallIntent, Recovery: hob.RecoverOnce, Attempt: 1}
	planned := hob.CallState{ID: "c2", Step: 1, Index: 1, Name: "read", Status: hob.CallPlanned}
	c := hob.RunCommit{
		Run: id, Epoch: 1, Owner: "p1", Lease: lease, Calls: []hob.CallState{call, call, planned},
		Audit: []hob.AuditEntry{{Action: "hook.block", Kind: "hook", Object: "h1", Workspace: "elsewhere", Actor: "user:somebody", Run: "run_other"}},
	}
	w.must(w.s.Commit(w.ctx, c))
	call.Status, call.Result = hob.CallDone, hob.Result{Text: "secret result", IsError: true, Unknown: true}
	planned.Status = hob.CallDone // refused: nobody ever set about it
	planned.Result = hob.Result{IsError: true}
	again := hob.CallState{ID: "c3", Step: 1, Index: 2, Name: "read", Status: hob.CallDone, Attempt: 1}
	failed := hob.CallState{ID: "c4", Step: 1, Index: 3, Name: "read", Status: hob.CallDone, Attempt: 2, Result: hob.Result{IsError: true}}
	w.must(w.s.Commit(w.ctx, hob.RunCommit{
		Run: id, Epoch: 1, Owner: "p1", Lease: lease, Calls: []hob.CallState{call, planned, again, failed},
		Outcome: &hob.Outcome{Status: hob.Failed, Code: "doom_loop"},
	}))
	w.tells("the run", w.told(hob.AuditFilter{Run: id}, func(e hob.AuditEntry) string {
		return fmt.Sprintf("%s %s %s %s %t %s", e.Actor, e.Object, e.Call, e.Decision, e.Digest != "", e.Rule)
	}),
		"run.start "+w.alice.Name()+" "+string(id)+"   false ",
		"tool_call.intent "+w.alice.Name()+" write c1  true ",
		"hook.block "+w.alice.Name()+" h1   false ",
		"tool_call.result "+w.alice.Name()+" write c1 unknown false ",
		"tool_call.result "+w.alice.Name()+" read c2 refused true ",
		"tool_call.result "+w.alice.Name()+" read c3 ok false ",
		"tool_call.result "+w.alice.Name()+" read c4 error false ",
		"run.end "+w.alice.Name()+" "+string(id)+"  failed false doom_loop",
	)
}

func auditTellsOfApprovals(w *world) {
	r := w.asking("a1", "a2", "a3")
	_, err := w.s.Decide(w.ctx, w.alice, hob.Decision{
		Run: r.ID, Approval: "a1", Approved: true, Reason: "so be it", ModifiedInput: json.RawMessage(`{"b":2}`),
	})
	w.must(err)
	_, err = w.s.Decide(w.ctx, w.alice, hob.Decision{Run: r.ID, Approval: "a1"})
	w.want(hob.Conflict, err)
	claimed := w.claim("p2", false)
	same(w, "claimed", len(claimed), 1)
	expired, approved := pending("a2"), pending("a1")
	expired.Status, expired.Settled = hob.ApprovalExpired, true
	approved.Status, approved.Settled = hob.ApprovalApproved, true
	w.must(w.s.Commit(w.ctx, hob.RunCommit{
		Run: r.ID, Epoch: claimed[0].Epoch, Owner: "p2", Lease: lease, Approvals: []hob.Approval{expired, approved},
		Outcome: &hob.Outcome{Status: hob.Cancelled, Code: hob.CodeCancelled},
	}))
	w.tells("the approvals", w.told(hob.AuditFilter{Kind: "approval"}, func(e hob.AuditEntry) string {
		return fmt.Sprintf("%s %s %s %s %t", e.Object, e.Actor, e.Decision, e.Rule, e.After != "")
	}),
		"approval.request a1 "+w.alice.Name()+" pending h false",
		"approval.request a2 "+w.alice.Name()+" pending h false",
		"approval.request a3 "+w.alice.Name()+" pending h false",
		"approval.decide a1 "+w.alice.Name()+" approved h true",
		"approval.expire a2 "+w.alice.Name()+" expired h false",
		"approval.cancel a3 "+w.alice.Name()+" cancelled  false",
	)
}

// auditTellsNothingThatWasNotDone: what is fenced off, refused or finds nothing to change leaves no entry.
func auditTellsNothingThatWasNotDone(w *world) {
	id := w.begin(w.alice, "s").ID
	n := len(w.told(hob.AuditFilter{Limit: 1000}, nil))
	err := w.s.Commit(w.ctx, hob.RunCommit{
		Run: id, Epoch: 7, Owner: "p2", Lease: lease, Calls: []hob.CallState{{ID: "c1", Name: "x", Status: hob.CallIntent, Attempt: 1}},
	})
	w.want(hob.Fenced, err)
	name := strings.Repeat("x", hob.MaxName+1)
	_, err = w.s.UpdateAgent(w.ctx, w.service, w.agent.ID, hob.AgentPatch{Name: &name})
	w.want(hob.Invalid, err)
	w.want(hob.Forbidden, w.s.DeleteAgent(w.ctx, w.alice, w.agent.ID))
	w.must(w.s.ChangeSettings(w.ctx, w.service, map[string]*hob.StoredSetting{"none": nil}))
	same(w, "entries", len(w.told(hob.AuditFilter{Limit: 1000}, nil)), n)
}

func auditIsReadInParts(w *world) {
	for i := range 5 {
		w.must(w.s.NoteAudit(w.ctx, w.service, hob.AuditEntry{Action: "request.refused", Kind: "request", Object: fmt.Sprint(i)}))
	}
	all, err := w.s.Audit(w.ctx, w.service, hob.AuditFilter{})
	w.must(err)
	same(w, "entries", len(all), 7)
	for i, e := range all {
		same(w, "place", e.N, int64(i+1))
		if i > 0 {
			same(w, "the hash before", e.Prev, all[i-1].Hash)
		}
	}
	object := func(e hob.AuditEntry) string { return e.Object }
	refused := hob.AuditFilter{Action: "request.*"}
	for _, tt := range []struct {
		name string
		f    hob.AuditFilter
		want string
	}{
		{"all of an action", refused, "01234"},
		{"the first", hob.AuditFilter{Action: "request.refused", Limit: 2}, "01"},
		{"the newest first", hob.AuditFilter{Action: "request.refused", Limit: 2, Newest: true}, "43"},
		{"behind one", hob.AuditFilter{After: 5}, "34"},
		{"before one", hob.AuditFilter{Action: "request.refused", Before: 4}, "0"},
		{"between two times", hob.AuditFilter{Action: "request.refused", Since: all[3].At, Until: hob.Time{Time: all[3].At.Add(1000)}}, ""},
		{"one object", hob.AuditFilter{Kind: "request", Object: "3"}, "3"},
		{"another actor", hob.AuditFilter{Actor: w.alice.Name()}, ""},
	} {
		var got strings.Builder
		for _, line := range w.told(tt.f, object) {
			got.WriteString(strings.TrimPrefix(line, "request.refused "))
		}
		if tt.name == "between two times" {
			if !strings.Contains(got.String(), all[3].Object) {
				w.t.Fatalf("%s: %s lacks %s", tt.name, got.String(), all[3].Object)
			}
			continue
		}
		same(w, tt.name, got.String(), tt.want)
	}
}

// auditOutlivesWhatItTellsOf: entries stay when the session goes with its runs.
func auditOutlivesWhatItTellsOf(w *world) {
	id := w.begin(w.alice, "s").ID
	w.must(w.s.DeleteSession(w.ctx, w.alice, w.agent.ID, "s"))
	w.tells("the run", w.told(hob.AuditFilter{Run: id}, nil), "run.start")
	w.tells("the session", w.told(hob.AuditFilter{Object: "s"}, func(e hob.AuditEntry) string { return string(e.Detail) }), `session.delete {"runs":"1"}`)
}

// auditOfOnce: what is carried out under a key tells the request that it came with, and is told once.
func auditOfOnce(w *world) {
	ctx := hob.WithOrigin(w.ctx, hob.Origin{Request: "req-1", Address: "192.0.2.1"})
	for range 2 {
		_, _, err := w.s.Once(ctx, onceKey("k", "d"), w.creates("third"))
		w.must(err)
	}
	w.tells("the request", w.told(hob.AuditFilter{Kind: "agent", After: 2}, func(e hob.AuditEntry) string { return e.Request + " " + e.Address }),
		"agent.create req-1 192.0.2.1")
}
