package egress

import (
	"net"
	"net/netip"

	"code.dny.dev/ssrf"
)

// platformRanges are services that cloud providers offer to their machines.
// Those in public address space pass every list of special addresses, yet give
// out credentials or reach the provider's inside; the others are listed so that
// a refusal names them.
func platformRanges() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("168.63.129.16/32"),       // Azure wire server, DNS and health probes
		netip.MustParsePrefix("161.26.0.0/16"),          // IBM Cloud services
		netip.MustParsePrefix("166.8.0.0/14"),           // IBM Cloud service endpoints
		netip.MustParsePrefix("192.80.8.124/32"),        // Equinix Metal metadata
		netip.MustParsePrefix("199.36.153.4/30"),        // Google restricted API addresses
		netip.MustParsePrefix("199.36.153.8/30"),        // Google private API addresses
		netip.MustParsePrefix("2600:2d00:2:1000::/56"),  // the same two for IPv6
		netip.MustParsePrefix("2600:2d00:2:2000::/56"),  //
		netip.MustParsePrefix("169.254.169.254/32"),     // metadata of most providers
		netip.MustParsePrefix("169.254.170.2/32"),       // Amazon container credentials
		netip.MustParsePrefix("169.254.170.23/32"),      // Amazon pod identity
		netip.MustParsePrefix("169.254.42.42/32"),       // Scaleway metadata
		netip.MustParsePrefix("169.254.0.23/32"),        // Tencent metadata
		netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba metadata
		netip.MustParsePrefix("100.88.222.5/32"),        // Tencent metadata
		netip.MustParsePrefix("192.0.0.192/32"),         // Oracle metadata, classic
		netip.MustParsePrefix("fd00:ec2::/32"),          // Amazon metadata, DNS and time
		netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle metadata
		netip.MustParsePrefix("fd00:42::42/128"),        // Scaleway metadata
		netip.MustParsePrefix("fd00:a9fe:a9fe::/48"),    // Akamai metadata
		netip.MustParsePrefix("fd20:ce::254/128"),       // Google metadata
		netip.MustParsePrefix("fe80::a9fe:a9fe/128"),    // OpenStack metadata
	}
}

// ranges are the immutable lists a guard judges by.
type ranges struct {
	platform []netip.Prefix
	shared   netip.Prefix // carrier-grade NAT
	nat64    netip.Prefix
	nat64own netip.Prefix
	sixToFour,
	teredo netip.Prefix
	public *ssrf.Guardian // the IANA special-purpose registries
}

func newRanges() ranges {
	return ranges{
		platform:  platformRanges(),
		shared:    netip.MustParsePrefix("100.64.0.0/10"),
		nat64:     ssrf.IPv6NAT64Prefix,
		nat64own:  netip.MustParsePrefix("64:ff9b:1::/48"),
		sixToFour: netip.MustParsePrefix("2002::/16"),
		teredo:    netip.MustParsePrefix("2001::/32"),
		public:    ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork()),
	}
}

