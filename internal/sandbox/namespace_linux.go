//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"os"
)

// sameNamespace says whether a process shares a namespace with this one.
func sameNamespace(pid int, kind string) (bool, error) {
	ours, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return false, fmt.Errorf("look at namespaces: %w", err)
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		return false, fmt.Errorf("look at namespaces: %w", err)
	}
	return ours == theirs, nil
}

// namespaceWall looks from outside whether a helper has namespaces of its own.
func namespaceWall(pid int) Wall {
	var errs []error
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		same, err := sameNamespace(pid, kind)
		if err == nil && same {
			err = fmt.Errorf("the %s namespace is the server's", kind)
		}
		errs = append(errs, err)
	}
	return wall("namespaces", "user, mount, process, network, ipc, name and cgroup namespaces of its own", fixNamespaces(), errors.Join(errs...))
}

// timeWall is apart: older kernels have no such namespace, and nothing else rests on it.
func timeWall(pid int) Wall {
	same, err := sameNamespace(pid, "time")
	if err == nil && same {
		err = errors.New("the time namespace is the server's")
	}
	w := wall("time namespace", "a time namespace of its own", "use Linux 6.3 or later", err)
	w.Extra = true
	return w
}
