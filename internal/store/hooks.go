package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"hob"
	"hob/internal/seal"
)

const hookColumns = `id, agent_id, workspace_id, event, type, matcher, config, sealed, enabled, position, created_at`

// hookSecrets is what of a hook's configuration is sealed, as text: a Secret would marshal as its mask.
type hookSecrets struct {
	Headers map[string]string `json:"headers,omitempty"`
	Secret  string            `json:"secret,omitempty"`
}

func hookPlace(id hob.HookID) string { return seal.Context("hooks", string(id), "secrets") }

// scanHook reads a hook and opens its secrets.
func (s *DB) scanHook(r row) (hob.Hook, error) {
	var h hob.Hook
	var matcher, config string
	var sealed []byte
	var enabled, created int64
	err := r.Scan(&h.ID, &h.Agent, &h.Workspace, &h.Event, &h.Type, &matcher, &config, &sealed, &enabled, &h.Position, &created)
	if err != nil {
		return h, err
	}
	h.Enabled, h.CreatedAt = enabled != 0, hob.FromMicros(created)
	if matcher != "" {
		h.Matcher = &matcher
	}
	if err := json.Unmarshal([]byte(config), &h.Config); err != nil {
		return hob.Hook{}, fmt.Errorf("read the configuration of hook %s: %w", h.ID, err)
	}
	if sealed == nil {
		return h, nil
	}
	var secrets hookSecrets
	plain, err := s.box.Open(hookPlace(h.ID), sealed)
	if err == nil {
		err = json.Unmarshal(plain, &secrets)
	}
	if err != nil {
		return hob.Hook{}, fmt.Errorf("open the secrets of hook %s: %w", h.ID, err)
	}
	h.Config.Secret = hob.Secret(secrets.Secret)
	if len(secrets.Headers) > 0 {
		h.Config.Headers = make(map[string]hob.Secret, len(secrets.Headers))
	}
	for name, value := range secrets.Headers {
		h.Config.Headers[name] = hob.Secret(value)
	}
	return h, nil
}

// sealedHook splits a hook's configuration into what is kept readable and its sealed secrets, nil where there are none.
func (s *DB) sealedHook(id hob.HookID, c hob.HookConfig) (string, []byte, error) {
	secrets := hookSecrets{Secret: string(c.Secret), Headers: make(map[string]string, len(c.Headers))}
	for name, value := range c.Headers {
		if masked(value) {
			return "", nil, unknownMask(name)
		}
		secrets.Headers[name] = string(value)
	}
	if masked(c.Secret) {
		return "", nil, hob.Errorf(hob.Invalid, "the secret is masked, but none is stored; send the value itself, or none to have one made").
			With("field", "config.secret")
	}
	c.Headers, c.Secret = nil, ""
	open, err := json.Marshal(c)
	if err != nil {
		return "", nil, fmt.Errorf("encode a hook's configuration: %w", err)
	}
	if secrets.Secret == "" && len(secrets.Headers) == 0 {
		return string(open), nil, nil
	}
	closed, err := json.Marshal(secrets)
	if err != nil {
		return "", nil, fmt.Errorf("encode a hook's secrets: %w", err)
	}
	return string(open), s.box.Seal(hookPlace(id), closed), nil
}

