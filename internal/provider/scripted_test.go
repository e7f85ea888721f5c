package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/provider"
)

func open(t *testing.T, model string, c provider.Config) hob.Model {
	t.Helper()
	m, err := provider.New(c).Open(context.Background(), hob.DefaultWorkspace, model)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// script opens the scripted provider without delays.
func script(t *testing.T) hob.Model {
	t.Helper()
	return open(t, "scripted", provider.Config{NoDelay: true})
}

func TestScript_PlaysItsTurnsByTheHistory(t *testing.T) {
	t.Parallel()
	m := script(t)
	r := ask("weather?")
	r.Script = `
# a comment
reasoning: I should look.
text: Let me
text: look.
call#c1: weather {"city":"Oslo"}
call: weather {"city":"{{message}}"}
call#-: weather
usage: 12 3
---
text: Oslo: {{results.0}}, asked: {{results.1.sky}} and {{result}}.
`
	a := collect(t, m, r)
	want := answer{
		Text: "Let me\nlook.", Reasoning: "I should look.", Deltas: 6,
		Calls: []hob.ModelCall{
			{ID: "c1", Name: "weather", Arguments: `{"city":"Oslo"}`},
			{ID: "call_1_2", Name: "weather", Arguments: `{"city":"weather?"}`},
			{Name: "weather", Arguments: "{}"},
		},
		Last: hob.Delta{
			Finish: hob.FinishToolCalls, Model: "scripted/script",
			Usage: &hob.Usage{PromptTokens: 12, CompletionTokens: 3, TotalTokens: 15},
		},
	}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if again := collect(t, m, r); !cmp.Equal(a, again) {
		t.Errorf("the same request got another answer: %+v", again)
	}
	a.Calls[2].ID = "made_up"
	r = turn(r, a, "rain", `{"sky":"blue"}`, "fog")
	a = collect(t, m, r)
	if a.Text != "Oslo: rain, asked: blue and fog." || a.Last.Finish != hob.FinishStop {
		t.Errorf("second turn: %+v", a)
	}
	r.Messages = append(r.Messages, hob.Message{Role: hob.RoleAssistant, Content: a.Text})
	r.Step++
	if b := collect(t, m, r); b.Text != "Oslo: (there is no result 0), asked: (there is no result 1) and ." {
		t.Errorf("behind its last turn it says %q, not its last text", b.Text)
	}
}

func TestScript_StepCountsWhereTheHistoryWasCondensed(t *testing.T) {
	t.Parallel()
	r := ask("Summary of what was before.")
	r.Script = "text: one\n---\ntext: two\n---\ntext: three"
	r.Step = 3
	if a := collect(t, script(t), r); a.Text != "three" {
		t.Errorf("step 3 said %q", a.Text)
	}
}

func TestScript_GroupsAreChosenByWords(t *testing.T) {
	t.Parallel()
	source := `when: open order* | unfinished
text: open
===
when: weather
text: sky
===
text: other
`
	for message, want := range map[string]string{
		"How many ORDERS are open?": "open", "unfinished!": "open", "open the door": "other", "reopen my order": "other",
		"The weather, please": "sky", "weatherman": "other", "": "other",
	} {
		r := ask(message)
		r.Script = source
		if a := collect(t, script(t), r); a.Text != want {
			t.Errorf("%q was answered %q, want %q", message, a.Text, want)
		}
	}
	r := ask("nothing of it")
	r.Script = "when: weather\ntext: sky"
	if a := collect(t, script(t), r); a.Err == nil || a.Err.Class != hob.ClassBadRequest || !strings.Contains(a.Err.Message, "without when:") {
		t.Errorf("no group applies: %+v", a)
	}
}

func TestScript_EarlierTurnsOfTheSessionDoNotCount(t *testing.T) {
	t.Parallel()
	r := hob.Request{Step: 1, Script: "text: one\n---\ntext: two", Messages: []hob.Message{
		{Role: hob.RoleUser, Content: "a"},
		{Role: hob.RoleAssistant, Content: "one"},
		{Role: hob.RoleUser, Content: "b"},
	}}
	if a := collect(t, script(t), r); a.Text != "one" {
		t.Errorf("said %q", a.Text)
	}
}

func TestScript_GoesOnBehindAnAnswerThatBrokeOff(t *testing.T) {
	t.Parallel()
	m := script(t)
	for _, ending := range []string{"finish: length", "cut"} {
		r := ask("tell me")
		r.Script = "text: Once {{message}}\n" + ending + "\n---\ntext: upon a time\n" + ending + "\n---\ncall: weather {}\n---\ntext: end"
		a := collect(t, m, r)
		if ending == "cut" && (a.Err == nil || a.Err.Class != hob.ClassCut) || ending != "cut" && a.Last.Finish != hob.FinishLength {
			t.Fatalf("%s: %+v", ending, a)
		}
		for i, want := range []string{"upon a time", ""} {
			r.Messages = append(r.Messages, hob.Message{Role: hob.RoleAssistant, Content: a.Text}, hob.Message{Role: hob.RoleUser, Content: "go on"})
			if a = collect(t, m, r); a.Text != want {
				t.Fatalf("%s: continuation %d said %q", ending, i+1, a.Text)
			}
		}
		if len(a.Calls) != 1 {
			t.Fatalf("%s: no call: %+v", ending, a)
		}
		if a = collect(t, m, turn(r, a, "rain")); a.Text != "end" {
			t.Errorf("%s: at last it said %q", ending, a.Text)
		}
	}
}

func TestScript_PicturesOfAToolAreNoNewTurn(t *testing.T) {
	t.Parallel()
	m := script(t)
	r := ask("draw")
	r.Script = "when: draw\ncall: weather {}\n---\ntext: got {{result}}"
	r = turn(r, collect(t, m, r), "a picture")
	r.Messages = append(r.Messages, hob.Message{Role: hob.RoleUser, Parts: []hob.Part{{Type: hob.ImagePart, URL: "https://x/y.png"}}})
	if a := collect(t, m, r); a.Text != "got a picture" {
		t.Errorf("said %q, %v", a.Text, a.Err)
	}
}

func TestScript_Errors(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]hob.ErrorClass{
		"error: 429 slow":              hob.ClassRateLimit,
		"error: 500":                   hob.ClassModelError,
		"error: 401 no":                hob.ClassUnauthorized,
		"error: 413 long":              hob.ClassPromptTooLong,
		"error: 400 bad":               hob.ClassBadRequest,
		"error: prompt_too_long x":     hob.ClassPromptTooLong,
		"cut":                          hob.ClassModelError,
		"text: a\ncut":                 hob.ClassCut,
		"text: a\nerror: 500 x":        hob.ClassCut,
		"text: a\nerror: 400 x":        hob.ClassBadRequest,
		"limit: 3\ntext: a":            hob.ClassPromptTooLong,
		"tetx: a":                      hob.ClassBadRequest,
		"":                             hob.ClassBadRequest,
		"call: weather {\"a\":1}\ncut": hob.ClassCut,
	} {
		r := ask("hello")
		r.Script = source
		if a := collect(t, script(t), r); a.Err == nil || a.Err.Class != want || a.Err.Message == "" {
			t.Errorf("%q: %+v, want %s", source, a.Err, want)
		}
	}
}

