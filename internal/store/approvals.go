package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"hob"
	"hob/internal/seeded"
)

// approvalStatus is an approval's status as it reads: whoever waits too long has no answer, whether the run has noticed or
// not.
const approvalStatus = `CASE WHEN a.status = 'pending' AND a.expires_at BETWEEN 1 AND {now} THEN 'expired' ELSE a.status END`

const approvalFrom = ` FROM approvals a JOIN runs r ON r.n = a.run_n JOIN sessions s ON s.n = r.session_n`

const approvalQuery = `SELECT a.id, a.workspace_id, a.run_id, s.id, a.agent_id, a.owner, a.requested_by, a.approvers, a.four_eyes, a.hook_id,
	a.event, a.call_id, a.tool_name, a.input, a.output, a.preview, a.digest, a.message, ` + approvalStatus + `, a.reason, a.modified,
	a.decided_by, a.created_at, a.expires_at, a.decided_at, a.settled` + approvalFrom

func scanApproval(r row) (hob.Approval, error) {
	var a hob.Approval
	var approvers, input string
	var preview, modified []byte
	var fourEyes, settled, created, expires, decided int64
	err := r.Scan(&a.ApprovalID, &a.Workspace, &a.RunID, &a.SessionID, &a.AgentID, &a.Owner, &a.RequestedBy, &approvers, &fourEyes, &a.HookID,
		&a.HookEvent, &a.CallID, &a.ToolName, &input, &a.Output, &preview, &a.Digest, &a.Message, &a.Status, &a.Reason, &modified,
		&a.DecidedBy, &created, &expires, &decided, &settled)
	if err != nil {
		return a, err
	}
	a.ToolInput, a.Preview, a.ModifiedInput = json.RawMessage(input), preview, modified
	a.FourEyes, a.Settled = fourEyes != 0, settled != 0
	a.CreatedAt, a.ExpiresAt, a.DecidedAt = hob.FromMicros(created), hob.FromMicros(expires), hob.FromMicros(decided)
	if err := json.Unmarshal([]byte(approvers), &a.Approvers); err != nil {
		return a, fmt.Errorf("read the approvers of approval %s: %w", a.ApprovalID, err)
	}
	return a, nil
}

// orNull is a JSON value as it is stored where it may be missing.
func orNull(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	return string(raw)
}

// keepApproval writes an approval of a run's commit: a new one, or what became of one that is there. Whose the run is the
// row of the run says.
func keepApproval(ctx context.Context, t *tx, run hob.RunID, m place, a hob.Approval, now int64) error {
	if a.Status != hob.ApprovalPending {
		now, err := returning(ctx, t, scanText, `UPDATE approvals SET status = CASE WHEN status = 'pending' THEN ? ELSE status END,
			settled = CASE WHEN ? = 1 THEN 1 ELSE settled END WHERE run_n = ? AND id = ? RETURNING status`,
			string(a.Status), flag(a.Settled), m.n, a.ApprovalID)
		switch {
		case none(err):
			return nil
		case err == nil && a.Settled && now != string(a.Status): // the log would tell another end than whoever decided was told
			return hob.Errorf(hob.Fenced, "approval %s of run %s is %s by now, this commit tells that it is %s", a.ApprovalID, run, now, a.Status)
		}
		if a.RunID, a.Workspace = run, hob.WorkspaceID(m.ws); err == nil && now == string(a.Status) {
			switch a.Status { // a decision was noted when it was made
			case hob.ApprovalExpired:
				noteApproval(t, "approval.expire", m.by, &a)
			case hob.ApprovalCancelled:
				noteApproval(t, "approval.cancel", m.by, &a)
			case hob.ApprovalPending, hob.ApprovalApproved, hob.ApprovalDenied:
			}
		}
		return hob.Wrap("write what became of an approval", err)
	}
	a.RunID, a.Workspace = run, hob.WorkspaceID(m.ws)
	noteApproval(t, "approval.request", m.by, &a)
	if a.Approvers == nil {
		a.Approvers = []string{}
	}
	approvers, err := json.Marshal(a.Approvers)
	if err != nil {
		return fmt.Errorf("encode approvers: %w", err)
	}
	n, err := t.exec(ctx, `INSERT INTO approvals (id, workspace_id, run_n, run_id, agent_id, owner, requested_by, approvers, four_eyes, hook_id,
			event, call_id, tool_name, input, output, preview, digest, message, status, reason, modified, decided_by, created_at, expires_at,
			decided_at, settled)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', '', NULL, '', ?,
			CASE WHEN ? = 1 THEN {now} + ? ELSE 0 END, 0, ?)
		ON CONFLICT (id) DO UPDATE SET id = excluded.id WHERE approvals.run_n = excluded.run_n`,
		a.ApprovalID, m.ws, m.n, string(run), m.agent, ownerOf(m.by), m.by, string(approvers), flag(a.FourEyes), string(a.HookID),
		string(a.HookEvent), string(a.CallID), a.ToolName, string(object(a.ToolInput)), a.Output, orNull(a.Preview), a.Digest, a.Message,
		now, flag(a.Timeout > 0 && !seeded.Bug("never_expires")), a.Timeout.Microseconds(), flag(a.Settled))
	if err == nil && n == 0 {
		err = fmt.Errorf("another run has one with the id %s", a.ApprovalID)
	}
	return hob.Wrap("insert an approval", err)
}

