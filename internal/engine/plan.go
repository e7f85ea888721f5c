package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"hob"
)

// plan is what a run will be driven with: frozen before any content is read.
type plan struct {
	run      hob.Run
	session  hob.Session
	pin      hob.Pin
	pinned   json.RawMessage // pin, encoded
	tools    map[string]*tool
	model    hob.Model
	settings hob.Settings
	tuning   hob.Tuning
	past     hob.History // earlier turns
	knobs    knobs
	format   *format   // of the answer, nil where any will do
	before   hob.Usage // of the agent in the period of its budget, before this run
	own      []hob.Message
	calls    []hob.CallState
	actions  map[string]int64 // of the run in the ledger so far
	warnings []hob.WarningEvent
	attempt  *hob.AttemptEvent // set when a run is taken up again
	woken    bool              // it had laid itself down: nothing was interrupted
	hooks    []*hook
	told     []hob.HookResultEvent // by an earlier process of the run
	asked    []hob.Approval        // the same
}

// tool is one of the run's tools: as it was frozen, and what carries it out now.
type tool struct {
	spec   hob.ToolSpec
	schema *schema
	rules  *Rules         // of its assignment, nil where there are none
	runner hob.ToolRunner // nil: gone since the run started
}

// prepare checks a request and gathers everything the run needs. It writes nothing.
func (e *Engine) prepare(ctx context.Context, by hob.Principal, in StartInput) (*plan, error) {
	agent, err := e.Store.Agent(ctx, by, in.Agent)
	if err != nil {
		return nil, err
	}
	object := hob.Object{Kind: hob.AgentObject, Workspace: agent.Workspace, Owner: agent.Owner, Agent: agent.ID}
	if err := hob.Can(by, hob.ScopeRun, object); err != nil {
		return nil, err
	}
	if err := in.Options.Validate(); err != nil {
		return nil, err
	}
	p := &plan{pin: hob.Pin{Agent: agent}, own: []hob.Message{in.Message}}
	p.warn("request", in.Warnings...)
	if err := e.resolve(ctx, p, in.Options, agent.Model); err != nil {
		return nil, err
	}
	if err := e.allot(ctx, p); err != nil {
		return nil, err
	}
	if err := e.join(ctx, by, p, in.Session); err != nil {
		return nil, err
	}
	if err := e.armHooks(ctx, p); err != nil {
		return nil, err
	}
	if err := e.equip(ctx, by, p, in.Options.NoTools); err != nil {
		return nil, err
	}
	if p.settings.WebSearch && p.guards(settingSearch) {
		p.warn("web_search_off", "the setting web_search has no effect: hooks are to be asked about searches, and the provider asks nobody; give the agent a web tool")
	}
	p.pinned = encodeFrame(p.pin)
	now := hob.Time{Time: e.Clock()}
	p.run = hob.Run{
		ID: hob.NewRunID(), Workspace: by.Workspace, Agent: agent.ID, Session: p.session.ID, Principal: by,
		Model: agent.Model, Options: in.Options, Status: hob.Running, CreatedAt: now, StartedAt: now,
		LeaseOwner: e.Owner, Epoch: 1, Attempt: 1, NewSession: p.session.UUID == "",
	}
	return p, nil
}

// resolve reads the agent's settings under the request's and finds the model.
func (e *Engine) resolve(ctx context.Context, p *plan, o hob.RunOptions, model string) error {
	var err error
	if p.settings, err = hob.ParseSettings(p.pin.Agent.Settings); err != nil {
		return err
	}
	p.tuning = o.Over(p.settings.Tuning)
	if o.ReasoningRequested != nil {
		switch {
		case !*o.ReasoningRequested:
			p.tuning.ReasoningEffort = hob.EffortNone
		case p.tuning.ReasoningEffort == "" || p.tuning.ReasoningEffort == hob.EffortNone:
			p.tuning.ReasoningEffort = hob.EffortMedium
		}
	}
	if p.format, err = e.formatOf(p.tuning.ResponseFormat); err != nil {
		return err
	}
	if p.knobs, err = e.knobsOf(ctx, p.pin.Agent.Workspace); err != nil {
		return err
	}
	if p.model, err = e.Models(ctx, p.pin.Agent.Workspace, model); err != nil {
		return err
	}
	if effort := p.tuning.ReasoningEffort; effort != "" && effort != hob.EffortNone && !p.model.Effort {
		p.warn("request", "reasoning_effort has no effect: "+model+" is not known to take one; hob provider test finds out whether its server does")
	}
	return nil
}

