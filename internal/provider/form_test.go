package provider

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func TestSchemaRules_SayWhatAVendorEnforces(t *testing.T) {
	t.Parallel()
	const end = `,"additionalProperties":false}`
	deep := strings.Repeat(`{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":`, 12) + `{"type":"string"}` +
		strings.Repeat(`}}`, 12)
	cases := []struct {
		name, schema      string
		openai, anthropic bool
	}{
		{"closed, all required", `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]` + end, true, true},
		{"optional member", `{"type":"object","properties":{"a":{"type":"string"}},"required":[]` + end, false, true},
		{"open", `{"type":"object","properties":{}}`, false, false},
		{"open inside a list", `{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"]` + end, false, false},
		{"open inside a choice", `{"type":"object","properties":{"a":{"anyOf":[{"type":"null"},{"properties":{}}]}},"required":["a"]` + end, false, false},
		{"nullable member", `{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"]` + end, true, true},
		{"not an object", `{"type":"array","items":{"type":"string"}}`, false, false},
		{"object or null", `{"type":["object","null"],"properties":{}` + end, true, true},
		{"a bound", `{"type":"object","properties":{"a":{"type":"number","minimum":1}},"required":["a"]` + end, true, false},
		{"a member of a keyword's name", `{"type":"object","properties":{"minimum":{"type":"number"}},"required":["minimum"]` + end, true, true},
		{"conditions", `{"type":"object","properties":{},"if":{}` + end, false, false},
		{"a definition", `{"type":"object","properties":{"a":{"$ref":"#/$defs/d"}},"required":["a"],"$defs":{"d":{"type":"string"}}` + end, true, true},
		{"a definition used twice", `{"type":"object","properties":{"a":{"$ref":"#/definitions/d"},"b":{"$ref":"#/definitions/d"}},"required":["a","b"],` +
			`"definitions":{"d":{"type":"string"}}` + end, true, true},
		{"an open definition", `{"type":"object","properties":{"a":{"$ref":"#/$defs/d"}},"required":["a"],"$defs":{"d":{"type":"object"}}` + end, false, false},
		{"a definition that is not there", `{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"]` + end, false, false},
		{"itself", `{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]` + end, false, false},
		{"too deep", deep, false, false},
		{"no schema", `[]`, false, false},
		{"required is no list", `{"type":"object","properties":{},"required":1` + end, false, false},
	}
	for _, c := range cases {
		if got := strictRules.fits(json.RawMessage(c.schema)); got != c.openai {
			t.Errorf("%s: strict for OpenAI is %t", c.name, got)
		}
		if got := anthropicRules.fits(json.RawMessage(c.schema)); got != c.anthropic {
			t.Errorf("%s: fit for Anthropic is %t", c.name, got)
		}
	}
}

func TestPlausible_PutsCountsInOrder(t *testing.T) {
	t.Parallel()
	cases := []struct{ in, want *hob.Usage }{
		{&hob.Usage{PromptTokens: 10, CompletionTokens: 5}, &hob.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15}},
		{&hob.Usage{PromptTokens: 10, CachedTokens: 12, TotalTokens: 11}, &hob.Usage{PromptTokens: 10, CachedTokens: 10, TotalTokens: 11}},
		{
			&hob.Usage{PromptTokens: 10, CompletionTokens: 5, ReasoningTokens: 3, TotalTokens: 15},
			&hob.Usage{PromptTokens: 10, CompletionTokens: 5, ReasoningTokens: 3, TotalTokens: 15},
		},
		{
			&hob.Usage{PromptTokens: 10, CompletionTokens: 5, ReasoningTokens: 3, TotalTokens: 18},
			&hob.Usage{PromptTokens: 10, CompletionTokens: 8, ReasoningTokens: 3, TotalTokens: 18},
		},
		{&hob.Usage{CompletionTokens: 1, ReasoningTokens: 3}, &hob.Usage{CompletionTokens: 4, ReasoningTokens: 3, TotalTokens: 4}},
		{&hob.Usage{PromptTokens: -1}, nil},
		{&hob.Usage{TotalTokens: maxTokens + 1}, nil},
	}
	for _, c := range cases {
		in := *c.in
		if diff := cmp.Diff(c.want, plausible(c.in)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", in, diff)
		}
	}
}

func TestGuessType_GoesByTheEndingOfThePath(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://h/a.PNG?x=1.gif": "image/png", "https://h/a.jpeg#b": "image/jpeg", "https://h/a": "", "https://h/a.svg": "", "::": "",
		"https://h.png": "",
	} {
		if got := guessType(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

func TestVendorError_ReadsGooglesDetails(t *testing.T) {
	t.Parallel()
	cases := []struct {
		body   string
		class  hob.ErrorClass
		status int
		wait   string
	}{
		{`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"x"},{"retryDelay":"1.5s"}]}}`, hob.ClassRateLimit, 429, "1.5s"},
		{`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"-3s"},{"retryDelay":7}]}}`, hob.ClassRateLimit, 429, "0s"},
		{`{"error":{"code":429,"details":[{"retryDelay":"999999h"}]}}`, hob.ClassRateLimit, 429, "24h0m0s"},
		{`{"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}`, hob.ClassUnauthorized, 400, "0s"},
		{`{"error":{"status":"UNAVAILABLE","message":"x"}}`, hob.ClassModelError, 503, "0s"},
		{`{"error":{"status":"PERMISSION_DENIED","details":"none"}}`, hob.ClassUnauthorized, 403, "0s"},
		{`{"error":{"status":7,"message":"x"}}`, hob.ClassModelError, 500, "0s"},
	}
	for _, c := range cases {
		e, ok := readVendorError([]byte(c.body))
		if !ok || e.status() != c.status || classify(e.status(), e) != c.class || e.Wait.String() != c.wait {
			t.Errorf("%s: %t %+v, status %d, class %s", c.body, ok, e, e.status(), classify(e.status(), e))
		}
	}
}
