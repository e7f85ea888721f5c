//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How a helper is told from a person's call of the program: by its name, its one variable, no argument, and the socket
// that it was given.
const (
	helperName = "hob-sandbox"
	helperEnv  = "HOB_SANDBOX_HELPER"
	helperFD   = 3
)

// enclosed is the value of helperEnv behind the walls; the version of Landlock follows it.
const enclosed = "enclosed "

// Helped says whether this process was started as a helper. A program that contains a sandbox asks this first of all, and
// then does nothing but Help.
func Helped() bool {
	if len(os.Args) != 1 || os.Args[0] != helperName || os.Getenv(helperEnv) == "" {
		return false
	}
	var given unix.Stat_t // what else asks about sockets is refused behind the walls
	return unix.Fstat(helperFD, &given) == nil && given.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// Help does the work of a helper and gives its exit code: it builds the walls, starts itself anew behind them, says so,
// takes one program, runs it, and tells how it ended. It is process 1 of its namespace: when it ends, so does everything
// in there.
//
// Capabilities, Landlock and the list of system calls belong to threads. They are put on one, and the new start leaves
// nothing of the others, nor of the memory from before.
func Help() int {
	version, behind := strings.CutPrefix(os.Getenv(helperEnv), enclosed)
	if !behind {
		runtime.LockOSThread()
		if err := closeInherited(); err != nil {
			return 1
		}
	}
	if err := unix.SetNonblock(helperFD, true); err != nil {
		return 1
	}
	h := &helper{conn: os.NewFile(helperFD, "server")}
	do := h.enclose
	if behind {
		unix.CloseOnExec(helperFD)
		h.version, _ = strconv.Atoi(version) // written by the line below that starts this
		do = h.serve
	}
	if err := do(); err != nil {
		_ = send(h.conn, outcome{Fault: err.Error()}) // the server may be gone
		return 1
	}
	return 0
}

// closeInherited closes what the server itself had got from whoever started it, and what would come down to here.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list the descriptors: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= helperFD {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") { // the runtime's own
			continue
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// helper is the process around one program.
type helper struct {
	conn   *os.File
	order  order
	python *exec.Cmd
	gate   string // the program's path, a pipe until the program is there
	// version is Landlock's.
	version int
}

// helperStack bounds the stack of a goroutine of a helper, in bytes.
const helperStack = 64 << 20

// enclose builds the walls and starts this program anew. It returns only where that fails.
func (h *helper) enclose() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("be ended with the server: %w", err)
	}
	if err := receive(h.conn, &h.order); err != nil {
		return err
	}
	err := h.walls()
	var off *OffError
	if !errors.As(err, &off) {
		off = &OffError{Missing: "helper", Reason: err.Error(), Fix: fixBuild}
	}
	return send(h.conn, readiness{Off: off})
}

// serve is the life of a helper behind its walls.
func (h *helper) serve() error {
	debug.SetMaxStack(helperStack)
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("be ended with the server: %w", err)
	}
	if err := receive(h.conn, &h.order); err != nil {
		return err
	}
	if h.order.Language == Python {
		h.gate = gatePath
		if err := h.startPython(); err != nil {
			return send(h.conn, readiness{Off: &OffError{Missing: "interpreter", Reason: err.Error(), Fix: "apt install python3"}})
		}
	}
	if err := send(h.conn, readiness{Landlock: h.version}); err != nil {
		return err
	}
	var j job
	if err := receive(h.conn, &j); err != nil {
		return err
	}
	go h.endWithServer()
	return send(h.conn, h.run(j))
}

// endWithServer ends everything when the server is gone. It says nothing more, so any answer is that.
func (h *helper) endWithServer() {
	var b [1]byte
	_, _ = h.conn.Read(b[:])
	os.Exit(1)
}

func (h *helper) without(wall string) bool { return slices.Contains(h.order.Without, wall) }

// gatePath is where a Python program lies.
const gatePath = tmpDir + "/main.py"

// walls builds them, the one that everything else needs the absence of last, and starts this program anew.
func (h *helper) walls() error {
	size, err := addressSpace()
	if err != nil {
		return err
	}
	program, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open this program: %w", err)
	}
	output, err := newRoot(h.order)
	if err != nil {
		return &OffError{Missing: "files", Reason: err.Error(), Fix: fixMounts}
	}
	// Behind the walls no descriptor can be sent any more.
	if err := errors.Join(send(h.conn, readiness{}), sendFile(h.conn, output), unix.Close(output)); err != nil {
		return fmt.Errorf("give /output to the server: %w", err)
	}
	if h.order.Language == Python {
		if err := unix.Mkfifo(gatePath, 0o600); err != nil {
			return fmt.Errorf("make the program's place: %w", err)
		}
	}
	if !h.without("limits") {
		if err := boundSelf(h.order.Limits); err != nil {
			return &OffError{Missing: "limits", Reason: err.Error(), Fix: "raise the limits of hob's own process (ulimit, Limit…= of systemd)"}
		}
	}
	if h.order.Language != Python {
		if err := boundMemory(0, h.order.Limits, size+engineSpace); err != nil {
			return err
		}
	}
	// Without capabilities the root cannot be changed any more, and without no_new_privs Landlock takes nothing.
	if err := dropRights(); err != nil {
		return &OffError{Missing: "rights", Reason: err.Error(), Fix: fixNamespaces()}
	}
	version, err := h.landlock(program)
	if err != nil {
		return err
	}
	if !h.without("seccomp") {
		if err := restrictCalls(); err != nil {
			return &OffError{Missing: "system calls", Reason: err.Error(), Fix: "use a kernel with CONFIG_SECCOMP_FILTER"}
		}
	}
	return again(program, version)
}

