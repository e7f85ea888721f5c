package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"hob"
	"hob/internal/seeded"
)

// How many columns the rows have.
const (
	eventWidth   = 5
	messageWidth = 6
	callWidth    = 16
	usageWidth   = 20
)

// texts are the statements that are put together from parts, made once so that each is prepared once.
type texts struct {
	events, messages, calls, usage, links *bulk
	audit                                 auditTexts
	// moves are the fenced updates that begin every commit: by the state the commit leaves the run in, "" for none, with
	// and without events, with and without messages.
	moves map[move]string
}

func newTexts() texts {
	return texts{
		events:   newBulk(`INSERT INTO run_events (run_n, seq, type, ts, data)`, eventWidth, ""),
		messages: newBulk(`INSERT INTO messages (run_n, idx, role, chars, text, body)`, messageWidth, ""),
		calls: newBulk(`INSERT INTO tool_calls (`+callColumns+`)`, callWidth, ` ON CONFLICT (run_n, call_id) DO UPDATE SET
			step = excluded.step, idx = excluded.idx, name = excluded.name, arguments = excluded.arguments,
			status = excluded.status, recovery = excluded.recovery, attempt = excluded.attempt, result = excluded.result,
			is_error = excluded.is_error, is_unknown = excluded.is_unknown, started_at = excluded.started_at,
			ended_at = excluded.ended_at, action = excluded.action, free = excluded.free`),
		usage: newBulk(`INSERT INTO usage (workspace_id, started_by, agent_id, run_id, run_n, component, model, step, prompt_tokens,
			completion_tokens, reasoning_tokens, cached_tokens, total_tokens, estimated, action, quantity, cost, unpriced,
			created_at, tool)`, usageWidth, ""),
		audit: newAuditTexts(),
		links: newLinks(),
		moves: newMoves(),
	}
}

type move struct {
	status   hob.Status
	events   bool
	messages bool // the run got on
}

func newMoves() map[move]string {
	all := []hob.Status{hob.Queued, hob.Running, hob.AwaitingApproval, hob.Completed, hob.Failed, hob.Cancelled}
	m := map[move]string{}
	for _, next := range append(all, "") {
		for _, events := range []bool{false, true} {
			for _, messages := range []bool{false, true} {
				to := move{next, events, messages}
				m[to] = moveText(to, all)
			}
		}
	}
	return m
}

// moveText is one of them; moveArgs gives its arguments.
func moveText(to move, all []hob.Status) string {
	next := to.status
	set, where := "lease_until = {now} + ?", "n = ? AND id = ? AND epoch = ? AND completed_at = 0"
	switch {
	case rests(next):
		set = "lease_owner = '', lease_until = 0"
	case next != "": // it is driven again; while it is, the owner stays, and with it the index that names it
		set += ", lease_owner = ?, woken = 0, wake_at = 0"
	}
	if next.Final() {
		set += ", completed_at = ?"
	}
	if to.messages {
		set += ", stalls = 0"
	}
	if to.events {
		set += ", last_seq = ?"
		where += " AND last_seq = ?"
	}
	if next != "" {
		var from []string
		for _, s := range all {
			if s.CanBecome(next) || s == next {
				from = append(from, "'"+string(s)+"'")
			}
		}
		set += ", status = '" + string(next) + "'"
		where += " AND status IN (" + strings.Join(from, ", ") + ")"
	}
	if seeded.Bug("skip_fence") {
		where = strings.NewReplacer("epoch = ?", "(epoch = ? OR 1 = 1)", "last_seq = ?", "(last_seq = ? OR 1 = 1)").Replace(where)
	}
	return "UPDATE runs SET " + set + " WHERE " + where
}

// rests says whether nobody drives a run in this state.
func rests(s hob.Status) bool { return s.Final() || s == hob.Queued || s == hob.AwaitingApproval }

