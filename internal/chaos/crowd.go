//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"hob"
)

// crowd is many runs that wait for people, and the people.
type crowd struct {
	h      *harness
	f      *fleet
	w      *stage
	plan   crowdPlan
	luck   *rand.Rand
	storm  *storm
	people []person
	kills  int

	group   sync.WaitGroup // of the people
	opening sync.WaitGroup // of what is still to come onto the agenda

	mu        sync.Mutex
	trap      moment // "" = none
	pass      int
	hit       chan *server
	first     []*message // those that wait at once
	asked     map[string]question
	early     []question // asked before people began
	agenda    []question
	reached   int           // how far the quickest of the people is
	more      chan struct{} // closed and made anew when the agenda grows or ends
	opened    bool
	over      bool
	decisions map[string][]decision // by approval
}

// person is one who decides, with a key of their own.
type person struct{ name, key string }

// question is an approval as a reader of its run heard of it.
type question struct {
	id   string
	run  hob.RunID
	call hob.CallID
	tool string
	ends time.Time // when it expires, about
}

// decision is what a person wanted, and what they were told.
type decision struct {
	person  int
	approve bool
	lost    int    // answers that did not come, or that were no answer
	status  int    // of the answer
	code    string // of an error
	told    string // the approval's status, as the answer has it
}

// gather makes the agent, its hooks and the keys.
func gather(ctx context.Context, h *harness, f *fleet, w *stage, p crowdPlan) (*crowd, error) {
	agent, err := prepareAgent(ctx, f.servers[0])
	if err != nil {
		return nil, err
	}
	c := &crowd{
		h: h, f: f, w: w, plan: p, luck: h.chance("crowd"), asked: map[string]question{}, more: make(chan struct{}), decisions: map[string][]decision{},
	}
	addrs := f.addrs()
	c.storm = newStorm(w.world, agent, habits{cutWithin: 1, addr: func(luck *rand.Rand) string { return addrs[luck.IntN(len(addrs))] }})
	w.first = c.heard
	w.onTool = func(tool, _ string, _ int) {
		if tool != toolRead {
			c.spring(whenCalled)
		}
	}
	for tool, wait := range map[string]time.Duration{toolOnce: longWait, toolKeyed: shortWait} {
		q := request{addr: addrs[0], method: http.MethodPost, path: "/api/agents/" + string(agent) + "/hooks", body: map[string]any{
			"event": hob.PreToolUse, "type": hob.ApprovalHook, "matcher": tool, "config": map[string]any{"timeout": wait.Seconds()},
		}}
		if err := c.storm.api.call(ctx, q, nil); err != nil {
			return nil, err
		}
	}
	for n := range p.people {
		var made struct{ ID, Secret string }
		q := request{addr: addrs[0], method: http.MethodPost, path: "/api/keys", body: map[string]any{
			"name": fmt.Sprintf("person %d", n), "scopes": []hob.Scope{hob.ScopeAdmin},
		}}
		if err := c.storm.api.call(ctx, q, &made); err != nil {
			return nil, err
		}
		c.people = append(c.people, person{"key:" + made.ID, made.Secret})
	}
	return c, nil
}

// begin starts the n-th part of the runs that are to wait at once.
func (c *crowd) begin(ctx context.Context, n, parts int) {
	more := c.messages(fmt.Sprintf("wait%d-", n), c.plan.waiting*(n+1)/parts-c.plan.waiting*n/parts, patientPlan)
	c.first = append(c.first, more...)
	for _, m := range more {
		c.storm.group.Go(func() { c.storm.converse(ctx, c.h.chance(m.mark), m) })
	}
}

// allWait waits until all that is asked for first waits at once, and says how much that is.
func (c *crowd) allWait(ctx context.Context) (int, error) {
	want, got := guardedCalls(c.first), 0
	q := request{addr: c.f.servers[0].addr, method: http.MethodGet, path: "/api/approvals?status=pending&limit=1"}
	var page struct{ Total int }
	var err error
	for end := time.Now().Add(c.plan.patient); got < want && err == nil && time.Now().Before(end); pause(ctx, again) {
		err = c.storm.api.persist(ctx, q, &page)
		got = page.Total
	}
	if err == nil && got != want {
		err = fmt.Errorf("%w: %d approvals wait, want %d; the servers' logs end with:\n%s", errStuck, got, want, c.f.tails())
	}
	return got, err
}

