//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// bug is a fault that programs built with the tag "seeded" can have, and the drill that has to find it.
type bug struct {
	name, drill string
	about       string
}

// bugs are all faults that can be planted. Those of the drills that take longest come first.
func bugs() []bug {
	return []bug{
		{"skip_fence", "freeze", "a commit does not look at the epoch and the number of the last event"},
		{"zombie_send", "freeze", "the lease is not looked at before a tool is called"},
		{"no_release", "handover", "a server that stops keeps its leases"},
		{"keep_orphans", "commit", "a run whose commit failed is not given back"},
		{"cancel_lost", "cancel", "a cancel is not stored"},
		{"steal_lease", "peace", "runs are claimed whose lease is not over"},
		{"attempts_forever", "poison", "attempts without progress are not counted"},
		{"never_expires", "decide", "the time of an approval is not kept"},
		{"rest_blind", "decide", "a run rests without a look at what was decided meanwhile"},
		{"decide_twice", "decide", "a decision does not look whether there is one"},
		{"no_sync", "sync", "SQLite does not sync"},
		{"ack_before_commit", "accept", "a run is acknowledged before it is stored"},
		{"drop_dedupe", "twice", "idempotency keys are not looked up"},
		{"no_recover", "call", "unfinished runs are not taken up"},
		{"reset_seq", "call", "the numbers of events begin anew when a run is taken up"},
		{"repeat_once", "call", "a call that may be made once is made again"},
		{"silent_unknown", "call", "an unknown outcome is told as success"},
		{"new_key_each_try", "call", "a call that is sent again has another key"},
		{"intent_after_act", "call", "a tool is called before the intent is stored"},
		{"message_dropped", "call", "the user's message is not stored"},
		{"lost_tail", "resume", "a reader that goes on misses an event"},
		{"repeat_tail", "resume", "a reader that goes on gets an event again"},
	}
}

func bugNames() []string {
	var names []string
	for _, b := range bugs() {
		names = append(names, b.name)
	}
	return names
}

const (
	bugVariable = "HOB_SEEDED_BUG" // seeded.Variable, which programs without the tag do not have
	bugRounds   = 3                // of a drill, before a fault counts as not found
	bugsAtOnce  = 4                // trials; most of their time they wait
)

// outcome is what became of a trial.
type outcome struct {
	bug    bug
	caught string // the promise; "" = none was broken
	detail string
	rounds int
	took   time.Duration
	folder string // of the last round
	err    error
}

// plant runs drills on programs with planted faults, all or some, and on the same program without one. Each fault must be
// found, and nothing else. It prints a line for each and gives the exit code, and the folders of those that failed.
func (h *harness) plant(ctx context.Context, out io.Writer) (code int, kept []string) {
	began := time.Now()
	results, cluster, err := h.trials(ctx, h.options.only)
	if err != nil {
		fmt.Fprintln(out, "bugs      could not be run:", err)
		return exitFault, nil
	}
	caught, missed, faults := 0, 0, 0
	for r := range results {
		fmt.Fprintln(out, r.line())
		switch {
		case errors.Is(r.err, errNoStrace):
			continue
		case r.err != nil:
			faults++
		case (r.caught == "") != (r.bug.name == ""):
			missed++
		case r.bug.name != "":
			caught++
			fmt.Fprintf(h.progress, "    %s\n", r.detail)
			continue
		default:
			continue
		}
		if ctx.Err() != nil {
			continue
		}
		kept = append(kept, r.folder)
		fmt.Fprintf(out, "    logs: %s; again: %s\n", r.folder, h.again(r.faultName()))
	}
	if len(kept) > 0 { // the drills on Postgres share it
		kept = append(kept, cluster)
	}
	fmt.Fprintf(out, "bugs: %d caught, %d wrong, %d not run, %s, seed %d\n", caught, missed, faults, time.Since(began).Round(time.Second), h.options.seed)
	switch {
	case missed > 0:
		return exitViolated, kept
	case faults > 0 || caught == 0:
		return exitFault, kept
	}
	return exitOK, kept
}

// line is the outcome as it is printed.
func (o outcome) line() string {
	name := fmt.Sprintf("bug %-18s", o.bug.name)
	if o.bug.name == "" {
		name = fmt.Sprintf("no bug, drill %-8s", o.bug.drill)
	}
	took := o.took.Round(100 * time.Millisecond)
	switch {
	case errors.Is(o.err, errNoStrace):
		return fmt.Sprintf("%s not run: %v", name, o.err)
	case o.err != nil:
		return fmt.Sprintf("%s could not be run: %v", name, o.err)
	case o.bug.name == "" && o.caught == "":
		return fmt.Sprintf("%s ok, after %s", name, took)
	case o.bug.name == "":
		return fmt.Sprintf("%s VIOLATED: %s: %s", name, o.caught, o.detail)
	case o.caught == "":
		return fmt.Sprintf("%s NOT CAUGHT in %d rounds of %s, %s", name, o.rounds, o.bug.drill, took)
	}
	return fmt.Sprintf("%s caught by %q after %s", name, o.caught, took)
}

