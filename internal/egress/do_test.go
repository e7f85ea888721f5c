package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob/internal/egress"
)

// sites are names that all lead to the local server by public addresses.
func sites() names {
	return names{
		"a.example": {{pub4}}, "b.example": {{pub4other}}, "api.example.com": {{pub4}}, "x.api.example.com": {{pub4}},
		"example.com": {{pub4}}, "evilexample.com": {{pub4}}, "private.example": {{"10.0.0.1"}},
	}
}

func TestDo_SendsTheRequestAsGiven(t *testing.T) {
	t.Parallel()
	var got string
	to := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = fmt.Sprintf("%s %s host=%s ct=%s auth=%s ua=%s body=%s", r.Method, r.URL, r.Host,
			r.Header.Get("Content-Type"), r.Header.Get("Authorization"), r.UserAgent(), body)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("short"))
	})
	w := newWorld(t, egress.Config{UserAgent: "hob/test"}, sites(), to)
	head := http.Header{"content-type": {"application/json"}, "Authorization": {"Bearer s"}}
	res, err := w.Do(t.Context(), egress.Request{Method: "post", URL: "http://A.example.:80/p%2Fq?x=1#frag", Header: head, Body: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	want := "POST /p%2Fq?x=1 host=a.example ct=application/json auth=Bearer s ua=hob/test body={}"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if res.Status != http.StatusTeapot || string(res.Body) != "short" || res.Truncated || res.Header.Get("X-Answer") != "yes" {
		t.Errorf("response %+v", res)
	}
	if res.URL != "http://a.example/p%2Fq?x=1" {
		t.Errorf("final URL %q", res.URL)
	}
	if len(head) != 2 {
		t.Errorf("the caller's headers were changed: %v", head)
	}
}

func TestDo_IgnoresProxiesOfTheEnvironment(t *testing.T) {
	// Not parallel: it changes the environment.
	to := serve(t, ok)
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://"+proxy.String())
	}
	w := newWorld(t, egress.Config{}, sites(), to)
	if res, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/"}); err != nil || res.Status != 200 {
		t.Errorf("Do: %v %v", res, err)
	}
	client, err := w.OperatorClient("http://a.example/v1")
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Get("http://a.example/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("operator client: status %d, the proxy's", res.StatusCode)
	}
}

func TestDo_AllowedHostsLimitEverything(t *testing.T) {
	t.Parallel()
	to := serve(t, ok)
	tests := []struct {
		list, url string
		want      bool
	}{
		{"", "http://a.example/", true},
		{"a.example", "http://a.example/", true},
		{"A.Example.", "http://a.example/x", true},
		{"a.example,b.example", "https://b.example.:80/", false}, // TLS on a plain port: reached, but fails
		{"a.example", "http://b.example/", false},
		{"a.example", "http://" + pub4 + "/", false},
		{pub4, "http://" + pub4 + "/", true},
		{"example.com", "http://api.example.com/", false},
		{"*.example.com", "http://api.example.com/", true},
		{"*.example.com", "http://x.api.example.com/", true},
		{"*.example.com", "http://example.com/", false},
		{"*.example.com", "http://evilexample.com/", false},
		{"*.example", "http://" + pub4 + "/", false},
		{"a.example:8443", "http://a.example:8443/", true},
		{"a.example:8443", "http://a.example/", false},
		{"a.example", "http://a.example:8443/", false},
		{"a.example:80", "http://a.example/", true},
		{"*.example.com:8080", "http://api.example.com:8080/", true},
		{"a.example/v1", "http://a.example/v1", true},
		{"a.example/v1", "http://a.example/v1/x", true},
		{"a.example/v1/", "http://a.example/v1/x", true},
		{"a.example/v1/", "http://a.example/v1", false},
		{"a.example/v1", "http://a.example/v12", false},
		{"a.example/v1", "http://a.example/", false},
		{"a.example/v1", "http://a.example/v1/../admin", false},
		{"a.example/v1", "http://a.example/v1/%2e%2e/admin", false},
		{"a.example/v1", "http://a.example/v1/..%2fadmin", false},
		{"a.example/v1", "http://a.example//v1", false},
		{"a.example/v1", "http://a.example/v1/..;/admin", false},
		{"a.example/v1", "http://a.example/v1/%252e%252e/admin", false},
		// a list never opens what is private
		{"private.example", "http://private.example/", false},
		{"10.0.0.1:80", "http://10.0.0.1/", false},
		{"private.example:8080", "http://private.example:8080/", false},
	}
	for _, tt := range tests {
		t.Run(tt.list+" "+tt.url, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, egress.Config{}, sites(), to)
			var list []string
			if tt.list != "" {
				list = strings.Split(tt.list, ",")
			}
			res, err := w.Do(t.Context(), egress.Request{URL: tt.url, AllowedHosts: list, Timeout: soon})
			if got := err == nil && res.Status == 200; got != tt.want {
				t.Errorf("Do(%s) with %q: %v %v, want allowed %t", tt.url, tt.list, res, err, tt.want)
			}
			if err != nil && strings.HasPrefix(tt.url, "http:") && err.Error() != egress.RefusedText {
				t.Errorf("text %q", err)
			}
		})
	}
	w := newWorld(t, egress.Config{}, sites(), to)
	if _, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", AllowedHosts: []string{"*"}}); kindOf(t, err) != egress.BadRequest {
		t.Errorf("a malformed list: %v, want BadRequest", err)
	}
}

