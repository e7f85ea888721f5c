//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"
)

// mostDetails is how many violations of one promise are shown.
const mostDetails = 8

// verdict is what became of one promise, or a figure that nothing is promised about.
type verdict struct {
	name       string
	figures    string
	violations []string
	figure     bool
}

// broken says whether the promise was broken.
func (v verdict) broken() bool { return len(v.violations) > 0 }

// line is the verdict as it is printed.
func (v verdict) line(part string) string {
	word := "ok"
	switch {
	case v.broken():
		word = "VIOLATED"
	case v.figure:
		word = "-"
	}
	return fmt.Sprintf("%-9s %-42s %-8s %s", part, v.name, word, v.figures)
}

// judge makes the verdict of a promise.
func judge(name string, violations []string, format string, args ...any) verdict {
	return verdict{name: name, violations: violations, figures: fmt.Sprintf(format, args...)}
}

// figure makes a line that only tells.
func figure(name, format string, args ...any) verdict {
	return verdict{name: name, figure: true, figures: fmt.Sprintf(format, args...)}
}

// only leaves the verdicts of the named promises, and those of all promises that were broken.
func only(all []verdict, names ...string) []verdict {
	return slices.DeleteFunc(all, func(v verdict) bool { return !v.broken() && !slices.Contains(names, v.name) })
}

// need is one condition under which a part has tested anything.
type need struct {
	what      string
	got, want int
}

// testedName is how the verdict reads that says whether a part tested anything.
const testedName = "the part tested something"

// tested is the verdict that a part was not vacuous: each need was met.
func tested(needs ...need) verdict {
	v := verdict{name: testedName}
	for i, n := range needs {
		if i > 0 {
			v.figures += ", "
		}
		v.figures += fmt.Sprintf("%s %d of %d", n.what, n.got, n.want)
		if n.got < n.want {
			v.violations = append(v.violations, fmt.Sprintf("vacuous: %s: %d, at least %d are needed", n.what, n.got, n.want))
		}
	}
	return v
}

// percentile is the nearest-rank percentile of times, which are sorted; 0 of none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
