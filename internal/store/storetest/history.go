package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"hob"
)

func historyCases() map[string]func(*world) {
	return map[string]func(*world){
		"HistoryIsWholeRunsFromTheNewestBack": historyBudget,
		"HistoryLeavesUnfinishedRunsOut":      historyUnfinished,
		"HistoryOfEndedRunsIsValid":           historyMended,
		"HistoryOfALongSessionIsOrdered":      historyLong,
		"HistoryCountsCharactersNotBytes":     historyChars,
		"HistoryOfARangeSaysWhetherItIsCut":   historyRange,
	}
}

func (w *world) history(id hob.SessionID, before int64, budget int) string {
	w.t.Helper()
	list, err := w.s.History(w.ctx, w.alice, id, hob.HistoryRange{Before: before, Budget: budget})
	w.must(err)
	w.must(hob.Validate(list.Messages()))
	var out []string
	for _, m := range list.Messages() {
		text := string(m.Role[0]) + ":" + m.Content
		for _, c := range m.Calls {
			text += "(" + string(c.ID) + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// say makes a finished turn.
func (w *world) say(id hob.SessionID, user, answer string) {
	w.t.Helper()
	n := w.newRun(w.alice, w.agent.ID, id)
	n.Message.Content = user
	w.finish(w.start(n), answer)
}

func historyBudget(w *world) {
	for i := range 4 {
		w.say("s", fmt.Sprintf("u%d", i), fmt.Sprintf("a%d", i)) // four characters each
	}
	for _, c := range []struct {
		before int64
		budget int
		want   string
	}{
		{5, 1000, "u:u0 a:a0 u:u1 a:a1 u:u2 a:a2 u:u3 a:a3"},
		{5, 8, "u:u2 a:a2 u:u3 a:a3"},
		{5, 11, "u:u2 a:a2 u:u3 a:a3"},
		{5, 12, "u:u1 a:a1 u:u2 a:a2 u:u3 a:a3"},
		{5, 0, "u:u3 a:a3"}, // at least the newest
		{3, 1000, "u:u0 a:a0 u:u1 a:a1"},
		{1, 1000, ""},
	} {
		same(w, fmt.Sprintf("before %d with %d", c.before, c.budget), w.history("s", c.before, c.budget), c.want)
	}
	_, err := w.s.History(w.ctx, w.bob, "s", hob.HistoryRange{Before: 5, Budget: 1000})
	w.want(hob.NotFound, err)
	_, err = w.s.History(w.ctx, w.alice, "none", hob.HistoryRange{Before: 1, Budget: 1000})
	w.want(hob.NotFound, err)
}

func historyUnfinished(w *world) {
	w.say("s", "one", "1")
	running, queued := w.begin(w.alice, "s"), w.begin(w.alice, "s")
	w.rest(queued, hob.Queued)
	w.say("s", "two", "2")
	same(w, "history", w.history("s", 10, 1000), "u:one a:1 u:two a:2")
	w.finish(running, "late")
	same(w, "history", w.history("s", 10, 1000), "u:one a:1 u:hello from "+string(running.ID)+" a:late u:two a:2")
}

func historyMended(w *world) {
	call := func(ids ...hob.CallID) hob.Message {
		m := hob.Message{Role: hob.RoleAssistant}
		for _, id := range ids {
			m.Calls = append(m.Calls, hob.ToolCall{ID: id, Name: "t", Arguments: json.RawMessage(`{}`)})
		}
		return m
	}
	result := func(id hob.CallID) hob.Message {
		return hob.Message{Role: hob.RoleTool, CallID: id, Name: "t", Content: "r"}
	}
	text := func(s string) hob.Message { return hob.Message{Role: hob.RoleAssistant, Content: s} }
	for i, c := range []struct {
		outcome  hob.Outcome
		messages []hob.Message
		want     string
	}{
		{hob.Outcome{Status: hob.Failed, Error: "no model"}, nil, "a:[The previous turn ended before an answer: no model]"},
		{hob.Outcome{Status: hob.Cancelled, Code: hob.CodeCancelled}, nil, "a:[The previous turn ended before an answer: cancelled]"},
		{hob.Outcome{Status: hob.Cancelled}, nil, "a:[The previous turn ended before an answer: cancelled]"},
		{hob.Outcome{Status: hob.Failed, Error: "x"}, []hob.Message{text("so far")}, "a:so far"},
		{hob.Outcome{Status: hob.Failed, Error: "x"}, []hob.Message{call("a", "b"), result("a"), result("b")}, "a:(a)(b) t:r t:r a:[The previous turn ended before an answer: x]"},
		{hob.Outcome{Status: hob.Failed, Error: "x"}, []hob.Message{call("a"), result("a"), call("b", "c"), result("b")}, "a:(a) t:r a:[The previous turn ended before an answer: x]"},
		{hob.Outcome{Status: hob.Failed, Error: "x"}, []hob.Message{call("a")}, "a:[The previous turn ended before an answer: x]"},
		{hob.Outcome{Status: hob.Failed, Error: "x"}, []hob.Message{call("a", "b"), result("b"), result("a"), text("t")}, "a:t"},
		{hob.Outcome{Status: hob.Completed}, nil, "a:[The previous turn gave no answer.]"},
		{hob.Outcome{Status: hob.Completed, Content: "t"}, []hob.Message{call("a"), result("a"), text("t")}, "a:(a) t:r a:t"},
	} {
		id := hob.SessionID(fmt.Sprintf("s%d", i))
		n := w.newRun(w.alice, w.agent.ID, id)
		n.Message.Content = "q"
		r := w.start(n)
		end := step(r, event(2, hob.EventComplete, ""))
		end.Base, end.Messages, end.Outcome = 1, c.messages, &c.outcome
		w.must(w.s.Commit(w.ctx, end))
		same(w, fmt.Sprintf("case %d", i), w.history(id, 2, 1000), "u:q "+c.want)
	}
}

func historyLong(w *world) {
	var turns []hob.SeedTurn
	for i := range 150 {
		turns = append(turns, hob.SeedTurn{User: fmt.Sprintf("u%03d", i), Assistant: fmt.Sprintf("a%03d", i)})
	}
	ses := w.newSession(w.alice, turns...)
	got, err := w.s.History(w.ctx, w.alice, ses.ID, hob.HistoryRange{Before: 1 << 40, Budget: 8 * 100})
	w.must(err)
	list := got.Messages()
	same(w, "messages that fit", len(list), 200)
	for i, m := range list {
		want := fmt.Sprintf("u%03d", 50+i/2)
		if i%2 == 1 {
			want = fmt.Sprintf("a%03d", 50+i/2)
		}
		same(w, "message", m.Content, want)
	}
}

func historyChars(w *world) {
	w.say("s", "ééé", "é")
	w.say("s", "äää", "ä")
	same(w, "eight characters", w.history("s", 3, 8), "u:ééé a:é u:äää a:ä")
	same(w, "seven characters", w.history("s", 3, 7), "u:äää a:ä")
}

func historyRange(w *world) {
	for i := range 5 {
		w.say("s", fmt.Sprintf("u%d", i), fmt.Sprintf("a%d", i)) // four characters each
	}
	for _, c := range []struct {
		in    hob.HistoryRange
		turns []int64
		cut   bool
	}{
		{hob.HistoryRange{After: 2, Before: 5, Budget: 100}, []int64{3, 4}, false},
		{hob.HistoryRange{After: 2, Before: 6, Budget: 8}, []int64{4, 5}, true},
		{hob.HistoryRange{Before: 3, Budget: 8}, []int64{1, 2}, false},
		{hob.HistoryRange{After: 4, Before: 5, Budget: 100}, nil, false},
		{hob.HistoryRange{After: 9, Before: 5, Budget: 100}, nil, false},
	} {
		h, err := w.s.History(w.ctx, w.alice, "s", c.in)
		w.must(err)
		var turns []int64
		for _, r := range h.Runs {
			turns = append(turns, r.Turn)
			same(w, "characters of a turn", r.Chars, 4)
		}
		same(w, fmt.Sprintf("turns of %+v", c.in), fmt.Sprint(turns), fmt.Sprint(c.turns))
		same(w, fmt.Sprintf("%+v is cut", c.in), h.Cut, c.cut)
	}
}
