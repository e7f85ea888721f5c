package pgtest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hob/internal/pgtest"
)

func scan[T any](t *testing.T, url, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var v T
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestURL_GivesAnEmptyDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := pgtest.URL(t), pgtest.URL(t)
	if a == b {
		t.Fatalf("two calls gave the same database %s", a)
	}
	if n := scan[int](t, a, `SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public'`); n != 0 {
		t.Errorf("fresh database has %d relations, want 0", n)
	}
	if super := scan[string](t, a, `SHOW is_superuser`); super != "on" {
		t.Errorf("is_superuser = %s, want on", super)
	}
	if enc := scan[string](t, a, `SHOW server_encoding`); enc != "UTF8" {
		t.Errorf("server_encoding = %s, want UTF8", enc)
	}
}

func TestURL_IsDroppedWithTheTestAlthoughInUse(t *testing.T) {
	t.Parallel()
	keep := pgtest.URL(t)
	var name string
	t.Run("inner", func(t *testing.T) {
		url := pgtest.URL(t)
		name = scan[string](t, url, `SELECT current_database()`)
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(t.Context()) })
	})
	if n := scan[int](t, keep, `SELECT count(*) FROM pg_database WHERE datname = '`+name+`'`); n != 0 {
		t.Errorf("database %s outlived its test", name)
	}
}

func TestStart_StopLeavesNothing(t *testing.T) {
	t.Parallel()
	url, stop, err := pgtest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folder, pid := serverOf(t, url)
	if max := scan[string](t, url, `SHOW max_connections`); max != "200" {
		t.Errorf("max_connections = %s, want 200", max)
	}
	stop()
	stop() // the second call does nothing
	waitGone(t, folder, pid)
}

// serverOf reads the data folder and the process id of a running server.
func serverOf(t *testing.T, url string) (string, int) {
	t.Helper()
	folder := scan[string](t, url, `SHOW data_directory`)
	first, _, _ := strings.Cut(scan[string](t, url, `SELECT pg_read_file('postmaster.pid')`), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return folder, pid
}

func waitGone(t *testing.T, folder string, pid int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, statErr := os.Stat(folder)
		killErr := syscall.Kill(pid, 0)
		if os.IsNotExist(statErr) && killErr == syscall.ESRCH {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("server %d (%v) or its folder %s (%v) is still there", pid, killErr, folder, statErr)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// helperEnv makes the test binary play the process that dies.
const helperEnv = "HOB_PGTEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	url, stop, err := pgtest.Start(context.Background())
	if err != nil {
		os.Stdout.WriteString("error " + err.Error() + "\n")
		os.Exit(1)
	}
	os.Stdout.WriteString(url + "\n")
	time.Sleep(time.Minute) // to be killed in the meantime
	stop()
}

func TestStart_ServerDiesWithAKilledProcess(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	folder, pid := serverOf(t, strings.TrimSpace(url))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("helper ended by itself, want killed")
	}
	waitGone(t, folder, pid)
}
