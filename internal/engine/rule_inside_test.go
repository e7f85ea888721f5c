package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"hob"
)

// ruleLoad is rules, and an input for them.
type ruleLoad struct {
	rules *Rules
	input json.RawMessage
}

// heavyRules are lists of so many rules, each as dear as it gets, for an input of a size in bytes.
func heavyRules(t testing.TB, many, size int) map[string]ruleLoad {
	t.Helper()
	compiled := func(condition func(i int) string, fold bool) *Rules {
		list := make([]hob.Rule, many)
		for i := range list {
			list[i] = hob.Rule{Condition: condition(i), IgnoreCase: fold}
		}
		r, err := CompileRules(list)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	text := func(s string, bytes int) json.RawMessage {
		return json.RawMessage(`{"t":"` + strings.Repeat(s, bytes/len(s)) + `"}`)
	}
	const levels = hob.MaxJSONDepth - 1
	deep := json.RawMessage(strings.Repeat(`{"a":`, levels) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat("}", levels))
	list := json.RawMessage(`{"t":[` + strings.TrimSuffix(strings.Repeat("1,", size/2), ",") + `]}`)
	search := func(i int) string { return fmt.Sprintf("t CONTAINS %sb%d", strings.Repeat("a", 3000), i) }
	looked := min(size, hob.MaxMatchChars)
	return map[string]ruleLoad{
		"search":        {compiled(search, false), text("a", size)},
		"search folded": {compiled(search, true), text("Ǆ", size)},
		"list":          {compiled(func(i int) string { return fmt.Sprintf(`t IN ["%d"]`, i) }, false), text("ä", size)},
		"container":     {compiled(func(i int) string { return fmt.Sprintf("t CONTAINS 2%d", i) }, false), list},
		"elements":      {compiled(func(i int) string { return fmt.Sprintf("t.%d CONTAINS 2", i) }, false), list},
		"every level":   {compiled(func(i int) string { return "a" + strings.Repeat(".a", i%levels) + " CONTAINS 2" }, false), deep},
		"patterns":      {compiled(func(int) string { return `t MATCHES (?:\pL?){20}\pL{20}[^\pL]` }, true), text("ä", 2*looked)},
		"pluses":        {compiled(func(int) string { return `t MATCHES (x+x+)+y` }, false), text("x", looked)},
	}
}

// Twice the input is at most twice the work, whatever the rules are.
func TestRules_WorkGrowsWithTheInputAlone(t *testing.T) {
	t.Parallel()
	const many, size = 8, 1 << 10
	twice := heavyRules(t, many, 2*size)
	for name, l := range heavyRules(t, many, size) {
		v, steps := l.rules.judge(l.input)
		w, more := twice[name].rules.judge(twice[name].input)
		const perRule = 1000 // bytes around the text, and of numbers
		if v.Undecided != "" || w.Undecided != "" || v.Action != w.Action || more > 2*steps+perRule*many {
			t.Errorf("%s: %d steps and %d for twice as much; %+v, %+v", name, steps, more, v, w)
		}
	}
}

// Once the steps are used up nothing is looked at any more, and what was not decided by then is not.
func TestRules_WorkHasAnEnd(t *testing.T) {
	t.Parallel()
	const many, size = 8, 1 << 10
	for name, l := range heavyRules(t, many, size) {
		_, whole := l.rules.judge(l.input)
		l.rules.most = whole - 1
		v, steps := l.rules.judge(l.input)
		if !strings.Contains(v.Undecided, "more work than is allowed") || v.Action != hob.HookPass || steps > whole {
			t.Errorf("%s: %d of %d steps, %+v", name, steps, whole, v)
		}
		l.rules.most = len(l.input)
		if _, steps := l.rules.judge(l.input); steps > whole {
			t.Errorf("%s: %d steps without a budget", name, steps)
		}
	}
	r, err := CompileRules([]hob.Rule{{Condition: "t CONTAINS x", Action: "allow"}, {Condition: "t CONTAINS a"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.most != ruleWork {
		t.Errorf("%d steps, want %d", r.most, ruleWork)
	}
}

// What is known of a pattern's size without compiling it is never much less than its size.
func TestRules_SizeOfPatterns(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{"a", "bc", ".", `\d`, `\pL`, "[a-z]", "^", "$", `\b`, "", "é", "(?i:k)"})
	wrap := rapid.SampledFrom([]string{"(%s)", "(?:%s)*", "(?:%s)+?", "(?:%s)?", "(?:%s){3}", "(?:%s){2,}", "(?:%s){0,7}", "(?:%s|x)", "(%s|[^q]|)", "%sz"})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(piece, 1, 5).Draw(t, "pieces"), "")
		for _, w := range rapid.SliceOfN(wrap, 0, 4).Draw(t, "wraps") {
			pattern = fmt.Sprintf(w, pattern)
		}
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			return // of repetitions that multiply to more than Go allows
		}
		guess := instructions(parsed)
		prog, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		const frame = 4 // the beginning and the end
		if real := len(prog.Inst); guess < 2*ruleProgram && real > guess+frame {
			t.Fatalf("%s has %d instructions, taken for %d", pattern, real, guess)
		}
	})
}

