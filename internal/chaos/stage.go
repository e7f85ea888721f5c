//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// stage is a world that tells of each request before it is dealt with, so that harm can be done in exactly that moment. It
// has an address of its own; the world's is not used.
type stage struct {
	*world
	front string
	serve *http.Server

	// Called with the message's mark and how many requests of its kind have come for it, this one included, before the
	// model answers or the tool acts. Set before the first request.
	onModel func(mark string, n int)
	onTool  func(tool, mark string, n int)

	mu     sync.Mutex
	models map[string]int
	tools  map[string]int
}

func newStage(ctx context.Context, h *harness, p pace) (*stage, error) {
	w, err := newWorld(ctx, h, p)
	if err != nil {
		return nil, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		w.close()
		return nil, fmt.Errorf("start the model and the tools: %w", err)
	}
	s := &stage{world: w, front: ln.Addr().String(), models: map[string]int{}, tools: map[string]int{}}
	s.onModel, s.onTool = func(string, int) {}, func(string, string, int) {}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(rw http.ResponseWriter, r *http.Request) {
		body, ok := reread(r)
		if !ok {
			return // it never came whole
		}
		if found := marked.FindAllSubmatch(body, -1); len(found) > 0 {
			mark := string(found[len(found)-1][1])
			s.onModel(mark, s.count(s.models, mark))
		}
		w.model(rw, r)
	})
	mux.HandleFunc("POST /tool/{name}", func(rw http.ResponseWriter, r *http.Request) {
		var in struct{ Mark string }
		body, ok := reread(r)
		if !ok {
			return
		}
		if json.Unmarshal(body, &in) == nil {
			s.onTool(r.PathValue("name"), in.Mark, s.count(s.tools, in.Mark))
		}
		w.tool(rw, r)
	})
	s.serve = &http.Server{Handler: mux, ReadHeaderTimeout: startTime}
	go func() { _ = s.serve.Serve(ln) }() // always ErrServerClosed, from close
	return s, nil
}

func (s *stage) close() {
	_ = s.serve.Close() // whoever is still connected is of no use to anybody
	s.world.close()
}

func (s *stage) count(of map[string]int, mark string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	of[mark]++
	return of[mark]
}

// toolRequests is how many requests tools have got for a message.
func (s *stage) toolRequests(mark string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools[mark]
}

// reread reads a request's body and puts it back.
func reread(r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, err == nil
}
