//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errNoStrace says that a part cannot run on this machine. It is no fault of Hob's, and none of a machine that never had
// strace; where strace is there and CI runs, it is one of the machine's, and has to be mended.
var errNoStrace = errors.New("strace cannot be used here")

// canTrace says whether this process may trace its children.
func canTrace(ctx context.Context) error {
	path, err := exec.LookPath("strace")
	if err != nil {
		return fmt.Errorf("%w: it is not installed", errNoStrace)
	}
	out, err := exec.CommandContext(ctx, path, "-f", "-o", os.DevNull, "true").CombinedOutput()
	switch {
	case err == nil:
		return nil
	case os.Getenv("CI") == "true":
		return fmt.Errorf("strace is there and cannot trace: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return fmt.Errorf("%w: %w: %s", errNoStrace, err, strings.TrimSpace(string(out)))
}

// notRun is the line of a part that cannot run here; any other error is handed on.
func notRun(err error) ([]verdict, error) {
	if errors.Is(err, errNoStrace) {
		return []verdict{figure(notRunName, "%v", err)}, nil
	}
	return nil, err
}

// traced is one system call of a process, from strace's output with -f -yy.
type traced struct {
	name        string
	target      string // what the first argument's descriptor is, as strace shows it between < and >
	data        string // the second argument, quoted
	size        int    // the third argument
	enter, exit int    // lines of the output at which the call began and had ended; all calls in one order
	failed      bool
}

// readTrace gives each system call of an output, when it has ended. Calls that never ended are left out.
func readTrace(in io.Reader, each func(traced) error) error {
	open := map[string]traced{} // by thread
	r := bufio.NewReaderSize(in, 1<<20)
	for n := 1; ; n++ {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the trace: %w", err)
		}
		thread, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		rest = strings.TrimLeft(rest, " ")
		var c traced
		switch {
		case strings.HasPrefix(rest, "<... "):
			var found bool
			if c, found = open[thread]; !found {
				continue // it began before the trace did
			}
			delete(open, thread)
		case strings.HasPrefix(rest, "+++") || strings.HasPrefix(rest, "---"):
			continue
		default:
			c = readCall(rest)
			c.enter = n
			if strings.HasSuffix(rest, "<unfinished ...>") {
				open[thread] = c
				continue
			}
		}
		c.exit = n
		end := strings.LastIndex(rest, " = ")
		c.failed = end < 0 || strings.HasPrefix(rest[end+3:], "-1") || strings.HasPrefix(rest[end+3:], "?")
		if err := each(c); err != nil {
			return err
		}
	}
}

// readCall reads the name and the first arguments of a call.
func readCall(text string) traced {
	name, args, _ := strings.Cut(text, "(")
	c := traced{name: name}
	if open := strings.IndexByte(args, '<'); open >= 0 {
		c.target = balanced(args[open+1:])
	}
	from := strings.IndexByte(args, '"')
	to := strings.LastIndexByte(args, '"')
	if from >= 0 && to > from {
		c.data = args[from+1 : to]
		third, _, _ := strings.Cut(strings.TrimLeft(args[to+1:], ".,) "), ",")
		third, _, _ = strings.Cut(third, ")")
		c.size, _ = strconv.Atoi(strings.TrimSpace(third)) // 0 where there is none
	}
	return c
}

// balanced is the text up to the > that closes it; sockets have arrows in theirs.
func balanced(text string) string {
	for i := range len(text) {
		if text[i] == '>' && (i == 0 || text[i-1] != '-') {
			return text[:i]
		}
	}
	return text
}

// unquote undoes strace's escapes.
func unquote(text string) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			continue
		}
		i++
		if at := strings.IndexByte("nrtvf", text[i]); at >= 0 {
			out = append(out, "\n\r\t\v\f"[at])
			continue
		}
		if text[i] < '0' || text[i] > '7' {
			out = append(out, text[i])
			continue
		}
		digits := i + 1
		for digits < len(text) && digits < i+3 && text[digits] >= '0' && text[digits] <= '7' {
			digits++
		}
		n, _ := strconv.ParseUint(text[i:digits], 8, 16) // octal digits alone
		out = append(out, byte(n))
		i = digits - 1
	}
	return out
}

// injection makes system calls of a running server fail.
type injection struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// attachTime is how long strace may take to attach.
const attachTime = 10 * time.Second

// inject attaches to a server, and makes what it does to files fail as told: "fsync,fdatasync:error=EIO".
func inject(ctx context.Context, s *server, fault string, paths ...string) (*injection, error) {
	calls, _, _ := strings.Cut(fault, ":")
	i := &injection{log: s.data + ".inject", done: make(chan struct{})}
	if err := os.Remove(i.log); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make room for a trace: %w", err)
	}
	args := []string{"-f", "-o", i.log, "-p", strconv.Itoa(s.pid()), "-e", "trace=" + calls, "-e", "inject=" + fault}
	for _, p := range paths {
		args = append(args, "-P", p)
	}
	i.cmd = exec.Command("strace", args...) //nolint:noctx // it is ended by stop
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	failed := make(chan error)
	s.h.starts <- func() { failed <- i.cmd.Start() }
	if err := <-failed; err != nil {
		return nil, fmt.Errorf("start strace: %w", err)
	}
	go func() { _ = i.cmd.Wait(); close(i.done) }()
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	for i.hits() == 0 {
		select {
		case <-i.done:
			return nil, fmt.Errorf("strace ended by itself: %s", i.cmd.ProcessState)
		case <-ctx.Done():
			i.stop()
			return nil, fmt.Errorf("no call of the server met the fault %s within %s", fault, attachTime)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return i, nil
}

// hits counts the calls that failed as they were told.
func (i *injection) hits() int {
	text, err := os.ReadFile(i.log)
	if err != nil {
		return 0 // strace has not made it yet
	}
	return strings.Count(string(text), "(INJECTED)")
}

// stop lets the server's calls succeed again.
func (i *injection) stop() {
	_ = i.cmd.Process.Signal(syscall.SIGTERM) // strace detaches; it may have ended by itself
	<-i.done
}
