package engine

import (
	"errors"
	"testing"
	"time"

	"hob"
)

// hall is an admission under a clock that the test moves.
type hall struct {
	*admission
	t   *testing.T
	now time.Time
}

func newHall(t *testing.T, limit int) *hall {
	return &hall{newAdmission(limit), t, time.Unix(1_000_000, 0)}
}

// ask asks for a place and makes the run durable at once; it gives the code of the refusal, "" where there was a place.
func (h *hall) ask(ws hob.WorkspaceID) string {
	h.t.Helper()
	code := h.begin(ws)
	if code == "" {
		h.begun(ws)
	}
	return code
}

// begin asks for a place and leaves the run in its start.
func (h *hall) begin(ws hob.WorkspaceID) string {
	h.t.Helper()
	return h.code(h.enter(ws, h.now))
}

func (h *hall) code(err error) string {
	h.t.Helper()
	if err == nil {
		return ""
	}
	var e *hob.Error
	if !errors.As(err, &e) || e.RetryAfter != retryAfter {
		h.t.Fatalf("a refusal that does not say when to come back: %v", err)
	}
	if want := map[hob.Kind]string{hob.RateLimited: codeWorkspaceBusy}[e.Kind]; want != "" && e.Code != want {
		h.t.Fatalf("%s is told as %s", e.Code, e.Kind)
	}
	return e.Code
}

// fill asks until it is refused, and gives how often it was not.
func (h *hall) fill(ws hob.WorkspaceID) (n int, code string) {
	h.t.Helper()
	for code = h.ask(ws); code == ""; code = h.ask(ws) {
		n++
	}
	return n, code
}

func (h *hall) pass(d time.Duration) { h.now = h.now.Add(d) }

func TestAdmission_OneWorkspaceAloneMayHoldEveryPlace(t *testing.T) {
	t.Parallel()
	h := newHall(t, 100)
	if n, code := h.fill("a"); n != 100 || code != codeOverloaded {
		t.Fatalf("%d places, then %q", n, code)
	}
	if err := h.look("a", h.now); h.code(err) != codeOverloaded {
		t.Fatalf("the early look says %v", err)
	}
	h.leave("a")
	if code := h.ask("a"); code != "" {
		t.Fatalf("a place that was given back: %q", code)
	}
	if got := h.stats(); got.Overloaded != 2 || got.WorkspaceBusy != 0 {
		t.Fatalf("counted %+v", got)
	}
}

func TestAdmission_ANewcomerGetsPlacesThoughTheGreedyAsksFirst(t *testing.T) {
	t.Parallel()
	h := newHall(t, 100)
	h.fill("greedy")
	if code := h.ask("new"); code != codeOverloaded { // below its share: the server is full, and told to be
		t.Fatalf("the first wish: %q", code)
	}
	held := 0
	for range 50 {
		h.leave("greedy")
		if code := h.ask("greedy"); code != codeWorkspaceBusy {
			t.Fatalf("greedy, with %d places of another: %q", held, code)
		}
		if code := h.ask("new"); code != "" {
			t.Fatalf("a place became free, and the newcomer got %q", code)
		}
		held++
	}
	if code := h.ask("new"); code != codeWorkspaceBusy {
		t.Fatalf("over its share: %q", code)
	}
	if h.tenants["greedy"].runs != 50 || h.tenants["new"].runs != 50 {
		t.Fatalf("%d and %d", h.tenants["greedy"].runs, h.tenants["new"].runs)
	}
}

func TestAdmission_AQuarterIsKeptFromThoseOverTheirShare(t *testing.T) {
	t.Parallel()
	h := newHall(t, 100)
	h.ask("small")
	if n, code := h.fill("greedy"); n != 74 || code != codeWorkspaceBusy {
		t.Fatalf("greedy got %d places beside one of another, then %q", n, code)
	}
	for i := range 25 {
		if code := h.ask("small"); code != "" {
			t.Fatalf("wish %d of the kept quarter: %q", i, code)
		}
	}
	if code := h.ask("small"); code != codeOverloaded {
		t.Fatalf("no place is left: %q", code)
	}
}

func TestAdmission_AWorkspaceThatStoppedAskingHasNoShare(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]int{askedFor - time.Millisecond: 75, askedFor: 100} {
		h := newHall(t, 100)
		h.ask("gone")
		h.leave("gone")
		h.pass(after)
		if n, _ := h.fill("greedy"); n != want {
			t.Errorf("%s after the last wish of another: %d places, want %d", after, n, want)
		}
		if _, kept := h.tenants["gone"]; kept != (want == 75) {
			t.Errorf("%s after its last wish a workspace without runs is remembered: %v", after, kept)
		}
	}
}

