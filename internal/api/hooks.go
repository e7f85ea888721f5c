package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"hob"
	"hob/internal/engine"
)

// Bounds of hooks, beside those that package hob has.
const (
	minPosition       = -1000
	maxPosition       = 1_000_000
	defaultDeliveries = 50
	minHookSecret     = 16 // characters
	maxHookSecret     = 256
	hookSecretPrefix  = "whsec_"
	hookSecretBytes   = 24 // random ones, written as hex
)

// hookInput is what a client sends to add a hook.
type hookInput struct {
	Event    *string         `json:"event" jsonschema:"required: when it is asked"`
	Type     *string         `json:"type" jsonschema:"required: who decides"`
	Matcher  *string         `json:"matcher,omitempty" jsonschema:"of tool events: the tools that it is about, by name, with * and ?, or several parted by |; every tool where absent or null"`
	Config   json.RawMessage `json:"config" jsonschema:"required: what its type needs, {} where that is nothing"`
	Enabled  *bool           `json:"enabled,omitempty" jsonschema:"false: kept, but not asked; true where absent"`
	Position *int            `json:"position,omitempty" jsonschema:"hooks are asked in this order; 0 where absent"`
}

// hookChange is what can be changed of a hook.
type hookChange struct {
	Enabled  *bool `json:"enabled,omitempty"`
	Position *int  `json:"position,omitempty"`
}

// hookAnswer is a hook on the wire. What signs its requests stands beside its config.
type hookAnswer struct {
	hob.Hook
	SigningSecret string   `json:"signing_secret,omitempty" jsonschema:"signs what is sent; shown in the answer that made the hook, and as a mask ever after"`
	Warnings      []string `json:"warnings,omitempty"`
}

type hookList struct {
	Hooks []hookAnswer `json:"hooks"`
}

// deliveryList is what was sent to a hook beside its runs, or is to be.
type deliveryList struct {
	Deliveries []hob.Delivery `json:"deliveries"`
	Limit      int            `json:"limit"`
}

// shownHook is a hook as the client sees it, its secret masked.
func shownHook(h hob.Hook) hookAnswer {
	a := hookAnswer{Hook: h}
	if h.Config.Secret != "" {
		a.SigningSecret = hob.Mask
	}
	a.Config.Secret = ""
	return a
}

// seenHook is a hook as whoever asked sees it. Who may not change the agent's hooks learns where they send to, but not what
// its address may authorise with.
func (c *call) seenHook(agent hob.AgentID, h hob.Hook) hookAnswer {
	a := shownHook(h)
	if hob.Can(c.by, hob.ScopeConfigure, hob.Object{Kind: hob.AgentObject, Workspace: c.by.Workspace, Agent: agent}) != nil {
		a.Config.URL, a.Config.NotifyURL = bareAddress(a.Config.URL), bareAddress(a.Config.NotifyURL)
	}
	return a
}

// bareAddress is an address without user, password, query and fragment; an ellipsis stands for the query.
func bareAddress(address string) string {
	if address == "" {
		return ""
	}
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" {
		return hob.Mask
	}
	bare := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if u.RawQuery != "" || u.Fragment != "" {
		bare += "?…"
	}
	return bare
}

func absentHook() error { return hob.Errorf(hob.NotFound, "Hook not found").WithCode("hook_not_found") }

// hookID is the hook that the path names.
func (c *call) hookID() (hob.HookID, error) {
	id := c.PathValue("hook_id")
	if !hob.IsUUID(id) {
		return "", absentHook()
	}
	return hob.HookID(strings.ToLower(id)), nil
}

// hookAsked are the ids of the agent and the hook that the path names.
func (c *call) hookAsked() (hob.AgentID, hob.HookID, error) {
	agent, err := c.agentID()
	if err != nil {
		return "", "", err
	}
	id, err := c.hookID()
	return agent, id, err
}

