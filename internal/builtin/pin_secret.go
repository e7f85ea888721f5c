package builtin

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"hob"
)

// openSecret refuses pinned arguments that look like credentials: a config_override is kept as it is and shown to whoever may
// see the agent. The error is Invalid, names the key and never the value.
func openSecret(pinned hob.PinnedArgs) error {
	for _, key := range slices.Sorted(maps.Keys(pinned)) {
		var v any
		if json.Unmarshal(pinned[key], &v) != nil {
			continue // judged elsewhere
		}
		if key == "headers" {
			if name := credentialHeader(v); name != "" {
				return openSecretError(key, "has the header "+shorten(name)+", which looks like a credential")
			}
		}
		if hasUserinfo(v) {
			return openSecretError(key, "has an address with a user or password in it")
		}
	}
	return nil
}

func openSecretError(key, what string) error {
	return badKey(key, "%s, and everybody who may see the agent reads config_override; make a custom HTTP tool with POST /api/tools, whose headers are sealed", what)
}

// credentialHeader finds a header with a value whose name tells of a credential, "" where there is none.
func credentialHeader(v any) string {
	headers, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if value, text := headers[name].(string); text && strings.TrimSpace(value) == "" {
			continue
		}
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "proxy-") || lower == "cookie" || lower == "set-cookie" {
			return name
		}
		if lower == "idempotency-key" {
			continue
		}
		for _, part := range []string{"auth", "key", "token", "secret", "passw", "credential"} {
			if strings.Contains(lower, part) {
				return name
			}
		}
	}
	return ""
}

// hasUserinfo says whether there is an address with a user or password anywhere in a value.
func hasUserinfo(v any) bool {
	switch v := v.(type) {
	case string:
		at := strings.Index(v, "://")
		if at < 0 {
			return false
		}
		u, err := url.Parse(strings.TrimSpace(v))
		if err == nil {
			return u.User != nil
		}
		authority, _, _ := strings.Cut(v[at+len("://"):], "/")
		return strings.Contains(authority, "@")
	case map[string]any:
		for _, value := range v {
			if hasUserinfo(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasUserinfo)
	}
	return false
}
