package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob/internal/egress"
)

// redirector answers /to?code=N&url=U with that redirect, everything else with
// what it received.
type redirector struct {
	mu   sync.Mutex
	seen []string
}

func (d *redirector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	d.seen = append(d.seen, fmt.Sprintf("%s %s%s auth=%q cookie=%q key=%q accept=%q type=%q body=%q", r.Method, r.Host, r.URL.Path,
		r.Header.Get("Authorization"), r.Header.Get("Cookie"), r.Header.Get("X-Api-Key"), r.Header.Get("Accept"), r.Header.Get("Content-Type"), body))
	d.mu.Unlock()
	if r.URL.Path != "/to" {
		_, _ = w.Write([]byte("end"))
		return
	}
	code, _ := strconv.Atoi(r.URL.Query().Get("code"))
	w.Header()["Location"] = []string{r.URL.Query().Get("url")}
	w.WriteHeader(code)
	_, _ = w.Write([]byte("moved"))
}

func (d *redirector) last() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[len(d.seen)-1]
}

func (d *redirector) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.seen)
}

func secretHeaders() http.Header {
	return http.Header{"Authorization": {"Bearer s"}, "Cookie": {"c=1"}, "X-Api-Key": {"k"}, "Accept": {"text/plain"}, "Content-Type": {"text/x"}}
}

func TestDo_RedirectIsTheAnswerUnlessAsked(t *testing.T) {
	t.Parallel()
	d := &redirector{}
	w := newWorld(t, egress.Config{}, sites(), serve(t, d.ServeHTTP))
	res, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/to?code=302&url=/end"})
	if err != nil || res.Status != http.StatusFound || res.Header.Get("Location") != "/end" || string(res.Body) != "moved" {
		t.Errorf("Do: %+v %v", res, err)
	}
	if res, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/to?code=304&url=/end", Redirects: 5}); err != nil || res.Status != 304 {
		t.Errorf("304 is no redirect: %+v %v", res, err)
	}
	if res, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/to?code=302&url=", Redirects: 5}); err != nil || res.Status != 302 {
		t.Errorf("no location: %+v %v", res, err)
	}
}

func TestDo_RedirectToItselfKeepsEverything(t *testing.T) {
	t.Parallel()
	tests := []struct{ method, code, want string }{
		{"GET", "301", "GET"},
		{"GET", "302", "GET"},
		{"GET", "303", "GET"},
		{"GET", "307", "GET"},
		{"GET", "308", "GET"},
		{"HEAD", "303", "HEAD"},
		{"POST", "301", "GET"},
		{"POST", "302", "GET"},
		{"POST", "303", "GET"},
		{"POST", "307", "POST"},
		{"POST", "308", "POST"},
		{"PUT", "302", "GET"},
		{"PUT", "303", "GET"},
		{"PUT", "307", "PUT"},
		{"DELETE", "308", "DELETE"},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.code, func(t *testing.T) {
			t.Parallel()
			d := &redirector{}
			w := newWorld(t, egress.Config{}, sites(), serve(t, d.ServeHTTP))
			r := egress.Request{Method: tt.method, URL: "http://a.example/to?code=" + tt.code + "&url=http://A.example.:80/end%23x", Header: secretHeaders(), Redirects: 1}
			if tt.method != "GET" && tt.method != "HEAD" {
				r.Body = []byte("payload")
			}
			res, err := w.Do(t.Context(), r)
			if err != nil || res.Status != 200 || res.URL != "http://a.example/end" {
				t.Fatalf("Do: %+v %v", res, err)
			}
			kept := tt.method == tt.want
			body, ct := "", ""
			if kept && len(r.Body) > 0 {
				body = "payload"
			}
			if kept {
				ct = "text/x"
			}
			want := fmt.Sprintf("%s a.example/end auth=%q cookie=%q key=%q accept=%q type=%q body=%q", tt.want, "Bearer s", "c=1", "k", "text/plain", ct, body)
			if diff := cmp.Diff(want, d.last()); diff != "" {
				t.Errorf("second request (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(secretHeaders(), r.Header); diff != "" {
				t.Errorf("the caller's headers were changed:\n%s", diff)
			}
		})
	}
}