// cancelApprovals cancels what a run that ended has asked people for.
func cancelApprovals(ctx context.Context, t *tx, run hob.RunID, m place) error {
	gone, err := many(ctx, t, scanText, `UPDATE approvals SET status = 'cancelled' WHERE run_n = ? AND status = 'pending' RETURNING id`, m.n)
	for _, id := range gone {
		noteApproval(t, "approval.cancel", m.by, &hob.Approval{ApprovalID: id, RunID: run, Workspace: hob.WorkspaceID(m.ws), Status: hob.ApprovalCancelled})
	}
	return err
}

// ownerOf is the owner that a starter's runs have, as hob.Principal.Owner.
func ownerOf(starter string) string {
	for _, kind := range []hob.PrincipalKind{hob.UserPrincipal, hob.KeyPrincipal} {
		if strings.HasPrefix(starter, string(kind)+":") {
			return starter
		}
	}
	return ""
}

// Approvals lists the approvals that the principal may see.
func (s *DB) Approvals(ctx context.Context, by hob.Principal, f hob.ApprovalFilter) (hob.Page[hob.Approval], error) {
	var page hob.Page[hob.Approval]
	w, err := approvalsFilter(by, f)
	if err != nil {
		return page, err
	}
	t := s.read()
	if page.Total, err = one(ctx, t, scanInt, `SELECT count(*)`+approvalFrom+w.String(), w.args...); err != nil {
		return page, hob.Wrap("count approvals", err)
	}
	limit, offset := window(f.Limit, f.Offset)
	page.Items, err = many(ctx, t, scanApproval, approvalQuery+w.String()+` ORDER BY a.n LIMIT ? OFFSET ?`, append(w.args, limit, offset)...)
	if err != nil {
		return page, hob.Wrap("list approvals", err)
	}
	var made makers
	for i := range page.Items {
		a := &page.Items[i]
		may := hob.MayDecide(by, a) == nil
		if may && (a.Status == hob.ApprovalPending || a.Output != "") {
			own, err := made.hasRequester(ctx, t, by, a)
			if err != nil {
				return page, err
			}
			may = !own
		}
		a.CanDecide = may && a.Status == hob.ApprovalPending
		if !may && by.Kind != hob.SystemPrincipal { // an answer that may be refused is for those who decide about it
			a.Output = ""
		}
	}
	return page, nil
}

// maxMakers is how far it is looked who made the key that made a key.
const maxMakers = 32

// makers are who made a principal's key, who made theirs, and so on, read once they are needed.
type makers struct {
	read bool
	list []string
}

// hasRequester says whether the principal's key comes of whoever started the run of an approval that needs four eyes: a
// second key in the same hand is no second pair. Keys that requester and approver were both given by somebody else are two.
func (m *makers) hasRequester(ctx context.Context, t *tx, by hob.Principal, a *hob.Approval) (_ bool, err error) {
	if !a.FourEyes || by.Kind != hob.KeyPrincipal && by.Kind != hob.ServicePrincipal {
		return false, nil
	}
	if !m.read {
		m.read = true
		m.list, err = many(ctx, t, scanText, `WITH RECURSIVE made (maker, depth) AS (
				SELECT created_by, 1 FROM keys WHERE workspace_id = ? AND id = ?
				UNION ALL
				SELECT k.created_by, depth + 1 FROM made JOIN keys k ON k.id = substr(maker, 5)
				WHERE maker LIKE 'key:%' AND k.workspace_id = ? AND depth < ?)
			SELECT maker FROM made`, string(by.Workspace), by.ID, string(by.Workspace), int64(maxMakers))
	}
	return slices.Contains(m.list, a.RequestedBy), hob.Wrap("look who made a key", err)
}

// approvalsFilter is the rule of hob.MaySee with what else narrows a list.
func approvalsFilter(by hob.Principal, f hob.ApprovalFilter) (*filter, error) {
	w := &filter{}
	w.where("a.workspace_id = ?", string(by.Workspace))
	for _, id := range []hob.AgentID{by.Agent, f.Agent} {
		if id != "" {
			w.where("a.agent_id = ?", strings.ToLower(string(id)))
		}
	}
	if f.ID != "" {
		w.where("a.id = ?", f.ID)
	}
	if f.Run != "" {
		w.where("r.id = ?", string(f.Run))
	}
	switch f.Status {
	case "":
	case hob.ApprovalPending:
		w.where("a.status = 'pending' AND (a.expires_at = 0 OR a.expires_at > {now})")
	case hob.ApprovalExpired:
		w.where("a.status IN ('expired', 'pending') AND (a.status = 'expired' OR a.expires_at BETWEEN 1 AND {now})")
	case hob.ApprovalApproved, hob.ApprovalDenied, hob.ApprovalCancelled:
		w.where("a.status = ?", string(f.Status))
	default:
		return nil, hob.Errorf(hob.Invalid, "Invalid status %q. Allowed: approved, cancelled, denied, expired, pending", f.Status).With("field", "status")
	}
	if by.SeesAll() {
		return w, nil
	}
	names := []string{by.Name()}
	if by.Has(hob.ScopeApprove) {
		names = append(names, hob.ApproverAny)
	}
	cond, args := "a.owner <> '' AND a.owner = ?", []any{by.Owner()}
	for _, name := range names {
		text, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("encode an approver: %w", err)
		}
		// What comes before a name in the list tells it from a quotation mark within another name.
		cond += " OR replace(replace(a.approvers, ?, ''), ?, '') <> a.approvers"
		args = append(args, "["+string(text), ","+string(text))
	}
	w.where("("+cond+")", args...)
	return w, nil
}

