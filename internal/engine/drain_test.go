package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"hob"
	"hob/internal/engine"
)

// claims counts the claims that reach a store, and holds one up where told to.
type claims struct {
	hob.Store
	asked atomic.Int64
	hold  atomic.Pointer[claimHold]
}

// claimHold holds a claim up behind the store's answer.
type claimHold struct{ came, release chan struct{} }

func (s *claims) Claim(ctx context.Context, owner string, lease time.Duration, n int, all bool) ([]hob.Claimed, error) {
	s.asked.Add(1)
	got, err := s.Store.Claim(ctx, owner, lease, n, all)
	if h := s.hold.Load(); h != nil {
		close(h.came)
		<-h.release
	}
	return got, err
}

// A draining process claims nothing, though there is something to claim, and says to those who ask that it ends.
func TestDrain_ClaimsNothingAndTellsSo(t *testing.T) {
	t.Parallel()
	w := hanging(t, engine.Limits{Lease: 300 * time.Millisecond})
	var store *claims
	w.stop()
	w.begin(func(s hob.Store) hob.Store { store = &claims{Store: s}; return store })
	w.start("go", hob.RunOptions{})
	w.toolCame()
	abandoned(t, w)
	drained := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond) // more than two looks for abandoned runs
	defer cancel()
	go func() { drained <- w.engine.Drain(ctx) }()
	waitUntil(t, func() bool { return w.engine.Busy(w.by.Workspace) != nil })
	asked := store.asked.Load()
	var e *hob.Error
	if _, err := w.engine.Start(t.Context(), w.by, engine.StartInput{Agent: w.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"}}); !errors.As(err, &e) ||
		e.Kind != hob.Unavailable || e.Code != "shutting_down" || e.RetryAfter <= 0 {
		t.Fatalf("a new run: %v", err)
	}
	if err := <-drained; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("drain: %v", err)
	}
	if n := store.asked.Load() - asked; n != 0 {
		t.Fatalf("a draining process claimed %d times", n)
	}
	if got := w.engine.Stats(); got.ShuttingDown < 2 || got.Active != 0 {
		t.Fatalf("counted %+v", got)
	}
}

// What a claim under way brings when the drain has begun is given back.
func TestDrain_GivesBackWhatAClaimUnderWayBrings(t *testing.T) {
	t.Parallel()
	w := hanging(t, engine.Limits{Lease: time.Minute})
	w.stop()
	var store *claims
	hold := &claimHold{make(chan struct{}), make(chan struct{})}
	w.begin(func(s hob.Store) hob.Store { store = &claims{Store: s}; return store })
	run := abandoned(t, w)
	store.hold.Store(hold)
	<-hold.came
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := w.engine.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	store.hold.Store(nil)
	close(hold.release)
	waitUntil(t, func() bool {
		got, err := w.store.Claim(t.Context(), "another process", time.Minute, 9, false)
		return err == nil && len(got) == 1 && got[0].Run == run
	})
}

// abandoned is a run that another process accepted and left.
func abandoned(t *testing.T, w *world) hob.RunID {
	t.Helper()
	other := engine.New(engine.Config{Store: w.store, Models: w.models, Toolsets: []hob.Toolset{w.tools}, Owner: "gone"})
	got, err := other.Start(t.Context(), w.by, engine.StartInput{
		Agent: w.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"},
	})
	if err != nil {
		t.Fatal(err)
	}
	now, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if err := other.Drain(now); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("drain: %v", err)
	}
	return got.Run.ID
}
