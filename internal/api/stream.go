package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"hob"
)

const (
	// pieceSize is about how much is written at once, and the most that waits in this process for one reader.
	pieceSize = 8 << 10
	// sendBuffer is what the system is asked to hold unsent for a reader at most. Linux holds some more; with a piece it is
	// 64 KiB. A reader that does not take the piece within Limits.WriteTime is cut.
	sendBuffer = 16 << 10
	// vanishTime is how long what was sent may stay unacknowledged, or a reader take nothing at all, before the system
	// takes its connection for broken. Without it a client that vanished without a word would hold a quiet stream, and
	// keep its run from being left, for a quarter of an hour.
	vanishTime = time.Minute
)

// keepAlive is a comment frame, which readers skip.
const keepAlive = ": keepalive\n\n"

// reading is how a caller follows a run.
type reading struct {
	by       hob.Principal
	run      hob.RunID
	after    int64 // the last event it has
	numbered bool  // with id lines
	own      bool  // the caller started it with this request
}

// stream is one reader of a run on its way to one connection. It runs on a goroutine of its own, beside the handler's. A
// stream that lasts is taken over from net/http (see line), and the handler's goroutine ends.
type stream struct {
	reading
	record
	s     *server
	lease *lease

	mu    sync.Mutex // a piece is being written, or the connection taken over
	begun bool       // the head was sent
	over  bool       // what is to be said is said or failed; the handler ends the answer
	w     http.ResponseWriter
	rc    *http.ResponseController
	line  *line // once taken over; w and rc are nil then
}

// follow sends a run's events as they come, behind a position, until the run's end, and releases the lease. An error
// before the first byte is answered as usual; after it the connection is cut and the reader may come back. A stream that
// ends whole has told the run's end: one that the server gives up early, because it shuts down, is cut.
func (c *call) follow(l *lease, r reading) error {
	t := &stream{reading: r, record: c.record, s: c.s, lease: l, w: c.w, rc: c.rc}
	if conn, ok := c.Context().Value(connKey{}).(net.Conn); ok {
		if tcp := tcpOf(conn); tcp != nil {
			_ = tcp.SetWriteBuffer(sendBuffer) // the deadlines bound a slow reader all the same
			giveUpAfter(tcp, vanishTime)
		}
	}
	defer context.AfterFunc(c.Context(), l.leave)()
	done := make(chan error, 1)
	c.s.lines.group.Go(func() { t.serve(done) })
	brief := time.NewTimer(c.s.Limits.TakeOver)
	defer brief.Stop()
	select {
	case err := <-done:
		return err
	case <-brief.C:
	}
	if !t.takeOver(c) {
		return <-done
	}
	c.taken = true
	return nil
}

// serve carries the stream out. done gets its end, unless the connection was taken over.
func (t *stream) serve(done chan<- error) {
	err := t.guarded()
	t.lease.release()
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	if t.line == nil { // it cannot be taken over any more
		done <- err
		return
	}
	kept := t.line.end(t, err)
	t.s.done(t.record, http.StatusOK)
	if kept {
		t.line.next(t.s)
	}
	t.s.lines.remove(t.line.conn)
	t.line.listening.Wait()
}

// guarded is events with a net under panics, as ServeHTTP is for handlers.
func (t *stream) guarded() (err error) {
	defer func() {
		if v := recover(); v != nil {
			t.s.panicked(t.id, v)
			err = hob.Errorf(hob.Internal, "a stream panicked")
		}
	}()
	return t.events()
}

func (t *stream) events() error {
	told := false
	for batch, err := range t.s.Engine.Events(t.lease.ctx, t.by, t.run, t.after, t.s.Limits.KeepAlive) {
		if err != nil {
			return t.s.left(t.lease, t.reading, err)
		}
		t.begin()
		if err := t.send(batch); err != nil {
			return t.unsent(err)
		}
		if n := len(batch); n > 0 {
			t.after, told = batch[n-1].Seq, batch[n-1].Type == hob.EventComplete
		}
	}
	if !told && !t.past() {
		return ending(t.run)
	}
	t.begin()
	return nil
}

// past says whether the run had ended, and the reader had its last event, before it came.
func (t *stream) past() bool {
	run, err := t.s.Store.Run(t.lease.ctx, t.by, t.run)
	return err == nil && run.Status.Final() && t.after >= run.LastSeq
}

// ending tells a reader that the run goes on without this process.
func ending(id hob.RunID) error {
	e := hob.Errorf(hob.Unavailable, "the server is shutting down; the run goes on and its events can be read later").
		WithCode("shutting_down").With("run_id", id)
	e.RetryAfter = time.Second
	return e
}

