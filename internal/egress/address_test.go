package egress_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"hob/internal/egress"
)

// forbidden lists an address of every class that must never be reached without
// an entry, and the rule it falls under.
func forbidden() map[string]egress.Rule {
	return map[string]egress.Rule{
		"127.0.0.1": egress.RuleLoopback, "127.255.255.254": egress.RuleLoopback, "::1": egress.RuleLoopback,
		"10.0.0.1": egress.RulePrivate, "172.16.0.1": egress.RulePrivate, "172.31.255.255": egress.RulePrivate,
		"192.168.0.1": egress.RulePrivate, "100.64.0.1": egress.RulePrivate, "100.127.255.255": egress.RulePrivate,
		"fc00::1": egress.RulePrivate, "fd12:3456::1": egress.RulePrivate,
		"169.254.0.1": egress.RuleLinkLocal, "fe80::1": egress.RuleLinkLocal, "febf::1": egress.RuleLinkLocal,
		"0.0.0.0": egress.RuleUnspecified, "::": egress.RuleUnspecified, "0.1.2.3": egress.RuleSpecial,
		"224.0.0.1": egress.RuleMulticast, "239.255.255.250": egress.RuleMulticast, "ff02::1": egress.RuleMulticast, "ff0e::1": egress.RuleMulticast,
		"255.255.255.255": egress.RuleMulticast, "240.0.0.1": egress.RuleSpecial, "254.255.255.255": egress.RuleSpecial,
		"192.0.0.1": egress.RuleSpecial, "192.0.2.1": egress.RuleSpecial, "198.51.100.1": egress.RuleSpecial, "203.0.113.1": egress.RuleSpecial,
		"198.18.0.1": egress.RuleSpecial, "198.19.255.255": egress.RuleSpecial, "192.88.99.1": egress.RuleSpecial,
		"192.31.196.1": egress.RuleSpecial, "192.52.193.1": egress.RuleSpecial, "192.175.48.1": egress.RuleSpecial,
		"169.254.169.254": egress.RulePlatform, "169.254.170.2": egress.RulePlatform, "168.63.129.16": egress.RulePlatform,
		"100.100.100.200": egress.RulePlatform, "192.0.0.192": egress.RulePlatform, "fd00:ec2::254": egress.RulePlatform,
		"fd20:ce::254": egress.RulePlatform, "161.26.0.10": egress.RulePlatform, "166.9.0.1": egress.RulePlatform, "199.36.153.8": egress.RulePlatform,
		"2600:2d00:2:1000::1": egress.RulePlatform,
		"2001:db8::1":         egress.RuleSpecial, "3fff::1": egress.RuleSpecial, "2001:2::1": egress.RuleSpecial, "2001:20::1": egress.RuleSpecial,
		"100::1": egress.RuleSpecial, "5f00::1": egress.RuleSpecial, "fec0::1": egress.RuleSpecial, "4000::1": egress.RuleSpecial,
		"2620:4f:8000::1": egress.RuleSpecial,
		// IPv4 in IPv6
		"::ffff:127.0.0.1": egress.RuleLoopback, "::ffff:10.0.0.1": egress.RulePrivate, "::ffff:169.254.169.254": egress.RulePlatform,
		"::127.0.0.1": egress.RuleEmbedded, "::10.0.0.1": egress.RuleEmbedded, "::8.8.8.8": egress.RuleSpecial,
		"::ffff:0:127.0.0.1": egress.RuleEmbedded, "64:ff9b::127.0.0.1": egress.RuleEmbedded, "64:ff9b::a9fe:a9fe": egress.RuleEmbedded,
		"64:ff9b::8.8.8.8": egress.RuleSpecial, "64:ff9b:1::10.0.0.1": egress.RuleEmbedded,
		"2002:7f00:1::": egress.RuleEmbedded, "2002:a00:1::1": egress.RuleEmbedded, "2002:808:808::1": egress.RuleSpecial,
		"2001:0:1:2:3:4:80ff:fffe":  egress.RuleEmbedded, // Teredo of 127.0.0.1
		"2001:0:1:2:3:4:f7f7:f7f7":  egress.RuleSpecial,  // Teredo of 8.8.8.8
		"2606:4700::5efe:a00:1":     egress.RuleEmbedded, // ISATAP of 10.0.0.1
		"2606:4700::200:5efe:a00:1": egress.RuleEmbedded,
	}
}

