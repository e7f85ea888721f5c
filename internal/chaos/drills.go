//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
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

// settleWhole is settle for clients that have a number of messages to send first.
func (sc *scene) settleWhole(ctx context.Context) ([]verdict, error) {
	if err := sc.storm.wait(ctx, drillPatience); err != nil {
		sc.w.fault(runsEnd, "%v", err)
	}
	return sc.settle(ctx)
}

const givenUp = "a run that ends its server is given up"

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
	return []verdict{judge(givenUp, bad, "behind %d deaths", deaths), tested(need{"deaths", deaths, 3})}, nil
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

// handedOver stops the server that drives a run.
func handedOver(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.pair(ctx, pace{word: 10 * time.Millisecond}, habits{}, "HOB_DRAIN=200ms")
	if err != nil {
		return nil, err
	}
	defer sc.close()
	for n := range 3 {
		sc.say(ctx, fmt.Sprintf("handover-%d", n), plan{words: 150})
	}
	if !sc.accepted(ctx, 3) {
		return nil, fmt.Errorf("%w: no run is accepted", errStuck)
	}
	sc.talksTo.Store(1)
	if _, _, err := sc.server(0).term(); err != nil {
		return nil, err
	}
	ended, taken := time.Now(), 0
	var logs map[hob.RunID][]logged
	for taken < 3 && time.Since(ended) < handoverTime && err == nil {
		pause(ctx, again)
		logs, err = sc.f.logs(ctx)
		taken = len(silences(logs))
	}
	if err != nil {
		return nil, err
	}
	var bad []string
	if taken < 3 {
		bad = append(bad, fmt.Sprintf("%d of 3 runs go on within %s", taken, handoverTime))
	}
	v := judge(handedGoOn, bad, "%d runs, after %s", taken, percentile(silences(logs), 100).Round(time.Millisecond))
	if v.broken() { // it would take a lease until they end
		return []verdict{v}, nil
	}
	rest, err := sc.settle(ctx)
	return append(rest, v, tested(need{"accepted", sc.w.counts().accepted, 3})), err
}

const cancelHeld = "a cancel reaches the server that drives the run"

// cancelTime is how long a run may go on that was cancelled through another server.
const cancelTime = 3 * time.Second

// cancelledElsewhere cancels a run through the server that does not drive it.
func cancelledElsewhere(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.pair(ctx, pace{word: 20 * time.Millisecond}, habits{})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	m := sc.say(ctx, "cancel", plan{words: 400})
	if !sc.accepted(ctx, 1) {
		return nil, fmt.Errorf("%w: no run is accepted", errStuck)
	}
	sc.talksTo.Store(1)
	sc.storm.cancelRun(ctx, m)
	asked := time.Now()
	var r hob.RunRecord
	for time.Since(asked) < cancelTime && !r.Status.Final() && err == nil {
		pause(ctx, again)
		r, err = sc.record(ctx, m, 1)
	}
	if err != nil {
		return nil, err
	}
	var bad []string
	if r.Status != hob.Cancelled {
		bad = append(bad, fmt.Sprintf("%s after the cancel the run is %s", time.Since(asked).Round(time.Millisecond), r.Status))
	}
	held := judge(cancelHeld, bad, "after %s", time.Since(asked).Round(time.Millisecond))
	if held.broken() { // it would take seconds until the run ends
		return []verdict{held}, nil
	}
	v, err := sc.settle(ctx)
	return append(v, held), err
}

// lostAnswers swallows answers to COMMIT, one at a time.
func lostAnswers(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.pair(ctx, pace{word: 10 * time.Millisecond}, habits{})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	for n := range 4 {
		sc.say(ctx, fmt.Sprintf("lost-%d", n), plan{words: 150})
	}
	if !sc.accepted(ctx, 4) {
		return nil, fmt.Errorf("%w: no run is accepted", errStuck)
	}
	for range 6 {
		sc.f.proxy.next.Add(1)
		pause(ctx, 100*time.Millisecond)
	}
	sc.f.proxy.quiet()
	v, err := sc.settle(ctx)
	return append(v, tested(need{"answers swallowed", int(sc.f.proxy.swallowed.Load()), 3})), err
}

