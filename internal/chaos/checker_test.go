//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hob"
)

// play is a made-up part: a ledger and what Hob shows, in which every promise is kept. Each test breaks one.
type play struct {
	l *ledger
	f found
}

const playedRun hob.RunID = "run_a"

// played has a message whose run called all three tools, and one whose run called none; both completed.
func played() play {
	p := play{newLedger(), found{runs: map[hob.RunID]*story{}, sessions: map[hob.SessionID][]hob.RunID{}}}
	p.run("a", playedRun, plan{steps: [][]string{{toolOnce, toolKeyed, toolRead}}, words: 2})
	p.run("b", "run_b", plan{words: 1})
	return p
}

// run plays a whole run of a message.
func (p play) run(mark string, id hob.RunID, pl plan) {
	m := &message{mark: mark, text: messageText(mark, pl), key: "key-" + mark, session: "s", plan: pl}
	p.l.add(m)
	p.l.sent(m)
	p.l.ack(m, id)
	s := &story{record: hob.RunRecord{
		ID: id, RunID: id, SessionID: "s", Status: hob.Completed, InputMessages: []hob.Message{{Role: hob.RoleUser, Content: m.text}},
	}}
	p.f.runs[id], p.f.sessions["s"] = s, append(p.f.sessions["s"], id)
	s.event(hob.EventStart, map[string]any{})
	var read []string
	for step, tools := range pl.steps {
		results, before := map[hob.CallID]string{}, slices.Clone(read)
		for i, tool := range tools {
			call := callID(mark, step, i)
			a := p.l.arrival(act{key: key(id, call), tool: tool, mark: mark, body: "{}", run: id})
			c := hob.CallRecord{ToolName: tool, CallID: call, Arguments: encode(arguments(mark, step, i, before)), Result: p.l.effect(a)}
			s.record.ToolCalls = append(s.record.ToolCalls, c)
			results[call], read = c.Result, append(read, c.Result)
		}
		p.l.reads(mark, results)
	}
	for _, c := range s.record.ToolCalls {
		s.event(hob.EventToolResult, map[string]any{"call_id": c.CallID, "result": c.Result})
	}
	s.record.Content = answer(mark, pl, read)
	s.event(hob.EventContentDelta, map[string]any{"delta": s.record.Content})
	s.event(hob.EventComplete, map[string]any{"status": hob.Completed, "content": s.record.Content})
	for _, e := range s.log {
		p.l.event(id, e.seq, e.kind, e.data)
	}
	p.l.finished(m)
}

// event puts an event at the end of a run's log, and into its record.
func (s *story) event(kind hob.EventType, fields map[string]any) {
	fields["event"], fields["seq"], fields["run_id"] = kind, len(s.log)+1, s.record.ID
	e := frame{int64(len(s.log) + 1), kind, s.record.ID, encode(fields)}
	s.log = append(s.log, e)
	s.record.LastSeq = e.seq
	if !kind.Delta() {
		s.record.Events = append(s.record.Events, e.data)
	}
}

// call is the recorded call of the played run that a tool was asked for.
func (p play) call(tool string) *hob.CallRecord {
	calls := p.f.runs[playedRun].record.ToolCalls
	return &calls[slices.IndexFunc(calls, func(c hob.CallRecord) bool { return c.ToolName == tool })]
}

func (p play) act(tool string) *act { return p.l.acts[key(playedRun, p.call(tool).CallID)] }

// retell gives a call another result everywhere: in the record, in its event, and in what the model read.
func (p play) retell(tool string, change func(*hob.CallRecord)) {
	c, s := p.call(tool), p.f.runs[playedRun]
	change(c)
	s.log, s.record.Events = nil, nil
	s.event(hob.EventStart, map[string]any{})
	var read []string
	results := map[hob.CallID]string{}
	for _, c := range s.record.ToolCalls {
		s.event(hob.EventToolResult, map[string]any{
			"call_id": c.CallID, "result": c.Result, "is_error": c.IsError, "outcome_unknown": c.OutcomeUnknown,
		})
		read, results[c.CallID] = append(read, c.Result), c.Result
	}
	s.record.Content = answer("a", p.l.messages["a"].plan, read)
	s.event(hob.EventComplete, map[string]any{"status": hob.Completed, "content": s.record.Content})
	delete(p.l.seen, playedRun)
	p.l.reads("a", results)
}

