package egress_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"hob/internal/egress"
)

func TestOperatorClient_ReachesExactlyItsOrigin(t *testing.T) {
	t.Parallel()
	base := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Host + r.URL.Path)) })
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another port was reached") })
	w := newWorld(t, egress.Config{}, names{"ollama.lan": {{"127.0.0.1"}}, "other.lan": {{"127.0.0.1"}}}, netip.AddrPort{})
	origin := "http://ollama.lan:" + portOf(base)
	client, err := w.OperatorClient(origin + "/v1/")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{origin + "/v1/chat", origin + "/elsewhere", "http://OLLAMA.LAN.:" + portOf(base) + "/x"} {
		res, err := client.Get(u)
		if err != nil {
			t.Errorf("Get(%s): %v", u, err)
			continue
		}
		_ = res.Body.Close()
	}
	for _, u := range []string{
		"http://127.0.0.1:" + portOf(base) + "/", "http://other.lan:" + portOf(base) + "/", "http://ollama.lan/",
		"http://ollama.lan:" + portOf(other) + "/", "https://ollama.lan:" + portOf(base) + "/",
	} {
		res, err := client.Post(u, "text/plain", strings.NewReader("body"))
		if err == nil {
			_ = res.Body.Close()
		}
		if ruleOf(err) != egress.RuleOperatorBase || !strings.Contains(err.Error(), egress.RefusedText) {
			t.Errorf("Post(%s): %v, want refusal by operator_base", u, err)
		}
	}
	res, err := client.Get("http://u:p@ollama.lan:" + portOf(base) + "/")
	if err == nil {
		_ = res.Body.Close()
	}
	if kindOf(t, err) != egress.BadURL {
		t.Errorf("credentials: %v, want BadURL", err)
	}
	if n := len(w.refused()); n != 5 {
		t.Errorf("%d refusals reported, want 5", n)
	}
}

func TestOperatorClient_JudgesItsBase(t *testing.T) {
	t.Parallel()
	to := serve(t, ok)
	w := newWorld(t, egress.Config{}, names{
		"meta.lan": {{"169.254.169.254"}}, "link.lan": {{pub4, "fe80::1"}},
		"many.lan": {{"224.0.0.1"}}, "nat.lan": {{"64:ff9b::a9fe:a9fe"}}, "pub.example": {{pub4}},
	}, to)
	for _, bad := range []string{"", "ollama:11434", "ftp://ollama.lan/", "http://user:pw@ollama.lan/", "http://127.1:11434", "http://[fe80::1%25eth0]/"} {
		if _, err := w.OperatorClient(bad); kindOf(t, err) != egress.BadURL {
			t.Errorf("OperatorClient(%q): %v, want BadURL", bad, err)
		}
	}
	if _, err := w.OperatorClient("http://224.0.0.1/"); ruleOf(err) != egress.RuleMulticast {
		t.Errorf("multicast base: %v", err)
	}
	for host, rule := range map[string]egress.Rule{"meta.lan": egress.RulePlatform, "link.lan": egress.RuleLinkLocal, "many.lan": egress.RuleMulticast, "nat.lan": egress.RuleEmbedded} {
		client, err := w.OperatorClient("http://" + host + ":9000/")
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Get("http://" + host + ":9000/")
		if err == nil {
			_ = res.Body.Close()
		}
		if ruleOf(err) != rule {
			t.Errorf("base %s: %v, want refusal by %s", host, err, rule)
		}
	}
	if len(w.dials()) != 0 {
		t.Errorf("dialled %v", w.dials())
	}
	// A metadata address is fine where the operator wrote the address itself.
	w.MapDial(func(netip.AddrPort) (netip.AddrPort, bool) { return to, true })
	const meta = "http://169.254.169.254:9000/"
	if client, err := w.OperatorClient(meta); err != nil {
		t.Errorf("base %s: %v", meta, err)
	} else if res, err := client.Get(meta); err != nil {
		t.Errorf("base %s: %v", meta, err)
	} else {
		_ = res.Body.Close()
	}
	w.MapDial(func(ap netip.AddrPort) (netip.AddrPort, bool) { return to, ap.Addr() == netip.MustParseAddr(pub4) })
	// Literals the operator wrote and public names on any port are fine.
	zero := serveOn(t, "0.0.0.0:0", ok)
	for _, u := range []string{"http://0.0.0.0:" + portOf(zero), "http://127.0.0.1:" + portOf(zero), "http://pub.example:9999"} {
		client, err := w.OperatorClient(u)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Get(u + "/")
		if err != nil {
			t.Errorf("base %s: %v", u, err)
			continue
		}
		_ = res.Body.Close()
	}
}

