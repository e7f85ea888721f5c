package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"hob"
)

// hookBody is what an http hook is sent.
type hookBody struct {
	Event    hob.HookEvent   `json:"event"`
	ToolName string          `json:"tool_name"`
	Data     json.RawMessage `json:"data"`
	Output   *string         `json:"output,omitempty"`
	Run      *hookRun        `json:"run,omitempty"`
}

// hookRun is the context of a run, for hooks that asked for it.
type hookRun struct {
	Run              hob.RunID     `json:"run_id"`
	Session          hob.SessionID `json:"session_id"`
	Agent            hob.AgentID   `json:"agent_id"`
	Call             hob.CallID    `json:"call_id,omitempty"`
	Execution        hob.RunID     `json:"execution_id"` // the run's id
	OrchestrationRun *string       `json:"orchestration_run_id"`
}

func (a *active) hookBody(h *hook, b hookBody, call hob.CallID) json.RawMessage {
	if h.Config.IncludeRunContext {
		b.Run = &hookRun{Run: a.id, Session: a.run.Session, Agent: a.run.Agent, Call: call, Execution: a.id}
	}
	return encodeFrame(b)
}

// deliveryID names an event for a hook: equal whoever sends it, and however often.
func deliveryID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	const digits = 12
	return "dlv_" + hex.EncodeToString(sum[:digits])
}

// askHTTP sends an occasion to an http hook and reads its decision.
func (a *active) askHTTP(o *occasion, h *hook, r *hob.HookResultEvent) {
	about := []string{string(a.id), string(o.callID()), string(o.event), string(h.ID)}
	if o.again {
		about = append(about, a.digest(o))
	}
	r.DeliveryID, r.Again = deliveryID(about...), o.again
	if o.call != nil && o.event.Blocks() {
		defer func() { r.InputDigest = a.digest(o) }()
	}
	limit, left := seconds(cmp.Or(h.Config.TimeoutSeconds, hob.DefaultHookSeconds)), a.hookTimeLeft()
	switch {
	case h.gone:
		h.fails(r, o, hob.HookFailed, "the hook was deleted while the run was under way")
		return
	case a.e.Hooks == nil:
		h.fails(r, o, hob.HookFailed, "this server sends nothing to http hooks")
		return
	case left <= 0:
		h.fails(r, o, hob.HookTimedOut, "the run's hooks have taken "+a.e.Limits.HookTime.String()+" together, which is as long as they may")
		return
	case a.log.sync() != nil, !a.log.alive(): // the run goes on elsewhere, and asks there: about the same, for that is durable
		a.end(errLost)
		return
	}
	limit = min(limit, left)
	began := monotonic()
	answer, err := a.e.callHook(a.ctx, hob.HookRequest{
		Hook: h.Hook, URL: h.Config.URL, Delivery: r.DeliveryID, Attempt: 1, Timeout: limit,
		Body: a.hookBody(h, hookBody{Event: o.event, ToolName: o.toolName(), Data: o.data, Output: o.output}, o.callID()),
	})
	a.asking.mu.Lock()
	a.asking.spent += monotonic().Sub(began)
	a.asking.mu.Unlock()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		h.fails(r, o, hob.HookTimedOut, clean(err.Error()))
	case err != nil:
		h.fails(r, o, hob.HookFailed, clean(err.Error()))
	default:
		a.obey(o, h, r, answer)
	}
}

// callHook sends a request behind a recover.
func (e *Engine) callHook(ctx context.Context, r hob.HookRequest) (answer hob.HookAnswer, err error) {
	defer func() {
		if v := recover(); v != nil {
			e.Log.Error("the sending to a hook met an internal fault", slog.String("hook", string(r.Hook.ID)), slog.Any("fault", v))
			err = errors.New("an internal fault of the server")
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return e.Hooks.CallHook(ctx, r)
}

func (a *active) hookTimeLeft() time.Duration {
	a.asking.mu.Lock()
	defer a.asking.mu.Unlock()
	return a.e.Limits.HookTime - a.asking.spent
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// obey does what an http hook answered.
func (a *active) obey(o *occasion, h *hook, r *hob.HookResultEvent, answer hob.HookAnswer) {
	r.Action, r.Message = hob.HookAllow, preview(clean(answer.Message), hob.MaxHookMessage)
	if answer.Deny && o.event.Blocks() {
		r.Action, r.Blocked, r.Message = hob.HookDeny, true, cmp.Or(r.Message, "Blocked by webhook")
		return
	}
	if answer.ModifiedInput != nil && o.event.ModifiesInput() && !o.again {
		args, err := hob.ParseArguments(string(answer.ModifiedInput))
		if err != nil {
			h.fails(r, o, hob.HookFailed, "its modified_input is no JSON object of arguments: "+clean(err.Error()))
			return
		}
		args = o.tool.effective(args)
		if faults := o.tool.schema.check(args); faults != "" {
			h.fails(r, o, hob.HookFailed, "its modified_input does not fit the tool's schema: "+faults)
			return
		}
		o.data, o.call.Arguments = args, args
		r.Modified, r.ModifiedInput = true, args
	}
	if answer.ModifiedOutput != nil && o.event.ModifiesOutput() {
		*o.output = clean(*answer.ModifiedOutput)
		r.Modified = true
	}
}
