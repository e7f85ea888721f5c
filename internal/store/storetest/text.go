package storetest

import (
	"strings"

	"hob"
)

func textCases() map[string]func(*world) {
	return map[string]func(*world){
		"TextThatCannotBeKeptReadsAsReplaced": oddText,
		"TextOfEveryScriptIsKept":             scripts,
	}
}

// oddText: NUL and bytes that are not UTF-8 become U+FFFD, in what is stored as in what is asked for.
func oddText(w *world) {
	const odd, kept = "a\x00b\xffc", "a\uFFFDb\uFFFDc"
	n := w.newRun(w.alice, w.agent.ID, odd)
	n.Message.Content = odd
	n.Idempotency = &hob.Idempotency{Scope: odd, Key: odd, Digest: odd, Keep: 1 << 40}
	r := w.start(n)
	again, err := w.s.StartRun(w.ctx, n)
	w.must(err)
	same(w, "replayed", again.Replayed, true)
	c := ending(r, hob.Completed, odd)
	c.Outcome.Error, c.Outcome.Code = odd, odd
	c.Calls = []hob.CallState{{ID: odd, Name: odd, Status: hob.CallDone, Result: hob.Result{Text: odd}}}
	w.must(w.s.Commit(w.ctx, c))
	d, err := w.s.RunDetail(w.ctx, w.alice, r.ID)
	w.must(err)
	for what, got := range map[string]string{
		"content": d.Run.Content, "error": d.Run.Error, "code": d.Run.Code, "user": d.Messages[0].Content, "answer": d.Messages[1].Content,
		"call": string(d.Calls[0].ID), "name": d.Calls[0].Name, "result": d.Calls[0].Result.Text, "session": string(d.Run.Session),
	} {
		same(w, what, got, kept)
	}
	_, err = w.s.Session(w.ctx, w.alice, odd)
	w.must(err)
	page, err := w.s.Sessions(w.ctx, w.alice, w.agent.ID, hob.SessionFilter{Limit: 10, Search: odd})
	w.must(err)
	same(w, "found", page.Total, 1)
	agents, err := w.s.Agents(w.ctx, w.alice, hob.ListOptions{Limit: 10, Query: odd})
	w.must(err)
	same(w, "agents found", agents.Total, 0)
	_, err = w.s.RequestCancel(w.ctx, w.alice, odd, odd)
	w.want(hob.NotFound, err)
}

func scripts(w *world) {
	text := "ελληνικά, 日本語, עברית, é́, \U0001F9D1\u200d\U0001F680, \u2028 \u0007 \ufeff ' \" \\ % _ ? $1 :x --"
	text = strings.Repeat(text, 3)
	n := w.newRun(w.alice, w.agent.ID, "日本")
	n.Message.Content = text
	w.finish(w.start(n), text)
	got, err := w.s.History(w.ctx, w.alice, "日本", hob.HistoryRange{Before: 2, Budget: 1 << 20})
	w.must(err)
	list := got.Messages()
	if len(list) != 2 || list[0].Content != text || list[1].Content != text {
		w.t.Fatalf("history: %v", list)
	}
	page, err := w.s.Sessions(w.ctx, w.alice, w.agent.ID, hob.SessionFilter{Limit: 10, Search: "日本語, עברית"})
	w.must(err)
	same(w, "found", page.Total, 1)
}
