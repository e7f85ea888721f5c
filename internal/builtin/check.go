package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"hob"
)

// checking is what a builtin gets to look at its options when an assignment is written.
type checking struct {
	ctx     context.Context //nolint:containedctx // lives for one call of check
	set     *Set
	options any
}

// CheckAssignment judges the config_override of a builtin when it is assigned or changed. The error is Invalid and
// names the key: a name that is no builtin's, a pinned argument that does not fit the tool's schema, a malformed option.
// The warning names what is stored but will not work: keys that mean nothing, tables that do not exist. "rules" are not
// looked at.
func (s *Set) CheckAssignment(ctx context.Context, toolName string, config json.RawMessage) (warning string, err error) {
	b := s.builtins[toolName]
	if b == nil {
		return "", hob.Errorf(hob.Invalid, "there is no builtin tool %q; the builtin tools are %s",
			toolName, strings.Join(s.names, ", ")).With("field", "tool_name")
	}
	bound := newBinding(b.source(s), config)
	if bound.err != nil {
		return "", bound.err
	}
	warnings := ignoredKeys(bound, toolName)
	if b.check != nil {
		if w := b.check(checking{ctx: ctx, set: s, options: bound.options}); w != "" {
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
	return strings.Join(ignoredKeys(bound, t.Name), "; "), nil
}

func ignoredKeys(b *binding, tool string) []string {
	warnings := make([]string, 0, len(b.ignored))
	for _, k := range b.ignored {
		warnings = append(warnings, fmt.Sprintf("config_override.%s is ignored: %s has no argument or option of that name", k, tool))
	}
	return warnings
}

// CheckTool judges a custom HTTP tool when it is created or changed: its name, type, input schema, method, endpoint,
// headers, timeout and recovery. An endpoint that no call could reach (a private address outside HOB_EGRESS_ALLOW) is
// refused here; names are judged at each call. The error is Invalid and names the field.
func (s *Set) CheckTool(t hob.Tool) error {
	if err := hob.CheckToolName(t.Name); err != nil {
		return err
	}
	if s.Has(t.Name) {
		return hob.Errorf(hob.Invalid, "the name %q is that of a builtin tool; choose another", t.Name).With("field", "name")
	}
	if t.Type != hob.HTTPTool {
		return hob.Errorf(hob.Invalid, `type must be "http", not %q`, string(t.Type)).With("field", "type")
	}
	schema, err := parseSchema(t.InputSchema)
	if err != nil {
		return err
	}
	if err := checkConfig(t.Config); err != nil {
		return err
	}
	if err := s.deps.Egress.CheckURL(t.Config.Endpoint); err != nil {
		return badConfig("endpoint", "is not usable: %s", err.Error()) // egress errors hold no part of the URL but its host
	}
	if !takesQuery(methodOf(t.Config)) {
		return nil
	}
	fixed, err := fixedQuery(t.Config.Endpoint)
	if err != nil {
		return err
	}
	for name := range fixed {
		if schema.has(name) {
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
