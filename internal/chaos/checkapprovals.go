//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"hob"
)

// approvalCounts are the figures of approvals.
type approvalCounts struct {
	all, approved, denied, expired, cancelled int
	late, lost                                int // decisions that came too late; answers that people did not get
}

// peopleFound is what is known of approvals outside of Hob, with what Hob shows of them.
type peopleFound struct {
	asked     map[string]question
	decisions map[string][]decision
	names     []string                // of the people
	approvals map[string]hob.Approval // as Hob lists them
	runs      map[hob.RunID]*story
	messages  map[hob.RunID]*message
	acts      map[string]*act
}

// check judges all that there is, when all is quiet.
func (c *crowd) check(ctx context.Context, f found) ([]verdict, approvalCounts, error) {
	list, err := c.listed(ctx)
	if err != nil {
		return nil, approvalCounts{}, err
	}
	v := check(c.w.ledger, f)
	said, bad := c.verified(ctx)
	p := peopleFound{asked: c.asked, decisions: c.decisions, approvals: list, runs: f.runs, acts: c.w.acts, messages: map[hob.RunID]*message{}}
	for _, one := range c.people {
		p.names = append(p.names, one.name)
	}
	for _, m := range c.w.messages {
		if len(m.runs) > 0 {
			p.messages[m.runs[0]] = m
		}
	}
	own, n := checkApprovals(p)
	return slices.Concat(v, own, []verdict{judge(auditHolds, bad, "%s", said)}), n, nil
}

// listed reads all approvals, whatever became of them.
func (c *crowd) listed(ctx context.Context) (map[string]hob.Approval, error) {
	all := map[string]hob.Approval{}
	for offset := 0; ; offset += pageSize {
		var page struct{ Approvals []hob.Approval }
		q := request{addr: c.f.servers[0].addr, method: http.MethodGet, path: fmt.Sprintf("/api/approvals?limit=%d&offset=%d", pageSize, offset)}
		if err := c.storm.api.persist(ctx, q, &page); err != nil {
			return nil, err
		}
		for _, a := range page.Approvals {
			all[a.ApprovalID] = a
		}
		if len(page.Approvals) < pageSize {
			return all, nil
		}
	}
}

// approvalChecker compares what people were told and tools did with what Hob shows.
type approvalChecker struct {
	peopleFound
	n      approvalCounts
	broken map[string][]string // by promise
	took   []time.Duration     // from a decision to its call
}

func (c *approvalChecker) bad(promise, format string, args ...any) {
	c.broken[promise] = append(c.broken[promise], fmt.Sprintf(format, args...))
}

// checkApprovals judges the promises about approvals.
func checkApprovals(p peopleFound) ([]verdict, approvalCounts) {
	c := &approvalChecker{peopleFound: p, broken: map[string][]string{}}
	for _, id := range slices.Sorted(maps.Keys(c.asked)) {
		if _, there := c.approvals[id]; !there {
			c.bad(oneEnd, "approval %s of run %s was asked for and is gone", id, c.asked[id].run)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.approvals)) {
		a := c.approvals[id]
		c.count(a)
		c.end(a)
		c.decided(a, c.decisions[id])
	}
	effects := c.effects()
	slices.Sort(c.took)
	v := func(promise, format string, args ...any) verdict {
		return judge(promise, c.broken[promise], format, args...)
	}
	n := c.n
	return []verdict{
		v(firstCounts, "%d decided, %d told that they were too late, %d answers lost", n.approved+n.denied, n.late, n.lost),
		v(inTime, "%d approvals that expire", n.expired),
		v(oneEnd, "%d approved, %d denied, %d expired, %d cancelled", n.approved, n.denied, n.expired, n.cancelled),
		v(onlyApproved, "%d calls that need one reached a tool", effects),
		v(refusedNever, "%d refused", n.denied+n.expired+n.cancelled),
		v(approvedOnce, "%d approved", n.approved),
		figure(decideTime, "%s", spread(c.took, "call")),
	}, n
}

func (c *approvalChecker) count(a hob.Approval) {
	c.n.all++
	switch a.Status {
	case hob.ApprovalApproved:
		c.n.approved++
	case hob.ApprovalDenied:
		c.n.denied++
	case hob.ApprovalExpired:
		c.n.expired++
	case hob.ApprovalCancelled:
		c.n.cancelled++
	case hob.ApprovalPending:
	}
}

// end wants an approval to have one end, which the log of its run tells once.
func (c *approvalChecker) end(a hob.Approval) {
	if a.Status == hob.ApprovalPending {
		c.bad(oneEnd, "approval %s of run %s still waits", a.ApprovalID, a.RunID)
		return
	}
	s := c.runs[a.RunID]
	if s == nil {
		c.bad(oneEnd, "approval %s is of run %s, which is not there", a.ApprovalID, a.RunID)
		return
	}
	asked, told := 0, []hob.ApprovalStatus{}
	for _, e := range s.log {
		var f struct {
			ID     string `json:"approval_id"`
			Status hob.ApprovalStatus
		}
		if e.kind != hob.EventApprovalRequested && e.kind != hob.EventApprovalResolved || json.Unmarshal(e.data, &f) != nil || f.ID != a.ApprovalID {
			continue
		}
		if e.kind == hob.EventApprovalRequested {
			asked++
			continue
		}
		told = append(told, f.Status)
	}
	if asked != 1 || len(told) != 1 || told[0] != a.Status {
		c.bad(oneEnd, "approval %s of run %s is %s; its log asks for it %d times and says that it became %v", a.ApprovalID, a.RunID, a.Status, asked, told)
	}
}

