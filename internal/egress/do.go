package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxDrained is the longest body of a redirect that is read to its end.
const maxDrained = 2 << 10

// Request is one exchange to carry out.
type Request struct {
	// Pool names the pooling class. Connections are never shared across
	// classes, so that one tool's grant says nothing about another's: use one
	// per grant.
	Pool string

	Method string // "" means GET
	URL    string
	// Header and Body are not changed. The caller must leave their contents
	// alone for good: a server that answers early may still be receiving them
	// when Do returns.
	Header http.Header
	Body   []byte

	// Timeout bounds the whole exchange: waiting for a slot, look-up, connect,
	// redirects and the last byte of the body. 0 means DefaultTimeout.
	Timeout time.Duration
	// MaxBody bounds the response body in bytes after decompression; more is
	// cut off. 0 means DefaultMaxBody.
	MaxBody int64
	// Redirects is how many redirects are followed, at most MaxRedirects. With
	// 0 a redirect is itself the answer.
	Redirects int

	// AllowedHosts limits the destinations, redirects included: host,
	// host:port or *.suffix, each with an optional path prefix. An entry with a
	// port opens this port on public addresses; one without admits the ports
	// that are open anyway. Empty means the public internet. It never opens a
	// private address.
	AllowedHosts []string
	// ModelHeaders tells that a model wrote Header: only harmless ones pass.
	ModelHeaders bool

	// Once means that the request may reach a server once: it is not sent again
	// when a kept connection broke under it, as requests are that have no
	// effect or carry an idempotency key.
	Once bool
	// BeginBy is the time after which a request must not be begun any more: if
	// its first byte has not left by then, none does. Zero means no bound.
	BeginBy time.Time
}

// Response is the answer of an exchange, whatever its status.
type Response struct {
	Status    int
	Header    http.Header // without Content-Encoding where Body was unpacked
	Body      []byte
	Truncated bool   // Body was cut at MaxBody, at a character's boundary
	URL       string // of the last request
}

// Do carries out one bounded exchange. Every error is an [*Error]; a status of
// 400 or above is none. A refused and an unreachable destination have the same
// text.
func (g *Guard) Do(ctx context.Context, r Request) (*Response, error) {
	if r.Redirects < 0 || r.Redirects > MaxRedirects || r.MaxBody < 0 || r.Timeout < 0 {
		return nil, fail(BadRequest, "redirects must be 0 to %d; size and time limits must not be negative", MaxRedirects)
	}
	r.Timeout = orDefault(r.Timeout, DefaultTimeout)
	r.MaxBody = orDefault(r.MaxBody, DefaultMaxBody)
	var err error
	if r.Method, err = canonicalMethod(r.Method); err != nil {
		return nil, err
	}
	if r.Header, err = g.outgoing(r.Header, r.ModelHeaders); err != nil {
		return nil, err
	}
	t, err := parseURL(r.URL)
	if err != nil {
		return nil, err
	}
	transport, err := g.transport(r.Pool)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	for followed := 0; ; followed++ {
		res, next, err := g.exchange(ctx, transport, &r, t)
		if err != nil || next == nil {
			return res, err
		}
		if followed == r.Redirects {
			return nil, fail(BadRedirect, "more than %d redirects", r.Redirects)
		}
		if err := r.redirect(t, next, res.Status); err != nil {
			return nil, err
		}
		t = next
	}
}

// exchange judges one target and sends one request to it. next is set when the
// answer is a redirect to follow; its body is then not read.
func (g *Guard) exchange(ctx context.Context, transport *http.Transport, r *Request, t *target) (*Response, *target, error) {
	admitted, explicit, err := admit(r.AllowedHosts, t)
	if err != nil {
		return nil, nil, err
	}
	h := &hop{pool: r.Pool, publicPort: explicit || isWebPort(t.port), by: r.BeginBy}
	rule := RuleAllowedHosts
	if admitted {
		rule = g.prejudge(t, policy{host: t.host, publicPort: h.publicPort})
	}
	if rule != "" {
		return nil, nil, g.refuse(Refusal{Pool: r.Pool, Host: t.host, Port: t.port, Rule: rule, Address: t.addr})
	}
	held, err := g.slots.take(ctx, t.host)
	if err != nil {
		return nil, nil, err
	}
	defer g.slots.give(t.host, held)
	if h.over() {
		return nil, nil, tooLate()
	}
	res, err := transport.RoundTrip(r.build(h.watch(ctx), h, t))
	if err != nil {
		if h.late(err) {
			return nil, nil, tooLate()
		}
		return nil, nil, classify(ctx, err, h.connecting(), r.Timeout)
	}
	defer res.Body.Close()
	out := &Response{Status: res.StatusCode, Header: res.Header, URL: t.url.String()}
	if r.Redirects > 0 && isRedirect(res.StatusCode) {
		if loc := res.Header.Get("Location"); loc != "" {
			if res.ContentLength > 0 && res.ContentLength <= maxDrained {
				// Reading the short body to its end keeps the connection.
				_, _ = io.Copy(io.Discard, res.Body)
			}
			next, err := t.resolve(loc)
			return out, next, err
		}
	}
	if out.Body, out.Truncated, err = g.readBody(res, r.MaxBody); err != nil {
		return nil, nil, classify(ctx, err, false, r.Timeout)
	}
	return out, nil, nil
}

