package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/engine"
)

// What may happen to a run while it waits for a person.
func TestApproval_WhatHappensWhileARunWaits(t *testing.T) {
	t.Parallel()
	brief, grace := 0.3, 0.01
	for name, c := range map[string]struct {
		options  hob.RunOptions
		timeout  time.Duration
		script   string
		happens  func(w *world, p hob.Approval)
		status   hob.Status
		code     string
		result   string // of the call
		resolved hob.ApprovalStatus
		late     string // the code that a decision behind it is refused with
		did      []string
	}{
		"nobody decides": {
			timeout: 50 * time.Millisecond, status: hob.Completed, result: "Error: Blocked by hook — Approval timed out", resolved: hob.ApprovalExpired,
			happens: func(w *world, _ hob.Approval) { time.Sleep(50 * time.Millisecond); w.engine.Wake() }, late: "approval_expired",
		},
		"it is cancelled": {
			status: hob.Cancelled, code: hob.CodeCancelled, result: "Cancelled before it was executed.", resolved: hob.ApprovalCancelled, late: "approval_cancelled",
			happens: func(w *world, p hob.Approval) {
				if status, err := w.engine.Cancel(w.t.Context(), w.by, p.RunID); err != nil || status != hob.AwaitingApproval {
					w.t.Errorf("cancelled in the state %s: %v", status, err)
				}
			},
		},
		"its time is over": {
			options: hob.RunOptions{Tuning: hob.Tuning{TimeoutSeconds: &brief}}, status: hob.Cancelled, code: hob.CodeTimeout,
			result: "Cancelled before it was executed.", resolved: hob.ApprovalCancelled, late: "approval_cancelled",
			happens: func(w *world, _ hob.Approval) { time.Sleep(300 * time.Millisecond); w.engine.Wake() },
		},
		"its client leaves": {
			options: hob.RunOptions{Tuning: hob.Tuning{GraceSeconds: &grace}}, status: hob.Completed, result: `once got {"n":1}`, resolved: hob.ApprovalApproved,
			happens: func(w *world, p hob.Approval) {
				w.readUntil(p.RunID, 0, hob.EventApprovalRequested)
				time.Sleep(40 * time.Millisecond)
				w.decide(p, true, "")
			}, late: "approval_decided", did: []string{`once{"n":1}`},
		},
		"its tool is switched off": {
			status: hob.Completed, result: "tool_disabled: The tool 'once' was switched off", resolved: hob.ApprovalApproved, late: "approval_decided",
			happens: func(w *world, p hob.Approval) { w.switched("once", false); w.decide(p, true, "") },
		},
		"its hook is deleted": {
			status: hob.Completed, result: "Error: Blocked by hook — Denied by user: not now", resolved: hob.ApprovalDenied, late: "approval_decided",
			happens: func(w *world, p hob.Approval) {
				if err := w.store.DeleteHook(w.t.Context(), w.by, w.agent.ID, p.HookID); err != nil {
					w.t.Error(err)
				}
				w.decide(p, false, "")
			},
		},
		"its agent is deleted": {
			status: hob.Cancelled, code: hob.CodeCancelled, result: "Cancelled before it was executed.", resolved: hob.ApprovalCancelled, late: "approval_cancelled",
			happens: func(w *world, _ hob.Approval) {
				if err := w.store.DeleteAgent(w.t.Context(), w.by, w.agent.ID); err != nil {
					w.t.Error(err)
				}
				w.engine.Wake()
			},
		},
		"the process ends and another comes": {
			status: hob.Completed, result: `once got {"n":1}`, resolved: hob.ApprovalApproved, late: "approval_decided", did: []string{`once{"n":1}`},
			happens: func(w *world, p hob.Approval) { w.stop(); w.begin(nil); w.decide(p, true, "") },
		},
		"somebody decides while no process is there": {
			status: hob.Completed, result: `once got {"n":1}`, resolved: hob.ApprovalApproved, late: "approval_decided", did: []string{`once{"n":1}`},
			happens: func(w *world, p hob.Approval) {
				w.stop()
				if _, err := w.store.Decide(w.t.Context(), person, hob.Decision{Run: p.RunID, Approval: p.ApprovalID, Approved: true}); err != nil {
					w.t.Error(err)
				}
				w.begin(nil)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := approvalHook(hob.PreToolUse)
			if c.timeout > 0 {
				h = expiring(h, c.timeout)
			}
			w, _ := hooked(t, once1, nil, []hob.Hook{h}, "once")
			w.limits.Grace = 10 * time.Millisecond
			w.begin(nil)
			if c.options.GraceSeconds == nil {
				c.options.OnDisconnect = hob.DisconnectContinue
			}
			run := w.start("go", c.options)
			var p hob.Approval
			waitUntil(t, func() bool {
				all := w.approvals(run.ID, "")
				got, err := w.store.Run(t.Context(), w.by, run.ID)
				if err != nil || len(all) == 0 {
					return false
				}
				p = all[0]
				return got.Status == hob.AwaitingApproval || p.Status != hob.ApprovalPending
			})
			c.happens(w, p)
			got := w.ends(run.ID)
			if got.Status != c.status || got.Code != c.code || got.Attempt != 1 {
				t.Errorf("it ended as %s (%s) %s in attempt %d", got.Status, got.Code, got.Error, got.Attempt)
			}
			if text := w.detail(got).Calls[0].Result.Text; !strings.HasPrefix(text, c.result) {
				t.Errorf("the call has %q", text)
			}
			resolved := told[hob.ApprovalResolvedEvent](w, run.ID, hob.EventApprovalResolved)
			if len(resolved) != 1 || resolved[0].Status != c.resolved || resolved[0].Approved != (c.resolved == hob.ApprovalApproved) {
				t.Errorf("told is %+v", resolved)
			}
			if row := w.approvals(run.ID, "")[0]; row.Status != c.resolved {
				t.Errorf("the approval is %s", row.Status)
			}
			_, err := w.engine.Decide(t.Context(), person, engine.DecideInput{Run: run.ID, Approval: p.ApprovalID, Approved: true})
			refusedWith(t, err, hob.Conflict, c.late)
			w.wantDid(c.did...)
			w.log(run.ID)
			w.valid(got)
		})
	}
}

