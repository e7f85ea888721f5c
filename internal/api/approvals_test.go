package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hob"
)

// gated makes an agent that calls the clock and asks people before, with these members of the hook's config. The model
// "calls" makes one call, "twice" two at once.
func (w *world) gated(model, config string) string {
	w.t.Helper()
	agent := "/api/agents/" + string(w.agent(model))
	as[map[string]any](w.t, w.do(ask{"POST", agent + "/tools", w.service, `{"tool_name":"clock"}`, nil}), 201)
	as[map[string]any](w.t, w.do(ask{"POST", agent + "/hooks", w.service, `{"event":"PreToolUse","type":"approval","config":{` + config + `}}`, nil}), 201)
	return agent
}

// rests runs an agent until it waits for people, and gives what it waits for.
func (w *world) rests(agent, key string) hob.RunResult {
	w.t.Helper()
	r := as[hob.RunResult](w.t, w.do(ask{"POST", agent + "/run", key, `{"message":"hi","tools":true}`, nil}), 200)
	if r.Status != hob.AwaitingApproval || len(r.Approvals) == 0 {
		w.t.Fatalf("the run does not wait: %+v", r)
	}
	return r
}

// waiting starts a run that waits for one approval, and gives it.
func (w *world) waiting(key string) hob.Approval {
	w.t.Helper()
	return w.rests(w.gated("calls", ""), key).Approvals[0]
}

func (w *world) decide(run hob.RunID, key, body string) reply {
	w.t.Helper()
	return w.do(ask{"POST", "/api/agents/runs/" + string(run) + "/approve", key, body, nil})
}

// ended follows a run to its end.
func (w *world) ended(run hob.RunID, key string) hob.RunRecord {
	w.t.Helper()
	w.stream(ask{"GET", "/api/agents/runs/" + string(run) + "/events", key, "", nil}).rest()
	return as[hob.RunRecord](w.t, w.do(ask{"GET", "/api/agents/runs/" + string(run), key, "", nil}), 200)
}

func TestApprovals_ARunRestsUntilItIsApprovedAndGoesOn(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent, me := w.gated("calls", `"message":"May it?","timeout":3600`), user(t, "me")
	request := ask{"POST", agent + "/run", me, `{"message":"hi","tools":true}`, keyed("k")}
	r := as[hob.RunResult](t, w.do(request), 200)
	if r.Status != hob.AwaitingApproval || r.Content != "" || len(r.Approvals) != 1 {
		t.Fatalf("the answer is %+v", r)
	}
	a := r.Approvals[0]
	if a.ToolName != "clock" || string(a.ToolInput) != `{"zone":"UTC"}` || a.Message != "May it?" || a.Status != hob.ApprovalPending || !a.CanDecide ||
		a.RequestedBy != "user:me" || a.ExpiresAt.Before(time.Now().Add(50*time.Minute)) || a.Digest == "" || a.CallID == "" || a.RunID != r.RunID {
		t.Errorf("the approval is %+v", a)
	}
	run := "/api/agents/runs/" + string(r.RunID)
	if rec := as[hob.RunRecord](t, w.do(ask{"GET", run, me, "", nil}), 200); rec.Status != hob.AwaitingApproval {
		t.Errorf("the record says %s", rec.Status)
	}
	got := as[struct {
		Status   string
		Approval hob.Approval
		Warnings []string
	}](t, w.decide(r.RunID, me, `{"approved":true,"reason":"go","digest":"`+a.Digest+`","colour":1}`), 200)
	if got.Status != "resumed" || got.Approval.Status != hob.ApprovalApproved || got.Approval.DecidedBy != "user:me" || got.Approval.CanDecide || len(got.Warnings) != 1 {
		t.Errorf("the decision is answered %+v", got)
	}
	if rec := w.ended(r.RunID, me); rec.Status != hob.Completed || rec.ToolCalls[0].Result != "12:00" {
		t.Errorf("the record is %+v", rec)
	}
	again := w.do(request) // the result of now
	if end := as[hob.RunResult](t, again, 200); end.Status != hob.Completed || end.RunID != r.RunID || len(end.Approvals) != 0 || !again.replayed() {
		t.Errorf("asked again: %+v", end)
	}
	list := as[struct{ Approvals []hob.Approval }](t, w.do(ask{"GET", run + "/approvals", me, "", nil}), 200).Approvals
	if len(list) != 1 || list[0].Status != hob.ApprovalApproved || list[0].Reason != "go" {
		t.Errorf("the run's approvals: %+v", list)
	}
}

