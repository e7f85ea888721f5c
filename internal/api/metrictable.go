package api

import "strings"

// Metric is one name that /metrics tells, with what it means. docs/monitoring.md has the same table.
type Metric struct{ Name, Help string }

// kind is Prometheus' type of the metric.
func (m Metric) kind() string {
	if strings.HasSuffix(m.Name, "_total") {
		return "counter"
	}
	return "gauge"
}

// MetricTable lists every metric. Those whose name ends in _total count from the start of the process; the others are what
// holds now.
func MetricTable() []Metric {
	return []Metric{
		{"hob_http_requests_total", "requests answered, by route and by hundreds of the status; none: the client left before"},
		{"hob_http_request_seconds_total", "seconds that requests took, by route; a stream counts until it ends"},
		{"hob_http_unauthorized_total", "requests refused for want of a valid key or token"},
		{"hob_http_rate_limited_total", "requests refused with 429 for a limit of requests or streams"},
		{"hob_http_unrouted_total", "requests for a path or method that is not there"},
		{"hob_http_panics_total", "faults in Hob's own code that ended a request"},
		{"hob_open_streams", "event streams that are open"},
		{"hob_stream_events_total", "events sent to streams"},
		{"hob_runs_accepted_total", "new runs whose request was answered with them; a repeat under an Idempotency-Key is none"},
		{"hob_runs_started_total", "new runs that this process stored, whether or not the caller still waited for the answer"},
		{"hob_runs_recovered_total", "runs taken up that another process, or this one before it was restarted, had left"},
		{"hob_runs_finished_total", "runs that ended here, however they did"},
		{"hob_runs_failed_total", "runs that ended here as failed"},
		{"hob_runs_too_many_attempts_total", "runs failed because they were interrupted too often without getting on"},
		{"hob_runs_lost_total", "runs driven here that another process took over, or that were deleted, in the midst of it"},
		{"hob_runs_active", "runs that this process drives"},
		{"hob_runs_starting", "runs that are in their start"},
		{"hob_runs_starting_bound", "runs that may be in their start; lower in an overload"},
		{"hob_runs_refused_overloaded_total", "runs refused because the server was full"},
		{"hob_runs_refused_workspace_busy_total", "runs refused because their workspace had its share of a full server"},
		{"hob_runs_refused_shutting_down_total", "runs refused because the server was stopping"},
		{"hob_tool_calls_total", "tool calls carried out"},
		{"hob_tool_calls_failed_total", "tool calls carried out whose result is an error"},
		{"hob_tool_calls_outcome_unknown_total", "tool calls of which nobody knows whether they took effect"},
		{"hob_model_calls_total", "calls of models, those for summaries included"},
		{"hob_model_tokens_total", "tokens of these calls, sent and received"},
		{"hob_model_cost_nanodollars_total", "what these calls cost, in billionths of a dollar"},
		{"hob_summaries_total", "calls of models for summaries"},
		{"hob_sandbox_wall", "1 for a wall around agents' code that was tried and stands, by wall; self-test: all that are needed do"},
		{"hob_circuits_open", "model providers that are left alone for a while, since they failed again and again"},
		{"hob_store_writes_total", "writes to the database that were begun"},
		{"hob_store_writes_failed_total", "writes that the database did not take"},
		{"hob_store_commits_total", "transactions; on SQLite writes share them"},
		{"hob_store_reruns_total", "transactions done over, because a write in them failed or the database asked for it"},
		{"hob_store_largest_batch", "most writes that shared a transaction"},
		{"hob_store_waiting", "writes that wait for the database"},
		{"hob_store_delay_microseconds", "median time of a durable write, in the last tenth of a second with any"},
		{"hob_build_info", "1, with the version as a label"},
		{"go_goroutines", "goroutines of the process"},
		{"go_memstats_heap_inuse_bytes", "memory in use by the heap"},
		{"go_memstats_sys_bytes", "memory taken from the system"},
	}
}
