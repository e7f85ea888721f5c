package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/engine"
)

const hangScript = "text: let me wait\ncall: hang {}\n---\ntext: done\n"

func hanging(t *testing.T, limits engine.Limits) *world {
	t.Helper()
	w := newWorld(t, map[string]any{"script": hangScript}, "hang")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 8)
	w.limits = limits
	w.begin(nil)
	return w
}

// toolCame waits until the tool "hang" is called.
func (w *world) toolCame() {
	w.t.Helper()
	select {
	case <-w.tools.came:
	case <-time.After(20 * time.Second):
		w.t.Fatal("the tool was not called")
	}
}

func TestCancel_EndsARunInTheMiddleOfACall(t *testing.T) {
	t.Parallel()
	w := hanging(t, engine.Limits{})
	run := w.start("go", hob.RunOptions{})
	w.toolCame()
	status, err := w.engine.Cancel(t.Context(), w.by, run.ID)
	if err != nil || status != hob.Running {
		t.Fatalf("cancel: %v, %v", status, err)
	}
	got := w.wait(run.ID)
	if got.Status != hob.Cancelled || got.Code != hob.CodeCancelled {
		t.Fatalf("ended as %s (%s)", got.Status, got.Code)
	}
	d, err := w.store.RunDetail(t.Context(), w.by, run.ID)
	if err != nil || len(d.Calls) != 1 || !d.Calls[0].Result.Unknown {
		t.Fatalf("an interrupted once call must read outcome_unknown: %+v, %v", d.Calls, err)
	}
	if s := w.engine.Stats(); s.Unknown != 1 {
		t.Errorf("counted are %+v, want one unknown outcome", s)
	}
	w.valid(got)
	if status, err := w.engine.Cancel(t.Context(), w.by, run.ID); err != nil || status != hob.Cancelled {
		t.Fatalf("cancelling again: %v, %v", status, err)
	}
}

// readUntil reads a run as a client would and leaves at the first event of a type.
func (w *world) readUntil(id hob.RunID, after int64, last hob.EventType) int64 {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	for batch, err := range w.engine.Events(ctx, w.by, id, after, 0) {
		if err != nil {
			w.t.Fatalf("reading %s: %v", id, err)
		}
		for _, ev := range batch {
			if after = ev.Seq; ev.Type == last {
				return after
			}
		}
	}
	w.t.Fatalf("%s ended without %s", id, last)
	return 0
}

func TestReaders_ARunIsCancelledWhenTheLastOneLeaves(t *testing.T) {
	t.Parallel()
	w := hanging(t, engine.Limits{Grace: 500 * time.Millisecond})
	run := w.start("go", hob.RunOptions{})
	w.readUntil(run.ID, 0, hob.EventToolCall)
	waitUntil(t, func() bool { return final(w, run.ID) })
	got, err := w.store.Run(t.Context(), w.by, run.ID)
	if err != nil || got.Status != hob.Cancelled || got.Code != hob.CodeClientDisconnected {
		t.Fatalf("ended as %s (%s), %v", got.Status, got.Code, err)
	}
}

func TestReaders_ARunGoesOnWhenOneComesBackOrItAskedTo(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	for _, policy := range []hob.Disconnect{hob.DisconnectCancel, hob.DisconnectContinue} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			w := hanging(t, engine.Limits{Grace: grace})
			run := w.start("go", hob.RunOptions{Tuning: hob.Tuning{OnDisconnect: policy}})
			at := w.readUntil(run.ID, 0, hob.EventToolCall)
			if policy == hob.DisconnectContinue {
				time.Sleep(grace * 3 / 2)
				close(w.tools.hold)
			} else {
				time.Sleep(grace / 4)
				time.AfterFunc(grace*3/2, func() { close(w.tools.hold) })
				w.readUntil(run.ID, at, hob.EventComplete)
			}
			if got := w.wait(run.ID); got.Status != hob.Completed {
				t.Fatalf("ended as %s (%s)", got.Status, got.Code)
			}
		})
	}
}