func TestApprovals_AStreamGoesOnByItself(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	f := w.stream(ask{"POST", w.gated("calls", "") + "/run/stream", w.service, `{"message":"hi"}`, nil})
	var asked hob.ApprovalRequestedEvent
	for asked.ApprovalID == "" {
		if h := f.next(); h.Type == hob.EventApprovalRequested {
			if err := json.Unmarshal(h.raw, &asked); err != nil {
				t.Fatal(err)
			}
		}
	}
	if asked.Run == "" || asked.ToolName != "clock" || string(asked.ToolInput) != `{"zone":"UTC"}` || asked.ExpiresAt.IsZero() {
		t.Errorf("the event is %+v", asked)
	}
	as[map[string]any](t, w.decide(asked.Run, w.service, `{"approved":false,"reason":"too late","call_id":"`+string(asked.CallID)+`"}`), 200)
	var resolved hob.ApprovalResolvedEvent
	var kinds []hob.EventType
	for _, h := range f.rest() {
		kinds = append(kinds, h.Type)
		if h.Type == hob.EventApprovalResolved {
			if err := json.Unmarshal(h.raw, &resolved); err != nil {
				t.Fatal(err)
			}
		}
	}
	if resolved.Approved || resolved.Status != hob.ApprovalDenied || resolved.Reason != "too late" || !strings.HasPrefix(resolved.By, "service:") {
		t.Errorf("resolved: %+v", resolved)
	}
	if kinds[len(kinds)-1] != hob.EventComplete {
		t.Errorf("the stream ends with %s", kinds[len(kinds)-1])
	}
	asks := w.model.requests()
	last := asks[len(asks)-1].Messages
	if text := last[len(last)-1].Content; text != "Error: Blocked by hook — Denied by user: too late" {
		t.Errorf("the model reads %q", text)
	}
}

func TestApprovals_TheApproverMayEditTheArguments(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	a := w.waiting(w.service)
	for body, text := range map[string]string{
		`{"approved":true,"modified_input":{"zone":7}}`:    "modified_input does not fit the tool's schema",
		`{"approved":true,"modified_input":[]}`:            "modified_input must be an object",
		`{"approved":false,"modified_input":{"zone":"x"}}`: "modified_input is for approvals",
	} {
		if f := wantFault(t, w.decide(a.RunID, w.service, body), 400, text); f.Details["field"] != "modified_input" {
			t.Errorf("%s: details %v", body, f.Details)
		}
	}
	got := as[struct{ Approval hob.Approval }](t, w.decide(a.RunID, w.service, `{"approved":true,"modified_input":{"zone":"CET"}}`), 200)
	if string(got.Approval.ModifiedInput) != `{"zone":"CET"}` || string(got.Approval.ToolInput) != `{"zone":"UTC"}` {
		t.Errorf("the approval is %+v", got.Approval)
	}
	if rec := w.ended(a.RunID, w.service); rec.Status != hob.Completed || string(rec.ToolCalls[0].Arguments) != `{"zone":"CET"}` {
		t.Errorf("the calls are %+v", rec.ToolCalls)
	}
}

func TestApprovals_DecisionsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	a := w.waiting(w.service)
	for _, c := range []struct {
		body   string
		status int
		text   string
		code   string
	}{
		{``, 400, "Request body must include 'approved' (boolean)", "invalid_request"},
		{`{}`, 400, "Request body must include 'approved' (boolean)", "invalid_request"},
		{`{"approved":"true"}`, 400, "'approved' must be a boolean", "invalid_request"},
		{`{"approved":1}`, 400, "'approved' must be a boolean", "invalid_request"},
		{`{"approved":true,"reason":"` + strings.Repeat("é", hob.MaxHookMessage+1) + `"}`, 400, "reason must be at most 2000 characters", "invalid_request"},
		{`{"approved":true,"reason":7}`, 400, "reason must be text", "invalid_request"},
		{`{"approved":true,"approval_id":"another"}`, 404, "Run not found or not waiting for approval", "approval_not_found"},
		{`{"approved":true,"call_id":"another"}`, 404, "Run not found or not waiting for approval", "approval_not_found"},
		{`{"approved":true,"digest":"another"}`, 409, "what waits now is not what was shown", "approval_stale"},
	} {
		if f := wantFault(t, w.decide(a.RunID, w.service, c.body), c.status, c.text); f.Code != c.code {
			t.Errorf("%s: code %s, want %s", c.body, f.Code, c.code)
		}
	}
	for _, run := range []hob.RunID{"run_000000000000", "run_.."} {
		wantFault(t, w.decide(run, w.service, `{"approved":true}`), 404, "Run not found or not waiting for approval")
	}
	longest := `{"approved":true,"reason":"` + strings.Repeat("é", hob.MaxHookMessage) + `","approval_id":"` + a.ApprovalID + `"}`
	as[map[string]any](t, w.decide(a.RunID, w.service, longest), 200)
	w.ended(a.RunID, w.service)
	if f := wantFault(t, w.decide(a.RunID, w.service, longest), 409, ""); f.Code != "approval_decided" {
		t.Errorf("decided twice: %+v", f)
	}
	if f := wantFault(t, w.decide(a.RunID, w.service, `{"approved":true}`), 409, ""); f.Code != "approval_decided" {
		t.Errorf("decided twice, without a name: %+v", f)
	}

	dropped := w.waiting(w.service)
	as[map[string]any](t, w.do(ask{"POST", "/api/agents/runs/" + string(dropped.RunID) + "/cancel", w.service, "", nil}), 202)
	if rec := w.ended(dropped.RunID, w.service); rec.Status != hob.Cancelled {
		t.Errorf("the cancelled run is %s", rec.Status)
	}
	if f := wantFault(t, w.decide(dropped.RunID, w.service, `{"approved":true,"approval_id":"`+dropped.ApprovalID+`"}`), 409, ""); f.Code != "approval_cancelled" {
		t.Errorf("after a cancel: %+v", f)
	}
}

