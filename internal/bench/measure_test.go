//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSample_QuantilesAreNearestRank(t *testing.T) {
	t.Parallel()
	var s sample
	for _, n := range []int{5, 1, 4, 2, 3} {
		s.add(time.Duration(n))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.2: 1, 0.21: 2, 0.5: 3, 0.95: 5, 1: 5} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile %v of 1..5 = %d, want %d", q, got, want)
		}
	}
	s.add(0) // behind a quantile, so that it has to be sorted again
	if got := s.quantile(0); got != 0 {
		t.Errorf("the least of 0..5 = %d, want 0", got)
	}
	var hundred sample
	for n := 100; n > 0; n-- {
		hundred.add(time.Duration(n))
	}
	if got := []time.Duration{hundred.p50(), hundred.p95(), hundred.p99(), hundred.max()}; !cmp.Equal(got, []time.Duration{50, 95, 99, 100}) {
		t.Errorf("p50, p95, p99, max of 1..100 = %v", got)
	}
	if got := (&sample{}).p99(); got != 0 {
		t.Errorf("p99 of nothing = %d, want 0", got)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{7, 1, 2}, 2}} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("median(%v) = %v, want %v", tt.values, got, tt.want)
		}
	}
	var o outcome
	for _, rate := range []float64{900, 1000, 2} {
		o.add(outcome{rates: []float64{rate}})
	}
	if o.rate() != 900 {
		t.Errorf("one stalled slice of three makes the rate %v, want 900", o.rate())
	}
}

func TestNumber_HasThreeDigitsThatMatter(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.0474: "0.047", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 25254.4: "25254"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestParseStat_SkipsTheName(t *testing.T) {
	t.Parallel()
	const behind = " S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 100"
	for _, name := range []string{"hob", "a b", "x) S 9 9 ("} {
		got, err := parseStat([]byte("42 (" + name + ")" + behind))
		if err != nil || got != 3*time.Second {
			t.Errorf("parseStat with name %q = %s, %v, want 3s", name, got, err)
		}
	}
	for _, bad := range []string{"", "42 hob S 1", "42 (hob) S 1 2", "42 (hob) S 1 2 3 4 5 6 7 8 9 10 x 50"} {
		if got, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("parseStat(%q) = %s, want an error", bad, got)
		}
	}
}

func TestParseRSS_ReadsKilobytes(t *testing.T) {
	t.Parallel()
	got, err := parseRSS([]byte("Name:\thob\nVmHWM:\t  999 kB\nVmRSS:\t   2048 kB\nThreads:\t9\n"))
	if err != nil || got != 2<<20 {
		t.Errorf("parseRSS = %d, %v, want %d", got, err, 2<<20)
	}
	for _, bad := range []string{"", "VmHWM:\t1 kB\n", "VmRSS:\tmuch kB\n", "VmRSS:\t12 MB\n"} {
		if got, err := parseRSS([]byte(bad)); err == nil {
			t.Errorf("parseRSS(%q) = %d, want an error", bad, got)
		}
	}
}

func TestMeter_SeesThisProcessWork(t *testing.T) {
	t.Parallel()
	c := newClock()
	m, err := startMeter(os.Getpid(), c)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for {
		for i := range 10_000_000 {
			sum += i
		}
		cpu, elapsed, err := m.stop()
		if err != nil || cpu > elapsed*time.Duration(runtime.NumCPU())+2*ticks {
			t.Fatalf("%s of CPU in %s, %v (%d)", cpu, elapsed, err, sum)
		}
		if cpu >= 100*time.Millisecond {
			break
		}
	}
	if rss, err := rssOf(os.Getpid()); err != nil || rss < 1<<20 {
		t.Errorf("this process's memory is %d bytes, %v", rss, err)
	}
}

func TestRaiseFiles_NeverLowers(t *testing.T) {
	t.Parallel()
	before, err := raiseFiles(0)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := raiseFiles(16); err != nil || after < before {
		t.Errorf("asked for 16 files: %d, %v; had %d", after, err, before)
	}
}

