//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Times that processes are given.
const (
	startTime = 30 * time.Second // to become ready
	stopTime  = 20 * time.Second // to end after SIGTERM
)

// process is a child: Hob or the fake model.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string     // the file its output goes to
	done chan error // gets Wait's error once
	over bool
}

// launch is how a process is started.
type launch struct {
	name, bin string
	args, env []string
	log       string
}

// start starts a process with exactly the given environment. The kernel kills it should this process die, however it
// dies; that is bound to the thread that starts it, so start is called from main's goroutine alone, which holds its
// thread.
func start(l launch) (*process, error) {
	out, err := os.OpenFile(l.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", l.name, err)
	}
	defer out.Close()
	cmd := exec.Command(l.bin, l.args...) //nolint:noctx // it is stopped by stop, with its own patience
	cmd.Env = l.env
	cmd.Dir = filepath.Dir(l.log)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", l.name, err)
	}
	p := &process{name: l.name, cmd: cmd, log: l.log, done: make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks the process to end and kills it should it not. Stopping twice is fine.
func (p *process) stop() error {
	if p == nil || p.over {
		return nil
	}
	p.over = true
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // one that has just ended needs none
	select {
	case err := <-p.done:
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == -1 {
			return nil // ended by the signal itself
		}
		if err != nil {
			return fmt.Errorf("%s: %w; its log ends with:\n%s", p.name, err, p.tail())
		}
		return nil
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM: %w", p.name, stopTime, reason(<-p.done))
	}
}

// ended tells that the process is not running any more, where that is so.
func (p *process) ended() error {
	select {
	case err := <-p.done:
		p.over = true
		return fmt.Errorf("%s ended by itself: %w; its log ends with:\n%s", p.name, reason(err), p.tail())
	default:
		return nil
	}
}

// reason is err, or says that there was none.
func reason(err error) error {
	if err == nil {
		return errors.New("without an error")
	}
	return err
}

// tailBytes is how much of a log is shown with an error.
const tailBytes = 1500

// tail is the end of the process's log.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-tailBytes):]))
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

// listening waits until addr accepts a connection, asking every half a millisecond.
func listening(ctx context.Context, p *process, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		d := net.Dialer{}
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if gone := p.ended(); gone != nil {
			return gone
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen on %s: %w; its log ends with:\n%s", p.name, addr, err, p.tail())
		case <-time.After(500 * time.Microsecond):
		}
	}
}

// build compiles a command of this module into a folder, as it is released: static, stripped.
func build(ctx context.Context, out, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, strings.TrimSpace(string(text)))
	}
	return nil
}
