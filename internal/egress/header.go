package egress

import (
	"net/http"
	"net/textproto"
	"strings"
)

const (
	maxHeaderFields = 100 // values in a request
	maxMethodBytes  = 32
)

// isOurs tells whether a header is the guard's to set: it frames the message,
// names the host or belongs to one connection, and a second opinion on it is
// how requests are smuggled.
func isOurs(name string) bool {
	switch name {
	case "Host", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Content-Encoding", "Accept-Encoding", "Expect", "Via", "Forwarded", "Http2-Settings":
		return true
	}
	return strings.HasPrefix(name, "Proxy-")
}

// isHarmless tells whether a model may set the header.
func isHarmless(name string) bool {
	switch name {
	case "Accept", "Accept-Charset", "Accept-Language", "Cache-Control", "Content-Language", "Content-Type",
		"Dnt", "Idempotency-Key", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range",
		"If-Unmodified-Since", "Pragma", "Prefer", "Range", "User-Agent":
		return true
	// These X- headers change who the caller seems to be or what is asked for.
	case "X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url",
		"X-Real-Ip", "X-Client-Ip", "X-Host", "X-Original-Host":
		return false
	}
	return strings.HasPrefix(name, "X-") && !strings.HasPrefix(name, "X-Forwarded") && !strings.Contains(name, "_")
}

// travels tells whether a header follows a redirect to another origin. The
// list is shorter than that of isHarmless: X-Api-Key is a usual name for a
// secret.
func travels(name string) bool {
	switch name {
	case "Accept", "Accept-Charset", "Accept-Language", "Cache-Control", "Content-Type", "User-Agent",
		"Accept-Encoding":
		return true
	}
	return false
}

// outgoing checks the headers of a request and returns its own copy with the
// guard's additions. The errors (Kind BadRequest) name the header.
func (g *Guard) outgoing(in http.Header, fromModel bool) (http.Header, error) {
	out := make(http.Header, len(in)+2)
	size, fields := 0, 0
	for raw, values := range in {
		if !isToken(raw) {
			return nil, fail(BadRequest, "header name %q is not valid", raw)
		}
		name := textproto.CanonicalMIMEHeaderKey(raw)
		switch {
		case isOurs(name):
			return nil, fail(BadRequest, "header %q is set by the server and cannot be given", name)
		case fromModel && !isHarmless(name):
			return nil, fail(BadRequest, "header %q cannot be set here; permitted are Accept, Accept-Language, "+
				"Content-Type, User-Agent, Cache-Control, Range, Prefer, Idempotency-Key, If-* and most X-* headers", name)
		}
		for _, v := range values {
			if !isFieldValue(v) {
				return nil, fail(BadRequest, "header %q has a value with control characters", name)
			}
			size += len(name) + len(v) + len(": \r\n")
			fields++
		}
		if prev, ok := out[name]; ok {
			values = append(append([]string(nil), prev...), values...)
		}
		out[name] = values
	}
	if size > MaxHeaderBytes || fields > maxHeaderFields {
		return nil, fail(BadRequest, "request headers are larger than %d bytes or have more than %d values", MaxHeaderBytes, maxHeaderFields)
	}
	out["Accept-Encoding"] = []string{"gzip"}
	if out["User-Agent"] == nil {
		out["User-Agent"] = []string{g.userAgent}
	}
	return out, nil
}

// isToken is the syntax of methods and header names (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// canonicalMethod checks a method; "" means GET. The usual methods are taken
// in any case, since models write them so.
func canonicalMethod(m string) (string, error) {
	if m == "" {
		return http.MethodGet, nil
	}
	if len(m) > maxMethodBytes || !isToken(m) {
		return "", fail(BadRequest, "method is not valid")
	}
	switch up := strings.ToUpper(m); up {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return up, nil
	case http.MethodConnect, http.MethodTrace:
		// CONNECT asks for a tunnel past the guard; TRACE echoes secrets.
		return "", fail(BadRequest, "method %s is not permitted", up)
	}
	return m, nil
}
