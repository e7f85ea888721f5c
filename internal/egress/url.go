package egress

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxURLBytes bounds a URL; longer ones are refused before they are parsed.
const maxURLBytes = 8 << 10

// target is a URL that passed every check of form.
type target struct {
	url    *url.URL // canonical: host without default port, no fragment
	secure bool
	host   string     // canonical name or address literal
	addr   netip.Addr // valid when host is a literal
	port   uint16
}

// sameOrigin tells whether scheme, host and port are equal.
func (t *target) sameOrigin(o *target) bool {
	return t.secure == o.secure && t.host == o.host && t.port == o.port
}

func badURL(why string) *Error { return fail(BadURL, "URL not accepted: %s", why) }

// parseURL reads and canonicalises a URL. The errors (Kind BadURL) say what is
// wrong without repeating the URL, which may hold secrets.
func parseURL(raw string) (*target, error) {
	if err := checkRaw(raw); err != nil {
		return nil, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, badURL("it is malformed")
	}
	return newTarget(u, raw)
}

// checkRaw refuses what URL readers disagree about before anything is parsed.
func checkRaw(raw string) error {
	switch {
	case raw == "":
		return badURL("it is empty")
	case len(raw) > maxURLBytes:
		return badURL("it is longer than " + strconv.Itoa(maxURLBytes) + " bytes")
	}
	for i := range len(raw) {
		switch c := raw[i]; {
		case c <= ' ' || c == 0x7f:
			return badURL("it has spaces or control characters; encode them with %")
		case c == '\\':
			return badURL("it has a backslash; encode it as %5C")
		case c == '%' && !isEscape(raw[i:]):
			return badURL("a % is not followed by two hexadecimal digits; write a plain % as %25")
		case c >= utf8.RuneSelf:
			return checkUnicode(raw)
		}
	}
	return nil
}

// checkUnicode refuses invisible characters and finishes the byte checks of
// checkRaw for URLs that are not plain ASCII.
func checkUnicode(raw string) error {
	if !utf8.ValidString(raw) {
		return badURL("it is not valid UTF-8")
	}
	ascii := make([]byte, 0, len(raw))
	for _, r := range raw {
		switch {
		case r < utf8.RuneSelf:
			ascii = append(ascii, byte(r))
		case unicode.IsControl(r), unicode.IsSpace(r), unicode.Is(unicode.Cf, r):
			return badURL("it has invisible characters; encode them with %")
		default:
			ascii = append(ascii, 'x')
		}
	}
	return checkRaw(string(ascii))
}

func isEscape(s string) bool {
	return len(s) >= 3 && isHex(s[1]) && isHex(s[2])
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// newTarget checks a parsed URL. raw is its text where there is one.
func newTarget(u *url.URL, raw string) (*target, error) {
	t := &target{}
	switch u.Scheme { // url.Parse has lowered it
	case "http":
	case "https":
		t.secure = true
	default:
		return nil, badURL("only http and https are permitted")
	}
	authority := u.Host
	if _, rest, ok := strings.Cut(raw, "//"); ok && raw != "" {
		authority = rest
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			authority = rest[:i]
		}
	}
	switch {
	case u.User != nil || strings.Contains(authority, "@"):
		return nil, badURL("credentials do not belong in a URL; use a header")
	case u.Opaque != "" || u.Host == "":
		return nil, badURL("it has no host")
	case strings.Contains(authority, "%"):
		return nil, badURL("the host has percent escapes or a zone")
	case hasControlEscape(u.EscapedPath()):
		return nil, badURL("the path has escaped control characters")
	}
	if err := t.readHost(u.Host); err != nil {
		return nil, err
	}
	clean := *u
	clean.Fragment, clean.RawFragment = "", ""
	clean.Host = hostPort(t.host, t.addr, t.port, t.secure)
	t.url = &clean
	return t, nil
}

// hasControlEscape finds %00 … %1F and %7F.
func hasControlEscape(s string) bool {
	for i := 0; i+2 < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		if s[i+1] == '0' || s[i+1] == '1' || s[i+1] == '7' && (s[i+2] == 'f' || s[i+2] == 'F') {
			return true
		}
	}
	return false
}

func (t *target) readHost(hostport string) error {
	host, port, bracketed := hostport, "", false
	if strings.HasPrefix(hostport, "[") {
		inner, tail, ok := strings.Cut(hostport[1:], "]")
		if !ok || tail != "" && tail[0] != ':' {
			return badURL("the host is malformed")
		}
		host, port, bracketed = inner, strings.TrimPrefix(tail, ":"), true
	} else if i := strings.IndexByte(hostport, ':'); i >= 0 {
		host, port = hostport[:i], hostport[i+1:]
	}
	var err error
	if t.host, t.addr, err = canonicalHost(host, bracketed); err != nil {
		return badURL(err.Error())
	}
	if port == "" {
		t.port = 80
		if t.secure {
			t.port = 443
		}
		return nil
	}
	var ok bool
	if t.port, ok = parsePort(port); !ok {
		return badURL("the port is not a number from 1 to 65535")
	}
	return nil
}

// hostPort writes a host as URLs do, without the scheme's default port.
func hostPort(host string, addr netip.Addr, port uint16, secure bool) string {
	if addr.Is6() {
		host = "[" + host + "]"
	}
	if port == 80 && !secure || port == 443 && secure {
		return host
	}
	return host + ":" + strconv.Itoa(int(port))
}
