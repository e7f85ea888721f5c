//go:build linux

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"hob"
)

// scene is what a drill plays on: servers, a world, an agent, and clients that talk to one of the servers at a time.
type scene struct {
	h       *harness
	w       *stage
	f       *fleet // one server on SQLite has no cluster
	agent   hob.AgentID
	storm   *storm
	talksTo atomic.Int64 // the server that clients talk to
}

// alone is a scene with one server on SQLite.
func (t *trial) alone(ctx context.Context, p pace, b habits) (*scene, error) {
	return t.scene(ctx, p, b, func(ctx context.Context, pipe string) (*fleet, error) {
		f := &fleet{h: t.h}
		s, err := newServer(ctx, t.h, setting{name: t.name, pipe: pipe})
		if err != nil {
			return f, err
		}
		f.servers = []*server{s}
		_, err = s.serve(ctx)
		return f, err
	})
}

// pair is a scene with two servers on one Postgres.
func (t *trial) pair(ctx context.Context, p pace, b habits, env ...string) (*scene, error) {
	return t.scene(ctx, p, b, func(ctx context.Context, pipe string) (*fleet, error) {
		f := &fleet{h: t.h, cluster: t.cluster}
		return f, f.join(ctx, fleetSetting{name: t.name, n: 2, pipe: pipe, env: env})
	})
}

func (t *trial) scene(ctx context.Context, p pace, b habits, serve func(context.Context, string) (*fleet, error)) (_ *scene, err error) {
	sc := &scene{h: t.h}
	defer func() {
		if err != nil {
			sc.close()
		}
	}()
	if sc.w, err = newStage(ctx, t.h, p); err != nil {
		return nil, err
	}
	if sc.f, err = serve(ctx, sc.w.front); err != nil {
		return nil, err
	}
	if sc.agent, err = prepareAgent(ctx, sc.f.servers[0]); err != nil {
		return nil, err
	}
	b.addr = func(*rand.Rand) string { return sc.f.servers[sc.talksTo.Load()].addr }
	sc.storm = newStorm(sc.w.world, sc.agent, b)
	return sc, nil
}

func (sc *scene) close() {
	if sc.f != nil {
		sc.f.leave()
	}
	if sc.w != nil {
		sc.w.close()
	}
}

// server is the n-th of the scene.
func (sc *scene) server(n int) *server { return sc.f.servers[n] }

// say has a client see one message through, beside the others.
func (sc *scene) say(ctx context.Context, mark string, p plan) *message {
	m := &message{mark: mark, text: messageText(mark, p), key: "key-" + mark, session: hob.SessionID("chaos-" + mark), plan: p}
	sc.w.add(m)
	sc.storm.group.Go(func() { sc.storm.converse(ctx, sc.h.chance(mark), m) })
	return m
}

// until waits for something, at most for a drill's patience; it says whether it came.
func until(ctx context.Context, is func() bool) bool {
	for deadline := time.Now().Add(drillPatience); !is(); pause(ctx, time.Millisecond) {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// accepted waits until so many messages are accepted.
func (sc *scene) accepted(ctx context.Context, n int) bool {
	return until(ctx, func() bool { return sc.w.counts().accepted >= n })
}

// settle waits for all runs to end, and judges all that there is by the promises that hold for every run.
func (sc *scene) settle(ctx context.Context) ([]verdict, error) {
	if err := sc.storm.end(ctx, drillPatience); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		sc.w.fault(runsEnd, "%v", err)
	}
	f, err := find(ctx, sc.server(int(sc.talksTo.Load())).addr, sc.agent)
	if err != nil {
		return nil, err
	}
	return check(sc.w.ledger, f), nil
}

// settleWhole is settle for clients that have a number of messages to send first.
func (sc *scene) settleWhole(ctx context.Context) ([]verdict, error) {
	if err := sc.storm.wait(ctx, drillPatience); err != nil {
		sc.w.fault(runsEnd, "%v", err)
	}
	return sc.settle(ctx)
}

// code is why a message's run did not simply complete.
func (sc *scene) code(ctx context.Context, m *message) (string, error) {
	r, err := sc.record(ctx, m, 0)
	return orEmpty(r.Code), err
}

// record reads the record of a message's run from a server.
func (sc *scene) record(ctx context.Context, m *message, from int) (r hob.RunRecord, err error) {
	run, ok := sc.runOf(m)
	if !ok {
		return r, errors.New("the message has no run")
	}
	q := request{addr: sc.server(from).addr, method: http.MethodGet, path: "/api/agents/runs/" + string(run)}
	return r, sc.storm.api.persist(ctx, q, &r)
}

// runOf is the run that a message was told to have.
func (sc *scene) runOf(m *message) (hob.RunID, bool) {
	sc.w.ledger.mu.Lock()
	defer sc.w.ledger.mu.Unlock()
	if len(m.runs) == 0 {
		return "", false
	}
	return m.runs[0], true
}
