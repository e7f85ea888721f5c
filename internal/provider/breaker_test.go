package provider

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hob"
)

// fakeClock is a clock that a test moves.
type fakeClock struct{ at atomic.Int64 }

func newFakeClock() *fakeClock {
	c := &fakeClock{}
	c.at.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	return c
}

func (c *fakeClock) now() time.Time          { return time.Unix(0, c.at.Load()).UTC() }
func (c *fakeClock) forward(d time.Duration) { c.at.Add(int64(d)) }

func testBreaker() (*breaker, *fakeClock, *circuits) {
	clock, all := newFakeClock(), &circuits{}
	return newBreaker("test", "https://u:secret@host/v1", Config{Clock: clock.now}.limits(), all), clock, all
}

// fail makes n failed tries, each of which must be let through.
func fail(t *testing.T, b *breaker, n int) {
	t.Helper()
	for range n {
		pass, refused := b.enter()
		if refused != nil {
			t.Fatal(refused)
		}
		b.report(pass, verdictBroken, "test answered 500: no", 0)
		b.leave(pass)
	}
}

// openFor is how long an open breaker refuses calls from now on.
func openFor(b *breaker) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until.Sub(b.now())
}

func TestBreaker_OpensAfterFailuresInARowOnly(t *testing.T) {
	t.Parallel()
	b, _, all := testBreaker()
	fail(t, b, DefaultBreakAfter-1)
	b.report(0, verdictNone, "", 0)
	if b.refuses() != nil {
		t.Error("it is open one failure too early")
	}
	b.report(0, verdictWorks, "", 0)
	fail(t, b, DefaultBreakAfter-1)
	if b.refuses() != nil || len(all.list()) != 0 {
		t.Error("failures before a success count")
	}
	fail(t, b, 1)
	_, e := b.enter()
	if e == nil || b.refuses() == nil {
		t.Fatal("it is not open")
	}
	if e.Class != hob.ClassModelError || e.RetryAfter < DefaultBreakFor || e.RetryAfter > DefaultBreakFor*5/4 {
		t.Errorf("got %+v", e)
	}
	for _, part := range []string{"test: 5 tries in a row failed", "test answered 500: no", "it is tried again in 1"} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("the message %q lacks %q", e.Message, part)
		}
	}
	list := all.list()
	if len(list) != 1 || list[0].State != CircuitOpen || list[0].Fails != 5 || list[0].BaseURL != "https://host/v1" ||
		list[0].Fault != "test answered 500: no" {
		t.Errorf("listed %+v", list)
	}
}

func TestBreaker_LetsExactlyOneCallTryAnOpenCircuit(t *testing.T) {
	t.Parallel()
	b, clock, all := testBreaker()
	fail(t, b, DefaultBreakAfter)
	clock.forward(DefaultBreakFor - time.Second)
	if b.refuses() == nil {
		t.Error("it is open for less than it says")
	}
	clock.forward(DefaultBreakFor) // beyond the jitter
	if list := all.list(); len(list) != 1 || list[0].State != CircuitHalfOpen {
		t.Errorf("listed %+v", list)
	}
	var passed atomic.Uint64
	var through atomic.Int32
	var all64 sync.WaitGroup
	for range 64 {
		all64.Go(func() {
			if pass, refused := b.enter(); refused == nil {
				through.Add(1)
				passed.Store(pass)
			}
		})
	}
	all64.Wait()
	if through.Load() != 1 {
		t.Fatalf("%d calls were let through", through.Load())
	}
	b.report(passed.Load(), verdictWorks, "", 0)
	b.leave(passed.Load())
	if b.refuses() != nil || len(all.list()) != 0 || b.troubled.Load() {
		t.Error("a success does not close it")
	}
}

func TestBreaker_ThousandsOfCallsAtOnceTryItOneByOne(t *testing.T) {
	t.Parallel()
	b, clock, all := testBreaker()
	var trying, most, tried, refusals atomic.Int32
	var calls sync.WaitGroup
	for i := range 4_000 {
		calls.Go(func() {
			for n := range 5 {
				pass, refused := b.enter()
				if refused != nil {
					refusals.Add(1)
					clock.forward(time.Second / 10)
					continue
				}
				if pass != 0 {
					tried.Add(1)
					if now := trying.Add(1); now > most.Load() {
						most.Store(now)
					}
					runtime.Gosched()
					trying.Add(-1)
				}
				b.report(pass, []verdict{verdictBroken, verdictBroken, verdictBroken, verdictNone}[(i+n)%4], "x", 0)
				b.leave(pass)
			}
		})
	}
	calls.Wait()
	if most.Load() != 1 || tried.Load() == 0 || refusals.Load() == 0 {
		t.Errorf("%d calls tried it at once, %d in all; %d were refused", most.Load(), tried.Load(), refusals.Load())
	}
	if len(all.list()) != 1 || b.refuses() == nil && openFor(b) > 0 {
		t.Errorf("listed %+v", all.list())
	}
	b.report(0, verdictWorks, "", 0)
	if len(all.list()) != 0 || b.refuses() != nil {
		t.Error("a success does not close it")
	}
}

