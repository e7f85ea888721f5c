package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"hob"
	"hob/internal/engine"
)

// service stands for the services behind http hooks. What each answers goes by its hook's address.
type service struct {
	mu      sync.Mutex
	answers map[string]answerFunc
	sent    []hob.HookRequest
}

type answerFunc func(context.Context, hob.HookRequest) (hob.HookAnswer, error)

var errService = errors.New("the hook answered with the status 500")

func (s *service) CallHook(ctx context.Context, r hob.HookRequest) (hob.HookAnswer, error) {
	s.mu.Lock()
	s.sent = append(s.sent, r)
	answer := s.answers[r.URL]
	s.mu.Unlock()
	if answer == nil {
		return hob.HookAnswer{}, nil
	}
	return answer(ctx, r)
}

// asked gives what was sent to hooks, in order.
func (s *service) asked() []hob.HookRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// answers makes a service whose hooks answer as told, by name.
func (w *world) serve(answers map[string]answerFunc) *service {
	s := &service{answers: map[string]answerFunc{}}
	for name, f := range answers {
		s.answers[address(name)] = f
	}
	w.hooks = s
	return s
}

func address(name string) string { return "https://hooks.example/" + name }

func always(a hob.HookAnswer) answerFunc {
	return func(context.Context, hob.HookRequest) (hob.HookAnswer, error) { return a, nil }
}

// input is an answer that puts other arguments in place of a call's.
func input(args string) answerFunc {
	return always(hob.HookAnswer{ModifiedInput: json.RawMessage(args)})
}

// output is an answer that puts another text in place of a result or an answer.
func output(text string) answerFunc { return always(hob.HookAnswer{ModifiedOutput: &text}) }

func denies(why string) answerFunc { return always(hob.HookAnswer{Deny: true, Message: why}) }

func breaks(context.Context, hob.HookRequest) (hob.HookAnswer, error) {
	return hob.HookAnswer{}, errService
}

// silent never answers.
func silent(ctx context.Context, _ hob.HookRequest) (hob.HookAnswer, error) {
	<-ctx.Done()
	return hob.HookAnswer{}, ctx.Err()
}

// Hooks of tests.
func httpHook(event hob.HookEvent, name string) hob.Hook {
	return hob.Hook{Event: event, Type: hob.HTTPHook, Config: hob.HookConfig{URL: address(name)}}
}

func ruleHook(event hob.HookEvent, rules ...hob.Rule) hob.Hook {
	return hob.Hook{Event: event, Type: hob.RuleHook, Config: hob.HookConfig{Rules: rules}}
}

func approvalHook(event hob.HookEvent) hob.Hook {
	return hob.Hook{Event: event, Type: hob.ApprovalHook, Config: hob.HookConfig{Message: "May it?"}}
}

// about narrows a hook to tools.
func about(h hob.Hook, matcher string) hob.Hook {
	h.Matcher = &matcher
	return h
}

// expiring gives an approval hook its time.
func expiring(h hob.Hook, after time.Duration) hob.Hook {
	seconds := after.Seconds()
	h.Config.Timeout = &seconds
	return h
}

// failing gives a hook its fail mode.
func failing(h hob.Hook, mode hob.FailMode) hob.Hook {
	h.Config.OnError = mode
	return h
}

// hook gives the agent hooks, one behind the other.
func (w *world) hook(hooks ...hob.Hook) []hob.Hook {
	w.t.Helper()
	var made []hob.Hook
	for _, h := range hooks {
		if err := engine.CheckHook(&h); err != nil {
			w.t.Fatalf("a hook of the test may not be made: %v", err)
		}
		h.Agent, h.Enabled = w.agent.ID, true
		got, err := w.store.CreateHook(w.t.Context(), w.by, h)
		if err != nil {
			w.t.Fatal(err)
		}
		made = append(made, got)
	}
	return made
}

// person is who decides approvals.
var person = hob.Principal{Kind: hob.ServicePrincipal, Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeAdmin}}

// rests waits until a run rests with so many approvals that nobody has decided, and gives those.
func (w *world) rests(id hob.RunID, pending int) []hob.Approval {
	w.t.Helper()
	var open []hob.Approval
	waitUntil(w.t, func() bool {
		run, err := w.store.Run(w.t.Context(), w.by, id)
		if err != nil || run.Status.Final() {
			w.t.Fatalf("the run does not wait: it is %s (%s) %s, %v", run.Status, run.Code, run.Error, err)
		}
		open = w.approvals(id, hob.ApprovalPending)
		return run.Status == hob.AwaitingApproval && len(open) == pending && w.engine.Stats().Active == 0
	})
	return open
}

// approvals lists those of a run, of a status or all.
func (w *world) approvals(id hob.RunID, status hob.ApprovalStatus) []hob.Approval {
	w.t.Helper()
	page, err := w.store.Approvals(w.t.Context(), person, hob.ApprovalFilter{Run: id, Status: status, Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	return page.Items
}

// decide says what a person says about an approval.
func (w *world) decide(p hob.Approval, approved bool, modified string) {
	w.t.Helper()
	in := engine.DecideInput{Run: p.RunID, Approval: p.ApprovalID, Digest: p.Digest, Approved: approved}
	if modified != "" {
		in.ModifiedInput = json.RawMessage(modified)
	}
	if !approved {
		in.Reason = "not now"
	}
	if _, err := w.engine.Decide(w.t.Context(), person, in); err != nil {
		w.t.Fatalf("deciding %s: %v", p.ApprovalID, err)
	}
}

// ends waits until a run is final, however often it waits for people in between.
func (w *world) ends(id hob.RunID) hob.Run {
	w.t.Helper()
	waitUntil(w.t, func() bool { return final(w, id) })
	run, err := w.store.Run(w.t.Context(), w.by, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// told gives the events of a type in a run's log, decoded.
func told[T any](w *world, id hob.RunID, kind hob.EventType) []T {
	w.t.Helper()
	var out []T
	for _, ev := range w.stored(id) {
		if ev.Type != kind {
			continue
		}
		var x T
		if err := json.Unmarshal(ev.Data, &x); err != nil {
			w.t.Fatalf("%s is not readable: %v", ev.Data, err)
		}
		out = append(out, x)
	}
	return out
}

// stored reads what there is of a run's log, which need not have ended.
func (w *world) stored(id hob.RunID) []hob.Event {
	w.t.Helper()
	all, err := w.store.Events(w.t.Context(), w.by, id, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// order is the sequence of a log's events, pieces of one text as one, the heads of steps left out.
func order(log []hob.Event) string {
	var out []string
	for _, ev := range log {
		name := string(ev.Type)
		if ev.Type == hob.EventStart || len(out) > 0 && out[len(out)-1] == name && (ev.Type.Delta() || ev.Type == hob.EventChunk) {
			continue
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

// another gives the world a second agent beside its first, at the same engine.
func (w *world) another(settings map[string]any, tools ...string) *world {
	w.t.Helper()
	raw, err := json.Marshal(settings)
	if err != nil {
		w.t.Fatal(err)
	}
	out := *w
	out.agent, err = w.store.CreateAgent(w.t.Context(), w.by, hob.Agent{Name: "tester " + hob.RandomHex(4), Model: "scripted", Settings: raw})
	if err != nil {
		w.t.Fatal(err)
	}
	out.assign(tools...)
	return &out
}
