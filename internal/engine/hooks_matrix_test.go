package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/engine"
)

// cell is one of the matrix of hooks: what comes of a hook of a type at an event.
type cell struct {
	event   hob.HookEvent
	of      hob.HookType
	outcome string
	mode    hob.FailMode // "" where it has no say
}

func (c cell) String() string {
	return fmt.Sprintf("%s | %s | %s | %s", c.event, c.of, c.outcome, c.mode)
}

// What hooks do.
const (
	allows    = "allow"
	refuses   = "deny"
	modifies  = "modify"
	fails     = "error"
	takesLong = "timeout"
)

// cells are all that there can be, and those that there cannot.
func cells() (out []cell) {
	for _, event := range hob.HookEvents() {
		for _, of := range hob.HookTypes() {
			for _, outcome := range []string{allows, refuses, modifies, fails, takesLong} {
				modes := []hob.FailMode{""}
				if outcome == fails || outcome == takesLong {
					modes = []hob.FailMode{hob.FailAllow, hob.FailDeny}
				}
				for _, mode := range modes {
					out = append(out, cell{event, of, outcome, mode})
				}
			}
		}
	}
	return out
}

// tooLong is more than a pattern looks at, so that no rule can say whether it matches.
var tooLong = strings.Repeat("x", hob.MaxMatchChars+1)

// script is what the model of a cell does, tool what it calls.
func (c cell) script() (script, tool string) {
	args := map[string]any{"n": 1}
	text := "done"
	if c.of == hob.RuleHook && c.outcome == fails {
		args["s"] = tooLong
		text = tooLong
	}
	if !c.event.OfTools() {
		return "text: " + text + "\n", ""
	}
	if tool = "once"; c.event == hob.OnDelegation {
		tool = "delegate"
	}
	raw, _ := json.Marshal(args) // of texts and numbers
	return fmt.Sprintf("call#c1: %s %s\n---\ntext: done\n", tool, raw), tool
}

// says is the message of the cell's run.
func (c cell) says() string {
	if c.event == hob.OnRunStart && c.of == hob.RuleHook && c.outcome == fails {
		return tooLong
	}
	return "go"
}

// hook is the cell's, served at an address of its own.
func (c cell) hook(s *service, address string) hob.Hook {
	h := hob.Hook{Event: c.event, Type: c.of, Config: hob.HookConfig{OnError: c.mode}}
	other := "other"
	switch c.of {
	case hob.HTTPHook:
		h.Config.URL = address
		s.answers[address] = map[string]answerFunc{
			allows: always(hob.HookAnswer{}), refuses: denies("no"), fails: breaks, takesLong: silent,
			modifies: always(hob.HookAnswer{ModifiedInput: json.RawMessage(`{"n":2}`), ModifiedOutput: &other}),
		}[c.outcome]
		if c.outcome == takesLong {
			h.Config.TimeoutSeconds = 0.02
		}
	case hob.RuleHook:
		field := map[bool]string{true: "s", false: "n"}[c.outcome == fails]
		switch c.event { //nolint:exhaustive // the others are of tools
		case hob.OnRunStart:
			field = "message"
		case hob.PreResponse:
			field = "output"
		}
		rule := hob.Rule{Condition: field + " NOT IN []", Action: c.outcome, Message: "no"}
		switch c.outcome {
		case fails:
			rule.Condition, rule.Action = field+" MATCHES y", "deny"
		case takesLong:
			h.Config.TimeoutSeconds, rule.Action = 1, "deny"
		}
		h.Config.Rules = []hob.Rule{rule}
	case hob.ApprovalHook:
		h.Config.Message = "May it?"
		switch c.outcome {
		case takesLong:
			h = expiring(h, 20*time.Millisecond)
		case fails:
			h.Config.Message = unstorable
		}
	}
	return h
}

// unstorable is the message of approvals that the store takes at the second try only.
const unstorable = "May it, if this can be stored?"

// pickyStore is away whenever it is to keep such an approval for the first time.
type pickyStore struct {
	hob.Store
	mu   sync.Mutex
	gone map[hob.RunID]bool
}

func (s *pickyStore) Commit(ctx context.Context, c hob.RunCommit) error {
	if slices.ContainsFunc(c.Approvals, func(p hob.Approval) bool { return p.Message == unstorable && p.Status == hob.ApprovalPending }) {
		s.mu.Lock()
		first := !s.gone[c.Run]
		s.gone[c.Run] = true
		s.mu.Unlock()
		if first {
			return hob.Errorf(hob.Unavailable, "the database cannot be reached now")
		}
	}
	return s.Store.Commit(ctx, c)
}

// played is a cell on its way.
type played struct {
	cell
	w    *world
	run  hob.Run
	row  string
	note string
}

