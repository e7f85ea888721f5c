package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"hob"
)

// who names a principal for counting: all keys and tokens of one user are one.
type who struct {
	kind hob.PrincipalKind
	id   string
}

func whoIs(p hob.Principal) who { return who{p.Kind, p.ID} }

func tooMany(text, code string, wait time.Duration) error {
	e := hob.Errorf(hob.RateLimited, "%s", text).WithCode(code)
	e.RetryAfter = wait
	return e
}

// limiter bounds how often a principal may ask.
type limiter struct {
	limits  Limits
	byWho   *buckets
	service *buckets
}

func newLimiter(l Limits, clock hob.Clock) *limiter {
	return &limiter{limits: l, byWho: newBuckets(l.Rate, clock), service: newBuckets(l.Service, clock)}
}

// request takes one request from the principal's allowance, or is RateLimited.
func (l *limiter) request(p hob.Principal) error {
	if l.limits.Off {
		return nil
	}
	b := l.byWho
	if p.Kind == hob.ServicePrincipal {
		b = l.service
	}
	if wait := b.take(p.Owner() + p.ID); wait > 0 {
		return tooMany("too many requests; slow down", "rate_limited", wait)
	}
	return nil
}

// buckets are token buckets by name. A bucket that is full again is forgotten, so that they take room only for those
// who ask often.
type buckets struct {
	rate  Rate
	clock hob.Clock

	mu     sync.Mutex
	byName map[string]*bucket
	swept  time.Time
}

type bucket struct {
	left float64
	at   time.Time
}

// sweepEvery is how often full buckets are looked for.
const sweepEvery = time.Minute

func newBuckets(r Rate, clock hob.Clock) *buckets {
	return &buckets{rate: r, clock: clock, byName: map[string]*bucket{}, swept: clock()}
}

// take takes one token and returns 0, or how long to wait for the next.
func (b *buckets) take(name string) time.Duration { return b.use(name, 1) }

// wait is how long to wait for the next token; none is taken.
func (b *buckets) wait(name string) time.Duration { return b.use(name, 0) }

func (b *buckets) use(name string, tokens float64) time.Duration {
	now := b.clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.swept) > sweepEvery {
		b.swept = now
		for n, k := range b.byName {
			if k.left+now.Sub(k.at).Seconds()*b.rate.PerSecond >= b.rate.Burst {
				delete(b.byName, n)
			}
		}
	}
	k := b.byName[name]
	if k == nil {
		if tokens == 0 {
			return 0
		}
		k = &bucket{left: b.rate.Burst, at: now}
		b.byName[name] = k
	}
	k.left = min(b.rate.Burst, k.left+max(0, now.Sub(k.at).Seconds())*b.rate.PerSecond)
	k.at = now
	if k.left < 1 {
		return time.Duration((1 - k.left) / b.rate.PerSecond * float64(time.Second))
	}
	k.left -= tokens
	return 0
}

// What ends the streams of a credential that is not good any more. A revoked one also ends the runs it waits for; after
// an expiry their owner may come back with a new one.
var (
	errRevoked = errors.New("the key was revoked")
	errExpired = errors.New("the key or token has expired")
	errLeft    = errors.New("the client left") // which ends its stream
)

// streams counts the open connections that wait on runs and ends those whose credential was revoked or has expired: one
// look per credential, not per connection. The watching goroutine lives while there is a connection.
type streams struct {
	limits Limits
	auth   *authenticator

	mu     sync.Mutex
	open   int
	byWho  map[who]int
	byCred map[credential]*held
}

// held are the connections under one credential.
type held struct {
	leases map[*lease]struct{}
	done   chan struct{} // closed with the last one
}

// lease is one held connection.
type lease struct {
	ctx     context.Context //nolint:containedctx // ends with the lease
	end     context.CancelCauseFunc
	s       *streams
	cred    credential
	who     who
	counted bool
}

// leave ends the lease's context because the client left.
func (l *lease) leave() { l.end(errLeft) }

func newStreams(l Limits, a *authenticator) *streams {
	return &streams{limits: l, auth: a, byWho: map[who]int{}, byCred: map[credential]*held{}}
}

// hold admits a connection. The context of its lease ends, with errRevoked or errExpired as cause, when the credential
// does; release must be called. Streams are counted: over a limit the error is RateLimited or Unavailable. Other waits are
// only watched.
func (s *streams) hold(ctx context.Context, c *call, counted bool) (*lease, error) {
	l := &lease{s: s, cred: c.cred, who: whoIs(c.by), counted: counted}
	s.mu.Lock()
	defer s.mu.Unlock()
	if counted {
		switch {
		case s.open >= s.limits.Streams:
			e := hob.Errorf(hob.Unavailable, "the server has as many open streams as it may").WithCode("too_many_streams")
			e.RetryAfter = time.Second
			return nil, e
		case !s.limits.Off && l.who.kind != hob.ServicePrincipal && s.byWho[l.who] >= s.limits.PerKey:
			return nil, tooMany("too many open streams; close one first", "too_many_streams", time.Second)
		}
		s.open++
		s.byWho[l.who]++
	}
	l.ctx, l.end = context.WithCancelCause(ctx)
	h := s.byCred[l.cred]
	if h == nil {
		h = &held{leases: map[*lease]struct{}{}, done: make(chan struct{})}
		s.byCred[l.cred] = h
		go s.watch(l.cred, h)
	}
	h.leases[l] = struct{}{}
	return l, nil
}

// release gives a connection's place back.
func (l *lease) release() {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.counted {
		s.open--
		if s.byWho[l.who]--; s.byWho[l.who] == 0 {
			delete(s.byWho, l.who)
		}
	}
	l.end(nil)
	h := s.byCred[l.cred]
	if delete(h.leases, l); len(h.leases) == 0 {
		close(h.done)
		delete(s.byCred, l.cred)
	}
}

// watch looks again and again whether a credential is still good.
func (s *streams) watch(c credential, h *held) {
	every := time.NewTicker(s.limits.Recheck)
	defer every.Stop()
	for {
		select {
		case <-h.done:
			return
		case <-every.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.limits.Recheck)
		cause := s.auth.still(ctx, c)
		cancel()
		if cause != nil {
			s.mu.Lock()
			for l := range h.leases {
				l.end(cause)
			}
			s.mu.Unlock()
		}
	}
}

// count is how many streams are open.
func (s *streams) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}
