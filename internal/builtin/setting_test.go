package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"hob"
	"hob/internal/builtin"
)

// reader gives the settings of the default workspace; a key without one has no value.
func reader(values map[string]string) hob.SettingReader {
	return func(_ context.Context, ws hob.WorkspaceID, key string) (string, error) {
		if ws != hob.DefaultWorkspace {
			return "", nil
		}
		return values[key], nil
	}
}

func TestSetting_CustomToolTimeoutIsForToolsWithoutTheirOwn(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(http.ResponseWriter, *http.Request) {})
	own := customRow(srv.URL, "GET")
	own.Config.TimeoutSeconds = 7
	for name, c := range map[string]struct {
		read hob.SettingReader
		row  hob.Tool
		want time.Duration
	}{
		"set":                {reader(map[string]string{"CUSTOM_TOOL_TIMEOUT": "90"}), customRow(srv.URL, "GET"), 90 * time.Second},
		"the row has one":    {reader(map[string]string{"CUSTOM_TOOL_TIMEOUT": "90"}), own, 7 * time.Second},
		"not set":            {reader(nil), customRow(srv.URL, "GET"), 20 * time.Second},
		"garbled":            {reader(map[string]string{"CUSTOM_TOOL_TIMEOUT": "long"}), customRow(srv.URL, "GET"), 20 * time.Second},
		"nothing reads them": {nil, customRow(srv.URL, "GET"), 20 * time.Second},
		"cannot be read": {
			func(context.Context, hob.WorkspaceID, string) (string, error) { return "90", errors.New("gone") },
			customRow(srv.URL, "GET"), 20 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t, builtin.Deps{Setting: c.read, Settings: builtin.Settings{CustomTimeout: 20 * time.Second}}, srv)
			if got := one(t, s, assignCustom(c.row, "")).Spec().Timeout; got.Truncate(5*time.Second) != c.want.Truncate(5*time.Second) || got <= c.want {
				t.Errorf("the tool has %s, want a little more than %s", got, c.want)
			}
		})
	}
}

func TestSetting_CustomToolTimeoutEndsACall(t *testing.T) {
	t.Parallel()
	srv := hang(t, nil)
	s := newSet(t, builtin.Deps{Setting: reader(map[string]string{"CUSTOM_TOOL_TIMEOUT": "1"})}, srv)
	if res := call(t, one(t, s, assignCustom(customRow(srv.URL, "GET"), "")), `{}`); res.Text != "Error: no complete answer within 1s" {
		t.Errorf("%+v", res)
	}
}

func TestSetting_MaxToolOutputLengthCutsHTTPAnswers(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("ü", 30_000)) })
	s := newSet(t, builtin.Deps{Setting: reader(map[string]string{"MAX_TOOL_OUTPUT_LENGTH": "20000"})}, srv)
	if a := read(t, call(t, one(t, s, assign("http_request", whole)), `{"url":"`+srv.URL+`"}`)); utf8.RuneCountInString(a.Body) != 20_000 || !a.Truncated {
		t.Errorf("http_request shows %d characters, truncated: %t", utf8.RuneCountInString(a.Body), a.Truncated)
	}
	res := call(t, one(t, s, assignCustom(customRow(srv.URL, "GET"), "")), `{}`)
	if text, ok := strings.CutSuffix(res.Text, "\n[truncated: only the first 20000 characters are shown]"); !ok || utf8.RuneCountInString(text) != 20_000 {
		t.Errorf("a custom tool shows %d characters and %q", utf8.RuneCountInString(res.Text), res.Text[len(res.Text)-80:])
	}
	g := grant(assign("http_request", whole))
	g.Agent.Workspace = "another"
	tools, _, err := s.Tools(t.Context(), g)
	if err != nil || len(tools) != 1 {
		t.Fatal(tools, err)
	}
	if a := read(t, call(t, tools[0], `{"url":"`+srv.URL+`"}`)); utf8.RuneCountInString(a.Body) != builtin.DefaultMaxOutput {
		t.Errorf("another workspace is shown %d characters", utf8.RuneCountInString(a.Body))
	}
}

// Results that are JSON must fit into the cap of all results, which would cut them by the character.
func TestSetting_DefaultMaxResultCharsKeepsResultsWhole(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 5000)) })
	db := &tables{text: "tables", count: 1, rows: "[" + strings.TrimSuffix(strings.Repeat(`{"a":"0123456789"},`, 200), ",") + "]"}
	s := newSet(t, builtin.Deps{Database: db, Setting: reader(map[string]string{"DEFAULT_MAX_RESULT_CHARS": "1000"})}, srv)
	for name, res := range map[string]hob.Result{
		"http_request":   call(t, one(t, s, assign("http_request", whole)), `{"url":"`+srv.URL+`"}`),
		"database_query": call(t, one(t, s, assign("database_query", `{"schemas":{"main":["orders"]}}`)), `{"query":"SELECT 1"}`),
	} {
		if n := utf8.RuneCountInString(res.Text); n > 1000 || n < 500 || !json.Valid([]byte(res.Text)) {
			t.Errorf("%s: %d characters, valid JSON: %t", name, n, json.Valid([]byte(res.Text)))
		}
	}
}
