package provider

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"hob"
)

// Bounds of a script.
const (
	MaxScript      = 1 << 20 // bytes
	MaxScriptDelay = time.Minute
	maxChunks      = 10_000
)

// Script is a model's part written down: what it answers, turn by turn. It is plain text, one directive a line; lines
// that are empty or begin with # do not count.
//
//	when: open order* | orders left     the group applies if the user's message has all words of one alternative;
//	                                    * stands for any ending; a group without it always applies
//	needs: database_query               tools without which the group's calls are not made, but named as missing
//	text: I will look.                  says it; several text lines in a row are lines of one text
//	reasoning: The status is "open".    thinks it aloud
//	call: database_query {"query":"…"}  asks for a tool; several are parallel calls; call#ID: sets the id, call#-: none
//	call-raw: lookup {broken            the same with arguments taken as they stand
//	delay: 50ms                         waits
//	error: 429 try later                fails as a provider would that answers this status (or a class: model_error …)
//	cut                                 the stream breaks here
//	---                                 ends a turn
//	text: There are {{result.0.n}}.     {{message}}, {{result}}, {{results.1.name}}, {{rows}}: see the template type
//	if-error: It failed: {{result}}     said instead of everything else when the last tool result is an error
//	finish: length                      stop, tool_calls, length or content_filter
//	usage: 120 8                        prompt and completion tokens
//	chunks: 4                           parts a text comes in
//	pace: 15ms                          waits between them
//	limit: 4000                         fails with prompt_too_long while the messages hold more characters
//	===                                 ends a group
//
// The turn that is played depends on the history alone, so a run that goes on after a restart gets the same answers.
type Script struct {
	groups []group
}

type group struct {
	when  [][]string // alternatives of words; nil = always
	needs []string
	turns []turn
}

type turn struct {
	steps   []step
	ifError *template
	finish  string
	usage   *hob.Usage
	chunks  int
	pace    time.Duration
	limit   int
	broken  bool // a cut, or the finish "length": what follows goes on with the same turn of the user
}

// step is one thing a turn does; exactly one field is set.
type step struct {
	text      *template
	reasoning *template
	call      *scriptCall
	delay     time.Duration
	fail      *scriptError
	cut       bool
}

type scriptCall struct {
	id   string // "-" = none, "" = made up
	name string
	args *template
	raw  bool
}

type scriptError struct {
	status  int
	class   hob.ErrorClass // "" = by status
	message string
}

// directives maps each directive to what reads its value.
var directives = map[string]func(*scriptParser, string) error{
	"when": (*scriptParser).when, "needs": (*scriptParser).needs, "text": (*scriptParser).text,
	"reasoning": (*scriptParser).reasoning, "call": (*scriptParser).call, "call-raw": (*scriptParser).callRaw,
	"delay": (*scriptParser).delay, "error": (*scriptParser).fail, "cut": (*scriptParser).cut,
	"if-error": (*scriptParser).ifError, "finish": (*scriptParser).finish, "usage": (*scriptParser).usage,
	"chunks": (*scriptParser).chunks, "pace": (*scriptParser).pace, "limit": (*scriptParser).limit,
}

