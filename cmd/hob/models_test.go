package main_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestDoctor_AsksTheProvidersOfTheOperator(t *testing.T) {
	t.Parallel()
	models := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/models" && r.Header.Get("X-Api-Key") == "right":
		case r.URL.Path == "/v1beta/models" && r.Header.Get("X-Goog-Api-Key") == "right":
		case r.URL.Path == "/openai/v1/models" && r.Header.Get("Authorization") == "":
			w.WriteHeader(http.StatusNotFound) // a server without the list is there all the same
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(models.Close)
	in := install(t, map[string]string{
		"OPENAI_BASE_URL": models.URL + "/openai/v1", "ANTHROPIC_BASE_URL": models.URL, "ANTHROPIC_API_KEY": "right",
		"GEMINI_BASE_URL": models.URL + "/v1beta/", "GEMINI_API_KEY": "right",
		"OPENROUTER_BASE_URL": models.URL + "/router", "OPENROUTER_API_KEY": "wrong-key", "OLLAMA_HOST": "127.0.0.1:1",
	})
	out := in.run("doctor")
	if out.code != 0 {
		t.Errorf("exit code %d, want 0: a provider that is away is no fault of the installation\n%s", out.code, out.stdout)
	}
	mustContain(t, "the table", out.stdout, "configured: openai (no key), anthropic, gemini, openrouter, ollama",
		"ok    models            openai answers at "+models.URL, "ok    models            anthropic answers at "+models.URL,
		"ok    models            gemini answers at "+models.URL,
		"warn  models            openrouter at "+models.URL+"/router does not accept the key (status 401)",
		"warn  models            ollama at http://127.0.0.1:1 cannot be reached (connection refused)")
	if strings.Contains(out.stdout, "wrong-key") {
		t.Error("a key shows")
	}
}

func TestDoctor_AsksWhetherTheVersionIsMissing(t *testing.T) {
	t.Parallel()
	models := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(models.Close)
	for base, warns := range map[string]bool{models.URL: true, models.URL + "/v1": false} {
		out := install(t, map[string]string{"OPENAI_BASE_URL": base}).run("doctor")
		if got := strings.Contains(out.stdout, "does the address lack /v1?"); got != warns {
			t.Errorf("%s: asked for the version: %t\n%s", base, got, out.stdout)
		}
		if got := strings.Contains(out.stdout, "ok    models            openai answers at "+base); got == warns {
			t.Errorf("%s: is called good: %t\n%s", base, got, out.stdout)
		}
	}
}
