package api

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"hob"
)

// maxDescription bounds a custom tool's description, in bytes.
const maxDescription = 16 << 10

// toolInput is what a client sends to make or change a tool. The address, method, headers and time limit may stand at the
// top or in config.
type toolInput struct {
	Name        *string         `json:"name,omitempty" jsonschema:"required to create; A-Z a-z 0-9 _ -, at most 64"`
	Description *string         `json:"description,omitempty" jsonschema:"required to create; the model reads it"`
	Type        *string         `json:"type,omitempty" jsonschema:"required to create: http or web"`
	Kind        *string         `json:"kind,omitempty" jsonschema:"the same as type"`
	InputSchema json.RawMessage `json:"input_schema,omitempty" jsonschema:"required to create: JSON Schema of the arguments"`
	Config      *toolConfig     `json:"config,omitempty" jsonschema:"how the tool is reached; the same fields may stand beside it. A change leaves members that are not given as they are, and null gives one its default; headers are replaced together. Of a builtin tool: defaults for config_override, replaced whole"`
	IsActive    *bool           `json:"is_active,omitempty" jsonschema:"false: kept, but not offered to models; true where absent"`
	Suffix      *string         `json:"description_suffix,omitempty" jsonschema:"of a builtin tool: put behind its description"`
	endpointInput
}

// kind is the type of tool that is meant, "" where nothing says so.
func (in toolInput) kind() (hob.ToolKind, error) {
	var given string
	for _, k := range []*string{in.Kind, in.Type} {
		switch {
		case blank(k):
		case given != "" && given != *k:
			return "", hob.Errorf(hob.Invalid, "type is %s and kind is %s; they mean the same, give one of them", shown(*k), shown(given)).With("field", "kind")
		default:
			given = *k
		}
	}
	bad := func(format string, args ...any) (hob.ToolKind, error) {
		return "", hob.Errorf(hob.Invalid, format, args...).With("field", "type")
	}
	switch kind := hob.ToolKind(given); kind {
	case "", hob.HTTPTool, hob.WebTool:
		return kind, nil
	case hob.MCPTool:
		return bad("type mcp is not available yet: MCP servers will be added per agent, with all their tools; the types are http and web")
	case hob.BuiltinTool:
		return bad("type builtin cannot be made: the platform brings these tools along, and PUT /api/tools/{name} changes one; the types are http and web")
	default:
		return bad("type must be http or web, not %s", shown(given))
	}
}

func createTool(c *call) (creation, error) {
	var in toolInput
	b, err := c.decode(&in, false)
	if err != nil {
		return creation{}, err
	}
	kind, err := in.kind()
	if err != nil {
		return creation{}, err
	}
	if missing := missingOfTool(in, kind, b); len(missing) > 0 {
		return creation{}, b.hint(hob.Errorf(hob.Invalid, "name, description, type, and input_schema are required").
			With("field", missing[0]).With("missing", missing))
	}
	t := hob.Tool{
		Workspace: c.by.Workspace, Name: *in.Name, Description: *in.Description, Type: kind,
		InputSchema: typedSchema(in.InputSchema), IsActive: in.IsActive == nil || *in.IsActive,
	}
	t.Config = in.config(kind, hob.ToolConfig{}, b)
	if err := c.checkInput(in); err != nil {
		return creation{}, err
	}
	if err := c.checkWhole(t); err != nil {
		return creation{}, err
	}
	return c.created(t, append(b.warnings, toolWarnings(in, b)...)), nil
}

// missingOfTool names what a new tool must have and is not given.
func missingOfTool(in toolInput, kind hob.ToolKind, b body) []string {
	var missing []string
	for _, f := range []struct {
		name string
		lack bool
	}{
		{"name", blank(in.Name)}, {"description", blank(in.Description)}, {"type", kind == ""}, {"input_schema", !given(b, "input_schema")},
	} {
		if f.lack {
			missing = append(missing, f.name)
		}
	}
	return missing
}

// typedSchema puts "type": "object" in front of a schema that has no type: {} is one of any arguments.
func typedSchema(raw json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	text := bytes.TrimSpace(raw)
	if json.Unmarshal(text, &fields) != nil || fields == nil || fields["type"] != nil {
		return raw
	}
	if len(fields) == 0 {
		return json.RawMessage(`{"type":"object"}`)
	}
	return append([]byte(`{"type":"object",`), text[1:]...)
}

func blank(s *string) bool { return s == nil || strings.TrimSpace(*s) == "" }

func given(b body, field string) bool { return b.has(field) && !b.null(field) }

// toolWarnings names what of a custom tool's body has no effect.
func toolWarnings(in toolInput, b body) []string {
	warnings := configWarnings(b)
	if in.Suffix != nil {
		warnings = append(warnings, "description_suffix is for builtin tools; a custom tool has its description alone")
	}
	return warnings
}

