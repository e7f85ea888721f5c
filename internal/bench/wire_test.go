//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDechunker_AtEveryCut(t *testing.T) {
	t.Parallel()
	const in = "5;ext=1\r\nhello\r\n1b\r\n, this is a chunked message\r\n0\r\nTrailer: x\r\n\r\nHTTP/1.1 200"
	const want, behind = "hello, this is a chunked message", "HTTP/1.1 200"
	for cut := range len(in) {
		d := chunked()
		var got, rest []byte
		for _, part := range []string{in[:cut], in[cut:]} {
			rest = append(rest, part...)
			for len(rest) > 0 && !d.done() {
				piece, after, err := d.next(rest)
				if err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				got = append(got, piece...)
				rest = after
			}
		}
		if string(got) != want || string(rest) != behind || !d.done() {
			t.Errorf("cut at %d: body %q, rest %q, done %t", cut, got, rest, d.done())
		}
	}
}

func TestDechunker_RefusesWhatIsNoSize(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"xyz\r\n", "FFFFFFFFFF\r\n"} {
		d := chunked()
		if _, _, err := d.next([]byte(bad)); err == nil {
			t.Errorf("the size %q is taken", bad)
		}
	}
}

func TestParseHead(t *testing.T) {
	t.Parallel()
	status, body, err := parseHead("HTTP/1.1 201 Created\r\nX: y\r\ncontent-length: 7")
	if err != nil || status != 201 || body != sized(7) {
		t.Errorf("a sized answer: %d, %+v, %v", status, body, err)
	}
	status, body, err = parseHead("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked")
	if err != nil || status != 200 || body != chunked() {
		t.Errorf("a chunked answer: %d, %+v, %v", status, body, err)
	}
	for _, bad := range []string{"", "SSH-2.0-x", "HTTP/1.1 abc", "HTTP/1.1 200 OK\r\nContent-Length: -1", "HTTP/1.1 200 OK"} {
		if _, _, err := parseHead(bad); err == nil {
			t.Errorf("the head %q is taken", bad)
		}
	}
}

// serve starts a server and gives its address.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestWire_ReadsLinesOverOneConnection(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	long := strings.Repeat("x", 3*readerBuffer)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/chunks":
			for _, text := range []string{"data: one\n\nda", "ta: two\n\n: a comment\n", "\ndata: " + long + "\n\n", "data: end"} {
				fmt.Fprint(w, text)
				_ = http.NewResponseController(w).Flush()
			}
		case "/sized":
			fmt.Fprint(w, "a\nb\n")
		default:
			http.Error(w, "not here", http.StatusNotFound)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	addr := s.Listener.Addr().String()
	w, err := dialWire(t.Context(), addr, netip.MustParseAddr("127.0.0.3"), readerBuffer)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	get := func(path string) ([]string, error) {
		var lines []string
		err := w.exchange(request{method: "GET", host: addr, path: path}.bytes(), func(line []byte) { lines = append(lines, string(line)) })
		return lines, err
	}
	want := map[string][]string{
		"/chunks": {"data: one", "", "data: two", "", ": a comment", "", "data: " + long, "", "data: end"},
		"/sized":  {"a", "b"},
	}
	for _, path := range []string{"/chunks", "/sized", "/chunks"} {
		got, err := get(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[path], got); diff != "" {
			t.Errorf("lines of %s (-want +got):\n%s", path, diff)
		}
	}
	if _, err := get("/other"); err == nil || !strings.Contains(err.Error(), "status 404: not here") {
		t.Errorf("a 404 reads as %v", err)
	}
	if _, err := get("/sized"); err != nil {
		t.Errorf("after a 404 the connection is lost: %v", err)
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestWire_ACutStreamIsAnError(t *testing.T) {
	t.Parallel()
	addr := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "data: one\n\n")
		_ = http.NewResponseController(w).Flush()
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	w, err := connect(t.Context(), newClock(), addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.exchange(request{method: "GET", host: addr, path: "/"}.bytes(), func([]byte) {}); err == nil {
		t.Error("a stream without an end is taken for a whole one")
	}
}

func TestWire_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	addr := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	w, err := connect(ctx, newClock(), addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := w.exchange(request{method: "GET", host: addr, path: "/"}.bytes(), func([]byte) {}); err == nil {
		t.Error("the exchange outlived its context")
	}
}

// watch feeds lines to a watcher.
func watch(w watcher, lines ...string) (bool, error) {
	for _, line := range lines {
		w.line([]byte(line))
	}
	return w.hasText(), w.verdict()
}

func TestChatReader(t *testing.T) {
	t.Parallel()
	const role = `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}`
	if text, err := watch(chats(), role, "", `data: {"choices":[{"delta":{}}]}`, "data: [DONE]"); text || err != nil {
		t.Errorf("an empty answer: text %t, %v", text, err)
	}
	if text, err := watch(chats(), role, `data: {"choices":[{"delta":{"content":"a"}}]}`, "data:[DONE]"); !text || err != nil {
		t.Errorf("a text: text %t, %v", text, err)
	}
	if _, err := watch(chats(), role); err == nil {
		t.Error("a stream without [DONE] is taken")
	}
	if _, err := watch(chats(), `data: {"error":{"message":"overloaded"}}`, "data: [DONE]"); err == nil || !strings.Contains(err.Error(), "overloaded") {
		t.Errorf("an error in the stream reads as %v", err)
	}
}

func TestRunReader(t *testing.T) {
	t.Parallel()
	const done = `data: {"event":"complete","type":"complete","content":"a","status":"completed","code":null}`
	tests := []struct {
		name  string
		lines []string
		text  bool
		fails string
	}{
		{"pieces of a run without tools", []string{": keepalive", `data: {"event":"chunk","type":"chunk","content":"a"}`, done}, true, ""},
		{"deltas of a run with tools", []string{"id: 3", `data: {"event":"content_delta","delta":"a"}`, done}, true, ""},
		{"an empty piece is no text", []string{`data: {"event":"chunk","content":""}`, done}, false, ""},
		{"complete's own content is no first text", []string{done}, false, ""},
		{"cut", []string{`data: {"event":"start"}`}, false, "without complete"},
		{"failed", []string{`data: {"event":"error","error":"no key"}`, `data: {"event":"complete","status":"failed"}`}, false, "no key"},
	}
	for _, tt := range tests {
		text, err := watch(runs(), tt.lines...)
		if text != tt.text || (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%s: text %t, %v", tt.name, text, err)
		}
	}
}

func TestAssemble_JoinsThePiecesOfACall(t *testing.T) {
	t.Parallel()
	got, err := assemble([]string{
		`data: {"choices":[{"delta":{"content":"let me "}}]}`, "",
		`data: {"choices":[{"delta":{"content":"see","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"lookup","arguments":""}}]}}]}`,
		`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"step\""}}]}}]}`,
		`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}`,
		`data: {"choices":[],"usage":{}}`, "data: [DONE]",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := chatAnswer{Text: "let me see", Calls: []toolCall{{ID: "c1", Type: "function"}}}
	want.Calls[0].Function.Name, want.Calls[0].Function.Arguments = "lookup", `{"step":1}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if _, err := assemble([]string{"data: {"}); err == nil {
		t.Error("half a frame is taken")
	}
}
