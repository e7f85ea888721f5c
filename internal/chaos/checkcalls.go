//go:build linux

package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"hob"
)

// callCounts are the figures of the calls.
type callCounts struct {
	all, done, refused, unknown, actedUnknown int
	effects, again, read, requests            int
	of                                        map[string]int // by tool
}

// calls compares the calls that Hob recorded with what the tools did and what the model read.
func (c *checker) calls() callCounts {
	n := callCounts{of: map[string]int{}}
	recorded := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(c.runs)) {
		s := c.runs[id]
		if !s.record.Status.Final() {
			for _, call := range s.record.ToolCalls {
				recorded[key(id, call.CallID)] = true
			}
			continue
		}
		results := c.results(s)
		for _, call := range s.record.ToolCalls {
			k := key(id, call.CallID)
			recorded[k] = true
			n.all++
			n.of[call.ToolName]++
			c.outcome(&n, k, call)
			c.unknown(id, call, results[call.CallID])
			c.known(&n, s, call)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(c.acts)) {
		a := c.acts[k]
		n.effects += a.effects
		n.again += len(a.arrived) - 1
		if !recorded[k] {
			c.bad(noStrayEffect, "%s acted for the key %s of run %s, which has no such call", a.tool, k, a.run)
		}
		if !strings.HasPrefix(k, string(a.run)+":") {
			c.bad(keysNameCalls, "%s was called with the key %s by run %s", a.tool, k, a.run)
		}
		if a.tool == toolOnce && a.effects > 1 {
			c.bad(onceAtMost, "the call %s of %s acted %d times", k, a.tool, a.effects)
		}
	}
	for _, times := range c.asked {
		n.requests += times
	}
	return n
}

func key(run hob.RunID, call hob.CallID) string { return string(run) + ":" + string(call) }

// results are the tool_result events of a run.
func (c *checker) results(s *story) map[hob.CallID]hob.ToolResultEvent {
	all := map[hob.CallID]hob.ToolResultEvent{}
	for _, e := range s.log {
		if e.kind != hob.EventToolResult {
			continue
		}
		var r hob.ToolResultEvent
		if err := json.Unmarshal(e.data, &r); err != nil {
			c.bad(logsWhole, "run %s: event %d cannot be read: %v", s.record.ID, e.seq, err)
			continue
		}
		if _, twice := all[r.CallID]; twice {
			c.bad(logsWhole, "run %s: the call %s has two results", s.record.ID, r.CallID)
		}
		all[r.CallID] = r
	}
	return all
}

// outcome compares what the record says of a call with what the tool did. A result is the tool's own answer, or says that
// the call was not made, or that nobody knows.
func (c *checker) outcome(n *callCounts, k string, call hob.CallRecord) {
	a := c.acts[k]
	effects := 0
	if a != nil {
		effects = a.effects
	}
	switch {
	case call.OutcomeUnknown:
		n.unknown++
		if effects > 0 {
			n.actedUnknown++
		}
	case call.IsError:
		n.refused++
		if effects > 0 && call.ToolName != toolRead {
			c.bad(doneWasDone, "the call %s acted, and its result says %q", k, call.Result)
		}
	default:
		n.done++
		if effects == 0 {
			c.bad(doneWasDone, "the call %s never acted, and its result says %q", k, call.Result)
		} else if !slices.Contains(a.answers, call.Result) {
			c.bad(doneWasDone, "the call %s has a result that the tool never gave: %q", k, call.Result)
		}
	}
}

// unknown wants a call of which nobody knows to be told as such everywhere: in the record, in the event and in the text
// that the model reads; and no other call to be told so.
func (c *checker) unknown(run hob.RunID, call hob.CallRecord, told hob.ToolResultEvent) {
	k := key(run, call.CallID)
	if told.OutcomeUnknown != call.OutcomeUnknown || told.Result != call.Result || told.IsError != call.IsError {
		c.bad(unknownTold, "the call %s is recorded as unknown %t %q, and its event says %t %q",
			k, call.OutcomeUnknown, call.Result, told.OutcomeUnknown, told.Result)
	}
	if call.OutcomeUnknown && !call.IsError {
		c.bad(unknownTold, "the outcome of the call %s is unknown, and it is told as no error", k)
	}
	if call.OutcomeUnknown && !strings.Contains(call.Result, unknownWord) && !strings.Contains(call.Result, unknownWords) {
		c.bad(unknownTold, "the outcome of the call %s is unknown, and the model reads %q", k, call.Result)
	}
}

// known wants the model to have read the result of a call as it is recorded, in a run that completed.
func (c *checker) known(n *callCounts, s *story, call hob.CallRecord) {
	texts := c.told[c.markOf(s.record.ID)][call.CallID]
	switch {
	case slices.Contains(texts, call.Result):
		n.read++
	case s.record.Status == hob.Completed:
		c.bad(modelReads, "the run %s completed, and the model never read the result %q of %s, but %q", s.record.ID, call.Result, call.CallID, texts)
	}
}

// markOf is the mark of a run's message.
func (c *checker) markOf(run hob.RunID) string {
	s := c.runs[run]
	if s == nil || len(s.record.InputMessages) == 0 {
		return ""
	}
	mark, _, err := readMessage(s.record.InputMessages[0].Content)
	if err != nil {
		return ""
	}
	return mark
}
