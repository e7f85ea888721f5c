//go:build linux && (amd64 || arm64)

package sandbox

import (
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"modernc.org/quickjs"
)

//go:embed prelude.js
var prelude string

const (
	// engineSpace is the address space that the engine may take beyond the program's memory: its own heap moves while it
	// grows.
	engineSpace = 512 << 20
	// maxRead bounds reading a file into a program, in bytes.
	maxRead = 16 << 20
	// evalAsync lets a script await at its top.
	evalAsync = 1 << 7
)

// importing finds modules, which are strict and may import.
var importing = regexp.MustCompile(`(?m)^[ \t]*(import[ \t]*[\w{*"']|export[ \t])`)

// exited carries the code of process.exit through the engine.
type exited struct{ code int }

// script is one run of the engine.
type script struct {
	vm    *quickjs.VM
	exit  *exited
	fault *string // of a promise that was rejected
}

// runJavaScript runs a program in this process, which has no more rights than the program may have.
func runJavaScript(code string, l Limits) outcome {
	vm, err := quickjs.NewVM()
	if err != nil {
		return outcome{Fault: fmt.Sprintf("start the engine: %v", err)}
	}
	vm.SetMemoryLimit(uintptr(l.Memory))
	vm.SetCanBlock(false)
	s := &script{vm: vm}
	if err := s.prepare(); err != nil {
		return outcome{Fault: fmt.Sprintf("start the engine: %v", err)}
	}
	err = s.eval(code)
	switch {
	case s.exit != nil:
		return outcome{ExitCode: s.exit.code}
	case err != nil:
		_, _ = os.Stderr.WriteString(errorText(err) + "\n") // what cannot be told is lost with its reader
		return outcome{ExitCode: 1}
	}
	return outcome{}
}

// errorText is an error with where it happened.
func errorText(err error) string {
	var e *quickjs.Error
	if !errors.As(err, &e) {
		return uncaught(err.Error())
	}
	text := uncaught(strings.TrimSpace(e.Error()))
	if stack := strings.TrimRight(e.Stack, "\n"); stack != "" && !strings.Contains(text, stack) {
		text += "\n" + stack
	}
	return strings.ReplaceAll(text, "<evalScript>", "main.js")
}

// uncaught marks the text of an error, once: that of a rejected promise has the mark from the prelude.
func uncaught(text string) string { return "Uncaught " + strings.TrimPrefix(text, "Uncaught ") }

// prepare gives the program its console, timers and files.
func (s *script) prepare() error {
	for name, f := range map[string]quickjs.HostFunc{
		"__write": hostWrite, "__read": hostRead, "__store": hostStore, "__list": hostList, "__remove": hostRemove,
		"__mkdir": hostMkdir, "__now": hostNow,
		"__exit": func(args []any) (any, error) {
			s.exit = &exited{int(number(args, 0)) & 0xff}
			s.vm.Interrupt()
			return nil, errors.New("exit")
		},
		"__rejected": func(args []any) (any, error) {
			t := text(args, 0)
			s.fault = &t
			return nil, nil //nolint:nilnil // undefined
		},
	} {
		if err := s.vm.RegisterHostFunc(name, f); err != nil {
			return fmt.Errorf("give %s: %w", name, err)
		}
	}
	if _, err := s.vm.Eval(prelude, quickjs.EvalGlobal); err != nil {
		return fmt.Errorf("run the prelude: %w", err)
	}
	modules := func(_ *quickjs.VM, name string) (string, error) {
		name = strings.TrimPrefix(name, "node:")
		switch name {
		case "fs", "path", "process", "assert", "util":
		case "fs/promises":
		default:
			return "", fmt.Errorf("there is no module %q; fs, path, util, assert and process can be imported", name)
		}
		return moduleText(name), nil
	}
	s.vm.SetModuleLoader(modules, func(_ *quickjs.VM, _, name string) (string, error) { return name, nil })
	return nil
}

// moduleText is a module that hands on what require gives.
func moduleText(name string) string {
	names := map[string]string{
		"fs":          "readFileSync, writeFileSync, appendFileSync, existsSync, readdirSync, mkdirSync, unlinkSync, rmSync, promises",
		"fs/promises": "readFile, writeFile, appendFile, readdir, mkdir, unlink, rm",
		"path":        "join, basename, dirname, extname, sep", "util": "inspect, format", "assert": "equal, strictEqual, deepStrictEqual, ok, throws",
		"process": "argv, env, exit, platform",
	}[name]
	return "const m = require(" + fmt.Sprintf("%q", name) + ");\nexport default m;\nexport const { " + names + " } = m;\n"
}

