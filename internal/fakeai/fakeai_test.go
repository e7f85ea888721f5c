package fakeai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob/internal/fakeai"
)

// post sends a body to a server and gives the status and the answer.
func post(t *testing.T, h http.Handler, path, body string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func message(t *testing.T, body string) string {
	t.Helper()
	var e struct {
		Error struct{ Message, Type string }
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
		t.Errorf("no error object: %s", body)
	}
	return e.Error.Message
}

const (
	chatPath     = "/v1/chat/completions"
	messagesPath = "/v1/messages"
)

func TestChat_RefusesWhatOpenAIRefuses(t *testing.T) {
	t.Parallel()
	const (
		user   = `{"role":"user","content":"hi"}`
		caller = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`
		result = `{"role":"tool","tool_call_id":"a","content":"ok"}`
	)
	chat := func(messages string, more ...string) string {
		return `{"model":"gpt-4o","messages":[` + messages + `]` + strings.Join(more, "") + `}`
	}
	call := func(id, kind, name, args string) string {
		return `{"role":"assistant","tool_calls":[{"id":"` + id + `","type":"` + kind + `","function":{"name":"` + name + `","arguments":` + args + `}}]}`
	}
	cases := []struct{ body, want string }{
		{`{`, "could not parse"},
		{`[]`, "could not parse"},
		{`{"messages":[` + user + `]}`, "model parameter"},
		{`{"model":"gpt-4o","messages":[]}`, "empty array"},
		{chat(user, `,"wat":1`), "Unrecognized request argument supplied: wat"},
		{chat(user, `,"stream":"yes"`), "Invalid type"},
		{chat(`{"role":"function","content":"x"}`), "Invalid value: 'function'"},
		{chat(`{"role":"user","content":""}`), "empty string"},
		{chat(`{"role":"user","content":null}`), "expected a string, got null"},
		{chat(`{"role":"user","content":[]}`), "minimum length 1"},
		{chat(`{"role":"user","content":[{"type":"text","text":""}]}`), "Invalid content part"},
		{chat(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///x"}}]}`), "Invalid content part"},
		{chat(`{"role":"system","content":""},` + user), "empty string"},
		{chat(user + `,{"role":"assistant","content":""}`), "needs content or tool_calls"},
		{chat(user + `,` + result), "must be a response to a preceding message"},
		{chat(user + `,` + caller), "did not have response messages: a"},
		{chat(user + `,` + caller + `,` + user), "did not have response messages: a"},
		{chat(user + `,` + caller + `,` + result + `,` + result), "must be a response"},
		{chat(user + `,` + caller + `,` + result + `,` + caller + `,` + result), "Duplicate value"},
		{chat(user + `,` + caller + `,{"role":"tool","tool_call_id":"a"}`), "got null"},
		{chat(user + `,` + call("", "function", "f", `"{}"`)), "Missing required parameter"},
		{chat(user + `,` + call("a", "fun", "f", `"{}"`)), "Missing required parameter"},
		{chat(user + `,` + call("a", "function", "f f", `"{}"`)), "does not match pattern"},
		{chat(user + `,` + call("a", "function", "f", `"{"`)), "no JSON object"},
		{chat(user + `,` + call("a", "function", "f", `"[]"`)), "no JSON object"},
		{chat(user + `,` + call("a", "function", "f", `{}`)), "expected a string"},
		{chat(user, `,"tools":[]`), "empty array"},
		{chat(user, `,"tools":[{"type":"function","function":{"name":"a b"}}]`), "does not match pattern"},
		{chat(user, `,"tools":[{"type":"x","function":{"name":"a"}}]`), "Supported values are: 'function'"},
		{chat(user, `,"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}]`), "unique"},
		{chat(user, `,"tools":[{"type":"function","function":{"name":"a","parameters":{"type":"array"}}}]`), "Invalid schema"},
		{chat(user, `,"tools":[{"type":"function","function":{"name":"a","description":"`+strings.Repeat("é", 1025)+`"}}]`), "maximum length 1024"},
		{chat(user, `,"tool_choice":"none"`), "only allowed when 'tools'"},
		{chat(user, `,"tools":[{"type":"function","function":{"name":"a"}}],"tool_choice":"maybe"`), "Invalid value: 'maybe'"},
		{chat(user, `,"stream_options":{"include_usage":true}`), "only allowed when 'stream'"},
		{chat(user, `,"temperature":3`), "between 0 and 2"},
		{chat(user, `,"max_tokens":0`), "below minimum"},
		{chat(user, `,"max_tokens":1,"max_completion_tokens":1`), "at the same time"},
		{chat(user, `,"reasoning_effort":"high"`), "'reasoning_effort' is not supported"},
		{strings.Replace(chat(user, `,"max_tokens":5`), "gpt-4o", "o3", 1), "Use 'max_completion_tokens'"},
		{strings.Replace(chat(user, `,"temperature":0`), "gpt-4o", "gpt-5", 1), "Only the default"},
		{strings.Replace(chat(user, `,"reasoning_effort":"huge"`), "gpt-4o", "o3", 1), "Invalid value: 'huge'"},
		{chat(user, `,"response_format":{"type":"xml"}`), "Invalid value: 'xml'"},
		{chat(user, `,"response_format":{"type":"json_schema"}`), "json_schema.name"},
	}
	s := fakeai.New(fakeai.Options{})
	for _, c := range cases {
		status, body := post(t, s, chatPath, c.body)
		if m := message(t, body); status != http.StatusBadRequest || !strings.Contains(m, c.want) {
			t.Errorf("%s\ngave %d %s, want %q", c.body, status, m, c.want)
		}
	}
	if n := len(s.Refusals()); n != len(cases) || len(s.Requests()) != 0 {
		t.Errorf("%d of %d refusals were noted, %d requests accepted", n, len(cases), len(s.Requests()))
	}
	if status, body := post(t, s, chatPath, chat(user+`,`+caller+`,`+result)); status != http.StatusOK {
		t.Errorf("a good request gave %d %s", status, body)
	}
}