func TestBreaker_StaysOpenTwiceAsLongEachTime(t *testing.T) {
	t.Parallel()
	b, clock, _ := testBreaker()
	fail(t, b, DefaultBreakAfter)
	for _, want := range []time.Duration{15, 30, 60, 120, 120, 120} {
		want *= time.Second
		if got := openFor(b); got < want || got > want*5/4 {
			t.Errorf("open for %s, want %s", got, want)
		}
		clock.forward(want * 5 / 4)
		fail(t, b, 1)
	}
	clock.forward(time.Hour)
	pass, _ := b.enter()
	b.report(pass, verdictWorks, "", 0)
	fail(t, b, DefaultBreakAfter)
	if got := openFor(b); got > DefaultBreakFor*5/4 {
		t.Errorf("after a success it is open for %s", got)
	}
}

func TestBreaker_ACallThatGivesUpGivesItsPassBack(t *testing.T) {
	t.Parallel()
	b, clock, _ := testBreaker()
	fail(t, b, DefaultBreakAfter)
	clock.forward(time.Minute)
	pass, _ := b.enter()
	b.report(pass, verdictNone, "", 0)
	b.leave(pass)
	second, refused := b.enter()
	if refused != nil || second == 0 || second == pass {
		t.Fatalf("the next call got pass %d, %v", second, refused)
	}
	b.leave(pass) // once more changes nothing
	if b.refuses() == nil {
		t.Error("an old pass freed the circuit")
	}
}

func TestBreaker_TriesFromBeforeItOpenedCountOnlyWhereTheySucceed(t *testing.T) {
	t.Parallel()
	b, clock, _ := testBreaker()
	fail(t, b, DefaultBreakAfter)
	before := openFor(b)
	b.report(0, verdictBroken, "late", 0)
	if openFor(b) != before {
		t.Error("a late failure changed how long it is open")
	}
	clock.forward(time.Minute)
	pass, _ := b.enter()
	b.report(0, verdictBroken, "late", 0)
	if _, refused := b.enter(); refused == nil {
		t.Error("a late failure freed the circuit for another call")
	}
	b.report(0, verdictWorks, "", 0)
	if b.refuses() != nil {
		t.Error("a late success did not close it")
	}
	b.report(pass, verdictBroken, "x", 0)
	if b.refuses() != nil {
		t.Error("the old pass opened it at its first failure")
	}
}

func TestBreaker_WaitsAsLongAsTheProviderAsks(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{
		time.Second: DefaultBreakFor, 40 * time.Second: 40 * time.Second, time.Hour: MaxRetryAfter,
	} {
		b, _, _ := testBreaker()
		fail(t, b, DefaultBreakAfter-1)
		b.report(0, verdictBroken, "busy", asked)
		if got := openFor(b); got < want || got > want+DefaultBreakFor/4+1 {
			t.Errorf("asked for %s it is open for %s, want %s", asked, got, want)
		}
	}
}

func TestBreaker_CanBeSetAndSwitchedOff(t *testing.T) {
	t.Parallel()
	all := &circuits{}
	b := newBreaker("test", "http://host", Config{BreakAfter: 2, BreakFor: time.Second, BreakMost: 2 * time.Second}.limits(), all)
	fail(t, b, 2)
	if got := openFor(b); got > 5*time.Second/4 {
		t.Errorf("open for %s", got)
	}
	off := newBreaker("test", "http://host", Config{BreakAfter: -1}.limits(), all)
	fail(t, off, 1_000)
	if off.refuses() != nil || len(all.list()) != 1 {
		t.Error("a breaker that is off opened")
	}
}

func TestBreaker_AGivenUpEndpointIsNotListed(t *testing.T) {
	t.Parallel()
	b, _, all := testBreaker()
	fail(t, b, DefaultBreakAfter)
	if len(all.list()) != 1 {
		t.Fatal("it is not listed")
	}
	runtime.KeepAlive(b)
	for range 100 { // b is not used any more
		runtime.GC()
		if len(all.list()) == 0 {
			return
		}
	}
	t.Error("the list keeps a breaker that nobody has any more")
}

func TestBreaker_ListForgetsWhatIsGoneAsItGrows(t *testing.T) {
	t.Parallel()
	all := &circuits{}
	for range 40 {
		for range 100 { // and give them up
			fail(t, newBreaker("test", "http://host", Config{BreakAfter: 1}.limits(), all), 1)
		}
		runtime.GC()
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if n := len(all.open); n > 1_000 {
		t.Errorf("of 4000 breakers that are gone the list has %d", n)
	}
}

// TestBreaker_WorkingEndpointCostsNothing is what lets every try pass through it.
func TestBreaker_WorkingEndpointCostsNothing(t *testing.T) {
	b, _, _ := testBreaker()
	if n := testing.AllocsPerRun(1_000, func() {
		pass, _ := b.enter()
		b.report(pass, verdictWorks, "", 0)
		b.leave(pass)
	}); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}

func BenchmarkBreaker(b *testing.B) {
	br, _, _ := testBreaker()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			pass, _ := br.enter()
			br.report(pass, verdictWorks, "", 0)
			br.leave(pass)
		}
	})
}