func (h *helper) landlock(program int) (int, error) {
	version, err := 0, errNoLandlock
	if !h.without("landlock") {
		version, err = restrictPlaces(grants(h.order), program)
	}
	if err != nil && !h.order.Weak {
		return 0, &OffError{Missing: "landlock", Reason: err.Error(), Fix: fixLandlock}
	}
	return version, nil
}

// again starts this program anew, on this thread's terms, with the socket as its only descriptor.
func again(program, version int) error {
	name, err := unix.BytePtrFromString(helperName)
	if err != nil {
		return fmt.Errorf("start behind the walls: %w", err)
	}
	variables := make([]*byte, 0, 3)
	for _, v := range []string{helperEnv + "=" + enclosed + strconv.Itoa(version), "GOMAXPROCS=2"} {
		p, err := unix.BytePtrFromString(v)
		if err != nil {
			return fmt.Errorf("start behind the walls: %w", err)
		}
		variables = append(variables, p)
	}
	arguments, empty := []*byte{name, nil}, []byte{0}
	variables = append(variables, nil)
	_, _, e := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(program), uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&arguments[0])), uintptr(unsafe.Pointer(&variables[0])), unix.AT_EMPTY_PATH, 0)
	return fmt.Errorf("start behind the walls: %w", e)
}

// startPython starts the interpreter, which then waits at the gate: it reads its program from a pipe into which nothing
// was written yet. Its bounds are set before anything is.
func (h *helper) startPython() error {
	p := h.order.Python
	cmd := exec.CommandContext(context.Background(), p.Path, "-I", "-S", "-B", "-u", "-X", "utf8", h.gate)
	cmd.Dir = tmpDir
	cmd.Env = []string{
		"HOME=" + tmpDir, "TMPDIR=" + tmpDir, "PATH=/usr/local/bin:/usr/bin", "LANG=C.UTF-8", "USER=user",
		"LD_LIBRARY_PATH=" + p.Libs, "MALLOC_ARENA_MAX=1",
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a signal to its group is none to this process
	if err := deafen(); err != nil {
		return err
	}
	if err := h.startNarrowed(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.Path, err)
	}
	h.python = cmd
	if h.without("limits") {
		return nil
	}
	return boundMemory(cmd.Process.Pid, h.order.Limits, 0)
}

// startNarrowed starts a process that may make fewer calls than this one: a thread takes the shorter list, starts it, and
// ends.
func (h *helper) startNarrowed(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good
		if !h.without("seccomp") {
			if err := narrowCalls(); err != nil {
				started <- err
				return
			}
		}
		started <- cmd.Start()
	}()
	return <-started
}

// run carries out one job.
func (h *helper) run(j job) outcome {
	switch {
	case j.Probe:
		return outcome{Walls: h.probe(j)}
	case h.order.Language == Python:
		return h.runPython(j)
	}
	if err := boundTime(0, j.CPU+helperTime); err != nil {
		return outcome{Fault: err.Error()}
	}
	return runJavaScript(j.Code, h.order.Limits)
}

// helperTime is what a helper has used of its processor time before it begins.
const helperTime = 2 * time.Second

func (h *helper) runPython(j job) outcome {
	pid := h.python.Process.Pid
	if err := boundTime(pid, j.CPU); err != nil {
		return outcome{Fault: err.Error()}
	}
	given := make(chan error, 1)
	ended := make(chan struct{})
	go func() { given <- h.give(j.Code, ended) }()
	err := h.python.Wait()
	close(ended)
	_ = unix.Kill(-1, unix.SIGKILL) // whatever the program started; all but this process
	if fault := <-given; fault != nil {
		return outcome{Fault: fault.Error()}
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return outcome{Fault: fmt.Sprintf("wait for the interpreter: %v", err)}
	}
	status, _ := h.python.ProcessState.Sys().(syscall.WaitStatus) // always, on this system
	if status.Signaled() {
		return outcome{ExitCode: 128 + int(status.Signal()), Signal: status.Signal().String()}
	}
	return outcome{ExitCode: status.ExitStatus()}
}

// give writes the program into the pipe that the interpreter reads, and puts a file of the same text in the pipe's place
// before the interpreter can begin, so that tracebacks show its lines.
func (h *helper) give(code string, ended <-chan struct{}) error {
	if !strings.HasSuffix(code, "\n") {
		code += "\n"
	}
	file := tmpDir + "/.main.py"
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		return fmt.Errorf("write the program: %w", err)
	}
	var gate *os.File
	for {
		var err error
		if gate, err = os.OpenFile(h.gate, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			break
		} else if !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("give the program: %w", err)
		}
		select { // the interpreter does not read yet
		case <-ended:
			return errors.New("the interpreter ended before it read the program")
		case <-time.After(time.Millisecond):
		}
	}
	defer func() { _ = gate.Close() }() // the end of the program, for the interpreter
	if _, err := gate.WriteString(code); err != nil {
		return fmt.Errorf("give the program: %w", err)
	}
	if err := os.Rename(file, h.gate); err != nil {
		return fmt.Errorf("give the program: %w", err)
	}
	return nil
}