func TestTimeout_EndsTheRunWithItsCode(t *testing.T) {
	t.Parallel()
	w := hanging(t, engine.Limits{})
	seconds := 0.05
	run := w.wait(w.start("go", hob.RunOptions{Tuning: hob.Tuning{TimeoutSeconds: &seconds}}).ID)
	if run.Status != hob.Cancelled || run.Code != hob.CodeTimeout || run.Error == "" {
		t.Fatalf("ended as %s (%s) %q", run.Status, run.Code, run.Error)
	}
	w.valid(run)
}

func TestTool_ThatDoesNotAnswerInTimeIsAnErrorTheModelReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: brief {}\n---\ntext: done\n"}, "brief")
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	d, err := w.store.RunDetail(t.Context(), w.by, run.ID)
	if err != nil || run.Status != hob.Completed {
		t.Fatalf("%s, %v", run.Status, err)
	}
	if r := d.Calls[0].Result; !r.IsError || !strings.Contains(r.Text, "did not answer within 20ms") {
		t.Fatalf("result %+v", r)
	}
	if s := w.engine.Stats(); s.ToolCalls != 1 || s.ToolsFailed != 1 {
		t.Errorf("counted are %+v, want one call, which failed", s)
	}
}

func TestReaders_AllGetTheSameLogWheneverTheyCome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{
		"script": "chunks: 200\ndelay: 1ms\ntext: " + strings.Repeat("word ", 400) + "\n",
	})
	w.limits.TailBytes = 2000 // readers that fall behind must read from the store
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	var group sync.WaitGroup
	got := make([][]hob.Event, 12)
	for i := range got {
		group.Go(func() {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			for batch, err := range w.engine.Events(t.Context(), w.by, run.ID, 0, 0) {
				if err != nil {
					t.Error(err)
				}
				got[i] = append(got[i], batch...)
				if i%3 == 0 {
					time.Sleep(5 * time.Millisecond) // a slow one
				}
			}
		})
	}
	group.Wait()
	want := w.log(run.ID)
	for i := range got {
		if len(got[i]) != len(want) {
			t.Fatalf("reader %d got %d of %d events", i, len(got[i]), len(want))
		}
		for j := range want {
			if string(got[i][j].Data) != string(want[j].Data) {
				t.Fatalf("reader %d, event %d: %s, stored %s", i, j, got[i][j].Data, want[j].Data)
			}
		}
	}
}

func TestReaders_APositionThatNoLogCanHaveIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "text: hi\n"})
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	for _, pos := range []int64{-1, run.LastSeq + 1, 1 << 60} {
		for _, err := range w.engine.Events(t.Context(), w.by, run.ID, pos, 0) {
			var e *hob.Error
			if !errors.As(err, &e) || e.Code != "invalid_event_id" {
				t.Fatalf("position %d: %v", pos, err)
			}
		}
	}
	for batch, err := range w.engine.Events(t.Context(), w.by, run.ID, run.LastSeq, 0) {
		t.Fatalf("behind the end there is nothing, got %v, %v", batch, err)
	}
}

func TestIdempotency_TheSameKeyMakesOneRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "text: hi\n"})
	w.begin(nil)
	in := engine.StartInput{
		Agent: w.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"},
		Idempotency: &hob.Idempotency{Scope: "s", Key: "k", Digest: "d", Keep: time.Hour},
	}
	var group sync.WaitGroup
	ids := make([]hob.RunID, 8)
	for i := range ids {
		group.Go(func() {
			got, err := w.engine.Start(t.Context(), w.by, in)
			if err != nil {
				t.Error(err)
			}
			ids[i] = got.Run.ID
		})
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("different runs: %v", ids)
		}
	}
	w.wait(ids[0])
	other := *in.Idempotency
	other.Digest = "else"
	in.Idempotency = &other
	if _, err := w.engine.Start(t.Context(), w.by, in); hob.KindOf(err) != hob.Unprocessable {
		t.Fatalf("another body under the same key: %v", err)
	}
}

