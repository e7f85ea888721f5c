package egress

import (
	"net/netip"
	"strconv"
	"strings"
)

// allowExample ends every message about a malformed entry.
const allowExample = `write host:port or CIDR:port, for example "ollama.lan:11434,10.1.0.0/16:443,[fd00::/8]:443"`

// Entry is one destination the operator opens beyond the public internet: a
// host name, or a range of addresses, at one port. It opens nothing else.
type Entry struct {
	host   string // canonical name; empty for a range
	prefix netip.Prefix
	port   uint16
}

// String writes the entry as [ParseAllow] reads it.
func (e Entry) String() string {
	port := strconv.Itoa(int(e.port))
	switch {
	case e.host != "":
		return e.host + ":" + port
	case e.prefix.IsSingleIP():
		return netip.AddrPortFrom(e.prefix.Addr(), e.port).String()
	case e.prefix.Addr().Is6():
		return "[" + e.prefix.String() + "]:" + port
	}
	return e.prefix.String() + ":" + port
}

// covers tells whether the entry names this address and port.
func (e Entry) covers(a netip.Addr, port uint16) bool {
	return e.host == "" && e.port == port && e.prefix.Contains(a)
}

// ParseAllow reads HOB_EGRESS_ALLOW: a comma list of host:port or CIDR:port.
// IPv6 is written [fd00::1]:443, [fd00::/8]:443 or fd00::/8:443. An empty
// string opens nothing.
//
// A host entry holds for this exact name (case, final dot and IDNA form do not
// matter) and whatever addresses it resolves to, except link-local and cloud
// platform addresses: these need an entry by address, so that a name whose DNS
// somebody else controls cannot be pointed at a metadata service. A range entry
// holds for literal addresses and for the answers of any name.
//
// The error (Kind BadAllow) names the entry and shows an example.
func ParseAllow(s string) ([]Entry, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var entries []Entry
	for part := range strings.SplitSeq(s, ",") {
		e, err := parseEntry(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func badEntry(entry, why string) *Error {
	return fail(BadAllow, "HOB_EGRESS_ALLOW entry %q: %s; %s", entry, why, allowExample)
}

func parseEntry(s string) (Entry, error) {
	if s == "" {
		return Entry{}, badEntry(s, "is empty")
	}
	dest, portText, ok := cutPort(s)
	if !ok {
		return Entry{}, badEntry(s, "has no port")
	}
	port, ok := parsePort(portText)
	if !ok {
		return Entry{}, badEntry(s, "port must be a number from 1 to 65535")
	}
	if strings.Contains(dest, "/") {
		return rangeEntry(s, dest, port)
	}
	if a, err := netip.ParseAddr(dest); err == nil {
		if a.Zone() != "" {
			return Entry{}, badEntry(s, "addresses with a zone are never reachable")
		}
		a = a.Unmap()
		if rule := neverReachable(a); rule != "" {
			return Entry{}, badEntry(s, "multicast, broadcast and unspecified addresses are never reachable")
		}
		return Entry{prefix: netip.PrefixFrom(a, a.BitLen()), port: port}, nil
	}
	host, err := canonicalName(dest)
	if err != nil {
		return Entry{}, badEntry(s, "is neither a host name nor an address ("+err.Error()+")")
	}
	return Entry{host: host, port: port}, nil
}

func rangeEntry(s, dest string, port uint16) (Entry, error) {
	p, err := netip.ParsePrefix(dest)
	if err != nil {
		return Entry{}, badEntry(s, "is not a valid address range")
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return Entry{}, badEntry(s, "write IPv4 ranges in IPv4 form")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p.Masked() != p {
		// 10.0.0.5/8 opens sixteen million addresses to whoever meant one.
		one := netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		return Entry{}, badEntry(s, "has bits below its mask; write "+p.Masked().String()+" for the range or "+one.String()+" for the address")
	}
	return Entry{prefix: p, port: port}, nil
}

// cutPort splits destination and port and removes brackets around an address
// or range. An IPv6 address without brackets is ambiguous and not accepted; a
// range is not, since its length ends it.
func cutPort(s string) (dest, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return "", "", false
	}
	dest, port = s[:i], s[i+1:]
	if strings.HasPrefix(dest, "[") {
		inner, tail, closed := strings.Cut(dest[1:], "]")
		if !closed || !strings.Contains(inner, ":") {
			return "", "", false
		}
		if tail != "" && tail[0] != '/' {
			return "", "", false
		}
		return inner + tail, port, true
	}
	if strings.Contains(dest, ":") && !strings.Contains(dest, "/") {
		return "", "", false
	}
	return dest, port, true
}

// parsePort reads 1…65535 in its shortest decimal form.
func parsePort(s string) (uint16, bool) {
	if s == "" || s[0] < '1' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil
}
