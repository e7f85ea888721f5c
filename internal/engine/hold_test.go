package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"hob"
)

// secret is what an answer says that may not be shown before its hooks have decided.
const secret = "swordfish"

// A run that holds its answer back shows nothing of it before the decision, whatever happens meanwhile.
func TestHold_NothingOfTheAnswerIsShownBeforeTheDecision(t *testing.T) {
	t.Parallel()
	brief := 0.4
	plain := "reasoning: The word is swordfish.\nchunks: 4\ntext: It is swordfish.\n"
	tools := "reasoning: I look it up.\ntext: Let me see.\ncall: once {\"n\":1}\n---\n" + plain
	form := json.RawMessage(`{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","required":["a"]}}}`)
	cancel := func(w *world, id hob.RunID) {
		if _, err := w.engine.Cancel(w.t.Context(), w.by, id); err != nil {
			w.t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		script  string
		tools   []string
		hook    hob.Hook
		answer  hob.HookAnswer
		timeout *float64
		form    json.RawMessage
		happens func(w *world, id hob.RunID) // while the hook is asked, or a person; nil: the hook answers
		status  hob.Status
		content string // of the run; where it is not the secret, nothing may ever show that
		history string // what later turns read
	}{
		"it passes":             {script: plain, hook: httpHook(hob.PreResponse, "a"), status: hob.Completed, content: "It is swordfish."},
		"it passes, with tools": {script: tools, tools: []string{"once"}, hook: httpHook(hob.PreResponse, "a"), status: hob.Completed, content: "It is swordfish."},
		"it is changed": {
			script: plain, hook: httpHook(hob.PreResponse, "a"), answer: hob.HookAnswer{ModifiedOutput: new("It is a fish.")},
			status: hob.Completed, content: "It is a fish.", history: "It is a fish.",
		},
		"it is changed, with tools": {
			script: tools, tools: []string{"once"}, hook: httpHook(hob.PreResponse, "a"), answer: hob.HookAnswer{ModifiedOutput: new("It is a fish.")},
			status: hob.Completed, content: "It is a fish.", history: "It is a fish.",
		},
		"it is made nothing": {
			script: plain, hook: httpHook(hob.PreResponse, "a"), answer: hob.HookAnswer{ModifiedOutput: new("")},
			status: hob.Completed, content: "", history: "[The previous turn gave no answer.]",
		},
		"it is blocked": {
			script: plain, hook: httpHook(hob.PreResponse, "a"), answer: hob.HookAnswer{Deny: true, Message: "no names"},
			status: hob.Completed, content: "[Response blocked: no names]", history: "[Response blocked: no names]",
		},
		"it is cancelled":             {script: plain, hook: httpHook(hob.PreResponse, "a"), happens: cancel, status: hob.Cancelled, history: withheldText},
		"it is cancelled, with tools": {script: tools, tools: []string{"once"}, hook: httpHook(hob.PreResponse, "a"), happens: cancel, status: hob.Cancelled, history: withheldText},
		"its time is over": {
			script: plain, hook: httpHook(hob.PreResponse, "a"), timeout: &brief, happens: func(*world, hob.RunID) {}, status: hob.Cancelled, history: withheldText,
		},
		"it is cancelled while a person is asked": {script: plain, hook: approvalHook(hob.PreResponse), happens: cancel, status: hob.Cancelled, history: withheldText},
		"a person denies it": {
			script: plain, hook: approvalHook(hob.PreResponse), status: hob.Completed,
			happens: func(w *world, id hob.RunID) { w.decide(w.rests(id, 1)[0], false, "") },
			content: "[Response blocked: Denied by user: not now]", history: "[Response blocked: Denied by user: not now]",
		},
		"a person lets it pass": {
			script: tools, tools: []string{"once"}, hook: approvalHook(hob.PreResponse), status: hob.Completed,
			happens: func(w *world, id hob.RunID) { w.decide(w.rests(id, 1)[0], true, "") }, content: "It is swordfish.",
		},
		"it is cancelled while it is written": {
			script: "reasoning: The word is swordfish.\ntext: It is swordfish.\ndelay: 1m\ntext: So it is.\n", hook: httpHook(hob.PreResponse, "a"),
			happens: func(w *world, id hob.RunID) { time.Sleep(50 * time.Millisecond); cancel(w, id) }, status: hob.Cancelled, history: "[The previous turn ended",
		},
		"it is not in its form": {
			script: plain + "---\n" + plain, hook: httpHook(hob.PreResponse, "a"), form: form, status: hob.Failed, history: withheldText,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			came := make(chan struct{}, 9)
			w, _ := hooked(t, c.script, map[string]answerFunc{"a": func(ctx context.Context, r hob.HookRequest) (hob.HookAnswer, error) {
				came <- struct{}{}
				if c.happens != nil {
					return silent(ctx, r)
				}
				return c.answer, nil
			}}, []hob.Hook{c.hook}, c.tools...)
			w.begin(nil)
			run := w.start("go", hob.RunOptions{Tuning: hob.Tuning{
				ResponseBuffering: hob.BufferHold, TimeoutSeconds: c.timeout, ResponseFormat: c.form, OnDisconnect: hob.DisconnectContinue,
			}})
			if c.happens != nil {
				switch {
				case c.hook.Type == hob.ApprovalHook:
					w.rests(run.ID, 1)
				case !strings.Contains(c.script, "delay"):
					<-came
				}
				if got, err := w.store.Run(t.Context(), w.by, run.ID); err != nil || got.Content != "" {
					t.Errorf("the record of the waiting run shows %q, %v", got.Content, err)
				}
				c.happens(w, run.ID)
			}
			got := w.ends(run.ID)
			if got.Status != c.status || got.Content != c.content {
				t.Errorf("ended as %s (%s) with %q", got.Status, got.Code, got.Content)
			}
			wantHeld(t, w.log(run.ID), strings.Contains(c.content, secret))
			messages := w.valid(got)
			answer := messages[len(messages)-1]
			if c.history != "" && (strings.Contains(answer.Content, secret) || answer.Reasoning != nil && strings.Contains(answer.Reasoning.Text, secret)) {
				t.Errorf("its record keeps %+v", answer)
			}
			h, err := w.store.History(t.Context(), w.by, got.Session, hob.HistoryRange{Before: got.Turn + 1, Budget: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			past := h.Messages()
			if last := past[len(past)-1]; !strings.HasPrefix(last.Content, c.history) {
				t.Errorf("the next turn reads %q, want %q", last.Content, c.history)
			}
		})
	}
}

// withheldText is what stands for an answer that nobody has decided about.
const withheldText = "[Response withheld: the run ended before its hooks had decided about it]"

// wantHeld wants no event to show the secret, or, where it may be shown, none before the decision.
func wantHeld(t *testing.T, log []hob.Event, may bool) {
	t.Helper()
	decided, preamble, thought := false, 0, 0
	for _, ev := range log {
		if ev.Type == hob.EventHookResult {
			decided = true
		}
		if strings.Contains(string(ev.Data), secret) && (!may || !decided) {
			t.Errorf("%s shows the answer: %s", ev.Type, ev.Data)
		}
		if strings.Contains(string(ev.Data), "Let me see.") && ev.Type == hob.EventContentDelta {
			preamble++
		}
		if strings.Contains(string(ev.Data), "I look it up.") && ev.Type == hob.EventReasoning {
			thought++
		}
	}
	if tools := strings.Contains(order(log), "tool_call"); tools && (preamble != 1 || thought != 1) {
		t.Errorf("what was said before the call was shown %d times, what was thought %d times", preamble, thought)
	}
}

// An answer that is shown as it comes is taken back where hooks change it, and the next turn reads what they made of it.
func TestPreResponse_TheNextTurnReadsWhatHooksMadeOfTheAnswer(t *testing.T) {
	t.Parallel()
	for name, tools := range map[string][]string{"without tools": nil, "with tools": {"once"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := hooked(t, "reasoning: Hm.\ntext: It is swordfish.\n", map[string]answerFunc{"a": output("It is a fish.")}, []hob.Hook{httpHook(hob.PreResponse, "a")}, tools...)
			reqs := w.watchModel()
			w.begin(nil)
			run := w.wait(w.start("go", hob.RunOptions{}).ID)
			if got := order(w.log(run.ID)); !strings.HasSuffix(got, "hook_result on_run_complete step_reset chunk complete") {
				t.Errorf("the log is %s", got)
			}
			for range 2 { // from memory, and from the store
				w.wait(w.startIn(run.Session, "again", hob.RunOptions{}).ID)
				all := reqs()
				m := all[len(all)-1].Messages[1]
				if m.Role != hob.RoleAssistant || m.Content != "It is a fish." || m.Reasoning != nil {
					t.Errorf("the next turn reads %+v", m)
				}
				w.stop()
				w.begin(nil)
			}
		})
	}
}

// An answer in the form that was asked for does not lose it because a hook puts another text in its place.
func TestPreResponse_TheFormIsTheModelsToKeep(t *testing.T) {
	t.Parallel()
	form := json.RawMessage(`{"type":"json_object"}`)
	w, _ := hooked(t, "text: {\"a\":1}\n", map[string]answerFunc{"a": output("none")}, []hob.Hook{httpHook(hob.PreResponse, "a"), approvalHook(hob.PreResponse)})
	w.begin(nil)
	run := w.start("go", hob.RunOptions{Tuning: hob.Tuning{ResponseFormat: form}})
	p := w.rests(run.ID, 1)[0]
	if p.Output != "none" {
		t.Errorf("a person is asked about %q", p.Output)
	}
	w.decide(p, true, "")
	if got := w.ends(run.ID); got.Status != hob.Completed || got.Content != "none" {
		t.Errorf("ended as %s (%s) with %q", got.Status, got.Code, got.Content)
	}
}
