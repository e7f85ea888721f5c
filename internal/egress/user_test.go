package egress_test

import (
	"bufio"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"hob/internal/egress"
)

func TestUserClient_RefusesWhatCannotBeReachedBeforeAnyCall(t *testing.T) {
	t.Parallel()
	own := netip.MustParseAddrPort("127.0.0.1:7070")
	w := newWorld(t, egress.Config{
		Allow: allow(t, "127.0.0.1:7070,10.0.0.9:8000"), Own: func() []netip.AddrPort { return []netip.AddrPort{own} },
	}, nil, netip.AddrPort{})
	for base, rule := range map[string]egress.Rule{
		"http://127.0.0.1/v1":           egress.RuleLoopback,
		"http://10.0.0.8:8000/v1":       egress.RulePrivate,
		"http://192.168.1.2/v1":         egress.RulePrivate,
		"http://169.254.169.254/v1":     egress.RulePlatform,
		"http://[::ffff:127.0.0.1]/v1":  egress.RuleLoopback,
		"http://[64:ff9b::a00:1]/v1":    egress.RuleEmbedded,
		"http://0.0.0.0/v1":             egress.RuleUnspecified,
		"http://model.example:8080/v1":  egress.RulePort,
		"http://127.0.0.1:7070/v1":      egress.RuleOwnListener, // whatever the list says
		"https://" + pub4 + ":11434/v1": egress.RulePort,
	} {
		if _, err := w.UserClient(base); ruleOf(err) != rule {
			t.Errorf("UserClient(%q): %v (%s), want refusal by %s", base, err, ruleOf(err), rule)
		}
	}
	for _, base := range []string{"", "ftp://a.example/", "https://user:pw@a.example/v1", "https://127.1/v1"} {
		if _, err := w.UserClient(base); kindOf(t, err) != egress.BadURL {
			t.Errorf("UserClient(%q): %v, want BadURL", base, err)
		}
	}
	if _, err := w.UserClient("http://10.0.0.9:8000/v1"); err != nil {
		t.Errorf("an address of the allow list: %v", err)
	}
	if n := len(w.dials()); n != 0 {
		t.Errorf("%d connections were tried", n)
	}
}

func TestUserClient_JudgesEveryAnswerOfAName(t *testing.T) {
	t.Parallel()
	to := serve(t, ok)
	w := newWorld(t, egress.Config{}, names{
		"inside.example": {{"10.0.0.8"}}, "mixed.example": {{pub4, "127.0.0.1"}}, "meta.example": {{"169.254.169.254"}},
		"turns.example": {{pub4}, {"127.0.0.1"}}, "good.example": {{pub4}},
	}, to)
	get := func(host string) error {
		t.Helper()
		client, err := w.UserClient("http://" + host + "/v1")
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		defer client.CloseIdleConnections() // the next call looks the name up again
		res, err := client.Get("http://" + host + "/v1/models")
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
	for host, rule := range map[string]egress.Rule{
		"inside.example": egress.RulePrivate, "mixed.example": egress.RuleLoopback, "meta.example": egress.RulePlatform,
	} {
		before := len(w.dials())
		// It reads like a name that does not exist, so that nobody learns the names of the private network.
		missing := get("nowhere.example")
		if err := get(host); ruleOf(err) != rule || kindOf(t, err) != egress.Unreachable ||
			strings.ReplaceAll(err.Error(), host, "nowhere.example") != missing.Error() {
			t.Errorf("%s: %v, want refusal by %s that reads like %q", host, err, rule, missing)
		}
		if len(w.dials()) != before {
			t.Errorf("%s was dialled", host)
		}
	}
	if err := get("good.example"); err != nil {
		t.Errorf("a public name: %v", err)
	}
	if err := get("turns.example"); err != nil {
		t.Errorf("a name while it is public: %v", err)
	}
	if err := get("turns.example"); ruleOf(err) != egress.RuleLoopback {
		t.Errorf("a name that turned: %v", err)
	}
}

func TestUserClient_AllowListOpensPrivateServers(t *testing.T) {
	t.Parallel()
	to := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	w := newWorld(t, egress.Config{Allow: allow(t, "model.lan:"+portOf(to))}, names{"model.lan": {{"127.0.0.1"}}}, netip.AddrPort{})
	base := "http://model.lan:" + portOf(to)
	client, err := w.UserClient(base + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Get(base + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != "/v1/models" {
		t.Errorf("got %q", body)
	}
}

func TestUserClient_KeepsToItsOriginAndFollowsNothing(t *testing.T) {
	t.Parallel()
	to := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusTemporaryRedirect)
	})
	w := newWorld(t, egress.Config{}, names{"good.example": {{pub4}}, "other.example": {{pub4other}}}, to)
	client, err := w.UserClient("http://good.example/v1")
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Post("http://good.example/v1/chat", "text/plain", strings.NewReader("x"))
	if err != nil || res.StatusCode != http.StatusTemporaryRedirect {
		t.Fatalf("redirect: %v %v, want it as the answer", res, err)
	}
	_ = res.Body.Close()
	for _, u := range []string{"http://other.example/v1", "https://good.example/v1", "http://good.example:8080/v1", "http://127.0.0.1/"} {
		res, err := client.Post(u, "text/plain", strings.NewReader("x"))
		if err == nil {
			_ = res.Body.Close()
		}
		if ruleOf(err) != egress.RuleOperatorBase {
			t.Errorf("%s: %v, want refusal", u, err)
		}
	}
}

func TestUserClient_StreamsAndSharesConnections(t *testing.T) {
	t.Parallel()
	step := make(chan struct{})
	to, conns := connCount(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("asks for a compression, which would hold a stream back")
		}
		for range 2 {
			<-step
			_, _ = io.WriteString(w, "data: x\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	w := newWorld(t, egress.Config{}, names{"good.example": {{pub4}}}, to)
	for range 3 {
		client, err := w.UserClient("http://good.example/v1")
		if err != nil {
			t.Fatal(err)
		}
		if client.Timeout != 0 {
			t.Errorf("total timeout %v", client.Timeout)
		}
		go func() { step <- struct{}{} }()
		res, err := client.Get("http://good.example/v1/x")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(res.Body)
		if line, err := lines.ReadString('\n'); line != "data: x\n" {
			t.Fatalf("first line before the second was sent: %q %v", line, err)
		}
		step <- struct{}{}
		if _, err := io.Copy(io.Discard, lines); err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		time.Sleep(10 * time.Millisecond) // connections return to the pool just after the last byte
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for three clients of one origin", n)
	}
}

func TestUserClient_OriginsAreBounded(t *testing.T) {
	t.Parallel()
	to := serve(t, ok)
	w := newWorld(t, egress.Config{Pools: 2}, names{"a.example": {{pub4}}, "b.example": {{pub4}}, "c.example": {{pub4}}}, to)
	for _, host := range []string{"a", "b", "c", "a"} {
		base := "http://" + host + ".example"
		client, err := w.UserClient(base)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Get(base + "/")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	if n := w.PoolCount(); n != 2 {
		t.Errorf("%d pools are kept, want 2", n)
	}
	w.Close()
	client, err := w.UserClient("http://a.example")
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Get("http://a.example/")
	if err == nil {
		_ = res.Body.Close()
	}
	if kindOf(t, err) != egress.Closed {
		t.Errorf("after Close: %v", err)
	}
}