func TestDo_ReachesNoSpecialAddress(t *testing.T) {
	t.Parallel()
	for addr, rule := range forbidden() {
		t.Run(strings.ReplaceAll(addr, ":", "_"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, egress.Config{}, names{
				"evil.example":  {{addr}},
				"mixed.example": {{pub4, addr}},
				"late.example":  {{pub6, pub4, addr}},
			}, netip.AddrPort{})
			host := addr
			if strings.Contains(addr, ":") {
				host = "[" + addr + "]"
			}
			urls := []string{"http://" + host + "/", "https://" + host + "/", "http://evil.example/", "http://mixed.example/", "http://late.example/"}
			for _, u := range urls {
				begin := time.Now()
				_, err := w.Do(t.Context(), egress.Request{URL: u, Timeout: soon})
				if kindOf(t, err) != egress.Refused || ruleOf(err) != rule {
					t.Errorf("Do(%s): %v by rule %q, want %q", u, err, ruleOf(err), rule)
					continue
				}
				if err.Error() != egress.RefusedText {
					t.Errorf("Do(%s): text %q differs from the one refusal text", u, err)
				}
				if d := time.Since(begin); d > time.Second {
					t.Errorf("Do(%s): refusal took %v", u, d)
				}
			}
			if got := w.refused(); len(got) != len(urls) {
				t.Errorf("refusals reported: %d, want %d", len(got), len(urls))
			}
			if d := w.dials(); len(d) != 0 {
				t.Errorf("dialled %v; a forbidden name must not be dialled at all", d)
			}
		})
	}
}

func TestDo_RefusalIsQuick(t *testing.T) {
	t.Parallel()
	const want = 20 * time.Millisecond
	w := newWorld(t, egress.Config{}, names{"evil.example": {{pub4, "10.0.0.1"}}}, netip.AddrPort{})
	for _, u := range []string{"http://10.0.0.1/", "http://evil.example/", "http://a.example:22/"} {
		best := time.Hour // of several, as the machine may be busy
		for range 10 {
			begin := time.Now()
			if _, err := w.Do(t.Context(), egress.Request{URL: u}); kindOf(t, err) != egress.Refused {
				t.Fatalf("Do(%s): %v, want Refused", u, err)
			}
			best = min(best, time.Since(begin))
		}
		if best > want {
			t.Errorf("Do(%s): refusal takes %v, want at most %v", u, best, want)
		}
	}
}

func TestDo_PublicAddressesAreReached(t *testing.T) {
	t.Parallel()
	to := serve(t, ok)
	w := newWorld(t, egress.Config{}, names{
		"v4.example": {{pub4}}, "v6.example": {{pub6}}, "both.example": {{pub6, pub4}},
		"mapped.example": {{"::ffff:" + pub4}},
	}, to)
	for _, u := range []string{
		"http://v4.example/", "http://v6.example/", "http://both.example/x?y=z", "http://mapped.example/",
		"http://" + pub4 + "/", "http://[" + pub6 + "]/", "http://[::ffff:" + pub4 + "]/", "http://V4.Example.:80/",
	} {
		res, err := w.Do(t.Context(), egress.Request{Pool: u, URL: u})
		if err != nil || res.Status != 200 || string(res.Body) != "ok" {
			t.Errorf("Do(%s): %v %v", u, res, err)
		}
	}
	if r := w.refused(); len(r) != 0 {
		t.Errorf("honest calls were reported as refusals: %v", r)
	}
}

