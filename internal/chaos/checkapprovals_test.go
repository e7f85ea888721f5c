//go:build linux

package main

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"hob"
)

// askedFor is what is found of one approval, decided by the first of two people.
func askedFor(status hob.ApprovalStatus, change func(*peopleFound)) peopleFound {
	at := time.Now()
	a := hob.Approval{ApprovalID: "a1", RunID: "r1", CallID: "c1", Status: status, ExpiresAt: hob.Time{Time: at.Add(time.Minute)}}
	p := peopleFound{
		asked: map[string]question{"a1": {id: "a1", run: "r1", call: "c1", tool: toolOnce, ends: at.Add(time.Minute)}}, names: []string{"key:0", "key:1"},
		decisions: map[string][]decision{}, approvals: map[string]hob.Approval{}, acts: map[string]*act{}, messages: map[hob.RunID]*message{"r1": {}},
		runs: map[hob.RunID]*story{"r1": {log: []frame{
			{kind: hob.EventApprovalRequested, data: []byte(`{"approval_id":"a1"}`)},
			{kind: hob.EventApprovalResolved, data: []byte(`{"approval_id":"a1","status":"` + string(status) + `"}`)},
		}}},
	}
	late := decision{person: 1, status: http.StatusConflict, code: "approval_decided", told: string(status)}
	switch status {
	case hob.ApprovalApproved, hob.ApprovalDenied:
		a.DecidedBy, a.DecidedAt = "key:0", hob.Time{Time: at}
		p.decisions["a1"] = []decision{{person: 0, approve: status == hob.ApprovalApproved, status: http.StatusOK, told: string(status)}, late}
	default:
		late.code = "approval_" + string(status)
		p.decisions["a1"] = []decision{late}
	}
	if status == hob.ApprovalApproved {
		p.acts["r1:c1"] = &act{key: "r1:c1", tool: toolOnce, arrived: []time.Time{at.Add(time.Millisecond)}, effects: 1}
	}
	p.approvals["a1"] = a
	if change != nil {
		change(&p)
	}
	return p
}

// with changes the approval that is found.
func with(change func(*hob.Approval)) func(*peopleFound) {
	return func(p *peopleFound) {
		a := p.approvals["a1"]
		change(&a)
		p.approvals["a1"] = a
	}
}

