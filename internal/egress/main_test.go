package egress_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"hob/internal/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Public test addresses: in no special registry, never really dialled.
const (
	pub4      = "93.184.215.14"
	pub4other = "151.101.1.69"
	pub6      = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
)

// names is a resolver with fixed answers. A name with several answer sets
// gives one per look-up and stays at the last.
type names map[string][][]string

type fakeDNS struct {
	mu      sync.Mutex
	names   names
	lookups map[string]int
}

func (f *fakeDNS) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sets, ok := f.names[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	n := f.lookups[host]
	f.lookups[host]++
	var out []netip.Addr
	for _, a := range sets[min(n, len(sets)-1)] {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

func (f *fakeDNS) count(host string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lookups[host]
}

// world is a guard whose public addresses lead to one local server, and a
// record of what it refused and dialled.
type world struct {
	*egress.Guard
	dns *fakeDNS
	to  netip.AddrPort

	mu       sync.Mutex
	refusals []egress.Refusal
	dialled  []netip.AddrPort
}

func newWorld(t *testing.T, c egress.Config, n names, to netip.AddrPort) *world {
	t.Helper()
	w := &world{dns: &fakeDNS{names: n, lookups: map[string]int{}}, to: to}
	c.Resolver = w.dns
	c.Refused = func(r egress.Refusal) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.refusals = append(w.refusals, r)
	}
	w.Guard = egress.New(c)
	t.Cleanup(w.Close)
	w.MapDial(func(ap netip.AddrPort) (netip.AddrPort, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dialled = append(w.dialled, ap)
		public := ap.Addr() == netip.MustParseAddr(pub4) || ap.Addr() == netip.MustParseAddr(pub4other) || ap.Addr() == netip.MustParseAddr(pub6)
		return to, public
	})
	return w
}

func (w *world) refused() []egress.Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]egress.Refusal(nil), w.refusals...)
}

func (w *world) dials() []netip.AddrPort {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]netip.AddrPort(nil), w.dialled...)
}

// serve starts a local server and returns its address.
func serve(t *testing.T, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return hostAddr(t, s.URL)
}

func hostAddr(t *testing.T, raw string) netip.AddrPort {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddrPort(u.Host)
}

// serveOn is serve on a given address; it fails the test when the machine
// lacks the address.
func serveOn(t *testing.T, addr string, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}} //nolint:gosec // a test server
	s.Start()
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(l.Addr().String())
}

func allow(t *testing.T, s string) []egress.Entry {
	t.Helper()
	e, err := egress.ParseAllow(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// kindOf returns the kind of an error that must be of this package.
func kindOf(t *testing.T, err error) egress.Kind {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *egress.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %T (%v) is not *egress.Error", err, err)
	}
	return e.Kind
}

func ruleOf(err error) egress.Rule {
	var e *egress.Error
	if errors.As(err, &e) && e.Refusal != nil {
		return e.Refusal.Rule
	}
	return ""
}

func portOf(a netip.AddrPort) string { return strconv.Itoa(int(a.Port())) }

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }

// soon is a total time for exchanges that must not succeed.
const soon = 2 * time.Second

// target is where the world's public addresses lead.
func (w *world) target(t *testing.T) netip.AddrPort {
	t.Helper()
	if !w.to.IsValid() {
		t.Fatal("this world leads nowhere")
	}
	return w.to
}

func benchServer(b *testing.B) (netip.AddrPort, func()) {
	b.Helper()
	s := httptest.NewServer(http.HandlerFunc(ok))
	u, err := url.Parse(s.URL)
	if err != nil {
		b.Fatal(err)
	}
	return netip.MustParseAddrPort(u.Host), s.Close
}
