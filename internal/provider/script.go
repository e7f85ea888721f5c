package provider

import (
	"encoding/json"
	"strings"
	"time"

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
//	search: {"query":"…","results":[…]} has searched the web by itself; only where the request allows it, and the model is
//	                                    scripted/search
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
	search    *hob.WebSearch
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

// place is a point of a script: a turn of a group, and the message of the user that led there.
type place struct {
	group *group
	turn  int
	user  int // index of that message, -1 without one
}

// maxRejoin bounds how many broken-off turns are followed back through a history.
const maxRejoin = 16

// locate finds the turn to play by the history alone: as many turns on as there are assistant messages since the user's
// last message. Where that message only asks to go on after an answer that broke off, what was before it counts too.
func (s *Script) locate(history []hob.Message, depth int) (place, bool) {
	user, said := -1, 0
	for i := len(history) - 1; i >= 0 && user < 0; i-- {
		switch {
		case history[i].Role == hob.RoleAssistant:
			said++
		case history[i].Role == hob.RoleUser && (i == 0 || history[i-1].Role != hob.RoleTool):
			user = i
		}
	}
	if user > 0 && depth < maxRejoin && s.hasBroken() {
		if before := history[user-1]; before.Role == hob.RoleAssistant && len(before.Calls) == 0 {
			at, ok := s.locate(history[:user-1], depth+1)
			if n := at.brokenOff(history[:user-1], before.Content); ok && n > 0 {
				at.turn = at.group.after(at.turn+n, said)
				return at, true
			}
		}
	}
	message := ""
	if user >= 0 {
		message = history[user].Text()
	}
	g, ok := s.choose(message)
	if !ok {
		return place{user: user}, false
	}
	return place{group: g, turn: g.after(0, said), user: user}, true
}

// after is the turn that follows a number of answers from a turn on. One that breaks off is a part of the answer that the
// next one continues.
func (g *group) after(turn, answers int) int {
	for range answers {
		for turn < len(g.turns)-1 && g.turns[turn].broken {
			turn++
		}
		turn++
	}
	return turn
}

// brokenOff tells how many turns from p on break off and together gave this text, 0 where none do.
func (p place) brokenOff(history []hob.Message, said string) int {
	if p.group == nil {
		return 0
	}
	var b strings.Builder
	at := look(history, p.user)
	for n := p.turn; n < len(p.group.turns) && p.group.turns[n].broken; n++ {
		for _, s := range p.group.turns[n].steps {
			b.WriteString(s.text.fill(at, nil))
		}
		if b.String() == said {
			return n - p.turn + 1
		}
	}
	return 0
}
