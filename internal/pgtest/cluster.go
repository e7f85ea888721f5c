package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxConnections leaves room for many parallel tests with pools of their own.
const maxConnections = 200

// portTries is how often a start is repeated when another process took the
// free port between our look and the server's bind.
const portTries = 5

// keeper is the parent of the server. It waits for the end of its standard
// input, whose other end this process holds: the kernel closes that end when
// the process dies, even by SIGKILL, and then the server is stopped at once
// (SIGQUIT: no checkpoint) and its folder removed. It needs no signal handler
// here and, unlike a parent-death signal, no thread that must stay alive.
const keeper = `"$@" &
server=$!
{ read -r _; kill -QUIT $server 2>/dev/null; } <&3 3<&- &
exec 3<&-
wait $server
cd / && rm -rf "$HOB_PG_FOLDER"`

// cluster is a running server, or somebody else's when folder is empty.
type cluster struct {
	url    string
	folder string

	alive *os.File // closing it ends the keeper
	cmd   *exec.Cmd
}

// stop ends the server and removes its folder. It returns when both are gone.
func (c *cluster) stop() {
	if c.folder == "" {
		return
	}
	c.alive.Close()
	// The exit status says only that the server was told to quit.
	_ = c.cmd.Wait()
	// Temporary files: what cannot be removed is the system's to clean.
	_ = os.RemoveAll(c.folder)
}

// start makes a data folder and runs a server on a free loopback port.
func start(ctx context.Context) (*cluster, error) {
	bin, err := binaries(ctx)
	if err != nil {
		return nil, err
	}
	cred, err := credential()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "hob-pg-")
	if err != nil {
		return nil, fmt.Errorf("folder of the cluster: %w", err)
	}
	if cred != nil {
		if err := os.Chown(folder, int(cred.Uid), int(cred.Gid)); err != nil {
			return nil, errors.Join(fmt.Errorf("folder of the cluster: %w", err), os.RemoveAll(folder))
		}
	}
	s := server{bin: bin, cred: cred, folder: folder}
	if err := s.initdb(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	for range portTries {
		var c *cluster
		if c, err = s.run(ctx); err == nil {
			return c, nil
		}
		if ctx.Err() != nil || !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, errors.Join(err, os.RemoveAll(folder))
}

// server is what initdb and the server itself are run with.
type server struct {
	bin    string              // folder of initdb and postgres
	cred   *syscall.Credential // nil: the caller's own
	folder string
}

func (s server) data() string { return filepath.Join(s.folder, "data") }

func (s server) initdb(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-A", "trust", "-N",
		"-E", "UTF8", "--locale=C.UTF-8", "-U", "postgres", "-D", s.data())
	cmd.Dir = s.folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// errPortTaken reports that the server could not bind its port.
var errPortTaken = errors.New("the chosen port was taken by another process")

// run starts the server and waits until it answers.
func (s server) run(ctx context.Context) (*cluster, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	logName := filepath.Join(s.folder, fmt.Sprintf("server-%d.log", port))
	logFile, err := os.Create(logName)
	if err != nil {
		return nil, fmt.Errorf("server log: %w", err)
	}
	defer logFile.Close()
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("keeper's pipe: %w", err)
	}
	defer theirs.Close()

	// The server outlives ctx, which bounds its start only.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", keeper, "sh", filepath.Join(s.bin, "postgres"), "-D", s.data(),
		"-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "max_connections="+strconv.Itoa(maxConnections), "-c", "shared_buffers=64MB",
		"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	cmd.Dir = s.folder
	cmd.Env = append(os.Environ(), "HOB_PG_FOLDER="+s.folder)
	// Files, not pipes: `go test` waits for every holder of its own output.
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{theirs}
	// A session of its own keeps the terminal's interrupt from the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start server: %w", err)
	}
	c := &cluster{
		url:    fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port),
		folder: s.folder, alive: ours, cmd: cmd,
	}
	if err := c.ready(ctx, logName); err != nil {
		ours.Close()
		_ = cmd.Wait()
		return nil, err
	}
	return c, nil
}

// ready waits for the first accepted connection. A server that ended instead
// is seen by its log, since its keeper is not waited for yet.
func (c *cluster) ready(ctx context.Context, logName string) error {
	for {
		conn, err := pgx.Connect(ctx, c.url)
		if err == nil {
			return conn.Close(ctx)
		}
		log, readErr := os.ReadFile(logName)
		switch {
		case bytes.Contains(log, []byte("could not bind")):
			return errPortTaken
		case bytes.Contains(log, []byte("FATAL:")) && !bytes.Contains(log, []byte("starting up")),
			errors.Is(readErr, os.ErrNotExist): // the keeper has cleared up
			return fmt.Errorf("server did not start: %s", bytes.TrimSpace(log))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("server did not answer in time: %w\n%s", err, bytes.TrimSpace(log))
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// freePort asks the kernel for a port nobody listens on right now.
func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("free port: %w", err)
	}
	return port, nil
}

// binaries finds the folder that holds both initdb and postgres: where
// pg_config says, on PATH, or where Debian keeps them, newest version first.
func binaries(ctx context.Context) (string, error) {
	var folders []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		folders = append(folders, strings.TrimSpace(string(out)))
	}
	folders = append(folders, filepath.SplitList(os.Getenv("PATH"))...)
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", fmt.Errorf("look for a server: %w", err)
	}
	slices.SortFunc(debian, func(a, b string) int { return version(b) - version(a) })
	return pick(append(folders, debian...))
}

// pick returns the first folder that holds a whole server.
func pick(folders []string) (string, error) {
	for _, f := range folders {
		if f != "" && executable(filepath.Join(f, "initdb")) && executable(filepath.Join(f, "postgres")) {
			return f, nil
		}
	}
	return "", fmt.Errorf("no Postgres server is installed; install one with: %s (or set %s to a superuser's URL)", InstallHint, EnvURL)
}

// version reads the number in /usr/lib/postgresql/N/bin, 0 when there is none.
func version(folder string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
	if err != nil {
		return 0
	}
	return n
}

func executable(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// credential is the user the server runs as: Postgres refuses to run as root.
func credential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // the caller's own will do
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("root may not run Postgres and neither user postgres nor nobody exists")
}
