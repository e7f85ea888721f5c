package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hob"
)

// bent says whether a fault changed what the model or a tool answered, so that the run may take another way.
func (c *trial) bent() (model, tool bool) {
	for _, h := range c.met {
		if !h.mode.live() {
			continue
		}
		switch h.op {
		case "model call", "first delta", "delta", "last delta":
			model = true
		case "open model":
			model = model || c.play.settings["fallback_model"] != nil
		case "tool call", "Standing": // whose calls are refused where the store cannot say
			tool = true
		}
	}
	return model, tool
}

// check looks at what is stored after a trial.
func (c *trial) check(ctx context.Context) error {
	runs, err := c.runs(ctx)
	if err != nil {
		return err
	}
	if len(runs) > 1 {
		return fmt.Errorf("one request made %d runs", len(runs))
	}
	if c.accepted != "" && (len(runs) == 0 || runs[0].ID != c.accepted) {
		return fmt.Errorf("the accepted run %s is lost; there is %v", c.accepted, runs)
	}
	if c.play.keyed && len(runs) != 1 {
		return errors.New("the repeated request made no run")
	}
	for _, r := range runs {
		if err := c.checkRun(ctx, r); err != nil {
			return fmt.Errorf("run %s: %w", r.ID, err)
		}
	}
	return nil
}

// runs gives what the request made.
func (c *trial) runs(ctx context.Context) ([]hob.Run, error) {
	sessions, err := c.rig.store.Sessions(ctx, c.by, c.agent.ID, hob.SessionFilter{Limit: 100})
	if err != nil {
		return nil, err
	}
	var out []hob.Run
	for _, s := range sessions.Items {
		list, err := c.rig.store.SessionRuns(ctx, c.by, s.ID, 100, 0)
		if err != nil {
			return nil, err
		}
		if c.play.before {
			list = list[1:]
		}
		for _, r := range list {
			out = append(out, r.Run)
		}
	}
	return out, nil
}

func (c *trial) checkRun(ctx context.Context, run hob.Run) error {
	d, err := c.rig.store.RunDetail(ctx, c.by, run.ID)
	if err != nil {
		return err
	}
	log, err := c.rig.store.Events(ctx, c.by, run.ID, 0, 1000)
	if err != nil {
		return err
	}
	h, err := c.rig.store.History(ctx, c.by, run.Session, hob.HistoryRange{Before: run.Turn + 1, Budget: 1 << 30})
	if err != nil {
		return err
	}
	if err := hob.Validate(d.Messages); err != nil {
		return fmt.Errorf("its messages: %w", err)
	}
	if err := hob.Validate(h.Messages()); err != nil {
		return fmt.Errorf("its session's history: %w", err)
	}
	return errors.Join(c.checkEnd(d.Run), checkLog(d.Run, log), c.checkCalls(d, log), c.checkSeen(log), c.checkText(d.Run, log),
		c.checkLedger(ctx, d, log), c.checkPeople(ctx, d, log), c.checkHooks(ctx, d, log))
}

// checkEnd compares how the run ended with how it may.
func (c *trial) checkEnd(run hob.Run) error {
	model, tool := c.bent()
	got := end{run.Status, run.Code}
	switch {
	case slices.Contains(c.play.ends, got):
	case model && got == end{hob.Failed, hob.CodeProviderError}:
	case (model || tool) && got == end{hob.Completed, ""}: // the model came to an answer by another way
	default:
		return fmt.Errorf("it ended as %s (%s): %s", run.Status, run.Code, run.Error)
	}
	return nil
}

// checkLog wants events from 1 without a gap, start first, complete last, attempts that count up.
func checkLog(run hob.Run, log []hob.Event) error {
	attempt := 1
	for i, ev := range log {
		var head struct {
			hob.EventHead
			Attempt int `json:"attempt"`
		}
		if err := json.Unmarshal(ev.Data, &head); err != nil {
			return fmt.Errorf("event %d is no JSON: %w", i+1, err)
		}
		if ev.Seq != int64(i+1) || head.Seq != ev.Seq || head.Event != ev.Type || head.Run != run.ID {
			return fmt.Errorf("the event at %d has seq %d and head %+v", i+1, ev.Seq, head)
		}
		if (ev.Type == hob.EventStart) != (i == 0) || (ev.Type == hob.EventComplete) != (i == len(log)-1) {
			return fmt.Errorf("event %d of %d is %s", i+1, len(log), ev.Type)
		}
		if ev.Type == hob.EventAttempt {
			if head.Attempt <= attempt {
				return fmt.Errorf("attempt %d follows attempt %d", head.Attempt, attempt)
			}
			attempt = head.Attempt
		}
	}
	if int64(len(log)) != run.LastSeq {
		return fmt.Errorf("it says it has %d events and has %d", run.LastSeq, len(log))
	}
	return nil
}

