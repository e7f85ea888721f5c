package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"hob"
)

const (
	pieceSize  = 32 << 10 // frames are written in pieces of about this size
	keptBuffer = 64 << 10 // larger buffers are not kept for the next batch
	// sendBuffer is how much of a stream the system may hold unsent for a reader; what is more waits here, and a reader
	// that leaves it waiting for Limits.WriteTime is cut.
	sendBuffer = 64 << 10
)

// keepAlive is a comment frame, which readers skip.
const keepAlive = ": keepalive\n\n"

// newPiece makes a buffer for batches. They are lent, so that a silent stream holds none.
func newPiece() any { b := make([]byte, 0, 4<<10); return &b }

// reading is how a caller follows a run.
type reading struct {
	run      hob.RunID
	after    int64 // the last event it has
	numbered bool  // with id lines
	over     bool  // the run had ended, and after is its last event
	own      bool  // the caller started it
}

// follow sends a run's events as they come, behind a position, until the run's end. An error before the first byte is
// answered as usual; after it the connection is cut and the reader may come back. A stream that ends whole has told the
// run's end: one that the server gives up early, because it shuts down, is cut.
func (c *call) follow(ctx context.Context, r reading) error {
	begun, over := false, r.over
	for batch, err := range c.s.Engine.Events(ctx, c.follower(), r.run, r.after, c.s.Limits.KeepAlive) {
		if err != nil {
			return c.left(ctx, r, err)
		}
		if !begun {
			c.begin()
			begun = true
		}
		if err := c.send(batch, r.numbered); err != nil {
			return err
		}
		over = over || (len(batch) > 0 && batch[len(batch)-1].Type == hob.EventComplete)
	}
	if !over {
		return ending(r.run)
	}
	if !begun {
		c.begin()
		return c.rc.Flush()
	}
	return nil
}

// ending tells a reader that the run goes on without this process.
func ending(id hob.RunID) error {
	e := hob.Errorf(hob.Unavailable, "the server is shutting down; the run goes on and its events can be read later").
		WithCode("shutting_down").With("run_id", id)
	e.RetryAfter = time.Second
	return e
}

// left tells a credential that ended from a fault. A run that a revoked key started and waits for ends with it, tools
// under way included.
func (c *call) left(ctx context.Context, r reading, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errExpired):
		return unauthorized("Token has expired", "token_expired")
	case errors.Is(cause, errRevoked):
		if r.own {
			if _, err := c.s.Engine.Cancel(context.WithoutCancel(ctx), c.by, r.run); err != nil {
				return hob.Wrap("cancel the run of a revoked key", err)
			}
		}
		return unauthorized("Invalid token: "+errRevoked.Error(), "key_revoked")
	}
	if hob.KindOf(err) == hob.NotFound {
		return absentRun()
	}
	return err
}

// begin sends the head of a stream.
func (c *call) begin() {
	if conn, ok := c.Context().Value(connKey{}).(interface{ SetWriteBuffer(int) error }); ok {
		_ = conn.SetWriteBuffer(sendBuffer) // the deadline bounds a slow reader all the same
	}
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-store")
	h.Set("X-Accel-Buffering", "no")
	_ = c.rc.SetWriteDeadline(socketTime(c.s.Limits.WriteTime))
	c.w.WriteHeader(http.StatusOK)
}

// send writes a batch: its frames in one buffer, one write, one flush. A frame is the event's own bytes.
func (c *call) send(batch []hob.Event, numbered bool) error {
	p := c.s.pieces.Get().(*[]byte) //nolint:forcetypeassert // the pool makes nothing else
	b := (*p)[:0]
	defer func() {
		if cap(b) <= keptBuffer {
			*p = b
			c.s.pieces.Put(p)
		}
	}()
	if len(batch) == 0 {
		b = append(b, keepAlive...)
	}
	for i := range batch {
		if len(b) >= pieceSize {
			if err := c.flush(b); err != nil {
				return err
			}
			b = b[:0]
		}
		b = appendFrame(b, &batch[i], numbered)
	}
	c.s.metrics.events.Add(int64(len(batch)))
	return c.flush(b)
}

// appendFrame is the one encoder of frames. Data is one line by construction: it is compact JSON.
func appendFrame(b []byte, e *hob.Event, numbered bool) []byte {
	if numbered {
		b = append(b, "id: "...)
		b = strconv.AppendInt(b, e.Seq, 10)
		b = append(b, '\n')
	}
	b = append(b, "data: "...)
	b = append(b, e.Data...)
	return append(b, '\n', '\n')
}

func (c *call) flush(b []byte) error {
	if err := c.rc.SetWriteDeadline(socketTime(c.s.Limits.WriteTime)); err != nil && !isUnsupported(err) {
		return err
	}
	if _, err := c.w.Write(b); err != nil {
		return err
	}
	return c.rc.Flush()
}