// Paths lead where a reader that takes one step at a time gets to.
func TestRules_PathsDifferential(t *testing.T) {
	t.Parallel()
	name := rapid.SampledFrom([]string{"a", "b", "0", "1", "2", "a.b", "ä"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaf := rapid.OneOf(rapid.Just[any](nil), rapid.Just[any](true), rapid.Map(rapid.IntRange(-3, 3), func(i int) any { return i }),
			rapid.Map(rapid.SampledFrom([]string{"", "x", "<ä>"}), func(s string) any { return s }))
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf,
			rapid.Map(rapid.SliceOfN(value(depth-1), 0, 3), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(name, value(depth-1), 0, 3), func(m map[string]any) any { return m }))
	}
	rapid.Check(t, func(t *rapid.T) {
		doc, err := json.Marshal(rapid.MapOfN(name, value(3), 0, 4).Draw(t, "doc"))
		if err != nil {
			t.Fatal(err)
		}
		input, err := hob.Canonical(doc)
		if err != nil {
			t.Fatal(err)
		}
		path := strings.Join(rapid.SliceOfN(name, 1, 4).Draw(t, "path"), ".")
		want, both := stepwise(input, path)
		j := newJudging(&Rules{fields: []ruleField{newRuleField(path)}, most: ruleWork}, input)
		got, why := j.text(0, false)
		if both != (why != "") || !both && got != want {
			t.Fatalf("%s at %s: %q (%s), want %q (both: %t)", input, path, got, why, want, both)
		}
	})
}

// stepwise reads a path one level of JSON text at a time. both says that the whole path is a name of the object, too.
func stepwise(input json.RawMessage, path string) (text string, both bool) {
	at := input
	for _, part := range strings.Split(path, ".") {
		var object map[string]json.RawMessage
		var list []json.RawMessage
		switch {
		case len(at) > 0 && at[0] == '{' && json.Unmarshal(at, &object) == nil:
			at = object[part]
		case len(at) > 0 && at[0] == '[' && json.Unmarshal(at, &list) == nil:
			i, err := strconv.Atoi(part)
			at = nil
			if err == nil && i >= 0 && i < len(list) {
				at = list[i]
			}
		default:
			at = nil
		}
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(input, &top) == nil && strings.Contains(path, ".") && top[path] != nil {
		if at != nil {
			return "", true
		}
		at = top[path]
	}
	var s string
	if len(at) > 0 && at[0] == '"' && json.Unmarshal(at, &s) == nil {
		return s, false
	}
	return string(at), false
}

// Matchers match what the regular expression matches that says the same.
func TestHook_MatcherDifferential(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.StringMatching(`[ab_*?]{1,6}`), 1, 3).Draw(t, "parts")
		tool := rapid.StringMatching(`[ab_]{0,8}`).Draw(t, "tool")
		matcher := strings.Join(parts, rapid.SampledFrom([]string{"|", " | "}).Draw(t, "bar"))
		h := hob.Hook{Event: hob.PreToolUse, Type: hob.RuleHook, Matcher: &matcher, Config: hob.HookConfig{Condition: "a CONTAINS b"}}
		if err := CheckHook(&h); err != nil {
			t.Fatal(err)
		}
		translated := strings.NewReplacer("*", ".*", "?", ".").Replace(strings.Join(parts, "|"))
		if got, want := h.Matches(tool), regexp.MustCompile(`^(?:`+translated+`)$`).MatchString(tool); got != want {
			t.Fatalf("%s on %q: %t, want %t", matcher, tool, got, want)
		}
	})
}

