package builtin_test

import (
	"testing"

	"hob/internal/builtin"
)

// BenchmarkTools is what the toolset adds to the start of a run with three tools: at most 20 µs.
func BenchmarkTools(b *testing.B) {
	s := newSet(b, builtin.Deps{Database: &tables{text: "main.t(id INTEGER)", count: 1}})
	g := grant(assign("database_query", oneTable), assignCustom(named("weather"), `{"units":"c"}`),
		assign("http_request", `{"allowed_hosts":["api.example.com"],"rules":[{"condition":"url CONTAINS x","action":"deny","message":"no"}]}`))
	b.ReportAllocs()
	for b.Loop() {
		if tools, _, err := s.Tools(b.Context(), g); err != nil || len(tools) != 3 {
			b.Fatal(len(tools), err)
		}
	}
}