func TestMessages_RefusesWhatAnthropicRefuses(t *testing.T) {
	t.Parallel()
	const (
		user   = `{"role":"user","content":"hi"}`
		caller = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`
		result = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"ok"}]}`
		tools  = `,"tools":[{"name":"f","input_schema":{"type":"object"}}]`
	)
	chat := func(messages string, more ...string) string {
		return `{"model":"claude-x","max_tokens":2000,"messages":[` + messages + `]` + strings.Join(more, "") + `}`
	}
	cases := []struct{ body, want string }{
		{`{"model":"claude-x","messages":[` + user + `]}`, "max_tokens: Field required"},
		{`{"model":"claude-x","max_tokens":5,"messages":[]}`, "at least one message"},
		{chat(user, `,"frequency_penalty":1`), "Unrecognized"},
		{chat(`{"role":"assistant","content":"x"}`), "first message must use"},
		{chat(`{"role":"system","content":"x"}`), "Input should be 'user' or 'assistant'"},
		{chat(user + `,` + user), "roles must alternate"},
		{chat(`{"role":"user","content":""}`), "must be non-empty"},
		{chat(`{"role":"user","content":[]}`), "must be non-empty"},
		{chat(`{"role":"user","content":[{"type":"text","text":" "}]}`), "must be non-empty"},
		{chat(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"text/plain","data":"eA=="}}]}`), "invalid source"},
		{chat(`{"role":"user","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`), "not allowed in a user message"},
		{chat(user + `,` + `{"role":"assistant","content":"x "}`), "trailing whitespace"},
		{chat(user+`,`+caller, tools), "without `tool_result` blocks"},
		{chat(user+`,`+caller+`,`+user, tools), "without `tool_result` blocks"},
		{chat(user + `,` + caller + `,` + result), "must define tools"},
		{chat(result, tools), "unexpected `tool_use_id`"},
		{chat(user+`,`+caller+`,`+result+`,`+caller+`,`+result, tools), "ids must be unique"},
		{chat(user+`,`+caller+`,{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"a"}]}`, tools), "must come first"},
		{chat(user+`,{"role":"assistant","content":[{"type":"tool_use","id":"a.b","name":"f","input":{}}]}`, tools), "should match pattern"},
		{chat(user+`,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":"{}"}]}`, tools), "valid dictionary"},
		{chat(user + `,{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}`), "signature: Field required"},
		{chat(user + `,{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"a"}]}`), "not allowed in an assistant message"},
		{chat(user, `,"tools":[{"name":"f"}]`), "input_schema: Field required"},
		{chat(user, `,"tools":[{"name":"f f","input_schema":{"type":"object"}}]`), "should match pattern"},
		{chat(user, `,"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"f","input_schema":{"type":"object"}}]`), "unique"},
		{chat(user, `,"tool_choice":{"type":"none"}`), "only be specified while providing tools"},
		{chat(user, tools+`,"tool_choice":{"type":"maybe"}`), "does not match any"},
		{chat(user, `,"system":[{"type":"text","text":""}]`), "must be non-empty"},
		{chat(user, `,"temperature":1.5`), "range: 0..1"},
		{chat(user, `,"temperature":0.5,"thinking":{"type":"enabled","budget_tokens":1024}`), "may only be set to 1"},
		{chat(user, `,"thinking":{"type":"enabled","budget_tokens":10}`), "greater than or equal to 1024"},
		{chat(user, `,"thinking":{"type":"enabled","budget_tokens":2000}`), "must be greater than `thinking.budget_tokens`"},
		{chat(user, `,"thinking":{"type":"sometimes"}`), "is not expected"},
		{strings.Replace(chat(user, `,"thinking":{"type":"enabled","budget_tokens":1024}`), "claude-x", "claude-opus-4-7", 1), "thinking.type.adaptive"},
		{strings.Replace(chat(user, `,"temperature":1`), "claude-x", "claude-opus-4-7", 1), "not supported"},
		{chat(user+`,`+caller+`,`+result, tools+`,"thinking":{"type":"enabled","budget_tokens":1024}`), "must start with a thinking block"},
	}
	s := fakeai.New(fakeai.Options{})
	for _, c := range cases {
		status, body := post(t, s, messagesPath, c.body, "Anthropic-Version", "2023-06-01")
		if m := message(t, body); status != http.StatusBadRequest || !strings.Contains(m, c.want) {
			t.Errorf("%s\ngave %d %s, want %q", c.body, status, m, c.want)
		}
	}
	if status, body := post(t, s, messagesPath, chat(user)); status != http.StatusBadRequest || !strings.Contains(body, "anthropic-version") {
		t.Errorf("without a version: %d %s", status, body)
	}
	if status, body := post(t, s, messagesPath, chat(user+`,`+caller+`,`+result, tools), "Anthropic-Version", "2023-06-01"); status != http.StatusOK {
		t.Errorf("a good request gave %d %s", status, body)
	}
}

