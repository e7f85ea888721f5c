package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"hob"
	"hob/internal/api"
	"hob/internal/config"
	"hob/internal/engine"
	"hob/internal/provider"
	"hob/internal/storage"
	"hob/internal/store"
)

const serveHelp = `Runs the server until SIGTERM or Ctrl-C. Then it refuses new runs but answers all else, lets runs finish for --drain, hands
over those that have not, and ends; a second signal ends it at once. Runs that a crash cut short go on at the next start.

The first start makes the data folder, the seal key, a service key (printed once, kept in service.key), a small sample
database and the agent "demo".

Options, each as a flag, a variable or a line of hob.toml in the data folder:
`

// closeTime is how long answers under way may still take once the runs are drained.
const closeTime = 2 * time.Second

// errSecondSignal is the cause when the operator does not want to wait.
var errSecondSignal = errors.New("a second signal")

func serve(ctx context.Context, w world) error {
	c, words, err := w.load(flag.NewFlagSet("serve", flag.ContinueOnError))
	if err != nil {
		return err
	}
	if len(words) > 0 {
		return usageError(fmt.Sprintf("unexpected word %q", words[0]))
	}
	if err := c.CheckExposed(); err != nil {
		return configError{err}
	}
	log := newLog(c, w.stderr)
	if err := makeFolder(c.Data); err != nil {
		return err
	}
	if c.Database == "" {
		unlock, err := lockFolder(c.Data)
		if err != nil {
			return err
		}
		defer unlock()
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return hob.Errorf(hob.Unavailable, "cannot listen on %s (%s); choose another address with --addr", c.Addr, reason(err))
	}
	defer func() { _ = ln.Close() }() // the HTTP server has closed it, unless it never began
	c.Addr = ln.Addr().String()       // the port is known now, where it was 0
	p, err := w.open(ctx, c, log)
	if err != nil {
		return err
	}
	defer func() {
		if err := p.close(); err != nil {
			log.Error("closing", slog.String("error", err.Error()))
		}
	}()
	if own, err := netip.ParseAddrPort(c.Addr); err == nil {
		p.own.Store(&own)
	}
	made, err := firstStart(ctx, c, p.store, log)
	if err != nil {
		return err
	}
	s := newServer(c, p, log)
	trial, endTrial := context.WithCancel(ctx)
	defer endTrial()
	go p.testSandbox(trial, log)
	if err := s.engine.Recover(ctx); err != nil {
		return fmt.Errorf("take up unfinished runs: %w", err)
	}
	p.models.FindOllama(ctx) // so that the greeting knows of it; this machine answers, or refuses, at once
	greet(w, c, made, p.providers())
	return s.run(ctx, ln)
}

// greet prints what a person needs next. The key is shown at the start that made it and never again.
func greet(w world, c config.Config, made hob.Secret, providers []api.Provider) {
	fmt.Fprintf(w.stdout, "Hob %s listens on %s\n", buildVersion(), c.URL())
	var found []string
	for _, p := range providers {
		if p.Paid {
			found = append(found, p.Name)
		}
	}
	if len(found) == 0 {
		fmt.Fprintln(w.stdout, "model providers: none; agents made without a model play a script (what to set: hob help serve)")
	} else {
		fmt.Fprintf(w.stdout, "model providers: %s\n", strings.Join(found, ", "))
	}
	if made != "" {
		fmt.Fprintf(w.stdout, "service key (shown this once, kept in %s/%s): %s\n", c.Data, serviceKeyFile, string(made))
	}
	if keyElsewhere(c) {
		fmt.Fprintln(w.stdout, "other terminals need the service key, too: export HOB_KEY=…")
	}
	fmt.Fprintf(w.stdout, "try: %s chat demo \"How many orders are open?\"%s\n", w.program, whereabouts(c))
}

// keyElsewhere says whether only the environment or the flags of this process hold the service key, so that commands in
// another terminal would not find one.
func keyElsewhere(c config.Config) bool {
	for _, s := range c.Dump() {
		if s.Name == "--service-key" && (s.Value == "" || s.Source == config.FromFile) {
			return false
		}
	}
	kept, err := readServiceKey(c.Data)
	return err == nil && kept == ""
}