func TestOperatorClient_StreamsWithoutTotalTimeAndFollowsNothing(t *testing.T) {
	t.Parallel()
	step := make(chan struct{})
	const side = 20 // calls of a wave, each on a connection of its own: they are answered once all have come
	var gate sync.Mutex
	waiting, open := 0, make(chan struct{})
	to, conns := connCount(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/stream", http.StatusTemporaryRedirect)
		case "/short":
			if e := r.Header.Get("Accept-Encoding"); e != "" {
				t.Errorf("asks for the encoding %q, which would hold a stream back", e)
			}
			gate.Lock()
			all := open
			if waiting++; waiting == side {
				waiting, open = 0, make(chan struct{})
				close(all)
			}
			gate.Unlock()
			<-all
		case "/stream":
			for {
				select {
				case <-step:
					_, _ = io.WriteString(w, "data: x\n")
					_ = http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return
				}
			}
		}
	})
	w := newWorld(t, egress.Config{}, nil, netip.AddrPort{})
	base := "http://" + to.String()
	client, err := w.OperatorClient(base)
	if err != nil {
		t.Fatal(err)
	}
	if client.Timeout != 0 {
		t.Errorf("total timeout %v", client.Timeout)
	}
	res, err := client.Get(base + "/moved")
	if err != nil || res.StatusCode != http.StatusTemporaryRedirect {
		t.Fatalf("redirect: %v %v, want it as the answer", res, err)
	}
	_ = res.Body.Close()

	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { step <- struct{}{} }()
	res, err = client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		if i > 0 {
			step <- struct{}{}
		}
		if line, err := lines.ReadString('\n'); line != "data: x\n" {
			t.Fatalf("line %d: %q %v", i, line, err)
		}
	}
	cancel()
	if _, err := lines.ReadString('\n'); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: %v", err)
	}
	_ = res.Body.Close()

	// A wave of parallel calls leaves its connections for the next wave.
	wave := func() {
		var wg sync.WaitGroup
		for range side {
			wg.Go(func() {
				again, err := w.OperatorClient(base + "/other/path")
				if err != nil {
					t.Error(err)
					return
				}
				res, err := again.Get(base + "/short")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			})
		}
		wg.Wait()
	}
	wave()
	time.Sleep(300 * time.Millisecond) // connections return to the pool just after the last byte
	before := conns.Load()
	wave()
	if n := conns.Load() - before; n > 2 {
		t.Errorf("the second wave opened %d connections", n)
	}
}

func TestOperatorClient_UnreachableIsTyped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, egress.Config{}, nil, netip.AddrPort{})
	client, err := w.OperatorClient("http://nowhere.lan:1/")
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Get("http://nowhere.lan:1/")
	if err == nil {
		_ = res.Body.Close()
	}
	if kindOf(t, err) != egress.Unreachable {
		t.Errorf("Get: %v, want Unreachable", err)
	}
}

func TestOperatorClient_UsesHTTP2OverTLS(t *testing.T) {
	t.Parallel()
	w, _ := newWorldTLS(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }, true, 0x0304)
	client, err := w.OperatorClient("https://example.com/v1")
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Get("https://example.com/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, _ := io.ReadAll(res.Body); string(b) != "HTTP/2.0" {
		t.Errorf("protocol %s", b)
	}
}
