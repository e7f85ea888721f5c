//go:build linux

// Command chaos kills, stops and cuts off the real program while clients use it, and checks from outside that Hob keeps
// its promises: no accepted message is lost, no effect happens twice in silence, no reader misses an event. `make chaos`
// runs it briefly, `make chaos-long` for as long as it takes to be sure. docs/durability.md tells what each line means.
//
// All that is known of the truth lies outside of Hob, in this process: what clients were told, what the model was asked,
// and what the tools did. The program under test is built from this module, or named by -hob.
//
// It prints one line per promise and per bound of time. The exit code is 0 when all were kept, 1 when one was not or a part
// tested nothing, 2 when a part could not run or the command line is wrong. It needs Linux and the Go tool, and strace for
// some parts. It is not for measuring: package bench is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitOK       = 0
	exitViolated = 1
	exitFault    = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// part is one way of doing harm, with the promises that are checked behind it.
type part struct {
	name  string
	about string
	run   func(ctx context.Context, h *harness) ([]verdict, error)
	long  bool // it runs with -long, or where it is named
}

// parts are all there are, in the order in which they run.
func parts() []part { return append(sqliteParts(), postgresParts()...) }

func sqliteParts() []part {
	return []part{
		{name: "kill", about: "kill -9 in the midst of everything, on SQLite", run: killed},
		{name: "ack", about: "the order of fsync and acknowledgement, from the system calls", run: acknowledged},
		{name: "disk", about: "a disk that fails or is full, while clients work", run: diskPart},
		{name: "streams", about: "connections cut at any byte, several readers of each run", run: streams},
		{name: "stop", about: "SIGTERM in the midst of runs, with a short drain time", run: stopped},
		{name: "approvals", about: "hundreds of calls wait for people, who race, and kill -9 between any two states", run: approvalsPart},
	}
}

// options is the command line.
type options struct {
	long, keep bool
	bugs       bool // try the checks themselves
	only       []string
	seed       uint64
	hob        string
}

func parseOptions(args []string, out io.Writer) (options, error) {
	o := options{seed: uint64(time.Now().UnixNano()) % 1_000_000} // any number will do
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&o.long, "long", false, "as much as it takes to be sure, instead of a few minutes")
	flags.BoolVar(&o.keep, "keep", false, "keep all data and logs, and say where; those of a part that fails are kept always")
	flags.Uint64Var(&o.seed, "seed", o.seed, "what chance is drawn from; the same seed does the same, as far as the machine allows")
	flags.StringVar(&o.hob, "hob", "", "the program to test; empty: built from this module")
	flags.BoolVar(&o.bugs, "bugs", false, "plant faults in the program and see whether the checks find each; -only names faults then")
	flags.Func("only", "run only these parts: a list such as kill,stop", func(list string) error {
		o.only = append(o.only, strings.Split(list, ",")...)
		return nil
	})
	flags.Usage = func() {
		fmt.Fprintln(out, "usage: chaos [-long | -bugs] [-keep] [-seed N] [-hob path] [-only part,…]")
		flags.PrintDefaults()
		for _, p := range parts() {
			fmt.Fprintf(out, "  part %-10s %s\n", p.name, p.about)
		}
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := o.known()
	if flags.NArg() > 0 {
		err = fmt.Errorf("unexpected word %q", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(out, err)
	}
	return o, err
}

// wants says whether a part is to run.
func (o options) wants(p part) bool {
	if len(o.only) > 0 {
		return slices.Contains(o.only, p.name)
	}
	return o.long || !p.long
}

// known wants the names of -only to be those of parts, or of faults.
func (o options) known() error {
	what, names := "part", partNames()
	if o.bugs {
		what, names = "fault", bugNames()
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no %s %q; they are %s", what, name, strings.Join(names, ", "))
		}
	}
	return nil
}

