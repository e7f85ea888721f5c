//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// on is a harness on a machine whose naps were so late, the last of a thousand most of all.
func on(long bool, usual, most time.Duration) *harness {
	l := &lateness{late: append(slices.Repeat([]time.Duration{usual}, 999), most)}
	return &harness{options: options{long: long}, lateness: l}
}

func TestWithin_JudgesThe99thPercentile(t *testing.T) {
	t.Parallel()
	h := on(false, 0, 0)
	list := append(slices.Repeat([]time.Duration{time.Second}, 199), time.Hour)
	if v := h.within(takenUp, "run", list, 2*time.Second); v.broken() || v.word() != "ok" {
		t.Error("one of 200 breaks a promise about 99 of 100")
	}
	if v := h.within(takenUp, "run", list[190:], 2*time.Second); v.word() != "TOO SLOW" {
		t.Error("one of 10 does not")
	}
}

func TestWithin_AllowsTheQuickCheckWhatTheMachineExplains(t *testing.T) {
	t.Parallel()
	const bound = 10 * time.Second
	for name, test := range map[string]struct {
		h    *harness
		took time.Duration
		want string
	}{
		"kept":                           {on(false, 0, 0), bound, "ok"},
		"missed on a quiet machine":      {on(false, time.Millisecond, 20*time.Millisecond), bound + time.Second, "TOO SLOW"},
		"missed on a busy one":           {on(false, 40*time.Millisecond, 200*time.Millisecond), bound + time.Second, "slow"},
		"missed by more than it was":     {on(false, 40*time.Millisecond, 200*time.Millisecond), bound + 1001*time.Millisecond, "TOO SLOW"},
		"missed on a busy one, and long": {on(true, 40*time.Millisecond, 200*time.Millisecond), bound + time.Second, "TOO SLOW"},
	} {
		v := test.h.within(takenUp, "run", []time.Duration{test.took}, bound)
		if v.word() != test.want || v.broken() != (test.want == "TOO SLOW") {
			t.Errorf("%s: %q, want %q", name, v.word(), test.want)
		}
		if why := v.slow + strings.Join(v.violations, ""); test.want != "ok" && (!strings.Contains(why, "load ") || !strings.Contains(why, "late by")) {
			t.Errorf("%s: it does not tell of the machine: %q", name, why)
		}
	}
}

