// Package engine drives runs: the loop of model calls and tool calls, the event log that every reader sees, the gate
// that every tool call passes, recovery after a crash, and leases between processes. It knows stores, providers and
// tools only as the interfaces of package hob. It is not for HTTP, SQL or any wire format but the event frames.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hob"
	"hob/internal/seeded"
)

// Limits are the engine's numbers; zero values take the defaults of DefaultLimits.
type Limits struct {
	Active         int           // runs driven at once by this process; more are refused with Unavailable
	CallsPerStep   int           // tool calls that one model answer may hold; more are answered with an error
	Parallel       int           // parallel calls of one step under way at once
	ResultChars    int           // characters of a tool result that the model reads
	ToolTimeout    time.Duration // of one tool call, where the tool names none
	ModelTimeout   time.Duration // of one model call in all
	Lease          time.Duration // of a run; renewed at a third
	Grace          time.Duration // that a run waits for a reader to come back
	Attempts       int           // interruptions, without any progress between them, after which a run is parked as failed
	TailBytes      int           // events of an active run kept in memory for its readers
	AnswerBytes    int           // text and reasoning of one model answer, its continuations included
	Recoveries     int           // continuations of cut answers per run
	Trials         int           // calls of the test console under way at once, of one workspace
	TrialTime      time.Duration // of one call of the console, whatever time its tool asks for
	HookTime       time.Duration // that a run waits for its http hooks in all
	ApprovalRounds int           // times that one hook asks about one call, because its arguments were changed
	Compactions    int           // failed attempts to summarise a conversation, per run, after which no other is made
}

// DefaultLimits are the documented limits.
func DefaultLimits() Limits {
	return Limits{
		Active: 2048, CallsPerStep: 16, Parallel: 8, ResultChars: 50_000,
		ToolTimeout: 30 * time.Second, ModelTimeout: 10 * time.Minute,
		Lease: 10 * time.Second, Grace: 15 * time.Second, Attempts: 5,
		TailBytes: 256 << 10, Recoveries: 3, Compactions: 3, Trials: 4, TrialTime: 10 * time.Minute,
		AnswerBytes: 2 << 20, HookTime: 2 * time.Minute, ApprovalRounds: 5,
	}
}

// Config is what an engine needs.
type Config struct {
	Store    hob.Store
	Models   hob.ModelOpener
	Toolsets []hob.Toolset
	Settings hob.SettingReader // of workspaces; nil = the defaults
	Clock    hob.Clock
	Log      *slog.Logger
	Owner    string // names this process in leases; unique per process start
	Alone    bool   // no other process can share the store: leases of others are void
	Limits   Limits
	Hooks    hob.HookCaller // nil: http hooks fail
	Deliver  func()         // is called when something is to be delivered to hooks from the store; nil: nobody is told
}

// Engine drives the runs of one process.
type Engine struct {
	Config
	schemas schemaCache
	rules   ruleCache
	recall  recall

	hub hub

	admission *admission
	trials    trials

	mu     sync.Mutex
	active map[hob.RunID]*active
	// orphans are runs whose lease is ours but which nobody drives, and whether that counts as a stall. Serve releases them.
	orphans map[hob.RunID]bool

	group sync.WaitGroup  // the driving goroutines
	base  context.Context //nolint:containedctx // the life of all runs
	end   context.CancelCauseFunc
	wake  chan struct{} // asks Serve to claim now
	check chan struct{} // asks Serve to renew now, since a run driven here may have been marked for cancelling

	renewed                              atomic.Pointer[time.Time] // when the leases were last renewed
	started, finished, failed, recovered atomic.Int64
	calls, tokens, cost, summaries       atomic.Int64
	parked, fenced                       atomic.Int64
	toolCalls, toolsFailed, unknown      atomic.Int64
	hooksAsked, hooksFailed              atomic.Int64
	approvalsAsked                       atomic.Int64

	leases, deaf, releases Outage
}

