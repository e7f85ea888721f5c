package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"hob"
)

func concurrencyCases() map[string]func(*world) {
	return map[string]func(*world){
		"ManyWritersKeepTheirOrder":          manyWriters,
		"EqualKeysAtOnceMakeOneRun":          equalKeys,
		"RunsAtOnceInOneSessionTakeTurns":    turnsAtOnce,
		"OneSessionIdForTwoOwnersAtOnce":     ownersAtOnce,
		"OneProcessWinsAStepAtOnce":          stepsAtOnce,
		"ACallerThatGivesUpCorruptsNothing":  givingUp,
		"DeletionBesideWritersIsClean":       deletionBeside,
		"ChangesOfAToolAtOnceAreAllVersions": toolChangesAtOnce,
		"PatchesOfAnAgentAtOnceAllCount":     agentPatchesAtOnce,
		"PatchesOfABucketAtOnceAllCount":     bucketPatchesAtOnce,
		"BucketIsDeletedBesideItsWriters":    bucketDeletedBeside,
		"ToolIsDeletedBesideItsUsers":        toolDeletedBeside,
	}
}

// together calls f n times at once and waits.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-gate
			f(i)
		})
	}
	close(gate)
	wg.Wait()
}

func manyWriters(w *world) {
	const writers, steps = 200, 10
	runs := make([]hob.Run, writers)
	together(writers, func(i int) {
		got, err := w.s.StartRun(w.ctx, w.newRun(w.alice, w.agent.ID, hob.SessionID(fmt.Sprintf("s%d", i))))
		if err != nil {
			w.t.Error(err)
			return
		}
		runs[i] = got.Run
		for seq := int64(2); seq <= steps; seq++ {
			if err := w.s.Commit(w.ctx, step(got.Run, event(seq, hob.EventChunk, fmt.Sprint(i)))); err != nil {
				w.t.Errorf("writer %d, step %d: %v", i, seq, err)
				return
			}
			// Durable and seen: what a commit that returned wrote is there for every reader.
			events, err := w.s.Events(w.ctx, w.alice, got.Run.ID, seq-1, 10)
			if err != nil || len(events) != 1 || events[0].Seq != seq {
				w.t.Errorf("writer %d reads after step %d: %v, %v", i, seq, seqs(events), err)
				return
			}
		}
	})
	for i, r := range runs {
		events, err := w.s.Events(w.ctx, w.alice, r.ID, 0, 100)
		w.must(err)
		same(w, fmt.Sprintf("events of writer %d", i), seqs(events), "[1 2 3 4 5 6 7 8 9 10]")
	}
	page, err := w.s.Sessions(w.ctx, w.alice, w.agent.ID, hob.SessionFilter{Limit: 10})
	w.must(err)
	same(w, "sessions", page.Total, writers)
}

func equalKeys(w *world) {
	const callers = 8
	for round := range 5 {
		got := make([]hob.StartedRun, callers)
		together(callers, func(i int) {
			n := idempotent(w.newRun(w.alice, w.agent.ID, hob.NewSessionID()), fmt.Sprint("k", round), "d", time.Hour)
			var err error
			if got[i], err = w.s.StartRun(w.ctx, n); err != nil {
				w.t.Error(err)
			}
		})
		made := 0
		for _, g := range got {
			same(w, "run", g.Run.ID, got[0].Run.ID)
			if !g.Replayed {
				made++
			}
		}
		same(w, "runs made", made, 1)
	}
	page, err := w.s.Sessions(w.ctx, w.alice, w.agent.ID, hob.SessionFilter{Limit: 10})
	w.must(err)
	same(w, "sessions", page.Total, 5)
}

func turnsAtOnce(w *world) {
	const callers = 20
	turns := make([]int64, callers)
	fresh := atomic.Int64{}
	together(callers, func(i int) {
		got, err := w.s.StartRun(w.ctx, w.newRun(w.alice, w.agent.ID, "shared"))
		if err != nil {
			w.t.Error(err)
			return
		}
		turns[i] = got.Run.Turn
		if got.Run.NewSession {
			fresh.Add(1)
		}
	})
	seen := map[int64]bool{}
	for _, turn := range turns {
		if turn < 1 || turn > callers || seen[turn] {
			w.t.Fatalf("turns %v are not each of 1 to %d once", turns, callers)
		}
		seen[turn] = true
	}
	same(w, "runs that made the session", fresh.Load(), 1)
}

