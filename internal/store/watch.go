package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"hob"
)

// Settings of the news that processes on one Postgres send each other.
const (
	newsChannel = "hob_runs"
	newsGather  = 5 * time.Millisecond // changes within it share a notification
	newsTime    = 2 * time.Second      // bound of sending one
	newsBytes   = 7000                 // of one notification; Postgres takes 8,000
)

// news tells the other processes on the database which runs this one wrote to. It is sent beside the commits, never in
// them: Postgres lets transactions that notify commit one at a time. nil where no other process can exist.
type news struct {
	db   *sql.DB
	cfg  *pgx.ConnConfig
	self string // leaves out one's own

	mu    sync.Mutex
	runs  map[hob.RunID]struct{}
	any   bool // something happened that is not about one run
	busy  bool
	ended bool
	group sync.WaitGroup
}

func newNews(db *sql.DB, cfg *pgx.ConnConfig) *news {
	return &news{db: db, cfg: cfg, self: hob.RandomHex(4), runs: map[hob.RunID]struct{}{}}
}

// tell notes changed runs, none for a change that may be about any, and has them sent soon.
func (n *news) tell(runs ...hob.RunID) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return
	}
	n.any = n.any || len(runs) == 0
	for _, id := range runs {
		n.runs[id] = struct{}{}
	}
	if !n.busy {
		n.busy = true
		n.group.Go(n.send)
	}
}

// send sends until nothing waits. What cannot be sent is dropped: readers look by themselves now and then.
func (n *news) send() {
	for {
		time.Sleep(newsGather)
		texts := n.take()
		if len(texts) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), newsTime)
		for _, text := range texts {
			if _, err := n.db.ExecContext(ctx, `SELECT pg_notify($1, $2)`, newsChannel, text); err != nil {
				break
			}
		}
		cancel()
	}
}

// take gives the notifications that tell what waits.
func (n *news) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var texts []string
	if n.any {
		texts = append(texts, n.self)
	}
	text := n.self
	for id := range n.runs {
		if len(text)+1+len(id) > newsBytes {
			texts, text = append(texts, text), n.self
		}
		text += " " + string(id)
	}
	if len(text) > len(n.self) {
		texts = append(texts, text)
	}
	n.any = false
	clear(n.runs)
	n.busy = len(texts) > 0
	return texts
}

// close ends the sending; what waits is still sent.
func (n *news) close() {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.ended = true
	n.mu.Unlock()
	n.group.Wait()
}

// Watch listens to the other processes on a connection of its own.
func (s *DB) Watch(ctx context.Context, changed func([]hob.RunID)) error {
	if s.e.news == nil {
		<-ctx.Done()
		return nil
	}
	err := s.e.news.listen(ctx, changed)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to end
	}
	return hob.Wrap("listen to the other processes", err)
}

func (n *news) listen(ctx context.Context, changed func([]hob.RunID)) error {
	conn, err := pgx.ConnectConfig(ctx, n.cfg.Copy())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is not used any more
	if _, err := conn.Exec(ctx, "LISTEN "+newsChannel); err != nil {
		return err
	}
	changed(nil) // what happened before is not told
	for {
		got, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("wait for a notification: %w", err)
		}
		words := strings.Fields(got.Payload)
		if len(words) == 0 || words[0] == n.self {
			continue
		}
		runs := make([]hob.RunID, len(words)-1)
		for i, id := range words[1:] {
			runs[i] = hob.RunID(id)
		}
		changed(runs)
	}
}
