package store

import (
	"context"

	"hob"
)

func (s *DB) Approvals(ctx context.Context, by hob.Principal, f hob.ApprovalFilter) (hob.Page[hob.Approval], error) {
	return hob.Page[hob.Approval]{}, nil
}
func (s *DB) Decide(ctx context.Context, by hob.Principal, d hob.Decision) (hob.Approval, error) {
	return hob.Approval{}, hob.Errorf(hob.Unavailable, "not built yet")
}
