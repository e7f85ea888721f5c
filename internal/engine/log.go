package engine

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"hob"
	"hob/internal/seeded"
)

const (
	textInterval = 25 * time.Millisecond // between two commits that hold nothing but streamed text
	stepPause    = 3 * time.Millisecond  // that a step's results wait for the next wish of a fast model
	textBytes    = 2 << 10               // a longer piece of streamed text becomes an event of its own
	backlogBytes = 256 << 10             // of events not yet handed in; a model that streams faster has to wait
)

// runLog is the only way out of a run. What the driver writes is gathered while the previous commit is under way and
// goes to the store in one transaction; only what is durable is shown to readers. Writing never waits; sync does.
type runLog struct {
	e     *Engine
	run   hob.RunID
	epoch int64
	lost  func(error) // called once when a commit failed

	mu        sync.Mutex
	next      int64 // seq of the next event
	open      hob.RunCommit
	any       bool // open holds something
	waiting   int  // bytes of events in open
	text      textKind
	buf       []byte // streamed text that is no event yet
	busy      bool   // a commit is under way, or the run is not accepted yet
	timer     *time.Timer
	flushed   time.Time // when the last commit that ended in streamed text was handed in, zero after any other event
	handed    time.Time // when the commit under way was handed in
	confirmed time.Time // when the last durable commit was handed in
	written   uint64    // writes so far
	stored    uint64    // writes that are durable
	taken     uint64    // writes in the commit under way
	err       error
	messages  int              // messages of the run so far
	booked    map[string]int64 // its actions in the ledger so far

	durable int64 // seq of the last durable event
	tail    []hob.Event
	bytes   int
	ended   bool
	subs    map[chan struct{}]struct{}
	waits   chan struct{} // closed at the next change of stored or err
}

// batch is what one write puts into the log; it is valid only inside write.
type batch struct {
	l      *runLog
	urgent bool
}

// write adds events, messages and states that become durable together.
func (l *runLog) write(f func(*batch)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	b := batch{l: l}
	f(&b)
	l.any = true
	l.written++
	l.kick(b.urgent)
}

// note is write for what another write of the same driver follows at once: it starts no commit of its own.
func (l *runLog) note(f func(*batch)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	f(&batch{l: l})
	l.any = true
	l.written++
}

// event adds an event; f gets its head, numbered.
func (b *batch) event(t hob.EventType, f func(hob.EventHead) any) {
	l := b.l
	l.sealText()
	b.urgent = true
	l.flushed = time.Time{}
	h := hob.EventHead{Event: t, Type: t, Seq: l.next, Run: l.run, TS: hob.Time{Time: l.e.Clock()}}
	l.add(t, encodeFrame(f(h)), h.TS)
}

// streamed adds streamed text; pieces of one kind that wait for the same commit are joined.
func (b *batch) streamed(k textKind, s string) {
	l := b.l
	if k != l.text || len(l.buf)+len(s) > textBytes {
		l.sealText()
		l.text = k
	}
	l.buf = append(l.buf, s...)
}

func (b *batch) message(m hob.Message) {
	l := b.l
	if len(l.open.Messages) == 0 {
		l.open.Base = l.messages
	}
	l.open.Messages = append(l.open.Messages, m)
	l.messages++
}

func (b *batch) call(c hob.CallState) {
	for i := range b.l.open.Calls {
		if b.l.open.Calls[i].ID == c.ID {
			b.l.open.Calls[i] = c
			return
		}
	}
	b.l.open.Calls = append(b.l.open.Calls, c)
}

func (b *batch) summary(s hob.Summary) { b.l.open.Summary = &s }

// usage books an entry in the ledger: the only way there.
func (b *batch) usage(u hob.UsageEntry) {
	l := b.l
	u.Action, u.Quantity = cmp.Or(u.Action, hob.ActionModelCall), cmp.Or(u.Quantity, 1)
	l.open.Usage = append(l.open.Usage, u)
	if l.booked == nil {
		l.booked = map[string]int64{}
	}
	l.booked[u.Action] += u.Quantity
}