// checkCalls compares the calls with what the tools did and with what was told of them.
func (c *trial) checkCalls(d hob.RunDetail, log []hob.Event) error {
	asked, told := map[hob.CallID]int{}, map[hob.CallID]hob.ToolResultEvent{}
	for _, ev := range log {
		var x hob.ToolResultEvent
		if ev.Type != hob.EventToolCall && ev.Type != hob.EventToolResult {
			continue
		}
		if err := json.Unmarshal(ev.Data, &x); err != nil {
			return err
		}
		_, twice := told[x.CallID]
		switch {
		case ev.Type == hob.EventToolCall:
			if asked[x.CallID]++; asked[x.CallID] > 1 {
				return fmt.Errorf("call %s was announced twice", x.CallID)
			}
		case asked[x.CallID] == 0:
			return fmt.Errorf("call %s has a result and was not announced", x.CallID)
		case twice:
			return fmt.Errorf("call %s has two results in the log", x.CallID)
		default:
			told[x.CallID] = x
		}
	}
	answers := map[hob.CallID]string{}
	for _, m := range d.Messages {
		if m.Role == hob.RoleTool {
			answers[m.CallID] = m.Content
		}
	}
	if len(told) != len(d.Calls) || len(answers) != len(d.Calls) {
		return fmt.Errorf("%d calls have %d results in the log and %d in the history", len(d.Calls), len(told), len(answers))
	}
	known := map[hob.CallID]bool{}
	for _, s := range d.Calls {
		known[s.ID] = true
		x := told[s.ID]
		if s.Status != hob.CallDone || x.Result != s.Result.Text || answers[s.ID] != s.Result.Text || x.OutcomeUnknown != s.Result.Unknown {
			return fmt.Errorf("call %s is %s with %q, its event says %q, its message %q", s.ID, s.Status, s.Result.Text, x.Result, answers[s.ID])
		}
		if err := c.checkDeeds(d.Run, s); err != nil {
			return fmt.Errorf("the %s call %s, whose result is %.60q: %w", s.Recovery, s.ID, s.Result.Text, err)
		}
	}
	for _, deed := range c.deeds {
		if deed.Run == d.Run.ID && !known[deed.ID] {
			return fmt.Errorf("call %s was carried out and is not stored", deed.ID)
		}
	}
	return nil
}

// checkDeeds compares a result with what was done for it.
func (c *trial) checkDeeds(run hob.Run, s hob.CallState) error {
	n := 0
	for _, deed := range c.deeds {
		if deed.Run != run.ID || deed.ID != s.ID {
			continue
		}
		if n++; string(deed.Arguments) != string(s.Arguments) {
			return fmt.Errorf("it was carried out with %s, and its record says %s", deed.Arguments, s.Arguments)
		}
		if want := string(run.ID) + ":" + string(s.ID); deed.Key != want {
			return fmt.Errorf("it was carried out under the key %q, not %q", deed.Key, want)
		}
	}
	_, tool := c.bent()
	success := strings.HasPrefix(s.Result.Text, did) && !s.Result.IsError
	refused := begins(s.Result.Text, refusals...)
	never := refused || begins(s.Result.Text, "Not executed", "Cancelled before")
	switch {
	case c.effects[s.ID] > 1 || s.Name == "local" && success && c.effects[s.ID] != 1:
		return fmt.Errorf("it took effect %d times", c.effects[s.ID])
	case refused && n > 0 && s.Recovery != hob.RecoverRead: // a read that a dead process made may be refused the next one
		return errors.New("it was refused and carried out")
	case s.Recovery == hob.RecoverOnce && n > 1:
		return fmt.Errorf("it was carried out %d times", n)
	case success && n == 0:
		return errors.New("it was never carried out")
	case never && n > 0 && s.Recovery == hob.RecoverOnce:
		return errors.New("it was carried out")
	case s.Result.Unknown && s.Recovery == hob.RecoverRead:
		return errors.New("a read is never unknown")
	case !success && !never && !s.Result.Unknown && n == 0 && !tool:
		return errors.New("it was not carried out")
	case s.Recovery != hob.RecoverOnce && !success && !refused && !tool && !strings.HasSuffix(s.Name, "_hang"):
		return errors.New("it can be repeated and was not carried out to its end")
	}
	return nil
}

// refusals are how the results of calls begin that were never to be carried out.
var refusals = []string{"Error: Unknown tool", "Error: Input validation", "Error: Whether the tool", "Error: Blocked by hook", "Not executed: Doom loop"}

