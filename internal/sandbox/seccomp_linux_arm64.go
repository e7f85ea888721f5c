package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	x32Bit    = 0x80000000 // no number has it
)

// allowedHere are calls whose name differs on this architecture.
func allowedHere() []uint32 { return []uint32{unix.SYS_FSTATAT, unix.SYS_RENAMEAT} }

// refusedHere: this architecture has no older forms of calls.
func refusedHere() []uint32 { return nil }
