package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/engine"
)

// judgeRule judges one deny rule, whose message is "held".
func judgeRule(t *testing.T, condition string, fold bool, input string) (held bool, undecided string) {
	t.Helper()
	r, err := engine.CompileRules([]hob.Rule{{Condition: condition, IgnoreCase: fold, Message: "held"}})
	if err != nil {
		t.Fatalf("%s: %v", condition, err)
	}
	v := r.Judge(json.RawMessage(input))
	if v.Undecided != "" {
		return false, v.Undecided
	}
	want := engine.Verdict{Action: hob.HookPass, Index: -1}
	if v.Action == hob.HookDeny {
		held, want = true, engine.Verdict{Action: hob.HookDeny, Message: "held"}
	}
	if v != want {
		t.Fatalf("%s on %s: %+v", condition, input, v)
	}
	return held, ""
}

func TestRule_Operators(t *testing.T) {
	t.Parallel()
	const in = `{"query":"DROP TABLE t","n":1,"big":12345678901234567890,"f":1.0,"e":1e0,"yes":true,"no":null,"list":["a",{"b":2}],` +
		`"o":{"z":1,"a":"<x>"},"two":"line\nnext","quoted":"it's","empty":""}`
	for condition, want := range map[string]bool{
		`query CONTAINS TABLE`:             true,
		`query CONTAINS table`:             false,
		`query NOT CONTAINS table`:         true,
		`query CONTAINS "TABLE t"`:         true,
		`query CONTAINS 'TABLE t'`:         true,
		`query CONTAINS TABLE t`:           true,
		`query CONTAINS "TABLE`:            false, // no pair
		`query CONTAINS 'TABLE"`:           false,
		`query CONTAINS ""`:                true,
		`  query   CONTAINS	 DROP  `:       true,
		`query STARTS_WITH DROP`:           true,
		`query STARTS_WITH TABLE`:          false,
		`query NOT STARTS_WITH SELECT`:     true,
		`query MATCHES ^DROP\s+TABLE`:      true,
		`query MATCHES TABLE`:              true, // anywhere
		`query MATCHES "^TABLE"`:           false,
		`query NOT MATCHES ^SELECT`:        true,
		`two MATCHES line.next`:            true, // . is a line break, too
		`query IN ["DROP TABLE t"]`:        true,
		`query IN ['DROP TABLE t', 'x']`:   true,
		`query IN ["DROP"]`:                false,
		`query NOT IN ["a","b"]`:           true,
		`query IN []`:                      false,
		`quoted IN ["it's"]`:               true,
		`quoted IN ['it\'s']`:              true,
		`two IN ['line\nnext']`:            true,
		`quoted IN ['say "it"', "it's"]`:   true,
		`n IN [1]`:                         true,
		`n IN ["1"]`:                       true,
		`n IN [1.0]`:                       false, // numbers are compared as they are written
		`f IN [1.0]`:                       true,
		`f IN [1]`:                         false,
		`e IN [1e0]`:                       true,
		`big IN [12345678901234567890]`:    true,
		`big IN [12345678901234567891]`:    false,
		`big STARTS_WITH 1234567890123456`: true,
		`yes IN [true]`:                    true,
		`yes IN ["true"]`:                  true,
		`yes IN ["True"]`:                  false,
		`no IN [null]`:                     true,
		`no CONTAINS null`:                 true,
		`list IN [["a",{"b":2}]]`:          true,
		`list CONTAINS {"b":2}`:            true,
		`list.0 IN ["a"]`:                  true,
		`list.1.b IN [2]`:                  true,
		`list.2 IN [""]`:                   true,
		`list.00 IN [""]`:                  true,
		`list.-1 IN [""]`:                  true,
		`o STARTS_WITH {"a":"<x>","z":1}`:  true, // keys in order, nothing escaped that need not be
		`o.a IN ["<x>"]`:                   true,
		`o.a.b IN [""]`:                    true,
		`absent IN [""]`:                   true,
		`absent NOT IN ["a"]`:              true,
		`absent CONTAINS a`:                false,
		`absent MATCHES ^$`:                true,
		`empty MATCHES ^$`:                 true,
	} {
		if got, why := judgeRule(t, condition, false, in); got != want || why != "" {
			t.Errorf("%s: %t, want %t; %s", condition, got, want, why)
		}
	}
}