func (r *ranges) isPlatform(a netip.Addr) bool {
	for _, p := range r.platform {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// special names the rule that keeps a canonical address out of the public
// internet; "" means it is public.
func (r *ranges) special(a netip.Addr) Rule {
	switch {
	case r.isPlatform(a):
		return RulePlatform
	case a.IsLoopback():
		return RuleLoopback
	case a.IsPrivate(), r.shared.Contains(a):
		return RulePrivate
	case a.IsLinkLocalUnicast():
		return RuleLinkLocal
	}
	if v4, ok := r.embedded(a); ok {
		if neverReachable(v4) != "" || r.special(v4) != "" {
			return RuleEmbedded
		}
	}
	if r.public.SafeAddr(a) != nil {
		return RuleSpecial
	}
	return ""
}

// embedded returns the IPv4 address that an IPv6 form carries and that a
// gateway or tunnel may deliver to: IPv4-compatible, IPv4-translated, NAT64,
// 6to4, Teredo, ISATAP. IPv4-mapped addresses are unwrapped earlier: the
// kernel itself treats them as IPv4.
func (r *ranges) embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	tail := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case r.nat64.Contains(a), r.nat64own.Contains(a):
		return tail, true
	case r.sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case r.teredo.Contains(a): // the client's address is stored inverted
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	case (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return tail, true
	}
	if [8]byte(b[:8]) != [8]byte{} {
		return netip.Addr{}, false
	}
	switch [4]byte(b[8:12]) {
	case [4]byte{0xff, 0xff, 0, 0}: // ::ffff:0:a.b.c.d
		return tail, true
	case [4]byte{}: // ::a.b.c.d, of which :: and ::1 are something else
		return tail, !a.IsUnspecified() && !a.IsLoopback()
	}
	return netip.Addr{}, false
}

// neverReachable names the rule for addresses that no allow entry opens.
func neverReachable(a netip.Addr) Rule {
	switch {
	case a.Zone() != "":
		return RuleZone
	case a.IsUnspecified():
		return RuleUnspecified
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return RuleMulticast
	}
	return ""
}

// policy is what a request brings to the judgement of an address.
type policy struct {
	host string // canonical name or literal, compared with host entries
	// publicPort: the port is open for public addresses.
	publicPort bool
	// operator: host and port were written by the operator, like a host entry.
	operator bool
}

// judge returns the rule that forbids dialling the address, or "". The order
// matters: what is never reachable and Hob's own listeners come before every
// allowance.
func (g *Guard) judge(p policy, ap netip.AddrPort) Rule {
	a, port := ap.Addr().Unmap(), ap.Port()
	if rule := neverReachable(a); rule != "" {
		// Operators write 0.0.0.0 for "the server on this machine", as the
		// servers themselves print it.
		if !p.operator || rule != RuleUnspecified {
			return rule
		}
	}
	v4, embeds := g.ranges.embedded(a)
	if g.isOwn(a, port) || embeds && g.isOwn(v4, port) {
		return RuleOwnListener
	}
	for _, e := range g.allow {
		if !e.covers(a, port) {
			continue
		}
		// A range opens what it names, not what a translator behind it
		// reaches; a single address is named outright.
		if embeds && !e.prefix.IsSingleIP() {
			inner := policy{host: p.host, publicPort: true}
			if g.judge(inner, netip.AddrPortFrom(v4, port)) != "" {
				return RuleEmbedded
			}
		}
		return ""
	}
	rule := g.ranges.special(a)
	if p.operator || g.allowsHost(p.host, port) {
		literal := p.operator && a.String() == p.host
		if literal || rule != RuleLinkLocal && rule != RulePlatform && !g.embedsGuarded(v4, embeds) {
			return ""
		}
	}
	if rule == "" && !p.publicPort {
		return RulePort
	}
	return rule
}

// embedsGuarded tells whether an embedded IPv4 address is one that a host
// entry does not open.
func (g *Guard) embedsGuarded(v4 netip.Addr, embeds bool) bool {
	return embeds && (v4.IsLinkLocalUnicast() || g.ranges.isPlatform(v4))
}

func (g *Guard) allowsHost(host string, port uint16) bool {
	for _, e := range g.allow {
		if e.port == port && e.host != "" && e.host == host {
			return true
		}
	}
	return false
}

// mayReach tells whether any entry could open the port for a name whose
// addresses are not known yet.
func (g *Guard) mayReach(host string, port uint16) bool {
	for _, e := range g.allow {
		if e.port == port && (e.host == "" || e.host == host) {
			return true
		}
	}
	return false
}

// isOwn tells whether the address leads to one of Hob's own listeners. A
// listener on a wildcard address answers on every address of the machine. One
// on a loopback address is taken to answer on all of them: that refuses a
// little more than needed and leaves no alias to find.
func (g *Guard) isOwn(a netip.Addr, port uint16) bool {
	if g.own == nil {
		return false
	}
	here := func(x netip.Addr) bool { return x.IsLoopback() || x.IsUnspecified() }
	for _, l := range g.own() {
		if l.Port() != port {
			continue
		}
		addr := l.Addr().Unmap().WithZone("")
		switch {
		case addr == a, here(a) && here(addr):
			return true
		case addr.IsUnspecified() && g.isLocal(a):
			return true
		}
	}
	return false
}

// interfaceHas tells whether an interface of this machine has the address. It
// asks the kernel each time: addresses come and go, and only a port that
// equals one of Hob's own leads here. When the kernel cannot be asked, every
// address counts as local.
func interfaceHas(a netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, x := range addrs {
		n, ok := x.(*net.IPNet)
		if !ok {
			continue
		}
		if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == a {
			return true
		}
	}
	return false
}
