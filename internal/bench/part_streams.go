//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// pacedStreams is part 5.
func (b *bench) pacedStreams(ctx context.Context) error {
	s, err := b.stand(ctx, standing{folder: "paced", kind: pacedModel})
	if err != nil {
		return err
	}
	defer b.end(s.process)
	many := slice{clock: b.clock, clients: b.plan.streams, runs: 1, spread: startSpread, open: streams(b.clock, s.raw())}
	floor, err := many.load(ctx)
	if err = errors.Join(err, floor.err()); err != nil {
		return fmt.Errorf("raw: %w", err)
	}
	warm := slice{clock: b.clock, clients: 8, runs: 1, open: streams(b.clock, s.through())}
	first, err := warm.load(ctx) // a server's first steps are not what is measured
	if err = errors.Join(err, first.err()); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	before, err := rssOf(s.pid())
	if err != nil {
		return err
	}
	m, err := startMeter(s.pid(), b.clock)
	if err != nil {
		return err
	}
	peak := b.watchMemory(ctx, s.pid())
	many.open = streams(b.clock, s.through())
	o, err := many.load(ctx)
	most := peak()
	if err != nil {
		return fmt.Errorf("hob: %w", err)
	}
	cpu, elapsed, err := m.stop()
	if err != nil {
		return err
	}
	b.reportPaced(&floor, &o)
	cores := cpu.Seconds() / elapsed.Seconds()
	b.report.measured(5, fmt.Sprintf("%d streams: hob's CPU", b.plan.streams), "cores", cores, atMost(0, 0.6))
	b.report.measured(5, fmt.Sprintf("%d streams: memory per stream", b.plan.streams), "KiB", float64(most-before)/1024/float64(b.plan.streams), atMost(0, 64))
	b.report.line(5, "RSS of hob: %s before, %s at most", mib(before), mib(most))
	return o.err()
}

// startSpread is the time within which all streams begin: how fast starts are is what part 1 measures.
const startSpread = time.Second

// lateness is how much longer than the floor's slowest percent a stream may take before it counts as late.
const lateness = time.Second

func (b *bench) reportPaced(floor, o *outcome) {
	n := b.plan.streams
	inTime := 0
	for _, d := range o.times.values {
		if d <= floor.times.p99()+lateness {
			inTime++
		}
	}
	b.report.measured(5, fmt.Sprintf("%d streams at 20 tokens/s: whole and in time", n), "", float64(inTime), atLeast(float64(n), float64(n)))
	b.report.beside(5, fmt.Sprintf("%d streams: p99 of the whole stream", n), "ms",
		inMS(floor.times.p99()), inMS(o.times.p99()), atMost(inMS(floor.times.p99())+400, 0))
	b.report.line(5, "in time means at most %s longer than raw's p99; started within %s", lateness, startSpread)
	b.report.quantiles(5, "raw, whole stream", &floor.times)
	b.report.quantiles(5, "hob, whole stream", &o.times)
	b.report.quantiles(5, "raw, first text", &floor.firsts)
	b.report.quantiles(5, "hob, first text", &o.firsts)
}

// watchMemory looks at a process's memory again and again; the function it gives ends that and returns the most seen.
func (b *bench) watchMemory(ctx context.Context, pid int) func() int64 {
	ctx, cancel := context.WithCancel(ctx)
	var most int64
	var group sync.WaitGroup
	group.Go(func() {
		every := time.NewTicker(200 * time.Millisecond)
		defer every.Stop()
		for {
			if rss, err := rssOf(pid); err == nil { // a process that has ended is noticed by those who talk to it
				most = max(most, rss)
			}
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
		}
	})
	return func() int64 {
		cancel()
		group.Wait()
		return most
	}
}