func TestServer_ChecksTheKeyAndTheModel(t *testing.T) {
	t.Parallel()
	s := fakeai.New(fakeai.Options{Key: "sk-right", Models: []string{"m"}})
	const body = `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
	other := strings.Replace(body, `"m"`, `"n"`, 1)
	cases := []struct {
		path, body string
		header     []string
		want       int
	}{
		{chatPath, body, nil, 401},
		{chatPath, body, []string{"Authorization", "Bearer sk-wrong"}, 401},
		{chatPath, body, []string{"Authorization", "Bearer sk-right"}, 200},
		{chatPath, other, []string{"Authorization", "Bearer sk-right"}, 404},
		{chatPath, body, []string{"Authorization", "Bearer sk-right", "Content-Type", "text/plain"}, 400},
		{messagesPath, body, []string{"Anthropic-Version", "x"}, 401},
		{messagesPath, body, []string{"Anthropic-Version", "x", "X-Api-Key", "sk-wrong"}, 401},
		{messagesPath, body, []string{"Anthropic-Version", "x", "X-Api-Key", "sk-right"}, 200},
		{messagesPath, other, []string{"Anthropic-Version", "x", "X-Api-Key", "sk-right"}, 404},
		{"/v1/embeddings", body, nil, 404},
		{chatPath, strings.Repeat(" ", fakeai.MaxBody+1), []string{"Authorization", "Bearer sk-right"}, 413},
	}
	for _, c := range cases {
		if status, got := post(t, s, c.path, c.body, c.header...); status != c.want {
			t.Errorf("%s %v: %d %s, want %d", c.path, c.header, status, got, c.want)
		}
	}
}

func TestServer_KeepsTheNewestRequests(t *testing.T) {
	t.Parallel()
	s := fakeai.New(fakeai.Options{Keep: 2})
	for _, text := range []string{"a", "b", "c"} {
		post(t, s, chatPath, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"`+text+`"}]}`)
	}
	got := s.Requests()
	if len(got) != 2 || got[0].LastText() != "b" || got[1].LastText() != "c" || got[1].Number != 3 || got[1].System != "s" {
		t.Errorf("kept %+v", got)
	}
}

