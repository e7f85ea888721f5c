package hook_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"hob"
	"hob/internal/egress"
	"hob/internal/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// moment is what the clock of these tests tells.
var moment = time.Date(2026, time.March, 3, 20, 30, 0, 0, time.UTC)

const secret = "s3cret-of-the-hook"

// newSender makes a Sender that reaches the given servers and nothing else on this machine.
func newSender(t testing.TB, store hob.DeliveryStore, l hook.Limits, servers ...*httptest.Server) *hook.Sender {
	t.Helper()
	var allow []string
	for _, s := range servers {
		allow = append(allow, s.Listener.Addr().String())
	}
	entries, err := egress.ParseAllow(strings.Join(allow, ","))
	if err != nil {
		t.Fatal(err)
	}
	guard := egress.New(egress.Config{Allow: entries})
	t.Cleanup(guard.Close)
	return hook.New(hook.Config{Egress: guard, Store: store, Clock: func() time.Time { return moment }, Limits: l, Version: "1.2.3"})
}

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func httpHook(url string) hob.Hook {
	return hob.Hook{
		ID: "hook-1", Workspace: hob.DefaultWorkspace, Event: hob.PreToolUse, Type: hob.HTTPHook, Enabled: true,
		Config: hob.HookConfig{URL: url, Secret: secret, Headers: map[string]hob.Secret{"X-Api-Key": "k-123"}},
	}
}

func request(url string) hob.HookRequest {
	return hob.HookRequest{
		Hook: httpHook(url), URL: url, Delivery: "del-1", Attempt: 2, Timeout: 5 * time.Second,
		Body: json.RawMessage(`{"event":"PreToolUse","tool_name":"x","data":{"ä":1}}`),
	}
}

// queue is a store of deliveries, whose time is told by the test.
type queue struct {
	mu      sync.Mutex
	now     time.Duration
	waiting []hob.DueDelivery
	due     map[string]time.Duration // by id; of what is under way, the end of its lease
	fault   error                    // of the next look
	done    chan noted
}

// noted is what DeliveryDone was told.
type noted struct {
	ID      string
	Status  hob.DeliveryStatus
	Failure string
	Again   time.Duration
}

func newQueue(list ...hob.DueDelivery) *queue {
	q := &queue{due: map[string]time.Duration{}, done: make(chan noted, 1000)}
	q.add(list...)
	return q
}

func (q *queue) add(list ...hob.DueDelivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range list {
		q.waiting = append(q.waiting, d)
		q.due[d.ID] = q.now
	}
}

// pass lets time go by.
func (q *queue) pass(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.now += d
}

func (q *queue) DueDeliveries(_ context.Context, lease time.Duration, limit int) ([]hob.DueDelivery, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.fault; err != nil {
		q.fault = nil
		return nil, err
	}
	var out []hob.DueDelivery
	for i := range q.waiting {
		d := &q.waiting[i]
		if at, queued := q.due[d.ID]; !queued || at > q.now || len(out) == limit {
			continue
		}
		q.due[d.ID] = q.now + lease
		d.Attempts++
		out = append(out, *d)
	}
	return out, nil
}

func (q *queue) DeliveryDone(_ context.Context, id string, status hob.DeliveryStatus, failure string, again time.Duration) error {
	q.mu.Lock()
	if delete(q.due, id); status == hob.DeliveryQueued {
		q.due[id] = q.now + again
	}
	q.mu.Unlock()
	q.done <- noted{ID: id, Status: status, Failure: failure, Again: again}
	return nil
}

// next is what is noted next.
func (q *queue) next(t testing.TB) noted {
	t.Helper()
	select {
	case n := <-q.done:
		return n
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was noted")
		return noted{}
	}
}

// start runs Serve until the test ends, or end is called.
func start(t testing.TB, s *hook.Sender) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(ctx) }()
	end = func() { cancel(); <-ended }
	t.Cleanup(end)
	return end
}

func delivery(id, url string) hob.DueDelivery {
	return hob.DueDelivery{
		Delivery: hob.Delivery{ID: id, Hook: "hook-1", Event: string(hob.OnRunComplete), URL: url, Body: json.RawMessage(`{"event":"OnRunComplete"}`)},
		To:       httpHook(url),
	}
}
