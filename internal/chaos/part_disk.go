//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// diskFault is one way in which the disk fails: system calls, and their error.
type diskFault struct{ name, inject string }

func diskFaults() []diskFault {
	return []diskFault{
		{"fsync fails", "fsync,fdatasync:error=EIO"},
		{"the disk is full", "pwrite64:error=ENOSPC"},
	}
}

// The times of one fault.
const (
	faultTime   = 2 * time.Second
	diskRecover = 10 * time.Second // from the disk's return to a server that is ready and accepts
	healthEvery = 50 * time.Millisecond
)

// diskPart lets the disk fail under the server: what cannot be stored is refused, what was accepted stays, and all goes on
// by itself when the disk is back. In the end the server is killed, so that only what is on the disk counts.
func diskPart(ctx context.Context, h *harness) ([]verdict, error) {
	if err := canTrace(ctx); err != nil {
		return notRun(err)
	}
	w, s, agent, err := solo(ctx, h, setting{name: "disk"}, pace{word: 5 * time.Millisecond, tool: 60 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer w.close()
	defer s.kill()
	st := newStorm(w, agent, habits{clients: 8, readers: 1, turns: 3, cut: 0.05, cutWithin: 4000, syncs: 0.2, steps: 3, words: 40, addr: one(s)})
	st.begin(ctx)
	var d disk
	for n := range amount(h, 1, 10) {
		for _, fault := range diskFaults() {
			pause(ctx, time.Second)
			if err := d.round(ctx, s, st, fault, n); err != nil {
				return nil, err
			}
		}
	}
	pause(ctx, time.Second)
	s.kill()
	if _, err := s.serve(ctx); err != nil {
		return nil, err
	}
	if err := st.end(ctx, time.Minute); err != nil {
		w.fault(runsEnd, "%v", err)
	}
	f, err := find(ctx, s.addr, agent)
	if err != nil {
		return nil, err
	}
	c := w.counts()
	return append(check(w.ledger, f), judge(refusedUnkept, d.silent, "%d requests refused", c.refused),
		judge(healthTells, d.blind, "%d faults, %d answers other than 200", d.faults, d.unwell),
		judge(recoversAlone, d.stuck, "%d faults, slowest %s", d.faults, ms(d.slowest)),
		tested(need{"faults", d.faults, 2 * amount(h, 1, 10)}, need{"calls that failed", d.hits, 4 * d.faults}, need{"refused", c.refused, d.faults},
			need{"accepted", c.accepted, 10 * d.faults}, need{"seen to their end", c.done, c.messages * 8 / 10})), ctx.Err()
}

// disk is what was seen of all faults.
type disk struct {
	faults, hits, unwell int
	slowest              time.Duration // to recover
	silent, blind, stuck []string
}

// round lets the disk fail for a while, asking the server how it is, and waits for it to recover.
func (d *disk) round(ctx context.Context, s *server, st *storm, fault diskFault, n int) error {
	name := fmt.Sprintf("fault %d, %s", n+1, fault.name)
	before := st.w.counts()
	broken, err := inject(ctx, s, fault.inject, s.data+"/hob.db", s.data+"/hob.db-wal", s.data+"/hob.db-shm")
	if err != nil {
		return err
	}
	over, cancel := context.WithTimeout(ctx, faultTime)
	defer cancel()
	var asking sync.WaitGroup
	bad := 0
	asking.Go(func() {
		c := &http.Client{Timeout: faultTime}
		for over.Err() == nil {
			if status, err := s.health(over, c); err == nil && status != http.StatusOK {
				bad++
			}
			pause(over, healthEvery)
		}
	})
	ask := newAsking(st, fmt.Sprintf("disk-%d-%d", n, len(fault.name)))
	ask.until(over)
	asking.Wait()
	hits := broken.hits()
	broken.stop()
	back := time.Now()
	d.faults++
	d.hits += hits
	d.unwell += bad
	if bad == 0 {
		d.blind = append(d.blind, name+": the server called itself ready all the time")
	}
	if st.w.counts().refused == before.refused {
		d.silent = append(d.silent, fmt.Sprintf("%s: no request was refused, although %d calls failed", name, hits))
	}
	recovering, cancel := context.WithTimeout(ctx, diskRecover)
	defer cancel()
	if !ask.until(recovering) {
		d.stuck = append(d.stuck, fmt.Sprintf("%s: nothing is accepted %s after the disk is back; the log ends with:\n%s", name, diskRecover, s.tail()))
		return ctx.Err()
	}
	ask.follow(ctx)
	if _, err := s.ready(ctx); err != nil {
		return err
	}
	d.slowest = max(d.slowest, time.Since(back))
	return nil
}