// note writes down that an approval is asked for, and puts it onto the agenda, some of those that expire too late.
func (c *crowd) note(run hob.RunID, data []byte) {
	var e hob.ApprovalRequestedEvent
	if err := json.Unmarshal(data, &e); err != nil {
		c.w.fault(logsWhole, "run %s asks for an approval that cannot be read: %v", run, err)
		return
	}
	q := question{e.ApprovalID, run, e.CallID, e.ToolName, e.ExpiresAt.Time}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.asked[q.id]; known {
		return
	}
	c.asked[q.id] = q
	switch {
	case !c.opened:
		c.early = append(c.early, q)
	case q.tool == toolKeyed:
		wait := time.Duration(c.h.chance("wait " + string(q.call)).Int64N(int64(2 * shortWait)))
		c.opening.Add(1)
		time.AfterFunc(wait, func() { c.put(q); c.opening.Done() })
	default:
		c.putLocked(q)
	}
}

func (c *crowd) put(list ...question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(list...)
}

// putLocked has people come to questions next.
func (c *crowd) putLocked(list ...question) {
	c.agenda = slices.Insert(c.agenda, c.reached, list...)
	close(c.more)
	c.more = make(chan struct{})
}

// open lets people decide, all in the same order, and begins the runs whose approvals expire soon.
func (c *crowd) open(ctx context.Context) {
	c.mu.Lock()
	c.luck.Shuffle(len(c.early), func(i, j int) { c.early[i], c.early[j] = c.early[j], c.early[i] })
	c.opened = true
	c.putLocked(c.early...)
	c.mu.Unlock()
	for n := range c.people {
		c.group.Go(func() { c.decideAll(ctx, n) })
	}
	hasty := c.messages("haste", c.plan.hasty, hastyPlan)
	c.storm.group.Go(func() {
		for _, m := range hasty {
			c.storm.group.Go(func() { c.storm.converse(ctx, c.h.chance(m.mark), m) })
			pause(ctx, 2*again)
		}
	})
}

// close waits until people have been through the agenda.
func (c *crowd) close() {
	c.opening.Wait()
	c.mu.Lock()
	c.over = true
	close(c.more)
	c.mu.Unlock()
	c.group.Wait()
}

// decideAll is one person's work.
func (c *crowd) decideAll(ctx context.Context, n int) {
	for i := 0; ctx.Err() == nil; {
		c.mu.Lock()
		more, over := c.more, c.over
		var q question
		if i < len(c.agenda) {
			q = c.agenda[i]
			i++
			c.reached = max(c.reached, i)
		}
		c.mu.Unlock()
		switch {
		case q.id != "":
			pause(ctx, c.thought(q))
			c.decide(ctx, n, q)
		case over:
			return
		default:
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
	}
}

// thought is how long all people think about a question, so that they still decide at the same time.
func (c *crowd) thought(q question) time.Duration {
	return time.Duration(c.h.chance("think " + string(q.call)).Int64N(int64(c.plan.think) + 1))
}

// The shares of what people want.
const (
	cancels  = 0.1 // of questions: half of the people want the run to end
	approves = 0.65
)

// decide has a person decide, until Hob has said what became of it.
func (c *crowd) decide(ctx context.Context, n int, q question) {
	luck := c.h.chance(fmt.Sprintf("%s by %d", q.call, n))
	if n%2 == 0 && c.h.chance("cancel "+string(q.call)).Float64() < cancels {
		if m := c.messageOf(q.run); m != nil {
			c.storm.cancelRun(ctx, m)
			return
		}
	}
	d := decision{person: n, approve: luck.Float64() < approves}
	for ctx.Err() == nil {
		c.spring(whenSending)
		var answer struct{ Approval hob.Approval }
		err := c.storm.api.call(ctx, request{
			addr: c.storm.addr(luck), method: http.MethodPost, path: "/api/agents/runs/" + string(q.run) + "/approve",
			header: map[string]string{"Authorization": "Bearer " + c.people[n].key},
			body:   map[string]any{"approved": d.approve, "approval_id": q.id},
		}, &answer)
		var no refused
		switch {
		case err == nil:
			d.status, d.told = http.StatusOK, string(answer.Approval.Status)
		case errors.As(err, &no) && !no.later():
			var e struct {
				Code    string
				Details struct{ Status string }
			}
			_ = json.Unmarshal([]byte(no.body), &e) // what is no JSON has no code, which is told
			d.status, d.code, d.told = no.status, e.Code, e.Details.Status
		default:
			d.lost++
			pause(ctx, again)
			continue
		}
		break
	}
	c.mu.Lock()
	c.decisions[q.id] = append(c.decisions[q.id], d)
	c.mu.Unlock()
	if d.status == http.StatusOK {
		c.spring(whenDecided)
	}
}

// messageOf finds the message of a run.
func (c *crowd) messageOf(run hob.RunID) *message {
	c.w.ledger.mu.Lock()
	defer c.w.ledger.mu.Unlock()
	for _, m := range c.w.messages {
		if len(m.runs) > 0 && m.runs[0] == run {
			return m
		}
	}
	return nil
}
