package engine

import (
	"log/slog"
	"sync"
	"time"
)

// outageEvery is the least time between two lines of the log about one outage.
const outageEvery = 30 * time.Second

// Outage tells the log of a fault that comes back many times a second for as long as its cause lasts: when it begins, then
// at most every 30 s with how often it came meanwhile, and that it is over. Its fields are set before it is used.
type Outage struct {
	Log         *slog.Logger
	Fault, Over string // what is logged

	mu    sync.Mutex
	on    bool
	told  time.Time // when the last line was written
	quiet int       // faults since, of which nothing was said
}

// Note takes the outcome of another try: the fault, or nil.
func (o *Outage) Note(err error) { o.note(err, monotonic()) }

func (o *Outage) note(err error, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil && !o.on:
	case err == nil:
		o.Log.Info(o.Over, slog.Int("not_logged", o.quiet))
		o.on, o.quiet = false, 0
	case !o.on || now.Sub(o.told) >= outageEvery:
		o.Log.Warn(o.Fault, slog.Any("error", err), slog.Int("not_logged", o.quiet))
		o.on, o.told, o.quiet = true, now, 0
	default:
		o.quiet++
	}
}
