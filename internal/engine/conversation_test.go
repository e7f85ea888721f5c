package engine

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"hob"
)

// drawTurn draws the messages of a turn: the user's, steps with calls and results, and an answer unless the turn is
// under way.
func drawTurn(t *rapid.T, turn int, ended bool) []hob.Message {
	text := func(label string, most int) string {
		return strings.Repeat(rapid.SampledFrom([]string{"word ", "ä€ ", "{\"n\":1} ", "日本"}).Draw(t, label+" kind"), rapid.IntRange(1, most).Draw(t, label))
	}
	out := []hob.Message{{Role: hob.RoleUser, Content: fmt.Sprintf("turn %d %s", turn, text("user", 40))}}
	for s := range rapid.IntRange(0, 3).Draw(t, "steps") {
		m := hob.Message{Role: hob.RoleAssistant}
		for c := range rapid.IntRange(1, 3).Draw(t, "calls") {
			m.Calls = append(m.Calls, hob.ToolCall{ID: hob.CallID(fmt.Sprintf("c%d_%d_%d", turn, s, c)), Name: "look", Arguments: []byte(`{"n":1}`)})
		}
		out = append(out, m)
		for _, c := range m.Calls {
			out = append(out, hob.Message{Role: hob.RoleTool, CallID: c.ID, Name: c.Name, Content: text("result", 800)})
		}
	}
	if ended {
		out = append(out, hob.Message{Role: hob.RoleAssistant, Content: text("answer", 200)})
	}
	return out
}

func drawConversation(t *rapid.T) (c *conversation, own []hob.Message) {
	var past hob.History
	n := rapid.IntRange(0, 8).Draw(t, "turns")
	for i := range n {
		past.Runs = append(past.Runs, hob.PastRun{Turn: int64(i + 1), Messages: drawTurn(t, i+1, true)})
	}
	own = drawTurn(t, n+1, false)
	return converse(past, int64(n+1), own), own
}

// holds checks what must be true of every conversation that is sent.
func holds(t *rapid.T, c *conversation, own []hob.Message, did string) {
	if err := hob.Validate(c.sent); err != nil {
		t.Fatalf("after %s the conversation is not valid: %v", did, err)
	}
	total := 0
	for i := range c.sent {
		total += tokensOf(&c.sent[i])
		if !utf8.ValidString(c.sent[i].Content) {
			t.Fatalf("after %s message %d is not UTF-8", did, i)
		}
	}
	if total != c.total || len(c.sent) != len(c.tokens) || len(c.sent) != len(c.from) {
		t.Fatalf("after %s the sums do not add up: %d, not %d", did, c.total, total)
	}
	if at := c.newest(); c.sent[at].Content != own[0].Content {
		t.Fatalf("after %s the user's newest message is %q", did, c.sent[at].Content)
	}
	if c.known() != len(own) {
		t.Fatalf("after %s it takes %d of the run's %d messages for known", did, c.known(), len(own))
	}
}

func TestConversation_StaysValidHoweverItIsShortened(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, own := drawConversation(t)
		holds(t, c, own, "nothing")
		for range rapid.IntRange(1, 5).Draw(t, "times") {
			before := c.total
			switch rapid.SampledFrom([]string{"prune", "condense", "truncate", "extend"}).Draw(t, "way") {
			case "prune":
				c.prune(rapid.IntRange(1, 4).Draw(t, "keep"))
				if c.total > before {
					t.Fatal("pruning made it longer")
				}
				holds(t, c, own, "prune")
			case "condense":
				if at := c.cut(rapid.IntRange(0, 3000).Draw(t, "budget"), 3); c.worth(at) {
					c.condense("what was said", at)
					holds(t, c, own, "condense")
				}
			case "truncate":
				budget := rapid.IntRange(100, 4000).Draw(t, "budget")
				if done := c.truncate(budget); done != (c.total <= budget) {
					t.Fatalf("truncate says %v at %d of %d", done, c.total, budget)
				}
				holds(t, c, own, "truncate")
			case "extend":
				i := len(own)
				own = append(own, hob.Message{Role: hob.RoleAssistant, Calls: []hob.ToolCall{{ID: hob.CallID(fmt.Sprint("x", i)), Name: "look", Arguments: []byte(`{}`)}}},
					hob.Message{Role: hob.RoleTool, CallID: hob.CallID(fmt.Sprint("x", i)), Name: "look", Content: "more"})
				c.extend(own, c.known())
				holds(t, c, own, "extend")
			}
		}
	})
}

