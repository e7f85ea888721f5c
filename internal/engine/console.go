package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"hob"
)

// The test console carries out one call of one tool, outside of any run: an administrator sees what a tool does before an
// agent is given it. The call goes through the gate as a run's does; nothing of it is kept but its lines in the ledger and in the
// audit log.

// Codes of refusals, for programs.
const (
	codeTrials          = "too_many_tests"
	codeToolUnavailable = "tool_unavailable"
	CodeNoPreview       = "no_preview"
)

// Trial is a call to be made. Of Builtin and Tool one is set.
type Trial struct {
	Builtin string // a name that there is
	Tool    hob.ToolID
	Agent   hob.AgentID     // as which it is made: its configuration of the tool applies; "" = as none
	Config  json.RawMessage // a config_override, already checked, in place of the agent's
	// Arguments are the text that a model would write.
	Arguments string
	DryRun    bool // the tool only says what it would change
	// Key names the request: the same call under the same key has the same idempotency key, so that tools which know what
	// they did under it do it once. "" = a call of its own.
	Key string
}

// Tried is what came of a call.
type Tried struct {
	Call     hob.Call // as the tool saw it; its arguments have the pinned ones
	Result   hob.Result
	Preview  json.RawMessage // of a dry run
	Took     time.Duration   // of the whole way through the gate
	Trace    []Passage
	Warnings []string
}

// Try makes a call for a principal. Where the tool refuses it or fails, that is its result. Tools that are switched off can
// be tried, with a warning. The call goes on to its end when ctx ends: what it does is counted. The audit log tells of it.
//
// Errors: Forbidden without admin rights on tools, NotFound for a tool or agent that is not there, Invalid where the agent
// does not have the tool and for a dry run of a tool without a preview (no_preview), Conflict where the tool cannot be
// loaded (tool_unavailable), RateLimited where the workspace makes as many calls as it may, Unavailable when the process is
// ending. A call that cannot be noted in the audit log is not made: the error is the store's.
func (e *Engine) Try(ctx context.Context, by hob.Principal, in Trial) (Tried, error) {
	if err := hob.Can(by, hob.ScopeAdmin, hob.Object{Kind: hob.ToolObject, Workspace: by.Workspace}); err != nil {
		return Tried{}, err
	}
	leave, err := e.trials.enter(e, by.Workspace)
	if err != nil {
		return Tried{}, err
	}
	defer leave()
	ctx, cancel := e.trials.outlive(ctx, e.Limits.TrialTime+time.Minute)
	defer cancel()
	g, warnings, err := e.trialGrant(ctx, by, in)
	if err != nil {
		return Tried{}, err
	}
	t, more, err := e.trialTool(ctx, g)
	if err != nil {
		return Tried{}, err
	}
	k, err := e.knobsOf(ctx, by.Workspace)
	if err != nil {
		return Tried{}, err
	}
	if _, can := t.runner.(hob.Previewer); in.DryRun && !can {
		return Tried{}, hob.Errorf(hob.Invalid, "the tool %s has no preview", t.spec.Name).WithCode(CodeNoPreview).With("field", "dry_run")
	}
	d := deed{tool: t, call: trialCall(by, in, t), most: k.resultChars, limit: e.Limits.TrialTime}
	out := Tried{Warnings: append(warnings, more...)}
	if err := e.pass(ctx, in, d, &out); err != nil {
		return Tried{}, err
	}
	out.Warnings = append(out.Warnings, e.book(ctx, by, g.Agent.ID, out)...)
	e.Log.Info("a tool was tried", slog.String("workspace", string(by.Workspace)), slog.String("by", string(by.Kind)+":"+by.ID),
		slog.String("tool", t.spec.Name), slog.String("ref", t.spec.Ref), slog.String("agent", string(g.Agent.ID)),
		slog.String("call", string(out.Call.ID)), slog.Bool("dry_run", in.DryRun), slog.Bool("is_error", out.Result.IsError),
		slog.String("action", out.Result.Action), slog.Duration("took", out.Took))
	return out, nil
}

