package client

import (
	"context"
	"net/http"

	"hob"
)

// HookInput adds a hook to an agent.
type HookInput struct {
	Event    hob.HookEvent   `json:"event"`
	Type     hob.HookType    `json:"type"`
	Matcher  *string         `json:"matcher,omitempty"` // of tool events: names with * and ?, parted by |; nil = every tool
	Config   HookConfigInput `json:"config"`
	Enabled  *bool           `json:"enabled,omitempty"` // nil = true
	Position int             `json:"position,omitempty"`
	// IdempotencyKey makes a repeated request get the first one's answer.
	IdempotencyKey string `json:"-"`
}

// HookConfigInput is what a hook's type needs. Its header values and secret are sent as they are, unlike those of
// hob.HookConfig, which print as masks.
type HookConfigInput struct {
	OnError hob.FailMode `json:"on_error,omitempty"` // "" = allow for http, deny for the others

	URL               string            `json:"url,omitempty"`
	Headers           map[string]string `json:"headers,omitempty"`
	Secret            string            `json:"secret,omitempty"` // "" = the server makes one
	TimeoutSeconds    float64           `json:"timeout_seconds,omitempty"`
	IncludeRunContext bool              `json:"include_run_context,omitempty"`

	Condition  string     `json:"condition,omitempty"`
	Action     string     `json:"action,omitempty"`
	IgnoreCase bool       `json:"ignore_case,omitempty"`
	Rules      []hob.Rule `json:"rules,omitempty"`

	Message string `json:"message,omitempty"`

	Timeout   *float64 `json:"timeout,omitempty"` // seconds; 0 = never expires, nil = 300
	Approvers []string `json:"approvers,omitempty"`
	FourEyes  bool     `json:"four_eyes,omitempty"`
	NotifyURL string   `json:"notify_url,omitempty"`
}

// Hook is a hook with what the server says of it.
type Hook struct {
	hob.Hook
	SigningSecret string   `json:"signing_secret"` // what signs its requests: told by CreateHook, a mask ever after
	Warnings      []string `json:"warnings"`
}

// Hooks lists an agent's hooks in the order in which they are asked.
func (c *Client) Hooks(ctx context.Context, agent hob.AgentID) ([]Hook, error) {
	var list struct {
		Hooks []Hook `json:"hooks"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("api", "agents", string(agent), "hooks")}, &list)
	return list.Hooks, err
}

// CreateHook adds a hook to an agent.
func (c *Client) CreateHook(ctx context.Context, agent hob.AgentID, in HookInput) (Hook, error) {
	var h Hook
	return h, c.call(ctx, request{method: http.MethodPost, path: path("api", "agents", string(agent), "hooks"), header: idempotent(in.IdempotencyKey), body: in}, &h)
}

// Hook reads a hook.
func (c *Client) Hook(ctx context.Context, agent hob.AgentID, id hob.HookID) (Hook, error) {
	var h Hook
	return h, c.call(ctx, request{method: http.MethodGet, path: path("api", "agents", string(agent), "hooks", string(id))}, &h)
}

// HookChange changes what is not nil. Nothing else of a hook can be changed: delete it and create another.
type HookChange struct {
	Enabled  *bool `json:"enabled,omitempty"`
	Position *int  `json:"position,omitempty"`
}

// UpdateHook switches a hook on or off, or moves it.
func (c *Client) UpdateHook(ctx context.Context, agent hob.AgentID, id hob.HookID, in HookChange) (Hook, error) {
	var h Hook
	return h, c.call(ctx, request{method: http.MethodPatch, path: path("api", "agents", string(agent), "hooks", string(id)), body: in}, &h)
}

// DeleteHook deletes a hook. Runs under way keep it.
func (c *Client) DeleteHook(ctx context.Context, agent hob.AgentID, id hob.HookID) error {
	return c.call(ctx, request{method: http.MethodDelete, path: path("api", "agents", string(agent), "hooks", string(id))}, nil)
}

// Deliveries lists what is told to a hook beside its runs, newest first. A limit of 0 leaves the server's default.
func (c *Client) Deliveries(ctx context.Context, agent hob.AgentID, id hob.HookID, limit int) ([]hob.Delivery, error) {
	var list struct {
		Deliveries []hob.Delivery `json:"deliveries"`
	}
	r := request{method: http.MethodGet, path: path("api", "agents", string(agent), "hooks", string(id), "deliveries"), query: Page{Limit: limit}.values()}
	err := c.call(ctx, r, &list)
	return list.Deliveries, err
}

// Approvals lists what a run waits for, or waited, oldest first; status "" means all.
func (c *Client) Approvals(ctx context.Context, id hob.RunID, status hob.ApprovalStatus) ([]hob.Approval, error) {
	var list struct {
		Approvals []hob.Approval `json:"approvals"`
	}
	r := request{method: http.MethodGet, path: path("api", "agents", "runs", string(id), "approvals"), query: Page{}.values()}
	set(r.query, "status", string(status))
	err := c.call(ctx, r, &list)
	return list.Approvals, err
}

// InboxQuery narrows a list of approvals.
type InboxQuery struct {
	Page
	Status hob.ApprovalStatus // "" = all
	Agent  hob.AgentID
	Run    hob.RunID
}

// ApprovalList is a part of the approvals.
type ApprovalList struct {
	Approvals []hob.Approval `json:"approvals"`
	Total     int64          `json:"total"`
	Limit     int            `json:"limit"`
	Offset    int            `json:"offset"`
}

// Inbox lists the approvals that the client's key may decide or sees otherwise, of all runs, oldest first.
func (c *Client) Inbox(ctx context.Context, q InboxQuery) (ApprovalList, error) {
	v := q.values()
	set(v, "status", string(q.Status))
	set(v, "agent_id", string(q.Agent))
	set(v, "run_id", string(q.Run))
	var list ApprovalList
	return list, c.call(ctx, request{method: http.MethodGet, path: "/api/approvals", query: v}, &list)
}

// Approval reads an approval.
func (c *Client) Approval(ctx context.Context, id string) (hob.Approval, error) {
	var a hob.Approval
	return a, c.call(ctx, request{method: http.MethodGet, path: path("api", "approvals", id)}, &a)
}
