//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"hob"
)

// postgresParts are the parts that need several servers on one Postgres.
func postgresParts() []part {
	return []part{
		{name: "replicas", about: "three servers on one Postgres, killed and frozen one after the other", run: replicasPart},
		{name: "pgrestart", about: "Postgres ends without a word and starts again, under load", run: restartsPart},
		{name: "swallow", about: "the answer to a COMMIT, or the COMMIT itself, is lost on its way", run: swallowPart},
		{name: "rolling", about: "three servers on one Postgres, restarted in turn by SIGTERM", run: rollingPart},
		{name: "elsewhere", about: "calls wait for people, who decide at any of three servers, and kill -9 between any two states", run: elsewherePart, long: true},
	}
}

// Promises of the Postgres parts, in time.
const (
	takeoverTime = lease + 2*time.Second // from a replica's end to its runs' next attempt
	recoverTime  = 3 * time.Second       // from Postgres's return to runs that go on
	handoverTime = 2 * time.Second       // of silence in a run that a replica hands over
)

// fleetPatience is how long the runs of a part may take to end behind the last fault.
const fleetPatience = 90 * time.Second

// siege is a part on Postgres under way: the world, the fleet and its clients.
type siege struct {
	h     *harness
	name  string
	luck  *rand.Rand
	w     *world
	f     *fleet
	storm *storm
	agent hob.AgentID
}

