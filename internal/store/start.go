package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"hob"
	"hob/internal/seeded"
)

// firstMessageChars is how much of a session's first message its row shows.
const firstMessageChars = 100

// start is a NewRun made ready: all that can be encoded or refused without the database is done before the writer begins.
type start struct {
	hob.NewRun
	now       int64
	pin       string // digest
	principal string
	options   string
	uuid      string
}

func (s *DB) prepareStart(n hob.NewRun) (start, error) {
	id, ok := uuid(n.Run.Agent)
	n.Run.Agent = hob.AgentID(id)
	r := n.Run
	x := start{NewRun: n, now: s.now(), uuid: hob.NewUUID()}
	if seeded.Bug("drop_dedupe") {
		x.Idempotency = nil
	}
	if !ok || r.Workspace != r.Principal.Workspace {
		return x, hob.Absent(hob.AgentObject)
	}
	if err := hob.Can(r.Principal, hob.ScopeRun, hob.Object{Kind: hob.AgentObject, Workspace: r.Workspace, Agent: r.Agent}); err != nil {
		return x, err
	}
	if len(n.Session.ID) == 0 || len(n.Session.ID) > hob.MaxSessionID {
		return x, hob.Errorf(hob.Invalid, "session_id must have 1 to %d bytes", hob.MaxSessionID).With("field", "session_id")
	}
	if err := numbered(n.Events, 1); err != nil {
		return x, err
	}
	principal, err := json.Marshal(r.Principal)
	if err != nil {
		return x, fmt.Errorf("encode a run's principal: %w", err)
	}
	options, err := json.Marshal(r.Options)
	if err != nil {
		return x, fmt.Errorf("encode a run's options: %w", err)
	}
	x.principal, x.options = string(principal), string(options)
	sum := sha256.Sum256(n.Pin)
	x.pin = hex.EncodeToString(sum[:])
	return x, nil
}

// numbered says whether events count on from first without a gap.
func numbered(events []hob.Event, first int64) error {
	for i, e := range events {
		if e.Seq != first+int64(i) {
			return fmt.Errorf("event %d of a commit has number %d, want %d", i, e.Seq, first+int64(i))
		}
	}
	return nil
}

// StartRun accepts a run, all in one transaction, or finds the one that the same key and body made before.
func (s *DB) StartRun(ctx context.Context, n hob.NewRun) (hob.StartedRun, error) {
	x, err := s.prepareStart(n)
	if err != nil {
		return hob.StartedRun{}, err
	}
	var started hob.StartedRun
	newPin := false
	var at place
	err = s.write(ctx, "start a run", func(ctx context.Context, t *tx) (err error) {
		started, newPin = hob.StartedRun{}, false
		if x.Idempotency != nil {
			before, found, err := s.earlier(ctx, t, x.Run.Principal, *x.Idempotency)
			if err != nil || found {
				started = hob.StartedRun{Run: before, Replayed: found}
				return err
			}
		}
		session, err := s.enterSession(ctx, t, x)
		if err != nil {
			return err
		}
		if newPin, err = s.keepPin(ctx, t, x); err != nil {
			return err
		}
		if started.Run, at, err = s.insertRun(ctx, t, x, session); err != nil {
			return err
		}
		noteStart(t, started.Run)
		return s.keepKey(ctx, t, x)
	})
	if err != nil {
		return hob.StartedRun{}, err
	}
	if !started.Replayed {
		s.places.put(started.Run.ID, at) // its first commit need not look for it
	}
	if newPin {
		s.pins.put(x.pin, struct{}{})
	}
	return started, nil
}

// EarlierRun finds the run that an idempotency key made.
func (s *DB) EarlierRun(ctx context.Context, by hob.Principal, key hob.Idempotency) (hob.Run, bool, error) {
	if seeded.Bug("drop_dedupe") {
		return hob.Run{}, false, nil
	}
	ctx, t := s.lookUp(ctx)
	return s.earlier(ctx, t, by, key)
}

