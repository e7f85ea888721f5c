package hook

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"hob"
	"hob/internal/egress"
)

// lease is how long a delivery that was taken is nobody else's: longer than a try can last. Should the process end meanwhile,
// it is made again by whoever looks then, under the same id.
const lease = 2 * MaxTime

// maxReceipt is how many bytes are read of what a receiver says beside its status, so that the connection can be kept.
const maxReceipt = 4 << 10

// MaxRetryAfter is the longest pause that a receiver can ask for.
const MaxRetryAfter = 6 * time.Hour

// backoff gives the pause after the n-th try, from 1; false says that there is no other. A tenth more or less keeps what
// failed together from coming back together.
func backoff(tried int) (pause time.Duration, again bool) {
	steps := []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour}
	if tried > len(steps) {
		return 0, false
	}
	d := steps[max(tried, 1)-1]
	return d - d/10 + rand.N(d/5), true //nolint:gosec // spreads load, hides nothing
}

// MaxTries is how often a delivery is tried.
const MaxTries = 7

// Kick tells Serve that there is something to send. It never waits.
func (s *Sender) Kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Serve makes the deliveries of the store until ctx ends; those under way have Limits.Drain to come to their end, and what
// does not is due again at once. Several processes may serve one store.
func (s *Sender) Serve(ctx context.Context) {
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var group sync.WaitGroup
	free := make(chan struct{}, s.Limits.Parallel)
	tick := time.NewTicker(s.Limits.Every)
	defer tick.Stop()
	for ctx.Err() == nil {
		room := cap(free) - len(free)
		due := s.due(ctx, room)
		for i := range due {
			free <- struct{}{} // there is room: only this goroutine takes it
			group.Go(func() {
				s.deliver(sending, &due[i])
				full := len(free) == cap(free)
				<-free
				if full { // others may wait for the room
					s.Kick()
				}
			})
		}
		if room > 0 && len(due) == room {
			continue // there may be more: looks again, for the room that is left
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-tick.C:
		}
	}
	ended := make(chan struct{})
	go func() { defer close(ended); group.Wait() }()
	timer := time.NewTimer(s.Limits.Drain)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		cut()
		<-ended
	}
}

// due takes deliveries whose time has come.
func (s *Sender) due(ctx context.Context, room int) []hob.DueDelivery {
	if room == 0 {
		return nil
	}
	list, err := s.Store.DueDeliveries(ctx, lease, room)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil && !s.down:
		s.Log.Warn("deliveries to hooks cannot be read from the store; trying again", slog.String("error", err.Error()))
	case err == nil && s.down:
		s.Log.Info("deliveries to hooks are read from the store again")
	}
	s.down = err != nil
	return list
}

// deliver tries a delivery once and notes how it went.
func (s *Sender) deliver(ctx context.Context, d *hob.DueDelivery) {
	r := s.try(ctx, d)
	if err := s.Store.DeliveryDone(context.WithoutCancel(ctx), d.ID, r.status, r.failure, r.again); err != nil {
		s.Log.Warn("how a delivery to a hook went could not be noted; it is made again",
			slog.String("delivery", d.ID), slog.String("error", err.Error()))
		return
	}
	if r.status != hob.DeliveryDelivered {
		s.Log.Info("a delivery to a hook failed", slog.String("delivery", d.ID), slog.String("hook", string(d.Hook)),
			slog.String("event", d.Event), slog.Int("attempt", d.Attempts), slog.String("status", string(r.status)),
			slog.String("error", r.failure))
	}
}

// outcome is how a try went, as DeliveryDone takes it.
type outcome struct {
	status  hob.DeliveryStatus
	failure string
	again   time.Duration
}

func (s *Sender) try(ctx context.Context, d *hob.DueDelivery) outcome {
	switch {
	case d.To.ID == "":
		return outcome{status: hob.DeliveryFailed, failure: "the hook was deleted"}
	case !d.To.Enabled:
		return later(d, "the hook is switched off", 0)
	}
	res, err := s.send(ctx, message{
		to: &d.To, url: d.URL, event: d.Event, delivery: d.ID, attempt: d.Attempts, body: d.Body,
		timeout: time.Duration(d.To.Config.TimeoutSeconds * float64(time.Second)), most: maxReceipt,
	})
	switch {
	case errors.Is(err, context.Canceled): // the process ends
		return outcome{status: hob.DeliveryQueued, failure: "the server was stopped before the hook had answered"}
	case err != nil:
		return later(d, err.Error(), 0)
	case res.Status >= 200 && res.Status < 300:
		return outcome{status: hob.DeliveryDelivered}
	case res.Status == http.StatusGone:
		return outcome{status: hob.DeliveryFailed, failure: "the hook answered with HTTP 410, and is not told again"}
	}
	return later(d, "the hook answered with HTTP "+strconv.Itoa(res.Status), s.retryAfter(res))
}

// later puts a delivery off, by at least what the receiver asked for, until it has been tried often enough.
func later(d *hob.DueDelivery, failure string, atLeast time.Duration) outcome {
	pause, again := backoff(d.Attempts)
	if !again {
		return outcome{status: hob.DeliveryFailed, failure: failure}
	}
	return outcome{status: hob.DeliveryQueued, failure: failure, again: max(pause, atLeast)}
}

// retryAfter is the pause that an answer asks for, at most MaxRetryAfter; 0 where it asks for none.
func (s *Sender) retryAfter(res *egress.Response) time.Duration {
	text := res.Header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), int64(MaxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(s.Clock()), 0), MaxRetryAfter)
	}
	return 0
}