func TestConversation_PruneKeepsTheLastTurnsAndTheTurnUnderWay(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("result ", 100)
	turn := func(n int) []hob.Message {
		id := hob.CallID(fmt.Sprint("c", n))
		return []hob.Message{
			{Role: hob.RoleUser, Content: fmt.Sprint("question ", n)},
			{Role: hob.RoleAssistant, Calls: []hob.ToolCall{{ID: id, Name: "look", Arguments: []byte(`{}`)}}},
			{Role: hob.RoleTool, CallID: id, Name: "look", Content: long},
			{Role: hob.RoleAssistant, Content: "answer"},
		}
	}
	for past, want := range map[int][]int{0: {}, 1: {}, 2: {}, 3: {2}, 5: {2, 6, 10}} {
		var h hob.History
		for i := range past {
			h.Runs = append(h.Runs, hob.PastRun{Turn: int64(i + 1), Messages: turn(i + 1)})
		}
		c := converse(h, int64(past+1), turn(past + 1)[:3])
		c.prune(3)
		got := []int{}
		for i, m := range c.sent {
			if m.Content == removedResult {
				got = append(got, i)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("with %d earlier turns the results %v are left out, not %v", past, got, want)
		}
		if c.whole(2).Content != long {
			t.Error("what is stored was changed")
		}
	}
}

func TestShorten_KeepsBothEndsAndWholeCharacters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringN(0, 2000, -1).Draw(t, "text")
		got := shorten(s, rapid.IntRange(0, 500).Draw(t, "tokens"))
		if utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Fatalf("%q is not valid", got)
		}
	})
	got := shorten(strings.Repeat("begin ", 500)+strings.Repeat(" end", 500), 100)
	if !strings.HasPrefix(got, "begin") || !strings.HasSuffix(got, "end") || !strings.Contains(got, clippedMark) || estimateTokens(got) > 110 {
		t.Fatalf("%d tokens: %q", estimateTokens(got), got)
	}
}

func TestSpace_LeavesRoomInEveryWindow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ window, maxTokens, threshold int }{
		{8_192, 0, 2_048},
		{8_192, 500, 2_048},
		{32_000, 0, 16_000},
		{128_000, 0, 107_000},
		{128_000, 32_000, 83_000},
		{200_000, 0, 176_000},
		{1_000_000, 64_000, 856_000},
		{1_000, 0, 250},
		{8_192, 1 << 20, 2_048},
	} {
		s := spaceOf(c.window, c.maxTokens)
		if s.threshold != c.threshold || s.most < s.threshold || s.most > c.window {
			t.Errorf("spaceOf(%d, %d) = %+v, not with a threshold of %d", c.window, c.maxTokens, s, c.threshold)
		}
	}
}

func TestJoint_SaysNothingTwiceAndLosesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, before, after, want string }{
		{"plain", "The first half", " and the second.", " and the second."},
		{"repeats the last words", "It was a dark and stormy night", "dark and stormy night, and it rained.", ", and it rained."},
		{"repeats all", "It was a dark and stormy night", "It was a dark and stormy night, and it rained.", ", and it rained."},
		{"a short likeness is chance", "ha ha ha", "ha ha!", "ha ha!"},
		{"opens the code block again", "Look:\n```go\nfunc main() {\n\ta := 1\n", "```go\n\tb := 2\n}\n```\n", "\tb := 2\n}\n```\n"},
		{"opens it again and repeats", "Look:\n```go\nfunc main() {\n\tvalue := compute()\n", "```go\n\tvalue := compute()\n\tb := 2\n", "\tb := 2\n"},
		{"closes the code block", "```go\nx := 1\n", "```\nDone.", "```\nDone."},
		{"outside of a block a fence stays", "Look:\n", "```go\nx\n```", "```go\nx\n```"},
		{"ends in the repetition", "It was a dark and stormy night", "a dark and stormy", "a dark and stormy"},
		{"is the repetition", "It was a dark and stormy night", "a dark and stormy night", ""},
		{"nothing before", "", "```go\nx", "```go\nx"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(c.after); size++ {
				j := newJoint(c.before)
				var got strings.Builder
				for i := 0; i < len(c.after); i += size {
					got.WriteString(j.next(c.after[i:min(i+size, len(c.after))]))
				}
				got.WriteString(j.rest())
				if got.String() != c.want {
					t.Fatalf("in pieces of %d bytes it adds %q, not %q", size, got.String(), c.want)
				}
			}
		})
	}
}

func TestBareJSON_TakesOffAFence(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		` {"a":1} `: `{"a":1}`, "```json\n{\"a\":1}\n```": `{"a":1}`, "```\n[1]\n```\n": `[1]`,
		"Here: ```json\n{}\n```": "Here: ```json\n{}\n```", "```json\n{\"a\":1}": "```json\n{\"a\":1}", "": "",
	} {
		if got := bareJSON(in); got != want {
			t.Errorf("bareJSON(%q) = %q, not %q", in, got, want)
		}
	}
}

func TestTagged_FindsTheSummaryAlone(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"<analysis>a</analysis><summary> b </summary>":                             "b",
		"<analysis>the <summary> comes next</analysis>\n<summary>b</summary> done": "b",
		"<summary>b was cut": "b was cut",
		"<summary>the page says </summary> twice</summary>": "the page says </summary> twice",
		"<analysis>only</analysis>":                         "", "": "", "<summary></summary>": "",
	} {
		if got := tagged(in); got != want {
			t.Errorf("tagged(%q) = %q, not %q", in, got, want)
		}
	}
}
