package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"hob"
	"hob/internal/engine"
)

// rig is a store on which trials are made, one after the other.
type rig struct {
	store  hob.Store
	models hob.ModelOpener
}

// play is what a trial does.
type play struct {
	name     string
	script   string
	settings map[string]any // beside the script
	tools    []string
	options  hob.RunOptions
	limits   engine.Limits
	before   bool   // a turn of the session was made before, without faults
	keyed    bool   // the client has an idempotency key, and asks again after an error
	leaves   bool   // the client leaves at the first tool_call
	hang     string // what happens when a tool hangs: "cancel", "cancel elsewhere", "handover", "" for nothing
	hooks    []hob.Hook
	says     func(hob.Approval) engine.DecideInput // what a person decides; nil: nobody does
	cancels  bool                                  // the run is cancelled once it has asked somebody
	ends     []end                                 // how the run may end
	pairs    bool                                  // each recovery is crashed at each of its operations
	least    int                                   // points of each mode that there are at least
}

// end is the state of a run that has ended.
type end struct {
	status hob.Status
	code   string
}

// trial is one play with faults in it, over as many processes as it takes.
type trial struct {
	rig   *rig
	play  play
	by    hob.Principal
	agent hob.Agent

	session hob.SessionID
	came    chan hob.RunID // a tool hangs
	news    chan hob.RunID // what the process now is told of
	leave   chan struct{}  // the process now is to end in good order

	mu       sync.Mutex
	faults   []crash
	count    int
	met      []hit
	trace    []string
	deeds    []hob.Call
	marks    map[string]bool    // of the tool local, by key: what it looks for in the transaction of its effect
	effects  map[hob.CallID]int // of the tool local
	calls    int                // model calls
	open     map[hob.RunID]bool
	now      *process
	moved    chan struct{} // closed at the next change of open or now
	gone     bool          // no further process comes
	accepted hob.RunID     // the run that the client was told of
	seen     []hob.Event   // by the client
	starts   int           // processes so far
	lates    int           // operations that are yet to arrive
	sent     []hob.HookRequest
	made     []hob.Hook                    // the agent's
	said     map[string]hob.ApprovalStatus // what people were told that they have decided, by approval
	wrongs   []error                       // what was wrong while it was played
}

// process is one process of a trial.
type process struct {
	trial  *trial
	number int // from 1
	engine *engine.Engine
	died   chan struct{}
	under  sync.WaitGroup // operations under way
	end    context.CancelFunc
	served chan struct{}

	dead bool // guarded by trial.mu
}

func (p *process) die() {
	p.trial.mu.Lock()
	defer p.trial.mu.Unlock()
	p.dieLocked()
}

func (p *process) dieLocked() {
	if !p.dead {
		p.dead = true
		close(p.died)
	}
}

func (p *process) isDead() bool {
	p.trial.mu.Lock()
	defer p.trial.mu.Unlock()
	return p.dead
}

func (c *trial) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.moved)
	c.moved = make(chan struct{})
}

func (c *trial) began(id hob.RunID) { c.change(func() { c.open[id] = true }) }
func (c *trial) ended(id hob.RunID) { c.change(func() { delete(c.open, id) }) }

func (c *trial) called() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
}

// acted notes a deed and says which of its tool it is.
func (c *trial) acted(call hob.Call) (nth int) {
	err := c.covered(call)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deeds = append(c.deeds, call); err != nil {
		c.wrongs = append(c.wrongs, err)
	}
	if call.Name == "local" && !c.marks[call.Key] {
		c.marks[call.Key] = true
		c.effects[call.ID]++
	}
	for _, d := range c.deeds {
		if d.Name == call.Name {
			nth++
		}
	}
	return nth
}

// state gives the runs under way, and whether an operation of a living process has failed.
func (c *trial) state() (open []hob.RunID, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.open {
		open = append(open, id)
	}
	return open, slices.ContainsFunc(c.met, func(h hit) bool { return h.mode.live() })
}

