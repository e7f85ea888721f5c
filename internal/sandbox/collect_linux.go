//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Bounds of looking through /output that no setting changes.
const (
	maxDepth   = 6   // folders in each other
	maxName    = 200 // bytes of a path
	maxSkipped = 20  // that are named
)

// collector reads what a program left in /output, once every process that could change it is dead.
type collector struct {
	limits  Limits
	files   []File
	skipped []string
	met     []*LimitError
	left    int64
}

// collect reads regular files by descriptor, in the order of their names, and closes the folder. Links are not followed,
// and nothing is opened that is more than bytes.
func collect(output *os.File, l Limits) (files []File, skipped []string, met []*LimitError) {
	c := &collector{limits: l, left: l.Disk}
	c.folder(output, "", 0)
	return c.files, c.skipped, c.met
}

func (c *collector) skip(name, why string) {
	if len(c.skipped) < maxSkipped {
		c.skipped = append(c.skipped, fmt.Sprintf("%s: %s", shown(name), why))
	}
}

func (c *collector) meet(limit Limit, text string) {
	if !slices.ContainsFunc(c.met, func(e *LimitError) bool { return e.Limit == limit }) {
		c.met = append(c.met, &LimitError{limit, text})
	}
}

// shown is a name that can be printed.
func shown(name string) string {
	name = strings.ReplaceAll(strings.ReplaceAll(clean([]byte(name)), "\n", " "), "\t", " ")
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "") + "…"
	}
	return name
}

func (c *collector) folder(dir *os.File, prefix string, depth int) {
	names, err := dir.Readdirnames(c.limits.Inodes + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		c.skip(prefix, "the folder cannot be read")
		return
	}
	slices.Sort(names)
	for _, name := range names {
		whole := path.Join(prefix, name)
		if !utf8.ValidString(name) || len(whole) > maxName || shown(name) != name || strings.ContainsAny(name, `\`) {
			c.skip(whole, "its name cannot be used")
			continue
		}
		c.entry(dir, name, whole, depth)
	}
}

func (c *collector) entry(dir *os.File, name, whole string, depth int) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	if err != nil {
		c.skip(whole, "it is no regular file, or cannot be read")
		return
	}
	f := os.NewFile(uintptr(fd), whole)
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		c.skip(whole, "it cannot be read")
	case info.IsDir() && depth < maxDepth:
		c.folder(f, whole, depth+1)
	case info.IsDir():
		c.skip(whole, "it lies too deep")
	case !info.Mode().IsRegular():
		c.skip(whole, "it is no regular file")
	default:
		c.file(f, whole, info.Size())
	}
}

func (c *collector) file(f *os.File, name string, size int64) {
	switch l := c.limits; {
	case len(c.files) >= l.Files:
		c.skip(name, fmt.Sprintf("there are more than %d files", l.Files))
		c.meet(LimitFiles, fmt.Sprintf("more than %d files lie in /output; the others were left out", l.Files))
		return
	case size > l.FileSize:
		c.skip(name, fmt.Sprintf("it has %d bytes, at most %d are kept", size, l.FileSize))
		c.meet(LimitFileSize, fmt.Sprintf("a file in /output has more than %d bytes and was left out", l.FileSize))
		return
	case size > c.left: // files with holes are longer than the disk they lie on
		c.skip(name, fmt.Sprintf("the files have more than %d bytes together", l.Disk))
		c.meet(LimitFiles, fmt.Sprintf("the files in /output have more than %d bytes together; the others were left out", l.Disk))
		return
	}
	data, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		c.skip(name, "it cannot be read")
		return
	}
	c.left -= int64(len(data))
	c.files = append(c.files, File{Name: name, Data: data})
}
