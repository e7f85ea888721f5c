//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// walls that a new process gets from its first moment.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// Users of the host that stand behind helpers where the server runs as root: out of a range that systemd leaves free, each
// helper its own, so that they cannot even name each other's files.
const (
	firstUser = 0x70000000
	users     = 1 << 16
)

// startTime bounds the start of a helper up to its walls.
const startTime = 20 * time.Second

// worker is a helper as the server sees it. It runs one job at most.
type worker struct {
	cmd      *exec.Cmd
	conn     *os.File
	stdout   *os.File
	stderr   *os.File
	output   *os.File // the folder /output
	landlock int
	ended    bool
}

// spawner starts helpers on one thread, which lives as long as the sandbox: a helper is ended with the thread that started
// it.
type spawner struct{ jobs chan func() }

func command(program string, uid int) *exec.Cmd {
	cmd := &exec.Cmd{
		Path: program, Args: []string{helperName}, Env: []string{helperEnv + "=1", "GOMAXPROCS=2"}, Dir: "/",
	}
	attr := &syscall.SysProcAttr{
		Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL, Setsid: true,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
	}
	if own := os.Geteuid(); uid != own {
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{Uid: 0, Gid: 0}
	} else {
		attr.GidMappings[0].HostID = os.Getegid()
	}
	if hasTimeNamespace() {
		attr.Unshareflags = unix.CLONE_NEWTIME
	}
	cmd.SysProcAttr = attr
	return cmd
}

// hasTimeNamespace says whether this kernel has them.
func hasTimeNamespace() bool {
	_, err := os.Stat("/proc/self/ns/time")
	return err == nil
}

// mayMap says whether this process may put other users behind a helper.
func mayMap() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	const needed = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	if data[0].Effective&needed != needed {
		return false
	}
	// Inside a user namespace only the users that it maps are there.
	b, err := os.ReadFile("/proc/self/uid_map")
	var inside, outside, size int64
	if _, scan := fmt.Sscan(string(b), &inside, &outside, &size); err != nil || scan != nil {
		return false
	}
	return inside == 0 && size >= firstUser+users
}

// start starts a helper and waits for its walls. The error is an *OffError where it cannot have them.
func (p *pool) start(ctx context.Context, language Language) (_ *worker, err error) {
	w := &worker{}
	defer func() {
		if err != nil {
			w.end()
		}
	}()
	o, err := p.order(ctx, language)
	if err != nil {
		return nil, err
	}
	if err := w.open(p); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := w.conn.SetDeadline(time.Now().Add(startTime)); err != nil { //nolint:forbidigo // a deadline of the machine
		return nil, fmt.Errorf("start a helper: %w", err)
	}
	// Once for the walls, and once behind them: where these fail the helper is gone before the second, and has said why.
	sent := errors.Join(send(w.conn, o), send(w.conn, o))
	var r readiness
	if err := receive(w.conn, &r); err != nil {
		return nil, errors.Join(err, sent, context.Cause(ctx))
	}
	if r.Off != nil {
		return nil, r.Off
	}
	if w.output, err = receiveFile(w.conn); err != nil {
		return nil, err
	}
	r = readiness{}
	if err := receive(w.conn, &r); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	if r.Off != nil {
		return nil, r.Off
	}
	w.landlock = r.Landlock
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return w, w.conn.SetDeadline(time.Time{})
}

// open makes the pipes and the process.
func (w *worker) open(p *pool) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("make a helper's socket: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "helper")
	defer func() { _ = theirs.Close() }()
	w.conn = os.NewFile(uintptr(pair[0]), "server")
	var outW, errW *os.File
	if w.stdout, outW, err = os.Pipe(); err != nil {
		return fmt.Errorf("make a helper's pipe: %w", err)
	}
	defer func() { _ = outW.Close() }()
	if w.stderr, errW, err = os.Pipe(); err != nil {
		return fmt.Errorf("make a helper's pipe: %w", err)
	}
	defer func() { _ = errW.Close() }()
	cmd := command(p.program(), p.user())
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{theirs}, outW, errW
	if err := p.spawn(cmd); err != nil {
		return p.startError(err)
	}
	w.cmd = cmd
	return nil
}

// startError tells why no process could be made.
func (p *pool) startError(err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	off := &OffError{Missing: "namespaces", Reason: err.Error(), Fix: fixNamespaces()}
	if errors.Is(err, fs.ErrPermission) && mayMap() {
		if info, stat := os.Stat(p.program()); stat == nil && info.Mode().Perm()&0o005 != 0o005 {
			off.Reason, off.Fix = "the program file can be run by its owner only", "chmod o+rx the hob program, or run hob as a user other than root"
		}
	}
	return off
}

// end ends every process of a helper and waits until the last is gone. It can be called again.
func (w *worker) end() {
	if w.ended {
		return
	}
	w.ended = true
	if w.cmd != nil {
		_ = w.cmd.Process.Kill() // process 1 of its namespace: the kernel ends the others before it lets it go
		_ = w.cmd.Wait()
	}
	for _, f := range []*os.File{w.conn, w.stdout, w.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// discard ends a helper that nobody will read results of.
func (w *worker) discard() {
	w.end()
	if w.output != nil {
		_ = w.output.Close()
	}
}

// newSpawner starts the thread.
func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func())}
	go s.serve()
	return s
}

func (s *spawner) serve() {
	lockThread()
	for job := range s.jobs {
		job()
	}
}