func begins(text string, with ...string) bool {
	return slices.ContainsFunc(with, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

// checkSeen wants the client to have seen every event once, as it is stored.
func (c *trial) checkSeen(log []hob.Event) error {
	if c.accepted == "" {
		return nil
	}
	for i := range max(len(log), len(c.seen)) {
		if i >= len(log) || i >= len(c.seen) || c.seen[i].Seq != log[i].Seq || string(c.seen[i].Data) != string(log[i].Data) {
			return fmt.Errorf("the client saw %d of %d events, the first difference at %d", len(c.seen), len(log), i+1)
		}
	}
	return nil
}

// checkText wants the streamed text, as a client puts it together, to be the answer.
func (c *trial) checkText(run hob.Run, log []hob.Event) error {
	if run.Status != hob.Completed {
		return nil
	}
	type piece struct {
		seq  int64
		text string
	}
	var pieces []piece
	rewritten := false
	for _, ev := range log {
		var x struct {
			Delta, Content string
			VoidFrom       int64 `json:"void_from"`
			Reason         string
		}
		if err := json.Unmarshal(ev.Data, &x); err != nil {
			return err
		}
		switch ev.Type { //nolint:exhaustive // the others carry no text
		case hob.EventStepStarted:
			pieces = nil
		case hob.EventContentDelta:
			pieces = append(pieces, piece{ev.Seq, x.Delta})
		case hob.EventChunk:
			if len(c.play.tools) == 0 || rewritten { // else it tells the whole answer once more
				pieces = append(pieces, piece{ev.Seq, x.Content})
			}
		case hob.EventAttempt:
			pieces = slices.DeleteFunc(pieces, func(p piece) bool { return x.VoidFrom > 0 && p.seq >= x.VoidFrom })
		case hob.EventStepReset:
			if x.Reason != "output_recovery" {
				pieces = nil
			}
			rewritten = rewritten || x.Reason == "pre_response"
		}
	}
	var text strings.Builder
	for _, p := range pieces {
		text.WriteString(p.text)
	}
	if text.String() != run.Content {
		return fmt.Errorf("the stream says %q, the answer is %q", text.String(), run.Content)
	}
	return nil
}

// checkLedger wants no more model calls on the books than were made, a completed run to be there once, every call that came
// to a known answer to be there once under its action, and the run, its end and the books to agree.
func (c *trial) checkLedger(ctx context.Context, d hob.RunDetail, log []hob.Event) error {
	counts, tokens, err := c.ledger(ctx, d.Run.ID, hob.ByAction)
	if err != nil {
		return err
	}
	parts, _, err := c.ledger(ctx, d.Run.ID, hob.ByComponent)
	if err != nil {
		return err
	}
	if n := parts[hob.ComponentRun] + parts[hob.ComponentCompaction]; n > int64(c.calls) {
		return fmt.Errorf("%d model calls are on the books, %d were made", n, c.calls)
	}
	want := map[string]int64{}
	if n := counts[hob.ActionModelCall]; n > 0 {
		want[hob.ActionModelCall] = n
	}
	if d.Run.Status == hob.Completed {
		want[hob.ActionRun] = 1
	}
	eyes := int64(0)
	for _, s := range d.Calls {
		switch text := s.Result.Text; {
		case s.Result.Unknown, begins(text, refusals...), begins(text, "Not executed", "Cancelled before"),
			s.Name == "free" && strings.HasPrefix(text, did):
		case s.Name == "search" && strings.HasPrefix(text, did):
			want[hob.ActionWebSearch]++
			eyes++
		default:
			want[hob.ActionToolCall]++
		}
	}
	var complete hob.CompleteEvent
	if err := json.Unmarshal(log[len(log)-1].Data, &complete); err != nil {
		return err
	}
	switch {
	case !maps.Equal(counts, want):
		return fmt.Errorf("on the books are %v, not %v", counts, want)
	case !maps.Equal(counts, d.Actions) || !maps.Equal(counts, complete.Actions):
		return fmt.Errorf("on the books are %v, its record says %v, its end %v", counts, d.Actions, complete.Actions)
	case parts[hob.ComponentVision] != eyes:
		return fmt.Errorf("%d model calls of tools are on the books, not %d", parts[hob.ComponentVision], eyes)
	case d.Run.Usage.TotalTokens != tokens || tokens < eyes*eyeTokens:
		return fmt.Errorf("it says that it used %d tokens, on the books are %d", d.Run.Usage.TotalTokens, tokens)
	}
	return nil
}

// ledger gives what is on the books for a run, by group, and the tokens of all of it.
func (c *trial) ledger(ctx context.Context, run hob.RunID, by hob.UsageGroup) (counts map[string]int64, tokens int64, err error) {
	rows, err := c.rig.store.Usage(ctx, c.by, hob.UsageFilter{Run: run, GroupBy: by})
	counts = map[string]int64{}
	for _, r := range rows {
		counts[r.Key] = r.Quantity
		tokens += r.TotalTokens
	}
	return counts, tokens, err
}