func TestAllowed_IsNothingInTheLongCheck(t *testing.T) {
	t.Parallel()
	if got := on(true, time.Second, time.Second).allowed(); got != 0 {
		t.Errorf("%s", got)
	}
	if got, want := on(false, 10*time.Millisecond, 50*time.Millisecond).allowed(), 250*time.Millisecond; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestLateness_IsMeasured(t *testing.T) {
	t.Parallel()
	l := measure()
	time.Sleep(20 * nap)
	l.end()
	if m := l.measured(); m.naps < 2 || m.most < m.usual || m.load == "unknown" {
		t.Errorf("measured: %+v", m)
	}
}

func TestSpread_NamesNoPercentileThatIsTheLongest(t *testing.T) {
	t.Parallel()
	second := []time.Duration{time.Second}
	for _, test := range []struct {
		list []time.Duration
		want string
	}{
		{nil, "no run"},
		{second, "1 run: 1s"},
		{slices.Repeat(second, 27), "27 runs: half within 1s, all within 1s"},
		{append(slices.Repeat(second, 199), time.Minute), "200 runs: half within 1s, 99 of 100 within 1s, all within 1m0s"},
	} {
		if got := spread(test.list, "run"); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// harnessOf is a harness in a folder of its own that builds nothing.
func harnessOf(t *testing.T, o options) *harness {
	t.Helper()
	o.hob = "hob"
	h, err := newHarness(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.remove(h.folder) })
	return h
}

// leaving is a part that leaves a file behind.
func leaving(name string, v []verdict, err error) part {
	return part{name: name, run: func(_ context.Context, h *harness) ([]verdict, error) {
		return v, errors.Join(err, os.WriteFile(filepath.Join(h.folder, "data"), make([]byte, 2<<20), 0o600))
	}}
}

func TestAll_KeepsWhatFailedAndNothingElse(t *testing.T) {
	t.Parallel()
	broken := []verdict{judge(runsEnd, []string{"bad"}, "")}
	h := harnessOf(t, options{seed: 7})
	var out bytes.Buffer
	code, kept := h.all(t.Context(), &out, []part{
		leaving("kill", []verdict{judge(runsEnd, nil, "")}, nil), leaving("ack", broken, nil), leaving("disk", nil, errors.New("no disk")),
		leaving("stop", []verdict{{name: takenUp, kind: timing, slow: "busy"}}, nil),
	})
	h.close(kept)
	if code != exitViolated {
		t.Errorf("exit code %d", code)
	}
	left, err := filepath.Glob(filepath.Join(h.folder, "*"))
	if want := []string{filepath.Join(h.folder, "ack"), filepath.Join(h.folder, "disk")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	for _, text := range []string{
		"ack       data and logs: " + h.folder + "/ack (2 MB); again: go run ./internal/chaos -hob hob -only ack -seed 7\n",
		"disk      could not be run: no disk\n",
		"chaos: 2 promises, 1 violated; 1 times, 0 too slow, 1 slow on a busy machine; 1 parts not run; ",
	} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("not told: %q\n%s", text, &out)
		}
	}
}

func TestAll_RemovesAllWhereNothingFailed(t *testing.T) {
	t.Parallel()
	for keep, want := range map[bool]bool{false: false, true: true} {
		h := harnessOf(t, options{keep: keep})
		code, kept := h.all(t.Context(), io.Discard, []part{leaving("kill", []verdict{judge(runsEnd, nil, "")}, nil)})
		h.close(kept)
		if _, err := os.Stat(filepath.Join(h.folder, "kill", "data")); code != exitOK || (err == nil) != want {
			t.Errorf("keep %t: exit code %d, %v", keep, code, err)
		}
	}
}

func TestHarness_LeavesNothingWhereItCannotBegin(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("PATH", dir) // without the Go tool
	if _, err := newHarness(t.Context(), options{}, io.Discard); err == nil {
		t.Error("it was built without the Go tool")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
}

func TestTally_GivesTheExitCode(t *testing.T) {
	t.Parallel()
	fine := judge(runsEnd, nil, "")
	for name, test := range map[string]struct {
		verdicts []verdict
		err      error
		want     int
	}{
		"kept":     {[]verdict{fine}, nil, exitOK},
		"broken":   {[]verdict{fine, judge(noGaps, []string{"bad"}, "")}, errors.New("and not to its end"), exitViolated},
		"slow":     {[]verdict{fine, {name: takenUp, kind: timing, slow: "busy"}}, nil, exitOK},
		"too slow": {[]verdict{fine, {name: takenUp, kind: timing, violations: []string{"bad"}}}, nil, exitViolated},
		"not run":  {[]verdict{fine}, errors.New("no"), exitFault},
		"nothing":  {[]verdict{figure(notRunName, "")}, nil, exitFault},
	} {
		var got tally
		got.add(test.verdicts, test.err)
		if got.code() != test.want {
			t.Errorf("%s: %d, want %d", name, got.code(), test.want)
		}
	}
}

func TestAgain_RepeatsATrial(t *testing.T) {
	t.Parallel()
	h := &harness{options: options{bugs: true, seed: 9}}
	got := []string{h.again(outcome{bug: bug{name: "no_sync", drill: "sync"}}.faultName()), h.again(outcome{bug: bug{drill: "call"}}.faultName())}
	want := []string{"go run ./internal/chaos -bugs -only no_sync -seed 9", "go run ./internal/chaos -bugs -only no_recover -seed 9"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTested_IsVacuousBelowANeed(t *testing.T) {
	t.Parallel()
	if v := tested(need{"kills", 20, 20}, need{"cuts", 3, 1}); v.broken() {
		t.Errorf("it is broken: %v", v.violations)
	}
	v := tested(need{"kills", 20, 20}, need{"cuts", 0, 1})
	if line := v.line("kill"); !v.broken() || !strings.Contains(line, "VIOLATED") || !strings.Contains(line, "kills 20 (at least 20), cuts 0 (at least 1)") {
		t.Errorf("a part that cut nothing reads %q", line)
	}
}

func TestOnly_LeavesWhatWasBroken(t *testing.T) {
	t.Parallel()
	all := []verdict{judge("a", nil, "0"), judge("b", []string{"bad"}, "1"), judge("c", nil, "0")}
	var names []string
	for _, v := range only(all, "c") {
		names = append(names, v.name)
	}
	if !slices.Equal(names, []string{"b", "c"}) {
		t.Errorf("left are %q", names)
	}
}

func TestPercentile_IsNearestRank(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for p, want := range map[int]time.Duration{1: 1, 50: 50, 99: 99, 100: 100} {
		if got := percentile(hundred, p); got != want {
			t.Errorf("the %dth percentile of 1 to 100 is %d", p, got)
		}
	}
	if got := percentile(hundred[:3], 99); got != 3 {
		t.Errorf("the 99th percentile of 1 to 3 is %d", got)
	}
	if percentile(nil, 50) != 0 {
		t.Error("nothing has a percentile")
	}
}
