package store

import (
	"context"
	"strings"
	"time"

	"hob"
)

// usageSums adds up ledger entries; scanSums reads it.
const usageSums = `CAST(coalesce(sum(prompt_tokens), 0) AS BIGINT), CAST(coalesce(sum(completion_tokens), 0) AS BIGINT),
	CAST(coalesce(sum(reasoning_tokens), 0) AS BIGINT), CAST(coalesce(sum(cached_tokens), 0) AS BIGINT),
	CAST(coalesce(sum(total_tokens), 0) AS BIGINT), CAST(coalesce(sum(cost), 0) AS BIGINT)`

func sumsOf(u *hob.Usage) []any {
	return []any{&u.PromptTokens, &u.CompletionTokens, &u.ReasoningTokens, &u.CachedTokens, &u.TotalTokens, &u.Cost}
}

func scanSums(r row) (u hob.Usage, err error) {
	err = r.Scan(sumsOf(&u)...)
	return u, err
}

// modelCalls are the entries that carry tokens.
const modelCalls = `action = '` + hob.ActionModelCall + `'`

// booked is what the ledger has of a run.
type booked struct {
	usage   hob.Usage // of its model calls
	actions map[string]int64
}

// bookedOf reads the ledger of runs, by their numbers. A number alone is not enough: it may have been another run's before.
func bookedOf(ctx context.Context, t *tx, ns []int64, runs []storedRun) (map[int64]booked, error) {
	type sum struct {
		run      int64
		id       hob.RunID
		action   string
		quantity int64
		usage    hob.Usage
	}
	in, args := inList(ns)
	sums, err := many(ctx, t, func(r row) (s sum, err error) {
		err = r.Scan(append([]any{&s.run, &s.id, &s.action, &s.quantity}, sumsOf(&s.usage)...)...)
		return s, err
	}, `SELECT run_n, run_id, action, CAST(sum(quantity) AS BIGINT), `+usageSums+` FROM usage WHERE run_n IN `+in+`
		GROUP BY run_n, run_id, action`, args...)
	if err != nil {
		return nil, hob.Wrap("add up what runs used", err)
	}
	out := make(map[int64]booked, len(runs))
	for _, x := range runs {
		b := booked{actions: map[string]int64{}}
		for i := range sums {
			if s := &sums[i]; s.run == x.n && s.id == x.ID {
				b.actions[s.action] = s.quantity
				if s.action == hob.ActionModelCall {
					b.usage = s.usage
				}
			}
		}
		out[x.n] = b
	}
	return out, nil
}

// Book writes down what was used outside of runs: entries without a run. Who sees them is as for those of the principal's
// runs.
func (s *DB) Book(ctx context.Context, by hob.Principal, agent hob.AgentID, used []hob.UsageEntry) error {
	if len(used) == 0 {
		return nil
	}
	m := place{ws: string(by.Workspace), by: starter(by), agent: strings.ToLower(string(agent))}
	now := s.now()
	return s.write(ctx, "book what was used", func(ctx context.Context, t *tx) error {
		return s.texts.usage.insert(ctx, t, usageArgs(m, "", used, now))
	})
}

// AgentUsage adds up the model calls of an agent's runs since a time; a zero time means all of them. It asks for no
// principal: budgets hold for everybody. An agent that is not there any more has no budget left to count for.
func (s *DB) AgentUsage(ctx context.Context, id hob.AgentID, since hob.Time) (hob.Usage, error) {
	key, ok := uuid(id)
	if !ok {
		return hob.Usage{}, nil
	}
	u, err := one(ctx, s.read(), scanSums, `SELECT `+usageSums+` FROM usage
		WHERE workspace_id = (SELECT workspace_id FROM agents WHERE id = ?) AND agent_id = ? AND created_at >= ? AND `+modelCalls,
		key, key, since.Micros())
	return u, hob.Wrap("add up an agent's usage", err)
}

// usageGroups are the columns of the groups. A day is a number of days since 1970.
var usageGroups = map[hob.UsageGroup]string{
	"": "", hob.ByAction: "action", hob.ByComponent: "component", hob.ByAgent: "agent_id", hob.ByModel: "model",
	hob.ByTool: "tool",
	hob.ByDay:  "created_at / 86400000000",
}

