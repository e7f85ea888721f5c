//go:build linux && (amd64 || arm64)

package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What an operator can do about a wall that is missing.
const (
	fixMounts   = "allow hob to mount: in a container, docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
	fixLandlock = "boot with lsm=landlock,… (Linux 5.13 or later), or set HOB_SANDBOX=weak to run without this second wall"
	fixBuild    = "do not run code with this build; report it"
)

// fixNamespaces finds which switch of the system forbids namespaces.
func fixNamespaces() string {
	for _, s := range []struct{ path, value, fix string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"},
		{"/proc/sys/user/max_net_namespaces", "0", "sysctl -w user.max_net_namespaces=15000"},
		{"/proc/sys/user/max_pid_namespaces", "0", "sysctl -w user.max_pid_namespaces=15000"},
	} {
		if b, err := os.ReadFile(s.path); err == nil && strings.TrimSpace(string(b)) == s.value {
			return s.fix
		}
	}
	return "allow user namespaces: in a container, docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined; " +
		"under systemd, without RestrictNamespaces="
}

// processesWall is the name of the wall that a root without other users cannot have.
const processesWall = "processes"

// errDone: a call was carried out.
var errDone = errors.New("it was carried out")

// call makes a system call that must not succeed.
func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, e := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); e != 0 {
		return e
	}
	return nil
}

func address(path string) uintptr {
	b := append([]byte(path), 0)
	return uintptr(unsafe.Pointer(&b[0]))
}

// probe tries every wall from where a program stands.
func (h *helper) probe(j job) []Wall {
	walls := []Wall{
		h.probeFiles(j.Path), probeReadOnly(), probeNetwork(), h.probeCalls(), probeRights(), h.probeLandlock(),
		h.probeMemory(), h.probeSurroundings(),
	}
	return append(walls, h.probeProcesses()) // the last: it uses up what there is
}

// wall makes the record of a proof.
func wall(name, tried, fix string, err error) Wall {
	if err != nil {
		return Wall{Name: name, Detail: err.Error(), Fix: fix}
	}
	return Wall{Name: name, OK: true, Detail: tried}
}

func (h *helper) probeFiles(canary string) Wall {
	var errs []error
	for _, path := range []string{canary, "/etc/shadow", "/etc/hostname", "/proc/self/status", "/proc/1/environ", "/sys/kernel", "/root", "/home", "/dev/mem", "/dev/kmsg", "/.old"} {
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			_ = unix.Close(fd)
			errs = append(errs, fmt.Errorf("%s can be opened", path))
		}
	}
	if err := unix.Chroot("/tmp"); err == nil {
		errs = append(errs, errors.New("the root can be changed"))
	}
	return wall("files", "a file of the server and those of the system cannot be opened", fixBuild, errors.Join(errs...))
}

func probeReadOnly() Wall {
	var errs []error
	for _, path := range []string{"/x", "/etc/x", "/usr/x", "/dev/x"} {
		if fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o600); err == nil {
			_ = unix.Close(fd)
			errs = append(errs, fmt.Errorf("%s can be made", path))
		}
	}
	return wall("read-only root", "nothing can be written outside /tmp and /output", fixBuild, errors.Join(errs...))
}

func probeNetwork() Wall {
	var errs []error
	for name, family := range map[string]int{
		"internet": unix.AF_INET, "internet (6)": unix.AF_INET6, "unix": unix.AF_UNIX, "netlink": unix.AF_NETLINK, "packet": unix.AF_PACKET, "vsock": unix.AF_VSOCK,
	} {
		if fd, err := unix.Socket(family, unix.SOCK_STREAM, 0); err == nil {
			_ = unix.Close(fd)
			errs = append(errs, fmt.Errorf("a socket of the family %s can be made", name))
		}
	}
	return wall("network", "no socket of any family can be made", fixBuild, errors.Join(errs...))
}