func TestScript_ChunksAndPace(t *testing.T) {
	t.Parallel()
	r := ask("x")
	r.Script = "text: äbcdefghij\nchunks: 4\npace: 30ms"
	start := time.Now()
	a := collect(t, open(t, "scripted", provider.Config{}), r)
	if a.Text != "äbcdefghij" || a.Deltas != 5 || time.Since(start) < 90*time.Millisecond {
		t.Errorf("%d deltas after %s: %+v", a.Deltas, time.Since(start), a)
	}
	start = time.Now()
	r.Script = "delay: 1m\ntext: a\npace: 1m\nchunks: 1"
	if a = collect(t, script(t), r); a.Text != "a" || time.Since(start) > 10*time.Second {
		t.Errorf("NoDelay waited %s", time.Since(start))
	}
}

func TestScript_CancelEndsAWait(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	r := ask("x")
	r.Script = "text: a\ndelay: 1m\ntext: b"
	a := collectWith(ctx, t, open(t, "scripted", provider.Config{}), r)
	if a.Text != "a" || a.Err == nil || a.Err.Class != hob.ClassCancelled || !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("got %+v", a)
	}
}

func TestParseScript_NamesLineAndWayOut(t *testing.T) {
	t.Parallel()
	cases := []struct{ source, want string }{
		{"text: a\ntetx: b", `line 2: unknown directive "tetx"; known are call, call-raw, chunks, cut`},
		{"call: t {bad", "line 1: the arguments of t are no JSON object; mend them, or use call-raw:"},
		{"call:", "line 1: call: wants the tool's name"},
		{"text: a\n---\n---", "line 3: the turn before this line is empty"},
		{"text: a\n---\n", "a --- must be followed by a turn"},
		{"===", "line 1: the turn before this line is empty"},
		{"delay: soon", `line 1: "soon" is no duration`},
		{"pace: 2h", "from 0s to 1m0s"},
		{"error: 200 fine", "line 1: error: wants a status from 400 to 599"},
		{"finish: maybe", "finish: wants stop"},
		{"usage: 1", "usage: wants two numbers"},
		{"chunks: 0", "chunks: wants a number"},
		{"limit: x", "limit: wants a number"},
		{"cut now", `unknown directive "cut now"`},
		{"cut: now", "cut stands alone"},
		{"cut\ntext: a", "nothing can follow a cut or an error"},
		{"text: a\nwhen: b", "line 2: when: must be the first line of its group"},
		{"when: a-b\ntext: x", "is no word"},
		{"when: a | \ntext: x", "at least one word on each side"},
		{"text: a\nneeds: b", "needs: must stand before the first turn"},
		{"needs:\ntext: a", "wants the names of tools"},
		{"text: {{resutl}}", "unknown place {{resutl}}; known are {{message}}"},
		{"text: {{result", "{{ has no }}"},
		{"text: {{results.x}}", "{{results.N}} wants the number"},
		{"text: {{message.x}}", "{{message}} has no parts"},
		{"text#a: b", "only call and call-raw take an id"},
		{"text: \xff", "valid UTF-8"},
		{strings.Repeat("#", provider.MaxScript+1), "at most 1048576 bytes"},
	}
	for _, c := range cases {
		_, err := provider.ParseScript(c.source)
		var e *hob.Error
		if !errors.As(err, &e) || e.Kind != hob.Invalid || e.Code != "invalid_script" || !strings.Contains(e.Message, c.want) {
			t.Errorf("%.40q: %v, want %s", c.source, err, c.want)
		}
	}
}

