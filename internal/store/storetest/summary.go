package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"hob"
)

func summaryCases() map[string]func(*world) {
	return map[string]func(*world){
		"SummaryStandsForEarlierTurns":          summaryTurns,
		"SummaryCoversTheBeginningOfItsOwnTurn": summaryOwnTurn,
		"SummaryNewestCounts":                   summaryNewest,
		"SummaryOfALaterTurnIsNotForAnEarlier":  summaryLater,
		"SummaryCountsOnlyWhatIsGiven":          summaryChars,
		"SummaryIsFencedAndWholeWithItsCommit":  summaryFenced,
		"SummaryGoesWithItsSession":             summaryDeleted,
		"SummaryNeedsATextAndAPlace":            summaryRefused,
		"SummaryIsTheSessionsOwn":               summaryApart,
	}
}

// summed commits a summary from a run.
func (w *world) summed(r hob.Run, index int, text string) {
	w.t.Helper()
	c := step(r)
	c.Summary = &hob.Summary{Turn: 99, Index: index, Text: text} // the turn is the run's, whatever it says
	w.must(w.s.Commit(w.ctx, c))
}

// summary tells what a history gives: its summary, then per run the turn, the characters and the messages.
func (w *world) summary(id hob.SessionID, r hob.HistoryRange) string {
	w.t.Helper()
	h, err := w.s.History(w.ctx, w.alice, id, r)
	w.must(err)
	w.must(hob.Validate(h.Messages()))
	var out []string
	if h.Summary != nil {
		out = append(out, fmt.Sprintf("[%s %d.%d]", h.Summary.Text, h.Summary.Turn, h.Summary.Index))
	}
	for _, p := range h.Runs {
		text := fmt.Sprintf("%d/%d:", p.Turn, p.Chars)
		for _, m := range p.Messages {
			text += m.Content + ","
		}
		out = append(out, strings.TrimSuffix(text, ","))
	}
	if h.Cut {
		out = append(out, "cut")
	}
	return strings.Join(out, " ")
}

// work is a run with two steps, each a call and its result of one character, that goes on: its messages have the
// indexes 0 (the user's, q), 1, 2, 3, 4.
func (w *world) work(id hob.SessionID) hob.Run {
	w.t.Helper()
	n := w.newRun(w.alice, w.agent.ID, id)
	n.Message.Content = "q"
	r := w.start(n)
	c := step(r)
	c.Base = 1
	for _, name := range []hob.CallID{"a", "b"} {
		c.Messages = append(c.Messages,
			hob.Message{Role: hob.RoleAssistant, Content: "call " + string(name), Calls: []hob.ToolCall{{ID: name, Name: "t", Arguments: json.RawMessage(`{}`)}}},
			hob.Message{Role: hob.RoleTool, CallID: name, Name: "t", Content: string(name)})
	}
	w.must(w.s.Commit(w.ctx, c))
	return r
}

// done ends a run of work with an answer.
func (w *world) done(r hob.Run) {
	w.t.Helper()
	c := ending(r, hob.Completed, "done")
	c.Base = 5
	w.must(w.s.Commit(w.ctx, c))
}

func summaryTurns(w *world) {
	for i := range 3 {
		w.say("s", fmt.Sprintf("u%d", i+1), fmt.Sprintf("a%d", i+1))
	}
	same(w, "without a summary", w.summary("s", hob.HistoryRange{Before: 9, Budget: 100}), "1/4:u1,a1 2/4:u2,a2 3/4:u3,a3")
	r := w.begin(w.alice, "s") // turn 4
	w.summed(r, 0, "sum")
	// The run under way is taken up again: nothing before it is given but the summary.
	same(w, "for the run itself", w.summary("s", hob.HistoryRange{Before: 4, Budget: 100}), "[sum 4.0]")
	w.finish(r, "a4")
	w.say("s", "u5", "a5")
	user := "hello from " + string(r.ID)
	fourth := fmt.Sprintf("4/%d:%s,a4", len(user)+2, user)
	for name, c := range map[string]struct {
		in   hob.HistoryRange
		want string
	}{
		"everything":       {hob.HistoryRange{Before: 9, Budget: 100}, "[sum 4.0] " + fourth + " 5/4:u5,a5"},
		"after the second": {hob.HistoryRange{After: 2, Before: 9, Budget: 100}, "[sum 4.0] " + fourth + " 5/4:u5,a5"},
		"after the fourth": {hob.HistoryRange{After: 4, Before: 9, Budget: 100}, "[sum 4.0] 5/4:u5,a5"},
		"cut":              {hob.HistoryRange{Before: 9, Budget: 4}, "[sum 4.0] 5/4:u5,a5 cut"},
		"empty range":      {hob.HistoryRange{After: 8, Before: 9, Budget: 4}, "[sum 4.0]"},
		"the fifth alone":  {hob.HistoryRange{After: 4, Before: 6, Budget: 4}, "[sum 4.0] 5/4:u5,a5"},
	} {
		same(w, name, w.summary("s", c.in), c.want)
	}
}