// build makes the request for one target.
func (r *Request) build(ctx context.Context, h *hop, t *target) *http.Request {
	req := (&http.Request{
		Method: r.Method, URL: t.url, Host: t.url.Host, Header: r.Header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	switch {
	case len(r.Body) > 0:
		req.ContentLength = int64(len(r.Body))
	case !r.Once:
		return req
	case bodied(r.Method): // the key is what would make the transport repeat it; it looks for this spelling alone
		req.Header = r.Header.Clone()
		if key := req.Header[keyHeader]; key != nil {
			delete(req.Header, keyHeader)
			req.Header[strings.ToLower(keyHeader)] = key
		}
		return req
	default:
		req.ContentLength = -1 // not known: the transport looks, finds none and sends none
	}
	body := r.Body
	fresh := func() (io.ReadCloser, error) {
		return &outbound{Reader: bytes.NewReader(body), hop: h}, nil
	}
	req.Body, _ = fresh()
	if !r.Once { // a body that cannot be had again keeps the transport from repeating a request
		req.GetBody = fresh
	}
	return req
}

const keyHeader = "Idempotency-Key"

// outbound is a request's body. It is read when the headers have left.
type outbound struct {
	*bytes.Reader
	hop *hop
}

func (o *outbound) Read(p []byte) (int, error) {
	if o.Size() > 0 { // an empty one is looked into before the headers leave
		o.hop.begin()
	}
	return o.Reader.Read(p)
}

func (o *outbound) Close() error { return nil }

// bodied tells whether requests of the method usually have a body.
func bodied(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// resolve reads a Location relative to the target. It passes the same checks
// as the URL of a request.
func (t *target) resolve(location string) (*target, error) {
	if err := checkRaw(location); err != nil {
		return nil, badRedirectURL(err)
	}
	ref, err := url.Parse(location)
	if err != nil {
		return nil, fail(BadURL, "redirect not followed: its location is malformed")
	}
	next, err := parseURL(t.url.ResolveReference(ref).String())
	if err != nil {
		return nil, badRedirectURL(err)
	}
	return next, nil
}

func badRedirectURL(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return &Error{Kind: own.Kind, Message: "redirect not followed: " + own.Message, cause: own}
	}
	return err
}

// redirect prepares the request for the next target.
func (r *Request) redirect(from, to *target, status int) error {
	if from.secure && !to.secure {
		return fail(BadRedirect, "redirect from https to http is not followed")
	}
	// The transport may still be sending the old headers: work on a copy.
	r.Header = maps.Clone(r.Header)
	if !keepsMethod(r.Method, status) {
		r.Method, r.Body = http.MethodGet, nil
		r.Header.Del("Content-Type")
		r.Header.Del("Content-Language")
	}
	if from.sameOrigin(to) {
		return nil
	}
	// A body belongs to the host it was written for. The one other origin that
	// is the same service is the step from http to https.
	upgraded := from.host == to.host && !from.secure && to.secure && from.port == 80 && to.port == 443
	if len(r.Body) > 0 && !upgraded {
		return fail(BadRedirect, "redirect to another host would carry the request's body and is not followed")
	}
	for name := range r.Header {
		if !travels(name) {
			delete(r.Header, name)
		}
	}
	return nil
}

// keepsMethod tells whether a redirect repeats the method and body. As in
// browsers, 303 turns everything but HEAD into GET, 301 and 302 do so for POST;
// for other methods that write, 301 and 302 count as 303 too.
func keepsMethod(method string, status int) bool {
	switch status {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return method == http.MethodGet || method == http.MethodHead
}
