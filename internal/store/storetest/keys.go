package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func keyCases() map[string]func(*world) {
	return map[string]func(*world){
		"KeyIsFoundByItsHash":        keyFound,
		"KeyNeverExceedsItsMaker":    keyBounds,
		"KeyIsRevokedOnce":           keyRevoked,
		"KeysAreTheAdministrators":   keysListed,
		"KeyBoundToAnAgentStaysThat": keyBound,
	}
}

func (w *world) newKey(by hob.Principal, hash string, k hob.Key) hob.Key {
	w.t.Helper()
	got, err := w.s.CreateKey(w.ctx, by, k, []byte(hash))
	w.must(err)
	return got
}

func keyFound(w *world) {
	made := w.newKey(w.service, "hash-1", hob.Key{
		Name: "ci", Prefix: "hob_ab", Scopes: []hob.Scope{hob.ScopeRead, hob.ScopeRun}, ExpiresAt: hob.Time{Time: hob.SystemClock().Add(-time.Hour)},
	})
	got, err := w.s.KeyByHash(w.ctx, []byte("hash-1"))
	w.must(err)
	if d := cmp.Diff(made, got); d != "" {
		w.t.Fatalf("-created +found:\n%s", d)
	}
	if got.ExpiresAt.IsZero() || !got.RevokedAt.IsZero() || got.Workspace != hob.DefaultWorkspace {
		w.t.Fatalf("an expired key is found as it is: %+v", got)
	}
	_, err = w.s.KeyByHash(w.ctx, []byte("hash-2"))
	w.want(hob.NotFound, err)
	_, err = w.s.CreateKey(w.ctx, w.service, hob.Key{Name: "x", Scopes: []hob.Scope{hob.ScopeRead}}, []byte("hash-1"))
	w.want(hob.Conflict, err)

	root := w.newKey(hob.System(hob.DefaultWorkspace), "hash-3", hob.Key{Name: "first", Service: true})
	got, err = w.s.KeyByHash(w.ctx, []byte("hash-3"))
	w.must(err)
	if !got.Service || got.Principal().Kind != hob.ServicePrincipal || got.ID != root.ID {
		w.t.Fatalf("service key: %+v", got)
	}
}

func keyBounds(w *world) {
	for _, c := range []struct {
		by     hob.Principal
		scopes []hob.Scope
		want   hob.Kind
	}{
		{w.service, []hob.Scope{hob.ScopeAdmin}, ""},
		{w.service, []hob.Scope{"root"}, hob.Invalid},
		{w.service, nil, hob.Invalid},
		{w.key, []hob.Scope{hob.ScopeAdmin}, hob.Forbidden},
		{w.key, []hob.Scope{hob.ScopeApprove}, hob.Forbidden},
		{w.key, []hob.Scope{hob.ScopeRead}, hob.Forbidden}, // holds it, but making keys is for admins
		{w.alice, []hob.Scope{hob.ScopeRead}, hob.Forbidden},
	} {
		_, err := w.s.CreateKey(w.ctx, c.by, hob.Key{Name: "k", Scopes: c.scopes}, []byte(hob.NewUUID()))
		w.want(c.want, err)
	}
	_, err := w.s.CreateKey(w.ctx, w.key, hob.Key{Name: "k", Service: true}, []byte("h"))
	w.want(hob.Forbidden, err)
}

func keyRevoked(w *world) {
	made := w.newKey(w.service, "h", hob.Key{Name: "k", Scopes: []hob.Scope{hob.ScopeRead, hob.ScopeRun}})
	open, others := w.begin(made.Principal(), "open"), w.begin(w.alice, "others")
	over := w.begin(made.Principal(), "over")
	root := w.newKey(w.service, "root", hob.Key{Name: "root", Service: true})
	roots, services := w.begin(root.Principal(), "roots"), w.begin(w.service, "services")
	w.finish(over, "done")
	_, err := w.s.RevokeKey(w.ctx, w.alice, made.ID)
	w.want(hob.NotFound, err)
	first, err := w.s.RevokeKey(w.ctx, w.service, made.ID)
	w.must(err)
	again, err := w.s.RevokeKey(w.ctx, w.service, made.ID)
	w.must(err)
	if first.RevokedAt.IsZero() || !first.RevokedAt.Equal(again.RevokedAt.Time) {
		w.t.Fatalf("revoked at %v, then %v", first.RevokedAt, again.RevokedAt)
	}
	got, err := w.s.KeyByHash(w.ctx, []byte("h"))
	w.must(err)
	if !got.RevokedAt.Equal(first.RevokedAt.Time) {
		w.t.Fatalf("the revoked key is found with %v", got.RevokedAt)
	}
	_, err = w.s.RevokeKey(w.ctx, w.service, root.ID)
	w.must(err)
	for id, want := range map[hob.RunID]string{
		open.ID: hob.CodeKeyRevoked, others.ID: "", over.ID: "", roots.ID: hob.CodeKeyRevoked, services.ID: "",
	} {
		st, err := w.s.Load(w.ctx, id)
		w.must(err)
		same(w, "cancel code of "+string(id), st.Run.CancelCode, want)
	}
}

func keysListed(w *world) {
	w.newKey(w.service, "h1", hob.Key{Name: "one", Scopes: []hob.Scope{hob.ScopeRead}})
	w.newKey(w.service, "h2", hob.Key{Name: "two", Scopes: []hob.Scope{hob.ScopeRead}})
	list, err := w.s.Keys(w.ctx, w.service)
	w.must(err)
	if len(list) != 2 || list[0].Name != "two" {
		w.t.Fatalf("keys, the newest first: %v", list)
	}
	for _, by := range []hob.Principal{w.alice, w.key} {
		_, err = w.s.Keys(w.ctx, by)
		w.want(hob.NotFound, err)
	}
	list, err = w.s.Keys(w.ctx, w.stranger)
	w.must(err)
	same(w, "keys of another workspace", len(list), 0)
}

func keyBound(w *world) {
	bound := w.newKey(w.service, "h", hob.Key{Name: "k", Scopes: []hob.Scope{hob.ScopeAdmin}, Agent: w.agent.ID})
	same(w, "binding", bound.Principal().Agent, w.agent.ID)
	by := bound.Principal()
	_, err := w.s.CreateKey(w.ctx, by, hob.Key{Name: "wider", Scopes: []hob.Scope{hob.ScopeRead}}, []byte("h2"))
	w.want(hob.Forbidden, err)
	_, err = w.s.CreateKey(w.ctx, by, hob.Key{Name: "other", Scopes: []hob.Scope{hob.ScopeRead}, Agent: w.other.ID}, []byte("h3"))
	w.want(hob.Forbidden, err)
	w.newKey(by, "h4", hob.Key{Name: "same", Scopes: []hob.Scope{hob.ScopeRead}, Agent: w.agent.ID})
	_, err = w.s.CreateKey(w.ctx, w.service, hob.Key{Name: "k", Scopes: []hob.Scope{hob.ScopeRead}, Agent: hob.AgentID(hob.NewUUID())}, []byte("h5"))
	w.want(hob.NotFound, err)
	w.newKey(w.service, "h6", hob.Key{Name: "free", Scopes: []hob.Scope{hob.ScopeRead}})
	list, err := w.s.Keys(w.ctx, by)
	w.must(err)
	same(w, "keys a bound key sees", len(list), 2)
}
