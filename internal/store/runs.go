package store

import (
	"context"
	"encoding/json"
	"fmt"

	"hob"
)

// storedRun is a run with what belongs to its rows only.
type storedRun struct {
	hob.Run
	n      int64      // its number
	object hob.Object // what rights on it are about: its session
	pin    string     // digest
}

// runFrom joins what a run is spread over. Rights are those of the session as it is now.
const runColumns = `r.n, r.id, r.workspace_id, r.agent_id, r.turn, r.status, r.epoch, r.attempt, r.lease_owner, r.last_seq,
	r.stalls, r.held, r.cancel_code, r.created_at, r.started_at, r.completed_at, s.id, s.owner, s.agent_id,
	d.model, d.pin, d.new_session, d.principal, d.options, d.code, d.error, d.content, d.steps, d.token_usage`

const runFrom = ` FROM runs r JOIN sessions s ON s.n = r.session_n JOIN run_details d ON d.run_n = r.n`

func scanRun(r row) (storedRun, error) {
	var x storedRun
	var created, started, completed, fresh, held int64
	var principal, options, usage []byte
	o := &x.object
	o.Kind = hob.SessionObject
	err := r.Scan(&x.n, &x.ID, &x.Workspace, &x.Agent, &x.Turn, &x.Status, &x.Epoch, &x.Attempt, &x.LeaseOwner, &x.LastSeq,
		&x.Stalls, &held, &x.CancelCode, &created, &started, &completed, &x.Session, &o.Owner, &o.Agent,
		&x.Model, &x.pin, &fresh, &principal, &options, &x.Code, &x.Error, &x.Content, &x.Steps, &usage)
	if err != nil {
		return x, err
	}
	o.Workspace, x.NewSession, x.Held = x.Workspace, fresh != 0, held != 0
	x.CreatedAt, x.StartedAt, x.CompletedAt = hob.FromMicros(created), hob.FromMicros(started), hob.FromMicros(completed)
	for _, part := range []struct {
		name string
		data []byte
		into any
	}{{"principal", principal, &x.Principal}, {"options", options, &x.Options}, {"usage", usage, &x.Usage}} {
		if err := json.Unmarshal(part.data, part.into); err != nil {
			return x, fmt.Errorf("read the %s of run %s: %w", part.name, x.ID, err)
		}
	}
	return x, nil
}

func absentRun() *hob.Error {
	return hob.Errorf(hob.NotFound, "Run not found").WithCode("run_not_found")
}

// hidden gives a run that may not be seen the text that an absent run has.
func hidden(err error) error {
	if hob.KindOf(err) == hob.NotFound {
		return absentRun()
	}
	return err
}

// readRun reads a run that the principal may see, or act on with the scope.
func readRun(ctx context.Context, t *tx, by hob.Principal, scope hob.Scope, id hob.RunID) (storedRun, error) {
	x, err := one(ctx, t, scanRun, `SELECT `+runColumns+runFrom+` WHERE r.id = ?`, string(id))
	if none(err) {
		return storedRun{}, absentRun()
	}
	if err != nil {
		return storedRun{}, hob.Wrap("read a run", err)
	}
	if scope == "" {
		err = see(by, x.object)
	} else {
		err = hob.Can(by, scope, x.object)
	}
	if err != nil {
		return storedRun{}, hidden(err)
	}
	return x, nil
}

// Run reads one run.
func (s *DB) Run(ctx context.Context, by hob.Principal, id hob.RunID) (hob.Run, error) {
	ctx, t := s.lookUp(ctx)
	x, err := readRun(ctx, t, by, "", id)
	return x.Run, err
}

// RunDetail reads one run with its messages, calls and events.
func (s *DB) RunDetail(ctx context.Context, by hob.Principal, id hob.RunID) (hob.RunDetail, error) {
	ctx, t := s.lookUp(ctx)
	x, err := readRun(ctx, t, by, "", id)
	if err != nil {
		return hob.RunDetail{}, err
	}
	list, err := stories(ctx, t, []storedRun{x})
	if err != nil {
		return hob.RunDetail{}, hob.Wrap("read a run's story", err)
	}
	return list[0], nil
}

