package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"hob"
	"hob/internal/seeded"
)

// active is a run that this process drives. One goroutine owns it; others may use only the fields above the line, stop,
// and its log.
type active struct {
	e      *Engine
	id     hob.RunID
	object hob.Object // for the question who may read it
	log    *runLog
	ctx    context.Context //nolint:containedctx // the run's life
	end    context.CancelCauseFunc

	turn     atomic.Int64 // known once the run is accepted
	awaiting atomic.Bool  // somebody was asked for an approval: readers may leave
	rested   atomic.Bool  // the run lays itself down, or has

	leave   sync.Mutex // guards the four below
	readers int
	timer   *time.Timer
	grace   time.Duration // 0: a leaving reader changes nothing
	closed  bool

	// ------------------------------------------------------------------

	plan         *plan
	run          hob.Run
	calls        []hob.CallState        // of all steps, in order
	opened       bool                   // step_started of the first step went out with the acceptance
	recovered    int                    // continuations of cut answers so far
	cuts         int                    // continuations after a broken stream so far
	verdicts     []*hob.Result          // of the gate on the calls of the step under way; nil lets one through
	clear        []clearance            // of the same calls
	told         []*hob.HookResultEvent // what rules of their tools decided about the same calls
	asking       asking                 // what hooks decided
	approvals    []*hob.Approval        // of the run, in the order in which they were asked for
	rewritten    bool                   // hooks changed the answer
	vetted       bool                   // PreResponse hooks have decided about it
	standing     standing               // of the tools that the step calls
	mine         map[hob.CallID]bool    // calls that this process intended
	used         map[hob.CallID]bool    // call ids of the conversation
	conversation *conversation          // what the model reads; see talk
	fixed        int                    // tokens of a request beside its messages
	space        space                  // of the model's window
	drift        float64                // what the provider counted, by what was estimated; 0 = not known
	refused      int                    // tokens of the last request that was refused as too long
	failures     int                    // attempts to summarise that failed, one after the other
	reactions    int                    // answers to refusals as too long
	summed       bool                   // a summary was made and stored in this run
	spent        string                 // which budget is used up, and that the step under way is the last
	lastPrompt   int64                  // tokens of the last model call's request
	lastAnswer   int64                  // and of its answer
	empty        bool                   // the model said nothing and was asked once more
	repairs      int                    // times that the model was asked for another form
	wrong        []hob.Message          // the answer that was not in the form, and what was said to it
	partial      string                 // text of an answer that did not come to its end
	release      context.CancelFunc
}

func (e *Engine) newActive(run hob.Run, p *plan) *active {
	a := &active{e: e, id: run.ID, plan: p, run: run, calls: p.calls, mine: map[hob.CallID]bool{}}
	a.failures = min(e.recall.failures(run.Workspace, run.Session), e.Limits.Compactions-1) // a run has one attempt at least
	a.object = hob.Object{Kind: hob.SessionObject, Workspace: run.Workspace, Owner: run.Principal.Owner(), Agent: run.Agent}
	a.turn.Store(run.Turn)
	a.ctx, a.end = context.WithCancelCause(e.base)
	a.release = func() {}
	if s := p.tuning.TimeoutSeconds; s != nil {
		d := time.Duration(*s * float64(time.Second))
		if !run.StartedAt.IsZero() { // a run that was taken up again keeps its deadline
			d -= e.Clock().Sub(run.StartedAt.Time)
		}
		a.ctx, a.release = context.WithTimeoutCause(a.ctx, max(d, 0), errTimeout)
	}
	a.log = &runLog{
		e: e, run: run.ID, epoch: run.Epoch, next: run.LastSeq + 1, durable: run.LastSeq,
		messages: len(p.own), booked: p.actions, lost: a.lost,
	}
	if seeded.Bug("reset_seq") {
		a.log.next = 1
	}
	a.asking.recall(p.told)
	for i := range p.asked {
		a.approvals = append(a.approvals, &p.asked[i])
	}
	if p.attempt == nil {
		a.opened = !p.hooked(hob.OnRunStart, "") // they come before the first step
		a.log.messages = 1                       // the user's message goes with the acceptance
		a.log.start(func(b *batch) {
			b.event(hob.EventStart, a.startEvent)
			for _, r := range p.past.Runs {
				if a.dropped(b, r.Messages) {
					break
				}
			}
			for _, w := range p.warnings {
				b.event(hob.EventWarning, func(h hob.EventHead) any {
					w.EventHead = h
					return w
				})
			}
			if a.opened {
				b.event(hob.EventStepStarted, func(h hob.EventHead) any {
					return hob.StepStartedEvent{EventHead: h, Step: 1, IsLastStep: a.maxSteps() == 1}
				})
			}
		})
		a.watchReaders()
	}
	return a
}

