//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// harness is what all parts share.
type harness struct {
	options  options
	progress io.Writer
	folder   string // data and logs; those of a part lie in one of its own below it
	hob      string // the program under test
	starts   chan func()
	lateness *lateness // of the machine, while a part runs
}

// newHarness makes the folder and builds the program; where it cannot, it leaves nothing behind.
func newHarness(ctx context.Context, o options, progress io.Writer) (_ *harness, err error) {
	folder, err := os.MkdirTemp("", "hob-chaos-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}()
	if err := passable(folder); err != nil { // a private Postgres runs below it, as a user of its own
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	h := &harness{options: o, progress: progress, folder: folder, hob: o.hob, starts: make(chan func())}
	go func() {
		runtime.LockOSThread() // children are tied to the thread that starts them, see server.start
		for start := range h.starts {
			start()
		}
	}()
	if h.hob == "" {
		h.hob = filepath.Join(folder, "hob")
		if err := build(ctx, h.hob, ""); err != nil {
			return nil, err
		}
	}
	if h.hob, err = filepath.Abs(h.hob); err != nil {
		return nil, fmt.Errorf("find the program: %w", err)
	}
	return h, nil
}

// close removes the folder, or all in it but the folders that are to be kept.
func (h *harness) close(kept []string) {
	close(h.starts)
	if h.options.keep {
		fmt.Fprintln(h.progress, "data and logs are kept in", h.folder)
		return
	}
	if len(kept) == 0 {
		h.remove(h.folder)
		return
	}
	list, err := os.ReadDir(h.folder)
	if err != nil {
		fmt.Fprintln(h.progress, "chaos:", err)
	}
	for _, e := range list {
		if path := filepath.Join(h.folder, e.Name()); !slices.Contains(kept, path) {
			h.remove(path)
		}
	}
}

func (h *harness) remove(path string) {
	if err := os.RemoveAll(path); err != nil {
		fmt.Fprintln(h.progress, "chaos:", err)
	}
}

// below makes the folder of a part, or of a trial, below the harness's.
func (h *harness) below(name string) (*harness, error) {
	own := *h
	own.folder = filepath.Join(h.folder, name)
	if err := os.Mkdir(own.folder, 0o700); err != nil {
		return nil, fmt.Errorf("folder of %s: %w", name, err)
	}
	return &own, nil
}

// again is the command that repeats a part, or the trial of a fault, with the same chance.
func (h *harness) again(name string) string {
	words := []string{"go run ./internal/chaos"}
	if h.options.long {
		words = append(words, "-long")
	}
	if h.options.bugs {
		words = append(words, "-bugs")
	}
	if h.options.hob != "" {
		words = append(words, "-hob "+h.options.hob)
	}
	return strings.Join(append(words, "-only "+name, fmt.Sprintf("-seed %d", h.options.seed)), " ")
}

// folderSize is what lies below a folder, for people.
func folderSize(path string) string {
	var n int64
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() { // what cannot be read is not counted
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return fmt.Sprintf("%d MB", (n+1<<20-1)>>20)
}

// amount is how much a part does: quick or long.
func amount[T any](h *harness, quick, long T) T {
	if h.options.long {
		return long
	}
	return quick
}

// chance is a source of random numbers of its own for whoever has the name. The same seed and name give the same numbers.
func (h *harness) chance(name string) *rand.Rand { return chance(h.options.seed, name) }

func chance(seed uint64, name string) *rand.Rand {
	return rand.New(rand.NewPCG(seed, hash(name))) //nolint:gosec // it has to be repeatable
}

// hash is FNV-1a.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// build builds the program; tags are build tags, "" for none.
func build(ctx context.Context, path, tags string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-o", path, "hob/cmd/hob")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build hob: %w\n%s", err, strings.TrimSpace(string(text)))
	}
	return nil
}

// freeAddr finds a loopback port that nobody listens on.
func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", fmt.Errorf("free a port again: %w", err)
	}
	return addr, nil
}
