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
	// weary are the sessions that could not be summarised of late, with how often in a row.
	weary map[weary]int
}

type weary struct {
	ws      hob.WorkspaceID
	session hob.SessionID
}

// maxWeary is how many of them are known; at the bound it begins anew.
const maxWeary = 4096

type remembered struct {
	session string
	history hob.History
	bytes   int
}

// history gives the finished turns of a session before one, within a budget, and the summary of what was before them.
func (e *Engine) history(ctx context.Context, by hob.Principal, s hob.Session, before int64, budget int) (hob.History, error) {
	known := e.recall.get(s.UUID, before)
	after := int64(0)
	if n := len(known.Runs); n > 0 {
		after = known.Runs[n-1].Turn
	}
	if after < before-1 {
		h, err := e.Store.History(ctx, by, s.ID, hob.HistoryRange{After: after, Before: before, Budget: budget})
		if err != nil {
			return hob.History{}, err
		}
		known = join(known, h)
	}
	kept, over := within(known.Runs, budget)
	if after == before-1 && !over && !known.Cut {
		return known, nil // all of it is kept already
	}
	if known.Cut && !over && len(kept) > 0 && after > 0 { // kept under a smaller budget than this one
		h, err := e.Store.History(ctx, by, s.ID, hob.HistoryRange{Before: before, Budget: budget})
		if err != nil {
			return hob.History{}, err
		}
		known, kept = h, h.Runs
	}
	known.Runs, known.Cut = kept, known.Cut || over
	for i := range known.Runs { // those that are remembered have them, and are not touched
		if r := &known.Runs[i]; r.Tokens == nil {
			r.Tokens = tokensOfAll(r.Messages)
		}
	}
	e.recall.put(s.UUID, known)
	return known, nil
}

func tokensOfAll(messages []hob.Message) []int {
	out := make([]int, len(messages))
	for i := range messages {
		out[i] = tokensOf(&messages[i])
	}
	return out
}

// join lays the newer part of a history, as it is stored, behind the one that is known.
func join(known, h hob.History) hob.History {
	switch {
	case h.Cut, len(known.Runs) == 0: // the new part alone fills the budget, or there is no other
		return h
	case h.Summary != nil && (known.Summary == nil || *h.Summary != *known.Summary):
		known = hob.History{Summary: h.Summary, Runs: from(known.Runs, h.Summary.Turn)}
	}
	known.Runs = append(known.Runs[:len(known.Runs):len(known.Runs)], h.Runs...)
	return known
}

// from leaves out the runs of turns before one.
func from(runs []hob.PastRun, turn int64) []hob.PastRun {
	for len(runs) > 0 && runs[0].Turn < turn {
		runs = runs[1:]
	}
	return runs
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
	for i := range p.Messages {
		p.Chars += p.Messages[i].Chars()
	}
	p.Tokens = tokensOfAll(p.Messages)
	a.e.recall.add(a.plan.session.UUID, p, a.summed)
}

// get gives what is kept of a session's turns before one.
func (r *recall) get(session string, before int64) hob.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.byID[session]
	if at == nil {
		return hob.History{}
	}
	r.order.MoveToFront(at)
	h := at.Value.(*remembered).history //nolint:forcetypeassert // the list holds nothing else
	if h.Summary != nil && h.Summary.Turn >= before {
		return hob.History{} // of a later turn than the one that asks
	}
	for len(h.Runs) > 0 && h.Runs[len(h.Runs)-1].Turn >= before {
		h.Runs = h.Runs[:len(h.Runs)-1]
	}
	return h
}

// put keeps turns: those up to the first gap, behind which an unfinished run may still come to its end.
func (r *recall) put(session string, h hob.History) {
	runs := h.Runs
	first := int64(1)
	if h.Summary != nil {
		first = h.Summary.Turn
	}
	if session == "" || len(runs) == 0 || (runs[0].Turn > first && !h.Cut) {
		return
	}
	whole := 1
	for whole < len(runs) && runs[whole].Turn == runs[whole-1].Turn+1 {
		whole++
	}
	h.Runs = runs[:whole:whole]
	m := &remembered{session: session, history: h}
	for _, p := range h.Runs {
		m.bytes += size(p)
	}
	if h.Summary != nil {
		m.bytes += len(h.Summary.Text)
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

// failed keeps how often the session could not be summarised in a row, so that a model that cannot do it is not paid for
// three times in every turn.
func (r *recall) failed(ws hob.WorkspaceID, session hob.SessionID, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n == 0 {
		delete(r.weary, weary{ws, session})
		return
	}
	if r.weary == nil || len(r.weary) >= maxWeary {
		r.weary = map[weary]int{}
	}
	r.weary[weary{ws, session}] = n
}

// failures gives what failed kept.
func (r *recall) failures(ws hob.WorkspaceID, session hob.SessionID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.weary[weary{ws, session}]
}

// bound drops the sessions used least recently until the rest fits.
func (r *recall) bound() {
	for r.bytes > recallBytes {
		r.drop(r.order.Back())
	}
}

// add keeps a turn that has just ended, if it follows the last one that is kept. summed says that the session was
// summarised in it.
func (r *recall) add(session string, p hob.PastRun, summed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.byID[session]
	if at == nil {
		return
	}
	if summed { // what it leaves of the turns before it is for the store to say: others may have summarised further
		r.drop(at)
		return
	}
	m := at.Value.(*remembered) //nolint:forcetypeassert // as above
	h := &m.history
	if h.Runs[len(h.Runs)-1].Turn != p.Turn-1 {
		return
	}
	n := size(p)
	h.Runs, m.bytes, r.bytes = append(h.Runs, p), m.bytes+n, r.bytes+n
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
