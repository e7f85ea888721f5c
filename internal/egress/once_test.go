package egress_test

import (
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
		name string
		by   time.Duration
		wait time.Duration // that connecting takes
	}{
		{"before it connects", -time.Second, 0},
		{"while it connects", 50 * time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var acts atomic.Int64
			slow := names{"slow.example": {{pub4}}}
			to := serve(t, func(http.ResponseWriter, *http.Request) { acts.Add(1) })
			w := newWorld(t, egress.Config{}, slow, to)
			w.MapDial(func(netip.AddrPort) (netip.AddrPort, bool) {
				time.Sleep(c.wait)
				return to, true
			})
			_, err := w.Do(t.Context(), egress.Request{
				Method: http.MethodPost, URL: "http://slow.example/", Body: []byte("{}"), BeginBy: time.Now().Add(c.by),
			})
			if kindOf(t, err) != egress.Late || acts.Load() != 0 {
				t.Errorf("the server acted %d times; %v", acts.Load(), err)
			}
		})
	}
}
