package egress_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob/internal/egress"
)

func TestParseAllow_ReadsEveryForm(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"":                                nil,
		"  ":                              nil,
		"ollama.lan:11434":                {"ollama.lan:11434"},
		"OLLAMA.Lan.:11434":               {"ollama.lan:11434"},
		"bücher.example:443":              {"xn--bcher-kva.example:443"},
		"10.1.2.3:80":                     {"10.1.2.3:80"},
		"10.0.0.0/8:443":                  {"10.0.0.0/8:443"},
		"[::1]:8080":                      {"[::1]:8080"},
		"[fd00::/8]:443":                  {"[fd00::/8]:443"},
		"[fd00::]/8:443":                  {"[fd00::/8]:443"},
		"fd00::/8:443":                    {"[fd00::/8]:443"},
		"[::ffff:10.0.0.1]:80":            {"10.0.0.1:80"},
		"::ffff:10.0.0.0/104:80":          {"10.0.0.0/8:80"},
		"a:1, b:65535 ,127.0.0.1:11434":   {"a:1", "b:65535", "127.0.0.1:11434"},
		"localhost:11434,0.0.0.0/0:8443":  {"localhost:11434", "0.0.0.0/0:8443"},
		"169.254.169.254:80":              {"169.254.169.254:80"},
		"_dns.internal:53,a-b.c_d.x:8080": {"_dns.internal:53", "a-b.c_d.x:8080"},
	}
	for in, want := range tests {
		entries, err := egress.ParseAllow(in)
		if err != nil {
			t.Errorf("ParseAllow(%q): %v", in, err)
			continue
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseAllow(%q) (-want +got):\n%s", in, diff)
		}
		again, err := egress.ParseAllow(strings.Join(got, ","))
		if err != nil || len(again) != len(entries) {
			t.Errorf("ParseAllow(%q) does not read its own form %v: %v", in, got, err)
		}
	}
}

func TestParseAllow_NamesTheBadEntryAndAnExample(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"example.com", "example.com:", "example.com:0", "example.com:65536", "example.com:080", "example.com:+80", "example.com:http",
		":80", "*.example.com:80", "*:80", "http://example.com:80", "user@example.com:80", "exa mple.com:80", "a..b:80", "-a.b:80",
		"::1:80", "[::1]", "[::1:80", "::1]:80", "[10.0.0.1]:80", "[fe80::1%eth0]:80", "[fd00::1]x:80",
		"10.0.0.0/33:80", "10.0.0.5/8:80", "fd00::1/8:80", "::ffff:0:0/90:80", "10.0.0/8:80",
		"2130706433:80", "0x7f.1:80", "127.1:80", "0177.0.0.1:80", "256.1.1.1:80",
		"0.0.0.0:80", "[::]:80", "224.0.0.1:80", "255.255.255.255:80", "[ff02::1]:80",
	} {
		_, err := egress.ParseAllow("good.example:443," + bad)
		if k := kindOf(t, err); k != egress.BadAllow {
			t.Errorf("ParseAllow(%q): kind %q, want %q", bad, k, egress.BadAllow)
			continue
		}
		for _, want := range []string{"HOB_EGRESS_ALLOW", `"` + bad + `"`, "for example"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("ParseAllow(%q): %q lacks %q", bad, err, want)
			}
		}
	}
	for _, in := range []string{"a:1,,b:2", "a:1,"} {
		if _, err := egress.ParseAllow(in); kindOf(t, err) != egress.BadAllow {
			t.Errorf("ParseAllow(%q) accepts an empty entry", in)
		}
	}
	_, err := egress.ParseAllow("10.0.0.5/8:80")
	if err == nil || !strings.Contains(err.Error(), "10.0.0.0/8") || !strings.Contains(err.Error(), "10.0.0.5/32") {
		t.Errorf("a range with bits below its mask: %v, want both ways out", err)
	}
}

func FuzzParseAllow(f *testing.F) {
	for _, s := range []string{"a:1", "10.0.0.0/8:443", "[fd00::/8]:443", "fd00::/8:443,x.y:2", "bücher.example:1", "[::ffff:1.2.3.4]:5", "]:1", "[/:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		entries, err := egress.ParseAllow(s)
		if err != nil {
			if kindOf(t, err) != egress.BadAllow {
				t.Fatalf("ParseAllow(%q): %v is not BadAllow", s, err)
			}
			return
		}
		for _, e := range entries {
			again, err := egress.ParseAllow(e.String())
			if err != nil || len(again) != 1 || again[0] != e {
				t.Fatalf("entry %v of %q does not read back: %v %v", e, s, again, err)
			}
		}
	})
}
