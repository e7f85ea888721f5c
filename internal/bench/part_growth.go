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
	return errors.Join(b.longHistory(ctx), b.fullStore(ctx))
}

// contender is one of those that are measured in turns.
type contender struct {
	open opener
	pid  int // whose processor time is looked at, 0 for none

	outcome
	cpu time.Duration
}

func (c *contender) perRun() time.Duration { return c.cpu / time.Duration(max(1, c.runs)) }

// inTurns measures contenders with one client each, a few runs at a time.
func (b *bench) inTurns(ctx context.Context, all ...*contender) error {
	const turns = 5
	for i := range turns + 1 {
		for _, c := range all {
			var m meter
			var err error
			if c.pid > 0 {
				if m, err = startMeter(c.pid, b.clock); err != nil {
					return err
				}
			}
			o, err := slice{clock: b.clock, clients: 1, runs: max(2, b.plan.alone/turns), open: c.open}.load(ctx)
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

// longHistory compares sessions with one earlier turn and one with many.
func (b *bench) longHistory(ctx context.Context) error {
	s, err := b.stand(ctx, standing{folder: "history", kind: textModel})
	if err != nil {
		return err
	}
	defer b.end(s.process)
	runs1 := b.plan.alone*2 + 10
	var short [][]byte
	for i := range runs1 {
		short = append(short, s.runRequest(s.agent, fmt.Sprintf("short-%d", i), question))
	}
	long := s.runRequest(s.agent, "long", question)
	if err := b.play(ctx, s.addr, short...); err != nil {
		return fmt.Errorf("make short sessions: %w", err)
	}
	at := b.clock.now()
	for range b.plan.turns {
		if err := b.play(ctx, s.addr, long); err != nil {
			return fmt.Errorf("make a long session: %w", err)
		}
	}
	took := b.clock.now() - at
	said, err := answer(ctx, b.clock, s.model)
	if err != nil {
		return err
	}
	rawShort := &contender{open: streams(b.clock, to(s.model.addr, chats, chat(s.model.addr, history(said, 1), nil)))}
	rawLong := &contender{open: streams(b.clock, to(s.model.addr, chats, chat(s.model.addr, history(said, b.plan.turns), nil)))}
	hobShort := &contender{open: oneByOne(b.clock, to(s.addr, runs, short...)), pid: s.pid()}
	hobLong := &contender{open: streams(b.clock, to(s.addr, runs, long)), pid: s.pid()}
	if err := b.inTurns(ctx, rawShort, hobShort, rawLong, hobLong); err != nil {
		return err
	}
	one := inMS(hobShort.times.p50() - rawShort.times.p50())
	many := inMS(hobLong.times.p50() - rawLong.times.p50())
	b.report.measured(9, fmt.Sprintf("added time of a run, %d earlier turns ÷ 1", b.plan.turns), "×", ratio(many, one), atMost(historyMust, historyAim))
	b.report.line(9, "added by hob to one text run: %s ms with 1 earlier turn, %s ms with %d; its CPU: %s and %s",
		number(one), number(many), b.plan.turns, ms(hobShort.perRun()), ms(hobLong.perRun()))
	b.report.quantiles(9, "raw, 1 earlier turn", &rawShort.times)
	b.report.quantiles(9, "hob, 1 earlier turn", &hobShort.times)
	b.report.quantiles(9, fmt.Sprintf("raw, %d earlier turns", b.plan.turns), &rawLong.times)
	b.report.quantiles(9, fmt.Sprintf("hob, %d earlier turns", b.plan.turns), &hobLong.times)
	b.report.line(9, "making the %d turns, one after the other, took %s", b.plan.turns, took.Round(time.Millisecond))
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

// play makes each run once.
func (b *bench) play(ctx context.Context, addr string, requests ...[]byte) error {
	o, err := slice{clock: b.clock, clients: 1, runs: len(requests), open: streams(b.clock, to(addr, runs, requests...))}.load(ctx)
	return errors.Join(err, o.err())
}

// answer is what the fake model says in a text run.
func answer(ctx context.Context, c clock, m *model) (string, error) {
	w, err := connect(ctx, c, m.addr, patience)
	if err != nil {
		return "", err
	}
	defer w.close()
	a, err := ask(w, chat(m.addr, firstMessages(), nil))
	return a.Text, err
}

// history is a conversation with earlier turns, and the question.
func history(answer string, turns int) []any {
	first := firstMessages()
	messages := []any{first[0]}
	for range turns {
		messages = append(messages, first[1], map[string]string{"role": "assistant", "content": answer})
	}
	return append(messages, first[1])
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
	if err := b.inTurns(ctx, few, many); err != nil {
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