func TestApprovals_OneThatExpiredIsNotDecided(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	f := w.stream(ask{"POST", w.gated("calls", `"timeout":0.001`) + "/run/stream", w.service, `{"message":"hi"}`, nil})
	run := f.next().Run
	f.rest() // it goes on without anybody
	list := as[struct{ Approvals []hob.Approval }](t, w.do(ask{"GET", "/api/agents/runs/" + string(run) + "/approvals?status=expired", w.service, "", nil}), 200).Approvals
	if len(list) != 1 {
		t.Fatalf("expired approvals: %+v", list)
	}
	fault := wantFault(t, w.decide(run, w.service, `{"approved":true,"approval_id":"`+list[0].ApprovalID+`"}`), 409, "")
	if fault.Code != "approval_expired" || fault.Details["status"] != "expired" {
		t.Errorf("a late decision: %+v", fault)
	}
}

func TestApprovals_OfSeveralOneIsNamed(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	r := w.rests(w.gated("twice", ""), w.service)
	if len(r.Approvals) != 2 {
		t.Fatalf("approvals: %+v", r.Approvals)
	}
	f := wantFault(t, w.decide(r.RunID, w.service, `{"approved":true}`), 400, "the run waits for 2 approvals")
	if f.Code != "approval_ambiguous" || len(f.Details["approval_ids"].([]any)) != 2 { //nolint:forcetypeassert // a list, or the test fails
		t.Errorf("without a name: %+v", f)
	}
	as[map[string]any](t, w.decide(r.RunID, w.service, `{"approved":true,"call_id":"`+string(r.Approvals[1].CallID)+`"}`), 200)
	as[map[string]any](t, w.decide(r.RunID, w.service, `{"approved":false}`), 200) // the one that is left
	rec := w.ended(r.RunID, w.service)
	if rec.Status != hob.Completed || !rec.ToolCalls[0].IsError || rec.ToolCalls[1].Result != "12:00" {
		t.Errorf("the calls are %+v", rec.ToolCalls)
	}
}

func TestApprovals_ANamedApproverSeesTheApprovalAlone(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.gated("calls", `"approvers":["user:boss","owner"],"four_eyes":true`)
	me, boss, other, admin := user(t, "me"), user(t, "boss"), user(t, "other"), w.scoped(hob.ScopeAdmin)
	r := w.rests(agent, me)
	a := r.Approvals[0]
	if a.CanDecide {
		t.Error("who started the run may decide, although somebody else must")
	}
	run, one := "/api/agents/runs/"+string(r.RunID), "/api/approvals/"+a.ApprovalID
	wantFault(t, w.do(ask{"GET", run, boss, "", nil}), 404, "Run not found")
	wantFault(t, w.do(ask{"GET", run + "/events", boss, "", nil}), 404, "Run not found")
	for _, path := range []string{run + "/approvals", run + "/approvals?status=pending", "/api/approvals?status=pending"} {
		list := as[struct{ Approvals []hob.Approval }](t, w.do(ask{"GET", path, boss, "", nil}), 200).Approvals
		if len(list) != 1 || list[0].ApprovalID != a.ApprovalID || !list[0].CanDecide {
			t.Errorf("%s: %+v", path, list)
		}
	}
	if list := as[struct{ Approvals []hob.Approval }](t, w.do(ask{"GET", run + "/approvals?status=denied", boss, "", nil}), 200).Approvals; len(list) != 0 {
		t.Errorf("denied ones: %+v", list)
	}
	wantFault(t, w.do(ask{"GET", run + "/approvals", other, "", nil}), 404, "Run not found")
	wantFault(t, w.do(ask{"GET", one, other, "", nil}), 404, "Approval not found")
	wantFault(t, w.do(ask{"GET", "/api/approvals/x%2Fy", boss, "", nil}), 404, "Approval not found")
	wantFault(t, w.decide(r.RunID, other, `{"approved":true}`), 404, "Run not found or not waiting for approval")
	if f := wantFault(t, w.decide(r.RunID, me, `{"approved":true}`), 403, "somebody else"); f.Code != "four_eyes" {
		t.Errorf("who started it: %+v", f)
	}
	if f := wantFault(t, w.decide(r.RunID, admin, `{"approved":true}`), 403, "for user:boss, owner to decide"); f.Code != "not_an_approver" {
		t.Errorf("who is not named: %+v", f)
	}
	if got := as[hob.Approval](t, w.do(ask{"GET", one, boss, "", nil}), 200); !got.CanDecide || got.ToolName != "clock" {
		t.Errorf("the approval is %+v", got)
	}
	as[map[string]any](t, w.decide(r.RunID, boss, `{"approved":true}`), 200)
	if rec := w.ended(r.RunID, me); rec.Status != hob.Completed {
		t.Errorf("the run is %s", rec.Status)
	}
}

