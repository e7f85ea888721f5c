package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"hob"
)

// A result goes to its hooks whole, and to the model cut, whatever the hook makes of it.
func TestPostToolUse_ComesBeforeTheCap(t *testing.T) {
	t.Parallel()
	w, s := hooked(t, "call: big {}\ncall: once {\"n\":1}\n---\ntext: done\n",
		map[string]answerFunc{"long": output(strings.Repeat("b", 70_000))},
		[]hob.Hook{about(httpHook(hob.PostToolUse, "see"), "big"), about(httpHook(hob.PostToolUse, "long"), "once")}, "big", "once")
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	if got := fmt.Sprint(bodyOf(t, s.asked()[0])["output"]); len(got) != 120_000 {
		t.Errorf("the hook saw %d bytes, want all 120000", len(got))
	}
	for _, c := range w.detail(run).Calls {
		if n := len([]rune(c.Result.Text)); n > 50_000+200 || n < 49_000 {
			t.Errorf("the model reads %d characters of %s", n, c.Name)
		}
	}
}

// Nobody reads a raw result before its hooks have decided: neither in events nor in the record of the call.
func TestPostToolUse_ShowsNothingBeforeItsHooksHaveDecided(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(w *world, id hob.RunID)
		want string
	}{
		"they decide":          {nil, "redacted"},
		"the run is cancelled": {func(w *world, id hob.RunID) { _, _ = w.engine.Cancel(w.t.Context(), w.by, id) }, "Error: The call was carried out; the run ended before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			came, let := make(chan struct{}, 1), make(chan struct{})
			redacts := func(ctx context.Context, _ hob.HookRequest) (hob.HookAnswer, error) {
				came <- struct{}{}
				select {
				case <-let:
					return hob.HookAnswer{ModifiedOutput: new("redacted")}, nil
				case <-ctx.Done():
					return hob.HookAnswer{}, ctx.Err()
				}
			}
			w, _ := hooked(t, "call: told {}\n---\ntext: done\n", map[string]answerFunc{"a": redacts}, []hob.Hook{httpHook(hob.PostToolUse, "a")}, "told")
			w.tools.told = hob.Result{Text: "the password is swordfish"}
			w.begin(nil)
			run := w.start("go", hob.RunOptions{})
			<-came
			var record hob.CallRecord
			waitUntil(t, func() bool { record = w.detail(run).Calls[0].Record(); return record.Status == hob.CallReturned })
			if record.Result != "" {
				t.Errorf("the record of the call shows %q", record.Result)
			}
			if c.end == nil {
				close(let)
			} else {
				c.end(w, run.ID)
			}
			got := w.wait(run.ID)
			for _, ev := range w.log(run.ID) {
				if strings.Contains(string(ev.Data), "swordfish") {
					t.Errorf("an event shows it: %s", ev.Data)
				}
			}
			d := w.detail(got)
			if text := d.Calls[0].Result.Text; !strings.HasPrefix(text, c.want) || d.Messages[2].Content != text {
				t.Errorf("the result is %q, the model reads %q", text, d.Messages[2].Content)
			}
			if d.Actions[hob.ActionToolCall] != 1 {
				t.Errorf("on the books are %v, want the call", d.Actions)
			}
		})
	}
}

// A run that is cancelled while the tool is at work has a result that no hook has seen.
func TestPostToolUse_ARunThatEndsWhileItsToolAnswersShowsNoRawResult(t *testing.T) {
	t.Parallel()
	w, s := hooked(t, "call: told {}\n---\ntext: done\n", nil, []hob.Hook{httpHook(hob.PostToolUse, "a")}, "told")
	w.tools.told = hob.Result{Text: "the password is swordfish"}
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 1)
	w.tools.deaf = true
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	w.toolCame()
	if _, err := w.engine.Cancel(t.Context(), w.by, run.ID); err != nil {
		t.Fatal(err)
	}
	close(w.tools.hold)
	got := w.wait(run.ID)
	d := w.detail(got)
	if text := d.Calls[0].Result.Text; strings.Contains(text, "swordfish") || strings.Contains(d.Messages[2].Content, "swordfish") || len(s.asked()) != 0 {
		t.Errorf("the result is %q, the model reads %q, %d hooks were asked", text, d.Messages[2].Content, len(s.asked()))
	}
}