func directiveNames() string {
	names := make([]string, 0, 16)
	for _, n := range []string{"text", "reasoning", "call", "call-raw", "delay", "error", "cut", "if-error", "finish",
		"usage", "chunks", "pace", "limit", "when", "needs"} {
		names = append(names, n)
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

type scriptParser struct {
	group  *group
	turn   *turn
	opened bool // the turn has a directive of its own
	callID string
	joined bool // the last directive was a text that a further text line continues
}

// ParseScript reads a script. The error is Invalid, with the code invalid_script, and names the line and the way out.
func ParseScript(source string) (*Script, error) {
	if len(source) > MaxScript {
		return nil, scriptFault(0, "a script may have at most %d bytes", MaxScript)
	}
	if !utf8.ValidString(source) {
		return nil, scriptFault(0, "a script must be valid UTF-8")
	}
	s := &Script{}
	p := &scriptParser{group: &group{}, turn: &turn{}}
	number := 0
	for line := range strings.Lines(source) {
		number++
		line = strings.TrimRight(line, "\r\n")
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "" || trimmed[0] == '#':
		case trimmed == "---":
			if err := p.endTurn(); err != nil {
				return nil, scriptFault(number, "%s", err)
			}
		case trimmed == "===":
			if err := p.endGroup(s); err != nil {
				return nil, scriptFault(number, "%s", err)
			}
		default:
			if err := p.directive(line); err != nil {
				return nil, scriptFault(number, "%s", err)
			}
		}
	}
	if err := p.endGroup(s); err != nil {
		return nil, scriptFault(number, "%s", err)
	}
	return s, nil
}

func scriptFault(line int, format string, args ...any) *hob.Error {
	text := fmt.Sprintf(format, args...)
	if line > 0 {
		text = fmt.Sprintf("script line %d: %s", line, text)
	}
	e := hob.Errorf(hob.Invalid, "%s", text).WithCode("invalid_script")
	if line > 0 {
		return e.With("line", line)
	}
	return e
}

func (p *scriptParser) directive(line string) error {
	name, value, _ := strings.Cut(strings.TrimLeft(line, " \t"), ":")
	value = strings.TrimPrefix(value, " ")
	name, p.callID, _ = strings.Cut(strings.TrimSpace(name), "#")
	read, ok := directives[name]
	if !ok {
		return fmt.Errorf("unknown directive %q; known are %s", quote(name), directiveNames())
	}
	if p.callID != "" && name != "call" && name != "call-raw" {
		return fmt.Errorf("only call and call-raw take an id, as in call#%s:", p.callID)
	}
	joined := p.joined
	p.joined = false
	if name != "when" && name != "needs" {
		p.opened = true
	}
	if name == "text" && joined {
		p.joined = true
		return p.continueText(value)
	}
	return read(p, value)
}

func (p *scriptParser) endTurn() error {
	if !p.opened {
		return fmt.Errorf("the turn before this line is empty; give it a text: or a call:")
	}
	if err := p.turn.check(); err != nil {
		return err
	}
	p.group.turns = append(p.group.turns, *p.turn)
	p.turn, p.opened, p.joined = &turn{}, false, false
	return nil
}

func (p *scriptParser) endGroup(s *Script) error {
	if !p.opened && len(p.group.turns) > 0 {
		return fmt.Errorf("a --- must be followed by a turn; remove it or give the turn a text: or a call:")
	}
	if err := p.endTurn(); err != nil {
		return err
	}
	s.groups = append(s.groups, *p.group)
	p.group = &group{}
	return nil
}

func (t *turn) check() error {
	for i, s := range t.steps {
		if (s.cut || s.fail != nil) && i < len(t.steps)-1 {
			return fmt.Errorf("nothing can follow a cut or an error in its turn; begin a new one with ---")
		}
		t.broken = t.broken || s.cut
	}
	t.broken = t.broken || t.finish == hob.FinishLength
	return nil
}

func (p *scriptParser) step(s step) { p.turn.steps = append(p.turn.steps, s) }

func (p *scriptParser) when(v string) error {
	if p.opened || len(p.group.turns) > 0 || p.group.when != nil {
		return fmt.Errorf("when: must be the first line of its group; begin a new group with ===")
	}
	for alternative := range strings.SplitSeq(v, "|") {
		words := strings.Fields(strings.ToLower(alternative))
		for _, w := range words {
			if strings.ContainsFunc(strings.TrimSuffix(w, "*"), notWord) || w == "*" {
				return fmt.Errorf("%q is no word; when: takes words of letters and digits, with * for any ending", quote(w))
			}
		}
		if len(words) == 0 {
			return fmt.Errorf("when: needs at least one word on each side of |")
		}
		p.group.when = append(p.group.when, words)
	}
	return nil
}

func notWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

func (p *scriptParser) needs(v string) error {
	if p.opened || len(p.group.turns) > 0 {
		return fmt.Errorf("needs: must stand before the first turn of its group")
	}
	names := strings.Fields(v)
	if len(names) == 0 {
		return fmt.Errorf("needs: wants the names of tools")
	}
	p.group.needs = append(p.group.needs, names...)
	return nil
}

func (p *scriptParser) text(v string) error {
	t, err := parseTemplate(v)
	if err != nil {
		return err
	}
	p.joined = true
	p.step(step{text: t})
	return nil
}

func (p *scriptParser) continueText(v string) error {
	t, err := parseTemplate("\n" + v)
	if err != nil {
		return err
	}
	last := p.turn.steps[len(p.turn.steps)-1].text
	last.parts = append(last.parts, t.parts...)
	return nil
}

func (p *scriptParser) reasoning(v string) error {
	t, err := parseTemplate(v)
	if err != nil {
		return err
	}
	p.step(step{reasoning: t})
	return nil
}

func (p *scriptParser) call(v string) error {
	name, args, _ := strings.Cut(strings.TrimSpace(v), " ")
	args = strings.TrimSpace(args)
	if args == "" {
		args = "{}"
	}
	if !isObject([]byte(args)) {
		return fmt.Errorf("the arguments of %s are no JSON object; mend them, or use call-raw: to send them as they are", quote(name))
	}
	return p.addCall(name, args, false)
}

func (p *scriptParser) callRaw(v string) error {
	name, args, _ := strings.Cut(strings.TrimSpace(v), " ")
	return p.addCall(name, args, true)
}

func (p *scriptParser) addCall(name, args string, raw bool) error {
	if name == "" {
		return fmt.Errorf("call: wants the tool's name and a JSON object, as in call: clock {\"zone\":\"UTC\"}")
	}
	t, err := parseTemplate(args)
	if err != nil {
		return err
	}
	p.step(step{call: &scriptCall{id: p.callID, name: name, args: t, raw: raw}})
	return nil
}

func (p *scriptParser) delay(v string) (err error) {
	d, err := duration(v)
	if err == nil {
		p.step(step{delay: d})
	}
	return err
}

func duration(v string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(v))
	if err != nil || d < 0 || d > MaxScriptDelay {
		return 0, fmt.Errorf("%q is no duration from 0s to %s, as in 50ms", quote(v), MaxScriptDelay)
	}
	return d, nil
}

