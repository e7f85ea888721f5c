//go:build linux && (amd64 || arm64)

package sandbox

import (
	"fmt"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// narrower is the list of what the process of a program may not call although the helper around it must:
//
//   - what waits by a set of its own (epoll, and descriptors of events, timers and signals): the sets are memory of the
//     kernel, up to a share of the machine's; poll and select wait without one,
//   - another disposition of SIGCHLD: a process whose parent ignores it goes without a trace, and its processor time with it,
//   - limits of other processes, which are the helper's,
//   - further lists of calls.
func narrower() []unix.SockFilter {
	ret := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	refuse := ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	f := []unix.SockFilter{load(offNumber)}
	for _, n := range append([]uint32{
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_EVENTFD2,
		unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME, unix.SYS_TIMERFD_GETTIME, unix.SYS_SIGNALFD4, unix.SYS_SECCOMP,
	}, refusedHere()...) {
		f = append(f, jump(n, 0, 1), refuse)
	}
	allow := ret(unix.SECCOMP_RET_ALLOW)
	return append(
		f,
		jump(unix.SYS_PRLIMIT64, 0, 4), load(offArgs), jump(0, 0, 1), allow, refuse,
		jump(unix.SYS_RT_SIGACTION, 0, 8), load(offArgs), jump(uint32(unix.SIGCHLD), 1, 0), allow,
		// Asking for it, with no new one, is fine.
		load(offArgs+8), jump(0, 0, 2), load(offArgs+12), jump(0, 1, 0), refuse,
		allow,
	)
}

// deafen gives every signal the disposition that the kernel drops for process 1 of a namespace, so that no program ends or
// stops the helper around it. The one signal that the runtime sends to itself keeps its handler.
func deafen() error {
	// The runtime takes back a handler of its own in every process that it starts, and here that may not be done.
	signal.Ignore(unix.SIGCHLD)
	var standard [4]uint64 // the kernel's struct sigaction: no handler, no flags, an empty mask
	const lastSignal = 64
	for n := unix.Signal(1); n <= lastSignal; n++ {
		if n == unix.SIGURG || n == unix.SIGKILL || n == unix.SIGSTOP {
			continue
		}
		_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&standard[0])), 0, 8, 0, 0)
		if e != 0 {
			return fmt.Errorf("reset signal %d: %w", n, e)
		}
	}
	return nil
}
