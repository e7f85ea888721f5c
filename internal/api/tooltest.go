package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"hob"
	"hob/internal/engine"
)

// toolTestInput is what a client sends to try a tool.
type toolTestInput struct {
	Arguments      json.RawMessage `json:"arguments,omitempty" jsonschema:"an object, as a model would send it; {} where absent"`
	ArgumentsText  *string         `json:"arguments_text,omitempty" jsonschema:"in place of arguments: the text of a model, whatever it is"`
	ConfigOverride json.RawMessage `json:"config_override,omitempty" jsonschema:"as an agent would have it; in place of that of agent_id"`
	AgentID        *string         `json:"agent_id,omitempty" jsonschema:"the tool is configured as this agent has it"`
	DryRun         bool            `json:"dry_run,omitempty" jsonschema:"nothing is carried out: the tool says what it would change, where it can"`
}

// toolTestAnswer is what came of it. Look at is_error: a tool that refuses or fails is an answer, not an error.
type toolTestAnswer struct {
	ToolName       string          `json:"tool_name"`
	Arguments      json.RawMessage `json:"arguments" jsonschema:"as the tool got them: pinned ones laid over"`
	Result         string          `json:"result" jsonschema:"what a model would read"`
	IsError        bool            `json:"is_error"`
	OutcomeUnknown bool            `json:"outcome_unknown" jsonschema:"it may have taken effect or not"`
	DurationMS     int64           `json:"duration_ms"`
	Action         string          `json:"action" jsonschema:"what it counts as in the usage ledger; empty where it does not count"`
	Free           bool            `json:"free" jsonschema:"it does not count: it was refused, a dry run, or the platform is why nothing came of it"`
	Preview        json.RawMessage `json:"preview,omitempty" jsonschema:"of a dry run: what the call would change"`
	Trace          []toolTestStage `json:"trace" jsonschema:"the stages that every tool call passes, in order, up to one that refuses it"`
	Warnings       []string        `json:"warnings"`
}

// toolTestStage is what became of the call at a stage.
type toolTestStage struct {
	Stage      engine.Stage   `json:"stage" jsonschema:"pin, parse, schema, rules, PreToolUse, OnDelegation, intent, execute, result, PostToolUse or cap"`
	Outcome    engine.Outcome `json:"outcome" jsonschema:"ok, refused or skipped"`
	Detail     string         `json:"detail,omitempty"`
	DurationMS float64        `json:"duration_ms"`
}

// testTool carries a tool out once, outside of any run.
func testTool(c *call) error {
	var in toolTestInput
	b, err := c.decode(&in, true)
	if err != nil {
		return err
	}
	t, warnings, err := c.trial(in, b)
	if err != nil {
		return err
	}
	got, err := c.s.Engine.Try(c.Context(), c.by, t)
	if err != nil {
		return c.withPreviews(err)
	}
	return c.reply(http.StatusOK, asToolTest(got, append(warnings, got.Warnings...)))
}

// trial is the call that a client asks for, with what there is to say of it.
func (c *call) trial(in toolTestInput, b body) (engine.Trial, []string, error) {
	t := engine.Trial{DryRun: in.DryRun, Arguments: string(object(in.Arguments))}
	var err error
	if t.Key, err = c.idempotencyKey(); err != nil {
		return t, nil, err
	}
	if in.ArgumentsText != nil {
		if given(b, "arguments") {
			return t, nil, hob.Errorf(hob.Invalid, "send arguments or arguments_text, not both").With("field", "arguments_text")
		}
		t.Arguments = *in.ArgumentsText
	}
	if !blank(in.AgentID) {
		if !hob.IsUUID(*in.AgentID) {
			return t, nil, hob.Errorf(hob.Invalid, "agent_id must be an agent's id, a UUID").With("field", "agent_id")
		}
		t.Agent = hob.AgentID(strings.ToLower(*in.AgentID))
	}
	row, err := c.tried()
	if err != nil {
		return t, nil, err
	}
	if t.Tool = row.ID; row.ID == "" {
		t.Builtin = row.Name
	}
	warnings := b.warnings
	if given(b, "config_override") {
		t.Config = in.ConfigOverride
		more, err := c.checkOverride(assignmentOf(row, t), custom(row))
		if err != nil {
			return t, nil, err
		}
		warnings = append(warnings, more...)
	}
	on := row
	on.IsActive = true // that it is off, the engine says
	if s := c.status(on); s.Status != statusAvailable {
		warnings = append(warnings, "the tool is unavailable: "+s.Reason)
	}
	return t, warnings, nil
}

// tried is the tool that the path names: a builtin one by its name, which has no id, or a custom one by its id.
func (c *call) tried() (hob.Tool, error) {
	if t, ok := c.s.builtins[c.PathValue("id")]; ok {
		t.ID = ""
		return t, nil
	}
	id, err := c.toolID()
	if err != nil {
		return hob.Tool{}, err
	}
	return c.s.Store.Tool(c.Context(), c.by, id)
}

// custom is a custom tool's row, nil for a builtin.
func custom(row hob.Tool) *hob.Tool {
	if row.ID == "" {
		return nil
	}
	return &row
}

// assignmentOf is the assignment that a trial stands for.
func assignmentOf(row hob.Tool, t engine.Trial) hob.Assignment {
	a := hob.Assignment{Agent: t.Agent, Workspace: row.Workspace, ToolType: builtinType, ToolName: row.Name, ConfigOverride: object(t.Config)}
	if row.ID != "" {
		a.ToolType, a.ToolID = customType, &row.ID
	}
	return a
}

// withPreviews adds to the refusal of a dry run which tools have a preview.
func (c *call) withPreviews(err error) error {
	var refused *hob.Error
	if !errors.As(err, &refused) || refused.Code != engine.CodeNoPreview {
		return err
	}
	var can []string
	if c.s.Previews != nil {
		can = c.s.Previews()
	}
	return hob.Errorf(hob.Invalid, "%s and cannot be tried with dry_run; tools with a preview: %s", refused.Message, cmp.Or(strings.Join(can, ", "), "none")).
		WithCode(engine.CodeNoPreview).With("field", "dry_run").With("tools", filled(can))
}

func asToolTest(t engine.Tried, warnings []string) toolTestAnswer {
	a := toolTestAnswer{
		ToolName: t.Call.Name, Arguments: object(t.Call.Arguments), Result: t.Result.Text, IsError: t.Result.IsError,
		OutcomeUnknown: t.Result.Unknown, DurationMS: t.Took.Milliseconds(), Action: t.Result.Action, Free: t.Result.Free,
		Preview: t.Preview, Trace: make([]toolTestStage, 0, len(t.Trace)), Warnings: filled(warnings),
	}
	for _, p := range t.Trace {
		a.Trace = append(a.Trace, toolTestStage{p.Stage, p.Outcome, p.Detail, float64(p.Took.Microseconds()) / 1000})
	}
	return a
}
