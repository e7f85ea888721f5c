package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hob"
)

// Bounds of the SQLite writer.
const (
	maxBatch   = 256  // writes in one transaction
	queueBound = 1024 // writes that wait; beyond, callers block
)

// batcher writes a SQLite database, one transaction at a time. Writes wait in the order in which they were handed in. The
// caller whose write is first leads: it takes all that wait into one transaction, so that they share its fsync, answers
// them when it is durable, and hands the lead on. A caller that comes alone thus writes at once, without waking anybody.
type batcher struct {
	conn session
	room chan struct{} // one for each write that waits
	stop chan struct{} // closed by close: no more writes are taken
	done chan struct{} // closed when stop is and the last write was answered
	once sync.Once

	mu      sync.Mutex
	queue   []*job
	leading bool // somebody leads, or was told to
	closed  bool

	batch  []*job // the leader's, as is
	shared bool   // whether the last batch held more than one write
	chain  chain  // the leader's too
	keep   keepFunc
	notes  []hob.AuditEntry // the leader's, as is

	writes, commits, reruns atomic.Int64
	largest                 atomic.Int64
	failing                 atomic.Bool // the last transaction that wrote could not be stored
}

// keepFunc stores what the writes of a batch have noted for the audit log.
type keepFunc func(context.Context, *tx, []hob.AuditEntry) error

// session is the writer's connection.
type session interface {
	querier
	close() error
}

// job is a write on its way through the queue.
type job struct {
	fn    func(context.Context, *tx) error
	state jobState
	err   error     // set before turn tells that the write was carried out
	turn  chan bool // true: lead; false: it was carried out
}

// jobState is guarded by the batcher's lock.
type jobState int

// A job waits until it is taken into a batch or told to lead; until then its caller may abandon it.
const (
	jobWaiting jobState = iota
	jobBegun
	jobAbandoned
)

func newBatcher(conn session) *batcher {
	return &batcher{
		conn: conn, room: make(chan struct{}, queueBound), batch: make([]*job, 0, maxBatch),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
}

func errClosed() error { return hob.Errorf(hob.Unavailable, "the store is closed") }

// unavailable is the error of a database that cannot be reached now.
func unavailable(err error) error {
	e := hob.Errorf(hob.Unavailable, "the database cannot be reached now; try again")
	e.RetryAfter, e.Err = time.Second, err
	return e
}

// write hands fn in and waits until it is durable. A caller whose ctx ends gets ctx's error only when fn was not and will
// not be begun.
func (b *batcher) write(ctx context.Context, fn func(context.Context, *tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-b.stop:
		return errClosed()
	default:
	}
	select {
	case b.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-b.stop:
		return errClosed()
	}
	j := &job{fn: fn, turn: make(chan bool, 1)}
	lead, err := b.enter(j)
	if err != nil {
		return err
	}
	if !lead {
		select {
		case lead = <-j.turn:
		case <-ctx.Done():
			if b.abandon(j) {
				return ctx.Err()
			}
			lead = <-j.turn
		}
	}
	if lead {
		b.lead()
	}
	return j.err
}

// enter puts a job into the queue. true: nobody leads, so its caller does.
func (b *batcher) enter(j *job) (lead bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		<-b.room
		return false, errClosed()
	}
	b.queue = append(b.queue, j)
	if b.leading {
		return false, nil
	}
	b.leading, j.state = true, jobBegun
	return true, nil
}

// abandon takes a job back, unless it was begun.
func (b *batcher) abandon(j *job) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j.state != jobWaiting {
		return false
	}
	j.state = jobAbandoned
	return true
}

// lead carries out what waits, the leader's own write first of all, and hands the lead on.
func (b *batcher) lead() {
	if b.shared { // others write too: who is about to hand something in may still join
		runtime.Gosched()
	}
	batch := b.gather()
	b.shared = len(batch) > 1
	b.carryOut(batch)
	for _, j := range batch {
		j.turn <- false // the leader's own is not read
	}
	clear(batch) // what is answered is not kept alive
	if next := b.next(); next != nil {
		next.turn <- true
	}
}

// gather takes what waits, in order, up to the size of a batch.
func (b *batcher) gather() []*job {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch, taken := b.batch[:0], 0
	for _, j := range b.queue {
		if len(batch) == maxBatch {
			break
		}
		taken++
		<-b.room
		if j.state != jobAbandoned {
			j.state = jobBegun
			batch = append(batch, j)
		}
	}
	b.queue = slices.Delete(b.queue, 0, taken)
	return batch
}

// next names the next leader, nil when nobody waits.
func (b *batcher) next() *job {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, j := range b.queue {
		if j.state == jobAbandoned {
			<-b.room
			continue
		}
		b.queue = slices.Delete(b.queue, 0, i)
		j.state = jobBegun
		return j
	}
	b.queue = slices.Delete(b.queue, 0, len(b.queue))
	b.leading = false
	if b.closed {
		close(b.done)
	}
	return nil
}

