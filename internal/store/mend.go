package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"hob"
)

// Fault is a place where stored history breaks the rules of hob.Message.
type Fault struct {
	Run    hob.RunID `json:"run_id"`
	Turn   int64     `json:"turn"`
	Index  int       `json:"index"` // of the message in its run, as it is stored
	What   string    `json:"fault"`
	Repair string    `json:"repair"` // what repairing does, or did
}

// What stands in a repaired history for what the record does not hold.
const (
	missingResult = "[The result of this call is missing from the record.]"
	missingInput  = "[This message is missing from the record.]"
)

// mended is a run's messages as they should be.
type mended struct {
	messages []hob.Message
	from     []int // the stored index of each message, -1 for one that stands for what is missing
	faults   []Fault
	renamed  map[hob.CallID]hob.CallID // calls that got another id, because an earlier run of the session had theirs
}

// mender mends the runs of one session, in order. Every message that is valid where it stands is kept as it is.
type mender struct {
	used  map[hob.CallID]bool // ids of calls that the session has already
	newID func() hob.CallID
}

// mendRun is one run under repair. Its messages are the mender's own to change.
type mendRun struct {
	*mender
	in      []hob.Message
	dropped []bool
	answers map[callPlace]int // the message that answers a call
	out     mended
}

// callPlace is a call by its message's index and its own in it.
type callPlace struct{ message, call int }

// mend finds the faults of a run's messages and repairs them. found are those that reading the messages showed.
func (m *mender) mend(messages []hob.Message, found ...Fault) mended {
	r := mendRun{
		mender: m, in: slices.Clone(messages), dropped: make([]bool, len(messages)),
		answers: map[callPlace]int{}, out: mended{faults: found, renamed: map[hob.CallID]hob.CallID{}},
	}
	for i := range r.in {
		r.mendText(i)
		r.mendShape(i)
	}
	r.match()
	r.nameCalls()
	r.dropEmpty()
	r.assemble()
	slices.SortStableFunc(r.out.faults, func(a, b Fault) int { return a.Index - b.Index })
	return r.out
}

func (r *mendRun) fault(i int, what, repair string) {
	r.out.faults = append(r.out.faults, Fault{Index: i, What: what, Repair: repair})
}

func (r *mendRun) drop(i int, what string) {
	r.dropped[i] = true
	r.fault(i, what, "it is left out")
}

