//go:build linux

package main

import (
	"context"
	"time"
)

// resumeTime is what going on with a stream may take, in 99 of 100 cases, on a machine that is not busy.
const resumeTime = 250 * time.Millisecond

// streams cuts the connections of several readers of each run at any byte, and lets them go on where they were.
func streams(ctx context.Context, h *harness) ([]verdict, error) {
	w, s, agent, err := solo(ctx, h, setting{name: "streams"}, pace{word: 8 * time.Millisecond, tool: 20 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer w.close()
	defer s.kill()
	st := newStorm(w, agent, habits{clients: 8, readers: 4, turns: 3, cut: 0.95, cutWithin: 6000, steps: 2, words: 200, addr: one(s)})
	want := amount(h, 500, 5000)
	until := time.Now().Add(amount(h, 40*time.Second, 15*time.Minute))
	st.begin(ctx)
	for ctx.Err() == nil && time.Now().Before(until) {
		if _, cuts, _ := st.connections(); cuts >= want {
			break
		}
		pause(ctx, 50*time.Millisecond)
	}
	if err := st.end(ctx, time.Minute); err != nil {
		w.fault(runsEnd, "%v", err)
	}
	f, err := find(ctx, s.addr, agent)
	if err != nil {
		return nil, err
	}
	begun, cuts, resumes := st.connections()
	c := w.counts()
	took := figure(resumedReading, "%s; %d connections in all", spread(resumes, "connection"), begun)
	if h.options.long {
		took = h.within(resumedReading, "connection", resumes, resumeTime)
	}
	return append(check(w.ledger, f), took,
		tested(need{"streams cut", cuts, want}, need{"gone on with what was there", len(resumes), want / 10},
			need{"accepted", c.accepted, 8}, need{"seen to their end", c.done, c.messages * 8 / 10})), ctx.Err()
}
