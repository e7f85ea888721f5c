package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxDialed is how many of a name's addresses are tried.
	maxDialed = 8
	// dialStagger is the head start of one address before the next is tried as
	// well (RFC 8305 recommends 250 ms).
	dialStagger = 250 * time.Millisecond
)

// hop is what one request of an exchange tells the dialer by its context.
type hop struct {
	pool       string
	publicPort bool
	// started and connected count the dials for this hop.
	started, connected atomic.Int32

	by     time.Time                // when it must have begun; zero = no bound
	begun  atomic.Bool              // its body is on its way
	missed atomic.Bool              // it was given up before it was sent
	conn   atomic.Pointer[net.Conn] // whose writes by bounds
}

// connecting tells that a connection was still missing: the exchange never
// reached its destination.
func (h *hop) connecting() bool { return h.started.Load() > h.connected.Load() }

// watch is the context of a hop's request, which lets no byte of it leave after
// its time to begin. The transport sends the headers before it reads the body,
// so a connection that is this request's alone gets the bound itself; one that
// is shared looks at the context before it sends headers.
func (h *hop) watch(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, hopKey{}, h)
	if h.by.IsZero() {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			if c, ok := got.Conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
				if h.over() {
					h.missed.Store(true)
					cancel()
				}
				return
			}
			_ = got.Conn.SetWriteDeadline(h.by)
			h.conn.Store(&got.Conn)
		},
	})
}

// begin notes that the request is on its way: nothing bounds the rest of it.
func (h *hop) begin() {
	h.begun.Store(true)
	if conn := h.conn.Swap(nil); conn != nil {
		_ = (*conn).SetWriteDeadline(time.Time{})
	}
}

// over tells that the time to begin is over.
func (h *hop) over() bool {
	return !h.by.IsZero() && time.Now().After(h.by) //nolint:forbidigo // a bound in real time
}

// late tells that nothing was sent because the time to begin was over.
func (h *hop) late(err error) bool {
	return h.missed.Load() || !h.begun.Load() && errors.Is(err, os.ErrDeadlineExceeded)
}

func tooLate() *Error { return fail(Late, "the request was not sent: the time to begin it was over") }

type hopKey struct{}

// dialTool is the DialContext of the pools.
func (g *Guard) dialTool(ctx context.Context, _, address string) (net.Conn, error) {
	h, ok := ctx.Value(hopKey{}).(*hop)
	if !ok {
		return nil, fail(Refused, refusedText)
	}
	h.started.Add(1)
	host, port, err := splitDialAddress(address)
	if err != nil {
		return nil, err
	}
	conn, err := g.dial(ctx, h.pool, policy{host: host, publicPort: h.publicPort}, port)
	if err == nil {
		h.connected.Add(1)
	}
	return conn, err
}

func splitDialAddress(address string) (string, uint16, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, unreachable(err)
	}
	port, ok := parsePort(portText)
	if !ok {
		return "", 0, unreachable(errors.New("bad port"))
	}
	return host, port, nil
}

// dial resolves the host once, judges every answer and connects to one of
// them. The connect timeout covers both steps.
func (g *Guard) dial(ctx context.Context, poolName string, p policy, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.connectIn)
	defer cancel()
	addrs, err := g.resolve(ctx, p.host)
	if err != nil {
		return nil, unreachable(err)
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap()
		if rule := g.judge(p, netip.AddrPortFrom(addrs[i], port)); rule != "" {
			return nil, g.refuse(Refusal{Pool: poolName, Host: p.host, Port: port, Rule: rule, Address: a})
		}
	}
	// The socket's own address is judged once more: this is the decision that
	// counts, whatever happened on the way here.
	check := func(ap netip.AddrPort) error {
		if rule := g.judge(p, ap); rule != "" {
			return g.refuse(Refusal{Pool: poolName, Host: p.host, Port: port, Rule: rule, Address: ap.Addr()})
		}
		return nil
	}
	conn, err := g.race(ctx, addrs[:min(len(addrs), maxDialed)], port, check)
	if err != nil {
		var own *Error
		if errors.As(err, &own) {
			return nil, own
		}
		return nil, unreachable(err)
	}
	return conn, nil
}

func (g *Guard) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	addrs, err := g.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	// A resolver may share its slice; the caller rewrites it.
	return append([]netip.Addr(nil), addrs...), nil
}

// race connects to the addresses in order, each with a small head start, and
// returns the first connection; the others are closed.
func (g *Guard) race(ctx context.Context, addrs []netip.Addr, port uint16, check func(netip.AddrPort) error) (net.Conn, error) {
	if len(addrs) == 1 {
		return g.connect(ctx, netip.AddrPortFrom(addrs[0], port), check)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, len(addrs))
	started, ended := 0, 0
	next := func() {
		to := netip.AddrPortFrom(addrs[started], port)
		started++
		go func() {
			conn, err := g.connect(ctx, to, check)
			results <- result{conn, err}
		}()
	}
	next()
	stagger := time.NewTicker(dialStagger)
	defer stagger.Stop()
	var first error
	for ended < len(addrs) {
		select {
		case r := <-results:
			ended++
			if r.err == nil {
				cancel()
				for range started - ended {
					if late := <-results; late.err == nil {
						_ = late.conn.Close()
					}
				}
				return r.conn, nil
			}
			if first == nil {
				first = r.err
			}
			if started < len(addrs) {
				next()
				stagger.Reset(dialStagger)
			}
		case <-stagger.C:
			if started < len(addrs) {
				next()
			}
		}
	}
	return nil, first
}

// dialChecked connects with a socket whose control hook asks check about the
// very address handed to the kernel.
func dialChecked(ctx context.Context, to netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 4},
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			if network != "tcp4" && network != "tcp6" {
				return unreachable(errors.New("network " + strconv.Quote(network) + " is not TCP"))
			}
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return unreachable(err)
			}
			return check(ap)
		},
	}
	return d.DialContext(ctx, "tcp", to.String())
}