func TestTemplates_Rows(t *testing.T) {
	t.Parallel()
	m := script(t)
	for result, want := range map[string]string{
		`[{"b":1,"a":"x|y"},{"a":null,"b":2.50}]`: "| b | a |\n| --- | --- |\n| 1 | x\\|y |\n| 2.50 | null |",
		`{"rows":[{"n":1}],"truncated":true}`:     "| n |\n| --- |\n| 1 |",
		`[]`:                                      "(no rows)",
		`[1,2]`:                                   "[1,2]",
		`plain`:                                   "plain",
		`[` + strings.Repeat(`{"n":1},`, 24) + `{"n":1}]`: "| n |\n| --- |\n" + strings.Repeat("| 1 |\n", 20) + "\n… and 5 more rows",
	} {
		r := ask("x")
		r.Script = "call: weather {}\n---\ntext: {{rows}}"
		if a := collect(t, m, turn(r, collect(t, m, r), result)); a.Text != want {
			t.Errorf("%s became\n%s\nwant\n%s", result, a.Text, want)
		}
	}
}

func TestEcho_RepeatsTheMessage(t *testing.T) {
	t.Parallel()
	a := collect(t, open(t, "scripted/echo", provider.Config{NoDelay: true}), ask("Good morning {{message}}"))
	if a.Text != "Good morning {{message}}" || a.Deltas < 3 {
		t.Errorf("got %+v", a)
	}
}

