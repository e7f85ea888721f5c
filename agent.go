package hob

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Limits of an agent's texts, in bytes.
const (
	MaxName         = 255
	MaxSystemPrompt = 512 << 10
)

// Agent is a model with a task: instructions, settings, tools.
type Agent struct {
	ID           AgentID         `json:"id"`
	Workspace    WorkspaceID     `json:"-"`
	Owner        string          `json:"-"` // as Principal.Owner
	Name         string          `json:"name"`
	Model        string          `json:"model"`
	SystemPrompt *string         `json:"system_prompt"`
	Settings     json.RawMessage `json:"settings"` // an object as the client sent it; read by ParseSettings
	Hooks        int             `json:"-"`        // enabled hooks
	ToolIDs      *[]string       `json:"tool_ids"` // ids of custom tools and names of builtins that alone are offered; nil: the assignments decide
	CreatedAt    Time            `json:"created_at"`
	UpdatedAt    Time            `json:"updated_at"`
}

// AgentRef names an agent.
type AgentRef struct {
	ID   AgentID `json:"id"`
	Name string  `json:"name"`
}

// AgentRow is an agent in a list, with what its sessions amount to.
type AgentRow struct {
	Agent
	SessionCount int64 `json:"session_count"`
	TotalRuns    int64 `json:"total_runs"`
	LastRunAt    Time  `json:"last_run_at"`
}

// AgentPatch changes what is not nil.
type AgentPatch struct {
	Name         *string
	Model        *string
	SystemPrompt **string
	Settings     json.RawMessage
	ToolIDs      **[]string
}

// ReasoningEffort is how much a model should think; "" leaves it to the provider.
type ReasoningEffort string

// The efforts.
const (
	EffortNone   ReasoningEffort = "none"
	EffortLow    ReasoningEffort = "low"
	EffortMedium ReasoningEffort = "medium"
	EffortHigh   ReasoningEffort = "high"
)

// Disconnect says what happens to a run whose last reader left.
type Disconnect string

// The ways: cancel after the grace period (the default), or go on.
const (
	DisconnectCancel   Disconnect = "cancel"
	DisconnectContinue Disconnect = "continue"
)

// Buffering says when the text of an answer is shown.
type Buffering string

// The ways: as it comes (the default), or once the PreResponse hooks have decided about it.
const (
	BufferStream Buffering = "stream"
	BufferHold   Buffering = "hold"
)

// Tuning is what both an agent's settings and a run's request can set; the request wins.
type Tuning struct {
	MaxSteps          *int            `json:"max_steps,omitempty" jsonschema:"model calls a run may make, 1 to 100; 25 where absent"`
	Temperature       *float64        `json:"temperature,omitempty" jsonschema:"0 to 2; the provider's own where absent"`
	MaxTokens         *int            `json:"max_tokens,omitempty" jsonschema:"of one model answer, at least 1"`
	TimeoutSeconds    *float64        `json:"timeout_seconds,omitempty" jsonschema:"of the whole run, above 0 and at most 86400; no limit where absent"`
	ResponseFormat    json.RawMessage `json:"response_format,omitempty" jsonschema:"what form the answer has, in OpenAI's form"`
	ReasoningEffort   ReasoningEffort `json:"reasoning_effort,omitempty" jsonschema:"how much a model thinks; the provider's own where absent"`
	OnDisconnect      Disconnect      `json:"on_disconnect,omitempty" jsonschema:"what becomes of a streamed run whose last reader left: cancel (default) or continue"`
	MaxTokensTotal    *int64          `json:"max_tokens_total,omitempty" jsonschema:"budget of the run: tokens of all its model calls, at least 1; the step after it is used up is the last"`
	MaxCost           *float64        `json:"max_cost,omitempty" jsonschema:"budget of the run: US dollars, above 0; the model's price must be known"`
	MaxSeconds        *float64        `json:"max_seconds,omitempty" jsonschema:"budget of the run: seconds after which it comes to an answer, above 0; unlike timeout_seconds, which cancels it"`
	MaxToolCalls      *int            `json:"max_tool_calls,omitempty" jsonschema:"budget of the run: tool calls carried out, at least 0"`
	ResponseBuffering Buffering       `json:"response_buffering,omitempty" jsonschema:"hold: the text of an answer is shown once PreResponse hooks have decided about it, whatever a run asks for; stream (default): as it comes"`
	GraceSeconds      *float64        `json:"disconnect_grace_seconds,omitempty" jsonschema:"how long such a run waits for a reader to come back, 0 to 3600; 15 where absent"`
}

