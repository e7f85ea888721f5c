//go:build linux

package main

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestProxy_CutsBetweenCommitAndItsAnswer(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	if c == nil {
		return
	}
	p, err := newProxy(t.Context(), c.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	direct, err := pgx.Connect(t.Context(), dsn(c.addr(), "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close(t.Context())
	if _, err := direct.Exec(t.Context(), "CREATE TABLE t (n int)"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		harm     func()
		n        int
		fails    bool
		happened bool
	}{
		{"nothing", func() {}, 1, false, true},
		{"the answer is swallowed", func() { p.next.Store(1) }, 2, true, true},
		{"the COMMIT is lost", func() { p.asks.Store(1000) }, 3, true, false},
		{"nothing any more", p.quiet, 4, false, true},
	} {
		test.harm()
		if err := insert(t, p, test.n); (err != nil) != test.fails {
			t.Errorf("%s: the client hears %v", test.name, err)
		}
		p.quiet()
		var there bool
		if err := direct.QueryRow(t.Context(), "SELECT count(*) = 1 FROM t WHERE n = $1", test.n).Scan(&there); err != nil {
			t.Fatal(err)
		}
		if there != test.happened {
			t.Errorf("%s: the transaction happened: %t, want %t", test.name, there, test.happened)
		}
	}
	if p.swallowed.Load() != 1 || p.refused.Load() != 1 || p.commits.Load() != 3 {
		t.Errorf("%d commits seen, %d answers swallowed, %d COMMITs lost, want 3, 1, 1", p.commits.Load(), p.swallowed.Load(), p.refused.Load())
	}
}

// insert writes one row in a transaction behind the proxy and gives what COMMIT said.
func insert(t *testing.T, p *proxy, n int) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn(p.addr(), "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO t VALUES ($1)", n); err != nil {
		t.Fatal(err)
	}
	return tx.Commit(t.Context())
}

func TestPacket_RefusesImpossibleLengths(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		in   []byte
		want error
	}{
		"shorter than itself": {[]byte{0, 0, 0, 3}, errPacket},
		"far too long":        {[]byte{0xff, 0xff, 0xff, 0xff}, errPacket},
		"cut":                 {[]byte{0, 0, 0, 9, 'a'}, io.ErrUnexpectedEOF},
		"empty":               {[]byte{0, 0, 0, 4}, nil},
	} {
		if _, err := packet(bytes.NewReader(test.in), []byte{'Q'}); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}
