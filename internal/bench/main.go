//go:build linux

// Command bench measures Hob as a whole against the straight way: the same client, the same fake model, without Hob.
// `make bench` runs it; it prints one table of floor ("raw"), Hob and their ratio beside the bars, and below it what lies
// behind each number. It needs Linux (/proc), the Go tool and a folder on a disk. It is not for profiling one function:
// packages have benchmarks of their own for that.
//
// It builds bin/hob as it is released and starts, each in a process of its own, a fake OpenAI-compatible model that
// answers at once and `hob serve` on SQLite in a fresh folder, with keys, log and fsync on and only the rate limits off.
// The tool that agents call is served by the bench itself. Each part starts its own server, so that none sees what
// another left behind. A part that fails is told at the end, and the others go on.
//
// How each number is taken:
//
//   - Clients are plain connections that send requests made beforehand and look at the bytes of the answers once; they are
//     the same for raw and for Hob. A run counts when its stream has ended with [DONE], or with a complete event of status
//     completed. One failed run fails its part. Before a part measures, one run through Hob is decoded whole: it has to
//     give the text that the model gives on the straight way, and all its tool calls.
//   - Rates (1, 2, 8) are the runs that end per second, the first eighth of each slice left out, and the median of the
//     slices. Raw and Hob are loaded in turns, some seconds each, after a round that does not count, so that a machine that
//     slows down does so for both.
//   - CPU is utime + stime of Hob's process from /proc/<pid>/stat over the slices, by all runs in them.
//   - First text (3) is the time from sending the request to the first piece of text that is not empty; added is Hob's
//     median minus raw's, with one client, asked in turns.
//   - Durable commits (3, 4) are one-row transactions on a SQLite file in the same folder, set up as the store's
//     (WAL, synchronous=FULL), taken between the runs they are compared with. The plain write and fsync beside them shows
//     what of that is the disk's.
//   - A tool step (4) is a tenth of the difference of the medians of whole ten-tool runs. The raw way makes the eleven
//     model calls and ten tool calls itself.
//   - Paced streams (5) start within one second. A stream is in time when it is whole within the 99th percentile of the raw
//     ones and one second. Memory per stream is what VmRSS grew at most, by the number of streams.
//   - Open streams (6) are the run's own stream and readers of its events, all of one run whose model speaks when told to.
//     An event's time runs from the model's sending to the last reader that has it; the next is sent only then.
//   - Start (7) runs from exec to the first 200 of /health/ready, asked every half a millisecond.
//   - Step commits (8) go through the store's own Commit, one event each, without a server.
//   - Growth (9) compares sessions with 10, 100 and 1,000 earlier turns with sessions that have one: what Hob adds to a text
//     run, and to each of the eleven model calls of a ten-tool run, as the difference of the medians. Raw sends the same
//     messages, so that its own growth is taken off. The agents' window is so large that nothing is condensed; one more line
//     shows a tool step where a summary stands for most of the turns. And it compares a store that holds many events with
//     one that holds hardly any. The rows of the full store are copies of a real run, written while the server is down.
//   - Overload (10): requests come at a rate, whatever becomes of those before, over connections that are open already, and
//     none is made again. The capacity is what a closed loop of 64 clients gets done; a quiet server is offered a twentieth
//     of it, an overloaded one ten times as much, both from the same open connections. The first five seconds, in which the
//     server finds out, are told apart. A run takes from sending the request to the end of its stream. How late the client
//     itself was, and how many requests it could not make, is told too: then it was the bottleneck.
//
// Medians and percentiles are nearest-rank. RSS and sizes are in MB of 1,000,000 bytes where a bar is in MB.
//
// The exit code is 0 when every part ran and no must was missed, 1 when a must was missed, 2 when a part failed or the
// command line is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitOK     = 0
	exitMissed = 1
	exitFault  = 2
)

