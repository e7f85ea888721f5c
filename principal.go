package hob

import "slices"

// Scope is a right of a key. A scope never widens over what its maker had.
type Scope string

// The scopes; Admin holds all of them.
const (
	ScopeRead      Scope = "read"      // see agents, tools, and one's own sessions and runs
	ScopeRun       Scope = "run"       // start, cancel and feed runs
	ScopeApprove   Scope = "approve"   // decide approvals
	ScopeConfigure Scope = "configure" // create and change agents, tools, assignments
	ScopeAdmin     Scope = "admin"     // everything, keys and other people's sessions included
)

// Scopes lists every scope, in the order in which they are shown.
func Scopes() []Scope {
	return []Scope{ScopeRead, ScopeRun, ScopeApprove, ScopeConfigure, ScopeAdmin}
}

// PrincipalKind says what stands behind a request.
type PrincipalKind string

// The kinds of principal.
const (
	ServicePrincipal PrincipalKind = "service" // an operator's service key: speaks for the workspace
	KeyPrincipal     PrincipalKind = "key"     // an API key with scopes
	UserPrincipal    PrincipalKind = "user"    // an end user with a signed token: a member of the default workspace
	SystemPrincipal  PrincipalKind = "system"  // Hob itself: recovery, first start
)

// Principal is who acts: fixed when a request is authenticated, stored with the run it starts, passed to every tool.
// Nothing in a request's body or a tool's arguments ever names one.
type Principal struct {
	Kind      PrincipalKind `json:"kind"`
	ID        string        `json:"id"` // key id or user id; "" for system
	Workspace WorkspaceID   `json:"workspace_id"`
	Scopes    []Scope       `json:"scopes,omitempty"`
	Agent     AgentID       `json:"agent_id,omitempty"` // set: bound to this one agent
}

// System is Hob itself acting in a workspace.
func System(ws WorkspaceID) Principal {
	return Principal{Kind: SystemPrincipal, Workspace: ws, Scopes: []Scope{ScopeAdmin}}
}

// Owner is how rows made by the principal name their owner: "user:…", "key:…", or "" where a service key acted for
// the workspace.
func (p Principal) Owner() string {
	switch p.Kind {
	case UserPrincipal, KeyPrincipal:
		return string(p.Kind) + ":" + p.ID
	case ServicePrincipal, SystemPrincipal:
	}
	return ""
}

// Name is how rows name a principal: its kind and id, as in "user:…"; "system:" has no id.
func (p Principal) Name() string { return string(p.Kind) + ":" + p.ID }

// Has says whether the principal holds a scope, directly or through Admin.
func (p Principal) Has(s Scope) bool {
	return slices.Contains(p.Scopes, s) || slices.Contains(p.Scopes, ScopeAdmin)
}

// SeesAll says whether the principal sees the sessions and runs of every owner in its workspace.
func (p Principal) SeesAll() bool { return p.Has(ScopeAdmin) }

// ObjectKind is a kind of thing that rights are about.
type ObjectKind string

// The kinds of object.
const (
	AgentObject    ObjectKind = "agent"    // with its assignments
	ToolObject     ObjectKind = "tool"     //
	SessionObject  ObjectKind = "session"  // with its runs, messages, events
	KeyObject      ObjectKind = "key"      //
	BucketObject   ObjectKind = "bucket"   // with its files
	ApprovalObject ObjectKind = "approval" //
)

// Object is what an action is about.
type Object struct {
	Kind      ObjectKind
	Workspace WorkspaceID
	Owner     string   // as Principal.Owner; matters for sessions
	Agent     AgentID  // the agent itself, or the one a session belongs to
	Names     []string // of an approval: who may decide it
}

// Can decides whether a principal may do what a scope names to an object. It is the one rule of authorization: the
// store asks it for every read and write, and lists carry the same rule as a filter. nil means yes. What the
// principal may not even see is NotFound, with the text that an absent object has; what it sees but may not do is
// Forbidden.
func Can(p Principal, s Scope, o Object) error {
	if !visible(p, o) {
		return Absent(o.Kind)
	}
	if p.Agent != "" && o.Kind == ToolObject && s != ScopeRead {
		return Errorf(Forbidden, "your key is bound to one agent; tools belong to the whole workspace").WithCode("key_bound")
	}
	if !p.Has(s) {
		return Errorf(Forbidden, "this needs the scope %q, which your key or role does not have", s).WithCode("scope_missing")
	}
	return nil
}

func visible(p Principal, o Object) bool {
	if p.Workspace != o.Workspace {
		return false
	}
	if p.Agent != "" && o.Agent != p.Agent && o.Kind != ToolObject {
		return false
	}
	switch o.Kind {
	case SessionObject:
		return p.SeesAll() || (o.Owner != "" && o.Owner == p.Owner())
	case ApprovalObject:
		return p.SeesAll() || o.Owner != "" && o.Owner == p.Owner() || slices.Contains(o.Names, p.Name()) ||
			slices.Contains(o.Names, ApproverAny) && p.Has(ScopeApprove)
	case KeyObject:
		return p.Has(ScopeAdmin)
	case BucketObject: // public buckets and signed links are read without a principal
		if p.Kind == UserPrincipal || p.Agent != "" {
			return false
		}
	case AgentObject, ToolObject:
	}
	return p.Has(ScopeRead) || p.Has(ScopeRun) || p.Has(ScopeConfigure)
}

// Absent is the error for an object that is not there or not the caller's to see: the same text for both.
func Absent(k ObjectKind) *Error {
	name := map[ObjectKind]string{
		AgentObject: "Agent", ToolObject: "Tool", SessionObject: "Session", KeyObject: "Key", BucketObject: "Bucket",
		ApprovalObject: "Approval",
	}[k]
	return Errorf(NotFound, "%s not found", name).WithCode(string(k) + "_not_found")
}

// Key is an API key as it is shown: the secret itself is returned once, when it is made, and kept only as a hash.
type Key struct {
	ID        KeyID       `json:"id"`
	Workspace WorkspaceID `json:"-"`
	Name      string      `json:"name"`
	Prefix    string      `json:"prefix"` // the first characters of the secret, to tell keys apart
	Service   bool        `json:"service"`
	Scopes    []Scope     `json:"scopes"`
	Agent     AgentID     `json:"agent_id,omitempty"`
	CreatedBy string      `json:"created_by,omitempty"`
	CreatedAt Time        `json:"created_at"`
	ExpiresAt Time        `json:"expires_at"`
	RevokedAt Time        `json:"revoked_at"`
}

// Principal is who a request with this key is.
func (k Key) Principal() Principal {
	p := Principal{Kind: KeyPrincipal, ID: string(k.ID), Workspace: k.Workspace, Scopes: k.Scopes, Agent: k.Agent}
	if k.Service {
		p.Kind, p.Scopes = ServicePrincipal, []Scope{ScopeAdmin}
	}
	return p
}
