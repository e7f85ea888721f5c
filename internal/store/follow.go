package store

import (
	"context"
	"time"

	"hob"
)

// Follow notes a reader of a run that another process drives.
func (s *DB) Follow(ctx context.Context, id hob.RunID, d time.Duration) error {
	return s.write(ctx, "note a reader", func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `UPDATE runs SET read_until = {now} + ? WHERE id = ? AND completed_at = 0`, d.Microseconds(), string(id))
		return err
	})
}

// Followed says whether a reader is noted.
func (s *DB) Followed(ctx context.Context, id hob.RunID) (bool, error) {
	ctx, t := s.lookUp(ctx)
	n, err := one(ctx, t, scanInt, `SELECT count(*) FROM runs WHERE id = ? AND read_until > {now}`, string(id))
	return n > 0, hob.Wrap("look for readers", err)
}