func partNames() []string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// run is the whole command.
func run(args []string, out, progress io.Writer) int {
	o, err := parseOptions(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		return exitFault
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	h, err := newHarness(ctx, o, progress)
	if err != nil {
		fmt.Fprintln(progress, "chaos:", err)
		return exitFault
	}
	var code int
	var kept []string
	if o.bugs {
		code, kept = h.plant(ctx, out)
	} else {
		code, kept = h.all(ctx, out, parts())
	}
	h.close(kept)
	return code
}

// all runs the parts, each whatever became of the others, and prints what became of the promises. The folders of parts that
// failed are to be kept.
func (h *harness) all(ctx context.Context, out io.Writer, parts []part) (code int, kept []string) {
	began := time.Now()
	fmt.Fprintf(out, "chaos: seed %d, %s\n", h.options.seed, map[bool]string{false: "quick", true: "long"}[h.options.long])
	var t tally
	for _, p := range parts {
		if !h.options.wants(p) || ctx.Err() != nil {
			continue
		}
		at := time.Now()
		fmt.Fprintf(h.progress, "%s: %s …\n", p.name, p.about)
		folder, verdicts, err := h.perform(ctx, p)
		failed := t.add(verdicts, err)
		h.tell(out, p.name, verdicts, err)
		switch {
		case failed && folder != "" && ctx.Err() == nil:
			kept = append(kept, folder)
			fmt.Fprintf(out, "%-9s data and logs: %s (%s); again: %s\n", p.name, folder, folderSize(folder), h.again(p.name))
		case !h.options.keep && folder != "":
			h.remove(folder)
		}
		fmt.Fprintf(h.progress, "%s: %s\n", p.name, time.Since(at).Round(100*time.Millisecond))
	}
	fmt.Fprintf(out, "chaos: %s; %s, seed %d\n", t, time.Since(began).Round(time.Second), h.options.seed)
	return t.code(), kept
}

// perform runs a part in a folder of its own, and measures how late the machine is meanwhile.
func (h *harness) perform(ctx context.Context, p part) (folder string, verdicts []verdict, err error) {
	own, err := h.below(p.name)
	if err != nil {
		return "", nil, err
	}
	own.lateness = measure()
	defer own.lateness.end()
	verdicts, err = p.run(ctx, own)
	if err == nil {
		err = context.Cause(ctx)
	}
	return own.folder, verdicts, err
}

// tell prints the lines of a part, and what is behind those that are not ok.
func (h *harness) tell(out io.Writer, part string, verdicts []verdict, err error) {
	for _, v := range verdicts {
		fmt.Fprintln(out, v.line(part))
		if v.slow != "" {
			fmt.Fprintf(h.progress, "    %s\n", v.slow)
		}
		for i, detail := range v.violations {
			if i == mostDetails {
				fmt.Fprintf(h.progress, "    … and %d more\n", len(v.violations)-i)
				break
			}
			fmt.Fprintf(h.progress, "    %s\n", detail)
		}
	}
	if err != nil {
		fmt.Fprintf(out, "%-9s could not be run: %v\n", part, err)
	}
}

// tally counts what became of all parts.
type tally struct {
	promises, violated   int
	times, slow, tooSlow int
	notRun               int
}

// add counts one part, and says whether it failed.
func (t *tally) add(verdicts []verdict, err error) (failed bool) {
	for _, v := range verdicts {
		failed = failed || v.broken()
		switch v.kind {
		case plain:
		case promise:
			t.promises++
			t.violated += oneIf(v.broken())
		default:
			t.times++
			t.slow += oneIf(v.slow != "")
			t.tooSlow += oneIf(v.broken())
		}
	}
	t.notRun += oneIf(err != nil)
	return failed || err != nil
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// String is the last line's text.
func (t tally) String() string {
	text := fmt.Sprintf("%d promises, %d violated; %d times, %d too slow", t.promises, t.violated, t.times, t.tooSlow)
	if t.slow > 0 {
		text += fmt.Sprintf(", %d slow on a busy machine", t.slow)
	}
	return text + fmt.Sprintf("; %d parts not run", t.notRun)
}

// code is the exit code.
func (t tally) code() int {
	switch {
	case t.violated+t.tooSlow > 0:
		return exitViolated
	case t.notRun > 0 || t.promises == 0:
		return exitFault
	}
	return exitOK
}
