//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"fmt"
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

// watch adds up what all processes of a program use, which limits of single processes do not bound.
type watch struct {
	root     int
	language Language
	limits   Limits
	// own is what the helper itself had before the program began.
	ownMemory int64
	ownCPU    time.Duration
	highest   int64
}

func newWatch(root int, language Language, l Limits) *watch {
	w := &watch{root: root, language: language, limits: l}
	w.ownMemory, w.ownCPU = usage(root)
	return w
}

func cpuText(l Limits) string {
	return fmt.Sprintf("the program used more than %s of processor time", l.CPU)
}

// look is the limit that is met now.
func (w *watch) look() *LimitError {
	var memory int64
	var cpu time.Duration
	for _, pid := range tree(w.root) {
		m, c := usage(pid)
		if pid == w.root {
			m, c = max(0, m-w.ownMemory), max(0, c-w.ownCPU)
			if w.language == Python {
				m = 0 // the helper's, not the program's
			}
		}
		memory, cpu = memory+m, cpu+c
	}
	w.highest = max(w.highest, memory)
	switch {
	case memory > w.limits.Memory:
		return &LimitError{LimitMemory, memoryText(w.limits)}
	case cpu > w.limits.CPU:
		return &LimitError{LimitCPU, cpuText(w.limits)}
	}
	return nil
}

// last is the limit that was nearly met when it was looked last: what a helper that is gone most likely died of.
func (w *watch) last() *LimitError {
	if w.highest > w.limits.Memory/2 {
		return &LimitError{LimitMemory, memoryText(w.limits)}
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

// usage is the memory that is resident and of the process's own making, and the processor time of a process with its waited-for children.
func usage(pid int) (memory int64, cpu time.Duration) {
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		for line := range strings.Lines(string(b)) {
			name, rest, _ := strings.Cut(line, ":")
			if name != "RssAnon" && name != "RssShmem" {
				continue // the pages of programs and libraries are there once for all
			}
			if fields := strings.Fields(rest); len(fields) > 0 {
				kilobytes, _ := strconv.ParseInt(fields[0], 10, 64) // the kernel writes numbers
				memory += kilobytes << 10
			}
		}
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		// The name may contain anything; what is counted from its end does not.
		_, rest, _ := bytes.Cut(b[max(0, bytes.LastIndexByte(b, ')')):], []byte(" "))
		fields := bytes.Fields(rest)
		for i := 11; i <= 14 && i < len(fields); i++ { // utime, stime, cutime, cstime
			n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
			cpu += time.Duration(n) * time.Second / ticks
		}
	}
	return memory, cpu
}
