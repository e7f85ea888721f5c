package store

import (
	"context"

	"hob"
)

// HeldRuns lists the runs that a restore brought back unfinished and that nobody has let go yet.
func (s *DB) HeldRuns(ctx context.Context, by hob.Principal) ([]hob.Run, error) {
	if err := administer(by); err != nil {
		return nil, err
	}
	list, err := many(ctx, s.read(), scanRun, `SELECT `+runColumns+runFrom+`
		WHERE r.n IN `+unfinished+` AND r.held = 1 AND r.workspace_id = ? ORDER BY r.n`, string(by.Workspace))
	if err != nil {
		return nil, hob.Wrap("list held runs", err)
	}
	out := make([]hob.Run, len(list))
	for i, x := range list {
		out[i] = x.Run
	}
	return out, nil
}

// ReleaseHeld lets held runs go on: whoever looks for abandoned runs next takes them up. An id that no run of the workspace
// has is NotFound, and then none is released; one of a run that is not held, or not any more, changes nothing.
func (s *DB) ReleaseHeld(ctx context.Context, by hob.Principal, runs ...hob.RunID) (int64, error) {
	if err := administer(by); err != nil {
		return 0, err
	}
	var f filter
	f.where("workspace_id = ?", string(by.Workspace))
	if len(runs) > 0 {
		in, args := inList(runIDs(runs))
		f.where("id IN "+in, args...)
	}
	f.where("completed_at = 0 AND held = 1 AND n IN " + unfinished)
	var n int64
	err := s.write(ctx, "release held runs", func(ctx context.Context, t *tx) (err error) {
		for _, id := range runs {
			_, err := one(ctx, t, scanInt, `SELECT n FROM runs WHERE id = ? AND workspace_id = ?`, string(id), string(by.Workspace))
			if none(err) {
				return absentRun().With("run_id", id)
			}
			if err != nil {
				return err
			}
		}
		free, err := many(ctx, t, scanText, `UPDATE runs SET held = 0`+f.String()+` RETURNING id`, f.args...)
		for _, id := range free {
			t.did(by, "run.release", "run", id, nil, nil).Run = hob.RunID(id)
		}
		n = int64(len(free))
		t.wrote = t.wrote || n > 0
		return err
	})
	if err != nil {
		return 0, err
	}
	if n > 0 {
		s.e.news.tell()
	}
	return n, nil
}
