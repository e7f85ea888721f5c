package store

import (
	"context"
	"fmt"
	"maps"

	"hob"
	"hob/internal/seal"
)

// storedSetting is a row of a workspace's settings.
type storedSetting struct {
	key    string
	sealed []byte
	hob.StoredSetting
}

func scanSetting(r row) (x storedSetting, err error) {
	err = r.Scan(&x.key, &x.Value, &x.sealed)
	x.Secret = x.sealed != nil
	return x, err
}

func settingPlace(ws hob.WorkspaceID, key string) string {
	return seal.Context("settings", string(ws)+"/"+key, "value")
}

// StoredSettings gives what a workspace changed. A secret that does not open is left out, so that the operator's value
// or the default holds until somebody sets it anew.
func (s *DB) StoredSettings(ctx context.Context, ws hob.WorkspaceID) (map[string]hob.StoredSetting, error) {
	all, err := recall(&s.configured, settingsOf, ws, func() (map[string]hob.StoredSetting, error) {
		ctx, t := s.lookUp(ctx)
		rows, err := many(ctx, t, scanSetting, `SELECT key, value, sealed FROM settings WHERE workspace_id = ?`, string(ws))
		if err != nil {
			return nil, hob.Wrap("read settings", err)
		}
		all := make(map[string]hob.StoredSetting, len(rows))
		for _, x := range rows {
			if x.Secret {
				plain, err := s.box.Open(settingPlace(ws, x.key), x.sealed)
				if err != nil {
					continue
				}
				x.Value = string(plain)
			}
			all[x.key] = x.StoredSetting
		}
		return all, nil
	})
	return maps.Clone(all), err
}

// ChangeSettings writes settings and removes those that are nil. A secret that reads as its mask stays as it is.
func (s *DB) ChangeSettings(ctx context.Context, by hob.Principal, change map[string]*hob.StoredSetting) error {
	if err := administer(by); err != nil {
		return err
	}
	for key := range change {
		if key == "" {
			return hob.Errorf(hob.Invalid, "a setting needs a key").With("field", "key")
		}
	}
	now := s.now()
	return s.configure(ctx, "change settings", func(ctx context.Context, t *tx) error {
		for key, value := range change {
			if err := s.changeSetting(ctx, t, by, key, value, now); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		return nil
	})
}

func (s *DB) changeSetting(ctx context.Context, t *tx, by hob.Principal, key string, v *hob.StoredSetting, now int64) error {
	ws, key := by.Workspace, storable(key)
	var before *storedSetting
	found, err := one(ctx, t, scanSetting, `SELECT key, value, sealed FROM settings WHERE workspace_id = ? AND key = ?`, string(ws), key)
	switch {
	case err == nil:
		before = &found
	case !none(err):
		return err
	}
	if v == nil {
		n, err := t.exec(ctx, `DELETE FROM settings WHERE workspace_id = ? AND key = ?`, string(ws), key)
		if n > 0 {
			t.did(by, "setting.change", "setting", key, settingConfig(before), nil)
		}
		return err
	}
	open, sealed := v.Value, []byte(nil)
	if v.Secret {
		if masked(hob.Secret(v.Value)) {
			return nil
		}
		open, sealed = "", s.box.Seal(settingPlace(ws, key), []byte(v.Value))
	}
	t.did(by, "setting.change", "setting", key, settingConfig(before), settingConfig(&storedSetting{key: key, StoredSetting: *v}))
	_, err = t.exec(ctx, `INSERT INTO settings (workspace_id, key, value, sealed, updated_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (workspace_id, key) DO UPDATE SET value = excluded.value, sealed = excluded.sealed, updated_at = excluded.updated_at`,
		string(ws), key, open, sealed, now)
	return err
}