// One character is one, however it was composed, and without case it is folded as Unicode folds it.
func TestRule_ComparesAsUnicodeDoes(t *testing.T) {
	t.Parallel()
	const composed, parted = "caf\u00e9", "cafe\u0301"
	for name, tt := range map[string]struct {
		condition, value string
		fold, want       bool
	}{
		"contains, composed rule":    {"v CONTAINS " + composed, "un " + parted, false, true},
		"contains, parted rule":      {"v CONTAINS " + parted, "un " + composed, false, true},
		"starts with":                {"v STARTS_WITH " + parted, composed + "!", false, true},
		"in":                         {`v IN ["` + parted + `"]`, composed, false, true},
		"matches, composed":          {"v MATCHES ^" + composed + "$", parted, false, true},
		"matches, parted":            {"v MATCHES ^" + parted + "$", composed, false, true},
		"a letter is not its accent": {"v STARTS_WITH cafe", composed, false, false},
		"case counts":                {"v CONTAINS drop", "DROP", false, false},
		"case does not":              {"v CONTAINS drop", "DROP", true, true},
		"nor in the rule":            {"v STARTS_WITH DROP", "drop table", true, true},
		"nor in lists":               {`v IN ["ADMIN"]`, "admin", true, true},
		"nor in patterns":            {"v MATCHES ^drop", "DROP", true, true},
		"sharp s":                    {"v CONTAINS STRASSE", "straße", true, true},
		"sigma":                      {"v IN ['ΟΔΟΣ']", "οδος", true, true},
		"accents without case":       {"v CONTAINS CAFÉ", parted, true, true},
		"kelvin":                     {"v CONTAINS 5k", "5\u212a", true, true},
		"long s":                     {"v CONTAINS PASSWORD", "pa\u017f\u017fword", true, true},
	} {
		input, _ := json.Marshal(map[string]string{"v": tt.value})
		if got, why := judgeRule(t, tt.condition, tt.fold, string(input)); got != tt.want || why != "" {
			t.Errorf("%s: %t; %s", name, got, why)
		}
	}
}

