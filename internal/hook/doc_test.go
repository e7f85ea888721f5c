package hook_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"hob"
	"hob/internal/egress"
	"hob/internal/hook"
)

// genuine says whether a body was signed with the secret within the last five minutes.
func genuine(secret, header string, body []byte, now time.Time) bool {
	stamp, signature, ok := strings.Cut(strings.TrimPrefix(header, "t="), ",v1=")
	sent, err := strconv.ParseInt(stamp, 10, 64)
	if !ok || err != nil || now.Sub(time.Unix(sent, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return hmac.Equal([]byte(signature), []byte(hex.EncodeToString(mac.Sum(nil))))
}

// block is the first block of a language on the page about hooks.
func block(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "hooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(text)
	if found == nil {
		t.Fatalf("the page has no block of %s", language)
	}
	return string(found[1])
}

// The page's check in Go is the one above, which takes what is signed and nothing else.
func TestPage_TheCheckInGo(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile("doc_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(own, []byte(block(t, "go"))) {
		t.Error("the page's code is not that of this test")
	}
	var header string
	var body []byte
	receiver := serve(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header.Get("X-Hob-Signature")
		body, _ = io.ReadAll(r.Body)
		_, _ = w.Write([]byte(`{}`))
	})
	if _, err := newSender(t, nil, hook.Limits{}, receiver).CallHook(t.Context(), request(receiver.URL)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		secret, header string
		body           []byte
		now            time.Time
		want           bool
	}{
		"as it is":       {secret, header, body, moment, true},
		"a little later": {secret, header, body, moment.Add(4 * time.Minute), true},
		"too late":       {secret, header, body, moment.Add(6 * time.Minute), false},
		"too early":      {secret, header, body, moment.Add(-6 * time.Minute), false},
		"another secret": {"other", header, body, moment, false},
		"another body":   {secret, header, append([]byte(" "), body...), moment, false},
		"another time":   {secret, strings.Replace(header, "t=1", "t=2", 1), body, moment, false},
		"no signature":   {secret, "", body, moment, false},
		"no time":        {secret, "t=,v1=" + header[len(header)-64:], body, moment, false},
	} {
		if got := genuine(tt.secret, tt.header, tt.body, tt.now); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The page's receiver in Python decides about what it is sent, and refuses what was signed with another secret.
func TestPage_TheReceiverInPython(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is missing; install it with: apt-get install python3")
	}
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.CommandContext(t.Context(), python, "-c", block(t, "python"))
	cmd.Env = append(os.Environ(), "HOOK_SECRET="+secret, "PORT="+port)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("the receiver does not start: %v\n%s", err, said.String())
		}
	}
	entries, err := egress.ParseAllow(address)
	if err != nil {
		t.Fatal(err)
	}
	guard := egress.New(egress.Config{Allow: entries})
	t.Cleanup(guard.Close)
	call := func(now time.Time, change func(*hob.HookRequest)) (hob.HookAnswer, error) {
		r := request((&url.URL{Scheme: "http", Host: address}).String())
		r.Timeout = 20 * time.Second
		change(&r)
		return hook.New(hook.Config{Egress: guard, Clock: func() time.Time { return now }}).CallHook(t.Context(), r)
	}
	now := time.Now()
	if a, err := call(now, func(*hob.HookRequest) {}); err != nil || a.Deny {
		t.Errorf("a harmless call: %+v, %v\n%s", a, err, said.String())
	}
	drop := func(r *hob.HookRequest) {
		r.Body = json.RawMessage(`{"event":"PreToolUse","data":{"sql":"DROP TABLE t"}}`)
	}
	if a, err := call(now, drop); err != nil || !a.Deny || a.Message != "tables are not dropped" {
		t.Errorf("a call that is denied: %+v, %v", a, err)
	}
	if _, err := call(now, func(r *hob.HookRequest) { r.Hook.Config.Secret = "another" }); err == nil || !strings.Contains(err.Error(), "HTTP 401") {
		t.Errorf("another secret: %v", err)
	}
	if _, err := call(now.Add(-time.Hour), func(*hob.HookRequest) {}); err == nil || !strings.Contains(err.Error(), "HTTP 401") {
		t.Errorf("an old request: %v", err)
	}
}

// freeAddress is an address of this machine that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	return s.Listener.Addr().String()
}
