package egress

import (
	"context"
	"net"
	"net/netip"
)

// MapDial leads connections to some judged addresses elsewhere. The judgement
// of the guard, the socket's check included, sees the original address. An
// invalid address stands for a host that never answers.
func (g *Guard) MapDial(to func(netip.AddrPort) (netip.AddrPort, bool)) {
	g.connect = func(ctx context.Context, ap netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
		local, ok := to(ap)
		if !ok {
			return dialChecked(ctx, ap, check)
		}
		if err := check(ap); err != nil {
			return nil, err
		}
		if !local.IsValid() { // a host that drops every packet
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", local.String())
	}
}

// SetLocal replaces the list of the machine's own addresses.
func (g *Guard) SetLocal(isLocal func(netip.Addr) bool) { g.isLocal = isLocal }

// PoolCount tells how many pools are kept.
func (g *Guard) PoolCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pools)
}

// GateCount tells how many hosts have a gate.
func (g *Guard) GateCount() int {
	g.slots.mu.Lock()
	defer g.slots.mu.Unlock()
	return len(g.slots.gates)
}

const (
	RefusedText  = refusedText
	MaxIdleGates = maxIdleGates
)

// DialChecked is the production dialer.
func DialChecked(ctx context.Context, to netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	return dialChecked(ctx, to, check)
}

// ParseURL returns the canonical text of a URL, for the fuzz target.
func ParseURL(raw string) (canonical, host string, addr netip.Addr, port uint16, err error) {
	t, err := parseURL(raw)
	if err != nil {
		return "", "", netip.Addr{}, 0, err
	}
	return t.url.String(), t.host, t.addr, t.port, nil
}
