package engine_test

import (
	"context"
	"testing"
	"time"

	"hob"
	"hob/internal/engine"
)

// TestRecover_ManyRunsAreTakenUpOnceEach restarts a process that drove more runs than are claimed at one look.
func TestRecover_ManyRunsAreTakenUpOnceEach(t *testing.T) {
	t.Parallel()
	const runs = 150
	w := newWorld(t, map[string]any{"script": "call: hang {}\n---\ncall: hang {}\n---\ntext: done\n"}, "hang")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 4*runs)
	w.begin(nil)
	for range runs {
		w.start("go", hob.RunOptions{Tuning: hob.Tuning{OnDisconnect: hob.DisconnectContinue}})
	}
	for range runs {
		w.toolCame()
	}
	w.stop()
	w.begin(nil)
	for range runs {
		w.toolCame()
	}
	time.Sleep(50 * time.Millisecond)
	close(w.tools.hold)
	waitUntil(t, func() bool { return w.engine.Stats().Active == 0 })
	done := 0
	for _, run := range runsOf(w) {
		if run.Status != hob.Completed || run.Attempt != 2 {
			t.Fatalf("%s ended as %s (%s) at attempt %d", run.ID, run.Status, run.Code, run.Attempt)
		}
		done++
	}
	if done != 100 { // as many as are listed
		t.Fatalf("%d runs are listed", done)
	}
}

// TestDrain_AHandoverIsNoStall lets a process end in good order, its leases looked after to the end, and another one take
// what it left.
func TestDrain_AHandoverIsNoStall(t *testing.T) {
	t.Parallel()
	const runs = 8
	w := hanging(t, engine.Limits{})
	for range runs {
		w.start("go", hob.RunOptions{})
	}
	for range runs {
		w.toolCame()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = w.engine.Drain(ended)
	claimed, err := w.store.Claim(t.Context(), "the next process", time.Minute, 2*runs, false)
	if err != nil || len(claimed) != runs {
		t.Fatalf("%d of %d runs were left: %v", len(claimed), runs, err)
	}
	for _, c := range claimed {
		if st, err := w.store.Load(t.Context(), c.Run); err != nil || st.Run.Stalls != 0 {
			t.Errorf("%s has %d stalls: %v", c.Run, st.Run.Stalls, err)
		}
	}
}
