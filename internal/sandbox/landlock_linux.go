//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the second wall allows in a place.
const (
	mayRead = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	mayRun  = unix.LANDLOCK_ACCESS_FS_EXECUTE
	mayFile = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV // what can be asked of a file at all
	mayWrite = mayRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// grant opens a place.
type grant struct {
	path   string
	access uint64
}

// landlockVersion is that of the kernel; 0 = none.
func landlockVersion() int {
	n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(n)
}

// handled are the rights that a version knows: all of them are withdrawn where nothing grants them.
func handled(version int) (attr unix.LandlockRulesetAttr, size uintptr) {
	attr.Handled_access_fs = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1
	size = 8
	if version >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size = 16
	}
	if version >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = 24
	}
	return attr, size
}

// errNoLandlock: the kernel lacks it, or was started without it.
var errNoLandlock = errors.New("the kernel has no Landlock, or it is not among its lsm=")

// restrictPlaces withdraws every right on files and the network but what is granted, from this thread and all that it
// starts. program is a descriptor of what may be started although it is no part of the new root.
func restrictPlaces(grants []grant, program int) (version int, err error) {
	version = landlockVersion()
	if version == 0 {
		return 0, errNoLandlock
	}
	attr, size := handled(version)
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return 0, fmt.Errorf("make Landlock rules: %w", e)
	}
	defer func() { _ = unix.Close(int(fd)) }()
	if err := allow(int(fd), program, "the helper", (unix.LANDLOCK_ACCESS_FS_READ_FILE|mayRun)&attr.Handled_access_fs); err != nil {
		return 0, err
	}
	for _, g := range grants {
		if err := addRule(int(fd), g, attr.Handled_access_fs); err != nil {
			return 0, err
		}
	}
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); e != 0 {
		return 0, fmt.Errorf("apply Landlock rules: %w", e)
	}
	return version, nil
}

func addRule(ruleset int, g grant, known uint64) error {
	place, err := unix.Open(g.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s for a Landlock rule: %w", g.path, err)
	}
	defer func() { _ = unix.Close(place) }()
	var info unix.Stat_t
	if err := unix.Fstat(place, &info); err != nil {
		return fmt.Errorf("look at %s for a Landlock rule: %w", g.path, err)
	}
	access := g.access & known
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= mayFile
	}
	return allow(ruleset, place, g.path, access)
}

// allow adds a rule for an open place.
func allow(ruleset, place int, path string, access uint64) error {
	// struct landlock_path_beneath_attr is packed: eight bytes of rights, then the descriptor.
	var rule [12]byte
	*(*uint64)(unsafe.Pointer(&rule[0])) = access
	*(*int32)(unsafe.Pointer(&rule[8])) = int32(place)
	if _, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule[0])), 0, 0, 0); e != 0 {
		return fmt.Errorf("add a Landlock rule for %s: %w", path, e)
	}
	return nil
}
