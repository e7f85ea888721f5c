package api

import (
	"context"
	"encoding/json"
	"net/http"

	"hob"
)

// The values of an assignment's tool_type.
const (
	builtinType = "builtin"
	customType  = "custom"
)

// assignmentInput is what a client sends to give an agent a tool.
type assignmentInput struct {
	ToolType       *string         `json:"tool_type,omitempty" jsonschema:"builtin or custom; found by the name where absent"`
	ToolName       *string         `json:"tool_name,omitempty" jsonschema:"required unless tool_id is given"`
	ToolID         *string         `json:"tool_id,omitempty" jsonschema:"of a custom tool; its name is taken too"`
	ConfigOverride json.RawMessage `json:"config_override,omitempty" jsonschema:"how this agent uses the tool. A key that is an argument of the tool pins it: the model cannot set it"`
}

type overrideInput struct {
	ConfigOverride json.RawMessage `json:"config_override,omitempty" jsonschema:"replaces the old one whole; as where the tool is given"`
}

type assignmentAnswer struct {
	hob.Assignment
	Warnings []string `json:"warnings,omitempty"`
}

// assignedAnswer is one of an agent's tools, with whether a run would be offered it.
type assignedAnswer struct {
	hob.Assignment
	toolStatus
}

type assignmentList struct {
	Tools []assignedAnswer `json:"tools"`
}

// agentAsked is the agent that the path names.
func (c *call) agentAsked() (hob.Agent, error) {
	id, err := c.agentID()
	if err != nil {
		return hob.Agent{}, err
	}
	return c.s.Store.Agent(c.Context(), c.by, id)
}

func listAssignments(c *call) error {
	agent, err := c.agentAsked()
	if err != nil {
		return err
	}
	rows, err := c.s.Store.Assignments(c.Context(), c.by, agent.ID)
	if err != nil {
		return err
	}
	offers, err := c.assignedOffers(agent, rows)
	if err != nil {
		return err
	}
	answer := assignmentList{Tools: make([]assignedAnswer, 0, len(rows))}
	for i, r := range rows {
		r.ConfigOverride = object(r.ConfigOverride)
		answer.Tools = append(answer.Tools, assignedAnswer{r.Assignment, offers[i].toolStatus})
	}
	return c.reply(http.StatusOK, answer)
}

// nothingReached continues a sentence about a database tool.
const nothingReached = "reaches nothing yet and is not offered to the model: config_override.schemas " +
	`must name tables, as in {"schemas":{"main":["orders"]}}`

// reachesNothing says whether a tool is one of the database and was given no table.
func (c *call) reachesNothing(a hob.AssignedTool) bool {
	if a.ToolID != nil || a.ToolName != "database_query" && a.ToolName != "database_write" {
		return false
	}
	var config map[string]json.RawMessage
	merged, err := a.Builtin.Under(a.ConfigOverride)
	return err == nil && json.Unmarshal(merged, &config) == nil && !grantsTables(config["schemas"])
}

func assign(c *call) (creation, error) {
	id, err := c.agentID()
	if err != nil {
		return creation{}, err
	}
	var in assignmentInput
	b, err := c.decode(&in, false)
	if err != nil {
		return creation{}, err
	}
	if blank(in.ToolName) && blank(in.ToolID) {
		return creation{}, b.hint(hob.Errorf(hob.Invalid, "tool_name is required").With("field", "tool_name"))
	}
	if _, err := c.s.Store.Agent(c.Context(), c.by, id); err != nil {
		return creation{}, err
	}
	a := hob.Assignment{Agent: id, Workspace: c.by.Workspace, ConfigOverride: object(in.ConfigOverride)}
	tool, err := c.chosen(in)
	if err != nil {
		return creation{}, err
	}
	a.ToolName, a.ToolType = tool.Name, builtinType
	if tool.ID != "" {
		a.ToolID, a.ToolType = &tool.ID, customType
	}
	var custom *hob.Tool
	if a.ToolType == customType {
		custom = &tool
	}
	warnings, err := c.checkOverride(a, custom)
	if err != nil {
		return creation{}, err
	}
	warnings = append(b.warnings, warnings...)
	if !tool.IsActive {
		warnings = append(warnings, "the tool "+tool.Name+" is switched off; runs are not offered it until it is switched on")
	}
	if in.ToolName != nil && *in.ToolName != tool.Name && *in.ToolName != "" {
		warnings = append(warnings, "the tool's name is "+tool.Name)
	}
	return creation{make: func(ctx context.Context, s hob.Store) (int, any, error) {
		made, err := s.Assign(ctx, c.by, a)
		return http.StatusCreated, assignmentAnswer{made, warnings}, err
	}}, nil
}

