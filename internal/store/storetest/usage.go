package storetest

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"hob"
)

func usageCases() map[string]func(*world) {
	return map[string]func(*world){
		"UsageIsSummedByGroup":             usageGroups,
		"UsageIsNarrowedByItsFilter":       usageFilter,
		"UsageIsWhatThePrincipalMaySee":    usageVisible,
		"UsageOutlivesItsRun":              usageOutlives,
		"UsageOfARunCountsModelCallsAlone": usageOfRun,
		"UsageOfAnAgentIsSinceATime":       usageOfAgent,
		"UsageOfNothingIsNothing":          usageNothing,
		"UsageOfARunIsToldWithIt":          usageTold,
		"UsageOutsideOfRunsIsBooked":       usageBooked,
	}
}

// tokens is a use of n prompt and n completion tokens that cost n dollars.
func tokens(n int64) hob.Usage {
	return hob.Usage{PromptTokens: n, CompletionTokens: n, ReasoningTokens: 1, CachedTokens: 2, TotalTokens: 2 * n, Cost: hob.Money(n) * hob.Dollar}
}

// used writes ledger entries for a run.
func (w *world) used(r hob.Run, entries ...hob.UsageEntry) {
	w.t.Helper()
	c := step(r)
	c.Usage = entries
	w.must(w.s.Commit(w.ctx, c))
}

// usage writes a report on one line: per row its key, quantity, model calls, tokens, dollars, estimated and unpriced calls.
func (w *world) usage(by hob.Principal, f hob.UsageFilter) string {
	w.t.Helper()
	rows, err := w.s.Usage(w.ctx, by, f)
	w.must(err)
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%s:%d/%d/%d/%s/%d/%d", r.Key, r.Quantity, r.Calls, r.TotalTokens, r.Cost, r.EstimatedCalls, r.UnpricedCalls))
	}
	return strings.Join(out, " ")
}

// ledger fills a ledger: alice's run of the first agent, the key's run of the second.
func (w *world) ledger() (alices, keys hob.Run) {
	w.t.Helper()
	alices = w.begin(w.alice, "s")
	keys = w.start(w.newRun(w.key, w.other.ID, "k"))
	w.used(alices,
		hob.UsageEntry{Component: hob.ComponentRun, Model: "big", Step: 1, Usage: tokens(100)},
		hob.UsageEntry{Component: hob.ComponentCompaction, Model: "small", Step: 2, Usage: tokens(10), Estimated: true},
		hob.UsageEntry{Action: hob.ActionToolCall, Quantity: 3, Tool: "stock"},
	)
	w.used(keys,
		hob.UsageEntry{Action: hob.ActionModelCall, Component: hob.ComponentRun, Model: "small", Step: 1, Usage: hob.Usage{TotalTokens: 7}, Unpriced: true},
		hob.UsageEntry{Action: hob.ActionToolCall, Tool: "clock"},
		hob.UsageEntry{Action: hob.ActionRun},
	)
	return alices, keys
}

func usageGroups(w *world) {
	w.ledger()
	rows, err := w.s.Usage(w.ctx, w.service, hob.UsageFilter{})
	w.must(err)
	same(w, "rows", len(rows), 1)
	sum := tokens(100).Add(tokens(10)).Add(hob.Usage{TotalTokens: 7})
	same(w, "everything", rows[0], hob.UsageRow{Quantity: 8, Calls: 3, Usage: sum, EstimatedCalls: 1, UnpricedCalls: 1})
	today := hob.SystemClock().Format(time.DateOnly)
	for group, want := range map[hob.UsageGroup]string{
		hob.ByAction:    "llm_call:3/3/227/110/1/1 agent_tool_call:4/0/0/0/0/0 agent_run:1/0/0/0/0/0",
		hob.ByComponent: "run:2/2/207/100/0/1 compaction:1/1/20/10/1/0",
		hob.ByModel:     "big:1/1/200/100/0/0 small:2/2/27/10/1/1 :5/0/0/0/0/0",
		hob.ByAgent:     string(w.agent.ID) + ":5/2/220/110/1/0 " + string(w.other.ID) + ":3/1/7/0/0/1",
		hob.ByTool:      "stock:3/0/0/0/0/0 clock:1/0/0/0/0/0",
		hob.ByDay:       today + ":8/3/227/110/1/1",
	} {
		same(w, "by "+string(group), w.usage(w.service, hob.UsageFilter{GroupBy: group}), want)
	}
	_, err = w.s.Usage(w.ctx, w.service, hob.UsageFilter{GroupBy: "moon"})
	w.want(hob.Invalid, err)
}

