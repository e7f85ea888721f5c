package api_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hob"
	"hob/internal/api"
)

type auditPage struct {
	Entries []hob.AuditEntry `json:"entries"`
	Limit   int              `json:"limit"`
}

func (w *world) audit(query string) []hob.AuditEntry {
	w.t.Helper()
	return as[auditPage](w.t, w.do(ask{"GET", "/api/audit?" + query, w.service, "", nil}), 200).Entries
}

func actions(list []hob.AuditEntry) []string {
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.Action
	}
	return names
}

func TestAudit_TellsWhoDidWhatFromWhere(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	key := w.scoped(hob.ScopeRead, hob.ScopeRun, hob.ScopeConfigure)
	a := as[hob.Agent](t, w.do(ask{"POST", "/api/agents", key, `{"name":"helper","model":"calls"}`, map[string]string{
		"X-Request-Id": "my-id", "Idempotency-Key": "k",
	}}), 201)
	if r := w.do(ask{"POST", "/api/agents/" + string(a.ID) + "/tools", w.service, `{"tool_type":"builtin","tool_name":"clock"}`, nil}); r.status != 201 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	run := as[hob.RunResult](t, w.do(ask{"POST", "/api/agents/" + string(a.ID) + "/run", w.service, `{"message":"hi","tools":true}`, nil}), 200)
	made := w.audit("action=agent.create")
	if len(made) != 1 {
		t.Fatalf("%+v", made)
	}
	if e := made[0]; e.Request != "my-id" || e.Address != "127.0.0.1" || !strings.HasPrefix(e.Actor, "key:") || e.Object != string(a.ID) ||
		e.Kind != "agent" || len(e.After) != 64 || e.Before != "" {
		t.Errorf("%+v", e)
	}
	story := w.audit("run_id=" + url.QueryEscape(string(run.RunID)))
	want := []string{"run.start", "tool_call.intent", "tool_call.result", "run.end"}
	if got := actions(story); !slices.Equal(got, want) {
		t.Errorf("the run's story is %v, want %v", got, want)
	}
	for _, e := range story {
		if !strings.HasPrefix(e.Actor, "service:") || e.Run != run.RunID {
			t.Errorf("%+v", e)
		}
	}
	if e := story[1]; e.Object != "clock" || len(e.Digest) != 64 || e.Call == "" || !strings.Contains(string(e.Detail), `"recovery"`) {
		t.Errorf("%+v", e)
	}
	all := w.audit("")
	for i, e := range all {
		if e.N != int64(i+1) || len(e.Hash) != 64 || i > 0 && e.Prev != all[i-1].Hash {
			t.Fatalf("entry %d: %+v", i, e)
		}
	}
	for query, n := range map[string]int{
		"limit=2": 2, "order=desc&limit=1": 1, "after=1": len(all) - 1, "before=2": 1, "kind=agent": 1, "object=" + string(a.ID): 1,
		"actor=" + url.QueryEscape(story[0].Actor): len(all) - 3, "action=tool_call.*": 2, "since=2000-01-01": len(all), "until=2000-01-01": 0,
		"action=tool_call.": 0,
	} {
		if got := w.audit(query); len(got) != n {
			t.Errorf("%s: %v, want %d", query, actions(got), n)
		}
	}
	if got := w.audit("order=desc"); got[0].N != int64(len(all)) {
		t.Errorf("the newest is %d", got[0].N)
	}
}

func TestAudit_TellsWhoWasAskedAndWhoDecided(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	run := w.rests(w.gated("calls", ""), w.service)
	asked := run.Approvals[0]
	if r := w.decide(run.RunID, w.service, `{"approval_id":"`+asked.ApprovalID+`","approved":false,"reason":"not today"}`); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	w.ended(run.RunID, w.service)
	story := w.audit("run_id=" + string(run.RunID))
	want := []string{"run.start", "approval.request", "approval.decide"}
	if got := actions(story); len(got) < 5 || !slices.Equal(got[:3], want) || !slices.Contains(got, "tool_call.result") || slices.Contains(got, "tool_call.intent") {
		t.Fatalf("the run's story is %v", got)
	}
	if e := story[1]; e.Digest != asked.Digest || e.Rule != string(asked.HookID) || e.Object != asked.ApprovalID || e.Decision != "pending" {
		t.Errorf("%+v", e)
	}
	if e := story[2]; e.Digest != asked.Digest || e.Decision != "denied" || !strings.Contains(string(e.Detail), "not today") || e.Address == "" {
		t.Errorf("%+v", e)
	}
	if i := slices.Index(actions(story), "tool_call.result"); story[i].Decision != hob.AuditRefused {
		t.Errorf("%+v", story[i])
	}
}

func TestAudit_BadQueriesAreRefused(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	for query, text := range map[string]string{
		"limit=0": "1 to 1000", "limit=1001": "1 to 1000", "limit=x": "whole number", "after=-1": "place", "before=0": "place", "order=up": "asc or desc",
		"since=yesterday": "since", "until=x": "until", "since=2020-01-02&until=2020-01-01": "later than since", "action=a%00": "action",
		"actor=" + strings.Repeat("x", 1025): "1024", "what=x": "unknown parameter",
	} {
		wantFault(t, w.do(ask{"GET", "/api/audit?" + query, w.service, "", nil}), 400, text)
	}
	if r := as[auditPage](t, w.do(ask{"GET", "/api/audit", w.service, "", nil}), 200); r.Limit != 100 {
		t.Errorf("the limit is %d", r.Limit)
	}
	if r := as[auditPage](t, w.do(ask{"GET", "/api/audit?limit=1000", w.service, "", nil}), 200); r.Limit != 1000 {
		t.Errorf("the limit is %d", r.Limit)
	}
}

// TestAudit_RefusalsAreNotedOnceASecond: of a caller and a route. What nobody known asks, and what changes nothing, is not.
func TestAudit_RefusalsAreNotedOnceASecond(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	w := begin(t, func(c *api.Config) {
		c.Clock = func() time.Time { return time.Unix(2_000_000_000, 0).Add(time.Duration(later.Load())) }
	})
	reader, gone := w.scoped(hob.ScopeRead), w.scoped(hob.ScopeAdmin)
	w.revoke(gone)
	refused := func(key string, status int) {
		t.Helper()
		if r := w.do(ask{"POST", "/api/agents", key, `{"name":"x"}`, map[string]string{"X-Request-Id": "try"}}); r.status != status {
			t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
		}
	}
	for range 4 {
		refused(reader, 403)
	}
	refused(gone, 401)
	refused("hob_k_unknown", 401)
	if r := w.do(ask{"GET", "/api/keys", reader, "", nil}); r.status != 403 {
		t.Fatal(r.status)
	}
	later.Add(int64(time.Second))
	refused(reader, 403)
	list := w.audit("action=request.refused")
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprintf("%s %s %s %s %s", e.Object, e.Decision, e.Rule, e.Detail, e.Request))
	}
	want := []string{
		`POST /api/agents refused scope_missing {"path":"/api/agents"} try`,
		`POST /api/agents refused key_revoked {"path":"/api/agents"} try`,
		`POST /api/agents refused scope_missing {"path":"/api/agents","more":3} try`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
