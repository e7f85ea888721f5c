package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"hob"
	"hob/internal/seeded"
)

// Load reads a run for driving it on. It asks for no principal: whoever holds the lease may.
func (s *DB) Load(ctx context.Context, id hob.RunID) (hob.RunState, error) {
	ctx, t := s.lookUp(ctx)
	x, err := one(ctx, t, scanRun, `SELECT `+runColumns+runFrom+` WHERE r.id = ?`, string(id))
	if none(err) {
		return hob.RunState{}, absentRun()
	}
	if err != nil {
		return hob.RunState{}, hob.Wrap("load a run", err)
	}
	st := hob.RunState{Run: x.Run}
	if st, err = loadState(ctx, t, x, st); err != nil {
		return hob.RunState{}, fmt.Errorf("load run %s: %w", id, err)
	}
	return st, nil
}

func loadState(ctx context.Context, t *tx, x storedRun, st hob.RunState) (hob.RunState, error) {
	ledger, err := bookedOf(ctx, t, []int64{x.n}, []storedRun{x})
	if err != nil {
		return st, err
	}
	st.Actions = ledger[x.n].actions
	if !x.Status.Final() { // what an ended run cost is in its outcome
		st.Run.Usage = ledger[x.n].usage
	}
	pin, err := one(ctx, t, scanText, `SELECT pin FROM run_pins WHERE digest = ?`, x.pin)
	if err != nil && !none(err) { // seeded turns have none
		return st, err
	}
	if pin != "" {
		st.Pin = json.RawMessage(pin)
	}
	messages, err := messagesOf(ctx, t, []int64{x.n})
	if err != nil {
		return st, err
	}
	st.Messages = messages[x.n]
	calls, err := many(ctx, t, scanCall, `SELECT `+callColumns+` FROM tool_calls WHERE run_n = ? ORDER BY step, idx, call_id`, x.n)
	if err != nil {
		return st, err
	}
	for _, c := range calls {
		st.Calls = append(st.Calls, c.CallState)
	}
	step, err := one(ctx, t, scanRunEvent, `SELECT run_n, seq, type, ts, data FROM run_events
		WHERE run_n = ? AND type = '`+string(hob.EventStepStarted)+`' ORDER BY seq DESC LIMIT 1`, x.n)
	if err != nil && !none(err) {
		return st, err
	}
	if err == nil {
		var e struct {
			Step int `json:"step"`
		}
		if err := json.Unmarshal(step.Data, &e); err != nil {
			return st, fmt.Errorf("read event %d: %w", step.Seq, err)
		}
		st.Step = e.Step
	}
	st.VoidFrom, err = one(ctx, t, scanInt, `SELECT coalesce(min(seq), 0) FROM run_events
		WHERE run_n = ? AND seq > ? AND type IN `+textTypes, x.n, step.Seq)
	if err != nil {
		return st, err
	}
	return st, loadPeople(ctx, t, x.n, &st)
}

// loadPeople reads what the run's hooks and people have said so far, and which attempt it has told of.
func loadPeople(ctx context.Context, t *tx, run int64, st *hob.RunState) (err error) {
	events, err := many(ctx, t, scanRunEvent, `SELECT run_n, seq, type, ts, data FROM run_events
		WHERE run_n = ? AND type IN ('`+string(hob.EventHookResult)+`', '`+string(hob.EventAttempt)+`') ORDER BY seq`, run)
	if err != nil {
		return err
	}
	st.Told = 1
	for _, e := range events {
		var told hob.AttemptEvent
		var hook hob.HookResultEvent
		if e.Type == hob.EventAttempt {
			err = json.Unmarshal(e.Data, &told)
			st.Told = told.Attempt
		} else {
			err = json.Unmarshal(e.Data, &hook)
			st.Hooks = append(st.Hooks, hook)
		}
		if err != nil {
			return fmt.Errorf("read event %d: %w", e.Seq, err)
		}
	}
	st.Approvals, err = many(ctx, t, scanApproval, approvalQuery+` WHERE a.run_n = ? ORDER BY a.n`, run)
	return err
}

