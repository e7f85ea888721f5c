package egress

import (
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// hostPattern is one parsed entry of [Request.AllowedHosts].
type hostPattern struct {
	host   string // canonical; for suffix patterns without "*"
	suffix bool   // *.host: any name below host, not host itself
	port   uint16 // 0 = any port that is open anyway
	path   string // "" = any
}

// CheckAllowedHosts judges a list for [Request.AllowedHosts] when it is
// written. The error (Kind BadRequest) names the entry.
func CheckAllowedHosts(list []string) error {
	for _, s := range list {
		if _, err := parsePattern(s); err != nil {
			return err
		}
	}
	return nil
}

func parsePattern(s string) (hostPattern, error) {
	bad := func(why string) (hostPattern, error) {
		return hostPattern{}, fail(BadRequest, "allowed host %q: %s; write api.example.com, api.example.com:8443, *.example.com or api.example.com/v1", s, why)
	}
	if strings.Contains(s, "://") {
		return bad("leave out the scheme")
	}
	var p hostPattern
	rest := s
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		if rest, p.path = rest[:i], rest[i:]; p.path == "/" {
			p.path = ""
		}
		if !plainPath(p.path) {
			return bad("the path must be plain, without dot segments or escaped separators")
		}
	}
	if tail, ok := strings.CutPrefix(rest, "*."); ok {
		rest, p.suffix = tail, true
	}
	t := target{}
	if err := t.readHost(rest); err != nil {
		return bad(strings.TrimPrefix(err.Error(), "URL not accepted: "))
	}
	if p.suffix && t.addr.IsValid() {
		return bad("a wildcard needs a name")
	}
	p.host = t.host
	if portWritten(rest) {
		p.port = t.port
	}
	return p, nil
}

func portWritten(hostport string) bool {
	if strings.HasPrefix(hostport, "[") {
		return strings.Contains(hostport, "]:") && !strings.HasSuffix(hostport, ":")
	}
	return strings.Contains(hostport, ":") && !strings.HasSuffix(hostport, ":")
}

// plainPath tells whether a path reads the same to every server: no dot
// segments, no doubled or escaped separators, no escaped dots, no parameters
// that some servers cut off.
func plainPath(escaped string) bool {
	if escaped == "" {
		return true
	}
	lower := strings.ToLower(escaped)
	for _, bad := range [...]string{"%2f", "%5c", "%2e", "%25", "\\", ";", "//"} {
		if strings.Contains(lower, bad) {
			return false
		}
	}
	clean := path.Clean(escaped)
	return clean == escaped || clean+"/" == escaped
}

// admits tells whether the pattern covers the target.
func (p *hostPattern) admits(t *target) bool {
	switch {
	case p.port != 0 && p.port != t.port:
		return false
	case p.suffix:
		if t.addr.IsValid() || !strings.HasSuffix(t.host, p.host) {
			return false
		}
		if n := len(t.host) - len(p.host); n < 2 || t.host[n-1] != '.' {
			return false
		}
	case p.host != t.host:
		return false
	}
	if p.path == "" {
		return true
	}
	got := t.url.EscapedPath()
	if !plainPath(got) {
		return false
	}
	below, ok := strings.CutPrefix(got, strings.TrimSuffix(p.path, "/"))
	return ok && (below == "" && !strings.HasSuffix(p.path, "/") || strings.HasPrefix(below, "/"))
}

// admit applies a list to a target. An empty list admits everything. explicit
// tells that the admitting entry named the port, which opens it on public
// addresses.
func admit(list []string, t *target) (admitted, explicit bool, err error) {
	if len(list) == 0 {
		return true, false, nil
	}
	for _, s := range list {
		p, err := parsePattern(s)
		if err != nil {
			return false, false, err
		}
		if p.admits(t) {
			admitted = true
			explicit = explicit || p.port != 0
		}
	}
	return admitted, explicit, nil
}

// CheckURL judges a URL when it is stored, for example as the endpoint of a
// tool. It refuses what no call could ever reach: other schemes than http and
// https, credentials, control characters, odd escapes and spellings (Kind
// BadURL), and literal addresses or ports that neither the public internet nor
// HOB_EGRESS_ALLOW opens (Kind Refused). Names are judged at each call, since
// their addresses change.
func (g *Guard) CheckURL(raw string) error {
	t, err := parseURL(raw)
	if err != nil {
		return err
	}
	return g.checkTarget(t)
}

func (g *Guard) checkTarget(t *target) error {
	rule := g.prejudge(t, policy{host: t.host, publicPort: isWebPort(t.port)})
	if rule == "" {
		return nil
	}
	r := Refusal{Host: t.host, Port: t.port, Rule: rule, Address: t.addr}
	g.report(r)
	var why string
	switch rule {
	case RuleOwnListener:
		return &Error{Kind: Refused, Refusal: &r, Message: "URL not allowed: it leads to this server itself"}
	case RuleMulticast, RuleUnspecified, RuleZone:
		return &Error{Kind: Refused, Refusal: &r, Message: "URL not allowed: multicast, broadcast and unspecified addresses are never reachable"}
	case RulePort:
		why = "only ports 80 and 443 are open"
	default:
		why = "it leads to a private or special address"
	}
	return &Error{Kind: Refused, Refusal: &r, Message: "URL not allowed: " + why +
		"; the server's administrator can open it with HOB_EGRESS_ALLOW (" +
		net.JoinHostPort(t.host, strconv.Itoa(int(t.port))) + ")"}
}

// prejudge applies what is known before a name is resolved.
func (g *Guard) prejudge(t *target, p policy) Rule {
	if t.addr.IsValid() {
		return g.judge(p, netip.AddrPortFrom(t.addr, t.port))
	}
	if !p.publicPort && !g.mayReach(t.host, t.port) {
		return RulePort
	}
	return ""
}

func isWebPort(port uint16) bool { return port == 80 || port == 443 }
