//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"hob"
)

// habits are how the clients of a storm behave.
type habits struct {
	clients      int
	readers      int                                      // further readers of each run, at most
	turns        int                                      // of a session, at most, before the next one is begun
	messages     int                                      // of each client; 0 = until the storm is told to stop
	cut, syncs   float64                                  // share of streams that are cut, and of runs that are waited for in one request
	cancel       float64                                  // share of runs that are cancelled
	cutWithin    int                                      // bytes within which a stream is cut
	steps, words int                                      // of a plan, at most
	addr         func(luck *rand.Rand) string             // where the next request goes
	plan         func(luck *rand.Rand, steps, w int) plan // nil = anyPlan
}

// storm is many clients at once, each of which starts runs, follows them to their end through every break, and writes
// into the ledger what it was told.
type storm struct {
	habits
	w     *world
	api   *hobAPI
	agent hob.AgentID
	stop  chan struct{} // closed: begin nothing new
	group sync.WaitGroup

	mu      sync.Mutex
	begun   int             // readings of streams
	cuts    int             // of these, cut by the client
	resumes []time.Duration // from asking to go on to the first event that was already there
}

// newStorm prepares clients of an agent that has all tools.
func newStorm(w *world, agent hob.AgentID, h habits) *storm {
	if h.plan == nil {
		h.plan = anyPlan
	}
	return &storm{habits: h, w: w, api: newAPI(), agent: agent, stop: make(chan struct{})}
}

// one is for storms on a single server.
func one(s *server) func(*rand.Rand) string { return func(*rand.Rand) string { return s.addr } }

// begin lets the clients go. They end when stop is closed and their runs have ended, or with the context.
func (s *storm) begin(ctx context.Context) {
	for i := range s.clients {
		s.group.Go(func() { s.client(ctx, i) })
	}
}

// end begins nothing new and waits for all runs to end, at most so long.
func (s *storm) end(ctx context.Context, patience time.Duration) error {
	close(s.stop)
	return s.wait(ctx, patience)
}

// wait waits for all clients to end.
func (s *storm) wait(ctx context.Context, patience time.Duration) error {
	defer s.api.close()
	gone := make(chan struct{})
	go func() { s.group.Wait(); close(gone) }()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		return fmt.Errorf("clients still wait for the end of %d runs after %s", s.w.open(), patience)
	}
}

func (s *storm) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// client has one session after the other.
func (s *storm) client(ctx context.Context, number int) {
	luck := s.w.h.chance("client" + strconv.Itoa(number))
	for sent, session := 0, 0; ; session++ {
		id := hob.SessionID(fmt.Sprintf("chaos-%d-%d", number, session))
		for turn := range 1 + luck.IntN(s.turns) {
			if s.stopped() || ctx.Err() != nil || s.messages > 0 && sent == s.messages {
				return
			}
			sent++
			mark := fmt.Sprintf("c%d-%d-%d", number, session, turn)
			p := s.plan(luck, s.steps, s.words)
			m := &message{
				mark: mark, text: messageText(mark, p), key: "key-" + mark, session: id, plan: p, sync: luck.Float64() < s.syncs,
			}
			s.w.add(m)
			s.converse(ctx, luck, m)
		}
	}
}

// converse sees one message through: it is sent until Hob names its run, and the run is followed to its end.
func (s *storm) converse(ctx context.Context, luck *rand.Rand, m *message) {
	r := &reading{s: s, m: m, luck: luck}
	for len(m.runs) == 0 {
		if ctx.Err() != nil || !s.ask(ctx, r) {
			return
		}
	}
	var others sync.WaitGroup
	for i := range luck.IntN(s.readers + 1) {
		o := &reading{s: s, m: m, run: m.runs[0], luck: s.w.h.chance(fmt.Sprintf("reader %d of %s", i, m.mark))}
		others.Go(func() { o.follow(ctx) })
	}
	if luck.Float64() < s.cancel {
		wait := time.Duration(luck.IntN(300)) * time.Millisecond
		others.Go(func() { pause(ctx, wait); s.cancelRun(ctx, m) })
	}
	r.run = m.runs[0]
	r.follow(ctx)
	others.Wait()
	if r.over {
		s.w.finished(m)
	}
}

// body is the request for a message's run; it is the same on every try.
func (s *storm) body(m *message) map[string]any {
	b := map[string]any{"message": m.text, "session_id": m.session, "on_disconnect": hob.DisconnectContinue}
	if m.sync {
		b["tools"] = true
	}
	return b
}

// ask sends a message once more, with its key. false means that there is no use in going on.
func (s *storm) ask(ctx context.Context, r *reading) bool {
	m := r.m
	q := request{
		addr: s.addr(r.luck), method: http.MethodPost, path: "/api/agents/" + string(s.agent) + "/run",
		header: map[string]string{"Idempotency-Key": m.key}, body: s.body(m),
	}
	s.w.sent(m)
	var err error
	if m.sync {
		var answer hob.RunResult
		if err = s.api.call(ctx, q, &answer); err == nil {
			s.w.ack(m, answer.RunID)
			return true
		}
	} else {
		q.path += "/stream"
		r.last, r.run = 0, ""
		err = r.read(ctx, q)
	}
	if len(m.runs) > 0 {
		return true
	}
	var no refused
	if errors.As(err, &no) {
		if !no.later() {
			s.w.fault(acceptedKept, "message %s was refused: %v", m.mark, no)
			return false
		}
		s.w.refusal(m)
	}
	pause(ctx, again+time.Duration(r.luck.IntN(30))*time.Millisecond)
	return true
}

