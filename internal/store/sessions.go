package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"hob"
)

const sessionColumns = `n, id, uuid, workspace_id, agent_id, owner, user_id, session_data, metadata, turns, created_at, updated_at`

// storedSession is a session with its number.
type storedSession struct {
	hob.Session
	n int64
}

func scanSession(r row) (storedSession, error) {
	var x storedSession
	var agent hob.AgentID
	var user, data, meta string
	var created, updated int64
	err := r.Scan(&x.n, &x.ID, &x.UUID, &x.Workspace, &agent, &x.Owner, &user, &data, &meta, &x.Turns, &created, &updated)
	if agent != "" {
		x.Agent = &agent
	}
	if user != "" {
		x.UserID = &user
	}
	x.Data, x.Metadata = json.RawMessage(data), json.RawMessage(meta)
	x.CreatedAt, x.UpdatedAt = hob.FromMicros(created), hob.FromMicros(updated)
	return x, err
}

func sessionObject(x storedSession) hob.Object {
	o := hob.Object{Kind: hob.SessionObject, Workspace: x.Workspace, Owner: x.Owner}
	if x.Agent != nil {
		o.Agent = *x.Agent
	}
	return o
}

// sessionOwner is whose a new session is, and the user it is for: a user's own, or the one that is named by somebody who
// sees all sessions.
func sessionOwner(by hob.Principal, s hob.Session) (owner, user string) {
	switch {
	case s.UserID != nil && *s.UserID != "" && by.SeesAll():
		return string(hob.UserPrincipal) + ":" + *s.UserID, *s.UserID
	case by.Kind == hob.UserPrincipal:
		return by.Owner(), by.ID
	}
	return by.Owner(), ""
}

func readSession(ctx context.Context, t *tx, by hob.Principal, scope hob.Scope, id hob.SessionID) (storedSession, error) {
	x, err := one(ctx, t, scanSession, `SELECT `+sessionColumns+` FROM sessions WHERE workspace_id = ? AND id = ?`, string(by.Workspace), string(id))
	if err != nil {
		return storedSession{}, found(err, hob.SessionObject, "read a session")
	}
	if scope == "" {
		err = see(by, sessionObject(x))
	} else {
		err = hob.Can(by, scope, sessionObject(x))
	}
	if err != nil {
		return storedSession{}, err
	}
	return x, nil
}

// CreateSession makes a session, with finished turns where seed has some. Whoever sees all sessions may make one for a
// user; it then belongs to that user.
func (s *DB) CreateSession(ctx context.Context, by hob.Principal, ses hob.Session, seed []hob.SeedTurn) (hob.Session, error) {
	if ses.UserID != nil && !by.SeesAll() && *ses.UserID != by.ID {
		return hob.Session{}, hob.Errorf(hob.Forbidden, "Service role required to set user_id").WithCode("scope_missing")
	}
	if ses.Agent == nil {
		return hob.Session{}, hob.Absent(hob.AgentObject)
	}
	if ses.ID == "" {
		ses.ID = hob.NewSessionID()
	}
	if len(ses.ID) > hob.MaxSessionID {
		return hob.Session{}, hob.Errorf(hob.Invalid, "session_id must have at most %d bytes", hob.MaxSessionID).With("field", "session_id")
	}
	owner, user := sessionOwner(by, ses)
	ses.UUID, ses.Workspace, ses.Owner, ses.UserID = hob.NewUUID(), by.Workspace, owner, nil
	if user != "" {
		ses.UserID = &user
	}
	ses.Data, ses.Metadata, ses.Turns = object(ses.Data), object(ses.Metadata), int64(len(seed))
	now := s.now()
	ses.CreatedAt = hob.FromMicros(now)
	ses.UpdatedAt = ses.CreatedAt
	asked := *ses.Agent
	err := s.write(ctx, "create a session", func(ctx context.Context, t *tx) error {
		a, err := agent(ctx, t, by, hob.ScopeRun, asked)
		if err != nil {
			return err
		}
		ses.Agent = &a.ID
		n, err := s.insertSession(ctx, t, ses, user, seed, now)
		if err != nil {
			return err
		}
		for i, turn := range seed {
			if err := s.seedTurn(ctx, t, by, a, ses, seedPlace{session: n, turn: int64(i + 1), at: now + int64(i)}, turn); err != nil {
				return fmt.Errorf("seed turn %d: %w", i+1, err)
			}
		}
		t.did(by, "session.create", "session", string(ses.ID), nil, nil).Detail = details("agent_id", string(a.ID))
		return nil
	})
	if err != nil {
		return hob.Session{}, err
	}
	return ses, nil
}