func (h *helper) probeCalls() Wall {
	const fix = "use a kernel with CONFIG_SECCOMP_FILTER"
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	if err != nil || mode != unix.SECCOMP_MODE_FILTER {
		return wall("system calls", "", fix, fmt.Errorf("there is no filter (mode %d)", mode)) // and nothing is tried without
	}
	var flags uint64 = unix.CLONE_NEWUSER
	forbidden := map[string]error{
		"mount":          call(unix.SYS_MOUNT, address("none"), address("/tmp"), address("tmpfs"), 0, 0),
		"unshare":        call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		"setns":          call(unix.SYS_SETNS, 0, 0),
		"clone3":         call(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&flags)), 0),
		"ptrace":         call(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0),
		"keyctl":         call(unix.SYS_KEYCTL, 0, ^uintptr(2), 0),
		"add_key":        call(unix.SYS_ADD_KEY, address("user"), address("x"), address("x"), 1, ^uintptr(2)),
		"bpf":            call(unix.SYS_BPF, 0, 0, 0),
		"perf_event":     call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0),
		"io_uring":       call(unix.SYS_IO_URING_SETUP, 1, 0),
		"userfaultfd":    call(unix.SYS_USERFAULTFD, 0),
		"modules":        call(unix.SYS_FINIT_MODULE, 0, 0, 0),
		"memfd":          call(unix.SYS_MEMFD_CREATE, address("x"), 0),
		"shared memory":  call(unix.SYS_SHMGET, 0, 4096, 0o600|unix.IPC_CREAT),
		"kexec":          call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0),
		"socket pairs":   call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, 0),
		"sending":        call(unix.SYS_SENDMSG, helperFD, 0, 0),
		"socket buffers": call(unix.SYS_SETSOCKOPT, helperFD, unix.SOL_SOCKET, unix.SO_SNDBUF, 0, 0),
		"shared mapping": call(unix.SYS_MMAP, 0, 4096, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANONYMOUS, ^uintptr(0), 0),
		"larger pipes":   call(unix.SYS_FCNTL, 1, unix.F_SETPIPE_SZ, 1<<20),
		"reading others": call(unix.SYS_PROCESS_VM_READV, 1, 0, 0, 0, 0, 0),
	}
	var errs []error
	for name, err := range forbidden {
		if !errors.Is(err, unix.EPERM) && (name != "clone3" || !errors.Is(err, unix.ENOSYS)) {
			errs = append(errs, fmt.Errorf("%s is not forbidden: %w", name, cmp.Or(err, errDone)))
		}
	}
	return wall("system calls", fmt.Sprintf("%d calls that reach out are refused", len(forbidden)), fix, errors.Join(errs...))
}

func probeRights() Wall {
	var errs []error
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		errs = append(errs, err)
	}
	if data != [2]unix.CapUserData{} {
		errs = append(errs, errors.New("capabilities are left"))
	}
	for right := range uintptr(64) {
		if n, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, right, 0, 0, 0); err == nil && n != 0 {
			errs = append(errs, fmt.Errorf("capability %d can be had again", right))
		}
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || n != 1 {
		errs = append(errs, errors.New("no_new_privs is not set"))
	}
	return wall("rights", "no capability is left, and none can be had again", fixBuild, errors.Join(errs...))
}

// probeLandlock writes where only Landlock forbids it.
func (h *helper) probeLandlock() Wall {
	var err error
	if fd, open := unix.Open(wallDir+"/x", unix.O_CREAT|unix.O_WRONLY, 0o600); open == nil {
		_ = unix.Close(fd)
		err = errors.New("a folder that is not granted can be written to: " + errNoLandlock.Error())
	}
	w := wall("landlock", fmt.Sprintf("a folder that is not granted cannot be written to (version %d)", h.version), fixLandlock, err)
	w.Weak = true
	return w
}

func (h *helper) probeMemory() Wall {
	var limit unix.Rlimit
	err := unix.Prlimit(0, unix.RLIMIT_AS, nil, &limit)
	if err == nil && limit.Cur == unix.RLIM_INFINITY {
		err = errors.New("the address space has no bound")
	}
	if err == nil {
		if b, mapped := unix.Mmap(-1, 0, int(limit.Cur), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE); mapped == nil {
			_ = unix.Munmap(b)
			err = errors.New("more memory can be had than is allowed")
		}
	}
	return wall("memory", fmt.Sprintf("no process gets more than %d MB", h.order.Limits.Memory>>20), "raise the limits of hob's own process (ulimit -v)", err)
}

// probeSurroundings looks at what a program inherits: the descriptors, the environment, the name of the machine, and its
// own place among the processes.
func (h *helper) probeSurroundings() Wall {
	var errs []error
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != helperEnv && name != "GOMAXPROCS" {
			errs = append(errs, fmt.Errorf("the variable %s is inherited", name))
		}
	}
	// The runtime's own descriptors lie in no file system: they are like one made here.
	var own unix.Stat_t
	if fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC); err == nil {
		errs = append(errs, unix.Fstat(fd, &own), unix.Close(fd))
	}
	for fd := helperFD + 1; fd < maxOpenFiles; fd++ {
		var info unix.Stat_t
		if unix.Fstat(fd, &info) == nil && info.Dev != own.Dev {
			errs = append(errs, fmt.Errorf("descriptor %d is inherited (%o, device %d)", fd, info.Mode, info.Dev))
		}
	}
	if pid := os.Getpid(); pid != 1 {
		errs = append(errs, fmt.Errorf("this is process %d", pid))
	}
	if name, err := os.Hostname(); err != nil || name != "sandbox" {
		errs = append(errs, fmt.Errorf("the machine is called %q", name))
	}
	return wall("surroundings", "no variable, descriptor or process of the server can be seen", fixBuild, errors.Join(errs...))
}

// probeProcesses starts processes that wait, until no more can be had. They end with this one.
func (h *helper) probeProcesses() Wall {
	most := h.order.Limits.Processes
	started := 0
	for ; started < 4*most; started++ {
		pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if e != 0 {
			break
		}
		if pid == 0 {
			for {
				_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
	}
	var err error
	if started >= most {
		err = fmt.Errorf("%d processes could be started", started)
	}
	w := wall(processesWall, fmt.Sprintf("no more than %d processes and threads can be started", most),
		"use Linux 5.14 or later, and do not run hob as root inside a user namespace of its own", err)
	w.Weak = true
	return w
}
