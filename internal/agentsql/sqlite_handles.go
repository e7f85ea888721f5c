package agentsql

import "sync"

// guardTable gives guards numbers that may lie in the engine's memory, where a Go pointer may not. It is runtime/cgo's
// Handle for a build without cgo, which cannot link that package.
type guardTable struct {
	mu   sync.RWMutex
	last uintptr
	byID map[uintptr]*sqliteGuard
}

var handles = guardTable{byID: map[uintptr]*sqliteGuard{}} //nolint:gochecknoglobals // the engine's callbacks get no other context

// add gives a guard a number that no other has had.
func (t *guardTable) add(g *sqliteGuard) uintptr {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.byID[t.last] = g
	return t.last
}

// get gives the guard of a number, nil where it was removed.
func (t *guardTable) get(id uintptr) *sqliteGuard {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id]
}

func (t *guardTable) remove(id uintptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}
