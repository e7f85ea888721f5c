//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"hob"
)

// drill is a small part that hits one weakness on purpose, in seconds: what shows a planted fault, and shows nothing
// without one.
type drill struct {
	name  string
	about string
	run   func(ctx context.Context, t *trial) ([]verdict, error)
}

// trial is one run of a drill. Its harness has a folder and a program of its own.
type trial struct {
	h       *harness
	name    string   // unlike any other trial's
	cluster *cluster // shared by all trials
}

// drillPatience is how long a drill waits for something that takes a fraction of a second, such as the end of its runs
// behind the last harm.
const drillPatience = 6 * time.Second

// drills by name.
func drills() map[string]drill {
	list := []drill{
		{"call", "the server is killed while a tool is being called", killedInCalls},
		{"accept", "the server is killed as soon as a run is accepted", killedAtAcceptance},
		{"resume", "streams are cut and go on", cutStreams},
		{"poison", "a run ends its server each time it is driven", poisoned},
		{"twice", "a run is asked for again with the same key", askedTwice},
		{"decide", "people decide at once, while runs are about to rest", decidedAtOnce},
		{"sync", "system calls are watched", watchedCalls},
		{"handover", "one of two servers stops in the midst of a run", handedOver},
		{"cancel", "a run is cancelled through the other server", cancelledElsewhere},
		{"commit", "answers to COMMIT are lost", lostAnswers},
		{"peace", "two servers, and nothing happens", peaceful},
		{"freeze", "one of two servers is frozen for longer than its lease, and goes on", frozenInCalls},
	}
	m := map[string]drill{}
	for _, d := range list {
		m[d.name] = d
	}
	return m
}

// ambush kills a server in the midst of a request and starts it again.
type ambush struct {
	s    *server
	want atomic.Pointer[string] // the tool whose next request kills; nil = none
	hit  chan struct{}
}

// spring kills the server if this is the request that was waited for.
func (a *ambush) spring(tool string) {
	want := a.want.Load()
	if want != nil && *want == tool && a.want.CompareAndSwap(want, nil) {
		a.s.kill()
		a.hit <- struct{}{}
	}
}

