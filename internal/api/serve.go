package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"hob"
)

// call is one request under way, with who makes it.
type call struct {
	*http.Request
	ctx  context.Context //nolint:containedctx // the request's with its origin, see Context
	w    http.ResponseWriter
	rc   *http.ResponseController
	s    *server
	rt   *route
	by   hob.Principal
	cred credential
	raw  []byte // the body, once it was read
	record
	taken bool // a stream goes on without the handler and records itself
}

// record is what is counted and logged of a request once it is over. It holds nothing of the request.
type record struct {
	counts *routeCounts
	start  time.Time
	id     string // the request's id, for the log and the caller
	route  string // its pattern: paths and queries may hold what is nobody's business
}

// answered remembers the status that was sent, for counting and for knowing whether an error can still be told.
type answered struct {
	http.ResponseWriter
	status int
}

// WriteHeader sends the status.
func (a *answered) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write sends a piece of the body.
func (a *answered) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

const requestIDHeader = "X-Request-Id"

// ServeHTTP does what every request needs, whatever its route: an id, safe headers, cross-origin answers, a net under
// panics.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(requestIDHeader)
	if !plainID(id) {
		id = hob.RandomHex(8)
		r.Header.Set(requestIDHeader, id)
	}
	a := &answered{ResponseWriter: w}
	h := a.Header()
	h.Set(requestIDHeader, id)
	h.Set("X-Content-Type-Options", "nosniff")
	defer s.recovered(a, r, id)
	if r.ContentLength != 0 { // a body that comes too slowly, read or not, ends here
		_ = http.NewResponseController(a).SetReadDeadline(socketTime(s.Limits.BodyTime)) // unsupported only in tests
	}
	if s.cors(a, r) {
		return
	}
	if unclean(r.URL.EscapedPath()) { // the mux would redirect
		s.fail(a, r, hob.Errorf(hob.NotFound, "There is nothing at this path"))
		return
	}
	s.muxFor(r.URL.Path).ServeHTTP(a, r)
}

// recovered answers a request whose handler panicked with a fixed text. The cause is in the log, under the request's id.
func (s *server) recovered(a *answered, r *http.Request, id string) {
	v := recover()
	if v == nil {
		return
	}
	s.panicked(id, v)
	if a.status == 0 {
		s.write(a, http.StatusInternalServerError, internalBody(id))
		return
	}
	cut(http.NewResponseController(a))
}

