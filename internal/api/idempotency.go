package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"hob"
)

const (
	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotency-Replayed" // "true" on an answer that was given before
	maxIdempotencyKey = 255
	keepIdempotency   = 24 * time.Hour // from the first answer on
)

// creation is a creating request that was read and checked: only the store is left to ask.
type creation struct {
	// make writes to the store that it is given and says what to answer. It may run more than once, with one writer of the
	// store waiting for it, and touches nothing else.
	make func(ctx context.Context, s hob.Store) (status int, answer any, err error)
	// made, where not nil, is called when what was made is durable. A repeated request does not make it.
	made func()
}

// prepareFunc reads and checks a creating request. It may take its time and ask whom it likes, but writes nothing.
type prepareFunc func(*call) (creation, error)

// in carries the creation out on a store and encodes the answer.
func (m creation) in(ctx context.Context, s hob.Store) (hob.Answer, error) {
	status, answer, err := m.make(ctx, s)
	if err != nil {
		return hob.Answer{}, err
	}
	body, err := marshal(answer)
	return hob.Answer{Status: status, Body: body}, hob.Wrap("encode the answer", err)
}

// creating makes the handler of a creating route from what reads and checks its requests. With an Idempotency-Key, what is
// made and its answer are kept in one transaction, and a repeated request gets that answer, byte for byte.
func creating(prepare prepareFunc) func(*call) error {
	return func(c *call) error {
		key, err := c.creationKey()
		if err != nil {
			return err
		}
		var a hob.Answer
		replayed := false
		if key != nil {
			a, replayed, err = c.answered(*key)
		}
		if err == nil && !replayed {
			a, replayed, err = c.create(key, prepare)
		}
		if err != nil {
			return err
		}
		c.markReplayed(replayed)
		c.s.write(c.w, a.Status, a.Body)
		return nil
	}
}

// answered looks for the answer that an earlier request got. It comes before the request is checked: what was right then
// may be wrong now, as a time to come that has passed, and is answered the same all the same.
func (c *call) answered(key hob.Idempotency) (a hob.Answer, found bool, err error) {
	none := hob.Errorf(hob.NotFound, "no answer is kept under this key")
	a, found, err = c.s.Store.Once(c.Context(), key, func(context.Context, hob.Store) (hob.Answer, error) { return hob.Answer{}, none })
	if errors.Is(err, none) {
		err = nil
	}
	return a, found, err
}

// create checks the request and carries it out. Of several with the same key at the same time one does, and the others get
// its answer.
func (c *call) create(key *hob.Idempotency, prepare prepareFunc) (a hob.Answer, replayed bool, err error) {
	ready, err := prepare(c)
	switch {
	case err != nil:
		return a, false, err
	case key == nil:
		a, err = ready.in(c.Context(), c.s.Store)
	default:
		a, replayed, err = c.s.Store.Once(c.Context(), *key, ready.in)
	}
	if err == nil && !replayed && ready.made != nil {
		ready.made()
	}
	return a, replayed, err
}

// creationKey is what a creating request is known again by, nil without the header. Each path has its own keys.
func (c *call) creationKey() (*hob.Idempotency, error) {
	key, err := c.idempotencyKey()
	if key == "" || err != nil {
		return nil, err
	}
	raw, err := c.content()
	if err != nil {
		return nil, err
	}
	k, err := c.remembered(key, raw)
	if err != nil {
		return nil, err
	}
	// Hashed, since a path may be longer than a database's index takes.
	place := sha256.Sum256([]byte(c.Method + "\x00" + c.rt.path + "\x00" + strings.ToLower(c.PathValue("id"))))
	k.Scope += "/" + hex.EncodeToString(place[:])
	return k, nil
}

// runKey is what a request for a run is known again by, nil without the header. All of a caller's runs share their keys: one
// that is used again for another agent is refused.
func (c *call) runKey(raw []byte) (*hob.Idempotency, error) {
	key, err := c.idempotencyKey()
	if key == "" || err != nil {
		return nil, err
	}
	return c.remembered(key, raw)
}

// remembered binds a key to a request. Its scope is the principal; the digest covers the route, the agent and the body in
// canonical form, so that a client may encode the same request anew.
func (c *call) remembered(key string, raw []byte) (*hob.Idempotency, error) {
	var canonical []byte
	if len(bytes.TrimSpace(raw)) > 0 { // some may leave it out
		var err error
		if canonical, err = hob.Canonical(raw); err != nil {
			return nil, err
		}
	}
	h := sha256.New()
	h.Write([]byte(c.rt.path + "\x00" + c.PathValue("id") + "\x00"))
	h.Write(canonical)
	scope := string(c.by.Workspace) + "/" + string(c.by.Kind) + "/" + c.by.ID
	return &hob.Idempotency{Scope: scope, Key: key, Digest: hex.EncodeToString(h.Sum(nil)), Keep: keepIdempotency}, nil
}

// idempotencyKey reads the header, "" where it is not there.
func (c *call) idempotencyKey() (string, error) {
	values := c.Header.Values(idempotencyHeader)
	if len(values) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(values[0])
	if len(values) > 1 || !visible(key) {
		return "", hob.Errorf(hob.Invalid, "%s must be one value of 1 to %d visible characters", idempotencyHeader, maxIdempotencyKey).
			WithCode("invalid_idempotency_key")
	}
	return key, nil
}

// markReplayed says in the answer's header that an earlier request made what is answered.
func (c *call) markReplayed(replayed bool) {
	if replayed {
		c.w.Header().Set(replayedHeader, "true")
	}
}

func visible(key string) bool {
	for i := range len(key) {
		if key[i] <= ' ' || key[i] >= 0x7f {
			return false
		}
	}
	return key != "" && len(key) <= maxIdempotencyKey
}

// complete fills in what follows from a route's being a creating one.
func (rt *route) complete() {
	if rt.create == nil {
		return
	}
	rt.handle = creating(rt.create)
	rt.errors = append(slices.Clone(rt.errors), http.StatusUnprocessableEntity)
	rt.query = append(slices.Clone(rt.query), param{
		idempotencyHeader, "header",
		"the same key with the same body is answered the same, with the header " + replayedHeader + ": true, and creates nothing, " +
			"for 24 hours; with another body 422",
	})
}