// eval runs a program and then its promises and timers, until nothing is left to wait for.
func (s *script) eval(code string) error {
	flags := quickjs.EvalGlobal | evalAsync
	if importing.MatchString(code) {
		flags = quickjs.EvalModule
	}
	value, err := s.vm.EvalValue(code, flags)
	if err != nil {
		return err
	}
	defer value.Free()
	watch, err := s.vm.GlobalObject().GetPropertyValue(s.atom("__watch"))
	if err != nil {
		return fmt.Errorf("watch the program: %w", err)
	}
	defer watch.Free()
	if _, err := watch.Call(s.vm.GlobalObject(), value); err != nil {
		return err
	}
	for {
		// The engine pauses after a great many jobs; a program may have more of them, until its time is over.
		_, err := s.vm.ExecutePendingJobs()
		paused := err != nil && strings.Contains(err.Error(), "aborted draining")
		switch {
		case err != nil && !paused:
			return err
		case s.exit != nil:
			return nil
		case s.fault != nil:
			return errors.New(*s.fault)
		case paused:
			continue
		}
		wait, err := s.vm.Call("__turn")
		if err != nil {
			return err
		}
		ms := number([]any{wait}, 0)
		if ms < 0 {
			return nil
		}
		time.Sleep(time.Duration(math.Min(ms, 1e6) * float64(time.Millisecond)))
	}
}

func (s *script) atom(name string) quickjs.Atom {
	a, _ := s.vm.NewAtom(name) // fails only without memory, and then so does its use
	return a
}

func text(args []any, i int) string {
	if i >= len(args) {
		return ""
	}
	t, ok := args[i].(string)
	if !ok {
		return fmt.Sprint(args[i])
	}
	return t
}

func number(args []any, i int) float64 {
	if i >= len(args) {
		return 0
	}
	switch n := args[i].(type) {
	case int:
		return float64(n)
	case int32:
		return float64(n)
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

// hostNow is the program's clock, in milliseconds.
func hostNow([]any) (any, error) {
	return float64(time.Now().UnixNano()) / 1e6, nil //nolint:forbidigo // a program sees the machine's time
}

// hostWrite writes to stdout (1) or stderr (2).
func hostWrite(args []any) (any, error) {
	to := os.Stdout
	if number(args, 0) == 2 {
		to = os.Stderr
	}
	_, err := to.WriteString(text(args, 1))
	return nil, err
}

// hostRead gives a file as text, or in hexadecimal digits.
func hostRead(args []any) (any, error) {
	path := text(args, 0)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", path)
	case info.Size() > maxRead:
		return nil, fmt.Errorf("%s has %d bytes, at most %d can be read", path, info.Size(), maxRead)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if text(args, 1) == "hex" {
		return hex.EncodeToString(b), nil
	}
	if !utf8.Valid(b) {
		b = []byte(strings.ToValidUTF8(string(b), "\ufffd"))
	}
	return string(b), nil
}

// hostStore writes a file, from text or from hexadecimal digits; the fourth argument says whether behind what is there.
func hostStore(args []any) (any, error) {
	b := []byte(text(args, 1))
	if text(args, 2) == "hex" {
		var err error
		if b, err = hex.DecodeString(string(b)); err != nil {
			return nil, err
		}
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if text(args, 3) == "append" {
		flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	f, err := os.OpenFile(text(args, 0), flags, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(b)
	return nil, errors.Join(err, f.Close())
}

// hostList gives the names in a folder, a slash behind those of folders, one a line.
func hostList(args []any) (any, error) {
	entries, err := os.ReadDir(text(args, 0))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	return strings.Join(names, "\n"), nil
}

func hostRemove(args []any) (any, error) {
	if text(args, 1) == "all" {
		return nil, os.RemoveAll(text(args, 0))
	}
	return nil, os.Remove(text(args, 0))
}

func hostMkdir(args []any) (any, error) {
	if text(args, 1) == "all" {
		return nil, os.MkdirAll(text(args, 0), 0o755)
	}
	return nil, os.Mkdir(text(args, 0), 0o755)
}