func TestToolSteps_EndsWithItsAnswer(t *testing.T) {
	t.Parallel()
	reply := fakeai.ToolSteps(2, fakeai.Text("done"))
	p := fakeai.Parsed{Tools: []fakeai.Tool{{Name: "f"}}, Messages: []fakeai.Message{{Role: "user"}, {Role: "assistant"}, {Role: "tool"}, {Role: "user"}}}
	var args []string
	for range 2 {
		r := reply(p)
		if len(r.Calls) != 1 || r.Calls[0].Name != "f" {
			t.Fatalf("got %+v", r)
		}
		args = append(args, r.Calls[0].Arguments)
		p.Messages = append(p.Messages, fakeai.Message{Role: "assistant"}, fakeai.Message{Role: "tool"})
	}
	if diff := cmp.Diff([]string{`{"step":1}`, `{"step":2}`}, args); diff != "" {
		t.Error(diff)
	}
	if r := reply(p); len(r.Calls) != 0 || strings.Join(r.Text, "") != "done" {
		t.Errorf("at last %+v", r)
	}
	p.Tools = nil
	p.Messages = p.Messages[:1]
	if r := reply(p); len(r.Calls) != 0 {
		t.Error("calls a tool that is not offered")
	}
}

func TestReply_IntervalKeepsTime(t *testing.T) {
	t.Parallel()
	r := fakeai.Tokens(3)
	r.Interval = 40 * time.Millisecond
	srv := httptest.NewServer(fakeai.New(fakeai.Options{Reply: fakeai.Always(r)}))
	defer srv.Close()
	start := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+chatPath, strings.NewReader(
		`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, 10)
	if _, err := io.ReadFull(res.Body, first); err != nil || time.Since(start) > time.Second {
		t.Errorf("the first event took %s: %v", time.Since(start), err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil || time.Since(start) < 160*time.Millisecond {
		t.Errorf("all took %s: %v", time.Since(start), err)
	}
}

func TestBench_AnswersAsTheStrictServerDoes(t *testing.T) {
	t.Parallel()
	b := fakeai.Bench{Tokens: 5, Steps: 2}
	h := b.Handler()
	history := `{"role":"user","content":"hi"}`
	for step := range 3 {
		body := `{"model":"bench","messages":[` + history + `],"stream":true,"stream_options":{"include_usage":true},` +
			`"tools":[{"type":"function","function":{"name":"lookup","parameters":{"type":"object"}}}]}`
		status, got := post(t, h, chatPath, body)
		if status != http.StatusOK || !strings.HasSuffix(got, "data: [DONE]\n\n") || strings.Contains(got, "TOOLNAME") {
			t.Fatalf("step %d: %d %s", step, status, got)
		}
		if called := strings.Contains(got, `"name":"lookup"`); called != (step < 2) {
			t.Errorf("step %d: %s", step, got)
		}
		if step == 2 && strings.Count(got, `"content":" tok`) != 5 {
			t.Errorf("the text: %s", got)
		}
		id := string(rune('a' + step))
		history += `,{"role":"assistant","content":null,"tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"lookup","arguments":"{}"}}]}` +
			`,{"role":"tool","tool_call_id":"` + id + `","content":"ok"}`
	}
	if status, got := post(t, h, chatPath, `{"model":"bench","messages":[{"role":"user","content":"hi"}]}`); status != 200 || !strings.Contains(got, `"chat.completion"`) {
		t.Errorf("without a stream: %d %s", status, got)
	}
	slow := fakeai.Bench{Tokens: 3, Interval: 20 * time.Millisecond}.Handler()
	start := time.Now()
	if _, got := post(t, slow, chatPath, `{"model":"bench","stream":true,"messages":[]}`); time.Since(start) < 80*time.Millisecond || !strings.Contains(got, "[DONE]") {
		t.Errorf("after %s: %s", time.Since(start), got)
	}
}

func BenchmarkBench(b *testing.B) {
	h := fakeai.Bench{Tokens: 50}.Handler()
	body := []byte(`{"model":"bench","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, chatPath, bytes.NewReader(body))
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}
