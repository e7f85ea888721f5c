package store

import (
	"context"

	"hob"
)

func (s *DB) Audit(ctx context.Context, by hob.Principal, f hob.AuditFilter) ([]hob.AuditEntry, error) {
	return nil, nil
}
func (s *DB) NoteAudit(ctx context.Context, by hob.Principal, a hob.AuditEntry) error { return nil }