// scriptClasses are the words that error: takes instead of a status.
var scriptClasses = map[string]hob.ErrorClass{
	"rate_limit": hob.ClassRateLimit, "model_error": hob.ClassModelError, "prompt_too_long": hob.ClassPromptTooLong,
	"unauthorized": hob.ClassUnauthorized, "bad_request": hob.ClassBadRequest,
}

func (p *scriptParser) fail(v string) error {
	status, message, _ := strings.Cut(strings.TrimSpace(v), " ")
	e := &scriptError{message: strings.TrimSpace(message)}
	if class, ok := scriptClasses[status]; ok {
		e.class = class
	} else if n, err := strconv.Atoi(status); err == nil && n >= 400 && n <= 599 {
		e.status = n
	} else {
		return fmt.Errorf("error: wants a status from 400 to 599, or rate_limit, model_error, prompt_too_long, unauthorized, " +
			"bad_request, and then a message")
	}
	p.step(step{fail: e})
	return nil
}

func (p *scriptParser) cut(v string) error {
	if strings.TrimSpace(v) != "" {
		return fmt.Errorf("cut stands alone on its line")
	}
	p.step(step{cut: true})
	return nil
}

func (p *scriptParser) ifError(v string) error {
	t, err := parseTemplate(v)
	if err != nil {
		return err
	}
	p.turn.ifError = t
	return nil
}

func (p *scriptParser) finish(v string) error {
	switch v = strings.TrimSpace(v); v {
	case hob.FinishStop, hob.FinishToolCalls, hob.FinishLength, hob.FinishContentFilter:
		p.turn.finish = v
		return nil
	}
	return fmt.Errorf("finish: wants stop, tool_calls, length or content_filter")
}

func (p *scriptParser) usage(v string) error {
	f := strings.Fields(v)
	if len(f) == 2 {
		prompt, err1 := strconv.ParseUint(f[0], 10, 31)
		completion, err2 := strconv.ParseUint(f[1], 10, 31)
		if err1 == nil && err2 == nil {
			p.turn.usage = &hob.Usage{
				PromptTokens: int64(prompt), CompletionTokens: int64(completion), TotalTokens: int64(prompt + completion), //nolint:gosec // 31 bits
			}
			return nil
		}
	}
	return fmt.Errorf("usage: wants two numbers, prompt and completion tokens, as in usage: 120 8")
}

func (p *scriptParser) chunks(v string) error {
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil || n < 1 || n > maxChunks {
		return fmt.Errorf("chunks: wants a number from 1 to %d", maxChunks)
	}
	p.turn.chunks = n
	return nil
}

func (p *scriptParser) pace(v string) (err error) {
	p.turn.pace, err = duration(v)
	return err
}

func (p *scriptParser) limit(v string) error {
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil || n < 1 {
		return fmt.Errorf("limit: wants a number of characters above 0")
	}
	p.turn.limit = n
	return nil
}

// choose returns the first group that applies to a message.
func (s *Script) choose(message string) (*group, bool) {
	var words []string
	for i := range s.groups {
		g := &s.groups[i]
		if g.when == nil {
			return g, true
		}
		if words == nil {
			words = strings.FieldsFunc(strings.ToLower(message), notWord)
		}
		for _, alternative := range g.when {
			if holdsAll(words, alternative) {
				return g, true
			}
		}
	}
	return nil, false
}

func holdsAll(words, wanted []string) bool {
	for _, w := range wanted {
		beginning, prefix := strings.CutSuffix(w, "*")
		found := false
		for _, word := range words {
			if word == w || prefix && strings.HasPrefix(word, beginning) {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// hasBroken says whether any turn breaks off.
func (s *Script) hasBroken() bool {
	for _, g := range s.groups {
		for _, t := range g.turns {
			if t.broken {
				return true
			}
		}
	}
	return false
}

// jsonInside is s as it stands between the quotes of a JSON string.
func jsonInside(s string) string {
	q := appendString(nil, s)
	return string(q[1 : len(q)-1])
}

// jsonText is a JSON value as people read it: a string without its quotes, anything else as it stands.
func jsonText(raw json.RawMessage) string {
	var s string
	if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
