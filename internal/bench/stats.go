//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// clock tells the time since its start on the monotonic clock, so that differences are exact to the nanosecond and no
// correction of the wall clock can enter a number.
type clock struct{ start time.Time }

func newClock() clock {
	return clock{time.Now()} //nolint:forbidigo // a benchmark measures the machine's own clock; hob.Clock cuts to µs
}

// now is the time since the clock's start.
func (c clock) now() time.Duration { return time.Since(c.start) }

// sample is a set of measured times. Its quantiles sort it in place, once.
type sample struct {
	values []time.Duration
	sorted bool
}

func (s *sample) add(d time.Duration) {
	s.values = append(s.values, d)
	s.sorted = false
}

func (s *sample) merge(o sample) {
	s.values = append(s.values, o.values...)
	s.sorted = false
}

func (s *sample) count() int { return len(s.values) }

// quantile is the smallest measured time that at least the share q of all do not exceed (nearest rank); 0 of no times.
func (s *sample) quantile(q float64) time.Duration {
	if len(s.values) == 0 {
		return 0
	}
	if !s.sorted {
		slices.Sort(s.values)
		s.sorted = true
	}
	rank := int(math.Ceil(q*float64(len(s.values)))) - 1
	return s.values[min(max(rank, 0), len(s.values)-1)]
}

func (s *sample) p50() time.Duration { return s.quantile(0.50) }
func (s *sample) p95() time.Duration { return s.quantile(0.95) }
func (s *sample) p99() time.Duration { return s.quantile(0.99) }
func (s *sample) max() time.Duration { return s.quantile(1) }

// String is the line of quantiles.
func (s *sample) String() string {
	return fmt.Sprintf("p50 %s  p95 %s  p99 %s  max %s  n %d", ms(s.p50()), ms(s.p95()), ms(s.p99()), ms(s.max()), s.count())
}

// ms writes a time in milliseconds with three digits that matter.
func ms(d time.Duration) string {
	v := float64(d) / float64(time.Millisecond)
	return number(v) + " ms"
}

// number writes a value with three digits that matter, or all of its whole ones.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// mib writes bytes in MiB.
func mib(bytes int64) string { return number(float64(bytes)/(1<<20)) + " MiB" }

// median is the value in the middle, or the mean of the two there; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratio is a ÷ b, 0 where b is nothing.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
