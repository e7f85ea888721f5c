//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"hob"
)

// acknowledged watches the server's system calls: no acknowledgement leaves the socket before the write that holds its run
// is on the disk.
func acknowledged(ctx context.Context, h *harness) ([]verdict, error) {
	if err := canTrace(ctx); err != nil {
		return notRun(err)
	}
	trace := h.folder + "/ack.trace"
	w, s, agent, err := solo(ctx, h, setting{name: "ack", wrap: []string{
		"strace", "-f", "--seccomp-bpf", "-yy", "-s", "262144", "-o", trace, "-e", "trace=fsync,fdatasync,pwrite64,write,writev,sendto,sendmsg",
	}}, pace{word: time.Millisecond, tool: time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer w.close()
	defer s.kill()
	runs := amount(h, 20, 100)
	st := newStorm(w, agent, habits{clients: 1, messages: runs, turns: 3, syncs: 0.3, cutWithin: 1, words: 3, addr: one(s)})
	st.begin(ctx)
	if err := st.wait(ctx, 2*time.Minute); err != nil {
		return nil, err
	}
	f, err := find(ctx, s.addr, agent)
	if err != nil {
		return nil, err
	}
	if _, _, err := s.term(); err != nil {
		return nil, err
	}
	o := newOrdering(s.data+"/hob.db-wal", s.addr, w.acknowledgedRuns())
	if err := o.read(trace); err != nil {
		return nil, err
	}
	bad, held := o.verdict()
	return append(only(check(w.ledger, f), acceptedKept, oneRunPerKey, logsWhole),
		judge(syncedFirst, bad, "%d of %d acknowledged runs were on the disk first", held, len(o.acks)),
		tested(need{"acknowledged", len(o.acks), runs}, need{"writes to the log", len(o.commits), runs}, need{"fsyncs of it", o.syncs, runs})), nil
}

// acknowledgedRuns are the runs that clients were told of.
func (l *ledger) acknowledgedRuns() []hob.RunID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []hob.RunID
	for _, m := range l.messages {
		all = append(all, m.runs...)
	}
	slices.Sort(all)
	return all
}

// span is when something happened, in lines of the trace.
type span struct{ enter, exit int }

// ordering finds in a trace when each run's start was written to SQLite's log, when that was synced, and when the client
// was told.
type ordering struct {
	wal, addr string
	runs      []hob.RunID

	commits map[hob.RunID]span // the transaction that first holds the run: up to its commit frame
	synced  map[hob.RunID]span // the first sync of the log behind it
	acks    map[hob.RunID]span
	syncs   int

	open []hob.RunID // runs in the transaction that is being written
	last bool        // the frame under way ends its transaction
}

func newOrdering(wal, addr string, runs []hob.RunID) *ordering {
	return &ordering{wal: wal, addr: addr, runs: runs, commits: map[hob.RunID]span{}, synced: map[hob.RunID]span{}, acks: map[hob.RunID]span{}}
}

func (o *ordering) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	defer f.Close()
	return readTrace(f, func(c traced) error { o.note(c); return nil })
}

// SQLite writes each frame of its log as a header of 24 bytes and a page; the header of a transaction's last frame has the
// size of the database at byte 4, the others 0. The log's own header, of 32 bytes, is no frame.
const (
	frameHeader = 24
	walHeader   = 32
)

func (o *ordering) note(c traced) {
	if c.failed {
		return
	}
	switch {
	case c.target == o.wal && c.name == "pwrite64":
		o.write(c)
	case c.target == o.wal && strings.HasSuffix(c.name, "sync"):
		o.syncs++
		for run, written := range o.commits {
			if _, done := o.synced[run]; !done && written.exit < c.enter {
				o.synced[run] = span{c.enter, c.exit}
			}
		}
	case strings.HasPrefix(c.target, "TCP:["+o.addr+"->") || strings.HasPrefix(c.target, "TCPv6:["+o.addr+"->"):
		for _, run := range o.runs {
			if _, told := o.acks[run]; !told && strings.Contains(c.data, string(run)) {
				o.acks[run] = span{c.enter, c.exit}
			}
		}
	}
}

// write follows the frames of transactions.
func (o *ordering) write(c traced) {
	switch c.size {
	case walHeader:
		return
	case frameHeader:
		head := unquote(c.data)
		o.last = len(head) == frameHeader && !bytes.Equal(head[4:8], make([]byte, 4))
		return
	}
	for _, run := range o.runs {
		if _, known := o.commits[run]; !known && !slices.Contains(o.open, run) && strings.Contains(c.data, string(run)) {
			o.open = append(o.open, run)
		}
	}
	if !o.last {
		return
	}
	for _, run := range o.open {
		o.commits[run] = span{c.enter, c.exit}
	}
	o.open = nil
}

// verdict tells which acknowledgements left before their transaction was on the disk, and counts those that did not.
func (o *ordering) verdict() (bad []string, held int) {
	for _, run := range o.runs {
		ack, told := o.acks[run]
		commit, written := o.commits[run]
		sync, done := o.synced[run]
		switch {
		case !told:
			bad = append(bad, fmt.Sprintf("run %s was acknowledged, and the trace does not show it", run))
		case !written || commit.exit > ack.enter:
			bad = append(bad, fmt.Sprintf("run %s was acknowledged at line %d of the trace before it was written", run, ack.enter))
		case !done || sync.exit > ack.enter:
			bad = append(bad, fmt.Sprintf("run %s was acknowledged at line %d of the trace, written at %d, and synced only at %d", run, ack.enter, commit.exit, sync.exit))
		default:
			held++
		}
	}
	return bad, held
}
