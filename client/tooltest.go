package client

import (
	"context"
	"encoding/json"
	"net/http"

	"hob"
)

// ToolTest is a call of a tool outside of any run. Text, where set, is sent in place of Arguments, as a model's own text.
type ToolTest struct {
	Arguments      json.RawMessage `json:"arguments,omitempty"`
	Text           *string         `json:"arguments_text,omitempty"`
	ConfigOverride json.RawMessage `json:"config_override,omitempty"`
	Agent          hob.AgentID     `json:"agent_id,omitempty"` // whose configuration of the tool applies
	DryRun         bool            `json:"dry_run,omitempty"`
	// IdempotencyKey gives the same call the same key for the tool, too.
	IdempotencyKey string `json:"-"`
}

// ToolTested is what came of it. A tool that refuses or fails is no error: look at IsError.
type ToolTested struct {
	ToolName       string          `json:"tool_name"`
	Arguments      json.RawMessage `json:"arguments"`
	Result         string          `json:"result"`
	IsError        bool            `json:"is_error"`
	OutcomeUnknown bool            `json:"outcome_unknown"`
	DurationMS     int64           `json:"duration_ms"`
	Action         string          `json:"action"`
	Free           bool            `json:"free"`
	Preview        json.RawMessage `json:"preview"`
	Trace          []ToolTestStage `json:"trace"`
	Warnings       []string        `json:"warnings"`
}

// ToolTestStage is what became of the call at a stage of the gate.
type ToolTestStage struct {
	Stage      string  `json:"stage"`
	Outcome    string  `json:"outcome"` // ok, refused or skipped
	Detail     string  `json:"detail"`
	DurationMS float64 `json:"duration_ms"`
}

// TestTool tries a tool: a custom one by its id, a builtin one by its name.
func (c *Client) TestTool(ctx context.Context, tool string, in ToolTest) (ToolTested, error) {
	var t ToolTested
	req := request{method: http.MethodPost, path: path("api", "tools", tool, "test"), header: idempotent(in.IdempotencyKey), body: in}
	return t, c.call(ctx, req, &t)
}