// The first rule whose condition holds decides, whichever way it does.
func TestRules_TheFirstThatHoldsDecides(t *testing.T) {
	t.Parallel()
	r, err := engine.CompileRules([]hob.Rule{
		{Condition: "table IN [\"logs\"]", Action: "allow", Message: "logs are fine"},
		{Condition: "query CONTAINS DELETE", Action: "deny", Message: "nothing is deleted"},
		{Condition: "query CONTAINS DROP"},
		{Condition: "query STARTS_WITH SELECT", Action: "allow"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]engine.Verdict{
		`{"table":"logs","query":"DELETE"}`: {Action: hob.HookAllow, Message: "logs are fine", Index: 0},
		`{"query":"DELETE, DROP"}`:          {Action: hob.HookDeny, Message: "nothing is deleted", Index: 1},
		`{"query":"DROP"}`:                  {Action: hob.HookDeny, Message: "Blocked by rule", Index: 2},
		`{"query":"SELECT"}`:                {Action: hob.HookAllow, Index: 3},
		`{"query":"UPDATE"}`:                {Action: hob.HookPass, Index: -1},
		`{}`:                                {Action: hob.HookPass, Index: -1},
	} {
		if diff := cmp.Diff(want, r.Judge(json.RawMessage(input))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", input, diff)
		}
	}
	var none *engine.Rules
	if v := none.Judge(json.RawMessage(`not even JSON`)); v.Action != hob.HookPass || v.Index != -1 || v.Undecided != "" {
		t.Errorf("no rules: %+v", v)
	}
}

// What cannot be judged matters where the outcome hangs on it, and there alone.
func TestRules_UndecidedOnlyWhereItMatters(t *testing.T) {
	t.Parallel()
	long := `{"t":"` + strings.Repeat("a", hob.MaxMatchChars+1) + `","u":"b"}`
	deny, allow := hob.Rule{Condition: "t MATCHES b"}, hob.Rule{Condition: "t MATCHES b", Action: "allow"}
	for name, tt := range map[string]struct {
		rules []hob.Rule
		want  hob.HookAction // "" = undecided
		index int
	}{
		"alone":                     {[]hob.Rule{deny}, "", 0},
		"with NOT":                  {[]hob.Rule{{Condition: "t NOT MATCHES b"}}, "", 0},
		"an allow alone":            {[]hob.Rule{allow}, "", 0},
		"decided before":            {[]hob.Rule{{Condition: "u CONTAINS b", Action: "allow"}, deny}, hob.HookAllow, 0},
		"denied either way":         {[]hob.Rule{deny, {Condition: "u CONTAINS b"}}, hob.HookDeny, 1},
		"allowed either way":        {[]hob.Rule{allow, {Condition: "u CONTAINS b", Action: "allow"}}, hob.HookAllow, 1},
		"denied or allowed":         {[]hob.Rule{deny, {Condition: "u CONTAINS b", Action: "allow"}}, "", 0},
		"allowed or denied":         {[]hob.Rule{allow, {Condition: "u CONTAINS b"}}, "", 0},
		"three, the last decides":   {[]hob.Rule{deny, allow, {Condition: "u CONTAINS b"}}, "", 0},
		"nothing behind it holds":   {[]hob.Rule{deny, {Condition: "u CONTAINS x"}}, "", 0},
		"other operators still can": {[]hob.Rule{{Condition: "t CONTAINS aab"}, {Condition: "t STARTS_WITH aaa"}}, hob.HookDeny, 1},
	} {
		r, err := engine.CompileRules(tt.rules)
		if err != nil {
			t.Fatal(err)
		}
		v := r.Judge(json.RawMessage(long))
		if v.Index != tt.index || (v.Undecided == "") != (tt.want != "") || tt.want != "" && v.Action != tt.want || v.Undecided != "" && v.Action != hob.HookPass {
			t.Errorf("%s: %+v", name, v)
		}
		if v.Undecided != "" && v.Undecided != "rule 0: t has more than the 10000 characters that MATCHES looks at" {
			t.Errorf("%s: %s", name, v.Undecided)
		}
	}
}

func TestRule_MatchesLooksAtSoManyCharacters(t *testing.T) {
	t.Parallel()
	for _, ch := range []string{"a", "ä", "😀"} {
		if held, why := judgeRule(t, "t MATCHES b$", false, `{"t":"`+strings.Repeat(ch, hob.MaxMatchChars-1)+`b"}`); !held || why != "" {
			t.Errorf("%s, as many as are allowed: %t, %s", ch, held, why)
		}
		if _, why := judgeRule(t, "t MATCHES b$", false, `{"t":"`+strings.Repeat(ch, hob.MaxMatchChars)+`b"}`); why == "" {
			t.Errorf("%s, one more: decided", ch)
		}
	}
}

// Whoever writes the arguments cannot hide what a rule looks at behind a name with dots.
func TestRule_NamesWithDots(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		`{"a":{"b":"bad"}}`:             "held",
		`{"a.b":"bad"}`:                 "held",
		`{"a":{"b":"good"}}`:            "",
		`{"a.b":"good"}`:                "",
		`{"a":{"x":1},"a.b":"bad"}`:     "held",
		`{"a":{"b":"bad"},"a.b":"ok"}`:  "undecided",
		`{"a":{"b":"ok"},"a.b":"bad"}`:  "undecided",
		`{"a":{"b":null},"a.b":"good"}`: "undecided",
	} {
		got := ""
		switch held, why := judgeRule(t, "a.b CONTAINS bad", false, input); {
		case why != "":
			got = "undecided"
		case held:
			got = "held"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", input, got, want)
		}
	}
}

func TestRules_AnInputThatIsNoObjectIsUndecided(t *testing.T) {
	t.Parallel()
	for _, input := range []string{``, `null`, `[]`, `"x"`, `5`, `{`} {
		if _, why := judgeRule(t, `x IN [""]`, false, input); why == "" {
			t.Errorf("%q was judged", input)
		}
	}
}

// wantBadField wants an Invalid error about a field, with a text in its message.
func wantBadField(t *testing.T, name string, err error, field, text string) {
	t.Helper()
	var e *hob.Error
	if !errors.As(err, &e) || e.Kind != hob.Invalid {
		t.Errorf("%s: %v", name, err)
		return
	}
	if e.Details["field"] != field || !strings.HasPrefix(e.Message, field+" ") || !strings.Contains(e.Message, text) {
		t.Errorf("%s: field %v, %q; want %s and %q", name, e.Details["field"], e.Message, field, text)
	}
}

func TestCompileRules_NamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	on := func(condition string) hob.Rule { return hob.Rule{Condition: condition} }
	for name, tt := range map[string]struct {
		rule        hob.Rule
		field, text string
	}{
		"nothing":              {on(""), "condition", "field [NOT] CONTAINS"},
		"blanks":               {on(" \n\t"), "condition", "field [NOT] CONTAINS"},
		"a field alone":        {on("query"), "condition", `has "" in the place of the operator`},
		"no value":             {on("query CONTAINS"), "condition", `no value behind CONTAINS`},
		"no value behind NOT":  {on("query NOT"), "condition", `has "" in the place of the operator`},
		"NOT twice":            {on("query NOT NOT CONTAINS x"), "condition", `has "NOT" in the place of the operator`},
		"unknown operator":     {on("query LIKE x"), "condition", "CONTAINS, STARTS_WITH, MATCHES or IN, in capitals"},
		"operator in lower":    {on("query contains x"), "condition", `has "contains"`},
		"symbol":               {on("amount > 5"), "condition", `has ">"`},
		"odd field":            {on("a[0] CONTAINS x"), "condition", `begins with "a[0]"`},
		"dots alone":           {on("a..b CONTAINS x"), "condition", `begins with "a..b"`},
		"dot in front":         {on(".a CONTAINS x"), "condition", `begins with ".a"`},
		"quoted field":         {on(`"a" CONTAINS x`), "condition", `no field`},
		"long":                 {on("q CONTAINS " + strings.Repeat("ä", hob.MaxCondition)), "condition", "at most 4096 characters"},
		"bad pattern":          {on("q MATCHES (a"), "condition", "missing closing )"},
		"look-ahead":           {on("q MATCHES (?=a)"), "condition", "without look-around"},
		"back reference":       {on(`q MATCHES (a)\1`), "condition", "RE2"},
		"long pattern":         {on("q MATCHES " + strings.Repeat("ä", hob.MaxPattern+1)), "condition", "pattern of 501 characters; 500 are allowed"},
		"repetition bomb":      {on("q MATCHES (a{1000}){1000}"), "condition", "invalid repeat count"},
		"nested bomb":          {on("q MATCHES ((abcdefgh){10}){99}"), "condition", "too large"},
		"optional bomb":        {on("q MATCHES ((abcdefgh){0,10}){0,99}"), "condition", "too large"},
		"wide bomb":            {on("q MATCHES " + strings.Repeat("a{999}", 80)), "condition", "too large"},
		"list is no list":      {on("q IN a, b"), "condition", "JSON list behind IN"},
		"list is text":         {on(`q IN "a"`), "condition", "JSON list behind IN"},
		"list is an object":    {on(`q IN {"a":1}`), "condition", "JSON list behind IN"},
		"list is null":         {on(`q IN null`), "condition", "JSON list behind IN"},
		"list does not end":    {on(`q IN ["a"`), "condition", "JSON list behind IN"},
		"list and more":        {on(`q IN ["a"] x`), "condition", "JSON list behind IN"},
		"list of names":        {on(`q IN [a, b]`), "condition", "JSON list behind IN"},
		"list with twice":      {on(`q IN [{"a":1,"a":2}]`), "condition", "JSON list behind IN"},
		"unknown action":       {hob.Rule{Condition: "q CONTAINS x", Action: "ask"}, "action", `must be deny or allow, not "ask"`},
		"action of a case":     {hob.Rule{Condition: "q CONTAINS x", Action: "Deny"}, "action", "must be deny or allow"},
		"long message":         {hob.Rule{Condition: "q CONTAINS x", Message: strings.Repeat("ä", hob.MaxHookMessage+1)}, "message", "at most 2000 characters"},
		"no condition, action": {hob.Rule{Action: "block"}, "action", "must be deny or allow"},
	} {
		_, err := engine.CompileRules([]hob.Rule{on("ok CONTAINS x"), on("ok CONTAINS y"), tt.rule})
		wantBadField(t, name, err, "rules[2]."+tt.field, tt.text)
	}
}

