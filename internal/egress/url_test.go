package egress_test

import (
	"net/netip"
	"strings"
	"testing"

	"hob/internal/egress"
)

func TestCheckURL_RefusesWhatReadersDisagreeAbout(t *testing.T) {
	t.Parallel()
	g := egress.New(egress.Config{Allow: allow(t, "127.0.0.1:80,127.0.0.1:8080,[::1]:80")})
	tests := map[string]string{
		"empty":                   "",
		"no scheme":               "example.com/x",
		"relative":                "/x",
		"scheme relative":         "//example.com/",
		"file":                    "file:///etc/passwd",
		"gopher":                  "gopher://example.com/",
		"ftp":                     "ftp://example.com/",
		"data":                    "data:text/plain,x",
		"javascript":              "javascript:alert(1)",
		"opaque":                  "http:example.com",
		"empty host":              "http:///x",
		"only a port":             "http://:80/",
		"user":                    "http://user@example.com/",
		"user and password":       "http://user:pass@example.com/",
		"empty user":              "http://@example.com/",
		"second at":               "http://example.com@127.0.0.1/",
		"space":                   "http://exam ple.com/",
		"leading space":           " http://example.com/",
		"newline":                 "http://example.com/\nHost: x",
		"carriage return":         "http://example.com/\r\nX: y",
		"tab":                     "http://example.com/\tx",
		"nul":                     "http://example.com/\x00",
		"delete":                  "http://example.com/\x7f",
		"backslash":               `http://example.com\@127.0.0.1/`,
		"backslashes for slashes": `http:\\example.com/`,
		"escaped nul":             "http://example.com/%00",
		"escaped newline":         "http://example.com/a%0d%0aHost:%20b",
		"escaped delete":          "http://example.com/%7F",
		"bad escape":              "http://example.com/%zz",
		"cut escape":              "http://example.com/?q=100%",
		"escape in host":          "http://127.0.0%2e1/",
		"escaped host":            "http://%65xample.com/",
		"invalid utf-8":           "http://example.com/\xff",
		"zero width space":        "http://exa\u200bmple.com/",
		"direction mark":          "http://example.com/\u202efdp",
		"c1 control":              "http://example.com/\u0085",
		"decimal address":         "http://2130706433/",
		"hex address":             "http://0x7f000001/",
		"hex part":                "http://0x7f.1/",
		"short address":           "http://127.1/",
		"octal address":           "http://0177.0.0.1/",
		"leading zero":            "http://127.0.0.01/",
		"five parts":              "http://127.0.0.0.1/",
		"large part":              "http://127.0.0.256/",
		"numeric label":           "http://example.1/",
		"bare 0x":                 "http://a.0x/",
		"upper hex":               "http://0X7F.0.0.1/",
		"final dot after number":  "http://2130706433./",
		"wide digits":             "http://１２７.0.0.1/",
		"wide dot":                "http://127。0。0。1/",
		"circled digits":          "http://①②⑦.0.0.1/",
		"look-alike letters":      "http://ⓔⓧⓐⓜⓟⓛⓔ.com/",
		"kelvin sign":             "http://\u212a.com/",
		"soft hyphen":             "http://exam\u00adple.com/",
		"emoji":                   "http://i\u2764.ws/",
		"combining first":         "http://\u0301a.com/",
		"bad character":           "http://exa$mple.com/",
		"empty label":             "http://a..b/",
		"two final dots":          "http://example.com../",
		"only a dot":              "http://./",
		"leading hyphen":          "http://-a.com/",
		"long label":              "http://" + strings.Repeat("a", 64) + ".com/",
		"long name":               "http://" + strings.Repeat("abcdefg.", 32) + "com/",
		"long international":      "http://" + strings.Repeat("ü", 70) + ".com/",
		"long url":                "http://example.com/" + strings.Repeat("a", 8<<10),
		"port zero":               "http://example.com:0/",
		"port too large":          "http://example.com:65536/",
		"port with zero":          "http://example.com:080/",
		"port with sign":          "http://example.com:+80/",
		"named port":              "http://example.com:http/",
		"two ports":               "http://example.com:80:80/",
		"ipv4 in brackets":        "http://[127.0.0.1]/",
		"name in brackets":        "http://[example.com]/",
		"bracket open":            "http://[::1/",
		"bracket tail":            "http://[::1]x/",
		"zone":                    "http://[fe80::1%25eth0]/",
		"zone raw":                "http://[fe80::1%eth0]/",
		"future address":          "http://[v1.x]/",
		"bare ipv6":               "http://::1/",
	}
	for name, raw := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := g.CheckURL(raw)
			if k := kindOf(t, err); k != egress.BadURL {
				t.Errorf("CheckURL(%q): kind %q (%v), want %q", raw, k, err, egress.BadURL)
			}
			if err != nil && len(raw) > 20 && strings.Contains(err.Error(), raw) {
				t.Errorf("CheckURL(%q) repeats the URL, which may hold a secret: %v", raw, err)
			}
		})
	}
}