const leftAlone = "no run is taken from a server that lives"

// peaceful does no harm.
func peaceful(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.pair(ctx, pace{word: 20 * time.Millisecond}, habits{
		clients: 3, turns: 1, cutWithin: 1, plan: func(*rand.Rand, int, int) plan { return plan{words: 60} },
	})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	sc.storm.begin(ctx)
	pause(ctx, 2*time.Second)
	v, err := sc.settle(ctx)
	if err != nil {
		return v, err
	}
	logs, err := sc.f.logs(ctx)
	var bad []string
	for id, log := range logs {
		if slices.ContainsFunc(log, func(e logged) bool { return e.Type == hob.EventAttempt }) {
			bad = append(bad, fmt.Sprintf("run %s was taken up again", id))
		}
	}
	return append(v, judge(leftAlone, bad, "%d runs", len(logs)), tested(need{"accepted", sc.w.counts().accepted, 3})), err
}

// The calls of the frozen server's run: as many as a step may have, of which so many are under way at once.
const (
	frozenCalls = 16
	frozenAtOne = 8
)

const formerSilent = "a server that lost a run calls nothing for it"

// frozenInCalls freezes a server while the first calls of a step are under way. Another one carries all of them out. The
// first, let go on, has answers to the first calls and must neither write them down nor make the others.
func frozenInCalls(ctx context.Context, t *trial) ([]verdict, error) {
	sc, err := t.pair(ctx, pace{word: time.Millisecond}, habits{})
	if err != nil {
		return nil, err
	}
	defer sc.close()
	const mark = "frozen"
	answer, last := make(chan struct{}), make(chan struct{})
	sc.w.onTool = func(_, _ string, n int) {
		if n <= frozenAtOne {
			<-answer
		}
	}
	var asked atomic.Int64
	sc.w.onModel = func(string, int) { // 1: the first server, for the calls; 2: the second, for the answer
		if asked.Add(1) == 2 {
			<-last
		}
	}
	m := sc.say(ctx, mark, plan{steps: [][]string{slices.Repeat([]string{toolRead}, frozenCalls)}, words: 5})
	if !until(ctx, func() bool { return sc.w.toolRequests(mark) == frozenAtOne }) {
		close(answer)
		close(last)
		return nil, fmt.Errorf("%w: %d calls come, want %d", errStuck, sc.w.toolRequests(mark), frozenAtOne)
	}
	if err := sc.server(0).freeze(); err != nil {
		return nil, err
	}
	sc.talksTo.Store(1)
	if run, ok := sc.runOf(m); ok { // a reader that sees what the other server writes
		r := &reading{s: sc.storm, m: m, run: run, luck: sc.h.chance("other reader")}
		sc.storm.group.Go(func() { r.follow(ctx) })
	}
	pause(ctx, lease) // nobody may take the run before
	all := until(ctx, func() bool { return asked.Load() == 2 })
	before := sc.w.toolRequests(mark)
	close(answer)
	if err := sc.server(0).thaw(); err != nil {
		return nil, err
	}
	pause(ctx, time.Second)
	var bad []string
	if n := sc.w.toolRequests(mark) - before; n > 0 {
		bad = append(bad, fmt.Sprintf("%d calls were made by a server that had lost the run", n))
	}
	close(last)
	v, err := sc.settle(ctx)
	if err != nil {
		return v, err
	}
	logs, err := sc.f.logs(ctx)
	bad = append(bad, zombies(logs, sc.w.ledger)...)
	taken := 0
	if all {
		taken = 1
	}
	return append(v, judge(formerSilent, bad, "%d calls by both", before), tested(need{"runs taken over", taken, 1},
		need{"calls", before, frozenCalls + frozenAtOne})), err
}
