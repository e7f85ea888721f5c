package storetest

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hob"
)

func deliveryCases() map[string]func(*world) {
	return map[string]func(*world){
		"DeliveriesAreMadeFromTheQueue":     deliveriesMade,
		"DeliveriesAreTakenByOneAtATime":    deliveriesTakenOnce,
		"DeliveriesOutliveHooksAndSessions": deliveriesStay,
	}
}

// tell ends a run of alice's and has hooks told.
func (w *world) tell(list ...hob.Delivery) hob.Run {
	w.t.Helper()
	r := w.begin(w.alice, hob.NewSessionID())
	c := ending(r, hob.Completed, "done")
	c.Deliveries = list
	w.must(w.s.Commit(w.ctx, c))
	return r
}

func (w *world) due(d time.Duration) []hob.DueDelivery {
	w.t.Helper()
	list, err := w.s.DueDeliveries(w.ctx, d, 100)
	w.must(err)
	return list
}

func delivery(id string, h hob.Hook) hob.Delivery {
	return hob.Delivery{ID: id, Hook: h.ID, Event: string(hob.OnRunComplete), URL: h.Config.URL, Body: json.RawMessage(`{"event":"OnRunComplete"}`)}
}

func deliveriesMade(w *world) {
	h := w.newHook("told", func(h *hob.Hook) { h.Event, h.Config.Secret = hob.OnRunComplete, "whsec" })
	same(w, "due at first", len(w.due(time.Minute)), 0)
	r := w.tell(delivery("d1", h), delivery("d2", h), delivery("d1", h)) // the same twice is one
	want := delivery("d1", h)
	want.Agent, want.Workspace, want.Run, want.Status = w.agent.ID, hob.DefaultWorkspace, r.ID, hob.DeliveryQueued
	listed := func() []hob.Delivery {
		w.t.Helper()
		list, err := w.s.Deliveries(w.ctx, w.key, w.agent.ID, h.ID, 10)
		w.must(err)
		return list
	}
	times := cmpopts.IgnoreFields(hob.Delivery{}, "CreatedAt", "NextAt")
	all := listed()
	if d := cmp.Diff(want, all[1], times); d != "" || len(all) != 2 || all[0].ID != "d2" {
		w.t.Fatalf("newest first: %+v\n-want +listed:\n%s", all, d)
	}
	if age := time.Since(all[0].NextAt.Time).Abs(); age > time.Minute {
		w.t.Fatalf("due at %v", all[0].NextAt)
	}
	got := w.due(time.Minute)
	same(w, "due", len(got), 2)
	want.Attempts = 1
	if d := cmp.Diff(hob.DueDelivery{Delivery: want, To: h}, got[0], times); d != "" || got[0].To.Config.Secret != "whsec" {
		w.t.Fatalf("-want +due:\n%s", d)
	}
	same(w, "due while leased", len(w.due(time.Minute)), 0)

	w.must(w.s.DeliveryDone(w.ctx, "d2", hob.DeliveryDelivered, "", 0))
	w.must(w.s.DeliveryDone(w.ctx, "d1", hob.DeliveryQueued, "502", time.Hour))
	same(w, "due although put off", len(w.due(brief)), 0)
	w.must(w.s.DeliveryDone(w.ctx, "d1", hob.DeliveryQueued, "503", 0))
	got = w.due(brief)
	if len(got) != 1 || got[0].ID != "d1" || got[0].Attempts != 2 || got[0].Error != "503" {
		w.t.Fatalf("due again: %+v", got)
	}
	over() // and nobody said how it went
	got = w.due(time.Minute)
	same(w, "due after the lease", len(got), 1)
	same(w, "attempts", got[0].Attempts, 3)
	w.must(w.s.DeliveryDone(w.ctx, "d1", hob.DeliveryFailed, "gone", 0))
	w.must(w.s.DeliveryDone(w.ctx, "d1", hob.DeliveryDelivered, "", 0)) // it stays failed
	w.must(w.s.DeliveryDone(w.ctx, "none", hob.DeliveryDelivered, "", 0))
	w.want(hob.Invalid, w.s.DeliveryDone(w.ctx, "d1", "sent", "", 0))
	all = listed()
	if all[1].Status != hob.DeliveryFailed || all[1].Error != "gone" || !all[1].NextAt.IsZero() || !all[1].DeliveredAt.IsZero() ||
		all[0].Status != hob.DeliveryDelivered || !all[0].NextAt.IsZero() || all[0].DeliveredAt.IsZero() {
		w.t.Fatalf("done: %+v", all)
	}
	list, err := w.s.Deliveries(w.ctx, w.service, w.agent.ID, h.ID, 1)
	w.must(err)
	same(w, "the newest one", fmt.Sprint(len(list), " ", list[0].ID), "1 d2")
}

func deliveriesTakenOnce(w *world) {
	const total, takers = 40, 4
	h := w.newHook("told", nil)
	var list []hob.Delivery
	for i := range total {
		list = append(list, delivery(fmt.Sprint("d", i), h))
	}
	w.tell(list...)
	var mu sync.Mutex
	taken := map[string]int{}
	take := func(limit int) int {
		got, err := w.s.DueDeliveries(w.ctx, time.Minute, limit)
		if err != nil || len(got) > limit {
			w.t.Errorf("took %d, %v", len(got), err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, d := range got {
			taken[d.ID]++
		}
		return len(got)
	}
	together(takers, func(int) {
		for take(3) > 0 {
		}
	})
	take(total) // one that found all locked by others went home early
	same(w, "taken", len(taken), total)
	for id, n := range taken {
		same(w, "takers of "+id, n, 1)
	}
}

func deliveriesStay(w *world) {
	h, gone := w.newHook("stays", nil), w.newHook("gone", nil)
	r := w.tell(delivery("d1", h), delivery("d2", gone))
	w.must(w.s.DeleteHook(w.ctx, w.service, w.agent.ID, gone.ID))
	run, err := w.s.Run(w.ctx, w.alice, r.ID)
	w.must(err)
	w.must(w.s.DeleteSession(w.ctx, w.alice, "", run.Session))
	got := w.due(0)
	if len(got) != 2 || got[0].To.ID != h.ID || got[1].To.ID != "" || got[1].Hook != gone.ID {
		w.t.Fatalf("due: %+v", got)
	}
	w.must(w.s.DeleteAgent(w.ctx, w.service, w.agent.ID)) // its hooks go with it
	got = w.due(0)
	same(w, "due", len(got), 2)
	same(w, "hooks", string(got[0].To.ID+got[1].To.ID), "")
}
