package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/api"
)

func TestArguments_ShowSQLAsSQL(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want string }{
		"short":   {`{"query":"SELECT 1"}`, "SELECT 1"},
		"quotes":  {`{"query":"SELECT name FROM t WHERE a = 'x\"y'"}`, `SELECT name FROM t WHERE a = 'x"y'`},
		"broken":  {`{"query":"SELECT count(*)\nFROM orders"}`, "SELECT count(*)\nFROM orders"},
		"others":  {`{"query":"SELECT 1","limit":5}`, "SELECT 1\n{\"limit\":5}"},
		"no SQL":  {`{"query":"cheap flights"}`, `{"query":"cheap flights"}`},
		"html":    {`{"a":"<b> & c"}`, `{"a":"<b> & c"}`},
		"none":    {`{}`, "{}"},
		"no JSON": {`[1`, `[1`},
		"clauses": {
			`{"query":"SELECT c.name, sum(o.total) FROM orders o JOIN customers c ON c.id = o.customer WHERE o.note = 'sent FROM here' GROUP BY c.name ORDER BY 2 DESC LIMIT 5"}`,
			"SELECT c.name, sum(o.total)\nFROM orders o\nJOIN customers c ON c.id = o.customer\nWHERE o.note = 'sent FROM here'\nGROUP BY c.name\nORDER BY 2 DESC\nLIMIT 5",
		},
		"nested": {
			`{"query":"SELECT count(*) FROM orders WHERE id IN (SELECT order_id FROM items WHERE price > 100 AND name LIKE '%x%')"}`,
			"SELECT count(*)\nFROM orders\nWHERE id IN (SELECT order_id FROM items WHERE price > 100 AND name LIKE '%x%')",
		},
		"comment": {
			`{"query":"SELECT 1 /* FROM nowhere WHERE nothing */ FROM orders WHERE status = 'open' -- LIMIT 1 FROM x"}`,
			"SELECT 1 /* FROM nowhere WHERE nothing */\nFROM orders\nWHERE status = 'open' -- LIMIT 1 FROM x",
		},
		"open quote": {
			`{"query":"SELECT 'never closed FROM a WHERE b GROUP BY c and so on until the line is too long"}`,
			"SELECT 'never closed FROM a WHERE b GROUP BY c and so on until the line is too long",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, arguments(json.RawMessage(tc.in))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestArguments_LongOnesAreIndented(t *testing.T) {
	t.Parallel()
	got := arguments(json.RawMessage(`{"url":"https://example.com/` + strings.Repeat("x", maxLine) + `","method":"GET"}`))
	if !strings.HasPrefix(got, "{\n  \"method\": \"GET\",\n") {
		t.Errorf("got %s", got)
	}
}

func TestPlain_DropsWhatCouldDriveTheTerminal(t *testing.T) {
	t.Parallel()
	in := "a\x1b[2J\x1b]0;title\x07b\rc\u202ed\u2066e\u009bf\ttab\nline é 漢"
	if got, want := plain(in), "a[2J]0;titlebcdef\ttab\nline é 漢"; got != want {
		t.Errorf("plain = %q, want %q", got, want)
	}
}

func TestShorten_KeepsTheBeginningAndSaysHowMuchIsLeft(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in           string
		lines, chars int
		want         string
	}{
		{"short", 2, 10, "short"},
		{"  padded \n", 2, 10, "padded"},
		{"a\nb\nc\nd", 2, 10, "a\nb … (4 more characters)"},
		{"éééééé", 2, 4, "éééé … (2 more characters)"},
		{"ééééé", 2, 4, "éééé … (1 more character)"},
		{"a\nb", 2, 10, "a\nb"},
	} {
		if got := shorten(tc.in, tc.lines, tc.chars); got != tc.want {
			t.Errorf("shorten(%q, %d, %d) = %q, want %q", tc.in, tc.lines, tc.chars, got, tc.want)
		}
	}
}

// show prints events written as JSON, one per line, without colours.
func show(t *testing.T, events string) string {
	t.Helper()
	return showBeside(t, nil, events)
}

// showBeside is show with the answer going elsewhere.
func showBeside(t *testing.T, answer io.Writer, events string) string {
	t.Helper()
	var b strings.Builder
	p := &printer{out: &b, answer: answer}
	for line := range strings.SplitSeq(strings.TrimSpace(events), "\n") {
		var head hob.EventHead
		if err := json.Unmarshal([]byte(line), &head); err != nil {
			t.Fatal(err)
		}
		if err := p.event(hob.Event{Seq: head.Seq, Type: head.Event, Data: json.RawMessage(line)}); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestPrinter_ShowsARunWithTools(t *testing.T) {
	t.Parallel()
	got := show(t, `
{"event":"start","seq":1,"run_id":"run_1","session_id":"sess_1","model":"scripted/demo","tools":["database_query"]}
{"event":"step_started","seq":2,"step":1}
{"event":"reasoning_delta","seq":3,"step":1,"delta":"count "}
{"event":"reasoning_delta","seq":4,"step":1,"delta":"them"}
{"event":"reasoning","seq":5,"step":1,"content":"count them"}
{"event":"content_delta","seq":6,"step":1,"delta":"Let me look."}
{"event":"tool_call","seq":7,"step":1,"tool_name":"database_query","arguments":{"query":"SELECT count(*) AS open FROM orders WHERE status = 'open'"},"call_id":"c1"}
{"event":"tool_result","seq":8,"step":1,"tool_name":"database_query","call_id":"c1","result":"[{\"open\":7}]","duration_ms":3}
{"event":"step_completed","seq":9,"step":1}
{"event":"step_started","seq":10,"step":2}
{"event":"content_delta","seq":11,"step":2,"delta":"There are "}
{"event":"content_delta","seq":12,"step":2,"delta":"7."}
{"event":"step_completed","seq":13,"step":2}
{"event":"chunk","seq":14,"content":"There are 7."}
{"event":"a_later_event","seq":15}
{"event":"complete","seq":16,"status":"completed","steps":2,"usage":{"total_tokens":12}}`)
	want := `run_1 · session sess_1 · scripted/demo · tools: database_query
step 1
count them
Let me look.
→ database_query
    SELECT count(*) AS open FROM orders WHERE status = 'open'
← [{"open":7}]
  3 ms
step 2
There are 7.
completed · 2 steps · 12 tokens
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPrinter_ShowsWhatARunCost(t *testing.T) {
	t.Parallel()
	got := show(t, `{"event":"complete","seq":1,"status":"completed","steps":1,"usage":{"total_tokens":12,"cost":0.00125}}`)
	if want := "completed · 1 step · 12 tokens · $0.00125\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPrinter_KeepsTheAnswerApart(t *testing.T) {
	t.Parallel()
	var answer strings.Builder
	got := showBeside(t, &answer, `
{"event":"start","seq":1,"run_id":"run_1","session_id":"s","model":"m","tools":["t"]}
{"event":"step_started","seq":2,"step":1}
{"event":"content_delta","seq":3,"step":1,"delta":"Let me look."}
{"event":"tool_call","seq":4,"step":1,"tool_name":"t","arguments":{},"call_id":"c"}
{"event":"tool_result","seq":5,"step":1,"tool_name":"t","call_id":"c","result":"7","duration_ms":3}
{"event":"step_started","seq":6,"step":2}
{"event":"content_delta","seq":7,"step":2,"delta":"There"}
{"event":"step_reset","seq":8,"step":2,"reason":"model_error"}
{"event":"step_started","seq":9,"step":2}
{"event":"content_delta","seq":10,"step":2,"delta":"There are 7."}
{"event":"chunk","seq":11,"content":"There are 7."}
{"event":"complete","seq":12,"status":"completed","content":"There are 7.","steps":2}`)
	want := `run_1 · session s · m · tools: t
step 1
Let me look.
→ t
    {}
← 7
  3 ms
step 2
step 2 starts over (model_error); its text so far is void
step 2
completed · 2 steps
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if answer.String() != "There are 7.\n" {
		t.Errorf("the answer is %q", answer.String())
	}
}

func TestPrinter_SaysCancelledOnce(t *testing.T) {
	t.Parallel()
	got := show(t, `{"event":"complete","seq":1,"status":"cancelled","code":"cancelled","error":"cancelled","steps":1}`)
	if want := "cancelled · 1 step\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLifetime_TakesDaysAndDurations(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"30d": 720 * time.Hour, "720h": 720 * time.Hour, "90m": 90 * time.Minute,
		"0d": 0, "-1h": 0, "-3d": 0, "soon": 0, "1.5d": 0, "99999999d": 0, "": 0,
	} {
		got, err := lifetime(in)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("lifetime(%q) = %s, %v; want %s", in, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "30d or 720h") {
			t.Errorf("the error %q shows no example", err)
		}
	}
}

func TestPrinter_ShowsTheAnswerOfARunWithoutTools(t *testing.T) {
	t.Parallel()
	got := show(t, `
{"event":"start","seq":1,"run_id":"run_1","session_id":"s","model":"m","tools":[]}
{"event":"step_started","seq":2,"step":1}
{"event":"chunk","seq":3,"content":"Hello "}
{"event":"chunk","seq":4,"content":"there."}
{"event":"complete","seq":5,"status":"completed","steps":1}`)
	if want := "run_1 · session s · m\nHello there.\ncompleted · 1 step\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPrinter_SaysWhatWentWrong(t *testing.T) {
	t.Parallel()
	got := show(t, `
{"event":"attempt","seq":1,"attempt":2,"step":1,"void_from":0}
{"event":"warning","seq":2,"code":"x","message":"tool \"t\" is not loaded"}
{"event":"content_delta","seq":3,"step":1,"delta":"half"}
{"event":"step_reset","seq":4,"step":1,"reason":"model_error"}
{"event":"model_fallback","seq":5,"step":1,"from":"a","to":"b"}
{"event":"tool_call","seq":6,"step":1,"tool_name":"t","arguments":{},"bad_arguments":"{\"a\":","call_id":"c"}
{"event":"tool_result","seq":6,"step":1,"tool_name":"t","result":"no such table\nsecond line","is_error":true,"duration_ms":1}
{"event":"tool_result","seq":7,"step":1,"tool_name":"t","result":"","outcome_unknown":true,"duration_ms":1}
{"event":"error","seq":8,"error":"the model said no","message":"the model said no","code":"provider_error"}
{"event":"complete","seq":9,"status":"failed","code":"provider_error","error":"the model said no","steps":1}`)
	want := `the server was restarted; the run goes on
warning: tool "t" is not loaded
half
step 1 starts over (model_error); its text so far is void
going on with b instead of a
→ t
    no JSON object: {"a":
← error: no such table
  second line
  1 ms
← outcome unknown: (nothing)
  1 ms
error: the model said no
failed (provider_error) · 1 step
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNearest_FindsTheCommandThatWasMeant(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"server": "serve", "srve": "serve", "Chat": "chat", "keys": "key", "docter": "doctor", "verson": "version", "bananas": "", "foo": "", "kye": "", "kex": "key",
	} {
		if got := nearest(word, commandNames()); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestBounds_FollowTheLimitOnOpenFiles(t *testing.T) {
	t.Parallel()
	conns := api.ConnLimits{Total: 20_000, PerAddress: 2_000}
	for _, tc := range []struct {
		files                       uint64
		total, perAddress, streamed int
	}{
		{1 << 20, 20_000, 2_000, 10_000},
		{20_256, 20_000, 2_000, 10_000},
		{8_192, 7_936, 2_000, 7_872},
		{1_024, 768, 768, 704},
		{300, 44, 44, 22},
		{100, 64, 64, 32},
	} {
		got, streams := bounds(tc.files, conns, 10_000)
		if got.Total != tc.total || got.PerAddress != tc.perAddress || streams != tc.streamed {
			t.Errorf("%d files: %d connections, %d per address, %d streams; want %d, %d, %d",
				tc.files, got.Total, got.PerAddress, streams, tc.total, tc.perAddress, tc.streamed)
		}
	}
}