// actions are those of the run in the ledger so far.
func (b *batch) actions() map[string]int64 { return maps.Clone(b.l.booked) }

// approval writes a new approval, or what became of one.
func (b *batch) approval(p hob.Approval) {
	for i := range b.l.open.Approvals {
		if b.l.open.Approvals[i].ApprovalID == p.ApprovalID {
			b.l.open.Approvals[i] = p
			return
		}
	}
	b.l.open.Approvals = append(b.l.open.Approvals, p)
}

func (b *batch) delivery(d hob.Delivery) { b.l.open.Deliveries = append(b.l.open.Deliveries, d) }

func (b *batch) audit(e hob.AuditEntry) { b.l.open.Audit = append(b.l.open.Audit, e) }

// rewrite puts a message in the place of the run's last.
func (b *batch) rewrite(m hob.Message) {
	if n := len(b.l.open.Messages); n > 0 {
		b.l.open.Messages[n-1] = m
		return
	}
	b.l.open.Rewrite = &m
}

func (b *batch) outcome(o hob.Outcome) { b.l.open.Outcome = &o; b.urgent = true }

// sealText makes the waiting streamed text an event.
func (l *runLog) sealText() {
	if len(l.buf) == 0 {
		return
	}
	now := l.e.Clock()
	l.add(l.text.event, encodeText(l.text, l.run, l.next, now, l.buf), hob.Time{Time: now})
	l.buf = l.buf[:0]
}

func (l *runLog) add(t hob.EventType, data []byte, at hob.Time) {
	l.open.Events = append(l.open.Events, hob.Event{Seq: l.next, Type: t, Data: data, Time: at})
	l.waiting += len(data)
	l.next++
}

// kick hands the gathered writes in, now or when the interval for bare text is over.
func (l *runLog) kick(urgent bool) {
	if l.busy || !l.any {
		return
	}
	if !urgent && len(l.open.Events) == 0 && len(l.buf) < textBytes {
		if wait := textInterval - time.Since(l.flushed); wait > 0 {
			l.later(wait)
			return
		}
	}
	l.busy = true
	l.e.group.Go(l.flush)
}

// later hands the gathered writes in after a while, if nothing does before.
func (l *runLog) later(wait time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.ring)
	} else {
		l.timer.Reset(wait)
	}
}

// soon is write for what may wait a moment for the writes behind it: a fast model's next wish and the results before it
// then share a commit, and a slow one's readers notice nothing.
func (l *runLog) soon(f func(*batch)) {
	l.note(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !l.busy {
		l.later(stepPause)
	}
}

func (l *runLog) ring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.kick(true)
	}
}

// flush commits until nothing waits. It runs at most once at a time.
func (l *runLog) flush() {
	for {
		c, ok := l.take()
		if !ok {
			return
		}
		began := monotonic()
		err := l.e.Store.Commit(context.WithoutCancel(l.e.base), c)
		l.e.written(began, err)
		if err == nil && len(c.Deliveries) > 0 && l.e.Deliver != nil {
			l.e.Deliver()
		}
		l.settle(c.Events, c.Outcome != nil && c.Outcome.Status.Final(), err)
		if err != nil {
			return
		}
	}
}

func (l *runLog) take() (hob.RunCommit, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || !l.any {
		l.busy = false
		return hob.RunCommit{}, false
	}
	text := len(l.buf) > 0
	l.sealText()
	c := l.open
	c.Run, c.Epoch, c.Owner, c.Lease = l.run, l.epoch, l.e.Owner, l.e.Limits.Lease
	l.open = hob.RunCommit{}
	l.any, l.taken, l.waiting = false, l.written, 0
	l.handed = time.Now() //nolint:forbidigo // commits are measured from it
	if text {
		l.flushed = l.handed
	}
	return c, true
}

