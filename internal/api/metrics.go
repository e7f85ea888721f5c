package api

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
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

// sample is one line of a metric.
type sample struct {
	labels string
	value  float64
}

// exposeMetrics answers in Prometheus' text format, in the order of MetricTable. A metric that has no sample yet is told of
// all the same.
func exposeMetrics(c *call) error {
	samples := c.s.requestSamples()
	counts := c.s.counts()
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		name, labels, _ := strings.Cut(strings.TrimSuffix(key, "}"), "{")
		samples[name] = append(samples[name], sample{labels, float64(counts[key])})
	}
	samples["hob_build_info"] = []sample{{fmt.Sprintf("version=%q", c.s.Version), 1}}
	var b strings.Builder
	for _, m := range MetricTable() {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, m.kind())
		for _, s := range samples[m.Name] {
			labels := s.labels
			if labels != "" {
				labels = "{" + labels + "}"
			}
			fmt.Fprintf(&b, "%s%s %s\n", m.Name, labels, strconv.FormatFloat(s.value, 'f', -1, 64))
		}
	}
	c.w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	c.w.Header().Set("Cache-Control", "no-store")
	_ = c.rc.SetWriteDeadline(socketTime(c.s.Limits.WriteTime))
	c.w.WriteHeader(http.StatusOK)
	_, _ = c.w.Write([]byte(b.String())) // a reader that left is no fault of ours
	return nil
}

// requestSamples are the metrics that each route has for itself. What never happened has none.
func (s *server) requestSamples() map[string][]sample {
	all := map[string][]sample{}
	for _, r := range s.metrics.routes {
		for class := range r.classes {
			if n := r.classes[class].Load(); n > 0 {
				status := fmt.Sprintf("%dxx", class)
				if class == 0 {
					status = "none" // the client left before an answer
				}
				all["hob_http_requests_total"] = append(all["hob_http_requests_total"],
					sample{fmt.Sprintf("%s,status=%q", r.label, status), float64(n)})
			}
		}
		if n := r.micros.Load(); n > 0 {
			all["hob_http_request_seconds_total"] = append(all["hob_http_request_seconds_total"], sample{r.label, float64(n) / 1e6})
		}
	}
	return all
}

// counts are the metrics that are one number.
func (s *server) counts() map[string]int64 {
	m := &s.metrics
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	all := map[string]int64{
		"hob_runs_accepted_total": m.runs.Load(), "hob_stream_events_total": m.events.Load(),
		"hob_http_unauthorized_total": m.unauthorized.Load(), "hob_http_rate_limited_total": m.limited.Load(),
		"hob_http_unrouted_total": m.unrouted.Load(), "hob_http_panics_total": m.panics.Load(),
		"hob_open_streams":             int64(s.streams.count()),
		"go_goroutines":                int64(runtime.NumGoroutine()),
		"go_memstats_heap_inuse_bytes": int64(mem.HeapInuse), //nolint:gosec // far below the limit
		"go_memstats_sys_bytes":        int64(mem.Sys),       //nolint:gosec // far below the limit
	}
	if s.Metrics != nil {
		maps.Copy(all, s.Metrics())
	}
	return all
}
