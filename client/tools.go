package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"hob"
)

// ToolInput makes or changes a custom tool: what is not nil.
type ToolInput struct {
	Name        *string          `json:"name,omitempty"`
	Description *string          `json:"description,omitempty"`
	Type        *string          `json:"type,omitempty"` // http or web
	InputSchema json.RawMessage  `json:"input_schema,omitempty"`
	Config      *ToolConfigInput `json:"config,omitempty"`
	IsActive    *bool            `json:"is_active,omitempty"`
	// IdempotencyKey makes a repeated request get the first one's answer; it counts for CreateTool alone.
	IdempotencyKey string `json:"-"`
}

// ToolConfigInput is how an HTTP tool is reached, or what a web tool may find. Its header values are sent as they are,
// unlike those of hob.ToolConfig, which print as masks; hob.Mask as a value keeps the stored one. A change leaves what is
// nil or zero as it is; empty headers and lists take away what is there.
type ToolConfigInput struct {
	Endpoint       string            `json:"endpoint,omitempty"`
	Method         string            `json:"method,omitempty"`
	Headers        map[string]string `json:"headers,omitzero"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty"`
	Recovery       hob.Recovery      `json:"recovery,omitempty"`
	Effect         hob.Effect        `json:"effect,omitempty"`
	AllowedDomains []string          `json:"allowed_domains,omitzero"`
	BlockedDomains []string          `json:"blocked_domains,omitzero"`
	MaxUses        int               `json:"max_uses,omitempty"`
}

// Tool is a tool with what the server says of it; builtin ones have no id.
type Tool struct {
	hob.Tool
	Suffix   string   `json:"description_suffix"` // of a builtin tool: part of its description
	Status   string   `json:"status"`             // available, inactive or unavailable
	Reason   string   `json:"reason"`             // why it is not available
	Warnings []string `json:"warnings"`
}

// BuiltinInput changes a builtin tool: what is not nil.
type BuiltinInput struct {
	IsActive *bool           `json:"is_active,omitempty"`
	Suffix   *string         `json:"description_suffix,omitempty"`
	Config   json.RawMessage `json:"config,omitempty"` // defaults for config_override
}

// ToolVersion is a custom tool as it was after a change.
type ToolVersion struct {
	hob.ToolVersion
	ChangedAt hob.Time `json:"changed_at"`
}

// Tools lists the tools, builtin ones first.
func (c *Client) Tools(ctx context.Context) ([]Tool, error) {
	var list struct {
		Tools []Tool `json:"tools"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/api/tools"}, &list)
	return list.Tools, err
}

// CreateTool makes a custom tool.
func (c *Client) CreateTool(ctx context.Context, in ToolInput) (Tool, error) {
	var t Tool
	return t, c.call(ctx, request{method: http.MethodPost, path: "/api/tools", header: idempotent(in.IdempotencyKey), body: in}, &t)
}

// Tool reads a custom tool, or a builtin one by its name.
func (c *Client) Tool(ctx context.Context, id hob.ToolID) (Tool, error) {
	var t Tool
	return t, c.call(ctx, request{method: http.MethodGet, path: path("api", "tools", string(id))}, &t)
}

// UpdateTool changes what is given of a custom tool.
func (c *Client) UpdateTool(ctx context.Context, id hob.ToolID, in ToolInput) (Tool, error) {
	var t Tool
	return t, c.call(ctx, request{method: http.MethodPut, path: path("api", "tools", string(id)), body: in}, &t)
}

// ChangeBuiltin changes what is given of a builtin tool.
func (c *Client) ChangeBuiltin(ctx context.Context, name string, in BuiltinInput) (Tool, error) {
	var t Tool
	return t, c.call(ctx, request{method: http.MethodPut, path: path("api", "tools", name), body: in}, &t)
}

// DeleteTool deletes a custom tool with its versions and assignments.
func (c *Client) DeleteTool(ctx context.Context, id hob.ToolID) error {
	return c.call(ctx, request{method: http.MethodDelete, path: path("api", "tools", string(id))}, nil)
}

// ToolVersions lists what a custom tool was after each of its last changes, newest first.
func (c *Client) ToolVersions(ctx context.Context, id hob.ToolID) ([]ToolVersion, error) {
	var list struct {
		Versions []ToolVersion `json:"versions"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("api", "tools", string(id), "versions")}, &list)
	return list.Versions, err
}

// RestoreTool makes a custom tool what it was at a version, its secrets included. Whether it is switched on stays as it is.
func (c *Client) RestoreTool(ctx context.Context, id hob.ToolID, version int64) (Tool, error) {
	var t Tool
	at := path("api", "tools", string(id), "versions", strconv.FormatInt(version, 10), "restore")
	return t, c.call(ctx, request{method: http.MethodPost, path: at}, &t)
}