// TestHooks_Matrix lets hooks of every type do all that they can at every event. What comes of it is in testdata.
func TestHooks_Matrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{})
	s := w.serve(nil)
	all := cells()
	games := make([]played, len(all))
	for i, c := range all { // before the engine asks anybody
		games[i] = played{cell: c}
		games[i].prepare(w, s, i)
	}
	picky := &pickyStore{Store: w.store, gone: map[hob.RunID]bool{}}
	w.begin(func(hob.Store) hob.Store { return picky })
	for i := range games {
		games[i].start(w.engine)
	}
	for i := range games {
		games[i].decide()
	}
	var out strings.Builder
	out.WriteString("event | type | outcome | on_error | hook_result | what comes of it | events\n--- | --- | --- | --- | --- | --- | ---\n")
	for i := range games {
		out.WriteString(games[i].String() + " | " + games[i].ends() + "\n")
	}
	if want := len(all); len(picky.gone) != 8 || want != 126 {
		t.Errorf("%d cells, of which %d met an approval that could not be stored", want, len(picky.gone))
	}
	golden(t, "hooks.golden", out.String())
}

// golden compares with a file of testdata, or rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// prepare makes the cell's agent and hook. Where there can be no such hook, that is the row.
func (p *played) prepare(w *world, s *service, i int) {
	w.t.Helper()
	h := p.hook(s, address(fmt.Sprint(i)))
	if err := engine.CheckHook(&h); err != nil {
		p.row = "none | refused: " + err.Error() + " | none"
		return
	}
	script, tool := p.script()
	tools := []string{tool}
	if tool == "" {
		tools = nil
	}
	p.w = w.another(map[string]any{"script": script}, tools...)
	p.w.hook(h)
}

func (p *played) start(e *engine.Engine) {
	if p.w != nil {
		p.w.engine = e
		p.run = p.w.start(p.says(), hob.RunOptions{})
	}
}

// decide says what the cell's person says.
func (p *played) decide() {
	if p.w == nil || p.of != hob.ApprovalHook || p.outcome == takesLong {
		return
	}
	open := p.w.rests(p.run.ID, 1)[0]
	if n := len(p.w.deeds(p.run.ID)); n > 0 {
		p.w.t.Errorf("%s: %d calls were carried out before anybody decided", p.cell, n)
	}
	in := engine.DecideInput{Run: p.run.ID, Digest: open.Digest, Approved: p.outcome != refuses, Reason: "so"}
	if p.outcome == modifies {
		in.ModifiedInput = json.RawMessage(`{"n":2}`)
	}
	_, err := p.w.engine.Decide(p.w.t.Context(), person, in)
	if err != nil && p.outcome == modifies {
		p.note, in.ModifiedInput = "; refused: "+err.Error(), nil
		_, err = p.w.engine.Decide(p.w.t.Context(), person, in)
	}
	if err != nil {
		p.w.t.Fatalf("%s: %v", p.cell, err)
	}
}

// deeds are the calls that tools carried out for a run.
func (w *world) deeds(id hob.RunID) []hob.Call {
	return slices.DeleteFunc(w.tools.calls(), func(c hob.Call) bool { return c.Run != id })
}

// ends gives what came of the cell.
func (p *played) ends() string {
	if p.w == nil {
		return p.row
	}
	run := p.w.ends(p.run.ID)
	p.w.valid(run)
	var results []string
	for _, r := range told[hob.HookResultEvent](p.w, run.ID, hob.EventHookResult) {
		results = append(results, resultLine(r))
	}
	detail := p.w.detail(run)
	what := fmt.Sprintf("%s %q", run.Status, short(run.Content))
	if run.Code != "" {
		what = fmt.Sprintf("%s (%s) %q", run.Status, run.Code, run.Error)
	}
	for _, c := range detail.Calls {
		what += fmt.Sprintf("; %s → %q", short(string(c.Arguments)), short(c.Result.Text))
		if c.Result.IsError {
			what += " (error)"
		}
		if err := p.carriedOut(c); err != nil {
			p.w.t.Errorf("%s: %v", p.cell, err)
		}
	}
	log := p.w.log(run.ID)
	if p.outcome == fails && p.of == hob.ApprovalHook { // where the run was interrupted is a matter of time
		log = slices.DeleteFunc(log, func(ev hob.Event) bool {
			return !slices.Contains(strings.Fields("tool_call tool_result hook_result approval_requested approval_resolved complete"), string(ev.Type))
		})
	}
	return strings.Join([]string{strings.Join(results, "; "), what + p.note, order(log)}, " | ")
}

// carriedOut compares the record of a call with what its tool was given.
func (p *played) carriedOut(c hob.CallState) error {
	did := p.w.deeds(p.run.ID)
	switch {
	case c.Attempt == 0 && len(did) == 0:
		return nil
	case c.Attempt == 1 && len(did) == 1 && string(did[0].Arguments) == string(c.Arguments):
		return nil
	}
	return errors.New("the call's record and what its tool did are not the same")
}

// resultLine is what a hook decided, in words.
func resultLine(r hob.HookResultEvent) string {
	s := fmt.Sprintf("%s %s", r.Action, r.Status)
	if r.Modified {
		s += " modified"
	}
	if r.Blocked {
		s += " blocked"
	}
	if r.Message != "" {
		s += ": " + r.Message
	}
	return s
}

// short leaves out what is only there to be long.
func short(s string) string { return strings.ReplaceAll(s, tooLong, "x…") }