func listHooks(c *call) error {
	agent, err := c.agentID()
	if err != nil {
		return err
	}
	hooks, err := c.s.Store.Hooks(c.Context(), c.by, agent)
	if err != nil {
		return err
	}
	answer := hookList{Hooks: make([]hookAnswer, 0, len(hooks))}
	for _, h := range hooks {
		h.Agent = "" // the path names it
		answer.Hooks = append(answer.Hooks, c.seenHook(agent, h))
	}
	return c.reply(http.StatusOK, answer)
}

func getHook(c *call) error {
	agent, id, err := c.hookAsked()
	if err != nil {
		return err
	}
	hooks, err := c.s.Store.Hooks(c.Context(), c.by, agent)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(hooks, func(h hob.Hook) bool { return h.ID == id })
	if i < 0 {
		return absentHook()
	}
	hooks[i].Agent = agent
	return c.reply(http.StatusOK, c.seenHook(agent, hooks[i]))
}

func createHook(c *call) (creation, error) {
	id, err := c.agentID()
	if err != nil {
		return creation{}, err
	}
	var in hookInput
	b, err := c.decode(&in, false)
	if err != nil {
		return creation{}, err
	}
	h, warnings, err := c.newHook(in, b)
	if err != nil {
		return creation{}, err
	}
	agent, err := c.s.Store.Agent(c.Context(), c.by, id)
	if err != nil {
		return creation{}, err
	}
	h.Agent, h.Workspace = id, c.by.Workspace
	doubts, err := c.hookDoubts(agent, h)
	if err != nil {
		return creation{}, err
	}
	warnings = slices.Concat(b.warnings, warnings, doubts)
	return creation{make: func(ctx context.Context, s hob.Store) (int, any, error) {
		made, err := s.CreateHook(ctx, c.by, h)
		answer := shownHook(made)
		answer.Agent, answer.SigningSecret, answer.Warnings = id, string(h.Config.Secret), warnings
		return http.StatusCreated, answer, err
	}}, nil
}

