//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"hob/internal/store"
)

// Bars of part 9. Costs may not grow; these are how far two measurements may lie apart before that is called growth.
// A longer history is longer to send, so the floor's own growth is taken off there.
const (
	historyMust, historyAim = 2.0, 1.25
	storedMust, storedAim   = 1.5, 1.15
)

// growth is part 9.
func (b *bench) growth(ctx context.Context) error {
	return errors.Join(b.longTexts(ctx), b.longToolRuns(ctx), b.fullStore(ctx))
}

// contender is one of those that are measured in turns.
type contender struct {
	open opener
	pid  int // whose processor time is looked at, 0 for none

	outcome
	cpu time.Duration
}

func (c *contender) perRun() time.Duration { return c.cpu / time.Duration(max(1, c.runs)) }

// growthRounds is how often contenders take their turns, behind a warm-up.
const growthRounds = 5

// perRound is how many runs a contender makes in each round to have made about so many in the end.
func perRound(runs int) int { return max(2, runs/growthRounds) }

// inTurns measures contenders with one client each, a few runs at a time, about so many each in all.
func (b *bench) inTurns(ctx context.Context, runs int, all ...*contender) error {
	for i := range growthRounds + 1 {
		for _, c := range all {
			var m meter
			var err error
			if c.pid > 0 {
				if m, err = startMeter(c.pid, b.clock); err != nil {
					return err
				}
			}
			o, err := slice{clock: b.clock, clients: 1, runs: perRound(runs), open: c.open}.load(ctx)
			if err = errors.Join(err, o.err()); err != nil {
				return err
			}
			if i == 0 {
				continue // a warm-up
			}
			c.add(o)
			if c.pid > 0 {
				used, _, err := m.stop()
				if err != nil {
					return err
				}
				c.cpu += used
			}
		}
	}
	return nil
}

// oneByOne opens clients that go on in the list of requests where the one before ended, so that no session is used
// twice before all are used once.
func oneByOne(c clock, t target) opener {
	next := 0
	inner := streams(c, t)
	return func(ctx context.Context, lives time.Duration) (client, error) {
		one, err := inner(ctx, lives)
		if err != nil {
			return nil, err
		}
		return &onward{streamClient: one.(*streamClient), next: &next}, nil //nolint:forcetypeassert // streams opens nothing else
	}
}

type onward struct {
	*streamClient
	next *int
}

func (o *onward) run() (time.Duration, error) {
	o.sent = *o.next
	*o.next++
	return o.streamClient.run()
}

// fullStore compares a server with hardly a run stored and one with many. Both run at the same time and are asked in
// turns.
func (b *bench) fullStore(ctx context.Context) error {
	full, err := b.stand(ctx, standing{folder: "full", kind: textModel})
	if err != nil {
		return err
	}
	if err := full.stop(); err != nil { // it has made one run, the proof: that is what is copied
		return err
	}
	at := b.clock.now()
	events, err := fill(ctx, filepath.Join(full.data, store.FileName), b.plan.stored)
	if err != nil {
		return err
	}
	took := b.clock.now() - at
	size, err := sizeOf(full.data)
	if err != nil {
		return err
	}
	empty, err := b.stand(ctx, standing{folder: "empty", kind: textModel})
	if err != nil {
		return err
	}
	defer b.end(empty.process)
	again, err := b.serve(ctx, setting{data: full.data, model: baseURL(full.model.addr), tool: b.tools.addr})
	if err != nil {
		return err
	}
	defer b.end(again.process)
	few := &contender{open: streams(b.clock, empty.through()), pid: empty.pid()}
	request := again.runRequest(full.agent, "", question)
	many := &contender{open: streams(b.clock, to(again.addr, runs, request)), pid: again.pid()}
	if err := b.inTurns(ctx, b.plan.alone, few, many); err != nil {
		return err
	}
	b.report.measured(9, fmt.Sprintf("time of a run, %d events stored ÷ none", b.plan.stored), "×",
		ratio(float64(many.times.p50()), float64(few.times.p50())), atMost(storedMust, storedAim))
	b.report.measured(9, fmt.Sprintf("CPU of a run, %d events stored ÷ none", b.plan.stored), "×",
		ratio(float64(many.cpu), float64(few.cpu)), atMost(storedMust, storedAim))
	b.report.line(9, "stored: %d events, %s, filled in %s; ready in %s; CPU per run %s (empty %s)", events, mib(size),
		took.Round(time.Millisecond), ms(again.ready), ms(many.perRun()), ms(few.perRun()))
	b.report.quantiles(9, "hob, empty store", &few.times)
	b.report.quantiles(9, "hob, full store", &many.times)
	return nil
}