func TestOverload_IsRefusedBeforeARunIsAccepted(t *testing.T) {
	t.Parallel()
	w := hanging(t, engine.Limits{Active: 2})
	for range 2 {
		w.start("go", hob.RunOptions{})
	}
	_, err := w.engine.Start(t.Context(), w.by, engine.StartInput{Agent: w.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"}})
	var e *hob.Error
	if !errors.As(err, &e) || e.Kind != hob.Unavailable || e.RetryAfter <= 0 {
		t.Fatalf("got %v", err)
	}
	if n := len(runsOf(w)); n != 2 {
		t.Fatalf("%d runs are stored", n)
	}
}

func TestDrain_HandsOverWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: hang {}\n---\ntext: done\n"}, "hang")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 8)
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	w.toolCame()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.engine.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("drain: %v", err)
	}
	if _, err := w.engine.Start(t.Context(), w.by, engine.StartInput{Agent: w.agent.ID}); hob.KindOf(err) == "" {
		t.Fatal("a draining engine took a run")
	}
	w.stop()
	w.begin(nil)
	got := w.wait(run.ID)
	d, err := w.store.RunDetail(t.Context(), w.by, run.ID)
	if err != nil || got.Status != hob.Completed || !d.Calls[0].Result.Unknown || got.Attempt != 2 {
		t.Fatalf("%s, attempt %d, %+v, %v", got.Status, got.Attempt, d.Calls, err)
	}
}

func TestAttempts_AreCapped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: hang {}\n---\ntext: done\n"}, "hang")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 99)
	w.limits.Attempts = 2
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	w.toolCame()
	w.stop()
	for i := range 2 { // each process dies without a word: its claims stay
		if _, err := w.store.Claim(t.Context(), fmt.Sprint("process ", i, " that dies"), time.Nanosecond, 9, true); err != nil {
			t.Fatal(err)
		}
	}
	w.begin(nil)
	if got := w.wait(run.ID); got.Status != hob.Failed || got.Code != hob.CodeAttempts {
		t.Fatalf("ended as %s (%s)", got.Status, got.Code)
	}
	if s := w.engine.Stats(); s.Parked != 1 {
		t.Errorf("counted are %+v, want one run that was tried too often", s)
	}
}

// TestAttempts_CountFromTheLastProgress hands a run over and interrupts it more often than it may be without progress.
func TestAttempts_CountFromTheLastProgress(t *testing.T) {
	t.Parallel()
	const interruptions = 4
	script := strings.Repeat("call: hang {}\n---\n", interruptions+1) + "text: done\n"
	w := newWorld(t, map[string]any{"script": varied(script)}, "hang")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 99)
	w.limits.Attempts = 2
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	for i := range interruptions {
		w.toolCame()
		w.stop()
		if _, err := w.store.Claim(t.Context(), fmt.Sprint("process ", i, " that dies"), time.Nanosecond, 9, true); err != nil {
			t.Fatal(err)
		}
		w.begin(nil) // the outcome of the call is unknown: that is stored, and the run gets on
	}
	w.toolCame()
	close(w.tools.hold)
	if got := w.wait(run.ID); got.Status != hob.Completed || got.Attempt != 1+2*interruptions {
		t.Fatalf("ended as %s (%s) in attempt %d", got.Status, got.Code, got.Attempt)
	}
}

// awayStore is a store whose database is away for some commits of runs that were taken up.
type awayStore struct {
	hob.Store
	left atomic.Int64
}

func (s *awayStore) Commit(ctx context.Context, c hob.RunCommit) error {
	if s.left.Add(-1) >= 0 {
		return hob.Errorf(hob.Unavailable, "the database cannot be reached now")
	}
	return s.Store.Commit(ctx, c)
}

func (s *awayStore) Load(ctx context.Context, id hob.RunID) (hob.RunState, error) {
	if n := s.left.Load(); n > 0 && n%2 == 0 {
		s.left.Add(-1)
		return hob.RunState{}, hob.Errorf(hob.Unavailable, "the database cannot be reached now")
	}
	return s.Store.Load(ctx, id)
}

