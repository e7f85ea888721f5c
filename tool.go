package hob

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ToolKind is how a tool is carried out; a custom tool's type on the wire.
type ToolKind string

// The kinds of tool.
const (
	BuiltinTool   ToolKind = "builtin"
	HTTPTool      ToolKind = "http"
	WebTool       ToolKind = "web"
	MCPTool       ToolKind = "mcp"
	KnowledgeTool ToolKind = "knowledge"
	DelegateTool  ToolKind = "delegate"
)

// Recovery says what happens to a call when the server died between its intent and its result.
type Recovery string

// The recovery classes. Once is the default: what is not known to be repeatable is not repeated.
const (
	RecoverRead  Recovery = "read"     // has no effect: run it again
	RecoverKeyed Recovery = "keyed"    // the receiver honours Idempotency-Key: send it again with the same key
	RecoverLocal Recovery = "local_tx" // leaves a marker in its own transaction: look it up, run it if absent
	RecoverOnce  Recovery = "once"     // never repeated: the result is outcome_unknown
)

// Effect is what a tool can do, for policy.
type Effect string

// The effects.
const (
	EffectRead     Effect = "read"
	EffectWrite    Effect = "write"
	EffectExternal Effect = "external"
	EffectSecret   Effect = "secret"
	EffectAdmin    Effect = "admin"
)

// Secret is a text that is sealed at rest and never shown: it prints, logs and marshals as eight bullets.
type Secret string

// Mask is how every secret reads. Sent back by a client it means: unchanged.
const Mask = "••••••••"

// String hides the secret.
func (Secret) String() string { return Mask }

// GoString hides the secret from %#v.
func (Secret) GoString() string { return Mask }

// MarshalJSON hides the secret; an empty one stays empty.
func (s Secret) MarshalJSON() ([]byte, error) {
	if s == "" {
		return []byte(`""`), nil
	}
	return []byte(`"` + Mask + `"`), nil
}

// Tool is a row of the workspace's tools: a capability that agents can be given.
type Tool struct {
	ID          ToolID          `json:"id"`
	Workspace   WorkspaceID     `json:"-"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Type        ToolKind        `json:"type"`
	InputSchema json.RawMessage `json:"input_schema"`
	Config      ToolConfig      `json:"config"`
	IsActive    bool            `json:"is_active"`
	Version     int64           `json:"version"` // 1 when it was made, and one more with every change
	CreatedAt   Time            `json:"created_at"`
	UpdatedAt   Time            `json:"updated_at"`
}

// MaxToolVersions is how many versions of a tool are kept; the oldest goes when there would be more.
const MaxToolVersions = 100

// ToolVersion is a tool as it was after a change.
type ToolVersion struct {
	Tool
	By string `json:"changed_by"` // the principal's kind and id, as in key:…; "system:" has no id
}

// BuiltinChange is what a workspace changed of a builtin tool. The zero value is not the default: IsActive is true where
// nothing was changed.
type BuiltinChange struct {
	IsActive bool            `json:"is_active"`
	Suffix   string          `json:"description_suffix,omitempty"` // put behind the builtin's description
	Config   json.RawMessage `json:"config,omitempty"`             // an object laid under every assignment's ConfigOverride
	Version  int64           `json:"version"`                      // 1 before the first change, and one more with each
}

// Under lays the change's configuration under an assignment's: of a key that both have, the assignment's holds. Rules are
// joined, the change's first, so that an assignment can add to what the workspace forbids and take nothing away.
func (c *BuiltinChange) Under(override json.RawMessage) (json.RawMessage, error) {
	if c == nil || len(c.Config) == 0 || string(c.Config) == "{}" {
		return override, nil
	}
	merged := map[string]json.RawMessage{}
	for _, layer := range []json.RawMessage{c.Config, override} {
		if len(layer) == 0 || string(layer) == "null" {
			continue
		}
		below := merged["rules"]
		delete(merged, "rules")
		if err := json.Unmarshal(layer, &merged); err != nil {
			return nil, Errorf(Invalid, "config_override must be an object").With("field", "config_override")
		}
		var err error
		if merged["rules"], err = joined(below, merged["rules"]); err != nil {
			return nil, err
		}
	}
	if merged["rules"] == nil {
		delete(merged, "rules")
	}
	out, err := json.Marshal(merged)
	if err != nil {
		return nil, Wrap("lay a configuration over another", err)
	}
	return out, nil
}

// joined appends one list to another. Nothing and null are no list at all.
func joined(first, second json.RawMessage) (json.RawMessage, error) {
	var all []json.RawMessage
	for _, raw := range []json.RawMessage{first, second} {
		var list []json.RawMessage
		if len(raw) > 0 && json.Unmarshal(raw, &list) != nil {
			return nil, Errorf(Invalid, "config_override.rules must be a list").With("field", "config_override.rules")
		}
		all = append(all, list...)
	}
	if all == nil {
		return nil, nil
	}
	out, err := json.Marshal(all)
	return out, Wrap("join rules", err)
}

// ToolConfig is how an HTTP tool is called, or what a web tool may find.
type ToolConfig struct {
	Endpoint       string            `json:"endpoint,omitempty"`
	Method         string            `json:"method,omitempty"` // POST where empty
	Headers        map[string]Secret `json:"headers,omitempty"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty"` // 30 where 0
	Recovery       Recovery          `json:"recovery,omitempty"`        // once where empty
	Effect         Effect            `json:"effect,omitempty"`          // external where empty

	AllowedDomains []string `json:"allowed_domains,omitempty"` // of a web tool: nothing else is found
	BlockedDomains []string `json:"blocked_domains,omitempty"` // not beside allowed_domains
	MaxUses        int      `json:"max_uses,omitempty"`        // searches for one answer of the model; 5 where 0
}

