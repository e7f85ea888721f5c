//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// arrivals are requests that come at a rate whatever becomes of those before them, as those of many callers do who do not
// know of each other. What is refused is not asked again.
type arrivals struct {
	clock  clock
	rate   float64 // per second
	lasts  time.Duration
	settle time.Duration // at the beginning, told apart from the rest
	conns  int           // connections, each for one request at a time; an arrival that finds none free is not made
	target
}

// arrived is what became of them.
type arrived struct {
	offered, accepted, refused int
	untold                     int // refused without a status of 429 or 503, or without Retry-After
	failed                     int // neither refused nor completed
	unmade                     int // no connection was free: the client was the bottleneck
	why                        error
	settling                   sample // of runs accepted while settling: from sending the request to the stream's end
	times                      sample // of those behind
	refusals                   sample // from sending to the whole refusal
	lag                        sample // from when a request was due to its sending: the client's own
}

func (a *arrived) add(o arrived) {
	a.accepted += o.accepted
	a.refused += o.refused
	a.untold += o.untold
	a.failed += o.failed
	a.why = errors.Join(a.why, o.why)
	a.settling.merge(o.settling)
	a.times.merge(o.times)
	a.refusals.merge(o.refusals)
	a.lag.merge(o.lag)
}

// firstAsked is the first request on each connection.
const firstAsked = "GET /health HTTP/1.1\r\nHost: hob\r\n\r\n"

// arrivalTick is how finely arrivals are spread.
const arrivalTick = time.Millisecond

// run makes the requests and returns when the last is answered.
func (a arrivals) run(ctx context.Context) (arrived, error) {
	wires := make([]*wire, a.conns)
	for i := range wires {
		w, err := connect(ctx, a.clock, a.addr, a.lasts+patience)
		if err == nil { // a connection on which nothing is asked soon is closed; one that was used may wait
			err = w.exchange([]byte(firstAsked), func([]byte) {})
		}
		if err != nil {
			return arrived{}, fmt.Errorf("connect client %d of %d: %w", i+1, a.conns, err)
		}
		wires[i] = w
	}
	due := make(chan time.Duration) // nobody waits in it: a free connection takes an arrival at once
	parts := make([]arrived, a.conns)
	began := a.clock.now()
	var group sync.WaitGroup
	for i := range wires {
		group.Go(func() { a.serve(ctx, wires[i], due, began, &parts[i]) })
	}
	sum := a.offer(ctx, due, began)
	close(due)
	group.Wait()
	for _, p := range parts {
		sum.add(p)
	}
	return sum, ctx.Err()
}

// offer hands out the arrivals.
func (a arrivals) offer(ctx context.Context, due chan<- time.Duration, began time.Duration) (made arrived) {
	tick := time.NewTicker(arrivalTick)
	defer tick.Stop()
	for ctx.Err() == nil {
		at := a.clock.now()
		since := at - began
		if since >= a.lasts {
			break
		}
		for ; float64(made.offered) < a.rate*since.Seconds(); made.offered++ {
			select {
			case due <- at:
			default:
				made.unmade++
			}
		}
		<-tick.C
	}
	return made
}

// serve makes arrivals on one connection, and on another one behind a failure.
func (a arrivals) serve(ctx context.Context, w *wire, due <-chan time.Duration, began time.Duration, into *arrived) {
	defer func() {
		if w != nil {
			w.close()
		}
	}()
	for at := range due {
		sent := a.clock.now()
		into.lag.add(sent - at)
		look := a.watch()
		answer, err := attempt(w, a.requests[0], look.line)
		took := a.clock.now() - sent
		if err == nil && answer.status/100 == 2 {
			err = look.verdict()
		}
		switch {
		case err != nil:
			into.failed++
			into.why = err
			w.close()
			if w, err = connect(ctx, a.clock, a.addr, a.lasts+patience); err != nil {
				into.why = errors.Join(into.why, err)
				w = nil
				return
			}
		case answer.status/100 != 2:
			into.refused++
			into.refusals.add(took)
			if !answer.told() {
				into.untold++
			}
		default:
			into.accepted++
			if sent-began < a.settle {
				into.settling.add(took)
			} else {
				into.times.add(took)
			}
		}
	}
}

// answered is the head of an answer.
type answered struct {
	status int
	retry  bool // it says when to come back
}

// told says whether it is a refusal as it has to be.
func (a answered) told() bool { return (a.status == 429 || a.status == 503) && a.retry }

// attempt sends a request and reads the whole answer; the lines of one that is no refusal go to each.
func attempt(w *wire, request []byte, each func(line []byte)) (answered, error) {
	if _, err := w.conn.Write(request); err != nil {
		return answered{}, fmt.Errorf("send the request: %w", err)
	}
	for !bytes.Contains(w.have, []byte("\r\n\r\n")) && len(w.have) <= maxHead {
		if err := w.fill(); err != nil {
			return answered{}, fmt.Errorf("read the answer's head: %w", err)
		}
	}
	head, _, _ := bytes.Cut(w.have, []byte("\r\n\r\n"))
	a := answered{retry: bytes.Contains(head, []byte("\r\nRetry-After: "))}
	var err error
	if a.status, err = w.head(); err != nil {
		return a, err
	}
	if a.status/100 != 2 {
		each = func([]byte) {}
	}
	return a, w.lines(each)
}
