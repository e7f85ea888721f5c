package main

import (
	"strings"
	"testing"
)

func TestPrinter_ShowsWhatTheProviderSearchedFor(t *testing.T) {
	t.Parallel()
	got := show(t, `
{"event":"start","seq":1,"run_id":"run_1","session_id":"sess_1","model":"scripted/search","tools":["web_browsing"]}
{"event":"step_started","seq":2,"step":1}
{"event":"content_delta","seq":3,"step":1,"delta":"I look."}
{"event":"web_search","seq":4,"step":1,"tool_name":"web_browsing","query":"weather \u001b[31m\n oslo","results":[{"title":"Yr","url":"https://yr.no"},{"url":"https://met.no"}]}
{"event":"web_search","seq":5,"step":1,"tool_name":"web_browsing","query":"","results":[]}
{"event":"web_search","seq":6,"step":1,"tool_name":"web_browsing","query":"b","results":[],"error":"max_uses_exceeded"}
{"event":"content_delta","seq":7,"step":1,"delta":"It rains."}`)
	for _, line := range []string{
		"I look.\n→ web_browsing by the provider: weather", "oslo\n← https://yr.no\n  https://met.no\n",
		"→ web_browsing by the provider\n← (no pages named)\n", "← error: max_uses_exceeded\nIt rains.",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("%q is not in\n%s", line, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("a query moves the cursor: %q", got)
	}
}
