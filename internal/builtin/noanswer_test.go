package builtin_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hob"
	"hob/internal/builtin"
)

// The model is not told why an endpoint cannot be reached; the operator is.
func TestNoAnswer_IsExplainedInTheLog(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	var text bytes.Buffer
	s := newSet(t, builtin.Deps{Log: slog.New(slog.NewTextHandler(&text, nil))}, gone)
	gone.Close() // the port refuses from now on
	custom := one(t, s, assignCustom(hob.Tool{
		ID: "tool_1", Name: "charge", Description: "charges", Type: hob.HTTPTool, IsActive: true,
		InputSchema: []byte(`{"type":"object"}`),
		Config:      hob.ToolConfig{Endpoint: gone.URL, Headers: map[string]hob.Secret{"X-Key": "127.0.0.1"}},
	}, "{}"))
	anyURL := one(t, s, assign("http_request", "{}"))
	for name, res := range map[string]hob.Result{
		"charge": call(t, custom, "{}"), "http_request": call(t, anyURL, `{"url":"`+gone.URL+`"}`),
	} {
		if !res.IsError || strings.Contains(res.Text, "refused to") || strings.Contains(res.Text, "connection refused") {
			t.Errorf("%s: the model reads %s", name, res.Text)
		}
		if !strings.Contains(text.String(), "tool="+name) {
			t.Errorf("%s is not in the log:\n%s", name, text.String())
		}
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	for _, line := range lines {
		if !strings.Contains(line, "level=INFO") || !strings.Contains(line, "connection refused") || !strings.Contains(line, "run=run_1") {
			t.Errorf("the log has %s", line)
		}
		if strings.Contains(line, "tool=charge") && strings.Contains(line, "127.0.0.1") {
			t.Errorf("the log shows what a header of the tool holds: %s", line)
		}
	}
	text.Reset()
	call(t, anyURL, `{"url":"http://169.254.169.254/"}`)
	call(t, anyURL, `{"url":"no address"}`)
	if text.Len() > 0 {
		t.Errorf("what the guard refuses is logged twice:\n%s", text.String())
	}
}
