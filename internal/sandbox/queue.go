package sandbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// queue gives out turns: so many at once, so many of a workspace. Workspaces that wait take turns, each its own calls in the
// order of asking. It is bounded, for each and for all.
type queue struct {
	limits Limits

	mu      sync.Mutex
	running int
	of      map[string]int // running, by workspace
	waiting []*turn
	turns   uint64            // that were granted so far
	last    map[string]uint64 // when a workspace with running or waiting calls had its last turn
}

type turn struct {
	workspace string
	granted   chan struct{}
}

func newQueue(l Limits) *queue {
	return &queue{limits: l, of: map[string]int{}, last: map[string]uint64{}}
}

// enter waits for a turn; leave gives it back. The error is ErrBusy or that of ctx.
func (q *queue) enter(ctx context.Context, workspace string) (leave func(), err error) {
	t := &turn{workspace: workspace, granted: make(chan struct{})}
	q.mu.Lock()
	if q.free(workspace) {
		q.take(t)
		q.mu.Unlock()
		return func() { q.leave(workspace) }, nil
	}
	if len(q.waiting) >= q.limits.Waiting {
		q.mu.Unlock()
		return nil, fmt.Errorf("%w: %d calls wait already", ErrBusy, q.limits.Waiting)
	}
	if own := q.waitingOf(workspace); own >= q.limits.WaitingPerWorkspace {
		q.mu.Unlock()
		return nil, fmt.Errorf("%w: %d calls of this workspace wait already", ErrBusy, own)
	}
	q.waiting = append(q.waiting, t)
	q.mu.Unlock()

	timer := time.NewTimer(q.limits.Wait)
	defer timer.Stop()
	select {
	case <-t.granted:
		return func() { q.leave(workspace) }, nil
	case <-ctx.Done():
		err = fmt.Errorf("wait for the sandbox: %w", context.Cause(ctx))
	case <-timer.C:
		err = fmt.Errorf("%w: no turn within %s", ErrBusy, q.limits.Wait)
	}
	if q.forget(t) {
		q.leave(workspace)
	}
	return nil, err
}

func (q *queue) free(workspace string) bool {
	return q.running < q.limits.Global && q.of[workspace] < q.limits.PerWorkspace
}

func (q *queue) waitingOf(workspace string) (n int) {
	for _, t := range q.waiting {
		if t.workspace == workspace {
			n++
		}
	}
	return n
}

func (q *queue) take(t *turn) {
	q.turns++
	q.last[t.workspace] = q.turns
	q.running++
	q.of[t.workspace]++
	close(t.granted)
}

// forget removes a turn that is waited for no more, and says whether it had been granted meanwhile.
func (q *queue) forget(t *turn) (granted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, w := range q.waiting {
		if w == t {
			q.waiting = slices.Delete(q.waiting, i, i+1)
			if q.of[t.workspace] == 0 && q.waitingOf(t.workspace) == 0 {
				delete(q.last, t.workspace)
			}
			return false
		}
	}
	return true
}

// leave ends a turn and grants those that can begin now.
func (q *queue) leave(workspace string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if q.of[workspace]--; q.of[workspace] == 0 {
		delete(q.of, workspace)
	}
	for {
		next := -1
		for i, t := range q.waiting {
			if q.free(t.workspace) && (next < 0 || q.last[t.workspace] < q.last[q.waiting[next].workspace]) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		q.take(q.waiting[next])
		q.waiting = slices.Delete(q.waiting, next, next+1)
	}
	if q.of[workspace] == 0 && q.waitingOf(workspace) == 0 {
		delete(q.last, workspace)
	}
}
