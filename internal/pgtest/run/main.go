// Command run starts one private Postgres cluster, sets HOB_TEST_POSTGRES for
// the command given to it, runs that and stops the cluster:
//
//	go run ./internal/pgtest/run -- go test ./...
//
// It saves each test binary its own initdb. Its exit code is the command's. It
// is not for running Hob: the cluster's data is thrown away.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"hob/internal/pgtest"
)

const (
	exitUsage      = 2
	exitNoCluster  = 3
	exitNotStarted = 127
	startTimeout   = 90 * time.Second
)

func main() {
	os.Exit(run(os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}

// stdio is handed on to the command as it is.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

func run(args []string, std stdio) int {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(std.err, "usage: run -- command [argument ...]")
		return exitUsage
	}
	// Caught before the start, so that an interrupt never skips the stop below.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	url, stop, err := pgtest.Start(ctx)
	if err != nil {
		fmt.Fprintln(std.err, "pgtest:", err)
		return exitNoCluster
	}
	defer stop()

	// The command ends by itself or by a signal; ctx bounds the cluster's start only.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = std.in, std.out, std.err
	cmd.Env = append(os.Environ(), pgtest.EnvURL+"="+url)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(std.err, "pgtest:", err)
		return exitNotStarted
	}
	return wait(cmd, signals)
}

// wait hands signals on to the command and returns its exit code, as a shell
// would: 128 + n for a command ended by signal n.
func wait(cmd *exec.Cmd, signals <-chan os.Signal) int {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			// A command that has just ended needs no signal.
			_ = cmd.Process.Signal(s)
		case err := <-done:
			var exit *exec.ExitError
			if err == nil || !errors.As(err, &exit) {
				return cmd.ProcessState.ExitCode()
			}
			if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return 128 + int(status.Signal())
			}
			return exit.ExitCode()
		}
	}
}