// whereabouts are the flags with which a command in another terminal, whose environment may differ, finds a server that
// does not run on the defaults.
func whereabouts(c config.Config) string {
	var flags string
	if addr := strings.TrimPrefix(c.URL(), "http://"); addr != config.DefaultAddr {
		flags += " --addr " + quoted(addr)
	}
	if c.Data != config.DefaultData {
		dir := c.Data
		if full, err := filepath.Abs(dir); err == nil {
			dir = full
		}
		flags += " --data " + quoted(dir)
	}
	return flags
}

// quoted writes a word so that a shell reads it as it is.
func quoted(word string) string {
	for _, r := range word {
		if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:", r) {
			return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return word
}

// server is the engine and the API over one set of parts.
type server struct {
	config   config.Config
	parts    *parts
	store    *store.DB
	models   *provider.Registry
	files    *storage.Files
	engine   *engine.Engine
	http     *http.Server
	log      *slog.Logger
	conns    api.ConnLimits
	draining atomic.Bool
}

func newServer(c config.Config, p *parts, log *slog.Logger) *server {
	s := &server{config: c, parts: p, store: p.store, models: p.models, files: p.files, log: log}
	s.engine = engine.New(engine.Config{
		Store: p.store, Models: p.models.Open, Toolsets: []hob.Toolset{p.tools}, Settings: p.settings.Value, Log: log,
		Alone: c.Database == "", Limits: engine.Limits{Active: c.MaxRuns}, Hooks: p.hooks, Deliver: p.hooks.Kick,
	})
	limits := api.DefaultLimits()
	limits.Off = !c.RateLimit
	s.conns, limits.Streams = bounds(openFiles(), api.DefaultConnLimits(), limits.Streams)
	s.http = api.Server(c.Addr, api.New(api.Config{
		Store: p.store, Engine: s.engine, Files: p.files, Builtins: p.tools.Rows, Previews: p.tools.Previews,
		CheckTool: p.tools.CheckTool, Unavailable: p.tools.Unavailable, NotLoaded: p.tools.NotLoaded,
		CheckScript: func(source string) error {
			_, err := provider.ParseScript(source)
			return err
		},
		CheckAssignment: func(ctx context.Context, a hob.Assignment, row *hob.Tool) (string, error) {
			if row != nil {
				return p.tools.CheckCustomAssignment(*row, a.ConfigOverride)
			}
			return p.tools.CheckAssignment(ctx, a.Workspace, a.ToolName, a.ConfigOverride)
		},
		CheckURL: p.guard.CheckURL, Models: p.models.Open, DefaultModel: p.defaultModel,
		Settings: p.settings, Providers: p.providers, ValidateKey: p.models.Validate,
		CheckFacts: func(raw json.RawMessage) error { _, err := provider.ReadFacts(raw); return err },
		Facts:      provider.Facts{},
		Ready:      s.ready, Metrics: s.metrics,
		Version: buildVersion(), CORSOrigins: c.CORSOrigins, JWTSecret: string(c.JWTSecret), Limits: limits, Log: log,
	}))
	s.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	return s
}

// What of the open files is kept for other things than connections, and of the connections for other things than streams.
const (
	keptFiles = 256
	keptConns = 64
)

// bounds lowers the bounds on connections and streams to what the limit on open files can carry: a server that runs out of
// files can neither accept a request nor call a model.
func bounds(files uint64, conns api.ConnLimits, streams int) (api.ConnLimits, int) {
	if room := files - keptFiles; files > keptFiles && room < uint64(conns.Total) {
		conns.Total = int(room)
	} else if files <= keptFiles {
		conns.Total = keptConns
	}
	conns.PerAddress = min(conns.PerAddress, conns.Total)
	return conns, min(streams, max(conns.Total-keptConns, conns.Total/2))
}

// ready says whether new runs would be taken.
func (s *server) ready(ctx context.Context) error {
	if s.draining.Load() {
		return hob.Errorf(hob.Unavailable, "the server is stopping")
	}
	return s.store.Ping(ctx)
}

// metrics are what the API does not count itself.
func (s *server) metrics() map[string]int64 {
	e, st := s.engine.Stats(), s.store.Stats()
	all := map[string]int64{
		"hob_runs_active": e.Active, "hob_runs_started_total": e.Started, "hob_runs_finished_total": e.Finished,
		"hob_runs_failed_total": e.Failed, "hob_runs_recovered_total": e.Recovered,
		"hob_runs_too_many_attempts_total": e.Parked, "hob_runs_lost_total": e.Lost,
		"hob_tool_calls_total": e.ToolCalls, "hob_tool_calls_failed_total": e.ToolsFailed,
		"hob_tool_calls_outcome_unknown_total": e.Unknown,
		"hob_model_calls_total":                e.Calls, "hob_model_tokens_total": e.Tokens, "hob_model_cost_nanodollars_total": e.Cost,
		"hob_summaries_total": e.Summaries,
		"hob_runs_starting":   e.Starting, "hob_runs_starting_bound": e.Bound,
		"hob_runs_refused_overloaded_total": e.Overloaded, "hob_runs_refused_workspace_busy_total": e.WorkspaceBusy,
		"hob_runs_refused_shutting_down_total": e.ShuttingDown, "hob_store_delay_microseconds": e.Delay.Microseconds(),
		"hob_store_writes_total": st.Writes, "hob_store_commits_total": st.Commits, "hob_store_reruns_total": st.Reruns,
		"hob_store_writes_failed_total": st.Failed,
		"hob_circuits_open":             int64(len(s.models.Circuits())),
		"hob_store_largest_batch":       st.LargestBatch, "hob_store_waiting": st.Waiting,
	}
	s.parts.sandboxMetrics(all)
	return all
}

// run serves until a signal or a fault, then drains.
func (s *server) run(ctx context.Context, ln net.Listener) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	// Leases are renewed until the last run is handed over, so this outlives the signal.
	leases, endLeases := context.WithCancel(context.WithoutCancel(ctx))
	leasesEnded := make(chan struct{})
	go func() { defer close(leasesEnded); s.engine.Serve(leases) }()
	defer func() { endLeases(); <-leasesEnded }()
	deliveriesEnded := make(chan struct{})
	go func() { defer close(deliveriesEnded); s.parts.hooks.Serve(leases) }()
	defer func() { endLeases(); <-deliveriesEnded }()
	go s.sweep(leases)
	go s.files.Serve(leases)
	go tuneGC(leases)

	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(api.Listen(ln, s.conns)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case sig := <-signals:
		s.log.Info("stopping", slog.String("signal", sig.String()), slog.String("drain", s.config.Drain.String()))
	case <-ctx.Done():
		s.log.Info("stopping", slog.String("drain", s.config.Drain.String()))
	}
	return s.drain(ctx, signals)
}

