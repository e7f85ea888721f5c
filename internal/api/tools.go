package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"hob"
)

// toolAnswer is a tool on the wire; builtin ones have no id.
type toolAnswer struct {
	ID          *hob.ToolID     `json:"id"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Suffix      string          `json:"description_suffix,omitempty" jsonschema:"of a builtin tool: what the workspace put behind its description, which has it too"`
	Type        hob.ToolKind    `json:"type"`
	InputSchema json.RawMessage `json:"input_schema"`
	Config      configAnswer    `json:"config"`
	IsActive    bool            `json:"is_active"`
	Version     int64           `json:"version" jsonschema:"1 when it was made, and one more with every change"`
	CreatedAt   hob.Time        `json:"created_at"`
	UpdatedAt   hob.Time        `json:"updated_at"`
	toolStatus
	Warnings []string `json:"warnings,omitempty"`
}

// configAnswer is a custom tool's config, or what a workspace set for all uses of a builtin one.
type configAnswer struct {
	hob.ToolConfig
	builtin json.RawMessage
}

// MarshalJSON writes the one that there is.
func (c configAnswer) MarshalJSON() ([]byte, error) {
	if c.builtin != nil {
		return c.builtin, nil
	}
	return json.Marshal(c.ToolConfig)
}

// toolStatus is whether a tool can do its work now.
type toolStatus struct {
	Status string `json:"status" jsonschema:"available, inactive (it is switched off) or unavailable"`
	Reason string `json:"reason,omitempty" jsonschema:"why it is not available, with the way out"`
}

// switchedOff is the reason of statusInactive.
const switchedOff = "it is switched off"

// The values of toolStatus.Status.
const (
	statusAvailable   = "available"
	statusInactive    = "inactive"
	statusUnavailable = "unavailable"
)

func unavailable(why string) toolStatus { return toolStatus{statusUnavailable, why} }

// toolDeleted tells who had a tool that is gone.
type toolDeleted struct {
	Deleted bool           `json:"deleted"`
	Agents  []hob.AgentRef `json:"agents" jsonschema:"that had it, by an assignment or by their tool_ids"`
}

type toolList struct {
	Tools []toolAnswer `json:"tools"`
}

// versionAnswer is a tool as it was after a change.
type versionAnswer struct {
	ID          hob.ToolID      `json:"id"`
	Version     int64           `json:"version"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Type        hob.ToolKind    `json:"type"`
	InputSchema json.RawMessage `json:"input_schema"`
	Config      hob.ToolConfig  `json:"config"`
	IsActive    bool            `json:"is_active"`
	ChangedAt   hob.Time        `json:"changed_at"`
	ChangedBy   string          `json:"changed_by" jsonschema:"kind and id of who changed it, as in key:…; system: has no id"`
}

type versionList struct {
	Versions []versionAnswer `json:"versions"`
	Total    int             `json:"total"`
	Limit    int             `json:"limit"`
	Offset   int             `json:"offset"`
}

// defaultVersions is how many versions a list has where it is not told.
const defaultVersions = 20

// status judges a tool of the caller's workspace. A builtin one has no id.
func (c *call) status(t hob.Tool) toolStatus {
	if !t.IsActive {
		return toolStatus{statusInactive, switchedOff}
	}
	if c.s.Unavailable != nil {
		if why := c.s.Unavailable(c.Context(), c.by.Workspace, t); why != "" {
			return unavailable(why)
		}
	}
	return toolStatus{Status: statusAvailable}
}

// answer is a custom tool as the client sees it.
func (c *call) answer(t hob.Tool, warnings []string) toolAnswer {
	return toolAnswer{
		ID: &t.ID, Name: t.Name, Description: t.Description, Type: t.Type, InputSchema: object(t.InputSchema),
		Config: configAnswer{ToolConfig: t.Config}, IsActive: t.IsActive, Version: t.Version,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, toolStatus: c.status(t), Warnings: warnings,
	}
}