func (a *active) startEvent(h hob.EventHead) any {
	tools := make([]string, 0, len(a.plan.pin.Tools))
	for _, t := range a.plan.pin.Tools {
		tools = append(tools, t.Name)
	}
	effort := a.plan.tuning.ReasoningEffort
	return hob.StartEvent{
		EventHead: h, Session: a.run.Session, Agent: a.run.Agent, Model: a.run.Model, IsNewSession: a.run.NewSession,
		ReasoningRequested: effort != "" && effort != hob.EffortNone, Tools: tools,
	}
}

// accept makes the run known: what was written beside its acceptance may be shown.
func (a *active) accept(run hob.Run) {
	a.turn.Store(run.Turn)
	a.log.opened()
}

// stop ends the run for a cause; the first cause stands.
func (a *active) stop(cause error) { a.end(cause) }

func (a *active) cause() error {
	if a.ctx.Err() == nil {
		return nil
	}
	return context.Cause(a.ctx)
}

// lost is told when a commit failed: this process may not write to the run any more.
func (a *active) lost(err error) {
	if hob.KindOf(err) == hob.Fenced {
		a.e.fenced.Add(1)
	} else {
		a.e.Log.Error("a commit failed; the run will be taken up again",
			slog.String("run", string(a.id)), slog.Any("error", err))
	}
	a.end(errLost)
}

// close frees what the run holds; its log takes no more.
func (a *active) close() {
	a.leave.Lock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	a.leave.Unlock()
	a.log.kill(errLost)
	a.release()
	a.end(nil)
}

// watchReaders starts the client-leaves rule: a run that nobody reads for the grace period is cancelled, unless it asked
// to go on. A run that was taken up after a restart lost its readers through us and goes on.
func (a *active) watchReaders() {
	if a.plan.tuning.OnDisconnect == hob.DisconnectContinue {
		return
	}
	a.leave.Lock()
	defer a.leave.Unlock()
	a.grace = a.e.Limits.Grace
	if s := a.plan.tuning.GraceSeconds; s != nil {
		a.grace = max(time.Duration(*s*float64(time.Second)), time.Millisecond)
	}
	// Until the first reader comes the server's own grace is the least: the answer to the request is still on its way.
	a.timer = time.AfterFunc(max(a.grace, a.e.Limits.Grace), a.abandoned)
}

func (a *active) abandoned() {
	if !a.alone() || a.awaiting.Load() { // who has asked a person is not given up because a client leaves
		return
	}
	if a.readElsewhere() {
		a.leave.Lock()
		defer a.leave.Unlock()
		if a.readers == 0 && !a.closed {
			a.timer.Reset(max(a.grace, followEvery))
		}
		return
	}
	if a.alone() {
		a.end(errLeft)
	}
}

// alone says whether nobody reads the run here.
func (a *active) alone() bool {
	a.leave.Lock()
	defer a.leave.Unlock()
	return a.readers == 0 && !a.closed
}

// readElsewhere says whether somebody reads the run at another process. A store that cannot say so is no reason to end it.
func (a *active) readElsewhere() bool {
	if a.e.Alone {
		return false
	}
	ctx, cancel := context.WithTimeout(a.ctx, followEvery)
	defer cancel()
	followed, err := a.e.Store.Followed(ctx, a.id)
	return followed || err != nil
}

// read counts a reader; the returned function ends it.
func (a *active) read() func() {
	a.leave.Lock()
	defer a.leave.Unlock()
	a.readers++
	if a.timer != nil {
		a.timer.Stop()
	}
	return func() {
		a.leave.Lock()
		defer a.leave.Unlock()
		a.readers--
		if a.readers == 0 && a.grace > 0 && !a.closed {
			a.timer.Reset(a.grace)
		}
	}
}

func (a *active) maxSteps() int {
	if n := a.plan.tuning.MaxSteps; n != nil {
		return *n
	}
	return hob.DefaultMaxSteps
}

// ending is how a run ends.
type ending struct {
	status hob.Status
	code   string
	text   string // the error, for people
}

// marked is the cause for a run that somebody asked to cancel, with the code they gave.
type marked string

func (m marked) Error() string {
	if m == hob.CodeKeyRevoked {
		return "The key that started the run was revoked"
	}
	return errCancelled.Error()
}

// verdict tells how a run ends for the cause that ended its context; ok is false where this process must not write.
func verdict(cause error) (ending, bool) {
	switch {
	case errors.Is(cause, errLost), errors.Is(cause, errHandover), errors.Is(cause, errNotAccepted):
		return ending{}, false
	case errors.Is(cause, errTimeout):
		return ending{hob.Cancelled, hob.CodeTimeout, errTimeout.Error()}, true
	case errors.Is(cause, errLeft):
		return ending{hob.Cancelled, hob.CodeClientDisconnected, errLeft.Error()}, true
	}
	var m marked
	if errors.As(cause, &m) {
		return ending{hob.Cancelled, string(m), m.Error()}, true
	}
	return ending{hob.Cancelled, hob.CodeCancelled, errCancelled.Error()}, true
}
