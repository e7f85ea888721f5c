package egress_test

import (
	"net/http"
	"net/netip"
	"testing"

	"hob/internal/egress"
)

// BenchmarkDo measures small exchanges over kept connections, the hot path of
// HTTP tools.
func BenchmarkDo(b *testing.B) {
	to, stop := benchServer(b)
	defer stop()
	g := egress.New(egress.Config{Resolver: &fakeDNS{names: names{"a.example": {{pub4}}}, lookups: map[string]int{}}})
	defer g.Close()
	g.MapDial(func(netip.AddrPort) (netip.AddrPort, bool) { return to, true })
	head := http.Header{"Accept": {"application/json"}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			res, err := g.Do(b.Context(), egress.Request{Pool: "p", URL: "http://a.example/v1/x?y=z", Header: head, AllowedHosts: []string{"*.example/v1"}})
			if err != nil || res.Status != http.StatusOK {
				b.Fatal(res, err)
			}
		}
	})
}

// BenchmarkPlainClient is the same exchange by net/http alone, to compare.
func BenchmarkPlainClient(b *testing.B) {
	to, stop := benchServer(b)
	defer stop()
	tr := &http.Transport{MaxIdleConnsPerHost: 256}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			res, err := c.Get("http://" + to.String() + "/v1/x?y=z")
			if err != nil {
				b.Fatal(err)
			}
			_, _ = res.Body.Read(make([]byte, 64))
			_ = res.Body.Close()
		}
	})
}

func BenchmarkJudge(b *testing.B) {
	g := egress.New(egress.Config{})
	b.ReportAllocs()
	for b.Loop() {
		if err := g.CheckURL("https://8.8.8.8/v1/x?y=z"); err != nil {
			b.Fatal(err)
		}
	}
}
