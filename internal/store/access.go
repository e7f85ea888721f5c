package store

import (
	"strings"

	"hob"
)

// see is hob.Can for reading. Whoever may run, change or approve a thing reads it with that right: a key that may only
// run has to find the agent it runs and the stream of its run.
func see(by hob.Principal, o hob.Object) error {
	scopes := []hob.Scope{hob.ScopeRead, hob.ScopeRun, hob.ScopeConfigure}
	if o.Kind == hob.SessionObject {
		scopes[2] = hob.ScopeApprove
	}
	for _, s := range scopes {
		if by.Has(s) {
			return hob.Can(by, s, o)
		}
	}
	return hob.Can(by, hob.ScopeRead, o)
}

// administer is hob.Can for what belongs to a workspace, or the server, as a whole and to no agent: settings, provider
// keys, model profiles. What they are about is no secret, so who may not change them is told so.
func administer(by hob.Principal) error {
	switch {
	case by.Agent != "":
		return hob.Errorf(hob.Forbidden, "your key is bound to one agent; settings and model providers belong to the whole workspace").WithCode("key_bound")
	case !by.Has(hob.ScopeAdmin):
		return hob.Errorf(hob.Forbidden, "this needs the scope %q, which your key or role does not have", hob.ScopeAdmin).WithCode("scope_missing")
	}
	return hob.Can(by, hob.ScopeAdmin, hob.Object{Kind: hob.KeyObject, Workspace: by.Workspace})
}

// starter names a principal in the runs it starts: as its owner's name, but a service key by its id as well.
func starter(by hob.Principal) string { return string(by.Kind) + ":" + by.ID }

// found turns an absent row into the error for its kind of object.
func found(err error, kind hob.ObjectKind, what string) error {
	if none(err) {
		return hob.Absent(kind)
	}
	return hob.Wrap(what, err)
}

// uuid is an id in the form in which ids are kept; false for texts that no row can have.
func uuid[T ~string](id T) (string, bool) {
	return strings.ToLower(string(id)), hob.IsUUID(string(id))
}

// Bounds of lists and searches.
const (
	defaultLimit = 50
	maxLimit     = 1000
	maxQuery     = 200 // characters of a search that count
)

// window bounds a list's limit and offset.
func window(limit, offset int) (int64, int64) {
	if limit < 1 {
		limit = defaultLimit
	}
	return int64(min(limit, maxLimit)), int64(max(offset, 0))
}

var likeEscapes = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// like is the pattern that finds q anywhere, for LIKE … ESCAPE '\'.
func like(q string) string {
	n := 0
	for i := range q {
		if n == maxQuery {
			q = q[:i]
			break
		}
		n++
	}
	return "%" + likeEscapes.Replace(q) + "%"
}

// filter is a WHERE clause that grows.
type filter struct {
	text strings.Builder
	args []any
}

// where adds a condition; the first one begins the clause.
func (f *filter) where(cond string, args ...any) {
	if f.text.Len() == 0 {
		f.text.WriteString(" WHERE ")
	} else {
		f.text.WriteString(" AND ")
	}
	f.text.WriteString(cond)
	f.args = append(f.args, args...)
}

func (f *filter) String() string { return f.text.String() }
