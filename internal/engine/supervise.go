package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"hob"
	"hob/internal/seeded"
)

const (
	claimEvery  = time.Second // between two looks for runs whose process is gone
	claimBatch  = 64          // runs taken up at one look
	claimAtOnce = 8           // of these read at the same time
)

// Recover takes up the runs that a process before this one left unfinished. Call it once, before requests are served.
// Where other processes share the store only runs whose lease is over are taken; Serve goes on looking.
func (e *Engine) Recover(ctx context.Context) error {
	return e.claim(ctx, e.Alone)
}

// Serve keeps the leases of this process alive and takes up runs that were abandoned, until the context ends.
func (e *Engine) Serve(ctx context.Context) {
	var watching sync.WaitGroup
	watching.Go(func() { e.watch(ctx) })
	defer watching.Wait()
	renew := time.NewTicker(e.Limits.Lease / 3)
	defer renew.Stop()
	look := time.NewTicker(claimEvery)
	defer look.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
			err = e.renew(ctx)
		case <-e.check:
			err = e.renew(ctx)
		case <-look.C:
			e.releaseOrphans(ctx)
			err = e.claim(ctx, false)
		case <-e.wake:
			e.releaseOrphans(ctx)
			err = e.claim(ctx, false)
		}
		if err != nil && ctx.Err() == nil {
			e.leases.Note(err)
		}
	}
}

// renew extends the leases and hands cancel requests, which may have reached any process, to the runs driven here.
func (e *Engine) renew(ctx context.Context) error {
	now := time.Now() //nolint:forbidigo // the leases' age is measured from it
	leased, err := e.Store.Renew(ctx, e.Owner, e.Limits.Lease)
	if err != nil {
		return err
	}
	e.leases.Note(nil)
	e.renewed.Store(&now)
	for id, code := range leased {
		switch a := e.find(id); {
		case a == nil: // driven by nobody, perhaps accepted by a commit whose answer was lost: it would be renewed for ever
			e.orphan(id, true)
		case code != "":
			a.stop(marked(code))
		}
	}
	return nil
}

func (e *Engine) claim(ctx context.Context, all bool) error {
	if seeded.Bug("no_recover") {
		return nil
	}
	for {
		room := min(claimBatch, e.admission.room())
		if room <= 0 {
			return nil
		}
		claimed, err := e.Store.Claim(ctx, e.Owner, e.Limits.Lease, room, all)
		if err != nil {
			ring(e.check) // it may have happened all the same: what is leased to us is looked for
			return err
		}
		e.takeUpAll(ctx, claimed)
		if len(claimed) < claimBatch {
			return nil
		}
	}
}

// takeUpAll takes up what was claimed, some at a time: reading each takes a few trips to the database.
func (e *Engine) takeUpAll(ctx context.Context, claimed []hob.Claimed) {
	var group sync.WaitGroup
	slots := make(chan struct{}, claimAtOnce)
	for _, c := range claimed {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			e.takeUp(ctx, c)
		})
	}
	group.Wait()
}

// takeUp drives a claimed run on. One that cannot be (its agent's model is gone, say) ends as failed, with the reason; where
// that may pass, as a database that cannot be read does, it is tried as often as a run that is interrupted.
func (e *Engine) takeUp(ctx context.Context, c hob.Claimed) {
	p, err := e.retake(ctx, c)
	if p == nil || err != nil && doubtful(err) && p.run.Stalls < e.Limits.Attempts {
		e.Log.Error("a claimed run cannot be taken up now; it will be tried again",
			slog.String("run", string(c.Run)), slog.Any("error", err))
		e.orphan(c.Run, hob.KindOf(err) != hob.Unavailable)
		return
	}
	a := e.newActive(p.run, p)
	if err := e.admit(a); err != nil {
		a.close()
		e.orphan(c.Run, false)
		return
	}
	defer e.group.Done()
	e.recovered.Add(1)
	e.hub.changed([]hob.RunID{c.Run}) // who followed it elsewhere follows it here
	e.Log.Info("a run is taken up again", slog.String("run", string(c.Run)), slog.Int("attempt", p.run.Attempt))
	if err == nil {
		e.launch(a)
		return
	}
	e.Log.Error("a run cannot go on", slog.String("run", string(c.Run)), slog.Any("error", err))
	e.group.Go(func() {
		a.settlePending("Not executed: the run could not go on after a restart.")
		a.conclude(ending{hob.Failed, hob.CodeInternal, "the run cannot go on after a restart: " + reason(err)})
		err := a.log.sync()
		if e.forget(a); err != nil {
			e.giveBack(a.id, err)
		}
	})
}

// reason is what callers may read of an error.
func reason(err error) string {
	var e *hob.Error
	if errors.As(err, &e) && e.Kind != hob.Internal {
		return e.Message
	}
	return "an internal error; its cause is in the server's log"
}

// giveBack lets Serve end our lease on a run that we do not drive any more, so that it is taken up again at once. Serve
// alone ends leases and claims runs: one that was just taken up again is never taken for abandoned. err is what ended its
// log, nil where nothing did: a database that was away is not the run's fault.
func (e *Engine) giveBack(id hob.RunID, err error) {
	e.orphan(id, err != nil && hob.KindOf(err) != hob.Unavailable)
	ring(e.wake)
}

// ring asks for something that is done once however often it was asked for.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// orphan notes a run that nobody drives, and whether that counts as a stall.
func (e *Engine) orphan(id hob.RunID, stalled bool) {
	if seeded.Bug("keep_orphans") {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.orphans[id]; !known {
		e.orphans[id] = stalled
	}
}

// releaseOrphans ends the leases of runs that nobody drives. Those whose release fails are kept for the next time: a lease
// that is renewed with all others would never end by itself.
func (e *Engine) releaseOrphans(ctx context.Context) {
	e.mu.Lock()
	orphans := maps.Clone(e.orphans)
	e.mu.Unlock()
	for id, stalled := range orphans {
		if e.find(id) == nil {
			if err := e.Store.Release(ctx, e.Owner, stalled, id); err != nil {
				e.releases.Note(err)
				return
			}
			e.releases.Note(nil)
		}
		e.mu.Lock()
		delete(e.orphans, id)
		e.mu.Unlock()
	}
}

// Drain refuses new runs and waits for the running ones to end. Those that have not by the time the context ends are
// handed over: their leases are released, and another process, or this one when it starts again, goes on with them.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.admission.close()
	e.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		e.group.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		for _, a := range e.all() {
			a.stop(errHandover)
		}
		e.trials.end(errHandover)
		<-idle
		err = context.Cause(ctx)
	}
	e.end(errHandover)
	e.trials.end(errHandover)
	if seeded.Bug("no_release") {
		return err
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, e.Store.Release(release, e.Owner, false))
}
