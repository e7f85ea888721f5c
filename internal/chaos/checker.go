//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hob"
)

// How the result of a call reads whose outcome is not known: behind a crash, and where an answer did not come.
const (
	unknownWord  = "outcome_unknown"
	unknownWords = "may have"
)

// checker compares the ledger with what Hob shows. It reads both and changes neither.
type checker struct {
	*ledger
	found
	broken map[string][]string // by promise
}

// check judges every promise that holds for any run, from the ledger of a part and what Hob shows when all is quiet.
func check(l *ledger, f found) []verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &checker{ledger: l, found: f, broken: map[string][]string{}}
	for promise, list := range l.faults {
		c.broken[promise] = slices.Clone(list)
	}
	for _, odd := range l.unread {
		c.bad(noStrayEffect, "%s", odd)
	}
	byMark := c.marks()
	accepted := 0
	for _, m := range c.inOrder() {
		if m.acked > 0 {
			accepted++
		}
		c.message(m, byMark[m.mark])
	}
	c.order()
	events := 0
	for _, id := range slices.Sorted(maps.Keys(c.runs)) {
		c.log(c.runs[id])
		events += len(c.runs[id].log)
	}
	seen := c.shown()
	calls := c.calls()
	return c.verdicts(accepted, events, seen, calls)
}

func (c *checker) bad(promise, format string, args ...any) {
	c.broken[promise] = append(c.broken[promise], fmt.Sprintf(format, args...))
}

// inOrder are the messages by their marks.
func (c *checker) inOrder() []*message {
	return slices.SortedFunc(maps.Values(c.messages), func(a, b *message) int { return strings.Compare(a.mark, b.mark) })
}

// marks finds the runs that Hob has for each message.
func (c *checker) marks() map[string][]hob.RunID {
	by := map[string][]hob.RunID{}
	for _, id := range slices.Sorted(maps.Keys(c.runs)) {
		r := c.runs[id].record
		if len(r.InputMessages) != 1 {
			c.bad(acceptedKept, "run %s has %d messages of the user", id, len(r.InputMessages))
			continue
		}
		mark, _, err := readMessage(r.InputMessages[0].Content)
		if m := c.messages[mark]; err != nil || m == nil || m.text != r.InputMessages[0].Content || m.session != r.SessionID {
			c.bad(acceptedKept, "run %s has a message that nobody sent: %q in session %s", id, r.InputMessages[0].Content, r.SessionID)
			continue
		}
		by[mark] = append(by[mark], id)
	}
	return by
}

// message checks one message against the runs that Hob has for it.
func (c *checker) message(m *message, runs []hob.RunID) {
	if len(runs) > 1 || len(m.runs) > 1 {
		c.bad(oneRunPerKey, "message %s has the runs %v, and clients were told of %v", m.mark, runs, m.runs)
	}
	for _, id := range m.runs {
		if !slices.Contains(runs, id) {
			c.bad(acceptedKept, "run %s of message %s was acknowledged and is not there", id, m.mark)
		}
	}
	for _, id := range runs {
		r := c.runs[id].record
		switch {
		case !r.Status.Final():
			c.bad(runsEnd, "run %s of message %s is still %s", id, m.mark, r.Status)
		case r.Status == hob.Cancelled && !m.cancel:
			c.bad(runsEnd, "run %s of message %s is cancelled (%s), and nobody asked for it", id, m.mark, orEmpty(r.Code))
		case r.Status == hob.Failed:
			c.bad(runsEnd, "run %s of message %s failed: %s %s", id, m.mark, orEmpty(r.Code), orEmpty(r.Error))
		case r.Status == hob.Completed:
			c.planned(m, r)
		}
	}
}

// planned wants a completed run to have exactly the calls of its plan, each made by a model that had read the recorded
// results of the steps before, and the answer to all of them.
func (c *checker) planned(m *message, r hob.RunRecord) {
	results := map[hob.CallID]hob.CallRecord{}
	for _, call := range r.ToolCalls {
		results[call.CallID] = call
	}
	var read []string
	planned := 0
	for step, tools := range m.plan.steps {
		before := slices.Clone(read)
		for i, tool := range tools {
			call, there := results[callID(m.mark, step, i)]
			planned++
			switch {
			case !there || call.ToolName != tool:
				c.bad(answersWhole, "run %s of message %s has no call %s of %s", r.ID, m.mark, callID(m.mark, step, i), tool)
			case !sameJSON(call.Arguments, encode(arguments(m.mark, step, i, before))):
				c.bad(modelReads, "run %s of message %s: the call %s was made behind other results than those recorded: %s",
					r.ID, m.mark, call.CallID, call.Arguments)
			}
			read = append(read, call.Result)
		}
	}
	if len(r.ToolCalls) != planned {
		c.bad(answersWhole, "run %s of message %s has %d calls, want %d", r.ID, m.mark, len(r.ToolCalls), planned)
	}
	if want := answer(m.mark, m.plan, read); r.Content != want {
		c.bad(answersWhole, "run %s of message %s answers %q, want %q", r.ID, m.mark, r.Content, want)
	}
}