func main() {
	runtime.LockOSThread() // children are tied to the thread that starts them, see start
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// part is one part of the measurements.
type part struct {
	number int
	name   string
	run    func(*bench, context.Context) error
}

func parts() []part {
	return []part{
		{1, "text runs", (*bench).textRuns},
		{2, "ten-tool runs", (*bench).toolRuns},
		{3, "first token", (*bench).firstToken},
		{4, "tool step", (*bench).toolStep},
		{5, "paced streams", (*bench).pacedStreams},
		{6, "open streams", (*bench).openStreams},
		{7, "start, memory, size", (*bench).starts},
		{8, "durable step commits", (*bench).commits},
		{9, "growth", (*bench).growth},
		{10, "overload", (*bench).overload},
	}
}

// options is the command line.
type options struct {
	quick, keep   bool
	only          []int
	json, profile string
}

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&o.quick, "quick", false, "everything short, to see that it works; the numbers mean little")
	flags.BoolVar(&o.keep, "keep", false, "keep the folder with data and logs, and say where it is")
	flags.StringVar(&o.json, "json", "", "also write the report to this file, as JSON")
	flags.StringVar(&o.profile, "profile", "", "keep CPU profiles of hob in this folder, where its HOB_PPROF is there")
	flags.Func("only", "run only these parts: a list such as 1,2,7", func(list string) error {
		for _, word := range strings.Split(list, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil || !slices.ContainsFunc(parts(), func(p part) bool { return p.number == n }) {
				return fmt.Errorf("there is no part %q; they are 1 to %d", word, len(parts()))
			}
			o.only = append(o.only, n)
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("unexpected word %q", flags.Arg(0))
		fmt.Fprintln(out, err)
		return o, err
	}
	return o, nil
}

// plan is how much is measured.
type plan struct {
	slice, warm time.Duration // of load, and of the round before that
	rounds      int
	alone       int // runs of one client
	streams     int // paced ones
	pacedTokens int
	readers     int // open streams
	ticks       int // events to them
	starts      int
	turns       int // of a long session
	stored      int // events in a full store
	// An overload lasts for offered, behind the time in which the server settles.
	offered, settle time.Duration
}

func planFor(quick bool) plan {
	if quick {
		return plan{
			slice: 600 * time.Millisecond, warm: 200 * time.Millisecond, rounds: 1, alone: 40,
			streams: 100, pacedTokens: 40, readers: 500, ticks: 5, starts: 2, turns: 100, stored: 20_000,
			offered: 2 * time.Second, settle: 2 * time.Second,
		}
	}
	return plan{
		slice: 4 * time.Second, warm: time.Second, rounds: 3, alone: 300,
		streams: 1000, pacedTokens: 160, readers: 10_000, ticks: 30, starts: 7, turns: 1000, stored: 1_000_000,
		offered: 20 * time.Second, settle: 5 * time.Second,
	}
}

// bench is one run of the whole.
type bench struct {
	clock    clock
	options  options
	plan     plan
	progress io.Writer
	report   *report

	folder           string // of this run, removed at the end
	hobBin, modelBin string
	models           map[kind]*model
	tools            *toolServer
	files            uint64 // that may be open
	pprof            string // address for profiles, "" for none
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
	b := &bench{clock: newClock(), options: o, plan: planFor(o.quick), progress: progress, report: newReport(), models: map[kind]*model{}}
	defer b.cleanUp()
	if err := b.prepare(ctx); err != nil {
		fmt.Fprintln(progress, "bench:", err)
		return exitFault
	}
	b.measure(ctx)
	b.report.print(out)
	if o.json != "" {
		if err := b.report.save(o.json); err != nil {
			fmt.Fprintln(progress, "bench:", err)
			return exitFault
		}
	}
	switch {
	case len(b.report.Faults) > 0:
		return exitFault
	case b.report.missed() > 0:
		return exitMissed
	}
	return exitOK
}

// measure runs the parts, each whatever became of the others.
func (b *bench) measure(ctx context.Context) {
	for _, p := range parts() {
		if len(b.options.only) > 0 && !slices.Contains(b.options.only, p.number) {
			continue
		}
		fmt.Fprintf(b.progress, "%d. %s …", p.number, p.name)
		at := b.clock.now()
		err := p.run(b, ctx)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			b.report.fault(p.number, p.name, err)
			fmt.Fprintf(b.progress, " failed")
		}
		fmt.Fprintf(b.progress, " %s\n", (b.clock.now() - at).Round(100*time.Millisecond))
		if ctx.Err() != nil {
			return
		}
		b.tidy()
	}
}

// tidy takes away what a part left behind, in memory and on the disk, so that it is not the next one's burden.
func (b *bench) tidy() {
	runtime.GC()
	debug.FreeOSMemory()
	if b.options.keep {
		return
	}
	entries, err := os.ReadDir(b.folder)
	if err != nil {
		fmt.Fprintln(b.progress, "bench:", err)
		return
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue // the programs and their logs
		}
		if err := os.RemoveAll(filepath.Join(b.folder, e.Name())); err != nil {
			fmt.Fprintln(b.progress, "bench:", err)
		}
	}
}

