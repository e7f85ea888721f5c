package engine

import (
	"time"

	"hob"
)

// Passage is what became of a call at a stage of the gate.
type Passage struct {
	Stage   Stage
	Outcome Outcome
	Detail  string
	Took    time.Duration
}

// Outcome is how a stage went.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "ok"
	Refused Outcome = "refused"
	Skipped Outcome = "skipped"
)

// trace notes how a call went through the gate. A nil one, as runs have, notes nothing.
type trace struct {
	passages []Passage
	at       time.Time // when the stage under way began
}

func newTrace() *trace { return &trace{at: monotonic()} }

func (t *trace) note(s Stage, o Outcome, detail string) {
	if t == nil {
		return
	}
	now := monotonic()
	t.passages = append(t.passages, Passage{s, o, detail, now.Sub(t.at)})
	t.at = now
}

func (t *trace) pass(s Stage, detail string) { t.note(s, Passed, detail) }

// skip notes stages that have nothing to do.
func (t *trace) skip(why string, stages ...Stage) {
	if t == nil {
		return
	}
	for _, s := range stages {
		t.note(s, Skipped, why)
	}
}

// refuse notes the stage that refuses a call, and gives the result that says so.
func (t *trace) refuse(s Stage, text string) *hob.Result {
	t.note(s, Refused, text)
	return &hob.Result{IsError: true, Free: true, Text: text}
}