// faultName is what -only has to name for this trial to be repeated: a drill without a fault is repeated with one of its.
func (o outcome) faultName() string {
	for _, b := range bugs() {
		if b.name == o.bug.name || o.bug.name == "" && b.drill == o.bug.drill {
			return b.name
		}
	}
	return o.bug.name
}

// trials starts what plant needs and gives the outcomes as they come, and the folder of the Postgres that they share.
func (h *harness) trials(ctx context.Context, names []string) (_ <-chan outcome, shared string, err error) {
	jobs := jobsFor(names)
	program := filepath.Join(h.folder, "hob-seeded")
	if err := build(ctx, program, "seeded"); err != nil {
		return nil, "", err
	}
	if err := clean(h.hob, program); err != nil {
		return nil, "", err
	}
	c, err := newCluster(ctx, h.folder)
	if err != nil {
		return nil, "", err
	}
	results, queue := make(chan outcome), make(chan bug)
	var group sync.WaitGroup
	for range bugsAtOnce {
		group.Go(func() {
			for b := range queue {
				results <- h.try(ctx, c, program, b)
			}
		})
	}
	go func() {
		for _, b := range jobs {
			queue <- b
		}
		close(queue)
		group.Wait()
		_ = c.stop() // its folder goes anyway
		close(results)
	}()
	return results, c.folder, nil
}

// jobsFor are the named faults, all where none is named, each drill without one in front of its first.
func jobsFor(names []string) []bug {
	var jobs []bug
	seen := map[string]bool{}
	for _, b := range bugs() {
		if len(names) > 0 && !slices.Contains(names, b.name) {
			continue
		}
		if !seen[b.drill] {
			seen[b.drill] = true
			jobs = append(jobs, bug{drill: b.drill})
		}
		jobs = append(jobs, b)
	}
	return jobs
}

// clean wants the planted faults to be in the one program and in no way in the other.
func clean(program, seeded string) error {
	without, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("look into the program: %w", err)
	}
	with, err := os.ReadFile(seeded)
	if err != nil {
		return fmt.Errorf("look into the program: %w", err)
	}
	if bytes.Contains(without, []byte(bugVariable)) {
		return fmt.Errorf("%s can have planted faults: it has the text %s", program, bugVariable)
	}
	if !bytes.Contains(with, []byte(bugVariable)) {
		return errors.New("the program with planted faults has none")
	}
	return nil
}

// try runs the drill of a fault until a promise is broken; without a fault, once.
func (h *harness) try(ctx context.Context, c *cluster, program string, b bug) outcome {
	o := outcome{bug: b}
	began := time.Now()
	rounds := bugRounds
	if b.name == "" {
		rounds = 1
	}
	for o.rounds < rounds && o.caught == "" && o.err == nil {
		o.rounds++
		if o.folder != "" {
			h.remove(o.folder)
		}
		own, err := h.below(fmt.Sprintf("%s-%s-%d", b.drill, strings.ReplaceAll(b.name, "_", ""), o.rounds))
		if err != nil {
			o.err = err
			break
		}
		o.folder = own.folder
		own.lateness = measure()
		o.caught, o.detail, o.err = own.round(ctx, c, program, b)
		own.lateness.end()
	}
	if !h.options.keep && (o.err == nil || errors.Is(o.err, errNoStrace)) && (o.caught == "") == (b.name == "") {
		h.remove(o.folder)
	}
	o.took = time.Since(began)
	return o
}

// round runs a drill once, in the harness's folder, and names the first promise that was broken. That a run does not end
// tells the least, so that is named where nothing else was broken.
func (h *harness) round(ctx context.Context, c *cluster, program string, b bug) (promise, detail string, err error) {
	h.hob = filepath.Join(h.folder, "hob")
	script := fmt.Sprintf("#!/bin/sh\n%s=%s exec '%s' \"$@\"\n", bugVariable, b.name, program)
	if err := os.WriteFile(h.hob, []byte(script), 0o700); err != nil { //nolint:gosec // it is to be run
		return "", "", fmt.Errorf("start of the drill's program: %w", err)
	}
	ctx, stop := context.WithCancel(ctx) // ends the clients of runs that do not
	defer stop()
	verdicts, err := drills()[b.drill].run(ctx, &trial{h: h, name: filepath.Base(h.folder), cluster: c})
	var least *verdict
	for i, v := range verdicts {
		switch {
		case !v.broken(), v.name == testedName && b.name != "":
		case v.name == testedName, v.name == runsEnd:
			least = &verdicts[i]
		default:
			return v.name, v.violations[0], nil
		}
	}
	if least != nil {
		return least.name, least.violations[0], nil
	}
	return "", "", err
}