// left tells a credential that ended, and a client that left, from a fault. A run that a revoked key started and follows
// ends with it, tools under way included.
func (s *server) left(l *lease, r reading, err error) error {
	switch cause := context.Cause(l.ctx); {
	case errors.Is(cause, errLeft):
		return errLeft
	case errors.Is(cause, errExpired):
		return unauthorized("Token has expired", "token_expired")
	case errors.Is(cause, errRevoked):
		if err := s.endOwn(context.WithoutCancel(l.ctx), l, r); err != nil {
			return hob.Wrap("cancel the run of a revoked key", err)
		}
		return unauthorized("Invalid token: "+errRevoked.Error(), "key_revoked")
	}
	var e *hob.Error
	switch {
	case hob.KindOf(err) == hob.NotFound:
		return absentRun()
	case errors.As(err, &e) && e.Code == codePosition:
		return badPosition()
	}
	return err
}

// endOwn cancels the run where the reader started it.
func (s *server) endOwn(ctx context.Context, l *lease, r reading) error {
	if !r.own {
		run, err := s.Store.Run(ctx, r.by, r.run)
		if err != nil || whoIs(run.Principal) != l.who {
			return err
		}
	}
	_, err := s.Engine.Cancel(ctx, r.by, r.run)
	return err
}

// errSlow ends the stream of a reader that left a piece unread for Limits.WriteTime.
var errSlow = errors.New("the reader is too slow")

// unsent is the error for a piece that could not be written. net/http says that the client left then, whatever the cause.
func (t *stream) unsent(err error) error {
	cause := context.Cause(t.lease.ctx)
	switch {
	case cause != nil && !errors.Is(cause, errLeft):
		return t.s.left(t.lease, t.reading, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSlow
	}
	return errLeft
}

// begin sends the head of a stream, or leaves it to go with what follows.
func (t *stream) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open()
}

// open is begin, under the lock.
func (t *stream) open() {
	if t.begun {
		return
	}
	t.begun = true
	h := t.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-store")
	h.Set("X-Accel-Buffering", "no")
	_ = t.rc.SetWriteDeadline(socketTime(t.s.Limits.WriteTime))
	t.w.WriteHeader(http.StatusOK)
}

// piece gathers frames. Pieces are lent, so that a silent stream holds none.
type piece struct {
	b []byte // begins with chunkRoom bytes that are not of the stream
}

func newPiece() any { return &piece{b: make([]byte, chunkRoom, 4<<10)} }

// send writes a batch, piece by piece. A frame is the event's own bytes.
func (t *stream) send(batch []hob.Event) error {
	p := t.s.pieces.Get().(*piece) //nolint:forcetypeassert // the pool makes nothing else
	defer t.s.pieces.Put(p)
	p.b = p.b[:chunkRoom]
	if len(batch) == 0 {
		p.b = append(p.b, keepAlive...)
	}
	for i := range batch {
		if err := t.frame(p, &batch[i]); err != nil {
			return err
		}
	}
	t.s.metrics.events.Add(int64(len(batch)))
	return t.flush(p)
}

// frame adds a frame to a piece and sends what fills it: a long event is never held twice.
func (t *stream) frame(p *piece, e *hob.Event) error {
	p.b = appendHead(p.b, e, t.numbered)
	data := e.Data
	for len(p.b)+len(data) > pieceSize {
		n := min(max(0, pieceSize-len(p.b)), len(data))
		p.b = append(p.b, data[:n]...)
		data = data[n:]
		if err := t.flush(p); err != nil {
			return err
		}
	}
	p.b = append(p.b, data...)
	p.b = append(p.b, frameEnd...)
	return nil
}

const frameEnd = "\n\n"

// appendHead begins a frame: what follows is the data in one line, which it is by construction (compact JSON), and
// frameEnd.
func appendHead(b []byte, e *hob.Event, numbered bool) []byte {
	if numbered {
		b = append(b, "id: "...)
		b = strconv.AppendInt(b, e.Seq, 10)
		b = append(b, '\n')
	}
	return append(b, "data: "...)
}

// flush writes a piece and empties it.
func (t *stream) flush(p *piece) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { p.b = p.b[:chunkRoom] }()
	if t.line != nil {
		return t.line.write(p, t.s.Limits.WriteTime)
	}
	if err := t.rc.SetWriteDeadline(socketTime(t.s.Limits.WriteTime)); err != nil && !isUnsupported(err) {
		return err
	}
	if _, err := t.w.Write(p.b[chunkRoom:]); err != nil {
		return err
	}
	return t.rc.Flush()
}
