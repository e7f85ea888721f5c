package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
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

// batcher is the one writer of a SQLite database. Writes wait in the order in which they were handed in; the writer takes
// all that wait into one transaction, so that they share its fsync, and answers them when it is durable.
type batcher struct {
	conn  session
	queue chan *job
	stop  chan struct{} // closed by close: no more writes are taken
	done  chan struct{} // closed by the writer when it has ended
	once  sync.Once

	writes, commits, reruns atomic.Int64
	largest                 atomic.Int64
}

// session is the writer's connection.
type session interface {
	querier
	close() error
}

// job is a write on its way through the queue.
type job struct {
	fn    func(context.Context, *tx) error
	state atomic.Int32
	err   error         // set by the writer before done is closed
	done  chan struct{} // closed by the writer
}

// The states of a job. A caller that gives up and the writer that begins both move it on from waiting: one of them wins.
const (
	jobWaiting = iota
	jobStarted
	jobAbandoned
)

func newBatcher(conn session) *batcher {
	return &batcher{
		conn: conn, queue: make(chan *job, queueBound),
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
	j := &job{fn: fn, done: make(chan struct{})}
	select {
	case b.queue <- j:
	case <-ctx.Done():
		return ctx.Err()
	case <-b.stop:
		return errClosed()
	}
	var gaveUp error
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		gaveUp = ctx.Err()
	case <-b.done: // the writer ended, perhaps before it saw this one
		gaveUp = errClosed()
	}
	if j.state.CompareAndSwap(jobWaiting, jobAbandoned) {
		return gaveUp
	}
	<-j.done
	return j.err
}

// run is the writer. It ends when close was called and nothing waits any more.
func (b *batcher) run() {
	defer close(b.done)
	batch := make([]*job, 0, maxBatch)
	for {
		var first *job
		select {
		case first = <-b.queue:
		case <-b.stop:
			select {
			case first = <-b.queue:
			default:
				return
			}
		}
		batch = b.gather(batch[:0], first)
		b.carryOut(batch)
		clear(batch) // what is answered is not kept alive
	}
}

// gather takes what waits, first of all the given one, without waiting for more.
func (b *batcher) gather(batch []*job, first *job) []*job {
	for j := first; ; {
		if j.state.CompareAndSwap(jobWaiting, jobStarted) {
			batch = append(batch, j)
		}
		if len(batch) == maxBatch {
			return batch
		}
		select {
		case j = <-b.queue:
		default:
			return batch
		}
	}
}

// carryOut runs a batch and answers everybody in it.
func (b *batcher) carryOut(batch []*job) {
	if len(batch) == 0 {
		return
	}
	b.writes.Add(int64(len(batch)))
	b.largest.Store(max(b.largest.Load(), int64(len(batch))))
	if !b.together(batch) && len(batch) > 1 {
		b.reruns.Add(1)
		for i, j := range batch {
			j.err = nil
			b.together(batch[i : i+1])
		}
	}
	for _, j := range batch {
		close(j.done)
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
	wrote := false
	for _, j := range batch {
		t := &tx{q: b.conn}
		j.err = attempt(ctx, j.fn, t)
		var typed *hob.Error
		if j.err != nil && (t.wrote || !errors.As(j.err, &typed)) {
			b.rollback()
			return false
		}
		wrote = wrote || t.wrote
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
	return true
}

// begin opens the transaction; should one be open, which only a failed rollback could leave, it is ended first.
func (b *batcher) begin(ctx context.Context) error {
	_, err := b.conn.exec(ctx, "BEGIN IMMEDIATE", nil)
	if err != nil {
		b.rollback()
		_, err = b.conn.exec(ctx, "BEGIN IMMEDIATE", nil)
	}
	return err
}

// rollback ends the transaction. Its error only ever says that SQLite had ended it before.
func (b *batcher) rollback() { _, _ = b.conn.exec(context.Background(), "ROLLBACK", nil) }

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

// close takes no more writes, carries out those that were handed in, and ends the writer.
func (b *batcher) close() error {
	b.once.Do(func() { close(b.stop) })
	<-b.done
	return b.conn.close()
}

func (b *batcher) stats() Stats {
	return Stats{
		Writes: b.writes.Load(), Commits: b.commits.Load(), Reruns: b.reruns.Load(),
		LargestBatch: b.largest.Load(), Waiting: int64(len(b.queue)),
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
