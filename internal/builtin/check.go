package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"hob"
)

// checking is what a builtin gets to look at its options when an assignment is written.
type checking struct {
	ctx     context.Context //nolint:containedctx // lives for one call of check
	set     *Set
	ws      hob.WorkspaceID
	options any
	pinned  hob.PinnedArgs
}

// CheckAssignment judges the config_override of a builtin when it is assigned or changed. The error is Invalid and
// names the key: a name that is no builtin's, a pinned argument that does not fit the tool's schema, a malformed option.
// The warning names what is stored but will not work: keys that mean nothing, tables and buckets that do not exist, a
// prerequisite that the workspace lacks. Conditions of "rules" are not looked at.
func (s *Set) CheckAssignment(ctx context.Context, ws hob.WorkspaceID, toolName string, config json.RawMessage) (warning string, err error) {
	b := s.builtins[toolName]
	if b == nil {
		return "", hob.Errorf(hob.Invalid, "there is no builtin tool %q; the builtin tools are %s",
			toolName, strings.Join(s.names, ", ")).With("field", "tool_name")
	}
	bound := newBinding(b.source(s), config)
	if bound.err != nil {
		return "", bound.err
	}
	if err := openSecret(bound.pinned); err != nil {
		return "", err
	}
	warnings := ignoredKeys(bound, toolName)
	lacks := ""
	if b.unavailable != nil {
		lacks = b.unavailable(ctx, s, ws)
	}
	switch {
	case lacks != "":
		warnings = append(warnings, toolName+" will not work: "+lacks)
	case b.check != nil:
		if w := b.check(checking{ctx: ctx, set: s, ws: ws, options: bound.options, pinned: bound.pinned}); w != "" {
			warnings = append(warnings, w)
		}
	}
	return strings.Join(warnings, "; "), nil
}

// CheckCustomAssignment judges the config_override of a custom tool, like CheckAssignment.
func (s *Set) CheckCustomAssignment(t hob.Tool, config json.RawMessage) (warning string, err error) {
	bound := newBinding(customSource(&t), config)
	if bound.err != nil {
		return "", bound.err
	}
	if err := openSecret(bound.pinned); err != nil {
		return "", err
	}
	return strings.Join(ignoredKeys(bound, t.Name), "; "), nil
}

func ignoredKeys(b *binding, tool string) []string {
	warnings := make([]string, 0, len(b.ignored))
	for _, k := range b.ignored {
		warnings = append(warnings, fmt.Sprintf("config_override.%s is ignored: %s has no argument or option of that name", k, tool))
	}
	return warnings
}

// CheckTool judges a custom tool when it is created or changed: its name, type, input schema and config. An endpoint that
// no call could reach (a private address outside HOB_EGRESS_ALLOW) is refused here; names are judged at each call. The
// error is Invalid and names the field.
func (s *Set) CheckTool(t hob.Tool) error {
	if err := hob.CheckToolName(t.Name); err != nil {
		return err
	}
	if s.Has(t.Name) {
		return hob.Errorf(hob.Invalid, "the name %q is that of a builtin tool; choose another", t.Name).With("field", "name")
	}
	schema, err := parseSchema(t.InputSchema)
	if err != nil {
		return err
	}
	if err := checkRow(&t); err != nil {
		return err
	}
	if t.Type == hob.WebTool {
		return checkWebSchema(schema)
	}
	return s.checkEndpoint(t.Config, schema)
}

// checkRow judges what needs no network and no guard: the type and its config.
func checkRow(t *hob.Tool) error {
	switch t.Type {
	case hob.HTTPTool:
		return checkConfig(t.Config)
	case hob.WebTool:
		return checkWebConfig(t.Config)
	default:
		return hob.Errorf(hob.Invalid, `type must be "http" or "web", not %q`, string(t.Type)).With("field", "type")
	}
}

