package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/client"
)

// mailing is a script that calls the tool of its agent once.
func mailing(tool string) string {
	return fmt.Sprintf("call: %s {\"to\":\"ann\",\"n\":1}\n---\ntext: I read: {{result}}", tool)
}

// calling is the body that this makes for the tool.
const calling = `{"n":1,"to":"ann"}`

func TestHooks(t *testing.T) {
	t.Parallel()
	peopleStages(t, func(p *peopleStage) {
		p.step("each event is told, signed and named once", eachEventIsTold)
		p.step("http hooks change and refuse", httpHooksDecide)
		p.step("an answer is held until its hooks have decided", answersAreHeld)
		p.step("a hook that fails counts as it says", failingHooks)
		p.step("rules of hooks and assignments decide", rulesDecide)
		p.step("hooks are frozen with the run", hooksAreFrozen)
		p.step("secrets are told once", secretsAreToldOnce)
		p.step("the audit log holds", (*peopleStage).audited)
	})
}

func eachEventIsTold(p *peopleStage) {
	agent := p.agent("told", mailing("told"), nil, nil)
	events := []hob.HookEvent{hob.OnRunStart, hob.PreToolUse, hob.PostToolUse, hob.PreResponse, hob.OnRunComplete}
	ids := map[hob.HookID]hob.HookEvent{}
	for _, e := range events {
		ids[p.tell(agent, e, "/told/"+string(e), func(in *client.HookInput) { in.Config.IncludeRunContext = true }).ID] = e
	}
	all := p.stream(agent, nil)
	answer := "I read: did " + calling
	want := map[hob.HookEvent]string{
		hob.OnRunStart:  `{"event":"OnRunStart","tool_name":"","data":{"message":"go"}}`,
		hob.PreToolUse:  `{"event":"PreToolUse","tool_name":"told","data":` + calling + `}`,
		hob.PostToolUse: `{"event":"PostToolUse","tool_name":"told","data":` + calling + `,"output":` + quoted("did "+calling) + `}`,
		hob.PreResponse: `{"event":"PreResponse","tool_name":"","data":{},"output":` + quoted(answer) + `}`,
		hob.OnRunComplete: `{"event":"OnRunComplete","tool_name":"","data":{"status":"completed","steps":2,"content":` +
			quoted(answer) + `}}`,
	}
	named := map[string]hob.HookEvent{}
	for _, r := range of[hob.HookResultEvent](p.t, all, hob.EventHookResult) {
		if ids[r.HookID] != r.HookEvent || r.Source != "hook" || r.DeliveryID == "" || named[r.DeliveryID] != "" {
			p.t.Errorf("the log tells of %+v", r)
		}
		named[r.DeliveryID] = r.HookEvent
	}
	run := runOf(p.t, all[0])
	for _, e := range events {
		got := p.eventually("/told/"+string(e), 1)[0]
		var body map[string]any
		p.must(json.Unmarshal([]byte(got.body), &body))
		of, _ := body["run"].(map[string]any)
		if delete(body, "run"); of["run_id"] != string(run) || of["execution_id"] != string(run) || of["agent_id"] != string(agent) {
			p.t.Errorf("%s: of run %v, want %s", e, of, run)
		}
		var expected map[string]any
		p.must(json.Unmarshal([]byte(want[e]), &expected))
		if diff := cmp.Diff(expected, body); diff != "" {
			p.t.Errorf("%s (-want +got):\n%s", e, diff)
		}
		if got.event != string(e) || named[got.delivery] != e || got.attempt != 1 {
			p.t.Errorf("%s is told as %s, under %s (%s), attempt %d", e, got.event, got.delivery, named[got.delivery], got.attempt)
		}
	}
}

// eventually waits until a receiver has so many requests.
func (p *peopleStage) eventually(path string, n int) []heard {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if got := p.told(path); len(got) >= n {
			return got
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s is told %d times, want %d\n%s", path, len(p.told(path)), n, p.s.logs())
		}
	}
}

func quoted(text string) string {
	b, _ := json.Marshal(text) // of a text
	return string(b)
}