func (s *DB) insertSession(ctx context.Context, t *tx, ses hob.Session, user string, seed []hob.SeedTurn, now int64) (int64, error) {
	first, last := "", int64(0)
	if len(seed) > 0 {
		first, _ = firstChars(seed[0].User, firstMessageChars)
		last = now + int64(len(seed)-1)
	}
	n, err := returning(ctx, t, scanInt, `INSERT INTO sessions (id, workspace_id, uuid, owner, agent_id, user_id, session_data, metadata,
			turns, run_count, first_message, created_at, updated_at, last_activity_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING n`, string(ses.ID), string(ses.Workspace), ses.UUID, ses.Owner,
		string(*ses.Agent), user, string(ses.Data), string(ses.Metadata), ses.Turns, ses.Turns, first, now, now, last)
	if err != nil && s.d.conflict(err) {
		return 0, hob.Errorf(hob.Conflict, "the session id %s is in use", ses.ID).WithCode("session_exists")
	}
	return n, err
}

// seedPlace is the place of a seeded turn.
type seedPlace struct{ session, turn, at int64 }

// seedTurn writes a finished exchange as a completed run without events.
func (s *DB) seedTurn(ctx context.Context, t *tx, by hob.Principal, a hob.Agent, ses hob.Session, at seedPlace, turn hob.SeedTurn) error {
	principal, err := json.Marshal(by)
	if err != nil {
		return err
	}
	n, err := returning(ctx, t, scanInt, `INSERT INTO runs (id, workspace_id, started_by, agent_id, session_n, turn, status, epoch, attempt,
			lease_owner, lease_until, last_seq, cancel_code, created_at, started_at, completed_at)
		VALUES (?, ?, ?, ?, ?, ?, 'completed', 1, 1, '', 0, 0, '', ?, ?, ?) RETURNING n`, "seed_"+hob.RandomHex(6), string(ses.Workspace),
		starter(by), string(a.ID), at.session, at.turn, at.at, at.at, at.at)
	if err != nil {
		return err
	}
	if _, err := t.exec(ctx, `INSERT INTO run_details (run_n, model, pin, new_session, principal, options, code, error, content, steps, token_usage)
		VALUES (?, ?, '', ?, ?, '{}', '', '', ?, 0, '{}')`, n, a.Model, flag(at.turn == 1), string(principal), turn.Assistant); err != nil {
		return err
	}
	var args []any
	for i, m := range []hob.Message{{Role: hob.RoleUser, Content: turn.User}, {Role: hob.RoleAssistant, Content: turn.Assistant}} {
		if args, err = messageArgs(args, n, i, m); err != nil {
			return err
		}
	}
	return s.texts.messages.insert(ctx, t, args)
}

// Session reads one session.
func (s *DB) Session(ctx context.Context, by hob.Principal, id hob.SessionID) (hob.Session, error) {
	ctx, t := s.lookUp(ctx)
	x, err := readSession(ctx, t, by, "", id)
	return x.Session, err
}

func scanSessionRow(r row) (hob.SessionRow, error) {
	var x hob.SessionRow
	var last, created int64
	err := r.Scan(&x.ID, &x.RunCount, &last, &created, &x.FirstMessage)
	x.LastActivityAt, x.CreatedAt = hob.FromMicros(last), hob.FromMicros(created)
	return x, err
}

// Sessions lists an agent's sessions that the principal may see. The search finds part of the id, of the first message or
// of what user and agent said. Case is ignored: on SQLite of the letters A to Z only, on Postgres as its locale does.
func (s *DB) Sessions(ctx context.Context, by hob.Principal, id hob.AgentID, f hob.SessionFilter) (hob.Page[hob.SessionRow], error) {
	var page hob.Page[hob.SessionRow]
	t := s.read()
	a, err := agent(ctx, t, by, "", id)
	if err != nil {
		return page, err
	}
	q := sessionsFilter(by, a, f)
	if page.Total, err = one(ctx, t, scanInt, `SELECT count(*) FROM sessions s`+q.String(), q.args...); err != nil {
		return page, hob.Wrap("count sessions", err)
	}
	limit, offset := window(f.Limit, f.Offset)
	page.Items, err = many(ctx, t, scanSessionRow, `SELECT s.id, s.run_count, s.last_activity_at, s.created_at, s.first_message FROM sessions s`+
		q.String()+` ORDER BY s.last_activity_at DESC, s.id ASC LIMIT ? OFFSET ?`, append(q.args, limit, offset)...)
	return page, hob.Wrap("list sessions", err)
}

