//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// newTestCluster is a cluster that ends with the test; nil for the quick tests, which know SQLite alone.
func newTestCluster(t *testing.T) *cluster {
	t.Helper()
	if testing.Short() {
		return nil
	}
	folder, err := os.MkdirTemp("", "hob-chaos-test-") //nolint:usetesting // Postgres's own user cannot pass through the test's folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	c, err := newCluster(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestCluster_KeepsWhatItCommittedOverAKill(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	if c == nil {
		return
	}
	if err := c.create(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	open := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), dsn(c.addr(), "kept"))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	conn := open()
	if _, err := conn.Exec(t.Context(), "CREATE TABLE t (n int); INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO t VALUES (2)"); err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	if err := c.kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("kill %s", time.Since(at))
	if err := conn.Ping(t.Context()); err == nil {
		t.Fatal("the server still answers")
	}
	at = time.Now()
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("start %s", time.Since(at))
	conn = open()
	defer conn.Close(t.Context())
	var sum int
	if err := conn.QueryRow(t.Context(), "SELECT sum(n) FROM t").Scan(&sum); err != nil {
		t.Fatal(err)
	}
	if sum != 1 {
		t.Errorf("the sum is %d, want what was committed, 1", sum)
	}
}

func TestCluster_LeavesNoProcessBehind(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	if c == nil {
		return
	}
	if err := c.kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.ended:
	default:
		t.Error("the server's keeper is still there")
	}
	if _, err := os.Stat(filepath.Join(c.data(), "postmaster.pid")); err == nil {
		if _, err := pgx.Connect(t.Context(), dsn(c.addr(), "postgres")); err == nil {
			t.Error("the server still answers")
		}
	}
}
