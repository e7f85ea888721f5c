package api

import (
	"runtime"
	"sync/atomic"
)

// refusalShare is the part of the waiting refusals that goes on at once: one over so many, at least one.
const refusalShare = 256

// refusals lets requests that are refused for overload wait while there is anything else to do. There may be many times
// as many of them as accepted runs, and the scheduler gives each goroutine its turn: were all of them runnable, the store's
// writer would wait for them all, again and again. So a few go on, and the next few when all that was runnable had its
// turn. On a server with a processor to spare that is at once. The line is no longer than there are connections.
type refusals struct {
	waiting atomic.Int64
	turn    chan struct{}
}

func newRefusals() *refusals { return &refusals{turn: make(chan struct{})} }

// wait returns when it is this refusal's turn.
func (r *refusals) wait() {
	if r.waiting.Add(1) == 1 {
		go r.pass()
	}
	<-r.turn
}

// pass gives turns until nobody waits. There is one at a time: the first in the line starts it.
func (r *refusals) pass() {
	for left := r.waiting.Load(); left > 0; {
		n := 1 + left/refusalShare
		for range n {
			r.turn <- struct{}{}
		}
		if left = r.waiting.Add(-n); left > 0 {
			runtime.Gosched()
		}
	}
}