// openFiles is how many files this process and Hob should be allowed to hold open.
const openFiles = 65_536

// prepare makes the folder, builds the programs and starts what all parts share.
func (b *bench) prepare(ctx context.Context) error {
	var err error
	if b.files, err = raiseFiles(openFiles); err != nil {
		return err
	}
	if b.folder, err = diskFolder(); err != nil {
		return err
	}
	fmt.Fprintln(b.progress, "building …")
	b.hobBin, b.modelBin = filepath.Join(b.folder, "hob"), filepath.Join(b.folder, "model")
	for bin, pkg := range map[string]string{b.hobBin: "hob/cmd/hob", b.modelBin: "hob/internal/fakeai/cmd"} {
		if err := build(ctx, bin, pkg); err != nil {
			return err
		}
	}
	b.describe()
	if b.tools, err = startTools(ctx); err != nil {
		return err
	}
	if b.options.profile == "" {
		return nil
	}
	if err := os.MkdirAll(b.options.profile, 0o755); err != nil {
		return fmt.Errorf("make the folder for profiles: %w", err)
	}
	b.pprof, err = freeAddr(ctx)
	return err
}

// diskFolder makes a folder on a real disk: where temporary files are kept in memory, an fsync costs nothing.
func diskFolder() (string, error) {
	for _, parent := range []string{os.TempDir(), "/var/tmp", "."} {
		if memory, err := inMemory(parent); err != nil || memory {
			continue
		}
		folder, err := os.MkdirTemp(parent, "hob-bench-")
		if err != nil {
			continue
		}
		return filepath.Abs(folder)
	}
	return "", errors.New("no folder on a disk: neither the temporary folder, nor /var/tmp, nor this one; set TMPDIR to one")
}

// describe tells what the numbers were taken on.
func (b *bench) describe() {
	b.report.Machine = append(b.report.Machine,
		fmt.Sprintf("%s, %d processors, %s, load %s before, folder %s", runtime.Version(), runtime.NumCPU(), kernel(), number(load1()), b.folder))
	if load1() > 0.5 {
		b.report.Machine = append(b.report.Machine, "Other work is under way on this machine: the numbers are worse than on a quiet one.")
	}
	if b.options.quick {
		b.report.Machine = append(b.report.Machine, "Quick: this shows that everything works; the numbers mean little.")
	}
}

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown kernel"
	}
	return "Linux " + strings.TrimSpace(string(text))
}

// end stops a part's process. A server that does not end well is a fault of its own.
func (b *bench) end(p *process) {
	if err := p.stop(); err != nil {
		b.report.Faults = append(b.report.Faults, err.Error())
	}
}

// cleanUp ends what all parts shared and removes the folder.
func (b *bench) cleanUp() {
	if err := b.stopModels(); err != nil {
		fmt.Fprintln(b.progress, "bench:", err)
	}
	if b.tools != nil {
		b.tools.stop()
	}
	switch {
	case b.folder == "":
	case b.options.keep:
		fmt.Fprintln(b.progress, "data and logs are kept in", b.folder)
	default:
		if err := os.RemoveAll(b.folder); err != nil {
			fmt.Fprintln(b.progress, "bench:", err)
		}
	}
}

// profile takes a CPU profile of the server while a part makes so many comparisons, where the server offers one. The
// function it gives waits for the profile to end.
func (b *bench) profile(ctx context.Context, part, comparisons int) (wait func()) {
	if b.pprof == "" {
		return func() {}
	}
	one := 2 * (time.Duration(b.plan.rounds)*b.plan.slice + b.plan.warm)
	seconds := max(1, int((time.Duration(comparisons) * one).Seconds()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", b.pprof, seconds),
			filepath.Join(b.options.profile, fmt.Sprintf("part-%d.pprof", part)))
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			fmt.Fprintln(b.progress, "bench: profile:", err)
		}
	}()
	return func() { <-done }
}

// fetch keeps what an address answers in a file.
func fetch(ctx context.Context, url, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	c := http.Client{Timeout: 5 * time.Minute}
	res, err := c.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", url, res.StatusCode)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keep a profile: %w", err)
	}
	_, err = io.Copy(f, res.Body)
	return errors.Join(err, f.Close())
}