// What is as large as it may be is taken, and one more is not.
func TestCompileRules_Bounds(t *testing.T) {
	t.Parallel()
	many := func(n int, condition string) []hob.Rule {
		list := make([]hob.Rule, n)
		for i := range list {
			list[i].Condition = condition
		}
		return list
	}
	for name, list := range map[string][]hob.Rule{
		"rules":     many(hob.MaxRules, "q CONTAINS x"),
		"condition": {{Condition: "q CONTAINS " + strings.Repeat("ä", hob.MaxCondition-len("q CONTAINS "))}},
		"pattern":   {{Condition: "q MATCHES " + strings.Repeat("ä", hob.MaxPattern)}},
		"program":   {{Condition: "q MATCHES a.{0,1000}b"}},
		"programs":  many(hob.MaxRules, `q MATCHES (?:https?://)?[\w.-]+@[\w-]+\.[a-z]{2,20}`),
		"message":   {{Condition: "q CONTAINS x", Message: strings.Repeat("ä", hob.MaxHookMessage)}},
		"none":      nil,
	} {
		if r, err := engine.CompileRules(list); err != nil || r.Len() != len(list) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := engine.CompileRules(many(hob.MaxRules+1, "q CONTAINS x"))
	wantBadField(t, "too many rules", err, "rules", "has 101 rules; 100 are allowed")
	_, err = engine.CompileRules(many(20, "q MATCHES a.{0,1000}b"))
	wantBadField(t, "programs too large together", err, "rules[4].condition", "10000 instructions together")
}

func ExampleRules_Judge() {
	rules, err := engine.CompileRules([]hob.Rule{
		{Condition: "query NOT STARTS_WITH SELECT", IgnoreCase: true, Message: "only reading is allowed"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	v := rules.Judge(json.RawMessage(`{"query":"delete from orders"}`))
	fmt.Println(v.Action, v.Message)
	// Output: deny only reading is allowed
}
