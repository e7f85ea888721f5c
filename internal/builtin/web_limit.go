package builtin

import (
	"context"
	"sync"
	"time"

	"hob"
)

const (
	// limitWindow is the time over which requests to an outside service are counted.
	limitWindow = time.Minute
	// limitWait is how long a request waits for its turn.
	limitWait = 10 * time.Second
	// limitKeys is from how many workspaces on the idle ones are forgotten.
	limitKeys = 1000
)

// limiter bounds how often a workspace asks an outside service: so many requests in any minute, counted in this
// process. It is safe for concurrent use.
type limiter struct {
	clock hob.Clock
	mu    sync.Mutex
	asked map[hob.WorkspaceID][]time.Time // when requests of the last minute were sent, or will be; sorted
}

func newLimiter(clock hob.Clock) *limiter {
	return &limiter{clock: clock, asked: map[hob.WorkspaceID][]time.Time{}}
}

// wait returns when a request may be sent; false means that its turn is too far off, and that it was not counted. The
// error is that of ctx.
func (l *limiter) wait(ctx context.Context, ws hob.WorkspaceID, most int) (bool, error) {
	delay, ok := l.reserve(ws, most)
	if !ok || delay <= 0 {
		return ok, nil
	}
	return true, pause(ctx, delay)
}

// reserve takes the next turn and says how far off it is.
func (l *limiter) reserve(ws hob.WorkspaceID, most int) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	asked := l.asked[ws]
	for len(asked) > 0 && !asked[0].After(now.Add(-limitWindow)) {
		asked = asked[1:]
	}
	turn := now
	if n := len(asked); n >= most {
		turn = asked[n-most].Add(limitWindow)
	}
	if turn.Sub(now) > limitWait {
		l.asked[ws] = asked
		return 0, false
	}
	if len(l.asked) >= limitKeys {
		l.forget(now)
	}
	l.asked[ws] = append(asked, turn)
	return turn.Sub(now), true
}

// forget drops the workspaces that asked nothing within the window.
func (l *limiter) forget(now time.Time) {
	for ws, asked := range l.asked {
		if len(asked) == 0 || !asked[len(asked)-1].After(now.Add(-limitWindow)) {
			delete(l.asked, ws)
		}
	}
}

// pause sleeps; the error is that of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
