package hob

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// HookID is a UUID (version 4).
type HookID string

// HookEvent is a moment in a run at which hooks are asked.
type HookEvent string

// The events. What each may do is told by Blocks, ModifiesInput, ModifiesOutput and OfTools.
const (
	OnRunStart    HookEvent = "OnRunStart"    // before anything else in a run
	PreToolUse    HookEvent = "PreToolUse"    // before each tool call
	OnDelegation  HookEvent = "OnDelegation"  // before a call of a delegate tool, after PreToolUse
	PostToolUse   HookEvent = "PostToolUse"   // after each tool call that was carried out, before its result is cut
	PreResponse   HookEvent = "PreResponse"   // before the final answer is given, where there is any
	OnRunComplete HookEvent = "OnRunComplete" // after a run that completed; told from the store, so that it never delays the run
)

// HookEvents lists the events.
func HookEvents() []HookEvent {
	return []HookEvent{OnRunStart, PreToolUse, OnDelegation, PostToolUse, PreResponse, OnRunComplete}
}

// Blocks says whether a hook can stop what the event is about. Rules and approvals can only be asked where it can.
func (e HookEvent) Blocks() bool { return e != PostToolUse && e != OnRunComplete }

// ModifiesInput says whether a hook can replace the arguments of a call.
func (e HookEvent) ModifiesInput() bool { return e == PreToolUse }

// ModifiesOutput says whether a hook can replace the result of a call or the final answer.
func (e HookEvent) ModifiesOutput() bool { return e == PostToolUse || e == PreResponse }

// OfTools says whether the event is about a tool call, so that a matcher makes sense.
func (e HookEvent) OfTools() bool { return e == PreToolUse || e == PostToolUse || e == OnDelegation }

// HookType is who decides.
type HookType string

// The types.
const (
	HTTPHook     HookType = "http"     // a service that is sent the event
	RuleHook     HookType = "rule"     // conditions on the arguments or the text
	ApprovalHook HookType = "approval" // a person
)

// HookTypes lists the types.
func HookTypes() []HookType { return []HookType{HTTPHook, RuleHook, ApprovalHook} }

// FailMode is what counts where a hook comes to no decision.
type FailMode string

// The modes.
const (
	FailAllow FailMode = "allow"
	FailDeny  FailMode = "deny"
)

// Bounds of hooks and rules.
const (
	MaxHooks            = 100 // of an agent
	MaxRules            = 100 // of one hook or one assignment
	MaxCondition        = 4096
	MaxPattern          = 500    // characters of a regular expression
	MaxMatchChars       = 10_000 // characters that a regular expression looks at; what is longer has no answer, see Rule
	DefaultHookSeconds  = 5
	MaxHookSeconds      = 30
	DefaultApprovalTime = 300 // seconds
	MaxApprovalTime     = 30 * 24 * 3600
	MaxApprovers        = 50
	MaxHookMessage      = 2000 // characters
)

// Hook asks somebody about an event of an agent's runs. It never changes but for Enabled and Position.
type Hook struct {
	ID        HookID      `json:"id"`
	Agent     AgentID     `json:"agent_id,omitempty"`
	Workspace WorkspaceID `json:"-"`
	Event     HookEvent   `json:"event"`
	Matcher   *string     `json:"matcher"` // tool names: exact, with * and ?, or several parted by |; null = every tool
	Type      HookType    `json:"type"`
	Config    HookConfig  `json:"config"`
	Enabled   bool        `json:"enabled"`
	Position  int         `json:"position"` // hooks are asked in this order, those of one position in the order of their creation
	CreatedAt Time        `json:"created_at"`
}