// broken are the promises that a check finds broken.
func (p play) broken() []string {
	var names []string
	for _, v := range check(p.l, p.f) {
		if v.broken() {
			names = append(names, v.name)
		}
	}
	return names
}

func TestCheck_KeptPromisesAreOK(t *testing.T) {
	t.Parallel()
	p := played()
	verdicts := check(p.l, p.f)
	for _, v := range verdicts {
		if v.broken() {
			t.Errorf("%s: %v", v.name, v.violations)
		}
	}
	if len(verdicts) != 14 {
		t.Errorf("%d promises are judged, want 14", len(verdicts))
	}
}

// What is allowed must not be told as broken, or nobody would believe the rest.
func TestCheck_WhatACrashMayDoIsOK(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(p play){
		"a keyed call is sent twice": func(p play) {
			a := p.act(toolKeyed)
			p.l.effect(p.l.arrival(*a))
		},
		"a read call acts twice, and the second result is kept": func(p play) {
			again := p.l.effect(p.act(toolRead))
			p.retell(toolRead, func(c *hob.CallRecord) { c.Result = again })
		},
		"an unknown once-call acted": func(p play) {
			p.retell(toolOnce, func(c *hob.CallRecord) { c.Result, c.IsError, c.OutcomeUnknown = unknownWord+": …", true, true })
		},
		"an unknown once-call never arrived": func(p play) {
			p.retell(toolOnce, func(c *hob.CallRecord) { c.Result, c.IsError, c.OutcomeUnknown = unknownWord+": …", true, true })
			delete(p.l.acts, key(playedRun, p.call(toolOnce).CallID))
		},
		"a call is refused and never arrived": func(p play) {
			p.retell(toolOnce, func(c *hob.CallRecord) { c.Result, c.IsError = "not made", true })
			delete(p.l.acts, key(playedRun, p.call(toolOnce).CallID))
		},
		"the model reads a result that is lost, and then the kept one": func(p play) {
			p.l.reads("a", map[hob.CallID]string{p.call(toolRead).CallID: "lost"})
		},
		"a run is cancelled because a client asked": func(p play) {
			p.l.wantsCancel(p.l.messages["b"])
			s := p.f.runs["run_b"]
			s.record.Status, s.record.Content = hob.Cancelled, ""
			s.log, s.record.Events = s.log[:2], s.record.Events[:1]
			s.event(hob.EventComplete, map[string]any{"status": hob.Cancelled, "content": ""})
			delete(p.l.seen, "run_b")
		},
		"a message was never accepted": func(p play) { p.l.add(&message{mark: "c", text: "x", session: "s"}) },
		"an accepted run was never answered": func(p play) {
			m := p.l.messages["b"]
			m.runs, m.acked = nil, 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := played()
			change(p)
			for _, v := range check(p.l, p.f) {
				if v.broken() {
					t.Errorf("%s: %v", v.name, v.violations)
				}
			}
		})
	}
}

