package api

import (
	"sync"
	"time"

	"hob"
)

// uploads counts the uploads under way, each of which holds a connection and an open file for as long as its sender likes
// to take.
type uploads struct {
	limits Limits

	mu    sync.Mutex
	open  int
	byWho map[who]int
}

func newUploads(l Limits) *uploads { return &uploads{limits: l, byWho: map[who]int{}} }

// enter admits an upload; leave gives its place back. Over the server's bound the error is Unavailable, over the caller's
// own it is RateLimited. Service keys are bounded by the server's alone.
func (u *uploads) enter(by hob.Principal) (leave func(), err error) {
	w := whoIs(by)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.open >= u.limits.Uploads:
		e := hob.Errorf(hob.Unavailable, "the server has as many uploads under way as it may; try again when some have ended").WithCode("too_many_uploads")
		e.RetryAfter = time.Second
		return nil, e
	case !u.limits.Off && w.kind != hob.ServicePrincipal && u.byWho[w] >= u.limits.UploadsPerKey:
		return nil, ownUploads(u.limits.UploadsPerKey)
	}
	u.open++
	u.byWho[w]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.open--
		if u.byWho[w]--; u.byWho[w] == 0 {
			delete(u.byWho, w)
		}
	}, nil
}

func ownUploads(n int) error {
	e := hob.Errorf(hob.RateLimited, "%d uploads of yours are under way, which is the most at once; wait until one has ended", n).
		WithCode("too_many_uploads").With("limit", n)
	e.RetryAfter = time.Second
	return e
}