// lie waits for the next request of a tool, kills the server and starts it again.
func (a *ambush) lie(ctx context.Context, tool string) error {
	a.want.Store(&tool)
	select {
	case <-a.hit:
	case <-time.After(drillPatience / 2):
		a.want.Store(nil)
		return fmt.Errorf("%w: the tool %s is not called", errStuck, tool)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := a.s.serve(ctx)
	return err
}

// errStuck says that the program under test does nothing any more; what the checks find tells why.
var errStuck = errors.New("nothing goes on")

// killedInCalls kills the server in the moment in which a tool gets a call, by turns one that may be sent again and one
// that may not.
func killedInCalls(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.alone(ctx, pace{word: time.Millisecond, tool: 20 * time.Millisecond}, habits{
		clients: 3, turns: 2, cutWithin: 1, words: 2,
		plan: func(*rand.Rand, int, int) plan {
			return plan{steps: [][]string{{toolOnce}, {toolKeyed}, {toolOnce, toolRead}}, words: 2}
		},
	})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	a := &ambush{s: sc.server(0), hit: make(chan struct{}, 1)}
	sc.w.onTool = func(tool, _ string, _ int) { a.spring(tool) }
	sc.storm.begin(ctx)
	kills := 0
	for n := range 5 {
		err := a.lie(ctx, []string{toolOnce, toolKeyed}[n%2])
		if errors.Is(err, errStuck) {
			break
		}
		if err != nil {
			return nil, err
		}
		kills++
		pause(ctx, 300*time.Millisecond) // the other runs get on, so that none is given up
	}
	v, err := sc.settle(ctx)
	return append(v, tested(need{"kills", kills, 5}, need{"accepted", sc.w.counts().accepted, 5})), err
}

// killedAtAcceptance kills the server in the moment in which a client hears that its run is accepted.
func killedAtAcceptance(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.alone(ctx, pace{word: time.Millisecond}, habits{
		clients: 4, turns: 2, cutWithin: 1, plan: func(*rand.Rand, int, int) plan { return plan{words: 5} },
	})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	sc.storm.begin(ctx)
	kills := 0
	for range 3 {
		if !sc.accepted(ctx, sc.w.counts().accepted+1) {
			break
		}
		sc.server(0).kill()
		kills++
		if _, err := sc.server(0).serve(ctx); err != nil {
			return nil, err
		}
		pause(ctx, 200*time.Millisecond)
	}
	v, err := sc.settle(ctx)
	return append(v, tested(need{"kills", kills, 3}, need{"accepted", sc.w.counts().accepted, 4})), err
}

// cutStreams cuts nearly every stream, and has the clients go on behind what they have.
func cutStreams(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.alone(ctx, pace{word: 2 * time.Millisecond}, habits{
		clients: 4, turns: 2, messages: 4, cut: 0.8, cutWithin: 2000, plan: func(*rand.Rand, int, int) plan { return plan{words: 60} },
	})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	sc.storm.begin(ctx)
	v, err := sc.settleWhole(ctx)
	_, cuts, _ := sc.storm.connections()
	return append(v, tested(need{"cuts", cuts, 8}, need{"accepted", sc.w.counts().accepted, 8})), err
}

// mostDeaths is how often a run may end its server: by its start and by the five attempts behind it.
const mostDeaths = 6

// poisoned kills the server each time the model is asked for one message.
func poisoned(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.alone(ctx, pace{word: time.Millisecond}, habits{})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	s, hit := sc.server(0), make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sc.w.onModel = func(string, int) {
		s.kill()
		select {
		case hit <- struct{}{}:
		case <-ctx.Done():
		}
	}
	m := sc.say(ctx, "poison", plan{words: 1})
	deaths := 0
	for deaths <= mostDeaths {
		select {
		case <-hit:
			deaths++
			if err := s.start(); err != nil { // it may die before it is ready
				return nil, err
			}
			continue
		case <-time.After(2 * time.Second):
		}
		break
	}
	var bad []string
	if deaths > mostDeaths {
		bad = append(bad, fmt.Sprintf("the run has ended its server %d times and is still driven", deaths))
	} else if err := sc.storm.end(ctx, drillPatience); err != nil {
		bad = append(bad, err.Error())
	} else if code, err := sc.code(ctx, m); err != nil || code != hob.CodeAttempts {
		bad = append(bad, fmt.Sprintf("the run ended with the code %q (%v)", code, err))
	}
	stop()
	sc.storm.group.Wait()
	return []verdict{judge(givenUp, bad, "after %d deaths", deaths), tested(need{"deaths", deaths, 3})}, nil
}

// askedTwice sends messages again with their keys, at once and behind a kill.
func askedTwice(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.alone(ctx, pace{word: time.Millisecond}, habits{})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	var all []*message
	for n := range 4 {
		all = append(all, sc.say(ctx, fmt.Sprintf("twice-%d", n), plan{words: 2}))
	}
	sc.storm.group.Wait()
	for round := range 2 {
		for _, m := range all {
			sc.storm.ask(ctx, &reading{s: sc.storm, m: m, luck: sc.h.chance(m.mark)})
		}
		if round == 0 {
			sc.server(0).kill()
			if _, err := sc.server(0).serve(ctx); err != nil {
				return nil, err
			}
		}
	}
	v, err := sc.settle(ctx)
	return append(v, tested(need{"requests", sc.w.counts().requests, 3 * len(all)})), err
}

// watchedCalls is the part ack; where it cannot run, that is an error.
func watchedCalls(ctx context.Context, t *trial) ([]verdict, error) {
	if err := canTrace(ctx); err != nil {
		return nil, err
	}
	return acknowledged(ctx, t.h)
}

// decidedAtOnce has people decide as soon as they are asked, which is before the runs rest: another call of the step is under
// way. Some are asked about what expires soon, and decide behind its time.
func decidedAtOnce(ctx context.Context, t *trial) ([]verdict, error) {
	f, w, err := aloneWithPeople(ctx, t.h, t.name, 200*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer w.close()
	defer f.leave()
	c, err := gather(ctx, t.h, f, w, crowdPlan{waiting: 16, hasty: 16, people: 4})
	if err != nil {
		return nil, err
	}
	c.open(ctx)
	c.begin(ctx, 0, 1)
	if err := c.storm.wait(ctx, drillPatience+2*shortWait); err != nil {
		w.fault(runsEnd, "%v", err)
	}
	c.close()
	list, err := find(ctx, f.servers[0].addr, c.storm.agent)
	if err != nil {
		return nil, err
	}
	v, n, err := c.check(ctx, list)
	return append(v, tested(need{"approved", n.approved, 8}, need{"denied", n.denied, 1}, need{"expired", n.expired, 1}, need{"too late", n.late, 16})), err
}