func TestApprovals_TheInboxIsNarrowed(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.gated("calls", "")
	var runs []hob.RunID
	for range 3 {
		runs = append(runs, w.rests(agent, w.service).RunID)
	}
	elsewhere := w.waiting(w.service)
	as[map[string]any](t, w.decide(runs[1], w.service, `{"approved":false}`), 200)
	w.ended(runs[1], w.service)
	id := strings.TrimPrefix(agent, "/api/agents/")
	for query, want := range map[string][]hob.RunID{
		"":                                    {runs[0], runs[1], runs[2], elsewhere.RunID},
		"?status=pending":                     {runs[0], runs[2], elsewhere.RunID},
		"?status=denied":                      {runs[1]},
		"?status=cancelled":                   {},
		"?agent_id=" + strings.ToUpper(id):    {runs[0], runs[1], runs[2]},
		"?agent_id=" + noUUID:                 {},
		"?run_id=" + string(runs[2]):          {runs[2]},
		"?limit=2":                            {runs[0], runs[1]},
		"?limit=2&offset=3":                   {elsewhere.RunID},
		"?status=pending&agent_id=" + id:      {runs[0], runs[2]},
		"?status=pending&limit=1000&offset=0": {runs[0], runs[2], elsewhere.RunID},
	} {
		got := as[struct {
			Approvals            []hob.Approval
			Total, Limit, Offset int
		}](t, w.do(ask{"GET", "/api/approvals" + query, w.service, "", nil}), 200)
		ids := []hob.RunID{}
		for _, a := range got.Approvals {
			ids = append(ids, a.RunID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%q: %v, want %v", query, ids, want)
		}
		if strings.Contains(query, "limit=2") && (got.Total != 4 || got.Limit != 2) || strings.Contains(query, "limit=1000") && got.Limit != 200 {
			t.Errorf("%q: total %d, limit %d, offset %d", query, got.Total, got.Limit, got.Offset)
		}
	}
	run := "/api/agents/runs/" + string(runs[0]) + "/approvals"
	for path, text := range map[string]string{
		"/api/approvals?status=open":    "status must be one of pending, approved, denied, expired, cancelled",
		run + "?status=open":            "status must be one of pending, approved, denied, expired, cancelled",
		"/api/approvals?agent_id=x":     "agent_id must be the id of an agent",
		"/api/approvals?run_id=a%20b":   "run_id must be the id of a run",
		"/api/approvals?state=pending":  `unknown parameter "state"`,
		"/api/approvals?status=PENDING": "status must be one of",
	} {
		wantFault(t, w.do(ask{"GET", path, w.service, "", nil}), 400, text)
	}
}

// An approval-only key sees what is left to it to decide, and nothing else.
func TestApprovals_AKeyThatOnlyApproves(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	key := w.scoped(hob.ScopeApprove)
	run := w.rests(w.gated("calls", `"approvers":["any"]`), w.service).RunID
	hidden := w.waiting(w.service)
	list := as[struct{ Approvals []hob.Approval }](t, w.do(ask{"GET", "/api/approvals", key, "", nil}), 200).Approvals
	if len(list) != 1 || list[0].RunID != run || !list[0].CanDecide {
		t.Errorf("the inbox is %+v", list)
	}
	wantFault(t, w.decide(hidden.RunID, key, `{"approved":true}`), 404, "")
	wantFault(t, w.do(ask{"GET", fmt.Sprintf("/api/agents/runs/%s/approvals", hidden.RunID), key, "", nil}), 404, "Run not found")
	as[map[string]any](t, w.decide(run, key, `{"approved":true}`), 200)
	if rec := w.ended(run, w.service); rec.Status != hob.Completed {
		t.Errorf("the run is %s", rec.Status)
	}
}
