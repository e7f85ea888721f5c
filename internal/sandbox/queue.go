package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// queue gives out turns: so many at once, so many of a workspace, in the order of asking. It is bounded.
type queue struct {
	limits Limits

	mu      sync.Mutex
	running int
	of      map[string]int // running, by workspace
	waiting []*turn
}

type turn struct {
	workspace string
	granted   chan struct{}
}

func newQueue(l Limits) *queue { return &queue{limits: l, of: map[string]int{}} }

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

func (q *queue) take(t *turn) {
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
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
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
	kept := q.waiting[:0]
	for _, t := range q.waiting {
		if q.free(t.workspace) {
			q.take(t)
		} else {
			kept = append(kept, t)
		}
	}
	clear(q.waiting[len(kept):])
	q.waiting = kept
}