// carryOut runs a batch and notes everybody's answer.
func (b *batcher) carryOut(batch []*job) {
	if len(batch) == 0 {
		return
	}
	b.writes.Add(int64(len(batch)))
	b.largest.Store(max(b.largest.Load(), int64(len(batch))))
	if !b.together(batch) && (len(batch) > 1 || errors.Is(batch[0].err, errStale)) {
		b.reruns.Add(1)
		for i, j := range batch {
			j.err = nil
			if !b.together(batch[i:i+1]) && errors.Is(j.err, errStale) {
				j.err = nil
				b.together(batch[i : i+1])
			}
		}
	}
	for _, j := range batch {
		if full(j.err) {
			b.failing.Store(true)
			j.err = unavailable(j.err)
		}
	}
}

// together runs the batch in one transaction. false: one of them failed in a way that may have left something behind, so
// all was rolled back, and each has to run alone; a batch of one then has its error.
//
// A write that returns a *hob.Error and changed nothing (fenced, absent, conflict) is answered and does not trouble the
// others. Any other error may mean that SQLite ended the transaction by itself.
func (b *batcher) together(batch []*job) bool {
	ctx := context.Background()
	if err := b.begin(ctx); err != nil {
		answer(batch, unavailable(fmt.Errorf("begin a transaction: %w", err)))
		return true
	}
	wrote, notes := false, b.notes[:0]
	for _, j := range batch {
		t := &tx{q: b.conn, chain: &b.chain}
		j.err = attempt(ctx, j.fn, t)
		var typed *hob.Error
		if j.err != nil && (t.wrote || !errors.As(j.err, &typed)) {
			b.rollback()
			return false
		}
		wrote = wrote || t.wrote || len(t.notes) > 0
		notes = append(notes, t.notes...)
	}
	if len(notes) > 0 {
		b.notes = notes
		defer clear(notes)
		if err := b.keep(ctx, &tx{q: b.conn, chain: &b.chain}, notes); err != nil {
			b.rollback()
			answer(batch, err)
			return false
		}
	}
	if !wrote {
		b.rollback()
		return true
	}
	if _, err := b.conn.exec(ctx, "COMMIT", nil); err != nil {
		b.rollback()
		answer(batch, fmt.Errorf("commit: %w", err))
		return true
	}
	b.commits.Add(1)
	b.failing.Store(false)
	return true
}

// probe says whether writes can be stored: it tries one where the last could not be.
func (b *batcher) probe(ctx context.Context) error {
	if !b.failing.Load() {
		return nil
	}
	return b.write(ctx, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO meta (name, value) VALUES ('probe', ?)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`, hob.RandomHex(16))
		return err
	})
}

// begin opens the transaction; should one be open, which only a failed rollback could leave, it is ended first.
func (b *batcher) begin(ctx context.Context) error {
	b.chain.begin()
	_, err := b.conn.exec(ctx, "BEGIN IMMEDIATE", nil)
	if err != nil {
		b.rollback()
		_, err = b.conn.exec(ctx, "BEGIN IMMEDIATE", nil)
	}
	return err
}

// rollback ends the transaction. Its error only ever says that SQLite had ended it before.
func (b *batcher) rollback() {
	_, _ = b.conn.exec(context.Background(), "ROLLBACK", nil)
	b.chain.undo()
}

// answer gives err to those of the batch that have no error of their own.
func answer(batch []*job, err error) {
	for _, j := range batch {
		if j.err == nil {
			j.err = err
		}
	}
}

// attempt calls fn; a panic in it is its error and does not end the writer.
func attempt(ctx context.Context, fn func(context.Context, *tx) error, t *tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(ctx, t)
}

// close takes no more writes, waits until those that were handed in are carried out, and closes the connection.
func (b *batcher) close() error {
	b.once.Do(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.closed = true
		close(b.stop)
		if !b.leading {
			close(b.done)
		}
	})
	<-b.done
	return b.conn.close()
}

func (b *batcher) stats() Stats {
	b.mu.Lock()
	waiting := int64(len(b.queue))
	b.mu.Unlock()
	return Stats{
		Writes: b.writes.Load(), Commits: b.commits.Load(), Reruns: b.reruns.Load(),
		LargestBatch: b.largest.Load(), Waiting: waiting,
	}
}

// prepared is a connection that keeps its prepared statements.
type prepared struct {
	d     *dialect
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func (p *prepared) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := p.stmts[query]; ok {
		return s, nil
	}
	s, err := p.conn.PrepareContext(ctx, p.d.rebind(query))
	if err != nil {
		return nil, err
	}
	p.stmts[query] = s
	return s, nil
}

func (p *prepared) exec(ctx context.Context, query string, args []any) (sql.Result, error) {
	s, err := p.stmt(ctx, query) //nolint:sqlclosecheck // kept for the next time and closed with the connection
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args...)
}

func (p *prepared) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	s, err := p.stmt(ctx, query) //nolint:sqlclosecheck // kept for the next time and closed with the connection
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (p *prepared) define(ctx context.Context, stmt string) error {
	_, err := p.conn.ExecContext(ctx, stmt)
	return err
}

func (p *prepared) close() error {
	var errs []error
	for _, s := range p.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, p.conn.Close())...)
}
