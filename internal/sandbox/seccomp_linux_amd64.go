package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	x32Bit    = 0x40000000 // set in the numbers of the x32 ABI, which shares the architecture
)

// allowedHere are the older forms of allowed calls.
func allowedHere() []uint32 {
	return []uint32{
		unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_GETDENTS,
		unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_LINK, unix.SYS_SYMLINK,
		unix.SYS_CHMOD, unix.SYS_CREAT, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT, unix.SYS_DUP2, unix.SYS_PIPE,
		unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_GETPGRP, unix.SYS_ARCH_PRCTL, unix.SYS_TIME, unix.SYS_ALARM, unix.SYS_PAUSE,
		unix.SYS_SELECT, unix.SYS_POLL, unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD, unix.SYS_SIGNALFD,
	}
}

// refusedHere are the older forms of calls that a program may not make, see narrower.
func refusedHere() []uint32 {
	return []uint32{unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD, unix.SYS_SIGNALFD}
}
