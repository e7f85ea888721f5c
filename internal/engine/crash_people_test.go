package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hob"
)

// The side of trials on which hooks and people are asked.

// seamHooks is what sends to http hooks, as a process sees it.
type seamHooks struct{ p *process }

func (s seamHooks) CallHook(_ context.Context, r hob.HookRequest) (hob.HookAnswer, error) {
	return op(s.p, "hook call", func() (hob.HookAnswer, error) {
		c := s.p.trial
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = append(c.sent, r)
		switch strings.TrimPrefix(r.URL, address("")) {
		case "input":
			return hob.HookAnswer{ModifiedInput: json.RawMessage(`{"n":101}`)}, nil
		case "output":
			return hob.HookAnswer{ModifiedOutput: new(did + "and seen by a hook")}, nil
		case "answer":
			return hob.HookAnswer{ModifiedOutput: new("Another answer.")}, nil
		}
		return hob.HookAnswer{}, nil
	})
}

// looksEvery is how often somebody looks for what runs wait for.
const looksEvery = 4 * time.Millisecond

// people look for approvals of the trial's runs and do what the play wants.
func (c *trial) people(ctx context.Context) {
	done := map[string]bool{}
	for ctx.Err() == nil {
		page, err := c.rig.store.Approvals(ctx, person, hob.ApprovalFilter{Agent: c.agent.ID, Limit: 50})
		for _, p := range page.Items {
			switch {
			case err != nil, done[p.ApprovalID], p.Settled:
			case p.Status == hob.ApprovalExpired: // as the clock would do within a second
				if pr, ok := c.living(ctx); ok {
					pr.engine.Wake()
				}
			case p.Status != hob.ApprovalPending:
			case c.play.cancels:
				c.cancel(ctx, p.RunID)
				done[p.ApprovalID] = true
			case c.play.says != nil:
				c.decide(ctx, p)
				done[p.ApprovalID] = true
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(looksEvery):
		}
	}
}

// decide says what the play's person says until that is taken, or was decided, perhaps by an earlier try.
func (c *trial) decide(ctx context.Context, p hob.Approval) {
	in := c.play.says(p)
	in.Run, in.Approval, in.Digest = p.RunID, p.ApprovalID, p.Digest
	for {
		pr, ok := c.living(ctx)
		if !ok || ctx.Err() != nil {
			return
		}
		got, err := pr.engine.Decide(ctx, person, in)
		switch k := hob.KindOf(err); {
		case err == nil:
			c.change(func() { c.said[p.ApprovalID] = got.Status })
			c.contradict(ctx, p, !in.Approved)
			return
		case k == hob.Conflict:
			pr.engine.Wake() // whoever had decided may have died before it could
			return
		case k != hob.Unavailable && k != hob.Internal:
			c.wrong(fmt.Errorf("deciding approval %s: %w", p.ApprovalID, err))
			return
		}
		pause(ctx)
	}
}

// contradict wants a second decision to be refused.
func (c *trial) contradict(ctx context.Context, p hob.Approval, approved bool) {
	_, err := c.rig.store.Decide(ctx, person, hob.Decision{Run: p.RunID, Approval: p.ApprovalID, Approved: approved})
	if hob.KindOf(err) != hob.Conflict && ctx.Err() == nil {
		c.wrong(fmt.Errorf("approval %s was decided twice: %w", p.ApprovalID, err))
	}
}

func (c *trial) wrong(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrongs = append(c.wrongs, err)
}

// covered wants a call that is carried out now to have, now, an approval of exactly these arguments for each hook that asks
// for one.
func (c *trial) covered(call hob.Call) error {
	for _, h := range c.made {
		if h.Type != hob.ApprovalHook || h.Event != hob.PreToolUse || !h.Matches(call.Name) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), trialTime)
		defer cancel()
		page, err := c.rig.store.Approvals(ctx, person, hob.ApprovalFilter{Run: call.Run, Status: hob.ApprovalApproved, Limit: 50})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(page.Items, func(p hob.Approval) bool { return covers(p, h.ID, call) }) {
			return fmt.Errorf("call %s was carried out with %s, for which there is no approval among %+v", call.ID, call.Arguments, page.Items)
		}
	}
	return nil
}

// covers says whether an approval is one of exactly this call.
func covers(p hob.Approval, hook hob.HookID, call hob.Call) bool {
	digest := p.Digest
	if p.ModifiedInput != nil {
		digest = hob.ApprovalDigest(p.RunID, p.CallID, p.ToolName, p.ModifiedInput)
	}
	return p.HookID == hook && digest == hob.ApprovalDigest(call.Run, call.ID, call.Name, call.Arguments)
}

