package storetest

import (
	"maps"
	"sync"
	"time"

	"hob"
)

func leaseCases() map[string]func(*world) {
	return map[string]func(*world){
		"ClaimTakesQueuedAndExpiredRunsOnly": claimTakes,
		"ClaimGivesARunToOneOwner":           claimOnce,
		"RenewKeepsTheLease":                 renewKeeps,
		"RenewTellsCancelMarks":              renewMarks,
		"ClaimsCountStalls":                  claimsCount,
		"HeldRunsWaitForTheirRelease":        heldWait,
		"ReleaseFreesTheRuns":                releaseFrees,
		"CancelMarksUnfinishedRunsOnly":      cancelMarks,
	}
}

// brief is a lease that ends soon; over waits until it has.
const brief = 30 * time.Millisecond

func over() { time.Sleep(3 * brief) }

func (w *world) claim(owner string, all bool) []hob.Claimed {
	w.t.Helper()
	list, err := w.s.Claim(w.ctx, owner, lease, 100, all)
	w.must(err)
	return list
}

// rest lays a run to rest in a state.
func (w *world) rest(r hob.Run, s hob.Status) {
	w.t.Helper()
	c := step(r)
	c.Outcome = &hob.Outcome{Status: s}
	w.must(w.s.Commit(w.ctx, c))
}

func claimTakes(w *world) {
	expired := w.newRun(w.alice, w.agent.ID, "expired")
	expired.Lease = brief
	dead := w.start(expired)
	live, queued, waiting, done := w.begin(w.alice, "live"), w.begin(w.alice, "queued"), w.begin(w.alice, "waiting"), w.begin(w.alice, "done")
	w.rest(queued, hob.Queued)
	w.rest(waiting, hob.AwaitingApproval)
	w.finish(done, "x")
	over()
	got := map[hob.RunID]int64{}
	for _, c := range w.claim("p2", false) {
		got[c.Run] = c.Epoch
	}
	if len(got) != 2 || got[dead.ID] != 2 || got[queued.ID] != 2 {
		w.t.Fatalf("claimed %v, want %s and %s in epoch 2", got, dead.ID, queued.ID)
	}
	r, err := w.s.Run(w.ctx, w.alice, queued.ID)
	w.must(err)
	if r.Status != hob.Running || r.LeaseOwner != "p2" || r.Attempt != 2 || r.Epoch != 2 {
		w.t.Fatalf("claimed run: %+v", r)
	}
	same(w, "claimed again", len(w.claim("p3", false)), 0)
	all := w.claim("p3", true)
	same(w, "claimed by the only process", len(all), 3)
	same(w, "claimed by the only process again", len(w.claim("p3", true)), 0)
	for _, c := range all {
		if c.Run == waiting.ID || c.Run == done.ID {
			w.t.Fatalf("claimed %s, which rests or has ended", c.Run)
		}
	}
	r, err = w.s.Run(w.ctx, w.alice, live.ID)
	w.must(err)
	same(w, "owner", r.LeaseOwner, "p3")
	if _, err := w.s.Claim(w.ctx, "", lease, 1, true); err == nil {
		w.t.Fatal("a claim without an owner was let through")
	}
}