// besiege starts a part: servers, an agent, and clients that talk to any of the servers.
func besiege(ctx context.Context, h *harness, name string, p pace, b habits, env ...string) (_ *siege, err error) {
	s := &siege{h: h, name: name, luck: h.chance(name)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.w, err = newWorld(ctx, h, p); err != nil {
		return nil, err
	}
	if s.f, err = newFleet(ctx, h, fleetSetting{name: name, n: replicas, pipe: s.w.addr, env: env}); err != nil {
		return nil, err
	}
	if s.agent, err = prepareAgent(ctx, s.f.servers[0]); err != nil {
		return nil, err
	}
	addrs := s.f.addrs()
	b.addr = func(luck *rand.Rand) string { return addrs[luck.IntN(len(addrs))] }
	s.storm = newStorm(s.w, s.agent, b)
	s.storm.begin(ctx)
	return s, nil
}

func (s *siege) close() {
	if s.f != nil {
		s.f.close()
	}
	if s.w != nil {
		s.w.close()
	}
}

// settle waits for all runs to end and reads what there is.
func (s *siege) settle(ctx context.Context) (map[hob.RunID][]logged, []verdict, error) {
	if err := s.storm.end(ctx, fleetPatience); err != nil {
		return nil, nil, fmt.Errorf("%w; the servers' logs end with:\n%s", err, s.f.tails())
	}
	logs, err := s.f.logs(ctx)
	if err != nil {
		return nil, nil, err
	}
	found, err := find(ctx, s.f.servers[0].addr, s.agent)
	if err != nil {
		return nil, nil, err
	}
	verdicts := check(s.w.ledger, found)
	bad := zombies(logs, s.w.ledger)
	return logs, append(verdicts, judge(formerSilent, bad, "%d logs", len(logs))), nil
}

// replicasPart ends and freezes servers. What one leaves behind another takes up, when the lease is over.
func replicasPart(ctx context.Context, h *harness) ([]verdict, error) {
	s, err := besiege(ctx, h, "replicas", pace{word: 20 * time.Millisecond, tool: 40 * time.Millisecond}, habits{
		clients: 16, readers: 1, turns: 3, cut: 0.05, syncs: 0.1, cancel: 0.03, cutWithin: 4000, steps: 4, words: 80,
	})
	if err != nil {
		return nil, err
	}
	defer s.close()
	probe, err := s.prober(ctx)
	if err != nil {
		return nil, err
	}
	var hits []interruption
	kills, stops := amount(h, 6, 100), amount(h, 1, 50)
	killed, frozen := 0, 0
	for n := range kills + stops {
		v := s.f.servers[s.luck.IntN(len(s.f.servers))]
		owner, err := probe(ctx, v)
		if err != nil {
			return nil, err
		}
		if (n+1)*stops/(kills+stops) > n*stops/(kills+stops) { // spread among the kills
			hit, err := s.freeze(ctx, v, owner)
			if err != nil {
				return nil, err
			}
			hits, frozen = append(hits, hit), frozen+1
			continue
		}
		hit, err := s.kill(ctx, v, owner)
		if err != nil {
			return nil, err
		}
		hits, killed = append(hits, hit), killed+1
	}
	logs, verdicts, err := s.settle(ctx)
	if err != nil {
		return verdicts, err
	}
	times := takeovers(logs, hits)
	c := s.w.counts()
	return append(verdicts, h.within(takenUp, "run", times, takeoverTime),
		tested(need{"kills", killed, kills}, need{"freezes", frozen, stops}, need{"runs taken over", len(times), (kills + stops) * 2},
			need{"runs accepted", c.accepted, (kills + stops) * 10}, need{"ends seen", c.done, c.accepted * 8 / 10})), nil
}

// kill ends a server without a word and starts it again a while later.
func (s *siege) kill(ctx context.Context, v *server, owner string) (interruption, error) {
	pause(ctx, time.Duration(s.luck.IntN(1000))*time.Millisecond)
	v.kill()
	hit := interruption{at: time.Now()}
	var err error
	if hit.runs, err = s.f.held(ctx, owner); err != nil {
		return hit, err
	}
	pause(ctx, time.Duration(500+s.luck.IntN(2500))*time.Millisecond)
	_, err = v.serve(ctx)
	return hit, err
}

// freeze stops a server for longer than its lease and lets it go on: it finds that its runs are another's.
func (s *siege) freeze(ctx context.Context, v *server, owner string) (interruption, error) {
	if err := v.freeze(); err != nil {
		return interruption{}, err
	}
	hit := interruption{at: time.Now()}
	var err error
	if hit.runs, err = s.f.held(ctx, owner); err != nil {
		return hit, errors.Join(err, v.thaw())
	}
	pause(ctx, lease+time.Second+time.Duration(s.luck.IntN(1000))*time.Millisecond)
	return hit, v.thaw()
}

// prober makes an agent that does nothing but wait. Its runs tell the name under which a server holds its leases.
func (s *siege) prober(ctx context.Context) (func(context.Context, *server) (string, error), error) {
	api := newAPI()
	var made struct{ ID string }
	err := api.persist(ctx, request{addr: s.f.servers[0].addr, method: http.MethodPost, path: "/api/agents", body: map[string]any{
		"name": "probe", "model": "scripted/script", "settings": map[string]any{"script": "delay: 2s\ntext: done"},
	}}, &made)
	if err != nil {
		return nil, fmt.Errorf("make an agent for probes: %w", err)
	}
	return func(ctx context.Context, v *server) (owner string, err error) {
		q := request{addr: v.addr, method: http.MethodPost, path: "/api/agents/" + made.ID + "/run/stream", body: map[string]any{
			"message": "who are you?", "on_disconnect": hob.DisconnectContinue,
		}}
		streamed := api.stream(ctx, q, -1, func(e frame) bool {
			owner, err = s.f.owner(ctx, e.run)
			return false
		})
		if err := errors.Join(streamed, err); err != nil {
			return "", fmt.Errorf("ask %s for its name: %w", v.name, err)
		}
		if owner == "" {
			return "", fmt.Errorf("ask %s for its name: nobody drives the run", v.name)
		}
		return owner, nil
	}, nil
}

// restartsPart ends Postgres again and again.
func restartsPart(ctx context.Context, h *harness) ([]verdict, error) {
	s, err := besiege(ctx, h, "pgrestart", pace{word: 15 * time.Millisecond, tool: 30 * time.Millisecond}, habits{
		clients: 12, readers: 1, turns: 3, cut: 0.02, syncs: 0.1, cancel: 0.02, cutWithin: 4000, steps: 4, words: 40,
	})
	if err != nil {
		return nil, err
	}
	defer s.close()
	restarts := amount(h, 6, 100)
	var hits []interruption
	var starts []time.Duration
	for range restarts {
		// Long enough for runs to begin: a restart that interrupts none tests nothing.
		pause(ctx, time.Duration(500+s.luck.IntN(1000))*time.Millisecond)
		open, err := s.f.underWay(ctx)
		if err != nil {
			return nil, err
		}
		if err := s.f.cluster.kill(); err != nil {
			return nil, err
		}
		pause(ctx, time.Duration(s.luck.IntN(1500))*time.Millisecond)
		if err := s.f.cluster.start(ctx); err != nil {
			return nil, err
		}
		hit := interruption{at: time.Now(), runs: open}
		took, err := s.firstStart(ctx, len(hits))
		if err != nil {
			return nil, err
		}
		hits, starts = append(hits, hit), append(starts, took)
	}
	slices.Sort(starts)
	logs, verdicts, err := s.settle(ctx)
	if err != nil {
		return verdicts, err
	}
	times := first(logs, hits, func(logged) bool { return true })
	c := s.w.counts()
	return append(verdicts, h.within(acceptedAgain, "restart", starts, recoverTime), h.within(interruptedOn, "run", times, recoverTime),
		tested(need{"restarts", len(hits), restarts}, need{"runs interrupted", len(times), restarts},
			need{"runs accepted", c.accepted, restarts * 10}, need{"ends seen", c.done, c.accepted * 8 / 10})), nil
}

// firstStart asks any server for a run until one takes it, and tells how long that took.
func (s *siege) firstStart(parent context.Context, n int) (time.Duration, error) {
	began := time.Now()
	ctx, stop := context.WithTimeout(parent, fleetPatience)
	defer stop()
	a := newAsking(s.storm, fmt.Sprintf("first-%d", n))
	if !a.until(ctx) {
		return 0, fmt.Errorf("no run is accepted after a restart of Postgres; the servers' logs end with:\n%s", s.f.tails())
	}
	took := time.Since(began)
	a.follow(parent)
	return took, nil
}

// swallowPart loses answers to COMMIT, and COMMITs.
func swallowPart(ctx context.Context, h *harness) ([]verdict, error) {
	s, err := besiege(ctx, h, "swallow", pace{word: 15 * time.Millisecond, tool: 10 * time.Millisecond}, habits{
		clients: 24, readers: 1, turns: 3, cut: 0.02, syncs: 0.1, cancel: 0.02, cutWithin: 4000, steps: 4, words: 12,
	})
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.f.proxy.answers.Store(swallowChance)
	s.f.proxy.asks.Store(swallowChance)
	pause(ctx, amount(h, 12*time.Second, 5*time.Minute))
	s.f.proxy.quiet()
	logs, verdicts, err := s.settle(ctx)
	if err != nil {
		return verdicts, err
	}
	c := s.w.counts()
	want := amount(h, 8, 300)
	return append(verdicts, figure(silenceTime, "%s", spread(silences(logs), "attempt")),
		tested(need{"answers swallowed", int(s.f.proxy.swallowed.Load()), want}, need{"COMMITs lost", int(s.f.proxy.refused.Load()), want},
			need{"runs accepted", c.accepted, want * 5}, need{"ends seen", c.done, c.accepted * 8 / 10})), nil
}

// swallowChance is how many of a thousand commits are cut off on either way. More would leave the servers little to do but
// connect anew.
const swallowChance = 8

// rollingPart restarts all servers in turn, as an update does.
func rollingPart(ctx context.Context, h *harness) ([]verdict, error) {
	s, err := besiege(ctx, h, "rolling", pace{word: 20 * time.Millisecond, tool: 40 * time.Millisecond}, habits{
		clients: 12, readers: 1, turns: 3, cut: 0.02, syncs: 0.1, cancel: 0.02, cutWithin: 8000, steps: 4, words: 150,
	}, "HOB_DRAIN="+rollingDrain.String())
	if err != nil {
		return nil, err
	}
	defer s.close()
	rounds, ended := amount(h, 2, 20), 0
	var bad []string
	var stops []time.Duration
	for range rounds {
		for _, v := range s.f.servers {
			pause(ctx, time.Duration(200+s.luck.IntN(300))*time.Millisecond)
			code, took, err := v.term()
			if err != nil {
				return nil, err
			}
			stops = append(stops, took)
			if code != 0 {
				bad = append(bad, fmt.Sprintf("%s ended with code %d, %s after SIGTERM", v.name, code, took.Round(time.Millisecond)))
			}
			if _, err := v.serve(ctx); err != nil {
				return nil, err
			}
			ended++
		}
	}
	logs, verdicts, err := s.settle(ctx)
	if err != nil {
		return verdicts, err
	}
	times := silences(logs)
	c := s.w.counts()
	return append(verdicts, judge(endsWell, bad, "%d stops, drain time %s", ended, rollingDrain),
		h.within(endsInTime, "stop", sorted(stops), rollingDrain+stopGrace),
		h.within(handedGoOn, "run", times, handoverTime),
		tested(need{"restarts", ended, rounds * replicas}, need{"runs handed over", len(times), rounds * replicas},
			need{"runs accepted", c.accepted, rounds * replicas * 5}, need{"ends seen", c.done, c.accepted * 8 / 10})), nil
}

// rollingDrain is how long a server lets its runs finish; some take longer.
const rollingDrain = time.Second