// checkPeople wants every approval to be decided, once, as those who decided were told, and told of once in the log.
func (c *trial) checkPeople(ctx context.Context, d hob.RunDetail, log []hob.Event) error {
	c.mu.Lock()
	wrongs := errors.Join(c.wrongs...)
	c.mu.Unlock()
	page, err := c.rig.store.Approvals(ctx, person, hob.ApprovalFilter{Run: d.Run.ID, Limit: 50})
	if err != nil || wrongs != nil {
		return errors.Join(err, wrongs)
	}
	asked, ended := map[string]int{}, map[string][]hob.ApprovalStatus{}
	for _, ev := range log {
		var x hob.ApprovalResolvedEvent
		if ev.Type != hob.EventApprovalRequested && ev.Type != hob.EventApprovalResolved {
			continue
		}
		if err := json.Unmarshal(ev.Data, &x); err != nil {
			return err
		}
		if ev.Type == hob.EventApprovalRequested {
			asked[x.ApprovalID]++
		} else {
			ended[x.ApprovalID] = append(ended[x.ApprovalID], x.Status)
		}
	}
	per := map[string]int{}
	for _, p := range page.Items {
		per[string(p.HookID)+string(p.CallID)]++
		said, has := c.said[p.ApprovalID]
		switch want := ended[p.ApprovalID]; {
		case asked[p.ApprovalID] != 1 || len(want) != 1:
			return fmt.Errorf("approval %s was told of %d times, and what became of it %d times", p.ApprovalID, asked[p.ApprovalID], len(want))
		case want[0] != p.Status || !p.Settled || p.Status == hob.ApprovalPending:
			return fmt.Errorf("approval %s is %s, and the log says %s", p.ApprovalID, p.Status, want[0])
		case has && said != p.Status:
			return fmt.Errorf("approval %s is %s, and whoever decided was told %s", p.ApprovalID, p.Status, said)
		case per[string(p.HookID)+string(p.CallID)] > 1:
			return fmt.Errorf("people were asked about call %s again, about the same", p.CallID)
		}
	}
	if len(asked) != len(page.Items) {
		return fmt.Errorf("the log tells of %d approvals, there are %d", len(asked), len(page.Items))
	}
	return nil
}

// checkHooks wants http hooks to have been asked about one thing under one delivery, to have decided once, and those of the
// end to be told once where the run completed.
func (c *trial) checkHooks(ctx context.Context, d hob.RunDetail, log []hob.Event) error {
	type place struct {
		url, event, call, data string
	}
	bodies, deliveries := map[string]string{}, map[place]string{}
	for _, r := range c.sent {
		var b struct {
			Event string
			Data  json.RawMessage
			Run   struct {
				Run  hob.RunID `json:"run_id"`
				Call string    `json:"call_id"`
			}
		}
		if err := json.Unmarshal(r.Body, &b); err != nil {
			return err
		}
		if b.Run.Run != d.Run.ID {
			continue
		}
		at := place{string(r.Hook.ID), b.Event, b.Run.Call, string(b.Data)}
		if before, asked := deliveries[at]; asked && before != r.Delivery || bodies[r.Delivery] != "" && bodies[r.Delivery] != string(r.Body) {
			return fmt.Errorf("a hook was asked at %v as %s with %s, after %s with %s", at, r.Delivery, r.Body, before, bodies[r.Delivery])
		}
		deliveries[at], bodies[r.Delivery] = r.Delivery, string(r.Body)
	}
	decided := map[string]bool{}
	for _, ev := range log {
		var r hob.HookResultEvent
		if ev.Type != hob.EventHookResult {
			continue
		}
		if err := json.Unmarshal(ev.Data, &r); err != nil {
			return err
		}
		key := fmt.Sprint(r.HookEvent, r.CallID, r.HookID, r.ApprovalID, r.Again, r.InputDigest)
		if decided[key] {
			return fmt.Errorf("the hook %s decided twice: %s", r.HookID, ev.Data)
		}
		decided[key] = true
	}
	for _, h := range c.made {
		if h.Event != hob.OnRunComplete {
			continue
		}
		list, err := c.rig.store.Deliveries(ctx, c.by, c.agent.ID, h.ID, 50)
		n := len(slices.DeleteFunc(list, func(x hob.Delivery) bool { return x.Run != d.Run.ID }))
		if err != nil || n != map[bool]int{true: 1}[d.Run.Status == hob.Completed] {
			return fmt.Errorf("%d deliveries tell of a run that is %s, %w", n, d.Run.Status, err)
		}
	}
	return nil
}
