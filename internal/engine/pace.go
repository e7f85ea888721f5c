package engine

import (
	"slices"
	"time"
)

// Numbers of the pace. Times are of durable writes.
const (
	paceInterval = 100 * time.Millisecond // between two judgements
	paceSamples  = 256                    // writes of an interval that are looked at, the latest

	maxStarting = 1024 // runs that start at once; as many as the writes that may wait for the store
	tripTo      = 64   // of these when an overload begins
	minStarting = 2    // and at least
	lowerBy     = 4    // one over so many of the bound per step, at least one
	raiseBy     = 32   // the same

	tripDelay     = 250 * time.Millisecond // a delay below it is never overload: a slow disk, or a crowd that is served
	tripFactor    = 4                      // nor one below so many times the usual delay
	tripIntervals = 5                      // in a row, before a burst is an overload
	tripRuns      = 64                     // fewer active runs are none, whatever the delay

	targetDelay  = 4 * time.Millisecond // in an overload a delay below it is fine,
	targetFactor = 2                    // and so is one below so many times the usual delay

	calm      = 10 * time.Second // without a refusal, after which the overload is over
	usualSpan = 30 * time.Second // two such spans are what the usual delay is taken from
)

// pace finds how many runs may start at once. It goes by the time that durable writes take, since that grows with
// everything Hob adds to a run, waiting for a processor and for the store, and not with how long models think.
//
// As long as writes are quick 1,024 runs may be in their start, which a server that keeps up hardly sees. When for half a
// second more came than that, or the median write took longer than a quarter of a second and than four times the usual
// while there was a crowd of runs, that is an overload: the bound becomes 64, and three quarters of itself each time that it
// has taken effect and the median is still above twice the usual. While it is below and runs are refused, the bound grows a
// little per interval. So it stays where accepted runs are hardly slower than on a quiet server. Ten seconds without a
// refusal end it.
//
// The usual delay is the least median of the last minute. An overload does not change it, except where the bound is at its
// least: a delay that is there all the same is not of the starts' making.
type pace struct {
	bound   int
	began   time.Time // of the interval
	samples [paceSamples]time.Duration
	count   int // samples of the interval
	delay   time.Duration
	slow    int       // intervals in a row that look like overload
	touched bool      // a run was refused for the bound in this interval
	refused time.Time // when that was last so

	usual, before time.Duration // least medians of this span and of the last; 0 = none yet
	span          time.Time     // when this span began
}

func newPace() pace { return pace{bound: maxStarting} }

// add takes a write's time into the interval.
func (p *pace) add(d time.Duration) {
	p.samples[p.count%paceSamples] = d
	p.count++
}

// refuse notes that the bound kept a run out.
func (p *pace) refuse(now time.Time) { p.touched, p.refused = true, now }

// roll judges the interval when its time is over; false: it is not.
func (p *pace) roll(now time.Time, starts, runs int) bool {
	if now.Sub(p.began) < paceInterval {
		return false
	}
	p.began = now
	if p.count > 0 {
		taken := p.samples[:min(p.count, paceSamples)]
		slices.Sort(taken)
		p.delay = taken[len(taken)/2]
	}
	switch {
	case !p.lowered():
		p.watch(now, runs)
	case p.count > 0:
		p.steer(now, starts)
	}
	if p.lowered() && now.Sub(p.refused) >= calm {
		p.bound, p.slow = maxStarting, 0
	}
	p.count, p.touched = 0, false
	return true
}

// lowered says whether an overload is under way.
func (p *pace) lowered() bool { return p.bound < maxStarting }

// watch looks for the beginning of an overload.
func (p *pace) watch(now time.Time, runs int) {
	late := p.count > 0 && runs >= tripRuns && p.delay > max(tripDelay, tripFactor*p.known())
	if !late && !p.touched {
		p.slow = 0
		if p.count > 0 {
			p.learn(now)
		}
		return
	}
	if p.slow++; p.slow >= tripIntervals {
		p.slow, p.refused, p.bound = 0, now, tripTo
	}
}

// steer keeps the delay of an overload near its target.
func (p *pace) steer(now time.Time, starts int) {
	if p.bound == minStarting {
		p.learn(now)
	}
	switch {
	case p.delay > p.target():
		if starts <= p.bound { // the last step has taken effect
			p.bound = max(minStarting, p.bound-max(1, p.bound/lowerBy))
		}
	case p.touched:
		p.bound = min(maxStarting, p.bound+max(1, p.bound/raiseBy))
	}
}

// target is the delay that is fine in an overload.
func (p *pace) target() time.Duration { return max(targetDelay, targetFactor*p.known()) }

// learn takes the interval's delay for a usual one.
func (p *pace) learn(now time.Time) {
	if now.Sub(p.span) >= usualSpan {
		p.before, p.usual, p.span = p.usual, p.delay, now
		return
	}
	p.usual = min(p.usual, p.delay)
}

// known is the usual delay, 0 before the first write.
func (p *pace) known() time.Duration {
	if p.before > 0 {
		return min(p.usual, p.before)
	}
	return p.usual
}
