// Command cmd serves the fake model, for measurements and for trying things out by hand.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"hob/internal/fakeai"
)

const readHeaderTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run serves until ctx ends. It writes one line with its address to stdout once it listens.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("fakeai", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "127.0.0.1:0", "address to listen on")
	mode := flags.String("mode", "text", "text or tools: with tools, -steps tool steps come before the text")
	tokens := flags.Int("tokens", 50, "tokens of the text, one event each")
	steps := flags.Int("steps", 10, "tool steps before the text, in mode tools")
	interval := flags.Duration("interval", 0, "time between two events; 0 = all at once")
	strict := flags.Bool("strict", false, "check every request as the vendors do; slower")
	window := flags.Int("window", 0, "with -strict: tokens of a prompt at most; 0 = any number")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	switch *mode {
	case "text":
		*steps = 0
	case "tools":
	default:
		_, _ = fmt.Fprintf(stderr, "-mode must be text or tools, not %q\n", *mode)
		return 2
	}
	h := fakeai.Bench{Tokens: *tokens, Steps: *steps, Interval: *interval}.Handler()
	if *strict {
		final := fakeai.Tokens(*tokens)
		final.Interval = *interval
		h = fakeai.New(fakeai.Options{Reply: fakeai.ToolSteps(*steps, final), Window: *window})
	}
	if err := serve(ctx, *addr, h, stdout); err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, addr string, h http.Handler, stdout io.Writer) error {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", addr, err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: readHeaderTimeout}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	_, _ = fmt.Fprintf(stdout, "http://%s/v1\n", l.Addr())
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	_ = srv.Close() // streams under way are of no use any more
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
