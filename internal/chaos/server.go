//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// What every server is told to accept, and seals with.
const (
	serviceKey = "hob_chaos_0123456789abcdef0123456789abcdef"
	sealKey    = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

// Times that servers are given.
const (
	startTime = 30 * time.Second // to become ready
	stopTime  = 30 * time.Second // to end behind SIGTERM, on top of the drain time
	readyPoll = 2 * time.Millisecond
)

// setting is how a server is started, each time anew.
type setting struct {
	name     string   // of the data folder and the log
	bin      string   // "" for the harness's program
	database string   // URL of a Postgres database; "" for SQLite in the data folder
	env      []string // further variables
	args     []string // further flags of serve
	wrap     []string // a command in front of the program, as strace with its flags
	pipe     string   // address that model and tools are reached at
}

// server is one hob serve with its data folder and its port, which stay the same over restarts. One goroutine at a time
// may start and end it; asking for its state is safe from all.
type server struct {
	setting
	h    *harness
	data string
	addr string
	log  string

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process is gone
	began  time.Time     // of the last start
	starts int
}

// newServer prepares a server; nothing is started yet.
func newServer(ctx context.Context, h *harness, s setting) (*server, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	if s.bin == "" {
		s.bin = h.hob
	}
	data := filepath.Join(h.folder, s.name)
	return &server{setting: s, h: h, data: data, addr: addr, log: data + ".log"}, nil
}

// environment is all that the process sees.
func (s *server) environment() []string {
	env := []string{
		"HOME=" + s.h.folder, "PATH=" + os.Getenv("PATH"), "HOB_RATE_LIMIT=off", "HOB_LOG=info,json", "HOB_SERVICE_KEY=" + serviceKey,
		"HOB_SEAL_KEY=" + sealKey, "HOB_ADDR=" + s.addr, "HOB_DATA=" + s.data,
		"OPENAI_BASE_URL=http://" + s.pipe + "/v1", "OPENAI_API_KEY=chaos", "HOB_EGRESS_ALLOW=" + s.pipe,
	}
	if s.database != "" {
		// The cluster is of its superuser alone.
		env = append(env, "HOB_DATABASE_URL="+s.database, "HOB_ALLOW_POWERFUL_ROLE=on")
	}
	return append(env, s.env...)
}

// start starts the process and does not wait for it to be ready. It is killed should this process end, however it ends.
func (s *server) start() error {
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", s.name, err)
	}
	defer out.Close()
	words := append(append(append([]string{}, s.wrap...), s.bin, "serve"), s.args...)
	cmd := exec.Command(words[0], words[1:]...) //nolint:noctx // it is ended by kill or term
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.environment(), s.h.folder, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	failed := make(chan error)
	began := time.Now()
	s.h.starts <- func() { failed <- cmd.Start() }
	if err := <-failed; err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // how it ended is in cmd.ProcessState
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd, s.ended, s.began = cmd, ended, began
	s.starts++
	return nil
}

// serve starts the process and waits until it is ready; it tells how long that took.
func (s *server) serve(ctx context.Context) (time.Duration, error) {
	if err := s.start(); err != nil {
		return 0, err
	}
	return s.ready(ctx)
}

// ready waits until the process takes requests, and tells how long that took from its start on.
func (s *server) ready(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	_, ended, began := s.state()
	c := &http.Client{Timeout: startTime, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		status, err := s.health(ctx, c)
		if status == http.StatusOK {
			return time.Since(began), nil
		}
		select {
		case <-ended:
			return 0, fmt.Errorf("%s ended by itself; its log ends with:\n%s", s.name, s.tail())
		case <-ctx.Done():
			return 0, fmt.Errorf("%s is not ready: status %d, %w; its log ends with:\n%s", s.name, status, errors.Join(err, ctx.Err()), s.tail())
		case <-time.After(readyPoll):
		}
	}
}

// health asks whether the server would take runs and gives the status.
func (s *server) health(ctx context.Context, c *http.Client) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/health/ready", nil)
	if err != nil {
		return 0, fmt.Errorf("ask for the health: %w", err)
	}
	res, err := c.Do(r)
	if err != nil {
		return 0, fmt.Errorf("ask for the health: %w", err)
	}
	return res.StatusCode, res.Body.Close()
}

func (s *server) state() (*exec.Cmd, chan struct{}, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd, s.ended, s.began
}

// signal sends a signal to the process and to what is in front of it.
func (s *server) signal(sig syscall.Signal) error {
	cmd, ended, _ := s.state()
	if cmd == nil {
		return fmt.Errorf("%s was never started", s.name)
	}
	select {
	case <-ended: // its number may be another's by now
		return fmt.Errorf("%s is not running", s.name)
	default:
	}
	if err := syscall.Kill(-cmd.Process.Pid, sig); err != nil {
		return fmt.Errorf("%s to %s: %w", sig, s.name, err)
	}
	return nil
}

// kill ends the process without a word, as a power cut would, and waits until it is gone. One that is gone is fine.
func (s *server) kill() {
	cmd, ended, _ := s.state()
	if cmd == nil {
		return
	}
	_ = s.signal(syscall.SIGKILL) // it may have ended by itself
	<-ended
}

// freeze stops the process where it is, and thaw lets it go on.
func (s *server) freeze() error { return s.signal(syscall.SIGSTOP) }
func (s *server) thaw() error   { return s.signal(syscall.SIGCONT) }

// term asks the process to end, waits until it has, and gives its exit code and how long it took.
func (s *server) term() (code int, took time.Duration, err error) {
	at := time.Now()
	if err := s.signal(syscall.SIGTERM); err != nil {
		return 0, 0, err
	}
	cmd, ended, _ := s.state()
	select {
	case <-ended:
		return cmd.ProcessState.ExitCode(), time.Since(at), nil
	case <-time.After(stopTime):
		s.kill()
		return 0, 0, fmt.Errorf("%s did not end within %s of SIGTERM; its log ends with:\n%s", s.name, stopTime, s.tail())
	}
}

// command runs the program with the server's variables to its end, and gives what it said and its exit code.
func (s *server) command(ctx context.Context, words ...string) (out string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.bin, words...)
	cmd.Env, cmd.Dir = s.environment(), s.h.folder
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		err = nil
	}
	return string(text), cmd.ProcessState.ExitCode(), err
}

// pid is the number of the process that was started.
func (s *server) pid() int {
	cmd, _, _ := s.state()
	return cmd.Process.Pid
}

// tailBytes is how much of a log is shown with an error.
const tailBytes = 1500

// tail is the end of the log.
func (s *server) tail() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-tailBytes):]))
}
