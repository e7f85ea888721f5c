//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
)

// Numbers of part 10.
const (
	overloadBy     = 10   // times the capacity
	quietShare     = 20   // a quiet server gets one over so many of it
	capacityFrom   = 64   // clients that find it
	overloadConns  = 6000 // connections: all active runs and the refusals beside them
	places         = 2048 // runs that Hob drives at once, as it is set up
	maxOverloadRSS = 512  // MB
)

// overload is part 10.
func (b *bench) overload(ctx context.Context) error {
	capacity, err := b.overloadAtOnce(ctx)
	if err != nil {
		return err
	}
	// With a model that thinks for a second the places bound the rate, or what the processors can do, as found above.
	return b.overloadSlow(ctx, min(capacity, places/slowAnswer.Seconds()))
}

// overloadAtOnce is the overload with a model that answers at once; it gives the capacity in runs per second.
func (b *bench) overloadAtOnce(ctx context.Context) (float64, error) {
	s, err := b.stand(ctx, standing{folder: "overload", kind: textModel, pprof: b.pprof})
	if err != nil {
		return 0, err
	}
	defer b.end(s.process)
	full := slice{clock: b.clock, clients: capacityFrom, lasts: 2 * b.plan.slice, open: streams(b.clock, s.through())}
	o, err := full.load(ctx)
	if err = errors.Join(err, o.err()); err != nil {
		return 0, fmt.Errorf("find the capacity: %w", err)
	}
	capacity := o.rate()
	b.report.line(10, "capacity: %s runs/s, %d clients one run after the other", number(capacity), capacityFrom)
	return capacity, b.overloaded(ctx, s, overloadPlan{"a model that answers at once", capacity, min(overloadConns, b.openConns())})
}

// overloadSlow is the overload with a model that takes a second.
func (b *bench) overloadSlow(ctx context.Context, capacity float64) error {
	s, err := b.stand(ctx, standing{folder: "overload-slow", kind: slowModel})
	if err != nil {
		return err
	}
	defer b.end(s.process)
	return b.overloaded(ctx, s, overloadPlan{"a model that takes 1 s", capacity, min(overloadConns, b.openConns())})
}

// openConns is how many connections Hob lets in, and this process may hold.
func (b *bench) openConns() int { return int(b.files/2) - 256 }

// overloadPlan is one overload.
type overloadPlan struct {
	what     string
	capacity float64 // runs per second
	conns    int
}

// overloaded measures accepted runs on a quiet server and then on one that is offered ten times what it can do.
func (b *bench) overloaded(ctx context.Context, s *stand, p overloadPlan) error {
	quiet := arrivals{
		clock: b.clock, rate: p.capacity / quietShare, lasts: b.plan.offered, conns: p.conns, target: s.through(),
	}
	base, err := quiet.run(ctx)
	if err == nil && (base.failed > 0 || base.refused > 0) {
		err = fmt.Errorf("%d of %d runs failed and %d were refused on a quiet server: %w", base.failed, base.offered, base.refused, reason(base.why))
	}
	if err != nil {
		return err
	}
	loud := quiet
	loud.rate, loud.lasts, loud.settle = p.capacity*overloadBy, b.plan.offered+b.plan.settle, b.plan.settle
	peak := b.watchMemory(ctx, s.pid())
	m, err := startMeter(s.pid(), b.clock)
	if err != nil {
		return err
	}
	o, err := loud.run(ctx)
	most := peak()
	if err != nil {
		return err
	}
	cpu, elapsed, err := m.stop()
	if err != nil {
		return err
	}
	b.reportOverload(p, loud, &base, &o)
	b.report.measured(10, p.what+": RSS at most", "MB", float64(most)/1e6, atMost(maxOverloadRSS, 0))
	b.report.line(10, "hob's CPU: %s cores", number(cpu.Seconds()/elapsed.Seconds()))
	if o.failed > 0 {
		return fmt.Errorf("%s: %d of %d requests neither completed nor were refused: %w", p.what, o.failed, o.offered, o.why)
	}
	return nil
}

func (b *bench) reportOverload(p overloadPlan, a arrivals, base, o *arrived) {
	r, made := b.report, o.offered-o.unmade
	r.measured(10, fmt.Sprintf("×%d, %s: accepted p99 ÷ quiet p99", overloadBy, p.what), "",
		ratio(float64(o.times.p99()), float64(base.times.p99())), atMost(2, 0))
	r.measured(10, p.what+": accepted, of the capacity", "%",
		100*ratio(float64(o.times.count())/(a.lasts-a.settle).Seconds(), p.capacity), bar{})
	r.measured(10, p.what+": refusals that are told", "%", 100*ratio(float64(o.refused-o.untold), float64(o.refused)), atLeast(100, 0))
	r.line(10, "%s: offered %s/s, of these made %s%%; accepted %d, refused %d", p.what,
		number(float64(o.offered)/a.lasts.Seconds()), number(100*ratio(float64(made), float64(o.offered))), o.accepted, o.refused)
	r.quantiles(10, "quiet, one run", &base.times)
	r.quantiles(10, "overload, one accepted run", &o.times)
	r.quantiles(10, fmt.Sprintf("the first %s of it", a.settle), &o.settling)
	r.quantiles(10, "one refusal", &o.refusals)
	r.quantiles(10, "the client's own lateness", &o.lag)
}
