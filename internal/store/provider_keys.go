package store

import (
	"context"
	"fmt"
	"slices"

	"hob"
	"hob/internal/seal"
)

const providerKeyColumns = `id, provider, sealed, base_url, is_valid, last_validated_at, created_at, updated_at`

// storedProviderKey is a provider key as its row has it.
type storedProviderKey struct {
	hob.ProviderKey
	sealed []byte
}

func scanProviderKey(r row) (x storedProviderKey, err error) {
	var valid, validated, created, updated int64
	err = r.Scan(&x.ID, &x.Provider, &x.sealed, &x.BaseURL, &valid, &validated, &created, &updated)
	x.IsValid, x.LastValidatedAt = valid != 0, hob.FromMicros(validated)
	x.CreatedAt, x.UpdatedAt = hob.FromMicros(created), hob.FromMicros(updated)
	return x, err
}

func providerKeyPlace(ws hob.WorkspaceID, provider string) string {
	return seal.Context("provider_keys", string(ws)+"/"+provider, "key")
}

// openKey opens a provider key; false where it does not open.
func (s *DB) openKey(ws hob.WorkspaceID, x storedProviderKey) (hob.ProviderKey, bool) {
	k := x.ProviderKey
	if x.sealed == nil {
		return k, true
	}
	plain, err := s.box.Open(providerKeyPlace(ws, k.Provider), x.sealed)
	if err != nil {
		return k, false
	}
	k.Key, k.MaskedKey = hob.Secret(plain), maskedKey(string(plain))
	return k, true
}

// What a provider key shows of itself.
const (
	maskTail   = 4  // characters at its end
	maskMinKey = 12 // characters; of a shorter one too little would be left to guess
)

// maskedKey is how a provider key reads: eight bullets and its last characters.
func maskedKey(key string) string {
	list := []rune(key)
	switch {
	case len(list) == 0:
		return ""
	case len(list) < maskMinKey:
		return hob.Mask
	}
	return hob.Mask + string(list[len(list)-maskTail:])
}

func (s *DB) providerKeys(ctx context.Context, t *tx, ws hob.WorkspaceID) ([]storedProviderKey, error) {
	list, err := many(ctx, t, scanProviderKey, `SELECT `+providerKeyColumns+` FROM provider_keys WHERE workspace_id = ? ORDER BY provider`, string(ws))
	return list, hob.Wrap("read provider keys", err)
}

// OpenProviderKeys gives the keys that open; one that does not is left out, so that the operator's is used.
func (s *DB) OpenProviderKeys(ctx context.Context, ws hob.WorkspaceID) ([]hob.ProviderKey, error) {
	list, err := recall(&s.configured, keysOf, ws, func() ([]hob.ProviderKey, error) {
		ctx, t := s.lookUp(ctx)
		rows, err := s.providerKeys(ctx, t, ws)
		if err != nil {
			return nil, err
		}
		list := make([]hob.ProviderKey, 0, len(rows))
		for _, x := range rows {
			if k, ok := s.openKey(ws, x); ok {
				list = append(list, k)
			}
		}
		return list, nil
	})
	return slices.Clone(list), err
}

// ProviderKeys lists the keys by provider, without their secrets. One that does not open is of no use to anybody and is
// deleted.
func (s *DB) ProviderKeys(ctx context.Context, by hob.Principal) ([]hob.ProviderKey, error) {
	if err := administer(by); err != nil {
		return nil, err
	}
	rows, err := s.providerKeys(ctx, s.read(), by.Workspace)
	if err != nil {
		return nil, err
	}
	list := make([]hob.ProviderKey, 0, len(rows))
	var dead []storedProviderKey
	for _, x := range rows {
		k, ok := s.openKey(by.Workspace, x)
		if !ok {
			dead = append(dead, x)
			continue
		}
		k.Key = ""
		list = append(list, k)
	}
	if len(dead) == 0 {
		return list, nil
	}
	err = s.configure(ctx, "delete provider keys that do not open", func(ctx context.Context, t *tx) error {
		for _, x := range dead { // unless it was replaced meanwhile
			n, err := t.exec(ctx, `DELETE FROM provider_keys WHERE id = ? AND sealed = ?`, x.ID, x.sealed)
			if err != nil {
				return err
			}
			if n > 0 {
				t.did(by, "provider_key.delete", "provider_key", x.Provider, providerKeyConfig(x.ProviderKey), nil).Rule = "it did not open"
			}
		}
		return nil
	})
	return list, err
}

