package storetest

import (
	"encoding/json"
	"strings"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func readCases() map[string]func(*world) {
	return map[string]func(*world){
		"EventsComeBehindAPosition":      eventsAfter,
		"RunDetailLeavesDeltasOut":       detailEvents,
		"BigValuesAreKeptWhole":          bigValues,
		"EventDataIsKeptByteForByte":     eventBytes,
		"RunOfAnotherOwnerReadsAsAbsent": foreignRun,
	}
}

func eventsAfter(w *world) {
	r := w.begin(w.alice, "s")
	for seq := int64(2); seq <= 9; seq++ {
		w.must(w.s.Commit(w.ctx, step(r, event(seq, hob.EventContentDelta, "x"))))
	}
	for _, c := range []struct {
		after int64
		limit int
		want  string
	}{{0, 100, "[1 2 3 4 5 6 7 8 9]"}, {0, 3, "[1 2 3]"}, {3, 3, "[4 5 6]"}, {8, 3, "[9]"}, {9, 3, "[]"}, {1000, 3, "[]"}, {-5, 2, "[1 2]"}} {
		events, err := w.s.Events(w.ctx, w.alice, r.ID, c.after, c.limit)
		w.must(err)
		same(w, "events", seqs(events), c.want)
	}
	_, err := w.s.Events(w.ctx, w.alice, "run_none", 0, 10)
	w.want(hob.NotFound, err)
}

func detailEvents(w *world) {
	r := w.begin(w.alice, "s")
	w.must(w.s.Commit(w.ctx, step(r, event(2, hob.EventStepStarted, ""), event(3, hob.EventReasoningDelta, "r"),
		event(4, hob.EventContentDelta, "c"), event(5, hob.EventChunk, "c"))))
	d, err := w.s.RunDetail(w.ctx, w.alice, r.ID)
	w.must(err)
	same(w, "events", seqs(d.Events), "[1 2 5]")
	list, err := w.s.SessionRuns(w.ctx, w.alice, "s", 10, 0)
	w.must(err)
	if diff := cmp.Diff([]hob.RunDetail{d}, list); diff != "" {
		w.t.Fatalf("the run in its session differs (-detail +listed):\n%s", diff)
	}
}

func bigValues(w *world) {
	content, result := strings.Repeat("0123456789abcdeé", 1<<16), strings.Repeat("r", 50_000)
	n := w.newRun(w.alice, w.agent.ID, "s")
	n.Message.Content = content
	r := w.start(n)
	c := step(r, event(2, hob.EventToolResult, result), event(3, hob.EventComplete, content))
	c.Base = 1
	c.Messages = []hob.Message{
		{Role: hob.RoleAssistant, Calls: []hob.ToolCall{{ID: "c1", Name: "t", Arguments: json.RawMessage(`{"x":"` + result + `"}`)}}},
		{Role: hob.RoleTool, CallID: "c1", Content: result},
		{Role: hob.RoleAssistant, Content: content},
	}
	c.Calls = []hob.CallState{{ID: "c1", Name: "t", Status: hob.CallDone, Arguments: json.RawMessage(`{}`), Result: hob.Result{Text: result}}}
	c.Outcome = &hob.Outcome{Status: hob.Completed, Content: content}
	w.must(w.s.Commit(w.ctx, c))
	d, err := w.s.RunDetail(w.ctx, w.alice, r.ID)
	w.must(err)
	if d.Run.Content != content || d.Calls[0].Result.Text != result || d.Messages[0].Content != content {
		w.t.Fatal("a big value came back changed")
	}
	if diff := cmp.Diff(c.Messages, d.Messages[1:]); diff != "" {
		w.t.Fatal("a big message came back changed")
	}
	if string(d.Events[2].Data) != string(c.Events[1].Data) {
		w.t.Fatal("a big event came back changed")
	}
}

func eventBytes(w *world) {
	r := w.begin(w.alice, "s")
	data := json.RawMessage("{\"seq\": 2,  \"a\":1.50, \"nul\":\"\\u0000\", \"e\":\"é\\u00e9 \U0001F600\", \"html\":\"<&>\"}")
	w.must(w.s.Commit(w.ctx, step(r, hob.Event{Seq: 2, Type: hob.EventChunk, Data: data, Time: now()})))
	events, err := w.s.Events(w.ctx, w.alice, r.ID, 1, 1)
	w.must(err)
	same(w, "data", string(events[0].Data), string(data))
}

func foreignRun(w *world) {
	r := w.begin(w.alice, "s")
	_, absent := w.s.Run(w.ctx, w.bob, "run_000000000000")
	for what, err := range map[string]error{
		"Run":       second(w.s.Run(w.ctx, w.bob, r.ID)),
		"RunDetail": second(w.s.RunDetail(w.ctx, w.bob, r.ID)),
		"Events":    second(w.s.Events(w.ctx, w.bob, r.ID, 0, 1)),
		"Cancel":    second(w.s.RequestCancel(w.ctx, w.bob, r.ID, hob.CodeCancelled)),
	} {
		w.want(hob.NotFound, err)
		if d := cmp.Diff(absent, err); d != "" {
			w.t.Errorf("%s of a foreign run differs from that of none:\n%s", what, d)
		}
	}
}

func second[T any](_ T, err error) error { return err }
