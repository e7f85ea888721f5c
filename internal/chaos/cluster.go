//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"hob/internal/pgtest"
)

// Times of the private Postgres.
const (
	clusterStart = 60 * time.Second // until it answers
	clusterStop  = 20 * time.Second // until it has ended
	clusterLook  = 5 * time.Millisecond
)

// clusterConns is max_connections: three replicas with pools of their own, and the checks.
const clusterConns = 200

// clusterKeeper is the server's parent. It waits for the end of descriptor 3, whose other end this process holds, and then
// ends the server at once: nothing outlives a harness that is killed.
const clusterKeeper = `"$@" &
server=$!
{ read -r _; kill -QUIT $server 2>/dev/null; } <&3 3<&- &
reader=$!
exec 3<&-
wait $server
kill $reader 2>/dev/null`

// cluster is a private Postgres that can be ended without a word and started again on its data. Unlike the one of the
// tests it has written what it says is committed. It syncs nothing: its processes die here, never the machine, and a
// recovery that begins with a sync of all files takes seconds.
type cluster struct {
	bin    string
	cred   *syscall.Credential
	folder string
	port   int

	alive *os.File // closing it ends the server
	cmd   *exec.Cmd
	ended chan struct{}
}

// newCluster makes a cluster in a folder of its own below parent and starts it.
func newCluster(ctx context.Context, parent string) (*cluster, error) {
	bin, err := pgtest.Binaries(ctx)
	if err != nil {
		return nil, err
	}
	cred, err := pgtest.Credential()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(parent, "postgres-")
	if err != nil {
		return nil, fmt.Errorf("folder of the cluster: %w", err)
	}
	c := &cluster{bin: bin, cred: cred, folder: folder}
	if cred != nil {
		if err := errors.Join(os.Chown(folder, int(cred.Uid), int(cred.Gid)), passable(parent)); err != nil {
			return nil, fmt.Errorf("folder of the cluster: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-A", "trust", "-N", "-E", "UTF8", "--locale=C.UTF-8",
		"-U", "postgres", "-D", c.data())
	cmd.Dir = folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, bytes.TrimSpace(out))
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(addr, ":")
	if c.port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("port of the cluster: %w", err)
	}
	return c, c.start(ctx)
}

// passable lets the server's user pass through the folder that its own lies in.
func passable(folder string) error { return os.Chmod(folder, 0o711) } //nolint:gosec // nothing in it is secret

func (c *cluster) data() string { return filepath.Join(c.folder, "data") }

func (c *cluster) addr() string { return "127.0.0.1:" + strconv.Itoa(c.port) }

// dsn is the address of a database behind host:port, which is the cluster's or a proxy's.
func dsn(addr, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: addr, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// start runs the server and returns when it answers, after a crash thus when it has recovered.
func (c *cluster) start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(c.folder, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("log of the cluster: %w", err)
	}
	defer log.Close()
	theirs, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("keeper's pipe: %w", err)
	}
	defer theirs.Close()
	cmd := exec.Command("/bin/sh", "-c", clusterKeeper, "sh", filepath.Join(c.bin, "postgres"), "-D", c.data(), //nolint:noctx // kill ends it
		"-p", strconv.Itoa(c.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "max_connections="+strconv.Itoa(clusterConns), "-c", "shared_buffers=64MB", "-c", "fsync=off",
		"-c", "synchronous_commit=on")
	cmd.Dir = c.folder
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.cred, Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return fmt.Errorf("start Postgres: %w", err)
	}
	c.alive, c.cmd, c.ended = ours, cmd, make(chan struct{})
	go func(ended chan struct{}) { _ = cmd.Wait(); close(ended) }(c.ended) // how it ended says nothing
	return c.ready(ctx)
}

// ready waits until the server answers a query.
func (c *cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterStart)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, dsn(c.addr(), "postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-c.ended:
			return fmt.Errorf("the server of Postgres ended at its start: %s", c.tail())
		case <-ctx.Done():
			return fmt.Errorf("the server of Postgres does not answer: %w; its log ends with:\n%s", err, c.tail())
		case <-time.After(clusterLook):
		}
	}
}

func (c *cluster) tail() string {
	text, err := os.ReadFile(filepath.Join(c.folder, "server.log"))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-2000):]))
}

// kill ends the server as pg_ctl stop -m immediate does: no farewell to its clients and no checkpoint, so that the next
// start recovers from the log.
func (c *cluster) kill() error {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return fmt.Errorf("process of Postgres: %w", err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(string(line))
	if err != nil {
		return fmt.Errorf("process of Postgres: %w", err)
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		return fmt.Errorf("end Postgres: %w", err)
	}
	return c.gone()
}

func (c *cluster) gone() error {
	defer c.alive.Close()
	select {
	case <-c.ended:
		return nil
	case <-time.After(clusterStop):
		return fmt.Errorf("the server of Postgres did not end within %s", clusterStop)
	}
}

// stop ends the server for good. Its folder goes with the harness's.
func (c *cluster) stop() error {
	if c == nil || c.cmd == nil {
		return nil
	}
	c.alive.Close()
	return c.gone()
}

// create makes an empty database.
func (c *cluster) create(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, dsn(c.addr(), "postgres"))
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	return errors.Join(err, conn.Close(ctx))
}
