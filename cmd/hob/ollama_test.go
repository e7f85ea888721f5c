package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hob/internal/config"
	"hob/internal/egress"
)

func TestDoctor_NamesAnOllamaThatNobodyConfigured(t *testing.T) {
	t.Parallel()
	body := `{"models":[{"name":"qwen3:8b"},{"name":"llama3.2:latest"}]}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
	guard := egress.New(egress.Config{})
	t.Cleanup(func() { guard.Close(); srv.Close() })
	at := strings.TrimPrefix(srv.URL, "http://")
	for _, c := range []struct {
		body, configured, at, want string
	}{
		{body, "", at, "ollama (found at " + srv.URL + ", 2 models, the last changed is qwen3:8b)"},
		{`{"models":[]}`, "", at, "ollama (found at " + srv.URL + ", without a model)"},
		{body, "127.0.0.1:1", at, ""}, // the operator's own is asked instead
		{body, "", "127.0.0.1:1", ""},
		{`{}`, "", at, ""},
	} {
		body = c.body
		if got := foundOllama(t.Context(), config.Config{OllamaHost: c.configured}, guard, c.at); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
