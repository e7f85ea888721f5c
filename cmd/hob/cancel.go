package main

import (
	"context"
	"fmt"
	"sync"

	"hob"
)

// canceller turns Ctrl-C into the cancelling of one run.
type canceller struct {
	*chatter
	leave context.CancelFunc

	mu      sync.Mutex
	id      hob.RunID
	pressed bool // Ctrl-C was pressed
	gone    bool // and pressed again
}

// run listens until the turn is over.
func (c *canceller) run(ctx context.Context) {
	for presses := 0; ; presses++ {
		select {
		case <-ctx.Done():
			return
		case <-c.signals:
		}
		if presses > 0 {
			c.mu.Lock()
			c.gone = true
			c.mu.Unlock()
			c.leave()
			return
		}
		c.mu.Lock()
		id := c.id
		c.pressed = true
		c.mu.Unlock()
		if id != "" {
			c.cancel(ctx, id)
		}
	}
}

// started tells the run's id, and cancels it where that was asked for before.
func (c *canceller) started(id hob.RunID) {
	c.mu.Lock()
	c.id = id
	pressed := c.pressed
	c.mu.Unlock()
	if pressed {
		c.cancel(context.Background(), id)
	}
}

func (c *canceller) cancel(ctx context.Context, id hob.RunID) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	fmt.Fprintln(c.stderr, "\ncancelling; press Ctrl-C again to leave at once")
	if _, err := c.remote.Cancel(ctx, id); err != nil {
		fmt.Fprintf(c.stderr, "hob chat: cancel %s: %s\n", id, plain(explain(c.remote.explain(err))))
	}
}

// state says whether the user wanted the run to end, and whether they left before it did.
func (c *canceller) state() (pressed, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pressed, c.gone
}
