package api

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// ConnLimits bound a listener's open connections; 0 means no bound.
type ConnLimits struct {
	Total int
	// PerAddress counts per remote host. This machine's own addresses are not counted: a proxy on it speaks for many.
	PerAddress int
}

// DefaultConnLimits are the documented bounds. They leave room for the default number of streams.
func DefaultConnLimits() ConnLimits { return ConnLimits{Total: 20_000, PerAddress: 2_000} }

// Listen bounds the connections of a listener. One too many is answered with 503 and closed.
func Listen(l net.Listener, limits ConnLimits) net.Listener {
	return &listener{Listener: l, limits: limits, byHost: map[string]int{}, refusing: make(chan struct{}, maxRefusing)}
}

type listener struct {
	net.Listener
	limits ConnLimits
	// refusing bounds the refusals under way; beyond it connections are closed without a word.
	refusing chan struct{}

	mu     sync.Mutex
	open   int
	byHost map[string]int
}

// full is the whole answer to a connection too many.
const (
	fullBody = `{"error":"too many open connections","message":"too many open connections","code":"too_many_connections"}`
	full     = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n\r\n" + fullBody + "\n"
)

const (
	refuseTime  = time.Second // for the answer to a connection too many
	maxRefusing = 64          // such answers at once
)

// Accept waits for a connection within the limits.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := countedHost(c.RemoteAddr())
		if l.take(host) {
			return &conn{Conn: c, l: l, host: host}, nil
		}
		select {
		case l.refusing <- struct{}{}:
			go l.refuse(c)
		default:
			_ = c.Close()
		}
	}
}

// refuse answers a connection too many. What the far end still sends is read for a moment, since closing over unread
// data would take the answer away again.
func (l *listener) refuse(c net.Conn) {
	defer func() { <-l.refusing }()
	_ = c.SetDeadline(socketTime(refuseTime))
	if _, err := io.WriteString(c, full); err == nil {
		if t, ok := c.(interface{ CloseWrite() error }); ok && t.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(c, headerSize)) // until the far end has read and closed, or the time is up
		}
	}
	_ = c.Close()
}

// countedHost is the host that a connection counts for, "" for this machine.
func countedHost(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok || t.IP.IsLoopback() {
		return ""
	}
	return t.IP.String()
}

func (l *listener) take(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limits.Total > 0 && l.open >= l.limits.Total {
		return false
	}
	if host != "" && l.limits.PerAddress > 0 && l.byHost[host] >= l.limits.PerAddress {
		return false
	}
	l.open++
	if host != "" {
		l.byHost[host]++
	}
	return true
}

func (l *listener) give(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if host == "" {
		return
	}
	if l.byHost[host]--; l.byHost[host] == 0 {
		delete(l.byHost, host)
	}
}

// conn gives its place back when it is closed.
type conn struct {
	net.Conn
	l    *listener
	host string
	once sync.Once
}

// Close closes the connection.
func (c *conn) Close() error {
	c.once.Do(func() { c.l.give(c.host) })
	return c.Conn.Close()
}

// CloseWrite ends what is sent. net/http asks for it where an answer must arrive although the request was not read whole.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if tcp := tcpOf(c); tcp != nil {
		return tcp.CloseWrite()
	}
	return errors.ErrUnsupported
}

// tcpOf is the TCP connection beneath a connection, nil where it is of another kind.
func tcpOf(c net.Conn) *net.TCPConn {
	for {
		switch v := c.(type) {
		case *net.TCPConn:
			return v
		case *conn:
			c = v.Conn
		case *begun:
			c = v.Conn
		default:
			return nil
		}
	}
}
