package main_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestDoctor_AsksTheServicesBehindTools(t *testing.T) {
	t.Parallel()
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["Authorization"])+len(r.Header["X-Api-Key"]) > 0 {
			t.Error("the doctor sends a key")
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
	}))
	t.Cleanup(here.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	out := install(t, map[string]string{
		"CODE_SANDBOX_URL": gone.URL, "CODE_SANDBOX_API_KEY": "sandbox-key-0123", "EXA_BASE_URL": here.URL, "FIRECRAWL_API_BASE": gone.URL + "/v1",
		"FIRECRAWL_API_KEY": "fc-key-0123", "HOB_PUBLIC_URL": "https://hob.example.com",
	}).run("doctor")
	mustContain(t, "the report", out.stdout, "Exa answers at "+here.URL, "no EXA_API_KEY is configured: web_search answers that it is missing",
		"Firecrawl at "+gone.URL+"/v1 cannot be reached (", "the code sandbox at "+gone.URL+" cannot be reached (")
	if out.code != 0 {
		t.Errorf("exit code %d", out.code)
	}
}