// textTypes are the events that carry streamed text: the deltas, and the chunks of runs without tools.
const textTypes = `('` + string(hob.EventContentDelta) + `', '` + string(hob.EventReasoningDelta) + `', '` + string(hob.EventChunk) + `')`

// Claim takes over runs. Two processes never get the same run: on SQLite they write one after the other, on Postgres each
// leaves out what the other has locked. What is leased to the owner itself is not taken, whether its lease is over or not:
// that would take it from the very process that drives it. A run that is taken up from waiting for approvals begins no new
// attempt by that.
func (s *DB) Claim(ctx context.Context, owner string, lease time.Duration, limit int, all bool) ([]hob.Claimed, error) {
	if owner == "" {
		return nil, fmt.Errorf("claim runs: an owner is needed")
	}
	var list []hob.Claimed
	now := s.now()
	all = all || seeded.Bug("steal_lease")
	err := s.write(ctx, "claim runs", func(ctx context.Context, t *tx) (err error) {
		if _, err = t.exec(ctx, `UPDATE runs SET status = 'queued' WHERE n IN (SELECT n FROM runs
			WHERE status = 'awaiting_approval' AND wake_at BETWEEN 1 AND (SELECT {now}) ORDER BY wake_at LIMIT ? {skip})`, int64(limit)); err != nil {
			return fmt.Errorf("wake runs: %w", err)
		}
		list, err = many(ctx, t, func(r row) (c hob.Claimed, err error) { err = r.Scan(&c.Run, &c.Epoch); return c, err },
			`UPDATE runs SET lease_owner = ?, lease_until = {now} + ?, epoch = epoch + 1, attempt = attempt + 1 - woken,
				stalls = stalls + 1 - woken, woken = 0, wake_at = 0, status = 'running',
				started_at = CASE WHEN started_at = 0 THEN ? ELSE started_at END
			WHERE n IN (SELECT n FROM runs WHERE `+driven+` AND (held = 0 OR cancel_code <> '')
				AND (status = 'queued' OR status = 'running' AND lease_owner <> ? AND (? = 1 OR lease_until < {now}))
				ORDER BY n LIMIT ? {skip})
			RETURNING id, epoch`, owner, lease.Microseconds(), now, owner, flag(all), int64(limit))
		t.wrote = t.wrote || len(list) > 0
		if seeded.Bug("attempts_forever") {
			_, err = t.exec(ctx, `UPDATE runs SET stalls = 0 WHERE lease_owner = ?`, owner)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Renew extends the leases of an owner's unfinished runs and gives them, with the codes of those that are to be cancelled.
func (s *DB) Renew(ctx context.Context, owner string, lease time.Duration) (map[hob.RunID]string, error) {
	leased := map[hob.RunID]string{}
	if owner == "" { // resting runs have no owner, and nobody renews them
		return leased, nil
	}
	err := s.write(ctx, "renew leases", func(ctx context.Context, t *tx) error {
		clear(leased)
		if _, err := t.exec(ctx, `UPDATE runs SET lease_until = {now} + ? WHERE lease_owner = ? AND `+driven,
			lease.Microseconds(), owner); err != nil {
			return err
		}
		_, err := many(ctx, t, func(r row) (_ struct{}, err error) {
			var id hob.RunID
			var code string
			err = r.Scan(&id, &code)
			leased[id] = code
			return struct{}{}, err
		}, `SELECT id, cancel_code FROM runs WHERE lease_owner = ? AND `+driven, owner)
		return err
	})
	if err != nil {
		return nil, err
	}
	return leased, nil
}

// Release ends the leases of an owner at once, of the given runs or of all. The claim behind it counts a stall, which is
// taken off beforehand where it is none.
func (s *DB) Release(ctx context.Context, owner string, stalled bool, runs ...hob.RunID) error {
	if owner == "" {
		return nil
	}
	var f filter
	f.where("lease_owner = ? AND "+driven, owner)
	set := "lease_owner = '', lease_until = 0"
	if !stalled {
		set += ", stalls = stalls - 1"
	}
	if len(runs) > 0 {
		in, args := inList(runIDs(runs))
		f.where("id IN "+in, args...)
	}
	var n int64
	err := s.write(ctx, "release leases", func(ctx context.Context, t *tx) (err error) {
		n, err = t.exec(ctx, `UPDATE runs SET `+set+f.String(), f.args...)
		return err
	})
	if n > 0 && len(runs) == 0 {
		s.e.news.tell()
	}
	return err
}

func runIDs(runs []hob.RunID) []string {
	ids := make([]string, len(runs))
	for i, id := range runs {
		ids[i] = string(id)
	}
	return ids
}

// The unfinished runs are those that somebody drives or is to drive, and those that rest until an approval is decided. Each
// kind has an index, which a statement uses that has its condition word for word.
const (
	driven  = `completed_at = 0 AND status <> 'awaiting_approval'`
	resting = `status = 'awaiting_approval'`
	// unfinished are the numbers of both, at one moment: a run that goes from one kind to the other is not missed.
	unfinished = `(SELECT n FROM runs WHERE ` + driven + ` UNION ALL SELECT n FROM runs WHERE ` + resting + `)`
)

// wake lets a run that rests be claimed; any other stays as it is. The transaction holds the run's row, so that neither a
// commit that lays it to rest nor what it is woken for is missed.
func wake(ctx context.Context, t *tx, run int64) error {
	_, err := t.exec(ctx, `UPDATE runs SET status = 'queued' WHERE n = ? AND `+resting, run)
	return hob.Wrap("wake a run", err)
}

// cancelRuns marks what a condition picks of the unfinished runs for cancelling, and wakes those that rest; the first code
// stays.
func cancelRuns(ctx context.Context, t *tx, code, which string, args ...any) error {
	_, err := t.exec(ctx, `UPDATE runs SET cancel_code = ?, status = CASE WHEN `+resting+` THEN 'queued' ELSE status END
		WHERE completed_at = 0 AND cancel_code = '' AND `+which, append([]any{code}, args...)...)
	return hob.Wrap("mark runs for cancelling", err)
}

// RequestCancel marks an unfinished run; the first code stays. One that rests is woken.
func (s *DB) RequestCancel(ctx context.Context, by hob.Principal, id hob.RunID, code string) (hob.Run, error) {
	if code == "" {
		code = hob.CodeCancelled
	}
	var x storedRun
	err := s.write(ctx, "cancel a run", func(ctx context.Context, t *tx) (err error) {
		if x, err = readRun(ctx, t, by, hob.ScopeRun, id); err != nil || x.Status.Final() || seeded.Bug("cancel_lost") {
			return err
		}
		e := t.did(by, "run.cancel", "run", string(id), nil, nil)
		e.Run, e.Rule = id, code
		return cancelRuns(ctx, t, code, "n = ?", x.n)
	})
	if err != nil {
		return hob.Run{}, err
	}
	s.e.news.tell(id)
	return x.Run, nil
}

// sweepChunk is how many idempotency keys one transaction deletes, so that no writer waits long for it.
const sweepChunk = 1000

// SweepIdempotency deletes the idempotency keys whose time is over and says how many there were.
func (s *DB) SweepIdempotency(ctx context.Context) (int64, error) {
	var total int64
	for _, table := range []string{"idempotency", "answers"} {
		n, err := s.sweep(ctx, table)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

// sweep deletes the rows of a table of keys that are past their time.
func (s *DB) sweep(ctx context.Context, table string) (total int64, err error) {
	for n := int64(sweepChunk); n == sweepChunk; {
		err = s.write(ctx, "sweep idempotency keys", func(ctx context.Context, t *tx) (err error) {
			n, err = t.exec(ctx, `DELETE FROM `+table+` WHERE (scope, key) IN
				(SELECT scope, key FROM `+table+` WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`, s.now(), int64(sweepChunk))
			return err
		})
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}
