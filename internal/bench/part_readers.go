//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Numbers of part 6.
const (
	readerBuffer  = 1 << 10 // bytes that a reader reads at once
	perSource     = 5000    // readers from one loopback address: far from running out of ports
	spareFiles    = 500     // open files that a process needs beside the readers' connections
	tickPatience  = 15 * time.Second
	tickPause     = 300 * time.Millisecond // between two events
	tickMark      = "tick-"
	connectAtOnce = 64
)

// openStreams is part 6.
func (b *bench) openStreams(ctx context.Context) error {
	readers := b.plan.readers
	if most := int(b.files) - spareFiles; readers > most {
		b.report.line(6, "only %d files may be open here, so %d streams are held instead of %d", b.files, most, readers)
		readers = most
	}
	v, err := b.serve(ctx, setting{data: b.newData("readers"), model: baseURL(b.tools.addr), tool: b.tools.addr})
	if err != nil {
		return err
	}
	defer b.end(v.process)
	agent, err := v.agent(ctx, "on-demand")
	if err != nil {
		return err
	}
	idle, err := rssOf(v.pid())
	if err != nil {
		return err
	}
	c, err := b.openCrowd(ctx, v, crowdSize{agent: agent, readers: readers - 1, ticks: b.plan.ticks})
	if err != nil {
		return err
	}
	defer c.close()
	m, err := startMeter(v.pid(), b.clock)
	if err != nil {
		return err
	}
	peak := b.watchMemory(ctx, v.pid())
	err = c.tickAll(ctx)
	most := peak()
	if err = errors.Join(err, c.finish()); err != nil {
		return err
	}
	cpu, elapsed, err := m.stop()
	if err != nil {
		return err
	}
	b.reportCrowd(c, readers)
	b.report.measured(6, fmt.Sprintf("%d open streams: RSS", readers), "MB", float64(most)/1e6, atMost(400, 270))
	b.report.line(6, "RSS of hob: %s idle, %s with %d streams; CPU per event and reader: %s µs", mib(idle), mib(most), readers,
		number(float64(cpu.Microseconds())/float64(readers*len(c.ticks))))
	b.report.line(6, "took %s to open; %s of CPU in %s of events", c.opened.Round(time.Millisecond), cpu.Round(time.Millisecond), elapsed.Round(time.Millisecond))
	return nil
}

func (b *bench) reportCrowd(c *crowd, readers int) {
	var last, spread, every sample
	for i := range c.ticks {
		t := &c.ticks[i]
		last.add(time.Duration(t.last.Load()) - t.sent)
		spread.add(time.Duration(t.last.Load() - t.first.Load()))
	}
	for _, r := range c.readers {
		for i, at := range r.at {
			every.add(at - c.ticks[i].sent)
		}
	}
	b.report.measured(6, fmt.Sprintf("one event to all of %d readers: p99", readers), "ms", inMS(last.p99()), atMost(1500, 600))
	b.report.quantiles(6, "model sends → last reader has it", &last)
	b.report.quantiles(6, "first reader → last reader", &spread)
	b.report.quantiles(6, "model sends → each reader has it", &every)
}

// tick is one event on its way to all readers. The times are the clock's.
type tick struct {
	sent        time.Duration
	first, last atomic.Int64
	got         atomic.Int64
	all         chan struct{} // closed by the last reader
}

// received is called by each reader once.
func (t *tick) received(at time.Duration, readers int) {
	ns := int64(at)
	t.first.CompareAndSwap(0, ns)
	for {
		old := t.last.Load()
		if ns <= old || t.last.CompareAndSwap(old, ns) {
			break
		}
	}
	for { // the first to count need not be the first to have it
		old := t.first.Load()
		if ns >= old || t.first.CompareAndSwap(old, ns) {
			break
		}
	}
	if t.got.Add(1) == int64(readers) {
		close(t.all)
	}
}

// crowd is one run with many readers.
type crowd struct {
	clock   clock
	say     chan<- string
	said    bool // say was closed
	starter *wire
	started chan error
	readers []*reader
	ticks   []tick
	group   sync.WaitGroup
	opened  time.Duration
	failed  atomic.Int64
	why     atomic.Pointer[error]
}

// reader follows the run on GET …/events.
type reader struct {
	wire *wire
	at   []time.Duration // when each tick came
}

type crowdSize struct {
	agent          string
	readers, ticks int
}