func TestDo_UnreachableReadsLikeRefused(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort(closed.Addr().String())
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, egress.Config{}, names{"down.example": {{pub4}}, "empty.example": {{}}, "two.example": {{pub4, pub6}}}, to)
	for _, u := range []string{"http://down.example/", "http://nowhere.example/", "http://empty.example/", "http://two.example/"} {
		_, err := w.Do(t.Context(), egress.Request{URL: u, Timeout: soon})
		if kindOf(t, err) != egress.Unreachable || err.Error() != egress.RefusedText {
			t.Errorf("Do(%s): %v (%q), want Unreachable with the refusal text", u, err, kindOf(t, err))
		}
		var e *egress.Error
		if errors.As(err, &e) && (e.Unwrap() == nil || !strings.HasPrefix(e.Detail(), "unreachable: ")) {
			t.Errorf("Do(%s): detail %q tells the operator nothing", u, e.Detail())
		}
	}
}

func TestDo_NameThatChangesItsAnswersIsCaught(t *testing.T) {
	t.Parallel()
	to := serve(t, ok)
	w := newWorld(t, egress.Config{}, names{"rebind.example": {{pub4}, {"127.0.0.1"}}}, to)
	if _, err := w.Do(t.Context(), egress.Request{Pool: "a", URL: "http://rebind.example/"}); err != nil {
		t.Fatal(err)
	}
	// One look-up per connection: a second one, between judgement and dial,
	// would have been given the private answer.
	if n := w.dns.count("rebind.example"); n != 1 {
		t.Errorf("%d look-ups for one connection, want 1", n)
	}
	_, err := w.Do(t.Context(), egress.Request{Pool: "b", URL: "http://rebind.example/"})
	if ruleOf(err) != egress.RuleLoopback {
		t.Errorf("second connection: %v, want refusal by loopback", err)
	}
	if d := w.dials(); len(d) != 1 || d[0].Addr() != netip.MustParseAddr(pub4) {
		t.Errorf("dialled %v, want the judged address once", d)
	}
}

