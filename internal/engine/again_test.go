package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hob"
)

// aheadStore is a store whose answer to one commit is on its way for long: what was committed can be read meanwhile.
type aheadStore struct {
	hob.Store
	once      sync.Once
	committed chan struct{} // closed when the commit is stored
	answer    chan struct{} // closed when the answer may come
}

func (s *aheadStore) Commit(ctx context.Context, c hob.RunCommit) error {
	err := s.Store.Commit(ctx, c)
	if len(c.Events) > 0 {
		s.once.Do(func() { close(s.committed); <-s.answer })
	}
	return err
}

// A reader may have got an event from the store before the process that wrote it knows that it is stored.
func TestEvents_APositionThatOnlyTheStoreKnowsIsNotRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: read {}\n---\ntext: done"}, "read")
	s := &aheadStore{committed: make(chan struct{}), answer: make(chan struct{})}
	w.begin(func(inner hob.Store) hob.Store { s.Store = inner; return s })
	id := w.start("hi", hob.RunOptions{}).ID
	answer := sync.OnceFunc(func() { close(s.answer) })
	t.Cleanup(answer)
	<-s.committed
	run, err := w.store.Run(t.Context(), w.by, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range w.engine.Events(t.Context(), w.by, id, run.LastSeq+1, 0) {
		if hob.KindOf(err) != hob.Invalid {
			t.Errorf("a position beyond the store's end gives %v", err)
		}
		break
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []hob.Event
	for events, err := range w.engine.Events(ctx, w.by, id, run.LastSeq, time.Millisecond) {
		if err != nil {
			t.Fatalf("behind event %d, which is stored: %v", run.LastSeq, err)
		}
		got = append(got, events...)
		answer() // it is followed by now
	}
	if all := w.log(id); len(got) == 0 || got[0].Seq != run.LastSeq+1 || got[len(got)-1].Seq != int64(len(all)) {
		t.Errorf("%d events were read behind %d of %d", len(got), run.LastSeq, len(all))
	}
}

// cancellingStore loses the first commit that holds the result of a call, as the end of the process would, and runs cancel
// before it stores the intent to make the call again.
type cancellingStore struct {
	hob.Store
	lose, again sync.Once
	cancel      func()
}

func (s *cancellingStore) Commit(ctx context.Context, c hob.RunCommit) (err error) {
	for _, call := range c.Calls {
		if call.Status == hob.CallDone {
			s.lose.Do(func() { err = errDeaf })
		}
		if call.Status == hob.CallIntent && call.Attempt > 1 {
			s.again.Do(s.cancel)
		}
	}
	if err != nil {
		return err
	}
	return s.Store.Commit(ctx, c)
}

// A call that is about to be made again may have been made before: a cancel that comes between must not deny it.
func TestCancel_BeforeASecondTryTellsOfTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": `call: keyed {"n":1}`}, "keyed")
	var id hob.RunID
	known := make(chan struct{})
	w.begin(func(inner hob.Store) hob.Store {
		return &cancellingStore{Store: inner, cancel: func() {
			<-known
			if _, err := w.engine.Cancel(context.Background(), w.by, id); err != nil {
				t.Error(err)
			}
		}}
	})
	id = w.start("go", hob.RunOptions{}).ID
	close(known)
	run := w.wait(id)
	d, err := w.store.RunDetail(t.Context(), w.by, id)
	if err != nil {
		t.Fatal(err)
	}
	if run.Status != hob.Cancelled || len(d.Calls) != 1 || len(w.tools.calls()) != 1 {
		t.Fatalf("the run is %s with %d calls, and the tool acted %d times", run.Status, len(d.Calls), len(w.tools.calls()))
	}
	if r := d.Calls[0].Result; !r.Unknown || !r.IsError || !strings.HasPrefix(r.Text, "outcome_unknown") {
		t.Errorf("the call acted, and its result is %+v", r)
	}
}

// endlessStore stores the answer of a run and loses its end, as a process that ends between the two would.
type endlessStore struct {
	hob.Store
	once sync.Once
}

func (s *endlessStore) Commit(ctx context.Context, c hob.RunCommit) (err error) {
	at := slices.IndexFunc(c.Events, func(ev hob.Event) bool { return ev.Type == hob.EventStepCompleted })
	if c.Outcome == nil || at < 0 {
		return s.Store.Commit(ctx, c)
	}
	s.once.Do(func() {
		c.Events, c.Outcome = c.Events[:at+1], nil
		if err = s.Store.Commit(ctx, c); err == nil {
			err = errDeaf
		}
	})
	if err != nil {
		return err
	}
	return s.Store.Commit(ctx, c)
}

// What a step said is not void once its message is stored, whether the run ends with it or calls a tool.
func TestAttempt_TheTextOfAStoredAnswerStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "text: It is done."}, "read")
	w.begin(func(inner hob.Store) hob.Store { return &endlessStore{Store: inner} })
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	attempts := 0
	for _, ev := range w.log(run.ID) {
		var x hob.AttemptEvent
		if ev.Type != hob.EventAttempt {
			continue
		}
		if err := json.Unmarshal(ev.Data, &x); err != nil {
			t.Fatal(err)
		}
		if attempts++; x.VoidFrom != 0 {
			t.Errorf("the text from event %d on is said to be void, and is said only once", x.VoidFrom)
		}
	}
	if attempts != 1 || run.Status != hob.Completed || run.Content != "It is done." {
		t.Errorf("after %d attempts the run is %s with %q", attempts, run.Status, run.Content)
	}
}
