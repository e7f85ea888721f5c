package egress_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob/internal/egress"
)

// sites are names that all lead to the local server by public addresses.
func sites() names {
	return names{"a.example": {{pub4}}, "b.example": {{pub4other}}, "api.example.com": {{pub4}}, "x.api.example.com": {{pub4}},
		"example.com": {{pub4}}, "evilexample.com": {{pub4}}, "private.example": {{"10.0.0.1"}}}
}

func TestDo_SendsTheRequestAsGiven(t *testing.T) {
	t.Parallel()
	var got string
	to := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = fmt.Sprintf("%s %s host=%s ct=%s auth=%s ua=%s body=%s", r.Method, r.URL, r.Host,
			r.Header.Get("Content-Type"), r.Header.Get("Authorization"), r.UserAgent(), body)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("short"))
	})
	w := newWorld(t, egress.Config{UserAgent: "hob/test"}, sites(), to)
	head := http.Header{"content-type": {"application/json"}, "Authorization": {"Bearer s"}}
	res, err := w.Do(t.Context(), egress.Request{Method: "post", URL: "http://A.example.:80/p%2Fq?x=1#frag", Header: head, Body: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	want := "POST /p%2Fq?x=1 host=a.example ct=application/json auth=Bearer s ua=hob/test body={}"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if res.Status != http.StatusTeapot || string(res.Body) != "short" || res.Truncated || res.Header.Get("X-Answer") != "yes" {
		t.Errorf("response %+v", res)
	}
	if res.URL != "http://a.example/p%2Fq?x=1" {
		t.Errorf("final URL %q", res.URL)
	}
	if len(head) != 2 {
		t.Errorf("the caller's headers were changed: %v", head)
	}
}

func TestDo_IgnoresProxiesOfTheEnvironment(t *testing.T) {
	// Not parallel: it changes the environment.
	to := serve(t, ok)
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://"+proxy.String())
	}
	w := newWorld(t, egress.Config{}, sites(), to)
	if res, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/"}); err != nil || res.Status != 200 {
		t.Errorf("Do: %v %v", res, err)
	}
	client, err := w.OperatorClient("http://a.example/v1")
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Get("http://a.example/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("operator client: status %d, the proxy's", res.StatusCode)
	}
}

func TestDo_AllowedHostsLimitEverything(t *testing.T) {
	t.Parallel()
	to := serve(t, ok)
	tests := []struct {
		list, url string
		want      bool
	}{
		{"", "http://a.example/", true},
		{"a.example", "http://a.example/", true},
		{"A.Example.", "http://a.example/x", true},
		{"a.example,b.example", "https://b.example.:80/", false}, // TLS on a plain port: reached, but fails
		{"a.example", "http://b.example/", false},
		{"a.example", "http://" + pub4 + "/", false},
		{pub4, "http://" + pub4 + "/", true},
		{"example.com", "http://api.example.com/", false},
		{"*.example.com", "http://api.example.com/", true},
		{"*.example.com", "http://x.api.example.com/", true},
		{"*.example.com", "http://example.com/", false},
		{"*.example.com", "http://evilexample.com/", false},
		{"*.example", "http://" + pub4 + "/", false},
		{"a.example:8443", "http://a.example:8443/", true},
		{"a.example:8443", "http://a.example/", false},
		{"a.example", "http://a.example:8443/", false},
		{"a.example:80", "http://a.example/", true},
		{"*.example.com:8080", "http://api.example.com:8080/", true},
		{"a.example/v1", "http://a.example/v1", true},
		{"a.example/v1", "http://a.example/v1/x", true},
		{"a.example/v1/", "http://a.example/v1/x", true},
		{"a.example/v1/", "http://a.example/v1", false},
		{"a.example/v1", "http://a.example/v12", false},
		{"a.example/v1", "http://a.example/", false},
		{"a.example/v1", "http://a.example/v1/../admin", false},
		{"a.example/v1", "http://a.example/v1/%2e%2e/admin", false},
		{"a.example/v1", "http://a.example/v1/..%2fadmin", false},
		{"a.example/v1", "http://a.example//v1", false},
		{"a.example/v1", "http://a.example/v1/..;/admin", false},
		{"a.example/v1", "http://a.example/v1/%252e%252e/admin", false},
		// a list never opens what is private
		{"private.example", "http://private.example/", false},
		{"10.0.0.1:80", "http://10.0.0.1/", false},
		{"private.example:8080", "http://private.example:8080/", false},
	}
	for _, tt := range tests {
		t.Run(tt.list+" "+tt.url, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, egress.Config{}, sites(), to)
			var list []string
			if tt.list != "" {
				list = strings.Split(tt.list, ",")
			}
			res, err := w.Do(t.Context(), egress.Request{URL: tt.url, AllowedHosts: list, Timeout: soon})
			if got := err == nil && res.Status == 200; got != tt.want {
				t.Errorf("Do(%s) with %q: %v %v, want allowed %t", tt.url, tt.list, res, err, tt.want)
			}
			if err != nil && strings.HasPrefix(tt.url, "http:") && err.Error() != egress.RefusedText {
				t.Errorf("text %q", err)
			}
		})
	}
	w := newWorld(t, egress.Config{}, sites(), to)
	if _, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", AllowedHosts: []string{"*"}}); kindOf(t, err) != egress.BadRequest {
		t.Errorf("a malformed list: %v, want BadRequest", err)
	}
}

