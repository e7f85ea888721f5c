package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"hob"
	"hob/client"
)

// long is a script whose run lasts longer than a few questions to the server take.
const long = `text: one
delay: 4s
text: two`

// answered is what a server said to one request.
type answered struct {
	status int
	header http.Header
	body   string
}

// asked sends one request over a connection of its own.
func (s *serving) asked(t *testing.T, method, path, body string) answered {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", method, path, err, s.logs())
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answered{res.StatusCode, res.Header, string(text)}
}

// begin starts a run that goes on without its reader, and returns when the model has spoken.
func (s *serving) begin(t *testing.T, script string) (hob.AgentID, hob.RunID) {
	t.Helper()
	c := s.client()
	a := scripted(t, c, script)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for e, err := range c.RunStream(ctx, a, client.RunRequest{
		Message: "go", Tuning: hob.Tuning{OnDisconnect: hob.DisconnectContinue},
	}) {
		if err != nil {
			t.Fatal(err)
		}
		return a, runOf(t, e)
	}
	t.Fatal("the run has no events")
	return "", ""
}

// term sends SIGTERM and waits until the server says that it stops.
func (s *serving) term(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); s.asked(t, "GET", "/health/ready", "").status != http.StatusServiceUnavailable; {
		if time.Now().After(end) {
			t.Fatalf("the server calls itself ready behind SIGTERM:\n%s", s.logs())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestTerm_AllButNewRunsIsAnsweredMeanwhile(t *testing.T) {
	t.Parallel()
	s := install(t, nil).serve()
	agent, run := s.begin(t, long)
	idle := keptOpen(t, s) // must not keep the server from ending
	s.term(t)
	if got := s.asked(t, "GET", "/health", ""); got.status != http.StatusOK {
		t.Errorf("/health: status %d", got.status)
	}
	if got := s.asked(t, "GET", "/metrics", ""); !strings.Contains(got.body, "\nhob_runs_active 1\n") {
		t.Errorf("/metrics: status %d, and not the run under way", got.status)
	}
	if got := s.asked(t, "GET", "/api/agents/"+string(agent), ""); got.status != http.StatusOK {
		t.Errorf("a read: status %d", got.status)
	}
	refused := s.asked(t, "POST", "/api/agents/"+string(agent)+"/run/stream", `{"message":"more"}`)
	var fault struct{ Code string }
	if err := json.Unmarshal([]byte(refused.body), &fault); err != nil || refused.status != http.StatusServiceUnavailable ||
		fault.Code != "shutting_down" || refused.header.Get("Retry-After") == "" {
		t.Errorf("a new run: status %d, Retry-After %q, %s", refused.status, refused.header.Get("Retry-After"), refused.body)
	}
	var last hob.Event
	for e, err := range s.client().Events(t.Context(), run, 1) { // a reader that comes back
		if err != nil {
			t.Fatalf("the events: %v\n%s", err, s.logs())
		}
		last = e
	}
	if last.Type != hob.EventComplete || !strings.Contains(string(last.Data), `"status":"completed"`) {
		t.Errorf("the last event is %s", last.Data)
	}
	s.goesWithin(t, 20*time.Second)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.logs())
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("the idle connection got something")
	}
}

func TestTerm_ASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	_, run := s.begin(t, "text: one\ndelay: 25s\ntext: two")
	s.term(t)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.goesWithin(t, 10*time.Second) // of 30 s to drain, and of 25 s that the run takes
	mustContain(t, "the log", s.logs(), "ended at once")
	in.env["HOB_ADDR"] = "127.0.0.1:0"
	again := in.serve()
	if _, err := again.client().Cancel(t.Context(), run); err != nil { // it goes on, so it can be cancelled
		t.Errorf("cancel the run that was handed over: %v", err)
	}
}

// keptOpen is a connection that has had an answer and waits.
func keptOpen(t *testing.T, s *serving) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, "GET /health HTTP/1.1\r\nHost: hob\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.Close {
		t.Fatalf("the connection is not kept: %v", err)
	}
	return c
}

// goesWithin waits for the process to end by itself.
func (s *serving) goesWithin(t *testing.T, most time.Duration) {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(most):
		t.Fatalf("the server is still there after %s:\n%s", most, s.logs())
	}
}
