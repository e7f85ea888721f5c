package provider

import (
	"context"
	"io"
	"time"

	"hob"
)

// sink passes deltas to the consumer and remembers whether there were any.
type sink struct {
	yield    func(hob.Delta, error) bool
	dog      *watchdog
	idle     time.Duration
	began    bool // a delta was passed on
	finished bool // the last one was
	stopped  bool // the consumer wants no more
}

func (s *sink) emit(d hob.Delta) {
	if s.stopped {
		return
	}
	if !s.began {
		s.began = true
		s.dog.limit = s.idle
	}
	s.dog.pause() // the consumer may take its time
	s.finished = d.Finish != ""
	s.stopped = !s.yield(d, nil)
}

// watchdog cancels a try that stays silent. It needs no goroutine: the timer's function runs only when it fires. All
// methods are called by the one goroutine that reads.
type watchdog struct {
	timer *time.Timer
	limit time.Duration
}

func watch(limit time.Duration, cancel context.CancelCauseFunc) *watchdog {
	return &watchdog{limit: limit, timer: time.AfterFunc(limit, func() { cancel(errSilent) })}
}

// alive notes a sign of life and ends a pause.
func (w *watchdog) alive() { w.timer.Reset(w.limit) }

// pause stops the watch until the next sign of life.
func (w *watchdog) pause() { w.timer.Stop() }

// watchedBody is a body whose every read feeds the watchdog.
type watchedBody struct {
	io.Reader
	dog *watchdog
}

func (b watchedBody) Read(p []byte) (int, error) {
	b.dog.alive()
	return b.Reader.Read(p)
}