func listTools(c *call) error {
	custom, err := c.s.Store.Tools(c.Context(), c.by)
	if err != nil {
		return err
	}
	changes, err := c.s.Store.Builtins(c.Context(), c.by)
	if err != nil {
		return err
	}
	builtin := c.s.Builtins()
	answer := toolList{Tools: make([]toolAnswer, 0, len(builtin)+len(custom))}
	for _, t := range builtin {
		answer.Tools = append(answer.Tools, c.builtinAnswer(t, changeOf(changes, t.Name), nil))
	}
	for _, t := range custom {
		answer.Tools = append(answer.Tools, c.answer(t, nil))
	}
	return c.reply(http.StatusOK, answer)
}

func getTool(c *call) error {
	if t, ok := c.s.builtins[c.PathValue("id")]; ok {
		changes, err := c.s.Store.Builtins(c.Context(), c.by)
		if err != nil {
			return err
		}
		return c.reply(http.StatusOK, c.builtinAnswer(t, changeOf(changes, t.Name), nil))
	}
	id, err := c.toolID()
	if err != nil {
		return err
	}
	t, err := c.s.Store.Tool(c.Context(), c.by, id)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, c.answer(t, nil))
}

func deleteTool(c *call) error {
	if name := c.PathValue("id"); c.s.isBuiltin(name) {
		return hob.Errorf(hob.Conflict, "%s is a builtin tool and cannot be deleted; switch it off with PUT /api/tools/%s and is_active false", name, name).
			WithCode("builtin_tool")
	}
	id, err := c.toolID()
	if err != nil {
		return err
	}
	had, err := c.s.Store.DeleteTool(c.Context(), c.by, id)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, toolDeleted{true, filled(had)})
}

// versioned is the id of a custom tool: builtin ones have no versions to go back to.
func (c *call) versioned() (hob.ToolID, error) {
	if name := c.PathValue("id"); c.s.isBuiltin(name) {
		return "", hob.Errorf(hob.NotFound, "%s is a builtin tool; what was changed of it has no versions", name).WithCode("builtin_tool")
	}
	return c.toolID()
}

func listVersions(c *call) error {
	id, err := c.versioned()
	if err != nil {
		return err
	}
	list, err := c.s.Store.ToolVersions(c.Context(), c.by, id)
	if err != nil {
		return err
	}
	answer := versionList{
		Versions: []versionAnswer{}, Total: len(list),
		Limit: c.number("limit", defaultVersions, 1, hob.MaxToolVersions), Offset: c.number("offset", 0, 0, maxListedOffset),
	}
	from := min(answer.Offset, len(list))
	for _, v := range list[from:min(from+answer.Limit, len(list))] {
		answer.Versions = append(answer.Versions, versionAnswer{
			ID: v.ID, Version: v.Version, Name: v.Name, Description: v.Description, Type: v.Type, InputSchema: object(v.InputSchema),
			Config: v.Config, IsActive: v.IsActive, ChangedAt: v.UpdatedAt, ChangedBy: v.By,
		})
	}
	return c.reply(http.StatusOK, answer)
}

// restoreVersion makes a tool what it was. What the rules no longer allow is not brought back.
func restoreVersion(c *call) error {
	id, err := c.versioned()
	if err != nil {
		return err
	}
	list, err := c.s.Store.ToolVersions(c.Context(), c.by, id)
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(c.PathValue("version"), 10, 64)
	if err != nil {
		return hob.Errorf(hob.NotFound, "the version must be a number, as GET /api/tools/{id}/versions lists them").WithCode("version_not_found")
	}
	if i := slices.IndexFunc(list, func(v hob.ToolVersion) bool { return v.Version == number }); i >= 0 {
		if err := c.checkWhole(list[i].Tool); err != nil {
			return err
		}
	}
	t, err := c.s.Store.RestoreTool(c.Context(), c.by, id, number)
	if err != nil {
		return err
	}
	warnings, err := c.unfitUses(t)
	if err != nil {
		return err
	}
	if !t.IsActive {
		warnings = append(warnings, "the tool is switched off and stays so; is_active true switches it on")
	}
	return c.reply(http.StatusOK, c.answer(t, warnings))
}

// created is what answers the making of a tool.
func (c *call) created(t hob.Tool, warnings []string) creation {
	return creation{make: func(ctx context.Context, s hob.Store) (int, any, error) {
		made, err := s.CreateTool(ctx, c.by, t)
		return http.StatusCreated, c.answer(made, warnings), err
	}}
}
