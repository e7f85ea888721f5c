package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"hob"
	"hob/internal/engine"
)

// detail is a run's stored story.
func (w *world) detail(run hob.Run) hob.RunDetail {
	w.t.Helper()
	d, err := w.store.RunDetail(w.t.Context(), w.by, run.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// switched turns a builtin tool of the workspace on or off.
func (w *world) switched(name string, on bool) {
	w.t.Helper()
	all, err := w.store.Builtins(w.t.Context(), w.by)
	if err != nil {
		w.t.Fatal(err)
	}
	c := all[name]
	c.IsActive = on
	if err := w.store.ChangeBuiltin(w.t.Context(), w.by, name, c); err != nil {
		w.t.Fatal(err)
	}
}

func TestGate_AToolIsLookedAtBeforeEachStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		take func(w *world)
		want string
	}{
		"switched off": {func(w *world) { w.switched("keyed", false) }, "tool_disabled: The tool 'keyed' was switched off"},
		"taken from the agent": {func(w *world) {
			list, err := w.store.Assignments(w.t.Context(), w.by, w.agent.ID)
			if err == nil {
				err = w.store.Unassign(w.t.Context(), w.by, w.agent.ID, list[1].ID)
			}
			if err != nil {
				w.t.Error(err)
			}
		}, "tool_disabled: The agent does not have the tool 'keyed' any more"},
		"left out of tool_ids": {func(w *world) {
			if _, err := w.store.UpdateAgent(w.t.Context(), w.by, w.agent.ID, hob.AgentPatch{ToolIDs: new(&[]string{"hang"})}); err != nil {
				w.t.Error(err)
			}
		}, "tool_disabled: The agent does not have the tool 'keyed' any more"},
		"with the agent": {func(w *world) {
			if err := w.store.DeleteAgent(w.t.Context(), w.by, w.agent.ID); err != nil {
				w.t.Error(err)
			}
		}, "tool_disabled: The agent does not have the tool 'keyed' any more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]any{"script": "call: hang {}\n---\ncall: keyed {\"n\":1}\n---\ntext: done\n"}, "hang", "keyed")
			w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 1)
			w.begin(nil)
			run := w.start("go", hob.RunOptions{})
			<-w.tools.came
			c.take(w)
			close(w.tools.hold)
			run = w.wait(run.ID)
			d := w.detail(run)
			if run.Status != hob.Completed || len(w.tools.calls()) != 1 {
				t.Fatalf("%s (%s), and %d calls were carried out", run.Status, run.Error, len(w.tools.calls()))
			}
			call := d.Calls[1]
			if !call.Result.IsError || !call.Result.Free || call.Attempt != 0 || !strings.HasPrefix(call.Result.Text, c.want) {
				t.Errorf("the second call: %+v", call)
			}
			if want := map[string]int64{hob.ActionModelCall: 3, hob.ActionRun: 1, hob.ActionToolCall: 1}; !maps.Equal(d.Actions, want) {
				t.Errorf("on the books are %v, want %v", d.Actions, want)
			}
			w.valid(run)
		})
	}
}

func TestGate_AToolIsLookedAtAgainWhenItsTurnComesLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: hang {}\ncall: keyed {\"n\":1}\n---\ntext: done\n"}, "hang", "keyed")
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 1)
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	<-w.tools.came
	w.switched("keyed", false)
	time.Sleep(engine.StandingAge)
	close(w.tools.hold)
	d := w.detail(w.wait(run.ID))
	if call := d.Calls[1]; !strings.HasPrefix(call.Result.Text, "tool_disabled:") || call.Attempt != 0 || len(w.tools.calls()) != 1 {
		t.Errorf("the second call of the step: %+v; %d were carried out", call, len(w.tools.calls()))
	}
	w.valid(d.Run)
}

// blindStore cannot say how tools stand.
type blindStore struct{ hob.Store }

func (blindStore) Standing(context.Context, hob.WorkspaceID, hob.AgentID, []string) ([]hob.Standing, error) {
	return nil, hob.Errorf(hob.Unavailable, "the database cannot be reached now; try again")
}

func TestGate_RefusesWhatItCannotLookUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: read {\"n\":1}\n---\ntext: done\n"}, "read")
	w.begin(func(s hob.Store) hob.Store { return blindStore{s} })
	d := w.detail(w.wait(w.start("go", hob.RunOptions{}).ID))
	if text := d.Calls[0].Result.Text; !strings.Contains(text, "could not be found out now") || len(w.tools.calls()) != 0 {
		t.Errorf("the result is %q, and %d calls were carried out", text, len(w.tools.calls()))
	}
	if d.Run.Status != hob.Completed || d.Actions[hob.ActionToolCall] != 0 {
		t.Errorf("%s with %v on the books", d.Run.Status, d.Actions)
	}
}

