package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"hob"
)

// mode is what becomes of the operation that a fault meets.
type mode int

const (
	diesBefore mode = iota // the process dies and it does not happen
	diesAfter              // it happens, and the process dies before it hears so
	toldFailed             // it happens, its caller is told that it failed, and the process lives on
	refused                // it does not happen, its caller is told so, and the process lives on
	late                   // the process is gone, and what it had sent arrives when the next one is at work
)

var modes = []mode{diesBefore, diesAfter, toldFailed, refused, late}

// sent are the operations that can arrive late; any other is as if the process had died before it.
var sent = []string{"StartRun", "Commit", "Claim", "Renew", "Release", "RequestCancel", "Decide", "tool call", "model call", "hook call"}

func (m mode) String() string {
	return [...]string{"dies before", "dies after", "told failed", "refused", "late"}[m]
}

// live says whether the process lives on.
func (m mode) live() bool { return m == toldFailed || m == refused }

// crash meets the at-th operation since the crash before it, on whatever process of the trial.
type crash struct {
	at   int
	mode mode
}

// hit is an operation that a fault met.
type hit struct {
	op   string
	mode mode
}

var errDied = errors.New("the process died")

// errFailed is what a living process is told of an operation that failed, or is said to have.
func errFailed() error {
	return hob.Errorf(hob.Unavailable, "the database cannot be reached now; try again")
}

// pass counts an operation of the process and tells what becomes of it. Whoever passes calls p.under.Done.
func (p *process) pass(name string) (m mode, met, alive bool) {
	c := p.trial
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.dead {
		return 0, false, false
	}
	p.under.Add(1)
	c.count++
	c.trace = append(c.trace, name)
	if len(c.faults) == 0 || c.count < c.faults[0].at {
		return 0, false, true
	}
	m = c.faults[0].mode
	c.faults, c.count = c.faults[1:], 0
	c.met = append(c.met, hit{name, m})
	c.trace = append(c.trace, fmt.Sprintf("<- %s", m))
	if m == late {
		if slices.Contains(sent, name) {
			c.lates++
		} else {
			m = diesBefore
		}
	}
	if m == diesBefore || m == late {
		p.dieLocked()
	}
	return m, true, true
}

// op carries an operation out, or what a fault makes of it. From the moment in which a process dies nothing that it does
// takes effect and it hears of nothing; what is under way may take effect or not, as in any death.
func op[T any](p *process, name string, do func() (T, error)) (T, error) {
	var zero T
	m, met, alive := p.pass(name)
	if !alive {
		return zero, errDied
	}
	defer p.under.Done()
	switch {
	case met && m == diesBefore:
		return zero, errDied
	case met && m == late:
		go p.later(func() { _, _ = do() })
		return zero, errDied
	case met && m == refused:
		return zero, errFailed()
	}
	v, err := do()
	if met && m == diesAfter {
		p.die()
	}
	switch {
	case p.isDead():
		return zero, errDied
	case met && err == nil:
		return zero, errFailed()
	}
	return v, err
}

// later does what a dead process had sent once the next one has taken over.
func (p *process) later(do func()) {
	c := p.trial
	defer c.change(func() { c.lates-- })
	for {
		c.mu.Lock()
		over, moved := c.gone || c.now != nil && c.now.number > p.number, c.moved
		c.mu.Unlock()
		if over {
			do()
			return
		}
		<-moved
	}
}

