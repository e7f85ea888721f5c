package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"hob"
	"hob/internal/engine"
)

// crashStore is the store of a process that dies at its n-th write: the write is lost, or done but never answered, and
// nothing behind it happens.
type crashStore struct {
	hob.Store
	mu    sync.Mutex
	left  int
	after bool
	dead  bool
}

var errDied = errors.New("the process died")

// pass says whether a write happens and whether its answer arrives.
func (s *crashStore) pass() (happens, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return false, false
	}
	s.left--
	if s.left == 0 {
		s.dead = true
		return s.after, false
	}
	return true, true
}

func (s *crashStore) fired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

func (s *crashStore) Commit(ctx context.Context, c hob.RunCommit) error {
	happens, answered := s.pass()
	if happens {
		if err := s.Store.Commit(ctx, c); err != nil {
			return err
		}
	}
	if !answered {
		return errDied
	}
	return nil
}

func (s *crashStore) StartRun(ctx context.Context, n hob.NewRun) (hob.StartedRun, error) {
	happens, answered := s.pass()
	var got hob.StartedRun
	if happens {
		var err error
		if got, err = s.Store.StartRun(ctx, n); err != nil {
			return got, err
		}
	}
	if !answered {
		return hob.StartedRun{}, errDied
	}
	return got, nil
}

// A dead process neither releases nor renews nor claims.
func (s *crashStore) Release(ctx context.Context, owner string, runs ...hob.RunID) error {
	if s.fired() {
		return errDied
	}
	return s.Store.Release(ctx, owner, runs...)
}

func (s *crashStore) Renew(ctx context.Context, owner string, d time.Duration) (map[hob.RunID]string, error) {
	if s.fired() {
		return nil, errDied
	}
	return s.Store.Renew(ctx, owner, d)
}

func (s *crashStore) Claim(ctx context.Context, owner string, d time.Duration, n int, all bool) ([]hob.Claimed, error) {
	if s.fired() {
		return nil, errDied
	}
	return s.Store.Claim(ctx, owner, d, n, all)
}

var crashScripts = map[string]struct {
	script string
	tools  []string
	twice  bool // the recovery is crashed too
}{
	"plain chat":            {"text: Hello there, friend.\n", nil, false},
	"once tool in sequence": {"text: a\ncall: once {\"n\":1}\n---\ncall: once {\"n\":2}\n---\ntext: done\n", []string{"once"}, true},
	"keyed tool":            {"call: keyed {\"n\":1}\n---\ncall: keyed {\"n\":2}\n---\ntext: done\n", []string{"keyed"}, true},
	"parallel reads and an exclusive call": {
		"call: read {\"n\":1}\ncall: once {\"n\":1}\ncall: read {\"n\":2}\ncall: keyed {\"n\":3}\n---\ntext: done\n",
		[]string{"read", "once", "keyed"},
		false,
	},
	"summaries within the run": {pages(9), []string{"page"}, true},
	"failing tool":             {"call: fail {}\n---\ntext: it failed\n", []string{"fail"}, false},
}

// pages is a script that reads more than its window holds.
func pages(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "call: page {\"s\":\"page %d\"}\n---\n", i)
	}
	return s.String() + "text: All pages are read.\n"
}

// TestCrash_EveryWrite kills the process at every write of every scenario, before and after the write took place, then
// starts a new one on what is stored, and kills that one at each of its first writes too.
func TestCrash_EveryWrite(t *testing.T) {
	t.Parallel()
	for name, sc := range crashScripts {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after=%v", name, after), func(t *testing.T) {
				t.Parallel()
				for n := 1; ; n++ {
					if !crashAt(t, sc.script, sc.tools, n, 0, after) {
						if n < 3 {
							t.Fatalf("the scenario made only %d writes", n-1)
						}
						return
					}
					if sc.twice {
						crashAt(t, sc.script, sc.tools, n, 1, after)
						crashAt(t, sc.script, sc.tools, n, 2, after)
					}
				}
			})
		}
	}
}

