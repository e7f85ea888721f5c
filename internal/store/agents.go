package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"hob"
)

const agentColumns = `id, workspace_id, owner, name, model, system_prompt, settings, tool_ids, hooks, created_at, updated_at`

func scanAgent(r row) (a hob.Agent, err error) {
	var settings string
	var toolIDs *string
	var created, updated int64
	err = r.Scan(&a.ID, &a.Workspace, &a.Owner, &a.Name, &a.Model, &a.SystemPrompt, &settings, &toolIDs, &a.Hooks, &created, &updated)
	a.Settings = json.RawMessage(settings)
	a.CreatedAt, a.UpdatedAt = hob.FromMicros(created), hob.FromMicros(updated)
	if err != nil || toolIDs == nil {
		return a, err
	}
	a.ToolIDs = &[]string{}
	if err = json.Unmarshal([]byte(*toolIDs), a.ToolIDs); err != nil {
		return hob.Agent{}, fmt.Errorf("read the tool ids of agent %s: %w", a.ID, err)
	}
	return a, nil
}

// toolIDs is an agent's list as it is kept: NULL where there is none, which is not the same as an empty one.
func toolIDs(a hob.Agent) (column any, err error) {
	if a.ToolIDs == nil {
		return column, nil
	}
	list := *a.ToolIDs
	if list == nil {
		list = []string{}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode an agent's tool ids: %w", err)
	}
	return string(text), nil
}

func agentObject(a hob.Agent) hob.Object {
	return hob.Object{Kind: hob.AgentObject, Workspace: a.Workspace, Owner: a.Owner, Agent: a.ID}
}

// agent reads an agent that the principal may use with the scope; "" asks for sight alone. One that is read to be changed
// is held until the transaction ends.
func agent(ctx context.Context, t *tx, by hob.Principal, scope hob.Scope, id hob.AgentID) (hob.Agent, error) {
	key, ok := uuid(id)
	if !ok {
		return hob.Agent{}, hob.Absent(hob.AgentObject)
	}
	a, err := one(ctx, t, scanAgent, `SELECT `+agentColumns+` FROM agents WHERE workspace_id = ? AND id = ?`+held(scope == hob.ScopeConfigure),
		string(by.Workspace), key)
	if err != nil {
		return hob.Agent{}, found(err, hob.AgentObject, "read an agent")
	}
	if scope == "" {
		err = see(by, agentObject(a))
	} else {
		err = hob.Can(by, scope, agentObject(a))
	}
	if err != nil {
		return hob.Agent{}, err
	}
	return a, nil
}