// cancelRun asks for the end of a run, until the request is taken.
func (s *storm) cancelRun(ctx context.Context, m *message) {
	s.w.wantsCancel(m)
	q := request{addr: s.addr(s.w.h.chance("cancel " + m.mark)), method: http.MethodPost, path: "/api/agents/runs/" + string(m.runs[0]) + "/cancel"}
	if err := s.api.persist(ctx, q, nil); err != nil && ctx.Err() == nil {
		s.w.fault(acceptedKept, "run %s of message %s cannot be cancelled: %v", m.runs[0], m.mark, err)
	}
}

// reading is one reader of a run, through all breaks of its connection.
type reading struct {
	s    *storm
	m    *message
	luck *rand.Rand
	run  hob.RunID
	last int64 // number of the last event that came whole
	over bool  // it was complete
	gone int   // answers in a row that there is no such run
}

// mostGone is how often a reader is told that its run does not exist before it believes it.
const mostGone = 5

// follow reads to the end of the run.
func (r *reading) follow(ctx context.Context) {
	for !r.over && ctx.Err() == nil {
		before := r.last
		known := r.s.w.highest(r.run) > before
		asked := time.Now()
		first := true
		q := request{
			addr: r.s.addr(r.luck), method: http.MethodGet, path: "/api/agents/runs/" + string(r.run) + "/events",
			header: map[string]string{"Last-Event-ID": strconv.FormatInt(before, 10)},
		}
		err := r.readEach(ctx, q, func() {
			if first && known && before > 0 {
				r.s.resumed(time.Since(asked))
			}
			first = false
		})
		var no refused
		switch {
		case errors.Is(err, errCut):
			continue
		case errors.As(err, &no) && !no.later():
			if r.gone++; no.status != http.StatusNotFound || r.gone == mostGone {
				r.s.w.fault(acceptedKept, "run %s of message %s cannot be followed behind event %d: %v", r.run, r.m.mark, before, no)
				return
			}
		case r.last > before:
			r.gone = 0
		}
		if !r.over {
			pause(ctx, again)
		}
	}
}

// read is one connection.
func (r *reading) read(ctx context.Context, q request) error { return r.readEach(ctx, q, func() {}) }

// readEach is one connection; note is called for each event.
func (r *reading) readEach(ctx context.Context, q request, note func()) error {
	cut := -1
	if r.luck.Float64() < r.s.cut {
		cut = 1 + r.luck.IntN(r.s.cutWithin)
	}
	err := r.s.api.stream(ctx, q, cut, func(f frame) bool {
		note()
		if r.run == "" { // the first event of a run's own stream is its acknowledgement
			r.run = f.run
			r.s.w.ack(r.m, f.run)
		}
		if f.run != r.run {
			r.s.w.fault(noGaps, "a reader of run %s got an event of run %s", r.run, f.run)
		}
		if f.seq != r.last+1 {
			r.s.w.fault(noGaps, "a reader of run %s got event %d behind %d", r.run, f.seq, r.last)
		}
		r.last = f.seq
		r.s.w.event(f.run, f.seq, f.kind, f.data)
		r.over = f.kind == hob.EventComplete
		return !r.over
	})
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.begun++
	if errors.Is(err, errCut) {
		r.s.cuts++
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// asking is one more message beside those of the clients, which is sent until it is accepted.
type asking struct {
	s *storm
	r *reading
}

// newAsking prepares a message in a session of its own.
func newAsking(s *storm, mark string) *asking {
	p := plan{words: 1}
	m := &message{mark: mark, text: messageText(mark, p), key: "key-" + mark, session: hob.SessionID("chaos-" + mark), plan: p}
	s.w.add(m)
	return &asking{s, &reading{s: s, m: m, luck: s.w.h.chance(mark)}}
}

// until sends the message until it is accepted or the context ends; it says whether it is.
func (a *asking) until(ctx context.Context) bool {
	for len(a.r.m.runs) == 0 && ctx.Err() == nil && a.s.ask(ctx, a.r) {
	}
	return len(a.r.m.runs) > 0
}

// follow sees the accepted message through, beside the clients.
func (a *asking) follow(ctx context.Context) {
	a.s.group.Go(func() {
		a.r.run = a.r.m.runs[0]
		if a.r.follow(ctx); a.r.over {
			a.s.w.finished(a.r.m)
		}
	})
}

func (s *storm) resumed(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumes = append(s.resumes, d)
}

// connections tells how many streams were read, how many of them the clients cut, and how long going on took, sorted.
func (s *storm) connections() (begun, cuts int, resumes []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resumes = slices.Clone(s.resumes)
	slices.Sort(resumes)
	return s.begun, s.cuts, resumes
}