func TestBar_Judges(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		bar  bar
		v    float64
		want string
	}{
		{"at most, reaches the aim", atMost(15, 6.5), 6.5, verdictAim},
		{"at most, reaches the must", atMost(15, 6.5), 15, verdictMust},
		{"at most, misses", atMost(15, 6.5), 15.01, verdictMiss},
		{"at least, reaches the aim", atLeast(2, 5), 5, verdictAim},
		{"at least, reaches the must", atLeast(2, 5), 2, verdictMust},
		{"at least, misses", atLeast(2, 5), 1.99, verdictMiss},
		{"a must alone is all there is to reach", atMost(400, 0), 399, verdictAim},
		{"a must alone can be missed", atMost(400, 0), 401, verdictMiss},
		{"an aim alone cannot be missed", atMost(0, 2), 3, verdictMust},
		{"no bar", bar{}, 3, noBar},
	}
	for _, tt := range tests {
		if got := tt.bar.judge(tt.v); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestReport_CountsAndPrints(t *testing.T) {
	t.Parallel()
	r := newReport()
	r.rates(1, "runs", 30_000, 1_000, atMost(15, 6.5))
	r.rates(1, "none at all", 30_000, 0, atMost(15, 6.5))
	r.measured(7, "size", "MB", 20, atMost(60, 50))
	r.beside(3, "first text", "ms", 0.1, 1.2, atMost(1.25, 1))
	r.line(7, "a remark")
	r.fault(2, "tools", errors.New("no server"))
	if got := r.missed(); got != 2 {
		t.Errorf("%d rows missed, want 2", got)
	}
	var out bytes.Buffer
	r.print(&out)
	want := []string{
		"1  runs         30000 runs/s  1000 runs/s  ÷ 30.0  ≥ raw ÷ 15.0  ≥ raw ÷ 6.50  MISSED",
		"1  none at all  30000 runs/s  0 runs/s     –       ≥ raw ÷ 15.0  ≥ raw ÷ 6.50  MISSED",
		"7  size                       20.0 MB              ≤ 60.0 MB     ≤ 50.0 MB     aim",
		"3  first text   0.100 ms      1.20 ms              ≤ 1.25 ms     ≤ 1.00 ms     must",
		"7. start, memory, size", "   a remark", "part 2 (tools) failed: no server",
	}
	for _, line := range want {
		if !strings.Contains(out.String(), line+"\n") {
			t.Errorf("the report lacks the line %q:\n%s", line, out.String())
		}
	}
	path := filepath.Join(t.TempDir(), "report.json")
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, []byte(`"verdict": "MISSED"`)) {
		t.Errorf("the saved report lacks a verdict: %s, %v", text, err)
	}
}