func moveArgs(c hob.RunCommit, n int64, next hob.Status, now int64) []any {
	args := make([]any, 0, 9)
	if !rests(next) {
		args = append(args, c.Lease.Microseconds())
		if next != "" {
			args = append(args, c.Owner)
		}
	}
	if next.Final() {
		args = append(args, now)
	}
	if len(c.Events) > 0 {
		args = append(args, c.Events[len(c.Events)-1].Seq)
	}
	args = append(args, n, string(c.Run), c.Epoch)
	if len(c.Events) > 0 {
		args = append(args, c.Events[0].Seq-1)
	}
	return args
}

// place is what every commit of a run needs to know of it and nothing changes.
type place struct {
	n             int64
	ws, by, agent string
}

func scanPlace(r row) (m place, err error) {
	err = r.Scan(&m.n, &m.ws, &m.by, &m.agent)
	return m, err
}

// Commit writes one step of a run. It is fenced where another process has claimed the run, where the run has ended or was
// deleted, and where the events do not count on from the last one. The owner is written with Outcome Running alone: as
// long as a run is driven on, it has the one that started or claimed it.
func (s *DB) Commit(ctx context.Context, c hob.RunCommit) error {
	if len(c.Events) > 0 {
		if err := numbered(c.Events, c.Events[0].Seq); err != nil {
			return err
		}
	}
	var next hob.Status
	if c.Outcome != nil {
		next = c.Outcome.Status
	}
	text, ok := s.texts.moves[move{next, len(c.Events) > 0, len(c.Messages) > 0}]
	if !ok {
		return fmt.Errorf("commit run %s: there is no state %q", c.Run, next)
	}
	if c.Summary != nil && (c.Summary.Index < 0 || c.Summary.Text == "") {
		return fmt.Errorf("commit run %s: a summary needs a text and an index of 0 or more, not %d", c.Run, c.Summary.Index)
	}
	messages, err := commitMessages(c)
	if err != nil {
		return err
	}
	now := s.now()
	err = s.write(ctx, "commit a run's step", func(ctx context.Context, t *tx) error {
		m, err := s.place(ctx, t, c.Run)
		if err != nil {
			return err
		}
		n, err := t.exec(ctx, text, moveArgs(c, m.n, next, now)...)
		if err != nil {
			return fmt.Errorf("fence a commit: %w", err)
		}
		if n == 0 {
			return s.fenced(ctx, t, c, next)
		}
		return s.writeStep(ctx, t, c, m, messages, now)
	})
	if err != nil || next.Final() {
		s.places.drop(c.Run)
	}
	if err == nil && (len(c.Events) > 0 || next != "") {
		s.e.news.tell(c.Run)
	}
	return err
}

// place is where a run's rows are. It never changes while the run is there, so it is read once.
func (s *DB) place(ctx context.Context, t *tx, id hob.RunID) (place, error) {
	if m, ok := s.places.get(id); ok {
		return m, nil
	}
	m, err := one(ctx, t, scanPlace, `SELECT n, workspace_id, started_by, agent_id FROM runs WHERE id = ?`, string(id))
	if none(err) {
		return m, hob.Errorf(hob.Fenced, "run %s is not there any more", id)
	}
	if err != nil {
		return m, fmt.Errorf("find a run: %w", err)
	}
	s.places.put(id, m)
	return m, nil
}

// commitMessages are the rows of the commit's messages, with 0 for the number of the run.
func commitMessages(c hob.RunCommit) (args []any, err error) {
	for i, m := range c.Messages {
		if args, err = messageArgs(args, 0, c.Base+i, m); err != nil {
			return nil, err
		}
	}
	return args, nil
}