// join finds the session and its earlier turns; a session that is not there yet is made when the run is accepted.
func (e *Engine) join(ctx context.Context, by hob.Principal, p *plan, id hob.SessionID) error {
	agent := p.pin.Agent.ID
	p.session = hob.Session{ID: id, Workspace: by.Workspace, Agent: &agent, Owner: by.Owner()}
	if id == "" {
		p.session.ID = hob.NewSessionID()
		return nil
	}
	s, err := e.Store.Session(ctx, by, id)
	if hob.KindOf(err) == hob.NotFound {
		return nil // absent, or somebody else's: StartRun tells them apart
	}
	if err != nil {
		return err
	}
	p.session = s
	if p.past, err = e.history(ctx, by, s, s.Turns+1, historyBudget(p.window())); err == nil && p.past.Cut {
		p.warn("history_cut", "the session's oldest turns are more than can be summarised at once; the model does not see them")
	}
	return err
}

// warn adds warnings, which the run's readers get behind start.
func (p *plan) warn(code string, texts ...string) {
	for _, t := range texts {
		p.warnings = append(p.warnings, hob.WarningEvent{Code: code, Message: t})
	}
}

// equip finds the agent's tools and freezes them. A run without tools only says that there are some.
func (e *Engine) equip(ctx context.Context, by hob.Principal, p *plan, none bool) error {
	if none {
		assigned, err := e.Store.Scope(ctx, by, p.pin.Agent.ID)
		if n := len(assigned); n > 0 {
			p.warn("tools_not_used", fmt.Sprintf(`the agent's tools (%d) are not used in this run; send "tools": true to use them`, n))
		}
		return err
	}
	runners, warnings, err := e.toolsOf(ctx, by, p)
	if err != nil {
		return err
	}
	p.warn("tool_unavailable", warnings...)
	p.tools = make(map[string]*tool, len(runners))
	p.pin.Tools = make([]hob.ToolSpec, 0, len(runners))
	for _, r := range runners {
		spec := r.Spec()
		if p.tools[spec.Name] != nil {
			p.warn("tool_unavailable", "two tools are named "+spec.Name+"; only the first is used")
			continue
		}
		s, err := e.schemas.get(fullSchema(spec))
		if err != nil {
			p.warn("tool_unavailable", "the tool "+spec.Name+" has an unusable input schema: "+err.Error())
			continue
		}
		rules, err := e.rules.of(spec.Rules)
		if err != nil {
			p.warn("tool_unavailable", "the tool "+spec.Name+" has unusable rules: "+reason(err))
			continue
		}
		p.tools[spec.Name] = &tool{spec: spec, schema: s, rules: rules, runner: r}
		p.pin.Tools = append(p.pin.Tools, spec)
	}
	return nil
}

// toolsOf finds the tools of a run's agent. A model that can search the web only where no functions are offered does so
// only where none are: beside others its search is a function too, and so is one about which hooks are to be asked.
func (e *Engine) toolsOf(ctx context.Context, by hob.Principal, p *plan) ([]hob.ToolRunner, []string, error) {
	assigned, err := e.Store.Scope(ctx, by, p.pin.Agent.ID)
	if err != nil || len(assigned) == 0 {
		return nil, nil, err
	}
	grant := grantOf(by, p.pin.Agent, assigned, p.model)
	all, warnings, err := e.load(ctx, grant)
	if err == nil && (p.model.SearchAlone && mixed(all) || p.guardsSearch(all)) {
		grant.WebSearch = false
		all, warnings, err = e.load(ctx, grant)
	}
	return all, warnings, err
}

func grantOf(by hob.Principal, agent hob.Agent, assigned []hob.AssignedTool, m hob.Model) hob.Grant {
	return hob.Grant{Principal: by, Agent: agent, Assigned: assigned, WebSearch: m.Search, SearchDomains: m.SearchDomains}
}

// Grant is what the agent's next run may use of some tools. Where its model cannot be opened, no provider searches.
func (e *Engine) Grant(ctx context.Context, by hob.Principal, agent hob.Agent, assigned []hob.AssignedTool) (hob.Grant, error) {
	m, err := e.Models(ctx, agent.Workspace, agent.Model)
	if err != nil {
		return grantOf(by, agent, assigned, hob.Model{}), ctx.Err()
	}
	grant := grantOf(by, agent, assigned, m)
	p := &plan{pin: hob.Pin{Agent: agent}}
	if err := e.armHooks(ctx, p); err != nil {
		return grant, err
	}
	if len(assigned) == 0 || !m.SearchAlone && len(p.hooks) == 0 {
		return grant, nil
	}
	all, _, err := e.load(ctx, grant)
	grant.WebSearch = grant.WebSearch && (!m.SearchAlone || !mixed(all)) && !p.guardsSearch(all)
	return grant, err
}