// sweepEvery is how often idempotency keys and deliveries that are past their time are dropped.
const sweepEvery = time.Hour

// sweep keeps the store from growing with what nobody will ask for again.
func (s *server) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n, err := s.store.SweepIdempotency(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("dropping old idempotency keys", slog.String("error", err.Error()))
		} else if n > 0 {
			s.log.Debug("dropped old idempotency keys", slog.Int64("keys", n))
		}
		if n, err := s.store.SweepDeliveries(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("dropping old deliveries", slog.String("error", err.Error()))
		} else if n > 0 {
			s.log.Debug("dropped old deliveries", slog.Int64("deliveries", n))
		}
	}
}

// drain lets runs end, or hands them over. Meanwhile the server goes on answering, so that those who ask learn that it stops
// and readers can come back: all but new runs is taken. Then it closes its listener, and what is still under way has closeTime.
func (s *server) drain(ctx context.Context, signals <-chan os.Signal) error {
	s.draining.Store(true)
	ctx, hurry := context.WithCancelCause(context.WithoutCancel(ctx))
	defer hurry(nil)
	go func() {
		select {
		case <-signals:
			hurry(errSecondSignal)
		case <-ctx.Done():
		}
	}()
	drain, cancel := context.WithTimeout(ctx, s.config.Drain)
	defer cancel()
	switch err := s.engine.Drain(drain); {
	case errors.Is(err, errSecondSignal):
		s.log.Warn("ended at once; unfinished runs go on at the next start")
	case errors.Is(err, context.DeadlineExceeded):
		s.log.Info("the drain time is over; unfinished runs go on elsewhere or at the next start")
	case err != nil:
		s.log.Error("draining", slog.String("error", err.Error()))
	}
	return s.close(ctx)
}

// close ends the listener and the connections: those that wait for a request at once, the others within closeTime or until
// the context ends.
func (s *server) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	switch err := api.Shutdown(ctx, s.http); {
	case ctx.Err() != nil:
		return api.Close(s.http)
	case err != nil:
		return fmt.Errorf("stop: %w", err)
	}
	s.log.Info("stopped")
	return nil
}

// reason is the last link of an error's chain: the system's own words.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