func httpHooksDecide(p *peopleStage) {
	for name, tt := range map[string]struct {
		event   hob.HookEvent
		answer  string
		status  hob.Status
		called  []string // bodies that reach the tool
		content string   // of the answer, or the run's error
	}{
		"deny_call":   {hob.PreToolUse, `{"action":"deny","message":"not ann"}`, hob.Completed, nil, "I read: Error: Blocked by hook — not ann"},
		"deny_mute":   {hob.PreToolUse, `{"action":"deny"}`, hob.Completed, nil, "I read: Error: Blocked by hook — Blocked by webhook"},
		"new_input":   {hob.PreToolUse, `{"modified_input":{"to":"bob"}}`, hob.Completed, []string{`{"to":"bob"}`}, `I read: did {"to":"bob"}`},
		"new_result":  {hob.PostToolUse, `{"modified_output":"nothing to see"}`, hob.Completed, []string{calling}, "I read: nothing to see"},
		"deny_answer": {hob.PreResponse, `{"action":"deny","message":"not this"}`, hob.Completed, []string{calling}, "[Response blocked: not this]"},
		"new_answer":  {hob.PreResponse, `{"modified_output":"All is well."}`, hob.Completed, []string{calling}, "All is well."},
		"deny_run":    {hob.OnRunStart, `{"action":"deny","message":"closed"}`, hob.Failed, nil, "closed"},
	} {
		agent := p.agent(name, mailing(name), nil, nil)
		p.tell(agent, tt.event, "/"+name)
		p.answering("/"+name, func(heard) (int, string) { return http.StatusOK, tt.answer })
		r, err := p.c.Run(p.t.Context(), agent, client.RunRequest{Message: "go", Tools: true})
		p.must(err)
		said := r.Content
		if r.Status == hob.Failed && r.Error != nil {
			said = *r.Error
			if r.Code == nil || *r.Code != hob.CodeHookBlocked {
				p.t.Errorf("%s: the code is %v", name, r.Code)
			}
		}
		if r.Status != tt.status || said != tt.content {
			p.t.Errorf("%s: the run is %s: %q, want %s: %q", name, r.Status, said, tt.status, tt.content)
		}
		if diff := cmp.Diff(tt.called, p.done(name)); diff != "" {
			p.t.Errorf("%s: calls (-want +got):\n%s", name, diff)
		}
		record, err := p.c.RunRecord(p.t.Context(), r.RunID)
		p.must(err)
		if record.Content != r.Content || !slices.ContainsFunc(record.Events, func(e json.RawMessage) bool { return strings.Contains(string(e), `"hook_result"`) }) {
			p.t.Errorf("%s: the record says %q and does not tell of the hook", name, record.Content)
		}
	}
}

// answersAreHeld wants a reader to see nothing of an answer that a hook replaces, where the agent holds it, and to be told
// that what it saw is void, where it does not.
func answersAreHeld(p *peopleStage) {
	for name, settings := range map[string]map[string]any{"held": {"response_buffering": "hold"}, "live": nil} {
		agent := p.agent(name, "text: the secret plan", settings, nil)
		p.tell(agent, hob.PreResponse, "/"+name)
		p.answering("/"+name, func(heard) (int, string) { return http.StatusOK, `{"modified_output":"no plan"}` })
		events := p.stream(agent, nil)
		raw := ""
		for _, e := range events {
			raw += string(e.Data)
		}
		resets := of[hob.StepResetEvent](p.t, events, hob.EventStepReset)
		if leaked := strings.Contains(raw, "secret"); leaked != (name == "live") || (len(resets) == 1) != leaked {
			p.t.Errorf("%s: the text was shown: %t, and taken back %d times", name, leaked, len(resets))
		}
		end := of[hob.CompleteEvent](p.t, events, hob.EventComplete)[0]
		chunks := of[hob.ChunkEvent](p.t, events, hob.EventChunk)
		if end.Content != "no plan" || len(chunks) == 0 || chunks[len(chunks)-1].Content != "no plan" {
			p.t.Errorf("%s: it ends with %q behind %+v", name, end.Content, chunks)
		}
	}
}

func failingHooks(p *peopleStage) {
	for name, answer := range map[string]func(heard) (int, string){
		"broken":  func(heard) (int, string) { return http.StatusInternalServerError, `{"action":"deny"}` },
		"garbled": func(heard) (int, string) { return http.StatusOK, "all fine" },
		"unsure":  func(heard) (int, string) { return http.StatusOK, `{"action":"maybe"}` },
		"unfit":   func(heard) (int, string) { return http.StatusOK, `{"modified_input":{"n":"one"}}` },
		"late":    func(heard) (int, string) { time.Sleep(150 * time.Millisecond); return http.StatusOK, `{}` },
	} {
		for _, mode := range []hob.FailMode{"", hob.FailDeny} {
			agent := p.agent(name+string(mode), mailing(name+string(mode)), nil, nil)
			path := "/" + name + string(mode)
			p.tell(agent, hob.PreToolUse, path, func(in *client.HookInput) {
				in.Config.OnError = mode
				if name == "late" {
					in.Config.TimeoutSeconds = 0.05
				}
			})
			p.answering(path, answer)
			events := p.stream(agent, nil)
			told := of[hob.HookResultEvent](p.t, events, hob.EventHookResult)
			want := hob.HookFailed
			if name == "late" {
				want = hob.HookTimedOut
			}
			if len(told) != 1 || told[0].Status != want || told[0].Blocked != (mode == hob.FailDeny) || told[0].Message == "" {
				p.t.Errorf("%s %s: the log tells %+v", name, mode, told)
			}
			if n := len(p.done(name + string(mode))); (n == 0) != (mode == hob.FailDeny) {
				p.t.Errorf("%s %s: the tool was called %d times", name, mode, n)
			}
		}
	}
}

