package hook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hob"
	"hob/internal/hook"
)

// quick looks into the store often, so that tests need not wait.
var quick = hook.Limits{Every: 5 * time.Millisecond}

func TestServe_AnyAnswerOf2xxIsDelivered(t *testing.T) {
	t.Parallel()
	receiver := serve(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		w.WriteHeader(status)
	})
	q := newQueue()
	for _, status := range []int{200, 201, 202, 204, 299} {
		q.add(delivery(fmt.Sprintf("d%d", status), fmt.Sprintf("%s/%d", receiver.URL, status)))
	}
	start(t, newSender(t, q, quick, receiver))
	for range 5 {
		if n := q.next(t); n.Status != hob.DeliveryDelivered || n.Failure != "" {
			t.Errorf("%+v", n)
		}
	}
}

// The pauses grow from seconds to hours; every try bears the delivery's id and its number, and the last one is the last.
func TestServe_TriesAgainUntilItGivesUp(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var tries []string
	receiver := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tries = append(tries, r.Header.Get("X-Hob-Event")+" "+r.Header.Get("X-Hob-Delivery")+" "+r.Header.Get("X-Hob-Attempt"))
		w.WriteHeader(http.StatusInternalServerError)
	})
	q := newQueue(delivery("d1", receiver.URL))
	start(t, newSender(t, q, quick, receiver))
	want := []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour}
	for i, pause := range want {
		n := q.next(t)
		if n.Status != hob.DeliveryQueued || n.Again < pause*9/10 || n.Again > pause*11/10 || n.Failure != "the hook answered with HTTP 500" {
			t.Fatalf("try %d: %+v, want a pause of about %s", i+1, n, pause)
		}
		q.pass(n.Again)
	}
	if n := q.next(t); n.Status != hob.DeliveryFailed || n.Failure != "the hook answered with HTTP 500" {
		t.Errorf("the last try: %+v", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(tries) != hook.MaxTries || len(want)+1 != hook.MaxTries {
		t.Errorf("%d tries: %q", len(tries), tries)
	}
	for i, got := range tries {
		if want := fmt.Sprintf("OnRunComplete d1 %d", i+1); got != want {
			t.Errorf("try %d told %q, want %q", i+1, got, want)
		}
	}
}

func TestServe_HearsRetryAfter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		header   string
		from, to time.Duration
	}{
		"seconds":       {"90", 90 * time.Second, 90 * time.Second},
		"date":          {moment.Add(10 * time.Minute).Format(http.TimeFormat), 10 * time.Minute, 10 * time.Minute},
		"too long":      {"999999999999", hook.MaxRetryAfter, hook.MaxRetryAfter},
		"date too late": {moment.Add(1000 * time.Hour).Format(http.TimeFormat), hook.MaxRetryAfter, hook.MaxRetryAfter},
		"shorter":       {"1", 4 * time.Second, 6 * time.Second},
		"in the past":   {moment.Add(-time.Hour).Format(http.TimeFormat), 4 * time.Second, 6 * time.Second},
		"negative":      {"-5", 4 * time.Second, 6 * time.Second},
		"garbage":       {"soon", 4 * time.Second, 6 * time.Second},
		"none":          {"", 4 * time.Second, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			q := newQueue(delivery("d1", receiver.URL))
			start(t, newSender(t, q, quick, receiver))
			if n := q.next(t); n.Status != hob.DeliveryQueued || n.Again < tt.from || n.Again > tt.to {
				t.Errorf("%+v, want a pause from %s to %s", n, tt.from, tt.to)
			}
		})
	}
}

