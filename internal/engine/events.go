package engine

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"hob"
	"hob/internal/seeded"
)

const (
	storeBatch = 256                   // events read from the store at once
	pollBehind = 20 * time.Millisecond // while what was written a moment ago is not in the store yet, or its writer ends
)

// Events gives a run's log behind a position: what is stored, then what comes, in batches of what is there, up to the
// run's last event. With idle > 0 an empty batch tells of that much silence. The caller counts as a reader of the run
// while it ranges. Errors: NotFound, Invalid (invalid_event_id) for a position behind the end, the context's.
func (e *Engine) Events(ctx context.Context, by hob.Principal, id hob.RunID, after int64, idle time.Duration) iter.Seq2[[]hob.Event, error] {
	return func(yield func([]hob.Event, error) bool) {
		r := reader{e: e, ctx: ctx, by: by, id: id, pos: after, idle: idle, yield: yield, spoke: e.Clock()}
		if err := r.check(); err != nil {
			yield(nil, err)
			return
		}
		if seeded.Bug("lost_tail") && after > 0 {
			r.pos++
		}
		if seeded.Bug("repeat_tail") && after > 0 {
			r.pos--
		}
		for r.read() {
		}
	}
}

// reader follows one run for one caller, over the processes and attempts that drive it.
type reader struct {
	e     *Engine
	ctx   context.Context //nolint:containedctx // lives as long as the caller's range
	by    hob.Principal
	id    hob.RunID
	pos   int64
	idle  time.Duration
	spoke time.Time   // when the caller last got something
	still *time.Timer // of silence, for all waits
	yield func([]hob.Event, error) bool
}

// check refuses a run that the caller may not read and a position that no log can have. The store may know events whose
// commit was not answered yet, and a reader may have them from there.
func (r *reader) check() error {
	if a := r.e.find(r.id); a != nil {
		if err := hob.Can(r.by, hob.ScopeRead, a.object); err != nil {
			return runNotFound(err)
		}
		if r.pos >= 0 && r.pos <= a.log.last() {
			return nil
		}
	}
	run, err := r.e.Store.Run(r.ctx, r.by, r.id)
	if err != nil {
		return err
	}
	if r.pos < 0 || r.pos > run.LastSeq {
		return hob.Errorf(hob.Invalid, "event id %d is beyond the end of the run's log, which is %d", r.pos, run.LastSeq).WithCode("invalid_event_id")
	}
	return nil
}

// runNotFound words the absence of a run's session as the absence of the run.
func runNotFound(err error) error {
	if hob.KindOf(err) == hob.NotFound {
		return hob.Errorf(hob.NotFound, "Run not found").WithCode("run_not_found")
	}
	return err
}

// read follows whoever has the run now; false ends the reading.
func (r *reader) read() bool {
	if a := r.e.find(r.id); a != nil {
		return r.follow(a)
	}
	return r.elsewhere()
}

// elsewhere reads a run that another process drives, or nobody, until it ends or is driven here.
func (r *reader) elsewhere() bool {
	wake, end := r.e.hub.subscribe(r.id) // before the first look, so that nothing falls between the two
	defer end()
	for r.e.find(r.id) == nil {
		if over, ok := r.stored(); over || !ok {
			return false
		}
		r.note()
		if !r.wait(wake, r.e.pollElsewhere()) {
			return false
		}
	}
	return true
}

// note lets the run's driver, wherever it is, know that the run has a reader. What cannot be noted now is noted later: the
// driver waits for longer than that.
func (r *reader) note() {
	if r.e.Alone || !r.e.hub.due(r.id, monotonic()) {
		return
	}
	if err := r.e.Store.Follow(r.ctx, r.id, followFor); err != nil && r.ctx.Err() == nil {
		r.e.Log.Debug("a reader could not be noted", slog.String("run", string(r.id)), slog.Any("error", err))
	}
}

// stored gives what the store has behind the position. over means that the run's last event was given.
func (r *reader) stored() (over, ok bool) {
	for {
		events, err := r.e.Store.Events(r.ctx, r.by, r.id, r.pos, storeBatch)
		if err != nil {
			r.yield(nil, err)
			return false, false
		}
		if len(events) == 0 {
			return r.ended()
		}
		if !r.give(events) {
			return false, false
		}
		if events[len(events)-1].Type == hob.EventComplete {
			return true, true
		}
	}
}

// ended asks for a run that was read up to its end before the caller came.
func (r *reader) ended() (over, ok bool) {
	run, err := r.e.Store.Run(r.ctx, r.by, r.id)
	if err != nil {
		r.yield(nil, err)
		return false, false
	}
	return run.Status.Final() && r.pos >= run.LastSeq, true
}

func (r *reader) give(events []hob.Event) bool {
	r.pos, r.spoke = events[len(events)-1].Seq, r.e.Clock()
	return r.yield(events, nil)
}

// follow reads a run that this process drives until it ends here.
func (r *reader) follow(a *active) bool {
	defer a.read()()
	wake := a.log.subscribe()
	defer a.log.unsubscribe(wake)
	for {
		events, covered, over, dead := a.log.after(r.pos)
		switch {
		case len(events) > 0:
			if !r.give(events) {
				return false
			}
		case !covered:
			if over, ok := r.behind(); over || !ok {
				return false
			}
		case over:
			return false
		case dead:
			return r.wait(nil, pollBehind)
		default:
			if !r.wait(wake, 0) {
				return false
			}
		}
	}
}

// behind catches up from the store with one batch.
func (r *reader) behind() (over, ok bool) {
	events, err := r.e.Store.Events(r.ctx, r.by, r.id, r.pos, storeBatch)
	if err != nil {
		r.yield(nil, err)
		return false, false
	}
	if len(events) == 0 {
		return false, r.wait(nil, pollBehind)
	}
	return events[len(events)-1].Type == hob.EventComplete, r.give(events)
}

// wait returns true at a wake-up or after most, false when the caller is gone. Silence is told meanwhile, counted from
// what the caller got last.
func (r *reader) wait(wake chan struct{}, most time.Duration) bool {
	var idle, end <-chan time.Time
	if silence := r.idle - time.Since(r.spoke); r.idle > 0 {
		if r.still == nil {
			r.still = time.NewTimer(silence)
		} else {
			r.still.Reset(silence)
		}
		idle = r.still.C
	}
	if most > 0 {
		t := time.NewTimer(most)
		defer t.Stop()
		end = t.C
	}
	select {
	case <-wake:
		return true
	case <-end:
		return true
	case <-idle:
		r.spoke = r.e.Clock()
		return r.yield(nil, nil)
	case <-r.ctx.Done():
		r.yield(nil, r.ctx.Err())
		return false
	case <-r.e.base.Done():
		return false
	}
}
