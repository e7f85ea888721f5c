package engine

import (
	"errors"
	"log/slog"
	"strings"

	"hob"
)

// mend decides what to do about a failed model call: make the conversation shorter, continue a cut answer once, change to
// the fallback model, or give up (false).
func (a *active) mend(step int, err error, ans *answer) bool {
	var pe *hob.ProviderError
	if !errors.As(err, &pe) {
		return false
	}
	if pe.Class == hob.ClassPromptTooLong {
		const most = 8 // each is shorter than the one before; a bound all the same
		a.reactions++
		return a.reactions <= most && a.react(step)
	}
	if pe.Class == hob.ClassCut && a.cuts == 0 {
		a.cuts++
		a.resume(step, a.recovered+1, ans)
		return true
	}
	if pe.Class != hob.ClassRateLimit && pe.Class != hob.ClassModelError && pe.Class != hob.ClassCut {
		return false
	}
	return a.fallBack(step, string(pe.Class), ans)
}

// resume announces the continuation of a cut answer. A call that was cut is not executed; the model makes it again.
func (a *active) resume(step, attempt int, ans *answer) {
	ans.lost = len(ans.calls) > 0
	ans.calls = nil
	a.log.write(func(b *batch) {
		b.event(hob.EventOutputRecovery, func(h hob.EventHead) any {
			return hob.OutputRecoveryEvent{EventHead: h, Step: step, Attempt: attempt}
		})
		b.event(hob.EventStepReset, func(h hob.EventHead) any {
			return hob.StepResetEvent{EventHead: h, Step: step, Reason: "output_recovery"}
		})
	})
}

// fallBack changes to the fallback model for the rest of the run. false: there is none, or it cannot be used.
func (a *active) fallBack(step int, why string, ans *answer) bool {
	fallback := a.plan.settings.FallbackModel
	if fallback == "" || fallback == a.run.Model {
		return false
	}
	model, err := a.e.Models(a.ctx, a.run.Workspace, fallback)
	if err == nil && model.Price == nil && a.plan.inMoney() {
		err = errors.New("its price is not known, and the run has a budget in money")
	}
	if err != nil {
		a.log.write(func(b *batch) {
			b.event(hob.EventWarning, func(h hob.EventHead) any {
				return hob.WarningEvent{EventHead: h, Code: "fallback_unusable", Message: clean("the fallback model " + fallback + " cannot be used: " + err.Error())}
			})
		})
		return false
	}
	from, before := a.run.Model, a.plan.model.Name
	a.plan.model, a.run.Model = model, fallback
	*ans = answer{}
	a.drift, a.refused, a.cuts = 0, 0, 0
	if c := a.conversation; c != nil {
		c.exact, c.memo = model.Count, nil
		clear(c.sure)
	}
	a.arrange()
	a.log.write(func(b *batch) {
		b.event(hob.EventModelFallback, func(h hob.EventHead) any {
			return hob.ModelFallbackEvent{EventHead: h, Step: step, From: from, To: fallback}
		})
		b.event(hob.EventStepReset, func(h hob.EventHead) any {
			return hob.StepResetEvent{EventHead: h, Step: step, Reason: why}
		})
		if before != model.Name {
			a.dropped(b, a.plan.own)
		}
	})
	a.fit(step) // its window may be smaller
	return true
}

// dropped tells that thoughts of another provider's model are in the messages, which the run's own is not sent. false:
// there are none.
func (a *active) dropped(b *batch, messages []hob.Message) bool {
	to := a.plan.model.Name
	for i := range messages {
		if r := messages[i].Reasoning; r != nil && len(r.Artefact) > 0 && r.Provider != to {
			b.event(hob.EventReasoningDropped, func(h hob.EventHead) any {
				return hob.ReasoningDroppedEvent{EventHead: h, FromProvider: r.Provider, ToProvider: to}
			})
			return true
		}
	}
	return false
}

func (a *active) modelFailed(step int, err error) (ending, bool, bool) {
	text := "the model could not be reached"
	code := hob.CodeProviderError
	var pe *hob.ProviderError
	if errors.As(err, &pe) {
		text = pe.Message
		if pe.Class == hob.ClassPromptTooLong || pe.Class == hob.ClassTooLarge {
			code = string(pe.Class)
		}
	} else {
		a.e.Log.Error("a model call failed", slog.String("run", string(a.id)), slog.Any("error", err))
	}
	a.run.Steps = step
	return ending{hob.Failed, code, clean(text)}, true, true
}

// joint joins a continuation to a text so that nothing is said twice: models told to go on where they left off often begin
// with the last words once more, or open the code block again that is still open.
type joint struct {
	before string // the end of the text so far
	fence  string // the line that opened the code block it ends in, "" outside of one
	held   string // the beginning of the continuation, as long as it may be a repetition
	open   bool
}

const (
	jointLook  = 600 // bytes of the text so far that a continuation may repeat
	jointLeast = 16  // bytes that make a repetition rather than chance
)

func newJoint(text string) *joint {
	j := &joint{open: text != ""}
	if j.open {
		j.before = text[max(0, len(text)-jointLook):]
		j.fence = openFence(text)
	}
	return j
}

// next takes the next piece of a continuation and gives what is to be added to the text.
func (j *joint) next(s string) string {
	if !j.open {
		return s
	}
	j.held += s
	if out, sure := j.settle(false); sure {
		j.open = false
		return out
	}
	return ""
}

// rest gives what is still held at the end of the continuation.
func (j *joint) rest() string {
	if !j.open {
		return ""
	}
	j.open = false
	out, _ := j.settle(true)
	return out
}

// settle decides what of the held text is new. sure is false while more of it has to be seen.
func (j *joint) settle(end bool) (out string, sure bool) {
	s := j.held
	if j.fence != "" {
		switch line, rest, whole := strings.Cut(s, "\n"); {
		case whole && strings.TrimSpace(line) == j.fence && len(j.fence) > len("```"):
			s = rest
		case !whole && !end && strings.HasPrefix(j.fence, strings.TrimSpace(line)):
			return "", false
		}
	}
	best := 0
	for from := range j.before {
		tail := j.before[from:]
		if len(tail) < jointLeast {
			break
		}
		if strings.HasPrefix(s, tail) {
			best = max(best, len(tail))
		} else if !end && strings.HasPrefix(tail, s) {
			return "", false // it may yet become a repetition
		}
	}
	return s[best:], true
}

// openFence is the line that opened the code block in which a text ends, "" where it ends outside of one.
func openFence(text string) string {
	open := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "```") {
			continue
		}
		if open == "" {
			open = line
		} else if line == "```" {
			open = ""
		}
	}
	return open
}