func TestDo_ModelMaySetOnlyHarmlessHeaders(t *testing.T) {
	t.Parallel()
	to := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Header.Get("X-Probe"))) })
	w := newWorld(t, egress.Config{}, sites(), to)
	do := func(fromModel bool, name, value string) error {
		_, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", ModelHeaders: fromModel, Header: http.Header{name: {value}}})
		return err
	}
	harmless := []string{
		"Accept", "accept", "Accept-Language", "Content-Type", "User-Agent", "If-None-Match", "If-Modified-Since",
		"Cache-Control", "Range", "Prefer", "Idempotency-Key", "X-Probe", "x-custom-thing", "X-Request-Id",
	}
	secret := []string{
		"Authorization", "authorization", "Cookie", "Cookie2", "Origin", "Referer", "Www-Authenticate", "X-Forwarded-For",
		"X-Forwarded", "X-Real-IP", "x-http-method-override", "X-Original-URL", "X_Under", "X-Under_Score", "Api-Key", "Metadata", "Metadata-Flavor",
	}
	ours := []string{
		"Host", "host", "Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "content-length", "Content-Encoding", "Accept-Encoding", "Expect", "Forwarded", "Via",
	}
	malformed := []string{"", "A B", "A:B", "A\r\nB", "Ä", "A(B)"}
	for _, h := range harmless {
		if err := do(true, h, "1"); err != nil {
			t.Errorf("header %q from a model: %v", h, err)
		}
	}
	for _, h := range secret {
		if err := do(true, h, "1"); kindOf(t, err) != egress.BadRequest || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(`"`+h+`"`)) {
			t.Errorf("header %q from a model: %v, want an error that names it", h, err)
		}
		if err := do(false, h, "1"); err != nil {
			t.Errorf("header %q from the tool's maker: %v", h, err)
		}
	}
	for _, h := range slices.Concat(ours, malformed) {
		for _, model := range []bool{true, false} {
			if err := do(model, h, "1"); kindOf(t, err) != egress.BadRequest {
				t.Errorf("header %q (model %t): %v, want BadRequest", h, model, err)
			}
		}
	}
	for _, v := range []string{"a\r\nHost: b", "a\nb", "a\x00b", "a\x7fb"} {
		if err := do(false, "X-Probe", v); kindOf(t, err) != egress.BadRequest {
			t.Errorf("value %q: %v, want BadRequest", v, err)
		}
	}
	if err := do(false, "X-Probe", strings.Repeat("a", egress.MaxHeaderBytes)); kindOf(t, err) != egress.BadRequest {
		t.Errorf("headers above the cap: %v, want BadRequest", err)
	}
	many := http.Header{"X-Probe": slices.Repeat([]string{"a"}, 101)}
	if _, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", Header: many}); kindOf(t, err) != egress.BadRequest {
		t.Errorf("101 header values: %v, want BadRequest", err)
	}
}

func TestDo_ChecksMethodAndLimits(t *testing.T) {
	t.Parallel()
	to := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Method", r.Method) })
	w := newWorld(t, egress.Config{}, sites(), to)
	for in, want := range map[string]string{"": "GET", "get": "GET", "Head": "HEAD", "PUT": "PUT", "patch": "PATCH", "DELETE": "DELETE", "options": "OPTIONS", "PROPFIND": "PROPFIND"} {
		res, err := w.Do(t.Context(), egress.Request{Method: in, URL: "http://a.example/"})
		if err != nil || res.Header.Get("X-Method") != want {
			t.Errorf("method %q: %v %v, want %s", in, res, err, want)
		}
	}
	for _, bad := range []string{"CONNECT", "trace", "GET /", "A B", "G\r\nET", "ÄT", strings.Repeat("A", 33)} {
		if _, err := w.Do(t.Context(), egress.Request{Method: bad, URL: "http://a.example/"}); kindOf(t, err) != egress.BadRequest {
			t.Errorf("method %q: %v, want BadRequest", bad, err)
		}
	}
	for _, r := range []egress.Request{{Redirects: -1}, {Redirects: egress.MaxRedirects + 1}, {MaxBody: -1}, {Timeout: -1}} {
		r.URL = "http://a.example/"
		if _, err := w.Do(t.Context(), r); kindOf(t, err) != egress.BadRequest {
			t.Errorf("%+v: %v, want BadRequest", r, err)
		}
	}
	if _, err := w.Do(t.Context(), egress.Request{URL: "http://127.1/"}); kindOf(t, err) != egress.BadURL {
		t.Errorf("odd address: %v, want BadURL", err)
	}
}
