package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"hob"
)

// spending says what a model call is booked on.
type spending struct {
	component string
	model     string // as it was asked for, which is what prices go by
	price     *hob.Price
	step      int
	estimate  int // tokens of the request
	before    int // bytes of the answer that earlier calls gave
}

// spend books a model call. A provider that tells no usage, or an impossible one, gets our estimate; a call that failed
// before it gave anything is not booked, as it was no answer.
func (a *active) spend(s spending, ans *answer, err error) {
	said := ans.text.Len() + ans.reasoning.Len() - s.before
	if err != nil && ans.usage == nil && said == 0 && len(ans.calls) == 0 {
		return
	}
	u, estimated := hob.Usage{}, false
	if ans.usage != nil && plausible(*ans.usage) {
		u = *ans.usage
		u.TotalTokens = max(u.TotalTokens, u.PromptTokens+u.CompletionTokens)
	} else {
		const bytesPerToken = 4
		estimated = true
		for _, c := range ans.calls {
			said += len(c.Name) + len(c.Arguments)
		}
		u = hob.Usage{PromptTokens: int64(s.estimate), CompletionTokens: int64((said + bytesPerToken - 1) / bytesPerToken)}
		u.TotalTokens = u.PromptTokens + u.CompletionTokens
	}
	u.Cost = 0
	if s.price != nil {
		u.Cost = s.price.Cost(u)
	}
	ans.usage = nil
	a.run.Usage = a.run.Usage.Add(u)
	a.e.count(hob.UsageEntry{Usage: u})
	if s.component == hob.ComponentCompaction {
		a.e.summaries.Add(1)
	}
	if s.component == hob.ComponentRun {
		a.lastPrompt, a.lastAnswer = u.PromptTokens, u.CompletionTokens
	}
	a.log.note(func(b *batch) {
		b.usage(hob.UsageEntry{
			Action: hob.ActionModelCall, Quantity: 1, Component: s.component, Model: s.model, Step: s.step, Usage: u,
			Estimated: estimated, Unpriced: s.price == nil,
		})
	})
}

// maxTokens is more than any one model call can use; counts beyond it are not believed.
const maxTokens = 20_000_000

func plausible(u hob.Usage) bool {
	if u.PromptTokens == 0 { // no request is empty
		return false
	}
	for _, n := range []int64{u.PromptTokens, u.CompletionTokens, u.ReasoningTokens, u.CachedTokens, u.TotalTokens} {
		if n < 0 || n > maxTokens {
			return false
		}
	}
	return true
}

// actions are the run's lines in the ledger beside its model calls: the run itself where it came to an answer, and the
// tool calls that were carried out, an entry for each action of each tool.
func (a *active) actions(end ending) []hob.UsageEntry {
	var out []hob.UsageEntry
	if end.status == hob.Completed {
		out = append(out, hob.UsageEntry{Action: hob.ActionRun, Quantity: 1, Model: a.run.Model})
	}
	for i := range a.calls {
		s := &a.calls[i]
		if !counted(s) {
			continue
		}
		action := cmp.Or(s.Result.Action, hob.ActionToolCall)
		at := slices.IndexFunc(out, func(u hob.UsageEntry) bool { return u.Action == action && u.Tool == s.Name })
		if at < 0 {
			at = len(out)
			out = append(out, hob.UsageEntry{Action: action, Tool: s.Name, Model: a.run.Model})
		}
		out[at].Quantity++
	}
	return out
}

// counted says whether a call is one for the ledger, however often it was tried: it was carried out and came to an
// answer that is known, and it is not the platform's fault that nothing came of it.
func counted(s *hob.CallState) bool {
	return s.Status == hob.CallDone && s.Attempt > 0 && !s.Result.Free && !s.Result.Unknown
}

// spendInside books what a tool used to come to its result, in the commit of that result.
func (a *active) spendInside(b *batch, step int, used []hob.UsageEntry) {
	for _, u := range used {
		u.Step = step
		if u.Action == "" || u.Action == hob.ActionModelCall {
			a.run.Usage = a.run.Usage.Add(u.Usage) // the log is locked: tools side by side come one behind the other
			a.e.count(u)
		}
		b.usage(u)
	}
}

// count adds a model call to the process's counters.
func (e *Engine) count(u hob.UsageEntry) {
	e.calls.Add(cmp.Or(u.Quantity, 1))
	e.tokens.Add(u.Usage.TotalTokens)
	e.cost.Add(int64(u.Usage.Cost))
}

// carried counts the tool calls that were carried out or begun in the steps before one.
func (a *active) carried(before int) int {
	n := 0
	for i := range a.calls {
		if a.calls[i].Step < before && a.calls[i].Attempt > 0 {
			n++
		}
	}
	return n
}

// inMoney says whether a budget of the run is one in money.
func (p *plan) inMoney() bool {
	b := p.settings.AgentBudget
	return p.tuning.MaxCost != nil || b != nil && b.MaxCost != nil
}

// secondsLeft is what the budget of time leaves, much where there is none.
func (a *active) secondsLeft() time.Duration {
	s := a.plan.tuning.MaxSeconds
	if s == nil {
		return hob.MaxRunSeconds * time.Second
	}
	return time.Duration(*s*float64(time.Second)) - a.e.Clock().Sub(a.run.StartedAt.Time)
}

// likely is what a request of so many tokens uses, with an answer like the last one.
func (a *active) likely(tokens int) hob.Usage {
	u := hob.Usage{PromptTokens: int64(tokens), CompletionTokens: a.lastAnswer}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	if p := a.plan.model.Price; p != nil {
		u.Cost = p.Cost(u)
	}
	return u
}

