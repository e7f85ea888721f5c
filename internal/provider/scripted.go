package provider

import (
	"context"
	_ "embed"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
)

// Names of the scripted provider and its models.
const (
	scriptedName = "scripted"
	demoName     = "demo"
	echoName     = "echo"
	ownName      = "script" // plays the request's own script; what "scripted" alone means
	searchName   = "search" // the same, and can search the web by itself
)

//go:embed demo.script
var demoScript string

// noMoreTools is the answer of a turn that has nothing but calls where none may be made.
const noMoreTools = "I would go on, but this step may use no tools any more."

const echoScript = "text: {{message}}\nchunks: 4\n"

func init() {
	add(maker{
		name: scriptedName,
		open: func(e env) (hob.Provider, error) { return newScripted(e.config) },
	})
}

// scripted plays scripts. It needs no network and no key, is deterministic, and fails as real providers fail.
type scripted struct {
	scripts map[string]*Script
	noDelay bool
}

func newScripted(c Config) (*scripted, error) {
	s := &scripted{scripts: map[string]*Script{}, noDelay: c.NoDelay}
	sources := map[string]string{demoName: demoScript, echoName: echoScript}
	for name, source := range c.Scripts {
		if _, taken := sources[name]; taken || name == ownName || name == searchName || name == "" {
			return nil, hob.Errorf(hob.Invalid, "a script cannot be named %q; that model exists", name)
		}
		sources[name] = source
	}
	for name, source := range sources {
		script, err := ParseScript(source)
		if err != nil {
			return nil, hob.Errorf(hob.Invalid, "script %q: %s", name, err.Error()).WithCode("invalid_script")
		}
		s.scripts[name] = script
	}
	return s, nil
}

// check says whether a model of this name exists.
func (s *scripted) check(model string) error {
	if _, ok := s.scripts[model]; ok || model == "" || model == ownName || model == searchName {
		return nil
	}
	names := []string{ownName, searchName}
	for name := range s.scripts {
		names = append(names, name)
	}
	sort.Strings(names)
	return badModel("there is no scripted model %q; there are %s", model, strings.Join(names, ", "))
}

func (s *scripted) script(r hob.Request) (*Script, error) {
	if script, ok := s.scripts[r.Model]; ok {
		return script, nil
	}
	if strings.TrimSpace(r.Script) == "" {
		return nil, hob.Errorf(hob.Invalid, "the agent's settings have no script; set settings.script, or use the model %s/%s",
			scriptedName, demoName)
	}
	return ParseScript(r.Script)
}

// Stream plays the turn that the history asks for; see hob.Provider.
func (s *scripted) Stream(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
	return func(yield func(hob.Delta, error) bool) {
		script, err := s.script(r)
		if err != nil {
			yield(hob.Delta{}, &hob.ProviderError{Class: hob.ClassBadRequest, Message: scriptedName + ": " + err.Error(), Err: err})
			return
		}
		p := &player{ctx: ctx, request: r, noDelay: s.noDelay, yield: yield}
		play := p.play
		if r.Component == hob.ComponentCompaction {
			play = p.summarise
		}
		if err := play(script); err != nil && !p.stopped {
			yield(hob.Delta{}, err)
		}
	}
}

// player plays one turn.
type player struct {
	ctx     context.Context //nolint:containedctx // of this one call
	request hob.Request
	noDelay bool
	yield   func(hob.Delta, error) bool

	scene   scene
	began   bool
	stopped bool
	calls   int
	written int  // characters of text, reasoning and arguments
	barred  bool // a call was left out, because the request allows none
}

