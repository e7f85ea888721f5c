package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"hob"
)

func newMender() *mender {
	n := 0
	return &mender{used: map[hob.CallID]bool{}, newID: func() hob.CallID { n++; return hob.CallID(fmt.Sprintf("new%d", n)) }}
}

// line writes messages on one line: role, text, calls with their arguments, the call that is answered.
func line(messages []hob.Message) string {
	var out []string
	for _, m := range messages {
		text := string(m.Role) + ":" + m.Content
		for _, c := range m.Calls {
			text += fmt.Sprintf("(%s %s%s%s)", c.ID, c.Name, c.Arguments, c.Bad)
		}
		if m.Role == hob.RoleTool {
			text += "=" + string(m.CallID)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func user(text string) hob.Message { return hob.Message{Role: hob.RoleUser, Content: text} }
func says(text string) hob.Message { return hob.Message{Role: hob.RoleAssistant, Content: text} }

func asks(ids ...hob.CallID) hob.Message {
	m := hob.Message{Role: hob.RoleAssistant}
	for _, id := range ids {
		m.Calls = append(m.Calls, hob.ToolCall{ID: id, Name: "t", Arguments: json.RawMessage(`{}`)})
	}
	return m
}

func gives(id hob.CallID) hob.Message {
	return hob.Message{Role: hob.RoleTool, CallID: id, Name: "t", Content: "r"}
}

func withArguments(id hob.CallID, args string) hob.Message {
	m := asks(id)
	m.Calls[0].Arguments = json.RawMessage(args)
	return m
}

func nameless(m hob.Message, call int) hob.Message { m.Calls[call].Name = ""; return m }

func TestMend_RepairsEachKindOfFault(t *testing.T) {
	t.Parallel()
	const lost = missingResult
	unnamed := gives("a")
	unnamed.Name = ""
	for name, tc := range map[string]struct {
		in     []hob.Message
		want   string
		faults []string // index and the beginning of each
	}{
		"nothing":                  {[]hob.Message{user("u"), asks("a", "b"), gives("a"), gives("b"), says("x")}, "user:u assistant:(a t{})(b t{}) tool:r=a tool:r=b assistant:x", nil},
		"no messages":              {nil, "", nil},
		"orphan":                   {[]hob.Message{user("u"), gives("a"), says("x")}, "user:u assistant:x", []string{`1 it answers the call "a", which is not there`}},
		"no result":                {[]hob.Message{user("u"), asks("a"), says("x")}, "user:u assistant:(a t{}) tool:" + lost + "=a assistant:x", []string{`1 the call "a" has no result`}},
		"one of two":               {[]hob.Message{asks("a", "b"), gives("b")}, "assistant:(a t{})(b t{}) tool:" + lost + "=a tool:r=b", []string{`0 the call "a" has no result`}},
		"two results":              {[]hob.Message{asks("a"), gives("a"), gives("a"), says("x")}, "assistant:(a t{}) tool:r=a assistant:x", []string{`2 the call "a" has a result already`}},
		"results swapped":          {[]hob.Message{asks("a", "b"), gives("b"), gives("a")}, "assistant:(a t{})(b t{}) tool:r=a tool:r=b", []string{`1 the result of the call "b" is out of order`}},
		"result late":              {[]hob.Message{asks("a"), user("u"), gives("a")}, "assistant:(a t{}) tool:r=a user:u", []string{`2 the result of the call "a" is out of order`}},
		"result early":             {[]hob.Message{gives("a"), asks("a")}, "assistant:(a t{}) tool:r=a", []string{`0 the result of the call "a" is out of order`}},
		"id twice at once":         {[]hob.Message{asks("a", "a"), gives("a"), gives("a")}, "assistant:(a t{})(new1 t{}) tool:r=a tool:r=new1", []string{`0 the call id "a" is used twice`}},
		"id twice":                 {[]hob.Message{asks("a"), gives("a"), asks("a"), gives("a")}, "assistant:(a t{}) tool:r=a assistant:(new1 t{}) tool:r=new1", []string{`2 the call id "a" is used twice`}},
		"id twice, no first":       {[]hob.Message{asks("a"), asks("a"), gives("a")}, "assistant:(a t{}) tool:" + lost + "=a assistant:(new1 t{}) tool:r=new1", []string{`0 the call "a" has no result`, `1 the call id "a" is used twice`}},
		"no id":                    {[]hob.Message{asks(""), gives("")}, "assistant:(new1 t{}) tool:r=new1", []string{`0 a call has no id`}},
		"no name":                  {[]hob.Message{nameless(asks("a"), 0), gives("a")}, "assistant:(a t{}) tool:r=a", []string{`0 the call "a" names no tool`}},
		"no name anywhere":         {[]hob.Message{nameless(asks("a", "b"), 0), unnamed, gives("b")}, "assistant:(b t{}) tool:r=b", []string{`0 the call "a" names no tool`}},
		"no name, no other result": {[]hob.Message{nameless(asks("a", "b"), 0), unnamed}, "assistant:(b t{}) tool:" + lost + "=b", []string{`0 the call "a" names no tool`, `0 the call "b" has no result`}},
		"nothing left":             {[]hob.Message{user("u"), nameless(asks("a"), 0), unnamed}, "user:u", []string{`1 the call "a" names no tool`, `1 the message is empty`}},
		"empty":                    {[]hob.Message{user("u"), says(""), user(""), says("x")}, "user:u assistant:x", []string{"1 the message is empty", "2 the message is empty"}},
		"empty user's":             {[]hob.Message{user(""), says("x")}, "user:" + missingInput + " assistant:x", []string{"0 the user's message is empty"}},
		"parts":                    {[]hob.Message{{Role: hob.RoleAssistant, Parts: []hob.Part{{Type: hob.TextPart, Text: "p"}}}}, "assistant:p", []string{"0 an assistant's text is kept in parts"}},
		"unknown role":             {[]hob.Message{user("u"), {Role: "function", Content: "x"}}, "user:u", []string{`1 the role "function" is unknown`}},
		"text":                     {[]hob.Message{user("a\xffb"), gives("c\xff")}, "user:a\uFFFDb", []string{"0 the text is not valid UTF-8", "1 the text is not valid UTF-8", "1 it answers"}},
		"arguments as text":        {[]hob.Message{withArguments("a", `"{\"x\":1}"`), gives("a")}, `assistant:(a t{"x":1}) tool:r=a`, []string{`0 the arguments of the call "a" are no JSON object`}},
		"arguments null":           {[]hob.Message{withArguments("a", `null`), gives("a")}, `assistant:(a t{}) tool:r=a`, []string{`0 the arguments of the call "a" are no JSON object`}},
		"arguments absent":         {[]hob.Message{withArguments("a", ``), gives("a")}, `assistant:(a t{}) tool:r=a`, []string{`0 the arguments of the call "a" are no JSON object`}},
		"arguments a list":         {[]hob.Message{withArguments("a", `[1]`), gives("a")}, `assistant:(a t{}[1]) tool:r=a`, []string{`0 the arguments of the call "a" are no JSON object`}},
		"arguments broken":         {[]hob.Message{withArguments("a", `{"x":`), gives("a")}, `assistant:(a t{}{"x":) tool:r=a`, []string{`0 the arguments of the call "a" are no JSON object`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newMender().mend(tc.in)
			if line(got.messages) != tc.want {
				t.Errorf("got  %s\nwant %s", line(got.messages), tc.want)
			}
			if err := hob.Validate(got.messages); err != nil {
				t.Error(err)
			}
			if len(got.faults) != len(tc.faults) {
				t.Fatalf("faults %+v, want %q", got.faults, tc.faults)
			}
			for i, f := range got.faults {
				if text := fmt.Sprintf("%d %s", f.Index, f.What); !strings.HasPrefix(text, tc.faults[i]) || f.Repair == "" {
					t.Errorf("fault %d: %s → %s, want %s", i, text, f.Repair, tc.faults[i])
				}
			}
		})
	}
}

// TestMend_NamesCallsOnceInASession: an id of an earlier run is taken, and the row of the call follows its new one.
func TestMend_NamesCallsOnceInASession(t *testing.T) {
	t.Parallel()
	m := newMender()
	first := m.mend([]hob.Message{asks("a"), gives("a")})
	second := m.mend([]hob.Message{asks("a"), gives("a"), asks("a"), gives("a")})
	if len(first.faults) != 0 || line(second.messages) != "assistant:(new1 t{}) tool:r=new1 assistant:(new2 t{}) tool:r=new2" {
		t.Errorf("first %+v, second %s", first.faults, line(second.messages))
	}
	if d := cmp.Diff(map[hob.CallID]hob.CallID{"a": "new1"}, second.renamed); d != "" {
		t.Errorf("-want +renamed:\n%s", d)
	}
}

func TestMend_TellsWhereMessagesWent(t *testing.T) {
	t.Parallel()
	m := newMender().mend([]hob.Message{user("u"), says(""), asks("a"), user("v"), gives("a"), gives("b")})
	for index, want := range []int{0, 1, 1, 2, 2, 4, 4} { // u, the call, its result, v
		if got := m.moved(index); got != want {
			t.Errorf("message %d went to %d, want %d (%v)", index, got, want, m.from)
		}
	}
}

// drawMessage makes a message that is valid or damaged in any way. Ids are few, so that they meet.
func drawMessage(t *rapid.T) hob.Message {
	text := rapid.SampledFrom([]string{"", "x", "y", "é", "a\xffb"})
	id := rapid.SampledFrom([]hob.CallID{"a", "b", "c", "d", "e", "a", "b", "", "f\xfe"})
	name := rapid.SampledFrom([]string{"t", "t", "t", "u", "", "n\xff"})
	args := rapid.SampledFrom([]string{"{}", "{}", `{"x":1}`, `{"x":1}`, ``, `null`, `[1]`, `"{\"x\":1}"`, `"x"`, `{"x":`, "{\"x\":\"\xff\"}", " {}"})
	m := hob.Message{Content: text.Draw(t, "text")}
	m.Role = rapid.SampledFrom([]hob.Role{
		hob.RoleUser, hob.RoleAssistant, hob.RoleAssistant, hob.RoleTool, hob.RoleTool, hob.RoleTool, hob.RoleSystem, "function",
	}).Draw(t, "role")
	switch m.Role {
	case hob.RoleAssistant:
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			m.Calls = append(m.Calls, hob.ToolCall{ID: id.Draw(t, "id"), Name: name.Draw(t, "name"), Arguments: json.RawMessage(args.Draw(t, "args"))})
		}
		if rapid.IntRange(0, 3).Draw(t, "thinks") == 0 {
			m.Reasoning = &hob.Reasoning{Text: text.Draw(t, "thought"), Artefact: json.RawMessage(rapid.SampledFrom([]string{"{}", "\"\xff\""}).Draw(t, "artefact"))}
		}
	case hob.RoleTool:
		m.CallID, m.Name = id.Draw(t, "of"), name.Draw(t, "tool")
	default:
		if rapid.IntRange(0, 5).Draw(t, "kind") == 0 {
			m.Parts = []hob.Part{{Type: hob.TextPart, Text: text.Draw(t, "part")}}
		}
	}
	return m
}

// drawRun makes messages, some of them calls with all their results, in order.
func drawRun(t *rapid.T) []hob.Message {
	var list []hob.Message
	for range rapid.IntRange(0, 8).Draw(t, "messages") {
		m := drawMessage(t)
		list = append(list, m)
		if len(m.Calls) == 0 || rapid.Bool().Draw(t, "alone") {
			continue
		}
		for _, c := range m.Calls {
			list = append(list, hob.Message{Role: hob.RoleTool, CallID: c.ID, Name: c.Name, Content: "r"})
		}
	}
	return list
}

// validParts are the pieces of a run that break no rule where they stand: single messages, and calls with their results.
// ids are those of all calls before; it grows.
func validParts(run []hob.Message, ids map[hob.CallID]bool) [][]hob.Message {
	var parts [][]hob.Message
	for i, m := range run {
		if m.Role == hob.RoleTool {
			continue
		}
		part, fresh := run[i:min(i+1+len(m.Calls), len(run))], true
		for _, c := range m.Calls {
			fresh = fresh && !ids[valid(c.ID)]
		}
		for _, c := range m.Calls {
			ids[valid(c.ID)] = true
		}
		if fresh && hob.Validate(part) == nil && allUTF8(part) {
			parts = append(parts, part)
		}
	}
	return parts
}

func valid[T ~string](s T) T { return T(strings.ToValidUTF8(string(s), "\uFFFD")) }

func allUTF8(list []hob.Message) bool {
	for _, m := range list {
		ok := utf8.ValidString(m.Content + m.Name + string(m.CallID))
		if m.Reasoning != nil {
			ok = ok && utf8.ValidString(m.Reasoning.Text) && utf8.Valid(m.Reasoning.Artefact)
		}
		for _, p := range m.Parts {
			ok = ok && utf8.ValidString(p.Text)
		}
		for _, c := range m.Calls {
			ok = ok && utf8.ValidString(string(c.ID)+c.Name) && utf8.Valid(c.Arguments)
		}
		if !ok {
			return false
		}
	}
	return true
}

// TestMend_MakesAnySequenceValid: whatever a session's runs hold, mending them gives a valid history with every call id
// once, keeps what was valid, in order, invents no text, and finds nothing the second time.
func TestMend_MakesAnySequenceValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, again := newMender(), newMender()
		ids, seen := map[hob.CallID]bool{}, map[hob.CallID]bool{}
		for range rapid.IntRange(1, 3).Draw(t, "runs") {
			run := drawRun(t)
			before := slices.Clone(run)
			got := m.mend(run)
			if d := cmp.Diff(before, run); d != "" {
				t.Fatalf("mending changed what it was given:\n%s", d)
			}
			if err := hob.Validate(got.messages); err != nil || !allUTF8(got.messages) {
				t.Fatalf("not valid: %v\n%s", err, line(got.messages))
			}
			for _, msg := range got.messages {
				for _, c := range msg.Calls {
					if seen[c.ID] {
						t.Fatalf("the call id %s is there twice", c.ID)
					}
					seen[c.ID] = true
				}
			}
			if same := cmp.Equal(run, got.messages) || len(run)+len(got.messages) == 0; same != (len(got.faults) == 0) {
				t.Fatalf("changed: %t, faults %+v", !same, got.faults)
			}
			at := 0
			for _, part := range validParts(run, ids) {
				for at+len(part) <= len(got.messages) && !cmp.Equal(part, got.messages[at:at+len(part)]) {
					at++
				}
				if at+len(part) > len(got.messages) {
					t.Fatalf("%s is not kept, or not in order, in\n%s", line(part), line(got.messages))
				}
				at += len(part)
			}
			checkText(t, run, got)
			if twice := again.mend(got.messages); len(twice.faults) != 0 {
				t.Fatalf("the second time: %+v", twice.faults)
			}
		}
	})
}

// checkText: a mended message says what the stored one said, or that something is missing.
func checkText(t *rapid.T, run []hob.Message, got mended) {
	for i, m := range got.messages {
		from := got.from[i]
		switch {
		case from < 0 && (m.Role != hob.RoleTool || m.Content != missingResult):
			t.Fatalf("invented: %+v", m)
		case from >= 0 && (m.Role != run[from].Role || m.Content != valid(run[from].Content)) && m.Content != missingInput:
			t.Fatalf("%+v became %+v", run[from], m)
		}
	}
}