// HookConfig is what a hook's type needs.
type HookConfig struct {
	OnError FailMode `json:"on_error,omitempty"` // "" = allow for http, deny for rule and approval

	// Of http hooks.
	URL               string            `json:"url,omitempty"`
	Headers           map[string]Secret `json:"headers,omitempty"`
	Secret            Secret            `json:"secret,omitempty"` // signs what is sent; made by the server where the client gives none
	TimeoutSeconds    float64           `json:"timeout_seconds,omitempty"`
	IncludeRunContext bool              `json:"include_run_context,omitempty"`

	// Of rule hooks: one rule, or several.
	Condition  string `json:"condition,omitempty"`
	Action     string `json:"action,omitempty"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Rules      []Rule `json:"rules,omitempty"`

	Message string `json:"message,omitempty"` // of the one rule, or what an approver is told

	// Of approval hooks.
	Timeout   *float64 `json:"timeout,omitempty"`    // seconds; 0 = never expires, absent = 300
	Approvers []string `json:"approvers,omitempty"`  // who may decide, see ApproverNames; empty = owner and admins
	FourEyes  bool     `json:"four_eyes,omitempty"`  // who started the run may not decide
	NotifyURL string   `json:"notify_url,omitempty"` // is told when an approval waits; Headers and Secret apply
}

// Fails is the hook's fail mode.
func (h *Hook) Fails() FailMode {
	switch {
	case h.Config.OnError != "":
		return h.Config.OnError
	case h.Type == HTTPHook:
		return FailAllow
	}
	return FailDeny
}

// AllRules are the rules of a rule hook, in their order.
func (h *Hook) AllRules() []Rule {
	if h.Config.Condition == "" {
		return h.Config.Rules
	}
	one := Rule{Condition: h.Config.Condition, Action: h.Config.Action, Message: h.Config.Message, IgnoreCase: h.Config.IgnoreCase}
	return append([]Rule{one}, h.Config.Rules...)
}

// Matches says whether the hook is about a tool.
func (h *Hook) Matches(tool string) bool {
	if h.Matcher == nil || !h.Event.OfTools() {
		return true
	}
	return slices.ContainsFunc(strings.Split(*h.Matcher, "|"), func(p string) bool { return glob(strings.TrimSpace(p), tool) })
}

// glob matches a whole name with a pattern of * (any text) and ? (one character), in time linear in both for each star.
func glob(pattern, name string) bool {
	p, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// Rule is a condition, and what it decides where it holds:
//
//	field [NOT] CONTAINS|STARTS_WITH|MATCHES|IN value
//
// The first rule of a list whose condition holds decides, whether it allows or denies.
type Rule struct {
	Condition  string `json:"condition"`
	Action     string `json:"action,omitempty"`  // deny (default) or allow
	Message    string `json:"message,omitempty"` // of a deny; "Blocked by rule" where empty
	IgnoreCase bool   `json:"ignore_case,omitempty"`
}

// HookAction is what a hook decided, or several together: the greatest of them counts.
type HookAction string

// The actions, from the least to the greatest.
const (
	HookPass  HookAction = "pass"  // it has no say
	HookAllow HookAction = "allow" //
	HookAsk   HookAction = "ask"   // a person decides
	HookDeny  HookAction = "deny"  //
)

// Over gives the greater of two actions.
func (a HookAction) Over(b HookAction) HookAction {
	order := []HookAction{HookPass, HookAllow, HookAsk, HookDeny}
	if slices.Index(order, a) >= slices.Index(order, b) {
		return a
	}
	return b
}

// HookRequest is an event on its way to an http hook.
type HookRequest struct {
	Hook     Hook // with its secrets
	URL      string
	Delivery string // names the event for this hook, equal on every try
	Attempt  int    // from 1
	Body     json.RawMessage
	Timeout  time.Duration
}

// HookAnswer is what an http hook answered.
type HookAnswer struct {
	Deny           bool
	Message        string
	ModifiedInput  json.RawMessage // a JSON object, nil where there was none
	ModifiedOutput *string
}

// HookCaller sends events to http hooks. An error means that the hook came to no decision: its text is for the run's
// trace and names no secret. One that wraps context.DeadlineExceeded tells that the time was over.
type HookCaller interface {
	CallHook(ctx context.Context, r HookRequest) (HookAnswer, error)
}

// HookPatch changes what is not nil.
type HookPatch struct {
	Enabled  *bool
	Position *int
}

// HookStore keeps the hooks of agents. Header values and signing secrets are sealed at rest.
type HookStore interface {
	// CreateHook keeps a new hook. Errors: NotFound (agent), Forbidden, Conflict (too_many_hooks) beyond MaxHooks.
	CreateHook(ctx context.Context, by Principal, h Hook) (Hook, error)
	// Hooks lists those of an agent in the order in which they are asked, with their secrets, which mask themselves.
	Hooks(ctx context.Context, by Principal, agent AgentID) ([]Hook, error)
	UpdateHook(ctx context.Context, by Principal, agent AgentID, id HookID, p HookPatch) (Hook, error)
	DeleteHook(ctx context.Context, by Principal, agent AgentID, id HookID) error
	// Deliveries lists what the store has sent or is to send to a hook, newest first.
	Deliveries(ctx context.Context, by Principal, agent AgentID, id HookID, limit int) ([]Delivery, error)
}

// DeliveryStatus is how far a delivery is.
type DeliveryStatus string

// The states of a delivery.
const (
	DeliveryQueued    DeliveryStatus = "queued"
	DeliveryDelivered DeliveryStatus = "delivered"
	DeliveryFailed    DeliveryStatus = "failed" // it is not tried again
)

// Delivery is an event that is told to a hook from the store, beside the run.
type Delivery struct {
	ID          string          `json:"delivery_id"` // as Delivery of HookRequest
	Hook        HookID          `json:"hook_id"`
	Agent       AgentID         `json:"-"`
	Workspace   WorkspaceID     `json:"-"`
	Run         RunID           `json:"run_id"`
	Event       string          `json:"event"` // OnRunComplete or ApprovalRequested
	URL         string          `json:"url"`
	Body        json.RawMessage `json:"-"`
	Status      DeliveryStatus  `json:"status"`
	Attempts    int             `json:"attempts"`
	NextAt      Time            `json:"next_attempt_at"` // zero once it is not queued any more
	Error       string          `json:"error,omitempty"` // of the last try
	CreatedAt   Time            `json:"created_at"`
	DeliveredAt Time            `json:"delivered_at"`
}

// ApprovalRequested is the event of deliveries to the notify_url of approval hooks.
const ApprovalRequested = "ApprovalRequested"

// DeliveryStore is the queue of deliveries, for the processes that send them.
type DeliveryStore interface {
	// DueDeliveries takes at most limit deliveries whose time has come, each with its hook, whose ID is "" where it is gone. They
	// are not due again before the lease is over. Attempts counts this one.
	DueDeliveries(ctx context.Context, lease time.Duration, limit int) ([]DueDelivery, error)
	// DeliveryDone notes how a try went. Status queued puts it off by again.
	DeliveryDone(ctx context.Context, id string, status DeliveryStatus, failure string, again time.Duration) error
}

// DueDelivery is a delivery to be made now.
type DueDelivery struct {
	Delivery
	To Hook // with its secrets
}