// allot reads what the agent's runs have used of its budget. The error is Invalid where a budget in money cannot be held
// because the model's price is not known, and RateLimited where nothing is left.
func (e *Engine) allot(ctx context.Context, p *plan) error {
	b := p.settings.AgentBudget
	if p.model.Price == nil && p.inMoney() {
		return hob.Errorf(hob.Invalid, "a budget in money needs the model's price, which is not known for %s: set it in the setting MODEL_PRICES",
			p.pin.Agent.Model).WithCode("unknown_price").With("field", "max_cost")
	}
	if b == nil {
		return nil
	}
	since, until := period(b.Period, e.Clock())
	var err error
	if p.before, err = e.Store.AgentUsage(ctx, p.pin.Agent.ID, hob.Time{Time: since}); err != nil {
		return err
	}
	// A run that is taken up again has a part in it, which counts as its own.
	p.before.TotalTokens = max(p.before.TotalTokens-p.run.Usage.TotalTokens, 0)
	p.before.Cost = max(p.before.Cost-p.run.Usage.Cost, 0)
	if why := agentSpent(b, p.before); why != "" {
		way := "raise settings.agent_budget"
		if !until.IsZero() {
			way += ", or wait until " + until.Format(time.RFC3339)
		}
		err := hob.Errorf(hob.RateLimited, "the agent's budget is used up: %s; %s", why, way).WithCode(hob.CodeBudget)
		if !until.IsZero() {
			err.RetryAfter = until.Sub(e.Clock())
		}
		return err
	}
	return nil
}

// recount looks what the agent's other runs have used meanwhile. What cannot be read stays as it was.
func (a *active) recount(b *hob.Budget) {
	since, _ := period(b.Period, a.e.Clock())
	all, err := a.e.Store.AgentUsage(a.ctx, a.run.Agent, hob.Time{Time: since})
	if err != nil {
		return
	}
	before, own := &a.plan.before, a.run.Usage // a part of which may not be stored yet
	before.TotalTokens = max(before.TotalTokens, all.TotalTokens-own.TotalTokens)
	before.Cost = max(before.Cost, all.Cost-own.Cost)
}

// period is the time that a budget counts in; until is zero where it has no end.
func period(name string, now time.Time) (since, until time.Time) {
	now = now.UTC()
	switch name {
	case "day":
		since = time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
		return since, since.AddDate(0, 0, 1)
	case "month":
		since = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
		return since, since.AddDate(0, 1, 0)
	}
	return time.Time{}, time.Time{}
}

func agentSpent(b *hob.Budget, u hob.Usage) string {
	switch {
	case b == nil:
	case b.MaxTokensTotal != nil && u.TotalTokens >= *b.MaxTokensTotal:
		return fmt.Sprintf("%d tokens of %d in its period (%s)", u.TotalTokens, *b.MaxTokensTotal, b.Period)
	case b.MaxCost != nil && u.Cost >= hob.Dollars(*b.MaxCost):
		return fmt.Sprintf("$%s of $%s in its period (%s)", u.Cost, hob.Dollars(*b.MaxCost), b.Period)
	}
	return ""
}

// lastStep says whether a step is the run's last, which may use no tools: by the number of steps, or because a budget
// leaves no room for another one behind it. The run then comes to an answer and says why.
func (a *active) lastStep(step int) bool {
	if a.spent == "" {
		if a.spent = a.exhausted(); a.spent != "" {
			a.log.note(func(b *batch) {
				b.event(hob.EventWarning, func(h hob.EventHead) any {
					return hob.WarningEvent{EventHead: h, Code: hob.CodeBudget, Message: "this step is the run's last: " + a.spent}
				})
			})
		}
	}
	return a.spent != "" || step >= a.maxSteps()
}

// exhausted tells which budget is used up, or would be by this step and an answer after it; "" = none. What a step
// will use is taken to be what it sends, and as much of an answer as the last one.
func (a *active) exhausted() string {
	t, b := a.plan.tuning, a.plan.settings.AgentBudget
	if len(a.plan.tools) == 0 { // this step is the last anyway
		return ""
	}
	if n := t.MaxToolCalls; n != nil && a.carried(a.run.Steps+1) >= *n {
		return fmt.Sprintf("the budget max_tool_calls of %d is used up", *n)
	}
	if s := t.MaxSeconds; s != nil && a.secondsLeft() <= 0 {
		return fmt.Sprintf("the budget max_seconds of %g is used up", *s)
	}
	if t.MaxTokensTotal == nil && t.MaxCost == nil && b == nil {
		return ""
	}
	if b != nil {
		a.recount(b)
	}
	next := a.likely(max(a.size(), int(a.lastPrompt)))
	if which := a.over(a.run.Usage.Add(next).Add(next)); which != "" {
		return fmt.Sprintf("%s leaves no room for a step and an answer behind it (used so far: %d tokens, $%s)",
			which, a.run.Usage.TotalTokens, a.run.Usage.Cost)
	}
	return ""
}

// passed tells which budget the run has used up in fact, "" where none.
func (a *active) passed() string { return a.over(a.run.Usage) }

// over tells which budget a use would pass.
func (a *active) over(u hob.Usage) string {
	t := a.plan.tuning
	switch {
	case t.MaxTokensTotal != nil && u.TotalTokens > *t.MaxTokensTotal:
		return fmt.Sprintf("the budget max_tokens_total of %d", *t.MaxTokensTotal)
	case t.MaxCost != nil && u.Cost > hob.Dollars(*t.MaxCost):
		return fmt.Sprintf("the budget max_cost of $%s", hob.Dollars(*t.MaxCost))
	case agentSpent(a.plan.settings.AgentBudget, a.plan.before.Add(u)) != "":
		return "the agent's budget of its period"
	}
	return ""
}
