//go:build linux && (amd64 || arm64)

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// lockThread keeps the goroutine on its thread, which ends with it.
func lockThread() { runtime.LockOSThread() }

// pool starts helpers and keeps some that wait, with all their walls, for their one program.
type pool struct {
	config Config
	mapped bool // other users stand behind helpers

	mu         sync.Mutex
	closed     bool
	spawner    *spawner
	lastUser   int
	idle       map[Language][]*worker
	starting   map[Language]int
	working    map[*worker]bool
	background sync.WaitGroup

	found       sync.Mutex
	interpreter *interpreter
	noPython    error
	lookedAt    time.Time
}

func newRunner(c Config) runner {
	return &pool{
		config: c, mapped: mayMap(), idle: map[Language][]*worker{}, starting: map[Language]int{}, working: map[*worker]bool{},
	}
}

// program is what a helper is started from.
func (p *pool) program() string {
	if p.config.Program != "" {
		return p.config.Program
	}
	return "/proc/self/exe"
}

// order is what a helper of a language is told.
func (p *pool) order(ctx context.Context, language Language) (order, error) {
	o := order{Language: language, Limits: p.config.Limits, Without: p.config.Without, Weak: p.config.Weak}
	var err error
	if o.Libs, _, err = libraries([]string{p.program()}); err != nil {
		return order{}, err
	}
	if language == Python {
		python, err := p.python(ctx)
		if err != nil {
			return order{}, err
		}
		o.Python = python
	}
	return o, nil
}

// python is the interpreter, looked for once; where there is none it is looked for again after a while.
func (p *pool) python(ctx context.Context) (*interpreter, error) {
	p.found.Lock()
	defer p.found.Unlock()
	if p.interpreter == nil && (p.noPython == nil || time.Since(p.lookedAt) > retryAfter) {
		p.lookedAt = time.Now() //nolint:forbidigo // only time.Since reads it
		if p.config.NoPython {
			p.noPython = errors.New("python3 is not used on this machine")
		} else {
			p.interpreter, p.noPython = findPython(ctx, p.config.Interpreter)
		}
		if err := ctx.Err(); err != nil && p.interpreter == nil {
			p.noPython = nil
			return nil, fmt.Errorf("find python3: %w", context.Cause(ctx))
		}
	}
	if p.interpreter == nil {
		return nil, &LanguageError{Language: Python, Reason: p.noPython.Error(), Allowed: []Language{JavaScript}}
	}
	return p.interpreter, nil
}

func (p *pool) languages() []Language {
	p.found.Lock()
	defer p.found.Unlock()
	if p.config.NoPython || p.noPython != nil && p.interpreter == nil {
		return []Language{JavaScript}
	}
	return Languages()
}

// user is the next user of the host to stand behind a helper: its own where others cannot be had.
func (p *pool) user() int {
	if !p.mapped {
		return os.Geteuid()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastUser = (p.lastUser + 1) % users
	// Servers on one machine begin at different places.
	return firstUser + (p.lastUser+os.Getpid()*257)%users
}

// spawn starts a process on the thread that all helpers hang on.
func (p *pool) spawn(cmd *exec.Cmd) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	if p.spawner == nil {
		p.spawner = newSpawner()
	}
	spawner := p.spawner
	p.background.Add(1) // the thread must outlive it
	p.mu.Unlock()
	defer p.background.Done()
	done := make(chan error)
	spawner.jobs <- func() { done <- cmd.Start() }
	return <-done
}

// take gives a helper that waits, or a new one.
func (p *pool) take(ctx context.Context, language Language) (*worker, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if list := p.idle[language]; len(list) > 0 {
		w := list[0]
		p.idle[language] = list[1:]
		p.working[w] = true
		p.mu.Unlock()
		return w, nil
	}
	p.mu.Unlock()
	w, err := p.start(ctx, language)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		go w.discard()
		return nil, ErrClosed
	}
	p.working[w] = true
	return w, nil
}

// refill starts helpers for the calls to come, behind the back of the one that is under way.
func (p *pool) refill(language Language) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && len(p.idle[language])+p.starting[language] < p.config.Warm {
		p.starting[language]++
		p.background.Go(func() {
			w, err := p.start(context.Background(), language)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.starting[language]--
			switch {
			case err != nil:
				if !p.closed && p.config.Log != nil {
					p.config.Log.Warn("a sandbox helper did not start", slog.String("language", string(language)), slog.String("error", err.Error()))
				}
			case p.closed:
				w.discard()
			default:
				p.idle[language] = append(p.idle[language], w)
			}
		})
	}
}

// check tries the walls from inside a helper of its own.
func (p *pool) check(ctx context.Context) ([]Wall, error) {
	// What no program may reach: a file that everybody else can read.
	canary, err := os.Executable()
	if _, stat := os.Stat(fmt.Sprintf("/proc/%d/task", os.Getpid())); err != nil || stat != nil {
		return nil, &OffError{Missing: "/proc", Reason: "it does not show this process: " + cmp.Or(err, stat).Error(), Fix: "mount -t proc proc /proc"}
	}
	w, err := p.start(ctx, JavaScript)
	if err != nil {
		return nil, err
	}
	defer w.discard()
	walls := []Wall{namespaceWall(w.cmd.Process.Pid), timeWall(w.cmd.Process.Pid)}
	if err := w.conn.SetDeadline(time.Now().Add(startTime)); err != nil { //nolint:forbidigo // a deadline of the machine
		return nil, fmt.Errorf("try the walls: %w", err)
	}
	if err := send(w.conn, job{Probe: true, Path: canary}); err != nil {
		return nil, err
	}
	var out outcome
	if err := receive(w.conn, &out); err != nil {
		return nil, &OffError{Missing: "self-test", Reason: err.Error(), Fix: fixBuild}
	}
	if _, err := p.python(ctx); err != nil {
		walls = append(walls, Wall{Name: "python", Detail: err.Error(), Fix: "apt install python3", Extra: true})
	}
	for i, w := range out.Walls {
		if w.Name == processesWall && !w.OK && !p.mapped && os.Geteuid() == 0 {
			out.Walls[i].Detail += ": hob is root without other users to run programs as, and the kernel counts no processes of root"
			out.Walls[i].Fix = "run hob as a user other than root, or leave root CAP_SETUID and CAP_SETGID in a namespace that has all users"
		}
	}
	return append(walls, out.Walls...), nil
}

// close ends every helper, and the thread that they hang on.
func (p *pool) close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	var all []*worker
	for _, list := range p.idle {
		all = append(all, list...)
	}
	clear(p.idle)
	for w := range p.working {
		_ = w.cmd.Process.Kill() // whoever waits for it ends it
	}
	spawner := p.spawner
	p.mu.Unlock()
	for _, w := range all {
		w.discard()
	}
	p.background.Wait()
	if spawner != nil {
		close(spawner.jobs)
	}
}