// act is op for what gives nothing but an error.
func act(p *process, name string, do func() error) error {
	_, err := op(p, name, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// seamStore is the store as a process sees it. It has the methods that the engine uses and no others: any other one would
// be an operation that is not counted, and panics.
type seamStore struct {
	hob.Store // nil
	p         *process
	inner     hob.Store
}

func (s *seamStore) StartRun(ctx context.Context, n hob.NewRun) (hob.StartedRun, error) {
	return op(s.p, "StartRun", func() (hob.StartedRun, error) {
		got, err := s.inner.StartRun(ctx, n)
		if err == nil && !got.Replayed {
			s.p.trial.began(got.Run.ID)
		}
		return got, err
	})
}

func (s *seamStore) Commit(ctx context.Context, c hob.RunCommit) error {
	return act(s.p, "Commit", func() error {
		err := s.inner.Commit(ctx, c)
		if err == nil && c.Outcome != nil && c.Outcome.Status.Final() {
			s.p.trial.ended(c.Run)
		}
		return err
	})
}

func (s *seamStore) Load(ctx context.Context, id hob.RunID) (hob.RunState, error) {
	return op(s.p, "Load", func() (hob.RunState, error) { return s.inner.Load(ctx, id) })
}

func (s *seamStore) Claim(ctx context.Context, owner string, lease time.Duration, limit int, all bool) ([]hob.Claimed, error) {
	return op(s.p, "Claim", func() ([]hob.Claimed, error) { return s.inner.Claim(ctx, owner, lease, limit, all) })
}

func (s *seamStore) Renew(ctx context.Context, owner string, lease time.Duration) (map[hob.RunID]string, error) {
	return op(s.p, "Renew", func() (map[hob.RunID]string, error) { return s.inner.Renew(ctx, owner, lease) })
}

func (s *seamStore) Release(ctx context.Context, owner string, stalled bool, runs ...hob.RunID) error {
	return act(s.p, "Release", func() error { return s.inner.Release(ctx, owner, stalled, runs...) })
}

func (s *seamStore) RequestCancel(ctx context.Context, by hob.Principal, id hob.RunID, code string) (hob.Run, error) {
	return op(s.p, "RequestCancel", func() (hob.Run, error) { return s.inner.RequestCancel(ctx, by, id, code) })
}

func (s *seamStore) EarlierRun(ctx context.Context, by hob.Principal, key hob.Idempotency) (hob.Run, bool, error) {
	type earlier struct {
		run   hob.Run
		found bool
	}
	got, err := op(s.p, "EarlierRun", func() (earlier, error) {
		run, found, err := s.inner.EarlierRun(ctx, by, key)
		return earlier{run, found}, err
	})
	return got.run, got.found, err
}

func (s *seamStore) Follow(ctx context.Context, id hob.RunID, d time.Duration) error {
	return act(s.p, "Follow", func() error { return s.inner.Follow(ctx, id, d) })
}

func (s *seamStore) Followed(ctx context.Context, id hob.RunID) (bool, error) {
	return op(s.p, "Followed", func() (bool, error) { return s.inner.Followed(ctx, id) })
}

func (s *seamStore) Run(ctx context.Context, by hob.Principal, id hob.RunID) (hob.Run, error) {
	return op(s.p, "Run", func() (hob.Run, error) { return s.inner.Run(ctx, by, id) })
}

func (s *seamStore) Events(ctx context.Context, by hob.Principal, id hob.RunID, after int64, limit int) ([]hob.Event, error) {
	return op(s.p, "Events", func() ([]hob.Event, error) { return s.inner.Events(ctx, by, id, after, limit) })
}

func (s *seamStore) History(ctx context.Context, by hob.Principal, id hob.SessionID, r hob.HistoryRange) (hob.History, error) {
	return op(s.p, "History", func() (hob.History, error) { return s.inner.History(ctx, by, id, r) })
}

func (s *seamStore) Session(ctx context.Context, by hob.Principal, id hob.SessionID) (hob.Session, error) {
	return op(s.p, "Session", func() (hob.Session, error) { return s.inner.Session(ctx, by, id) })
}

func (s *seamStore) Agent(ctx context.Context, by hob.Principal, id hob.AgentID) (hob.Agent, error) {
	return op(s.p, "Agent", func() (hob.Agent, error) { return s.inner.Agent(ctx, by, id) })
}

func (s *seamStore) Scope(ctx context.Context, by hob.Principal, id hob.AgentID) ([]hob.AssignedTool, error) {
	return op(s.p, "Scope", func() ([]hob.AssignedTool, error) { return s.inner.Scope(ctx, by, id) })
}

func (s *seamStore) Standing(ctx context.Context, ws hob.WorkspaceID, id hob.AgentID, refs []string) ([]hob.Standing, error) {
	return op(s.p, "Standing", func() ([]hob.Standing, error) { return s.inner.Standing(ctx, ws, id, refs) })
}

func (s *seamStore) AgentUsage(ctx context.Context, id hob.AgentID, since hob.Time) (hob.Usage, error) {
	return op(s.p, "AgentUsage", func() (hob.Usage, error) { return s.inner.AgentUsage(ctx, id, since) })
}

func (s *seamStore) Hooks(ctx context.Context, by hob.Principal, id hob.AgentID) ([]hob.Hook, error) {
	return op(s.p, "Hooks", func() ([]hob.Hook, error) { return s.inner.Hooks(ctx, by, id) })
}

func (s *seamStore) Approvals(ctx context.Context, by hob.Principal, f hob.ApprovalFilter) (hob.Page[hob.Approval], error) {
	return op(s.p, "Approvals", func() (hob.Page[hob.Approval], error) { return s.inner.Approvals(ctx, by, f) })
}

func (s *seamStore) Decide(ctx context.Context, by hob.Principal, d hob.Decision) (hob.Approval, error) {
	return op(s.p, "Decide", func() (hob.Approval, error) { return s.inner.Decide(ctx, by, d) })
}

// newsEvery is how often a process whose operation failed is told that something may have happened, as the clock of a
// process that waits a second would tell it.
const newsEvery = 15 * time.Millisecond

// Watch tells a process of what others did, which is what a trial wants it to hear.
func (s *seamStore) Watch(ctx context.Context, changed func([]hob.RunID)) error {
	if err := act(s.p, "Watch", func() error { changed(nil); return nil }); err != nil {
		return err
	}
	tick := time.NewTicker(newsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.p.died:
			return errDied
		case id := <-s.p.trial.news:
			changed([]hob.RunID{id})
		case <-tick.C:
			if open, failed := s.p.trial.state(); failed {
				changed(nil)
				changed(open)
			}
		}
	}
}

// settings reads a setting of the workspace, of which there are none.
func (p *process) settings(context.Context, hob.WorkspaceID, string) (string, error) {
	return op(p, "Setting", func() (string, error) { return "", nil })
}

// models opens the scripted models with the seam around their calls.
func (p *process) models(ctx context.Context, ws hob.WorkspaceID, name string) (hob.Model, error) {
	m, err := op(p, "open model", func() (hob.Model, error) { return p.trial.rig.models(ctx, ws, name) })
	if err != nil {
		return m, err
	}
	inner := m.Provider
	m.Provider = streamFunc(func(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
		return func(yield func(hob.Delta, error) bool) { p.stream(inner.Stream(ctx, r), yield) }
	})
	return m, nil
}

// stream passes a model's answer on. The call, its first delta and its last are operations.
func (p *process) stream(answer iter.Seq2[hob.Delta, error], yield func(hob.Delta, error) bool) {
	fail := func(class hob.ErrorClass, err error) {
		yield(hob.Delta{}, &hob.ProviderError{Class: class, Message: "the model cannot be reached", Err: err})
	}
	if err := act(p, "model call", func() error { p.trial.called(); return nil }); err != nil {
		fail(hob.ClassModelError, err)
		return
	}
	first := true
	for d, err := range answer {
		if err != nil {
			yield(hob.Delta{}, err)
			return
		}
		name, stopped := "delta", false
		switch {
		case d.Finish != "":
			name = "last delta"
		case first:
			name = "first delta"
		}
		first = false
		err := act(p, name, func() error { stopped = !yield(d, nil); return nil })
		if stopped {
			return
		}
		if err != nil {
			fail(hob.ClassCut, err)
			return
		}
	}
}

// kinds are the tools of the trials.
var kinds = map[string]struct {
	recovery hob.Recovery
	parallel bool
}{
	"once":       {recovery: hob.RecoverOnce},
	"keyed":      {recovery: hob.RecoverKeyed},
	"local":      {recovery: hob.RecoverLocal},
	"read":       {recovery: hob.RecoverRead, parallel: true},
	"search":     {recovery: hob.RecoverRead, parallel: true}, // counts as a search and calls a model
	"free":       {recovery: hob.RecoverKeyed},                // counts as nothing
	"tome":       {recovery: hob.RecoverRead, parallel: true}, // about 900 tokens
	"once_hang":  {recovery: hob.RecoverOnce},                 // waits for the end of its context
	"keyed_hang": {recovery: hob.RecoverKeyed},
	"first_hang": {recovery: hob.RecoverKeyed}, // waits the first time only, and not for long
}

// seamTools gives the process the tools.
type seamTools struct{ p *process }

func (s seamTools) Tools(_ context.Context, g hob.Grant) ([]hob.ToolRunner, []string, error) {
	list, err := op(s.p, "list tools", func() ([]hob.ToolRunner, error) {
		var out []hob.ToolRunner
		for _, a := range g.Assigned {
			k := kinds[a.ToolName]
			out = append(out, seamTool{s.p, hob.ToolSpec{
				Name: a.ToolName, Description: "test", Kind: hob.BuiltinTool, Ref: hob.BuiltinRef + a.ToolName, Recovery: k.recovery, Parallel: k.parallel,
				Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
			}})
		}
		return out, nil
	})
	return list, nil, err
}

type seamTool struct {
	p    *process
	spec hob.ToolSpec
}

func (t seamTool) Spec() hob.ToolSpec { return t.spec }

// eyeTokens are those of a model call that the tool search makes.
const eyeTokens = 7

// did is the text of a result whose call took effect.
const did = "it is done: "

func (t seamTool) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	nth := 0
	if err := act(t.p, "tool call", func() error { nth = t.p.trial.acted(c); return nil }); err != nil {
		return hob.Result{}, err
	}
	if strings.HasSuffix(c.Name, "_hang") && (nth == 1 || c.Name != "first_hang") {
		select {
		case t.p.trial.came <- c.Run:
		default:
		}
		most := time.Hour
		if c.Name == "first_hang" {
			most = 200 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return hob.Result{}, ctx.Err()
		case <-time.After(most):
		}
	}
	text := did + c.Name + string(c.Arguments)
	r := hob.Result{Text: text}
	switch c.Name {
	case "tome":
		r.Text += strings.Repeat(" The tome says something of some length here.", 90)
	case "search":
		r.Action = hob.ActionWebSearch
		r.Used = []hob.UsageEntry{{Component: hob.ComponentVision, Model: "eye", Usage: hob.Usage{TotalTokens: eyeTokens}}}
	case "free":
		r.Free = true
	}
	return r, nil
}
