package api_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"hob"
	"hob/internal/api"
)

// Balancers ask every few seconds: the log tells when it began and when it was over.
func TestReady_IsToldToTheLogOnce(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	w := begin(t, func(c *api.Config) {
		c.Ready = func(context.Context) error {
			if away.Load() {
				return hob.Errorf(hob.Unavailable, "the database is away")
			}
			return nil
		}
	})
	ready := ask{"GET", "/health/ready", "", "", nil}
	away.Store(true)
	for range 5 {
		if f := wantFault(t, w.do(ready), 503, "not ready"); f.Code != "not_ready" {
			t.Errorf("code %q", f.Code)
		}
	}
	if r := w.do(ask{"GET", "/health", "", "", nil}); r.status != 200 {
		t.Errorf("/health: status %d; the process lives", r.status)
	}
	away.Store(false)
	for range 2 {
		if r := w.do(ready); r.status != 200 {
			t.Errorf("ready again: status %d", r.status)
		}
	}
	log := w.log.String()
	if strings.Count(log, "not ready") != 1 || strings.Count(log, "ready again") != 1 || !strings.Contains(log, "not_logged=4") ||
		!strings.Contains(log, "the database is away") {
		t.Errorf("the log is\n%s", log)
	}
}
