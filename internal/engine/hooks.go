package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"hob"
)

// Hooks are asked at the events of a run. A decision is a fold: pass < allow < ask < deny, the greatest counts. The rule and
// http hooks of an event come first, in the order of their positions, each with what those before it changed, up to the
// first that denies; then people are asked, about what is left. What a hook decided is in the log, with what it changed in
// the same commit: a run that is taken up again asks nobody twice.

// hook is one of the run's: as it was frozen, and what judges it now.
type hook struct {
	hob.Hook
	rules *Rules
	gone  bool // its row is gone since the run started, and with it its secrets
}

// armHooks freezes the agent's enabled hooks for a new run.
func (e *Engine) armHooks(ctx context.Context, p *plan) error {
	if p.pin.Agent.Hooks == 0 {
		return nil
	}
	live, err := e.Store.Hooks(ctx, hob.System(p.pin.Agent.Workspace), p.pin.Agent.ID)
	if err != nil {
		return err
	}
	for _, h := range live {
		if h.Enabled {
			h.Agent = ""
			p.pin.Hooks = append(p.pin.Hooks, h)
		}
	}
	return p.arm(e, live)
}

// rearmHooks finds what the frozen hooks of a run need beside what was frozen: their secrets.
func (e *Engine) rearmHooks(ctx context.Context, p *plan) error {
	if len(p.pin.Hooks) == 0 {
		return nil
	}
	live, err := e.Store.Hooks(ctx, hob.System(p.run.Workspace), p.run.Agent)
	if err != nil && hob.KindOf(err) != hob.NotFound {
		return err
	}
	return p.arm(e, live)
}

func (p *plan) arm(e *Engine, live []hob.Hook) error {
	p.hooks = make([]*hook, 0, len(p.pin.Hooks))
	for _, frozen := range p.pin.Hooks {
		h := &hook{Hook: frozen, gone: true}
		for i := range live {
			if live[i].ID == h.ID {
				h.Config, h.gone = live[i].Config, false
			}
		}
		if h.Type == hob.RuleHook {
			var err error
			if h.rules, err = e.rules.of(h.AllRules()); err != nil {
				return hob.Wrap("read the rules of hook "+string(h.ID), err)
			}
		}
		p.hooks = append(p.hooks, h)
	}
	return nil
}

// guardsSearch says whether hooks are to be asked about searches of the web, so that the model's provider may not make them
// by itself: it asks nobody.
func (p *plan) guardsSearch(tools []hob.ToolRunner) bool {
	return slices.ContainsFunc(tools, func(t hob.ToolRunner) bool {
		spec := t.Spec()
		return spec.Native && p.guards(spec.Name)
	})
}

// guards says whether hooks are asked before or after calls of a tool.
func (p *plan) guards(tool string) bool {
	return p.hooked(hob.PreToolUse, tool) || p.hooked(hob.PostToolUse, tool)
}

// hooked says whether a hook is asked at an event, about the named tool where the event is of tools.
func (p *plan) hooked(event hob.HookEvent, tool string) bool {
	for _, h := range p.hooks {
		if h.Event == event && h.Matches(tool) {
			return true
		}
	}
	return false
}

// edited says whether a hook or an approver has changed what an event, of a call where it is of calls, is about.
func (a *active) edited(event hob.HookEvent, call hob.CallID) bool {
	for _, p := range a.approvals {
		if p.HookEvent == event && p.CallID == call && p.Settled && p.Status == hob.ApprovalApproved && p.ModifiedInput != nil {
			return true
		}
	}
	a.asking.mu.Lock()
	defer a.asking.mu.Unlock()
	for k, r := range a.asking.done {
		if k.event == event && k.call == call && r.Modified {
			return true
		}
	}
	return false
}

// occasion is an event of a run at which hooks are asked.
type occasion struct {
	event  hob.HookEvent
	call   *hob.CallState // nil where the event is not about a call
	tool   *tool
	data   json.RawMessage // the input as it is now
	output *string         // the output as it is now, nil where the event has none
	// changed says that a hook or an approver changed the input or the output. keep stores the change, in the commit that
	// tells of it.
	changed bool
	keep    func(b *batch)
	again   bool // http hooks are asked once more, about what others changed
}

func (o *occasion) toolName() string {
	if o.call == nil {
		return ""
	}
	return o.call.Name
}

func (o *occasion) callID() hob.CallID {
	if o.call == nil {
		return ""
	}
	return o.call.ID
}

