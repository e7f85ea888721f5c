package storetest

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func restingCases() map[string]func(*world) {
	return map[string]func(*world){
		"ARunRestsUntilADecision":                   restsUntilDecided,
		"ARunDoesNotRestForWhatIsThere":             restsNot,
		"ARestingRunIsTakenUpInTime":                wakesInTime,
		"WhoCancelsARestingRunWakesIt":              cancelWakes,
		"ADecisionAndTheRestCannotMissEachOther":    decideWhileResting,
		"LoadTellsWhatHooksAndPeopleSaid":           loadTells,
		"ARewrittenAnswerIsWhatTheSessionRemembers": rewritten,
	}
}

func restsUntilDecided(w *world) {
	r := w.asking("a", "b")
	same(w, "run", w.status(r.ID), hob.AwaitingApproval)
	same(w, "claimed although it rests", len(w.claim("p2", true)), 0)
	got, err := w.s.Run(w.ctx, w.alice, r.ID)
	w.must(err)
	same(w, "owner", got.LeaseOwner, "")
	w.decide(w.alice, r, "a")
	same(w, "run", w.status(r.ID), hob.Queued)
	w.decide(w.alice, r, "b") // it is woken already
	claimed := w.claim("p2", false)
	if len(claimed) != 1 || claimed[0] != (hob.Claimed{Run: r.ID, Epoch: 2}) {
		w.t.Fatalf("claimed %v", claimed)
	}
	same(w, "claimed again", len(w.claim("p3", false)), 0)
	st, err := w.s.Load(w.ctx, r.ID)
	w.must(err)
	if st.Run.Status != hob.Running || st.Run.Attempt != 1 || st.Run.Stalls != 0 || st.Run.LeaseOwner != "p2" {
		w.t.Fatalf("a woken run begins no new attempt: %+v", st.Run)
	}
	// What comes behind counts as ever: its process ends, and another one takes it over.
	claimed = w.claim("p3", true)
	same(w, "taken over", len(claimed), 1)
	st, err = w.s.Load(w.ctx, r.ID)
	w.must(err)
	same(w, "attempt and stalls", fmt.Sprint(st.Run.Attempt, st.Run.Stalls), "2 1")
	w.want(hob.Fenced, w.s.Commit(w.ctx, step(r, event(3, hob.EventChunk, "late")))) // by who laid it to rest
}

func restsNot(w *world) {
	for name, before := range map[string]func(hob.Run, string){
		"decided": func(r hob.Run, id string) { w.decide(w.alice, r, id) },
		"cancelled": func(r hob.Run, _ string) {
			_, err := w.s.RequestCancel(w.ctx, w.alice, r.ID, hob.CodeCancelled)
			w.must(err)
		},
		"expired": func(hob.Run, string) { over() },
	} {
		r := w.begin(w.alice, hob.SessionID(name))
		a := pending(name, hob.ApproverOwner)
		if name == "expired" {
			a.Timeout = brief
		}
		c := step(r, event(2, hob.EventApprovalRequested, ""))
		c.Approvals = []hob.Approval{a}
		w.must(w.s.Commit(w.ctx, c))
		before(r, name)
		r.LastSeq = 2
		w.must(w.s.Commit(w.ctx, ask(r)))
		if got := w.status(r.ID); got != hob.Queued {
			w.t.Fatalf("%s: the run is %s", name, got)
		}
		claimed := w.claim("p2", false)
		same(w, "claimed, "+name, len(claimed), 1)
		st, err := w.s.Load(w.ctx, r.ID)
		w.must(err)
		same(w, "attempt", st.Run.Attempt, 1)
		if name == "cancelled" {
			continue
		}
		// Once its log tells what became of it, nothing keeps it from resting.
		r.Epoch, r.LastSeq = claimed[0].Epoch, 3
		w.must(w.s.Commit(w.ctx, ask(r, hob.Approval{ApprovalID: name, Status: st.Approvals[0].Status, Settled: true}, pending(name+"2"))))
		same(w, "run, "+name, w.status(r.ID), hob.AwaitingApproval)
	}
}

