package egress_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"hob/internal/egress"
)

// breaker answers the first request and then takes each request, acts, and cuts the kept connection without an answer.
func breaker(acts *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if acts.Add(1) == 1 {
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}
}

func TestDo_ARequestThatMayArriveOnceIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, method, body string
		once               bool
		acts               int64 // the first request included
	}{
		{"with a key", http.MethodPost, "{}", false, 3}, // shows that the transport does repeat it
		{"once", http.MethodPost, "{}", true, 2},
		{"once without a body", http.MethodPost, "", true, 2},
		{"once, deleting", http.MethodDelete, "", true, 2},
		{"once, reading", http.MethodGet, "", true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var acts atomic.Int64
			w := newWorld(t, egress.Config{}, sites(), serve(t, breaker(&acts)))
			r := egress.Request{
				Pool: "p", Method: c.method, URL: "http://a.example/", Body: []byte(c.body), Once: c.once,
				Header: http.Header{"Idempotency-Key": {"run:call"}}, BeginBy: time.Now().Add(time.Minute),
			}
			if _, err := w.Do(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // the connection of the first is kept by then: on a new one nothing is repeated
			res, err := w.Do(t.Context(), r)
			if kindOf(t, err) != egress.BadResponse {
				t.Errorf("the broken exchange gave %+v, %v", res, err)
			}
			if got := acts.Load(); got != c.acts {
				t.Errorf("the server acted %d times, want %d", got, c.acts)
			}
		})
	}
}

func TestDo_OnceChangesNothingOfTheRequest(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		var key, encoding, length string
		w := newWorld(t, egress.Config{}, sites(), serve(t, func(_ http.ResponseWriter, r *http.Request) {
			key, length = r.Header.Get("Idempotency-Key"), r.Header.Get("Content-Length")
			if len(r.TransferEncoding) > 0 {
				encoding = r.TransferEncoding[0]
			}
		}))
		_, err := w.Do(t.Context(), egress.Request{
			Method: method, URL: "http://a.example/", Once: true, Header: http.Header{"Idempotency-Key": {"k"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if key != "k" || encoding != "" || (length != "" && length != "0") {
			t.Errorf("%s: key %q, transfer encoding %q, length %q", method, key, encoding, length)
		}
	}
}

func TestDo_NothingIsSentAfterTheTimeToBegin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		by     time.Duration
		wait   time.Duration // that connecting takes
		method string
		body   string
		once   bool
		tls    bool // with HTTP/2
		acts   int64
	}{
		{name: "over before it connects", by: -time.Second, method: http.MethodPost, body: "{}"},
		{name: "over while it connects", by: 50 * time.Millisecond, wait: 200 * time.Millisecond, method: http.MethodPost, body: "{}"},
		{name: "over, once", by: 50 * time.Millisecond, wait: 200 * time.Millisecond, method: http.MethodPost, body: "{}", once: true},
		{name: "over, no body", by: 50 * time.Millisecond, wait: 200 * time.Millisecond, method: http.MethodGet},
		{name: "over, no body, once", by: 50 * time.Millisecond, wait: 200 * time.Millisecond, method: http.MethodDelete, once: true},
		{name: "over, HTTP/2", by: 50 * time.Millisecond, wait: 200 * time.Millisecond, method: http.MethodPost, body: "{}", tls: true},
		{name: "in time", by: 10 * time.Second, method: http.MethodPost, body: "{}", once: true, acts: 2},
		{name: "in time, no body", by: 10 * time.Second, method: http.MethodGet, acts: 2},
		{name: "in time, HTTP/2", by: 10 * time.Second, method: http.MethodPost, body: "{}", tls: true, acts: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var acts atomic.Int64
			w, scheme := newWorldTLS(t, func(http.ResponseWriter, *http.Request) { acts.Add(1) }, c.tls, tls.VersionTLS13)
			to := w.target(t)
			w.MapDial(func(netip.AddrPort) (netip.AddrPort, bool) {
				time.Sleep(c.wait)
				return to, true
			})
			for range max(1, c.acts) { // the second on the connection of the first
				_, err := w.Do(t.Context(), egress.Request{
					Method: c.method, URL: scheme + "://example.com/", Body: []byte(c.body), Once: c.once, BeginBy: time.Now().Add(c.by),
				})
				if kind := kindOf(t, err); c.acts == 0 && kind != egress.Late || c.acts > 0 && err != nil {
					t.Errorf("the exchange gave %q: %v", kind, err)
				}
			}
			time.Sleep(50 * time.Millisecond) // a server that got anything has acted by then
			if got := acts.Load(); got != c.acts {
				t.Errorf("the server acted %d times, want %d", got, c.acts)
			}
		})
	}
}

func TestDo_ARequestThatHasBegunIsSentToItsEnd(t *testing.T) {
	t.Parallel()
	var got atomic.Int64
	w := newWorld(t, egress.Config{}, sites(), serve(t, func(_ http.ResponseWriter, r *http.Request) {
		time.Sleep(300 * time.Millisecond) // longer than the time to begin; the body is more than the sockets hold
		n, _ := io.Copy(io.Discard, r.Body)
		got.Store(n)
	}))
	body := make([]byte, 32<<20)
	_, err := w.Do(t.Context(), egress.Request{
		Method: http.MethodPost, URL: "http://a.example/", Once: true, Body: body, BeginBy: time.Now().Add(150 * time.Millisecond),
	})
	if err != nil || got.Load() != int64(len(body)) {
		t.Errorf("%d of %d bytes arrived: %v", got.Load(), len(body), err)
	}
}
