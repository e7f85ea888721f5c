package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hob/client"
	"hob/internal/api"
)

// TestMetrics_AreThoseOfTheTableAndThePage holds /metrics, the table in the code and docs/monitoring.md against each other.
func TestMetrics_AreThoseOfTheTableAndThePage(t *testing.T) {
	t.Parallel()
	s := install(t, nil).serve()
	if _, err := s.client().Run(t.Context(), demo(t, s.client()), client.RunRequest{Message: question, Tools: true}); err != nil {
		t.Fatal(err)
	}
	text := metricsOf(t, s.url)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range api.MetricTable() {
		known[m.Name] = true
		if !strings.Contains(text, "# HELP "+m.Name+" "+m.Help+"\n# TYPE "+m.Name+" ") {
			t.Errorf("/metrics does not explain %s", m.Name)
		}
		if !regexp.MustCompile(`(?m)^` + m.Name + `(\{| )`).MatchString(text) {
			t.Errorf("/metrics has no value of %s", m.Name)
		}
		kind := "gauge"
		if strings.HasSuffix(m.Name, "_total") {
			kind = "counter"
		}
		if row := "| `" + m.Name + "` | " + kind + " | " + m.Help + " |\n"; !strings.Contains(string(page), row) {
			t.Errorf("docs/monitoring.md lacks the row\n%s", row)
		}
	}
	for _, text := range []string{text, string(page)} {
		for _, name := range regexp.MustCompile(`\b(hob|go)_[a-z_]+[a-z]\b`).FindAllString(text, -1) {
			if !known[name] {
				t.Errorf("%s is told of and not in the table", name)
			}
		}
	}
	for _, line := range []string{"hob_runs_finished_total 1", "hob_tool_calls_total 1", "hob_tool_calls_failed_total 0", "hob_store_writes_failed_total 0"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("behind one run with one tool call /metrics does not have %q", line)
		}
	}
}