func TestAdmission_TakenUpRunsCountAndAreHeldUpByTheLimitAlone(t *testing.T) {
	t.Parallel()
	h := newHall(t, 10)
	h.ask("b")
	for i := range 9 { // over the share of two workspaces, and into the kept quarter
		if err := h.resume("a"); err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
	}
	if code := h.code(h.resume("a")); code != codeOverloaded || h.room() != 0 {
		t.Fatalf("beyond the limit: %q, room %d", code, h.room())
	}
	h.leave("a")
	if code := h.ask("a"); code != codeWorkspaceBusy || h.room() != 1 {
		t.Fatalf("a new run of a workspace whose runs were taken up: %q, room %d", code, h.room())
	}
}

func TestAdmission_StartsAreBoundedAndShared(t *testing.T) {
	t.Parallel()
	h := newHall(t, 10_000)
	for i := range maxStarting {
		if code := h.begin("a"); code != "" {
			t.Fatalf("start %d: %q", i, code)
		}
	}
	if code := h.begin("a"); code != codeOverloaded {
		t.Fatalf("start %d: %q", maxStarting, code)
	}
	h.ask("b")
	h.begun("a")
	if code := h.begin("a"); code != codeWorkspaceBusy {
		t.Fatalf("a place among the starts became free, and who holds them all got %q", code)
	}
	if code := h.begin("b"); code != "" {
		t.Fatalf("the other got %q", code)
	}
	if got := h.stats(); got.Starting != maxStarting || got.Bound != maxStarting {
		t.Fatalf("counted %+v", got)
	}
}

// TestAdmission_ALongStartThatFailsLeavesNoPlaceOver gives the run's place back before the start, as a failing start does.
func TestAdmission_ALongStartThatFailsLeavesNoPlaceOver(t *testing.T) {
	t.Parallel()
	h := newHall(t, 4)
	if code := h.begin("a"); code != "" {
		t.Fatal(code)
	}
	h.leave("a")
	h.now = h.now.Add(2 * askedFor)
	if code := h.ask("b"); code != "" { // looks who wants nothing any more
		t.Fatal(code)
	}
	h.begun("a")
	if a := h.tenants["a"]; a == nil || a.starts != 0 || h.starts != 0 {
		t.Errorf("%+v with %d starts in all", a, h.starts)
	}
}

func TestAdmission_ClosedTakesNothing(t *testing.T) {
	t.Parallel()
	h := newHall(t, 10)
	h.close()
	if code := h.ask("a"); code != codeShuttingDown {
		t.Fatalf("a new run: %q", code)
	}
	if code := h.code(h.resume("a")); code != codeShuttingDown || h.room() != 0 {
		t.Fatalf("one from elsewhere: %q, room %d", code, h.room())
	}
	if got := h.stats(); got.ShuttingDown != 1 {
		t.Fatalf("counted %+v", got)
	}
}

func TestAdmission_AnOverloadedServerTakesSomeUp(t *testing.T) {
	t.Parallel()
	h := newHall(t, 100)
	h.pace.bound = minStarting
	if got := h.room(); got != minStarting {
		t.Fatalf("room for %d", got)
	}
	h.pace.bound = maxStarting
	if got := h.room(); got != 100 {
		t.Fatalf("room for %d on a quiet server", got)
	}
}

// road is a pace under a clock that the test moves.
type road struct {
	pace
	now time.Time
}

func newRoad() *road {
	r := &road{pace: newPace(), now: time.Unix(1_000_000, 0)}
	r.roll(r.now, 0, 0)
	return r
}

// interval passes one in which writes took d (0: there were none), with so many runs, refused for the bound or not.
func (r *road) interval(d time.Duration, runs int, refused bool) {
	for range 3 {
		if d > 0 {
			r.add(d)
		}
	}
	if refused {
		r.refuse(r.now)
	}
	r.now = r.now.Add(paceInterval)
	r.roll(r.now, min(runs, r.bound), runs)
}

func (r *road) intervals(n int, d time.Duration, runs int, refused bool) {
	for range n {
		r.interval(d, runs, refused)
	}
}

func TestPace_WhatIsNoOverload(t *testing.T) {
	t.Parallel()
	for name, drive := range map[string]func(*road){
		"a crowd that is served": func(r *road) { r.intervals(100, tripDelay, 2000, false) },
		"a burst":                func(r *road) { r.intervals(tripIntervals-1, time.Second, 2000, true) },
		"bursts": func(r *road) {
			r.intervals(4, time.Second, 999, false)
			r.interval(time.Millisecond, 9, false)
			r.intervals(4, time.Second, 999, true)
		},
		"a slow disk with few runs": func(r *road) { r.intervals(100, 3*time.Second, tripRuns-1, false) },
		"a slow disk as ever": func(r *road) {
			r.interval(time.Second, 1, false)
			r.intervals(100, tripFactor*time.Second, 2000, false)
		},
		"a disk that stands still":  func(r *road) { r.intervals(100, 0, 2000, false) },
		"runs that wait for models": func(r *road) { r.intervals(100, time.Millisecond, 2048, false) },
	} {
		r := newRoad()
		r.interval(time.Millisecond, 1, false)
		if name == "a slow disk as ever" {
			r = newRoad()
		}
		if drive(r); r.lowered() {
			t.Errorf("%s: the bound is %d", name, r.bound)
		}
	}
}

