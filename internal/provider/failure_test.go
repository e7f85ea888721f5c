package provider

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"hob"
)

func TestRetryAfter_ReadsSecondsDatesAndMilliseconds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cases := []struct {
		after, ms string
		want      time.Duration
	}{
		{"", "", 0},
		{"7", "", 7 * time.Second},
		{"0.25", "", 250 * time.Millisecond},
		{"7", "1500", 1500 * time.Millisecond},
		{"Fri, 02 Jan 2026 03:05:05 GMT", "", time.Minute},
		{"Fri, 02 Jan 2026 03:00:00 GMT", "", 0},
		{"-3", "", 0},
		{"soon", "NaN", 0},
		{"1e300", "", 0},
	}
	for _, c := range cases {
		h := http.Header{}
		h.Set("Retry-After", c.after)
		h.Set("Retry-After-Ms", c.ms)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%q %q: %s, want %s", c.after, c.ms, got, c.want)
		}
	}
}

func TestQuote_IsShortOneLineAndValid(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "a\n\tb\x00c", strings.Repeat("é", 400), "\xff\xfe" + strings.Repeat("漢", 300), strings.Repeat("x", 501)} {
		q := quote(s)
		if len(q) > maxQuote || !utf8.ValidString(q) || strings.ContainsAny(q, "\n\t") {
			t.Errorf("%q became %q (%d bytes)", s, q, len(q))
		}
	}
	if q := quote(strings.Repeat("x", 500)); q != strings.Repeat("x", 500) {
		t.Error("500 bytes were cut")
	}
}

func TestRedactor_FindsTheKeyInItsCommonForms(t *testing.T) {
	t.Parallel()
	r := redactor{`sk-"a/b+`}
	for _, s := range []string{`sk-"a/b+`, `{"k":"sk-\"a/b+"}`, `?key=sk-%22a%2Fb%2B`} {
		if got := r.clean("x " + s + " y"); strings.Contains(got, "sk-") || !strings.Contains(got, hob.Mask) {
			t.Errorf("%s became %s", s, got)
		}
	}
	if redactor(nil).clean("text") != "text" {
		t.Error("without a key a text was changed")
	}
}

func TestVendor_PromptTooLongIsToldByCodeAndBySize(t *testing.T) {
	t.Parallel()
	c := &caller{name: "test"}
	cases := []struct {
		name   string
		status int
		e      vendorError
		x      exchange
		want   hob.ErrorClass
	}{
		{"code", 400, vendorError{Code: "context_length_exceeded"}, exchange{}, hob.ClassPromptTooLong},
		{"413", 413, vendorError{}, exchange{}, hob.ClassPromptTooLong},
		{"400 that cannot fit", 400, vendorError{Type: "invalid_request_error"}, exchange{text: 600_000, window: 200_000}, hob.ClassPromptTooLong},
		{"400 that fits", 400, vendorError{Type: "invalid_request_error"}, exchange{text: 599_999, window: 200_000}, hob.ClassBadRequest},
		{"words do not count", 400, vendorError{Message: "prompt is too long: context_length_exceeded"}, exchange{}, hob.ClassBadRequest},
		{"422 is never the size", 422, vendorError{}, exchange{text: 600_000, window: 200_000}, hob.ClassBadRequest},
	}
	for _, tc := range cases {
		if f := c.vendor(tc.status, tc.e, tc.x); f.err.Class != tc.want || f.again {
			t.Errorf("%s: %s, again %t", tc.name, f.err.Class, f.again)
		}
	}
}

func TestVendor_NoQuotaIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	c := &caller{name: "test"}
	if f := c.vendor(429, vendorError{Code: codeNoQuota}, exchange{}); f.again || f.err.Class != hob.ClassRateLimit {
		t.Errorf("%+v", f)
	}
	if f := c.vendor(429, vendorError{}, exchange{}); !f.again {
		t.Error("a plain 429 is not tried again")
	}
}

func TestReadVendorError_AllForms(t *testing.T) {
	t.Parallel()
	cases := []struct {
		body string
		want vendorError
		ok   bool
	}{
		{`{"error":{"message":"m","type":"t","code":"c"}}`, vendorError{Message: "m", Type: "t", Code: "c"}, true},
		{`{"error":{"message":"m","type":"t","code":502}}`, vendorError{Message: "m", Type: "t", Code: "502", Status: 502}, true},
		{`{"error":{"message":{"a":1}}}`, vendorError{Message: `{"a":1}`}, true},
		{`{"error":"m"}`, vendorError{Message: "m"}, true},
		{`{"type":"error","error":{"type":"t","message":"m"}}`, vendorError{Message: "m", Type: "t"}, true},
		{`[{"error":{"message":"m","code":429}}]`, vendorError{Message: "m", Code: "429", Status: 429}, true},
		{`{"message":"m","code":"c"}`, vendorError{Message: "m", Code: "c"}, true},
		{`{"detail":[{"msg":"m"}]}`, vendorError{Message: `[{"msg":"m"}]`}, true},
		{`{"error":null}`, vendorError{}, false},
		{`<html>`, vendorError{}, false},
		{``, vendorError{}, false},
	}
	for _, c := range cases {
		got, ok := readVendorError([]byte(c.body))
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %t", c.body, got, ok)
		}
	}
}

func TestOllamaBase_ReadsTheVariableAsOllamaDoes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                         "http://127.0.0.1:11434/v1",
		"box":                      "http://box:11434/v1",
		"box:80":                   "http://box:80/v1",
		":8000":                    "http://127.0.0.1:8000/v1",
		"0.0.0.0":                  "http://127.0.0.1:11434/v1",
		"0.0.0.0:1234":             "http://127.0.0.1:1234/v1",
		"http://box":               "http://box:80/v1",
		"https://box":              "https://box:443/v1",
		"https://box:8443/ollama/": "https://box:8443/ollama/v1",
		"[::1]:9":                  "http://[::1]:9/v1",
		"[::]":                     "http://127.0.0.1:11434/v1",
		` "box" `:                  "http://box:11434/v1",
	} {
		if got := ollamaBase(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestEventReader_RefusesHugeEvents(t *testing.T) {
	t.Parallel()
	body := "data: " + strings.Repeat("x", MaxFrame) + "\n\n"
	o := replay(t, dialects["openai"], strings.NewReader(body))
	if o.Class != hob.ClassModelError || !strings.Contains(o.Error, "4 MiB") {
		t.Errorf("got %+v", o)
	}
	large := `data: {"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 1<<20) + `"},"finish_reason":"stop"}]}` + "\n\n"
	if o := replay(t, dialects["openai"], strings.NewReader(large)); len(o.Text) != 1<<20 || o.Finish != hob.FinishStop {
		t.Errorf("an event of 1 MiB gave %d bytes, %q", len(o.Text), o.Finish)
	}
}

func TestAssembler_BoundsTheArguments(t *testing.T) {
	t.Parallel()
	piece := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"weather","arguments":"` +
		strings.Repeat("x", 1<<20) + `"}}]}}]}` + "\n\n"
	o := replay(t, dialects["openai"], strings.NewReader(strings.Repeat(piece, 5)))
	if !strings.Contains(o.Error, "exceed 4 MiB") {
		t.Errorf("got %q with %d calls", o.Error, len(o.Calls))
	}
}
