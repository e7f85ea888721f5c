//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hob"
)

// handedOver stops the server that drives a run.
func handedOver(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.pair(ctx, pace{word: 10 * time.Millisecond}, habits{}, "HOB_DRAIN=200ms")
	if err != nil {
		return nil, err
	}
	defer sc.close()
	for n := range 3 {
		sc.say(ctx, fmt.Sprintf("handover-%d", n), plan{words: 150})
	}
	if !sc.accepted(ctx, 3) {
		return nil, fmt.Errorf("%w: no run is accepted", errStuck)
	}
	sc.talksTo.Store(1)
	if _, _, err := sc.server(0).term(); err != nil {
		return nil, err
	}
	ended, taken := time.Now(), 0
	var logs map[hob.RunID][]logged
	for taken < 3 && time.Since(ended) < handoverTime+t.h.allowed() && err == nil {
		pause(ctx, again)
		logs, err = sc.f.logs(ctx)
		taken = len(silences(logs))
	}
	if err != nil {
		return nil, err
	}
	var bad []string
	if taken < 3 {
		bad = append(bad, fmt.Sprintf("%d of 3 runs go on within %s", taken, ms(time.Since(ended))))
	}
	v := judge(handedGoOn, bad, "%d runs, after %s", taken, percentile(silences(logs), 100).Round(time.Millisecond))
	if v.broken() { // it would take a lease until they end
		return []verdict{v}, nil
	}
	rest, err := sc.settle(ctx)
	return append(rest, v, tested(need{"accepted", sc.w.counts().accepted, 3})), err
}

// cancelTime is how long a run may go on that was cancelled through another server.
const cancelTime = 3 * time.Second

// cancelledElsewhere cancels a run through the server that does not drive it.
func cancelledElsewhere(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.pair(ctx, pace{word: 20 * time.Millisecond}, habits{})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	m := sc.say(ctx, "cancel", plan{words: 400})
	if !sc.accepted(ctx, 1) {
		return nil, fmt.Errorf("%w: no run is accepted", errStuck)
	}
	sc.talksTo.Store(1)
	sc.storm.cancelRun(ctx, m)
	asked := time.Now()
	var r hob.RunRecord
	for time.Since(asked) < cancelTime+t.h.allowed() && !r.Status.Final() && err == nil {
		pause(ctx, again)
		r, err = sc.record(ctx, m, 1)
	}
	if err != nil {
		return nil, err
	}
	var bad []string
	if r.Status != hob.Cancelled {
		bad = append(bad, fmt.Sprintf("%s after the cancel the run is %s", time.Since(asked).Round(time.Millisecond), r.Status))
	}
	held := judge(cancelHeld, bad, "after %s", time.Since(asked).Round(time.Millisecond))
	if held.broken() { // it would take seconds until the run ends
		return []verdict{held}, nil
	}
	v, err := sc.settle(ctx)
	return append(v, held), err
}

// lostAnswers swallows answers to COMMIT, one at a time.
func lostAnswers(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.pair(ctx, pace{word: 10 * time.Millisecond}, habits{})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	for n := range 4 {
		sc.say(ctx, fmt.Sprintf("lost-%d", n), plan{words: 150})
	}
	if !sc.accepted(ctx, 4) {
		return nil, fmt.Errorf("%w: no run is accepted", errStuck)
	}
	for range 6 {
		sc.f.proxy.next.Add(1)
		pause(ctx, 100*time.Millisecond)
	}
	sc.f.proxy.quiet()
	v, err := sc.settle(ctx)
	return append(v, tested(need{"answers swallowed", int(sc.f.proxy.swallowed.Load()), 3})), err
}

// peaceful does no harm.
func peaceful(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.pair(ctx, pace{word: 20 * time.Millisecond}, habits{
		clients: 3, turns: 1, cutWithin: 1, plan: func(*rand.Rand, int, int) plan { return plan{words: 60} },
	})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	sc.storm.begin(ctx)
	pause(ctx, 2*time.Second)
	v, err := sc.settle(ctx)
	if err != nil {
		return v, err
	}
	logs, err := sc.f.logs(ctx)
	var bad []string
	for id, log := range logs {
		if slices.ContainsFunc(log, func(e logged) bool { return e.Type == hob.EventAttempt }) {
			bad = append(bad, fmt.Sprintf("run %s was taken up again", id))
		}
	}
	return append(v, judge(leftAlone, bad, "%d runs", len(logs)), tested(need{"accepted", sc.w.counts().accepted, 3})), err
}

// The calls of the frozen server's run: as many as a step may have, of which so many are under way at once.
const (
	frozenCalls  = 16
	frozenAtOnce = 8
)

// frozenInCalls freezes a server while the first calls of a step are under way. Another one carries all of them out. The
// first, let go on, has answers to the first calls and must neither write them down nor make the others.
func frozenInCalls(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.pair(ctx, pace{word: time.Millisecond}, habits{})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	const mark = "frozen"
	var asked atomic.Int64
	answer, last := holdFrozen(sc.w, &asked)
	defer answer()
	defer last()
	m := sc.say(ctx, mark, plan{steps: [][]string{slices.Repeat([]string{toolRead}, frozenCalls)}, words: 5})
	if !until(ctx, func() bool { return sc.w.toolRequests(mark) == frozenAtOnce }) {
		return nil, fmt.Errorf("%w: %d calls come, want %d", errStuck, sc.w.toolRequests(mark), frozenAtOnce)
	}
	if err := sc.server(0).freeze(); err != nil {
		return nil, err
	}
	sc.talksTo.Store(1)
	if run, ok := sc.runOf(m); ok { // a reader that sees what the other server writes
		r := &reading{s: sc.storm, m: m, run: run, luck: sc.h.chance("other reader")}
		sc.storm.group.Go(func() { r.follow(ctx) })
	}
	pause(ctx, lease) // nobody may take the run before
	taken := 0
	if until(ctx, func() bool { return asked.Load() == 2 }) {
		taken = 1
	}
	before := sc.w.toolRequests(mark)
	answer()
	if err := sc.server(0).thaw(); err != nil {
		return nil, err
	}
	pause(ctx, time.Second)
	var bad []string
	if n := sc.w.toolRequests(mark) - before; n > 0 {
		bad = append(bad, fmt.Sprintf("%d calls were made by a server that had lost the run", n))
	}
	last()
	v, err := sc.settle(ctx)
	if err != nil {
		return v, err
	}
	logs, err := sc.f.logs(ctx)
	bad = append(bad, zombies(logs, sc.w.ledger)...)
	return append(v, judge(nothingLeft, bad, "%d calls by both", before),
		tested(need{"runs taken over", taken, 1}, need{"calls", before, frozenCalls + frozenAtOnce})), err
}

// holdFrozen holds the first calls, which are the first server's, until answer, and the second request to the model, which
// is the second server's for the answer, until last.
func holdFrozen(w *stage, asked *atomic.Int64) (answer, last func()) {
	calls, text := make(chan struct{}), make(chan struct{})
	w.onTool = func(_, _ string, n int) {
		if n <= frozenAtOnce {
			<-calls
		}
	}
	w.onModel = func(string, int) {
		if asked.Add(1) == 2 {
			<-text
		}
	}
	return sync.OnceFunc(func() { close(calls) }), sync.OnceFunc(func() { close(text) })
}
