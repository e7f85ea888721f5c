package store

import (
	"context"

	"hob"
)

// overwrite makes room for a commit in the midst of a log. It belongs to the planted fault skip_fence, under which the
// last writer wins; programs for use do not call it.
func overwrite(ctx context.Context, t *tx, c hob.RunCommit, run int64) error {
	if len(c.Events) > 0 {
		if _, err := t.exec(ctx, `DELETE FROM run_events WHERE run_n = ? AND seq >= ?`, run, c.Events[0].Seq); err != nil {
			return hob.Wrap("overwrite events", err)
		}
	}
	if len(c.Messages) > 0 {
		if _, err := t.exec(ctx, `DELETE FROM messages WHERE run_n = ? AND idx >= ?`, run, int64(c.Base)); err != nil {
			return hob.Wrap("overwrite messages", err)
		}
	}
	return nil
}
