package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/client"
)

// script serves answers one after the other.
func script(t *testing.T, answers ...http.HandlerFunc) (*client.Client, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := int(n.Add(1)) - 1
		if i >= len(answers) {
			t.Errorf("request %d, to %s, was not expected", i+1, r.URL)
			return
		}
		answers[i](w, r)
	}))
	t.Cleanup(h.Close)
	return open(t, h.URL, "key"), &n
}

func event(seq int64, kind hob.EventType) string {
	return fmt.Sprintf(`{"event":%q,"type":%q,"seq":%d,"run_id":"run_1","ts":"2026-01-02T03:04:05.000006Z"}`, kind, kind, seq)
}

// frames answers with events; cut ends the connection behind them in the middle of a frame.
func frames(from, to, last int64, cut bool, see func(*http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if see != nil {
			see(r)
		}
		for seq := from; seq <= to; seq++ {
			kind := hob.EventChunk
			if seq == last {
				kind = hob.EventComplete
			}
			_, _ = fmt.Fprintf(w, "id: %d\ndata: %s\n\n: keepalive\n\n", seq, event(seq, kind))
		}
		if cut {
			_, _ = fmt.Fprintf(w, "data: {\"event\":")
			_ = http.NewResponseController(w).Flush()
			_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
		}
	}
}

func refuse(status int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"error":"busy","message":"busy","code":"overloaded","details":{"a":1}}`))
	}
}

func TestEvents_GoOnAfterBreaks(t *testing.T) {
	t.Parallel()
	var positions []string
	see := func(r *http.Request) {
		positions = append(positions, r.Method+" "+r.Header.Get("Last-Event-Id"))
		if r.Header.Get("Authorization") != "Bearer key" {
			t.Error("the key is missing")
		}
	}
	c, _ := script(t,
		frames(1, 3, 9, true, see),  // the run's own stream breaks
		refuse(503, "0"),            // the server restarts
		frames(3, 5, 9, false, see), // one event comes again, and the end comes too early
		frames(6, 9, 9, true, see),
	)
	var got []int64
	for e, err := range c.RunStream(t.Context(), "a", client.RunRequest{Message: "hi"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Seq)
	}
	if diff := cmp.Diff([]int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"POST ", "GET 3", "GET 5"}, positions); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestEvents_ErrorsOfTheServerAreFinal(t *testing.T) {
	t.Parallel()
	c, n := script(t, refuse(404, ""))
	for _, err := range c.Events(t.Context(), "run_1", 0) {
		wantKind(t, err, hob.NotFound)
	}
	if n.Load() != 1 {
		t.Errorf("%d requests", n.Load())
	}
}

func TestEvents_BreakingOffAsksNoMore(t *testing.T) {
	t.Parallel()
	c, n := script(t, frames(1, 5, 9, false, nil))
	for range c.Events(t.Context(), "run_1", 0) {
		break
	}
	if n.Load() != 1 {
		t.Errorf("%d requests", n.Load())
	}
}

func TestRunStream_ABreakBeforeTheFirstEventIsAnError(t *testing.T) {
	t.Parallel()
	c, n := script(t, frames(1, 0, 9, true, nil))
	errs := 0
	for _, err := range c.RunStream(t.Context(), "a", client.RunRequest{Message: "hi"}) {
		if err != nil {
			errs++
		}
	}
	if errs != 1 || n.Load() != 1 {
		t.Errorf("%d errors, %d requests: a run may have started, so it is not started again", errs, n.Load())
	}
}

func TestRunStream_WithAKeyABreakBeforeTheFirstEventStartsOnce(t *testing.T) {
	t.Parallel()
	var keys []string
	see := func(r *http.Request) { keys = append(keys, r.Method+" "+r.Header.Get("Idempotency-Key")) }
	c, _ := script(t,
		frames(1, 0, 9, true, see), // the answer is lost
		refuse(503, "0"),
		frames(1, 3, 3, false, see),
	)
	var got []int64
	for e, err := range c.RunStream(t.Context(), "a", client.RunRequest{Message: "hi", IdempotencyKey: "k"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Seq)
	}
	if diff := cmp.Diff([]int64{1, 2, 3}, got); diff != "" || !slices.Equal(keys, []string{"POST k", "POST k"}) {
		t.Errorf("requests %v, events (-want +got):\n%s", keys, diff)
	}
	for status, kind := range map[int]hob.Kind{422: hob.Unprocessable, 500: hob.Internal} {
		c, n := script(t, refuse(status, ""))
		for _, err := range c.RunStream(t.Context(), "a", client.RunRequest{Message: "hi", IdempotencyKey: "k"}) {
			wantKind(t, err, kind)
		}
		if n.Load() != 1 {
			t.Errorf("%d: %d requests", status, n.Load())
		}
	}
}

func TestEvents_OddStreamsAreErrors(t *testing.T) {
	t.Parallel()
	const tooLong = 33 << 20
	for what, text := range map[string]string{"no JSON": "data: no json\n\n", "too long": "data: " + strings.Repeat("x", tooLong) + "\n\n"} {
		c, n := script(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
		var last error
		for _, err := range c.Events(t.Context(), "run_1", 0) {
			last = err
		}
		if last == nil || !strings.Contains(last.Error(), "cannot be read") || n.Load() != 1 {
			t.Errorf("%s: the error after %d requests is %v", what, n.Load(), last)
		}
	}
}

func TestCall_RepeatsWhatMayBeRepeated(t *testing.T) {
	t.Parallel()
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"run_id":"run_1"}`)) }
	c, n := script(t, refuse(503, ""), refuse(429, ""), ok)
	if _, err := c.Me(t.Context()); err != nil || n.Load() != 3 {
		t.Errorf("a read: %v after %d requests", err, n.Load())
	}
	c, n = script(t, refuse(503, ""), ok)
	if _, err := c.Run(t.Context(), "a", client.RunRequest{Message: "hi", IdempotencyKey: "k"}); err != nil || n.Load() != 2 {
		t.Errorf("a run with a key: %v after %d requests", err, n.Load())
	}
	c, n = script(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"error":"the agent's budget is used up","code":"budget"}`))
	})
	if _, err := c.Run(t.Context(), "a", client.RunRequest{Message: "hi", IdempotencyKey: "k"}); hob.KindOf(err) != hob.RateLimited || n.Load() != 1 {
		t.Errorf("a budget that is used up: %v after %d requests", err, n.Load())
	}
	c, n = script(t, refuse(503, "7"))
	_, err := c.Run(t.Context(), "a", client.RunRequest{Message: "hi"})
	var e *hob.Error
	if !errors.As(err, &e) || n.Load() != 1 {
		t.Fatalf("a run: %v after %d requests", err, n.Load())
	}
	if e.Kind != hob.Unavailable || e.Code != "overloaded" || e.Message != "busy" || e.RetryAfter != 7*time.Second || e.Details["a"] != 1.0 {
		t.Errorf("the error is %+v", e)
	}
}

func TestCall_AnswersOfOthersAreTold(t *testing.T) {
	t.Parallel()
	c, _ := script(t,
		func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusTeapot) },
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
	)
	_, err := c.Me(t.Context())
	wantKind(t, err, hob.Invalid)
	if _, err = c.Me(t.Context()); err == nil || !strings.Contains(err.Error(), "not what was expected") {
		t.Errorf("a page: %v", err)
	}
	if _, err = c.Me(t.Context()); err == nil || !strings.Contains(err.Error(), strconv.Itoa(http.StatusFound)) {
		t.Errorf("a redirect: %v", err)
	}
}
