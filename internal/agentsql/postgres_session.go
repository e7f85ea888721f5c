package agentsql

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// idleSessions is how many sessions of each kind are kept per login, and
	// idleFor how long.
	idleSessions = 4
	idleFor      = time.Minute
)

// idleSession is a clean session that waits for its next statement.
type idleSession struct {
	conn  *pgx.Conn
	since time.Time
}

// session returns a session of a role: one kept from before, or a new one.
func (l *login) session(ctx context.Context, role string) (*pgx.Conn, error) {
	for {
		l.mu.Lock()
		kept := l.idle[role]
		if len(kept) == 0 {
			l.mu.Unlock()
			settings := l.settings
			conn, err := l.db.connect(ctx, role, l.db.password(role), settings)
			if err == nil && role == l.checker {
				err = warm(ctx, conn)
			}
			if err != nil {
				return nil, unavailable(err, "The project database cannot be reached")
			}
			return conn, nil
		}
		last := kept[len(kept)-1]
		l.idle[role] = kept[:len(kept)-1]
		l.mu.Unlock()
		if time.Since(last.since) < idleFor && !last.conn.IsClosed() {
			return last.conn, nil
		}
		drop(last.conn)
	}
}

// warm makes the session's schema for temporary objects once and for all. Left
// to the checks, which are rolled back, each of them would make it anew.
func warm(ctx context.Context, conn *pgx.Conn) error {
	t, err := send(ctx, conn, []string{"CREATE TEMPORARY VIEW hob_warm AS SELECT 1"}, []string{"DROP VIEW hob_warm"})
	for range 2 {
		if err == nil {
			err = t.skip()
		}
	}
	if err == nil {
		err = t.end()
	}
	if err != nil {
		drop(conn)
		return fmt.Errorf("prepare a session for checks: %w", err)
	}
	return nil
}

// keep returns a session that is clean again to the idle ones.
func (l *login) keep(role string, conn *pgx.Conn) {
	l.db.mu.Lock()
	closed := l.db.closed
	l.db.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	const idleState = 'I' // outside a transaction
	if closed || len(l.idle[role]) >= idleSessions || conn.PgConn().TxStatus() != idleState {
		drop(conn)
		return
	}
	l.idle[role] = append(l.idle[role], idleSession{conn, time.Now()}) //nolint:forbidigo // dropStale measures its age
	if l.prune == nil {
		l.prune = time.AfterFunc(idleFor, l.dropStale)
	}
}

// dropStale ends sessions that nobody wanted for a while.
func (l *login) dropStale() {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := 0
	for role := range l.idle {
		l.idle[role] = slices.DeleteFunc(l.idle[role], func(s idleSession) bool {
			stale := time.Since(s.since) >= idleFor
			if stale {
				drop(s.conn)
			}
			return stale
		})
		left += len(l.idle[role])
	}
	l.prune = nil
	if left > 0 {
		l.prune = time.AfterFunc(idleFor, l.dropStale)
	}
}

func (l *login) closeIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.prune != nil {
		l.prune.Stop()
		l.prune = nil
	}
	for role, kept := range l.idle {
		for _, s := range kept {
			drop(s.conn)
		}
		delete(l.idle, role)
	}
}

// drop ends a session without waiting for the server.
func drop(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), terminateGrace)
	defer cancel()
	// Whether the farewell arrives does not matter: the socket is closed.
	_ = conn.Close(ctx)
}
