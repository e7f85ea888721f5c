// Package sandbox runs code that nobody vouches for, in Python or JavaScript, on this machine, so that it reaches nothing:
// no file, no network, no other process, and of the machine no more than its limits.
//
// Each call has a process of its own, the helper: this program started again (see Helped and Help), in namespaces of its
// own, with an empty root, no rights, a list of the system calls it may make, and bounds on what it uses. All walls stand
// before the helper reads the first byte of the code, and a helper never runs a second program. What a program leaves in
// /output is read by descriptor once every process of it is dead.
//
// It runs on Linux; elsewhere it is off and says so. It is not for code of the operator's own, gives a program no way to
// the network or to secrets, and knows nothing of agents, tools or storage.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Language is what a program is written in.
type Language string

// The languages.
const (
	Python     Language = "python"
	JavaScript Language = "javascript"
)

// Languages lists what can be asked for; Python needs the system's interpreter.
func Languages() []Language { return []Language{Python, JavaScript} }

// Bounds on the time a call may ask for.
const (
	MinTimeout = time.Second
	MaxTimeout = 300 * time.Second
)

// Limits bound one call, and all of them together. Fields of zero or below have their default.
type Limits struct {
	Timeout   time.Duration // of a call that asks for none; 30 s
	CPU       time.Duration // processor time of all processes of a call together; 60 s
	Memory    int64         // bytes, of each process and of all of a call together; 256 MB
	Processes int           // processes and threads of a call, those of the helper included; 64
	Output    int           // bytes of stdout and stderr together that are kept; 1 MB
	Disk      int64         // bytes in /tmp and /output together, which lie in memory; 64 MB
	Inodes    int           // files and folders there; 4096
	Files     int           // result files; 20
	FileSize  int64         // bytes of a result file; 10 MB
	Code      int           // bytes of a program; 256 KB

	PerWorkspace int           // calls of a workspace at once; 2
	Global       int           // calls at once; 4
	Waiting      int           // calls that wait for their turn; 32
	Wait         time.Duration // how long one waits; 60 s
	// WaitingPerWorkspace is how many of them may be of one workspace; a quarter of Waiting.
	WaitingPerWorkspace int
}

// DefaultLimits are those of the fields that are not set.
func DefaultLimits() Limits {
	return Limits{
		Timeout: 30 * time.Second, CPU: 60 * time.Second, Memory: 256 << 20, Processes: 64, Output: 1 << 20,
		Disk: 64 << 20, Inodes: 4096, Files: 20, FileSize: 10 << 20, Code: 256 << 10,
		PerWorkspace: 2, Global: 4, Waiting: 32, Wait: 60 * time.Second, WaitingPerWorkspace: 8,
	}
}

func orDefault[T int | int64 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	return Limits{
		Timeout: orDefault(l.Timeout, d.Timeout), CPU: orDefault(l.CPU, d.CPU), Memory: orDefault(l.Memory, d.Memory),
		Processes: orDefault(l.Processes, d.Processes), Output: orDefault(l.Output, d.Output), Disk: orDefault(l.Disk, d.Disk),
		Inodes: orDefault(l.Inodes, d.Inodes), Files: orDefault(l.Files, d.Files), FileSize: orDefault(l.FileSize, d.FileSize),
		Code: orDefault(l.Code, d.Code), PerWorkspace: orDefault(l.PerWorkspace, d.PerWorkspace),
		Global: orDefault(l.Global, d.Global), Waiting: orDefault(l.Waiting, d.Waiting), Wait: orDefault(l.Wait, d.Wait),
		WaitingPerWorkspace: orDefault(l.WaitingPerWorkspace, max(1, orDefault(l.Waiting, d.Waiting)/4)),
	}
}

// Clamp brings a timeout into its bounds; none is the default.
func (l Limits) Clamp(d time.Duration) time.Duration {
	if d <= 0 {
		d = l.withDefaults().Timeout
	}
	return min(max(d, MinTimeout), MaxTimeout)
}

