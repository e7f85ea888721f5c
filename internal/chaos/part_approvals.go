//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"hob"
)

// crowdPlan is how much a part with people does.
type crowdPlan struct {
	waiting int // messages whose calls wait at once, before anybody decides
	hasty   int // messages whose calls expire soon, while people decide
	people  int
	kills   int           // of each moment
	think   time.Duration // at most, before people decide about the next question
	patient time.Duration // for all runs to end behind the last kill
}

// The times that approvals wait: of the tool once for as long as it takes, of the tool keyed for a moment.
const (
	longWait  = time.Hour
	shortWait = 1200 * time.Millisecond
)

// approvalsPart has hundreds of calls wait for people at once, who all decide at the same time, while the server is killed
// between any two states of an approval.
func approvalsPart(ctx context.Context, h *harness) ([]verdict, error) {
	p := amount(h, crowdPlan{waiting: 200, hasty: 40, people: 8, kills: 2, think: 70 * time.Millisecond, patient: 30 * time.Second},
		crowdPlan{waiting: 1000, hasty: 300, people: 8, kills: 10, think: 40 * time.Millisecond, patient: 2 * time.Minute})
	f, w, err := aloneWithPeople(ctx, h, "approvals", 20*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer w.close()
	defer f.leave()
	return crowded(ctx, h, f, w, p)
}

// aloneWithPeople starts a stage and one server on SQLite. On an error nothing is left.
func aloneWithPeople(ctx context.Context, h *harness, name string, tool time.Duration) (*fleet, *stage, error) {
	w, err := newStage(ctx, h, pace{word: time.Millisecond, tool: tool})
	if err != nil {
		return nil, nil, err
	}
	f := &fleet{h: h}
	s, err := newServer(ctx, h, setting{name: name, pipe: w.front})
	if err == nil {
		f.servers = []*server{s}
		_, err = s.serve(ctx)
	}
	if err != nil {
		f.leave()
		w.close()
		return nil, nil, err
	}
	return f, w, nil
}

// elsewherePart is the same with three servers on one Postgres: people decide at any of them, whoever drives the run.
func elsewherePart(ctx context.Context, h *harness) ([]verdict, error) {
	p := amount(h, crowdPlan{waiting: 100, hasty: 30, people: 8, kills: 1, patient: fleetPatience},
		crowdPlan{waiting: 500, hasty: 200, people: 8, kills: 8, think: 80 * time.Millisecond, patient: fleetPatience})
	w, err := newStage(ctx, h, pace{word: time.Millisecond, tool: 20 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer w.close()
	f, err := newFleet(ctx, h, fleetSetting{name: "elsewhere", n: replicas, pipe: w.front})
	if err != nil {
		return nil, err
	}
	defer f.close()
	return crowded(ctx, h, f, w, p)
}

// crowded plays a part with people on servers that are up.
func crowded(ctx context.Context, h *harness, f *fleet, w *stage, p crowdPlan) ([]verdict, error) {
	c, err := gather(ctx, h, f, w, p)
	if err != nil {
		return nil, err
	}
	for n := range p.kills {
		c.begin(ctx, n, p.kills)
		if err := c.harm(ctx, []moment{whenAsked}, 1); err != nil {
			return nil, err
		}
	}
	atOnce, err := c.allWait(ctx)
	if err != nil {
		return nil, err
	}
	c.open(ctx)
	if err := c.harm(ctx, []moment{whenSending, whenDecided, whenResolved, whenCalled, whenAnswered}, p.kills); err != nil {
		return nil, err
	}
	if err := c.storm.wait(ctx, p.patient); err != nil {
		w.fault(runsEnd, "%v; the servers' logs end with:\n%s", err, f.tails())
	}
	c.close()
	list, err := find(ctx, f.servers[0].addr, c.storm.agent)
	if err != nil {
		return nil, err
	}
	v, n, err := c.check(ctx, list)
	if err != nil {
		return nil, err
	}
	return append(v, tested(need{"waiting at once", atOnce, p.waiting}, need{"kills", c.kills, 6 * p.kills * 3 / 4},
		need{"approved", n.approved, p.waiting / 4}, need{"denied", n.denied, p.waiting / 10}, need{"expired", n.expired, p.hasty / 8},
		need{"cancelled", n.cancelled, p.waiting / 100}, need{"too late", n.late, p.waiting}, need{"answers lost", n.lost, p.kills})), ctx.Err()
}

// patientPlan draws what a message calls whose approvals wait long: all of it in its first steps, so that it is asked for
// at once. A read is nobody's to approve; the run rests once it is done.
func patientPlan(luck *rand.Rand) plan {
	return []plan{
		{steps: [][]string{{toolOnce}}, words: 1},
		{steps: [][]string{{toolOnce}}, words: 1},
		{steps: [][]string{{toolOnce, toolOnce}}, words: 1},
		{steps: [][]string{{toolOnce, toolRead}}, words: 1},
		{steps: [][]string{{toolOnce}, {toolOnce}}, words: 1},
	}[luck.IntN(5)]
}

func hastyPlan(luck *rand.Rand) plan {
	return []plan{{steps: [][]string{{toolKeyed}}, words: 1}, {steps: [][]string{{toolKeyed, toolRead}}, words: 1}}[luck.IntN(2)]
}

// moment is a state of an approval in which a server is killed.
type moment string

// The moments, in the order in which an approval comes to them.
const (
	whenAsked    moment = "asked"    // a reader hears that it is asked for: the run is about to rest
	whenSending  moment = "sending"  // somebody is about to decide: it rests
	whenDecided  moment = "decided"  // somebody hears that it is decided: the run is about to be taken up
	whenResolved moment = "resolved" // a reader hears what became of it: the intent is about to be written
	whenCalled   moment = "called"   // the tool is called: there is no result
	whenAnswered moment = "answered" // a reader hears the result
)

// calm is how long a server is left alone behind a kill, so that runs get on and none is given up.
const calm = 300 * time.Millisecond

// harm kills a server in each of the moments, so often, and starts it again.
func (c *crowd) harm(ctx context.Context, moments []moment, times int) error {
	luck := c.h.chance(fmt.Sprintf("harm %d", c.kills))
	for n := range len(moments) * times {
		hit := c.arm(moments[n%len(moments)], luck.IntN(6))
		select {
		case v := <-hit:
			c.kills++
			pause(ctx, time.Duration(luck.IntN(50))*time.Millisecond)
			if _, err := v.serve(ctx); err != nil {
				return err
			}
			pause(ctx, calm)
		case <-time.After(drillPatience):
			c.disarm()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// arm has a server killed in a moment, behind so many of its kind that are let pass.
func (c *crowd) arm(at moment, pass int) <-chan *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trap, c.pass, c.hit = at, pass, make(chan *server, 1)
	return c.hit
}

func (c *crowd) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trap = ""
}

// spring is called in each moment.
func (c *crowd) spring(at moment) {
	c.mu.Lock()
	if c.trap != at {
		c.mu.Unlock()
		return
	}
	if c.pass--; c.pass >= 0 {
		c.mu.Unlock()
		return
	}
	c.trap = ""
	v, hit := c.f.servers[c.luck.IntN(len(c.f.servers))], c.hit
	c.mu.Unlock()
	v.kill()
	hit <- v
}

// heard is called for each event that a reader of a run gets first.
func (c *crowd) heard(kind hob.EventType, run hob.RunID, data []byte) {
	switch kind {
	case hob.EventApprovalRequested:
		c.note(run, data)
		c.spring(whenAsked)
	case hob.EventApprovalResolved:
		c.spring(whenResolved)
	case hob.EventToolResult:
		c.spring(whenAnswered)
	default:
	}
}

// verified says what hob audit verify finds wrong, once all is quiet.
func (c *crowd) verified(ctx context.Context) (said string, bad []string) {
	s := c.f.servers[0]
	out, code, err := s.command(ctx, "audit", "verify")
	if out = strings.TrimSpace(out); err != nil || code != 0 {
		return out, []string{fmt.Sprintf("hob audit verify ends with the code %d (%v):\n%s", code, err, out)}
	}
	first, _, _ := strings.Cut(out, "\n")
	return first, nil
}

// messages makes so many messages with plans.
func (c *crowd) messages(name string, n int, draw func(*rand.Rand) plan) []*message {
	list := make([]*message, n)
	for i := range list {
		mark := fmt.Sprintf("%s%d", name, i)
		p := draw(c.h.chance(mark))
		list[i] = &message{mark: mark, text: messageText(mark, p), key: "key-" + mark, session: hob.SessionID("chaos-" + mark), plan: p}
		c.w.add(list[i])
	}
	return list
}

// guardedCalls counts the calls in the first step of messages that wait for people.
func guardedCalls(list []*message) int {
	n := 0
	for _, m := range list {
		n += len(m.plan.steps[0])
		n -= len(slices.DeleteFunc(slices.Clone(m.plan.steps[0]), func(t string) bool { return t != toolRead }))
	}
	return n
}
