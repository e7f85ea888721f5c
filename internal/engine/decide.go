package engine

import (
	"context"
	"encoding/json"
	"slices"

	"hob"
)

// DecideInput is what a person says about something that a run waits for. Where neither Approval nor Call names it, it is the
// only one that is pending.
type DecideInput struct {
	Run           hob.RunID
	Approval      string
	Call          hob.CallID
	Digest        string // of what was shown, as Approval.Digest; "" = whatever it is
	Approved      bool
	Reason        string
	ModifiedInput json.RawMessage // in place of the arguments of a call; nil = as they are
}

// mostApprovals is how many approvals of a run are looked through.
const mostApprovals = 1000

// Codes of refused decisions.
const (
	CodeApprovalNotFound  = "approval_not_found"
	CodeApprovalAmbiguous = "approval_ambiguous"
	CodeApprovalStale     = "approval_stale"
	codeModifiedInput     = "modified_input_invalid"
)

// Decide decides a pending approval, and has the run go on. Errors: NotFound where the principal sees none that is meant,
// Forbidden as hob.MayDecide, Invalid where several are pending and none is named (approval_ambiguous) and for arguments
// that do not fit the tool or that its rules refuse, Conflict as of the store, and where the digest is another
// (approval_stale).
func (e *Engine) Decide(ctx context.Context, by hob.Principal, in DecideInput) (hob.Approval, error) {
	f := hob.ApprovalFilter{Run: in.Run, ID: in.Approval, Limit: mostApprovals}
	if in.Approval == "" {
		f.Status = hob.ApprovalPending
	}
	page, err := e.Store.Approvals(ctx, by, f)
	if err == nil && f.Status != "" && !slices.ContainsFunc(page.Items, in.means) { // what became of it is told
		f.Status = ""
		page, err = e.Store.Approvals(ctx, by, f)
	}
	if err != nil {
		return hob.Approval{}, err
	}
	p, err := in.pick(page.Items)
	if err != nil {
		return hob.Approval{}, err
	}
	if err := hob.MayDecide(by, p); err != nil {
		return hob.Approval{}, err
	}
	if in.Digest != "" && in.Digest != p.Digest {
		return hob.Approval{}, hob.Errorf(hob.Conflict, "what waits now is not what was shown: its digest is %s", p.Digest).
			WithCode(CodeApprovalStale).With("input_digest", p.Digest)
	}
	d := hob.Decision{Run: in.Run, Approval: p.ApprovalID, Approved: in.Approved, Reason: in.Reason}
	if in.ModifiedInput != nil && p.Status == hob.ApprovalPending {
		if d.ModifiedInput, err = e.modified(ctx, p, in); err != nil {
			return hob.Approval{}, err
		}
	}
	decided, err := e.Store.Decide(ctx, by, d)
	if err == nil || doubtful(err) { // it may have been taken all the same
		ring(e.wake)
	}
	if err != nil {
		return hob.Approval{}, err
	}
	return decided, nil
}

// means says whether an approval may be the one that is meant.
func (in *DecideInput) means(p hob.Approval) bool {
	return (in.Approval == "" || p.ApprovalID == in.Approval) && (in.Call == "" || p.CallID == in.Call)
}

// pick finds the approval that is meant among those of the run that the caller sees.
func (in *DecideInput) pick(all []hob.Approval) (*hob.Approval, error) {
	var last *hob.Approval // that fits
	var open []string
	for i := range all {
		p := &all[i]
		if !in.means(*p) {
			continue
		}
		if p.Status == hob.ApprovalPending {
			open = append(open, p.ApprovalID)
		}
		if last == nil || p.Status == hob.ApprovalPending || last.Status != hob.ApprovalPending {
			last = p
		}
	}
	switch {
	case last == nil:
		return nil, hob.Errorf(hob.NotFound, "Run not found or not waiting for approval").WithCode(CodeApprovalNotFound)
	case len(open) > 1:
		return nil, hob.Errorf(hob.Invalid, "the run waits for %d approvals; name one with approval_id", len(open)).
			WithCode(CodeApprovalAmbiguous).With("approval_ids", open).With("field", "approval_id")
	}
	return last, nil
}

// modified checks arguments that an approver puts in place of a call's, and gives them as the tool will see them.
func (e *Engine) modified(ctx context.Context, p *hob.Approval, in DecideInput) (json.RawMessage, error) {
	bad := func(format string, args ...any) error {
		return hob.Errorf(hob.Invalid, "modified_input "+format, args...).WithCode(codeModifiedInput).With("field", "modified_input")
	}
	if !in.Approved || !p.HookEvent.ModifiesInput() {
		return nil, bad("goes with the approval of a tool call only")
	}
	args, err := hob.ParseArguments(string(in.ModifiedInput))
	if err != nil {
		return nil, bad("is no JSON object of arguments: %v", err)
	}
	st, err := e.Store.Load(ctx, p.RunID)
	if err != nil {
		return nil, err
	}
	var pin hob.Pin
	if err := json.Unmarshal(st.Pin, &pin); err != nil {
		return nil, hob.Wrap("read the run's frozen tools", err)
	}
	for _, spec := range pin.Tools {
		if spec.Name != p.ToolName {
			continue
		}
		t := &tool{spec: spec}
		if t.schema, err = e.schemas.get(fullSchema(spec)); err != nil {
			return nil, err
		}
		if t.rules, err = e.rules.of(spec.Rules); err != nil {
			return nil, err
		}
		args = t.effective(args)
		if faults := t.schema.check(args); faults != "" {
			return nil, bad("does not fit the tool's schema: %s", faults)
		}
		if r, told := t.ruled(&hob.CallState{ID: p.CallID, Name: p.ToolName}, args); r != nil {
			return nil, bad("is refused by a rule of the tool: %s", told.Message)
		}
		return args, refusedByHooks(pin.Hooks, spec, args, bad)
	}
	return nil, bad("is for a tool that the run does not have: %s", p.ToolName)
}

// refusedByHooks judges arguments by the rule hooks of the tool that is called.
func refusedByHooks(hooks []hob.Hook, t hob.ToolSpec, args json.RawMessage, bad func(string, ...any) error) error {
	for i := range hooks {
		h := &hooks[i]
		asked := h.Event == hob.PreToolUse || h.Event == hob.OnDelegation && t.Kind == hob.DelegateTool
		if !asked || h.Type != hob.RuleHook || !h.Matches(t.Name) {
			continue
		}
		rules, err := CompileRules(h.AllRules())
		if err != nil {
			return err
		}
		switch v := rules.Judge(args); {
		case v.Undecided != "" && h.Fails() == hob.FailDeny:
			return bad("cannot be judged by a rule hook, which denies then: %s", v.Undecided)
		case v.Undecided == "" && v.Action == hob.HookDeny:
			return bad("is refused by a rule hook: %s", v.Message)
		}
	}
	return nil
}
