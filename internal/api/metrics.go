package api

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// metrics counts what the API does. Names of routes are those of the table, so that no client can make new series.
type metrics struct {
	routes                                                []*routeCounts // complete before the first request
	runs, events, unauthorized, limited, unrouted, panics atomic.Int64
}

// routeCounts are the counters of one route.
type routeCounts struct {
	label   string
	classes [6]atomic.Int64 // by hundreds of the status
	micros  atomic.Int64
}

func (m *metrics) route(method, path string) *routeCounts {
	c := &routeCounts{label: fmt.Sprintf(`method=%q,route=%q`, method, path)}
	m.routes = append(m.routes, c)
	return c
}

func (c *routeCounts) done(status int, took time.Duration) {
	if i := status / 100; i > 0 && i < len(c.classes) {
		c.classes[i].Add(1)
	} else {
		c.classes[0].Add(1)
	}
	c.micros.Add(took.Microseconds())
}

// exposeMetrics answers in Prometheus' text format.
func exposeMetrics(c *call) error {
	var b strings.Builder
	m := &c.s.metrics
	b.WriteString("# TYPE hob_http_requests_total counter\n")
	for _, r := range m.routes {
		for class := range r.classes {
			if n := r.classes[class].Load(); n > 0 {
				status := fmt.Sprintf("%dxx", class)
				if class == 0 {
					status = "none" // the client left before an answer
				}
				fmt.Fprintf(&b, "hob_http_requests_total{%s,status=%q} %d\n", r.label, status, n)
			}
		}
	}
	b.WriteString("# TYPE hob_http_request_seconds_total counter\n")
	for _, r := range m.routes {
		if n := r.micros.Load(); n > 0 {
			fmt.Fprintf(&b, "hob_http_request_seconds_total{%s} %g\n", r.label, float64(n)/1e6)
		}
	}
	counter := func(name string, n int64) { fmt.Fprintf(&b, "# TYPE %s counter\n%s %d\n", name, name, n) }
	gauge := func(name string, n int64) { fmt.Fprintf(&b, "# TYPE %s gauge\n%s %d\n", name, name, n) }
	counter("hob_runs_accepted_total", m.runs.Load())
	counter("hob_stream_events_total", m.events.Load())
	counter("hob_http_unauthorized_total", m.unauthorized.Load())
	counter("hob_http_rate_limited_total", m.limited.Load())
	counter("hob_http_unrouted_total", m.unrouted.Load())
	counter("hob_http_panics_total", m.panics.Load())
	gauge("hob_open_streams", int64(c.s.streams.count()))
	if c.s.Metrics != nil {
		extra := c.s.Metrics()
		for _, name := range slices.Sorted(maps.Keys(extra)) {
			kind := gauge
			if strings.HasSuffix(name, "_total") {
				kind = counter
			}
			kind(name, extra[name])
		}
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	gauge("go_goroutines", int64(runtime.NumGoroutine()))
	gauge("go_memstats_heap_inuse_bytes", int64(mem.HeapInuse)) //nolint:gosec // far below the limit
	gauge("go_memstats_sys_bytes", int64(mem.Sys))              //nolint:gosec // far below the limit
	fmt.Fprintf(&b, "# TYPE hob_build_info gauge\nhob_build_info{version=%q} 1\n", c.s.Version)
	c.w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	c.w.Header().Set("Cache-Control", "no-store")
	_ = c.rc.SetWriteDeadline(socketTime(c.s.Limits.WriteTime))
	c.w.WriteHeader(http.StatusOK)
	_, _ = c.w.Write([]byte(b.String())) // a reader that left is no fault of ours
	return nil
}
