package engine

import (
	"context"
	"fmt"
	"time"

	"hob"
)

// trials are the calls of the console under way: so many of a workspace at once. Drain waits for them, and ends them when
// its own time is over.
type trials struct {
	under map[hob.WorkspaceID]int // guarded by Engine.mu
	base  context.Context         //nolint:containedctx // the life of all of them
	end   context.CancelCauseFunc
}

func newTrials() trials {
	t := trials{under: map[hob.WorkspaceID]int{}}
	t.base, t.end = context.WithCancelCause(context.Background())
	return t
}

// enter takes a place for a workspace; what it gives back leaves it again.
func (t *trials) enter(e *Engine, ws hob.WorkspaceID) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch most := e.Limits.Trials; {
	case e.admission.over():
		return nil, refusal(hob.Unavailable, textShuttingDown, codeShuttingDown)
	case t.under[ws] >= most:
		return nil, refusal(hob.RateLimited, fmt.Sprintf("%d tool tests of the workspace are under way, which is as many as may be at once", most), codeTrials)
	}
	t.under[ws]++
	e.group.Add(1)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if t.under[ws]--; t.under[ws] == 0 {
			delete(t.under, ws)
		}
		e.group.Done()
	}, nil
}

// outlive is a context that does not end with the request that asked for a call, but with the process, and in time.
func (t *trials) outlive(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	stop := context.AfterFunc(t.base, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