func TestAttempts_ADatabaseThatIsAwayIsNotTheRunsFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "text: done\n"})
	w.limits.Attempts = 2
	away := &awayStore{Store: w.store}
	away.left.Store(12)
	w.begin(func(hob.Store) hob.Store { return away })
	run := w.start("go", hob.RunOptions{})
	if got := w.wait(run.ID); got.Status != hob.Completed || got.Attempt < 6 {
		t.Fatalf("ended as %s (%s) in attempt %d", got.Status, got.Code, got.Attempt)
	}
}

// varied gives each call of a script its own arguments, so that it is no loop.
func varied(script string) string {
	for i := 0; strings.Contains(script, "{}"); i++ {
		script = strings.Replace(script, "{}", fmt.Sprintf(`{"n":%d}`, i), 1)
	}
	return script
}

func TestLease_AZombieCanNeitherWriteNorAct(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: hang {}\n---\ncall: once {}\n---\ntext: done\n"}, "hang", "once")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 9)
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	w.toolCame()
	claimed, err := w.store.Claim(t.Context(), "another process", time.Minute, 9, true)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claim: %v, %v", claimed, err)
	}
	before, err := w.store.Run(t.Context(), w.by, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	close(w.tools.hold) // the zombie wakes
	waitUntil(t, func() bool { return w.engine.Stats().Active == 0 })
	got, err := w.store.Run(t.Context(), w.by, run.ID)
	if err != nil || got.LastSeq != before.LastSeq || got.Status != hob.Running {
		t.Fatalf("the zombie wrote: %+v, %v", got, err)
	}
	for _, c := range w.tools.calls() {
		if c.Name == "once" {
			t.Fatal("the zombie acted")
		}
	}
	if s := w.engine.Stats(); s.Lost != 1 {
		t.Errorf("counted are %+v, want one run that was lost", s)
	}
}

func TestModel_FailuresEndTheRunWithTheirText(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"error: 400 the request is odd\n": "the request is odd",
		"error: 401 no such key\n":        "no such key",
	} {
		w := newWorld(t, map[string]any{"script": script})
		w.begin(nil)
		run := w.wait(w.start("go", hob.RunOptions{}).ID)
		if run.Status != hob.Failed || run.Code != hob.CodeProviderError || !strings.Contains(run.Error, want) {
			t.Fatalf("%q: %s (%s) %q", script, run.Status, run.Code, run.Error)
		}
	}
}

func TestSteps_TheLastOneIsAskedWithoutTools(t *testing.T) {
	t.Parallel()
	var script strings.Builder
	for i := range 30 {
		fmt.Fprintf(&script, "call: once {\"n\":%d}\n---\n", i)
	}
	script.WriteString("text: never\n")
	w := newWorld(t, map[string]any{"script": script.String()}, "once")
	seen := w.watchModel()
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	reqs := seen()
	if run.Status != hob.Completed || run.Steps != 25 || len(reqs) != 25 {
		t.Fatalf("%s after %d steps and %d model calls: %s", run.Status, run.Steps, len(reqs), run.Error)
	}
	for i, r := range reqs {
		if r.NoToolUse != (i == 24) {
			t.Fatalf("model call %d: NoToolUse is %v", i+1, r.NoToolUse)
		}
	}
	if n := len(w.tools.calls()); n != 24 {
		t.Fatalf("%d calls were carried out", n)
	}
}

