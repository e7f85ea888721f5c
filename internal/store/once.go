package store

import (
	"context"
	"fmt"

	"hob"
	"hob/internal/seal"
)

// Once carries out a creating request and keeps its answer in the same transaction.
func (s *DB) Once(ctx context.Context, key hob.Idempotency, do func(context.Context, hob.Store) (hob.Answer, error)) (a hob.Answer, replayed bool, err error) {
	if key.Scope == "" || key.Key == "" {
		return a, false, fmt.Errorf("carry out once: a scope and a key are needed")
	}
	defer s.configured.forget() // do may have changed what it remembers
	err = s.write(ctx, "carry out once", func(ctx context.Context, t *tx) (err error) {
		if err = s.aloneWith(ctx, t, key); err != nil {
			return err
		}
		a, replayed, err = s.answered(ctx, t, key)
		if err != nil || replayed {
			return err
		}
		if a, err = do(ctx, s.within(t)); err != nil {
			return err
		}
		return s.keepAnswer(ctx, t, key, a)
	})
	if err != nil {
		return hob.Answer{}, false, err
	}
	return a, replayed, nil
}

// within is the store inside a transaction: what it writes becomes durable with that. It remembers nothing.
func (s *DB) within(t *tx) *DB {
	return &DB{
		d: s.d, box: s.box, clock: s.clock, texts: s.texts,
		e: &engine{
			reads: t.q,
			write: func(ctx context.Context, fn func(context.Context, *tx) error) error { return fn(ctx, t) },
			ping:  func(context.Context) error { return nil },
			close: func() error { return nil },
			stats: s.e.stats,
		},
	}
}

// aloneWith waits for the transactions that carry out the same key. Two at once would both find no answer, and the second
// would be refused what the first one made: the name is taken then.
func (s *DB) aloneWith(ctx context.Context, t *tx, key hob.Idempotency) error {
	if s.d.alone == "" {
		return nil
	}
	_, err := one(ctx, t, scanInt, s.d.alone, key.Scope+"/"+key.Key)
	return hob.Wrap("wait for an idempotency key", err)
}

// answered looks for the answer that the same key got before.
func (s *DB) answered(ctx context.Context, t *tx, key hob.Idempotency) (a hob.Answer, found bool, err error) {
	type kept struct {
		digest string
		status int
		sealed []byte
	}
	k, err := one(ctx, t, func(r row) (k kept, err error) { err = r.Scan(&k.digest, &k.status, &k.sealed); return k, err },
		`SELECT digest, status, sealed FROM answers WHERE scope = ? AND key = ? AND expires_at > ?`, key.Scope, key.Key, s.now())
	switch {
	case none(err):
		return a, false, nil
	case err != nil:
		return a, false, fmt.Errorf("look up an idempotency key: %w", err)
	case k.digest != storable(key.Digest):
		return a, false, keyReused()
	}
	body, err := s.box.Open(answerPlace(key), k.sealed)
	if err != nil {
		return a, false, fmt.Errorf("open a kept answer: %w", err)
	}
	return hob.Answer{Status: k.status, Body: body}, true, nil
}

// keepAnswer binds an answer to its key. Where another transaction took the key in the meantime all is done over, and
// finds its answer.
func (s *DB) keepAnswer(ctx context.Context, t *tx, key hob.Idempotency, a hob.Answer) error {
	now := s.now()
	n, err := t.exec(ctx, `INSERT INTO answers (scope, key, digest, status, sealed, expires_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (scope, key) DO UPDATE SET digest = excluded.digest, status = excluded.status, sealed = excluded.sealed,
			expires_at = excluded.expires_at
		WHERE answers.expires_at <= ?`,
		key.Scope, key.Key, key.Digest, int64(a.Status), s.box.Seal(answerPlace(key), a.Body), now+key.Keep.Microseconds(), now)
	if err == nil && n == 0 {
		return errAgain
	}
	return hob.Wrap("keep an answer", err)
}

func answerPlace(key hob.Idempotency) string {
	return seal.Context("answers", key.Scope+"/"+key.Key, "body")
}

func keyReused() error {
	return hob.Errorf(hob.Unprocessable, "this Idempotency-Key was used with another request; use a new key for a new request").
		WithCode("idempotency_key_reused")
}
