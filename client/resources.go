package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"hob"
)

// Health is what GET /health says.
type Health struct {
	Status  string `json:"status"`
	Service string `json:"service"`
	Version string `json:"version"`
}

// Health asks whether the server runs; no key is needed.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	return h, c.call(ctx, request{method: http.MethodGet, path: "/health"}, &h)
}

// Ready asks whether the server can take runs; Unavailable when not.
func (c *Client) Ready(ctx context.Context) error {
	return c.once(ctx, request{method: http.MethodGet, path: "/health/ready"}, nil)
}

// Me is who the client's key stands for.
type Me struct {
	hob.Principal
	Owner string `json:"owner"`
}

// Me asks who the key is.
func (c *Client) Me(ctx context.Context) (Me, error) {
	var m Me
	return m, c.call(ctx, request{method: http.MethodGet, path: "/api/me"}, &m)
}

// OpenAPI fetches the description of the server's API.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	var doc json.RawMessage
	return doc, c.call(ctx, request{method: http.MethodGet, path: "/api/openapi.json"}, &doc)
}

// Page bounds a list; zero values leave the server's defaults.
type Page struct{ Limit, Offset int }

func (p Page) values() url.Values {
	v := url.Values{}
	if p.Limit > 0 {
		v.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Offset > 0 {
		v.Set("offset", strconv.Itoa(p.Offset))
	}
	return v
}

func set(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

// AgentInput makes or changes an agent: what is not nil.
type AgentInput struct {
	Name         *string         `json:"name,omitempty"`
	Model        *string         `json:"model,omitempty"`
	SystemPrompt *string         `json:"system_prompt,omitempty"`
	Settings     json.RawMessage `json:"settings,omitempty"`
	// ToolIDs are what alone runs are offered; nil leaves them, a pointer to a nil slice takes them away.
	ToolIDs *[]string `json:"tool_ids,omitempty"`
	// IdempotencyKey makes a repeated request get the first one's answer; it counts for CreateAgent alone.
	IdempotencyKey string `json:"-"`
}

// Agent is an agent with the server's warnings about the request.
type Agent struct {
	hob.Agent
	Warnings []string `json:"warnings"`
}

// AgentQuery narrows a list of agents.
type AgentQuery struct {
	Page
	Query, Sort, Order string
}

// AgentList is a part of the agents.
type AgentList struct {
	Agents []hob.AgentRow `json:"agents"`
	Total  int64          `json:"total"`
	Limit  int            `json:"limit"`
	Offset int            `json:"offset"`
}

// Agents lists agents.
func (c *Client) Agents(ctx context.Context, q AgentQuery) (AgentList, error) {
	v := q.values()
	set(v, "q", q.Query)
	set(v, "sort", q.Sort)
	set(v, "order", q.Order)
	var list AgentList
	return list, c.call(ctx, request{method: http.MethodGet, path: "/api/agents", query: v}, &list)
}

// CreateAgent makes an agent.
func (c *Client) CreateAgent(ctx context.Context, in AgentInput) (Agent, error) {
	var a Agent
	return a, c.call(ctx, request{method: http.MethodPost, path: "/api/agents", header: idempotent(in.IdempotencyKey), body: in}, &a)
}

// Agent reads an agent.
func (c *Client) Agent(ctx context.Context, id hob.AgentID) (Agent, error) {
	var a Agent
	return a, c.call(ctx, request{method: http.MethodGet, path: path("api", "agents", string(id))}, &a)
}

// UpdateAgent changes what is given; settings are replaced whole.
func (c *Client) UpdateAgent(ctx context.Context, id hob.AgentID, in AgentInput) (Agent, error) {
	var a Agent
	return a, c.call(ctx, request{method: http.MethodPatch, path: path("api", "agents", string(id)), body: in}, &a)
}

// DeleteAgent deletes an agent; its sessions stay.
func (c *Client) DeleteAgent(ctx context.Context, id hob.AgentID) error {
	return c.call(ctx, request{method: http.MethodDelete, path: path("api", "agents", string(id))}, nil)
}

// AssignmentInput gives an agent a tool.
type AssignmentInput struct {
	ToolType       string          `json:"tool_type,omitempty"`
	ToolName       string          `json:"tool_name,omitempty"`
	ToolID         *hob.ToolID     `json:"tool_id,omitempty"`
	ConfigOverride json.RawMessage `json:"config_override,omitempty"`
	// IdempotencyKey makes a repeated request get the first one's answer.
	IdempotencyKey string `json:"-"`
}

// Assignment is an agent's tool with the server's warnings. Status is given in lists.
type Assignment struct {
	hob.Assignment
	Status   string   `json:"status"` // as Tool.Status
	Reason   string   `json:"reason"`
	Warnings []string `json:"warnings"`
}

// Assignments lists an agent's tools.
func (c *Client) Assignments(ctx context.Context, agent hob.AgentID) ([]Assignment, error) {
	var list struct {
		Tools []Assignment `json:"tools"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("api", "agents", string(agent), "tools")}, &list)
	return list.Tools, err
}

// EffectiveTool is a tool that an agent has, with what its next run would make of it.
type EffectiveTool struct {
	Name    string       `json:"name"`
	Type    hob.ToolKind `json:"type"`
	ToolID  *hob.ToolID  `json:"tool_id"` // nil for a builtin tool
	Offered bool         `json:"offered"` // the model would be told of it
	Status  string       `json:"status"`  // available, inactive or unavailable
	Reason  string       `json:"reason"`  // why it is not available
	Source  string       `json:"source"`  // assignment, or tool_ids where they alone name it
	Rules   []hob.Rule   `json:"rules"`   // that are asked about each call
}

// EffectiveTools lists what an agent's next run would be offered, and what not and why.
func (c *Client) EffectiveTools(ctx context.Context, agent hob.AgentID) ([]EffectiveTool, error) {
	var list struct {
		Tools []EffectiveTool `json:"tools"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("api", "agents", string(agent), "tools", "effective")}, &list)
	return list.Tools, err
}

// Assign gives an agent a tool.
func (c *Client) Assign(ctx context.Context, agent hob.AgentID, in AssignmentInput) (Assignment, error) {
	var a Assignment
	return a, c.call(ctx, request{method: http.MethodPost, path: path("api", "agents", string(agent), "tools"), header: idempotent(in.IdempotencyKey), body: in}, &a)
}

// UpdateAssignment replaces the config_override of an agent's tool.
func (c *Client) UpdateAssignment(ctx context.Context, agent hob.AgentID, id hob.AssignmentID, config json.RawMessage) (Assignment, error) {
	var a Assignment
	body := map[string]json.RawMessage{"config_override": config}
	return a, c.call(ctx, request{method: http.MethodPatch, path: path("api", "agents", string(agent), "tools", string(id)), body: body}, &a)
}

// Unassign takes a tool from an agent.
func (c *Client) Unassign(ctx context.Context, agent hob.AgentID, id hob.AssignmentID) error {
	return c.call(ctx, request{method: http.MethodDelete, path: path("api", "agents", string(agent), "tools", string(id))}, nil)
}

// KeyInput makes an API key.
type KeyInput struct {
	Name      string      `json:"name"`
	Scopes    []hob.Scope `json:"scopes,omitempty"`
	Agent     hob.AgentID `json:"agent_id,omitempty"`
	Service   bool        `json:"service,omitempty"`
	ExpiresAt *time.Time  `json:"expires_at,omitempty"`
	// IdempotencyKey makes a repeated request get the first one's answer.
	IdempotencyKey string `json:"-"`
}

// NewKey is a key that was just made, with its secret.
type NewKey struct {
	hob.Key
	Secret string `json:"secret"`
}

// Keys lists the API keys.
func (c *Client) Keys(ctx context.Context) ([]hob.Key, error) {
	var list struct {
		Keys []hob.Key `json:"keys"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/api/keys"}, &list)
	return list.Keys, err
}

// CreateKey makes a key. Its secret is told this once.
func (c *Client) CreateKey(ctx context.Context, in KeyInput) (NewKey, error) {
	var k NewKey
	return k, c.call(ctx, request{method: http.MethodPost, path: "/api/keys", header: idempotent(in.IdempotencyKey), body: in}, &k)
}

// Key reads a key.
func (c *Client) Key(ctx context.Context, id hob.KeyID) (hob.Key, error) {
	var k hob.Key
	return k, c.call(ctx, request{method: http.MethodGet, path: path("api", "keys", string(id))}, &k)
}

// RevokeKey ends a key.
func (c *Client) RevokeKey(ctx context.Context, id hob.KeyID) (hob.Key, error) {
	var k hob.Key
	return k, c.call(ctx, request{method: http.MethodDelete, path: path("api", "keys", string(id))}, &k)
}
