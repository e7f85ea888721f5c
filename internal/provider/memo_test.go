package provider

import (
	"fmt"
	"testing"

	"hob"
)

func TestMemo_ARequestIsTheSameWithAndWithoutIt(t *testing.T) {
	t.Parallel()
	p, other := &chat{caller: caller{name: openaiName}}, &chat{caller: caller{name: openaiName}}
	f := familyOf("gpt-4o")
	r := hob.Request{
		Model: "gpt-4o", System: "Be brief.", Tools: []hob.ToolSpec{{Name: "look"}},
		Messages: []hob.Message{
			{Role: hob.RoleUser, Content: "first \"one\""},
			{Role: hob.RoleAssistant, Calls: []hob.ToolCall{{ID: "c0", Name: "gone.tool", Arguments: []byte(`{}`)}}},
			{Role: hob.RoleTool, CallID: "c0", Name: "gone.tool", Content: "r"},
			{Role: hob.RoleAssistant, Content: "answer"},
			{Role: hob.RoleUser, Content: "second"},
		},
	}
	memo := &hob.Memo{}
	same := func(p *chat, what string) {
		t.Helper()
		r.Memo = nil
		want, _ := p.render(r, f, newNames(r, plainName), answerForm{})
		r.Memo = memo
		if got, _ := p.render(r, f, newNames(r, plainName), answerForm{}); string(got) != string(want) {
			t.Fatalf("%s it is\n%s\nnot\n%s", what, got, want)
		}
	}
	for step := range 4 {
		same(p, fmt.Sprintf("in step %d", step))
		if memo.Count != 5 {
			t.Fatalf("%d messages are kept", memo.Count)
		}
		id := hob.CallID(fmt.Sprint("s", step))
		r.Messages = append(r.Messages,
			hob.Message{Role: hob.RoleAssistant, Calls: []hob.ToolCall{{ID: id, Name: "look", Arguments: []byte(`{"n":1}`)}}},
			hob.Message{Role: hob.RoleTool, CallID: id, Name: "look", Content: "result"})
	}
	same(other, "for another endpoint")
	same(p, "back at the first")
	r.Messages = append(r.Messages, hob.Message{Role: hob.RoleAssistant, Content: "done"}, hob.Message{Role: hob.RoleUser, Content: "third"})
	same(p, "in the next turn")
	r.Messages = r.Messages[:3]
	same(p, "with fewer messages than are kept")
}
