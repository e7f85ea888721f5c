//go:build linux

package main

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"hob"
)

// ledger is what is known of the truth without asking Hob: what clients were told, what the model was asked, and what the
// tools did. It is safe for concurrent use; the checker reads it when all is quiet.
type ledger struct {
	mu       sync.Mutex
	messages map[string]*message                 // by mark
	seen     map[hob.RunID]map[int64]fingerprint // events that any reader got
	told     map[string]map[hob.CallID][]string  // by mark: the results of each call that the model read, each once
	asked    map[string]int                      // by mark: requests to the model
	acts     map[string]*act                     // by Idempotency-Key of the call
	faults   map[string][]string                 // by promise: what was seen broken as it happened
	resumed  []time.Time                         // when each attempt event was first seen
	unread   []string                            // model or tool requests that made no sense
	acks     int                                 // messages that were acknowledged

	// first is called for each event that any reader gets first; nil = nobody wants to know. Set before the first request.
	first func(kind hob.EventType, run hob.RunID, data []byte)
}

func newLedger() *ledger {
	return &ledger{
		messages: map[string]*message{}, seen: map[hob.RunID]map[int64]fingerprint{}, told: map[string]map[hob.CallID][]string{},
		asked: map[string]int{}, acts: map[string]*act{}, faults: map[string][]string{},
	}
}

// fingerprint stands for the bytes of an event.
type fingerprint [sha256.Size]byte

// message is one message that a client wants a run for. Its mark stands in the text and tells it from all others.
type message struct {
	mark, text, key string
	session         hob.SessionID
	plan            plan
	sync            bool

	requests int         // that were sent to start it
	refused  int         // of these, answered with 5xx or 429
	runs     []hob.RunID // that acknowledgements named, each once: more than one is a broken promise
	acked    int         // its position among the acknowledgements of the whole ledger, from 1; 0 = none came
	cancel   bool        // a client asked to cancel it
	done     bool        // a client saw its complete event
}

// act is what the tool server knows of one tool call.
type act struct {
	key, tool, mark string
	body            string
	run             hob.RunID // from X-Run-Id
	arrived         []time.Time
	effects         int      // how often it acted; the receiver of a keyed call acts once, however often it is sent
	answers         []string // what it answered, each once
}

// add writes a message down before it is first sent.
func (l *ledger) add(m *message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages[m.mark] = m
}

// sent writes down that a request for a run leaves.
func (l *ledger) sent(m *message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.requests++
}

// refusal writes down that Hob said that it does not take a message now.
func (l *ledger) refusal(m *message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.refused++
}

// ack writes down that Hob named the run of a message: from now on it must never be lost.
func (l *ledger) ack(m *message, run hob.RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.acked == 0 {
		l.acks++
		m.acked = l.acks
	}
	if !slices.Contains(m.runs, run) {
		m.runs = append(m.runs, run)
	}
}

// wantsCancel writes down that a client is about to cancel a run.
func (l *ledger) wantsCancel(m *message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.cancel = true
}

// finished writes down that a client saw the end of a run.
func (l *ledger) finished(m *message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.done = true
}

// event writes down that a reader got an event whole.
func (l *ledger) event(run hob.RunID, seq int64, kind hob.EventType, data []byte) {
	if l.saw(run, seq, kind, fingerprint(sha256.Sum256(data))) && l.first != nil {
		l.first(kind, run, data)
	}
}

// saw writes down the fingerprint of an event and says whether nobody had seen it yet.
func (l *ledger) saw(run hob.RunID, seq int64, kind hob.EventType, f fingerprint) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.seen[run]
	if of == nil {
		of = map[int64]fingerprint{}
		l.seen[run] = of
	}
	old, known := of[seq]
	if known && old != f {
		l.faults[shownStays] = append(l.faults[shownStays], fmt.Sprintf("run %s: two readers got different events %d", run, seq))
	}
	of[seq] = f
	if kind == hob.EventAttempt && !known {
		l.resumed = append(l.resumed, time.Now())
	}
	return !known
}

// highest is the number of the newest event of a run that any reader got.
func (l *ledger) highest(run hob.RunID) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.seen[run])) // they come without gaps, or a promise was broken anyway
}

// fault writes down a promise that was seen broken as it happened.
func (l *ledger) fault(promise, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults[promise] = append(l.faults[promise], fmt.Sprintf(format, args...))
}

// odd writes down a request of Hob's that the outside world cannot understand.
func (l *ledger) odd(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unread = append(l.unread, fmt.Sprintf(format, args...))
}

// reads writes down a request to the model, with the results that it read. A result may be read in two forms, where the
// first was not stored yet when the process ended; what the model said to it is lost with it.
func (l *ledger) reads(mark string, results map[hob.CallID]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[mark]++
	of := l.told[mark]
	if of == nil {
		of = map[hob.CallID][]string{}
		l.told[mark] = of
	}
	for id, text := range results {
		if !slices.Contains(of[id], text) {
			of[id] = append(of[id], text)
		}
	}
}

// arrival writes down that a tool was called.
func (l *ledger) arrival(in act) *act {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.acts[in.key]
	if a == nil {
		a = &in
		l.acts[in.key] = a
	}
	if a.tool != in.tool || a.mark != in.mark || a.run != in.run || a.body != in.body {
		l.faults[keysNameCalls] = append(l.faults[keysNameCalls],
			fmt.Sprintf("the key %s came with %s %s %s and with %s %s %s", in.key, a.run, a.tool, a.body, in.run, in.tool, in.body))
	}
	a.arrived = append(a.arrived, time.Now())
	return a
}

// effect lets a tool act and gives its answer.
func (l *ledger) effect(a *act) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.tool == toolKeyed && a.effects > 0 {
		return a.answers[0] // this receiver honours the key
	}
	a.effects++
	answer := fmt.Sprintf(`{"tool":%q,"mark":%q,"act":%d,"key":%q}`, a.tool, a.mark, a.effects, a.key)
	a.answers = append(a.answers, answer)
	return answer
}

// counts are figures of the ledger.
type counts struct {
	messages, accepted, done, requests, refused, events, acts, repeats int
}

func (l *ledger) counts() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := counts{messages: len(l.messages), acts: len(l.acts)}
	for _, m := range l.messages {
		c.requests += m.requests
		c.refused += m.refused
		if m.acked > 0 {
			c.accepted++
		}
		if m.done {
			c.done++
		}
	}
	for _, of := range l.seen {
		c.events += len(of)
	}
	for _, a := range l.acts {
		c.repeats += len(a.arrived) - 1
	}
	return c
}

// open counts the accepted runs whose end nobody has seen yet.
func (l *ledger) open() int {
	c := l.counts()
	return c.accepted - c.done
}
