package builtin_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"hob"
)

// TestCustom_ALostAnswerIsToldAndNotAskedForAgain cuts the kept connection of the second call after the endpoint acted.
func TestCustom_ALostAnswerIsToldAndNotAskedForAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		recovery hob.Recovery
		method   string
		acts     int64
		unknown  bool
	}{
		{hob.RecoverOnce, "POST", 2, true},
		{"", "POST", 2, true},
		{hob.RecoverKeyed, "POST", 3, true}, // the endpoint honours the key
		{hob.RecoverRead, "POST", 3, false},
		{hob.RecoverRead, "GET", 3, false},
	} {
		var acts atomic.Int64
		srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if acts.Add(1) == 1 {
				return
			}
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_ = conn.Close()
			}
		})
		r := custom(t, srv, func(row *hob.Tool) { row.Config.Recovery, row.Config.Method = c.recovery, c.method })
		if res := call(t, r, `{"city":"a"}`); res.IsError {
			t.Fatalf("%+v", res)
		}
		res := call(t, r, `{"city":"a"}`)
		told := strings.Contains(res.Text, "may have been carried out")
		if acts.Load() != c.acts || !res.IsError || res.Unknown != c.unknown || told != (c.method != "GET") {
			t.Errorf("%s %q: the endpoint acted %d times, want %d; %+v", c.method, c.recovery, acts.Load(), c.acts, res)
		}
	}
}
