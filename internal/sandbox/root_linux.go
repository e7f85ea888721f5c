//go:build linux && (amd64 || arm64)

package sandbox

import (
	_ "embed" // the end of asyncio
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Places in the helper's root.
const (
	tmpDir    = "/tmp"
	outputDir = "/output"
	wallDir   = "/wall" // writable by its mode, and granted by nothing: the proof of Landlock
	stageDir  = "/tmp"  // where the new root is built, over what the host has there
)

// devices are the only ones there are. /dev/zero is none of them: a shared mapping of it is memory that nothing counts.
func devices() []string { return []string{"/dev/null", "/dev/random", "/dev/urandom"} }

// mountStep is one of the steps to the new root, for its error.
type mountStep struct {
	what string
	do   func() error
}

func steps(list []mountStep) error {
	for _, s := range list {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

// newRoot leaves the host's files behind: afterwards there is an empty read-only root with the interpreter, three devices
// and a bounded /tmp and /output. It gives a descriptor of /output.
func newRoot(o order) (output int, err error) {
	root := stageDir
	in := func(path string) string { return filepath.Join(root, path) }
	err = steps([]mountStep{
		{"keep mounts from the host", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount an empty root", func() error {
			return unix.Mount("hob", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,nr_inodes=2048,mode=755")
		}},
		{"mount the disk of the program", func() error { return mountDisk(in("/box"), o.Limits) }},
		{"open /output", func() error {
			output, err = unix.Open(in("/box"+outputDir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			return err
		}},
		{"bind the disk of the program", func() error {
			for _, dir := range []string{tmpDir, outputDir, wallDir} {
				if err := bind(in("/box"+dir), in(dir), unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC); err != nil {
					return err
				}
			}
			return unix.Unmount(in("/box"), unix.MNT_DETACH)
		}},
		{"bind the devices", func() error {
			for _, path := range devices() {
				if err := bind(path, in(path), unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC); err != nil {
					return err
				}
			}
			return nil
		}},
		{"bind the interpreter", func() error { return bindInterpreter(o, in) }},
		{"write the few files of /etc", func() error { return writeEtc(in("/etc")) }},
		{"change the root", func() error { return changeRoot(root, in(".old")) }},
		{"name the machine", func() error { return unix.Sethostname([]byte("sandbox")) }},
	})
	return output, err
}

func mountDisk(at string, l Limits) error {
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	options := "mode=755,size=" + strconv.FormatInt(l.Disk, 10) + ",nr_inodes=" + strconv.Itoa(l.Inodes)
	if err := unix.Mount("hob", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return err
	}
	for _, dir := range []string{tmpDir, outputDir, wallDir} {
		if err := os.Mkdir(at+dir, 0o777); err != nil {
			return err
		}
	}
	return nil
}

// bind shows a file or folder at another place, with more attributes and never with fewer.
func bind(from, to string, attributes uint64) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.IsDir() {
		err = os.Mkdir(to, 0o755)
	} else {
		err = os.WriteFile(to, nil, 0o644)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	attr := unix.MountAttr{Attr_set: attributes}
	if err := unix.MountSetattr(unix.AT_FDCWD, to, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("protect %s: %w", to, err)
	}
	return nil
}

// shown are the places of the host that a helper sees.
func (o order) shown() []string {
	paths := slices.Clone(o.Libs)
	if o.Python != nil {
		paths = append(paths, o.Python.Paths...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// bindInterpreter shows the interpreter, its libraries and its standard library; what is installed beside it is covered.
func bindInterpreter(o order, in func(string) string) error {
	for _, path := range o.shown() {
		if err := bind(path, in(path), unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
			return err
		}
	}
	if o.Python == nil {
		return nil
	}
	for _, path := range o.Python.Cover {
		if err := unix.Mount("hob", in(path), "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "size=4k,nr_inodes=1"); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	return adaptAsyncio(o.Python.Asyncio, in)
}

//go:embed asyncio.py
var asyncioEnd []byte

// adaptAsyncio shows the package asyncio with an end that makes it do without sockets. An interpreter without the file is
// left as it is.
func adaptAsyncio(path string, in func(string) string) error {
	if path == "" {
		return nil
	}
	original, err := os.ReadFile(in(path))
	if err != nil {
		return fmt.Errorf("adapt asyncio: %w", err)
	}
	adapted := in("/asyncio.py")
	if err := os.WriteFile(adapted, append(original, asyncioEnd...), 0o644); err != nil {
		return fmt.Errorf("adapt asyncio: %w", err)
	}
	if err := unix.Mount(adapted, in(path), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("adapt asyncio: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(unix.AT_FDCWD, in(path), 0, &attr); err != nil {
		return fmt.Errorf("adapt asyncio: %w", err)
	}
	return nil
}

// writeEtc writes what libraries look up about the user.
func writeEtc(dir string) error {
	return errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "passwd"), []byte("user:x:0:0::/tmp:/bin/false\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "group"), []byte("user:x:0:\n"), 0o644),
	)
}

// changeRoot makes a folder the root and lets go of the old one.
func changeRoot(root, old string) error {
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, old); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	name := "/" + filepath.Base(old)
	if err := unix.Unmount(name, unix.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Remove(name); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr)
}

// grants are what Landlock leaves open in this root.
func grants(o order) []grant {
	list := []grant{{tmpDir, mayWrite}, {outputDir, mayWrite}, {"/etc", mayRead}}
	for _, path := range devices() {
		list = append(list, grant{path, unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE})
	}
	for _, path := range o.shown() {
		list = append(list, grant{path, mayRead | mayRun})
	}
	return list
}
