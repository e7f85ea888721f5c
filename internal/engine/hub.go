package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"hob"
)

const (
	pollDeaf  = 200 * time.Millisecond // between two looks at a run of another process that nobody tells of
	pollSure  = time.Second            // the same where its changes are told
	pollAlone = 15 * time.Second       // the same where no other process can drive it: whoever takes it up here tells
	watchWait = time.Second            // before the store is asked again to tell of changes

	// Its followers' process notes so often that a run is read, and for so long, so that its driver does not take it for
	// abandoned.
	followEvery = 5 * time.Second
	followFor   = 3 * followEvery
)

// hub wakes those who follow runs that other processes drive. It carries no data.
type hub struct {
	told atomic.Bool // changes are told now

	mu      sync.Mutex
	waiting map[hob.RunID]*audience
}

// audience is who follows one run of another process here.
type audience struct {
	ears  map[chan struct{}]struct{}
	noted time.Time // when it was last noted that there is one
}

// subscribe gives a channel that rings when a run may have changed, and what ends it.
func (h *hub) subscribe(id hob.RunID) (chan struct{}, func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		h.waiting = map[hob.RunID]*audience{}
	}
	if h.waiting[id] == nil {
		h.waiting[id] = &audience{ears: map[chan struct{}]struct{}{}}
	}
	h.waiting[id].ears[c] = struct{}{}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.waiting[id].ears, c); len(h.waiting[id].ears) == 0 {
			delete(h.waiting, id)
		}
	}
}

// due says whether it is time to note again that a run is followed here, and takes it for noted.
func (h *hub) due(id hob.RunID, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	to := h.waiting[id]
	if to == nil || now.Sub(to.noted) < followEvery {
		return false
	}
	to.noted = now
	return true
}

// changed wakes the followers of runs, all of them where none are named.
func (h *hub) changed(runs []hob.RunID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(runs) == 0 {
		for id := range h.waiting {
			h.wake(id)
		}
		return
	}
	for _, id := range runs {
		h.wake(id)
	}
}

func (h *hub) wake(id hob.RunID) {
	if to := h.waiting[id]; to != nil {
		for c := range to.ears {
			ring(c)
		}
	}
}

// pollElsewhere is how long a follower of a run that nobody drives here waits before it looks for itself.
func (e *Engine) pollElsewhere() time.Duration {
	if e.Alone {
		return pollAlone
	}
	return e.hub.poll()
}

// poll is how long a follower waits for news before it looks for itself.
func (h *hub) poll() time.Duration {
	if h.told.Load() {
		return pollSure
	}
	return pollDeaf
}

// watch keeps listening to what other processes do, until the context ends.
func (e *Engine) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.Store.Watch(ctx, e.changed)
		if e.hub.told.Store(false); ctx.Err() != nil {
			return
		}
		e.deaf.Note(err)
		pause := time.NewTimer(watchWait)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// changed is told that some process wrote to runs. Of one that is driven here another process can only want the end; where
// none is named a process may have left its runs.
func (e *Engine) changed(runs []hob.RunID) {
	if !e.hub.told.Swap(true) {
		e.deaf.Note(nil)
	}
	e.hub.changed(runs)
	if len(runs) == 0 {
		ring(e.wake)
	}
	for _, id := range runs {
		if e.find(id) != nil {
			ring(e.check)
		}
	}
}