func TestDialer_AsksAboutTheSocketsOwnAddress(t *testing.T) {
	t.Parallel()
	hit := make(chan struct{}, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			hit <- struct{}{}
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	to := netip.MustParseAddrPort(l.Addr().String())
	no := errors.New("no")
	var asked netip.AddrPort
	_, err = egress.DialChecked(t.Context(), to, func(ap netip.AddrPort) error { asked = ap; return no })
	if !errors.Is(err, no) || asked != to {
		t.Errorf("dial: %v after being asked about %v, want the check's error about %v", err, asked, to)
	}
	select {
	case <-hit:
		t.Error("the listener was reached though the check refused")
	case <-time.After(50 * time.Millisecond):
	}
	c, err := egress.DialChecked(t.Context(), to, func(netip.AddrPort) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	<-hit
}

func TestDo_DeadFirstAddressDoesNotBlockTheSecond(t *testing.T) {
	t.Parallel()
	to := serve(t, ok)
	w := newWorld(t, egress.Config{}, names{"both.example": {{pub6, pub4}}}, to)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := netip.MustParseAddrPort(dead.Addr().String())
	_ = dead.Close()
	for name, first := range map[string]netip.AddrPort{"closed port": closed, "silent host": {}} {
		w.MapDial(func(ap netip.AddrPort) (netip.AddrPort, bool) {
			if ap.Addr().Is6() {
				return first, true
			}
			return to, true
		})
		begin := time.Now()
		res, err := w.Do(t.Context(), egress.Request{Pool: name, URL: "http://both.example/"})
		if err != nil || string(res.Body) != "ok" {
			t.Errorf("%s: %v %v", name, res, err)
		}
		if d := time.Since(begin); d >= egress.DefaultConnectTimeout {
			t.Errorf("%s: answer after %v, so the first address held the second up", name, d)
		}
	}
}

func TestDo_AllowEntryOpensExactlyWhatItNames(t *testing.T) {
	t.Parallel()
	const v4, v6 = "127.0.0.1:0", "[::1]:0"
	open4, open6 := serveOn(t, v4, ok), serveOn(t, v6, ok)
	other := serveOn(t, v4, ok)
	n := names{
		"inside.example": {{"127.0.0.1"}}, "other.example": {{"127.0.0.1"}},
		"pair.example": {{"127.0.0.1", "::1"}}, "half.example": {{"127.0.0.1", "10.0.0.1"}},
		"meta.example": {{"169.254.169.254"}}, "nat.example": {{"64:ff9b::a9fe:a9fe"}},
	}
	p4, p6 := portOf(open4), portOf(open6)
	tests := []struct {
		name, allow, url string
		rule             egress.Rule
	}{
		{"address", "127.0.0.1:" + p4, "http://127.0.0.1:" + p4, ""},
		{"address by mapped form", "127.0.0.1:" + p4, "http://[::ffff:127.0.0.1]:" + p4, ""},
		{"address by name", "127.0.0.1:" + p4, "http://inside.example:" + p4, ""},
		{"range", "127.0.0.0/8:" + p4, "http://127.0.0.1:" + p4, ""},
		{"address v6", "[::1]:" + p6, "http://[::1]:" + p6, ""},
		{"range v6", "[::/64]:" + p6, "http://[::1]:" + p6, ""},
		{"name", "inside.example:" + p4, "http://Inside.Example.:" + p4, ""},
		{"name with both families", "pair.example:" + p4, "http://pair.example:" + p4, ""},

		{"nothing", "", "http://127.0.0.1:" + p4, egress.RuleLoopback},
		{"other port", "127.0.0.1:" + p4, "http://127.0.0.1:" + portOf(other), egress.RuleLoopback},
		{"other address", "127.0.0.2:" + p4, "http://127.0.0.1:" + p4, egress.RuleLoopback},
		{"other family", "127.0.0.0/8:" + p6, "http://[::1]:" + p6, egress.RuleLoopback},
		{"all v6 is not v4", "[::/0]:" + p4, "http://[::ffff:127.0.0.1]:" + p4, egress.RuleLoopback},
		{"name is not its address", "inside.example:" + p4, "http://127.0.0.1:" + p4, egress.RuleLoopback},
		{"name is not another name", "inside.example:" + p4, "http://other.example:" + p4, egress.RulePort},
		{"name on web port", "inside.example:80", "http://other.example", egress.RuleLoopback},
		{"half covered answers", "127.0.0.1:" + p4, "http://half.example:" + p4, egress.RulePrivate},
		{"other port by name", "inside.example:" + p4, "http://inside.example:" + portOf(other), egress.RulePort},
		{"name onto metadata", "meta.example:80", "http://meta.example/", egress.RulePlatform},
		{"name onto translated metadata", "nat.example:80", "http://nat.example/", egress.RuleEmbedded},
		{"range onto translated private", "[64:ff9b::/96]:80", "http://[64:ff9b::7f00:1]/", egress.RuleEmbedded},
		{"unspecified under a range", "0.0.0.0/0:80", "http://0.0.0.0/", egress.RuleUnspecified},
		{"multicast under a range", "0.0.0.0/0:80", "http://224.0.0.1/", egress.RuleMulticast},
		{"unspecified v6 under a range", "[::/0]:80", "http://[::]/", egress.RuleUnspecified},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, egress.Config{Allow: allow(t, tt.allow)}, n, netip.AddrPort{})
			res, err := w.Do(t.Context(), egress.Request{URL: tt.url, Timeout: soon})
			if ruleOf(err) != tt.rule {
				t.Fatalf("Do(%s) with %q: %v by rule %q, want rule %q", tt.url, tt.allow, err, ruleOf(err), tt.rule)
			}
			if tt.rule == "" && (err != nil || string(res.Body) != "ok") {
				t.Fatalf("Do(%s) with %q: %v %v", tt.url, tt.allow, res, err)
			}
			if tt.rule != "" && len(w.dials()) > 0 {
				t.Errorf("dialled %v", w.dials())
			}
		})
	}
}

