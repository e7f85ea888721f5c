//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// The stopping server's own time: what it lets runs have, and what it may take on top of that.
const (
	stopDrain = 300 * time.Millisecond
	stopGrace = 5 * time.Second
)

// stopped ends the server by SIGTERM in the midst of runs, again and again. What does not finish in its short drain time
// goes on at the next start.
func stopped(ctx context.Context, h *harness) ([]verdict, error) {
	w, s, agent, err := solo(ctx, h, setting{name: "stop", env: []string{"HOB_DRAIN=" + stopDrain.String()}}, pace{word: 10 * time.Millisecond, tool: 150 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer w.close()
	defer s.kill()
	st := newStorm(w, agent, habits{clients: 10, readers: 1, turns: 3, cut: 0.1, cutWithin: 4000, syncs: 0.15, cancel: 0.03, steps: 4, words: 80, addr: one(s)})
	st.begin(ctx)
	luck := h.chance("stops")
	rounds, busy := amount(h, 5, 50), 0
	var bad []string
	var times []time.Duration
	for n := range rounds {
		pause(ctx, time.Duration(400+luck.IntN(600))*time.Millisecond)
		if w.open() > 0 {
			busy++
		}
		code, took, err := s.term()
		if err != nil {
			return nil, err
		}
		times = append(times, took)
		if code != 0 {
			bad = append(bad, fmt.Sprintf("stop %d took %s and ended with the code %d; the log ends with:\n%s", n+1, ms(took), code, s.tail()))
		}
		if _, err := s.serve(ctx); err != nil {
			return nil, err
		}
	}
	if err := st.end(ctx, time.Minute); err != nil {
		w.fault(runsEnd, "%v", err)
	}
	f, err := find(ctx, s.addr, agent)
	if err != nil {
		return nil, err
	}
	c := w.counts()
	return append(check(w.ledger, f), judge(endsWell, bad, "%d stops, drain time %s", rounds, stopDrain),
		h.within(endsInTime, "stop", sorted(times), stopDrain+stopGrace),
		tested(need{"with runs under way", busy, rounds * 8 / 10}, need{"runs handed over", len(w.resumed), rounds},
			need{"accepted", c.accepted, rounds * 5}, need{"seen to their end", c.done, c.messages * 8 / 10})), ctx.Err()
}