func claimOnce(w *world) {
	const runs, owners = 60, 6
	for range runs {
		w.rest(w.begin(w.alice, hob.NewSessionID()), hob.Queued)
	}
	taken := make([][]hob.Claimed, owners)
	var wg sync.WaitGroup
	for i := range owners {
		wg.Go(func() {
			for {
				list, err := w.s.Claim(w.ctx, string(rune('a'+i)), lease, 3, false)
				if err != nil {
					w.t.Error(err)
					return
				}
				if len(list) > 3 {
					w.t.Errorf("claimed %d, at most 3 were asked for", len(list))
				}
				taken[i] = append(taken[i], list...)
				if len(list) == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	seen := map[hob.RunID]bool{}
	for i, list := range taken {
		for _, c := range list {
			if seen[c.Run] || c.Epoch != 2 {
				w.t.Errorf("run %s in epoch %d went to owner %d although taken: %v", c.Run, c.Epoch, i, seen[c.Run])
			}
			seen[c.Run] = true
		}
	}
	// A claim that found everything locked by others may have gone home early; nothing may be lost all the same.
	for _, c := range w.claim("last", false) {
		seen[c.Run] = true
	}
	same(w, "runs taken", len(seen), runs)
}

func renewKeeps(w *world) {
	n := w.newRun(w.alice, w.agent.ID, "s")
	n.Lease = brief
	r := w.start(n)
	_, err := w.s.Renew(w.ctx, "p1", lease)
	w.must(err)
	over()
	same(w, "claimed although renewed", len(w.claim("p2", false)), 0)
	_, err = w.s.Renew(w.ctx, "p1", brief)
	w.must(err)
	w.must(w.s.Commit(w.ctx, step(r, event(2, hob.EventChunk, "x")))) // a commit renews as well
	over()
	same(w, "claimed although committed", len(w.claim("p2", false)), 0)
	_, err = w.s.Renew(w.ctx, "p1", brief)
	w.must(err)
	over()
	same(w, "claimed after the end", len(w.claim("p2", false)), 1)
	marks, err := w.s.Renew(w.ctx, "p1", lease) // not its own any more
	w.must(err)
	same(w, "marks", len(marks), 0)
	got, err := w.s.Run(w.ctx, w.alice, r.ID)
	w.must(err)
	same(w, "owner", got.LeaseOwner, "p2")
}

func renewMarks(w *world) {
	mine, plain, ended := w.begin(w.alice, "a"), w.begin(w.alice, "b"), w.begin(w.alice, "c")
	n := w.newRun(w.alice, w.agent.ID, "d")
	n.Run.LeaseOwner = "p2"
	theirs := w.start(n)
	for _, r := range []hob.Run{mine, ended, theirs} {
		_, err := w.s.RequestCancel(w.ctx, w.alice, r.ID, hob.CodeClientDisconnected)
		w.must(err)
	}
	w.finish(ended, "x")
	marks, err := w.s.Renew(w.ctx, "p1", lease)
	w.must(err)
	if want := map[hob.RunID]string{mine.ID: hob.CodeClientDisconnected, plain.ID: ""}; !maps.Equal(marks, want) {
		w.t.Fatalf("runs of p1: %v, want %v", marks, want)
	}
	st, err := w.s.Load(w.ctx, mine.ID)
	w.must(err)
	same(w, "mark", st.Run.CancelCode, hob.CodeClientDisconnected)
	resting := w.begin(w.alice, "e")
	w.rest(resting, hob.AwaitingApproval)
	_, err = w.s.RequestCancel(w.ctx, w.alice, resting.ID, hob.CodeCancelled)
	w.must(err)
	marks, err = w.s.Renew(w.ctx, "", lease)
	w.must(err)
	same(w, "marks of nobody", len(marks), 0)
}

func claimsCount(w *world) {
	r := w.begin(w.alice, "s")
	stalls := func(want int) {
		w.t.Helper()
		st, err := w.s.Load(w.ctx, r.ID)
		w.must(err)
		same(w, "stalls", st.Run.Stalls, want)
	}
	stalls(0)
	w.claim("p2", true)
	w.claim("p3", true)
	stalls(2)
	w.must(w.s.Release(w.ctx, "p3", false)) // in good order
	same(w, "claimed", len(w.claim("p4", false)), 1)
	stalls(2)
	w.must(w.s.Release(w.ctx, "p4", true, r.ID)) // it could not be driven
	got := w.claim("p5", false)
	same(w, "claimed", len(got), 1)
	stalls(3)
	c := step(r, event(2, hob.EventChunk, "x"))
	c.Epoch = got[0].Epoch
	w.must(w.s.Commit(w.ctx, c))
	stalls(3)
	c = step(r, event(3, hob.EventChunk, "y"))
	c.Epoch, c.Base, c.Messages = got[0].Epoch, 1, []hob.Message{{Role: hob.RoleAssistant, Content: "y"}}
	w.must(w.s.Commit(w.ctx, c))
	stalls(0)
}

func heldWait(w *world) {
	held, err := w.s.HeldRuns(w.ctx, w.service)
	w.must(err)
	same(w, "held runs of a store that was not restored", len(held), 0)
	n, err := w.s.ReleaseHeld(w.ctx, w.service)
	w.must(err)
	same(w, "released", n, int64(0))
	r := w.begin(w.alice, "s")
	n, err = w.s.ReleaseHeld(w.ctx, w.service, r.ID) // known, and not held
	w.must(err)
	same(w, "released", n, int64(0))
	_, err = w.s.ReleaseHeld(w.ctx, w.service, r.ID, "run_none")
	w.want(hob.NotFound, err)
	_, err = w.s.HeldRuns(w.ctx, w.alice)
	w.want(hob.Forbidden, err)
	_, err = w.s.ReleaseHeld(w.ctx, w.alice)
	w.want(hob.Forbidden, err)
}

func releaseFrees(w *world) {
	a, b := w.begin(w.alice, "a"), w.begin(w.alice, "b")
	n := w.newRun(w.alice, w.agent.ID, "c")
	n.Run.LeaseOwner = "p2"
	w.start(n)
	w.must(w.s.Release(w.ctx, "p1", true, a.ID, "run_unknown"))
	got := w.claim("p3", false)
	if len(got) != 1 || got[0].Run != a.ID {
		w.t.Fatalf("claimed %v, want %s, the one released", got, a.ID)
	}
	w.must(w.s.Release(w.ctx, "p1", true, a.ID)) // p3's by now
	same(w, "claimed from p3", len(w.claim("p4", false)), 0)
	w.must(w.s.Release(w.ctx, "p1", true))
	got = w.claim("p3", false)
	if len(got) != 1 || got[0].Run != b.ID {
		w.t.Fatalf("claimed %v, want %s, the rest of p1", got, b.ID)
	}
	w.must(w.s.Release(w.ctx, "", false))
	// A release ends the lease, not the right to write: that ends with the next claim.
	last := w.begin(w.alice, "d")
	w.must(w.s.Release(w.ctx, "p1", true, last.ID))
	w.must(w.s.Commit(w.ctx, step(last, event(2, hob.EventChunk, "x"))))
}

func cancelMarks(w *world) {
	r := w.begin(w.alice, "s")
	_, err := w.s.RequestCancel(w.ctx, w.bob, r.ID, hob.CodeCancelled)
	w.want(hob.NotFound, err)
	reader := w.alice
	reader.Scopes = []hob.Scope{hob.ScopeRead}
	_, err = w.s.RequestCancel(w.ctx, reader, r.ID, hob.CodeCancelled)
	w.want(hob.Forbidden, err)
	before, err := w.s.RequestCancel(w.ctx, w.alice, r.ID, hob.CodeClientDisconnected)
	w.must(err)
	same(w, "mark of the run as it was", before.CancelCode, "")
	before, err = w.s.RequestCancel(w.ctx, w.service, r.ID, hob.CodeCancelled)
	w.must(err)
	same(w, "the first mark stays", before.CancelCode, hob.CodeClientDisconnected)
	done := w.begin(w.alice, "s2")
	w.finish(done, "x")
	got, err := w.s.RequestCancel(w.ctx, w.alice, done.ID, hob.CodeCancelled)
	w.must(err)
	same(w, "status", got.Status, hob.Completed)
	got, err = w.s.Run(w.ctx, w.alice, done.ID)
	w.must(err)
	same(w, "mark of a finished run", got.CancelCode, "")
	_, err = w.s.RequestCancel(w.ctx, w.service, "run_none", hob.CodeCancelled)
	w.want(hob.NotFound, err)
}