func TestDo_OwnListenersAreNeverReached(t *testing.T) {
	t.Parallel()
	const everything = "0.0.0.0/0:PORT,[::/0]:PORT,self.example:PORT,127.0.0.1:PORT"
	wild := serveOn(t, "0.0.0.0:0", ok)
	loop := serveOn(t, "127.0.0.1:0", ok)
	elsewhere := serveOn(t, "127.0.0.1:0", ok)
	n := names{"self.example": {{"127.0.0.1"}}, "lan.example": {{"10.9.8.7"}}}
	tests := []struct {
		name, own, host string
	}{
		{name: "loopback", own: loop.String(), host: "127.0.0.1"},
		{name: "loopback mapped", own: loop.String(), host: "[::ffff:127.0.0.1]"},
		{name: "loopback by name", own: loop.String(), host: "self.example"},
		{name: "another loopback address", own: loop.String(), host: "127.8.9.10"},
		{name: "loopback of the other family", own: loop.String(), host: "[::1]"},
		{name: "loopback translated", own: loop.String(), host: "[64:ff9b::7f00:1]"},
		{name: "wildcard by loopback", own: wild.String(), host: "127.0.0.1"},
		{name: "wildcard by another loopback address", own: wild.String(), host: "127.0.0.2"},
		{name: "wildcard v6 by v4", own: "[::]:" + portOf(wild), host: "127.0.0.1"},
		{name: "wildcard by interface address", own: wild.String(), host: "10.9.8.7"},
		{name: "wildcard by name of an interface", own: wild.String(), host: "lan.example"},
		{name: "exact address", own: "10.1.1.1:" + portOf(loop), host: "10.1.1.1"},
		{name: "exact public address", own: pub4 + ":" + portOf(loop), host: pub4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			own := netip.MustParseAddrPort(tt.own)
			c := egress.Config{
				Allow: allow(t, strings.ReplaceAll(everything, "PORT", portOf(own))),
				Own:   func() []netip.AddrPort { return []netip.AddrPort{own} },
			}
			w := newWorld(t, c, n, netip.AddrPort{})
			w.SetLocal(func(a netip.Addr) bool { return a == netip.MustParseAddr("10.9.8.7") })
			u := "http://" + tt.host + ":" + portOf(own) + "/"
			_, err := w.Do(t.Context(), egress.Request{URL: u, Timeout: soon, AllowedHosts: []string{tt.host + ":" + portOf(own)}})
			if ruleOf(err) != egress.RuleOwnListener || len(w.dials()) != 0 {
				t.Errorf("Do(%s): %v by rule %q, dialled %v; want own_listener", u, err, ruleOf(err), w.dials())
			}
			if client, err := w.OperatorClient(u); err == nil {
				res, err := client.Get(u)
				if err == nil {
					_ = res.Body.Close()
				}
				if ruleOf(err) != egress.RuleOwnListener {
					t.Errorf("operator client: %v, want own_listener", err)
				}
			} else if ruleOf(err) != egress.RuleOwnListener {
				t.Errorf("OperatorClient(%s): %v, want own_listener", u, err)
			}
		})
	}
	// The same entry still opens other ports of the machine.
	c := egress.Config{Allow: allow(t, "127.0.0.1:"+portOf(elsewhere)), Own: func() []netip.AddrPort { return []netip.AddrPort{loop, wild} }}
	w := newWorld(t, c, n, netip.AddrPort{})
	if res, err := w.Do(t.Context(), egress.Request{URL: "http://" + elsewhere.String()}); err != nil || res.Status != 200 {
		t.Errorf("a listener that is not ours: %v %v", res, err)
	}
}

func TestOwnListener_InterfaceAddressesOfTheMachineCount(t *testing.T) {
	t.Parallel()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, x := range addrs {
		n, isNet := x.(*net.IPNet)
		if !isNet {
			continue
		}
		a, _ := netip.AddrFromSlice(n.IP)
		a = a.Unmap()
		own := netip.AddrPortFrom(netip.IPv4Unspecified(), 8787)
		g := egress.New(egress.Config{
			Allow: allow(t, "0.0.0.0/0:8787,[::/0]:8787"),
			Own:   func() []netip.AddrPort { return []netip.AddrPort{own} },
		})
		err := g.CheckURL("http://" + netip.AddrPortFrom(a, 8787).String())
		if ruleOf(err) != egress.RuleOwnListener {
			t.Errorf("interface address %v: %v, want own_listener", a, err)
		}
		checked++
	}
	if checked == 0 {
		t.Fatal("the machine has no interface address, not even loopback")
	}
}