// openCrowd starts a run whose model waits, and opens all readers.
func (b *bench) openCrowd(ctx context.Context, v *server, n crowdSize) (_ *crowd, err error) {
	c := &crowd{clock: b.clock, say: b.tools.listen(), ticks: make([]tick, n.ticks), started: make(chan error, 1)}
	for i := range c.ticks {
		c.ticks[i].all = make(chan struct{})
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	lives := 10 * time.Minute
	if c.starter, err = connect(ctx, b.clock, v.addr, lives); err != nil {
		return nil, err
	}
	id := make(chan string, 1)
	go func() { c.started <- c.start(v.runRequest(n.agent, "", question), id) }()
	var run string
	select {
	case run = <-id:
	case err := <-c.started:
		return nil, fmt.Errorf("start the run: %w", reason(err))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	at := b.clock.now()
	get := request{method: "GET", host: v.addr, path: "/api/agents/runs/" + run + "/events", key: serviceKey, accept: "text/event-stream"}.bytes()
	if err := c.connect(ctx, connecting{addr: v.addr, get: get, readers: n.readers, lives: lives}); err != nil {
		return nil, err
	}
	c.opened = b.clock.now() - at
	return c, nil
}

// start carries out the run's own stream; id gets the run's id.
func (c *crowd) start(post []byte, id chan<- string) error {
	var r runReader
	err := c.starter.exchange(post, func(line []byte) {
		r.line(line)
		if run := field(line, `"run_id":"`); run != "" && id != nil {
			id <- run
			id = nil
		}
	})
	if err != nil {
		return err
	}
	return r.verdict()
}

// field is the text behind key up to the next quote.
func field(line []byte, key string) string {
	_, rest, found := bytes.Cut(line, []byte(key))
	value, _, ended := bytes.Cut(rest, []byte(`"`))
	if !found || !ended {
		return ""
	}
	return string(value)
}

type connecting struct {
	addr    string
	get     []byte
	readers int
	lives   time.Duration
}

// connect opens the readers and waits until each has had the first events of the run.
func (c *crowd) connect(ctx context.Context, n connecting) error {
	c.readers = make([]*reader, n.readers)
	slots := make(chan struct{}, connectAtOnce)
	var greeted sync.WaitGroup
	var firstErr atomic.Pointer[error]
	for i := range c.readers {
		slots <- struct{}{}
		if err := firstErr.Load(); err != nil {
			return *err
		}
		source := netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i/perSource)})
		w, err := dialWire(ctx, n.addr, source, readerBuffer)
		if err == nil {
			err = w.until(c.clock, n.lives)
		}
		if err != nil {
			return fmt.Errorf("open reader %d: %w", i+1, err)
		}
		r := &reader{wire: w, at: make([]time.Duration, len(c.ticks))}
		c.readers[i] = r
		greeted.Add(1)
		c.group.Go(func() {
			greet := sync.OnceFunc(func() { <-slots; greeted.Done() })
			if err := c.follow(r, n.get, greet); err != nil {
				err = fmt.Errorf("reader %d: %w", i+1, err)
				firstErr.CompareAndSwap(nil, &err)
				c.why.CompareAndSwap(nil, &err)
				c.failed.Add(1)
			}
			greet()
		})
	}
	greeted.Wait()
	if err := firstErr.Load(); err != nil {
		return *err
	}
	return nil
}

// follow reads a stream to its end. greet is called with the first event.
func (c *crowd) follow(r *reader, get []byte, greet func()) error {
	next, completed := 0, false
	err := r.wire.exchange(get, func(line []byte) {
		data, ok := payload(line)
		if !ok {
			return
		}
		greet()
		if bytes.HasPrefix(data, []byte(completeHead)) {
			completed = true
			return
		}
		if n := tickNumber(data); n == next && next < len(c.ticks) {
			at := c.clock.now()
			r.at[n] = at
			c.ticks[n].received(at, len(c.readers))
			next++
		}
	})
	switch {
	case err != nil:
		return err
	case !completed || next != len(c.ticks):
		return fmt.Errorf("the stream ended with %d of %d events, complete: %t", next, len(c.ticks), completed)
	}
	return nil
}

// tickNumber is the number in the text of a tick's event, -1 of another event. Only the pieces of text count: complete
// has the whole text again.
func tickNumber(data []byte) int {
	if !bytes.HasPrefix(data, []byte(chunkHead)) && !bytes.HasPrefix(data, []byte(deltaHead)) {
		return -1
	}
	_, rest, found := bytes.Cut(data, []byte(tickMark))
	if !found {
		return -1
	}
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(string(rest[:end]))
	if err != nil {
		return -1
	}
	return n
}

// tickAll sends one event after the other, each when all readers have had the one before.
func (c *crowd) tickAll(ctx context.Context) error {
	for i := range c.ticks {
		t := &c.ticks[i]
		t.sent = c.clock.now()
		select {
		case c.say <- tickMark + strconv.Itoa(i) + " ":
		case err := <-c.started:
			return fmt.Errorf("the run ended before event %d: %w", i, reason(err))
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-t.all:
		case <-time.After(tickPatience):
			return fmt.Errorf("event %d reached %d of %d readers in %s; %w", i, t.got.Load(), len(c.readers), tickPatience, c.failure())
		case <-ctx.Done():
			return ctx.Err()
		}
		time.Sleep(tickPause)
	}
	return nil
}

// failure is what went wrong with the readers.
func (c *crowd) failure() error {
	if why := c.why.Load(); why != nil {
		return fmt.Errorf("%d readers failed, the first: %w", c.failed.Load(), *why)
	}
	return errors.New("no reader failed")
}

// finish ends the run and waits for all readers to see that.
func (c *crowd) finish() error {
	c.hush()
	err := <-c.started
	c.group.Wait()
	if c.failed.Load() > 0 {
		err = errors.Join(err, c.failure())
	}
	return err
}

// hush ends what the model says.
func (c *crowd) hush() {
	if !c.said {
		c.said = true
		close(c.say)
	}
}

// close ends everything that is still open.
func (c *crowd) close() {
	c.hush()
	if c.starter != nil {
		c.starter.close()
	}
	for _, r := range c.readers {
		if r != nil {
			r.wire.close()
		}
	}
	c.group.Wait()
}
