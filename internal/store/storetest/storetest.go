// Package storetest holds the contract of hob.Store as tests: whoever keeps Hob's data passes Exercise.
//
// It is a test fixture and not for the program itself. It knows the interface alone; what only one store can do (a
// schema that is too new, files on disk) is tested beside that store.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"hob"
)

// Exercise runs the whole contract. open gives a fresh, empty store with the default workspace and closes it when the
// test it is given ends.
func Exercise(t *testing.T, open func(t *testing.T) hob.Store) {
	t.Helper()
	for _, group := range []map[string]func(*world){
		agentCases(), toolCases(), assignmentCases(), keyCases(), sessionCases(), startCases(), commitCases(), leaseCases(), onceCases(),
		readCases(), historyCases(), visibilityCases(), concurrencyCases(), textCases(), settingCases(), usageCases(), summaryCases(), fileCases(),
		hookCases(), approvalCases(), restingCases(), deliveryCases(), auditCases(),
	} {
		for name, run := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(newWorld(t, open(t)))
			})
		}
	}
}

// world is a store with the people who use it. Methods without an error result fail the test.
type world struct {
	t   *testing.T
	s   hob.Store
	ctx context.Context //nolint:containedctx // the test's own, as long as the world

	service  hob.Principal // speaks for the workspace
	alice    hob.Principal // an end user
	bob      hob.Principal // another one
	key      hob.Principal // an API key that may read, run and configure
	stranger hob.Principal // has every right, in another workspace
	agent    hob.Agent     // made by the service key
	other    hob.Agent     // a second one
}

// lease is long enough never to end in a test that does not wait for it.
const lease = time.Minute

func newWorld(t *testing.T, s hob.Store) *world {
	t.Helper()
	member := []hob.Scope{hob.ScopeRead, hob.ScopeRun, hob.ScopeApprove}
	w := &world{
		t: t, s: s, ctx: t.Context(),
		service: hob.Principal{Kind: hob.ServicePrincipal, Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeAdmin}},
		alice:   hob.Principal{Kind: hob.UserPrincipal, ID: hob.NewUUID(), Workspace: hob.DefaultWorkspace, Scopes: member},
		bob:     hob.Principal{Kind: hob.UserPrincipal, ID: hob.NewUUID(), Workspace: hob.DefaultWorkspace, Scopes: member},
		key: hob.Principal{
			Kind: hob.KeyPrincipal, ID: hob.NewUUID(), Workspace: hob.DefaultWorkspace,
			Scopes: []hob.Scope{hob.ScopeRead, hob.ScopeRun, hob.ScopeConfigure},
		},
		stranger: hob.Principal{Kind: hob.ServicePrincipal, Workspace: "elsewhere", Scopes: []hob.Scope{hob.ScopeAdmin}},
	}
	w.agent, w.other = w.newAgent("first"), w.newAgent("second")
	return w
}

// boundTo is a key with every scope but admin that is bound to one agent.
func (w *world) boundTo(a hob.AgentID) hob.Principal {
	return hob.Principal{
		Kind: hob.KeyPrincipal, ID: hob.NewUUID(), Workspace: hob.DefaultWorkspace, Agent: a,
		Scopes: []hob.Scope{hob.ScopeRead, hob.ScopeRun, hob.ScopeApprove, hob.ScopeConfigure},
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// want checks the kind of an error, "" for none.
func (w *world) want(kind hob.Kind, err error) {
	w.t.Helper()
	if got := hob.KindOf(err); got != kind {
		w.t.Fatalf("error %v is of kind %q, want %q", err, got, kind)
	}
}

// refused checks the kind and code of an error, and gives it.
func (w *world) refused(err error, kind hob.Kind, code string) *hob.Error {
	w.t.Helper()
	var e *hob.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Code != code {
		w.t.Fatalf("error %v, want %s %s", err, kind, code)
	}
	return e
}

// same checks two values that print alike to be equal.
func same[T comparable](w *world, what string, got, want T) {
	w.t.Helper()
	if got != want {
		w.t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func (w *world) newAgent(name string) hob.Agent {
	w.t.Helper()
	a, err := w.s.CreateAgent(w.ctx, w.service, hob.Agent{Name: name, Model: "scripted/demo"})
	w.must(err)
	return a
}

// newRun is a run of by in a session, ready to be started.
func (w *world) newRun(by hob.Principal, a hob.AgentID, id hob.SessionID) hob.NewRun {
	run := hob.NewRunID()
	return hob.NewRun{
		Run: hob.Run{
			ID: run, Workspace: by.Workspace, Agent: a, Session: id, Principal: by, Model: "scripted/demo",
			Status: hob.Running, Epoch: 1, Attempt: 1, LeaseOwner: "p1", CreatedAt: now(),
		},
		Lease: lease, Session: hob.Session{ID: id}, Pin: json.RawMessage(`{"agent":{"name":"first"},"tools":[]}`),
		Message: hob.Message{Role: hob.RoleUser, Content: "hello from " + string(run)},
		Events:  []hob.Event{event(1, hob.EventStart, "")},
	}
}

func (w *world) start(n hob.NewRun) hob.Run {
	w.t.Helper()
	got, err := w.s.StartRun(w.ctx, n)
	w.must(err)
	return got.Run
}

// begin starts a plain run.
func (w *world) begin(by hob.Principal, id hob.SessionID) hob.Run {
	w.t.Helper()
	return w.start(w.newRun(by, w.agent.ID, id))
}

// finish ends a run with an answer.
func (w *world) finish(r hob.Run, answer string) {
	w.t.Helper()
	w.must(w.s.Commit(w.ctx, ending(r, hob.Completed, answer)))
}

// ending is the commit that ends a run that has had no other commit.
func ending(r hob.Run, s hob.Status, answer string) hob.RunCommit {
	c := step(r, event(r.LastSeq+1, hob.EventComplete, ""))
	c.Outcome = &hob.Outcome{Status: s, Content: answer, Steps: 1}
	if answer != "" {
		c.Base, c.Messages = 1, []hob.Message{{Role: hob.RoleAssistant, Content: answer}}
	}
	return c
}

// step is a commit by the process that started or claimed the run.
func step(r hob.Run, events ...hob.Event) hob.RunCommit {
	return hob.RunCommit{Run: r.ID, Epoch: r.Epoch, Owner: "p1", Lease: lease, Events: events}
}

func event(seq int64, kind hob.EventType, text string) hob.Event {
	data, err := json.Marshal(map[string]any{"event": kind, "seq": seq, "text": text, "step": 1})
	if err != nil {
		return hob.Event{}
	}
	return hob.Event{Seq: seq, Type: kind, Data: data, Time: now()}
}

// now is a time as a store keeps it.
func now() hob.Time { return hob.Time{Time: hob.SystemClock()} }

// seqs are the numbers of events.
func seqs(events []hob.Event) string {
	list := make([]int64, len(events))
	for i, e := range events {
		list[i] = e.Seq
	}
	return fmt.Sprint(list)
}

// point gives the address of a value.
func point[T any](v T) *T { return &v }
