//go:build linux && (amd64 || arm64)

package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; the machines are little-endian, so the lower half of an argument comes first.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// newNamespaces are the flags of clone that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// lastKnown is the last system call that this list has judged. Those after it do not exist here: C libraries then take an
// older way, while they give up on one that is forbidden.
const lastKnown = 456

// ioctls are those that ask whether a descriptor is a terminal, and change its blocking.
func ioctls() []uint32 {
	return []uint32{unix.TCGETS, unix.TIOCGWINSZ, 0x541b /* FIONREAD */, 0x5421 /* FIONBIO */, 0x5450 /* FIONCLEX */, 0x5451 /* FIOCLEX */}
}

// fcntls are those about the descriptor itself and the ordinary locks, which the server counts. The size of a pipe stays as
// it is: it is memory of the kernel.
func fcntls() []uint32 {
	return []uint32{
		unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_GETLK, unix.F_SETLK,
		unix.F_SETLKW, unix.F_GETPIPE_SZ,
	}
}

// prctls name threads and mappings and ask about the walls.
func prctls() []uint32 {
	return []uint32{
		unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_SET_PDEATHSIG, unix.PR_GET_DUMPABLE, unix.PR_SET_VMA, unix.PR_CAPBSET_READ,
		unix.PR_GET_NO_NEW_PRIVS, unix.PR_GET_SECCOMP,
	}
}

// filter is the list of what may be called, as a program for the kernel. Everything else fails with EPERM. It is written
// out here since the accumulator must hold the number whenever a number is compared: where a test of an argument fails,
// what follows must not take the argument for a number.
func filter() []unix.SockFilter {
	ret := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	errno := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	f := []unix.SockFilter{
		load(offArch), jump(unix.BPF_JEQ, auditArch, 1, 0), ret(unix.SECCOMP_RET_KILL_PROCESS),
		load(offNumber), jump(unix.BPF_JGE, x32Bit, 0, 1), ret(unix.SECCOMP_RET_KILL_PROCESS),
	}
	for _, n := range append(allowed(), allowedHere()...) {
		f = append(f, jump(unix.BPF_JEQ, n, 0, 1), ret(unix.SECCOMP_RET_ALLOW))
	}
	// one compares the lower half of an argument with a list; the block ends in a return, whatever the argument.
	one := func(number, argument uint32, values []uint32) {
		block := []unix.SockFilter{load(offArgs + 8*argument)}
		for _, v := range values {
			block = append(block, jump(unix.BPF_JEQ, v, 0, 1), ret(unix.SECCOMP_RET_ALLOW))
		}
		block = append(block, ret(errno(unix.EPERM)))
		f = append(append(f, jump(unix.BPF_JEQ, number, 0, uint8(len(block)))), block...)
	}
	one(unix.SYS_IOCTL, 1, ioctls())
	one(unix.SYS_PRCTL, 0, prctls())
	one(unix.SYS_FCNTL, 1, fcntls())
	one(unix.SYS_SECCOMP, 0, []uint32{unix.SECCOMP_SET_MODE_FILTER}) // to narrow this list, see narrowCalls
	const sharedNew = unix.MAP_SHARED | unix.MAP_ANONYMOUS
	return append(
		f,
		jump(unix.BPF_JEQ, unix.SYS_MMAP, 0, 5),
		load(offArgs+8*3), unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: sharedNew},
		jump(unix.BPF_JEQ, sharedNew, 0, 1), ret(errno(unix.EPERM)), ret(unix.SECCOMP_RET_ALLOW),
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4),
		load(offArgs), jump(unix.BPF_JSET, newNamespaces, 0, 1), ret(errno(unix.EPERM)), ret(unix.SECCOMP_RET_ALLOW),
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 1, 0), // its flags lie where a filter cannot look
		jump(unix.BPF_JGT, lastKnown, 0, 1), ret(errno(unix.ENOSYS)),
		ret(errno(unix.EPERM)),
	)
}

// restrictCalls puts the list on this thread and all that it starts.
func restrictCalls() error { return setFilter(filter()) }

// narrowCalls puts a second list on this thread: what the helper needs for itself and a program must not do.
func narrowCalls() error { return setFilter(narrower()) }

func setFilter(program []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return fmt.Errorf("set the list of system calls: %w", e)
	}
	return nil
}

// allowed are the calls that both architectures have: files, memory, threads and processes of one's own, time and waiting.
// No call makes memory that nothing counts: no memfd, no shared segment or mapping without a file, no queue, no socket,
// not even a pair (what was sent to one and not received lies in the kernel).
func allowed() []uint32 {
	return []uint32{
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_PREADV,
		unix.SYS_PWRITEV, unix.SYS_PREADV2, unix.SYS_PWRITEV2, unix.SYS_LSEEK, unix.SYS_CLOSE, unix.SYS_CLOSE_RANGE,
		unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2,
		unix.SYS_READLINKAT, unix.SYS_GETDENTS64, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT,
		unix.SYS_SYMLINKAT, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_UTIMENSAT, unix.SYS_FTRUNCATE,
		unix.SYS_TRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_FLOCK, unix.SYS_DUP,
		unix.SYS_DUP3, unix.SYS_PIPE2, unix.SYS_GETCWD, unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_UMASK, unix.SYS_STATFS,
		unix.SYS_FSTATFS, unix.SYS_SENDFILE, unix.SYS_COPY_FILE_RANGE,

		unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_MSYNC,
		unix.SYS_MINCORE, unix.SYS_MEMBARRIER,

		unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_KILL, unix.SYS_TKILL,
		unix.SYS_TGKILL, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID,
		unix.SYS_GETPGID, unix.SYS_GETSID, unix.SYS_SETSID, unix.SYS_SETPGID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID,
		unix.SYS_GETEGID, unix.SYS_GETRESUID, unix.SYS_GETRESGID, unix.SYS_GETGROUPS, unix.SYS_CAPGET, unix.SYS_SET_TID_ADDRESS,
		unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_FUTEX, unix.SYS_SCHED_YIELD,
		unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER,
		unix.SYS_GETPRIORITY, unix.SYS_SETPRIORITY, unix.SYS_PRLIMIT64, unix.SYS_GETRLIMIT, unix.SYS_GETRUSAGE, unix.SYS_TIMES,
		unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETCPU, unix.SYS_GETRANDOM,

		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPENDING, unix.SYS_RT_SIGSUSPEND,
		unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL, unix.SYS_SETITIMER,
		unix.SYS_GETITIMER, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_GETTIME, unix.SYS_TIMER_DELETE,
		unix.SYS_TIMER_GETOVERRUN, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_NANOSLEEP,
		unix.SYS_GETTIMEOFDAY,

		unix.SYS_PSELECT6, unix.SYS_PPOLL, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT,
		unix.SYS_EPOLL_PWAIT2, unix.SYS_EVENTFD2, unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME, unix.SYS_TIMERFD_GETTIME,
		unix.SYS_SIGNALFD4,
	}
}
