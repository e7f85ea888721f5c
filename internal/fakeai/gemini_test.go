package fakeai_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob/internal/fakeai"
)

const (
	geminiOnce   = "/v1beta/models/gemini-2.5-flash:generateContent"
	geminiStream = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
	geminiBody   = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
)

// googleError reads the error of an answer.
func googleError(t *testing.T, body string) (status, message string) {
	t.Helper()
	var e struct {
		Error struct {
			Code            int
			Status, Message string
		}
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Code == 0 || e.Error.Status == "" || e.Error.Message == "" {
		t.Errorf("no error object: %s", body)
	}
	return e.Error.Status, e.Error.Message
}

func TestGemini_RefusesWhatGoogleRefuses(t *testing.T) {
	t.Parallel()
	const (
		user    = `{"role":"user","parts":[{"text":"hi"}]}`
		caller  = `{"role":"model","parts":[{"functionCall":{"id":"a","name":"f","args":{}}}]}`
		callers = `{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}},{"functionCall":{"name":"g","args":{}}}]}`
		result  = `{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"output":"ok"}}}]}`
		tools   = `,"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object"}}]}]`
	)
	ask := func(contents string, more ...string) string {
		return `{"contents":[` + contents + `]` + strings.Join(more, "") + `}`
	}
	parts := func(parts string) string { return ask(`{"role":"user","parts":[` + parts + `]}`) }
	tool := func(f string) string { return ask(user, `,"tools":[{"functionDeclarations":[`+f+`]}]`) }
	config := func(c string, more ...string) string {
		return ask(user, append(more, `,"generationConfig":{`+c+`}`)...)
	}
	cases := []struct{ model, body, want string }{
		{"", `{`, "Invalid JSON payload"},
		{"", `{}`, "contents is not specified"},
		{"", ask(user, `,"wat":1`), `Unknown name "wat"`},
		{"", parts(`{"text":"x","wat":1}`), `Unknown name "wat"`},
		{"", ask(`{"role":"assistant","parts":[{"text":"x"}]}`), "valid role: user, model"},
		{"", ask(`{"role":"user","parts":[]}`), "must not be empty"},
		{"", parts(`{}`), "must have one initialized field"},
		{"", parts(`{"text":""}`), "must have one initialized field"},
		{"", parts(`{"text":"x","fileData":{"fileUri":"https://x"}}`), "must have one initialized field"},
		{"", parts(`{"inlineData":{"mimeType":"image/tiff","data":"eA=="}}`), "Unsupported MIME type"},
		{"", parts(`{"inlineData":{"mimeType":"image/png","data":"?"}}`), "Invalid JSON payload"},
		{"", parts(`{"fileData":{"fileUri":"file:///x"}}`), "unsupported file uri"},
		{"", ask(user, `,"systemInstruction":{"parts":[{"text":""}]}`), "system_instruction"},
		{"", ask(user, `,"systemInstruction":{"parts":[]}`), "must not be empty"},
		{"", ask(result), "immediately after a function call turn"},
		{"", ask(caller + `,` + result), "immediately after a user turn"},
		{"", ask(user + `,` + caller), "number of function response parts"},
		{"", ask(user + `,` + caller + `,` + user), "number of function response parts"},
		{"", ask(user + `,` + callers + `,{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}`), "number of function response parts"},
		{"", ask(user + `,` + caller + `,` + strings.Replace(result, `"name":"f"`, `"name":"g"`, 1)), "the name and the id"},
		{"", ask(user + `,` + caller + `,` + strings.Replace(result, `"id":"a"`, `"id":"b"`, 1)), "the name and the id"},
		{"", ask(user + `,` + caller + `,` + strings.Replace(result, `{"output":"ok"}`, `"ok"`, 1)), "protobuf.Struct"},
		{"", ask(user + `,` + strings.Replace(caller, `"args":{}`, `"args":"{}"`, 1) + `,` + result), "protobuf.Struct"},
		{"", ask(user + `,` + strings.Replace(caller, `"name":"f"`, `"name":"f f"`, 1) + `,` + result), "function_call.name"},
		{"", ask(user + `,{"role":"model","parts":[{"text":"x","thoughtSignature":"forged"}]}`), "signature is not valid"},
		{"gemini-3-pro-preview", ask(user + `,` + caller + `,` + result), "missing a thought_signature"},
		{"", tool(`{"name":"2f","description":"d"}`), "Invalid function name"},
		{"", tool(`{"name":"f"}`), "description: must not be empty"},
		{"", tool(`{"name":"f","description":"d"},{"name":"f","description":"d"}`), "Duplicate function declaration"},
		{"", tool(`{"name":"f","description":"d","parameters":{"type":"object","additionalProperties":false}}`), `Unknown name "additionalProperties"`},
		{"", tool(`{"name":"f","description":"d","parametersJsonSchema":{"type":"string"}}`), "type OBJECT"},
		{"", tool(`{"name":"f","description":"d","parameters":{"type":"OBJECT"},"parametersJsonSchema":{"type":"object"}}`), "only one of"},
		{"", ask(user, `,"tools":[{}]`), "tool_type"},
		{"", ask(user, strings.Replace(tools, `[{"func`, `[{"googleSearch":{}},{"func`, 1)), "Tool use with function calling is unsupported"},
		{"", ask(user, `,"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}`), "without function_declarations"},
		{"", ask(user, tools, `,"toolConfig":{"functionCallingConfig":{"mode":"maybe"}}`), "mode"},
		{"", config(`"temperature":3`), "[0.0, 2.0]"},
		{"", config(`"maxOutputTokens":0`), "must be positive"},
		{"", config(`"responseMimeType":"text/html"`), "allowed mimetypes"},
		{"", config(`"responseJsonSchema":{"type":"object"}`), "only allowed with response mime type"},
		{"", config(`"responseMimeType":"application/json","responseJsonSchema":{},"responseSchema":{}`), "only one of"},
		{"", config(`"responseMimeType":"application/json"`, tools), "mime type: 'application/json' is unsupported"},
		{"", config(`"thinkingConfig":{"thinkingBudget":1,"thinkingLevel":"low"}`), "only set only one"},
		{"", config(`"thinkingConfig":{"thinkingBudget":99999}`), "thinking budget 99999 is invalid"},
		{"gemini-2.5-pro", config(`"thinkingConfig":{"thinkingBudget":0}`), "thinking budget 0 is invalid"},
		{"", config(`"thinkingConfig":{"thinkingLevel":"low"}`), "level low is not supported"},
		{"gemini-3-pro-preview", config(`"thinkingConfig":{"thinkingLevel":"minimal"}`), "level minimal is not supported"},
		{"gemini-2.0-flash", config(`"thinkingConfig":{"thinkingBudget":100}`), "Thinking is not enabled"},
	}
	s := fakeai.New(fakeai.Options{})
	path := func(model string) string {
		if model == "" {
			return geminiOnce
		}
		return strings.Replace(geminiOnce, "gemini-2.5-flash", model, 1)
	}
	for _, c := range cases {
		code, body := post(t, s, path(c.model), c.body)
		status, m := googleError(t, body)
		if code != http.StatusBadRequest || status != "INVALID_ARGUMENT" || !strings.Contains(m, c.want) {
			t.Errorf("%s\ngave %d %s, want %q", c.body, code, body, c.want)
		}
	}
	if n := len(s.Refusals()); n != len(cases) || len(s.Requests()) != 0 {
		t.Errorf("%d of %d refusals were noted, %d requests accepted", n, len(cases), len(s.Requests()))
	}
	signed := strings.Replace(caller, `{"functionCall"`, `{"thoughtSignature":"`+fakeai.Signature+`","functionCall"`, 1)
	good := ask(user+`,`+signed+`,`+result, tools, `,"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}`)
	if code, body := post(t, s, path("gemini-3-pro-preview"), good); code != http.StatusOK {
		t.Fatalf("a good request gave %d %s", code, body)
	}
	want := []fakeai.Message{
		{Role: "user", Text: "hi"},
		{Role: "assistant", Thoughts: 1, Calls: []fakeai.Call{{ID: "a", Name: "f", Arguments: "{}"}}},
		{Role: "tool", Text: "ok", CallID: "a"},
	}
	got := s.Requests()[0]
	if diff := cmp.Diff(want, got.Messages); diff != "" || got.ToolChoice != "none" || got.Dialect != fakeai.Gemini || len(got.Tools) != 1 {
		t.Errorf("parsed %+v (-want +got):\n%s", got, diff)
	}
}

func TestGemini_StreamsAndAnswersAtOnce(t *testing.T) {
	t.Parallel()
	s := fakeai.New(fakeai.Options{Reply: fakeai.Always(fakeai.Reply{
		Reasoning: []string{"hm"}, Text: []string{"a", "b"}, Calls: []fakeai.Call{{ID: "c", Name: "f", Arguments: `{"x":1}`}},
		Usage: &fakeai.Usage{Prompt: 10, Completion: 5, Cached: 4, Reasoning: 2},
	})})
	for path, want := range map[string][]string{
		geminiStream: {
			`"role":"model"`, `{"text":"hm","thought":true}`, `{"text":"a"}`, `{"text":"b"}`, `"functionCall":{"id":"c","name":"f","args":{"x":1}}`,
			`"thoughtSignature"`, `"finishReason":"STOP"`, `"promptTokenCount":10,"candidatesTokenCount":3,"thoughtsTokenCount":2,"cachedContentTokenCount":4,"totalTokenCount":15`,
		},
		geminiOnce: {`{"text":"hm","thought":true},{"text":"ab"},{"functionCall"`, `"finishReason":"STOP"`, `"totalTokenCount":15`},
	} {
		status, body := post(t, s, path, geminiBody)
		rest := body
		for _, w := range want {
			_, behind, ok := strings.Cut(rest, w)
			if !ok {
				t.Errorf("%s: %d, %s is missing or out of place in\n%s", path, status, w, body)
				break
			}
			rest = behind
		}
	}
}

func TestGemini_ChecksTheKeyAndTheAddress(t *testing.T) {
	t.Parallel()
	s := fakeai.New(fakeai.Options{Key: "right", Models: []string{"gemini-2.5-flash"}, Extra: []string{"extra"}})
	key := []string{"X-Goog-Api-Key", "right"}
	cases := []struct {
		path, body string
		header     []string
		code       int
		status     string
	}{
		{geminiOnce, geminiBody, nil, 403, "PERMISSION_DENIED"},
		{geminiOnce, geminiBody, []string{"X-Goog-Api-Key", "wrong"}, 400, "INVALID_ARGUMENT"},
		{geminiOnce + "?key=right", geminiBody, nil, 200, ""},
		{geminiOnce, geminiBody, key, 200, ""},
		{geminiOnce, strings.Replace(geminiBody, "{", `{"extra":1,`, 1), key, 200, ""},
		{strings.Replace(geminiOnce, "flash", "none", 1), geminiBody, key, 404, "NOT_FOUND"},
		{"/v1beta/models/gemini-2.5-flash:embedContent", geminiBody, key, 404, "NOT_FOUND"},
		{"/v1beta/files/gemini-2.5-flash:generateContent", geminiBody, key, 404, "NOT_FOUND"},
		{strings.TrimSuffix(geminiStream, "?alt=sse"), geminiBody, key, 400, "INVALID_ARGUMENT"},
		{geminiOnce, strings.Repeat(" ", fakeai.MaxBody+1), key, 413, "INVALID_ARGUMENT"},
	}
	for _, c := range cases {
		code, body := post(t, s, c.path, c.body, c.header...)
		if code != c.code {
			t.Errorf("%s: %d %s, want %d", c.path, code, body, c.code)
		}
		if c.status == "" {
			continue
		}
		if status, _ := googleError(t, body); status != c.status {
			t.Errorf("%s: %s, want %s", c.path, status, c.status)
		}
	}
	if _, body := post(t, s, geminiOnce, geminiBody, "X-Goog-Api-Key", "wrong"); !strings.Contains(body, `"reason":"API_KEY_INVALID"`) {
		t.Errorf("a wrong key: %s", body)
	}
}

func TestGemini_ListsItsModels(t *testing.T) {
	t.Parallel()
	s := fakeai.New(fakeai.Options{Key: "right", Models: []string{"gemini-2.5-flash"}, Window: 5_000})
	if code, body := get(t, s, "/v1beta/models"); code != http.StatusForbidden {
		t.Errorf("without a key: %d %s", code, body)
	}
	code, body := get(t, s, "/v1beta/models?key=right")
	if code != http.StatusOK || !strings.Contains(body, `"name":"models/gemini-2.5-flash"`) || !strings.Contains(body, `"inputTokenLimit":5000`) {
		t.Errorf("%d %s", code, body)
	}
}

func TestGemini_ErrorsAreGoogles(t *testing.T) {
	t.Parallel()
	for code, status := range map[int]string{
		400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED",
		500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED", 529: "UNAVAILABLE",
	} {
		s := fakeai.New(fakeai.Options{Reply: fakeai.Always(fakeai.Error(code, "as asked"))})
		got, body := post(t, s, geminiStream, geminiBody)
		if st, m := googleError(t, body); got != code || st != status || m != "as asked" {
			t.Errorf("%d: %d %s", code, got, body)
		}
	}
	s := fakeai.New(fakeai.Options{Reply: fakeai.Always(fakeai.Error(429, "later").WithRetryAfter("34"))})
	if _, body := post(t, s, geminiStream, geminiBody); !strings.Contains(body, `"retryDelay":"34s"`) {
		t.Errorf("the time to wait: %s", body)
	}
}
