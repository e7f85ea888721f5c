//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// wholeWindow is the context window of agents whose conversations are never condensed, in tokens.
const wholeWindow = 10_000_000

// How much longer a session may have become when it is measured for the last time: by one text turn in so many, and by
// one turn of ten tool steps, which has as many messages as ten text turns, in so many. The raw way goes through the same
// history, so that it changes only what the number of earlier turns stands for.
const (
	textShare = 20
	toolShare = 100
)

// lengths is what is measured in sessions of different lengths.
type lengths struct {
	*stand
	agent string // whose sessions these are
	runs  int    // of each contender, the warm-up not counted
	share int    // textShare or toolShare
	all   []*length
}

// sent is how many runs a contender makes with its warm-up.
func (l *lengths) sent() int { return (growthRounds + 1) * perRound(l.runs) }

// length is one number of earlier turns.
type length struct {
	turns    int      // text turns of each session before it is measured
	uses     int      // how often it is measured
	requests [][]byte // of each session, to make a run in it
	raw, hob *contender
}

// added is what Hob adds to one of the model calls that a run makes, in milliseconds.
func (l *length) added(calls int) float64 { return added(l.raw, l.hob, calls) }

func added(raw, hob *contender, calls int) float64 {
	return inMS(hob.times.p50()-raw.times.p50()) / float64(calls)
}

// longTexts compares text runs in sessions of different lengths.
func (b *bench) longTexts(ctx context.Context) error {
	s, err := b.stand(ctx, standing{folder: "long-texts", kind: textModel})
	if err != nil {
		return err
	}
	defer b.end(s.process)
	l := &lengths{stand: s, runs: b.plan.alone / 2, share: textShare}
	if err := b.lengthen(ctx, l); err != nil {
		return err
	}
	said, err := answer(ctx, b.clock, s.model)
	if err != nil {
		return err
	}
	for _, one := range l.all {
		if err := l.prove(ctx, one, told{Text: said, Pieces: said}); err != nil {
			return err
		}
		var raw [][]byte
		for use := range one.uses {
			raw = append(raw, chat(s.model.addr, history(said, one.turns+use), nil))
		}
		one.raw = &contender{open: oneByOne(b.clock, to(s.model.addr, chats, inUse(l, one, raw)...))}
		one.hob = &contender{open: oneByOne(b.clock, l.through(one)), pid: s.pid()}
	}
	if err := b.inTurns(ctx, l.runs, l.contenders()...); err != nil {
		return err
	}
	return b.grown(l, "text run", 1)
}

// longToolRuns compares runs of ten tool steps in sessions of different lengths, whose earlier turns are text turns.
func (b *bench) longToolRuns(ctx context.Context) error {
	s, err := b.stand(ctx, standing{folder: "long-tools", kind: toolModel, pprof: b.pprof})
	if err != nil {
		return err
	}
	defer b.end(s.process)
	l := &lengths{stand: s, runs: b.plan.alone / 6, share: toolShare}
	if err := b.lengthen(ctx, l); err != nil {
		return err
	}
	if err := s.give(ctx, l.agent, s.tool); err != nil { // the turns before were to be without
		return err
	}
	said, err := answer(ctx, b.clock, s.model)
	if err != nil {
		return err
	}
	want := told{Text: said, Pieces: said, Tools: toolSteps}
	for _, one := range l.all {
		if err := l.prove(ctx, one, want); err != nil {
			return err
		}
		raw, err := b.dialoguesBehind(ctx, s.model, history(said, one.turns), one.uses)
		if err != nil {
			return err
		}
		one.raw = &contender{open: b.dialogues(s.model, inUse(l, one, raw))}
		one.hob = &contender{open: oneByOne(b.clock, l.through(one)), pid: s.pid()}
	}
	profile := b.profile(ctx, 9, 1)
	defer profile()
	if err := b.inTurns(ctx, l.runs, l.contenders()...); err != nil {
		return err
	}
	if err := b.grown(l, "tool step", toolSteps+1); err != nil {
		return err
	}
	return b.summarised(ctx, l, want)
}

