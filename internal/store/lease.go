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
	return st, err
}

// textTypes are the events that carry streamed text: the deltas, and the chunks of runs without tools.
const textTypes = `('` + string(hob.EventContentDelta) + `', '` + string(hob.EventReasoningDelta) + `', '` + string(hob.EventChunk) + `')`

// Claim takes over runs. Two processes never get the same run: on SQLite they write one after the other, on Postgres each
// leaves out what the other has locked. What is leased to the owner itself is not taken, whether its lease is over or not:
// that would take it from the very process that drives it.
func (s *DB) Claim(ctx context.Context, owner string, lease time.Duration, limit int, all bool) ([]hob.Claimed, error) {
	if owner == "" {
		return nil, fmt.Errorf("claim runs: an owner is needed")
	}
	var list []hob.Claimed
	now := s.now()
	all = all || seeded.Bug("steal_lease")
	err := s.write(ctx, "claim runs", func(ctx context.Context, t *tx) (err error) {
		list, err = many(ctx, t, func(r row) (c hob.Claimed, err error) { err = r.Scan(&c.Run, &c.Epoch); return c, err },
			`UPDATE runs SET lease_owner = ?, lease_until = {now} + ?, epoch = epoch + 1, attempt = attempt + 1,
				stalls = stalls + 1, status = 'running',
				started_at = CASE WHEN started_at = 0 THEN ? ELSE started_at END
			WHERE n IN (SELECT n FROM runs WHERE completed_at = 0 AND (held = 0 OR cancel_code <> '')
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
		if _, err := t.exec(ctx, `UPDATE runs SET lease_until = {now} + ? WHERE lease_owner = ? AND completed_at = 0`,
			lease.Microseconds(), owner); err != nil {
			return err
		}
		_, err := many(ctx, t, func(r row) (_ struct{}, err error) {
			var id hob.RunID
			var code string
			err = r.Scan(&id, &code)
			leased[id] = code
			return struct{}{}, err
		}, `SELECT id, cancel_code FROM runs WHERE lease_owner = ? AND completed_at = 0`, owner)
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
	f.where("lease_owner = ? AND completed_at = 0", owner)
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

// RequestCancel marks an unfinished run; the first code stays.
func (s *DB) RequestCancel(ctx context.Context, by hob.Principal, id hob.RunID, code string) (hob.Run, error) {
	if code == "" {
		code = hob.CodeCancelled
	}
	var x storedRun
	err := s.write(ctx, "cancel a run", func(ctx context.Context, t *tx) (err error) {
		if x, err = readRun(ctx, t, by, hob.ScopeRun, id); err != nil || x.Status.Final() || seeded.Bug("cancel_lost") {
			return err
		}
		_, err = t.exec(ctx, `UPDATE runs SET cancel_code = ? WHERE n = ? AND completed_at = 0 AND cancel_code = ''`, code, x.n)
		return err
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