// checkEndpoint judges the address of an HTTP tool.
func (s *Set) checkEndpoint(c hob.ToolConfig, schema *inputSchema) error {
	parts, err := checkPlaceholders(c.Endpoint, schema)
	if err != nil {
		return err
	}
	if err := s.deps.Egress.CheckURL(c.Endpoint); err != nil {
		return badConfig("endpoint", "is not usable: %s", err.Error()) // egress errors hold no part of the URL but its host
	}
	if !takesQuery(methodOf(c)) {
		return nil
	}
	fixed, err := fixedQuery(c.Endpoint)
	if err != nil {
		return err
	}
	for name := range fixed {
		if schema.has(name) && !slices.Contains(parts, name) {
			return badConfig("endpoint", "already has the query parameter %q, so input_schema cannot have it too", name)
		}
	}
	return nil
}

// badConfig is the error about one field of a custom tool's config.
func badConfig(field, format string, args ...any) error {
	e := hob.Errorf(hob.Invalid, format, args...)
	e.Message = "config." + field + " " + e.Message
	return e.With("field", "config."+field)
}

// checkConfig judges what needs no network and no guard.
func checkConfig(c hob.ToolConfig) error {
	if c.Endpoint == "" {
		return badConfig("endpoint", "is required")
	}
	switch methodOf(c) {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return badConfig("method", "must be one of GET, HEAD, POST, PUT, PATCH, DELETE")
	}
	// Written so that NaN fails too.
	if !(c.TimeoutSeconds >= 0 && c.TimeoutSeconds <= MaxToolTimeout.Seconds()) {
		return badConfig("timeout_seconds", "must be a number above 0 and at most %g", MaxToolTimeout.Seconds())
	}
	switch c.Recovery {
	case "", hob.RecoverRead, hob.RecoverKeyed, hob.RecoverOnce:
	default:
		return badConfig("recovery", "must be read, keyed or once for an HTTP tool")
	}
	switch c.Effect {
	case "", hob.EffectRead, hob.EffectWrite, hob.EffectExternal:
	default:
		return badConfig("effect", "must be read, write or external for an HTTP tool")
	}
	if len(c.AllowedDomains)+len(c.BlockedDomains) > 0 || c.MaxUses != 0 {
		return badConfig("allowed_domains", "is for tools of type web, as are blocked_domains and max_uses")
	}
	for name, value := range c.Headers {
		switch {
		case !isHeaderName(name):
			return badConfig("headers", "has a name that is not valid: %q", name)
		case http.CanonicalHeaderKey(name) == "Idempotency-Key":
			return badConfig("headers", "cannot set Idempotency-Key: every call has its own")
		case strings.ContainsFunc(string(value), isControl):
			return badConfig("headers", "has a control character in the value of %s", name)
		}
	}
	return nil
}

// checkWebConfig judges the config of a tool of type web, which has no address of its own.
func checkWebConfig(c hob.ToolConfig) error {
	switch {
	case c.Endpoint != "" || c.Method != "" || len(c.Headers) > 0 || c.TimeoutSeconds != 0 || c.Recovery != "":
		return badConfig("endpoint", "is for tools of type http, as are method, headers, timeout_seconds and recovery; a web tool is carried out by the model's provider")
	case c.Effect != "" && c.Effect != hob.EffectRead:
		return badConfig("effect", "must be read for a web tool")
	case len(c.AllowedDomains) > 0 && len(c.BlockedDomains) > 0:
		return badConfig("blocked_domains", "cannot be given beside allowed_domains")
	case c.MaxUses < 0 || c.MaxUses > MaxWebUses:
		return badConfig("max_uses", "must be a whole number from 1 to %d", MaxWebUses)
	}
	for field, list := range map[string][]string{"allowed_domains": c.AllowedDomains, "blocked_domains": c.BlockedDomains} {
		if len(list) > MaxWebDomains {
			return badConfig(field, "must have at most %d domains", MaxWebDomains)
		}
		for _, d := range list {
			if !domain.MatchString(d) {
				return badConfig(field, "has %q, which is no domain; write it like example.com, without https:// and path", shorten(d))
			}
		}
	}
	return nil
}

// Bounds of a web tool.
const (
	MaxWebUses    = 20  // searches for one answer of the model
	MaxWebDomains = 100 // that it may, or may not, find
)

var domain = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9-]{2,63}$`)

// isHeaderName is the syntax of header names (RFC 9110, 5.1).
func isHeaderName(s string) bool {
	const marks = "!#$%&'*+-.^_`|~"
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && strings.IndexByte(marks, c) < 0 {
			return false
		}
	}
	return s != ""
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
