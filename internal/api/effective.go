package api

import (
	"cmp"
	"net/http"
	"slices"

	"hob"
)

// effectiveTool is a tool that an agent has, with what its next run would make of it.
type effectiveTool struct {
	Name    string       `json:"name"`
	Type    hob.ToolKind `json:"type"`
	ToolID  *hob.ToolID  `json:"tool_id" jsonschema:"null for a builtin tool"`
	Offered bool         `json:"offered" jsonschema:"the model would be told of it. One that is offered although it is unavailable answers with what is missing"`
	toolStatus
	Source string     `json:"source" jsonschema:"assignment, or tool_ids where they alone name it"`
	Rules  []hob.Rule `json:"rules,omitempty" jsonschema:"that are asked about each call, in this order: those of the workspace for a builtin tool, then those of the assignment"`
}

type effectiveList struct {
	Tools []effectiveTool `json:"tools"`
}

// offer is what the next run of an agent would make of a tool.
type offer struct {
	toolStatus
	offered bool
}

// offers judges tools of an agent's scope as its next run would.
func (c *call) offers(agent hob.Agent, scope []hob.AssignedTool) ([]offer, error) {
	why := make([]string, len(scope))
	if c.s.NotLoaded != nil && len(scope) > 0 {
		grant, err := c.s.Engine.Grant(c.Context(), c.by, agent, scope)
		if err != nil {
			return nil, err
		}
		if why, err = c.s.NotLoaded(c.Context(), grant); err != nil {
			return nil, err
		}
	}
	out := make([]offer, len(scope))
	for i, a := range scope {
		out[i] = c.offer(a, why[i])
	}
	return out, nil
}

// offer judges one tool. why is why it would not be loaded.
func (c *call) offer(a hob.AssignedTool, why string) offer {
	row := c.rowOf(a)
	switch {
	case row == nil:
		return offer{unavailable("there is no such tool any more"), false}
	case a.Off():
		return offer{toolStatus{statusInactive, switchedOff}, false}
	case row.Type == hob.WebTool && c.s.NotLoaded != nil: // loading it asks the agent's own model, the row all providers
		if why != "" {
			return offer{unavailable(why), false}
		}
		return offer{toolStatus{Status: statusAvailable}, true}
	}
	status := c.status(*row)
	switch {
	case status.Status != statusAvailable:
		return offer{status, why == "" && !c.reachesNothing(a)}
	case a.ID != "" && c.reachesNothing(a):
		return offer{unavailable("it " + nothingReached), false}
	case why != "":
		return offer{unavailable(why), false}
	}
	return offer{status, true}
}

// rowOf is the tool of an assignment, switched on; nil where there is none any more.
func (c *call) rowOf(a hob.AssignedTool) *hob.Tool {
	var row hob.Tool
	switch {
	case a.ToolID != nil && a.Tool == nil:
		return nil
	case a.ToolID != nil:
		row = *a.Tool
	default:
		t, ok := c.s.builtins[a.ToolName]
		if !ok {
			return nil
		}
		row = t
		row.ID, row.Type = "", cmp.Or(row.Type, hob.BuiltinTool)
	}
	row.IsActive = true
	return &row
}

// assignedOffers judges an agent's assignments, of which its tool_ids may leave some out.
func (c *call) assignedOffers(agent hob.Agent, rows []hob.AssignedTool) ([]offer, error) {
	named := func(a hob.AssignedTool) bool {
		name := a.ToolName
		if a.ToolID != nil {
			name = string(*a.ToolID)
		}
		return agent.ToolIDs == nil || slices.Contains(*agent.ToolIDs, name)
	}
	scope := rows
	if agent.ToolIDs != nil { // beside the tools that only they name, a model may not search by itself
		var err error
		if scope, err = c.s.Store.Scope(c.Context(), c.by, agent.ID); err != nil {
			return nil, err
		}
	}
	judged, err := c.offers(agent, scope)
	if err != nil {
		return nil, err
	}
	out := make([]offer, len(rows))
	for i, r := range rows {
		at := slices.IndexFunc(scope, func(a hob.AssignedTool) bool { return a.ID == r.ID })
		switch {
		case named(r) && at >= 0:
			out[i] = judged[at]
		default:
			if out[i] = c.offer(r, ""); out[i].Status == statusAvailable {
				out[i].toolStatus = unavailable("the agent's tool_ids do not name it")
			}
			out[i].offered = false
		}
	}
	return out, nil
}

