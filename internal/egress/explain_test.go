package egress

import (
	"net/netip"
	"testing"
)

func TestRefusal_ExplainsWhatOpensIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		refusal Refusal
		want    string
	}{
		{Refusal{Host: "10.0.0.1", Port: 80, Rule: RulePrivate, Address: netip.MustParseAddr("10.0.0.1")}, "refused: 10.0.0.1:80 is a private address; HOB_EGRESS_ALLOW=10.0.0.1:80 opens it to all tools"},
		{Refusal{Host: "db.lan", Port: 443, Rule: RulePrivate, Address: netip.MustParseAddr("fd00::1")}, "refused: db.lan:443 is a private address (fd00::1); HOB_EGRESS_ALLOW=db.lan:443 opens it to all tools"},
		{Refusal{Host: "example.com", Port: 8080, Rule: RulePort}, "refused: example.com:8080 is a port that nothing opens; HOB_EGRESS_ALLOW=example.com:8080 opens it to all tools"},
		// An entry by name does not open these.
		{Refusal{Host: "x.test", Port: 80, Rule: RuleLinkLocal, Address: netip.MustParseAddr("169.254.1.1")}, "refused: x.test:80 is a link-local address (169.254.1.1); HOB_EGRESS_ALLOW=169.254.1.1:80 opens it to all tools"},
		{Refusal{Host: "x.test", Port: 80, Rule: RuleAllowedHosts}, "refused: x.test:80 is outside the allowed_hosts of the assignment; config_override.allowed_hosts opens it"},
		{Refusal{Host: "127.0.0.1", Port: 8787, Rule: RuleOwnListener, Address: netip.MustParseAddr("127.0.0.1")}, "refused: 127.0.0.1:8787 is an address that this server listens on; nothing opens it"},
		{Refusal{Host: "0.0.0.0", Port: 80, Rule: RuleUnspecified, Address: netip.MustParseAddr("0.0.0.0")}, "refused: 0.0.0.0:80 is a special address (unspecified); nothing opens it"},
	} {
		got := c.refusal.Explain()
		if got != c.want {
			t.Errorf("%+v:\n%s, want\n%s", c.refusal, got, c.want)
		}
	}
}