func wakesInTime(w *world) {
	soon, late, never := w.begin(w.alice, "soon"), w.begin(w.alice, "late"), w.begin(w.alice, "never")
	hour := pending("hour")
	hour.Timeout = time.Hour
	c := ask(soon, hour)
	c.Outcome.Wake = brief // before the approval expires
	w.must(w.s.Commit(w.ctx, c))
	first := pending("first")
	first.Timeout = brief // before its time of waking
	c = ask(late, first, pending("second"))
	c.Outcome.Wake = time.Hour
	w.must(w.s.Commit(w.ctx, c))
	w.must(w.s.Commit(w.ctx, ask(never, pending("third"))))
	far := w.begin(w.alice, "far")
	hour.ApprovalID = "another hour"
	c = ask(far, hour)
	c.Outcome.Wake = time.Hour
	w.must(w.s.Commit(w.ctx, c))
	over()
	var mu sync.Mutex
	got := map[hob.RunID]int{}
	together(4, func(i int) {
		list, err := w.s.Claim(w.ctx, fmt.Sprint("q", i), lease, 10, false)
		if err != nil {
			w.t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, c := range list {
			got[c.Run]++
		}
	})
	for _, c := range w.claim("last", false) { // what all of them found locked by each other
		got[c.Run]++
	}
	if d := cmp.Diff(map[hob.RunID]int{soon.ID: 1, late.ID: 1}, got); d != "" {
		w.t.Fatalf("-want +claimed:\n%s", d)
	}
	st, err := w.s.Load(w.ctx, soon.ID)
	w.must(err)
	same(w, "attempt and stalls", fmt.Sprint(st.Run.Attempt, st.Run.Stalls), "1 0")
	same(w, "runs", fmt.Sprint(w.status(never.ID), w.status(far.ID)), fmt.Sprint(hob.AwaitingApproval, hob.AwaitingApproval))
}

func cancelWakes(w *world) {
	key, err := w.s.CreateKey(w.ctx, w.service, hob.Key{Name: "k", Scopes: []hob.Scope{hob.ScopeRun, hob.ScopeApprove}}, []byte("hash"))
	w.must(err)
	holder := key.Principal()
	asked := w.asking("asked")
	revoked := w.start(w.newRun(holder, w.agent.ID, "revoked"))
	deleted := w.start(w.newRun(w.alice, w.other.ID, "deleted"))
	w.must(w.s.Commit(w.ctx, ask(revoked, pending("revoked", hob.ApproverOwner))))
	w.must(w.s.Commit(w.ctx, ask(deleted, pending("deleted", hob.ApproverOwner))))
	plain := w.start(w.newRun(holder, w.agent.ID, "plain"))
	rests := w.asking("rests")

	_, err = w.s.RequestCancel(w.ctx, w.alice, asked.ID, hob.CodeClientDisconnected)
	w.must(err)
	_, err = w.s.RevokeKey(w.ctx, w.service, key.ID)
	w.must(err)
	w.must(w.s.DeleteAgent(w.ctx, w.service, w.other.ID))
	for _, tt := range []struct {
		run    hob.Run
		by     hob.Principal
		id     string
		status hob.Status
		code   string
	}{
		{asked, w.alice, "asked", hob.Queued, hob.CodeClientDisconnected},
		{revoked, holder, "revoked", hob.Queued, hob.CodeKeyRevoked},
		{deleted, w.alice, "deleted", hob.Queued, hob.CodeCancelled},
		{plain, holder, "", hob.Running, hob.CodeKeyRevoked},
		{rests, w.alice, "", hob.AwaitingApproval, ""},
	} {
		st, err := w.s.Load(w.ctx, tt.run.ID)
		w.must(err)
		same(w, "state of "+tt.id, fmt.Sprint(st.Run.Status, st.Run.CancelCode), fmt.Sprint(tt.status, tt.code))
		if tt.id == "" {
			continue
		}
		_, err = w.s.Decide(w.ctx, tt.by, hob.Decision{Run: tt.run.ID, Approval: tt.id, Approved: true})
		same(w, "status", w.refused(err, hob.Conflict, "approval_cancelled").Details["status"], any(hob.ApprovalCancelled))
	}
	same(w, "claimed", len(w.claim("p2", false)), 3)
}

// decideWhileResting: whichever comes first, the run does not rest with a decision that its log does not tell.
func decideWhileResting(w *world) {
	for round := range 12 {
		id := fmt.Sprint("a", round)
		r := w.begin(w.alice, hob.NewSessionID())
		c := step(r, event(2, hob.EventApprovalRequested, ""))
		c.Approvals = []hob.Approval{pending(id, hob.ApproverOwner)}
		w.must(w.s.Commit(w.ctx, c))
		r.LastSeq = 2
		together(3, func(i int) {
			var err error
			switch i {
			case 0:
				err = w.s.Commit(w.ctx, ask(r))
			case 1:
				_, err = w.s.Decide(w.ctx, w.alice, hob.Decision{Run: r.ID, Approval: id, Approved: true})
			case 2:
				_, err = w.s.Claim(w.ctx, "p9", lease, 100, false)
			}
			if err != nil {
				w.t.Errorf("round %d, %d: %v", round, i, err)
			}
		})
		same(w, "statuses", w.statuses(r.ID), "[approved]")
		if got := w.status(r.ID); got != hob.Queued && got != hob.Running {
			w.t.Fatalf("round %d: the run is %s although the approval is decided", round, got)
		}
	}
}

func loadTells(w *world) {
	r := w.begin(w.alice, "s")
	hooks := []hob.HookResultEvent{
		{
			EventHead: hob.EventHead{Event: hob.EventHookResult, Type: hob.EventHookResult, Seq: 2, Run: r.ID, TS: now()},
			HookID:    "h1", Source: "hook", HookEvent: hob.PreToolUse, HookType: hob.HTTPHook, Position: 3, CallID: "c1", ToolName: "shell",
			Action: hob.HookAllow, Status: hob.HookSucceeded, Modified: true, LatencyMS: 12, ModifiedInput: json.RawMessage(`{"a":1}`), DeliveryID: "d1",
		},
		{
			EventHead: hob.EventHead{Event: hob.EventHookResult, Type: hob.EventHookResult, Seq: 4, Run: r.ID, TS: now()},
			Source:    "tool_rule", HookType: hob.RuleHook, Action: hob.HookDeny, Status: hob.HookTimedOut, Blocked: true, Message: "no",
		},
	}
	var events []hob.Event
	for _, e := range []any{hooks[0], hob.AttemptEvent{Attempt: 3}, hooks[1], hob.AttemptEvent{Attempt: 2}} {
		data, err := json.Marshal(e)
		w.must(err)
		kind := hob.EventAttempt
		if _, ok := e.(hob.HookResultEvent); ok {
			kind = hob.EventHookResult
		}
		events = append(events, hob.Event{Seq: int64(len(events) + 2), Type: kind, Data: data, Time: now()})
	}
	w.must(w.s.Commit(w.ctx, step(r, events[:2]...)))
	w.must(w.s.Commit(w.ctx, step(r, events[2:]...)))
	st, err := w.s.Load(w.ctx, r.ID)
	w.must(err)
	same(w, "told", st.Told, 2) // the last one counts
	if d := cmp.Diff(hooks, st.Hooks); d != "" {
		w.t.Fatalf("-said +loaded:\n%s", d)
	}
}

func rewritten(w *world) {
	r := w.begin(w.alice, "s")
	c := step(r, event(2, hob.EventChunk, "x"))
	c.Base, c.Messages = 1, []hob.Message{{Role: hob.RoleAssistant, Content: "my card is 4111"}}
	w.must(w.s.Commit(w.ctx, c))
	r.LastSeq = 2
	end := ending(r, hob.Completed, "")
	end.Rewrite = &hob.Message{Role: hob.RoleAssistant, Content: "my card is [hidden]", Reasoning: &hob.Reasoning{Text: "hm"}}
	end.Outcome.Content = "my card is [hidden]"
	w.must(w.s.Commit(w.ctx, end))
	// In one commit with the message itself it is the same.
	again := ending(w.begin(w.alice, "s"), hob.Completed, "the number 4111 again")
	again.Rewrite = &hob.Message{Role: hob.RoleAssistant, Content: "no"}
	w.must(w.s.Commit(w.ctx, again))
	h, err := w.s.History(w.ctx, w.alice, "s", hob.HistoryRange{Before: 9, Budget: 1000})
	w.must(err)
	if len(h.Runs) != 2 || len(h.Runs[0].Messages) != 2 || len(h.Runs[1].Messages) != 2 {
		w.t.Fatalf("history %+v", h)
	}
	if d := cmp.Diff(*end.Rewrite, h.Runs[0].Messages[1]); d != "" {
		w.t.Fatalf("-rewritten +remembered:\n%s", d)
	}
	same(w, "second answer", h.Runs[1].Messages[1].Content, "no")
	same(w, "characters", h.Runs[1].Chars, len("hello from ")+len(again.Run)+len("no"))
}