func usageFilter(w *world) {
	before := now()
	alices, keys := w.ledger()
	after := hob.Time{Time: hob.SystemClock().Add(time.Microsecond)}
	for name, c := range map[string]struct {
		f    hob.UsageFilter
		want string
	}{
		"agent":            {hob.UsageFilter{Agent: w.agent.ID}, ":5/2/220/110/1/0"},
		"agent, any case":  {hob.UsageFilter{Agent: hob.AgentID(strings.ToUpper(string(w.agent.ID)))}, ":5/2/220/110/1/0"},
		"model":            {hob.UsageFilter{Model: "small"}, ":2/2/27/10/1/1"},
		"run":              {hob.UsageFilter{Run: keys.ID}, ":3/1/7/0/0/1"},
		"run and agent":    {hob.UsageFilter{Run: keys.ID, Agent: alices.Agent}, ":0/0/0/0/0/0"},
		"absent run":       {hob.UsageFilter{Run: "run_none"}, ":0/0/0/0/0/0"},
		"run by model":     {hob.UsageFilter{Run: alices.ID, GroupBy: hob.ByModel}, "big:1/1/200/100/0/0 small:1/1/20/10/1/0 :3/0/0/0/0/0"},
		"since its begin":  {hob.UsageFilter{Since: before}, ":8/3/227/110/1/1"},
		"since its end":    {hob.UsageFilter{Since: after}, ":0/0/0/0/0/0"},
		"until its begin":  {hob.UsageFilter{Until: before}, ":0/0/0/0/0/0"},
		"until its end":    {hob.UsageFilter{Until: after}, ":8/3/227/110/1/1"},
		"agent in a time":  {hob.UsageFilter{Agent: w.other.ID, Since: before, Until: after}, ":3/1/7/0/0/1"},
		"nothing by model": {hob.UsageFilter{Since: after, GroupBy: hob.ByModel}, ""},
	} {
		same(w, name, w.usage(w.service, c.f), c.want)
	}
}

func usageVisible(w *world) {
	alices, keys := w.ledger()
	services := w.begin(w.service, "service")
	w.used(services, hob.UsageEntry{Action: hob.ActionRun})
	bound := w.boundTo(w.agent.ID)
	bounds := w.begin(bound, "bound")
	w.used(bounds, hob.UsageEntry{Action: hob.ActionRun, Quantity: 2})
	boundAdmin := w.boundAdmin()
	for name, c := range map[string]struct {
		by   hob.Principal
		f    hob.UsageFilter
		want string
	}{
		"service":                    {w.service, hob.UsageFilter{}, ":11/3/227/110/1/1"},
		"another service key":        {hob.Principal{Kind: hob.ServicePrincipal, ID: "x", Workspace: hob.DefaultWorkspace, Scopes: w.service.Scopes}, hob.UsageFilter{}, ":11/3/227/110/1/1"},
		"alice":                      {w.alice, hob.UsageFilter{}, ":5/2/220/110/1/0"},
		"bob":                        {w.bob, hob.UsageFilter{}, ":0/0/0/0/0/0"},
		"bob asks for alice's run":   {w.bob, hob.UsageFilter{Run: alices.ID}, ":0/0/0/0/0/0"},
		"alice asks for her run":     {w.alice, hob.UsageFilter{Run: alices.ID}, ":5/2/220/110/1/0"},
		"alice asks for the other":   {w.alice, hob.UsageFilter{Agent: w.other.ID}, ":0/0/0/0/0/0"},
		"key":                        {w.key, hob.UsageFilter{}, ":3/1/7/0/0/1"},
		"key bound to an agent":      {bound, hob.UsageFilter{}, ":2/0/0/0/0/0"},
		"administrator's bound key":  {boundAdmin, hob.UsageFilter{}, ":8/2/220/110/1/0"},
		"bound key asks for another": {boundAdmin, hob.UsageFilter{Agent: w.other.ID}, ":0/0/0/0/0/0"},
		"bound key asks for a run":   {boundAdmin, hob.UsageFilter{Run: keys.ID}, ":0/0/0/0/0/0"},
		"stranger":                   {w.stranger, hob.UsageFilter{}, ":0/0/0/0/0/0"},
		"stranger asks for an agent": {w.stranger, hob.UsageFilter{Agent: w.agent.ID}, ":0/0/0/0/0/0"},
		"stranger asks for a run":    {w.stranger, hob.UsageFilter{Run: alices.ID}, ":0/0/0/0/0/0"},
	} {
		same(w, name, w.usage(c.by, c.f), c.want)
	}
	blind := w.key
	blind.Scopes = []hob.Scope{hob.ScopeConfigure}
	_, err := w.s.Usage(w.ctx, blind, hob.UsageFilter{})
	w.want(hob.Forbidden, err)
}