func TestDo_SecretsStayWithTheirOrigin(t *testing.T) {
	t.Parallel()
	d := &redirector{}
	w := newWorld(t, egress.Config{}, sites(), serve(t, d.ServeHTTP))
	for name, to := range map[string]string{
		"other host":     "http://b.example/end",
		"other port":     "http://a.example:443/end",
		"there and back": "http://b.example/to%3Fcode=302%26url=http://a.example/end",
	} {
		// A list with the port makes 443 over plain http fine for the test.
		_, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/to?code=302&url=" + to, Header: secretHeaders(), Redirects: 5})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := d.last(); !strings.Contains(got, `/end auth="" cookie="" key="" accept="text/plain"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestDo_SchemeChangeDropsSecretsAndNeverGoesDown(t *testing.T) {
	t.Parallel()
	d := &redirector{}
	secure, _ := newWorldTLS(t, d.ServeHTTP, true, 0x0304)
	plain := serve(t, d.ServeHTTP)
	tlsAt := secure.target(t)
	secure.MapDial(func(ap netip.AddrPort) (netip.AddrPort, bool) {
		if ap.Port() == 443 {
			return tlsAt, true
		}
		return plain, true
	})
	_, err := secure.Do(t.Context(), egress.Request{URL: "https://example.com/to?code=302&url=http://example.com/end", Header: secretHeaders(), Redirects: 5})
	if kindOf(t, err) != egress.BadRedirect || d.count() != 1 {
		t.Errorf("https to http: %v after %d requests, want BadRedirect after one", err, d.count())
	}
	up := egress.Request{Method: "POST", URL: "http://example.com/to?code=308&url=https://example.com/end", Header: secretHeaders(), Body: []byte("payload"), Redirects: 5}
	if _, err := secure.Do(t.Context(), up); err != nil {
		t.Fatal(err)
	}
	if got, want := d.last(), `POST example.com/end auth="" cookie="" key="" accept="text/plain" type="text/x" body="payload"`; got != want {
		t.Errorf("http to https of the same host:\n got %s\nwant %s", got, want)
	}
}

func TestDo_BodyIsNeverSentToAnotherHost(t *testing.T) {
	t.Parallel()
	d := &redirector{}
	w := newWorld(t, egress.Config{}, sites(), serve(t, d.ServeHTTP))
	for _, code := range []string{"307", "308"} {
		for _, to := range []string{"http://b.example/end", "http://a.example:443/end"} {
			before := d.count()
			_, err := w.Do(t.Context(), egress.Request{Method: "POST", URL: "http://a.example/to?code=" + code + "&url=" + to, Body: []byte("secret"), Redirects: 5})
			if kindOf(t, err) != egress.BadRedirect || d.count() != before+1 {
				t.Errorf("%s to %s: %v after %d requests, want BadRedirect after one", code, to, err, d.count()-before)
			}
		}
	}
	if _, err := w.Do(t.Context(), egress.Request{Method: "POST", URL: "http://a.example/to?code=303&url=http://b.example/end", Body: []byte("secret"), Redirects: 5}); err != nil {
		t.Fatal(err)
	}
	if got := d.last(); !strings.HasPrefix(got, "GET b.example/end") || !strings.HasSuffix(got, `body=""`) {
		t.Errorf("303 to another host: %s", got)
	}
}

func TestDo_EachRedirectIsJudgedFromZero(t *testing.T) {
	t.Parallel()
	d := &redirector{}
	canary := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect reached the canary") })
	n := sites()
	n["inside.example"] = [][]string{{"127.0.0.1"}}
	n["rebind.example"] = [][]string{{pub4}, {"127.0.0.1"}}
	w := newWorld(t, egress.Config{}, n, serve(t, d.ServeHTTP))
	tests := []struct {
		name, to string
		kind     egress.Kind
		rule     egress.Rule
	}{
		{"loopback", "http://127.0.0.1/", egress.Refused, egress.RuleLoopback},
		{"loopback with port", "http://" + canary.String() + "/", egress.Refused, egress.RuleLoopback},
		{"v6 loopback", "http://[::1]/", egress.Refused, egress.RuleLoopback},
		{"metadata", "http://169.254.169.254/latest/meta-data", egress.Refused, egress.RulePlatform},
		{"private name", "http://inside.example/", egress.Refused, egress.RuleLoopback},
		{"name with port", "http://inside.example:" + portOf(canary) + "/", egress.Refused, egress.RulePort},
		{"scheme relative", "//127.0.0.1/", egress.Refused, egress.RuleLoopback},
		{"odd spelling", "http://2130706433/", egress.BadURL, ""},
		{"file", "file:///etc/passwd", egress.BadURL, ""},
		{"credentials", "http://u:p@a.example/", egress.BadURL, ""},
		{"control character", "http://a.example/\tx", egress.BadURL, ""},
		{"outside the list", "http://b.example/", egress.Refused, egress.RuleAllowedHosts},
	}
	for _, tt := range tests {
		r := egress.Request{URL: "http://a.example/to?code=302&url=" + strings.ReplaceAll(strings.ReplaceAll(tt.to, "\t", "%09"), "&", "%26"), Redirects: 5, Timeout: soon}
		if tt.rule == egress.RuleAllowedHosts {
			r.AllowedHosts = []string{"a.example"}
		}
		_, err := w.Do(t.Context(), r)
		if kindOf(t, err) != tt.kind || ruleOf(err) != tt.rule {
			t.Errorf("%s: %v by rule %q, want %q %q", tt.name, err, ruleOf(err), tt.kind, tt.rule)
		}
		if tt.kind == egress.Refused && err.Error() != egress.RefusedText {
			t.Errorf("%s: text %q", tt.name, err)
		}
	}
}

func TestDo_RedirectsAreCounted(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	hits := 0
	to, conns := connCount(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hits++
		mu.Unlock()
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if n == 0 {
			ok(w, r)
			return
		}
		http.Redirect(w, r, "/"+strconv.Itoa(n-1), http.StatusFound)
	})
	w := newWorld(t, egress.Config{}, sites(), to)
	if res, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/5", Redirects: 5}); err != nil || res.URL != "http://a.example/0" || hits != 6 {
		t.Errorf("five redirects: %+v %v after %d requests", res, err, hits)
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for redirects of one host, want 1", n)
	}
	hits = 0
	if _, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/6", Redirects: 5}); kindOf(t, err) != egress.BadRedirect || hits != 6 {
		t.Errorf("six redirects: %v after %d requests, want BadRedirect after 6", err, hits)
	}
}