func rulesDecide(p *peopleStage) {
	deny := hob.Rule{Condition: "to IN [\"ann\"]", Message: "ann is away"}
	allow := hob.Rule{Condition: "n MATCHES ^1$", Action: "allow"}
	for name, tt := range map[string]struct {
		rules  []hob.Rule
		refuse bool
	}{
		"denied": {[]hob.Rule{deny}, true}, "first_allows": {[]hob.Rule{allow, deny}, false}, "first_denies": {[]hob.Rule{deny, allow}, true},
		"no_match": {[]hob.Rule{{Condition: "to NOT STARTS_WITH a"}}, false},
	} {
		own, err := json.Marshal(map[string]any{"rules": tt.rules})
		p.must(err)
		byHook, byTool := p.agent(name+"_hook", mailing(name+"_hook"), nil, nil), p.agent(name+"_tool", mailing(name+"_tool"), nil, own)
		p.hook(byHook, client.HookInput{Event: hob.PreToolUse, Type: hob.RuleHook, Config: client.HookConfigInput{Rules: tt.rules}})
		for tool, want := range map[string]struct {
			agent  hob.AgentID
			source string
			text   string
		}{
			name + "_hook": {byHook, "hook", "Error: Blocked by hook — ann is away"},
			name + "_tool": {byTool, "tool_rule", "Error: Blocked by rule — ann is away"},
		} {
			events := p.stream(want.agent, nil)
			result := of[hob.ToolResultEvent](p.t, events, hob.EventToolResult)[0]
			if tt.refuse != (len(p.done(tool)) == 0) || tt.refuse && result.Result != want.text {
				p.t.Errorf("%s: the tool was called %d times, and answers %q", tool, len(p.done(tool)), result.Result)
			}
			blocked := slices.ContainsFunc(of[hob.HookResultEvent](p.t, events, hob.EventHookResult), func(r hob.HookResultEvent) bool {
				return r.Blocked && r.Source == want.source && r.Action == hob.HookDeny
			})
			if blocked != tt.refuse {
				p.t.Errorf("%s: the log tells of a refusal: %t, want %t", tool, blocked, tt.refuse)
			}
		}
	}
	_, err := p.c.CreateHook(p.t.Context(), p.agent("bad_rule", "text: x", nil, nil), client.HookInput{
		Event: hob.PreToolUse, Type: hob.RuleHook, Config: client.HookConfigInput{Condition: "to MATCHES (((("},
	})
	p.refuses("a pattern that does not compile", err, hob.Invalid, "invalid_rule")
}

// hooksAreFrozen changes an agent's hooks while its run waits: the run keeps those that it began with.
func hooksAreFrozen(p *peopleStage) {
	agent := p.agent("frozen", mailing("frozen"), nil, nil)
	gate := p.guard(agent, client.HookConfigInput{})
	after := p.tell(agent, hob.PostToolUse, "/frozen/after")
	r, asked := p.waits(agent)
	p.must(p.c.DeleteHook(p.t.Context(), agent, gate.ID))
	off := false
	_, err := p.c.UpdateHook(p.t.Context(), agent, after.ID, client.HookChange{Enabled: &off})
	p.must(err)
	p.tell(agent, hob.PreResponse, "/frozen/new")
	p.decide(r.RunID, client.Decision{Approved: true, ApprovalID: asked[0].ApprovalID})
	p.completes(r.RunID)
	if n, added := len(p.told("/frozen/after")), len(p.told("/frozen/new")); n != 1 || added != 0 {
		p.t.Errorf("the hook of the run was told %d times, the new one %d times; want 1 and 0", n, added)
	}
	next := p.stream(agent, nil)
	if n := len(of[hob.ApprovalRequestedEvent](p.t, next, hob.EventApprovalRequested)); n != 0 || len(p.told("/frozen/after")) != 1 || len(p.told("/frozen/new")) != 1 {
		p.t.Errorf("the next run asks people %d times, the old hook %d times, the new one %d times", n, len(p.told("/frozen/after"))-1, len(p.told("/frozen/new")))
	}
}

func secretsAreToldOnce(p *peopleStage) {
	agent := p.agent("discreet", mailing("discreet"), nil, nil)
	const value = "hook-header-value-0123456789"
	made := p.tell(agent, hob.PreToolUse, "/discreet", func(in *client.HookInput) { in.Config.Headers = map[string]string{"X-Token": value} })
	if len(made.SigningSecret) < 32 || made.Config.Headers["X-Token"] != hob.Mask {
		p.t.Errorf("the answer tells the secret %q and the header %q", made.SigningSecret, string(made.Config.Headers["X-Token"]))
	}
	events := p.stream(agent, nil)
	listed, err := p.c.Hooks(p.t.Context(), agent)
	p.must(err)
	record, err := p.c.RunRecord(p.t.Context(), runOf(p.t, events[0]))
	p.must(err)
	seen, err := json.Marshal([]any{listed, record, events})
	p.must(err)
	seen = append(seen, p.s.logs()...)
	for _, secret := range []string{made.SigningSecret, value} {
		if strings.Contains(string(seen), secret) {
			p.t.Errorf("%q is told again", secret)
		}
	}
	if len(listed) != 1 || listed[0].SigningSecret != hob.Mask {
		p.t.Errorf("the list has %+v", listed)
	}
}
