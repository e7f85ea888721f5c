package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"hob"
)

// A run that needs a person's word rests in the store: a row for what is asked, the state awaiting_approval, and nobody who
// drives it. A decision, the end of its time, or a cancel makes it one that waits to be taken up.

// previewTime is how long a tool may take to say what a call would change.
const previewTime = 10 * time.Second

// objection is why what an occasion is about is not let through.
type objection struct {
	why    string
	result *hob.Result // of a call that an approver had changed and that its rules refuse; nil: why says it
}

// seek asks people about an occasion, one hook after the other. wait says that somebody has yet to decide.
func (a *active) seek(o *occasion) (wait bool, no *objection) {
	for i := 0; i < len(a.plan.hooks) && a.cause() == nil; i++ {
		h := a.plan.hooks[i]
		if h.Event != o.event || h.Type != hob.ApprovalHook || !h.Matches(o.toolName()) {
			continue
		}
		last, times := a.approvalOf(o, h)
		if last != nil && last.Status != hob.ApprovalPending && !last.Settled {
			if a.resolve(o, h, last); o.changed && last.ModifiedInput != nil {
				if r := a.again(o); r != nil {
					return false, &objection{result: r}
				}
				i = -1 // whoever was asked before is asked about other arguments now
				continue
			}
		}
		switch {
		case last == nil, last.Status == hob.ApprovalApproved && a.covered(o, last) != a.digest(o):
			if times >= a.e.Limits.ApprovalRounds {
				return false, &objection{why: "the arguments were changed again and again"}
			}
			a.askPerson(o, h)
			return true, nil
		case last.Status == hob.ApprovalPending:
			return true, nil
		case last.Status != hob.ApprovalApproved:
			return false, &objection{why: refusalOf(last)}
		}
	}
	return false, nil
}

// refusalOf words why an approval does not let pass.
func refusalOf(p *hob.Approval) string {
	switch p.Status {
	case hob.ApprovalExpired:
		return "Approval timed out"
	case hob.ApprovalCancelled:
		return "The approval was cancelled"
	case hob.ApprovalDenied, hob.ApprovalPending, hob.ApprovalApproved:
	}
	if p.Reason == "" {
		return "Denied by user"
	}
	return "Denied by user: " + p.Reason
}

// approvalOf gives the newest approval that a hook asked for on an occasion, and how many there were.
func (a *active) approvalOf(o *occasion, h *hook) (last *hob.Approval, times int) {
	for _, p := range a.approvals {
		if p.HookID == h.ID && p.CallID == o.callID() && p.HookEvent == o.event {
			last = p
			times++
		}
	}
	return last, times
}

// subject is what an approval on an occasion is about, beside the tool.
func (o *occasion) subject() json.RawMessage { return o.judged() }

func (a *active) digest(o *occasion) string {
	return hob.ApprovalDigest(a.id, o.callID(), o.toolName(), o.subject())
}

// covered is the digest of what an approver agreed to.
func (a *active) covered(o *occasion, p *hob.Approval) string {
	if p.ModifiedInput == nil {
		return p.Digest
	}
	return hob.ApprovalDigest(a.id, o.callID(), o.toolName(), p.ModifiedInput)
}

// askPerson writes an approval that waits for a decision.
func (a *active) askPerson(o *occasion, h *hook) {
	p := &hob.Approval{
		ApprovalID: "appr_" + hob.RandomHex(6), RunID: a.id, SessionID: a.run.Session, AgentID: a.run.Agent, HookID: h.ID,
		HookEvent: o.event, CallID: o.callID(), ToolName: o.toolName(), ToolInput: o.data, Digest: a.digest(o),
		Message: cmp.Or(h.Config.Message, "Approval required"), Status: hob.ApprovalPending,
		RequestedBy: a.run.Principal.Name(), Approvers: h.Config.Approvers, FourEyes: h.Config.FourEyes,
		CreatedAt: hob.Time{Time: a.e.Clock()}, Workspace: a.run.Workspace, Owner: a.run.Principal.Owner(),
		Timeout: hob.DefaultApprovalTime * time.Second,
	}
	if t := h.Config.Timeout; t != nil {
		p.Timeout = seconds(*t)
	}
	if len(p.Approvers) == 0 {
		p.Approvers = hob.DefaultApprovers()
	}
	if o.output != nil {
		p.Output = *o.output
	}
	if o.call != nil {
		p.Preview = a.foresee(o)
		o.call.Status = hob.CallWaiting
	}
	var expires hob.Time
	if p.Timeout > 0 {
		expires = hob.Time{Time: p.CreatedAt.Add(p.Timeout)}
	}
	a.approvals = append(a.approvals, p)
	a.awaiting.Store(true)
	a.e.approvalsAsked.Add(1)
	a.log.write(func(b *batch) {
		b.approval(*p)
		if o.call != nil {
			b.call(*o.call)
		}
		b.event(hob.EventApprovalRequested, func(head hob.EventHead) any {
			return hob.ApprovalRequestedEvent{
				EventHead: head, ApprovalID: p.ApprovalID, HookID: p.HookID, HookEvent: p.HookEvent, CallID: p.CallID,
				ToolName: p.ToolName, ToolInput: p.ToolInput, Preview: p.Preview, Digest: p.Digest, Message: p.Message,
				ExpiresAt: expires,
			}
		})
		if h.Config.NotifyURL != "" {
			b.delivery(a.notice(h, p, expires))
		}
	})
}

