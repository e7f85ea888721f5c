package main_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hob"
	"hob/client"
	"hob/internal/fakeai"
)

const probedKey = "sk-probed-0123456789"

// oddEndpoint is a model server that does not know stream_options. It counts what it was asked with the right key.
func oddEndpoint(t *testing.T) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	fake := fakeai.New(fakeai.Options{Key: probedKey})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+probedKey {
			asked.Add(1)
		}
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"stream_options"`)) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"unknown field stream_options"}}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/v1", asked
}

func TestProviderTest_WhatItFindsMakesRunsWork(t *testing.T) {
	t.Parallel()
	url, _ := oddEndpoint(t)
	in := install(t, map[string]string{"OPENAI_BASE_URL": url, "OPENAI_API_KEY": probedKey})
	s := in.serve()
	c := s.client()
	name, model := "odd", "openai/m"
	a, err := c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &model})
	if err != nil {
		t.Fatal(err)
	}
	works := func() bool {
		out, err := c.Run(t.Context(), a.ID, client.RunRequest{Message: "hi"})
		return err == nil && out.Status == hob.Completed
	}
	if works() {
		t.Fatal("the endpoint works without a profile")
	}
	out := in.run("provider", "test", url, "--model", "m")
	if out.code != 0 {
		t.Fatalf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
	}
	mustContain(t, "the table", out.stdout, "plain answer", "yes", "stream_options", "tool call", "window", "calls,", "tokens",
		"kept by the server at "+s.url+": ", "stream_options, ", "With it runs differ in this: ", "stream_options is not sent")
	list, err := c.Profiles(t.Context())
	if err != nil || len(list) != 1 || list[0].Endpoint != url || list[0].Model != "m" || !strings.Contains(string(list[0].Facts), `"stream_options":false`) {
		t.Errorf("profiles %+v, %v", list, err)
	}
	for end := time.Now().Add(20 * time.Second); !works(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("runs do not work with the profile")
		}
	}
}

func TestProviderTest_KeepsTheProfileInTheStoreWhereNoServerRuns(t *testing.T) {
	t.Parallel()
	url, asked := oddEndpoint(t)
	in := install(t, map[string]string{"HOB_PROVIDER_KEY": probedKey})
	out := in.run("provider", "test", url, "--model", "m", "--no-store")
	mustContain(t, "the end", out.stdout, "With these facts runs would differ in this: ", "stream_options is not sent")
	if out.code != 0 || asked.Load() == 0 || strings.Contains(out.stdout, "was kept") {
		t.Errorf("--no-store: exit code %d after %d calls\n%s%s", out.code, asked.Load(), out.stdout, out.stderr)
	}
	out = in.run("provider", "test", url, "--model", "m")
	if out.code != 1 {
		t.Errorf("without a store: exit code %d", out.code)
	}
	mustContain(t, "the error", out.stderr, "not kept", "hob serve", "--no-store")
	in.serve().stop()
	out = in.run("provider", "test", url, "--model", "m", "--json")
	var report struct {
		Usable  bool
		Kept    string
		Tokens  int
		Checks  []struct{ Check, Outcome string }
		Facts   map[string]any
		Changes []string
	}
	if err := json.Unmarshal([]byte(out.stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, out.stdout, out.stderr)
	}
	if out.code != 0 || !report.Usable || report.Kept != "in "+in.dir || report.Tokens == 0 || len(report.Checks) < 10 || report.Facts["stream_options"] != false ||
		!slices.Contains(report.Changes, "stream_options is not sent") {
		t.Errorf("exit code %d, %+v", out.code, report)
	}
	list, err := in.serve().client().Profiles(t.Context())
	if err != nil || len(list) != 1 || list[0].Endpoint != url {
		t.Errorf("profiles %+v, %v", list, err)
	}
}

func TestProviderTest_AnEndpointOfNoUse(t *testing.T) {
	t.Parallel()
	url, asked := oddEndpoint(t)
	in := install(t, map[string]string{"OPENAI_API_KEY": probedKey, "OPENROUTER_BASE_URL": "http://127.0.0.1:1", "OPENROUTER_API_KEY": probedKey})
	s := in.serve()
	out := in.run("provider", "test", url, "--model", "m")
	if out.code != 1 || asked.Load() != 0 {
		t.Errorf("exit code %d; %d requests had a key that is meant for another address", out.code, asked.Load())
	}
	mustContain(t, "the table", out.stdout, "plain answer", "no", "401", "check HOB_PROVIDER_KEY", "cannot be used", "nothing was kept")
	if strings.Contains(out.stdout, "OPENAI_") {
		t.Errorf("a variable is named that nobody used:\n%s", out.stdout)
	}
	nobody := in.run("provider", "test", "http://127.0.0.1:1/v1", "--model", "m")
	mustContain(t, "the table", nobody.stdout, "check that it runs, and the address http://127.0.0.1:1/v1")
	in.env["HOB_PROVIDER_KEY"] = "sk-wrong-0123456789"
	if out = in.run("provider", "test", url, "--model", "m"); out.code != 1 || strings.Contains(out.stdout+out.stderr, "sk-wrong") {
		t.Errorf("exit code %d:\n%s%s", out.code, out.stdout, out.stderr)
	}
	if list, err := s.client().Profiles(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("profiles %+v, %v", list, err)
	}
}

func TestProviderTest_MistakesAreTold(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no verb":     {[]string{"provider"}, 2, "test"},
		"other verb":  {[]string{"provider", "list"}, 2, `"list"`},
		"no address":  {[]string{"provider", "test"}, 2, "which address"},
		"no model":    {[]string{"provider", "test", "http://127.0.0.1:1/v1"}, 2, "--model"},
		"a word more": {[]string{"provider", "test", "http://127.0.0.1:1/v1", "now", "--model", "m"}, 2, `"now"`},
		"no URL":      {[]string{"provider", "test", "tiny", "--model", "x"}, 2, `"tiny" is no address; it must be like https://host/v1`},
		"no host":     {[]string{"provider", "test", "https:///v1", "--model", "x"}, 2, "is no address"},
		"no web":      {[]string{"provider", "test", "ftp://host/v1", "--model", "x"}, 2, "is no address"},
		"dialect":     {[]string{"provider", "test", "http://127.0.0.1:1/v1", "--model", "m", "--dialect", "morse"}, 1, "openai, anthropic, gemini"},
		"nobody":      {[]string{"provider", "test", "http://127.0.0.1:1/v1", "--model", "m"}, 1, ""},
	} {
		out := in.run(tc.args...)
		if out.code != tc.code {
			t.Errorf("%s: exit code %d, want %d\n%s", name, out.code, tc.code, out.stderr)
		}
		mustContain(t, name, out.stderr, tc.want)
	}
}