func (p *player) play(s *Script) error {
	history := p.request.Messages
	at, ok := s.locate(history, 0)
	if !ok {
		return p.failure(http.StatusBadRequest, "", "no group of the script applies to this message; add one without when:")
	}
	p.scene = look(history, at.user)
	// The history may have been condensed since; the request then knows better how far the run is.
	if n := p.request.Step - 1; n > at.turn {
		at.turn = n
	}
	if at.turn >= len(at.group.turns) {
		return p.say(at.group.lastText().fill(p.scene, nil), turn{})
	}
	t := at.group.turns[at.turn]
	if missing := p.missing(at.group, t); missing != "" {
		return p.say(missing, t)
	}
	if t.ifError != nil && p.scene.failed {
		return p.say(t.ifError.fill(p.scene, nil), turn{chunks: t.chunks, pace: t.pace, usage: t.usage})
	}
	if t.limit > 0 && p.size() > t.limit {
		return p.failure(0, hob.ClassPromptTooLong, fmt.Sprintf("the messages hold more than %d characters", t.limit))
	}
	for _, s := range t.steps {
		if s.call != nil && p.request.NoToolUse {
			p.barred = true
			continue
		}
		if err := p.step(s, t); err != nil || p.stopped {
			return err
		}
	}
	if p.barred && p.written == 0 {
		return p.say(noMoreTools, t)
	}
	return p.end(t)
}

// summarise answers a request for a summary: without understanding anything, but with what was said, the newest at the
// most length, so that a script sees that nothing of late is lost.
func (p *player) summarise(*Script) error {
	const perMessage, charsPerToken = 200, 2
	room := max(p.request.MaxTokens, 200) * charsPerToken / 2
	var lines []string
	for i := len(p.request.Messages) - 2; i >= 0 && room > 0; i-- {
		m := p.request.Messages[i]
		if m.Role != hob.RoleUser && m.Role != hob.RoleAssistant || m.Text() == "" {
			continue
		}
		text := strings.Join(strings.Fields(m.Text()), " ")
		if short, cut := hob.Truncate(text, min(perMessage, room)); cut {
			text, _, _ = strings.Cut(short, "\n\n[Truncated")
		}
		lines = append(lines, string(m.Role)+": "+text)
		room -= len(text)
	}
	slices.Reverse(lines)
	return p.say("<analysis>A script has no thoughts.</analysis>\n<summary>\n"+strings.Join(lines, "\n")+"\n</summary>", turn{})
}

// lastText is the text of the last turn that has one.
func (g *group) lastText() *template {
	for i := len(g.turns) - 1; i >= 0; i-- {
		joined := &template{}
		for _, s := range g.turns[i].steps {
			if s.text != nil {
				joined.parts = append(joined.parts, s.text.parts...)
			}
		}
		if len(joined.parts) > 0 {
			return joined
		}
	}
	return &template{parts: []templatePart{{literal: "(the script has no further turns)"}}}
}

// missing says which tool a turn lacks, "" where none.
func (p *player) missing(g *group, t turn) string {
	calls := slices.ContainsFunc(t.steps, func(s step) bool { return s.call != nil })
	if !calls {
		return ""
	}
	for _, name := range g.needs {
		offered := slices.ContainsFunc(p.request.Tools, func(t hob.ToolSpec) bool { return t.Name == name })
		switch {
		case p.request.NoToolUse:
			return "I would use the tool " + name + " for this, but this step may use no tools any more."
		case !offered:
			return "I would use the tool " + name + " for this, but this run was not given it. If the agent has it, the run's warnings " +
				"say why; a synchronous run has no tools unless its request says \"tools\": true."
		}
	}
	return ""
}

// size counts the characters of the request's messages.
func (p *player) size() int {
	n := utf8.RuneCountInString(p.request.System)
	for _, m := range p.request.Messages {
		n += utf8.RuneCountInString(m.Text())
		for _, c := range m.Calls {
			n += len(c.Name) + utf8.RuneCount(c.Arguments)
		}
	}
	return n
}

func (p *player) step(s step, t turn) error {
	switch {
	case s.text != nil:
		return p.pieces(s.text.fill(p.scene, nil), t, func(v string) hob.Delta { return hob.Delta{Text: v} })
	case s.reasoning != nil:
		return p.pieces(s.reasoning.fill(p.scene, nil), t, func(v string) hob.Delta { return hob.Delta{Reasoning: v} })
	case s.call != nil:
		p.emit(hob.Delta{Call: p.call(s.call)})
	case s.search != nil:
		if p.request.WebSearch != nil && p.request.Model == searchName {
			p.emit(hob.Delta{Searches: []hob.WebSearch{*s.search}})
		}
	case s.fail != nil:
		return p.failure(s.fail.status, s.fail.class, s.fail.message)
	case s.cut:
		return p.failure(0, hob.ClassModelError, "the connection broke before the answer was complete")
	default:
		return p.wait(s.delay)
	}
	return nil
}

