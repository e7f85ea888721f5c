//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"hob"
)

// quiet is how long a stream may be silent: keepalives come every 15 seconds.
const quiet = 20 * time.Second

// errCut is how a client's own cut of its connection reads.
var errCut = errors.New("the client cut its connection")

// refused is an answer of Hob's that is no success.
type refused struct {
	status int
	body   string
}

func (r refused) Error() string {
	return fmt.Sprintf("status %d: %s", r.status, r.body[:min(len(r.body), 300)])
}

// later says whether Hob means that the request may succeed at another time.
func (r refused) later() bool { return r.status >= 500 || r.status == http.StatusTooManyRequests }

// hobAPI is how clients speak to Hob: nothing is repeated and nothing is hidden, other than in package client.
type hobAPI struct{ http *http.Client }

func newAPI() *hobAPI {
	return &hobAPI{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: 10 * time.Second}}}
}

func (a *hobAPI) close() { a.http.CloseIdleConnections() }

// request is one call.
type request struct {
	addr, method, path string
	header             map[string]string
	body               any
}

// send sends a request. An answer that is no success is a refused.
func (a *hobAPI) send(ctx context.Context, q request) (*http.Response, error) {
	var body io.Reader
	if q.body != nil {
		body = bytes.NewReader(encode(q.body))
	}
	r, err := http.NewRequestWithContext(ctx, q.method, "http://"+q.addr+q.path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", q.method, q.path, err)
	}
	r.Header.Set("Authorization", "Bearer "+serviceKey)
	if q.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	res, err := a.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", q.method, q.path, err)
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // what there is of it tells enough
	return nil, refused{res.StatusCode, string(text)}
}

// call sends a request and decodes the answer into out, which may be nil.
func (a *hobAPI) call(ctx context.Context, q request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	res, err := a.send(ctx, q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", q.method, q.path, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%s %s: %w", q.method, q.path, err)
	}
	return nil
}

// persist is call until it succeeds, Hob refuses for good, or the context ends.
func (a *hobAPI) persist(ctx context.Context, q request, out any) error {
	for {
		err := a.call(ctx, q, out)
		var no refused
		if err == nil || ctx.Err() != nil || errors.As(err, &no) && !no.later() {
			return err
		}
		pause(ctx, again)
	}
}

// again is the wait between two tries.
const again = 20 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// frame is one event as it came.
type frame struct {
	seq  int64
	kind hob.EventType
	run  hob.RunID
	data []byte
}

// stream opens a stream and gives each whole frame, until give says no, the stream ends, or the connection was cut behind
// so many bytes of the body; a negative number means never.
func (a *hobAPI) stream(ctx context.Context, q request, cut int, give func(frame) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(quiet, func() { cancel(errors.New("the stream is silent for too long")) })
	defer silence.Stop()
	res, err := a.send(ctx, q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	in := bufio.NewReader(&scissors{res.Body, cut, silence})
	var data []byte
	var id string
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err // a line without its end is no frame; io.EOF is the server's end of the stream
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case bytes.HasPrefix(line, []byte("data: ")):
			data = append(data, line[len("data: "):]...)
		case bytes.HasPrefix(line, []byte("id: ")):
			id = string(line[len("id: "):])
		case len(line) == 0 && data != nil:
			var head hob.EventHead
			if err := json.Unmarshal(data, &head); err != nil {
				return fmt.Errorf("an event that is no JSON: %w: %s", err, data)
			}
			if id != "" && id != strconv.FormatInt(head.Seq, 10) {
				return fmt.Errorf("the event %d has the id %s", head.Seq, id)
			}
			if !give(frame{head.Seq, head.Event, head.Run, data}) {
				return nil
			}
			data, id = nil, ""
		}
	}
}

// scissors cut a body behind so many bytes.
type scissors struct {
	in      io.Reader
	left    int
	silence *time.Timer
}

func (s *scissors) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, errCut
	}
	if s.left > 0 {
		p = p[:min(len(p), s.left)]
	}
	n, err := s.in.Read(p)
	s.silence.Reset(quiet)
	if s.left > 0 {
		s.left -= n
	}
	return n, err
}
