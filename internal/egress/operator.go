package egress

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	// operatorIdlePerHost keeps the connections of many parallel streams for
	// the next ones.
	operatorIdlePerHost = 4096
	operatorIdleTimeout = 90 * time.Second
	// operatorBuffer holds a short answer whole, and is no larger because
	// thousands of streams are open at once.
	operatorBuffer = 8 << 10
)

// OperatorClient returns a streaming client for one base URL that the operator
// configured, such as a model provider's. It reaches exactly the scheme, host
// and port of that URL, on a private or loopback address too (link-local and
// cloud platform addresses only when written as an address), but never one of
// Hob's own listeners. Another origin is refused.
//
// It follows no redirect (the answer is the redirect), ignores proxy settings
// of the environment, asks for no compression, and bounds connecting but not
// the exchange: the request's context does that. Clients of one base URL share
// their connections, so pass only what the operator wrote, never what a user
// chose.
//
// The error has Kind BadURL, or Refused for one of Hob's own listeners. Errors
// of the client's calls wrap an [*Error] where the guard is their origin; they
// also name the URL, so keys belong in headers.
func (g *Guard) OperatorClient(baseURL string) (*http.Client, error) {
	t, err := parseURL(baseURL)
	if err != nil {
		return nil, err
	}
	if t.addr.IsValid() {
		if rule := g.prejudge(t, t.operatorPolicy()); rule != "" {
			return nil, g.refuse(Refusal{Host: t.host, Port: t.port, Rule: rule, Address: t.addr})
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, fail(Closed, "the server is shutting down")
	}
	origin := t.url.Scheme + "://" + t.url.Host
	o, ok := g.operators[origin]
	if !ok {
		o = g.newOperatorTransport(t)
		g.operators[origin] = o
	}
	return &http.Client{
		Transport:     o,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func (t *target) operatorPolicy() policy {
	return policy{host: t.host, operator: true}
}

// operatorTransport lets requests for one origin through.
type operatorTransport struct {
	guard     *Guard
	base      *target
	transport *http.Transport
}

func (g *Guard) newOperatorTransport(base *target) *operatorTransport {
	o := &operatorTransport{guard: g, base: base}
	t := g.newTransport(o.dial)
	t.MaxIdleConnsPerHost = operatorIdlePerHost
	t.IdleConnTimeout = operatorIdleTimeout
	t.ReadBufferSize = operatorBuffer
	t.WriteBufferSize = operatorBuffer / 2
	o.transport = t
	return o
}

// RoundTrip implements [http.RoundTripper].
func (o *operatorTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != o.base.url.Host || req.URL.Scheme != o.base.url.Scheme || req.URL.User != nil {
		t, err := newTarget(req.URL, "")
		if err == nil && !t.sameOrigin(o.base) {
			err = o.guard.refuse(Refusal{Host: t.host, Port: t.port, Rule: RuleOperatorBase, Address: t.addr})
		}
		if err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, err
		}
	}
	return o.transport.RoundTrip(req)
}

// dial connects to the base's host, whatever spelling the request used.
func (o *operatorTransport) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return o.guard.dial(ctx, "", o.base.operatorPolicy(), o.base.port)
}

// CloseIdleConnections lets [http.Client.CloseIdleConnections] through.
func (o *operatorTransport) CloseIdleConnections() { o.transport.CloseIdleConnections() }