// FuzzRule: whatever is written as a condition and sent as an input, nothing panics, the work keeps its bound, and NOT is
// the opposite.
func FuzzRule(f *testing.F) {
	for _, seed := range [][2]string{
		{"query CONTAINS DROP", `{"query":"DROP"}`},
		{`a.0.b NOT IN ['x', "y"]`, `{"a":[{"b":"x"}]}`},
		{`q MATCHES (?i)^(a|b)*$`, `{"q":"ab"}`},
		{"q STARTS_WITH 'é'", `{"q":"é"}`},
		{"q MATCHES (a{1000}){1000}", `{"q":1e400}`},
		{`q IN [1, "a\'b", {"c":[null]}]`, `{"q":{"c":[null]}}`},
	} {
		f.Add(seed[0], seed[1], true)
	}
	f.Fuzz(func(t *testing.T, condition, input string, fold bool) {
		r, err := CompileRules([]hob.Rule{{Condition: condition, IgnoreCase: fold}})
		if err != nil {
			var e *hob.Error
			if !errors.As(err, &e) || e.Kind != hob.Invalid || e.Details["field"] != "rules[0].condition" {
				t.Fatalf("%q: %v", condition, err)
			}
			return
		}
		v, steps := r.judge(json.RawMessage(input))
		if most := (len(input) + 1) * (ruleProgram + 2*ruleFoldedWork + 6*ruleRenderWork); steps > most {
			t.Fatalf("%q on %q: %d steps", condition, input, steps)
		}
		if v.Undecided != "" != (v.Index == 0 && v.Action == hob.HookPass) {
			t.Fatalf("%q on %q: %+v", condition, input, v)
		}
		r.rules[0].not = !r.rules[0].not
		w, _ := r.judge(json.RawMessage(input))
		if v.Undecided != w.Undecided || v.Undecided == "" && (v.Action == hob.HookDeny) == (w.Action == hob.HookDeny) {
			t.Fatalf("%q on %q: %+v, and %+v the other way", condition, input, v, w)
		}
	})
}

func BenchmarkRules(b *testing.B) {
	for name, load := range heavyRules(b, hob.MaxRules, 1<<20) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				load.rules.Judge(load.input)
			}
		})
	}
	r, err := CompileRules([]hob.Rule{
		{Condition: "query NOT STARTS_WITH SELECT", IgnoreCase: true},
		{Condition: `query MATCHES \b(DROP|DELETE|TRUNCATE)\b`, IgnoreCase: true},
		{Condition: `table IN ["users", "secrets"]`},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("usual", func(b *testing.B) {
		for b.Loop() {
			r.Judge(json.RawMessage(`{"query":"SELECT id, total FROM orders WHERE total > 100","table":"orders"}`))
		}
	})
}

func BenchmarkCompileRules(b *testing.B) {
	list := make([]hob.Rule, 4)
	for i := range list {
		list[i].Condition = `t MATCHES a.{0,1000}b`
	}
	for b.Loop() {
		if _, err := CompileRules(list); err != nil {
			b.Fatal(err)
		}
	}
}
