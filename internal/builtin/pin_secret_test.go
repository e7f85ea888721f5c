package builtin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"hob/internal/builtin"
)

func TestCheckAssignment_RefusesPinnedCredentials(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	for config, field := range map[string]string{
		`{"headers":{"Authorization":"Bearer hush"}}`:         "headers",
		`{"headers":{"proxy-authorization":"hush"}}`:          "headers",
		`{"headers":{"Cookie":"a=hush"}}`:                     "headers",
		`{"headers":{"X-Api-Key":"hush"}}`:                    "headers",
		`{"headers":{"X-Service-Token":"hush"}}`:              "headers",
		`{"headers":{"Client-Secret":"hush"}}`:                "headers",
		`{"headers":{"X-Password":"hush"}}`:                   "headers",
		`{"url":"https://me:hush@api.example.com/x"}`:         "url",
		`{"url":"https://hush@api.example.com"}`:              "url",
		`{"body":{"callback":["https://me:hush@x.example"]}}`: "body",

		`{"headers":{"Accept":"text/plain","Authorization":""}}`:  "",
		`{"headers":{"Idempotency-Key":"1"}}`:                     "",
		`{"url":"https://api.example.com/a@b?mail=me@x.example"}`: "",
		`{"body":"the token is told to you by mail"}`:             "",
	} {
		_, err := s.CheckAssignment(t.Context(), "", "http_request", json.RawMessage(config))
		want := ""
		if field != "" {
			want = "config_override." + field
		}
		checkInvalid(t, err, want)
		if err != nil && (strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "custom HTTP tool")) {
			t.Errorf("%s: %v", config, err)
		}
	}
	row := named("weather")
	row.InputSchema = json.RawMessage(`{"type":"object","properties":{"headers":{},"base":{}}}`)
	for _, config := range []string{`{"headers":{"Authorization":"hush"}}`, `{"base":"https://me:hush@x.example"}`} {
		_, err := s.CheckCustomAssignment(row, json.RawMessage(config))
		checkInvalid(t, err, "make a custom HTTP tool")
	}
}
