package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"hob"
	"hob/internal/seeded"
)

// The gate is the one way of every tool call, of any kind:
//
//	pin → parse → schema → rules → PreToolUse → OnDelegation → intent → execute → result → PostToolUse → cap
//
// judge is the part before the intent, execute the part behind it; between them act makes the intent durable. Hooks and
// rules have their places in both; until there are any, a call passes them as it is.

// judge decides which calls of a step may be carried out: nil lets one through, a result refuses it. It has no effect,
// so it may be asked again after a restart.
func (a *active) judge(calls []hob.ToolCall, states []hob.CallState) []*hob.Result {
	out := make([]*hob.Result, len(calls))
	for i, c := range calls {
		if text := a.refusal(i, c, states[i]); text != "" {
			out[i] = &hob.Result{IsError: true, Text: "Error: " + text}
		}
	}
	return out
}

func (a *active) refusal(index int, c hob.ToolCall, s hob.CallState) string {
	if most := a.e.Limits.CallsPerStep; index >= most {
		return fmt.Sprintf("Too many tool calls in one step; the first %d were carried out, ask for the others again", most)
	}
	if n := a.plan.tuning.MaxToolCalls; n != nil && s.Attempt == 0 && a.carried(s.Step)+index >= *n {
		return fmt.Sprintf("The run's budget of %d tool calls is used up; this one was not carried out", *n)
	}
	t := a.plan.tools[c.Name] // pin: exact names of the frozen set only
	switch {
	case t == nil:
		return fmt.Sprintf("Unknown tool '%s'", c.Name)
	case t.spec.Native:
		return fmt.Sprintf("The tool '%s' is no function to call: the model's provider searches by itself while the answer is written", c.Name)
	case t.runner == nil:
		return fmt.Sprintf("The tool '%s' is not available any more", c.Name)
	case c.Bad != "":
		_, err := hob.ParseArguments(c.Bad)
		return fmt.Sprintf("Input validation failed — the arguments are no JSON object: %v", err)
	}
	if faults := t.schema.check(s.Arguments); faults != "" {
		return "Input validation failed — " + faults
	}
	return ""
}

// execute carries out a call whose intent is durable, and makes of whatever happens a result that the model can read:
// no tool can end a run. false means that the run goes to another process while the call was under way: nothing is
// stored, and whoever takes the run up finds the intent.
func (a *active) execute(s hob.CallState) (hob.Result, bool) {
	if !a.log.alive() {
		return hob.Result{}, false
	}
	t := a.plan.tools[s.Name]
	timeout := t.spec.Timeout
	if timeout <= 0 {
		timeout = a.e.Limits.ToolTimeout
	}
	timeout = min(timeout, max(a.secondsLeft(), time.Second)) // what is left of the budget, but enough for a call that was begun
	ctx, cancel := context.WithTimeout(a.ctx, timeout)
	defer cancel()
	key := string(a.id) + ":" + string(s.ID)
	if seeded.Bug("new_key_each_try") {
		key += fmt.Sprintf(":%d", s.Attempt)
	}
	r, err := a.call(ctx, t.runner, hob.Call{
		Run: a.id, Session: a.run.Session, Agent: a.run.Agent, Principal: a.run.Principal, ID: s.ID, Step: s.Step,
		Name: s.Name, Arguments: s.Arguments, Key: key, Attempt: s.Attempt,
		BeginBy: a.log.leased(),
	})
	if _, ours := verdict(a.cause()); err != nil && a.cause() != nil && !ours {
		return hob.Result{}, false
	}
	switch {
	case err == nil:
	case a.cause() != nil && s.Recovery != hob.RecoverRead:
		r = unknownOutcome()
	case a.cause() != nil:
		r = hob.Result{IsError: true, Text: "Error: The run ended while this call was under way."}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		r = hob.Result{IsError: true, Text: fmt.Sprintf("Error: The tool did not answer within %s", timeout)}
		if r.Unknown = s.Recovery != hob.RecoverRead; r.Unknown {
			r.Text += "; it may have taken effect all the same"
		}
	default:
		r = hob.Result{IsError: true, Text: "Error: " + err.Error()}
	}
	a.e.toolCalls.Add(1)
	if r.IsError {
		a.e.toolsFailed.Add(1)
	}
	r.Text = clean(r.Text)
	if !t.spec.NoCap {
		r.Text, _ = hob.Truncate(r.Text, a.plan.knobs.resultChars)
	}
	return r, true
}

// call is the tool's own code behind a recover: a fault in it is the result of one call, not the end of the server.
func (a *active) call(ctx context.Context, t hob.ToolRunner, c hob.Call) (r hob.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			a.e.Log.Error("a tool met an internal fault",
				slog.String("run", string(a.id)), slog.String("tool", c.Name), slog.Any("fault", v),
				slog.String("stack", string(debug.Stack())))
			err = errors.New("the tool met an internal fault")
		}
	}()
	return t.Call(ctx, c)
}
