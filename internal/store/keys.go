package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"hob"
)

const keyColumns = `id, workspace_id, name, prefix, service, scopes, agent_id, created_by, created_at, expires_at, revoked_at`

func scanKey(r row) (hob.Key, error) {
	var k hob.Key
	var service, created, expires, revoked int64
	var scopes string
	if err := r.Scan(&k.ID, &k.Workspace, &k.Name, &k.Prefix, &service, &scopes, &k.Agent, &k.CreatedBy, &created, &expires, &revoked); err != nil {
		return k, err
	}
	k.Service = service != 0
	k.CreatedAt, k.ExpiresAt, k.RevokedAt = hob.FromMicros(created), hob.FromMicros(expires), hob.FromMicros(revoked)
	if err := json.Unmarshal([]byte(scopes), &k.Scopes); err != nil {
		return k, fmt.Errorf("read the scopes of key %s: %w", k.ID, err)
	}
	return k, nil
}

func keyObject(k hob.Key) hob.Object {
	return hob.Object{Kind: hob.KeyObject, Workspace: k.Workspace, Agent: k.Agent}
}

// CreateKey keeps a key by its hash. It never holds more than its maker: no scope the maker lacks, no wider binding.
func (s *DB) CreateKey(ctx context.Context, by hob.Principal, k hob.Key, hash []byte) (hob.Key, error) {
	if k.Service {
		k.Scopes = []hob.Scope{hob.ScopeAdmin}
	}
	if err := checkKey(by, k); err != nil {
		return hob.Key{}, err
	}
	k.ID, k.Workspace = hob.KeyID(hob.NewUUID()), by.Workspace
	k.CreatedBy, k.CreatedAt, k.RevokedAt = by.Owner(), hob.FromMicros(s.now()), hob.Time{}
	scopes, err := json.Marshal(k.Scopes)
	if err != nil {
		return hob.Key{}, fmt.Errorf("encode scopes: %w", err)
	}
	bound := k.Agent
	err = s.write(ctx, "create a key", func(ctx context.Context, t *tx) error {
		if bound != "" {
			a, err := agent(ctx, t, by, "", bound)
			if err != nil {
				return err
			}
			k.Agent = a.ID
		}
		if err := hob.Can(by, hob.ScopeAdmin, keyObject(k)); err != nil {
			return err
		}
		_, err := t.exec(ctx, `INSERT INTO keys (`+keyColumns+`, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			string(k.ID), string(k.Workspace), k.Name, k.Prefix, flag(k.Service), string(scopes), string(k.Agent), k.CreatedBy,
			k.CreatedAt.Micros(), k.ExpiresAt.Micros(), k.RevokedAt.Micros(), hash)
		if err != nil && s.d.conflict(err) {
			return hob.Errorf(hob.Conflict, "this key is kept already").WithCode("key_exists")
		}
		t.did(by, "key.create", "key", string(k.ID), nil, k).Detail = keyDetail(k)
		return err
	})
	if err != nil {
		return hob.Key{}, err
	}
	return k, nil
}

func checkKey(by hob.Principal, k hob.Key) error {
	for _, scope := range k.Scopes {
		if !slices.Contains(hob.Scopes(), scope) {
			return hob.Errorf(hob.Invalid, "there is no scope %q; there are read, run, approve, configure, admin", scope).With("field", "scopes")
		}
		if !by.Has(scope) {
			return hob.Errorf(hob.Forbidden, "a key cannot hold the scope %q, which your own key or role does not have", scope).WithCode("scope_missing")
		}
	}
	switch {
	case !by.Has(hob.ScopeAdmin):
		return hob.Errorf(hob.Forbidden, "this needs the scope %q, which your key or role does not have", hob.ScopeAdmin).WithCode("scope_missing")
	case by.Agent != "" && !strings.EqualFold(string(by.Agent), string(k.Agent)):
		return hob.Errorf(hob.Forbidden, "your key is bound to one agent; keys it makes must be bound to the same").WithCode("key_bound")
	case k.Service && k.Agent != "":
		return hob.Errorf(hob.Invalid, "a service key speaks for the workspace and cannot be bound to an agent").With("field", "agent_id")
	case len(k.Scopes) == 0:
		return hob.Errorf(hob.Invalid, "a key needs at least one scope").With("field", "scopes")
	case len(k.Name) > hob.MaxName || !utf8.ValidString(k.Name):
		return hob.Errorf(hob.Invalid, "name must be valid text of at most %d bytes", hob.MaxName).With("field", "name")
	}
	return nil
}

// KeyByHash finds a key by the hash of its secret, revoked and expired ones too.
func (s *DB) KeyByHash(ctx context.Context, hash []byte) (hob.Key, error) {
	ctx, t := s.lookUp(ctx)
	k, err := one(ctx, t, scanKey, `SELECT `+keyColumns+` FROM keys WHERE hash = ?`, hash)
	if err != nil {
		return hob.Key{}, found(err, hob.KeyObject, "read a key")
	}
	return k, nil
}

// Keys lists the workspace's keys, the newest first.
func (s *DB) Keys(ctx context.Context, by hob.Principal) ([]hob.Key, error) {
	if err := hob.Can(by, hob.ScopeAdmin, hob.Object{Kind: hob.KeyObject, Workspace: by.Workspace, Agent: by.Agent}); err != nil {
		return nil, err
	}
	var f filter
	f.where("workspace_id = ?", string(by.Workspace))
	if by.Agent != "" {
		f.where("agent_id = ?", strings.ToLower(string(by.Agent)))
	}
	list, err := many(ctx, s.read(), scanKey, `SELECT `+keyColumns+` FROM keys`+f.String()+` ORDER BY created_at DESC, id`, f.args...)
	return list, hob.Wrap("list keys", err)
}

// RevokeKey ends a key and marks its unfinished runs for cancelling. One that is revoked stays as it is.
func (s *DB) RevokeKey(ctx context.Context, by hob.Principal, id hob.KeyID) (hob.Key, error) {
	key, ok := uuid(id)
	if !ok {
		return hob.Key{}, hob.Absent(hob.KeyObject)
	}
	var k hob.Key
	err := s.write(ctx, "revoke a key", func(ctx context.Context, t *tx) (err error) {
		k, err = one(ctx, t, scanKey, `SELECT `+keyColumns+` FROM keys WHERE workspace_id = ? AND id = ?`, string(by.Workspace), key)
		if err != nil {
			return found(err, hob.KeyObject, "read a key")
		}
		if err = hob.Can(by, hob.ScopeAdmin, keyObject(k)); err != nil || !k.RevokedAt.IsZero() {
			return err
		}
		k.RevokedAt = hob.FromMicros(s.now())
		t.did(by, "key.revoke", "key", string(k.ID), nil, nil).Detail = keyDetail(k)
		if _, err = t.exec(ctx, `UPDATE keys SET revoked_at = ? WHERE id = ?`, k.RevokedAt.Micros(), key); err != nil {
			return err
		}
		return cancelRuns(ctx, t, hob.CodeKeyRevoked, "workspace_id = ? AND started_by = ? AND n IN "+unfinished,
			string(by.Workspace), starter(k.Principal()))
	})
	if err != nil {
		return hob.Key{}, err
	}
	return k, nil
}
