package hob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// ApprovalStatus is what became of an approval.
type ApprovalStatus string

// The states. All but pending are final.
const (
	ApprovalPending   ApprovalStatus = "pending"
	ApprovalApproved  ApprovalStatus = "approved"
	ApprovalDenied    ApprovalStatus = "denied"
	ApprovalExpired   ApprovalStatus = "expired"
	ApprovalCancelled ApprovalStatus = "cancelled" // the run ended, or the call was refused otherwise
)

// Approval is something that a run waits for a person to decide: a call with exactly these arguments, or, of other events,
// the run's start or answer. It is decided once.
type Approval struct {
	ApprovalID string          `json:"approval_id"`
	RunID      RunID           `json:"run_id"`
	SessionID  SessionID       `json:"session_id"`
	AgentID    AgentID         `json:"agent_id"`
	HookID     HookID          `json:"hook_id"`
	HookEvent  HookEvent       `json:"hook_event"`
	CallID     CallID          `json:"call_id"`           // "" where the event is not about a call
	ToolName   string          `json:"tool_name"`         // the same
	ToolInput  json.RawMessage `json:"tool_input"`        // the arguments; of OnRunStart the message, else {}
	Output     string          `json:"output,omitempty"`  // of PreResponse: the answer, for those who may decide about it
	Preview    json.RawMessage `json:"preview,omitempty"` // what the call would change, where its tool can tell
	Digest     string          `json:"input_digest"`      // of run, call, tool and arguments; see ApprovalDigest
	Message    string          `json:"message"`
	Status     ApprovalStatus  `json:"status"`
	Reason     string          `json:"reason,omitempty"`
	// ModifiedInput are the arguments that the approver put in place of those asked for.
	ModifiedInput json.RawMessage `json:"modified_input,omitempty"`
	RequestedBy   string          `json:"requested_by"`         // who started the run, as Principal.Name
	Approvers     []string        `json:"approvers"`            // who may decide, see ApproverNames
	FourEyes      bool            `json:"four_eyes,omitempty"`  // RequestedBy may not
	DecidedBy     string          `json:"decided_by,omitempty"` // as Principal.Name
	CreatedAt     Time            `json:"created_at"`
	ExpiresAt     Time            `json:"expires_at"` // by the database's clock; null = never
	DecidedAt     Time            `json:"decided_at"`
	CanDecide     bool            `json:"can_decide"` // whoever asked may decide it

	Workspace WorkspaceID   `json:"-"`
	Owner     string        `json:"-"` // of the run, as Principal.Owner
	Timeout   time.Duration `json:"-"` // of a new one: ExpiresAt is this from the moment it is stored; 0 = never
	Settled   bool          `json:"-"` // the run's log tells what became of it
}

// Names that Approvers may hold beside those of principals, "user:…" and "key:…".
const (
	ApproverOwner  = "owner"  // whoever the run belongs to
	ApproverAdmins = "admins" // who has the scope admin, service keys among them
	ApproverAny    = "any"    // everybody in the workspace with the scope approve
)

// DefaultApprovers may decide where a hook names nobody.
func DefaultApprovers() []string { return []string{ApproverOwner, ApproverAdmins} }

// ApproverName says whether a name may stand among a hook's approvers.
func ApproverName(name string) bool {
	if slices.Contains([]string{ApproverOwner, ApproverAdmins, ApproverAny}, name) {
		return true
	}
	kind, id, ok := strings.Cut(name, ":")
	return ok && id != "" && len(name) <= MaxName && (kind == string(UserPrincipal) || kind == string(KeyPrincipal))
}

// ApprovalDigest binds a decision to what is decided: the run, the call, the tool and its exact arguments. It is the
// SHA-256 of their JSON array, in hex.
func ApprovalDigest(run RunID, call CallID, tool string, args json.RawMessage) string {
	b, _ := json.Marshal([]any{run, call, tool, string(args)}) // of strings alone
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// object is what Can judges an approval by.
func (a *Approval) object() Object {
	return Object{Kind: ApprovalObject, Workspace: a.Workspace, Owner: a.Owner, Agent: a.AgentID, Names: a.Approvers}
}

// MaySee says whether a principal sees an approval: the owner of the run, admins, and those who are named.
func MaySee(p Principal, a *Approval) bool { return visible(p, a.object()) }

// MayDecide says why a principal may not decide an approval; nil: it may. Hob itself never decides, and a run has no
// credentials that could: nothing it calls reaches Hob's own listeners.
func MayDecide(p Principal, a *Approval) error {
	if err := Can(p, ScopeApprove, a.object()); err != nil {
		return err
	}
	switch {
	case p.Kind == SystemPrincipal, !approver(p, a):
		return Errorf(Forbidden, "this approval is for %s to decide", strings.Join(a.Approvers, ", ")).WithCode("not_an_approver")
	case a.FourEyes && p.Name() == a.RequestedBy:
		return Errorf(Forbidden, "this approval needs somebody else than who started the run").WithCode("four_eyes")
	}
	return nil
}

func approver(p Principal, a *Approval) bool {
	return slices.ContainsFunc(a.Approvers, func(name string) bool {
		switch name {
		case ApproverOwner:
			return a.Owner == p.Owner() && (a.Owner != "" || p.Kind == ServicePrincipal)
		case ApproverAdmins:
			return p.SeesAll()
		case ApproverAny:
			return true
		}
		return name == p.Name()
	})
}

// Decision is what an approver says. It applies to the approval as it was shown: it has no other arguments.
type Decision struct {
	Run           RunID
	Approval      string
	Approved      bool
	Reason        string
	ModifiedInput json.RawMessage // already checked; nil = as asked for
}

// ApprovalFilter narrows a list. Zero values mean no bound.
type ApprovalFilter struct {
	ID            string
	Status        ApprovalStatus
	Run           RunID
	Agent         AgentID
	Limit, Offset int
}

// ApprovalStore keeps approvals. They are made by the commits of their runs.
type ApprovalStore interface {
	// Approvals lists those that the principal may see, oldest first. One whose time is over reads as expired, whether the run
	// has noticed or not.
	Approvals(ctx context.Context, by Principal, f ApprovalFilter) (Page[Approval], error)
	// Decide decides a pending approval and lets its run go on. Errors: NotFound, Forbidden as MayDecide, Conflict
	// (approval_decided, approval_expired, approval_cancelled) with the approval's status in the details.
	Decide(ctx context.Context, by Principal, d Decision) (Approval, error)
}
