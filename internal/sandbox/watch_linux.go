//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// watchEvery is how often the processes of a program are looked at together.
	watchEvery = 40 * time.Millisecond
	// ticks are those of the kernel in a second, on every architecture that Hob runs on.
	ticks = 100
)

// Bounds on what the kernel keeps for a program beside its memory, and when it is looked at.
const (
	maxMappings   = 16384 // pieces of address space, some 200 bytes each, of all processes together
	mappingsEvery = 5     // of the looks
	maxLocks      = 1024  // locks of files, as many bytes
)

// nearlyAll is how many processes below the limit are taken for having met it where the helper is gone.
const nearlyAll = 4

// watch adds up what all processes of a program use, which limits of single processes do not bound.
type watch struct {
	root     int
	language Language
	limits   Limits
	own      used // what the helper itself had before the program began
	looks    int
	highest  int64 // memory
	crowded  bool  // there were nearly as many processes and threads as there may be
}

// used is what a process uses.
type used struct {
	memory   int64 // bytes
	cpu      time.Duration
	threads  int
	mappings int
}

func newWatch(root int, language Language, l Limits) *watch {
	w := &watch{root: root, language: language, limits: l}
	w.own = usage(root)
	return w
}

func cpuText(l Limits) string {
	return fmt.Sprintf("the program used more than %s of processor time", l.CPU)
}

// look is the limit that is met now.
func (w *watch) look() *LimitError {
	w.looks++
	all := tree(w.root)
	var sum used
	for _, pid := range all {
		u := usage(pid)
		if pid == w.root {
			u.memory, u.cpu = max(0, u.memory-w.own.memory), max(0, u.cpu-w.own.cpu)
			if w.language == Python {
				u.memory = 0 // the helper's, not the program's
			}
		} else if w.looks%mappingsEvery == 0 {
			sum.mappings += mappings(pid)
		}
		sum.memory, sum.cpu, sum.threads = sum.memory+u.memory, sum.cpu+u.cpu, sum.threads+u.threads
	}
	w.highest, w.crowded = max(w.highest, sum.memory), sum.threads >= w.limits.Processes-nearlyAll
	switch {
	case sum.memory > w.limits.Memory:
		return &LimitError{LimitMemory, memoryText(w.limits)}
	case sum.cpu > w.limits.CPU:
		return &LimitError{LimitCPU, cpuText(w.limits)}
	case sum.mappings > maxMappings:
		return &LimitError{LimitMemory, fmt.Sprintf("the program's memory is in more than %d pieces", maxMappings)}
	case locks(all) > maxLocks:
		return &LimitError{LimitFiles, fmt.Sprintf("the program holds more than %d locks of files", maxLocks)}
	}
	return nil
}

// last is the limit that was nearly met when it was looked last: what a helper that is gone most likely died of.
func (w *watch) last() *LimitError {
	if w.highest > w.limits.Memory/2 {
		return &LimitError{LimitMemory, memoryText(w.limits)}
	}
	if w.crowded {
		return &LimitError{LimitProcesses, processesText(w.limits)}
	}
	return nil
}

// tree is a process with all that descend from it.
func tree(root int) []int {
	all := []int{root}
	for i := 0; i < len(all) && len(all) < 4096; i++ {
		dir := fmt.Sprintf("/proc/%d/task", all[i])
		threads, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended
		}
		for _, t := range threads {
			b, err := os.ReadFile(dir + "/" + t.Name() + "/children")
			if err != nil {
				continue
			}
			for field := range strings.FieldsSeq(string(b)) {
				if pid, err := strconv.Atoi(field); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// usage is the memory of a process's own making, resident or not, with the tables that the kernel needs for it, and the
// processor time of the process with that of its children that were waited for. No child goes without being waited for, see
// narrower.
func usage(pid int) (u used) {
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		for line := range strings.Lines(string(b)) {
			name, rest, _ := strings.Cut(line, ":")
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				continue
			}
			n, _ := strconv.ParseInt(fields[0], 10, 64) // the kernel writes numbers where they are used
			switch name {
			case "RssAnon", "RssShmem", "VmSwap", "VmPTE": // the pages of programs and libraries are there once for all
				u.memory += n << 10
			case "Threads":
				u.threads = int(n)
			}
		}
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		// The name may contain anything; what is counted from its end does not.
		_, rest, _ := bytes.Cut(b[max(0, bytes.LastIndexByte(b, ')')):], []byte(" "))
		fields := bytes.Fields(rest)
		for i := 11; i <= 14 && i < len(fields); i++ { // utime, stime, cutime, cstime
			n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
			u.cpu += time.Duration(n) * time.Second / ticks
		}
	}
	return u
}

// mappings is the number of pieces of a process's address space, at most a little more than there may be.
func mappings(pid int) int {
	const lineLength = 128 // no shorter than most
	b, _ := readHead(fmt.Sprintf("/proc/%d/maps", pid), maxMappings*lineLength)
	return bytes.Count(b, []byte("\n"))
}

// locks is how many locks of files these processes hold.
func locks(pids []int) int {
	const most = 4 << 20 // bytes; what lies beyond belongs to a machine that has other troubles
	b, err := readHead("/proc/locks", most)
	if err != nil {
		return 0
	}
	ours := map[string]bool{}
	for _, pid := range pids {
		ours[strconv.Itoa(pid)] = true
	}
	n := 0
	for line := range bytes.Lines(b) {
		const holder = 4 // 1: POSIX ADVISORY WRITE 1234 …; one that waits has an arrow before its kind
		if fields := bytes.Fields(line); len(fields) > holder+1 && (ours[string(fields[holder])] || ours[string(fields[holder+1])]) {
			n++
		}
	}
	return n
}

// readHead reads the beginning of a file.
func readHead(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("watch a program: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, fmt.Errorf("watch a program: %w", err)
	}
	return b, nil
}