func TestCheckURL_AcceptsHonestURLs(t *testing.T) {
	t.Parallel()
	g := egress.New(egress.Config{Allow: allow(t,
		"10.1.0.0/16:8080,[fd00::/8]:443,ollama.lan:11434,169.254.169.254:80,127.0.0.1:9000")})
	for _, raw := range []string{
		"http://example.com", "https://example.com/", "HTTPS://EXAMPLE.com./x", "https://example.com:443/a/b?c=d#e",
		"http://example.com:80/", "http://example.com:/", "https://example.com:80/",
		"https://bücher.example/straße?q=größe", "https://xn--bcher-kva.example/", "https://日本語.jp/",
		"https://a_b.example.com/", "https://api.example.com/v1/%E2%9C%93?q=a%20b%0Ac&x=%25",
		"https://1.example.com/", "https://0xcafe.example.com/", "https://127.0.0.1.nip.io/",
		"http://8.8.8.8/", "https://[2606:4700::1111]/", "http://[::ffff:8.8.8.8]/",
		// opened by the operator
		"http://10.1.2.3:8080/x", "http://[::ffff:10.1.2.3]:8080/", "https://[fd12::1]/", "http://ollama.lan:11434/",
		"http://OLLAMA.LAN.:11434/", "http://169.254.169.254/latest", "http://127.0.0.1:9000/",
		// names are judged at each call; a range may cover this one's answers
		"http://inside.example:8080/", "http://localhost/", "http://localhost:9000/",
	} {
		if err := g.CheckURL(raw); err != nil {
			t.Errorf("CheckURL(%q): %v", raw, err)
		}
	}
}

func TestCheckURL_RefusesPrivateLiteralsAndNamesTheSetting(t *testing.T) {
	t.Parallel()
	own := netip.MustParseAddrPort("127.0.0.1:8787")
	g := egress.New(egress.Config{
		Allow: allow(t, "10.1.0.0/16:8080,ollama.lan:11434,127.0.0.1:8787"),
		Own:   func() []netip.AddrPort { return []netip.AddrPort{own} },
	})
	tests := map[string]egress.Rule{
		"http://127.0.0.1/":              egress.RuleLoopback,
		"http://[::1]/":                  egress.RuleLoopback,
		"http://[::ffff:127.0.0.1]/":     egress.RuleLoopback,
		"http://10.1.2.3/":               egress.RulePrivate, // entry has another port
		"http://10.2.0.1:8080/":          egress.RulePrivate, // entry has another range
		"http://192.168.1.1/":            egress.RulePrivate,
		"http://169.254.169.254/latest/": egress.RulePlatform,
		"http://8.8.8.8:8080/":           egress.RulePort,
		"http://example.com:11434/":      egress.RulePort, // entry has another host
		"http://example.com:22/":         egress.RulePort,
	}
	for raw, rule := range tests {
		err := g.CheckURL(raw)
		if kindOf(t, err) != egress.Refused || ruleOf(err) != rule {
			t.Errorf("CheckURL(%q): %v by rule %q, want %q", raw, err, ruleOf(err), rule)
			continue
		}
		if !strings.Contains(err.Error(), "HOB_EGRESS_ALLOW") {
			t.Errorf("CheckURL(%q): %q does not name the setting", raw, err)
		}
	}
	// No setting opens these, so the message must not send anyone looking.
	for raw, rule := range map[string]egress.Rule{
		"http://127.0.0.1:8787/":   egress.RuleOwnListener,
		"http://0.0.0.0/":          egress.RuleUnspecified,
		"http://[::]/":             egress.RuleUnspecified,
		"http://224.0.0.1/":        egress.RuleMulticast,
		"http://255.255.255.255/":  egress.RuleMulticast,
		"http://[ff02::1]/":        egress.RuleMulticast,
		"http://[::ffff:0.0.0.0]/": egress.RuleUnspecified,
	} {
		err := g.CheckURL(raw)
		if ruleOf(err) != rule || strings.Contains(err.Error(), "HOB_EGRESS_ALLOW") {
			t.Errorf("CheckURL(%q): %v by rule %q, want %q and no setting", raw, err, ruleOf(err), rule)
		}
	}
}