// A call that a process before had begun, whose tool is not to be used any more, is not repeated, whatever its class.
func TestGate_WhatWasBegunIsNotRepeatedOnceTheToolIsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: hang {}\n---\ntext: done\n"}, "hang")
	w.tools.recovery = hob.RecoverKeyed
	w.tools.hold, w.tools.came = make(chan struct{}), make(chan struct{}, 1)
	w.begin(nil)
	run := w.start("go", hob.RunOptions{})
	<-w.tools.came
	w.stop() // handed over while the call is under way
	w.switched("hang", false)
	w.begin(nil)
	d := w.detail(w.wait(run.ID))
	if r := d.Calls[0].Result; !r.Unknown || !strings.HasPrefix(r.Text, "outcome_unknown") || len(w.tools.calls()) != 1 {
		t.Errorf("the result is %+v after %d calls", r, len(w.tools.calls()))
	}
	if d.Run.Status != hob.Completed || d.Actions[hob.ActionToolCall] != 0 {
		t.Errorf("%s with %v on the books", d.Run.Status, d.Actions)
	}
}

func TestMetering_CountsByActionWhatWasCarriedOut(t *testing.T) {
	t.Parallel()
	eye := []hob.UsageEntry{{Component: hob.ComponentVision, Model: "eye", Usage: hob.Usage{PromptTokens: 5, TotalTokens: 5, Cost: 3}}}
	for name, c := range map[string]struct {
		result hob.Result
		err    error
		kind   bool // vouched for
		want   map[string]int64
		text   string
	}{
		"its own action":            {result: hob.Result{Text: "x", Action: hob.ActionWebSearchDeep}, want: map[string]int64{hob.ActionWebSearchDeep: 2}},
		"no action":                 {result: hob.Result{Text: "x"}, want: map[string]int64{hob.ActionToolCall: 2}},
		"a failure of its own":      {result: hob.Result{Text: "x", IsError: true}, want: map[string]int64{hob.ActionToolCall: 2}},
		"an error":                  {err: errors.New("broken"), want: map[string]int64{hob.ActionToolCall: 2}},
		"free":                      {result: hob.Result{Text: "x", IsError: true, Free: true, Action: hob.ActionWebScrape}, want: map[string]int64{}},
		"unknown outcome":           {result: hob.Result{Text: "x", IsError: true, Unknown: true}, want: map[string]int64{}},
		"model calls":               {result: hob.Result{Text: "x", Action: hob.ActionWebScrape, Used: eye}, want: map[string]int64{hob.ActionWebScrape: 2, hob.ActionModelCall: 2}},
		"the platform's fault":      {result: hob.Result{Text: `{"error":"busy","_platform_error":true}`}, kind: true, want: map[string]int64{}, text: `{"error":"busy"}`},
		"a mark that is not set":    {result: hob.Result{Text: `{"stdout":"","_platform_error":false}`}, kind: true, want: map[string]int64{hob.ActionToolCall: 2}, text: `{"stdout":""}`},
		"a mark that is deeper":     {result: hob.Result{Text: `{"a":{"_platform_error":true}}`}, kind: true, want: map[string]int64{hob.ActionToolCall: 2}},
		"a mark of somebody else's": {result: hob.Result{Text: `{"_platform_error":true}`}, want: map[string]int64{hob.ActionToolCall: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]any{"script": "call: told {\"n\":1}\n---\ncall: told {\"n\":2}\ncall: told {\"n\":\"no number\"}\ncall: nobody {}\n---\ntext: done\n"}, "told")
			w.tools.told, w.tools.fails, w.tools.vouched = c.result, c.err, c.kind
			w.begin(nil)
			run := w.wait(w.start("go", hob.RunOptions{}).ID)
			d := w.detail(run)
			want := maps.Clone(c.want)
			want[hob.ActionRun] = 1
			want[hob.ActionModelCall] += 3
			end := one[hob.CompleteEvent](w, run.ID, hob.EventComplete)
			if !maps.Equal(d.Actions, want) || !maps.Equal(end.Actions, want) {
				t.Errorf("on the books are %v, complete says %v, want %v", d.Actions, end.Actions, want)
			}
			if c.text != "" && d.Calls[0].Result.Text != c.text {
				t.Errorf("the result reads %s, want %s", d.Calls[0].Result.Text, c.text)
			}
			rows, err := w.store.Usage(t.Context(), w.by, hob.UsageFilter{Run: run.ID})
			if err != nil || rows[0].Usage != run.Usage {
				t.Errorf("on the books are %+v, the run says %+v: %v", rows, run.Usage, err)
			}
			byTool, err := w.store.Usage(t.Context(), w.by, hob.UsageFilter{Run: run.ID, GroupBy: hob.ByTool})
			told := int64(0)
			for _, r := range byTool {
				told += r.Quantity
			}
			if counts := int64(len(c.want)); err != nil || (told > 0) != (counts > 0) || told > 0 && (told != 2 || byTool[0].Key != "told") {
				t.Errorf("by tool there are %+v: %v", byTool, err)
			}
			if eyes := int64(len(c.result.Used)) * 2; run.Usage.Cost != hob.Money(3*eyes) {
				t.Errorf("the run cost %s", run.Usage.Cost)
			}
		})
	}
}