// judged is what rules judge: the input, or the text where there is an output.
func (o *occasion) judged() json.RawMessage {
	if o.output == nil {
		return o.data
	}
	return outputOf(*o.output)
}

func outputOf(text string) json.RawMessage {
	return encodeFrame(struct {
		Output string `json:"output"`
	}{text})
}

// asking is what the hooks of a run have decided so far.
type asking struct {
	mu    sync.Mutex
	done  map[askKey]hob.HookResultEvent
	spent time.Duration // waiting for http hooks
}

type askKey struct {
	event hob.HookEvent
	call  hob.CallID
	hook  hob.HookID
	about string // digest of the arguments that it was asked about again, "" the first time
}

// recall takes what the log tells of a run that is taken up again.
func (k *asking) recall(told []hob.HookResultEvent) {
	for _, r := range told {
		if r.Source == sourceHook && r.HookType != hob.ApprovalHook {
			k.note(r)
		}
		if r.HookType == hob.HTTPHook {
			k.spent += time.Duration(r.LatencyMS) * time.Millisecond
		}
	}
}

func (k *asking) note(r hob.HookResultEvent) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.done == nil {
		k.done = map[askKey]hob.HookResultEvent{}
	}
	key := askKey{event: r.HookEvent, call: r.CallID, hook: r.HookID}
	if r.Again {
		key.about = r.InputDigest
	}
	k.done[key] = r
}

func (k *asking) known(o *occasion, h *hook) (hob.HookResultEvent, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.done[askKey{event: o.event, call: o.callID(), hook: h.ID}]
	return r, ok
}

