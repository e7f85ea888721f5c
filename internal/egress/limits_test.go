package egress_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hob/internal/egress"
)

func TestDo_TotalTimeCutsSlowSenders(t *testing.T) {
	t.Parallel()
	handlers := map[string]http.HandlerFunc{
		"no headers": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"slow body": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("."))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(5 * time.Millisecond)
			}
		},
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(60 * time.Millisecond)
			http.Redirect(w, r, "/again", http.StatusFound)
		},
	}
	for name, h := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, egress.Config{}, sites(), serve(t, h))
			begin := time.Now()
			_, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", Timeout: 150 * time.Millisecond, Redirects: 5})
			if kindOf(t, err) != egress.Timeout || !strings.Contains(err.Error(), "150ms") {
				t.Errorf("Do: %v, want Timeout", err)
			}
			if d := time.Since(begin); d > 2*time.Second {
				t.Errorf("Do returned after %v", d)
			}
		})
	}
}

func TestDo_ConnectTimeReadsLikeRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, egress.Config{ConnectTimeout: 50 * time.Millisecond}, sites(), netip.AddrPort{})
	stuck := &stuckDNS{}
	g := egress.New(egress.Config{Resolver: stuck, ConnectTimeout: 50 * time.Millisecond})
	slow := egress.New(egress.Config{Resolver: stuck})
	t.Cleanup(g.Close)
	t.Cleanup(slow.Close)
	for name, do := range map[string]func() error{
		"connect timeout": func() error {
			_, err := g.Do(t.Context(), egress.Request{URL: "http://a.example/"})
			return err
		},
		"total time while connecting": func() error {
			_, err := slow.Do(t.Context(), egress.Request{URL: "http://a.example/", Timeout: 50 * time.Millisecond})
			return err
		},
		"no such name": func() error {
			_, err := w.Do(t.Context(), egress.Request{URL: "http://nowhere.example/"})
			return err
		},
	} {
		if err := do(); kindOf(t, err) != egress.Unreachable || err.Error() != egress.RefusedText {
			t.Errorf("%s: %v, want Unreachable with the refusal text", name, err)
		}
	}
}

// stuckDNS answers when the caller gives up.
type stuckDNS struct{}

func (*stuckDNS) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDo_CancelledContextIsSaidSo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(t, egress.Config{}, sites(), serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	_, err := w.Do(ctx, egress.Request{URL: "http://a.example/"})
	if kindOf(t, err) != egress.Canceled {
		t.Errorf("Do: %v, want Canceled", err)
	}
}

func TestDo_HeaderCapHolds(t *testing.T) {
	t.Parallel()
	big := func(w http.ResponseWriter, _ *http.Request) {
		for i := range 70 {
			w.Header().Set(fmt.Sprintf("X-Filler-%d", i), strings.Repeat("a", 1<<10))
		}
	}
	fits := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Filler", strings.Repeat("a", 50<<10)) }
	for _, secure := range []bool{false, true} {
		for name, h := range map[string]http.HandlerFunc{"big": big, "fits": fits} {
			t.Run(fmt.Sprintf("%s secure=%t", name, secure), func(t *testing.T) {
				t.Parallel()
				w, scheme := newWorldTLS(t, h, secure, tls.VersionTLS12)
				_, err := w.Do(t.Context(), egress.Request{URL: scheme + "://example.com/", Timeout: 10 * time.Second})
				switch {
				case name == "fits" && err != nil:
					t.Errorf("50 KiB of headers: %v", err)
				case name == "big" && kindOf(t, err) != egress.TooLarge:
					t.Errorf("70 KiB of headers: %v (%v), want TooLarge", err, kindOf(t, err))
				}
			})
		}
	}
}

// newWorldTLS serves h over TLS with HTTP/2, or plainly.
func newWorldTLS(t *testing.T, h http.HandlerFunc, secure bool, version uint16) (*world, string) {
	t.Helper()
	if !secure {
		return newWorld(t, egress.Config{}, sites(), serve(t, h)), "http"
	}
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: max(version, tls.VersionTLS10)} //nolint:gosec // old versions are what the test is about
	s.Config.ErrorLog = log.New(io.Discard, "", 0)                                                // failed handshakes are expected
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return newWorld(t, egress.Config{RootCAs: roots}, sites(), hostAddr(t, s.URL)), "https"
}