func (s *DB) earlier(ctx context.Context, t *tx, by hob.Principal, key hob.Idempotency) (run hob.Run, found bool, err error) {
	type kept struct{ digest, run, there string }
	k, err := one(ctx, t, func(r row) (k kept, err error) { err = r.Scan(&k.digest, &k.run, &k.there); return k, err },
		`SELECT i.digest, i.run_id, coalesce(r.id, '') FROM idempotency i LEFT JOIN runs r ON r.id = i.run_id
		WHERE i.scope = ? AND i.key = ? AND i.expires_at > ?`, key.Scope, key.Key, s.now())
	switch {
	case none(err):
		return run, false, nil
	case err != nil:
		return run, false, fmt.Errorf("look up an idempotency key: %w", err)
	case k.digest != storable(key.Digest):
		return run, false, keyReused()
	case k.there == "": // made again, it would act again
		return run, false, hob.Errorf(hob.NotFound, "the run that this Idempotency-Key made was deleted with its session; "+
			"use a new key for a new run").WithCode("run_deleted")
	}
	x, err := readRun(ctx, t, by, hob.ScopeRun, hob.RunID(k.run))
	return x.Run, err == nil, err
}

// keepKey binds the idempotency key to the run. On Postgres another transaction may have taken it in the meantime: then
// all is done over, and finds its run.
func (s *DB) keepKey(ctx context.Context, t *tx, x start) error {
	if x.Idempotency == nil {
		return nil
	}
	n, err := t.exec(ctx, `INSERT INTO idempotency (scope, key, digest, run_id, expires_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (scope, key) DO UPDATE SET digest = excluded.digest, run_id = excluded.run_id, expires_at = excluded.expires_at
		WHERE idempotency.expires_at <= ?`,
		x.Idempotency.Scope, x.Idempotency.Key, x.Idempotency.Digest, string(x.Run.ID), x.now+x.Idempotency.Keep.Microseconds(), x.now)
	if err == nil && n == 0 {
		return errAgain
	}
	return err
}

// entered is the session that a run was let into.
type entered struct {
	n, turn int64
	uuid    string
}

// enterSession makes the session or takes the next turn in it, if it is the principal's to see and the agent's: the same
// rule as hob.Can, so that one statement does. Where it lets nobody in, refusal tells why.
func (s *DB) enterSession(ctx context.Context, t *tx, x start) (entered, error) {
	r, p := x.Run, x.Run.Principal
	owner, user := sessionOwner(p, x.Session)
	first, _ := firstChars(x.Message.Text(), firstMessageChars)
	e, err := returning(ctx, t, func(r row) (e entered, err error) { err = r.Scan(&e.n, &e.turn, &e.uuid); return e, err },
		`INSERT INTO sessions (id, workspace_id, uuid, owner, agent_id, user_id, session_data, metadata, turns, run_count,
			first_message, created_at, updated_at, last_activity_at)
		SELECT ?, ?, ?, ?, id, ?, ?, ?, 1, 1, ?, ?, ?, ? FROM agents WHERE workspace_id = ? AND id = ?
		ON CONFLICT (workspace_id, id) DO UPDATE SET turns = sessions.turns + 1, run_count = sessions.run_count + 1,
			first_message = CASE WHEN sessions.turns = 0 THEN excluded.first_message ELSE sessions.first_message END,
			updated_at = excluded.updated_at, last_activity_at = excluded.last_activity_at
		WHERE sessions.agent_id = excluded.agent_id AND (? = 1 OR sessions.owner <> '' AND sessions.owner = ?)
		RETURNING n, turns, uuid`,
		string(x.Session.ID), string(r.Workspace), x.uuid, owner, user, string(object(x.Session.Data)), string(object(x.Session.Metadata)),
		first, x.now, x.now, x.now, string(r.Workspace), string(r.Agent), flag(p.SeesAll()), p.Owner())
	if none(err) {
		return e, s.refusal(ctx, t, x)
	}
	return e, hob.Wrap("enter a session", err)
}