// start begins a process as a fresh one would. One that cannot take up what is unfinished ends at once, as the program does.
func (c *trial) start() *process {
	p := &process{trial: c, died: make(chan struct{}), served: make(chan struct{})}
	limits := c.play.limits
	limits.Attempts = 1000
	if limits.Lease == 0 {
		limits.Lease = 1500 * time.Millisecond
	}
	c.starts++
	p.number = c.starts
	p.engine = engine.New(engine.Config{
		Store: &seamStore{p: p, inner: c.rig.store}, Models: p.models, Toolsets: []hob.Toolset{seamTools{p}}, Limits: limits, Hooks: seamHooks{p},
		Settings: p.settings, Alone: true, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	p.end = cancel
	if err := p.engine.Recover(ctx); err != nil {
		p.die()
		close(p.served)
	} else {
		go func() {
			defer close(p.served)
			p.engine.Serve(ctx)
		}()
	}
	c.change(func() { c.now = p })
	return p
}

// stop ends a process: in good order, or what is left of a dead one.
func (p *process) stop() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.engine.Drain(now)
	p.end() // leases are looked after until the last run is handed over
	<-p.served
	p.die()
	p.under.Wait()
}

// living waits for a process that lives; false when none comes.
func (c *trial) living(ctx context.Context) (*process, bool) {
	for {
		c.mu.Lock()
		p, moved, gone := c.now, c.moved, c.gone
		dead := p == nil || p.dead
		c.mu.Unlock()
		switch {
		case gone:
			return nil, false
		case !dead:
			return p, true
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// settled waits until no run and nothing late is under way.
func (c *trial) settled(ctx context.Context) bool {
	for {
		c.mu.Lock()
		n, moved := len(c.open)+c.lates, c.moved
		c.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

// trialTime bounds one trial; a run that is not over by then is lost.
const trialTime = 30 * time.Second

// try makes a trial and says what its faults met.
func (r *rig) try(p play, faults ...crash) (c *trial, err error) {
	c = &trial{
		rig: r, play: p, by: hob.System(hob.DefaultWorkspace), open: map[hob.RunID]bool{}, moved: make(chan struct{}),
		marks: map[string]bool{}, effects: map[hob.CallID]int{}, said: map[string]hob.ApprovalStatus{},
		came: make(chan hob.RunID, 8), news: make(chan hob.RunID, 8), leave: make(chan struct{}, 1),
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: faults %v met %v: %w\n\tprocesses: %d, operations: %s",
				p.name, faults, c.met, err, c.starts, strings.Join(c.trace, ", "))
		}
	}()
	if err := c.prepare(); err != nil {
		return c, err
	}
	c.faults = faults
	ctx, cancel := context.WithTimeout(context.Background(), trialTime)
	defer cancel()
	return c, errors.Join(c.run(ctx), c.check(ctx))
}

func (c *trial) prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), trialTime)
	defer cancel()
	settings := map[string]any{"script": c.play.script}
	for k, v := range c.play.settings {
		settings[k] = v
	}
	raw, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	if c.agent, err = c.rig.store.CreateAgent(ctx, c.by, hob.Agent{Name: "tester", Model: "scripted", Settings: raw}); err != nil {
		return err
	}
	for _, name := range c.play.tools {
		a := hob.Assignment{Agent: c.agent.ID, ToolType: "builtin", ToolName: name, ConfigOverride: json.RawMessage(`{}`)}
		if _, err := c.rig.store.Assign(ctx, c.by, a); err != nil {
			return err
		}
	}
	for _, h := range c.play.hooks {
		h.Agent, h.Enabled = c.agent.ID, true
		h.Config.IncludeRunContext = h.Type == hob.HTTPHook
		made, err := c.rig.store.CreateHook(ctx, c.by, h)
		if err != nil {
			return err
		}
		c.made = append(c.made, made)
	}
	if !c.play.before {
		return nil
	}
	p := c.start()
	got, err := p.engine.Start(ctx, c.by, engine.StartInput{Agent: c.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "before"}})
	if err == nil {
		c.session = got.Run.Session
		c.settled(ctx)
	}
	if p.stop(); err != nil {
		return err
	}
	c.deeds, c.calls, c.starts, c.trace, c.count = nil, 0, 0, nil, 0
	return nil
}