// stories adds messages, calls and events to runs.
func stories(ctx context.Context, t *tx, runs []storedRun) ([]hob.RunDetail, error) {
	out := make([]hob.RunDetail, len(runs))
	if len(runs) == 0 {
		return out, nil
	}
	ns, at := make([]int64, len(runs)), map[int64]*hob.RunDetail{}
	for i, r := range runs {
		ns[i], at[r.n], out[i].Run = r.n, &out[i], r.Run
	}
	messages, err := messagesOf(ctx, t, ns)
	if err != nil {
		return nil, err
	}
	for n, list := range messages {
		at[n].Messages = list
	}
	in, args := inList(ns)
	calls, err := many(ctx, t, scanCall, `SELECT `+callColumns+` FROM tool_calls WHERE run_n IN `+in+` ORDER BY run_n, step, idx, call_id`, args...)
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		at[c.run].Calls = append(at[c.run].Calls, c.CallState)
	}
	ledger, err := bookedOf(ctx, t, ns, runs)
	if err != nil {
		return nil, err
	}
	for n, b := range ledger {
		at[n].Actions = b.actions
	}
	events, err := many(ctx, t, scanRunEvent, `SELECT run_n, seq, type, ts, data FROM run_events WHERE run_n IN `+in+
		` AND type NOT IN `+deltaTypes+` ORDER BY run_n, seq`, args...)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		at[e.run].Events = append(at[e.run].Events, e.Event)
	}
	return out, nil
}

// deltaTypes are the types of hob.EventType.Delta, as SQL.
const deltaTypes = `('` + string(hob.EventContentDelta) + `', '` + string(hob.EventReasoningDelta) + `')`

// runCall is a call with the number of its run.
type runCall struct {
	run int64
	hob.CallState
}

const callColumns = `run_n, call_id, step, idx, name, arguments, status, recovery, attempt, result, is_error, is_unknown, started_at, ended_at,
	action, free`

func scanCall(r row) (runCall, error) {
	var c runCall
	var arguments string
	var isError, unknown, free, started, ended int64
	err := r.Scan(&c.run, &c.ID, &c.Step, &c.Index, &c.Name, &arguments, &c.Status, &c.Recovery, &c.Attempt, &c.Result.Text,
		&isError, &unknown, &started, &ended, &c.Result.Action, &free)
	c.Arguments = json.RawMessage(arguments)
	c.Result.IsError, c.Result.Unknown, c.Result.Free = isError != 0, unknown != 0, free != 0
	c.StartedAt, c.EndedAt = hob.FromMicros(started), hob.FromMicros(ended)
	return c, err
}

// runEvent is an event with the number of its run.
type runEvent struct {
	run int64
	hob.Event
}

func scanRunEvent(r row) (e runEvent, err error) {
	var ts int64
	var data []byte
	err = r.Scan(&e.run, &e.Seq, &e.Type, &ts, &data)
	e.Data, e.Time = data, hob.FromMicros(ts)
	return e, err
}

// maxEvents bounds what one call of Events reads.
const maxEvents = 1000

// eventBytes is about how much data one read of events gives: a reader that is slow to pass it on holds no more.
const eventBytes = 64 << 10

// Events reads the log behind a position: at most limit entries, fewer where they are long, none only at the log's end.
func (s *DB) Events(ctx context.Context, by hob.Principal, id hob.RunID, after int64, limit int) ([]hob.Event, error) {
	if limit < 1 || limit > maxEvents {
		limit = maxEvents
	}
	ctx, t := s.lookUp(ctx)
	type where struct {
		n      int64
		object hob.Object
	}
	r, err := one(ctx, t, func(r row) (w where, err error) {
		w.object.Kind = hob.SessionObject
		err = r.Scan(&w.n, &w.object.Workspace, &w.object.Owner, &w.object.Agent)
		return w, err
	}, `SELECT r.n, s.workspace_id, s.owner, s.agent_id FROM runs r JOIN sessions s ON s.n = r.session_n WHERE r.id = ?`, string(id))
	if none(err) {
		return nil, absentRun()
	}
	if err != nil {
		return nil, hob.Wrap("find a run's events", err)
	}
	if err := see(by, r.object); err != nil {
		return nil, hidden(err)
	}
	rows, err := t.query(ctx, `SELECT seq, type, ts, data FROM run_events WHERE run_n = ? AND seq > ? ORDER BY seq LIMIT ?`, r.n, after, int64(limit))
	if err != nil {
		return nil, hob.Wrap("read events", err)
	}
	defer rows.Close()
	var list []hob.Event
	for size := 0; size < eventBytes && rows.Next(); {
		e, err := scanEvent(rows)
		if err != nil {
			return nil, hob.Wrap("read events", err)
		}
		list = append(list, e)
		size += len(e.Data)
	}
	return list, hob.Wrap("read events", rows.Err())
}

func scanEvent(r row) (e hob.Event, err error) {
	var ts int64
	var data []byte
	err = r.Scan(&e.Seq, &e.Type, &ts, &data)
	e.Data, e.Time = data, hob.FromMicros(ts)
	return e, err
}