func TestScripts_OfTheConfiguration(t *testing.T) {
	t.Parallel()
	c := provider.Config{NoDelay: true, Scripts: map[string]string{"mine": "text: mine"}}
	if a := collect(t, open(t, "scripted/mine", c), ask("x")); a.Text != "mine" {
		t.Errorf("got %+v", a)
	}
	for name, source := range map[string]string{"demo": "text: x", "bad": "x"} {
		c.Scripts = map[string]string{name: source}
		if _, err := provider.New(c).Open(context.Background(), hob.DefaultWorkspace, "scripted/demo"); hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// shop answers the demo's tools.
func shop(name string) string {
	if name == "current_time" {
		return `{"utc":"2026-11-30T10:00:00Z","local":"2026-11-30T11:00:00+01:00","timezone":"Europe/Berlin","weekday":"Monday"}`
	}
	return `[{"open_orders":7}]`
}

var demoTools = []hob.ToolSpec{{Name: "database_query"}, {Name: "current_time"}}

// converse plays a run against the demo and gives its calls and its final text.
func converse(t *testing.T, m hob.Model, message string, tools []hob.ToolSpec) (calls []string, text string) {
	t.Helper()
	r := ask(message)
	r.Tools = tools
	for range 5 {
		a := collect(t, m, r)
		if a.Err != nil {
			t.Fatalf("%s: %v", message, a.Err)
		}
		if len(a.Calls) == 0 {
			return calls, a.Text
		}
		if a.Reasoning == "" {
			t.Errorf("%s: calls a tool without a word why", message)
		}
		var results []string
		for _, c := range a.Calls {
			if !json.Valid([]byte(c.Arguments)) {
				t.Errorf("%s: arguments %s", message, c.Arguments)
			}
			calls = append(calls, c.Name+" "+c.Arguments)
			results = append(results, shop(c.Name))
		}
		r = turn(r, a, results...)
	}
	t.Fatalf("%s: no end", message)
	return nil, ""
}

func TestDemo_AnswersItsQuestions(t *testing.T) {
	t.Parallel()
	m := open(t, "scripted/demo", provider.Config{NoDelay: true})
	cases := []struct{ message, call, text string }{
		{"How many orders are open?", `SELECT count(*) AS open_orders FROM orders WHERE status = 'open'`, "There are 7 open orders"},
		{"how many open orders do we have", "status = 'open'", "7 open orders"},
		{"Show the orders by status", "GROUP BY status", "orders by status"},
		{"How many orders are there?", "GROUP BY status", "by status"},
		{"What is the revenue by month?", "AS month", "Revenue by month"},
		{"Who are our best customers?", "JOIN orders", "best customers"},
		{"Which products are low in stock?", "ORDER BY stock", "least in stock"},
		{"What time is it?", "current_time", "It is Monday, 2026-11-30T11:00:00+01:00, in the time zone Europe/Berlin."},
		{"Hello!", "", "How many orders are open?"},
		{"help", "", "no key is needed"},
		{"Write a poem about \"dogs\"", "UNION ALL", `no answer prepared for "Write a poem about "dogs""`},
	}
	for _, c := range cases {
		calls, text := converse(t, m, c.message, demoTools)
		if (c.call == "") != (len(calls) == 0) || c.call != "" && !strings.Contains(calls[0], c.call) || !strings.Contains(text, c.text) {
			t.Errorf("%s: calls %q, answers %q", c.message, calls, text)
		}
	}
}

func TestDemo_SaysWhichToolIsMissing(t *testing.T) {
	t.Parallel()
	m := open(t, "scripted/demo", provider.Config{NoDelay: true})
	calls, text := converse(t, m, "How many orders are open?", demoTools[1:])
	if len(calls) > 0 || !strings.Contains(text, "database_query") || !strings.Contains(text, "was not given it. If the agent has it, the run's warnings say why") {
		t.Errorf("calls %q, answers %q", calls, text)
	}
	r := ask("How many orders are open?")
	r.Tools, r.NoToolUse = demoTools, true
	if a := collect(t, m, r); len(a.Calls) > 0 || !strings.Contains(a.Text, "no tools any more") {
		t.Errorf("on a last step: %+v", a)
	}
}

func TestDemo_TellsWhenItsToolFails(t *testing.T) {
	t.Parallel()
	m := open(t, "scripted/demo", provider.Config{NoDelay: true})
	r := ask("How many orders are open?")
	r.Tools = demoTools
	r = turn(r, collect(t, m, r), "no such table: orders")
	r.Messages[len(r.Messages)-1].IsError = true
	if a := collect(t, m, r); a.Text != "I could not read the orders: no such table: orders" {
		t.Errorf("said %q", a.Text)
	}
}

func TestDemo_LooksAliveAndIsQuick(t *testing.T) {
	t.Parallel()
	m := open(t, "scripted/demo", provider.Config{})
	for _, message := range []string{"How many orders are open?", "hello", "something else"} {
		r := ask(message)
		r.Tools = demoTools
		var gaps []time.Duration
		start, last := time.Now(), time.Now()
		r.Model = m.Model
		for range m.Provider.Stream(t.Context(), r) {
			gaps, last = append(gaps, time.Since(last)), time.Now()
		}
		slices.Sort(gaps)
		if len(gaps) < 4 || gaps[len(gaps)-1] < 10*time.Millisecond || time.Since(start) > 1500*time.Millisecond {
			t.Errorf("%s: %d deltas in %s", message, len(gaps), time.Since(start))
		}
	}
}