// dialoguesBehind goes the straight way several times, one behind the other in one conversation. The last of messages is
// the question, which is then asked again each time.
func (b *bench) dialoguesBehind(ctx context.Context, m *model, messages []any, times int) ([][]turn, error) {
	asked := messages[len(messages)-1]
	var all [][]turn
	for range times {
		turns, after, err := b.converseFrom(ctx, m, messages)
		if err != nil {
			return nil, err
		}
		all = append(all, turns)
		messages = append(after, asked)
	}
	return all, nil
}

// grown reports how what Hob adds to one of a run's model calls changes with the number of earlier turns.
func (b *bench) grown(l *lengths, what string, calls int) error {
	first := l.all[0].added(calls)
	if first <= 0 {
		return fmt.Errorf("%s: behind %s hob was no slower than raw, which only noise can explain", what, earlier(l.all[0].turns))
	}
	b.report.line(9, "added by hob to one %s (context_window is %d tokens, so that nothing is condensed and each model call sends the whole history):", what, wholeWindow)
	for _, one := range l.all {
		b.report.line(9, "  %-20s %s ms; CPU of hob's whole run: %s", earlier(one.turns), number(one.added(calls)), ms(one.hob.perRun()))
		if one != l.all[0] {
			b.report.measured(9, fmt.Sprintf("added time of a %s, %s ÷ %d", what, earlier(one.turns), l.all[0].turns), "×",
				ratio(one.added(calls), first), atMost(historyMust, historyAim))
		}
	}
	for _, one := range l.all {
		b.report.quantiles(9, "raw, whole run, "+earlier(one.turns), &one.raw.times)
		b.report.quantiles(9, "hob, whole run, "+earlier(one.turns), &one.hob.times)
	}
	return nil
}

// earlier writes a number of turns.
func earlier(turns int) string {
	if turns == 1 {
		return "1 earlier turn"
	}
	return fmt.Sprintf("%d earlier turns", turns)
}

// Where a summary is made: over the threshold of a window of so many tokens for each text turn of the session, which has
// two or three times as many. No window is smaller than the least, so that what follows a summary fits.
const (
	windowPerTurn = 40
	leastWindow   = 16_000
)

// keptTurns are the newest turns that a summary leaves as they are, that of the run that makes it included
// (COMPACTION_KEEP_TURNS).
const keptTurns = 3

// summarised reports a tool step in the longest sessions once a summary stands for nearly all of their turns.
func (b *bench) summarised(ctx context.Context, l *lengths, want told) error {
	one := l.all[len(l.all)-1]
	window := max(leastWindow, windowPerTurn*one.turns)
	if err := l.window(ctx, l.agent, window); err != nil {
		return err
	}
	for _, request := range one.requests {
		got, err := l.told(ctx, request)
		if err == nil && got.Summaries == 0 {
			err = fmt.Errorf("no summary was made in a window of %d tokens", window)
		}
		if err != nil {
			return fmt.Errorf("summarise %d turns: %w", one.turns, err)
		}
	}
	if err := l.prove(ctx, one, want); err != nil {
		return fmt.Errorf("behind a summary: %w", err)
	}
	first := firstMessages()
	short := []any{first[0], map[string]string{"role": "user", "content": summary}, first[1]}
	raw, err := b.dialoguesBehind(ctx, l.model, short, keptTurns+one.uses)
	if err != nil {
		return err
	}
	straight := &contender{open: b.dialogues(l.model, inUse(l, one, raw[keptTurns:]))}
	through := &contender{open: oneByOne(b.clock, l.through(one)), pid: l.pid()}
	if err := b.inTurns(ctx, l.runs, straight, through); err != nil {
		return err
	}
	b.report.line(9, "  %-20s %s ms where a summary stands for all but the newest (context_window %d); CPU of hob's whole run: %s",
		earlier(one.turns), number(added(straight, through, toolSteps+1)), window, ms(through.perRun()))
	b.report.quantiles(9, "raw, whole run, summary", &straight.times)
	b.report.quantiles(9, "hob, whole run, summary", &through.times)
	return nil
}