func TestCheck_FindsEachBrokenPromise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(p play)
		want   []string
	}{
		{"an acknowledged run is gone", func(p play) {
			delete(p.f.runs, "run_b")
			p.f.sessions["s"] = []hob.RunID{playedRun}
		}, []string{acceptedKept, shownStays}},
		{"its message has changed", func(p play) {
			p.f.runs["run_b"].record.InputMessages[0].Content += "!"
		}, []string{acceptedKept}},
		{"its message is gone", func(p play) { p.f.runs["run_b"].record.InputMessages = nil }, []string{acceptedKept}},
		{"it is in another session", func(p play) { p.f.runs["run_b"].record.SessionID = "other" }, []string{acceptedKept}},
		{"a run is there that nobody asked for", func(p play) {
			p.f.runs["run_x"] = &story{record: hob.RunRecord{ID: "run_x", Status: hob.Queued, InputMessages: []hob.Message{{Content: "mark=x plan=text1"}}}}
		}, []string{acceptedKept}},
		{"a start was refused for good", func(p play) { p.l.fault(acceptedKept, "refused") }, []string{acceptedKept}},
		{"a run is stuck", func(p play) { p.f.runs["run_b"].record.Status = hob.Running }, []string{runsEnd}},
		{"a run failed", func(p play) {
			s := p.f.runs["run_b"]
			s.record.Status = hob.Failed
			s.log[2].data = encode(map[string]any{"event": "complete", "status": hob.Failed, "content": s.record.Content})
			s.record.Events[1] = s.log[2].data
			delete(p.l.seen, "run_b")
		}, []string{runsEnd}},
		{"a run is cancelled, and nobody asked", func(p play) {
			s := p.f.runs["run_b"]
			s.record.Status = hob.Cancelled
			s.log[2].data = encode(map[string]any{"event": "complete", "status": hob.Cancelled, "content": s.record.Content})
			s.record.Events[1] = s.log[2].data
			delete(p.l.seen, "run_b")
		}, []string{runsEnd}},
		{"one key made two runs", func(p play) {
			s := *p.f.runs["run_b"]
			s.record.ID = "run_c"
			s.log = slices.Clone(s.log)
			for i := range s.log {
				s.log[i].run = "run_c"
			}
			p.f.runs["run_c"] = &s
		}, []string{oneRunPerKey}},
		{"two runs were told for one key", func(p play) { p.l.ack(p.l.messages["b"], "run_c") }, []string{acceptedKept, oneRunPerKey}},
		{"the turns of a session are swapped", func(p play) { slices.Reverse(p.f.sessions["s"]) }, []string{sessionOrder}},
		{"a session has lost a turn", func(p play) { p.f.sessions["s"] = p.f.sessions["s"][:1] }, []string{sessionOrder}},
		{"a reader saw a gap", func(p play) { p.l.fault(noGaps, "gap") }, []string{noGaps}},
		{"two readers saw different events", func(p play) { p.l.event("run_b", 2, hob.EventContentDelta, []byte("other")) }, []string{shownStays}},
		{"an event was shown that the log does not have", func(p play) { p.l.event("run_b", 4, hob.EventWarning, []byte("{}")) }, []string{shownStays}},
		{"the log has a gap", func(p play) {
			s := p.f.runs["run_b"]
			s.log = slices.Delete(s.log, 1, 2)
		}, []string{shownStays, logsWhole}},
		{"the log has no end", func(p play) {
			s := p.f.runs["run_b"]
			s.log, s.record.Events, s.record.LastSeq = s.log[:2], s.record.Events[:1], 2
		}, []string{shownStays, logsWhole}},
		{"the log ends twice", func(p play) {
			s := p.f.runs["run_b"]
			s.event(hob.EventComplete, map[string]any{"status": hob.Completed, "content": s.record.Content})
		}, []string{logsWhole}},
		{"the record is behind the log", func(p play) { p.f.runs["run_b"].record.LastSeq-- }, []string{logsWhole}},
		{"the record shows another event", func(p play) {
			s := p.f.runs["run_b"]
			s.record.Events[0] = json.RawMessage(`{"event":"start"}`)
		}, []string{logsWhole}},
		{"a call has two results", func(p play) {
			s := p.f.runs[playedRun]
			s.log, s.record.Events = s.log[:len(s.log)-1], s.record.Events[:len(s.record.Events)-1]
			call := p.call(toolOnce)
			s.event(hob.EventToolResult, map[string]any{"call_id": call.CallID, "result": call.Result})
			s.event(hob.EventComplete, map[string]any{"status": hob.Completed, "content": s.record.Content})
			delete(p.l.seen, playedRun)
		}, []string{logsWhole}},
		{"the answer has a piece twice", func(p play) {
			s := p.f.runs["run_b"]
			s.record.Content = word("b", 0) + s.record.Content
			s.log[2].data = encode(map[string]any{"event": "complete", "status": hob.Completed, "content": s.record.Content})
			s.record.Events[1] = s.log[2].data
			delete(p.l.seen, "run_b")
		}, []string{answersWhole}},
		{"a call of the plan is missing", func(p play) {
			s := p.f.runs[playedRun]
			delete(p.l.acts, key(playedRun, p.call(toolRead).CallID))
			s.record.ToolCalls = s.record.ToolCalls[:2]
		}, []string{answersWhole}},
		{"a call was made behind other results", func(p play) {
			p.call(toolKeyed).Arguments = encode(arguments("a", 0, 1, []string{"other"}))
		}, []string{modelReads}},
		{"a once-call acted twice", func(p play) { p.l.effect(p.act(toolOnce)) }, []string{onceAtMost}},
		{"an unknown once-call acted twice", func(p play) {
			p.retell(toolOnce, func(c *hob.CallRecord) { c.Result, c.IsError, c.OutcomeUnknown = unknownWord+": …", true, true })
			p.l.effect(p.act(toolOnce))
		}, []string{onceAtMost}},
		{"a result is made up", func(p play) {
			p.retell(toolOnce, func(c *hob.CallRecord) { c.Result = `{"act":7}` })
		}, []string{doneWasDone}},
		{"a call is told as done and never came", func(p play) {
			delete(p.l.acts, key(playedRun, p.call(toolKeyed).CallID))
		}, []string{doneWasDone}},
		{"a call acted and is told as not made", func(p play) {
			p.retell(toolOnce, func(c *hob.CallRecord) { c.Result, c.IsError = "not made", true })
		}, []string{doneWasDone}},
		{"a keyed call acted and is told as not made", func(p play) {
			p.retell(toolKeyed, func(c *hob.CallRecord) { c.Result, c.IsError = "not made", true })
		}, []string{doneWasDone}},
		{"a tool acted for a call that no log has", func(p play) {
			p.l.effect(p.l.arrival(act{key: "run_a:stray", tool: toolOnce, mark: "a", run: playedRun}))
		}, []string{noStrayEffect}},
		{"a tool acted for a run that is gone", func(p play) {
			p.l.effect(p.l.arrival(act{key: "run_x:stray", tool: toolOnce, mark: "a", run: "run_x"}))
		}, []string{noStrayEffect}},
		{"the model got a request that makes no sense", func(p play) { p.l.odd("what?") }, []string{noStrayEffect}},
		{"a key names another run", func(p play) { p.act(toolKeyed).run = "run_b" }, []string{keysNameCalls}},
		{"a key came with two bodies", func(p play) {
			a := *p.act(toolKeyed)
			a.body = "other"
			p.l.arrival(a)
		}, []string{keysNameCalls}},
		{"an unknown outcome is not in the event", func(p play) {
			p.retell(toolOnce, func(c *hob.CallRecord) { c.Result, c.IsError = unknownWord+": …", true })
			p.call(toolOnce).OutcomeUnknown = true
		}, []string{unknownTold}},
		{"an unknown outcome is told in the event alone", func(p play) {
			p.retell(toolRead, func(c *hob.CallRecord) { c.Result, c.IsError, c.OutcomeUnknown = unknownWord+": …", true, true })
			p.call(toolRead).OutcomeUnknown = false
		}, []string{unknownTold}},
		{"the model is not told that an outcome is unknown", func(p play) {
			p.retell(toolOnce, func(c *hob.CallRecord) { c.Result, c.IsError, c.OutcomeUnknown = "failed", true, true })
		}, []string{unknownTold}},
		{"an unknown outcome is told as no error", func(p play) {
			p.retell(toolOnce, func(c *hob.CallRecord) { c.Result, c.OutcomeUnknown = unknownWord+": …", true })
		}, []string{unknownTold}},
		{"the model never read a result", func(p play) { delete(p.l.told, "a") }, []string{modelReads}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := played()
			c.change(p)
			got := p.broken()
			if !slices.Equal(got, c.want) {
				t.Errorf("broken are %q, want %q", got, c.want)
				for _, v := range check(p.l, p.f) {
					for _, bad := range v.violations {
						t.Logf("%s: %s", v.name, bad)
					}
				}
			}
		})
	}
}

