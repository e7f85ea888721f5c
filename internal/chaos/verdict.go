//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostDetails is how many violations of one promise are shown.
const mostDetails = 8

// verdict is what became of one promise or one bound of time, or a figure that nothing is promised about.
type verdict struct {
	name       string
	kind       kind
	figures    string
	violations []string
	slow       string // why a bound that was missed counts for nothing: the machine itself was that late
}

// kind is what a line is about.
type kind int

const (
	promise kind = iota // broken, it fails the command
	timing              // a bound of time, which a machine that is too busy can miss
	plain               // a figure
)

// broken says whether the promise was broken, or the bound missed for no fault of the machine's.
func (v verdict) broken() bool { return len(v.violations) > 0 }

// word is what became of it, in a word.
func (v verdict) word() string {
	switch {
	case v.broken() && v.kind == timing:
		return "TOO SLOW"
	case v.broken():
		return "VIOLATED"
	case v.kind == plain:
		return "-"
	case v.slow != "":
		return "slow"
	}
	return "ok"
}

// nameWidth is the room for the name of a line; no name that a part prints is longer.
const nameWidth = 39

// line is the verdict as it is printed.
func (v verdict) line(part string) string {
	return fmt.Sprintf("%-9s %-*s %-8s %s", part, nameWidth, v.name, v.word(), v.figures)
}

// judge makes the verdict of a promise.
func judge(name string, violations []string, format string, args ...any) verdict {
	return verdict{name: name, violations: violations, figures: fmt.Sprintf(format, args...)}
}

// figure makes a line that only tells.
func figure(name, format string, args ...any) verdict {
	return verdict{name: name, kind: plain, figures: fmt.Sprintf(format, args...)}
}

// within judges that times, which are sorted, stay below a bound in 99 of 100 cases; of fewer than 100, in all. The quick
// check lets a bound be missed by no more than what the machine's own lateness explains: the others on it are no fault of
// Hob's. The long one does not.
func (h *harness) within(name, what string, list []time.Duration, bound time.Duration) verdict {
	v := verdict{name: name, kind: timing, figures: fmt.Sprintf("%s; at most %s", spread(list, what), bound)}
	over := percentile(list, 99) - bound
	if over <= 0 {
		return v
	}
	l := h.lateness.measured()
	missed := fmt.Sprintf("missed by %s; the machine itself: %s, which explains %s", ms(over), l, ms(l.explains()))
	if over > h.allowed() {
		v.violations = []string{missed}
		return v
	}
	v.slow = missed
	return v
}

// allowed is by how much a bound may be missed.
func (h *harness) allowed() time.Duration {
	if h.options.long {
		return 0
	}
	return h.lateness.measured().explains()
}

// spread tells of times, which are sorted: the middle, the 99th percentile where there is one, and the longest.
func spread(list []time.Duration, what string) string {
	n := len(list)
	if n == 0 {
		return "no " + what
	}
	text := fmt.Sprintf("%d %ss: half within %s", n, what, ms(percentile(list, 50)))
	if n == 1 {
		return fmt.Sprintf("1 %s: %s", what, ms(list[0]))
	}
	if n >= 100 {
		text += fmt.Sprintf(", 99 of 100 within %s", ms(percentile(list, 99)))
	}
	return text + fmt.Sprintf(", all within %s", ms(list[n-1]))
}

// only leaves the verdicts of the named promises, and those of all promises that were broken.
func only(all []verdict, names ...string) []verdict {
	return slices.DeleteFunc(all, func(v verdict) bool { return !v.broken() && !slices.Contains(names, v.name) })
}

// need is one condition under which a part has tested anything.
type need struct {
	what     string
	got, min int
}

// tested is the verdict that a part was not vacuous: each need was met.
func tested(needs ...need) verdict {
	v := verdict{name: testedName}
	var told []string
	for _, n := range needs {
		told = append(told, fmt.Sprintf("%s %d (at least %d)", n.what, n.got, n.min))
		if n.got < n.min {
			v.violations = append(v.violations, fmt.Sprintf("too little happened to tell anything: %s: %d, at least %d are needed", n.what, n.got, n.min))
		}
	}
	v.figures = strings.Join(told, ", ")
	return v
}

// percentile is the nearest-rank percentile of times, which are sorted; 0 of none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// sorted sorts times.
func sorted(list []time.Duration) []time.Duration {
	slices.Sort(list)
	return list
}
