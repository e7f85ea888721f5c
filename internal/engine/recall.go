package engine

import (
	"container/list"
	"context"
	"sync"

	"hob"
)

// recallBytes is how much of earlier turns the process keeps in memory; the sessions used least recently go first.
const recallBytes = 64 << 20

// recall keeps what was said in the sessions of late, so that a turn costs the same however many went before it: the
// store is asked only for turns that are not known yet. A session is known by its UUID, which is never used twice, and
// what is kept never changes: finished turns that follow each other without a gap.
type recall struct {
	mu    sync.Mutex
	byID  map[string]*list.Element
	order list.List // of *remembered, the latest first
	bytes int
}

type remembered struct {
	session string
	runs    []hob.PastRun
	cut     bool // turns older than the first exist and are left out
	bytes   int
}

// history gives the finished turns of a session before one, within a budget.
func (e *Engine) history(ctx context.Context, by hob.Principal, s hob.Session, before int64, budget int) ([]hob.Message, error) {
	known, cut := e.recall.get(s.UUID, before)
	after := int64(0)
	if n := len(known); n > 0 {
		after = known[n-1].Turn
	}
	if after < before-1 {
		h, err := e.Store.History(ctx, by, s.ID, hob.HistoryRange{After: after, Before: before, Budget: budget})
		if err != nil {
			return nil, err
		}
		if h.Cut || len(known) == 0 { // the new part alone fills the budget, or there is no other
			known, cut = h.Runs, h.Cut
		} else {
			known = append(known[:len(known):len(known)], h.Runs...)
		}
	}
	kept, over := within(known, budget)
	if after == before-1 && !over && !cut {
		return hob.History{Runs: kept}.Messages(), nil // all of it is kept already
	}
	if cut && !over && len(kept) > 0 { // kept under a smaller budget than this one
		h, err := e.Store.History(ctx, by, s.ID, hob.HistoryRange{Before: before, Budget: budget})
		if err != nil {
			return nil, err
		}
		kept, cut = h.Runs, h.Cut
	}
	e.recall.put(s.UUID, kept, cut || over)
	return hob.History{Runs: kept}.Messages(), nil
}

// within leaves out the oldest runs until the rest fits, at least the newest.
func within(runs []hob.PastRun, budget int) (kept []hob.PastRun, over bool) {
	for i := len(runs) - 1; i >= 0; i-- {
		if budget -= runs[i].Chars; budget < 0 && i < len(runs)-1 {
			return runs[i+1:], true
		}
	}
	return runs, false
}

// remember keeps an answered run for the next turn of its session.
func (a *active) remember(end ending) {
	if end.status != hob.Completed || a.run.Content == "" {
		return // how it is told to later turns is the store's to say
	}
	p := hob.PastRun{Turn: a.turn.Load(), Messages: a.plan.own}
	for _, m := range p.Messages {
		p.Chars += m.Chars()
	}
	a.e.recall.add(a.plan.session.UUID, p)
}

// get gives what is kept of a session's turns before one.
func (r *recall) get(session string, before int64) (runs []hob.PastRun, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.byID[session]
	if at == nil {
		return nil, false
	}
	r.order.MoveToFront(at)
	m := at.Value.(*remembered) //nolint:forcetypeassert // the list holds nothing else
	runs = m.runs
	for len(runs) > 0 && runs[len(runs)-1].Turn >= before {
		runs = runs[:len(runs)-1]
	}
	return runs, m.cut
}

// put keeps turns: those up to the first gap, behind which an unfinished run may still come to its end.
func (r *recall) put(session string, runs []hob.PastRun, cut bool) {
	if session == "" || len(runs) == 0 || (runs[0].Turn > 1 && !cut) {
		return
	}
	whole := 1
	for whole < len(runs) && runs[whole].Turn == runs[whole-1].Turn+1 {
		whole++
	}
	m := &remembered{session: session, runs: runs[:whole:whole], cut: cut}
	for _, p := range m.runs {
		m.bytes += size(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(r.byID[session])
	if m.bytes > recallBytes/4 {
		return
	}
	if r.byID == nil {
		r.byID = map[string]*list.Element{}
	}
	r.byID[session] = r.order.PushFront(m)
	r.bytes += m.bytes
	r.bound()
}

// bound drops the sessions used least recently until the rest fits.
func (r *recall) bound() {
	for r.bytes > recallBytes {
		r.drop(r.order.Back())
	}
}

// add keeps a turn that has just ended, if it follows the last one that is kept.
func (r *recall) add(session string, p hob.PastRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.byID[session]
	if at == nil {
		return
	}
	m := at.Value.(*remembered) //nolint:forcetypeassert // as above
	if m.runs[len(m.runs)-1].Turn != p.Turn-1 {
		return
	}
	n := size(p)
	m.runs, m.bytes, r.bytes = append(m.runs, p), m.bytes+n, r.bytes+n
	if m.bytes > recallBytes/4 {
		r.drop(at)
	}
	r.bound()
}

func (r *recall) drop(at *list.Element) {
	if at == nil {
		return
	}
	m := r.order.Remove(at).(*remembered) //nolint:forcetypeassert // as above
	delete(r.byID, m.session)
	r.bytes -= m.bytes
}

// size is about what a turn takes in memory.
func size(p hob.PastRun) int {
	n := 64 + 200*len(p.Messages)
	for _, m := range p.Messages {
		n += len(m.Content)
		for _, c := range m.Calls {
			n += 100 + len(c.Arguments)
		}
		for _, part := range m.Parts {
			n += len(part.Text) + len(part.URL) + len(part.Data)
		}
		if m.Reasoning != nil {
			n += len(m.Reasoning.Text) + len(m.Reasoning.Artefact)
		}
	}
	return n
}