// Decide decides a pending approval and wakes its run where that rests. An approval is decided once, and not by asking
// again: whoever lost the answer is told that it is decided, by whom and when.
func (s *DB) Decide(ctx context.Context, by hob.Principal, d hob.Decision) (hob.Approval, error) {
	var a hob.Approval
	err := s.write(ctx, "decide an approval", func(ctx context.Context, t *tx) (err error) {
		var run heldRun
		if run, a, err = decidable(ctx, t, by, d); err != nil {
			return err
		}
		status := hob.ApprovalDenied
		if d.Approved {
			status = hob.ApprovalApproved
		}
		now := s.now()
		n, err := t.exec(ctx, `UPDATE approvals SET status = ?, reason = ?, modified = ?, decided_by = ?, decided_at = ?
			WHERE id = ? AND `+undecided(),
			string(status), d.Reason, orNull(d.ModifiedInput), by.Name(), now, a.ApprovalID)
		switch {
		case err != nil:
			return err
		case n == 0:
			a.Status = hob.ApprovalExpired
			return undecidable(a)
		}
		a.Status, a.Reason, a.ModifiedInput, a.DecidedBy, a.DecidedAt = status, d.Reason, d.ModifiedInput, by.Name(), hob.FromMicros(now)
		noteApproval(t, "approval.decide", by.Name(), &a)
		return wake(ctx, t, run.n)
	})
	if err != nil {
		return hob.Approval{}, err
	}
	s.e.news.tell(d.Run)
	return a, nil
}

// undecided is the condition under which an approval can be decided.
func undecided() string {
	if seeded.Bug("decide_twice") {
		return "1 = 1"
	}
	return `status = 'pending' AND (expires_at = 0 OR expires_at > {now})`
}

// heldRun is a run whose row the transaction holds.
type heldRun struct {
	n      int64
	status hob.Status
	cancel string
}

// decidable holds the run and reads the approval, if the principal may decide it and it can still be decided.
func decidable(ctx context.Context, t *tx, by hob.Principal, d hob.Decision) (heldRun, hob.Approval, error) {
	run, err := one(ctx, t, func(r row) (x heldRun, err error) { err = r.Scan(&x.n, &x.status, &x.cancel); return x, err },
		`SELECT n, status, cancel_code FROM runs WHERE id = ? AND workspace_id = ?`+held(true), string(d.Run), string(by.Workspace))
	if err != nil {
		return run, hob.Approval{}, found(err, hob.ApprovalObject, "hold a run")
	}
	a, err := one(ctx, t, scanApproval, approvalQuery+` WHERE a.run_n = ? AND a.id = ?`, run.n, d.Approval)
	if err != nil {
		return run, a, found(err, hob.ApprovalObject, "read an approval")
	}
	if err := hob.MayDecide(by, &a); err != nil {
		return run, a, err
	}
	switch own, err := new(makers).hasRequester(ctx, t, by, &a); {
	case err != nil:
		return run, a, err
	case own:
		return run, a, hob.Errorf(hob.Forbidden, "this approval needs somebody else than who started the run, and who started it made your key").
			WithCode("four_eyes")
	}
	if a.Status == hob.ApprovalPending && (run.cancel != "" || run.status.Final()) {
		a.Status = hob.ApprovalCancelled
	}
	if a.Status != hob.ApprovalPending && !seeded.Bug("decide_twice") {
		return run, a, undecidable(a)
	}
	return run, a, nil
}

// undecidable says why an approval cannot be decided any more.
func undecidable(a hob.Approval) error {
	text, code := "this approval was decided already", "approval_decided"
	switch a.Status {
	case hob.ApprovalExpired:
		text, code = "this approval has expired", "approval_expired"
	case hob.ApprovalCancelled:
		text, code = "this approval is not needed any more: the run ended, is being cancelled, or goes on without it", "approval_cancelled"
	case hob.ApprovalPending, hob.ApprovalApproved, hob.ApprovalDenied:
	}
	return hob.Errorf(hob.Conflict, "%s", text).WithCode(code).
		With("status", a.Status).With("decided_by", a.DecidedBy).With("decided_at", a.DecidedAt)
}