func TestCheckApprovals_FindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	done := &act{tool: toolOnce, arrived: []time.Time{time.Now().Add(time.Minute)}, effects: 1}
	for name, tt := range map[string]struct {
		status hob.ApprovalStatus
		change func(*peopleFound)
		want   []string
	}{
		"approved":           {hob.ApprovalApproved, nil, nil},
		"denied":             {hob.ApprovalDenied, nil, nil},
		"expired":            {hob.ApprovalExpired, nil, nil},
		"cancelled":          {hob.ApprovalCancelled, nil, nil},
		"still waits":        {hob.ApprovalPending, nil, []string{oneEnd, firstCounts}},
		"gone":               {hob.ApprovalDenied, func(p *peopleFound) { delete(p.approvals, "a1") }, []string{oneEnd}},
		"run gone":           {hob.ApprovalDenied, func(p *peopleFound) { delete(p.runs, "r1") }, []string{oneEnd}},
		"told twice":         {hob.ApprovalDenied, func(p *peopleFound) { s := p.runs["r1"]; s.log = append(s.log, s.log[1]) }, []string{oneEnd}},
		"never told":         {hob.ApprovalDenied, func(p *peopleFound) { s := p.runs["r1"]; s.log = s.log[:1] }, []string{oneEnd}},
		"told otherwise":     {hob.ApprovalDenied, func(p *peopleFound) { p.runs["r1"].log[1].data = []byte(`{"approval_id":"a1","status":"expired"}`) }, []string{oneEnd}},
		"decided twice":      {hob.ApprovalApproved, func(p *peopleFound) { p.decisions["a1"][1] = decision{person: 1, approve: true, status: http.StatusOK} }, []string{firstCounts}},
		"decided by another": {hob.ApprovalApproved, with(func(a *hob.Approval) { a.DecidedBy = "key:1" }), []string{firstCounts}},
		"decided by nobody":  {hob.ApprovalApproved, func(p *peopleFound) { p.decisions["a1"] = p.decisions["a1"][1:] }, []string{firstCounts}},
		"decided by one who lost the answer": {hob.ApprovalApproved, func(p *peopleFound) {
			p.decisions["a1"][0] = decision{person: 0, approve: true, lost: 1, status: http.StatusConflict, code: "approval_decided", told: "approved"}
		}, nil},
		"lost answer to the other choice": {hob.ApprovalApproved, func(p *peopleFound) {
			p.decisions["a1"][0] = decision{person: 0, lost: 1, status: http.StatusConflict, code: "approval_decided", told: "approved"}
		}, []string{firstCounts}},
		"the late are told otherwise": {hob.ApprovalApproved, func(p *peopleFound) { p.decisions["a1"][1].told = "denied" }, []string{firstCounts}},
		"the late are told nothing":   {hob.ApprovalDenied, func(p *peopleFound) { p.decisions["a1"][1].status = http.StatusNotFound }, []string{firstCounts}},
		"behind its time":             {hob.ApprovalDenied, with(func(a *hob.Approval) { a.DecidedAt = hob.Time{Time: a.ExpiresAt.Add(time.Microsecond)} }), []string{inTime}},
		"its time is lost": {hob.ApprovalDenied, with(func(a *hob.Approval) {
			a.DecidedAt, a.ExpiresAt = hob.Time{Time: a.ExpiresAt.Add(time.Second)}, hob.Time{}
		}), []string{inTime}},
		"called without":       {hob.ApprovalDenied, func(p *peopleFound) { p.acts["r1:c2"] = done }, []string{onlyApproved}},
		"called before":        {hob.ApprovalApproved, func(p *peopleFound) { p.acts["r1:c1"].arrived[0] = time.Now().Add(-time.Minute) }, []string{onlyApproved}},
		"denied and called":    {hob.ApprovalDenied, func(p *peopleFound) { p.acts["r1:c1"] = done }, []string{refusedNever}},
		"expired and called":   {hob.ApprovalExpired, func(p *peopleFound) { p.acts["r1:c1"] = done }, []string{refusedNever}},
		"cancelled and called": {hob.ApprovalCancelled, func(p *peopleFound) { p.acts["r1:c1"] = done }, []string{refusedNever}},
		"acted twice":          {hob.ApprovalApproved, func(p *peopleFound) { p.acts["r1:c1"].effects = 2 }, []string{approvedOnce}},
		"a read needs nobody":  {hob.ApprovalDenied, func(p *peopleFound) { p.acts["r1:c2"] = &act{tool: toolRead} }, nil},
		"expired while it is cancelled": {hob.ApprovalCancelled, func(p *peopleFound) {
			p.messages["r1"].cancel = true
			p.decisions["a1"][0].code, p.decisions["a1"][0].told = "approval_expired", "expired"
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdicts, _ := checkApprovals(askedFor(tt.status, tt.change))
			var got []string
			for _, v := range verdicts {
				if v.broken() {
					got = append(got, v.name)
				}
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("broken: %q, want %q", got, tt.want)
			}
		})
	}
}

func TestParts_OfTheLongCheckRunWhereTheyAreNamed(t *testing.T) {
	t.Parallel()
	long := part{name: "elsewhere", long: true}
	for _, tt := range []struct {
		o    options
		want bool
	}{{options{}, false}, {options{long: true}, true}, {options{only: []string{"elsewhere"}}, true}, {options{long: true, only: []string{"kill"}}, false}} {
		if got := tt.o.wants(long); got != tt.want {
			t.Errorf("%+v: %t", tt.o, got)
		}
	}
}
