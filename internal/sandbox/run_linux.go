//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// drainTime is how long the output of a program is waited for once all its processes are dead.
const drainTime = 2 * time.Second

// run carries out one program in a helper of its own.
func (p *pool) run(ctx context.Context, r Request, timeout time.Duration) (Result, error) {
	w, err := p.take(ctx, r.Language)
	if err != nil {
		return Result{}, err
	}
	defer w.discard()
	defer p.refill(r.Language)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.working, w)
	}()
	began := time.Now() //nolint:forbidigo // only time.Since reads it
	output := readOutput(w, p.config.Limits.Output)
	out, watched, err := p.work(ctx, w, r, timeout)
	w.end()
	text := output.wait()
	if err != nil {
		return Result{}, err
	}
	res := Result{
		Stdout: clean(text.kept[0]), Stderr: clean(text.kept[1]), ExitCode: out.ExitCode, Truncated: text.dropped, Took: time.Since(began),
	}
	l := p.config.Limits
	if watched != nil {
		res.Limits = append(res.Limits, watched)
	} else if e := limitOf(r.Language, out, text.kept[1], l); e != nil {
		res.Limits = append(res.Limits, e)
	}
	if text.dropped {
		res.Limits = append(res.Limits, &LimitError{LimitOutput, fmt.Sprintf("the program printed more than %d bytes; the rest was dropped", l.Output)})
	}
	var met []*LimitError
	res.Files, res.Skipped, met = collect(w.output, l)
	res.Limits = append(res.Limits, met...)
	return res, nil
}

// work gives a helper its program and waits for its end, the limits' or the caller's.
func (p *pool) work(ctx context.Context, w *worker, r Request, timeout time.Duration) (outcome, *LimitError, error) {
	l := p.config.Limits
	if err := send(w.conn, job{Code: r.Code, CPU: l.CPU}); err != nil {
		return outcome{}, nil, err
	}
	type answer struct {
		out outcome
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		a.err = receive(w.conn, &a.out)
		answers <- a
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	watch := newWatch(w.cmd.Process.Pid, r.Language, l)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	killed := outcome{ExitCode: 137, Signal: "killed"}
	for {
		select {
		case a := <-answers:
			if a.err == nil && a.out.Fault != "" {
				a.err = errors.New(a.out.Fault)
			}
			if a.err != nil {
				// The helper itself is gone: a program that leaves it no memory, or no thread, takes it along.
				if e := watch.last(); e != nil {
					return killed, e, nil
				}
				if r.Language == JavaScript && !p.isClosed() && ctx.Err() == nil {
					return killed, &LimitError{LimitMemory, memoryText(l)}, nil
				}
				return outcome{}, nil, fmt.Errorf("the helper ended early: %w", a.err)
			}
			return a.out, nil, nil
		case <-timer.C:
			return killed, &LimitError{LimitTime, fmt.Sprintf("the program was ended after %s", timeout)}, nil
		case <-tick.C:
			if e := watch.look(); e != nil {
				return killed, e, nil
			}
		case <-ctx.Done():
			return outcome{}, nil, context.Cause(ctx)
		}
	}
}

func (p *pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func memoryText(l Limits) string {
	return fmt.Sprintf("the program needs more than %d MB of memory", l.Memory>>20)
}

func processesText(l Limits) string {
	return fmt.Sprintf("the program may have %d processes and threads", l.Processes)
}

// limitOf finds the limit behind an error that the program itself was told of and could not deal with.
func limitOf(language Language, out outcome, stderr []byte, l Limits) *LimitError {
	if out.ExitCode == 0 {
		return nil
	}
	if out.Signal == "CPU time limit exceeded" {
		return &LimitError{LimitCPU, cpuText(l)}
	}
	tail := string(stderr[max(0, len(stderr)-2048):])
	lines := strings.Split(strings.TrimSpace(tail), "\n")
	last := lines[len(lines)-1]
	if language == JavaScript {
		last = tail
	}
	for _, s := range []struct {
		mark  string
		limit Limit
		text  string
	}{
		{"MemoryError", LimitMemory, memoryText(l)},
		{"out of memory", LimitMemory, memoryText(l)},
		{"Cannot allocate memory", LimitMemory, memoryText(l)},
		{"can't start new thread", LimitProcesses, processesText(l)},
		{"Resource temporarily unavailable", LimitProcesses, processesText(l)},
		{"No space left on device", LimitDisk, fmt.Sprintf("/tmp and /output have %d MB and %d files together", l.Disk>>20, l.Inodes)},
		{"no space left on device", LimitDisk, fmt.Sprintf("/tmp and /output have %d MB and %d files together", l.Disk>>20, l.Inodes)},
	} {
		if strings.Contains(last, s.mark) {
			return &LimitError{s.limit, s.text}
		}
	}
	return nil
}

// reading collects the output of a program.
type reading struct {
	mu      sync.Mutex
	text    capped
	readers sync.WaitGroup
	pipes   []*os.File
}

// readOutput begins to read. What is too much is read all the same: a program that prints must not stand still.
func readOutput(w *worker, most int) *reading {
	r := &reading{text: capped{room: most}}
	// The worker closes its own; these are read to their end.
	for i, from := range []*os.File{w.stdout, w.stderr} {
		r.pipes = append(r.pipes, from)
		r.readers.Go(func() {
			b := make([]byte, 32<<10)
			for {
				n, err := from.Read(b)
				r.mu.Lock()
				r.text.add(i, b[:n])
				r.mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	w.stdout, w.stderr = nil, nil
	return r
}

// wait waits for the ends of both streams, which come when every process is dead.
func (r *reading) wait() capped {
	for _, f := range r.pipes {
		_ = f.SetReadDeadline(time.Now().Add(drainTime)) //nolint:forbidigo // pipes have a deadline; without it the end comes by itself
	}
	r.readers.Wait()
	for _, f := range r.pipes {
		_ = f.Close()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text
}
