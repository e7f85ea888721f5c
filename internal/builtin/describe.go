package builtin

import (
	"context"
	"sync"
	"time"

	"hob"
)

const (
	defaultDescribeFor = 30 * time.Second
	// maxDescriptions bounds the grants whose tables are remembered.
	maxDescriptions = 1024
)

// describing looks at tables, as Database.Describe.
type describing func(context.Context) (text string, missing []string, err error)

// descriptions remembers how tables read, briefly: runs start often and tables change seldom. Of callers that ask for
// the same grant at once one looks and the others wait. Errors serve those who waited and nobody after them.
type descriptions struct {
	clock hob.Clock
	keep  time.Duration

	mu    sync.Mutex
	byKey map[string]*description
}

// description is one answer; its fields are read after done is closed.
type description struct {
	done      chan struct{}
	text      string
	missing   []string // tables
	err       error
	abandoned bool // whoever looked has gone: the error says nothing about the database
	until     time.Time
}

func newDescriptions(clock hob.Clock, keep time.Duration) *descriptions {
	return &descriptions{clock: clock, keep: keep, byKey: map[string]*description{}}
}

// get returns the description of a grant, from load where none is at hand.
func (d *descriptions) get(ctx context.Context, key string, load describing) (string, []string, error) {
	for {
		e, mine := d.claim(key)
		if mine {
			d.fill(ctx, e, load)
			return e.text, e.missing, e.err
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
		if !e.abandoned {
			return e.text, e.missing, e.err
		}
	}
}

// claim returns the entry of a key; mine tells that the caller has to fill it.
func (d *descriptions) claim(key string) (e *description, mine bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.byKey[key]; e != nil && d.usable(e) {
		return e, false
	}
	if len(d.byKey) >= maxDescriptions {
		clear(d.byKey)
	}
	e = &description{done: make(chan struct{})}
	d.byKey[key] = e
	return e, true
}

// usable says whether an entry is being filled or still fresh.
func (d *descriptions) usable(e *description) bool {
	select {
	case <-e.done:
		return e.err == nil && d.clock().Before(e.until)
	default:
		return true
	}
}

func (d *descriptions) fill(ctx context.Context, e *description, load describing) {
	bounded, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	defer close(e.done) // even if load panics, or every later run would wait for it
	e.abandoned = true
	e.text, e.missing, e.err = load(bounded)
	e.abandoned = e.err != nil && ctx.Err() != nil
	e.until = d.clock().Add(d.keep)
}
