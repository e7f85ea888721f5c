package agentsql

import (
	"context"
	"sync"
	"time"
)

// gateWait is the longest time a statement waits for its turn.
const gateWait = 2 * time.Second

// gate bounds how many statements run at once, per agent and in all.
type gate struct {
	mu     sync.Mutex
	total  int
	agents map[string]int
	alone  bool          // one statement has all places
	wake   chan struct{} // closed and replaced when a place gets free
}

func newGate() *gate {
	return &gate{agents: map[string]int{}, wake: make(chan struct{})}
}

// enter waits for a place and returns the function that gives it back.
func (g *gate) enter(ctx context.Context, agent string, limit int) (func(), error) {
	patience := time.NewTimer(gateWait)
	defer patience.Stop()
	for {
		g.mu.Lock()
		if !g.alone && g.total < totalConcurrency && g.agents[agent] < limit {
			g.total++
			g.agents[agent]++
			g.mu.Unlock()
			return func() { g.leave(agent) }, nil
		}
		wake := g.wake
		g.mu.Unlock()
		select {
		case <-wake:
		case <-patience.C:
			return nil, &Error{Kind: Busy, Message: "Too many queries are running; try again shortly"}
		case <-ctx.Done():
			return nil, &Error{Kind: Busy, Message: "Too many queries are running; try again shortly", cause: ctx.Err()}
		}
	}
}

// enterAlone waits until nothing runs, and lets nothing run beside until the
// function that it returns is called; ok is false when that does not come in
// time.
func (g *gate) enterAlone(ctx context.Context) (leave func(), ok bool) {
	patience := time.NewTimer(gateWait)
	defer patience.Stop()
	for {
		g.mu.Lock()
		if !g.alone && g.total == 0 {
			g.alone = true
			g.mu.Unlock()
			return g.leaveAlone, true
		}
		wake := g.wake
		g.mu.Unlock()
		select {
		case <-wake:
		case <-patience.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

func (g *gate) leaveAlone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alone = false
	g.tell()
}

// crowded reports whether more than one statement runs.
func (g *gate) crowded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total > 1
}

func (g *gate) leave(agent string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total--
	if g.agents[agent]--; g.agents[agent] == 0 {
		delete(g.agents, agent)
	}
	g.tell()
}

// tell wakes those who wait for a place; the lock is held.
func (g *gate) tell() {
	close(g.wake)
	g.wake = make(chan struct{})
}