// load asks every toolset for a grant's tools.
func (e *Engine) load(ctx context.Context, g hob.Grant) ([]hob.ToolRunner, []string, error) {
	var all []hob.ToolRunner
	var warnings []string
	for _, set := range e.Toolsets {
		tools, warn, err := set.Tools(ctx, g)
		if err != nil {
			return nil, nil, err
		}
		all, warnings = append(all, tools...), append(warnings, warn...)
	}
	// The order never changes between runs, so that providers find the same prompt prefix in their caches.
	slices.SortStableFunc(all, func(a, b hob.ToolRunner) int {
		x, y := a.Spec(), b.Spec()
		return cmp.Or(cmp.Compare(rank(x.Kind), rank(y.Kind)), cmp.Compare(x.Name, y.Name))
	})
	return all, warnings, nil
}

// mixed says whether there are functions beside what the provider carries out by itself.
func mixed(tools []hob.ToolRunner) bool {
	native := 0
	for _, t := range tools {
		if t.Spec().Native {
			native++
		}
	}
	return native > 0 && native < len(tools)
}

func rank(k hob.ToolKind) int {
	return slices.Index([]hob.ToolKind{
		hob.BuiltinTool, hob.KnowledgeTool, hob.WebTool, hob.HTTPTool, hob.MCPTool, hob.DelegateTool,
	}, k)
}

// retake gathers what a run needs that another process, or this one before it ended, has left behind. Tools keep the
// form in which they were frozen; what carries them out is looked up anew, and a tool that is gone or was replaced
// cannot be called any more.
func (e *Engine) retake(ctx context.Context, c hob.Claimed) (*plan, error) {
	s, err := e.Store.Load(ctx, c.Run)
	if err != nil {
		return nil, err
	}
	p := &plan{run: s.Run, own: s.Messages, calls: s.Calls, actions: s.Actions}
	p.attempt = &hob.AttemptEvent{Attempt: s.Run.Attempt, Step: s.Step, VoidFrom: s.VoidFrom}
	p.woken, p.told, p.asked = s.Run.Attempt <= max(s.Told, 1), s.Hooks, s.Approvals
	p.run.Epoch, p.run.LeaseOwner = c.Epoch, e.Owner
	if err := json.Unmarshal(s.Pin, &p.pin); err != nil {
		return p, hob.Wrap("read the run's frozen tools", err)
	}
	p.pin.Agent.ID, p.pin.Agent.Workspace = s.Run.Agent, s.Run.Workspace
	if err := e.resolve(ctx, p, s.Run.Options, s.Run.Model); err != nil {
		return p, err
	}
	by := hob.System(s.Run.Workspace)
	if p.session, err = e.Store.Session(ctx, by, s.Run.Session); err != nil {
		return p, err
	}
	if p.past, err = e.history(ctx, by, p.session, s.Run.Turn, historyBudget(p.window())); err != nil {
		return p, err
	}
	if err := e.allot(ctx, p); err != nil && hob.KindOf(err) != hob.RateLimited { // a run once accepted comes to an answer
		return p, err
	}
	if err := e.rearmHooks(ctx, p); err != nil {
		return p, err
	}
	live := map[string]hob.ToolRunner{}
	if len(p.pin.Tools) > 0 {
		runners, _, err := e.toolsOf(ctx, by, p)
		if err != nil && hob.KindOf(err) != hob.NotFound {
			return p, err
		}
		for _, r := range runners {
			live[r.Spec().Name] = r
		}
	}
	p.tools = make(map[string]*tool, len(p.pin.Tools))
	for _, spec := range p.pin.Tools {
		t := &tool{spec: spec}
		if t.schema, err = e.schemas.get(fullSchema(spec)); err != nil {
			return p, err
		}
		if t.rules, err = e.rules.of(spec.Rules); err != nil {
			return p, err
		}
		if r := live[spec.Name]; r != nil && r.Spec().Ref == spec.Ref {
			t.runner = r
		}
		p.tools[spec.Name] = t
	}
	return p, nil
}

func fullSchema(s hob.ToolSpec) json.RawMessage {
	if len(s.FullSchema) > 0 {
		return s.FullSchema
	}
	return s.Schema
}