// decided wants the first decision to count, and everybody else to be told of it.
func (c *approvalChecker) decided(a hob.Approval, all []decision) {
	var wins []decision
	lost := map[string]bool{} // by the name of who got no answer, to which choice
	for _, d := range all {
		c.n.lost += d.lost
		if d.lost > 0 {
			lost[fmt.Sprintf("%s %t", c.names[d.person], d.approve)] = true
		}
		if d.status == http.StatusOK {
			wins = append(wins, d)
			continue
		}
		c.n.late++
		c.late(a, d)
	}
	byPeople := a.Status == hob.ApprovalApproved || a.Status == hob.ApprovalDenied
	approved := a.Status == hob.ApprovalApproved
	switch {
	case len(wins) > 1:
		c.bad(firstCounts, "approval %s of run %s was decided %d times", a.ApprovalID, a.RunID, len(wins))
	case len(wins) == 1 && (!byPeople || wins[0].approve != approved || c.names[wins[0].person] != a.DecidedBy):
		c.bad(firstCounts, "approval %s of run %s: %s was told that it counts (approved: %t), and it is %s by %s",
			a.ApprovalID, a.RunID, c.names[wins[0].person], wins[0].approve, a.Status, a.DecidedBy)
	case len(wins) == 0 && byPeople && !lost[fmt.Sprintf("%s %t", a.DecidedBy, approved)]:
		c.bad(firstCounts, "approval %s of run %s is %s by %s, who was never told and lost no answer", a.ApprovalID, a.RunID, a.Status, a.DecidedBy)
	}
	ends := a.ExpiresAt.Time
	if q := c.asked[a.ApprovalID]; ends.IsZero() && !q.ends.IsZero() {
		ends = q.ends.Add(aboutTime)
	}
	if byPeople && !ends.IsZero() && a.DecidedAt.After(ends) {
		c.bad(inTime, "approval %s of run %s was decided %s after its time", a.ApprovalID, a.RunID, a.DecidedAt.Sub(ends))
	}
}

// aboutTime is how far the end that an approval's event tells may lie before the end that is stored.
const aboutTime = 500 * time.Millisecond

// late judges the answer of somebody who came too late.
func (c *approvalChecker) late(a hob.Approval, d decision) {
	cancelled := c.messages[a.RunID] != nil && c.messages[a.RunID].cancel
	ok := d.status == http.StatusConflict && d.told == string(a.Status)
	switch d.code {
	case "approval_decided":
	case "approval_expired", "approval_cancelled":
		// Of a run that is being cancelled, what waits may expire before the run is there to say so.
		ok = ok || d.status == http.StatusConflict && cancelled && (a.Status == hob.ApprovalExpired || a.Status == hob.ApprovalCancelled)
	default:
		ok = false
	}
	if !ok {
		c.bad(firstCounts, "approval %s of run %s is %s, and somebody was told %d %s %s", a.ApprovalID, a.RunID, a.Status, d.status, d.code, d.told)
	}
}

// lastDecision is when the last decision about a run was made before a moment: calls of a step that may not be made side by
// side wait for those before them.
func (c *approvalChecker) lastDecision(run hob.RunID, before time.Time) (last time.Time) {
	for _, a := range c.approvals {
		if at := a.DecidedAt.Time; a.RunID == run && at.After(last) && !at.After(before) {
			last = at
		}
	}
	return last
}

// effects wants tools to have been called for what was approved alone, behind the approval, and to have acted once.
func (c *approvalChecker) effects() int {
	of := map[string][]hob.Approval{}
	for _, a := range c.approvals {
		k := key(a.RunID, a.CallID)
		of[k] = append(of[k], a)
	}
	n := 0
	for _, k := range slices.Sorted(maps.Keys(c.acts)) {
		act := c.acts[k]
		if act.tool == toolRead {
			continue
		}
		n++
		if len(of[k]) != 1 {
			c.bad(onlyApproved, "the call %s reached %s, and has %d approvals", k, act.tool, len(of[k]))
			continue
		}
		a := of[k][0]
		switch at := act.arrived[0]; {
		case a.Status != hob.ApprovalApproved:
			c.bad(refusedNever, "the call %s reached %s, and its approval is %s", k, act.tool, a.Status)
		case at.Before(a.DecidedAt.Time):
			c.bad(onlyApproved, "the call %s reached %s %s before it was approved", k, act.tool, a.DecidedAt.Sub(at))
		default:
			c.took = append(c.took, at.Sub(c.lastDecision(a.RunID, at)))
		}
		if act.effects > 1 {
			c.bad(approvedOnce, "the call %s acted %d times", k, act.effects)
		}
	}
	return n
}