// crashAt runs the scenario in a process that dies at write n, a second one that dies at write m (0: none), and a third
// that lives. It reports whether the first crash took place.
func crashAt(t *testing.T, script string, tools []string, n, m int, after bool) bool {
	t.Helper()
	w := newWorld(t, map[string]any{"script": script, "context_window": 8192}, tools...)
	w.limits.Attempts = 10
	first := &crashStore{Store: w.store, left: n, after: after}
	w.begin(func(hob.Store) hob.Store { return first })
	started, err := w.engine.Start(t.Context(), w.by, engine.StartInput{
		Agent: w.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"},
	})
	accepted := err == nil
	waitUntil(t, func() bool { return first.fired() || (accepted && final(w, started.Run.ID)) })
	w.stop()
	if m > 0 {
		second := &crashStore{Store: w.store, left: m, after: after}
		w.begin(func(hob.Store) hob.Store { return second })
		waitUntil(t, func() bool { return second.fired() || allFinal(w) })
		w.stop()
	}
	w.begin(nil)
	defer w.stop()
	waitUntil(t, func() bool { return allFinal(w) })
	runs := runsOf(w)
	if accepted && len(runs) != 1 {
		t.Fatalf("crash at write %d: the accepted run is lost", n)
	}
	for _, run := range runs {
		checkSurvivor(t, w, run, fmt.Sprintf("crash at write %d then %d, after=%v", n, m, after))
	}
	return first.fired()
}

func checkSurvivor(t *testing.T, w *world, run hob.Run, where string) {
	t.Helper()
	if run.Status != hob.Completed {
		t.Fatalf("%s: the run ended as %s: %s", where, run.Status, run.Error)
	}
	log := w.log(run.ID)
	w.valid(run)
	d, err := w.store.RunDetail(t.Context(), w.by, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	deeds := map[hob.CallID][]hob.Call{}
	for _, c := range w.tools.calls() {
		deeds[c.ID] = append(deeds[c.ID], c)
	}
	results := 0
	for _, ev := range log {
		if ev.Type == hob.EventToolResult {
			results++
		}
	}
	if results != len(d.Calls) {
		t.Fatalf("%s: %d tool_result events for %d calls", where, results, len(d.Calls))
	}
	for _, c := range d.Calls {
		did := deeds[c.ID]
		switch {
		case c.Status != hob.CallDone:
			t.Fatalf("%s: call %s is left as %s", where, c.ID, c.Status)
		case c.Recovery == hob.RecoverOnce && len(did) > 1:
			t.Fatalf("%s: the once call %s was carried out %d times", where, c.ID, len(did))
		case c.Recovery == hob.RecoverOnce && len(did) == 0 && !c.Result.Unknown:
			t.Fatalf("%s: the once call %s has a result but was never carried out", where, c.ID)
		case c.Recovery != hob.RecoverOnce && (len(did) == 0 || c.Result.Unknown):
			t.Fatalf("%s: the repeatable call %s was not carried out to its end", where, c.ID)
		}
		for _, deed := range did {
			if want := string(run.ID) + ":" + string(c.ID); deed.Key != want {
				t.Fatalf("%s: idempotency key %q, want %q", where, deed.Key, want)
			}
		}
	}
}

func final(w *world, id hob.RunID) bool {
	run, err := w.store.Run(w.t.Context(), w.by, id)
	return err == nil && run.Status.Final()
}

func runsOf(w *world) []hob.Run {
	w.t.Helper()
	sessions, err := w.store.Sessions(w.t.Context(), w.by, w.agent.ID, hob.SessionFilter{Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []hob.Run
	for _, s := range sessions.Items {
		runs, err := w.store.SessionRuns(w.t.Context(), w.by, s.ID, 100, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range runs {
			out = append(out, r.Run)
		}
	}
	return out
}

func allFinal(w *world) bool {
	for _, r := range runsOf(w) {
		if !r.Status.Final() {
			return false
		}
	}
	return true
}

func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("waited 20 seconds in vain")
}