// trialGrant gives the agent and the one tool of a trial, switched on for it.
func (e *Engine) trialGrant(ctx context.Context, by hob.Principal, in Trial) (hob.Grant, []string, error) {
	g := hob.Grant{Principal: by, Agent: hob.Agent{Workspace: by.Workspace}}
	a := hob.AssignedTool{Assignment: hob.Assignment{
		Workspace: by.Workspace, ToolType: string(hob.BuiltinTool), ToolName: in.Builtin, ConfigOverride: json.RawMessage("{}"),
	}}
	ref := hob.BuiltinRef + in.Builtin
	if in.Tool != "" {
		row, err := e.Store.Tool(ctx, by, in.Tool)
		if err != nil {
			return g, nil, err
		}
		a.ToolType, a.ToolName, a.ToolID, a.Tool, ref = "custom", row.Name, &row.ID, &row, string(row.ID)
	} else {
		changes, err := e.Store.Builtins(ctx, by)
		if err != nil {
			return g, nil, err
		}
		if c, ok := changes[in.Builtin]; ok {
			a.Builtin = &c
		}
	}
	if in.Agent != "" {
		var err error
		if g.Agent, err = e.Store.Agent(ctx, by, in.Agent); err != nil {
			return g, nil, err
		}
		scope, err := e.Store.Scope(ctx, by, in.Agent)
		if err != nil {
			return g, nil, err
		}
		i := slices.IndexFunc(scope, func(t hob.AssignedTool) bool { return t.Is(ref) })
		if i < 0 {
			return g, nil, hob.Errorf(hob.Invalid, "the agent does not have the tool %s; leave agent_id out to try it without the agent", a.ToolName).
				WithCode("tool_not_assigned").With("field", "agent_id")
		}
		a = scope[i]
	}
	if in.Config != nil {
		a.ConfigOverride = in.Config
	}
	var warnings []string
	if a.Off() {
		warnings = append(warnings, "the tool is switched off: it is carried out here, but runs are not offered it")
		a = switchedOn(a)
	}
	g.Assigned = []hob.AssignedTool{a}
	return g, warnings, nil
}

// switchedOn is the tool as if it was on.
func switchedOn(a hob.AssignedTool) hob.AssignedTool {
	if a.Tool != nil {
		row := *a.Tool
		row.IsActive = true
		a.Tool = &row
	}
	if a.Builtin != nil {
		change := *a.Builtin
		change.IsActive = true
		a.Builtin = &change
	}
	return a
}

// trialTool loads the one tool of a grant.
func (e *Engine) trialTool(ctx context.Context, g hob.Grant) (*tool, []string, error) {
	runners, warnings, err := e.load(ctx, g)
	if err != nil {
		return nil, nil, err
	}
	cannot := func(why string) error {
		return hob.Errorf(hob.Conflict, "the tool cannot be carried out: %s", why).WithCode(codeToolUnavailable)
	}
	if len(runners) == 0 {
		return nil, nil, cannot(cmp.Or(strings.Join(warnings, "; "), "this server has no such tool"))
	}
	t := &tool{spec: runners[0].Spec(), runner: runners[0]}
	if t.spec.Native {
		return nil, nil, cannot("it is carried out by the models' provider, not by this server")
	}
	if t.schema, err = e.schemas.get(fullSchema(t.spec)); err != nil {
		return nil, nil, cannot("its input schema is not usable: " + reason(err))
	}
	if t.rules, err = e.rules.of(t.spec.Rules); err != nil {
		return nil, nil, cannot("its rules are not usable: " + reason(err))
	}
	return t, warnings, nil
}

// trialCall is the call that a tool sees. Its ids are those of no run; with a key they come of it and what is asked.
func trialCall(by hob.Principal, in Trial, t *tool) hob.Call {
	c := hob.Call{
		Run: hob.NewRunID(), Agent: in.Agent, Principal: by, ID: hob.NewCallID(), Name: t.spec.Name, Step: 1, Attempt: 1,
	}
	if in.Key != "" {
		asked := []string{
			string(by.Workspace), string(by.Kind), by.ID, t.spec.Ref, string(in.Agent), string(in.Config), in.Key,
		}
		args, bad := parseCall(in.Arguments)
		asked = append(asked, string(args), bad)
		encoded, _ := json.Marshal(asked) // of strings alone
		sum := sha256.Sum256(encoded)
		text := hex.EncodeToString(sum[:])
		const idDigits = 12
		c.Run, c.ID = hob.RunID("run_"+text[:idDigits]), hob.CallID("call_"+text[idDigits:2*idDigits])
	}
	c.Key = string(c.Run) + ":" + string(c.ID)
	return c
}

