//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// secureBits keep a root of the namespace from having any rights, and lock that.
const secureBits = 0xef // all of capabilities(7) but KEEP_CAPS itself

// dropRights takes every capability from this thread, for good, and sees to it that no program started by it has more.
func dropRights() error {
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
		return fmt.Errorf("set the secure bits: %w", err)
	}
	for right := uintptr(0); ; right++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, right, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // that was the last
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", right, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// Bounds that no setting changes.
const (
	maxOpenFiles = 128
	maxStack     = 8 << 20 // bytes; also of a thread
	maxSignals   = 256     // waiting to be delivered
)

func setLimit(pid, what int, value uint64) error {
	if err := unix.Prlimit(pid, what, &unix.Rlimit{Cur: value, Max: value}, nil); err != nil {
		return fmt.Errorf("set limit %d: %w", what, err)
	}
	return nil
}

// boundSelf sets the limits that helper and program share. Memory and processor time come later: the helper of a Python
// program needs more address space than the program may have.
func boundSelf(l Limits) error {
	return errors.Join(
		// A huge page of which most was given back still lies in memory, while nothing counts it.
		unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0),
		setLimit(0, unix.RLIMIT_CORE, 0), setLimit(0, unix.RLIMIT_NPROC, uint64(l.Processes)),
		setLimit(0, unix.RLIMIT_FSIZE, uint64(l.Disk)), setLimit(0, unix.RLIMIT_NOFILE, maxOpenFiles),
		setLimit(0, unix.RLIMIT_MEMLOCK, 0), setLimit(0, unix.RLIMIT_MSGQUEUE, 0), setLimit(0, unix.RLIMIT_NICE, 0),
		setLimit(0, unix.RLIMIT_RTPRIO, 0), setLimit(0, unix.RLIMIT_SIGPENDING, maxSignals), setLimit(0, unix.RLIMIT_STACK, maxStack),
	)
}

// boundMemory bounds the address space of a process; extra is what it has already and the program does not count for.
func boundMemory(pid int, l Limits, extra int64) error {
	return setLimit(pid, unix.RLIMIT_AS, uint64(l.Memory+extra))
}

// boundTime bounds the processor time of one process, in whole seconds; the server watches that of all together.
func boundTime(pid int, d time.Duration) error {
	seconds := uint64((d + time.Second - 1) / time.Second)
	return setLimit(pid, unix.RLIMIT_CPU, seconds+1)
}

// addressSpace is how many bytes of it this process has.
func addressSpace() (int64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("read the size of this process: %w", err)
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	pages, err := strconv.ParseInt(string(first), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the size of this process: %w", err)
	}
	return pages * int64(os.Getpagesize()), nil
}
