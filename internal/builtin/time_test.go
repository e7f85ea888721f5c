package builtin_test

import (
	"strings"
	"testing"

	"hob/internal/builtin"
)

func TestCurrentTime(t *testing.T) {
	t.Parallel()
	r := one(t, newSet(t, builtin.Deps{}), assign("current_time", ""))
	for args, want := range map[string]string{
		`{}`:                        `{"utc":"2026-03-03T20:30:00Z","local":"2026-03-03T20:30:00Z","timezone":"UTC","weekday":"Tuesday"}`,
		`{"timezone":"Asia/Tokyo"}`: `{"utc":"2026-03-03T20:30:00Z","local":"2026-03-04T05:30:00+09:00","timezone":"Asia/Tokyo","weekday":"Wednesday"}`,
	} {
		if res := call(t, r, args); res.Text != want || res.IsError {
			t.Errorf("%s: %+v", args, res)
		}
	}
}

func TestCurrentTime_UnknownZonesAreNamed(t *testing.T) {
	t.Parallel()
	r := one(t, newSet(t, builtin.Deps{}), assign("current_time", ""))
	for _, zone := range []string{"Mars/Olympus", "Local", "../../etc/passwd", "/etc/passwd", strings.Repeat("ü", 500)} {
		res := call(t, r, `{"timezone":"`+zone+`"}`)
		if !res.IsError || !strings.HasPrefix(res.Text, `{"error":"unknown time zone`) || len(res.Text) > 300 {
			t.Errorf("%.20s: %+v", zone, res)
		}
	}
	if res := call(t, r, `{"timezone":5}`); res.Text != `{"error":"timezone must be text, not number"}` {
		t.Errorf("%+v", res)
	}
}
