// Package client speaks to a Hob server over its HTTP API. Answers are the types of package hob; errors that the server
// sent are *hob.Error, so hob.KindOf tells their kind. It is not for talking to models or tools, and it keeps nothing:
// a Client is a base address, a key and a connection pool.
//
// The module is named hob, which no proxy serves: another module names a copy of the source in its go.mod,
//
//	go 1.26.8
//
//	require hob v0.0.0
//
//	replace hob => ../hob
//
// runs go mod tidy, and imports "hob" and "hob/client". The two need nothing but the standard library.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"hob"
)

// Times and sizes of a client.
const (
	dialTime   = 10 * time.Second
	maxAnswer  = 64 << 20 // bytes of one JSON answer
	maxRetries = 3        // of a call that the server asks to repeat
	maxWait    = 30 * time.Second
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// DefaultPatience is long enough for a server that drains its runs and for the restart of its machine.
const DefaultPatience = 2 * time.Minute

// Client calls one server with one key. It is safe for concurrent use.
type Client struct {
	// Patience is how long RunStream and Events come back for a run whose stream broke: the time without a stream, added
	// up since the last event that came. 0 is DefaultPatience; below 0 a broken stream is an error at once. It is set
	// before the first call.
	Patience time.Duration

	base string
	key  string
	http *http.Client
}

// New makes a client for the server at base, as http://127.0.0.1:8787, and a key ("" for the routes that need none).
// Nothing is sent yet.
func New(base, key string) *Client {
	return &Client{
		base: strings.TrimRight(base, "/"), key: key,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
				TLSHandshakeTimeout: dialTime,
				MaxIdleConnsPerHost: 256,
				IdleConnTimeout:     90 * time.Second,
				ForceAttemptHTTP2:   true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a key goes to one server
		},
	}
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request is one call.
type request struct {
	method, path string
	query        url.Values
	header       http.Header
	body         any
	again        bool // may be repeated when the server is busy
}

const idempotencyHeader = "Idempotency-Key"

// idempotent is the header that makes a request one that may be repeated; none for "".
func idempotent(key string) http.Header {
	h := http.Header{}
	if key != "" {
		h.Set(idempotencyHeader, key)
	}
	return h
}

// path joins the elements of a path, each escaped.
func path(elements ...string) string {
	var b strings.Builder
	for _, e := range elements {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(e))
	}
	return b.String()
}

// call sends a request and decodes its JSON answer into out, which may be nil. Requests without effect, and those with
// an idempotency key, are repeated when the server says that it is busy, as long as ctx lasts.
func (c *Client) call(ctx context.Context, r request, out any) error {
	r.again = r.again || r.method == http.MethodGet || r.header.Get(idempotencyHeader) != ""
	for try := 0; ; try++ {
		err := c.once(ctx, r, out)
		var e *hob.Error
		if !r.again || try == maxRetries || !errors.As(err, &e) || (e.Kind != hob.RateLimited && e.Kind != hob.Unavailable) ||
			e.Code == hob.CodeBudget { // an agent's budget does not come back within a call's patience
			return err
		}
		if err := pause(ctx, min(max(e.RetryAfter, firstPause<<try), maxWait)); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Client) once(ctx context.Context, r request, out any) error {
	answer, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", r.method, r.path, err)
	}
	if len(body) > maxAnswer {
		return fmt.Errorf("%s %s: the answer is longer than %d bytes", r.method, r.path, maxAnswer)
	}
	if out == nil || len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not what was expected: %w", r.method, r.path, err)
	}
	return nil
}

// send sends a request and returns an answer whose status is a success; its body is the caller's to close.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		b, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: encode the body: %w", r.method, r.path, err)
		}
		body = bytes.NewReader(b)
	}
	address := c.base + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, err // a *url.Error, which names the call
	}
	if answer.StatusCode >= 300 {
		defer func() { _ = answer.Body.Close() }()
		return nil, failure(answer)
	}
	return answer, nil
}

const maxFailure = 1 << 20 // bytes of an error's body

// failure reads the server's error. Answers of others, as a proxy's page, become one that tells the status.
func failure(answer *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxFailure)) // a short body is judged as it is
	var told struct {
		Error   string         `json:"error"`
		Message string         `json:"message"`
		Code    string         `json:"code"`
		Details map[string]any `json:"details"`
	}
	e := &hob.Error{Kind: kindOf(answer.StatusCode)}
	if json.Unmarshal(body, &told) == nil && (told.Message != "" || told.Error != "") {
		e.Message, e.Code, e.Details = told.Message, told.Code, told.Details
		if e.Message == "" {
			e.Message = told.Error
		}
	}
	if e.Message == "" {
		e.Message = "the server answered " + answer.Status
	}
	if e.Code == "" {
		e.Code = string(e.Kind)
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// kindOf is the kind that a status stands for.
func kindOf(status int) hob.Kind {
	switch status {
	case http.StatusUnauthorized:
		return hob.Unauthorized
	case http.StatusForbidden:
		return hob.Forbidden
	case http.StatusNotFound:
		return hob.NotFound
	case http.StatusMethodNotAllowed:
		return hob.Method
	case http.StatusConflict:
		return hob.Conflict
	case http.StatusRequestEntityTooLarge:
		return hob.TooLarge
	case http.StatusUnsupportedMediaType:
		return hob.MediaType
	case http.StatusUnprocessableEntity:
		return hob.Unprocessable
	case http.StatusTooManyRequests:
		return hob.RateLimited
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return hob.Unavailable
	}
	if status >= 400 && status < 500 {
		return hob.Invalid
	}
	return hob.Internal
}