// New makes an engine that drives nothing yet: call Recover, then Serve.
func New(c Config) *Engine {
	d := DefaultLimits()
	fill(&c.Limits.Active, d.Active)
	fill(&c.Limits.CallsPerStep, d.CallsPerStep)
	fill(&c.Limits.Parallel, d.Parallel)
	fill(&c.Limits.ResultChars, d.ResultChars)
	fill(&c.Limits.ToolTimeout, d.ToolTimeout)
	fill(&c.Limits.ModelTimeout, d.ModelTimeout)
	fill(&c.Limits.Lease, d.Lease)
	fill(&c.Limits.Grace, d.Grace)
	fill(&c.Limits.Attempts, d.Attempts)
	fill(&c.Limits.Compactions, d.Compactions)
	fill(&c.Limits.HookTime, d.HookTime)
	fill(&c.Limits.ApprovalRounds, d.ApprovalRounds)
	fill(&c.Limits.Trials, d.Trials)
	fill(&c.Limits.TrialTime, d.TrialTime)
	fill(&c.Limits.TailBytes, d.TailBytes)
	fill(&c.Limits.Recoveries, d.Recoveries)
	fill(&c.Limits.AnswerBytes, d.AnswerBytes)
	if c.Clock == nil {
		c.Clock = hob.SystemClock
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Owner == "" {
		c.Owner = "engine-" + hob.RandomHex(6)
	}
	e := &Engine{
		Config: c, active: map[hob.RunID]*active{}, orphans: map[hob.RunID]bool{}, admission: newAdmission(c.Limits.Active),
		trials: newTrials(),
	}
	e.leases = Outage{Log: c.Log, Fault: "the store cannot be reached for leases; trying again", Over: "the store is reached for leases again"}
	e.deaf = Outage{Log: c.Log, Fault: "other processes are not heard for now; their runs are looked at instead", Over: "other processes are heard again"}
	e.releases = Outage{Log: c.Log, Fault: "a lease could not be released; trying again", Over: "leases are released again"}
	e.wake, e.check = make(chan struct{}, 1), make(chan struct{}, 1)
	e.base, e.end = context.WithCancelCause(context.Background())
	return e
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// StartInput is a request for a run.
type StartInput struct {
	Agent       hob.AgentID
	Session     hob.SessionID // "" makes a new session
	Message     hob.Message   // the user's
	Options     hob.RunOptions
	Idempotency *hob.Idempotency
	Warnings    []string // of whoever read the request, such as fields it did not know: told to the run's readers
}

// Started is an accepted run. Warnings are those of the request, and name tools of the agent that the run does not use,
// and why.
type Started struct {
	Run      hob.Run
	Replayed bool // the idempotency key had made this run before
	Warnings []string
}

// Start accepts a run and drives it in the background. It is durable when Start returns. Errors: NotFound for an agent
// or session the principal does not see, Forbidden without the right to run, Invalid for a model nobody serves, Conflict
// for a session of another agent, Unprocessable for an idempotency key used with another body, Unavailable when the
// server is full or ending, RateLimited when the workspace has its share of a server that others need too.
func (e *Engine) Start(ctx context.Context, by hob.Principal, in StartInput) (Started, error) {
	if in.Idempotency != nil { // before all else: what was right then may be wrong now, and is answered the same
		if run, found, err := e.Store.EarlierRun(ctx, by, *in.Idempotency); err != nil || found {
			return Started{Run: run, Replayed: found, Warnings: e.told(ctx, by, run)}, err
		}
	}
	plan, err := e.prepare(ctx, by, in)
	if err != nil {
		return Started{}, err
	}
	if in.Idempotency != nil && !in.Options.Stream && plan.tuning.OnDisconnect == "" {
		plan.tuning.OnDisconnect = hob.DisconnectContinue // who waits with a key can only come back by asking again
	}
	a := e.newActive(plan.run, plan)
	if err := e.admit(a); err != nil {
		a.close()
		return Started{}, err
	}
	defer e.group.Done()
	defer e.admission.begun(a.object.Workspace)
	// The model is called beside the commit of the start: nothing is shown before it is durable, and a run that is not
	// accepted has at most cost a model call. With an idempotency key the run may exist already, so that waits.
	// Neither is anybody asked about a run that is not accepted.
	beside := in.Idempotency == nil && !plan.hooked(hob.OnRunStart, "")
	if beside {
		e.launch(a)
	}
	n := hob.NewRun{
		Run: plan.run, Lease: e.Limits.Lease, Session: plan.session, Message: in.Message, Pin: plan.pinned,
		Events: a.log.opening(), Idempotency: in.Idempotency,
	}
	if seeded.Bug("ack_before_commit") {
		return e.ackEarly(a, n), nil
	}
	began := monotonic()
	started, err := e.Store.StartRun(context.WithoutCancel(ctx), n)
	e.written(began, err)
	if err != nil && doubtful(err) {
		started, err = e.settleStart(ctx, a.id, err)
	}
	if err != nil || started.Replayed {
		a.stop(errNotAccepted)
		a.log.kill(errNotAccepted)
		if !beside {
			e.forget(a)
		}
		if err != nil {
			return Started{}, err
		}
		return Started{Run: started.Run, Replayed: true, Warnings: e.told(ctx, by, started.Run)}, nil
	}
	e.started.Add(1)
	a.accept(started.Run)
	if !beside {
		e.launch(a)
	}
	texts := make([]string, len(plan.warnings))
	for i, w := range plan.warnings {
		texts[i] = w.Message
	}
	return Started{Run: started.Run, Warnings: texts}, nil
}

// told gives the warnings that a run began with. Where they cannot be read, none: they are in its log all the same.
func (e *Engine) told(ctx context.Context, by hob.Principal, run hob.Run) (texts []string) {
	if run.ID == "" {
		return nil
	}
	events, err := e.Store.Events(ctx, by, run.ID, 0, storeBatch)
	if err != nil {
		return nil
	}
	for _, ev := range events {
		var w hob.WarningEvent
		switch {
		case ev.Type == hob.EventStepStarted:
			return texts
		case ev.Type == hob.EventWarning && json.Unmarshal(ev.Data, &w) == nil:
			texts = append(texts, w.Message)
		}
	}
	return texts
}

// doubtful says whether a write that failed with err may have happened all the same.
func doubtful(err error) bool {
	k := hob.KindOf(err)
	return k == hob.Internal || k == hob.Unavailable
}

// settleStart finds out whether a run was accepted by a commit whose answer was lost. Where that cannot be found out now,
// the run, if there is one, is taken up once the store is back.
func (e *Engine) settleStart(ctx context.Context, id hob.RunID, cause error) (hob.StartedRun, error) {
	st, err := e.Store.Load(context.WithoutCancel(ctx), id)
	if err == nil && st.Run.Epoch == 1 && st.Run.LeaseOwner == e.Owner {
		return hob.StartedRun{Run: st.Run}, nil
	}
	if hob.KindOf(err) == hob.NotFound {
		return hob.StartedRun{}, cause
	}
	unsure := hob.Errorf(hob.Unavailable, "the database cannot be reached, and the run may or may not have been accepted; "+
		"asked again with the same Idempotency-Key it is made once").WithCode("start_unknown")
	unsure.RetryAfter, unsure.Err = time.Second, cause
	return hob.StartedRun{}, unsure
}

// Cancel asks a run to end, on whatever process it is driven, and returns the state it was in. A finished run is left
// as it is.
func (e *Engine) Cancel(ctx context.Context, by hob.Principal, id hob.RunID) (hob.Status, error) {
	run, err := e.Store.RequestCancel(ctx, by, id, hob.CodeCancelled)
	if err != nil {
		return "", err
	}
	if a := e.find(id); a != nil {
		a.stop(errCancelled)
	} else {
		ring(e.wake) // one that waited for approvals is taken up to be ended
	}
	return run.Status, nil
}

// waitLook is how often Wait looks whether a run that asked for an approval has laid itself down.
const waitLook = 250 * time.Millisecond

// Wait returns the run once it is final, with its actions in the usage ledger, or once it rests because it waits for an
// approval. The caller counts as a reader of the run meanwhile.
func (e *Engine) Wait(ctx context.Context, by hob.Principal, id hob.RunID) (hob.Run, map[string]int64, error) {
	var last hob.Event
	asked := 0
	for batch, err := range e.Events(ctx, by, id, 0, waitLook) {
		if err != nil {
			return hob.Run{}, nil, err
		}
		for _, ev := range batch {
			switch last = ev; ev.Type { //nolint:exhaustive // the others ask nobody
			case hob.EventApprovalRequested:
				asked++
			case hob.EventApprovalResolved:
				asked--
			}
		}
		if asked > 0 && len(batch) == 0 {
			if run, err := e.Store.Run(ctx, by, id); err != nil || run.Status == hob.AwaitingApproval {
				return run, map[string]int64{}, err
			}
		}
	}
	end := struct {
		Actions map[string]int64 `json:"actions"`
	}{Actions: map[string]int64{}}
	if last.Type == hob.EventComplete { // else the run goes on elsewhere
		if err := json.Unmarshal(last.Data, &end); err != nil {
			return hob.Run{}, nil, hob.Wrap("read the end of a run", err)
		}
	}
	run, err := e.Store.Run(ctx, by, id)
	return run, end.Actions, err
}

// Stats are counters since the start of the process.
type Stats struct {
	Active, Started, Finished, Failed, Recovered int64
	// Model calls, those for summaries included, their tokens and what they cost, in billionths of a dollar.
	Calls, Tokens, Cost int64
	Summaries           int64 // model calls for summaries
	Parked              int64 // runs that ended as failed because they were interrupted too often
	Lost                int64 // runs driven here that the store did not take a commit of, because they were not ours any more
	// Tool calls carried out, those of them whose result is an error, and results that tell of an unknown outcome.
	ToolCalls, ToolsFailed, Unknown int64
	// Decisions of hooks, those of them that failed, and approvals that were asked for.
	HooksAsked, HooksFailed, ApprovalsAsked int64
	Admission
}

// Stats tells what this process drives and has driven.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	n := len(e.active)
	e.mu.Unlock()
	return Stats{
		Active: int64(n), Started: e.started.Load(), Finished: e.finished.Load(), Failed: e.failed.Load(), Recovered: e.recovered.Load(),
		Calls: e.calls.Load(), Tokens: e.tokens.Load(), Cost: e.cost.Load(), Summaries: e.summaries.Load(),
		Parked: e.parked.Load(), Lost: e.fenced.Load(),
		ToolCalls: e.toolCalls.Load(), ToolsFailed: e.toolsFailed.Load(), Unknown: e.unknown.Load(),
		HooksAsked: e.hooksAsked.Load(), HooksFailed: e.hooksFailed.Load(), ApprovalsAsked: e.approvalsAsked.Load(),
		Admission: e.admission.stats(),
	}
}

// launch drives an admitted run in a goroutine of its own, which is the only one to touch the run.
func (e *Engine) launch(a *active) {
	e.group.Go(func() {
		ours := a.drive()
		err := a.log.failure()
		if e.forget(a); !ours && !errors.Is(a.cause(), errHandover) { // those are released all at once
			e.giveBack(a.id, err)
		}
		if a.rested.Load() {
			ring(e.wake) // it may have been decided before it lay down
		}
	})
}

func (e *Engine) forget(a *active) {
	a.close()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active[a.id] == a {
		delete(e.active, a.id)
		e.admission.leave(a.object.Workspace)
	}
}

func (e *Engine) find(id hob.RunID) *active {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active[id]
}

func (e *Engine) all() []*active {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.active))
}

// The causes for which the context of an active run ends.
var (
	errNotAccepted = errors.New("the run was not accepted")
	errCancelled   = errors.New("Run cancelled")                //nolint:staticcheck // shown to people as it is
	errLeft        = errors.New("The client disconnected")      //nolint:staticcheck // shown to people as it is
	errTimeout     = errors.New("The run took too long")        //nolint:staticcheck // shown to people as it is
	errLost        = errors.New("the run is not ours any more") // fenced, or the store failed: write nothing
	errHandover    = errors.New("the process is ending")        // another process goes on
)