// pass takes a call through the gate. It is noted before it is carried out, and what came of it; with an error it was not
// carried out.
func (e *Engine) pass(ctx context.Context, in Trial, d deed, out *Tried) error {
	t := newTrace()
	began := t.at
	defer func() { out.Call, out.Trace, out.Took = d.call, t.passages, monotonic().Sub(began) }()
	asked, bad := parseCall(in.Arguments)
	d.call.Arguments = d.tool.effective(asked)
	c := &entrant{name: d.call.Name, tool: d.tool, standing: hob.Offered, bad: bad, args: d.call.Arguments}
	if r := c.check(t); r != nil {
		out.Result = *r
		out.Warnings = append(out.Warnings, e.noteTried(ctx, in, d, hob.AuditRefused)...)
		return nil
	}
	if err := e.noteTrial(ctx, in, d, "tool_test.intent", ""); err != nil {
		return err
	}
	t.skip("hooks are asked in runs", StagePreToolUse, StageOnDelegation)
	if in.DryRun {
		t.skip("a dry run changes nothing", StageIntent, StageExecute)
		out.Preview, out.Result = e.preview(ctx, d)
		if out.Result.IsError {
			t.note(StageResult, Refused, "the tool cannot show what this call would change")
			return nil
		}
		t.pass(StageResult, "the tool's preview")
		t.skip("a dry run changes nothing", StagePostToolUse, StageCap)
		return nil
	}
	t.skip("there is no run that could be taken up again", StageIntent)
	r, cut := e.perform(ctx, d, t)
	if cut {
		t.pass(StageExecute, "no answer")
		if r = (hob.Result{IsError: true, Text: "Error: the server stopped while the call was under way"}); d.tool.spec.Recovery != hob.RecoverRead {
			r.Unknown, r.Text = true, r.Text+"; it may have taken effect all the same"
		}
	}
	r = e.receive(d, r, t)
	t.skip("hooks are asked in runs", StagePostToolUse)
	if r = d.trim(r, t); !r.Free && !r.Unknown {
		r.Action = cmp.Or(r.Action, hob.ActionToolCall)
	} else {
		r.Action = ""
	}
	out.Result = r
	decision := hob.AuditOK
	switch {
	case r.Unknown:
		decision = hob.AuditUnknown
	case r.IsError:
		decision = hob.AuditError
	}
	out.Warnings = append(out.Warnings, e.noteTried(ctx, in, d, decision)...)
	return nil
}

// preview asks what a call would change. It is not counted.
func (e *Engine) preview(ctx context.Context, d deed) (p json.RawMessage, r hob.Result) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.tool.spec.Timeout, e.Limits.ToolTimeout))
	defer cancel()
	p, err := func() (p json.RawMessage, err error) {
		defer e.caught(d, &err)
		return d.tool.runner.(hob.Previewer).Preview(ctx, d.call) //nolint:forcetypeassert // Try looked
	}()
	if err != nil {
		return nil, hob.Result{IsError: true, Free: true, Text: "Error: " + err.Error()}
	}
	return p, hob.Result{Free: true}
}

// book writes down what a call used. That it could not be written makes the call no failure.
func (e *Engine) book(ctx context.Context, by hob.Principal, agent hob.AgentID, out Tried) []string {
	used := slices.Clone(out.Result.Used)
	for i := range used {
		used[i].Step = out.Call.Step
		if used[i].Action == "" || used[i].Action == hob.ActionModelCall {
			e.count(used[i])
		}
	}
	if a := out.Result.Action; a != "" {
		used = append(used, hob.UsageEntry{Action: a, Quantity: 1, Tool: out.Call.Name})
	}
	if len(used) == 0 {
		return nil
	}
	if err := e.Store.Book(context.WithoutCancel(ctx), by, agent, used); err != nil {
		e.Log.Error("what a tool that was tried used could not be booked", slog.String("call", string(out.Call.ID)), slog.Any("error", err))
		return []string{"the call could not be written to the usage ledger"}
	}
	return nil
}