// Config is what a sandbox is made of.
type Config struct {
	Weak   bool // run also where the walls that Wall.Weak marks cannot be had
	Limits Limits
	Warm   int          // helpers of a language that wait for the next call, once one was made; 2
	Log    *slog.Logger // of faults of the machine; nil: none
	// Program is the path of the program that is started as helper, this one where "". It must call Help.
	Program string
	// Interpreter is the path of python3, found where "". NoPython runs JavaScript only.
	Interpreter string
	NoPython    bool
	// Without leaves a wall out, as if this machine had none; for tests of what then happens.
	Without []string
}

// Request is one program.
type Request struct {
	Workspace string // whose turn it is
	Language  Language
	Code      string
	Timeout   time.Duration // clamped; 0 = the default
}

// File is a file that a program left in /output.
type File struct {
	Name string // its path below /output
	Data []byte
}

// Result is how a program ended. A program that failed, or that met a limit, has one too.
type Result struct {
	Stdout, Stderr string // valid UTF-8 without control sequences
	ExitCode       int    // 128 + n where signal n ended it
	Files          []File // by name
	Skipped        []string
	Limits         []*LimitError // that were met, the one that ended it first
	Truncated      bool          // output is missing
	Took           time.Duration
}

// Limit names a bound.
type Limit string

// The limits that a program can meet.
const (
	LimitTime      Limit = "time"
	LimitCPU       Limit = "cpu"
	LimitMemory    Limit = "memory"
	LimitProcesses Limit = "processes"
	LimitOutput    Limit = "output"
	LimitDisk      Limit = "disk"
	LimitFiles     Limit = "files"
	LimitFileSize  Limit = "file_size"
	LimitCode      Limit = "code"
)

// LimitError says which limit a program met. Run returns it only for a program that is too long to be run at all; all
// others are in the Result.
type LimitError struct {
	Limit Limit
	Text  string
}

func (e *LimitError) Error() string { return e.Text }

// OffError says why nothing can be run here, and how to allow it.
type OffError struct {
	Missing string // the wall
	Reason  string
	Fix     string // what the operator can do
}

func (e *OffError) Error() string {
	text := e.Missing + ": " + e.Reason
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	return text
}

// LanguageError says that a language cannot be run, and which can.
type LanguageError struct {
	Language Language
	Reason   string
	Allowed  []Language
}

func (e *LanguageError) Error() string {
	names := make([]string, len(e.Allowed))
	for i, l := range e.Allowed {
		names[i] = string(l)
	}
	return fmt.Sprintf("%s: %s; allowed: %s", e.Language, e.Reason, strings.Join(names, ", "))
}

// ErrBusy means that too many calls wait already, or that the turn did not come in time.
var ErrBusy = errors.New("the sandbox is busy")

// ErrClosed means that the sandbox was closed.
var ErrClosed = errors.New("the sandbox is closed")

// Wall is one of the walls and how its proof came out.
type Wall struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`        // what was tried, or what went wrong
	Fix    string `json:"fix,omitempty"` // how to allow it
	Weak   bool   `json:"weak"`          // the weak mode goes without it
	Extra  bool   `json:"extra"`         // it adds to the others and is not required
}

// fault is the first wall that is missing in a mode; nil: none.
func fault(walls []Wall, weak bool) *OffError {
	for _, w := range walls {
		if !w.OK && !w.Extra && (!w.Weak || !weak) {
			return &OffError{Missing: w.Name, Reason: w.Detail, Fix: w.Fix}
		}
	}
	return nil
}

// runner is what a system has for it.
type runner interface {
	check(ctx context.Context) ([]Wall, error)
	run(ctx context.Context, r Request, timeout time.Duration) (Result, error)
	languages() []Language
	close()
}

// checkRequest judges what needs no machine.
func (s *Sandbox) checkRequest(r Request) error {
	if !slices.Contains(Languages(), r.Language) {
		return &LanguageError{Language: r.Language, Reason: "there is no such language", Allowed: s.Languages()}
	}
	if most := s.limits.Code; len(r.Code) > most {
		return &LimitError{LimitCode, fmt.Sprintf("the program has %d bytes, at most %d are allowed", len(r.Code), most)}
	}
	return nil
}