// chosen finds the tool that a client means. Builtin ones have no id.
func (c *call) chosen(in assignmentInput) (hob.Tool, error) {
	kind, name := "", ""
	if in.ToolName != nil {
		name = *in.ToolName
	}
	if in.ToolType != nil {
		switch hob.ToolKind(*in.ToolType) {
		case "":
		case hob.BuiltinTool:
			kind = builtinType
		case hob.WebTool: // one is builtin, others may be made
		case customType, hob.HTTPTool, hob.MCPTool:
			kind = customType
		default:
			return hob.Tool{}, hob.Errorf(hob.Invalid, "tool_type must be builtin or custom, not %s", shown(*in.ToolType)).With("field", "tool_type")
		}
	}
	unknown := hob.Errorf(hob.Invalid, "there is no tool %s; GET /api/tools lists them", shown(name)).
		WithCode("unknown_tool").With("field", "tool_name")
	if !blank(in.ToolID) && kind != builtinType {
		return c.customByID(*in.ToolID)
	}
	if t, ok := c.s.builtins[name]; ok && kind != customType {
		changes, err := c.s.Store.Builtins(c.Context(), c.by)
		t.ID, t.IsActive = "", changeOf(changes, name).IsActive
		return t, err
	}
	if kind == builtinType {
		return hob.Tool{}, unknown
	}
	tools, err := c.s.Store.Tools(c.Context(), c.by)
	if err != nil {
		return hob.Tool{}, err
	}
	if t := toolNamed(tools, name); t != nil {
		return *t, nil
	}
	return hob.Tool{}, unknown
}

// customByID finds a custom tool by its id, or else by its name.
func (c *call) customByID(id string) (hob.Tool, error) {
	unknown := hob.Errorf(hob.Invalid, "tool_id names no tool").WithCode("unknown_tool").With("field", "tool_id")
	if !hob.IsUUID(id) {
		custom, err := c.s.Store.Tools(c.Context(), c.by)
		if err != nil {
			return hob.Tool{}, err
		}
		if t := toolNamed(custom, id); t != nil {
			return *t, nil
		}
		return hob.Tool{}, unknown
	}
	t, err := c.s.Store.Tool(c.Context(), c.by, hob.ToolID(id))
	if hob.KindOf(err) == hob.NotFound {
		return hob.Tool{}, unknown
	}
	return t, err
}

// checkOverride judges a config_override, the same when it is made and when it is changed, and says what in it has no
// effect. row is the custom tool's, nil for a builtin, whose override lies over what the workspace set for the tool.
func (c *call) checkOverride(a hob.Assignment, row *hob.Tool) ([]string, error) {
	if row != nil {
		return c.judge(a, row)
	}
	changes, err := c.s.Store.Builtins(c.Context(), c.by)
	if err != nil {
		return nil, err
	}
	change := changeOf(changes, a.ToolName)
	whole := a
	if whole.ConfigOverride, err = change.Under(a.ConfigOverride); err != nil {
		return nil, err
	}
	if string(whole.ConfigOverride) != string(a.ConfigOverride) {
		if _, err := c.judge(a, nil); err != nil { // what the assignment says itself is told first
			return nil, err
		}
	}
	return c.judge(whole, nil)
}

// judge is checkOverride for a config by itself.
func (c *call) judge(a hob.Assignment, row *hob.Tool) ([]string, error) {
	var config map[string]json.RawMessage
	if err := json.Unmarshal(a.ConfigOverride, &config); err != nil {
		return nil, hob.Errorf(hob.Invalid, "config_override must be an object").With("field", "config_override")
	}
	if err := checkRules("config_override.rules", config["rules"]); err != nil || c.s.CheckAssignment == nil {
		return nil, err
	}
	a.Workspace = c.by.Workspace
	warning, err := c.s.CheckAssignment(c.Context(), a, row)
	if err != nil || warning == "" {
		return nil, err
	}
	return []string{warning}, nil
}

// grantsTables says whether a schemas object names any table.
func grantsTables(raw json.RawMessage) bool {
	var schemas map[string][]string
	if json.Unmarshal(raw, &schemas) != nil {
		return false
	}
	for _, tables := range schemas {
		if len(tables) > 0 {
			return true
		}
	}
	return false
}

// assignment finds one of the agent's assignments; absent is the text for one that is not there.
func (c *call) assignment(absent string) (hob.AssignedTool, error) {
	agent, err := c.agentID()
	if err != nil {
		return hob.AssignedTool{}, err
	}
	rows, err := c.s.Store.Assignments(c.Context(), c.by, agent)
	if err != nil {
		return hob.AssignedTool{}, err
	}
	for _, r := range rows {
		if string(r.ID) == c.PathValue("assignment_id") {
			r.Agent = agent
			return r, nil
		}
	}
	return hob.AssignedTool{}, hob.Errorf(hob.NotFound, "%s", absent).WithCode("assignment_not_found")
}

func updateAssignment(c *call) error {
	var in overrideInput
	b, err := c.decode(&in, true)
	if err != nil {
		return err
	}
	row, err := c.assignment("Tool assignment not found")
	if err != nil {
		return err
	}
	if !b.has("config_override") {
		return c.reply(http.StatusOK, assignmentAnswer{row.Assignment, b.warnings})
	}
	changed := row.Assignment
	changed.ConfigOverride = object(in.ConfigOverride)
	warnings, err := c.checkOverride(changed, row.Tool)
	if err != nil {
		return err
	}
	a, err := c.s.Store.UpdateAssignment(c.Context(), c.by, row.Agent, row.ID, changed.ConfigOverride)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, assignmentAnswer{a, append(b.warnings, warnings...)})
}

func unassign(c *call) error {
	row, err := c.assignment("Assignment not found")
	if err != nil {
		return err
	}
	if err := c.s.Store.Unassign(c.Context(), c.by, row.Agent, row.ID); err != nil {
		return err
	}
	return c.reply(http.StatusOK, deletedAnswer{true})
}
