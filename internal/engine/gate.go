package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"hob"
)

// The gate is the one way of every tool call, of any kind, in a run and from the test console:
//
//	pin → parse → schema → rules → PreToolUse → OnDelegation → intent → execute → result → PostToolUse → cap
//
// check is the part before the intent; perform and receive are the part behind it. In a run judge asks check about every
// call of a step, and act makes the intent durable before it performs; the console, in Try, goes through the same three
// one behind the other, without an intent: it has no run that could be taken up again. Hooks belong to runs: they are asked
// between check and the intent, see screen, and between receive and the cap, see after.
//
// A result of check is Free: what was refused is not counted.

// Stage is a station of the gate.
type Stage string

// The stages, in their order.
const (
	StagePin          Stage = "pin" // the name is one of the frozen set, and what is behind it may be used now
	StageParse        Stage = "parse"
	StageSchema       Stage = "schema"
	StageRules        Stage = "rules"
	StagePreToolUse   Stage = "PreToolUse"
	StageOnDelegation Stage = "OnDelegation"
	StageIntent       Stage = "intent"
	StageExecute      Stage = "execute"
	StageResult       Stage = "result"
	StagePostToolUse  Stage = "PostToolUse"
	StageCap          Stage = "cap"
)

// entrant is a call as it comes to the gate.
type entrant struct {
	name     string
	tool     *tool // of the frozen set, nil where the name is not in it
	standing hob.Standing
	bad      string          // what was written in place of arguments that are a JSON object
	args     json.RawMessage // pinned ones laid over
	call     hob.CallID
	told     *hob.HookResultEvent // what a rule of the tool decided, set by check
}

// check says why a call is not carried out; nil lets it through. It has no effect, so it may be asked again after a
// restart.
func (c *entrant) check(t *trace) *hob.Result {
	if why := c.pinned(); why != "" {
		return t.refuse(StagePin, why)
	}
	t.pass(StagePin, c.tool.spec.Ref)
	if c.bad != "" {
		_, err := hob.ParseArguments(c.bad)
		return t.refuse(StageParse, fmt.Sprintf("Error: Input validation failed — the arguments are no JSON object: %v", err))
	}
	t.pass(StageParse, "")
	if faults := c.tool.schema.check(c.args); faults != "" {
		return t.refuse(StageSchema, "Error: Input validation failed — "+faults)
	}
	t.pass(StageSchema, "")
	var r *hob.Result
	if r, c.told = c.tool.ruled(&hob.CallState{ID: c.call, Name: c.name}, c.args); r != nil {
		return t.refuse(StageRules, r.Text)
	}
	if c.tool.rules == nil {
		t.skip("there are none", StageRules)
	} else {
		t.pass(StageRules, "")
	}
	return nil
}

// parseCall reads the arguments that were written for a call. bad is that text, where it is no JSON object.
func parseCall(written string) (args json.RawMessage, bad string) {
	args, err := hob.ParseArguments(written)
	if err != nil {
		return json.RawMessage("{}"), preview(clean(written), maxBad)
	}
	return args, ""
}

// maxBad is how many characters are kept of what was written in place of arguments.
const maxBad = 2000

// effective are the arguments of a call with the pinned ones laid over.
func (t *tool) effective(args json.RawMessage) json.RawMessage {
	if whole, err := hob.Overlay(args, t.spec.Pinned); err == nil {
		return whole
	}
	return args
}

// pinned says why a name may not be called.
func (c *entrant) pinned() string {
	switch {
	case c.tool == nil:
		return fmt.Sprintf("Error: Unknown tool '%s'", c.name)
	case c.tool.spec.Native:
		return fmt.Sprintf("Error: The tool '%s' is no function to call: the model's provider searches by itself while the answer is written", c.name)
	case c.standing == hob.SwitchedOff:
		return fmt.Sprintf("tool_disabled: The tool '%s' was switched off; the call was not carried out", c.name)
	case c.standing == hob.Withdrawn:
		return fmt.Sprintf("tool_disabled: The agent does not have the tool '%s' any more; the call was not carried out", c.name)
	case c.standing == unsure:
		return fmt.Sprintf("Error: Whether the tool '%s' may be used could not be found out now; the call was not carried out, try again", c.name)
	case c.tool.runner == nil:
		return fmt.Sprintf("Error: The tool '%s' is not available any more", c.name)
	}
	return ""
}

// deed is a call that the gate let through, about to be carried out.
type deed struct {
	tool  *tool
	call  hob.Call
	limit time.Duration // that is left for it, whatever time the tool asks for
	most  int           // characters of the result that are read
}

