package store

import (
	"context"
	"encoding/json"
	"slices"

	"hob"
)

func scanProfile(r row) (p hob.ModelProfile, err error) {
	var facts string
	var tested int64
	err = r.Scan(&p.Endpoint, &p.Model, &facts, &tested)
	p.Facts, p.TestedAt = json.RawMessage(facts), hob.FromMicros(tested)
	return p, err
}

// Profiles lists what was found out about models, by endpoint and model.
func (s *DB) Profiles(ctx context.Context) ([]hob.ModelProfile, error) {
	list, err := recall(&s.configured, profilesOf, everybody{}, func() ([]hob.ModelProfile, error) {
		list, err := many(ctx, s.read(), scanProfile, `SELECT endpoint, model, facts, tested_at FROM model_profiles ORDER BY endpoint, model`)
		return list, hob.Wrap("read model profiles", err)
	})
	return slices.Clone(list), err
}

// PutProfile keeps what was found out about a model and forgets what was found before. It was tested now where it does
// not say when.
func (s *DB) PutProfile(ctx context.Context, by hob.Principal, p hob.ModelProfile) error {
	if err := administer(by); err != nil {
		return err
	}
	p.Facts = object(p.Facts)
	switch {
	case p.Endpoint == "":
		return hob.Errorf(hob.Invalid, "a model profile needs an endpoint").With("field", "endpoint")
	case p.Model == "":
		return hob.Errorf(hob.Invalid, "a model profile needs a model").With("field", "model")
	case p.Facts[0] != '{' || !json.Valid(p.Facts):
		return hob.Errorf(hob.Invalid, "the facts of a model profile must be a JSON object").With("field", "facts")
	case p.TestedAt.IsZero():
		p.TestedAt = hob.FromMicros(s.now())
	}
	return s.configure(ctx, "keep a model profile", func(ctx context.Context, t *tx) error {
		t.did(by, "model_profile.put", "model_profile", p.Model, nil, p.Facts).Detail = details("endpoint", p.Endpoint)
		_, err := t.exec(ctx, `INSERT INTO model_profiles (endpoint, model, facts, tested_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (endpoint, model) DO UPDATE SET facts = excluded.facts, tested_at = excluded.tested_at`,
			p.Endpoint, p.Model, string(p.Facts), p.TestedAt.Micros())
		return err
	})
}

// DeleteProfile forgets what was found out about a model; it is NotFound where nothing was.
func (s *DB) DeleteProfile(ctx context.Context, by hob.Principal, endpoint, model string) error {
	if err := administer(by); err != nil {
		return err
	}
	return s.configure(ctx, "delete a model profile", func(ctx context.Context, t *tx) error {
		n, err := t.exec(ctx, `DELETE FROM model_profiles WHERE endpoint = ? AND model = ?`, endpoint, model)
		if err == nil && n == 0 {
			return hob.Errorf(hob.NotFound, "Model profile not found").WithCode("profile_not_found")
		}
		t.did(by, "model_profile.delete", "model_profile", model, nil, nil).Detail = details("endpoint", endpoint)
		return err
	})
}