func TestServe_GivesUpAtOnceOrLooksAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	receiver := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
			return
		}
		http.Redirect(w, r, "/gone", http.StatusTemporaryRedirect)
	})
	for name, tt := range map[string]struct {
		change func(*hob.DueDelivery)
		want   hob.DeliveryStatus
		text   string
		asks   bool
	}{
		"gone":         {func(d *hob.DueDelivery) { d.URL += "/gone" }, hob.DeliveryFailed, "HTTP 410", true},
		"deleted":      {func(d *hob.DueDelivery) { d.To = hob.Hook{} }, hob.DeliveryFailed, "deleted", false},
		"switched off": {func(d *hob.DueDelivery) { d.To.Enabled = false }, hob.DeliveryQueued, "switched off", false},
		"redirect":     {func(*hob.DueDelivery) {}, hob.DeliveryQueued, "HTTP 307", true},
		"refused":      {func(d *hob.DueDelivery) { d.URL = "http://10.1.2.3/" }, hob.DeliveryQueued, "not reachable", false},
		"no secret":    {func(d *hob.DueDelivery) { d.To.Config.Secret = "" }, hob.DeliveryQueued, "secret", false},
	} {
		before := asked.Load()
		d := delivery("d1", receiver.URL)
		tt.change(&d)
		q := newQueue(d)
		end := start(t, newSender(t, q, quick, receiver))
		if n := q.next(t); n.Status != tt.want || !strings.Contains(n.Failure, tt.text) {
			t.Errorf("%s: %+v", name, n)
		}
		end()
		if (asked.Load() > before) != tt.asks {
			t.Errorf("%s: the receiver was asked %d times", name, asked.Load()-before)
		}
	}
}

// No more than Parallel are under way at once, and all come to their turn.
func TestServe_BoundsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	receiver := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(2 * time.Millisecond)
		now.Add(-1)
	})
	q := newQueue()
	const all = 100
	for i := range all {
		q.add(delivery(fmt.Sprintf("d%d", i), receiver.URL))
	}
	// Nothing but the ends of deliveries wakes it after its first look.
	start(t, newSender(t, q, hook.Limits{Every: time.Hour}, receiver))
	seen := map[string]bool{}
	for range all {
		n := q.next(t)
		if n.Status != hob.DeliveryDelivered || seen[n.ID] {
			t.Fatalf("%+v, seen before: %v", n, seen[n.ID])
		}
		seen[n.ID] = true
	}
	if m := most.Load(); m > 16 || m < 2 {
		t.Errorf("%d were under way at once", m)
	}
}

func TestServe_IsWoken(t *testing.T) {
	t.Parallel()
	receiver := serve(t, func(http.ResponseWriter, *http.Request) {})
	q := newQueue(delivery("d0", receiver.URL))
	s := newSender(t, q, hook.Limits{Every: time.Hour}, receiver)
	start(t, s)
	q.next(t) // it has looked
	for i := range 20 {
		q.add(delivery(fmt.Sprintf("e%d", i), receiver.URL))
		s.Kick()
		s.Kick() // more than one before it looks are one
		if n := q.next(t); n.Status != hob.DeliveryDelivered {
			t.Fatalf("%+v", n)
		}
	}
}

func TestServe_OutlivesAFaultOfTheStore(t *testing.T) {
	t.Parallel()
	receiver := serve(t, func(http.ResponseWriter, *http.Request) {})
	q := newQueue(delivery("d1", receiver.URL))
	q.fault = errors.New("the disk is full")
	start(t, newSender(t, q, quick, receiver))
	if n := q.next(t); n.Status != hob.DeliveryDelivered {
		t.Errorf("%+v", n)
	}
}

// When it is to end, what is under way may come to its end, and what does not is due again at once, for somebody else.
func TestServe_Drains(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan bool, 2), make(chan bool)
	receiver := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- true
		if r.URL.Path == "/never" {
			<-r.Context().Done()
			return
		}
		<-answer
	})
	for path, want := range map[string]noted{
		"/soon":  {ID: "d1", Status: hob.DeliveryDelivered},
		"/never": {ID: "d1", Status: hob.DeliveryQueued, Failure: "the server was stopped before the hook had answered"},
	} {
		q := newQueue(delivery("d1", receiver.URL+path))
		l := hook.Limits{Every: 5 * time.Millisecond, Drain: 50 * time.Millisecond}
		if path == "/soon" {
			l.Drain = time.Minute
		}
		s := newSender(t, q, l, receiver)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.Serve(ctx) }()
		<-arrived
		cancel()
		q.add(delivery("d2", receiver.URL+path)) // not taken any more
		if path == "/soon" {
			select {
			case <-ended:
				t.Error("it did not wait for what was under way")
			case <-time.After(30 * time.Millisecond):
			}
			answer <- true
		}
		<-ended
		if got := q.next(t); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
		if len(q.done) != 0 {
			t.Errorf("%s: something else was made: %+v", path, <-q.done)
		}
	}
}