func (s *DB) writeStep(ctx context.Context, t *tx, c hob.RunCommit, m place, messages []any, now int64) error {
	if seeded.Bug("skip_fence") {
		if err := overwrite(ctx, t, c, m.n); err != nil {
			return err
		}
	}
	if err := s.texts.events.insert(ctx, t, eventArgs(m.n, c.Events)); err != nil {
		return fmt.Errorf("insert events: %w", err)
	}
	for i := 0; i < len(messages); i += messageWidth {
		messages[i] = m.n
	}
	if err := s.texts.messages.insert(ctx, t, messages); err != nil {
		return fmt.Errorf("insert messages: %w", err)
	}
	if len(c.Calls) > 0 {
		if err := s.texts.calls.insert(ctx, t, callArgs(m.n, c.Calls)); err != nil {
			return fmt.Errorf("insert calls: %w", err)
		}
	}
	if len(c.Usage) > 0 {
		if err := s.texts.usage.insert(ctx, t, usageArgs(m, c.Run, c.Usage, now)); err != nil {
			return fmt.Errorf("insert usage: %w", err)
		}
	}
	if c.Summary != nil {
		if _, err := t.exec(ctx, `INSERT INTO summaries (session_n, turn, idx, text, created_at)
			SELECT session_n, CASE WHEN ? BETWEEN 1 AND turn THEN ? ELSE turn END, ?, ?, ? FROM runs WHERE n = ?`,
			c.Summary.Turn, c.Summary.Turn, int64(c.Summary.Index), c.Summary.Text, now, m.n); err != nil {
			return fmt.Errorf("insert a summary: %w", err)
		}
	}
	if err := writePeople(ctx, t, c, m, now); err != nil {
		return err
	}
	return writeOutcome(ctx, t, c.Run, m, c.Outcome)
}

// writePeople writes what a step has to do with people and hooks. Most steps have nothing of it.
func writePeople(ctx context.Context, t *tx, c hob.RunCommit, m place, now int64) error {
	if c.Rewrite != nil {
		if err := rewrite(ctx, t, m.n, *c.Rewrite); err != nil {
			return err
		}
	}
	for _, a := range c.Approvals {
		if err := keepApproval(ctx, t, c.Run, m, a, now); err != nil {
			return err
		}
	}
	for _, d := range c.Deliveries {
		if err := queueDelivery(ctx, t, c.Run, m, d, now); err != nil {
			return err
		}
	}
	noteStep(t, c, m)
	return nil
}

// rewrite puts a message in the place of the run's last one.
func rewrite(ctx context.Context, t *tx, run int64, m hob.Message) error {
	row, err := messageArgs(nil, run, 0, m)
	if err != nil {
		return err
	}
	n, err := t.exec(ctx, `UPDATE messages SET role = ?, chars = ?, text = ?, body = ?
		WHERE run_n = ? AND idx = (SELECT max(idx) FROM messages WHERE run_n = ?)`, append(row[2:], run, run)...)
	if err == nil && n == 0 {
		err = errors.New("the run has none")
	}
	return hob.Wrap("rewrite a run's last message", err)
}

// writeOutcome notes how a run ended or why it rests; nothing where the commit leaves it under way. What a run that ended
// has asked people for is not wanted any more.
func writeOutcome(ctx context.Context, t *tx, id hob.RunID, m place, o *hob.Outcome) error {
	if o == nil {
		return nil
	}
	run := m.n
	usage, err := json.Marshal(o.Usage)
	if err != nil {
		return fmt.Errorf("encode a run's usage: %w", err)
	}
	pending, err := returning(ctx, t, scanInt, `UPDATE run_details SET code = ?, error = ?, content = ?, steps = ?, token_usage = ?
		WHERE run_n = ? RETURNING (SELECT count(*) FROM approvals WHERE approvals.run_n = run_details.run_n AND status = 'pending')`,
		o.Code, o.Error, o.Content, int64(o.Steps), string(usage), run)
	switch {
	case err != nil:
		return hob.Wrap("write a run's outcome", err)
	case o.Status == hob.AwaitingApproval:
		return rest(ctx, t, run, o.Wake)
	case o.Status.Final() && pending > 0:
		err = cancelApprovals(ctx, t, id, m)
	}
	return hob.Wrap("cancel a run's approvals", err)
}

