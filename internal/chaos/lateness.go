//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// How the lateness of the machine is measured, and how much of a missed bound it explains.
const (
	nap = 10 * time.Millisecond
	// waitsInTurn is how many waits stand behind each other, at most, between a fault and what a bound is about: for a
	// lease, for a process, for the database, for the model. Each of them may be as late as 99 of 100 naps were, and one
	// as late as the latest.
	waitsInTurn = 20
)

// lateness measures how late the machine wakes whoever sleeps, which is what it adds to every wait of Hob's. It sleeps
// again and again, beside a part.
type lateness struct {
	mu   sync.Mutex
	late []time.Duration
	stop chan struct{}
	done chan struct{}
}

// measure begins; end has to be called.
func measure() *lateness {
	l := &lateness{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for {
			began := time.Now()
			select {
			case <-l.stop:
				return
			case <-time.After(nap):
			}
			l.note(time.Since(began) - nap)
		}
	}()
	return l
}

func (l *lateness) note(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = append(l.late, max(late, 0))
}

// end stops measuring.
func (l *lateness) end() {
	close(l.stop)
	<-l.done
}

// measured is what was found up to now.
func (l *lateness) measured() machine {
	l.mu.Lock()
	list := slices.Clone(l.late)
	l.mu.Unlock()
	slices.Sort(list)
	return machine{naps: len(list), usual: percentile(list, 99), most: percentile(list, 100), load: load()}
}

// machine is how late a machine was.
type machine struct {
	naps        int
	usual, most time.Duration // lateness of 99 of 100 naps, and of the latest
	load        string
}

// explains is by how much a bound may be missed for no other reason.
func (m machine) explains() time.Duration { return waitsInTurn*m.usual + m.most }

func (m machine) String() string {
	return fmt.Sprintf("load %s on %d cores, a sleep of %s was late by %s in 99 of 100 cases and by %s once",
		m.load, runtime.NumCPU(), nap, tenths(m.usual), tenths(m.most))
}

// tenths rounds to a tenth of a millisecond.
func tenths(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// load is the machine's load over the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	word, _, _ := strings.Cut(string(text), " ")
	return word
}