func TestDo_ModelMaySetOnlyHarmlessHeaders(t *testing.T) {
	t.Parallel()
	to := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Header.Get("X-Probe"))) })
	w := newWorld(t, egress.Config{}, sites(), to)
	do := func(fromModel bool, name, value string) error {
		_, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", ModelHeaders: fromModel, Header: http.Header{name: {value}}})
		return err
	}
	harmless := []string{"Accept", "accept", "Accept-Language", "Content-Type", "User-Agent", "If-None-Match", "If-Modified-Since",
		"Cache-Control", "Range", "Prefer", "Idempotency-Key", "X-Probe", "x-custom-thing", "X-Request-Id"}
	secret := []string{"Authorization", "authorization", "Cookie", "Cookie2", "Origin", "Referer", "Www-Authenticate", "X-Forwarded-For",
		"X-Forwarded", "X-Real-IP", "x-http-method-override", "X-Original-URL", "X_Under", "X-Under_Score", "Api-Key", "Metadata", "Metadata-Flavor"}
	ours := []string{"Host", "host", "Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "content-length", "Content-Encoding", "Accept-Encoding", "Expect", "Forwarded", "Via"}
	malformed := []string{"", "A B", "A:B", "A\r\nB", "Ä", "A(B)"}
	for _, h := range harmless {
		if err := do(true, h, "1"); err != nil {
			t.Errorf("header %q from a model: %v", h, err)
		}
	}
	for _, h := range secret {
		if err := do(true, h, "1"); kindOf(t, err) != egress.BadRequest || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(`"`+h+`"`)) {
			t.Errorf("header %q from a model: %v, want an error that names it", h, err)
		}
		if err := do(false, h, "1"); err != nil {
			t.Errorf("header %q from the tool's maker: %v", h, err)
		}
	}
	for _, h := range slices.Concat(ours, malformed) {
		for _, model := range []bool{true, false} {
			if err := do(model, h, "1"); kindOf(t, err) != egress.BadRequest {
				t.Errorf("header %q (model %t): %v, want BadRequest", h, model, err)
			}
		}
	}
	for _, v := range []string{"a\r\nHost: b", "a\nb", "a\x00b", "a\x7fb"} {
		if err := do(false, "X-Probe", v); kindOf(t, err) != egress.BadRequest {
			t.Errorf("value %q: %v, want BadRequest", v, err)
		}
	}
	if err := do(false, "X-Probe", strings.Repeat("a", egress.MaxHeaderBytes)); kindOf(t, err) != egress.BadRequest {
		t.Errorf("headers above the cap: %v, want BadRequest", err)
	}
	many := http.Header{"X-Probe": slices.Repeat([]string{"a"}, 101)}
	if _, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", Header: many}); kindOf(t, err) != egress.BadRequest {
		t.Errorf("101 header values: %v, want BadRequest", err)
	}
}

func TestDo_ChecksMethodAndLimits(t *testing.T) {
	t.Parallel()
	to := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Method", r.Method) })
	w := newWorld(t, egress.Config{}, sites(), to)
	for in, want := range map[string]string{"": "GET", "get": "GET", "Head": "HEAD", "PUT": "PUT", "patch": "PATCH", "DELETE": "DELETE", "options": "OPTIONS", "PROPFIND": "PROPFIND"} {
		res, err := w.Do(t.Context(), egress.Request{Method: in, URL: "http://a.example/"})
		if err != nil || res.Header.Get("X-Method") != want {
			t.Errorf("method %q: %v %v, want %s", in, res, err, want)
		}
	}
	for _, bad := range []string{"CONNECT", "trace", "GET /", "A B", "G\r\nET", "ÄT", strings.Repeat("A", 33)} {
		if _, err := w.Do(t.Context(), egress.Request{Method: bad, URL: "http://a.example/"}); kindOf(t, err) != egress.BadRequest {
			t.Errorf("method %q: %v, want BadRequest", bad, err)
		}
	}
	for _, r := range []egress.Request{{Redirects: -1}, {Redirects: egress.MaxRedirects + 1}, {MaxBody: -1}, {Timeout: -1}} {
		r.URL = "http://a.example/"
		if _, err := w.Do(t.Context(), r); kindOf(t, err) != egress.BadRequest {
			t.Errorf("%+v: %v, want BadRequest", r, err)
		}
	}
	if _, err := w.Do(t.Context(), egress.Request{URL: "http://127.1/"}); kindOf(t, err) != egress.BadURL {
		t.Errorf("odd address: %v, want BadURL", err)
	}
}

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
	s.Config.ErrorLog = nil
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