// Usage adds up the ledger. Administrators see the workspace's entries, others those of runs that they started; a key
// that is bound to an agent sees that agent's alone. The ledger outlives runs, sessions and agents. A report by component
// is of model calls alone, one by tool of what tools did: nothing else has one.
func (s *DB) Usage(ctx context.Context, by hob.Principal, f hob.UsageFilter) ([]hob.UsageRow, error) {
	group, ok := usageGroups[f.GroupBy]
	if !ok {
		return nil, hob.Errorf(hob.Invalid, "Invalid group_by %q. Allowed: action, agent, component, day, model, tool", f.GroupBy).With("field", "group_by")
	}
	if err := see(by, hob.Object{Kind: hob.SessionObject, Workspace: by.Workspace, Owner: by.Owner(), Agent: by.Agent}); err != nil {
		return nil, err
	}
	t := s.read()
	where, err := usageWhere(ctx, t, by, f)
	if err != nil {
		return nil, err
	}
	if f.GroupBy == hob.ByComponent {
		where.where(modelCalls)
	}
	if f.GroupBy == hob.ByTool {
		where.where("tool <> ''")
	}
	key, tail := "''", ""
	switch {
	case f.GroupBy == hob.ByDay:
		key, tail = group, ` GROUP BY 1 ORDER BY 1`
	case group != "":
		key, tail = group, ` GROUP BY 1 ORDER BY 8 DESC, 9 DESC, 2 DESC, 1` // tokens, cost, quantity, name
	}
	rows, err := many(ctx, t, scanUsage(f.GroupBy == hob.ByDay), `SELECT `+key+`, CAST(coalesce(sum(quantity), 0) AS BIGINT),
		CAST(coalesce(sum(CASE WHEN `+modelCalls+` THEN quantity ELSE 0 END), 0) AS BIGINT),
		`+usageSums+`,
		CAST(coalesce(sum(CASE WHEN `+modelCalls+` AND estimated = 1 THEN quantity ELSE 0 END), 0) AS BIGINT),
		CAST(coalesce(sum(CASE WHEN `+modelCalls+` AND unpriced = 1 THEN quantity ELSE 0 END), 0) AS BIGINT)
		FROM usage`+where.String()+tail, where.args...)
	return rows, hob.Wrap("add up the usage", err)
}

// usageWhere is the filter's condition. It is written so that an index leads to the entries: of a run, of an agent in a
// time, of the workspace in a time.
func usageWhere(ctx context.Context, t *tx, by hob.Principal, f hob.UsageFilter) (*filter, error) {
	w := &filter{}
	run, err := runNumber(ctx, t, by, f.Run)
	if err != nil {
		return nil, err
	}
	if run != 0 {
		w.where("run_n = ?", run)
	} else {
		w.where("workspace_id = ?", string(by.Workspace))
	}
	if f.Run != "" {
		w.where("run_id = ?", string(f.Run))
	}
	if !by.SeesAll() {
		w.where("started_by = ?", starter(by))
	}
	for _, a := range []hob.AgentID{by.Agent, f.Agent} {
		if a != "" {
			w.where("agent_id = ?", strings.ToLower(string(a)))
		}
	}
	if f.Model != "" {
		w.where("model = ?", f.Model)
	}
	if !f.Since.IsZero() {
		w.where("created_at >= ?", f.Since.Micros())
	}
	if !f.Until.IsZero() {
		w.where("created_at < ?", f.Until.Micros())
	}
	return w, nil
}

// runNumber finds the number that a run's entries are found by; 0 where no run is asked for, and for one that was deleted
// with its session: its entries are then looked for among all.
func runNumber(ctx context.Context, t *tx, by hob.Principal, id hob.RunID) (int64, error) {
	if id == "" {
		return 0, nil
	}
	n, err := one(ctx, t, scanInt, `SELECT n FROM runs WHERE id = ? AND workspace_id = ?`, string(id), string(by.Workspace))
	if none(err) {
		return 0, nil
	}
	return n, hob.Wrap("find a run", err)
}

func scanUsage(days bool) func(row) (hob.UsageRow, error) {
	return func(r row) (u hob.UsageRow, err error) {
		var day int64
		key := any(&u.Key)
		if days {
			key = &day
		}
		dest := append([]any{key, &u.Quantity, &u.Calls}, sumsOf(&u.Usage)...)
		if err = r.Scan(append(dest, &u.EstimatedCalls, &u.UnpricedCalls)...); err == nil && days {
			u.Key = time.Unix(day*24*60*60, 0).UTC().Format(time.DateOnly)
		}
		return u, err
	}
}
