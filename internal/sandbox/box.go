package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Sandbox runs programs. It is safe for concurrent use. Until the first use it has no process.
type Sandbox struct {
	config Config
	limits Limits
	runner runner
	queue  *queue

	checking chan struct{} // held by whoever tries the walls
	mu       sync.Mutex
	walls    []Wall // nil: not tried yet
	off      error
	tried    time.Time
}

// retryAfter is how long a fault is believed before the walls are tried again: an operator may have mended it.
const retryAfter = 30 * time.Second

// New returns a sandbox. It does no I/O.
func New(c Config) *Sandbox {
	c.Limits = c.Limits.withDefaults()
	c.Warm = orDefault(c.Warm, 2)
	return &Sandbox{
		config: c, limits: c.Limits, runner: newRunner(c), queue: newQueue(c.Limits), checking: make(chan struct{}, 1),
	}
}

// Limits are those of a call.
func (s *Sandbox) Limits() Limits { return s.limits }

// Languages are those that can be run here.
func (s *Sandbox) Languages() []Language { return s.runner.languages() }

// Check tries every wall from inside, with a helper that then ends. The error is an *OffError where nothing can be run.
func (s *Sandbox) Check(ctx context.Context) ([]Wall, error) {
	select {
	case s.checking <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("try the walls: %w", context.Cause(ctx))
	}
	defer func() { <-s.checking }()
	walls, err := s.runner.check(ctx)
	if err == nil {
		if off := fault(walls, s.config.Weak); off != nil {
			err = off
		}
	}
	if ctx.Err() != nil {
		return walls, err // says nothing about the walls
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.walls, s.off, s.tried = walls, err, time.Now() //nolint:forbidigo // only time.Since reads it
	return walls, err
}

// Walls are as they were found last; none where they were not tried yet.
func (s *Sandbox) Walls() []Wall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.walls
}

// Tried is how the walls were found last: nil where all that are needed stand, an *OffError where they do not.
func (s *Sandbox) Tried() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried.IsZero() {
		return errors.New("the walls were not tried yet")
	}
	return s.off
}

// Ready says whether programs can be run, and tries the walls where nobody has yet. The error is an *OffError, or that of
// ctx.
func (s *Sandbox) Ready(ctx context.Context) error {
	s.mu.Lock()
	tried, off := s.tried, s.off
	s.mu.Unlock()
	if !tried.IsZero() && (off == nil || time.Since(tried) < retryAfter) {
		return off
	}
	_, err := s.Check(ctx)
	return err
}

// Run runs a program to its end, or to its limits. The errors are *LanguageError, *LimitError (of the code), *OffError,
// ErrBusy, ErrClosed, that of ctx, or a fault of the machine. When it returns no process of the program is left.
func (s *Sandbox) Run(ctx context.Context, r Request) (Result, error) {
	if err := s.checkRequest(r); err != nil {
		return Result{}, err
	}
	if err := s.Ready(ctx); err != nil {
		return Result{}, err
	}
	leave, err := s.queue.enter(ctx, r.Workspace)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	result, err := s.runner.run(ctx, r, s.limits.Clamp(r.Timeout))
	var language *LanguageError
	switch {
	case err == nil || errors.As(err, &language) || errors.Is(err, ErrClosed):
	case ctx.Err() != nil:
		err = fmt.Errorf("run %s: %w", r.Language, context.Cause(ctx))
	default:
		err = fmt.Errorf("run %s: %w", r.Language, err)
	}
	return result, err
}

// Close ends every helper. Calls under way fail.
func (s *Sandbox) Close() { s.runner.close() }