func TestPostToolUse_WithheldIsAnErrorThatTheModelReads(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, once1, map[string]answerFunc{"a": breaks}, []hob.Hook{failing(httpHook(hob.PostToolUse, "a"), hob.FailDeny)}, "once")
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	d := w.detail(run)
	if got := d.Calls[0].Result; got.Text != "Error: The result was withheld — a PostToolUse hook failed" || !got.IsError || !d.Messages[2].IsError {
		t.Errorf("the result is %+v", got)
	}
	if d.Actions[hob.ActionToolCall] != 1 {
		t.Errorf("on the books are %v, want the call, which was carried out", d.Actions)
	}
}

func TestDoomLoop_GoesByWhatTheModelAsksFor(t *testing.T) {
	t.Parallel()
	n := 0
	counts := func(context.Context, hob.HookRequest) (hob.HookAnswer, error) { // one call after the other
		n++
		return hob.HookAnswer{ModifiedInput: json.RawMessage(fmt.Sprintf(`{"n":%d}`, 100+n))}, nil
	}
	same := strings.Repeat("call: once {\"n\":1}\n---\n", 6) + "text: done\n"
	other := varied(strings.Repeat("call: once {}\n---\n", 6)) + "text: done\n"
	for name, c := range map[string]struct {
		script string
		answer answerFunc
		want   hob.Status
		calls  int
	}{
		"the same again, made another each time":     {same, counts, hob.Failed, 2},
		"the same again, made the same other":        {same, input(`{"n":9}`), hob.Failed, 2},
		"another each time, made the same each time": {other, input(`{"n":9}`), hob.Completed, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := hooked(t, c.script, map[string]answerFunc{"a": c.answer}, []hob.Hook{httpHook(hob.PreToolUse, "a")}, "once")
			w.begin(nil)
			run := w.wait(w.start("go", hob.RunOptions{}).ID)
			if run.Status != c.want || len(w.tools.calls()) != c.calls {
				t.Errorf("ended as %s (%s) after %d calls", run.Status, run.Code, len(w.tools.calls()))
			}
		})
	}
}

func TestHooks_SixteenCallsInAStepEachHaveTheirOwn(t *testing.T) {
	t.Parallel()
	var script strings.Builder
	for i := range 17 {
		fmt.Fprintf(&script, "call#r%d: read {\"n\":%d}\n", i, i)
	}
	script.WriteString("---\ntext: done\n")
	w, s := hooked(t, script.String(), map[string]answerFunc{
		"pre": func(_ context.Context, r hob.HookRequest) (hob.HookAnswer, error) {
			var b struct{ Data struct{ N int } }
			if err := json.Unmarshal(r.Body, &b); err != nil {
				return hob.HookAnswer{}, err
			}
			if b.Data.N%4 == 3 {
				return hob.HookAnswer{Deny: true, Message: "not this"}, nil
			}
			return hob.HookAnswer{ModifiedInput: json.RawMessage(fmt.Sprintf(`{"n":%d}`, 100+b.Data.N))}, nil
		},
	}, []hob.Hook{httpHook(hob.PreToolUse, "pre"), httpHook(hob.PostToolUse, "post")}, "read")
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{}).ID)
	d := w.detail(run)
	for i, c := range d.Calls {
		want := fmt.Sprintf(`read got {"n":%d}`, 100+i)
		switch {
		case i == 16:
			want = "Error: Too many tool calls in one step"
		case i%4 == 3:
			want = "Error: Blocked by hook — not this"
		}
		if !strings.HasPrefix(c.Result.Text, want) || !strings.HasPrefix(d.Messages[2+i].Content, want) {
			t.Errorf("call %d has %q, want %q", i, c.Result.Text, want)
		}
	}
	if n := len(s.asked()); n != 16+12 || len(w.tools.calls()) != 12 {
		t.Errorf("%d requests were sent to hooks and %d calls were made, want 28 and 12", n, len(w.tools.calls()))
	}
	if d.Actions[hob.ActionToolCall] != 12 {
		t.Errorf("on the books are %v", d.Actions)
	}
}

