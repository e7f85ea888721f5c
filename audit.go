package hob

import (
	"context"
	"encoding/json"
)

// AuditEntry is a line of the audit log: who did what to what. It is written in the transaction of the act, or of the
// intent where the act is outside, and never changed; each entry holds the hash of the workspace's entry before it.
type AuditEntry struct {
	N         int64           `json:"n"` // place in the workspace's chain, from 1; 0 = not linked yet
	Workspace WorkspaceID     `json:"workspace_id"`
	At        Time            `json:"at"`
	Actor     string          `json:"actor"`       // as Principal.Name
	Action    string          `json:"action"`      // as in agent.create, tool_call.intent, approval.decide
	Kind      string          `json:"object_kind"` // agent, tool, hook, approval, key, run, setting …
	Object    string          `json:"object_id"`
	Run       RunID           `json:"run_id,omitempty"`
	Call      CallID          `json:"call_id,omitempty"`
	Digest    string          `json:"digest,omitempty"`        // SHA-256 of the arguments, in hex
	Before    string          `json:"before_digest,omitempty"` // of a configuration
	After     string          `json:"after_digest,omitempty"`
	Decision  string          `json:"decision,omitempty"` // ok, refused, approved, denied …
	Rule      string          `json:"rule,omitempty"`     // hook, rule or guard that decided
	Detail    json.RawMessage `json:"detail,omitempty"`   // an object without secrets
	Request   string          `json:"request_id,omitempty"`
	Address   string          `json:"address,omitempty"` // where the request came from
	Prev      string          `json:"prev_hash"`
	Hash      string          `json:"hash"`
}

// AuditFilter narrows a list of entries. Zero values mean no bound.
type AuditFilter struct {
	After        int64 // place in the chain
	Before       int64 // the same; 0 = none
	Limit        int
	Action       string // exact, or up to a final *
	Actor        string
	Kind, Object string
	Run          RunID
	Since, Until Time
	Newest       bool // the newest first
}

// AuditStore is the audit log.
type AuditStore interface {
	// Audit lists entries of the principal's workspace. Forbidden without admin rights.
	Audit(ctx context.Context, by Principal, f AuditFilter) ([]AuditEntry, error)
	// NoteAudit writes an entry about something that changes nothing in the store, such as a refused request.
	NoteAudit(ctx context.Context, by Principal, a AuditEntry) error
}

// Origin is where a request came from.
type Origin struct {
	Request string // its id
	Address string
}

type originKey struct{}

// WithOrigin tells whoever audits where a request came from.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf is the origin that the context tells, the zero one where it tells none.
func OriginOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}