func summaryOwnTurn(w *world) {
	w.say("s", "u1", "a1")
	for i, want := range []string{
		"2/25:q,call a,a,call b,b,done", // 0: nothing is covered
		"2/25:q,call a,a,call b,b,done", // 1: only the user's message lies before it, which stays
		"2/16:q,call b,b,done",          // 2: a result without its call is not told
		"2/15:q,call b,b,done",          // 3
		"2/6:q,done",                    // 4
		"2/5:q,done",                    // 5
		"2/1:q,[The previous turn gave no answer.]",
	} {
		id := hob.SessionID(fmt.Sprintf("s%d", i))
		w.say(id, "u1", "a1")
		r := w.work(id)
		w.summed(r, i, "sum")
		w.done(r)
		same(w, fmt.Sprintf("index %d", i), w.summary(id, hob.HistoryRange{Before: 3, Budget: 100}), fmt.Sprintf("[sum 2.%d] %s", i, want))
		// A driver that takes such a run up again gets all of its messages.
		st, err := w.s.Load(w.ctx, r.ID)
		w.must(err)
		same(w, "messages of the run", len(st.Messages), 6)
	}
}

func summaryNewest(w *world) {
	w.say("s", "u1", "a1")
	r := w.work("s")
	w.summed(r, 0, "first")
	w.summed(r, 3, "second")
	same(w, "while it runs", w.summary("s", hob.HistoryRange{Before: 2, Budget: 100}), "[second 2.3]")
	w.done(r)
	same(w, "history", w.summary("s", hob.HistoryRange{Before: 3, Budget: 100}), "[second 2.3] 2/15:q,call b,b,done")
	next := w.begin(w.alice, "s")
	w.summed(next, 0, "third")
	same(w, "the next turn's", w.summary("s", hob.HistoryRange{Before: 3, Budget: 100}), "[third 3.0]")
	// One that reaches less far does not count, though it is newer: a run beside it may have summed up more. Of two that
	// reach as far the newer one counts.
	w.finish(next, "done")
	last := w.begin(w.alice, "s")
	w.summed(last, 1, "fourth")
	w.summed(last, 0, "fifth")
	same(w, "the one that reaches furthest", w.summary("s", hob.HistoryRange{Before: 4, Budget: 100}), "[fourth 4.1]")
	w.summed(last, 1, "sixth")
	same(w, "the newer of two", w.summary("s", hob.HistoryRange{Before: 4, Budget: 100}), "[sixth 4.1]")
}

// summaryLater: turns that run side by side do not see what a later one has summed up.
func summaryLater(w *world) {
	w.say("s", "u1", "a1")
	second, third := w.begin(w.alice, "s"), w.begin(w.alice, "s")
	w.summed(second, 0, "second")
	w.summed(third, 0, "third")
	same(w, "before the second", w.summary("s", hob.HistoryRange{Before: 2, Budget: 100}), "[second 2.0]")
	same(w, "before the third", w.summary("s", hob.HistoryRange{Before: 3, Budget: 100}), "[third 3.0]")
	same(w, "of the first alone", w.summary("s", hob.HistoryRange{Before: 1, Budget: 100}), "")
	w.finish(third, "a3")
	same(w, "of all", w.summary("s", hob.HistoryRange{After: 3, Before: 4, Budget: 100}), "[third 3.0]")
}