// A hook that is deleted while a run goes on cannot be asked any more, for its secrets are gone; what it is stays.
func TestHooks_OneThatIsGoneFailsOnceTheRunIsTakenUp(t *testing.T) {
	t.Parallel()
	for mode, want := range map[hob.FailMode]string{
		hob.FailAllow: "PreToolUse http c2: pass failed: the hook was deleted while the run was under way",
		hob.FailDeny:  "PreToolUse http c2: deny failed blocked: the hook failed, and denies then: the hook was deleted while the run was under way",
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w, s := hooked(t, "call#c1: hang {}\n---\ncall#c2: once {\"n\":1}\n---\ntext: done\n", nil,
				[]hob.Hook{failing(about(httpHook(hob.PreToolUse, "a"), "once"), mode)}, "hang", "once")
			w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 8)
			w.tools.recovery = hob.RecoverKeyed
			w.begin(nil)
			run := w.start("go", hob.RunOptions{})
			w.toolCame()
			w.stop()
			list, err := w.store.Hooks(t.Context(), w.by, w.agent.ID)
			if err == nil {
				err = w.store.DeleteHook(t.Context(), w.by, w.agent.ID, list[0].ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			close(w.tools.hold)
			w.begin(nil)
			w.wait(run.ID)
			w.wantLines(run.ID, want)
			if n := len(s.asked()); n != 0 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
	t.Run("while the process that froze it goes on", func(t *testing.T) {
		t.Parallel()
		w, s := hooked(t, "call#c1: hang {}\n---\ncall#c2: once {\"n\":1}\n---\ntext: done\n", nil,
			[]hob.Hook{about(httpHook(hob.PreToolUse, "a"), "once")}, "hang", "once")
		w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 8)
		w.begin(nil)
		run := w.start("go", hob.RunOptions{})
		w.toolCame()
		list, err := w.store.Hooks(t.Context(), w.by, w.agent.ID)
		if err == nil {
			err = w.store.DeleteHook(t.Context(), w.by, w.agent.ID, list[0].ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		close(w.tools.hold)
		w.wait(run.ID)
		w.wantLines(run.ID, "PreToolUse http c2: allow succeeded")
		if n := len(s.asked()); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
	})
}

func TestOnRunComplete_IsQueuedWithTheEndAndOnlyWhereTheRunCompleted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		hooks  []hob.Hook
		events string // of the end
	}{
		"completed":                        {"text: done\n", []hob.Hook{httpHook(hob.OnRunComplete, "end"), httpHook(hob.OnRunComplete, "too")}, "on_run_complete hook_result hook_result complete"},
		"completed, with other hooks only": {"text: done\n", []hob.Hook{httpHook(hob.PostToolUse, "a")}, "on_run_complete complete"},
		"completed, without hooks":         {"text: done\n", nil, "complete"},
		"failed":                           {"error: 400 it is odd\n", []hob.Hook{httpHook(hob.OnRunComplete, "end")}, "error complete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s := hooked(t, c.script, nil, c.hooks)
			w.begin(nil)
			run := w.wait(w.start("go", hob.RunOptions{}).ID)
			if got := order(w.log(run.ID)); !strings.HasSuffix(" "+got, " "+c.events) || strings.Count(got, "hook_result") != strings.Count(c.events, "hook_result") {
				t.Errorf("the log is %s, want its end to be %s", got, c.events)
			}
			if n := len(s.asked()); n != 0 {
				t.Errorf("the run itself asked %d hooks", n)
			}
			list, err := w.store.DueDeliveries(t.Context(), time.Minute, 9)
			if err != nil || len(list) != strings.Count(c.events, "hook_result") {
				t.Fatalf("%d deliveries are due, %v", len(list), err)
			}
			for i, d := range list {
				want := `{"event":"OnRunComplete","tool_name":"","data":{"status":"completed","content":"done","steps":1}}`
				result := told[hob.HookResultEvent](w, run.ID, hob.EventHookResult)[i]
				if string(d.Body) != want || d.Run != run.ID || result.DeliveryID != d.ID || result.Status != hob.HookQueued {
					t.Errorf("delivery %d is %s %s, told as %+v", i, d.ID, d.Body, result)
				}
			}
		})
	}
}

// The engine tells whoever sends that there is something to send, and nobody else.
func TestDeliveries_AreMadeKnown(t *testing.T) {
	t.Parallel()
	w, _ := hooked(t, "text: done\n", nil, []hob.Hook{httpHook(hob.OnRunComplete, "end")})
	told := make(chan struct{}, 9)
	w.deliver = func() { told <- struct{}{} }
	w.begin(nil)
	w.wait(w.start("go", hob.RunOptions{}).ID)
	select {
	case <-told:
	case <-time.After(20 * time.Second):
		t.Error("nobody was told")
	}
}