func TestParseOptions(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	got, err := parseOptions([]string{"-quick", "-only", "1, 9", "-json", "x"}, &out)
	want := options{quick: true, only: []int{1, 9}, json: "x"}
	if err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(options{})) {
		t.Errorf("options = %+v, %v", got, err)
	}
	for _, bad := range [][]string{{"-only", "11"}, {"-only", "x"}, {"-only", ""}, {"word"}, {"-nothing"}} {
		if _, err := parseOptions(bad, &out); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// scripted is a client whose runs take a time and fail now and then.
type scripted struct {
	takes  time.Duration
	fails  int // every so many
	runs   *int
	closed *int
}

func (s *scripted) close() { *s.closed++ }

func (s *scripted) run() (time.Duration, error) {
	time.Sleep(s.takes)
	if *s.runs++; s.fails > 0 && *s.runs%s.fails == 0 {
		return 0, errors.New("no luck")
	}
	return 0, nil
}

func TestSlice_CountsRunsWithinItsWindow(t *testing.T) {
	t.Parallel()
	runs, closed := 0, 0
	s := slice{clock: newClock(), clients: 1, lasts: 400 * time.Millisecond, open: func(context.Context, time.Duration) (client, error) {
		return &scripted{takes: 10 * time.Millisecond, runs: &runs, closed: &closed}, nil
	}}
	o, err := s.load(t.Context())
	if err != nil || o.err() != nil {
		t.Fatal(err, o.err())
	}
	if o.window != 350*time.Millisecond || o.counted >= o.runs || o.runs != runs || o.times.count() != runs || closed != 1 {
		t.Errorf("window %s, %d counted of %d, %d times, really %d runs, %d closed", o.window, o.counted, o.runs, o.times.count(), runs, closed)
	}
	if rate := o.rate(); rate > 100 || rate <= 0 {
		t.Errorf("runs of at least 10 ms came at %.1f per second", rate)
	}
	if p50 := o.times.p50(); p50 < 10*time.Millisecond {
		t.Errorf("runs of at least 10 ms took %s", p50)
	}
}

func TestSlice_ConnectsAnewAfterAFailureAndTellsIt(t *testing.T) {
	t.Parallel()
	runs, closed, opened := 0, 0, 0
	s := slice{clock: newClock(), clients: 1, runs: 4, open: func(context.Context, time.Duration) (client, error) {
		opened++
		return &scripted{fails: 3, runs: &runs, closed: &closed}, nil
	}}
	o, err := s.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.runs != 4 || o.failed != 1 || opened != 2 || closed != 2 {
		t.Errorf("%d runs, %d failed, %d opened, %d closed; want 4, 1, 2, 2", o.runs, o.failed, opened, closed)
	}
	if o.err() == nil || !strings.Contains(o.err().Error(), "no luck") {
		t.Errorf("the failure reads %v", o.err())
	}
	s.open = func(context.Context, time.Duration) (client, error) {
		return &scripted{fails: 1, runs: &runs, closed: &closed}, nil
	}
	if o, err := s.load(t.Context()); err != nil || o.failed != maxFailures {
		t.Errorf("a client that only fails was tried %d times, %v; want %d", o.failed, err, maxFailures)
	}
}

func TestProcess_StopsWhatItStarted(t *testing.T) {
	t.Parallel()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	p, err := start(launch{name: "sleep", bin: sleep, args: []string{"60"}, log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Process.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after stop the process still takes signals: %v", err)
	}
	if err := p.stop(); err != nil {
		t.Errorf("stopping twice: %v", err)
	}
}

func TestProcess_TellsWhyItEnded(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p, err := start(launch{name: "it", bin: sh, args: []string{"-c", "echo the port is taken; exit 3"}, log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	err = listening(t.Context(), p, "127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the port is taken") {
		t.Errorf("a process that ended is told as %v", err)
	}
}

func TestSlice_CountsAllOfAFewLongRuns(t *testing.T) {
	t.Parallel()
	runs, closed := 0, 0
	s := slice{clock: newClock(), clients: 1, lasts: 10 * time.Millisecond, open: func(context.Context, time.Duration) (client, error) {
		return &scripted{takes: 50 * time.Millisecond, runs: &runs, closed: &closed}, nil
	}}
	o, err := s.load(t.Context())
	if err != nil || o.counted != 1 || o.window < 50*time.Millisecond {
		t.Errorf("one run longer than its slice: %d counted in %s, %v", o.counted, o.window, err)
	}
}

func TestSlice_SpreadsTheBeginnings(t *testing.T) {
	t.Parallel()
	c := newClock()
	runs, closed := make([]int, 4), make([]int, 4)
	i := 0
	s := slice{clock: c, clients: 4, runs: 1, spread: 200 * time.Millisecond, open: func(context.Context, time.Duration) (client, error) {
		i++
		return &scripted{runs: &runs[i-1], closed: &closed[i-1]}, nil
	}}
	at := c.now()
	o, err := s.load(t.Context())
	if err != nil || o.runs != 4 || c.now()-at < 150*time.Millisecond {
		t.Errorf("four runs spread over 200 ms: %d runs in %s, %v", o.runs, c.now()-at, err)
	}
	if p := o.times.p50(); p > 140*time.Millisecond {
		t.Errorf("the wait before a client's beginning counts as its run's time: %s", p)
	}
}
