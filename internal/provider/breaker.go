package provider

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"hob"
)

// Defaults of the circuit breakers. Config can change them.
const (
	DefaultBreakAfter = 5                // failed tries in a row that open a circuit
	DefaultBreakFor   = 15 * time.Second // that it stays open; it doubles while the endpoint stays broken
	DefaultBreakMost  = 2 * time.Minute  // that it stays open at most, the jitter of a quarter left out
)

// breakLimits are the numbers of a breaker.
type breakLimits struct {
	after       int // 0 = it never opens
	first, most time.Duration
}

// verdict is what a try says about the endpoint.
type verdict int

const (
	verdictNone   verdict = iota // nothing: the caller gave up, or the answer could not be read
	verdictWorks                 // it answers: a delta, or a status below 500, a refusal of the key or a 429 included
	verdictBroken                // connection error, time-out, 5xx
)

// breaker keeps calls away from an endpoint that is broken, so that they fail at once (and go to a fallback model, where
// there is one) instead of waiting each for itself. Closed, it counts the tries in a row that showed the endpoint broken.
// When there are enough of them it opens: calls are refused. When its time is over it is half open: exactly one call is let
// through, the others are refused as before. If that one works the circuit closes, else it opens again for twice as long.
//
// A working endpoint costs a call two atomic loads. All methods are safe for concurrent use; a nil breaker never opens.
type breaker struct {
	provider string
	base     string // without a password, for people
	limits   breakLimits
	now      hob.Clock
	circuits *circuits

	troubled atomic.Bool // there is something to look at below

	mu    sync.Mutex
	fails int // in a row
	open  bool
	wait  time.Duration // of the present opening, without jitter
	since time.Time     // it opened first
	until time.Time     // the end of the present opening
	probe uint64        // the pass of the call let through, 0 = none
	given uint64        // the last pass that was given
	fault string        // the last one, for people
}

// newBreaker makes the breaker of an endpoint, nil where the configuration wants none.
func newBreaker(provider, base string, l limits, all *circuits) *breaker {
	if l.breaker.after <= 0 {
		return nil
	}
	if u, err := url.Parse(base); err == nil {
		u.User = nil
		base = u.String()
	}
	return &breaker{provider: provider, base: base, limits: l.breaker, now: l.now, circuits: all}
}

// enter asks to make a try. The error says why not. The pass, 0 but for the one call that tries an open circuit, is to be
// given to report once, and to leave in any case.
func (b *breaker) enter() (pass uint64, refused *hob.ProviderError) {
	if b == nil || !b.troubled.Load() {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return 0, nil
	}
	if now := b.now(); b.probe != 0 || now.Before(b.until) {
		return 0, b.refusal(now)
	}
	b.given++
	b.probe = b.given
	return b.probe, nil
}

// refuses is the error that a call gets at present, nil where it would be let through. It takes no pass.
func (b *breaker) refuses() *hob.ProviderError {
	if b == nil || !b.troubled.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.now(); b.open && (b.probe != 0 || now.Before(b.until)) {
		return b.refusal(now)
	}
	return nil
}

// refusal is the error of a call that is not let through. b.mu is held.
func (b *breaker) refusal(now time.Time) *hob.ProviderError {
	wait := max(b.until.Sub(now), time.Second)
	return &hob.ProviderError{
		Class: hob.ClassModelError, RetryAfter: wait, Err: errCircuitOpen,
		Message: fmt.Sprintf("%s: %d tries in a row failed, the last one so: %s; it is tried again in %s",
			b.provider, b.fails, b.fault, wait.Round(time.Second)),
	}
}

// report takes a try's verdict. fault is for people and holds no key, asked is the wait that the provider asked for.
func (b *breaker) report(pass uint64, v verdict, fault string, asked time.Duration) {
	if b == nil || v == verdictNone || v == verdictWorks && !b.troubled.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if v == verdictWorks {
		b.close()
		return
	}
	b.fault = fault
	b.fails++
	b.troubled.Store(true)
	switch {
	case b.open && pass != 0 && pass == b.probe:
		b.wait = min(2*b.wait, b.limits.most)
	case !b.open && b.fails >= b.limits.after:
		b.open, b.wait, b.since = true, b.limits.first, b.now()
		b.circuits.add(b)
	default: // not enough yet, or a try that began before the circuit opened
		return
	}
	b.probe = 0
	b.until = b.now().Add(max(b.wait, min(asked, MaxRetryAfter)) + rand.N(b.wait/4+1)) //nolint:gosec // jitter, no secret
}

// close forgets what was. b.mu is held.
func (b *breaker) close() {
	if b.open {
		b.circuits.remove(b)
	}
	b.open, b.fails, b.probe, b.fault = false, 0, 0, ""
	b.troubled.Store(false)
}

// leave ends a try. A pass without a verdict is given back: the next call tries the circuit.
func (b *breaker) leave(pass uint64) {
	if pass == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probe == pass {
		b.probe = 0
	}
}

// CircuitState is the state of a circuit that is not closed.
type CircuitState string

// The states.
const (
	CircuitOpen     CircuitState = "open"      // calls are refused
	CircuitHalfOpen CircuitState = "half_open" // the next call tries it, or one does so now; the others are refused
)

// Circuit is an endpoint that is left alone because it was broken, for people.
type Circuit struct {
	Provider string       `json:"provider"`
	BaseURL  string       `json:"base_url"` // without a password
	State    CircuitState `json:"state"`
	Fails    int          `json:"fails"` // tries in a row
	Fault    string       `json:"fault"` // the last one
	Since    hob.Time     `json:"since"`
	Until    hob.Time     `json:"until"` // when a call is let through
}

func (b *breaker) circuit() (Circuit, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := Circuit{
		Provider: b.provider, BaseURL: b.base, State: CircuitOpen, Fails: b.fails, Fault: b.fault,
		Since: hob.Time{Time: b.since}, Until: hob.Time{Time: b.until},
	}
	if !b.now().Before(b.until) {
		c.State = CircuitHalfOpen
	}
	return c, b.open
}

// circuits are the breakers that are not closed. They are held weakly: an endpoint that a workspace gave up takes its
// circuit with it.
type circuits struct {
	mu    sync.Mutex
	open  map[weak.Pointer[breaker]]struct{}
	sweep int // the number of entries at which those that are gone are looked for
}

func (c *circuits) add(b *breaker) {
	const least = 64
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open, c.sweep = map[weak.Pointer[breaker]]struct{}{}, least
	}
	c.open[weak.Make(b)] = struct{}{}
	if len(c.open) < c.sweep {
		return
	}
	c.forget()
	c.sweep = max(2*len(c.open), least)
}

// forget drops the breakers that are gone. c.mu is held.
func (c *circuits) forget() {
	for p := range c.open {
		if p.Value() == nil {
			delete(c.open, p)
		}
	}
}

func (c *circuits) remove(b *breaker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, weak.Make(b))
}

// list gives the circuits that are not closed, by provider and address.
func (c *circuits) list() []Circuit {
	c.mu.Lock()
	var all []*breaker
	for p := range c.open {
		if b := p.Value(); b != nil {
			all = append(all, b)
		}
	}
	c.mu.Unlock() // before the breakers' own locks, which are held around add and remove
	out := make([]Circuit, 0, len(all))
	for _, b := range all {
		if one, open := b.circuit(); open {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Circuit) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.BaseURL, b.BaseURL))
	})
	return out
}

// Circuits lists the endpoints that are left alone at present because they were broken, workspaces' own included.
func (r *Registry) Circuits() []Circuit { return r.circuits.list() }
