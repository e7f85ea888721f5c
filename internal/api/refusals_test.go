package api_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hob/internal/api"
)

// A run that is refused is refused before anything of it is read: what is wrong with it does not matter.
func TestRun_IsRefusedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.agent("slow")
	now, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	if err := w.engine.Drain(now); err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{"/run", "/run/stream"} {
		r := w.do(ask{"POST", "/api/agents/" + string(agent) + way, w.service, `{"message":`, nil})
		if e := wantFault(t, r, 503, "shutting down"); e.Code != "shutting_down" {
			t.Errorf("%s: code %q", way, e.Code)
		}
		if got := r.header.Get("Retry-After"); got != "1" {
			t.Errorf("%s: Retry-After %q", way, got)
		}
	}
	wantFault(t, w.do(ask{"POST", "/api/agents/" + string(agent) + "/run", "", `{"message":`, nil}), 401, "")
	if n := w.metric("hob_runs_accepted_total"); n != 0 {
		t.Errorf("%d runs were accepted", n)
	}
}

func TestRefusals_AllComeTheirTurn(t *testing.T) {
	t.Parallel()
	wait := api.NewRefusals()
	var group sync.WaitGroup
	var done atomic.Int64
	for range 3000 {
		group.Go(func() {
			for range 5 {
				wait()
				done.Add(1)
			}
		})
	}
	group.Wait()
	if done.Load() != 15_000 {
		t.Fatalf("%d turns", done.Load())
	}
}