func TestDo_TLSIsVerifiedAndModern(t *testing.T) {
	t.Parallel()
	proto := func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Proto)) }
	w, _ := newWorldTLS(t, proto, true, tls.VersionTLS13)
	// The test certificate is made out to example.com.
	res, err := w.Do(t.Context(), egress.Request{URL: "https://example.com/"})
	if err != nil || string(res.Body) != "HTTP/2.0" {
		t.Errorf("honest TLS: %v %v, want HTTP/2.0", res, err)
	}
	if _, err := w.Do(t.Context(), egress.Request{URL: "https://a.example/"}); kindOf(t, err) != egress.BadTLS {
		t.Errorf("certificate of another host: %v, want BadTLS", err)
	}
	unknown := newWorld(t, egress.Config{}, sites(), w.target(t))
	if _, err := unknown.Do(t.Context(), egress.Request{URL: "https://example.com/"}); kindOf(t, err) != egress.BadTLS {
		t.Errorf("unknown authority: %v, want BadTLS", err)
	}
	for version, fine := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true} {
		w, _ := newWorldTLS(t, proto, true, version)
		_, err := w.Do(t.Context(), egress.Request{URL: "https://example.com/"})
		if fine != (err == nil) || !fine && kindOf(t, err) != egress.BadTLS {
			t.Errorf("TLS version %x: %v, want accepted %t", version, err, fine)
		}
	}
}

func TestDo_GarbageIsABadResponse(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"no http":    "hello\r\n\r\n",
		"no answer":  "",
		"cut body":   "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
		"bad length": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello",
		"bad chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 4096))
					_, _ = c.Write([]byte(answer))
					_ = c.Close()
				}
			}()
			w := newWorld(t, egress.Config{}, sites(), netip.MustParseAddrPort(l.Addr().String()))
			if _, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", Timeout: soon}); kindOf(t, err) != egress.BadResponse {
				t.Errorf("Do: %v (%v), want BadResponse", err, kindOf(t, err))
			}
		})
	}
}

// connCount counts the connections a server accepts.
func connCount(t *testing.T, h http.HandlerFunc) (netip.AddrPort, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			n.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return hostAddr(t, s.URL), &n
}

func TestDo_ConnectionsAreKeptPerPoolAndNeverShared(t *testing.T) {
	t.Parallel()
	to, conns := connCount(t, ok)
	w := newWorld(t, egress.Config{Pools: 3}, sites(), to)
	for range 5 {
		for _, pool := range []string{"one", "two"} {
			if _, err := w.Do(t.Context(), egress.Request{Pool: pool, URL: "http://a.example/"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections for two pools, want 2", n)
	}
	for i := range 10 {
		if _, err := w.Do(t.Context(), egress.Request{Pool: fmt.Sprint(i), URL: "http://a.example/"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.PoolCount(); n != 3 {
		t.Errorf("%d pools kept, want the limit of 3", n)
	}
	w.Close()
	if _, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/"}); kindOf(t, err) != egress.Closed {
		t.Errorf("after Close: %v, want Closed", err)
	}
	if _, err := w.OperatorClient("http://a.example/"); kindOf(t, err) != egress.Closed {
		t.Errorf("OperatorClient after Close: %v, want Closed", err)
	}
}

func TestDo_ConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]egress.Config{"over all": {Concurrent: 3}, "per host": {PerHost: 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var now, most atomic.Int64
			release := make(chan struct{})
			to := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-release
				now.Add(-1)
			})
			w := newWorld(t, c, sites(), to)
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if _, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/"}); err != nil {
						t.Error(err)
					}
				})
			}
			for begin := time.Now(); now.Load() < 3; time.Sleep(time.Millisecond) {
				if time.Since(begin) > 10*time.Second {
					t.Error("the calls do not arrive")
					break
				}
			}
			_, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", Timeout: 30 * time.Millisecond})
			if kindOf(t, err) != egress.Busy {
				t.Errorf("no slot in time: %v, want Busy", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := w.Do(ctx, egress.Request{URL: "http://a.example/"}); kindOf(t, err) != egress.Canceled {
				t.Errorf("cancelled while waiting: %v, want Canceled", err)
			}
			if name == "per host" {
				go func() { time.Sleep(10 * time.Millisecond); close(release) }()
				if _, err := w.Do(t.Context(), egress.Request{URL: "http://b.example/"}); err != nil {
					t.Errorf("another host must not wait: %v", err)
				}
			} else {
				close(release)
			}
			wg.Wait()
			if m := most.Load(); name == "over all" && m > 3 || m > 4 {
				t.Errorf("%d at once", m)
			}
		})
	}
}

func TestDo_GatesOfIdleHostsAreDropped(t *testing.T) {
	t.Parallel()
	n := names{}
	for i := range egress.MaxIdleGates + 50 {
		n[fmt.Sprintf("h%d.example", i)] = [][]string{{"10.0.0.1"}}
	}
	w := newWorld(t, egress.Config{}, n, netip.AddrPort{})
	for host := range n {
		_, _ = w.Do(t.Context(), egress.Request{URL: "http://" + host + "/"})
	}
	if c := w.GateCount(); c > egress.MaxIdleGates {
		t.Errorf("%d gates kept, want at most %d", c, egress.MaxIdleGates)
	}
}