func TestPlan_ReadsWhatItWrites(t *testing.T) {
	t.Parallel()
	luck := chance(1, "plans")
	for range 200 {
		p := anyPlan(luck, 4, 30)
		mark, back, err := readMessage(messageText("m-1", p))
		if err != nil || mark != "m-1" || back.String() != p.String() {
			t.Fatalf("%q reads as %q %q, %v", messageText("m-1", p), mark, back, err)
		}
	}
	for _, bad := range []string{"", "hello", "mark=a plan=once", "mark=a plan=textx"} {
		if _, _, err := readMessage(bad); err == nil {
			t.Errorf("%q is taken for a message", bad)
		}
	}
}

func TestOptions_NameThePartsThereAre(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if o, err := parseOptions([]string{"-only", "kill,stop", "-seed", "7", "-long"}, &out); err != nil || !o.long || o.seed != 7 || len(o.only) != 2 {
		t.Errorf("options %+v, %v", o, err)
	}
	for _, args := range [][]string{{"-only", "nothing"}, {"word"}, {"-seed", "x"}} {
		if _, err := parseOptions(args, &out); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if !strings.Contains(out.String(), fmt.Sprintf("%q", "nothing")) {
		t.Errorf("the part that is not there is not named:\n%s", out.String())
	}
}
