package engine_test

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"hob"
	"hob/internal/engine"
)

// How many runs wait at once: so many in an ordinary run of the tests, and as many as the environment says in others.
const (
	waitingRuns    = 1000
	waitingRunsEnv = "HOB_TEST_WAITING_RUNS"
	waitingHeap    = 50 << 20 // bytes that they may keep, however many they are
)

// TestApproval_ARunThatWaitsHoldsNothing starts many runs that wait for a person, and looks at what is left of them in
// memory. It has the process for itself: it is not parallel.
func TestApproval_ARunThatWaitsHoldsNothing(t *testing.T) { //nolint:paralleltest // it measures the whole process
	n := waitingRuns
	if raced {
		n = 50 // the detector keeps memory of its own
	}
	if s := os.Getenv(waitingRunsEnv); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	h := approvalHook(hob.PreToolUse)
	w, _ := hooked(t, once1, nil, []hob.Hook{expiring(h, time.Hour)}, "once")
	w.begin(nil)
	w.askAll(20) // what is made once is made
	heap, goroutines := held()
	began := time.Now()
	runs := w.askAll(n)
	took := time.Since(began)
	var more uint64
	left := 0
	waitUntil(t, func() bool { // what the last of them leaves behind is still going
		var after uint64
		if after, left = held(); after > heap {
			more = after - heap
		}
		return left <= goroutines
	})
	t.Logf("%d runs wait after %s: %d goroutines before and %d now, %.1f MB more on the heap", n, took.Round(time.Millisecond), goroutines, left, float64(more)/(1<<20))
	if more > waitingHeap {
		t.Errorf("%d runs that wait keep %d bytes", n, more)
	}
	for _, i := range []int{0, n / 2, n - 1} {
		if _, err := w.engine.Decide(t.Context(), person, engine.DecideInput{Run: runs[i], Approved: true}); err != nil {
			t.Fatal(err)
		}
		if got := w.ends(runs[i]); got.Status != hob.Completed {
			t.Errorf("one of them ended as %s (%s)", got.Status, got.Code)
		}
	}
}

// held is what the process keeps: bytes of its heap, and goroutines.
func held() (heap uint64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, runtime.NumGoroutine()
}

// askAll starts runs, some at a time, and waits until all of them rest.
func (w *world) askAll(n int) []hob.RunID {
	w.t.Helper()
	runs := make([]hob.RunID, n)
	var group sync.WaitGroup
	next := make(chan int)
	for range 32 {
		group.Go(func() {
			for i := range next {
				for {
					got, err := w.engine.Start(w.t.Context(), w.by, engine.StartInput{Agent: w.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"}})
					if runs[i] = got.Run.ID; err == nil {
						break
					}
					if k := hob.KindOf(err); k != hob.Unavailable && k != hob.RateLimited {
						w.t.Error(err)
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	waitUntil(w.t, func() bool {
		for _, id := range []hob.RunID{runs[0], runs[n-1]} {
			if run, err := w.store.Run(w.t.Context(), w.by, id); err != nil || run.Status != hob.AwaitingApproval {
				return false
			}
		}
		return w.engine.Stats().Active == 0
	})
	return runs
}