// mendText makes every text of a message valid UTF-8.
func (r *mendRun) mendText(i int) {
	m, bad := &r.in[i], false
	fix := func(s string) string {
		if utf8.ValidString(s) {
			return s
		}
		bad = true
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	m.Content, m.Name, m.CallID = fix(m.Content), fix(m.Name), hob.CallID(fix(string(m.CallID)))
	m.Parts, m.Calls = slices.Clone(m.Parts), slices.Clone(m.Calls)
	for j := range m.Parts {
		m.Parts[j].Text, m.Parts[j].URL = fix(m.Parts[j].Text), fix(m.Parts[j].URL)
	}
	for j := range m.Calls {
		c := &m.Calls[j]
		c.ID, c.Name, c.Bad, c.Arguments = hob.CallID(fix(string(c.ID))), fix(c.Name), fix(c.Bad), json.RawMessage(fix(string(c.Arguments)))
	}
	if m.Reasoning != nil {
		kept := *m.Reasoning
		kept.Provider, kept.Text = fix(kept.Provider), fix(kept.Text)
		if kept.Artefact != nil {
			kept.Artefact = json.RawMessage(fix(string(kept.Artefact)))
		}
		m.Reasoning = &kept
	}
	if bad {
		r.fault(i, "the text is not valid UTF-8", "what is not reads as U+FFFD")
	}
}

// mendShape judges a message by itself: its role and the arguments of its calls.
func (r *mendRun) mendShape(i int) {
	m := &r.in[i]
	switch m.Role {
	case hob.RoleUser, hob.RoleSystem, hob.RoleTool:
	case hob.RoleAssistant:
		for j := range m.Calls {
			r.mendArguments(i, &m.Calls[j])
		}
	default:
		r.drop(i, fmt.Sprintf("the role %q is unknown", m.Role))
	}
}

// mendArguments makes a call's arguments an object. Text that holds one, as some older writers kept it, is read; what is
// no object at all is kept as the model's mistake.
func (r *mendRun) mendArguments(i int, c *hob.ToolCall) {
	if len(c.Arguments) > 0 && c.Arguments[0] == '{' && json.Valid(c.Arguments) {
		return
	}
	text := string(c.Arguments)
	var inner string
	if json.Unmarshal(c.Arguments, &inner) == nil {
		text = inner
	}
	what := fmt.Sprintf("the arguments of the call %q are no JSON object", c.ID)
	args, err := hob.ParseArguments(text)
	if err != nil {
		c.Arguments, c.Bad = json.RawMessage("{}"), text
		r.fault(i, what, "they are kept as bad_arguments beside an empty object")
		return
	}
	c.Arguments = args
	r.fault(i, what, "the object in them is taken, or an empty one where there is nothing")
}

// match finds the answer of each call: a tool message belongs to the last call of its id before it, or else to the first
// behind it that has no answer. Others are orphans, or a second answer.
func (r *mendRun) match() {
	last := map[hob.CallID][]callPlace{} // of the last message that has the id: one place per call
	var early []int
	for i, m := range r.in {
		switch {
		case r.dropped[i]:
		case m.Role == hob.RoleAssistant:
			here := map[hob.CallID][]callPlace{}
			for j, c := range m.Calls {
				here[c.ID] = append(here[c.ID], callPlace{i, j})
			}
			for id, places := range here {
				last[id] = places
			}
		case m.Role == hob.RoleTool && len(last[m.CallID]) == 0:
			early = append(early, i)
		case m.Role == hob.RoleTool:
			if !r.answer(last[m.CallID], i) {
				r.drop(i, fmt.Sprintf("the call %q has a result already", m.CallID))
			}
		}
	}
	if len(early) == 0 {
		return
	}
	behind := map[hob.CallID][]callPlace{}
	for i, m := range r.in {
		if m.Role == hob.RoleAssistant {
			for j, c := range m.Calls {
				behind[c.ID] = append(behind[c.ID], callPlace{i, j})
			}
		}
	}
	for _, i := range early {
		if !r.answer(behind[r.in[i].CallID], i) {
			r.drop(i, fmt.Sprintf("it answers the call %q, which is not there or has a result already", r.in[i].CallID))
		}
	}
}

// answer gives a tool message to the first of some calls that has none.
func (r *mendRun) answer(places []callPlace, i int) bool {
	for _, p := range places {
		if _, taken := r.answers[p]; !taken {
			r.answers[p] = i
			return true
		}
	}
	return false
}

// nameCalls gives every call a name and an id of its own in the session, and its answer the same. A call whose name
// neither it nor its result tells is left out with its result.
func (r *mendRun) nameCalls() {
	here := map[hob.CallID]bool{} // ids in this run, as they were and as they are
	for i := range r.in {
		m := &r.in[i]
		if m.Role != hob.RoleAssistant || r.dropped[i] {
			continue
		}
		kept := m.Calls[:0]
		for j, c := range m.Calls {
			at, answered := r.answers[callPlace{i, j}]
			if c.Name == "" && !r.mendName(i, &c, at, answered) {
				delete(r.answers, callPlace{i, j})
				continue
			}
			if c.ID == "" || r.used[c.ID] {
				r.rename(i, &c, here)
			}
			r.used[c.ID], here[c.ID] = true, true
			if answered {
				r.in[at].CallID = c.ID
			}
			r.keepCall(callPlace{i, j}, callPlace{i, len(kept)})
			kept = append(kept, c)
		}
		m.Calls = kept
	}
}

func (r *mendRun) mendName(i int, c *hob.ToolCall, at int, answered bool) bool {
	what := fmt.Sprintf("the call %q names no tool", c.ID)
	if answered && r.in[at].Name != "" {
		c.Name = r.in[at].Name
		r.fault(i, what, "it gets the name that its result has, "+c.Name)
		return true
	}
	r.fault(i, what, "it is left out with its result")
	if answered {
		r.dropped[at] = true
	}
	return false
}

func (r *mendRun) rename(i int, c *hob.ToolCall, here map[hob.CallID]bool) {
	id := r.newID()
	for r.used[id] {
		id = r.newID()
	}
	what := "a call has no id"
	if c.ID != "" {
		what = fmt.Sprintf("the call id %q is used twice in the session", c.ID)
		if !here[c.ID] { // the first of this run: the row that tells how a call of this id was carried out is its
			r.out.renamed[c.ID] = id
			here[c.ID] = true
		}
	}
	r.fault(i, what, fmt.Sprintf("the later call and its result get the id %s", id))
	c.ID = id
}

// keepCall notes that a call has moved up, because one before it was left out.
func (r *mendRun) keepCall(from, to callPlace) {
	at, answered := r.answers[from]
	if from == to || !answered {
		return
	}
	delete(r.answers, from)
	r.answers[to] = at
}

// dropEmpty leaves out messages that say nothing. The first of a run is its user's, whose place must not be another's.
func (r *mendRun) dropEmpty() {
	for i := range r.in {
		m := &r.in[i]
		switch {
		case r.dropped[i] || m.Role == hob.RoleTool || m.Content != "" || len(m.Calls) > 0:
		case m.Role != hob.RoleAssistant && len(m.Parts) > 0:
		case m.Text() != "":
			m.Content, m.Parts = m.Text(), nil
			r.fault(i, "an assistant's text is kept in parts", "it becomes its content")
		case i == 0 && m.Role == hob.RoleUser:
			m.Content = missingInput
			r.fault(i, "the user's message is empty", "it says that it is missing from the record")
		default:
			r.drop(i, "the message is empty")
		}
	}
}

// assemble puts each call's answers behind it, in the order of the calls, and leaves the order of all else.
func (r *mendRun) assemble() {
	for i, m := range r.in {
		if r.dropped[i] || m.Role == hob.RoleTool {
			continue
		}
		r.put(i, m)
		if m.Role != hob.RoleAssistant {
			continue
		}
		end := i + 1 // where a message stands that is no answer and stays
		for end < len(r.in) && (r.dropped[end] || r.in[end].Role == hob.RoleTool) {
			end++
		}
		before := i
		for j, c := range m.Calls {
			at, answered := r.answers[callPlace{i, j}]
			if !answered {
				r.fault(i, fmt.Sprintf("the call %q has no result", c.ID), "a result says that it is missing from the record")
				r.put(-1, hob.Message{Role: hob.RoleTool, CallID: c.ID, Name: c.Name, Content: missingResult, IsError: true})
				continue
			}
			if at < before || at > end {
				r.fault(at, fmt.Sprintf("the result of the call %q is out of order", c.ID), "it is put behind its call, in the order of the calls")
			}
			before = max(before, at)
			r.put(at, r.in[at])
		}
	}
}

func (r *mendRun) put(from int, m hob.Message) {
	r.out.from = append(r.out.from, from)
	r.out.messages = append(r.out.messages, m)
}

// moved is where the message of a stored index stands after mending, or the first that is left behind it.
func (m mended) moved(index int) int {
	for i, from := range m.from {
		if from >= index {
			return i
		}
	}
	return len(m.from)
}