func TestCheckAllowedHosts_NamesTheBadEntry(t *testing.T) {
	t.Parallel()
	good := []string{
		"api.example.com", "API.Example.com.", "api.example.com:8443", "*.example.com", "*.example.com:8443/v1",
		"api.example.com/v1", "api.example.com/v1/", "api.example.com/", "8.8.8.8", "[2606:4700::1111]:443", "bücher.example",
	}
	if err := egress.CheckAllowedHosts(good); err != nil {
		t.Errorf("CheckAllowedHosts: %v", err)
	}
	for _, bad := range []string{
		"", "*", "*.", "https://api.example.com", "a b", "a.com:99999", "a.com:x", "*.8.8.8.8", "127.1",
		"*.*.com", "a*.com", "user@a.com", "a.com/../x", "a.com/%2e%2e/x", "a.com//x", "a.com/a%2fb", "[::1", "a.com/x;y",
	} {
		err := egress.CheckAllowedHosts([]string{"good.example", bad})
		if kindOf(t, err) != egress.BadRequest || !strings.Contains(err.Error(), `"`+bad+`"`) {
			t.Errorf("CheckAllowedHosts(%q): %v, want BadRequest that names it", bad, err)
		}
	}
}

func TestParseURL_WritesInternationalNamesInPunycode(t *testing.T) {
	t.Parallel()
	// Expected forms are those of the IDNA registries and RFC 3492, section 7.1.
	for in, want := range map[string]string{
		"bücher.example": "xn--bcher-kva.example", "BÜCHER.Example": "xn--bcher-kva.example", "bu\u0308cher.example": "xn--bcher-kva.example",
		"straße.de": "xn--strae-oqa.de", "münchen.de": "xn--mnchen-3ya.de", "例え.テスト": "xn--r8jz45g.xn--zckzah",
		"испытание.example": "xn--80akhbyknj4f.example", "παράδειγμα.δοκιμή": "xn--hxajbheg2az3al.xn--jxalpdlp",
		"مثال.إختبار":                    "xn--mgbh0fb.xn--kgbechtv",
		"例子.测试":                          "xn--fsqu00a.xn--0zwm56d",
		"ليهمابتكلموشعربي؟":              "", // ends in a question mark
		"他们为什么不说中文.x":                    "xn--ihqwcrb4cv8a8dqg056pqjye.x",
		"почемужеонинеговорятпорусски.x": "xn--b1abfaaepdrnnbgefbadotcwatmq2g4l.x",
	} {
		_, host, _, _, err := egress.ParseURL("http://" + in + "/")
		if want == "" {
			if kindOf(t, err) != egress.BadURL {
				t.Errorf("host %q: %q %v, want BadURL", in, host, err)
			}
			continue
		}
		if err != nil || host != want {
			t.Errorf("host %q: %q %v, want %q", in, host, err, want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"http://example.com/", "https://[::1]:8443/a?b#c", "http://bücher.example/%2F", "http://127.1/", "http://a@b/", `http://a\b`,
		"http://[::ffff:1.2.3.4]/", "http://0x7f.1", "http:///x", "http:x", "HTTP://A.B.:80//..//", "http://xn--a/", "http://①.com",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		text, host, addr, port, err := egress.ParseURL(raw)
		if err != nil {
			if kindOf(t, err) != egress.BadURL {
				t.Fatalf("ParseURL(%q): %v is not BadURL", raw, err)
			}
			return
		}
		if host == "" || port == 0 || addr.IsValid() && (addr.Zone() != "" || addr.Is4In6()) {
			t.Fatalf("ParseURL(%q) accepts host %q port %d address %v", raw, host, port, addr)
		}
		if strings.ContainsAny(host, "%@/\\ ?#[]") {
			t.Fatalf("ParseURL(%q): host %q", raw, host)
		}
		// What is sent must lead where what was judged leads.
		text2, host2, addr2, port2, err := egress.ParseURL(text)
		if len(text) > len(raw) && err != nil {
			return // escaping made it longer than a URL may be
		}
		if err != nil || text2 != text || host2 != host || addr2 != addr || port2 != port {
			t.Fatalf("ParseURL(%q) = %q, which reads back as %q %q %v %d (%v)", raw, text, text2, host2, addr2, port2, err)
		}
	})
}
