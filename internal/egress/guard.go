package egress

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Limits and their defaults. Those with a field of the same meaning in
// [Config] or [Request] can be changed there.
const (
	DefaultTimeout        = 30 * time.Second // of one exchange, redirects included
	DefaultConnectTimeout = 5 * time.Second  // look-up and connect of one connection
	DefaultTLSTimeout     = 5 * time.Second  // TLS handshake
	DefaultIdleTimeout    = 60 * time.Second // after which an unused connection closes
	DefaultMaxBody        = 2 << 20          // bytes of a response body after decompression
	DefaultConcurrent     = 4096             // exchanges of Do at once
	DefaultPerHost        = 256              // of these, to one host
	DefaultPools          = 256              // connection pools kept at once
	DefaultUserAgent      = "hob"

	MaxHeaderBytes = 64 << 10 // headers, of a request and of a response
	MaxRedirects   = 5        // highest Request.Redirects

	// A silent HTTP/2 connection is pinged, so that a dead one is not used
	// again and streams on it end.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second

	maxRatio     = 100     // decompressed bytes per received byte …
	ratioFreeLen = 1 << 20 // … once this many bytes were unpacked
)

// Resolver looks up the addresses of a name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config says what a [Guard] allows. The zero value allows the public internet
// on ports 80 and 443.
type Config struct {
	// Allow holds the operator's extra destinations, see [ParseAllow].
	Allow []Entry
	// Own returns the addresses Hob itself listens on; wildcard addresses
	// stand for every address of the machine. They are never reachable, even
	// where Allow covers them. It is called per connection and may change its
	// answer; nil means none.
	Own func() []netip.AddrPort
	// Resolver looks names up; nil means the resolver written in Go, since the
	// C library's takes spellings for addresses that URL parsers take for names.
	Resolver Resolver
	// Refused is told of every refusal, on the goroutine that met it; it must
	// return quickly and be safe for concurrent use. May be nil.
	Refused func(Refusal)

	// RootCAs verifies servers; nil means the system's roots.
	RootCAs *x509.CertPool
	// UserAgent is sent where a request brings none; "" means DefaultUserAgent.
	UserAgent string

	ConnectTimeout time.Duration // 0 means DefaultConnectTimeout
	TLSTimeout     time.Duration // 0 means DefaultTLSTimeout
	IdleTimeout    time.Duration // 0 means DefaultIdleTimeout
	Concurrent     int           // exchanges of Do at once; 0 means DefaultConcurrent
	PerHost        int           // exchanges of Do at once to one host; 0 means DefaultPerHost
	Pools          int           // connection pools kept; the least used one closes first; 0 means DefaultPools
}

// Guard decides on and carries out every outbound exchange. It is safe for
// concurrent use. Close it to release idle connections.
type Guard struct {
	allow    []Entry
	own      func() []netip.AddrPort
	resolver Resolver
	refused  func(Refusal)
	ranges   ranges

	userAgent string
	roots     *x509.CertPool
	connectIn time.Duration
	tlsIn     time.Duration
	idleIn    time.Duration

	slots *slots
	gzips sync.Pool // of *unzipper

	// connect opens a connection to a judged address and calls check with the
	// address the socket is about to connect to. Tests replace it to lead
	// public addresses to a local server after the judgement.
	connect func(ctx context.Context, to netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error)
	// isLocal tells whether an interface of the machine has the address.
	isLocal func(netip.Addr) bool

	mu        sync.Mutex
	closed    bool
	maxPools  int
	perHost   int
	pools     map[string]*list.Element // of *pool
	recent    list.List                // pools, the last used first
	operators map[string]*operatorTransport
}

// pool is the transport of one pooling class.
type pool struct {
	name      string
	transport *http.Transport
}

// New returns a guard. Values of Config below zero count as zero.
func New(c Config) *Guard {
	g := &Guard{
		allow:     append([]Entry(nil), c.Allow...),
		own:       c.Own,
		resolver:  c.Resolver,
		refused:   c.Refused,
		ranges:    newRanges(),
		userAgent: cmp.Or(c.UserAgent, DefaultUserAgent),
		roots:     c.RootCAs,
		connectIn: orDefault(c.ConnectTimeout, DefaultConnectTimeout),
		tlsIn:     orDefault(c.TLSTimeout, DefaultTLSTimeout),
		idleIn:    orDefault(c.IdleTimeout, DefaultIdleTimeout),
		connect:   dialChecked,
		isLocal:   interfaceHas,
		maxPools:  orDefault(c.Pools, DefaultPools),
		perHost:   orDefault(c.PerHost, DefaultPerHost),
		pools:     map[string]*list.Element{},
		operators: map[string]*operatorTransport{},
	}
	if g.resolver == nil {
		g.resolver = &net.Resolver{PreferGo: true}
	}
	g.slots = newSlots(orDefault(c.Concurrent, DefaultConcurrent), g.perHost)
	return g
}

func orDefault[T ~int | ~int64](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Close closes the idle connections of every pool and operator client. Later
// calls of Do fail with Kind Closed; exchanges under way end by themselves.
func (g *Guard) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for e := g.recent.Front(); e != nil; e = e.Next() {
		e.Value.(*pool).transport.CloseIdleConnections()
	}
	for _, o := range g.operators {
		o.transport.CloseIdleConnections()
	}
}

// transport returns the transport of a pool and marks it as just used. The
// least recently used pool beyond the limit is dropped: its idle connections
// close now, those in use when their exchange ends.
func (g *Guard) transport(name string) (*http.Transport, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, fail(Closed, "the server is shutting down")
	}
	if e, ok := g.pools[name]; ok {
		g.recent.MoveToFront(e)
		return e.Value.(*pool).transport, nil
	}
	p := &pool{name: name, transport: g.newTransport(g.dialTool)}
	p.transport.MaxIdleConnsPerHost = g.perHost
	g.pools[name] = g.recent.PushFront(p)
	if g.recent.Len() > g.maxPools {
		last := g.recent.Back()
		old := g.recent.Remove(last).(*pool)
		delete(g.pools, old.name)
		old.transport.CloseIdleConnections()
	}
	return p.transport, nil
}

// closePool closes the idle connections of a pool, if there is one.
func (g *Guard) closePool(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e, ok := g.pools[name]; ok {
		e.Value.(*pool).transport.CloseIdleConnections()
	}
}

// newTransport is the base of every transport: no proxy, verified TLS of at
// least 1.2, bounded headers, no automatic decompression (the transport's own
// has no bound).
func (g *Guard) newTransport(dial func(context.Context, string, string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // the environment's proxies would see and reach what the guard forbids
		DialContext:            dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: g.roots, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
		TLSHandshakeTimeout:    g.tlsIn,
		IdleConnTimeout:        g.idleIn,
		DisableCompression:     true,
		MaxResponseHeaderBytes: MaxHeaderBytes,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// report tells the operator of a refusal.
func (g *Guard) report(r Refusal) {
	if g.refused != nil {
		g.refused(r)
	}
}

// refuse reports a refusal and returns its error.
func (g *Guard) refuse(r Refusal) *Error {
	g.report(r)
	return &Error{Kind: Refused, Message: refusedText, Refusal: &r}
}