// perform carries a call out, and makes of whatever happens a result that can be read: no tool can end a run. cut says
// that ctx ended before the call came to an answer; what the result then is, the caller knows.
func (e *Engine) perform(ctx context.Context, d deed, t *trace) (r hob.Result, cut bool) {
	timeout := d.tool.spec.Timeout
	if timeout <= 0 {
		timeout = e.Limits.ToolTimeout
	}
	timeout = min(timeout, d.limit)
	inner, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := e.run(inner, d)
	switch {
	case err == nil:
		t.pass(StageExecute, r.Note)
		return r, false
	case ctx.Err() != nil:
		return hob.Result{}, true
	case errors.Is(inner.Err(), context.DeadlineExceeded):
		r = hob.Result{IsError: true, Text: fmt.Sprintf("Error: The tool did not answer within %s", timeout)}
		if r.Unknown = d.tool.spec.Recovery != hob.RecoverRead; r.Unknown {
			r.Text += "; it may have taken effect all the same"
		}
		t.pass(StageExecute, "no answer in time")
	default:
		r = hob.Result{IsError: true, Text: "Error: " + err.Error(), Free: errors.Is(err, errToolFault)}
		t.pass(StageExecute, "no answer")
	}
	return r, false
}

// errToolFault stands for a fault in a tool's own code, which the log tells of.
var errToolFault = errors.New("the tool met an internal fault")

// run is the tool's own code behind a recover: a fault in it is the result of one call, not the end of the server.
func (e *Engine) run(ctx context.Context, d deed) (r hob.Result, err error) {
	defer e.caught(d, &err)
	return d.tool.runner.Call(ctx, d.call)
}

// caught is deferred around a tool's own code.
func (e *Engine) caught(d deed, err *error) {
	if v := recover(); v != nil {
		e.Log.Error("a tool met an internal fault",
			slog.String("run", string(d.call.Run)), slog.String("tool", d.call.Name), slog.Any("fault", v),
			slog.String("stack", string(debug.Stack())))
		*err = errToolFault
	}
}

// receive reads what a performed call gave.
func (e *Engine) receive(d deed, r hob.Result, t *trace) hob.Result {
	e.toolCalls.Add(1)
	if r.IsError {
		e.toolsFailed.Add(1)
	}
	r.Text = clean(r.Text)
	if d.tool.spec.Vouched {
		var ours bool
		if r.Text, ours = takeMark(r.Text); ours {
			r.Free = true
		}
	}
	t.pass(StageResult, "")
	return r
}

// trim cuts a result to what the model reads.
func (d deed) trim(r hob.Result, t *trace) hob.Result {
	whole := len(r.Text)
	if !d.tool.spec.NoCap {
		r.Text, _ = hob.Truncate(r.Text, d.most)
	}
	if len(r.Text) != whole {
		t.pass(StageCap, "the result was cut")
	} else {
		t.pass(StageCap, "")
	}
	return r
}

// platformMark is the member by which a service that the operator set up says that it is why nothing came of a call.
const platformMark = "_platform_error"

// takeMark takes the mark out of a result that is a JSON object, and says whether it was set.
func takeMark(text string) (rest string, set bool) {
	if !strings.Contains(text, platformMark) {
		return text, false
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &object) != nil {
		return text, false
	}
	mark, there := object[platformMark]
	if !there {
		return text, false
	}
	delete(object, platformMark)
	b, err := json.Marshal(object)
	if err != nil {
		return text, false
	}
	return string(b), string(mark) == "true"
}

// judge asks check about the calls of a step. Each call's tool has to stand to the agent as it did when the run began.
func (a *active) judge(calls []hob.ToolCall, states []hob.CallState) []*hob.Result {
	out := make([]*hob.Result, len(calls))
	a.told = make([]*hob.HookResultEvent, len(calls))
	for i, c := range calls {
		if text := a.beyond(i, states[i]); text != "" {
			out[i] = &hob.Result{IsError: true, Free: true, Text: "Error: " + text}
			continue
		}
		t := a.plan.tools[c.Name] // exact names of the frozen set only
		e := &entrant{name: c.Name, tool: t, standing: a.stands(t), bad: c.Bad, args: states[i].Arguments, call: c.ID}
		out[i], a.told[i] = e.check(nil), e.told
	}
	return out
}

// beyond says which bound on the number of calls the index-th one of a step is beyond.
func (a *active) beyond(index int, s hob.CallState) string {
	if most := a.e.Limits.CallsPerStep; index >= most {
		return fmt.Sprintf("Too many tool calls in one step; the first %d were carried out, ask for the others again", most)
	}
	if n := a.plan.tuning.MaxToolCalls; n != nil && s.Attempt == 0 && a.carried(s.Step)+index >= *n {
		return fmt.Sprintf("The run's budget of %d tool calls is used up; this one was not carried out", *n)
	}
	return ""
}