// Assignment gives one tool to one agent.
type Assignment struct {
	ID             AssignmentID    `json:"id"`
	Agent          AgentID         `json:"-"`
	Workspace      WorkspaceID     `json:"-"`
	ToolType       string          `json:"tool_type"` // builtin or custom
	ToolName       string          `json:"tool_name"`
	ToolID         *ToolID         `json:"tool_id"`
	ConfigOverride json.RawMessage `json:"config_override"` // schemas, rules, allowed_hosts, pinned arguments
	CreatedAt      Time            `json:"-"`
}

// AssignedTool is a tool that an agent was given: an assignment, or an entry of the agent's tool_ids, which then has no
// assignment's id. Tool is the custom tool's row, nil for builtins and for a row that is gone.
type AssignedTool struct {
	Assignment
	Tool    *Tool
	Builtin *BuiltinChange // nil where the workspace changed nothing
}

// Off says whether the tool is switched off.
func (a *AssignedTool) Off() bool {
	return a.Tool != nil && !a.Tool.IsActive || a.Builtin != nil && !a.Builtin.IsActive
}

// Is says whether the tool is the one behind a ToolSpec's Ref: "builtin:" and its name, or the id of a custom tool's row.
func (a *AssignedTool) Is(ref string) bool {
	if a.ToolID != nil {
		return string(*a.ToolID) == ref
	}
	name, builtin := strings.CutPrefix(ref, BuiltinRef)
	return builtin && name == a.ToolName
}

// BuiltinRef is what the Ref of a builtin tool begins with; its name follows.
const BuiltinRef = "builtin:"

// Standing is how a tool stands to an agent at a moment.
type Standing int

// The standings.
const (
	Withdrawn Standing = iota // the agent does not have it any more, or it or the agent is gone
	SwitchedOff
	Offered
)

// Grant is what a run may use: the agent's tools at the moment the run starts.
type Grant struct {
	Principal Principal
	Agent     Agent
	Assigned  []AssignedTool
	WebSearch bool // the run's model can search the web by its provider
	// SearchDomains: such searches can be held to domains.
	SearchDomains bool
}

