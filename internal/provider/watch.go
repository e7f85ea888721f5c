package provider

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"hob"
)

// sink passes deltas to the consumer and remembers whether there were any.
type sink struct {
	yield    func(hob.Delta, error) bool
	dog      *watchdog
	idle     time.Duration // silence from the first delta on
	stall    time.Duration // signs of life without progress from the first delta on
	works    func()        // called before the first delta is passed on; may be nil
	began    bool          // a delta was passed on
	finished bool          // the last one was
	stopped  bool          // the consumer wants no more
}

func (s *sink) emit(d hob.Delta) {
	if s.stopped {
		return
	}
	if !s.began {
		s.began = true
		s.dog.limit, s.dog.stall = s.idle, s.stall
		if s.works != nil {
			s.works()
		}
	}
	s.dog.progress()
	s.dog.pause() // the consumer may take its time
	s.finished = d.Finish != ""
	s.stopped = !s.yield(d, nil)
}

// watchdog cancels a try that stays silent, or that gives signs of life and nothing else. Every byte is a sign of life:
// comments, keep-alives, a part of an event. Progress is a delta, or a piece of a tool call or of an artefact, which are
// passed on when they are whole. Signs of life are waited for up to limit, progress up to stall.
//
// It needs no goroutine: the timer's function runs only when it fires. All methods are called by the one goroutine that
// reads.
type watchdog struct {
	timer   *time.Timer
	limit   time.Duration
	stall   time.Duration
	until   time.Time   // progress is due; zero = it came, and its time begins with the next sign of life
	stalled atomic.Bool // what the timer was set to end is a lack of progress
}

func watch(limit, stall time.Duration, cancel context.CancelCauseFunc) *watchdog {
	w := &watchdog{limit: limit, stall: stall, until: monotonic().Add(stall)}
	w.timer = time.AfterFunc(limit, func() {
		if w.stalled.Load() {
			cancel(errStalled)
			return
		}
		cancel(errSilent)
	})
	return w
}

// alive notes a sign of life and ends a pause.
func (w *watchdog) alive() {
	now := monotonic()
	if w.until.IsZero() {
		w.until = now.Add(w.stall)
	}
	left := w.until.Sub(now)
	w.stalled.Store(left < w.limit)
	w.timer.Reset(min(w.limit, left))
}

// monotonic is a time to measure from that does not jump when the machine's clock is set.
func monotonic() time.Time { return time.Now() } //nolint:forbidigo // see above

// progress notes that something came that the answer is made of.
func (w *watchdog) progress() { w.until = time.Time{} }

// pause stops the watch until the next sign of life.
func (w *watchdog) pause() { w.timer.Stop() }

// gatherer is a decoder that holds back what is passed on only when it is whole.
type gatherer interface {
	gathered() int // bytes so far; it never shrinks
}

func (d *chatDecoder) gathered() int     { return d.calls.size + d.details.size }
func (d *messagesDecoder) gathered() int { return d.size }

// watchedBody is a body whose every read feeds the watchdog.
type watchedBody struct {
	io.Reader
	dog *watchdog
}

func (b watchedBody) Read(p []byte) (int, error) {
	b.dog.alive()
	return b.Reader.Read(p)
}