// lengthen makes an agent without tools and its sessions: with 1, 10, 100 earlier turns and so on.
func (b *bench) lengthen(ctx context.Context, l *lengths) error {
	var err error
	if l.agent, err = l.server.agent(ctx, "long"); err != nil {
		return err
	}
	if err := l.window(ctx, l.agent, wholeWindow); err != nil {
		return err
	}
	at := b.clock.now()
	made := 0
	for _, turns := range tens(b.plan.turns) {
		one := &length{turns: turns, uses: max(1, turns/l.share)}
		for i := range l.sent()/one.uses + 1 { // enough for one run more, the proof
			one.requests = append(one.requests, l.runRequest(l.agent, fmt.Sprintf("turns-%d-%d", turns, i), question))
		}
		if err := b.makeTurns(ctx, l.addr, one); err != nil {
			return fmt.Errorf("make sessions with %d turns: %w", turns, err)
		}
		made += turns * len(one.requests)
		l.all = append(l.all, one)
	}
	b.report.line(9, "making sessions with %d turns in all took %s", made, (b.clock.now() - at).Round(time.Millisecond))
	return nil
}

// tens are the powers of ten from 1 to most.
func tens(most int) []int {
	var all []int
	for n := 1; n <= most; n *= 10 {
		all = append(all, n)
	}
	return all
}

// makers is how many clients make turns at the same time, each in sessions of its own.
const makers = 8

// makeTurns makes all the turns that sessions of a length have before they are measured.
func (b *bench) makeTurns(ctx context.Context, addr string, one *length) error {
	faults := make([]error, makers)
	var group sync.WaitGroup
	for k := range makers {
		group.Go(func() {
			for i := k; i < len(one.requests) && faults[k] == nil; i += makers {
				faults[k] = b.playTimes(ctx, addr, one.requests[i], one.turns)
			}
		})
	}
	group.Wait()
	return errors.Join(faults...)
}

// playTimes makes a run several times, on connections that need not live long.
func (b *bench) playTimes(ctx context.Context, addr string, request []byte, times int) error {
	const most = 100
	for times > 0 {
		n := min(times, most)
		if err := b.play(ctx, addr, slices.Repeat([][]byte{request}, n)...); err != nil {
			return err
		}
		times -= n
	}
	return nil
}

// prove makes the first run in the first session of a length: it has to be whole, and nothing may have been left out of the
// conversation for it.
func (l *lengths) prove(ctx context.Context, one *length, want told) error {
	got, err := l.told(ctx, one.requests[0])
	if err == nil && got != want {
		err = fmt.Errorf("it gave %+v, want %+v", got, want)
	}
	if err != nil {
		return fmt.Errorf("a run behind %d turns: %w", one.turns, err)
	}
	return nil
}

// through is the measured runs through Hob: each session as often as it is to be used before the next one. The very first
// use was the proof.
func (l *lengths) through(one *length) target {
	var sent [][]byte
	for i := 1; i <= l.sent(); i++ {
		sent = append(sent, one.requests[i/one.uses])
	}
	return to(l.addr, runs, sent...)
}

// inUse lays out what the raw way sends beside through, from what it sends in the first use of a session, the second and
// so on: then both have the same history at the same time.
func inUse[T any](l *lengths, one *length, uses []T) []T {
	var sent []T
	for i := 1; i <= l.sent(); i++ {
		sent = append(sent, uses[i%one.uses])
	}
	return sent
}

func (l *lengths) contenders() []*contender {
	var all []*contender
	for _, one := range l.all {
		all = append(all, one.raw, one.hob)
	}
	return all
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

// fromModel is an answer as a message.
func fromModel(text string) any { return map[string]string{"role": "assistant", "content": text} }

// history is a conversation with earlier turns, and the question.
func history(answer string, turns int) []any {
	first := firstMessages()
	messages := []any{first[0]}
	for range turns {
		messages = append(messages, first[1], fromModel(answer))
	}
	return append(messages, first[1])
}