func sessionsFilter(by hob.Principal, a hob.Agent, f hob.SessionFilter) *filter {
	q := &filter{}
	q.where("s.agent_id = ?"+ownerRule(by), append([]any{string(a.ID)}, ownerArgs(by)...)...)
	if f.Search != "" {
		p := like(f.Search)
		q.where(`(s.id {like} ? ESCAPE '\' OR s.first_message {like} ? ESCAPE '\' OR EXISTS (SELECT 1 FROM runs r
			JOIN messages m ON m.run_n = r.n WHERE r.session_n = s.n AND m.role IN ('user', 'assistant') AND m.text {like} ? ESCAPE '\'))`, p, p, p)
	}
	if !f.CreatedAfter.IsZero() {
		q.where("s.created_at >= ?", f.CreatedAfter.Micros())
	}
	if !f.CreatedBefore.IsZero() {
		q.where("s.created_at <= ?", f.CreatedBefore.Micros())
	}
	if f.MinRuns != nil {
		q.where("s.run_count >= ?", *f.MinRuns)
	}
	if f.MaxRuns != nil {
		q.where("s.run_count <= ?", *f.MaxRuns)
	}
	return q
}

// deleteChunk is how many runs' rows one statement deletes.
const deleteChunk = 64

// DeleteSession deletes a session with its runs, whose drivers are fenced off from then on, and the files that they left
// in OutputBucket. The usage ledger keeps its numbers.
func (s *DB) DeleteSession(ctx context.Context, by hob.Principal, ag hob.AgentID, id hob.SessionID) error {
	return s.write(ctx, "delete a session", func(ctx context.Context, t *tx) error {
		x, err := readSession(ctx, t, by, hob.ScopeRun, id)
		if err != nil {
			return err
		}
		key, ok := uuid(ag)
		if ag != "" && (!ok || x.Agent == nil || string(*x.Agent) != key) {
			return hob.Absent(hob.SessionObject)
		}
		// First the session, so that no run starts in it any more, then the runs, so that no commit writes to them.
		if _, err := t.exec(ctx, `DELETE FROM sessions WHERE n = ?`, x.n); err != nil {
			return err
		}
		var ids []hob.RunID
		runs, err := many(ctx, t, func(r row) (n int64, err error) {
			var id hob.RunID
			err = r.Scan(&n, &id)
			ids = append(ids, id)
			return n, err
		}, `DELETE FROM runs WHERE session_n = ? RETURNING n, id`, x.n)
		if err == nil {
			err = deleteOutputs(ctx, t, x.Workspace, ids)
		}
		if err != nil {
			return err
		}
		t.did(by, "session.delete", "session", string(x.ID), nil, nil).Detail = details("runs", strconv.Itoa(len(runs)))
		for len(runs) > 0 {
			n := min(len(runs), deleteChunk)
			in, args := inList(runs[:n])
			for _, table := range []string{"run_events", "messages", "tool_calls", "approvals", "run_details"} {
				if _, err := t.exec(ctx, `DELETE FROM `+table+` WHERE run_n IN `+in, args...); err != nil {
					return fmt.Errorf("delete from %s: %w", table, err)
				}
			}
			runs = runs[n:]
		}
		_, err = t.exec(ctx, `DELETE FROM summaries WHERE session_n = ?`, x.n)
		return hob.Wrap("delete from summaries", err)
	})
}

// SessionRuns reads a session's runs from the oldest on.
func (s *DB) SessionRuns(ctx context.Context, by hob.Principal, id hob.SessionID, limit, offset int) ([]hob.RunDetail, error) {
	t := s.read()
	x, err := readSession(ctx, t, by, "", id)
	if err != nil {
		return nil, err
	}
	count, skip := window(limit, offset)
	runs, err := many(ctx, t, scanRun, `SELECT `+runColumns+runFrom+` WHERE r.session_n = ? ORDER BY r.turn LIMIT ? OFFSET ?`, x.n, count, skip)
	if err != nil {
		return nil, hob.Wrap("list a session's runs", err)
	}
	list, err := stories(ctx, t, runs)
	return list, hob.Wrap("read the stories of a session's runs", err)
}
