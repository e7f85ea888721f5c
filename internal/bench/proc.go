//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks is the unit of times in /proc/<pid>/stat: 1/100 s on every Linux that Go runs on (USER_HZ).
const ticks = time.Second / 100

// Fields of /proc/<pid>/stat, counted from the one behind the command's name.
const (
	statUser   = 11
	statSystem = 12
)

// cpuOf is the processor time, user and system, that a process has used since it began.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read a process's times: %w", err)
	}
	return parseStat(text)
}

// parseStat reads the times of a stat file. The command's name may hold blanks and parentheses: the last ")" ends it.
func parseStat(text []byte) (time.Duration, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return 0, errors.New("a stat file without a command name")
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) <= statSystem {
		return 0, fmt.Errorf("a stat file with %d fields behind the name", len(fields))
	}
	var sum int64
	for _, i := range []int{statUser, statSystem} {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("field %d of a stat file: %w", i, err)
		}
		sum += n
	}
	return time.Duration(sum) * ticks, nil
}

// rssOf is the resident memory of a process, in bytes.
func rssOf(pid int) (int64, error) {
	text, err := os.ReadFile(procFile(pid, "status"))
	if err != nil {
		return 0, fmt.Errorf("read a process's memory: %w", err)
	}
	return parseRSS(text)
}

// parseRSS reads VmRSS of a status file, in bytes.
func parseRSS(text []byte) (int64, error) {
	for line := range strings.Lines(string(text)) {
		value, found := strings.CutPrefix(line, "VmRSS:")
		if !found {
			continue
		}
		value, found = strings.CutSuffix(strings.TrimSpace(value), " kB")
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil || !found {
			return 0, fmt.Errorf("a status file with VmRSS %q", value)
		}
		return n << 10, nil
	}
	return 0, errors.New("a status file without VmRSS")
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// meter measures a process over an interval.
type meter struct {
	pid   int
	clock clock
	cpu   time.Duration
	at    time.Duration
}

func startMeter(pid int, c clock) (meter, error) {
	cpu, err := cpuOf(pid)
	return meter{pid: pid, clock: c, cpu: cpu, at: c.now()}, err
}

// stop gives the processor time used since the start, and the time that went by.
func (m meter) stop() (cpu, elapsed time.Duration, err error) {
	now, err := cpuOf(m.pid)
	return now - m.cpu, m.clock.now() - m.at, err
}

// raiseFiles lets this process and its children hold as many files open as the system allows, at most want, and gives
// what it got.
func raiseFiles(want uint64) (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	raised := syscall.Rlimit{Cur: max(want, l.Cur), Max: max(want, l.Max)}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) == nil {
		return raised.Cur, nil
	}
	l.Cur = l.Max // lifting the hard limit needs a right that few have
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("raise the limit of open files: %w", err)
	}
	return l.Cur, nil
}

// inMemory says whether a folder's file system keeps its files in memory, where an fsync costs nothing.
func inMemory(folder string) (bool, error) {
	const tmpfs, ramfs = 0x01021994, 0x858458f6 // from linux/magic.h
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return false, fmt.Errorf("look at the file system of %s: %w", folder, err)
	}
	return s.Type == tmpfs || s.Type == ramfs, nil
}

// load1 is the machine's load over the last minute, -1 where it is not told.
func load1() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(text), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return v
}
