package provider_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"hob"
	"hob/internal/egress"
	"hob/internal/fakeai"
	"hob/internal/provider"
)

// BenchmarkCall is a whole model call of 50 tokens over loopback, the fake's half included.
func BenchmarkCall(b *testing.B) {
	srv := httptest.NewServer(fakeai.Bench{Tokens: 50}.Handler())
	defer srv.Close()
	guard := egress.New(egress.Config{})
	defer guard.Close()
	m, err := provider.New(provider.Config{Clients: guard, OpenAI: provider.Endpoint{BaseURL: srv.URL + "/v1"}}).Open(context.Background(), hob.DefaultWorkspace, "openai/bench")
	if err != nil {
		b.Fatal(err)
	}
	r := ask("hi")
	r.Model = m.Model
	b.ReportAllocs()
	deltas := 0
	for b.Loop() {
		for d, err := range m.Provider.Stream(b.Context(), r) {
			if err != nil {
				b.Fatal(err)
			}
			deltas++
			_ = d
		}
	}
	b.ReportMetric(float64(deltas)/float64(b.N), "deltas/op")
}
