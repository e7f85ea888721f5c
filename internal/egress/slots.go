package egress

import (
	"context"
	"errors"
	"sync"
)

// maxIdleGates bounds how many gates of hosts without calls are kept; a kept
// gate spares a steady caller the allocation.
const maxIdleGates = 1024

// slots bounds the exchanges at once, over all and per host.
type slots struct {
	all     chan struct{}
	perHost int

	mu    sync.Mutex
	gates map[string]*gate
}

type gate struct {
	slots chan struct{}
	users int // holding or waiting
}

func newSlots(all, perHost int) *slots {
	return &slots{all: make(chan struct{}, all), perHost: perHost, gates: map[string]*gate{}}
}

// take waits for a slot of the host and one over all, in this order, so that
// callers queueing for a slow host hold nothing that others need. The caller
// gives both back with give.
func (s *slots) take(ctx context.Context, host string) (*gate, error) {
	s.mu.Lock()
	g, ok := s.gates[host]
	if !ok {
		g = &gate{slots: make(chan struct{}, s.perHost)}
		s.gates[host] = g
	}
	g.users++
	s.mu.Unlock()
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		s.leave(host, g)
		return nil, busy(ctx, "too many calls to this host are under way; try again later")
	}
	select {
	case s.all <- struct{}{}:
		return g, nil
	case <-ctx.Done():
		<-g.slots
		s.leave(host, g)
		return nil, busy(ctx, "too many outbound calls are under way; try again later")
	}
}

func busy(ctx context.Context, message string) *Error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &Error{Kind: Canceled, Message: "request cancelled", cause: ctx.Err()}
	}
	return &Error{Kind: Busy, Message: message, cause: ctx.Err()}
}

func (s *slots) give(host string, g *gate) {
	<-s.all
	<-g.slots
	s.leave(host, g)
}

func (s *slots) leave(host string, g *gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.users--; g.users == 0 && len(s.gates) > maxIdleGates {
		delete(s.gates, host)
	}
}