// Settings are an agent's settings as the engine reads them. Keys it does not know stay in Agent.Settings untouched.
type Settings struct {
	Tuning
	FallbackModel    string  `json:"fallback_model,omitempty" jsonschema:"a model to try when the agent's own fails"`
	MaxContextTokens *int    `json:"max_context_tokens,omitempty" jsonschema:"not available yet: taken, but without effect; the budget of retrieved context"`
	ContextWindow    *int    `json:"context_window,omitempty" jsonschema:"tokens the model can read, where the server does not know or has it wrong"`
	AgentBudget      *Budget `json:"agent_budget,omitempty" jsonschema:"what all runs of the agent together may use in a period; runs beyond it are refused, one under way comes to an answer"`
	WebSearch        bool    `json:"web_search,omitempty" jsonschema:"let the provider search the web itself, where it can; a run of one that cannot is refused"`
	Script           string  `json:"script,omitempty" jsonschema:"what the model scripted plays"`
}

// Budget is what an agent's runs may use together.
type Budget struct {
	Period         string   `json:"period" jsonschema:"day or month (in UTC), or total"`
	MaxTokensTotal *int64   `json:"max_tokens_total,omitempty" jsonschema:"tokens, at least 1"`
	MaxCost        *float64 `json:"max_cost,omitempty" jsonschema:"US dollars, above 0"`
}

func (b *Budget) validate(at string) error {
	switch {
	case b == nil:
		return nil
	case b.Period != "day" && b.Period != "month" && b.Period != "total":
		return Errorf(Invalid, "%s.period must be day, month or total", at).With("field", at+".period")
	case b.MaxTokensTotal == nil && b.MaxCost == nil:
		return Errorf(Invalid, "%s must have max_tokens_total or max_cost", at).With("field", at)
	case b.MaxTokensTotal != nil && *b.MaxTokensTotal < 1:
		return Errorf(Invalid, "%s.max_tokens_total must be a whole number of at least 1", at).With("field", at+".max_tokens_total")
	case b.MaxCost != nil && (*b.MaxCost <= 0 || *b.MaxCost > MaxBudget):
		return Errorf(Invalid, "%s.max_cost must be a number of US dollars above 0 and at most %d", at, MaxBudget).With("field", at+".max_cost")
	}
	return nil
}

// SettingsKeys lists the keys of Settings as they are written in JSON.
func SettingsKeys() []string { return jsonKeys(reflect.TypeFor[Settings](), nil) }

func jsonKeys(t reflect.Type, keys []string) []string {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			keys = jsonKeys(f.Type, keys)
		} else {
			keys = append(keys, name)
		}
	}
	return keys
}

// ParseSettings reads an agent's settings. The error is Invalid and names the field that has the wrong type or is out
// of range. Empty input and null give the zero Settings.
func ParseSettings(raw json.RawMessage) (Settings, error) {
	var s Settings
	if len(raw) == 0 || string(raw) == "null" {
		return s, nil
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return Settings{}, FieldError("settings", err)
	}
	switch err := s.validate("settings."); {
	case err != nil:
		return s, err
	case s.ContextWindow != nil && (*s.ContextWindow < MinWindow || *s.ContextWindow > MaxWindow):
		return s, Errorf(Invalid, "settings.context_window must be a whole number from %d to %d", MinWindow, MaxWindow).
			With("field", "settings.context_window")
	}
	return s, s.AgentBudget.validate("settings.agent_budget")
}

// Over lays the set fields of t over base.
func (t Tuning) Over(base Tuning) Tuning {
	out := base
	if t.MaxSteps != nil {
		out.MaxSteps = t.MaxSteps
	}
	if t.Temperature != nil {
		out.Temperature = t.Temperature
	}
	if t.MaxTokens != nil {
		out.MaxTokens = t.MaxTokens
	}
	if t.TimeoutSeconds != nil {
		out.TimeoutSeconds = t.TimeoutSeconds
	}
	if len(t.ResponseFormat) > 0 && string(t.ResponseFormat) != "null" {
		out.ResponseFormat = t.ResponseFormat
	}
	if t.ReasoningEffort != "" {
		out.ReasoningEffort = t.ReasoningEffort
	}
	if t.OnDisconnect != "" {
		out.OnDisconnect = t.OnDisconnect
	}
	if t.ResponseBuffering != "" && base.ResponseBuffering != BufferHold { // a run may hold back more, never less
		out.ResponseBuffering = t.ResponseBuffering
	}
	if t.GraceSeconds != nil {
		out.GraceSeconds = t.GraceSeconds
	}
	if t.MaxTokensTotal != nil {
		out.MaxTokensTotal = t.MaxTokensTotal
	}
	if t.MaxCost != nil {
		out.MaxCost = t.MaxCost
	}
	if t.MaxSeconds != nil {
		out.MaxSeconds = t.MaxSeconds
	}
	if t.MaxToolCalls != nil {
		out.MaxToolCalls = t.MaxToolCalls
	}
	return out
}

// Bounds of the tuning fields.
const (
	DefaultMaxSteps = 25
	MaxMaxSteps     = 100
	MaxRunSeconds   = 24 * 3600
	MaxGraceSeconds = 3600
	MinWindow       = 1_000       // tokens of a model's context window
	MaxWindow       = 100_000_000 // the same
	MaxBudget       = 1_000_000   // US dollars
)