func usageOutlives(w *world) {
	alices, _ := w.ledger()
	w.must(w.s.DeleteSession(w.ctx, w.alice, "", "s"))
	same(w, "workspace", w.usage(w.service, hob.UsageFilter{}), ":8/3/227/110/1/1")
	same(w, "run that was deleted", w.usage(w.service, hob.UsageFilter{Run: alices.ID}), ":5/2/220/110/1/0")
	// A run in the place of the deleted one has nothing of its ledger.
	next := w.begin(w.alice, "s")
	same(w, "the next run", w.usage(w.service, hob.UsageFilter{Run: next.ID}), ":0/0/0/0/0/0")
	w.must(w.s.DeleteAgent(w.ctx, w.service, w.agent.ID))
	same(w, "agent that was deleted", w.usage(w.service, hob.UsageFilter{Agent: w.agent.ID}), ":5/2/220/110/1/0")
}

// usageOfRun: what was counted beside model calls is no part of what a run's model calls cost.
func usageOfRun(w *world) {
	r := w.begin(w.alice, "s")
	w.used(r,
		hob.UsageEntry{Component: hob.ComponentRun, Model: "m", Usage: tokens(3)},
		hob.UsageEntry{Action: hob.ActionToolCall, Quantity: 5, Usage: tokens(1000)},
		hob.UsageEntry{Component: hob.ComponentCompaction, Model: "m", Usage: tokens(4)},
	)
	st, err := w.s.Load(w.ctx, r.ID)
	w.must(err)
	want := tokens(3).Add(tokens(4))
	same(w, "so far", st.Run.Usage, want)
	end := ending(r, hob.Completed, "done")
	end.Outcome.Usage = want
	end.Usage = []hob.UsageEntry{{Action: hob.ActionRun}}
	w.must(w.s.Commit(w.ctx, end))
	got, err := w.s.Run(w.ctx, w.alice, r.ID)
	w.must(err)
	same(w, "of the ended run", got.Usage, want)
}

func usageTold(w *world) {
	w.must(w.s.DeleteSession(w.ctx, w.alice, "", w.begin(w.alice, "gone").Session))
	alices, keys := w.ledger()
	w.used(alices, hob.UsageEntry{Action: hob.ActionToolCall}, hob.UsageEntry{Action: hob.ActionWebSearch})
	for run, want := range map[*hob.Run]map[string]int64{
		&alices: {hob.ActionModelCall: 2, hob.ActionToolCall: 4, hob.ActionWebSearch: 1},
		&keys:   {hob.ActionModelCall: 1, hob.ActionToolCall: 1, hob.ActionRun: 1},
	} {
		d, err := w.s.RunDetail(w.ctx, w.service, run.ID)
		w.must(err)
		st, err := w.s.Load(w.ctx, run.ID)
		w.must(err)
		if !maps.Equal(want, d.Actions) || !maps.Equal(want, st.Actions) {
			w.t.Errorf("the run is told with %v and loaded with %v, want %v", d.Actions, st.Actions, want)
		}
	}
	d, err := w.s.RunDetail(w.ctx, w.service, w.begin(w.bob, "empty").ID)
	w.must(err)
	if d.Actions == nil || len(d.Actions) > 0 {
		w.t.Errorf("a run that used nothing is told with %v", d.Actions)
	}
}