// notice tells whoever is to be told that an approval waits.
func (a *active) notice(h *hook, p *hob.Approval, expires hob.Time) hob.Delivery {
	body := struct {
		Event string `json:"event"`
		hob.Approval
	}{hob.ApprovalRequested, *p}
	body.ExpiresAt = expires
	return hob.Delivery{
		ID: deliveryID(string(a.id), p.ApprovalID, hob.ApprovalRequested), Hook: h.ID, Agent: a.run.Agent, Workspace: a.run.Workspace,
		Run: a.id, Event: hob.ApprovalRequested, URL: h.Config.NotifyURL, Body: encodeFrame(body),
	}
}

// foresee asks the tool what the call would change, for whoever decides about it. nil where it cannot tell.
func (a *active) foresee(o *occasion) json.RawMessage {
	if _, can := o.tool.runner.(hob.Previewer); !can {
		return nil
	}
	ctx, cancel := context.WithTimeout(a.ctx, previewTime)
	defer cancel()
	p, r := a.e.preview(ctx, a.deed(*o.call))
	if r.IsError {
		return encodeFrame(map[string]string{"error": r.Text})
	}
	return p
}

// resolve tells in the log what became of an approval, and lays the arguments that the approver gave over the call's.
func (a *active) resolve(o *occasion, h *hook, p *hob.Approval) {
	p.Settled = true
	r := a.resultOf(o, h)
	r.ApprovalID, r.LatencyMS = p.ApprovalID, a.waited(p).Milliseconds()
	if r.Action = hob.HookAllow; p.Status != hob.ApprovalApproved {
		r.Action, r.Blocked, r.Message = hob.HookDeny, true, refusalOf(p)
	}
	if p.Status == hob.ApprovalExpired {
		r.Status = hob.HookTimedOut
	}
	if p.Status == hob.ApprovalApproved && p.ModifiedInput != nil && o.call != nil {
		o.data, o.call.Arguments, o.changed = p.ModifiedInput, p.ModifiedInput, true
		r.Modified, r.ModifiedInput = true, p.ModifiedInput
	}
	a.log.write(func(b *batch) {
		a.resolved(b, p)
		a.hookResult(b, r)
		if o.call != nil {
			b.call(*o.call)
		}
	})
}

func (a *active) waited(p *hob.Approval) time.Duration {
	until := p.DecidedAt.Time
	if p.DecidedAt.IsZero() {
		until = a.e.Clock()
	}
	return max(until.Sub(p.CreatedAt.Time), 0)
}

// resolved puts what became of an approval into the log.
func (a *active) resolved(b *batch, p *hob.Approval) {
	b.approval(*p)
	b.event(hob.EventApprovalResolved, func(h hob.EventHead) any {
		return hob.ApprovalResolvedEvent{
			EventHead: h, ApprovalID: p.ApprovalID, CallID: p.CallID, ToolName: p.ToolName,
			Approved: p.Status == hob.ApprovalApproved, Status: p.Status, By: p.DecidedBy, Reason: p.Reason,
			ModifiedInput: p.ModifiedInput, WaitedMS: a.waited(p).Milliseconds(),
		}
	})
}

// withdraw ends the approvals that nobody needs any more: those of a call, or all of the run's.
func (a *active) withdraw(b *batch, all bool, call hob.CallID) {
	for _, p := range a.approvals {
		if p.Settled || !all && p.CallID != call {
			continue
		}
		if p.Settled = true; p.Status == hob.ApprovalPending {
			p.Status = hob.ApprovalCancelled
		}
		a.resolved(b, p)
	}
}

// rest lays the run down until somebody has decided. The result is that of loop for a run that is not ours to end.
func (a *active) rest() (ending, bool) {
	var wake time.Duration
	if deadline, ok := a.ctx.Deadline(); ok {
		wake = max(time.Until(deadline), time.Millisecond)
	}
	a.rested.Store(true) // before it can be woken
	a.log.write(func(b *batch) {
		b.outcome(hob.Outcome{
			Status: hob.AwaitingApproval, Steps: a.run.Steps, Usage: a.run.Usage, Wake: wake, // an answer is none before it is approved
		})
	})
	if a.log.sync() != nil {
		a.rested.Store(false)
	}
	return ending{}, false
}