// panicked counts and logs a panic, from within the deferred call that caught it.
func (s *server) panicked(id string, v any) {
	s.metrics.panics.Add(1)
	s.Log.LogAttrs(context.Background(), slog.LevelError, "a request handler panicked",
		slog.String("request_id", id), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
}

// plainID says whether a client's request id may stand in logs and headers.
func plainID(id string) bool {
	if len(id) == 0 || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// unclean says whether a path has empty or dot elements.
func unclean(path string) bool {
	return !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || strings.Contains(path, "/./") ||
		strings.Contains(path, "/../") || strings.HasSuffix(path, "/.") || strings.HasSuffix(path, "/..")
}

// serve carries out one route: who is it, may they, not too often, then the handler.
func (s *server) serve(rt *route, counts *routeCounts, w http.ResponseWriter, r *http.Request) {
	a := w.(*answered) //nolint:forcetypeassert // ServeHTTP made it
	c := &call{Request: r, w: a, rc: http.NewResponseController(a), s: s, rt: rt, record: record{
		counts: counts, start: s.Clock(), id: strings.Clone(r.Header.Get(requestIDHeader)), route: r.Pattern,
	}}
	if changes(r.Method) {
		c.ctx = hob.WithOrigin(r.Context(), hob.Origin{Request: c.id, Address: address(r)})
	}
	if err := s.enter(c); err != nil {
		s.noteRefusal(c, err)
		s.fail(a, r, err)
	} else if err := rt.handle(c); err != nil {
		s.noteRefusal(c, err)
		s.failed(c, a, err)
	}
	if !c.taken {
		s.done(c.record, a.status)
	}
}

// done counts and logs a request that is over.
func (s *server) done(r record, status int) {
	took := s.Clock().Sub(r.start)
	r.counts.done(status, took)
	ctx := context.Background() // the log has all it wants
	if s.Log.Enabled(ctx, slog.LevelDebug) {
		s.Log.LogAttrs(ctx, slog.LevelDebug, "request", slog.String("request_id", r.id), slog.String("route", r.route),
			slog.Int("status", status), slog.Duration("took", took))
	}
}

// enter authenticates the caller and applies the limits and the scope of the route.
func (s *server) enter(c *call) error {
	if c.Method == http.MethodHead && c.rt.stream {
		c.w.Header().Set("Allow", "GET, OPTIONS")
		return hob.Errorf(hob.Method, "HEAD is not allowed here; use GET")
	}
	if c.rt.open {
		return nil
	}
	if c.rt.local && fromLoopback(c.Request) {
		return nil
	}
	var err error
	if c.by, c.cred, err = s.auth.authenticate(c.Request); err != nil {
		s.metrics.unauthorized.Add(1)
		return err
	}
	if err := s.limits.request(c.by); err != nil {
		s.metrics.limited.Add(1)
		return err
	}
	if c.rt.scope != "" && !c.by.Has(c.rt.scope) {
		return hob.Errorf(hob.Forbidden, "this needs the scope %q, which your key or role does not have", c.rt.scope).
			WithCode("scope_missing")
	}
	if _, err := url.ParseQuery(c.URL.RawQuery); err != nil { // what cannot be read would count as not given
		return hob.Errorf(hob.Invalid, "the query of the address cannot be read: %% must stand before two hex digits, and ; must be written as %%3B").
			WithCode("invalid_query")
	}
	return nil
}

// failed answers a handler's error, or cuts the connection when the answer has begun.
func (s *server) failed(c *call, a *answered, err error) {
	gone := c.Context().Err()
	if errors.Is(err, errLeft) || gone != nil && !errors.Is(err, errSlow) && (errors.Is(err, gone) || a.status != 0) {
		cut(c.rc) // the client left, or still reads and sends no more: it must not take this for a whole answer
		return
	}
	if a.status == 0 {
		s.fail(a, c.Request, err)
		return
	}
	s.cutOff(c.record, err)
	cut(c.rc)
}

// cutOff logs that an answer ended before its time.
func (s *server) cutOff(r record, err error) {
	s.Log.LogAttrs(context.Background(), slog.LevelWarn, "an answer was cut off",
		slog.String("request_id", r.id), slog.String("error", err.Error()))
}

// cut makes the connection end so that the reader notices: without the mark that ends a whole answer.
func cut(rc *http.ResponseController) { _ = rc.SetWriteDeadline(time.Unix(1, 0)) }

// unrouted answers what no route takes: 405 where another method would, else 404.
func (s *server) unrouted(w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, m := range s.methods {
		probe := &http.Request{Method: m, URL: &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath}}
		if _, pattern := s.muxFor(r.URL.Path).Handler(probe); pattern != "" && !s.bare[pattern] {
			allow = append(allow, m)
		}
	}
	s.metrics.unrouted.Add(1)
	if len(allow) == 0 {
		s.fail(w, r, hob.Errorf(hob.NotFound, "There is nothing at this path"))
		return
	}
	text := strings.Join(allow, ", ")
	if slices.Contains(allow, http.MethodGet) {
		allow = append(allow, http.MethodHead)
	}
	allow = append(allow, http.MethodOptions)
	w.Header().Set("Allow", strings.Join(allow, ", "))
	if r.Method == http.MethodOptions {
		s.sent(w, http.StatusNoContent)
		return
	}
	s.fail(w, r, hob.Errorf(hob.Method, "%s is not allowed here; use %s", shortMethod(r.Method), text))
}

// shortMethod keeps a made-up method from filling the answer.
func shortMethod(m string) string {
	if len(m) > 16 {
		return m[:16] + "…"
	}
	return m
}

// sent answers with a status alone.
func (s *server) sent(w http.ResponseWriter, status int) {
	_ = http.NewResponseController(w).SetWriteDeadline(socketTime(s.Limits.WriteTime))
	w.WriteHeader(status)
}

// write answers with a JSON body.
func (s *server) write(w http.ResponseWriter, status int, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(socketTime(s.Limits.WriteTime))
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that left is no error of ours
}

// reply answers with v as JSON.
func (c *call) reply(status int, v any) error {
	body, err := marshal(v)
	if err != nil {
		return hob.Wrap("encode the answer", err)
	}
	c.s.write(c.w, status, body)
	return nil
}

// marshal encodes without HTML escapes, which only make text longer here, and ends with a line break.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}