// sameJSON says whether two objects have the same members.
func sameJSON(a, b json.RawMessage) bool {
	x, err := hob.Canonical(a)
	y, err2 := hob.Canonical(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// order wants the acknowledged messages of each session in the order in which its client sent them, one behind the end
// of the other.
func (c *checker) order() {
	sent := map[hob.SessionID][]*message{}
	for _, m := range c.messages {
		if len(m.runs) == 1 {
			sent[m.session] = append(sent[m.session], m)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(sent)) {
		slices.SortFunc(sent[id], func(a, b *message) int { return a.acked - b.acked })
		var want, got []hob.RunID
		for _, m := range sent[id] {
			if c.runs[m.runs[0]] != nil { // a lost one is told of elsewhere
				want = append(want, m.runs[0])
			}
		}
		for _, run := range c.sessions[id] {
			if slices.Contains(want, run) {
				got = append(got, run)
			}
		}
		if !slices.Equal(want, got) {
			c.bad(sessionOrder, "session %s has the runs %v, and they were acknowledged as %v", id, got, want)
		}
	}
}

// log wants the events of a run to be numbered from 1 on, to begin with start and to end with complete.
func (c *checker) log(s *story) {
	r := s.record
	for i, e := range s.log {
		if e.seq != int64(i+1) || e.run != r.ID {
			c.bad(logsWhole, "run %s: event %d of its log has the number %d and is of run %s", r.ID, i+1, e.seq, e.run)
			return
		}
		if (e.kind == hob.EventStart) != (i == 0) || e.kind == hob.EventComplete && i != len(s.log)-1 {
			c.bad(logsWhole, "run %s: event %d of %d is %s", r.ID, e.seq, len(s.log), e.kind)
		}
	}
	switch {
	case !r.Status.Final():
	case len(s.log) == 0 || s.log[len(s.log)-1].kind != hob.EventComplete:
		c.bad(logsWhole, "run %s is %s, and its log of %d events has no end", r.ID, r.Status, len(s.log))
	case int64(len(s.log)) != r.LastSeq:
		c.bad(logsWhole, "run %s has %d events, and its record says %d", r.ID, len(s.log), r.LastSeq)
	default:
		var end hob.CompleteEvent
		if err := json.Unmarshal(s.log[len(s.log)-1].data, &end); err != nil || end.Status != r.Status || end.Content != r.Content {
			c.bad(logsWhole, "run %s is %s with %q, and its log ends as %s with %q", r.ID, r.Status, r.Content, end.Status, end.Content)
		}
	}
	kept := 0
	for _, e := range s.log {
		if e.kind.Delta() {
			continue
		}
		if kept >= len(r.Events) || !bytes.Equal(r.Events[kept], e.data) {
			c.bad(logsWhole, "run %s: event %d is not the same in its record", r.ID, e.seq)
			return
		}
		kept++
	}
}

// shown wants every event that any reader got to be in the log, byte for byte; it counts them.
func (c *checker) shown() int {
	n := 0
	for _, id := range slices.Sorted(maps.Keys(c.seen)) {
		s := c.runs[id]
		for _, seq := range slices.Sorted(maps.Keys(c.seen[id])) {
			n++
			switch {
			case s == nil || seq < 1 || seq > int64(len(s.log)):
				c.bad(shownStays, "event %d of run %s was shown and is gone", seq, id)
			case fingerprint(sha256.Sum256(s.log[seq-1].data)) != c.seen[id][seq]:
				c.bad(shownStays, "event %d of run %s was shown and has changed", seq, id)
			}
		}
	}
	return n
}

// verdicts puts the promises in the order in which they are printed.
func (c *checker) verdicts(accepted, events, seen int, calls callCounts) []verdict {
	v := func(promise, format string, args ...any) verdict {
		return judge(promise, c.broken[promise], format, args...)
	}
	requests := 0
	for _, m := range c.messages {
		requests += m.requests
	}
	return []verdict{
		v(acceptedKept, "%d accepted, %d lost or strange", accepted, len(c.broken[acceptedKept])),
		v(runsEnd, "%d runs, %d did not end as they should", len(c.runs), len(c.broken[runsEnd])),
		v(oneRunPerKey, "%d keys in %d requests, %d with two runs", len(c.messages), requests, len(c.broken[oneRunPerKey])),
		v(sessionOrder, "%d sessions", len(c.sessions)),
		v(noGaps, "%d events read, %d gaps or repeats", seen, len(c.broken[noGaps])),
		v(shownStays, "%d events read, %d gone or changed", seen, len(c.broken[shownStays])),
		v(logsWhole, "%d logs with %d events", len(c.runs), events),
		v(answersWhole, "%d runs", len(c.runs)),
		v(onceAtMost, "%d once-calls recorded, %d acted twice", calls.of[toolOnce], len(c.broken[onceAtMost])),
		v(doneWasDone, "%d calls recorded: %d done, %d not done, %d unknown", calls.all, calls.done, calls.refused, calls.unknown),
		v(noStrayEffect, "the tools acted %d times, %d that no log knows", calls.effects, len(c.broken[noStrayEffect])),
		v(keysNameCalls, "%d keys reached a tool, %d requests repeated one", len(c.acts), calls.again),
		v(unknownTold, "%d calls unknown, %d of them had acted", calls.unknown, calls.actedUnknown),
		v(modelReads, "the model read the results of %d of %d calls, in %d requests", calls.read, calls.all, calls.requests),
	}
}