// PutProviderKeys makes or replaces keys. One that reads as its mask stays what it is, as long as its address does:
// a secret that may not be read must not be sent elsewhere.
func (s *DB) PutProviderKeys(ctx context.Context, by hob.Principal, keys []hob.ProviderKey) ([]hob.ProviderKey, error) {
	if err := administer(by); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, k := range keys {
		switch {
		case k.Provider == "":
			return nil, hob.Errorf(hob.Invalid, "a provider key needs a provider").With("field", "provider")
		case seen[k.Provider]:
			return nil, hob.Errorf(hob.Invalid, "the provider %s is named twice", k.Provider).With("field", "provider")
		case k.Key == "" && k.BaseURL == "":
			return nil, hob.Errorf(hob.Invalid, "the provider %s needs a key or an address", k.Provider).With("field", k.Provider)
		}
		seen[k.Provider] = true
	}
	now := s.now()
	put := make([]hob.ProviderKey, 0, len(keys))
	err := s.configure(ctx, "keep provider keys", func(ctx context.Context, t *tx) error {
		put = put[:0]
		for _, k := range keys {
			before, err := t.providerKeyConfig(ctx, by.Workspace, k.Provider)
			if err != nil {
				return err
			}
			k, err := s.putProviderKey(ctx, t, by.Workspace, k, now)
			if err != nil {
				return err
			}
			t.did(by, "provider_key.put", "provider_key", k.Provider, before, providerKeyConfig(k))
			put = append(put, k)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return put, nil
}

// providerKeyConfig is what the digest of the stored key of a provider is made of, nil where none is stored.
func (t *tx) providerKeyConfig(ctx context.Context, ws hob.WorkspaceID, provider string) (any, error) {
	x, err := one(ctx, t, scanProviderKey, `SELECT `+providerKeyColumns+` FROM provider_keys WHERE workspace_id = ? AND provider = ?`,
		string(ws), storable(provider))
	if none(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if x.sealed != nil {
		x.MaskedKey = hob.Mask
	}
	return providerKeyConfig(x.ProviderKey), hob.Wrap("read a provider key", err)
}

// putProviderKey writes one key. A replaced one is changed later than it was made, if only by a microsecond, so that its
// maker can tell the two apart.
func (s *DB) putProviderKey(ctx context.Context, t *tx, ws hob.WorkspaceID, k hob.ProviderKey, now int64) (hob.ProviderKey, error) {
	const changed = `base_url = ?, is_valid = ?, last_validated_at = ?,
		updated_at = CASE WHEN provider_keys.created_at < ? THEN ? ELSE provider_keys.created_at + 1 END`
	provider := storable(k.Provider)
	change := []any{k.BaseURL, flag(k.IsValid), k.LastValidatedAt.Micros(), now, now}
	var x storedProviderKey
	var err error
	if masked(k.Key) {
		x, err = returning(ctx, t, scanProviderKey, `UPDATE provider_keys SET `+changed+`
			WHERE workspace_id = ? AND provider = ? AND base_url = ? AND sealed IS NOT NULL RETURNING `+providerKeyColumns,
			append(change, string(ws), provider, k.BaseURL)...)
		if none(err) {
			return k, hob.Errorf(hob.Invalid, "the key of %s is masked, but none is stored for this address; send the key itself", provider).
				With("field", provider)
		}
	} else {
		var sealed []byte
		if k.Key != "" {
			sealed = s.box.Seal(providerKeyPlace(ws, provider), []byte(k.Key))
		}
		x, err = returning(ctx, t, scanProviderKey, `INSERT INTO provider_keys (workspace_id, `+providerKeyColumns+`)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (workspace_id, provider) DO UPDATE SET sealed = excluded.sealed, `+changed+` RETURNING `+providerKeyColumns,
			append([]any{string(ws), hob.NewUUID(), provider, sealed, k.BaseURL, flag(k.IsValid), k.LastValidatedAt.Micros(), now, now}, change...)...)
	}
	if err != nil {
		return k, fmt.Errorf("%s: %w", provider, err)
	}
	kept, ok := s.openKey(ws, x)
	if !ok {
		return k, hob.Errorf(hob.Invalid, "the stored key of %s does not open any more; send the key itself", provider).With("field", provider)
	}
	kept.Key = ""
	return kept, nil
}

// DeleteProviderKey deletes a workspace's key of a provider; the operator's is used from then on.
func (s *DB) DeleteProviderKey(ctx context.Context, by hob.Principal, provider string) error {
	if err := administer(by); err != nil {
		return err
	}
	return s.configure(ctx, "delete a provider key", func(ctx context.Context, t *tx) error {
		before, err := t.providerKeyConfig(ctx, by.Workspace, provider)
		if err != nil {
			return err
		}
		n, err := t.exec(ctx, `DELETE FROM provider_keys WHERE workspace_id = ? AND provider = ?`, string(by.Workspace), provider)
		if err == nil && n == 0 {
			return hob.Errorf(hob.NotFound, "Provider key not found").WithCode("provider_key_not_found")
		}
		t.did(by, "provider_key.delete", "provider_key", provider, before, nil)
		return err
	})
}