// ToolSpec describes a tool of a run: what the model is told and what the gate needs to know. It is frozen when the run
// starts, before any content is read.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema of the arguments the model may send: pinned ones removed

	Kind       ToolKind        `json:"kind"`
	Ref        string          `json:"ref"` // the row or builtin behind the name; a name that now means another ref is refused
	Recovery   Recovery        `json:"recovery"`
	Effect     Effect          `json:"effect"`
	Parallel   bool            `json:"parallel"`              // safe beside other parallel calls of the step
	NoCap      bool            `json:"no_cap,omitempty"`      // its results are not cut
	Pinned     PinnedArgs      `json:"pinned,omitempty"`      // laid over the model's arguments, before everything else
	FullSchema json.RawMessage `json:"full_schema,omitempty"` // schema with the pinned arguments, where it differs
	Timeout    time.Duration   `json:"timeout,omitempty"`     // of one call; 0 = the engine's default
	// Vouched: its answers are those of a service that the operator set up. Such a service may say of a JSON object, with
	// "_platform_error": true, that it is why nothing came of the call, which is then Free.
	Vouched bool              `json:"vouched,omitempty"`
	Native  bool              `json:"native,omitempty"` // the model's provider carries it out by itself: it is asked for, but offered as no function
	Search  *WebSearchOptions `json:"search,omitempty"` // of a native tool: what is asked for
	Rules   []Rule            `json:"rules,omitempty"`  // of the workspace for a builtin and of the assignment, in this order
}

// ToolUse is an assignment of a tool, with the agent that has it.
type ToolUse struct {
	Assignment
	Name string // of the agent
}

// MaxAssignments is how many tools an agent may be given.
const MaxAssignments = 128

// PinnedArgs are arguments that an assignment fixes.
type PinnedArgs map[string]json.RawMessage

// Call is one execution of a tool, as the tool sees it.
type Call struct {
	Run       RunID
	Session   SessionID
	Agent     AgentID
	Principal Principal // whose rights apply; nothing in Arguments changes that
	ID        CallID
	Step      int
	Name      string
	Arguments json.RawMessage // a canonical JSON object that fits the schema
	// Key is the call's idempotency key, "<run id>:<call id>": equal on every try, sent as Idempotency-Key.
	Key     string
	Attempt int // 1 for the first try
	// BeginBy is when another process may take the run over: what the tool does outside must have begun by then, or not
	// at all. Zero means no bound.
	BeginBy time.Time
}

// Result is what a call gave.
type Result struct {
	Text    string // what the model reads
	IsError bool
	// Unknown: the call may or may not have happened: the server died while it was under way, or its answer was lost.
	Unknown bool
	Action  string       // of the usage ledger; ActionToolCall where ""
	Free    bool         // not counted in the ledger: the platform, not the caller, is why nothing came of it
	Used    []UsageEntry // model calls that the tool made
	// Note is for an administrator who tries the tool: what the text may not say to models. Runs do not keep it.
	Note string
}

// ToolRunner is a tool that can be called. An error of Call becomes a result the model reads; it never ends the run.
type ToolRunner interface {
	Spec() ToolSpec
	Call(ctx context.Context, c Call) (Result, error)
}

// Previewer is a ToolRunner that can say what a call would change without changing it, for whoever decides about it.
type Previewer interface {
	ToolRunner
	// Preview gives a JSON object. The error is as of Call.
	Preview(ctx context.Context, c Call) (json.RawMessage, error)
}

// Toolset finds the tools of a grant. Warnings name assigned tools that cannot be used now, and why.
type Toolset interface {
	Tools(ctx context.Context, g Grant) (tools []ToolRunner, warnings []string, err error)
}

var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckToolName says whether a custom tool may bear a name: [A-Za-z0-9_-], at most 64, none of the reserved ones,
// whatever its case. The builtin names are the caller's to check.
func CheckToolName(name string) error {
	switch {
	case !toolName.MatchString(name):
		return Errorf(Invalid, "name must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -").With("field", "name")
	case slices.ContainsFunc([]string{"knowledge_search", "mcp__", "delegate_to_"}, func(reserved string) bool {
		lower := strings.ToLower(name)
		return lower == reserved || strings.HasSuffix(reserved, "_") && strings.HasPrefix(lower, reserved)
	}):
		return Errorf(Invalid, "the name %q is reserved; choose another", name).With("field", "name")
	}
	return nil
}