// Validate checks the ranges; the error is Invalid and names the field.
func (t Tuning) Validate() error { return t.validate("") }

func (t Tuning) validate(at string) error {
	bad := func(field, must string) error {
		return Errorf(Invalid, "%s%s must be %s", at, field, must).With("field", at+field)
	}
	switch {
	case t.MaxSteps != nil && (*t.MaxSteps < 1 || *t.MaxSteps > MaxMaxSteps):
		return bad("max_steps", "a whole number from 1 to 100")
	case t.Temperature != nil && (*t.Temperature < 0 || *t.Temperature > 2):
		return bad("temperature", "a number from 0 to 2")
	case t.MaxTokens != nil && *t.MaxTokens < 1:
		return bad("max_tokens", "a whole number of at least 1")
	case t.TimeoutSeconds != nil && (*t.TimeoutSeconds <= 0 || *t.TimeoutSeconds > MaxRunSeconds):
		return bad("timeout_seconds", "a number above 0 and at most 86400")
	case t.GraceSeconds != nil && (*t.GraceSeconds < 0 || *t.GraceSeconds > MaxGraceSeconds):
		return bad("disconnect_grace_seconds", "a number from 0 to 3600")
	case t.MaxTokensTotal != nil && *t.MaxTokensTotal < 1:
		return bad("max_tokens_total", "a whole number of at least 1")
	case t.MaxCost != nil && (*t.MaxCost <= 0 || *t.MaxCost > MaxBudget):
		return bad("max_cost", "a number of US dollars above 0 and at most 1000000")
	case t.MaxSeconds != nil && (*t.MaxSeconds <= 0 || *t.MaxSeconds > MaxRunSeconds):
		return bad("max_seconds", "a number above 0 and at most 86400")
	case t.MaxToolCalls != nil && *t.MaxToolCalls < 0:
		return bad("max_tool_calls", "a whole number of at least 0")
	case len(t.ResponseFormat) > 0 && t.ResponseFormat[0] != '{' && string(t.ResponseFormat) != "null":
		return bad("response_format", "an object")
	}
	switch t.ReasoningEffort {
	case "", EffortNone, "minimal", EffortLow, EffortMedium, EffortHigh:
	default:
		return bad("reasoning_effort", "one of none, minimal, low, medium, high")
	}
	switch t.OnDisconnect {
	case "", DisconnectCancel, DisconnectContinue:
	default:
		return bad("on_disconnect", "cancel or continue")
	}
	switch t.ResponseBuffering {
	case "", BufferStream, BufferHold:
	default:
		return bad("response_buffering", "stream or hold")
	}
	return nil
}

// Validate checks an agent before it is stored; the error is Invalid and names the field.
func (a Agent) Validate() error {
	switch {
	case strings.TrimSpace(a.Name) == "":
		return Errorf(Invalid, "Name is required").With("field", "name")
	case len(a.Name) > MaxName || !utf8.ValidString(a.Name):
		return Errorf(Invalid, "name must be valid text of at most %d bytes", MaxName).With("field", "name")
	case strings.TrimSpace(a.Model) == "" || len(a.Model) > MaxName:
		return Errorf(Invalid, "model must name a model, in at most %d bytes", MaxName).With("field", "model")
	case a.SystemPrompt != nil && len(*a.SystemPrompt) > MaxSystemPrompt:
		return Errorf(Invalid, "system_prompt must be at most %d bytes", MaxSystemPrompt).With("field", "system_prompt")
	}
	if s := bytes.TrimSpace(a.Settings); len(s) > 0 && s[0] != '{' && string(s) != "null" {
		return Errorf(Invalid, "settings must be an object").With("field", "settings")
	}
	_, err := ParseSettings(a.Settings)
	return err
}

// FieldError turns what json.Unmarshal reports into an Invalid error that names the field, its wanted and its given type.
// at is the name of the whole value, "" for a request's body.
func FieldError(at string, err error) error {
	t, ok := err.(*json.UnmarshalTypeError) //nolint:errorlint // json.Unmarshal returns it bare
	if !ok {
		return Errorf(Invalid, "invalid JSON: %s", err.Error()).WithCode("invalid_json")
	}
	field := strings.Trim(at+"."+t.Field, ".")
	for _, embedded := range []string{"Tuning."} {
		field = strings.Replace(field, embedded, "", 1)
	}
	if field == "" {
		return Errorf(Invalid, "the body must be %s, not %s", wireType(t.Type), t.Value)
	}
	return Errorf(Invalid, "%s must be %s, not %s", field, wireType(t.Type), t.Value).With("field", field)
}

// wireType is what JSON calls a Go type.
func wireType(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch k := t.Kind(); {
	case t.Kind() >= reflect.Int && k <= reflect.Uint64:
		return "a whole number"
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	case k == reflect.Bool:
		return "true or false"
	case k == reflect.String:
		return "text"
	case k == reflect.Slice || k == reflect.Array:
		return "a list"
	}
	return "an object"
}
