package api

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"hob"
)

// Bounds of how an HTTP tool is called.
const (
	maxToolTimeout    = 300 // seconds
	maxToolHeaders    = 50
	maxToolHeaderSize = 8 << 10 // bytes of one value
)

// endpointInput is how an HTTP tool is reached.
type endpointInput struct {
	Endpoint       *string            `json:"endpoint,omitempty" jsonschema:"http or https address"`
	EndpointURL    *string            `json:"endpoint_url,omitempty" jsonschema:"the same as endpoint"`
	URL            *string            `json:"url,omitempty" jsonschema:"the same as endpoint"`
	Method         *string            `json:"method,omitempty" jsonschema:"GET, POST (default), PUT, PATCH or DELETE"`
	Headers        map[string]*string `json:"headers,omitempty" jsonschema:"sent with every call; values are sealed and read back as a mask"`
	TimeoutSeconds *float64           `json:"timeout_seconds,omitempty" jsonschema:"30 where absent, at most 300"`
	TimeoutMillis  *float64           `json:"timeout_ms,omitempty" jsonschema:"the same as timeout_seconds, in milliseconds"`
}

// toolConfig is the config of a custom tool as a client sends it.
type toolConfig struct {
	endpointInput
	Recovery       *hob.Recovery `json:"recovery,omitempty" jsonschema:"what happens to a call that a crash cut off: once (default), keyed or read"`
	Effect         *hob.Effect   `json:"effect,omitempty" jsonschema:"what the tool does: external (default), write or read"`
	AllowedDomains []string      `json:"allowed_domains,omitempty" jsonschema:"of type web: nothing else is found"`
	BlockedDomains []string      `json:"blocked_domains,omitempty" jsonschema:"of type web: never found; not beside allowed_domains"`
	MaxUses        *int          `json:"max_uses,omitempty" jsonschema:"of type web: searches for one answer of the model"`
}

// any says whether something is given.
func (e endpointInput) any() bool {
	return e.Endpoint != nil || e.EndpointURL != nil || e.URL != nil || e.Method != nil || e.Headers != nil ||
		e.TimeoutSeconds != nil || e.TimeoutMillis != nil
}

// config is the canonical form of what was sent, laid over the old one: members that are not given stay as they are, those
// given as null have their default again. Fields at the top are laid over those in config. Headers are one member; of the
// old ones that stay the values are marked as unchanged.
func (in toolInput) config(kind hob.ToolKind, old hob.ToolConfig, b body) hob.ToolConfig {
	out := old
	out.Headers = make(map[string]hob.Secret, len(old.Headers))
	for name := range old.Headers {
		out.Headers[name] = hob.Mask
	}
	for _, field := range configNulls(b) {
		reset(&out, field)
	}
	if in.Config != nil {
		in.Config.onto(&out)
	}
	in.onto(&out)
	if out.Method == "" && kind == hob.HTTPTool {
		out.Method = http.MethodPost
	}
	out.Method = strings.ToUpper(out.Method)
	if len(out.Headers) == 0 {
		out.Headers = nil
	}
	return out
}

// configNulls are the fields of a tool's config that are given as null, in config or beside it.
func configNulls(b body) []string {
	var config map[string]json.RawMessage
	_ = json.Unmarshal(b.fields["config"], &config) // decode has read it
	var out []string
	for _, field := range fieldsOf(reflect.TypeFor[toolConfig](), nil) {
		if b.null(field) || string(config[field]) == "null" {
			out = append(out, field)
		}
	}
	return out
}

// reset gives a field of a tool's config its default.
func reset(t *hob.ToolConfig, field string) {
	switch field {
	case "endpoint", "endpoint_url", "url":
		t.Endpoint = ""
	case "method":
		t.Method = ""
	case "headers":
		t.Headers = nil
	case "timeout_seconds", "timeout_ms":
		t.TimeoutSeconds = 0
	case "recovery":
		t.Recovery = ""
	case "effect":
		t.Effect = ""
	case "allowed_domains":
		t.AllowedDomains = nil
	case "blocked_domains":
		t.BlockedDomains = nil
	case "max_uses":
		t.MaxUses = 0
	}
}

func (in *toolConfig) onto(t *hob.ToolConfig) {
	in.endpointInput.onto(t)
	if in.Recovery != nil {
		t.Recovery = *in.Recovery
	}
	if in.Effect != nil {
		t.Effect = *in.Effect
	}
	if in.MaxUses != nil {
		t.MaxUses = *in.MaxUses
	}
	if in.AllowedDomains != nil {
		t.AllowedDomains = in.AllowedDomains
	}
	if in.BlockedDomains != nil {
		t.BlockedDomains = in.BlockedDomains
	}
}