func listEffective(c *call) error {
	agent, err := c.agentAsked()
	if err != nil {
		return err
	}
	scope, err := c.s.Store.Scope(c.Context(), c.by, agent.ID)
	if err != nil {
		return err
	}
	offers, err := c.offers(agent, scope)
	if err != nil {
		return err
	}
	answer := effectiveList{Tools: make([]effectiveTool, 0, len(scope))}
	for i, a := range scope {
		t := effectiveTool{Name: a.ToolName, Type: hob.BuiltinTool, ToolID: a.ToolID, Offered: offers[i].offered, toolStatus: offers[i].toolStatus, Source: "tool_ids"}
		if row := c.rowOf(a); row != nil {
			t.Name, t.Type = row.Name, row.Type
		} else if a.ToolID != nil {
			t.Type = ""
		}
		if a.ID != "" {
			t.Source = "assignment"
		}
		t.Rules = rulesOf(a)
		answer.Tools = append(answer.Tools, t)
	}
	return c.reply(http.StatusOK, answer)
}

// missing names what of a scope the agent's next run would go without, or would be offered for nothing.
func (c *call) missing(agent hob.Agent, scope []hob.AssignedTool) ([]string, error) {
	offers, err := c.offers(agent, scope)
	if err != nil {
		return nil, err
	}
	var warnings []string
	for i, a := range scope {
		o, name := offers[i], clip(a.ToolName)
		switch {
		case o.Status == statusAvailable:
		case a.ID == "" && a.ToolID != nil && a.Tool == nil:
			warnings = append(warnings, "tool_ids names a tool that is gone: "+string(*a.ToolID))
		case a.ID == "" && a.ToolID == nil && !c.s.isBuiltin(a.ToolName):
			warnings = append(warnings, "tool_ids names a builtin tool that this server does not have: "+name)
		case o.offered:
			warnings = append(warnings, "the tool "+name+" is unavailable: "+o.Reason)
		default:
			warnings = append(warnings, "runs are not offered the tool "+name+": "+o.Reason)
		}
	}
	return warnings, nil
}

// lostTools is missing for an agent that there is.
func (c *call) lostTools(a hob.Agent) ([]string, error) {
	scope, err := c.s.Store.Scope(c.Context(), c.by, a.ID)
	if err != nil || len(scope) == 0 {
		return nil, err
	}
	return c.missing(a, scope)
}

// missingOf is missing for an agent that is about to be made.
func (c *call) missingOf(a hob.Agent) ([]string, error) {
	custom, err := c.s.Store.Tools(c.Context(), c.by)
	if err != nil {
		return nil, err
	}
	changes, err := c.s.Store.Builtins(c.Context(), c.by)
	if err != nil {
		return nil, err
	}
	scope := make([]hob.AssignedTool, 0, len(*a.ToolIDs))
	for _, id := range *a.ToolIDs {
		t := hob.AssignedTool{Assignment: hob.Assignment{Workspace: a.Workspace, ToolType: builtinType, ToolName: id, ConfigOverride: object(nil)}}
		if i := slices.IndexFunc(custom, func(row hob.Tool) bool { return string(row.ID) == id }); i >= 0 {
			t.ToolType, t.ToolName, t.ToolID, t.Tool = customType, custom[i].Name, &custom[i].ID, &custom[i]
		} else if change, ok := changes[id]; ok {
			t.Builtin = &change
		}
		scope = append(scope, t)
	}
	return c.missing(a, scope)
}
