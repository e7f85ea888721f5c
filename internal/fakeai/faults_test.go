package fakeai_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hob/internal/fakeai"
)

// streams are a streamed request in every dialect.
var streams = map[string]struct{ path, body string }{
	"openai":    {chatPath, strings.Replace(chatBody, "{", `{"stream":true,`, 1)},
	"anthropic": {messagesPath, strings.Replace(messagesBody, "{", `{"stream":true,`, 1)},
	"gemini":    {geminiStream, geminiBody},
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// dial sends a request over a connection, as faults need one. The body is read by the caller.
func dial(t *testing.T, reply fakeai.Reply, path, body string) *http.Response {
	t.Helper()
	srv := httptest.NewServer(fakeai.New(fakeai.Options{Reply: fakeai.Always(reply)}))
	t.Cleanup(srv.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "x")
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestReply_Faults(t *testing.T) {
	t.Parallel()
	whole := func(change func(*fakeai.Reply)) fakeai.Reply {
		r := fakeai.Text("Hello from the fake.")
		change(&r)
		return r
	}
	cases := []struct {
		name  string
		reply fakeai.Reply
		check func(t *testing.T, res *http.Response, body string, err error)
	}{
		{"cut behind a byte", whole(func(r *fakeai.Reply) { r.CutBytes = 37 }), func(t *testing.T, _ *http.Response, body string, err error) {
			if len(body) != 37 || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d bytes, %v", len(body), err)
			}
		}},
		{"garbage", whole(func(r *fakeai.Reply) { r.GarbageAfter = 2 }), func(t *testing.T, _ *http.Response, body string, err error) {
			if strings.Count(body, `{"broken": `) != 1 || !strings.Contains(body, "fake.") || err != nil {
				t.Errorf("%v, %s", err, body)
			}
		}},
		{"content type", whole(func(r *fakeai.Reply) { r.ContentType = "text/html" }), func(t *testing.T, res *http.Response, body string, err error) {
			if res.Header.Get("Content-Type") != "text/html" || !strings.Contains(body, "fake.") || err != nil {
				t.Errorf("%v %v", res.Header, err)
			}
		}},
		{"empty body", fakeai.Reply{Raw: []byte{}}, func(t *testing.T, res *http.Response, body string, err error) {
			if body != "" || res.StatusCode != http.StatusOK || err != nil {
				t.Errorf("%q, %v", body, err)
			}
		}},
		{"empty answer", fakeai.Reply{}, func(t *testing.T, _ *http.Response, body string, err error) {
			if !strings.Contains(strings.ToLower(body), "stop") || err != nil {
				t.Errorf("%q, %v", body, err)
			}
		}},
	}
	for dialect, s := range streams {
		for _, c := range cases {
			t.Run(dialect+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				res := dial(t, c.reply, s.path, s.body)
				body, err := io.ReadAll(res.Body)
				c.check(t, res, string(body), err)
			})
		}
	}
}

func TestReply_PerByteDripsByteByByte(t *testing.T) {
	t.Parallel()
	const pause = 2 * time.Millisecond
	for dialect, s := range streams {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			res := dial(t, fakeai.Reply{Text: []string{"x"}, PerByte: pause, CutBytes: 40}, s.path, s.body)
			body, err := io.ReadAll(res.Body)
			if len(body) != 40 || err == nil || time.Since(start) < 40*pause {
				t.Errorf("%d bytes after %s: %v", len(body), time.Since(start), err)
			}
		})
	}
}

func TestReply_EndlessGoesOnUntilTheClientLeaves(t *testing.T) {
	t.Parallel()
	for dialect, s := range streams {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			res := dial(t, fakeai.Reply{Reasoning: []string{"hm"}, Text: []string{"Well,"}, Endless: true, Interval: 100 * time.Microsecond}, s.path, s.body)
			in := bufio.NewReader(res.Body)
			pieces, ended := 0, false
			for pieces < 300 && !ended {
				line, err := in.ReadString('\n')
				if err != nil {
					t.Fatalf("it ended behind %d pieces: %v", pieces, err)
				}
				if strings.Contains(line, `" tok`) {
					pieces++
				}
				ended = strings.Contains(line, "[DONE]") || strings.Contains(line, "message_stop") || strings.Contains(line, "STOP")
			}
			if ended {
				t.Errorf("it ended behind %d pieces", pieces)
			}
		})
	}
}

func TestOptions_WindowRefusesInTheVendorsWords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("hello ", 50)
	bodies := map[string]struct{ path, body, want, kind string }{
		"openai":    {chatPath, strings.Replace(chatBody, "hi", long, 1), "maximum context length is 40 tokens. However, your messages resulted in 5", `"code":"context_length_exceeded"`},
		"anthropic": {messagesPath, strings.Replace(messagesBody, "hi", long, 1), "prompt is too long: 5", `"type":"invalid_request_error"`},
		"gemini":    {geminiOnce, strings.Replace(geminiBody, "hi", long, 1), "exceeds the maximum number of tokens allowed (40)", `"status":"INVALID_ARGUMENT"`},
	}
	for dialect, c := range bodies {
		s := fakeai.New(fakeai.Options{Window: 40})
		status, body := post(t, s, c.path, c.body, "Anthropic-Version", "x")
		if status != http.StatusBadRequest || !strings.Contains(body, c.want) || !strings.Contains(body, c.kind) {
			t.Errorf("%s: %d %s", dialect, status, body)
		}
		if status, body := post(t, s, c.path, strings.Replace(c.body, long, "hi", 1), "Anthropic-Version", "x"); status != http.StatusOK || s.Requests()[0].Tokens != 5 {
			t.Errorf("%s: a short prompt gave %d %s, counted %+v", dialect, status, body, s.Requests())
		}
	}
}