// rest says when a run that rests is taken up at the latest. It does not rest at all where it would wait for what is there
// already. That is looked at here, behind the commit's first statement: whoever decides holds the run's row, so that it
// either came before and is seen, or comes after and finds the run at rest.
func rest(ctx context.Context, t *tx, run int64, after time.Duration) error {
	look := run
	if seeded.Bug("rest_blind") {
		look = 0
	}
	_, err := t.exec(ctx, `UPDATE runs SET woken = 1,
		status = CASE WHEN cancel_code <> '' OR EXISTS (SELECT 1 FROM approvals WHERE run_n = ? AND settled = 0 AND
			(status <> 'pending' OR expires_at BETWEEN 1 AND {now})) THEN 'queued' ELSE status END,
		wake_at = (SELECT coalesce(min(at), 0) FROM (
			SELECT expires_at AS at FROM approvals WHERE run_n = ? AND status = 'pending' AND expires_at > 0
			UNION ALL SELECT {now} + ? WHERE ? = 1) AS x)
		WHERE n = ?`, look, run, after.Microseconds(), flag(after > 0), run)
	return hob.Wrap("lay a run to rest", err)
}

// fenced tells why a commit was not let in.
func (s *DB) fenced(ctx context.Context, t *tx, c hob.RunCommit, next hob.Status) error {
	type state struct {
		status     hob.Status
		epoch, seq int64
	}
	st, err := one(ctx, t, func(r row) (x state, err error) { err = r.Scan(&x.status, &x.epoch, &x.seq); return x, err },
		`SELECT status, epoch, last_seq FROM runs WHERE id = ?`, string(c.Run))
	switch {
	case none(err):
		return hob.Errorf(hob.Fenced, "run %s is not there any more", c.Run)
	case err != nil:
		return fmt.Errorf("read a fenced run: %w", err)
	case st.epoch != c.Epoch:
		return hob.Errorf(hob.Fenced, "run %s is in epoch %d, this commit is from epoch %d", c.Run, st.epoch, c.Epoch)
	case st.status.Final():
		return hob.Errorf(hob.Fenced, "run %s is %s and takes nothing more", c.Run, st.status)
	case len(c.Events) > 0 && st.seq != c.Events[0].Seq-1:
		return hob.Errorf(hob.Fenced, "run %s has %d events, this commit goes on from %d", c.Run, st.seq, c.Events[0].Seq-1)
	}
	return hob.Errorf(hob.Conflict, "run %s is %s and cannot become %s", c.Run, st.status, next)
}

func callArgs(run int64, calls []hob.CallState) []any {
	// One statement may not write a row twice: the last state of a call is the one that counts.
	last := make(map[hob.CallID]int, len(calls))
	for i, c := range calls {
		last[c.ID] = i
	}
	args := make([]any, 0, callWidth*len(calls))
	for i, c := range calls {
		if last[c.ID] != i {
			continue
		}
		args = append(args, run, string(c.ID), int64(c.Step), int64(c.Index), c.Name, string(object(c.Arguments)), string(c.Status),
			string(c.Recovery), int64(c.Attempt), c.Result.Text, flag(c.Result.IsError), flag(c.Result.Unknown),
			c.StartedAt.Micros(), c.EndedAt.Micros(), c.Result.Action, flag(c.Result.Free))
	}
	return args
}

func usageArgs(m place, run hob.RunID, entries []hob.UsageEntry, now int64) []any {
	args := make([]any, 0, usageWidth*len(entries))
	for _, e := range entries {
		u := e.Usage
		args = append(args, m.ws, m.by, m.agent, string(run), m.n, e.Component, e.Model, int64(e.Step), u.PromptTokens,
			u.CompletionTokens, u.ReasoningTokens, u.CachedTokens, u.TotalTokens, flag(e.Estimated),
			cmp.Or(e.Action, hob.ActionModelCall), cmp.Or(e.Quantity, 1), int64(u.Cost), flag(e.Unpriced), now, e.Tool)
	}
	return args
}