// about gives what a hook decided about arguments of a digest, those that it made itself included.
func (k *asking) about(o *occasion, h *hook, digest string) (hob.HookResultEvent, bool) {
	if r, ok := k.known(o, h); ok && r.InputDigest == digest {
		return r, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.done[askKey{o.event, o.callID(), h.ID, digest}]
	return r, ok
}

// The sources of hook_result events.
const (
	sourceHook = "hook"
	sourceRule = "tool_rule"
)

// consult asks the rule and http hooks of an occasion. blocked says that one denied, and why. Where the run has ended
// meanwhile nothing is decided: the caller looks at its cause.
func (a *active) consult(o *occasion) (why string, blocked bool) {
	for _, h := range a.plan.hooks {
		if h.Event != o.event || h.Type == hob.ApprovalHook || !h.Matches(o.toolName()) {
			continue
		}
		if a.cause() != nil {
			return "", false
		}
		r, known := a.asking.known(o, h)
		if !known {
			before := o.data
			if r = a.ask(o, h); a.cause() != nil {
				if o.data = before; o.call != nil { // what nobody is told of did not happen
					o.call.Arguments = before
				}
				return "", false
			}
			a.tell(o, r)
		}
		o.changed = o.changed || r.Modified
		if r.Blocked {
			return r.Message, true
		}
	}
	return "", false
}

// ask asks one hook, and lays what it changes over the occasion.
func (a *active) ask(o *occasion, h *hook) hob.HookResultEvent {
	began := monotonic()
	r := a.resultOf(o, h)
	switch h.Type {
	case hob.RuleHook:
		v := h.rules.Judge(o.judged())
		if v.Undecided != "" {
			h.fails(&r, o, hob.HookFailed, v.Undecided)
			break
		}
		if r.Action = v.Action; r.Action == hob.HookDeny {
			r.Blocked, r.Message = true, cmp.Or(v.Message, "Blocked by rule")
		}
	case hob.HTTPHook:
		a.askHTTP(o, h, &r)
	case hob.ApprovalHook: // people are asked behind all others, see seek
	}
	r.LatencyMS = monotonic().Sub(began).Milliseconds()
	return r
}

func (a *active) resultOf(o *occasion, h *hook) hob.HookResultEvent {
	return hob.HookResultEvent{
		HookID: h.ID, Source: sourceHook, HookEvent: o.event, HookType: h.Type, Position: h.Position, CallID: o.callID(),
		ToolName: o.toolName(), Action: hob.HookPass, Status: hob.HookSucceeded,
	}
}

// withheld is what is left of a result whose hook failed where its fail mode is deny.
const withheld = "Error: The result was withheld — a PostToolUse hook failed"

// fails lets a hook's fail mode decide.
func (h *hook) fails(r *hob.HookResultEvent, o *occasion, status hob.HookStatus, why string) {
	r.Action, r.Status, r.Message = hob.HookPass, status, why
	if h.Fails() != hob.FailDeny {
		return
	}
	r.Action = hob.HookDeny
	if o.event.Blocks() {
		r.Blocked, r.Message = true, "the hook failed, and denies then: "+why
		return
	}
	r.Modified = true
	*o.output = withheld
}

// tell writes what a hook decided, with what it changed.
func (a *active) tell(o *occasion, r hob.HookResultEvent) {
	a.asking.note(r)
	a.log.write(func(b *batch) {
		a.hookResult(b, r)
		if r.Modified && o.keep != nil {
			o.keep(b)
		}
	})
}

// hookResult puts a decision into the log, and into the audit log where it is more than a pass.
func (a *active) hookResult(b *batch, r hob.HookResultEvent) {
	a.e.hooksAsked.Add(1)
	b.event(hob.EventHookResult, func(h hob.EventHead) any {
		r.EventHead = h
		return r
	})
	var action string
	switch {
	case r.Status == hob.HookFailed || r.Status == hob.HookTimedOut && r.HookType != hob.ApprovalHook:
		a.e.hooksFailed.Add(1)
		action = "hook.fail"
	case r.Blocked:
		action = "hook.block"
	case r.Modified:
		action = "hook.modify"
	default:
		return
	}
	b.audit(hob.AuditEntry{
		Action: action, Kind: "hook", Object: string(r.HookID), Call: r.CallID, Decision: string(r.Action), Rule: ruleName(r),
		Detail: encodeFrame(map[string]any{"event": r.HookEvent, "status": r.Status, "tool": r.ToolName}),
	})
}

func ruleName(r hob.HookResultEvent) string {
	if r.Source == sourceRule {
		return sourceRule
	}
	return string(r.HookType)
}

// again judges arguments that were changed: they have to fit the schema, the rules of the tool, and the hooks that were asked
// before the change. nil: they do.
func (a *active) again(o *occasion) *hob.Result {
	if faults := o.tool.schema.check(o.data); faults != "" {
		return denial("Error: Input validation failed — " + faults)
	}
	if r, told := o.tool.ruled(o.call, o.data); r != nil {
		a.tell(&occasion{event: o.event, call: o.call}, *told)
		return r
	}
	if why, blocked := a.rejudge(o); blocked {
		return blockedByHook(why)
	}
	return nil
}

// rejudge asks the rule hooks of an occasion whose arguments were changed, and those http hooks that have not seen them as
// they are: they may deny, but change nothing more, so that it comes to an end.
func (a *active) rejudge(o *occasion) (why string, blocked bool) {
	o.again = true
	defer func() { o.again = false }()
	digest := a.digest(o)
	for _, h := range a.plan.hooks {
		if h.Event != o.event || h.Type == hob.ApprovalHook || !h.Matches(o.toolName()) {
			continue
		}
		r, known := a.asking.about(o, h, digest)
		if !known {
			r = a.ask(o, h)
		}
		switch {
		case a.cause() != nil:
			return "", false
		case !known && (r.Blocked || h.Type == hob.HTTPHook):
			a.tell(o, r)
		}
		if r.Blocked {
			return r.Message, true
		}
	}
	return "", false
}

func denial(text string) *hob.Result { return &hob.Result{IsError: true, Free: true, Text: text} }

func blockedByHook(why string) *hob.Result {
	return denial("Error: Blocked by hook — " + cmp.Or(why, "PreToolUse hook denied"))
}

// ruled judges a call by the rules of its tool. r is nil where it may pass; told is nil where no rule decided.
func (t *tool) ruled(s *hob.CallState, args json.RawMessage) (r *hob.Result, told *hob.HookResultEvent) {
	if t.rules == nil {
		return nil, nil
	}
	v := t.rules.Judge(args)
	if v.Undecided == "" && v.Action == hob.HookPass {
		return nil, nil
	}
	told = &hob.HookResultEvent{
		Source: sourceRule, HookEvent: hob.PreToolUse, HookType: hob.RuleHook, Position: v.Index, CallID: s.ID, ToolName: s.Name,
		Action: v.Action, Status: hob.HookSucceeded, Message: v.Message,
	}
	if v.Undecided != "" { // what cannot be judged is not let through
		told.Action, told.Status, told.Message = hob.HookDeny, hob.HookFailed, v.Undecided
	}
	if told.Action != hob.HookDeny {
		return nil, told
	}
	told.Blocked, told.Message = true, cmp.Or(told.Message, "Blocked by rule")
	return denial("Error: Blocked by rule — " + told.Message), told
}