// newHook reads and judges a hook by itself. The warnings name what of its config has no effect.
func (c *call) newHook(in hookInput, b body) (hob.Hook, []string, error) {
	var missing []string
	for _, f := range []struct {
		name string
		lack bool
	}{{"event", blank(in.Event)}, {"type", blank(in.Type)}, {"config", !given(b, "config")}} {
		if f.lack {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		return hob.Hook{}, nil, b.hint(hob.Errorf(hob.Invalid, "event, type, and config are required").
			With("field", missing[0]).With("missing", missing))
	}
	if in.Config[0] != '{' {
		return hob.Hook{}, nil, hob.Errorf(hob.Invalid, "config must be an object").With("field", "config")
	}
	h := hob.Hook{Event: hob.HookEvent(*in.Event), Type: hob.HookType(*in.Type), Enabled: in.Enabled == nil || *in.Enabled}
	if err := oneOf("event", h.Event, hob.HookEvents()); err != nil {
		return h, nil, err
	}
	if err := oneOf("type", h.Type, hob.HookTypes()); err != nil {
		return h, nil, err
	}
	if !blank(in.Matcher) {
		h.Matcher = in.Matcher
	}
	if in.Position != nil {
		if h.Position = *in.Position; !goodPosition(h.Position) {
			return h, nil, badHookPosition()
		}
	}
	config, warnings, err := hookConfig(h.Type, in.Config)
	if err != nil {
		return h, nil, err
	}
	h.Config = config
	if err := ruleError("", engine.CheckHook(&h)); err != nil {
		return h, nil, err
	}
	if err := c.checkSending(h); err != nil {
		return h, nil, err
	}
	if h.Config.Secret == "" && sends(h) {
		h.Config.Secret = hob.Secret(hookSecretPrefix + hob.RandomHex(hookSecretBytes))
	}
	return h, warnings, nil
}

// oneOf refuses a value that is none of those there are, and names them.
func oneOf[T ~string](field string, value T, all []T) error {
	if slices.Contains(all, value) {
		return nil
	}
	names := make([]string, len(all))
	for i, v := range all {
		names[i] = string(v)
	}
	return hob.Errorf(hob.Invalid, "%s must be one of %s, not %s", field, strings.Join(names, ", "), shown(string(value))).
		With("field", field).With("allowed", names)
}

func goodPosition(n int) bool { return n >= minPosition && n <= maxPosition }

func badHookPosition() error {
	return hob.Errorf(hob.Invalid, "position must be a whole number from %d to %d", minPosition, maxPosition).With("field", "position")
}

// hookDoubts tell what of a good hook may not be what its maker wants.
func (c *call) hookDoubts(agent hob.Agent, h hob.Hook) ([]string, error) {
	var doubts []string
	if h.Type == hob.HTTPHook && h.Event.Blocks() && h.Fails() == hob.FailAllow {
		doubts = append(doubts, fmt.Sprintf("config.on_error is allow: where the hook cannot be asked, what it would have blocked goes on; "+
			"deny is safer for %s", h.Event))
	}
	if h.Event == hob.PreResponse {
		settings, err := hob.ParseSettings(agent.Settings)
		if err != nil {
			return nil, err
		}
		if settings.ResponseBuffering != hob.BufferHold {
			doubts = append(doubts, "readers of a stream have seen the text by the time the hook decides about it; "+
				`the agent's setting response_buffering "hold" shows it after that`)
		}
	}
	if h.Matcher == nil {
		return doubts, nil
	}
	lost, err := c.matchesNothing(agent, *h.Matcher)
	if err != nil || len(lost) == 0 {
		return doubts, err
	}
	return append(doubts, "matcher: the agent has no tool that matches "+strings.Join(lost, ", ")), nil
}

// matchesNothing lists the parts of a matcher that are about none of the agent's tools.
func (c *call) matchesNothing(agent hob.Agent, matcher string) ([]string, error) {
	scope, err := c.s.Store.Scope(c.Context(), c.by, agent.ID)
	if err != nil {
		return nil, err
	}
	var lost []string
	for part := range strings.SplitSeq(matcher, "|") {
		probe := hob.Hook{Event: hob.PreToolUse, Matcher: &part}
		matches := slices.ContainsFunc(scope, func(a hob.AssignedTool) bool {
			if a.Tool != nil {
				return probe.Matches(a.Tool.Name)
			}
			return probe.Matches(a.ToolName)
		})
		if !matches && len(lost) < maxWarned {
			lost = append(lost, shown(strings.TrimSpace(part)))
		}
	}
	return lost, nil
}

func updateHook(c *call) error {
	agent, id, err := c.hookAsked()
	if err != nil {
		return err
	}
	var in hookChange
	b, err := c.decode(&in, true)
	if err != nil {
		return err
	}
	switch {
	case len(b.fields) == 0:
		return hob.Errorf(hob.Invalid, "No data provided")
	case len(b.unknown) > 0:
		return hob.Errorf(hob.Invalid, "a hook is not changed but for enabled and position: delete it and add another; not %s", shown(b.unknown[0])).
			With("field", clip(b.unknown[0]))
	case in.Enabled == nil && in.Position == nil:
		return hob.Errorf(hob.Invalid, "No valid fields to update")
	case in.Position != nil && !goodPosition(*in.Position):
		return badHookPosition()
	}
	h, err := c.s.Store.UpdateHook(c.Context(), c.by, agent, id, hob.HookPatch(in))
	if err != nil {
		return err
	}
	h.Agent = agent
	return c.reply(http.StatusOK, shownHook(h))
}

func deleteHook(c *call) error {
	agent, id, err := c.hookAsked()
	if err != nil {
		return err
	}
	if err := c.s.Store.DeleteHook(c.Context(), c.by, agent, id); err != nil {
		return err
	}
	return c.reply(http.StatusOK, deletedAnswer{true})
}

func listDeliveries(c *call) error {
	agent, id, err := c.hookAsked()
	if err != nil {
		return err
	}
	limit := c.number("limit", defaultDeliveries, 1, maxLimit)
	list, err := c.s.Store.Deliveries(c.Context(), c.by, agent, id, limit)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, deliveryList{Deliveries: filled(list), Limit: limit})
}