// CreateAgent keeps a new agent of the principal's workspace and owner; its id and times are given here.
func (s *DB) CreateAgent(ctx context.Context, by hob.Principal, a hob.Agent) (hob.Agent, error) {
	if by.Agent != "" {
		return hob.Agent{}, hob.Errorf(hob.Forbidden, "your key is bound to one agent and cannot make others").WithCode("key_bound")
	}
	a.ID, a.Workspace, a.Owner = hob.AgentID(hob.NewUUID()), by.Workspace, by.Owner()
	a.CreatedAt, a.Hooks = hob.FromMicros(s.now()), 0
	a.UpdatedAt = a.CreatedAt
	a.Settings = object(a.Settings)
	if err := hob.Can(by, hob.ScopeConfigure, agentObject(a)); err != nil {
		return hob.Agent{}, err
	}
	if err := a.Validate(); err != nil {
		return hob.Agent{}, err
	}
	ids, err := toolIDs(a)
	if err != nil {
		return hob.Agent{}, err
	}
	err = s.configure(ctx, "create an agent", func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO agents (`+agentColumns+`, name_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)`,
			string(a.ID), string(a.Workspace), a.Owner, a.Name, a.Model, a.SystemPrompt, string(a.Settings), ids,
			a.CreatedAt.Micros(), a.UpdatedAt.Micros(), strings.ToLower(a.Name))
		t.did(by, "agent.create", "agent", string(a.ID), nil, agentConfig(a))
		return err
	})
	return a, err
}

// UpdateAgent changes what the patch sets.
func (s *DB) UpdateAgent(ctx context.Context, by hob.Principal, id hob.AgentID, p hob.AgentPatch) (hob.Agent, error) {
	var a hob.Agent
	err := s.configure(ctx, "update an agent", func(ctx context.Context, t *tx) (err error) {
		if a, err = agent(ctx, t, by, hob.ScopeConfigure, id); err != nil {
			return err
		}
		before := a
		patchAgent(&a, p)
		if err = a.Validate(); err != nil {
			return err
		}
		a.UpdatedAt = hob.FromMicros(max(s.now(), a.UpdatedAt.Micros()))
		ids, err := toolIDs(a)
		if err != nil {
			return err
		}
		t.did(by, "agent.update", "agent", string(a.ID), agentConfig(before), agentConfig(a))
		_, err = t.exec(ctx, `UPDATE agents SET name = ?, name_key = ?, model = ?, system_prompt = ?, settings = ?, tool_ids = ?, updated_at = ? WHERE id = ?`,
			a.Name, strings.ToLower(a.Name), a.Model, a.SystemPrompt, string(a.Settings), ids, a.UpdatedAt.Micros(), string(a.ID))
		return err
	})
	if err != nil {
		return hob.Agent{}, err
	}
	return a, nil
}

func patchAgent(a *hob.Agent, p hob.AgentPatch) {
	if p.Name != nil {
		a.Name = *p.Name
	}
	if p.Model != nil {
		a.Model = *p.Model
	}
	if p.SystemPrompt != nil {
		a.SystemPrompt = *p.SystemPrompt
	}
	if p.Settings != nil {
		a.Settings = object(p.Settings)
	}
	if p.ToolIDs != nil {
		a.ToolIDs = *p.ToolIDs
	}
}

// DeleteAgent deletes an agent and its assignments. Its sessions stay, without an agent, and its unfinished runs are
// marked for cancelling.
func (s *DB) DeleteAgent(ctx context.Context, by hob.Principal, id hob.AgentID) error {
	return s.configure(ctx, "delete an agent", func(ctx context.Context, t *tx) error {
		a, err := agent(ctx, t, by, hob.ScopeConfigure, id)
		if err != nil {
			return err
		}
		if s.d.settle != "" { // a session that is being made for the agent right now must not be missed
			if err := t.define(ctx, s.d.settle); err != nil {
				return err
			}
		}
		t.did(by, "agent.delete", "agent", string(a.ID), agentConfig(a), nil)
		for _, stmt := range []string{
			`DELETE FROM agents WHERE id = ?`, // its assignments and hooks go with it
			`UPDATE sessions SET agent_id = '' WHERE agent_id = ?`,
		} {
			if _, err := t.exec(ctx, stmt, string(a.ID)); err != nil {
				return err
			}
		}
		return cancelRuns(ctx, t, hob.CodeCancelled, "agent_id = ? AND n IN "+unfinished, string(a.ID))
	})
}

// agentSorts are the columns a list of agents can be sorted by. What is null comes last, either way.
var agentSorts = map[string]string{
	"": "created_at", "created_at": "created_at", "name": "name_key", "updated_at": "updated_at", "last_run_at": "last_run_at",
}

// Agents lists agents. The query finds part of a name in any case, also of letters outside ASCII.
func (s *DB) Agents(ctx context.Context, by hob.Principal, o hob.ListOptions) (hob.Page[hob.AgentRow], error) {
	var page hob.Page[hob.AgentRow]
	column, ok := agentSorts[o.Sort]
	if !ok {
		return page, hob.Errorf(hob.Invalid, "Invalid sort %q. Allowed: created_at, last_run_at, name, updated_at", o.Sort).With("field", "sort")
	}
	// The rule of hob.Can for agents: the workspace's, for a bound key its one.
	if err := see(by, hob.Object{Kind: hob.AgentObject, Workspace: by.Workspace, Agent: by.Agent}); err != nil {
		return page, err
	}
	var f filter
	f.where("workspace_id = ?", string(by.Workspace))
	if by.Agent != "" {
		f.where("id = ?", strings.ToLower(string(by.Agent)))
	}
	if o.Query != "" {
		f.where(`name_key LIKE ? ESCAPE '\'`, like(strings.ToLower(o.Query)))
	}
	t := s.read()
	var err error
	if page.Total, err = one(ctx, t, scanInt, `SELECT count(*) FROM agents`+f.String(), f.args...); err != nil {
		return page, hob.Wrap("count agents", err)
	}
	agents, err := many(ctx, t, scanAgent, agentsQuery(by, o, column, f.String()), agentsArgs(by, o, column, f.args)...)
	if err != nil {
		return page, hob.Wrap("list agents", err)
	}
	page.Items, err = withSums(ctx, t, by, agents)
	return page, hob.Wrap("list agents", err)
}

