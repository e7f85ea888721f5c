// Package fakeweb plays Exa and Firecrawl for tests: it takes the requests that the services take, refuses what they
// refuse with their words, and answers in their form with content that follows from the request alone. Answers of the
// caller's own come before that, for rate limits, outages and pages that are hostile.
//
// It is no search engine and no crawler, reaches nothing by itself, and is not part of the program.
package fakeweb

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxBody bounds what is read of a request, in bytes.
const maxBody = 1 << 20

// Reply is an answer of the caller's own.
type Reply struct {
	Status int // 200 where 0
	Header http.Header
	Body   string
	Wait   time.Duration // before the answer, or until the client leaves
}

// Request is what a service was asked.
type Request struct {
	Path   string
	Header http.Header
	Body   map[string]any
}

// recorder keeps what was asked and what is to be answered.
type recorder struct {
	key string

	mu      sync.Mutex
	asked   []Request
	replies []Reply
}

// Next queues answers for the next requests with a valid key, in their order.
func (r *recorder) Next(replies ...Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replies = append(r.replies, replies...)
}

// Requests lists what was asked so far.
func (r *recorder) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Request(nil), r.asked...)
}

// take notes a request and gives the answer that is queued for it. The body is nil where it is no JSON object.
func (r *recorder) take(req *http.Request) (body map[string]any, queued *Reply) {
	text, err := io.ReadAll(io.LimitReader(req.Body, maxBody))
	if err == nil {
		_ = json.Unmarshal(text, &body) // what is no object stays nil, which the service refuses
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, Request{Path: req.URL.Path, Header: req.Header.Clone(), Body: body})
	if len(r.replies) > 0 {
		queued, r.replies = &r.replies[0], r.replies[1:]
	}
	return body, queued
}

// send writes an answer of the caller's own.
func (p *Reply) send(w http.ResponseWriter, r *http.Request) {
	if p.Wait > 0 {
		timer := time.NewTimer(p.Wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	for name, values := range p.Header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	status := p.Status
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, p.Body)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
