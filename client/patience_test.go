package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/client"
)

const run = hob.RunID("run_1")

// at serves at an address, a free one for "".
func at(t *testing.T, address string, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	return s
}

// follow reads a run's events and gives their numbers, and the error that ended them.
func follow(ctx context.Context, c *client.Client, after int64) (got []int64, last error) {
	for e, err := range c.Events(ctx, run, after) {
		if err != nil {
			last = err
			continue
		}
		got = append(got, e.Seq)
	}
	return got, last
}

func TestEvents_GoOnWhenTheServerWasAway(t *testing.T) {
	t.Parallel()
	first := at(t, "", frames(1, 2, 4, true, nil))
	address := first.Listener.Addr().String()
	c := open(t, first.URL, "key")
	c.Patience = time.Minute
	back := make(chan *httptest.Server, 1)
	var got []int64
	for e, err := range c.RunStream(t.Context(), "a", client.RunRequest{Message: "hi"}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Seq); e.Seq == 1 {
			_ = first.Listener.Close() // nobody answers there for a while
			go func() {
				time.Sleep(time.Second)
				back <- at(t, address, frames(3, 4, 4, false, nil))
			}()
		}
	}
	if diff := cmp.Diff([]int64{1, 2, 3, 4}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	c.Close()
	(<-back).Close()
	first.Close()
}

func TestEvents_PatienceEndsWithWhereToComeBack(t *testing.T) {
	t.Parallel()
	away := at(t, "", nil)
	away.Close()
	always := func(h http.HandlerFunc) string {
		s := at(t, "", h)
		t.Cleanup(s.Close)
		return s.URL
	}
	for what, address := range map[string]string{
		"nobody answers":             away.URL,
		"it is busy":                 always(refuse(503, "")),
		"it has a fault":             always(refuse(500, "")),
		"each stream is cut":         always(frames(1, 0, 9, true, nil)),
		"each answer comes too late": always(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := open(t, address, "key")
			c.Patience = 300 * time.Millisecond
			got, err := follow(t.Context(), c, 2)
			var e *hob.Error
			if !errors.As(err, &e) || e.Kind != hob.Unavailable || len(got) != 0 {
				t.Fatalf("%d events and %v", len(got), err)
			}
			text := err.Error()
			if !strings.Contains(text, "come back with Events(run_1, 2)") || strings.Count(strings.ToLower(text), "get ") > 1 {
				t.Errorf("the text is %q", text)
			}
			if diff := cmp.Diff(map[string]any{"run_id": run, "after": int64(2)}, e.Details); diff != "" {
				t.Errorf("details (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvents_ProgressRenewsThePatience(t *testing.T) {
	t.Parallel()
	const rounds = 3 // each keeps the reader away for a second
	var n atomic.Int64
	s := at(t, "", func(w http.ResponseWriter, r *http.Request) {
		i := n.Add(1)
		if i%2 == 1 {
			refuse(503, "1")(w, r)
			return
		}
		frames(i/2, i/2, rounds, i/2 < rounds, nil)(w, r)
	})
	t.Cleanup(s.Close)
	c := open(t, s.URL, "key")
	c.Patience = 2500 * time.Millisecond
	begun := time.Now()
	got, err := follow(t.Context(), c, 0)
	if err != nil || len(got) != rounds {
		t.Fatalf("%d events, %v", len(got), err)
	}
	if away := time.Since(begun); away < rounds*time.Second {
		t.Errorf("the reader came back within %s, and was asked to wait %d times a second", away, rounds)
	}
}

func TestEvents_AWaitLongerThanThePatienceIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	c, n := script(t, refuse(503, "70"))
	c.Patience = time.Minute
	_, err := follow(t.Context(), c, 2)
	var e *hob.Error
	if !errors.As(err, &e) || e.Kind != hob.Unavailable || e.RetryAfter != 70*time.Second || n.Load() != 1 {
		t.Errorf("%v after %d requests", err, n.Load())
	}
}

func TestEvents_WithoutPatienceABreakIsAnError(t *testing.T) {
	t.Parallel()
	c, n := script(t, frames(1, 2, 9, true, nil))
	c.Patience = -1
	got, err := follow(t.Context(), c, 0)
	wantKind(t, err, hob.Unavailable)
	if len(got) != 2 || n.Load() != 1 || !strings.Contains(err.Error(), "Events(run_1, 2)") {
		t.Errorf("%d events, %d requests, %v", len(got), n.Load(), err)
	}
}

// A server whose machine is gone takes connections through a balancer and says nothing.
func TestEvents_ASilentServerIsAskedAgain(t *testing.T) {
	t.Parallel()
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	c, n := script(t, silent, frames(1, 2, 2, false, nil))
	c.Patience = 5 * time.Second
	got, err := follow(t.Context(), c, 0)
	if err != nil || len(got) != 2 || n.Load() != 2 {
		t.Errorf("%d events, %d requests, %v", len(got), n.Load(), err)
	}
}

func TestEvents_ACancelledContextEndsTheWait(t *testing.T) {
	t.Parallel()
	away := at(t, "", nil)
	away.Close()
	busy := at(t, "", refuse(503, "30"))
	t.Cleanup(busy.Close)
	for _, address := range []string{away.URL, busy.URL} {
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, leave)
		begun := time.Now()
		_, err := follow(ctx, open(t, address, "key"), 2)
		if !errors.Is(err, context.Canceled) || time.Since(begun) > 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	}
}