func usageBooked(w *world) {
	w.ledger()
	w.must(w.s.Book(w.ctx, w.alice, "", nil))
	w.must(w.s.Book(w.ctx, w.alice, "", []hob.UsageEntry{{Action: hob.ActionWebSearch}, {Component: hob.ComponentVision, Model: "eye", Usage: tokens(2)}}))
	w.must(w.s.Book(w.ctx, w.key, hob.AgentID(strings.ToUpper(string(w.agent.ID))), []hob.UsageEntry{{Action: hob.ActionWebSearch, Quantity: 2}}))
	for name, c := range map[string]struct {
		by   hob.Principal
		f    hob.UsageFilter
		want string
	}{
		"all":           {w.service, hob.UsageFilter{GroupBy: hob.ByAction}, "llm_call:4/4/231/112/1/1 agent_tool_call:4/0/0/0/0/0 web_search:3/0/0/0/0/0 agent_run:1/0/0/0/0/0"},
		"alice's":       {w.alice, hob.UsageFilter{GroupBy: hob.ByAction}, "llm_call:3/3/224/112/1/0 agent_tool_call:3/0/0/0/0/0 web_search:1/0/0/0/0/0"},
		"the agent's":   {w.service, hob.UsageFilter{Agent: w.agent.ID, GroupBy: hob.ByAction}, "llm_call:2/2/220/110/1/0 agent_tool_call:3/0/0/0/0/0 web_search:2/0/0/0/0/0"},
		"the key's own": {w.key, hob.UsageFilter{Agent: w.agent.ID}, ":2/0/0/0/0/0"},
	} {
		same(w, name, w.usage(c.by, c.f), c.want)
	}
}

func usageOfAgent(w *world) {
	before := now()
	alices, _ := w.ledger()
	w.used(w.begin(w.bob, "b"), hob.UsageEntry{Component: hob.ComponentRun, Model: "m", Usage: tokens(5)})
	w.used(alices, hob.UsageEntry{Action: hob.ActionRun, Usage: tokens(1000)})
	want := tokens(100).Add(tokens(10)).Add(tokens(5))
	after := hob.Time{Time: hob.SystemClock().Add(time.Microsecond)}
	for name, c := range map[string]struct {
		agent hob.AgentID
		since hob.Time
		want  hob.Usage
	}{
		"always":       {w.agent.ID, hob.Time{}, want},
		"any case":     {hob.AgentID(strings.ToUpper(string(w.agent.ID))), hob.Time{}, want},
		"from then on": {w.agent.ID, before, want},
		"later":        {w.agent.ID, after, hob.Usage{}},
		"other":        {w.other.ID, before, hob.Usage{TotalTokens: 7}},
		"absent":       {hob.AgentID(hob.NewUUID()), hob.Time{}, hob.Usage{}},
		"no id":        {"x", hob.Time{}, hob.Usage{}},
	} {
		got, err := w.s.AgentUsage(w.ctx, c.agent, c.since)
		w.must(err)
		same(w, name, got, c.want)
	}
}

func usageNothing(w *world) {
	same(w, "everything", w.usage(w.service, hob.UsageFilter{}), ":0/0/0/0/0/0")
	for _, group := range []hob.UsageGroup{hob.ByAction, hob.ByComponent, hob.ByAgent, hob.ByModel, hob.ByDay} {
		same(w, "by "+string(group), w.usage(w.service, hob.UsageFilter{GroupBy: group}), "")
	}
}
