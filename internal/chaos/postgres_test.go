//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
)

// at is an event of a log, so many milliseconds behind the epoch of these tests.
func at(seq int64, kind hob.EventType, ms int64) logged {
	return logged{Run: "run_1", Seq: seq, Type: kind, At: zero.Add(time.Duration(ms) * time.Millisecond).UnixMicro()}
}

var zero = time.UnixMicro(1_700_000_000_000_000)

func TestTakeovers_CountFromTheLastHarmBeforeTheAttempt(t *testing.T) {
	t.Parallel()
	logs := map[hob.RunID][]logged{"run_1": {
		at(1, hob.EventStart, 0), at(2, hob.EventAttempt, 900), at(3, hob.EventAttempt, 5000), at(4, hob.EventComplete, 5100),
	}, "run_2": {at(1, hob.EventStart, 0), at(2, hob.EventComplete, 90)}}
	hit := func(ms int, runs ...hob.RunID) interruption {
		return interruption{at: zero.Add(time.Duration(ms) * time.Millisecond), runs: runs}
	}
	got := takeovers(logs, []interruption{hit(100, "run_1", "run_2", "run_3"), hit(1000, "run_1"), hit(4000, "run_1"), hit(5050, "run_1")})
	want := []time.Duration{800 * time.Millisecond, time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSilences_EndWithAnAttempt(t *testing.T) {
	t.Parallel()
	got := silences(map[hob.RunID][]logged{"run_1": {at(1, hob.EventStart, 0), at(2, hob.EventAttempt, 700), at(3, hob.EventComplete, 9000)}})
	if diff := cmp.Diff([]time.Duration{700 * time.Millisecond}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestZombies_AreFoundInLogsAndAtTools(t *testing.T) {
	t.Parallel()
	result := at(3, hob.EventToolResult, 300)
	result.Call = "c"
	good := []logged{at(1, hob.EventStart, 100), at(2, hob.EventToolCall, 200), result}
	for name, test := range map[string]struct {
		log     []logged
		arrived int64
		want    string
	}{
		"nothing":              {good, 250, ""},
		"a late call":          {good, 900, "600ms after its result"},
		"an event out of time": {append(slices.Clone(good), at(4, hob.EventComplete, 50)), 250, "event 4 (complete) is older"},
		"a number twice":       {append(slices.Clone(good), at(3, hob.EventComplete, 400)), 250, "event 3 stands where event 4 belongs"},
	} {
		l := newLedger()
		l.acts["run_1:c"] = &act{key: "run_1:c", tool: toolOnce, arrived: []time.Time{zero.Add(time.Duration(test.arrived) * time.Millisecond)}}
		got := strings.Join(zombies(map[hob.RunID][]logged{"run_1": test.log}, l), "\n")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