// run plays it to its end: a process is started wherever one died.
func (c *trial) run(ctx context.Context) error {
	over := make(chan error, 1)
	actors, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { c.meddle(actors) })
	if slices.ContainsFunc(c.made, func(h hob.Hook) bool { return h.Type == hob.ApprovalHook }) {
		group.Go(func() { c.people(actors) })
	}
	group.Go(func() {
		err := c.client(ctx)
		if err == nil && !c.settled(ctx) {
			err = errors.New("a run did not come to its end")
		}
		over <- err
	})
	defer group.Wait()
	defer stop()
	p := c.start()
	for {
		select {
		case <-p.died:
			p.stop()
			p = c.start()
		case <-c.leave:
			p.stop()
			p = c.start()
		case err := <-over:
			p.rest()
			c.change(func() { c.gone = true })
			p.stop()
			c.settled(ctx)
			return err
		}
	}
}

// rest lets a process whose operation failed do what it has to do about it.
func (p *process) rest() {
	if _, failed := p.trial.state(); !failed {
		return
	}
	for range 500 {
		if p.engine.Stats().Active == 0 || p.isDead() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(3 * time.Millisecond)
}

// client starts the run and reads it to its end, as one outside does: what fails it asks for again where it may.
func (c *trial) client(ctx context.Context) error {
	in := engine.StartInput{
		Agent: c.agent.ID, Session: c.session, Options: c.play.options, Message: hob.Message{Role: hob.RoleUser, Content: "go"},
	}
	if c.play.keyed {
		in.Idempotency = &hob.Idempotency{Scope: string(c.agent.ID), Key: "k", Digest: "d", Keep: time.Hour}
	}
	for {
		p, ok := c.living(ctx)
		if !ok || ctx.Err() != nil {
			return errors.New("no process came to take the run")
		}
		got, err := p.engine.Start(ctx, c.by, in)
		if err == nil {
			c.accepted = got.Run.ID
			break
		}
		if !c.play.keyed {
			return nil // asked again it could be made twice
		}
		if k := hob.KindOf(err); k != hob.Unavailable && k != hob.Internal {
			return fmt.Errorf("the repeated start: %w", err)
		}
		pause(ctx)
	}
	if c.play.leaves {
		if err := c.follow(ctx, hob.EventToolCall); err != nil {
			return err
		}
		c.settled(ctx)
	}
	return c.follow(ctx, hob.EventComplete)
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Millisecond):
	}
}

// follow reads on from what was seen, on whatever process there is, up to an event of a type.
func (c *trial) follow(ctx context.Context, last hob.EventType) error {
	for {
		p, ok := c.living(ctx)
		if !ok || ctx.Err() != nil {
			return fmt.Errorf("the reader came to event %d, and no further", len(c.seen))
		}
		at := int64(0)
		if n := len(c.seen); n > 0 {
			if at = c.seen[n-1].Seq; c.seen[n-1].Type == hob.EventComplete {
				return nil
			}
		}
		for batch, err := range p.engine.Events(ctx, c.by, c.accepted, at, 0) {
			if k := hob.KindOf(err); k != "" && k != hob.Unavailable && k != hob.Internal {
				return fmt.Errorf("reading behind %d: %w", at, err)
			}
			c.seen = append(c.seen, batch...)
			if slices.ContainsFunc(batch, func(ev hob.Event) bool { return ev.Type == last || ev.Type == hob.EventComplete }) {
				return nil
			}
		}
		pause(ctx)
	}
}

// meddle does what the play wants when a tool hangs.
func (c *trial) meddle(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-c.came:
			switch c.play.hang {
			case "cancel":
				c.cancel(ctx, id)
			case "cancel elsewhere":
				if _, err := c.rig.store.RequestCancel(ctx, c.by, id, hob.CodeCancelled); err == nil {
					c.news <- id
				}
			case "handover":
				c.leave <- struct{}{}
			}
		}
	}
}

// cancel asks until it is told that the run will end.
func (c *trial) cancel(ctx context.Context, id hob.RunID) {
	for {
		p, ok := c.living(ctx)
		if !ok || ctx.Err() != nil {
			return
		}
		if _, err := p.engine.Cancel(ctx, c.by, id); err == nil {
			return
		}
		pause(ctx)
	}
}