func TestSession_TheNextTurnSendsTheRealToolMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call#abc: once {\"n\":1}\n---\ntext: it is one\n"}, "once")
	seen := w.watchModel()
	w.begin(nil)
	first := w.wait(w.start("go", hob.RunOptions{}).ID)
	second := w.wait(w.startIn(first.Session, "again", hob.RunOptions{}).ID)
	if second.Turn != 2 || second.NewSession {
		t.Fatalf("%+v", second)
	}
	reqs := seen()
	m := reqs[2].Messages
	if err := hob.Validate(m); err != nil {
		t.Fatal(err)
	}
	var shape []string
	for _, x := range m {
		shape = append(shape, string(x.Role))
	}
	if got := strings.Join(shape, " "); got != "user assistant tool assistant user" {
		t.Fatalf("the second turn began with %s", got)
	}
	if m[1].Calls[0].ID != "abc" || m[2].Content != `once got {"n":1}` {
		t.Fatalf("%+v", m)
	}
	d, err := w.store.RunDetail(t.Context(), w.by, second.ID)
	if err != nil || d.Calls[0].ID == "abc" {
		t.Fatalf("a call id was used twice in the session: %+v, %v", d.Calls, err)
	}
}

// countingStore counts how many earlier turns are read from the store.
type countingStore struct {
	hob.Store
	turns atomic.Int64
}

func (s *countingStore) History(ctx context.Context, by hob.Principal, id hob.SessionID, r hob.HistoryRange) (hob.History, error) {
	h, err := s.Store.History(ctx, by, id, r)
	s.turns.Add(int64(len(h.Runs)))
	return h, err
}

func TestHistory_EarlierTurnsAreReadOnceAndAreAlwaysTheStoresOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "when: fail\nerror: 400 no\n===\nwhen: tool\ncall: once {\"n\":1}\n---\ntext: used it\n===\ntext: answer to {{message}}\n"}, "once")
	seen := w.watchModel()
	counting := &countingStore{Store: w.store}
	w.begin(func(hob.Store) hob.Store { return counting })
	var session hob.SessionID
	for i := range 30 {
		say := fmt.Sprintf("turn %d", i)
		if i%7 == 3 {
			say = "fail"
		}
		if i%5 == 4 {
			say = "tool"
		}
		run := w.wait(w.startIn(session, say, hob.RunOptions{}).ID)
		session = run.Session
		want, err := w.store.History(t.Context(), w.by, session, hob.HistoryRange{Before: run.Turn, Budget: 1 << 30})
		if i > 0 && err != nil {
			t.Fatal(err)
		}
		reqs := seen()
		got := reqs[len(reqs)-1].Messages
		if diff := cmp.Diff(want.Messages(), got[:len(want.Messages())]); diff != "" {
			t.Fatalf("turn %d was sent another history than the stored one (-stored +sent):\n%s", run.Turn, diff)
		}
	}
	// A turn may be asked for before the one before it is remembered, and is then read; without memory it were 435.
	if n := counting.turns.Load(); n > 40 {
		t.Fatalf("%d turns were read from the store for 30 turns", n)
	}
}

func TestHistory_TurnsThatOverlapAreNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "when: wait\ncall: hang {}\n---\ntext: waited\n===\ntext: answer to {{message}}\n"}, "hang")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 9)
	seen := w.watchModel()
	w.begin(nil)
	first := w.wait(w.start("one", hob.RunOptions{}).ID)
	w.wait(w.startIn(first.Session, "two", hob.RunOptions{}).ID)
	slow := w.startIn(first.Session, "wait", hob.RunOptions{})
	w.toolCame()
	for range 3 {
		w.wait(w.startIn(first.Session, "beside", hob.RunOptions{}).ID)
	}
	close(w.tools.hold)
	w.wait(slow.ID)
	last := w.wait(w.startIn(first.Session, "last", hob.RunOptions{}).ID)
	want, err := w.store.History(t.Context(), w.by, first.Session, hob.HistoryRange{Before: last.Turn, Budget: 1 << 30})
	if err != nil || len(want.Runs) != 6 {
		t.Fatalf("%d runs, %v", len(want.Runs), err)
	}
	reqs := seen()
	got := reqs[len(reqs)-1].Messages
	if diff := cmp.Diff(want.Messages(), got[:len(got)-1]); diff != "" {
		t.Fatalf("-stored +sent:\n%s", diff)
	}
}

