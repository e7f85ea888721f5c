//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// bar is what a number is judged by. A number that has no bar of one kind has a zero there.
type bar struct {
	must, aim float64
	least     bool // the number must be at least the bar; else at most
}

func atMost(must, aim float64) bar  { return bar{must: must, aim: aim} }
func atLeast(must, aim float64) bar { return bar{must: must, aim: aim, least: true} }

// The verdicts, from the best to the worst. noBar is for numbers that are told and not judged.
const (
	verdictAim  = "aim"
	verdictMust = "must"
	verdictMiss = "MISSED"
	noBar       = ""
)

// judge says which bar a number reaches. A number with an aim only never misses: it says "must" where it falls short.
func (b bar) judge(v float64) string {
	reaches := func(bound float64) bool {
		if b.least {
			return v >= bound
		}
		return v <= bound
	}
	switch {
	case b.must == 0 && b.aim == 0:
		return noBar
	case b.must != 0 && !reaches(b.must):
		return verdictMiss
	case b.aim == 0 || reaches(b.aim):
		return verdictAim
	}
	return verdictMust
}

// text writes a bound as "≤ 1.0 ms".
func (b bar) text(bound float64, unit string) string {
	if bound == 0 {
		return ""
	}
	sign := "≤ "
	if b.least {
		sign = "≥ "
	}
	return sign + withUnit(number(bound), unit)
}

func withUnit(value, unit string) string {
	if unit == "" {
		return value
	}
	return value + " " + unit
}

// row is one line of the table: a number and its bar.
type row struct {
	Part    int      `json:"part"`
	What    string   `json:"what"`
	Unit    string   `json:"unit"`
	Raw     *float64 `json:"raw,omitempty"` // the floor, where there is one
	Hob     float64  `json:"hob"`
	Judged  float64  `json:"judged"` // what the bar is held against: Hob's number, or the ratio of the two
	Must    float64  `json:"must,omitempty"`
	Aim     float64  `json:"aim,omitempty"`
	Least   bool     `json:"at_least"`
	Verdict string   `json:"verdict"`
	ratio   bool
}

// report collects the rows and lines of all parts.
type report struct {
	Machine []string         `json:"machine"`
	Rows    []row            `json:"rows"`
	Lines   map[int][]string `json:"lines"`
	Faults  []string         `json:"faults"`
}

func newReport() *report { return &report{Lines: map[int][]string{}} }

// measured adds a number of Hob's alone.
func (r *report) measured(part int, what, unit string, v float64, b bar) {
	r.Rows = append(r.Rows, row{
		Part: part, What: what, Unit: unit, Hob: v, Judged: v,
		Must: b.must, Aim: b.aim, Least: b.least, Verdict: b.judge(v),
	})
}

// beside adds a number of Hob's beside the floor's; the bar is held against Hob's number.
func (r *report) beside(part int, what, unit string, raw, v float64, b bar) {
	r.measured(part, what, unit, v, b)
	r.Rows[len(r.Rows)-1].Raw = &raw
}

// rates adds a rate beside the floor's; the bar is for raw ÷ hob.
func (r *report) rates(part int, what string, raw, v float64, b bar) {
	q := ratio(raw, v)
	verdict := b.judge(q)
	if v == 0 {
		verdict = verdictMiss
	}
	r.Rows = append(r.Rows, row{
		Part: part, What: what, Unit: "runs/s", Raw: &raw, Hob: v, Judged: q,
		Must: b.must, Aim: b.aim, Least: b.least, Verdict: verdict, ratio: true,
	})
}

// line adds a remark below the table.
func (r *report) line(part int, format string, args ...any) {
	r.Lines[part] = append(r.Lines[part], fmt.Sprintf(format, args...))
}

// quantiles adds the line of a sample.
func (r *report) quantiles(part int, what string, s *sample) {
	r.line(part, "%-34s %s", what, s)
}

// fault notes a part that failed.
func (r *report) fault(part int, name string, err error) {
	r.Faults = append(r.Faults, fmt.Sprintf("part %d (%s) failed: %s", part, name, err))
}

// missed counts the rows below their bar.
func (r *report) missed() int {
	n := 0
	for _, row := range r.Rows {
		if row.Verdict == verdictMiss {
			n++
		}
	}
	return n
}

// print writes everything for a person.
func (r *report) print(w io.Writer) {
	for _, m := range r.Machine {
		fmt.Fprintln(w, m)
	}
	fmt.Fprintln(w)
	table := [][]string{{"#", "what", "raw", "hob", "ratio", "must", "aim", "verdict"}}
	for _, row := range r.Rows {
		table = append(table, row.cells())
	}
	align(w, table)
	for _, part := range parts() {
		lines := r.Lines[part.number]
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%d. %s\n", part.number, part.name)
		for _, line := range lines {
			fmt.Fprintln(w, "   "+line)
		}
	}
	if len(r.Faults) > 0 {
		fmt.Fprintln(w)
	}
	for _, f := range r.Faults {
		fmt.Fprintln(w, f)
	}
}

func (r row) cells() []string {
	b := bar{r.Must, r.Aim, r.Least}
	raw, quotient, unit := "", "", r.Unit
	if r.Raw != nil {
		raw = withUnit(number(*r.Raw), r.Unit)
	}
	must, aim := b.text(r.Must, unit), b.text(r.Aim, unit)
	if r.ratio {
		if quotient = "–"; r.Judged > 0 {
			quotient = "÷ " + number(r.Judged)
		}
		must, aim = over(r.Must), over(r.Aim)
	}
	return []string{fmt.Sprint(r.Part), r.What, raw, withUnit(number(r.Hob), r.Unit), quotient, must, aim, r.Verdict}
}

// over writes the bound of a rate: a share of the floor's.
func over(bound float64) string {
	if bound == 0 {
		return ""
	}
	return "≥ raw ÷ " + number(bound)
}

// align writes a table whose columns stand below each other.
func align(w io.Writer, table [][]string) {
	width := make([]int, len(table[0]))
	for _, cells := range table {
		for i, c := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	rule := make([]string, len(width))
	for i, n := range width {
		rule[i] = strings.Repeat("-", n)
	}
	for _, cells := range slices.Insert(table, 1, rule) {
		var b strings.Builder
		for i, c := range cells {
			b.WriteString(c + strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+2))
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// save writes everything as JSON.
func (r *report) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// inMS is a time as the table's numbers are.
func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
