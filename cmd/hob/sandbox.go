package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"hob"
	"hob/internal/builtin"
	"hob/internal/config"
	"hob/internal/sandbox"
)

// selfTestAfter is when a server tries the walls of its sandbox: once it answers, so that its start waits for nothing.
const selfTestAfter = time.Second

// addCode gives the tools what runs agents' code: the operator's sandbox elsewhere, or the one of this machine.
func (p *parts) addCode(d *builtin.Deps, c config.Config, log *slog.Logger) {
	d.CodeService = builtin.Service(c.CodeSandbox)
	if c.CodeSandbox.BaseURL != "" || c.Sandbox == config.SandboxOff {
		return
	}
	p.sandbox = sandbox.New(sandbox.Config{Weak: c.Sandbox == config.SandboxWeak, Log: log})
	d.Code = localCode{box: p.sandbox, log: log}
}

// testSandbox tries the walls in the background and tells the operator what is missing. No process is left of it.
func (p *parts) testSandbox(ctx context.Context, log *slog.Logger) {
	if p.sandbox == nil {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(selfTestAfter):
	}
	walls, err := p.sandbox.Check(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.Warn("code_execute is off", slog.String("error", err.Error()))
	default:
		for _, w := range walls {
			if !w.OK && !w.Extra {
				log.Warn("code runs without a wall, as HOB_SANDBOX=weak allows", slog.String("wall", w.Name), slog.String("error", w.Detail))
			}
		}
	}
}

// sandboxMetrics are 1 for each wall that stands and 0 for one that does not. self-test says whether any was tried and all
// that are needed stand.
func (p *parts) sandboxMetrics(into map[string]int64) {
	const name = "hob_sandbox_wall"
	var walls []sandbox.Wall
	ready := int64(0)
	if p.sandbox != nil {
		walls = p.sandbox.Walls()
		if p.sandbox.Tried() == nil {
			ready = 1
		}
	}
	into[name+`{wall="self-test"}`] = ready
	for _, w := range walls {
		value := int64(0)
		if w.OK {
			value = 1
		}
		into[name+`{wall="`+w.Name+`"}`] = value
	}
}

// localCode is the sandbox as the tools see it.
type localCode struct {
	box *sandbox.Sandbox
	log *slog.Logger
}

var _ builtin.CodeSandbox = localCode{}

// Unavailable says why nothing can be run.
func (l localCode) Unavailable(ctx context.Context) string {
	if err := l.box.Ready(ctx); err != nil {
		return l.explain(err)
	}
	return ""
}

// explain is what users may read of a fault; the rest is for the log.
func (l localCode) explain(err error) string {
	var off *sandbox.OffError
	switch {
	case errors.As(err, &off):
		return "this machine lacks a wall (" + off.Missing + "); the operator finds how to allow it with: hob doctor"
	case errors.Is(err, sandbox.ErrBusy):
		return "too many programs run or wait; try again later"
	case errors.Is(err, sandbox.ErrClosed):
		return "the server is stopping"
	}
	l.log.Warn("a program could not be run", slog.String("error", err.Error()))
	return "the program could not be run"
}

// Run runs a program.
func (l localCode) Run(ctx context.Context, r builtin.CodeRequest) (builtin.CodeResult, error) {
	res, err := l.box.Run(ctx, sandbox.Request{
		Workspace: string(r.Workspace), Language: sandbox.Language(r.Language), Code: r.Code, Timeout: r.Timeout,
	})
	var language *sandbox.LanguageError
	var limit *sandbox.LimitError
	switch {
	case errors.As(err, &language):
		return builtin.CodeResult{}, hob.Errorf(hob.Invalid, "Unsupported language: %s", language.Error())
	case errors.As(err, &limit):
		return builtin.CodeResult{}, hob.Errorf(hob.Invalid, "%s", limit.Text)
	case err != nil:
		return builtin.CodeResult{}, hob.Errorf(hob.Unavailable, "%s", l.explain(err))
	}
	out := builtin.CodeResult{
		Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: res.ExitCode, Skipped: res.Skipped, Truncated: res.Truncated,
	}
	for _, e := range res.Limits {
		out.Limits = append(out.Limits, e.Text)
		out.TimedOut = out.TimedOut || e.Limit == sandbox.LimitTime
	}
	for _, f := range res.Files {
		out.Files = append(out.Files, builtin.CodeFile{Name: f.Name, Data: f.Data})
	}
	return out, nil
}

// checkSandbox tries every wall, as a server does.
func (r *report) checkSandbox(ctx context.Context) {
	const check = "sandbox"
	switch {
	case r.config.CodeSandbox.BaseURL != "":
		r.add(check, ok, "agents' code goes to "+r.config.CodeSandbox.BaseURL, "")
		return
	case r.config.Sandbox == config.SandboxOff:
		r.add(check, ok, "agents' code is not run here (HOB_SANDBOX=off)", "")
		return
	}
	box := sandbox.New(sandbox.Config{Weak: r.config.Sandbox == config.SandboxWeak})
	defer box.Close()
	walls, err := box.Check(ctx)
	for _, w := range walls {
		v := ok
		if !w.OK {
			v = warn
		}
		text := strings.ReplaceAll(cmp.Or(w.Detail, "stands"), "\n", "; ")
		r.add(check, v, w.Name+": "+text, w.Fix)
	}
	var off *sandbox.OffError
	switch {
	case errors.As(err, &off):
		r.add(check, warn, "code_execute is off: "+off.Missing+": "+off.Reason, off.Fix)
	case err != nil:
		r.add(check, warn, "code_execute is off: "+err.Error(), "")
	}
}