// agentsQuery is the list's page. Only a list by last run has to look at every agent's sessions for the order.
func agentsQuery(by hob.Principal, o hob.ListOptions, column, where string) string {
	dir := " DESC"
	if o.Asc {
		dir = " ASC"
	}
	from, order := "agents", column+dir+", id ASC"
	if column == "last_run_at" {
		from = `(SELECT a.*, (SELECT max(s.last_activity_at) FROM sessions s WHERE s.agent_id = a.id` + ownerRule(by) +
			`) AS last_run_at FROM agents a) AS a`
		order = "CASE WHEN coalesce(last_run_at, 0) = 0 THEN 1 ELSE 0 END, " + order
	}
	return `SELECT ` + agentColumns + ` FROM ` + from + where + ` ORDER BY ` + order + ` LIMIT ? OFFSET ?`
}

func agentsArgs(by hob.Principal, o hob.ListOptions, column string, where []any) []any {
	var args []any
	if column == "last_run_at" {
		args = ownerArgs(by)
	}
	limit, offset := window(o.Limit, o.Offset)
	return append(append(args, where...), limit, offset)
}

// ownerRule is the rule of hob.Can for sessions s as a condition, where the workspace is settled by the agent.
func ownerRule(by hob.Principal) string {
	if by.SeesAll() {
		return ""
	}
	return " AND s.owner = ? AND s.owner <> ''"
}

func ownerArgs(by hob.Principal) []any {
	if by.SeesAll() {
		return nil
	}
	return []any{by.Owner()}
}

// withSums adds what the sessions that the principal may see amount to.
func withSums(ctx context.Context, t *tx, by hob.Principal, agents []hob.Agent) ([]hob.AgentRow, error) {
	rows := make([]hob.AgentRow, len(agents))
	if len(agents) == 0 {
		return rows, nil
	}
	at := map[string]*hob.AgentRow{}
	ids := make([]string, len(agents))
	for i, a := range agents {
		rows[i].Agent, ids[i] = a, string(a.ID)
		at[ids[i]] = &rows[i]
	}
	in, args := inList(ids)
	_, err := many(ctx, t, func(r row) (_ struct{}, err error) {
		var id string
		var sessions, runs, last int64
		if err = r.Scan(&id, &sessions, &runs, &last); err == nil {
			a := at[id]
			a.SessionCount, a.TotalRuns, a.LastRunAt = sessions, runs, hob.FromMicros(last)
		}
		return struct{}{}, err
	}, `SELECT s.agent_id, count(*), CAST(sum(s.run_count) AS BIGINT), max(s.last_activity_at) FROM sessions s WHERE s.agent_id IN `+
		in+ownerRule(by)+` GROUP BY s.agent_id`, append(args, ownerArgs(by)...)...)
	return rows, err
}

// object is a JSON object as it is stored: {} where there is none.
func object(raw json.RawMessage) json.RawMessage {
	if s := strings.TrimSpace(string(raw)); s == "" || s == "null" {
		return json.RawMessage("{}")
	}
	return raw
}
