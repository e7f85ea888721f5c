package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"hob"
)

// directives maps each directive to what reads its value.
var directives = map[string]func(*scriptParser, string) error{
	"when": (*scriptParser).when, "needs": (*scriptParser).needs, "text": (*scriptParser).text,
	"reasoning": (*scriptParser).reasoning, "call": (*scriptParser).call, "call-raw": (*scriptParser).callRaw,
	"search": (*scriptParser).search,
	"delay":  (*scriptParser).delay, "error": (*scriptParser).fail, "cut": (*scriptParser).cut,
	"if-error": (*scriptParser).ifError, "finish": (*scriptParser).finish, "usage": (*scriptParser).usage,
	"chunks": (*scriptParser).chunks, "pace": (*scriptParser).pace, "limit": (*scriptParser).limit,
}

func directiveNames() string { return strings.Join(slices.Sorted(maps.Keys(directives)), ", ") }

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
		return fmt.Errorf("only call and call-raw take an id, not %s", name)
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
		return errors.New("the turn before this line is empty; give it a line text: … or call: …")
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
		return errors.New("a --- must be followed by a turn; remove it or give the turn a line text: … or call: …")
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
			return errors.New("nothing can follow a cut or an error in its turn; begin a new one with ---")
		}
		t.broken = t.broken || s.cut
	}
	t.broken = t.broken || t.finish == hob.FinishLength
	return nil
}

func (p *scriptParser) step(s step) { p.turn.steps = append(p.turn.steps, s) }

func (p *scriptParser) when(v string) error {
	if p.opened || len(p.group.turns) > 0 || p.group.when != nil {
		return errors.New("when: must be the first line of its group; begin a new group with ===")
	}
	for alternative := range strings.SplitSeq(v, "|") {
		words := strings.Fields(strings.ToLower(alternative))
		for _, w := range words {
			if strings.ContainsFunc(strings.TrimSuffix(w, "*"), notWord) || w == "*" {
				return fmt.Errorf("%q is no word; when: takes words of letters and digits, with * for any ending", quote(w))
			}
		}
		if len(words) == 0 {
			return errors.New("when: needs at least one word on each side of |")
		}
		p.group.when = append(p.group.when, words)
	}
	return nil
}

func notWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

func (p *scriptParser) needs(v string) error {
	if p.opened || len(p.group.turns) > 0 {
		return errors.New("needs: must stand before the first turn of its group")
	}
	names := strings.Fields(v)
	if len(names) == 0 {
		return errors.New("needs: wants the names of tools")
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
		return errors.New("call: wants the tool's name and a JSON object, as in call: clock {\"zone\":\"UTC\"}")
	}
	t, err := parseTemplate(args)
	if err != nil {
		return err
	}
	p.step(step{call: &scriptCall{id: p.callID, name: name, args: t, raw: raw}})
	return nil
}

func (p *scriptParser) search(v string) error {
	s := &hob.WebSearch{}
	d := json.NewDecoder(strings.NewReader(v))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil || d.More() {
		return errors.New(`search: wants what was searched for and found, as in search: {"query":"weather","results":[{"title":"Yr","url":"https://yr.no"}]}`)
	}
	if s.Results == nil {
		s.Results = []hob.WebResult{}
	}
	p.step(step{search: s})
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
		return errors.New("error: wants a status from 400 to 599, or rate_limit, model_error, prompt_too_long, unauthorized, " +
			"bad_request, and then a message")
	}
	p.step(step{fail: e})
	return nil
}

func (p *scriptParser) cut(v string) error {
	if strings.TrimSpace(v) != "" {
		return errors.New("cut stands alone on its line")
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
	return errors.New("finish: wants stop, tool_calls, length or content_filter")
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
	return errors.New("usage: wants two numbers, prompt and completion tokens, as in usage: 120 8")
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
		return errors.New("limit: wants a number of characters above 0")
	}
	p.turn.limit = n
	return nil
}