func (e endpointInput) onto(t *hob.ToolConfig) {
	for _, s := range []*string{e.URL, e.EndpointURL, e.Endpoint} {
		if s != nil {
			t.Endpoint = strings.TrimSpace(*s)
		}
	}
	if e.Method != nil {
		t.Method = *e.Method
	}
	if e.Headers != nil {
		t.Headers = make(map[string]hob.Secret, len(e.Headers))
		for name, value := range e.Headers {
			if value != nil { // null: without it
				t.Headers[name] = hob.Secret(*value)
			}
		}
	}
	if e.TimeoutMillis != nil {
		t.TimeoutSeconds = *e.TimeoutMillis / 1000
	}
	if e.TimeoutSeconds != nil {
		t.TimeoutSeconds = *e.TimeoutSeconds
	}
}

// checkConfig judges the whole config of an HTTP tool.
func (c *call) checkConfig(t hob.ToolConfig) error {
	bad := func(field, format string, args ...any) error {
		return hob.Errorf(hob.Invalid, field+" "+format, args...).With("field", field)
	}
	if t.Endpoint == "" {
		return bad("config.endpoint", "is required: the http or https address to call")
	}
	if !fullURL(t.Endpoint) {
		return bad("config.endpoint", "must be a full http or https URL, as in https://api.example.com/weather or "+
			"https://api.example.com/items/{id}: placeholders stand in the path or the query, never in the host")
	}
	if err := c.s.judgeURL("config.endpoint", t.Endpoint); err != nil {
		return err
	}
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	if !slices.Contains(methods, t.Method) {
		return bad("config.method", "must be one of %s", strings.Join(methods, ", "))
	}
	if t.TimeoutSeconds < 0 || t.TimeoutSeconds > maxToolTimeout {
		return bad("config.timeout_seconds", "must be a number above 0 and at most %d", maxToolTimeout)
	}
	switch t.Recovery {
	case "", hob.RecoverOnce, hob.RecoverKeyed, hob.RecoverRead:
	default:
		return bad("config.recovery", "must be one of once, keyed, read")
	}
	switch t.Effect {
	case "", hob.EffectRead, hob.EffectWrite, hob.EffectExternal:
	default:
		return bad("config.effect", "must be one of read, write, external")
	}
	return checkHeaders(t.Headers)
}

// judgeURL asks the rules for outgoing calls about an address that stands in a field.
func (s *server) judgeURL(field, address string) error {
	if s.CheckURL == nil {
		return nil
	}
	err := s.CheckURL(address)
	var e *hob.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && e.Kind == hob.Invalid:
		return hob.Errorf(hob.Invalid, "%s: %s", field, e.Message).WithCode(e.Code).With("field", field)
	}
	return hob.Errorf(hob.Invalid, "%s is refused: %s", field, err.Error()).With("field", field)
}

// fullURL says whether an address names where to call, by itself. Which ones may be called is for CheckURL to say.
func fullURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// checkHeaders judges the headers of a tool: what may stand there, and which are not a tool's to set.
func checkHeaders(headers map[string]hob.Secret) error {
	bad := func(name, must string) error {
		return hob.Errorf(hob.Invalid, "config.headers: %s %s", shown(name), must).With("field", "config.headers")
	}
	if len(headers) > maxToolHeaders {
		return hob.Errorf(hob.Invalid, "config.headers must be at most %d", maxToolHeaders).With("field", "config.headers")
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lower := strings.ToLower(name)
		switch {
		case !token(name):
			return bad(name, "is no header name")
		case seen[lower]:
			return bad(name, "is given twice")
		case reserved(lower):
			return bad(name, "is set by the server and cannot be given")
		case headers[name] != hob.Mask && strings.HasPrefix(string(headers[name]), hob.Mask):
			return bad(name, "begins as the mask does, but is not it; send the mask alone to keep the value, or the value itself")
		case !headerValue(string(headers[name])):
			return bad(name, "has a value with control characters, or a too long one")
		}
		seen[lower] = true
	}
	return nil
}

// reserved says whether a header steers the connection or the framing of a request.
func reserved(lower string) bool {
	switch lower {
	case "host", "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		"content-length", "content-encoding", "accept-encoding", "expect":
		return true
	}
	return strings.HasPrefix(lower, "proxy-")
}

func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("()<>@,;:\\\"/[]?={}", c) >= 0 {
			return false
		}
	}
	return s != "" && len(s) <= maxNameSeen*2
}

func headerValue(s string) bool {
	if len(s) > maxToolHeaderSize || !utf8.ValidString(s) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}

// configWarnings names the fields of config that nobody reads.
func configWarnings(b body) []string {
	var config map[string]json.RawMessage
	if json.Unmarshal(b.fields["config"], &config) != nil {
		return nil
	}
	known := fieldsOf(reflect.TypeFor[toolConfig](), nil)
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(config)) {
		if !slices.Contains(known, name) && len(warnings) < maxWarned {
			warnings = append(warnings, "unknown field ignored: "+shown("config."+name))
		}
	}
	return warnings
}