func (p *player) call(c *scriptCall) *hob.ModelCall {
	p.calls++
	escape := jsonInside
	if c.raw {
		escape = nil
	}
	out := &hob.ModelCall{ID: c.id, Name: c.name, Arguments: c.args.fill(p.scene, escape)}
	switch c.id {
	case "-":
		out.ID = ""
	case "":
		out.ID = "call_" + strconv.Itoa(len(p.request.Messages)) + "_" + strconv.Itoa(p.calls)
	}
	p.written += len(out.Arguments)
	return out
}

// pieces passes a text on in the turn's number of chunks.
func (p *player) pieces(text string, t turn, delta func(string) hob.Delta) error {
	p.written += utf8.RuneCountInString(text)
	for i, piece := range chunks(text, max(t.chunks, 1)) {
		if i > 0 {
			if err := p.wait(t.pace); err != nil {
				return err
			}
		}
		if err := p.ctx.Err(); err != nil {
			return p.cancelled()
		}
		if p.emit(delta(piece)); p.stopped {
			return nil
		}
	}
	return nil
}

// chunks parts a text into at most n pieces of about equal length; none is empty.
func chunks(text string, n int) []string {
	total := utf8.RuneCountInString(text)
	n = min(n, total)
	var out []string
	from, count := 0, 0
	for i := range text {
		if len(out) < n-1 && count == (len(out)+1)*total/n {
			out = append(out, text[from:i])
			from = i
		}
		count++
	}
	if from < len(text) {
		out = append(out, text[from:])
	}
	return out
}

func (p *player) emit(d hob.Delta) {
	p.began = true
	p.stopped = !p.yield(d, nil)
}

func (p *player) wait(d time.Duration) error {
	if p.noDelay || d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ctx.Done():
		return p.cancelled()
	}
}

func (p *player) cancelled() error {
	return &hob.ProviderError{
		Class: hob.ClassCancelled, Message: scriptedName + ": the model call was cancelled", Err: context.Cause(p.ctx),
	}
}

// say gives a text and ends the turn.
func (p *player) say(text string, t turn) error {
	if err := p.pieces(text, t, func(v string) hob.Delta { return hob.Delta{Text: v} }); err != nil || p.stopped {
		return err
	}
	return p.end(turn{usage: t.usage})
}

func (p *player) end(t turn) error {
	if p.ctx.Err() != nil {
		return p.cancelled()
	}
	const charsPerToken = 4
	usage := t.usage
	if usage == nil {
		in, out := int64(p.size()/charsPerToken+1), int64(p.written/charsPerToken+1)
		usage = &hob.Usage{PromptTokens: in, CompletionTokens: out, TotalTokens: in + out}
	}
	finish := t.finish
	if finish == "" {
		finish = hob.FinishStop
		if p.calls > 0 {
			finish = hob.FinishToolCalls
		}
	}
	copied := *usage
	p.emit(hob.Delta{Finish: finish, Usage: &copied, Model: scriptedName + "/" + p.name()})
	return nil
}

func (p *player) name() string {
	if p.request.Model == "" {
		return ownName
	}
	return p.request.Model
}

// failure is the error that a provider would give that answers this status; behind a delta it is a cut.
func (p *player) failure(status int, class hob.ErrorClass, message string) error {
	if class == "" {
		class = classify(status, vendorError{})
	}
	if p.began && (class == hob.ClassModelError || class == hob.ClassRateLimit) {
		class = hob.ClassCut
	}
	if message == "" {
		message = http.StatusText(status)
	}
	if status > 0 {
		message = fmt.Sprintf("%s answered %d: %s", scriptedName, status, message)
	} else {
		message = scriptedName + ": " + message
	}
	return &hob.ProviderError{Class: class, Status: status, Message: message}
}