func TestCircuit_OfABrokenEndpointIsToldAndCounted(t *testing.T) {
	t.Parallel()
	fake := fakeai.New(fakeai.Options{Reply: fakeai.Always(fakeai.Error(http.StatusServiceUnavailable, "out of order"))})
	srv := httptest.NewServer(fake)
	t.Cleanup(srv.Close)
	s := install(t, map[string]string{"OPENAI_BASE_URL": srv.URL + "/v1"}).serve()
	c := s.client()
	name, model := "broken", "openai/m"
	a, err := c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &model})
	if err != nil {
		t.Fatal(err)
	}
	if got := metricsOf(t, s.url); !strings.Contains(got, "hob_circuits_open 0\n") {
		t.Errorf("before: %s", got)
	}
	said := ""
	for range 2 { // of four tries each, but for the circuit
		out, err := c.Run(t.Context(), a.ID, client.RunRequest{Message: "hi"})
		if err != nil || out.Status != hob.Failed || out.Error == nil {
			t.Fatalf("%+v, %v", out, err)
		}
		said = *out.Error
	}
	mustContain(t, "the second run's error", said, "5 tries in a row failed", "out of order", "tried again in")
	if n := len(fake.Requests()); n != 5 {
		t.Errorf("%d requests, want 5", n)
	}
	if got := metricsOf(t, s.url); !strings.Contains(got, "hob_circuits_open 1\n") {
		t.Errorf("after: %s", got)
	}
}

func metricsOf(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
