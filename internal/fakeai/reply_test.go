package fakeai_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hob/internal/fakeai"
)

const (
	chatBody     = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	messagesBody = `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
)

func TestError_SpeaksEachDialectsWords(t *testing.T) {
	t.Parallel()
	cases := []struct {
		status            int
		openai, anthropic string
	}{
		{400, `"type":"invalid_request_error"`, `"type":"invalid_request_error"`},
		{401, `"code":"invalid_api_key"`, `"type":"authentication_error"`},
		{403, `"type":"invalid_request_error"`, `"type":"permission_error"`},
		{404, `"type":"invalid_request_error"`, `"type":"not_found_error"`},
		{413, `"type":"invalid_request_error"`, `"type":"request_too_large"`},
		{429, `"code":"rate_limit_exceeded"`, `"type":"rate_limit_error"`},
		{500, `"type":"server_error"`, `"type":"api_error"`},
		{529, `"type":"server_error"`, `"type":"overloaded_error"`},
	}
	for _, c := range cases {
		s := fakeai.New(fakeai.Options{Reply: fakeai.Always(fakeai.Error(c.status, "as asked"))})
		status, body := post(t, s, chatPath, chatBody)
		if status != c.status || !strings.Contains(body, c.openai) || message(t, body) != "as asked" {
			t.Errorf("%d: OpenAI's dialect: %d %s", c.status, status, body)
		}
		status, body = post(t, s, messagesPath, messagesBody, "Anthropic-Version", "x")
		if status != c.status || !strings.Contains(body, c.anthropic) || message(t, body) != "as asked" {
			t.Errorf("%d: Anthropic's dialect: %d %s", c.status, status, body)
		}
	}
}

func TestReply_StreamsInEachDialect(t *testing.T) {
	t.Parallel()
	s := fakeai.New(fakeai.Options{Reply: fakeai.Always(fakeai.Reply{
		Reasoning: []string{"hm"}, Text: []string{"a", "\"b\""}, Calls: []fakeai.Call{{ID: "c", Name: "f", Arguments: `{"x":1}`}},
		Usage: &fakeai.Usage{Prompt: 10, Completion: 5, Cached: 4},
	})})
	streamed := func(body string) string { return strings.Replace(body, `{"model"`, `{"stream":true,"model"`, 1) }
	cases := []struct {
		path, body string
		want       []string // in this order
	}{
		{chatPath, streamed(chatBody), []string{
			`"role":"assistant"`, `"reasoning_content":"hm"`, `"content":"a"`, `"content":"\"b\""`, `"id":"c"`, `"finish_reason":"tool_calls"`, "data: [DONE]\n\n",
		}},
		{chatPath, strings.Replace(streamed(chatBody), `{"stream"`, `{"stream_options":{"include_usage":true},"stream"`, 1), []string{
			`"finish_reason":"tool_calls"`, `"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15`, "[DONE]",
		}},
		{messagesPath, streamed(messagesBody), []string{
			"event: message_start\n", `"cache_read_input_tokens":4`, `"thinking_delta"`, `"signature_delta"`, `"text":"a"`, `"text":"\"b\""`,
			`"type":"tool_use"`, `"input_json_delta"`, `"stop_reason":"tool_use"`, "event: message_stop\n",
		}},
		{chatPath, chatBody, []string{`"content":"a\"b\""`, `"reasoning_content":"hm"`, `"arguments":"{\"x\":1}"`, `"cached_tokens":4`}},
		{messagesPath, messagesBody, []string{`"thinking":"hm"`, `"text":"a\"b\""`, `"input":{"x":1}`, `"stop_reason":"tool_use"`, `"input_tokens":6`}},
	}
	for _, c := range cases {
		status, body := post(t, s, c.path, c.body, "Anthropic-Version", "x")
		rest := body
		for _, w := range c.want {
			_, behind, ok := strings.Cut(rest, w)
			if !ok {
				t.Errorf("%s: %d, %s is missing or out of place in\n%s", c.body, status, w, body)
				break
			}
			rest = behind
		}
	}
}

func TestModels_ListsWhatThereIs(t *testing.T) {
	t.Parallel()
	s := fakeai.New(fakeai.Options{Models: []string{"a", "b"}, Key: "k"})
	for key, want := range map[string]string{"k": `"id":"a"`, "wrong": "invalid_api_key", "": "API key"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/models", http.NoBody)
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), want) || (w.Code == http.StatusOK) != (key == "k") {
			t.Errorf("key %q: %d %s", key, w.Code, w.Body)
		}
	}
}
