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
		WHERE r.completed_at = 0 AND r.held = 1 AND r.workspace_id = ? ORDER BY r.n`, string(by.Workspace))
	if err != nil {
		return nil, hob.Wrap("list held runs", err)
	}
	out := make([]hob.Run, len(list))
	for i, x := range list {
		out[i] = x.Run
	}
	return out, nil
}

// ReleaseHeld lets held runs go on: whoever looks for abandoned runs next takes them up.
func (s *DB) ReleaseHeld(ctx context.Context, by hob.Principal, runs ...hob.RunID) (int64, error) {
	if err := administer(by); err != nil {
		return 0, err
	}
	var f filter
	f.where("held = 1 AND completed_at = 0 AND workspace_id = ?", string(by.Workspace))
	if len(runs) > 0 {
		in, args := inList(runIDs(runs))
		f.where("id IN "+in, args...)
	}
	var n int64
	err := s.write(ctx, "release held runs", func(ctx context.Context, t *tx) (err error) {
		n, err = t.exec(ctx, `UPDATE runs SET held = 0`+f.String(), f.args...)
		return err
	})
	if n > 0 {
		s.e.news.tell()
	}
	return n, err
}
