package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"hob/internal/api"
)

func TestServer_SettingsAndHeads(t *testing.T) {
	t.Parallel()
	s := api.Server("127.0.0.1:1", http.NotFoundHandler())
	if s.Addr != "127.0.0.1:1" || s.ReadHeaderTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes != 64<<10 || s.WriteTimeout != 0 || s.ReadTimeout != 0 {
		t.Errorf("the server is %+v", s)
	}
	w := begin(t, nil)
	r := w.do(ask{"GET", "/health", "", "", map[string]string{"X-Big": strings.Repeat("x", 80<<10)}})
	if r.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a head of 80 KB: status %d", r.status)
	}
}

func TestListen_OneConnectionTooManyIsToldSo(t *testing.T) {
	t.Parallel()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := api.Listen(inner, api.ConnLimits{Total: 2, PerAddress: 1}) // this machine counts for the total alone
	s := api.Server("", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		_ = s.Close()
		<-served
	}()
	get := func() (net.Conn, *http.Response) {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c, answer
	}
	a, r1 := get()
	b, r2 := get()
	c, r3 := get()
	if r1.StatusCode != 204 || r2.StatusCode != 204 || r3.StatusCode != 503 || r3.Header.Get("Retry-After") == "" {
		t.Errorf("statuses %d, %d, %d", r1.StatusCode, r2.StatusCode, r3.StatusCode)
	}
	body, err := io.ReadAll(r3.Body)
	if err != nil || !strings.Contains(string(body), "too_many_connections") {
		t.Errorf("the answer is %q (%v)", body, err)
	}
	_ = c.Close()
	_ = a.Close()
	for end := time.Now().Add(5 * time.Second); ; {
		d, r := get()
		_ = d.Close()
		if r.StatusCode == 204 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a closed connection never gave its place back")
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = b.Close()
}

func TestListen_CountsOtherMachinesByAddress(t *testing.T) {
	t.Parallel()
	from := func(ip string) net.Conn { return addressed{remote: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}} }
	queue := make(queued, 8)
	l := api.Listen(queue, api.ConnLimits{PerAddress: 1})
	queue <- from("192.0.2.1")
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	queue <- from("192.0.2.1") // refused
	queue <- from("192.0.2.2")
	second, err := l.Accept()
	if err != nil || second.RemoteAddr().String() != "192.0.2.2:1" {
		t.Fatalf("accepted %v (%v)", second.RemoteAddr(), err)
	}
	_ = first.Close()
	_ = first.Close() // twice counts once
	queue <- from("192.0.2.1")
	queue <- from("192.0.2.1")
	close(queue)
	if third, err := l.Accept(); err != nil || third.RemoteAddr().String() != "192.0.2.1:1" {
		t.Fatalf("accepted %v (%v)", third, err)
	}
	if extra, err := l.Accept(); err == nil {
		t.Errorf("accepted %v beyond the limit", extra.RemoteAddr())
	}
}

// queued is a listener that gives the connections of a channel.
type queued chan net.Conn

func (q queued) Accept() (net.Conn, error) {
	if c, ok := <-q; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (queued) Close() error   { return nil }
func (queued) Addr() net.Addr { return nil }

// addressed is a connection of which only the far end's address matters.
type addressed struct {
	net.Conn
	remote net.Addr
}

func (a addressed) RemoteAddr() net.Addr      { return a.remote }
func (addressed) SetDeadline(time.Time) error { return nil }
func (addressed) Write(b []byte) (int, error) { return len(b), nil }
func (addressed) Close() error                { return nil }
