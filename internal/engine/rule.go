package engine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"hob"
)

// Bounds of judging rules. The first is of one input; the others keep what a list of patterns can cost before there is one.
const (
	ruleWork        = 256 << 20 // steps for all rules of a list: bytes looked at, and of patterns characters times instructions
	ruleProgram     = 4_000     // instructions of one pattern; a.{0,1000} has 2,002
	rulePrograms    = 10_000    // instructions of all patterns of a list
	ruleFoldedWork  = 16        // steps per byte of bringing text that is not ASCII into the form that is compared
	ruleRenderWork  = 4         // steps per byte of writing a value as JSON
	defaultBlocking = "Blocked by rule"
)

// Rules is a list of rules, compiled once and judged often: by several goroutines at once, if need be.
type Rules struct {
	rules  []rule
	fields []ruleField // each once, however many rules look at it
	most   int         // steps of one input
}

// rule is a condition in the form in which it is judged.
type rule struct {
	condition
	field   int // in Rules.fields
	action  hob.HookAction
	message string
}

// Verdict is what a list of rules says of an input.
type Verdict struct {
	Action  hob.HookAction // pass where no condition holds; allow or deny
	Message string         // of the rule that decided
	Index   int            // of the rule that decided, or of the first that could not be judged; else -1
	// Undecided tells why it is not known what the list decides, "" where it is: the fail mode decides then. It names the
	// rule and the field, never the value.
	Undecided string
}

// CompileRules reads a list of rules. The error is Invalid, and its detail "field" is the path of what is wrong, as in
// rules[2].condition.
func CompileRules(list []hob.Rule) (*Rules, error) {
	return compileRules(list, func(i int, part string) string {
		if i < 0 {
			return part
		}
		return fmt.Sprintf("rules[%d].%s", i, part)
	})
}

// compileRules is CompileRules with paths of another kind; rule -1 stands for the whole list.
func compileRules(list []hob.Rule, path func(rule int, part string) string) (*Rules, error) {
	if len(list) > hob.MaxRules {
		return nil, badField(path(-1, "rules"), "has %d rules; %d are allowed", len(list), hob.MaxRules)
	}
	out := &Rules{rules: make([]rule, 0, len(list)), most: ruleWork}
	left := rulePrograms
	for i, written := range list {
		r, name, bad := compileRule(written)
		if bad != nil {
			return nil, badField(path(i, bad.part), "%s", bad.text)
		}
		if left -= r.size; left < 0 {
			return nil, badField(path(i, "condition"), "has a pattern too much: those of one list may have %d instructions together", rulePrograms)
		}
		r.field = slices.IndexFunc(out.fields, func(f ruleField) bool { return f.name == name })
		if r.field < 0 {
			r.field = len(out.fields)
			out.fields = append(out.fields, newRuleField(name))
		}
		out.rules = append(out.rules, r)
	}
	return out, nil
}

// badRule tells which part of a rule is wrong, and in what.
type badRule struct{ part, text string }

func compileRule(written hob.Rule) (r rule, field string, bad *badRule) {
	switch written.Action {
	case "", string(hob.HookDeny):
		r.action, r.message = hob.HookDeny, defaultBlocking
	case string(hob.HookAllow):
		r.action = hob.HookAllow
	default:
		return r, "", &badRule{"action", fmt.Sprintf("must be deny or allow, not %q", short(written.Action))}
	}
	if utf8.RuneCountInString(written.Message) > hob.MaxHookMessage {
		return r, "", &badRule{"message", fmt.Sprintf("must have at most %d characters", hob.MaxHookMessage)}
	}
	if written.Message != "" {
		r.message = written.Message
	}
	var text string
	if r.condition, field, text = parseCondition(written.Condition, written.IgnoreCase); text != "" {
		return r, "", &badRule{"condition", text}
	}
	return r, field, nil
}

// badField is the error about what stands at a path.
func badField(path, format string, args ...any) error {
	return hob.Errorf(hob.Invalid, "%s %s", path, fmt.Sprintf(format, args...)).With("field", path)
}

// short is the beginning of a text that a client sent, for errors.
func short(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}

// Len is the number of rules; that of nil is 0.
func (r *Rules) Len() int {
	if r == nil {
		return 0
	}
	return len(r.rules)
}

// Judge says what the first rule decides whose condition holds for input, a JSON object. Its time is bounded whatever the
// rules and the input are. Where a rule cannot be judged it still counts what the rules behind it say: as long as the
// outcome is the same whether that rule holds or not, it is known.
func (r *Rules) Judge(input json.RawMessage) Verdict {
	if r.Len() == 0 {
		return Verdict{Action: hob.HookPass, Index: -1}
	}
	v, _ := r.judge(input)
	return v
}

// judge is Judge, and tells how many steps it took.
func (r *Rules) judge(input json.RawMessage) (v Verdict, steps int) {
	j := newJudging(r, input)
	var open *Verdict // of the first rule that could not be judged
	could := map[hob.HookAction]bool{}
	decided := Verdict{Action: hob.HookPass, Index: -1}
	for i := range r.rules {
		one := &r.rules[i]
		holds, why := j.holds(one)
		if why != "" {
			if open == nil {
				open = &Verdict{Action: hob.HookPass, Index: i, Undecided: fmt.Sprintf("rule %d: %s", i, why)}
			}
			could[one.action] = true
			continue
		}
		if holds {
			decided = Verdict{Action: one.action, Message: one.message, Index: i}
			break
		}
	}
	delete(could, decided.Action)
	if len(could) > 0 {
		return *open, j.steps
	}
	return decided, j.steps
}

// condition is what a rule asks of a field.
type condition struct {
	not     bool
	operate operator
	fold    bool                // compare without case
	want    string              // of CONTAINS and STARTS_WITH, in the form that is compared
	list    map[string]struct{} // of IN, the same
	pattern *regexp.Regexp      // of MATCHES
	size    int                 // its instructions
}

// operator is how a condition compares.
type operator string

// The operators.
const (
	opContains   operator = "CONTAINS"
	opStartsWith operator = "STARTS_WITH"
	opMatches    operator = "MATCHES"
	opIn         operator = "IN"
)

// holds says whether a condition holds, or why that cannot be found out.
func (j *judging) holds(r *rule) (holds bool, why string) {
	text, why := j.text(r.field, r.fold && r.operate != opMatches)
	if why != "" {
		return false, why
	}
	switch r.operate {
	case opContains:
		why = j.spend(len(text))
		holds = why == "" && strings.Contains(text, r.want)
	case opStartsWith:
		holds = strings.HasPrefix(text, r.want)
	case opIn:
		why = j.spend(len(text))
		_, holds = r.list[text]
	case opMatches:
		if j.tooLong(r.field) {
			return false, fmt.Sprintf("%s has more than the %d characters that MATCHES looks at", j.fields[r.field].shown(), hob.MaxMatchChars)
		}
		if why = j.spend(utf8.RuneCountInString(text) * r.size); why == "" {
			holds = r.pattern.MatchString(text)
		}
	}
	return why == "" && holds != r.not, why
}
