package store

import (
	"encoding/json"
	"strings"

	"hob"
)

// What the digests of configurations are made of: what somebody chose, without the times and numbers that every change
// gives anew, so that what is put back as it was has the digest it had.

func agentConfig(a hob.Agent) any {
	a.CreatedAt, a.UpdatedAt = hob.Time{}, hob.Time{}
	return a
}

func toolConfig(t hob.Tool) any {
	t.CreatedAt, t.UpdatedAt, t.Version = hob.Time{}, hob.Time{}, 0
	return t
}

func builtinConfig(c hob.BuiltinChange) any {
	c.Version, c.Config = 0, object(c.Config)
	return c
}

func bucketConfig(b hob.Bucket) any {
	b.CreatedAt, b.UpdatedAt = hob.Time{}, hob.Time{}
	return struct {
		hob.Bucket
		Owned bool `json:"owned"`
	}{b, b.Owned}
}

func hookConfig(h hob.Hook) any {
	h.CreatedAt = hob.Time{}
	return h
}

// keyDetail is what the entry of a key tells of it.
func keyDetail(k hob.Key) json.RawMessage {
	scopes := make([]string, len(k.Scopes))
	for i, s := range k.Scopes {
		scopes[i] = string(s)
	}
	return details("name", k.Name, "prefix", k.Prefix, "scopes", strings.Join(scopes, " "), "agent_id", string(k.Agent))
}

// providerKeyConfig leaves of the key only whether there is one: its last characters would be guessed from the digest.
func providerKeyConfig(k hob.ProviderKey) any {
	key := ""
	if k.MaskedKey != "" || k.Key != "" {
		key = hob.Mask
	}
	return map[string]string{"provider": k.Provider, "base_url": k.BaseURL, "key": key}
}

// settingConfig is nil where the setting is not set.
func settingConfig(x *storedSetting) any {
	if x == nil {
		return nil
	}
	value := x.Value
	if x.sealed != nil || x.Secret {
		value = hob.Mask
	}
	return map[string]string{"key": x.key, "value": value}
}

// details is the detail of an entry: names and texts by turns.
func details(pairs ...string) json.RawMessage {
	m := make(map[string]string, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	return text
}