// TestOptions_WindowCountsEverything: 4 tokens a message, 1,000 an image, and every text, name, argument and schema.
func TestOptions_WindowCountsEverything(t *testing.T) {
	t.Parallel()
	s := fakeai.New(fakeai.Options{Window: 1_000_000})
	const body = `{"model":"gpt-4o","messages":[{"role":"system","content":"hello"},{"role":"user","content":[{"type":"text","text":"hello"},` +
		`{"type":"image_url","image_url":{"url":"https://x/y"}}]},{"role":"assistant","tool_calls":[{"id":"a","type":"function",` +
		`"function":{"name":"hello","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"hello"}],` +
		`"tools":[{"type":"function","function":{"name":"hello","description":"hello","parameters":{"type":"object"}}}]}`
	if status, got := post(t, s, chatPath, body); status != http.StatusOK {
		t.Fatalf("%d %s", status, got)
	}
	// hello is one token, {} is one, {"type":"object"} is 5: 4 messages, an image, 6 times hello, once {}, the schema.
	if got, want := s.Requests()[0].Tokens, 4*4+1_000+6+1+5; got != want {
		t.Errorf("counted %d tokens, want %d", got, want)
	}
}

func TestForms_AreCheckedAsTheVendorsDo(t *testing.T) {
	t.Parallel()
	const closed = `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`
	chat := func(text, format string) string {
		return `{"model":"gpt-4o","messages":[{"role":"user","content":"` + text + `"}],"response_format":` + format + `}`
	}
	schema := func(name, strict, schema string) string {
		return `{"type":"json_schema","json_schema":{"name":"` + name + `","strict":` + strict + `,"schema":` + schema + `}}`
	}
	claude := func(model, output string) string {
		return `{"model":"` + model + `","max_tokens":5,"messages":[{"role":"user","content":"hi"}],"output_config":` + output + `}`
	}
	format := func(schema string) string { return `{"format":{"type":"json_schema","schema":` + schema + `}}` }
	cases := []struct{ path, body, want string }{ // want "" = accepted
		{chatPath, chat("as JSON", `{"type":"json_object"}`), ""},
		{chatPath, chat("hi", `{"type":"json_object"}`), "must contain the word 'json'"},
		{chatPath, chat("hi", `{"type":"text"}`), ""},
		{chatPath, chat("hi", `{"type":"text","more":1}`), "unknown field"},
		{chatPath, chat("hi", schema("x", "true", closed)), ""},
		{chatPath, chat("hi", schema("a b", "true", closed)), "does not match pattern"},
		{chatPath, chat("hi", schema("x", "true", `{"type":"object"}`)), "'additionalProperties' is required"},
		{chatPath, chat("hi", schema("x", "true", strings.Replace(closed, `["a"]`, `[]`, 1))), "Missing 'a'"},
		{chatPath, chat("hi", schema("x", "true", `{"type":"array"}`)), "type: \"object\""},
		{chatPath, chat("hi", schema("x", "false", `{"type":"object"}`)), ""},
		{chatPath, chat("hi", schema("x", "true", `true`)), "Missing required parameter"},
		{messagesPath, claude("claude-sonnet-4-5", format(closed)), ""},
		{messagesPath, claude("claude-sonnet-4-5", format(`{"type":"object"}`)), "additionalProperties"},
		{messagesPath, claude("claude-sonnet-4-5", format(strings.Replace(closed, `"string"`, `"string","maxLength":1`, 1))), "'maxLength' is not supported"},
		{messagesPath, claude("claude-3-haiku-20240307", format(closed)), "does not support structured outputs"},
		{messagesPath, claude("claude-sonnet-4-5", `{"format":{"type":"xml"}}`), "Input should be 'json_schema'"},
		{messagesPath, claude("claude-sonnet-4-5", `{"effort":"huge"}`), "output_config.effort"},
		{messagesPath, claude("claude-sonnet-4-5", `{"wat":1}`), "unknown field"},
		{geminiOnce, `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"responseMimeType":"application/json","responseJsonSchema":` + closed + `}}`, ""},
	}
	for _, c := range cases {
		s := fakeai.New(fakeai.Options{})
		status, body := post(t, s, c.path, c.body, "Anthropic-Version", "x")
		if c.want == "" && status != http.StatusOK || c.want != "" && (status != http.StatusBadRequest || !strings.Contains(body, strings.ReplaceAll(c.want, `"`, `\"`))) {
			t.Errorf("%s\ngave %d %s, want %q", c.body, status, body, c.want)
		}
	}
}
