// Package pgtest gives tests a real Postgres: a private cluster of the
// installed server, started once per test process, and a fresh database per
// test.
//
// It is a test fixture and not for the program itself: the cluster trusts every
// local connection, forgets its data at the end and skips every fsync.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// EnvURL names the environment variable that holds the administrator's URL of
// a running cluster to use instead of starting one per process. The user in it
// must be a superuser.
const EnvURL = "HOB_TEST_POSTGRES"

// InstallHint is the command that mends a missing server.
const InstallHint = "apt-get install postgresql"

// startTimeout bounds initdb and the server's start together; both take under
// two seconds on an idle machine.
const startTimeout = 90 * time.Second

// adminTimeout bounds one CREATE or DROP DATABASE.
const adminTimeout = 60 * time.Second

// shared starts this process's cluster at the first call. The cluster's keeper
// (see Start) ends it when the process ends, however it ends, so that nothing
// needs to be called at the end of a test binary.
var shared = sync.OnceValues(func() (*cluster, error) { //nolint:gochecknoglobals // one cluster a process
	if admin := os.Getenv(EnvURL); admin != "" {
		return &cluster{url: admin}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return start(ctx)
})

// URL returns the address of a fresh, empty database whose user is a
// superuser. The database is dropped, with whatever is still connected to it,
// when the test ends. Roles belong to the cluster and outlive the test: a test
// that makes some drops them.
//
// A machine without a Postgres server fails the test and names the command
// that installs one; it is never skipped.
func URL(t testing.TB) string {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatalf("postgres for tests: %v", err)
	}
	name, err := databaseName()
	if err != nil {
		t.Fatalf("postgres for tests: %v", err)
	}
	if err := admin(c.url, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("postgres for tests: create database: %v", err)
	}
	t.Cleanup(func() {
		if err := admin(c.url, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("postgres for tests: drop database: %v", err)
		}
	})
	u, err := url.Parse(c.url)
	if err != nil {
		t.Fatalf("postgres for tests: %s is not a URL: %v", EnvURL, err)
	}
	u.Path = "/" + name
	return u.String()
}

// Start runs a cluster of its own and returns the administrator's URL and the
// function that stops the server and removes its folder. ctx bounds the start
// only. Should the calling process die without calling stop, the server stops
// and the folder goes all the same; the same happens when stop is forgotten by
// the garbage collector's measure, so hold on to it.
func Start(ctx context.Context) (string, func(), error) {
	c, err := start(ctx)
	if err != nil {
		return "", nil, err
	}
	return c.url, sync.OnceFunc(c.stop), nil
}

// databaseName is random because several processes may share one cluster.
func databaseName() (string, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("random database name: %w", err)
	}
	return "hob_test_" + hex.EncodeToString(b[:]), nil
}

// admin runs one statement of the administrator. A template in use by another
// test process makes CREATE DATABASE fail for a moment, so that is tried again.
func admin(adminURL, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, adminURL)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	// The statement's own result says all; whether the farewell arrives does not matter.
	defer func() { _ = conn.Close(ctx) }()
	for {
		_, err = conn.Exec(ctx, sql)
		var busy interface{ SQLState() string }
		if err == nil || !errors.As(err, &busy) || busy.SQLState() != "55006" {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
