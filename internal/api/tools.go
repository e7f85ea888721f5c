package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"hob"
)

// Bounds of a custom tool.
const (
	maxDescription    = 16 << 10 // bytes
	maxToolTimeout    = 300      // seconds
	maxToolHeaders    = 50
	maxToolHeaderSize = 8 << 10 // bytes of one value
)

// toolInput is what a client sends to make or change an HTTP tool. The address, method, headers and time limit may stand
// at the top or in config.
type toolInput struct {
	Name        *string         `json:"name,omitempty" jsonschema:"required to create; A-Z a-z 0-9 _ -, at most 64"`
	Description *string         `json:"description,omitempty" jsonschema:"required to create; the model reads it"`
	Type        *string         `json:"type,omitempty" jsonschema:"required to create: http"`
	InputSchema json.RawMessage `json:"input_schema,omitempty" jsonschema:"required to create: JSON Schema of the arguments"`
	Config      *toolConfig     `json:"config,omitempty" jsonschema:"how the tool is reached; the same fields may stand beside it"`
	IsActive    *bool           `json:"is_active,omitempty" jsonschema:"false: kept, but not offered to models; true where absent"`
	endpointInput
}

// endpointInput is how an HTTP tool is reached.
type endpointInput struct {
	Endpoint       *string           `json:"endpoint,omitempty" jsonschema:"http or https address"`
	EndpointURL    *string           `json:"endpoint_url,omitempty" jsonschema:"the same as endpoint"`
	Method         *string           `json:"method,omitempty" jsonschema:"GET, POST (default), PUT, PATCH or DELETE"`
	Headers        map[string]string `json:"headers,omitempty" jsonschema:"sent with every call; values are sealed and read back as a mask"`
	TimeoutSeconds *float64          `json:"timeout_seconds,omitempty" jsonschema:"30 where absent, at most 300"`
}

type toolConfig struct {
	endpointInput
	Recovery *hob.Recovery `json:"recovery,omitempty" jsonschema:"what happens to a call that a crash cut off: once (default), keyed or read"`
}