// refusal says why a session did not let a run in.
func (s *DB) refusal(ctx context.Context, t *tx, x start) error {
	p := x.Run.Principal
	ses, err := one(ctx, t, scanSession, `SELECT `+sessionColumns+` FROM sessions WHERE workspace_id = ? AND id = ?`,
		string(x.Run.Workspace), string(x.Session.ID))
	if err == nil {
		o := sessionObject(ses)
		if o.Agent != x.Run.Agent {
			o.Agent = p.Agent // the conflict is told below; here only the owner counts
		}
		if err := hob.Can(p, hob.ScopeRun, o); err != nil {
			return err
		}
	}
	if err != nil && !none(err) {
		return fmt.Errorf("read a session: %w", err)
	}
	if _, err := agent(ctx, t, p, hob.ScopeRun, x.Run.Agent); err != nil {
		return err
	}
	return hob.Errorf(hob.Conflict, "session %s belongs to another agent; start a new session for this one", x.Session.ID).
		WithCode("session_agent_mismatch")
}

// keepPin keeps a pin once per content. true: it was not known to be kept before.
func (s *DB) keepPin(ctx context.Context, t *tx, x start) (bool, error) {
	if _, ok := s.pins.get(x.pin); ok {
		return false, nil
	}
	_, err := t.exec(ctx, `INSERT INTO run_pins (digest, pin) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING`, x.pin, string(x.Pin))
	return true, hob.Wrap("keep a run's pin", err)
}

func (s *DB) insertRun(ctx context.Context, t *tx, x start, e entered) (hob.Run, place, error) {
	r := x.Run
	r.Session, r.Turn, r.NewSession = x.Session.ID, e.turn, e.uuid == x.uuid
	r.LastSeq, r.Attempt = int64(len(x.Events)), max(r.Attempt, 1)
	if r.CreatedAt.IsZero() {
		r.CreatedAt = hob.FromMicros(x.now)
	}
	if r.StartedAt.IsZero() && r.Status == hob.Running {
		r.StartedAt = r.CreatedAt
	}
	n, err := returning(ctx, t, scanInt, `INSERT INTO runs (id, workspace_id, started_by, agent_id, session_n, turn, status, epoch, attempt,
			lease_owner, lease_until, last_seq, cancel_code, created_at, started_at, completed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now} + ?, ?, '', ?, ?, 0) RETURNING n`,
		string(r.ID), string(r.Workspace), starter(r.Principal), string(r.Agent), e.n, r.Turn, string(r.Status), r.Epoch, int64(r.Attempt),
		r.LeaseOwner, x.Lease.Microseconds(), r.LastSeq, r.CreatedAt.Micros(), r.StartedAt.Micros())
	if err != nil {
		if s.d.conflict(err) {
			return r, place{}, hob.Errorf(hob.Conflict, "the run id %s is in use", r.ID).WithCode("run_exists")
		}
		return r, place{}, fmt.Errorf("insert a run: %w", err)
	}
	if _, err := t.exec(ctx, `INSERT INTO run_details (run_n, model, pin, new_session, principal, options, code, error, content, steps, token_usage)
		VALUES (?, ?, ?, ?, ?, ?, '', '', '', 0, '{}')`, n, r.Model, x.pin, flag(r.NewSession), x.principal, x.options); err != nil {
		return r, place{}, fmt.Errorf("insert a run's details: %w", err)
	}
	args, err := messageArgs(nil, n, 0, x.Message)
	if err != nil {
		return r, place{}, err
	}
	if seeded.Bug("message_dropped") {
		args = nil
	}
	if err := s.texts.messages.insert(ctx, t, args); err != nil {
		return r, place{}, fmt.Errorf("insert a run's message: %w", err)
	}
	at := place{n: n, ws: string(r.Workspace), by: starter(r.Principal), agent: string(r.Agent)}
	return r, at, hob.Wrap("insert a run's events", s.texts.events.insert(ctx, t, eventArgs(n, x.Events)))
}

func eventArgs(run int64, events []hob.Event) []any {
	args := make([]any, 0, eventWidth*len(events))
	for _, e := range events {
		args = append(args, run, e.Seq, string(e.Type), e.Time.Micros(), string(e.Data))
	}
	return args
}

// firstChars cuts s to n characters and says whether it did.
func firstChars(s string, n int) (string, bool) {
	for i := range s {
		if n == 0 {
			return s[:i], true
		}
		n--
	}
	return s, false
}