func TestPace_LowersUntilWritesAreAsQuickAsOnAQuietServer(t *testing.T) {
	t.Parallel()
	const usual = 3 * time.Millisecond
	for name, delay := range map[string]time.Duration{"late": tripDelay + 1, "crowded": 50 * time.Millisecond} {
		r := newRoad()
		r.intervals(10, usual, 20, false)
		r.intervals(tripIntervals-1, delay, 600, name == "crowded")
		if r.lowered() {
			t.Fatalf("%s: lowered early", name)
		}
		r.interval(delay, 600, name == "crowded")
		if r.bound != tripTo {
			t.Fatalf("%s: the first step leads to %d", name, r.bound)
		}
		r.interval(delay, 600, true)
		if r.bound != 48 {
			t.Fatalf("%s: the second step leads to %d", name, r.bound)
		}
		for r.delay = delay; r.delay > targetFactor*usual; { // the delay grows with the starts
			r.interval(time.Duration(r.bound)*time.Millisecond, 600, true)
		}
		if r.bound < 4 || r.bound > 7 {
			t.Fatalf("%s: the bound comes to %d", name, r.bound)
		}
		for range 1000 {
			r.interval(time.Duration(r.bound)*time.Millisecond, 600, true)
			if r.bound < 4 || r.bound > 7 {
				t.Fatalf("%s: the bound strays to %d", name, r.bound)
			}
		}
		r.intervals(300, time.Second, 600, true)
		if r.bound != minStarting {
			t.Fatalf("%s: the least bound is %d", name, r.bound)
		}
	}
}

func TestPace_WaitsForAStepToTakeEffect(t *testing.T) {
	t.Parallel()
	r := newRoad()
	r.bound, r.refused = 40, r.now
	for range 20 {
		r.add(time.Second)
		r.now = r.now.Add(paceInterval)
		r.roll(r.now, 41, 600)
	}
	if r.bound != 40 {
		t.Fatalf("lowered to %d while more than that still start", r.bound)
	}
}

func TestPace_GrowsOnlyWhereItKeptRunsOut(t *testing.T) {
	t.Parallel()
	r := newRoad()
	r.bound, r.refused = 64, r.now
	r.intervals(20, time.Millisecond, 30, false)
	if r.bound != 64 {
		t.Fatalf("grew to %d unasked", r.bound)
	}
	r.interval(time.Millisecond, 64, true)
	if r.bound != 66 {
		t.Fatalf("grew to %d", r.bound)
	}
	for i := 0; r.lowered(); i++ {
		if i > 100 {
			t.Fatalf("it does not end; the bound is %d", r.bound)
		}
		r.interval(time.Millisecond, 64, true)
	}
}

func TestPace_AnOverloadEndsWhenNobodyIsRefused(t *testing.T) {
	t.Parallel()
	r := newRoad()
	r.intervals(10, time.Millisecond, 20, false)
	r.intervals(tripIntervals+3, time.Second, 600, true)
	r.intervals(int(calm/paceInterval)-2, time.Second, 10, false)
	if !r.lowered() {
		t.Fatal("it ended early")
	}
	r.intervals(2, 0, 0, false)
	if r.lowered() {
		t.Fatalf("the bound is %d after %s without a refusal", r.bound, calm)
	}
}

func TestPace_TheUsualDelayIsTheLeastOfAMinuteWithoutOverload(t *testing.T) {
	t.Parallel()
	r := newRoad()
	r.interval(5*time.Millisecond, 1, false)
	r.interval(2*time.Millisecond, 1, false)
	spans := int(usualSpan / paceInterval)
	r.intervals(spans, 9*time.Millisecond, 1, false)
	if r.known() != 2*time.Millisecond {
		t.Fatalf("usual is %s after half a minute", r.known())
	}
	r.intervals(spans+1, 9*time.Millisecond, 1, false)
	if r.known() != 9*time.Millisecond {
		t.Fatalf("usual is %s after more than a minute", r.known())
	}
	r.bound = 20
	for range 3 * spans { // an overload above its least bound teaches nothing
		r.bound, r.refused = 20, r.now
		r.interval(90*time.Millisecond, 600, true)
	}
	if r.known() != 9*time.Millisecond {
		t.Fatalf("an overload made %s usual", r.known())
	}
	r.bound = minStarting
	r.intervals(2*spans+2, 90*time.Millisecond, 600, true)
	if r.known() != 90*time.Millisecond || r.target() != targetFactor*90*time.Millisecond {
		t.Fatalf("with next to no starts %s stays usual", r.known())
	}
}