func TestApproval_WithItsSessionTheWaitingRunIsGone(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, once1, nil, []hob.Hook{approvalHook(hob.PreToolUse)}, "once")
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	p := w.rests(run.ID, 1)[0]
	if err := w.store.DeleteSession(t.Context(), w.by, w.agent.ID, run.Session); err != nil {
		t.Fatal(err)
	}
	_, err := w.engine.Decide(t.Context(), person, engine.DecideInput{Run: run.ID, Approval: p.ApprovalID, Approved: true})
	refusedWith(t, err, hob.NotFound, "approval_not_found")
	w.engine.Wake()
	w.wantDid()
}

// Who waits for a run is answered when it rests, and a reader of its log stays until it has ended.
func TestApproval_WhoWaitsAndWhoReads(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, once1, nil, []hob.Hook{approvalHook(hob.PreToolUse)}, "once")
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	read := make(chan string, 1)
	go func() {
		var all []hob.Event
		for batch, err := range w.engine.Events(t.Context(), w.by, run.ID, 0, 0) {
			if err != nil {
				read <- err.Error()
				return
			}
			all = append(all, batch...)
		}
		read <- order(all)
	}()
	got := w.wait(run.ID)
	if got.Status != hob.AwaitingApproval || got.Steps != 1 || got.Content != "" {
		t.Fatalf("who waits gets %+v", got)
	}
	w.decide(w.rests(run.ID, 1)[0], true, "")
	if got = w.wait(run.ID); got.Status != hob.Completed || got.Content != "done" {
		t.Errorf("who waits again gets %+v", got)
	}
	if diff := cmp.Diff(order(w.log(run.ID)), <-read); diff != "" {
		t.Errorf("the reader saw (-stored +read):\n%s", diff)
	}
}

// hastyStore has a person decide just before a run tells that nobody did.
type hastyStore struct {
	hob.Store
	t    *testing.T
	once sync.Once
}

func (s *hastyStore) Commit(ctx context.Context, c hob.RunCommit) error {
	for _, p := range c.Approvals {
		if p.Status == hob.ApprovalCancelled {
			s.once.Do(func() {
				if _, err := s.Decide(ctx, person, hob.Decision{Run: c.Run, Approval: p.ApprovalID, Approved: true}); err != nil {
					s.t.Errorf("deciding while the run ends: %v", err)
				}
			})
		}
	}
	return s.Store.Commit(ctx, c)
}

// Whoever was told that a decision was taken finds it in the log, whatever became of the run.
func TestApproval_ADecisionWhileTheRunEndsStands(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, once1, nil, []hob.Hook{approvalHook(hob.PreToolUse)}, "once")
	w.begin(func(s hob.Store) hob.Store { return &hastyStore{Store: s, t: t} })
	brief := 0.2
	run := w.start("go", hob.RunOptions{Tuning: hob.Tuning{TimeoutSeconds: &brief}})
	w.rests(run.ID, 1)
	time.Sleep(200 * time.Millisecond)
	w.engine.Wake()
	got := w.ends(run.ID)
	resolved := told[hob.ApprovalResolvedEvent](w, run.ID, hob.EventApprovalResolved)
	row := w.approvals(run.ID, "")[0]
	if len(resolved) != 1 || resolved[0].Status != hob.ApprovalApproved || row.Status != hob.ApprovalApproved || !row.Settled || got.Code != hob.CodeTimeout {
		t.Errorf("it ended as %s (%s), the log tells %+v, the approval is %s", got.Status, got.Code, resolved, row.Status)
	}
	w.wantDid()
	w.log(run.ID)
}

// A run that has asked somebody is not given up because its client leaves, also while another call is under way.
func TestApproval_AClientMayLeaveAsSoonAsSomebodyWasAsked(t *testing.T) {
	t.Parallel()
	grace := 0.02
	w, _ := hooked(t, "call#c0: hang {}\ncall#c1: once {\"n\":1}\n---\ntext: done\n", nil, []hob.Hook{about(approvalHook(hob.PreToolUse), "once")}, "hang", "once")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 1)
	w.limits.Grace = 20 * time.Millisecond
	w.begin(nil)
	run := w.start("go", hob.RunOptions{Tuning: hob.Tuning{GraceSeconds: &grace}})
	w.readUntil(run.ID, 0, hob.EventApprovalRequested)
	w.toolCame()
	time.Sleep(200 * time.Millisecond)
	close(w.tools.hold)
	w.decide(w.rests(run.ID, 1)[0], true, "")
	if got := w.ends(run.ID); got.Status != hob.Completed {
		t.Errorf("it ended as %s (%s)", got.Status, got.Code)
	}
	w.wantDid("hang{}", `once{"n":1}`)
}
