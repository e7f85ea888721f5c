//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// killPlan is how much the part kill does.
type killPlan struct {
	kills, accepted int
	most            time.Duration
}

// killed kills the server again and again while clients use it: in the midst of runs, while it starts, and while it takes
// up what the last kill left behind.
func killed(ctx context.Context, h *harness) ([]verdict, error) {
	p := amount(h, killPlan{kills: 20, accepted: 100, most: 60 * time.Second}, killPlan{kills: 300, accepted: 5000, most: 40 * time.Minute})
	w, s, agent, err := solo(ctx, h, setting{name: "kill"}, pace{word: 3 * time.Millisecond, tool: 60 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer w.close()
	defer s.kill()
	st := newStorm(w, agent, habits{
		clients: amount(h, 12, 40), readers: 1, turns: 4, cut: 0.2, cutWithin: 4000, syncs: 0.15, cancel: 0.05, steps: 4, words: 30,
		addr: one(s),
	})
	st.begin(ctx)
	k := killer{s: s, w: w, luck: h.chance("kills")}
	until := time.Now().Add(p.most)
	for ctx.Err() == nil && (k.kills < p.kills || w.counts().accepted < p.accepted) && time.Now().Before(until) {
		if err := k.round(ctx); err != nil {
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
	return append(check(w.ledger, f), k.verdicts(p, w, st)...), ctx.Err()
}

// killer kills one server.
type killer struct {
	s    *server
	w    *world
	luck *rand.Rand

	kills, busy, early int // all; with runs under way; before the server was ready or just then
	ready              []time.Duration
	starts             []time.Time // of the processes that lived to be ready
}

// The times between a start and its kill.
const (
	shortLife = 150 * time.Millisecond // within which a start and what it takes up are hit
	leastLife = 300 * time.Millisecond
	mostLife  = 1200 * time.Millisecond
)

// round kills the server and starts it again; every fifth kill comes while the server starts or takes up runs.
func (k *killer) round(ctx context.Context) error {
	pause(ctx, leastLife+time.Duration(k.luck.Int64N(int64(mostLife-leastLife))))
	k.kill()
	for k.luck.IntN(5) == 0 {
		if err := k.s.start(); err != nil {
			return err
		}
		pause(ctx, time.Duration(k.luck.Int64N(int64(shortLife))))
		k.kill()
		k.early++
	}
	took, err := k.s.serve(ctx)
	if err != nil {
		return err
	}
	_, _, began := k.s.state()
	k.ready, k.starts = append(k.ready, took), append(k.starts, began)
	return nil
}

func (k *killer) kill() {
	if k.w.open() > 0 {
		k.busy++
	}
	k.kills++
	k.s.kill()
}

func (k *killer) verdicts(p killPlan, w *world, st *storm) []verdict {
	c := w.counts()
	resumed := k.resumed(w.resumed)
	_, cuts, resumes := st.connections()
	slices.Sort(k.ready)
	v := []verdict{
		tested(need{"kills", k.kills, p.kills}, need{"with runs under way", k.busy, k.kills * 8 / 10}, need{"during a start", k.early, 1},
			need{"accepted", c.accepted, p.accepted}, need{"seen to their end", c.done, c.messages * 8 / 10},
			need{"runs taken up", len(w.resumed), k.kills / 2}, need{"calls sent again", c.repeats, 1}, need{"streams cut", cuts, 1}),
		figure(readyTime, "%s", spread(k.ready, "start")),
		figure(goesOnTime, "%s", spread(resumed, "start")),
		figure(resumedReading, "%s", spread(resumes, "connection")),
	}
	return v
}

// resumed are the times from a start to the first event, as a reader got it, of a run that was taken up, sorted. Events are
// given by the times at which they were first seen.
func (k *killer) resumed(events []time.Time) []time.Duration {
	var all []time.Duration
	for i, began := range k.starts {
		for _, at := range events {
			if at.After(began) && (i+1 == len(k.starts) || at.Before(k.starts[i+1])) {
				all = append(all, at.Sub(began))
				break
			}
		}
	}
	slices.Sort(all)
	return all
}

// ms rounds for printing.
func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