func ownersAtOnce(w *world) {
	for round := range 10 {
		id := hob.SessionID(fmt.Sprint("wanted-", round))
		people := []hob.Principal{w.alice, w.bob}
		errs := make([]error, 2)
		together(2, func(i int) {
			_, errs[i] = w.s.StartRun(w.ctx, w.newRun(people[i], w.agent.ID, id))
		})
		kinds := map[hob.Kind]int{}
		for _, err := range errs {
			kinds[hob.KindOf(err)]++
		}
		if kinds[""] != 1 || kinds[hob.NotFound] != 1 {
			w.t.Fatalf("errors %v, want one success and one NotFound", errs)
		}
	}
}

func stepsAtOnce(w *world) {
	r := w.begin(w.alice, "s")
	for seq := int64(2); seq < 12; seq++ {
		errs := make([]error, 4)
		together(len(errs), func(i int) {
			errs[i] = w.s.Commit(w.ctx, step(r, event(seq, hob.EventChunk, fmt.Sprint(i))))
		})
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			w.want(hob.Fenced, err)
		}
		same(w, "commits that won", won, 1)
	}
	events, err := w.s.Events(w.ctx, w.alice, r.ID, 0, 100)
	w.must(err)
	same(w, "events", seqs(events), "[1 2 3 4 5 6 7 8 9 10 11]")
}

// givingUp: whoever leaves while writing has either written all or nothing, and nobody else is disturbed.
func givingUp(w *world) {
	const callers = 100
	var wrote atomic.Int64
	together(callers, func(i int) {
		id := hob.SessionID(fmt.Sprintf("s%03d", i))
		ctx, cancel := context.WithTimeout(w.ctx, time.Duration(i%10)*200*time.Microsecond)
		defer cancel()
		if i%10 == 9 {
			ctx = w.ctx // stays
		}
		n := w.newRun(w.alice, w.agent.ID, id)
		_, err := w.s.StartRun(ctx, n)
		if err != nil && i%10 == 9 {
			w.t.Errorf("caller %d: %v", i, err)
			return
		}
		if err == nil {
			wrote.Add(1)
		}
		d, readErr := w.s.RunDetail(w.ctx, w.alice, n.Run.ID)
		switch {
		case err == nil && (readErr != nil || len(d.Messages) != 1 || len(d.Events) != 1):
			w.t.Errorf("caller %d wrote, but: %v %+v", i, readErr, d)
		case err != nil && readErr == nil && (len(d.Messages) != 1 || len(d.Events) != 1):
			w.t.Errorf("caller %d gave up and left half a run: %+v", i, d)
		}
	})
	if wrote.Load() < callers/10 {
		w.t.Errorf("%d callers wrote, want at least those who stayed", wrote.Load())
	}
	w.begin(w.alice, "after")
}

func deletionBeside(w *world) {
	for round := range 5 {
		id := hob.SessionID(fmt.Sprint("s", round))
		r := w.begin(w.alice, id)
		together(4, func(i int) {
			switch i {
			case 0:
				if err := w.s.DeleteSession(w.ctx, w.alice, "", id); err != nil {
					w.t.Error(err)
				}
			case 1:
				if _, err := w.s.StartRun(w.ctx, w.newRun(w.alice, w.agent.ID, id)); err != nil {
					w.t.Error(err)
				}
			default:
				for seq := int64(2); seq < 20; seq++ {
					err := w.s.Commit(w.ctx, step(r, event(seq, hob.EventChunk, "x")))
					if k := hob.KindOf(err); k != "" && k != hob.Fenced {
						w.t.Error(err)
					}
				}
			}
		})
		_, err := w.s.Run(w.ctx, w.alice, r.ID)
		w.want(hob.NotFound, err)
	}
}