// summaryChars: what a summary covers leaves room in the budget for other turns.
func summaryChars(w *world) {
	r := w.work("s") // with its answer 25 characters, of which 5 are given
	w.summed(r, 5, "sum")
	w.done(r)
	w.say("s", "u2", "a2")
	same(w, "fits", w.summary("s", hob.HistoryRange{Before: 9, Budget: 9}), "[sum 1.5] 1/5:q,done 2/4:u2,a2")
	same(w, "does not fit", w.summary("s", hob.HistoryRange{Before: 9, Budget: 8}), "[sum 1.5] 2/4:u2,a2 cut")
}

func summaryFenced(w *world) {
	w.say("s", "u1", "a1")
	r := w.begin(w.alice, "s")
	none := func(when string) {
		w.t.Helper()
		same(w, when, w.summary("s", hob.HistoryRange{Before: 2, Budget: 100}), "1/4:u1,a1")
	}
	c := step(r)
	c.Summary = &hob.Summary{Text: "sum"}
	old := c
	old.Epoch = 0
	w.want(hob.Fenced, w.s.Commit(w.ctx, old))
	none("from an older epoch")
	taken := c
	taken.Base, taken.Messages = 0, []hob.Message{{Role: hob.RoleAssistant, Content: "on the user's place"}}
	if w.s.Commit(w.ctx, taken) == nil {
		w.t.Fatal("a message was put on another one's place")
	}
	none("with a commit that failed")
	claimed, err := w.s.Claim(w.ctx, "p2", lease, 1, true)
	w.must(err)
	w.want(hob.Fenced, w.s.Commit(w.ctx, c))
	none("after another process took over")
	c.Epoch = claimed[0].Epoch
	w.must(w.s.Commit(w.ctx, c))
	same(w, "from the new driver", w.summary("s", hob.HistoryRange{Before: 2, Budget: 100}), "[sum 2.0]")
	r.Epoch = c.Epoch
	w.finish(r, "a2")
	c.Summary = &hob.Summary{Text: "late"}
	w.want(hob.Fenced, w.s.Commit(w.ctx, c))
	same(w, "after the end", w.summary("s", hob.HistoryRange{After: 2, Before: 3, Budget: 100}), "[sum 2.0]")
}

func summaryDeleted(w *world) {
	r := w.begin(w.alice, "s")
	w.summed(r, 0, "sum")
	w.must(w.s.DeleteSession(w.ctx, w.alice, "", "s"))
	c := step(r)
	c.Summary = &hob.Summary{Text: "late"}
	w.want(hob.Fenced, w.s.Commit(w.ctx, c))
	w.say("s", "u1", "a1") // in the place of the deleted one
	same(w, "history", w.summary("s", hob.HistoryRange{Before: 9, Budget: 100}), "1/4:u1,a1")
}

func summaryRefused(w *world) {
	r := w.begin(w.alice, "s")
	for _, sum := range []hob.Summary{{Text: ""}, {Text: "x", Index: -1}} {
		c := step(r, event(2, hob.EventChunk, "x"))
		c.Summary = &sum
		if w.s.Commit(w.ctx, c) == nil {
			w.t.Fatalf("%+v was taken", sum)
		}
	}
	got, err := w.s.Run(w.ctx, w.alice, r.ID)
	w.must(err)
	same(w, "last seq", got.LastSeq, 1)
	same(w, "history", w.summary("s", hob.HistoryRange{Before: 1, Budget: 100}), "")
}

func summaryApart(w *world) {
	w.say("a", "u1", "a1")
	w.say("b", "u1", "b1")
	r := w.begin(w.alice, "a")
	w.summed(r, 0, "of a\x00")
	same(w, "a", w.summary("a", hob.HistoryRange{Before: 2, Budget: 100}), "[of a\uFFFD 2.0]")
	same(w, "b", w.summary("b", hob.HistoryRange{Before: 2, Budget: 100}), "1/4:u1,b1")
}
