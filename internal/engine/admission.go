package engine

import (
	"sync"
	"time"

	"hob"
)

// Numbers of the shares of workspaces.
const (
	askedFor   = 5 * time.Second // a workspace that asked within it has a share, even without a run
	spareShare = 4               // one over so many of the places is left to those that do not hold their share
)

// Codes of refusals, for programs.
const (
	codeOverloaded    = "overloaded"     // the server is full
	codeWorkspaceBusy = "workspace_busy" // the workspace holds its share of a server that others need too
	codeShuttingDown  = "shutting_down"
)

// retryAfter is when a refused caller may ask again.
const retryAfter = time.Second

// admission gives runs their places before anything of them is stored. A run holds a place among those that start until
// it is durable, of which there are as many as pace allows, and one among the active runs until it ends. What waits for a
// slow model only holds the latter.
//
// Both kinds are shared fairly: a workspace's share is the places by the workspaces that hold any or asked lately, so that
// one alone may hold all of them. A workspace over its share may borrow while more than a quarter of the places is free;
// then it is refused with workspace_busy, and what becomes free goes to those below their share, however often it asks. A
// workspace below its share is refused only where no place is left, with overloaded.
//
// Runs taken up from elsewhere were accepted before: they count, and only the limit of active runs keeps them out.
type admission struct {
	mu      sync.Mutex
	pace    pace
	limit   int // places of active runs
	runs    int // of these taken
	starts  int // places of starting runs taken
	tenants map[hob.WorkspaceID]*tenant
	closed  bool

	full, busy, ending int64 // refusals by cause
}

// tenant is a workspace that holds places or asked for one lately.
type tenant struct {
	runs, starts int
	asked        time.Time
}

func newAdmission(limit int) *admission {
	return &admission{pace: newPace(), limit: limit, tenants: map[hob.WorkspaceID]*tenant{}}
}

// Admission is what was refused since the start of the process, by cause, and what bounds new runs now.
type Admission struct {
	Starting, Bound int64         // runs that start now, and that may
	Delay           time.Duration // of the median durable write, in the last interval with any
	// Refused for want of places, for a workspace's share, and at the end of the process.
	Overloaded, WorkspaceBusy, ShuttingDown int64
}

func (g *admission) stats() Admission {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roll(monotonic())
	return Admission{
		Starting: int64(g.starts), Bound: int64(g.pace.bound), Delay: g.pace.delay,
		Overloaded: g.full, WorkspaceBusy: g.busy, ShuttingDown: g.ending,
	}
}

// look says why a workspace's next run would be refused now, and counts that as a refusal.
func (g *admission) look(ws hob.WorkspaceID, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.judge(ws, now)
}

// enter takes a place for a workspace, or says why there is none. Whoever enters calls begun once the run is durable, or is
// not going to be.
func (g *admission) enter(ws hob.WorkspaceID, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.judge(ws, now); err != nil {
		return err
	}
	g.take(ws)
	g.starts++
	g.tenant(ws).starts++
	return nil
}

// begun ends a start.
func (g *admission) begun(ws hob.WorkspaceID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.starts--
	g.tenant(ws).starts--
}

// resume takes a place for a run that was accepted before.
func (g *admission) resume(ws hob.WorkspaceID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return refusal(hob.Unavailable, textShuttingDown, codeShuttingDown)
	case g.runs >= g.limit:
		return refusal(hob.Unavailable, textOverloaded, codeOverloaded)
	}
	g.take(ws)
	return nil
}

func (g *admission) take(ws hob.WorkspaceID) {
	g.runs++
	g.tenant(ws).runs++
}

// leave gives a place back.
func (g *admission) leave(ws hob.WorkspaceID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs--
	g.tenant(ws).runs--
}

// close refuses everything from now on.
func (g *admission) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// over says whether everything is refused.
func (g *admission) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// room is how many runs may be taken up from elsewhere now. An overloaded server takes fewer up, but some, so that they do
// not wait for the end of its overload.
func (g *admission) room() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0
	}
	return min(g.limit-g.runs, g.pace.bound)
}