// CreateHook keeps a new hook of an agent; its id and time are given here.
func (s *DB) CreateHook(ctx context.Context, by hob.Principal, h hob.Hook) (hob.Hook, error) {
	h.ID, h.Workspace, h.CreatedAt = hob.HookID(hob.NewUUID()), by.Workspace, hob.FromMicros(s.now())
	config, sealed, err := s.sealedHook(h.ID, h.Config)
	if err != nil {
		return hob.Hook{}, err
	}
	matcher := ""
	if h.Matcher != nil {
		matcher = *h.Matcher
	}
	asked := h.Agent
	err = s.configure(ctx, "create a hook", func(ctx context.Context, t *tx) error {
		ag, err := agent(ctx, t, by, hob.ScopeConfigure, asked)
		if err != nil {
			return err
		}
		h.Agent = ag.ID
		n, err := one(ctx, t, scanInt, `SELECT count(*) FROM hooks WHERE agent_id = ?`, string(h.Agent))
		if err != nil {
			return err
		}
		if n >= hob.MaxHooks {
			return hob.Errorf(hob.Conflict, "the agent has %d hooks, which is the most; delete one first", n).
				WithCode("too_many_hooks").With("limit", hob.MaxHooks)
		}
		if _, err := t.exec(ctx, `INSERT INTO hooks (`+hookColumns+`, created_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			string(h.ID), string(h.Agent), string(h.Workspace), string(h.Event), string(h.Type), matcher, config, sealed, flag(h.Enabled),
			int64(h.Position), h.CreatedAt.Micros(), by.Name()); err != nil {
			return err
		}
		t.hooked(by, "hook.create", h, nil, hookConfig(h))
		return countHooks(ctx, t, h.Agent)
	})
	if err != nil {
		return hob.Hook{}, err
	}
	return h, nil
}

// hooked notes a change of a hook.
func (t *tx) hooked(by hob.Principal, action string, h hob.Hook, before, after any) {
	t.did(by, action, "hook", string(h.ID), before, after).Detail = details("agent_id", string(h.Agent), "event", string(h.Event), "type", string(h.Type))
}

// countHooks writes down how many enabled hooks an agent has, whose row the transaction holds.
func countHooks(ctx context.Context, t *tx, ag hob.AgentID) error {
	_, err := t.exec(ctx, `UPDATE agents SET hooks = (SELECT count(*) FROM hooks WHERE agent_id = ? AND enabled = 1) WHERE id = ?`,
		string(ag), string(ag))
	return hob.Wrap("count an agent's hooks", err)
}

// Hooks lists an agent's hooks in the order in which they are asked.
func (s *DB) Hooks(ctx context.Context, by hob.Principal, id hob.AgentID) ([]hob.Hook, error) {
	a, err := s.Agent(ctx, by, id)
	if err != nil {
		return nil, err
	}
	list, err := recall(&s.configured, hooksOf, a.ID, func() ([]hob.Hook, error) {
		ctx, t := s.lookUp(ctx)
		list, err := many(ctx, t, s.scanHook, `SELECT `+hookColumns+` FROM hooks WHERE agent_id = ? ORDER BY position, n`, string(a.ID))
		return list, hob.Wrap("list hooks", err)
	})
	return slices.Clone(list), err
}

// hook reads one of an agent that the principal may use with the scope; "" asks for sight alone.
func (s *DB) hook(ctx context.Context, t *tx, by hob.Principal, scope hob.Scope, ag hob.AgentID, id hob.HookID) (hob.Hook, error) {
	owner, err := agent(ctx, t, by, scope, ag)
	if err != nil {
		return hob.Hook{}, err
	}
	absent := hob.Errorf(hob.NotFound, "Hook not found").WithCode("hook_not_found")
	key, ok := uuid(id)
	if !ok {
		return hob.Hook{}, absent
	}
	h, err := one(ctx, t, s.scanHook, `SELECT `+hookColumns+` FROM hooks WHERE agent_id = ? AND id = ?`, string(owner.ID), key)
	if none(err) {
		return hob.Hook{}, absent
	}
	return h, hob.Wrap("read a hook", err)
}

// UpdateHook switches a hook on or off, or moves it.
func (s *DB) UpdateHook(ctx context.Context, by hob.Principal, ag hob.AgentID, id hob.HookID, p hob.HookPatch) (hob.Hook, error) {
	var h hob.Hook
	err := s.configure(ctx, "update a hook", func(ctx context.Context, t *tx) (err error) {
		if h, err = s.hook(ctx, t, by, hob.ScopeConfigure, ag, id); err != nil {
			return err
		}
		before := hookConfig(h)
		if p.Enabled != nil {
			h.Enabled = *p.Enabled
		}
		if p.Position != nil {
			h.Position = *p.Position
		}
		t.hooked(by, "hook.update", h, before, hookConfig(h))
		if _, err = t.exec(ctx, `UPDATE hooks SET enabled = ?, position = ? WHERE id = ?`, flag(h.Enabled), int64(h.Position), string(h.ID)); err != nil {
			return err
		}
		return countHooks(ctx, t, h.Agent)
	})
	if err != nil {
		return hob.Hook{}, err
	}
	return h, nil
}

// DeleteHook deletes a hook. What is to be delivered to it is delivered no more.
func (s *DB) DeleteHook(ctx context.Context, by hob.Principal, ag hob.AgentID, id hob.HookID) error {
	return s.configure(ctx, "delete a hook", func(ctx context.Context, t *tx) error {
		h, err := s.hook(ctx, t, by, hob.ScopeConfigure, ag, id)
		if err != nil {
			return err
		}
		t.hooked(by, "hook.delete", h, hookConfig(h), nil)
		if _, err := t.exec(ctx, `DELETE FROM hooks WHERE id = ?`, string(h.ID)); err != nil {
			return err
		}
		return countHooks(ctx, t, h.Agent)
	})
}
