//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxyDial bounds the connection to the server behind the proxy.
const proxyDial = 2 * time.Second

// maxPacket bounds a message of Postgres's protocol that the proxy takes; Hob's own are far smaller.
const maxPacket = 64 << 20

// proxy lies between Hob and Postgres and understands as much of the protocol as it takes to see a COMMIT and its answer.
// It can cut the connection between the two: then the transaction happened, and Hob hears only that the connection broke.
// Or it cuts before the COMMIT reaches the server: then it did not happen, and Hob hears the same.
type proxy struct {
	target string
	ln     net.Listener
	group  sync.WaitGroup

	// Chances of a cut, in thousandths of the commits.
	answers, asks atomic.Int64
	// The next so many answers are swallowed whatever the chance.
	next atomic.Int64

	commits, swallowed, refused atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
}

// newProxy listens on a free loopback port.
func newProxy(ctx context.Context, target string) (*proxy, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	p := &proxy{target: target, ln: ln, conns: map[net.Conn]struct{}{}}
	p.group.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

// quiet ends all chances of a cut.
func (p *proxy) quiet() {
	p.answers.Store(0)
	p.asks.Store(0)
	p.next.Store(0)
}

// close cuts everything and returns when nothing of the proxy runs any more.
func (p *proxy) close() {
	p.mu.Lock()
	p.ended = true
	for c := range p.conns {
		_ = c.Close() // whoever waits on it is told
	}
	p.mu.Unlock()
	_ = p.ln.Close() // nobody comes any more
	p.group.Wait()
}

// hold remembers a connection, so that close can end it; false when it is too late.
func (p *proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close() // it may be closed already
}

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.serve(c) })
	}
}

// serve joins a client to a connection of its own to the server.
func (p *proxy) serve(client net.Conn) {
	if !p.hold(client) {
		_ = client.Close()
		return
	}
	defer p.drop(client)
	server, err := (&net.Dialer{Timeout: proxyDial}).DialContext(context.Background(), "tcp4", p.target)
	if err != nil {
		return // as a server that is away
	}
	if !p.hold(server) {
		_ = server.Close()
		return
	}
	defer p.drop(server)
	cut := func() { p.drop(client); p.drop(server) }
	var group sync.WaitGroup
	group.Go(func() { defer cut(); p.forth(server, client) })
	group.Go(func() { defer cut(); p.back(client, server) })
	group.Wait()
}

// forth carries what the client sends. Its first message has no type; a request to cancel is alone on its connection.
func (p *proxy) forth(server, client net.Conn) {
	first, err := packet(client, nil)
	if err != nil {
		return
	}
	if _, err := server.Write(first); err != nil {
		return
	}
	var kind [1]byte
	for {
		if _, err := io.ReadFull(client, kind[:]); err != nil {
			return
		}
		m, err := packet(client, kind[:])
		if err != nil {
			return
		}
		if isCommit(m) && hit(&p.asks) {
			p.refused.Add(1)
			return
		}
		if _, err := server.Write(m); err != nil {
			return
		}
	}
}

// back carries what the server sends.
func (p *proxy) back(client, server net.Conn) {
	var kind [1]byte
	for {
		if _, err := io.ReadFull(server, kind[:]); err != nil {
			return
		}
		m, err := packet(server, kind[:])
		if err != nil {
			return
		}
		if isCommitted(m) {
			p.commits.Add(1)
			if p.take() || hit(&p.answers) {
				p.swallowed.Add(1)
				return
			}
		}
		if _, err := client.Write(m); err != nil {
			return
		}
	}
}

// take uses up one of the answers that are to be swallowed next.
func (p *proxy) take() bool {
	for {
		n := p.next.Load()
		if n <= 0 {
			return false
		}
		if p.next.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// hit draws with a chance in thousandths.
func hit(chance *atomic.Int64) bool {
	n := chance.Load()
	return n > 0 && rand.Int64N(1000) < n
}

var errPacket = errors.New("a message of an impossible length")

// packet reads a message behind its kind: four bytes of length, which count themselves, and the rest.
func packet(r io.Reader, kind []byte) ([]byte, error) {
	m := append(make([]byte, 0, 64), kind...)
	m = append(m, 0, 0, 0, 0)
	if _, err := io.ReadFull(r, m[len(kind):]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(m[len(kind):])
	if n < 4 || n > maxPacket {
		return nil, errPacket
	}
	body := len(m)
	m = append(m, make([]byte, n-4)...)
	_, err := io.ReadFull(r, m[body:])
	return m, err
}

// isCommit says whether a client's message is the simple query COMMIT.
func isCommit(m []byte) bool {
	return m[0] == 'Q' && bytes.EqualFold(bytes.TrimRight(m[5:], "\x00; "), []byte("commit"))
}

// isCommitted says whether a server's message tells that a transaction was committed.
func isCommitted(m []byte) bool {
	return m[0] == 'C' && bytes.Equal(m[5:], []byte("COMMIT\x00"))
}
