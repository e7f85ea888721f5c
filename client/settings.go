package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"hob"
)

// Settings lists the workspace's settings by category; secrets read as hob.Mask.
func (c *Client) Settings(ctx context.Context) (map[string]hob.SettingCategory, error) {
	var list struct {
		Categories map[string]hob.SettingCategory `json:"categories"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/api/settings"}, &list)
	return list.Categories, err
}

// Setting reads one setting as the list has it.
func (c *Client) Setting(ctx context.Context, key string) (hob.Setting, error) {
	var one hob.Setting
	err := c.call(ctx, request{method: http.MethodGet, path: path("api", "settings", key)}, &one)
	return one, err
}

// SetSettings sets values (numbers, booleans or text) by key, all or none, and returns the keys that were set. A secret's
// mask leaves it as it is. The error's details tell by key what is wrong.
func (c *Client) SetSettings(ctx context.Context, values map[string]any) ([]string, error) {
	var answer struct {
		Updated []string `json:"updated"`
	}
	body := map[string]any{"settings": values}
	err := c.call(ctx, request{method: http.MethodPut, path: "/api/settings", body: body, again: true}, &answer)
	return answer.Updated, err
}

// SetSetting sets one value and returns it as it reads then.
func (c *Client) SetSetting(ctx context.Context, key string, value any) (any, error) {
	var answer struct {
		Value any `json:"value"`
	}
	body := map[string]any{"value": value}
	err := c.call(ctx, request{method: http.MethodPut, path: path("api", "settings", key), body: body, again: true}, &answer)
	return answer.Value, err
}

// ResetSetting takes back what the workspace set for a key and returns what holds now, "" for a secret.
func (c *Client) ResetSetting(ctx context.Context, key string) (any, error) {
	var answer struct {
		Default any `json:"default"`
	}
	err := c.call(ctx, request{method: http.MethodDelete, path: path("api", "settings", key), again: true}, &answer)
	return answer.Default, err
}

// ResetSettings takes back what the workspace set for the keys of a category and returns them.
func (c *Client) ResetSettings(ctx context.Context, category string) ([]string, error) {
	var answer struct {
		Keys []string `json:"reset_keys"`
	}
	body := map[string]string{"category": category}
	err := c.call(ctx, request{method: http.MethodPost, path: "/api/settings/reset-category", body: body, again: true}, &answer)
	return answer.Keys, err
}

// ProviderKeyInput is how a workspace reaches a provider: openai, anthropic, google or openrouter by a key, or a server
// that speaks OpenAI's API, under a name of its own, by its address.
type ProviderKeyInput struct {
	Provider string `json:"provider"`
	APIKey   string `json:"api_key,omitempty"`
	BaseURL  string `json:"base_url,omitempty"`
	// IdempotencyKey makes a repeated request get the first one's answer; it counts for PutProviderKey alone.
	IdempotencyKey string `json:"-"`
}

// ProviderKey is a key with the server's warnings.
type ProviderKey struct {
	hob.ProviderKey
	Warnings []string `json:"warnings"`
}

// ProviderKeys lists the workspace's keys for model providers, masked.
func (c *Client) ProviderKeys(ctx context.Context) ([]hob.ProviderKey, error) {
	var list []hob.ProviderKey
	err := c.call(ctx, request{method: http.MethodGet, path: "/api/ai-provider-keys"}, &list)
	return list, err
}

// PlatformProviders names the providers that need no key of the workspace.
func (c *Client) PlatformProviders(ctx context.Context) ([]string, error) {
	var list struct {
		Providers []string `json:"providers"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/api/ai-provider-keys/platform_supported"}, &list)
	return list.Providers, err
}

// PutProviderKey makes or replaces a key. One that its provider refuses is Invalid and not kept; one that the provider
// could not be asked about is kept with a warning.
func (c *Client) PutProviderKey(ctx context.Context, in ProviderKeyInput) (ProviderKey, error) {
	var k ProviderKey
	err := c.call(ctx, request{method: http.MethodPost, path: "/api/ai-provider-keys", header: idempotent(in.IdempotencyKey), body: in}, &k)
	return k, err
}

// PutProviderKeys makes or replaces the keys of several vendors, all or none; empty ones stay as they are.
func (c *Client) PutProviderKeys(ctx context.Context, keys map[string]string) ([]hob.ProviderKey, error) {
	var list []hob.ProviderKey
	err := c.call(ctx, request{method: http.MethodPut, path: "/api/ai-provider-keys", body: keys}, &list)
	return list, err
}

// DeleteProviderKey deletes a key, so that the operator's is used again where there is one.
func (c *Client) DeleteProviderKey(ctx context.Context, provider string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: path("api", "ai-provider-keys", provider)}, nil)
}

// ValidateProviderKey asks a provider whether it takes a key; reason says why not. Nothing is kept.
func (c *Client) ValidateProviderKey(ctx context.Context, in ProviderKeyInput) (valid bool, reason string, err error) {
	var answer struct {
		IsValid bool   `json:"is_valid"`
		Error   string `json:"error"`
	}
	err = c.call(ctx, request{method: http.MethodPost, path: "/api/ai-provider-keys/validate", body: in}, &answer)
	return answer.IsValid, answer.Error, err
}

// Usage is a report of the usage ledger.
type Usage struct {
	Usage   []hob.UsageRow `json:"usage"`
	Total   hob.UsageRow   `json:"total"`
	GroupBy hob.UsageGroup `json:"group_by"`
	Since   hob.Time       `json:"since"`
	Until   hob.Time       `json:"until"`
}

// Usage reports what was used, of what the key may see.
func (c *Client) Usage(ctx context.Context, f hob.UsageFilter) (Usage, error) {
	v := url.Values{}
	set(v, "group_by", string(f.GroupBy))
	set(v, "agent_id", string(f.Agent))
	set(v, "model", f.Model)
	set(v, "run_id", string(f.Run))
	if !f.Since.IsZero() {
		v.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if !f.Until.IsZero() {
		v.Set("until", f.Until.UTC().Format(time.RFC3339Nano))
	}
	var u Usage
	err := c.call(ctx, request{method: http.MethodGet, path: "/api/usage", query: v}, &u)
	return u, err
}

// Profiles lists what probing models at their endpoints found.
func (c *Client) Profiles(ctx context.Context) ([]hob.ModelProfile, error) {
	var list struct {
		Profiles []hob.ModelProfile `json:"profiles"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/api/provider-profiles"}, &list)
	return list.Profiles, err
}

// DeleteProfile forgets what probing a model found. The endpoint is as the list has it.
func (c *Client) DeleteProfile(ctx context.Context, endpoint, model string) error {
	return c.call(ctx, request{
		method: http.MethodDelete, path: "/api/provider-profiles", query: url.Values{"endpoint": {endpoint}, "model": {model}},
	}, nil)
}

// PutProfile keeps what probing a model found, in place of what was found before.
func (c *Client) PutProfile(ctx context.Context, p hob.ModelProfile) (hob.ModelProfile, error) {
	var kept hob.ModelProfile
	err := c.call(ctx, request{method: http.MethodPut, path: "/api/provider-profiles", body: p, again: true}, &kept)
	return kept, err
}