// settle shows what became durable, or ends the log where it did not.
func (l *runLog) settle(events []hob.Event, final bool, err error) {
	l.mu.Lock()
	if err != nil {
		l.err, l.busy = err, false
	} else {
		l.stored, l.confirmed = l.taken, l.handed
		l.show(events)
		l.ended = l.ended || final
	}
	l.notify()
	l.mu.Unlock()
	if err != nil {
		l.lost(err)
	}
}

func (l *runLog) show(events []hob.Event) {
	if len(events) == 0 {
		return
	}
	l.tail = append(l.tail, events...)
	for _, ev := range events {
		l.bytes += len(ev.Data)
	}
	cut := 0
	for l.bytes > l.e.Limits.TailBytes && cut < len(l.tail)-1 {
		l.bytes -= len(l.tail[cut].Data)
		cut++
	}
	if cut > 0 {
		l.tail = append([]hob.Event(nil), l.tail[cut:]...)
	}
	l.durable = events[len(events)-1].Seq
}

func (l *runLog) notify() {
	if l.waits != nil {
		close(l.waits)
		l.waits = nil
	}
	for c := range l.subs {
		ring(c)
	}
}

// sync returns once all that was written so far is durable, or with the error for which it cannot be.
func (l *runLog) sync() error {
	l.mu.Lock()
	want := l.written
	l.kick(true)
	for l.err == nil && l.stored < want {
		if l.waits == nil {
			l.waits = make(chan struct{})
		}
		c := l.waits
		l.mu.Unlock()
		<-c
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	return l.err
}

// alive says whether the lease on the run is surely still ours, going by this machine's clock and the last time that the
// store confirmed it. Where it is not sure it asks the store.
func (l *runLog) alive() bool {
	if time.Until(l.leased()) > l.e.Limits.Lease/3 {
		return true
	}
	l.write(func(*batch) {})
	return l.sync() == nil
}

// leased is the time until which the lease on the run is surely ours.
func (l *runLog) leased() time.Time {
	if seeded.Bug("zombie_send") {
		return time.Now().Add(l.e.Limits.Lease) //nolint:forbidigo // of a fault that is planted
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.confirmed
	if renewed := l.e.renewed.Load(); renewed != nil && renewed.After(last) {
		last = *renewed
	}
	return last.Add(l.e.Limits.Lease)
}

// failure is why the log takes no more, nil where it does.
func (l *runLog) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// full says whether so much waits for the store that the writer should sync before it goes on.
func (l *runLog) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting > backlogBytes
}

// opening gives the events that the acceptance of the run makes durable. The log stays busy until opened.
func (l *runLog) opening() []hob.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]hob.Event(nil), l.tail...)
}

// start writes the events of the acceptance; they leave with StartRun, not with a commit.
func (l *runLog) start(f func(*batch)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy, l.handed = true, time.Now() //nolint:forbidigo // the lease's age is measured from it
	f(&batch{l: l})
	l.tail, l.open.Events = l.open.Events, nil
}

// opened tells the log that the acceptance is durable: its events are shown and what gathered meanwhile is committed.
func (l *runLog) opened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.tail
	l.tail = nil
	l.show(events)
	l.notify()
	l.busy, l.confirmed = false, l.handed
	l.kick(true)
}

// kill ends the log: nothing more is written.
func (l *runLog) kill(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !l.ended {
		l.err = err
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.notify()
}

// after gives the durable events behind a position. covered is false where they are not in memory any more; over is
// true once the log has ended and everything was given, dead when it ended without an end.
func (l *runLog) after(pos int64) (events []hob.Event, covered, over, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dead = l.err != nil
	if pos >= l.durable {
		return nil, true, l.ended, dead
	}
	if len(l.tail) == 0 || l.tail[0].Seq > pos+1 {
		return nil, false, false, dead
	}
	return l.tail[pos+1-l.tail[0].Seq:], true, false, dead
}

// last is the position of the last durable event.
func (l *runLog) last() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

func (l *runLog) subscribe() chan struct{} {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs == nil {
		l.subs = map[chan struct{}]struct{}{}
	}
	l.subs[c] = struct{}{}
	return c
}

func (l *runLog) unsubscribe(c chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.subs, c)
}