// toolAnswer is a tool on the wire; builtin ones have no id.
type toolAnswer struct {
	ID          *hob.ToolID     `json:"id"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Type        hob.ToolKind    `json:"type"`
	InputSchema json.RawMessage `json:"input_schema"`
	Config      hob.ToolConfig  `json:"config"`
	IsActive    bool            `json:"is_active"`
	CreatedAt   hob.Time        `json:"created_at"`
	UpdatedAt   hob.Time        `json:"updated_at"`
	Warnings    []string        `json:"warnings,omitempty"`
}

type toolList struct {
	Tools []toolAnswer `json:"tools"`
}

func asAnswer(t hob.Tool, warnings []string) toolAnswer {
	a := toolAnswer{
		Name: t.Name, Description: t.Description, Type: t.Type, InputSchema: object(t.InputSchema), Config: t.Config,
		IsActive: t.IsActive, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, Warnings: warnings,
	}
	if t.ID != "" {
		a.ID = &t.ID
	}
	return a
}

func listTools(c *call) error {
	custom, err := c.s.Store.Tools(c.Context(), c.by)
	if err != nil {
		return err
	}
	builtin := c.s.Builtins()
	answer := toolList{Tools: make([]toolAnswer, 0, len(builtin)+len(custom))}
	for _, t := range builtin {
		t.ID, t.Type, t.Config = "", hob.BuiltinTool, hob.ToolConfig{}
		answer.Tools = append(answer.Tools, asAnswer(t, nil))
	}
	for _, t := range custom {
		answer.Tools = append(answer.Tools, asAnswer(t, nil))
	}
	return c.reply(http.StatusOK, answer)
}

func getTool(c *call) error {
	id, err := c.toolID()
	if err != nil {
		return err
	}
	t, err := c.s.Store.Tool(c.Context(), c.by, id)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, asAnswer(t, nil))
}

func createTool(c *call) (creation, error) {
	var in toolInput
	b, err := c.decode(&in, false)
	if err != nil {
		return creation{}, err
	}
	if blank(in.Name) || blank(in.Description) || blank(in.Type) || string(object(in.InputSchema)) == "{}" && !given(b, "input_schema") {
		return creation{}, b.hint(hob.Errorf(hob.Invalid, "name, description, type, and input_schema are required"))
	}
	if err := c.checkTool(in); err != nil {
		return creation{}, err
	}
	t := hob.Tool{
		Workspace: c.by.Workspace, Name: *in.Name, Description: *in.Description, Type: hob.HTTPTool,
		InputSchema: in.InputSchema, IsActive: in.IsActive == nil || *in.IsActive,
	}
	t.Config = in.config(hob.ToolConfig{})
	if err := c.checkConfig(t.Config); err != nil {
		return creation{}, err
	}
	if err := c.checkWhole(t); err != nil {
		return creation{}, err
	}
	warnings := append(b.warnings, configWarnings(b)...)
	return creation{make: func(ctx context.Context, s hob.Store) (int, any, error) {
		made, err := s.CreateTool(ctx, c.by, t)
		return http.StatusCreated, asAnswer(made, warnings), err
	}}, nil
}

func blank(s *string) bool { return s == nil || strings.TrimSpace(*s) == "" }

func given(b body, field string) bool { return b.has(field) && !b.null(field) }

func updateTool(c *call) error {
	id, err := c.toolID()
	if err != nil {
		return err
	}
	var in toolInput
	b, err := c.decode(&in, true)
	if err != nil {
		return err
	}
	switch {
	case len(b.fields) == 0:
		return hob.Errorf(hob.Invalid, "No data provided")
	case b.known == 0:
		return b.hint(hob.Errorf(hob.Invalid, "No valid fields to update"))
	}
	old, err := c.s.Store.Tool(c.Context(), c.by, id)
	if err != nil {
		return err
	}
	if err := c.checkTool(in); err != nil {
		return err
	}
	p := hob.ToolPatch{Name: in.Name, Description: in.Description, IsActive: in.IsActive}
	if given(b, "input_schema") {
		p.InputSchema = in.InputSchema
	}
	if in.Config != nil || in.any() {
		config := in.config(old.Config)
		if err := c.checkConfig(config); err != nil {
			return err
		}
		p.Config = &config
	}
	if err := c.checkWhole(patched(old, p)); err != nil {
		return err
	}
	t, err := c.s.Store.UpdateTool(c.Context(), c.by, id, p)
	if err != nil {
		return err
	}
	warnings := append(b.warnings, configWarnings(b)...)
	if p.Config != nil {
		warnings = append(warnings, clearedHeaders(*p.Config, t.Config)...)
	}
	return c.reply(http.StatusOK, asAnswer(t, warnings))
}

// patched is the tool as it will be.
func patched(t hob.Tool, p hob.ToolPatch) hob.Tool {
	if p.Name != nil {
		t.Name = *p.Name
	}
	if p.Description != nil {
		t.Description = *p.Description
	}
	if len(p.InputSchema) > 0 {
		t.InputSchema = p.InputSchema
	}
	if p.Config != nil {
		t.Config = *p.Config
	}
	return t
}

func (c *call) checkWhole(t hob.Tool) error {
	if c.s.CheckTool == nil {
		return nil
	}
	headers := make(map[string]hob.Secret, len(t.Config.Headers))
	for name, value := range t.Config.Headers {
		if value == hob.Mask {
			value = "x"
		}
		headers[name] = value
	}
	t.Config.Headers = headers
	return c.s.CheckTool(t)
}

// clearedHeaders names the headers whose stored values did not go along to a new address.
func clearedHeaders(sent, kept hob.ToolConfig) []string {
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(sent.Headers)) {
		if _, ok := kept.Headers[name]; !ok {
			warnings = append(warnings, "the header "+clip(name)+" was cleared, since the address changed; send its value again")
		}
	}
	return warnings
}

func deleteTool(c *call) error {
	id, err := c.toolID()
	if err != nil {
		return err
	}
	if err := c.s.Store.DeleteTool(c.Context(), c.by, id); err != nil {
		return err
	}
	return c.reply(http.StatusOK, deletedAnswer{true})
}

// checkTool judges what is given of a tool, but for its config.
func (c *call) checkTool(in toolInput) error {
	if in.Type != nil && *in.Type != string(hob.HTTPTool) {
		return hob.Errorf(hob.Invalid, "type must be http, not %s", shown(*in.Type)).With("field", "type")
	}
	if in.Name != nil {
		if err := hob.CheckToolName(*in.Name); err != nil {
			return err
		}
		if _, taken := c.s.builtins[*in.Name]; taken {
			return hob.Errorf(hob.Conflict, "%s is the name of a builtin tool; choose another", *in.Name).WithCode("tool_name_taken")
		}
	}
	if d := in.Description; d != nil && (strings.TrimSpace(*d) == "" || len(*d) > maxDescription) {
		return hob.Errorf(hob.Invalid, "description must be text of at most %d bytes", maxDescription).With("field", "description")
	}
	if len(in.InputSchema) > 0 && string(in.InputSchema) != "null" {
		return c.s.Engine.CheckSchema(in.InputSchema)
	}
	return nil
}

// any says whether something is given.
func (e endpointInput) any() bool {
	return e.Endpoint != nil || e.EndpointURL != nil || e.Method != nil || e.Headers != nil || e.TimeoutSeconds != nil
}

// config is the canonical form of what was sent. A config that is given replaces the old one; fields at the top are laid
// over it, or over the old one where no config came. Headers of the old one that stay are marked as unchanged.
func (in toolInput) config(old hob.ToolConfig) hob.ToolConfig {
	var out hob.ToolConfig
	if in.Config == nil {
		out = old
		out.Headers = make(map[string]hob.Secret, len(old.Headers))
		for name := range old.Headers {
			out.Headers[name] = hob.Mask
		}
	} else {
		in.Config.onto(&out)
		if r := in.Config.Recovery; r != nil {
			out.Recovery = *r
		}
	}
	in.onto(&out)
	if out.Method == "" {
		out.Method = http.MethodPost
	}
	out.Method = strings.ToUpper(out.Method)
	if len(out.Headers) == 0 {
		out.Headers = nil
	}
	return out
}

func (e endpointInput) onto(t *hob.ToolConfig) {
	for _, s := range []*string{e.EndpointURL, e.Endpoint} {
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
			t.Headers[name] = hob.Secret(value)
		}
	}
	if e.TimeoutSeconds != nil {
		t.TimeoutSeconds = *e.TimeoutSeconds
	}
}

// checkConfig judges a whole config.
func (c *call) checkConfig(t hob.ToolConfig) error {
	bad := func(field, format string, args ...any) error {
		return hob.Errorf(hob.Invalid, field+" "+format, args...).With("field", field)
	}
	if t.Endpoint == "" {
		return bad("config.endpoint", "is required: the http or https address to call")
	}
	if !fullURL(t.Endpoint) {
		return bad("config.endpoint", "must be a full http or https URL, as in https://api.example.com/weather")
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
	known := []string{"endpoint", "endpoint_url", "method", "headers", "timeout_seconds", "recovery"}
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(config)) {
		if !slices.Contains(known, name) && len(warnings) < maxWarned {
			warnings = append(warnings, "unknown field ignored: "+shown("config."+name))
		}
	}
	return warnings
}
