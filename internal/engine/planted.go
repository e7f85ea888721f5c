package engine

import (
	"context"
	"time"

	"hob"
)

// ackDelay is how much later than its answer a run is stored under the planted fault ack_before_commit.
const ackDelay = 200 * time.Millisecond

// ackEarly accepts a run before it is stored. It belongs to the planted fault ack_before_commit; programs for use do not
// call it.
func (e *Engine) ackEarly(a *active, n hob.NewRun) Started {
	a.log.mu.Lock()
	a.log.tail = nil
	a.log.show(n.Events) // readers see the start, the commits behind it still wait
	a.log.notify()
	a.log.mu.Unlock()
	e.group.Go(func() {
		time.Sleep(ackDelay)
		run, err := e.Store.StartRun(context.WithoutCancel(e.base), n)
		if err != nil {
			a.stop(errNotAccepted)
			a.log.kill(errNotAccepted)
			return
		}
		a.accept(run.Run)
		if n.Idempotency != nil {
			e.launch(a)
		}
	})
	return Started{Run: n.Run}
}
