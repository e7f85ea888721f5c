package store

import (
	"context"
	"encoding/json"
	"strings"

	"hob"
)

func scanAudit(r row) (e hob.AuditEntry, err error) {
	var at int64
	var detail string
	err = r.Scan(&e.Workspace, &e.N, &at, &e.Actor, &e.Object, &e.Run, &e.Call, &e.Prev, &e.Hash, &e.Action, &e.Kind, &e.Digest,
		&e.Decision, &detail, &e.Before, &e.After, &e.Rule, &e.Request, &e.Address)
	e.At = hob.FromMicros(at)
	if detail != "" {
		e.Detail = json.RawMessage(detail)
	}
	return e, err
}

// auditor says why a principal may not read the audit log; nil: it may.
func auditor(by hob.Principal) error {
	switch {
	case by.Agent != "":
		return hob.Errorf(hob.Forbidden, "your key is bound to one agent; the audit log belongs to the whole workspace").WithCode("key_bound")
	case !by.Has(hob.ScopeAdmin):
		return hob.Errorf(hob.Forbidden, "this needs the scope %q, which your key or role does not have", hob.ScopeAdmin).WithCode("scope_missing")
	}
	return hob.Can(by, hob.ScopeAdmin, hob.Object{Kind: hob.KeyObject, Workspace: by.Workspace})
}

// Audit lists entries of the principal's workspace. What is not linked yet is linked first, so that nothing that was told
// to have happened is missing.
func (s *DB) Audit(ctx context.Context, by hob.Principal, f hob.AuditFilter) ([]hob.AuditEntry, error) {
	if err := auditor(by); err != nil {
		return nil, err
	}
	if err := s.linkLoose(ctx); err != nil {
		return nil, err
	}
	q, order := auditFilter(f), "ASC"
	if f.Newest {
		order = "DESC"
	}
	q.where("workspace_id = ?", string(by.Workspace))
	limit, _ := window(f.Limit, 0)
	list, err := many(ctx, s.read(), scanAudit, `SELECT `+auditColumns+` FROM audit`+q.String()+` ORDER BY place `+order+` LIMIT ?`,
		append(q.args, limit)...)
	return list, hob.Wrap("read the audit log", err)
}

func auditFilter(f hob.AuditFilter) *filter {
	q := &filter{}
	q.where("place > 0")
	if f.After > 0 {
		q.where("place > ?", f.After)
	}
	if f.Before > 0 {
		q.where("place < ?", f.Before)
	}
	if prefix, ok := strings.CutSuffix(f.Action, "*"); ok {
		q.where("action >= ?", prefix)
		if end := behind(prefix); end != "" {
			q.where("action < ?", end)
		}
	} else if f.Action != "" {
		q.where("action = ?", f.Action)
	}
	for _, c := range []struct{ cond, value string }{
		{"actor = ?", f.Actor}, {"kind = ?", f.Kind}, {"object = ?", f.Object}, {"run_id = ?", string(f.Run)},
	} {
		if c.value != "" {
			q.where(c.cond, c.value)
		}
	}
	if f.Run != "" { // between its first and its last, which alone have an index
		const ends = `FROM audit WHERE run_id = ? AND action IN ('run.start', 'run.end') AND place > 0 AND action = `
		q.where(`place >= coalesce((SELECT min(place) `+ends+`'run.start'), 0)`, string(f.Run))
		q.where(`place <= coalesce((SELECT max(place) `+ends+`'run.end'), (SELECT max(place) FROM audit))`, string(f.Run))
	}
	if !f.Since.IsZero() {
		q.where("at >= ?", f.Since.Micros())
	}
	if !f.Until.IsZero() {
		q.where("at < ?", f.Until.Micros())
	}
	return q
}