func updateTool(c *call) error {
	if t, ok := c.s.builtins[c.PathValue("id")]; ok {
		return updateBuiltin(c, t)
	}
	id, err := c.toolID()
	if err != nil {
		return err
	}
	var in toolInput
	b, err := c.decode(&in, true)
	if err != nil {
		return err
	}
	switch {
	case len(b.fields) == 0:
		return hob.Errorf(hob.Invalid, "No data provided")
	case b.known == 0:
		return b.hint(hob.Errorf(hob.Invalid, "No valid fields to update"))
	}
	old, err := c.s.Store.Tool(c.Context(), c.by, id)
	if err != nil {
		return err
	}
	p, err := c.toolPatch(in, b, old)
	if err != nil {
		return err
	}
	t, err := c.s.Store.UpdateTool(c.Context(), c.by, id, p)
	if err != nil {
		return err
	}
	warnings := append(b.warnings, toolWarnings(in, b)...)
	if p.Config != nil {
		warnings = append(warnings, clearedHeaders(*p.Config, t.Config)...)
	}
	if p.InputSchema != nil {
		unfit, err := c.unfitUses(t)
		if err != nil {
			return err
		}
		warnings = append(warnings, unfit...)
	}
	return c.reply(http.StatusOK, c.answer(t, warnings))
}

// unfitUses names the agents whose config_override does not fit a tool as it is now: their runs go without it, or a key has
// lost its meaning.
func (c *call) unfitUses(t hob.Tool) ([]string, error) {
	if c.s.CheckAssignment == nil {
		return nil, nil
	}
	uses, err := c.s.Store.ToolUses(c.Context(), c.by, t.ID)
	if err != nil {
		return nil, err
	}
	var warnings []string
	for _, u := range uses {
		warning, err := c.s.CheckAssignment(c.Context(), u.Assignment, &t)
		if hob.KindOf(err) == hob.Invalid {
			warning = "its runs go without the tool: " + err.Error()
		} else if err != nil {
			return nil, err
		}
		if warning == "" {
			continue
		}
		if len(warnings) == maxWarned {
			return append(warnings, "…"), nil
		}
		warnings = append(warnings, "the agent "+shown(u.Name)+": "+warning)
	}
	return warnings, nil
}

// toolPatch judges a change and the tool that it would make.
func (c *call) toolPatch(in toolInput, b body, old hob.Tool) (hob.ToolPatch, error) {
	kind, err := in.kind()
	if err != nil {
		return hob.ToolPatch{}, err
	}
	if kind != "" && kind != old.Type {
		return hob.ToolPatch{}, hob.Errorf(hob.Invalid, "the tool's type is %s and cannot be changed; make another tool", old.Type).With("field", "type")
	}
	if err := c.checkInput(in); err != nil {
		return hob.ToolPatch{}, err
	}
	p := hob.ToolPatch{Name: in.Name, Description: in.Description, IsActive: in.IsActive}
	if given(b, "input_schema") {
		p.InputSchema = typedSchema(in.InputSchema)
	}
	if in.Config != nil || in.any() || len(configNulls(b)) > 0 {
		config := in.config(old.Type, old.Config, b)
		p.Config = &config
	}
	return p, c.checkWhole(patched(old, p))
}

// patched is the tool as it will be.
func patched(t hob.Tool, p hob.ToolPatch) hob.Tool {
	if p.Name != nil {
		t.Name = *p.Name
	}
	if p.Description != nil {
		t.Description = *p.Description
	}
	if len(p.InputSchema) > 0 {
		t.InputSchema = p.InputSchema
	}
	if p.Config != nil {
		t.Config = *p.Config
	}
	return t
}

// checkInput judges what is given of a tool, but for its config.
func (c *call) checkInput(in toolInput) error {
	if d := in.Description; d != nil && (strings.TrimSpace(*d) == "" || len(*d) > maxDescription) {
		return hob.Errorf(hob.Invalid, "description must be text of at most %d bytes", maxDescription).With("field", "description")
	}
	if in.Name != nil {
		return hob.CheckToolName(*in.Name)
	}
	return nil
}

// checkWhole judges a whole tool, a new one as well as one that is changed or brought back.
func (c *call) checkWhole(t hob.Tool) error {
	if err := hob.CheckToolName(t.Name); err != nil {
		return err
	}
	if c.s.isBuiltin(strings.ToLower(t.Name)) {
		return hob.Errorf(hob.Conflict, "%s is the name of a builtin tool; choose another", t.Name).WithCode("tool_name_taken")
	}
	if err := c.s.Engine.CheckSchema(object(t.InputSchema)); err != nil {
		return err
	}
	if t.Type == hob.HTTPTool {
		if err := c.checkConfig(t.Config); err != nil {
			return err
		}
	}
	if c.s.CheckTool == nil {
		return nil
	}
	headers := make(map[string]hob.Secret, len(t.Config.Headers))
	for name, value := range t.Config.Headers {
		if value == hob.Mask {
			value = "x"
		}
		headers[name] = value
	}
	t.Config.Headers = headers
	return c.s.CheckTool(t)
}

// clearedHeaders names the headers whose stored values did not go along to a new address.
func clearedHeaders(sent, kept hob.ToolConfig) []string {
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(sent.Headers)) {
		if _, ok := kept.Headers[name]; !ok {
			warnings = append(warnings, "the header "+clip(name)+" was cleared, since the address changed; send its value again")
		}
	}
	return warnings
}
