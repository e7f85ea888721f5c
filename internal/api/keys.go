package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"hob"
)

const (
	secretPrefix = "hob_"
	secretBytes  = 24 // random ones: 192 bits
	shownSecret  = 12 // characters of the secret kept for telling keys apart, the prefix included
)

// NewSecret returns a fresh API key, the part of it that may be shown, and the hash that the store keeps.
func NewSecret() (secret, prefix string, hash []byte) {
	secret = secretPrefix + hob.RandomHex(secretBytes)
	sum := sha256.Sum256([]byte(secret))
	return secret, secret[:shownSecret], sum[:]
}

// keyInput is what a client sends to make a key.
type keyInput struct {
	Name      *string         `json:"name" jsonschema:"required"`
	Scopes    json.RawMessage `json:"scopes,omitempty" jsonschema:"some of read, run, approve, configure, admin; read and run where absent"`
	AgentID   *string         `json:"agent_id,omitempty" jsonschema:"binds the key to one agent"`
	Service   *bool           `json:"service,omitempty" jsonschema:"a service key: all scopes, speaks for the workspace; only service keys make them"`
	ExpiresAt *string         `json:"expires_at,omitempty" jsonschema:"RFC 3339; never where absent"`
}

// keyCreated is the only answer that has a key's secret.
type keyCreated struct {
	hob.Key
	Secret   string   `json:"secret"`
	Warnings []string `json:"warnings,omitempty"`
}

type keyList struct {
	Keys []hob.Key `json:"keys"`
}

type keyRevoked struct {
	hob.Key
	Deleted bool `json:"deleted"`
}

func createKey(c *call) (creation, error) {
	var in keyInput
	b, err := c.decode(&in, false)
	if err != nil {
		return creation{}, err
	}
	k, err := c.newKey(in)
	if err != nil {
		if blank(in.Name) {
			err = b.hint(err)
		}
		return creation{}, err
	}
	secret, prefix, hash := NewSecret()
	k.Prefix = prefix
	return creation{make: func(ctx context.Context, s hob.Store) (int, any, error) {
		made, err := s.CreateKey(ctx, c.by, k, hash)
		return http.StatusCreated, keyCreated{made, secret, b.warnings}, err
	}}, nil
}

// newKey checks what is asked for against what the maker has: a key never reaches further than its maker.
func (c *call) newKey(in keyInput) (hob.Key, error) {
	k := hob.Key{Workspace: c.by.Workspace, CreatedBy: c.by.Owner(), Service: in.Service != nil && *in.Service}
	bad := func(field, must string) error {
		return hob.Errorf(hob.Invalid, "%s %s", field, must).With("field", field)
	}
	if blank(in.Name) || len(*in.Name) > hob.MaxName {
		return k, bad("name", "is required: text of at most 255 bytes")
	}
	k.Name = strings.TrimSpace(*in.Name)
	var err error
	if k.Scopes, err = scopes(in.Scopes, k.Service); err != nil {
		return k, err
	}
	for _, s := range k.Scopes {
		if !c.by.Has(s) {
			return k, hob.Errorf(hob.Forbidden, "a key cannot get the scope %q, which its maker does not have", s).WithCode("scope_missing")
		}
	}
	if in.AgentID != nil && *in.AgentID != "" {
		if !hob.IsUUID(*in.AgentID) {
			return k, bad("agent_id", "names no agent")
		}
		k.Agent = hob.AgentID(strings.ToLower(*in.AgentID))
		if _, err := c.s.Store.Agent(c.Context(), c.by, k.Agent); hob.KindOf(err) == hob.NotFound {
			return k, bad("agent_id", "names no agent")
		} else if err != nil {
			return k, err
		}
	}
	switch {
	case c.by.Agent != "" && k.Agent != c.by.Agent:
		return k, hob.Errorf(hob.Forbidden, "a key that is bound to one agent makes only keys that are bound to the same").WithCode("scope_missing")
	case k.Service && c.by.Kind != hob.ServicePrincipal:
		return k, hob.Errorf(hob.Forbidden, "only a service key makes service keys").WithCode("scope_missing")
	case k.Service && k.Agent != "":
		return k, bad("agent_id", "cannot be set on a service key")
	}
	if in.ExpiresAt != nil && *in.ExpiresAt != "" {
		t, err := time.Parse(time.RFC3339Nano, *in.ExpiresAt)
		if err != nil || !t.After(c.s.Clock()) {
			return k, bad("expires_at", "must be a time to come, as in 2030-01-02T15:04:05Z")
		}
		k.ExpiresAt = hob.Time{Time: t.UTC().Truncate(time.Microsecond)}
	}
	return k, nil
}

// scopes reads a key's scopes: each known, none twice, in their usual order.
func scopes(raw json.RawMessage, service bool) ([]hob.Scope, error) {
	all := hob.Scopes()
	var names []hob.Scope
	if len(raw) > 0 && string(raw) != "null" {
		if err := json.Unmarshal(raw, &names); err != nil {
			return nil, hob.FieldError("scopes", err)
		}
	}
	for _, s := range names {
		if !slices.Contains(all, s) {
			return nil, hob.Errorf(hob.Invalid, "scopes must be of read, run, approve, configure, admin; %s is none", shown(string(s))).
				With("field", "scopes")
		}
	}
	if service {
		return []hob.Scope{hob.ScopeAdmin}, nil
	}
	if len(names) == 0 {
		return []hob.Scope{hob.ScopeRead, hob.ScopeRun}, nil
	}
	return slices.DeleteFunc(all, func(s hob.Scope) bool { return !slices.Contains(names, s) }), nil
}

func listKeys(c *call) error {
	keys, err := c.s.Store.Keys(c.Context(), c.by)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, keyList{filled(keys)})
}

func getKey(c *call) error {
	keys, err := c.s.Store.Keys(c.Context(), c.by)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if string(k.ID) == c.PathValue("key_id") {
			return c.reply(http.StatusOK, k)
		}
	}
	return hob.Absent(hob.KeyObject)
}

func revokeKey(c *call) error {
	id := c.PathValue("key_id")
	if !hob.IsUUID(id) {
		return hob.Absent(hob.KeyObject)
	}
	k, err := c.s.Store.RevokeKey(c.Context(), c.by, hob.KeyID(strings.ToLower(id)))
	if err != nil {
		return err
	}
	c.s.auth.forget(k.ID)
	return c.reply(http.StatusOK, keyRevoked{k, true})
}