// deafStore loses every write and every release while it is deaf, as a full disk or an unreachable database does.
type deafStore struct {
	hob.Store
	deaf atomic.Bool
}

var errDeaf = errors.New("the store cannot be reached")

func (s *deafStore) Commit(ctx context.Context, c hob.RunCommit) error {
	if s.deaf.Load() {
		return errDeaf
	}
	return s.Store.Commit(ctx, c)
}

func (s *deafStore) Release(ctx context.Context, owner string, stalled bool, runs ...hob.RunID) error {
	if s.deaf.Load() {
		return errDeaf
	}
	return s.Store.Release(ctx, owner, stalled, runs...)
}

func TestLease_ARunWhoseCommitAndReleaseFailedGoesOnWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: hang {}\n---\ntext: done\n"}, "hang")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 9)
	w.limits.Lease = 300 * time.Millisecond // renewed ten times while the store is deaf: the lease does not end by itself
	s := &deafStore{Store: w.store}
	w.begin(func(hob.Store) hob.Store { return s })
	run := w.start("go", hob.RunOptions{})
	w.toolCame()
	s.deaf.Store(true)
	close(w.tools.hold)
	waitUntil(t, func() bool { return w.engine.Stats().Active == 0 })
	time.Sleep(time.Second)
	s.deaf.Store(false)
	waitUntil(t, func() bool { return final(w, run.ID) })
	if got := w.wait(run.ID); got.Status != hob.Completed || got.Attempt < 2 {
		t.Fatalf("%s after attempt %d", got.Status, got.Attempt)
	}
}

func TestReaders_SilenceIsToldToThoseWhoseRunIsDrivenElsewhere(t *testing.T) {
	t.Parallel()
	w := hanging(t, engine.Limits{})
	run := w.start("go", hob.RunOptions{})
	w.toolCame()
	other := engine.New(engine.Config{Store: w.store, Models: w.models})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	told := 0
	for batch, err := range other.Events(ctx, w.by, run.ID, 0, 300*time.Millisecond) {
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			if told++; told == 2 {
				close(w.tools.hold)
			}
		}
	}
	if told < 2 || !final(w, run.ID) {
		t.Fatalf("silence was told %d times", told)
	}
}

func TestModel_AnAnswerWithoutEndIsCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "chunks: 100\ntext: " + strings.Repeat("0123456789", 1000) + "\n"})
	w.limits.AnswerBytes = 2000
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	if run.Status != hob.Failed || run.Code != string(hob.ClassTooLarge) || len(run.Content) > 2200 {
		t.Fatalf("%s (%s) with %d bytes", run.Status, run.Code, len(run.Content))
	}
	w.valid(run)
}

func TestUsage_CountsThatCannotBeAreEstimated(t *testing.T) {
	t.Parallel()
	for _, absurd := range []hob.Usage{
		{PromptTokens: math.MaxInt64, CompletionTokens: math.MaxInt64, TotalTokens: -2},
		{PromptTokens: -5, CompletionTokens: 3},
		{PromptTokens: 1e12, CompletionTokens: 1, TotalTokens: 1e12 + 1},
	} {
		w := newWorld(t, map[string]any{})
		w.models = func(context.Context, hob.WorkspaceID, string) (hob.Model, error) {
			return hob.Model{Name: "test", Model: "m", Provider: streamFunc(func(context.Context, hob.Request) iter.Seq2[hob.Delta, error] {
				return func(yield func(hob.Delta, error) bool) {
					_ = yield(hob.Delta{Text: "hello there"}, nil) && yield(hob.Delta{Finish: hob.FinishStop, Usage: &absurd}, nil)
				}
			})}, nil
		}
		w.begin(nil)
		run := w.wait(w.start("four score", hob.RunOptions{}).ID)
		if want := (hob.Usage{PromptTokens: 11, CompletionTokens: 3, TotalTokens: 14}); run.Usage != want {
			t.Errorf("%+v was booked as %+v", absurd, run.Usage)
		}
	}
}