func TestMetering_ModelCallsOfToolsCountForTheBudgets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: told {\"n\":1}\nusage: 10 1\n---\ncall: told {\"n\":2}\nusage: 10 1\n---\ntext: done\n"}, "told")
	w.tools.told = hob.Result{Text: "x", Used: []hob.UsageEntry{{Component: hob.ComponentVision, Model: "eye", Usage: hob.Usage{TotalTokens: 5000}}}}
	w.begin(nil)
	run := w.wait(w.start("go", hob.RunOptions{Tuning: hob.Tuning{MaxTokensTotal: new(int64(4000))}}).ID)
	if run.Code != hob.CodeBudget || run.Steps != 2 || run.Usage.TotalTokens < 5000 || len(w.tools.calls()) != 1 {
		t.Errorf("it ended (%s) after %d steps, %d tokens and %d calls", run.Code, run.Steps, run.Usage.TotalTokens, len(w.tools.calls()))
	}
}

func TestMetering_RunsThatDoNotCompleteCountWhatWasCarriedOut(t *testing.T) {
	t.Parallel()
	seconds := 1.5 // enough for two steps on a busy machine
	for name, c := range map[string]struct {
		script string
		o      hob.RunOptions
		code   string
		want   map[string]int64
	}{
		"doom loop": {
			strings.Repeat("call: read {\"n\":1}\n---\n", 3) + "text: x\n",
			hob.RunOptions{},
			hob.CodeDoomLoop,
			map[string]int64{hob.ActionModelCall: 3, hob.ActionToolCall: 2},
		},
		"failed": {
			"call: read {\"n\":1}\n---\nerror: 500 it is down\n",
			hob.RunOptions{},
			hob.CodeProviderError,
			map[string]int64{hob.ActionModelCall: 1, hob.ActionToolCall: 1},
		},
		"cancelled": {
			"call: read {\"n\":1}\n---\ncall: hang {}\ncall: once {}\n---\ntext: done\n",
			hob.RunOptions{Tuning: hob.Tuning{TimeoutSeconds: &seconds}},
			hob.CodeTimeout,
			map[string]int64{hob.ActionModelCall: 2, hob.ActionToolCall: 1},
		}, // hang is unknown, once was never begun
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]any{"script": c.script}, "read", "hang", "once")
			w.tools.hold = make(chan struct{})
			w.begin(nil)
			run := w.wait(w.start("go", c.o).ID)
			if d := w.detail(run); run.Code != c.code || !maps.Equal(d.Actions, c.want) {
				t.Errorf("it ended as %s (%s) with %v on the books, want %s with %v", run.Status, run.Code, d.Actions, c.code, c.want)
			}
		})
	}
}

func TestGate_ACallWithoutALimitOfItsOwnHasTheServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: hang {}\n---\ntext: done\n"}, "hang")
	w.limits.ToolTimeout = 10 * time.Millisecond
	w.tools.hold = make(chan struct{})
	w.begin(nil)
	if r := w.detail(w.wait(w.start("go", hob.RunOptions{}).ID)).Calls[0].Result; !r.Unknown || !strings.HasPrefix(r.Text, "Error: The tool did not answer within 10ms") {
		t.Errorf("%+v", r)
	}
}

func TestGate_AtMostSoManyCallsOfAStepAreUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": strings.Repeat("call: wait {}\n", 5) + "---\ntext: done\n"}, "wait")
	w.limits.Parallel = 2
	w.begin(nil)
	w.wait(w.start("go", hob.RunOptions{}).ID)
	if most, n := w.tools.most, len(w.tools.calls()); most != 2 || n != 5 {
		t.Errorf("%d of %d calls were under way at once, want 2 of 5", most, n)
	}
}

func TestGate_APinnedArgumentIsLaidOverWhateverIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: pinned {\"s\":\"a\",\"n\":1}\n---\ntext: done\n"}, "pinned")
	w.begin(nil)
	d := w.detail(w.wait(w.start("go", hob.RunOptions{}).ID))
	var args map[string]any
	if err := json.Unmarshal(d.Calls[0].Arguments, &args); err != nil || args["n"] != 7.0 || args["s"] != "a" {
		t.Errorf("%s: %v", d.Calls[0].Arguments, err)
	}
	if got := w.tools.calls(); len(got) != 1 || string(got[0].Arguments) != string(d.Calls[0].Arguments) {
		t.Errorf("the tool got %v", got)
	}
}

// A name that only reads like a tool's once it is put into a form that providers take is no tool's.
func TestGate_ANameThatIsLikeAToolsIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: with.dots {}\ncall: with_dots {}\n---\ntext: done"}, "with_dots")
	w.begin(nil)
	d := w.detail(w.wait(w.start("go", hob.RunOptions{}).ID))
	if len(d.Calls) != 2 || d.Calls[0].Result.Text != "Error: Unknown tool 'with_dots_'" || d.Calls[1].Result.IsError || len(w.tools.calls()) != 1 {
		t.Errorf("the calls are %+v", d.Calls)
	}
}
