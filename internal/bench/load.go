//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// patience is how long a run may take before the slice it is in counts it as failed.
const patience = 60 * time.Second

// client runs the same thing again and again, one at a time, on connections of its own.
type client interface {
	// run carries out one run. first is when its first text came, 0 where the client does not look.
	run() (first time.Duration, err error)
	close()
}

// opener connects one more client that gives up after the given time.
type opener func(ctx context.Context, lives time.Duration) (client, error)

// outcome is what a slice of load gave.
type outcome struct {
	runs    int           // all that ended well
	counted int           // those that ended within the window
	window  time.Duration // in which they are counted
	rates   []float64     // of each slice, runs per second
	times   sample
	firsts  sample
	failed  int
	why     error // the first failure
}

func (o *outcome) add(p outcome) {
	o.runs += p.runs
	o.counted += p.counted
	o.window += p.window
	o.rates = append(o.rates, p.rates...)
	o.times.merge(p.times)
	o.firsts.merge(p.firsts)
	o.failed += p.failed
	if o.why == nil {
		o.why = p.why
	}
}

// rate is the median of the slices' runs per second: a disk that stalled in one of them does not decide.
func (o *outcome) rate() float64 { return median(o.rates) }

// err is the failure of a slice in which any run failed.
func (o *outcome) err() error {
	if o.failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d runs failed, the first: %w", o.failed, o.failed+o.runs, o.why)
}

// slice is one stretch of load.
type slice struct {
	clock   clock
	clients int
	lasts   time.Duration // no run begins after it
	runs    int           // instead of lasts: how many each client does
	spread  time.Duration // the clients begin evenly within it, instead of all at once
	open    opener
}

// rampShare is the share of a slice, at its beginning, that its rate leaves out: until runs end as steadily as they
// begin. The runs that end behind the slice's end are left out too.
const rampShare = 8

// load runs a slice. Its clients are connected before the clock starts; it ends when the last run under way has ended. A
// client whose run failed connects anew.
func (s slice) load(ctx context.Context) (outcome, error) {
	clients := make([]client, 0, s.clients)
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	for range s.clients {
		c, err := s.open(ctx, s.lasts+patience)
		if err != nil {
			return outcome{}, fmt.Errorf("connect client %d of %d: %w", len(clients)+1, s.clients, err)
		}
		clients = append(clients, c)
	}
	parts := make([]outcome, s.clients)
	began := s.clock.now()
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			if s.turn(ctx, i) {
				s.repeat(ctx, &clients[i], &parts[i], began)
			}
		})
	}
	group.Wait()
	var sum outcome
	for _, p := range parts {
		sum.add(p)
	}
	sum.window = s.lasts - s.lasts/rampShare
	if sum.counted < s.clients { // too few to leave any out
		sum.counted, sum.window = sum.runs, s.clock.now()-began
	}
	sum.rates = []float64{ratio(float64(sum.counted), sum.window.Seconds())}
	return sum, ctx.Err()
}

// turn waits until client i may begin; false: ctx has ended.
func (s slice) turn(ctx context.Context, i int) bool {
	if s.spread == 0 {
		return true
	}
	select {
	case <-time.After(s.spread * time.Duration(i) / time.Duration(s.clients)):
		return true
	case <-ctx.Done():
		return false
	}
}

// maxFailures ends a client that does nothing but fail.
const maxFailures = 5

func (s slice) repeat(ctx context.Context, c *client, into *outcome, began time.Duration) {
	for ctx.Err() == nil && into.failed < maxFailures {
		at := s.clock.now()
		if s.runs > 0 && into.runs == s.runs || s.runs == 0 && at-began >= s.lasts {
			return
		}
		first, err := (*c).run()
		if err != nil {
			into.failed++
			into.why = errors.Join(into.why, err)
			(*c).close()
			next, err := s.open(ctx, s.lasts+patience)
			if err != nil {
				into.why = errors.Join(into.why, err)
				return
			}
			*c = next
			continue
		}
		ended := s.clock.now()
		if since := ended - began; since >= s.lasts/rampShare && since < s.lasts {
			into.counted++
		}
		into.runs++
		into.times.add(ended - at)
		if first > 0 {
			into.firsts.add(first - at)
		}
	}
}

// watcher looks at the lines of one stream.
type watcher interface {
	line(line []byte)
	hasText() bool
	verdict() error
}

// streamClient sends a target's requests one after the other, again from the first behind the last, and reads the
// streams they give.
type streamClient struct {
	wire  *wire
	clock clock
	target
	sent int
}

// chats watches what the fake model sends, runs what Hob sends.
func chats() watcher { return &chatReader{} }
func runs() watcher  { return &runReader{} }

// target is whom clients talk to, and what they say.
type target struct {
	addr     string
	watch    func() watcher
	requests [][]byte
}

func to(addr string, watch func() watcher, requests ...[]byte) target {
	return target{addr: addr, watch: watch, requests: requests}
}

// streams opens clients of a target.
func streams(c clock, t target) opener {
	return func(ctx context.Context, lives time.Duration) (client, error) {
		w, err := connect(ctx, c, t.addr, lives)
		if err != nil {
			return nil, err
		}
		return &streamClient{wire: w, clock: c, target: t}, nil
	}
}

// connect gives a connection that ends after a time, should it still be in use.
func connect(ctx context.Context, c clock, addr string, lives time.Duration) (*wire, error) {
	w, err := dialWire(ctx, addr, netip.Addr{}, wireBuffer)
	if err != nil {
		return nil, err
	}
	if err := w.until(c, lives); err != nil {
		w.close()
		return nil, fmt.Errorf("set a connection's deadline: %w", err)
	}
	return w, nil
}

func (s *streamClient) close() { s.wire.close() }

func (s *streamClient) run() (time.Duration, error) {
	w := s.watch()
	var first time.Duration
	request := s.requests[s.sent%len(s.requests)]
	s.sent++
	err := s.wire.exchange(request, func(line []byte) {
		w.line(line)
		if first == 0 && w.hasText() {
			first = s.clock.now()
		}
	})
	if err != nil {
		return first, err
	}
	return first, w.verdict()
}