// took notes how long a durable write took.
func (g *admission) took(d time.Duration, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roll(now)
	g.pace.add(d)
}

// What callers are told.
const (
	textOverloaded   = "the server drives as many runs as it can now; try again in a moment"
	textBusy         = "the workspace has its share of a busy server; try again when some of its runs have ended"
	textShuttingDown = "the server is shutting down; try again in a moment"
)

func (g *admission) judge(ws hob.WorkspaceID, now time.Time) error {
	g.roll(now)
	if g.closed {
		g.ending++
		return refusal(hob.Unavailable, textShuttingDown, codeShuttingDown)
	}
	t := g.tenant(ws)
	t.asked = now
	short, over := places{g.pace.bound, g.starts, t.starts}.short(len(g.tenants))
	if short {
		g.pace.refuse(now)
	} else {
		short, over = places{g.limit, g.runs, t.runs}.short(len(g.tenants))
	}
	switch {
	case !short:
		return nil
	case over:
		g.busy++
		return refusal(hob.RateLimited, textBusy, codeWorkspaceBusy)
	}
	g.full++
	return refusal(hob.Unavailable, textOverloaded, codeOverloaded)
}

// places are those of one kind, as a workspace sees them that holds some of them.
type places struct{ all, taken, held int }

// short says whether the workspace gets no further place, and whether it holds its share, where others want places too.
func (p places) short(workspaces int) (short, over bool) {
	share := (p.all + workspaces - 1) / workspaces
	over = workspaces > 1 && p.held >= share
	free := p.all - p.taken
	return free <= 0 || over && free <= p.all/spareShare, over
}

func refusal(kind hob.Kind, text, code string) error {
	err := hob.Errorf(kind, "%s", text).WithCode(code)
	err.RetryAfter = retryAfter
	return err
}

func (g *admission) tenant(ws hob.WorkspaceID) *tenant {
	t := g.tenants[ws]
	if t == nil {
		t = &tenant{}
		g.tenants[ws] = t
	}
	return t
}

// roll ends an interval of pace where its time is over, and forgets workspaces that want nothing any more.
func (g *admission) roll(now time.Time) {
	if !g.pace.roll(now, g.starts, g.runs) {
		return
	}
	for ws, t := range g.tenants {
		if t.runs == 0 && t.starts == 0 && now.Sub(t.asked) >= askedFor {
			delete(g.tenants, ws)
		}
	}
}

// Busy says, before a request is read, why a run of the workspace would be refused now; nil is no promise. Errors:
// Unavailable (overloaded, shutting_down) and RateLimited (workspace_busy), both with RetryAfter.
func (e *Engine) Busy(ws hob.WorkspaceID) error { return e.admission.look(ws, monotonic()) }

// monotonic is the time by which delays are measured.
func monotonic() time.Time { return time.Now() } //nolint:forbidigo // hob.Clock cuts to µs and may be set back

// admit gives an active run its place, or refuses it. An admitted run is waited for by Drain; whoever admits it calls
// group.Done once it is launched or given up.
func (e *Engine) admit(a *active) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch old := e.active[a.id]; {
	case old == nil:
	case old.rested.Load(): // it was woken before who laid it down has gone
		delete(e.active, a.id)
		e.admission.leave(old.object.Workspace)
	default:
		return hob.Errorf(hob.Conflict, "run %s is already driven here", a.id)
	}
	var err error
	if a.plan.attempt == nil {
		err = e.admission.enter(a.object.Workspace, monotonic())
	} else {
		err = e.admission.resume(a.object.Workspace)
	}
	if err == nil {
		e.active[a.id] = a
		e.group.Add(1)
	}
	return err
}

// written tells admission how long a durable write took that was begun at a time.
func (e *Engine) written(began time.Time, err error) {
	if now := monotonic(); err == nil {
		e.admission.took(now.Sub(began), now)
	}
}
