package builtin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"hob"
	"hob/internal/egress"
)

const (
	// retryWithin is the longest Retry-After of a 429 that is waited for, once.
	retryWithin = 15 * time.Second
	// maxServiceBody bounds what is read of an outside service's answer, in bytes.
	maxServiceBody = 8 << 20
)

// Service is what the operator gave for an outside service.
type Service struct {
	Key     hob.Secret
	BaseURL string // without a final slash; "" = the service's own
}

// service is an outside service as one call reaches it.
type service struct {
	name     string // for people
	base     string
	key      string
	operator bool // the base is the operator's and may be private
}

// services finds the outside services with what a workspace set for itself.
type services struct {
	setting hob.SettingReader
}

// text is a setting of a workspace, fallback where nobody set it or it cannot be read.
func (s services) text(ctx context.Context, ws hob.WorkspaceID, key, fallback string) string {
	if s.setting == nil {
		return fallback
	}
	text, err := s.setting(ctx, ws, key)
	if err != nil || text == "" {
		return fallback
	}
	return text
}

// number is a setting of a workspace that is a whole number above zero.
func (s services) number(ctx context.Context, ws hob.WorkspaceID, key string, fallback int) int {
	if n, err := strconv.Atoi(s.text(ctx, ws, key, "")); err == nil && n > 0 {
		return n
	}
	return fallback
}

// serviceRequest is one request to an outside service.
type serviceRequest struct {
	service
	path    string
	header  func(http.Header) // sets the key
	body    any
	timeout time.Duration // of one try
	limit   *limiter
	most    int // requests a minute
	ws      hob.WorkspaceID
}

// ask sends a request and gives the body of a 2xx. fault is the result of a request that came to nothing, without its
// action; err is that of a cancelled ctx.
//
// A request waits for its turn, and once for the end of a rate limit of the service if that is near. A fault is free
// unless the service says that the request itself is wrong.
func (s *Set) ask(ctx context.Context, c hob.Call, r serviceRequest) (body []byte, fault *hob.Result, err error) {
	ok, err := r.limit.wait(ctx, r.ws, r.most)
	switch {
	case err != nil:
		return s.broken(ctx, c, r, err)
	case !ok:
		return nil, free("%s rate limit of this workspace (%d requests a minute) reached; try again in a minute", r.name, r.most), nil
	}
	payload := encode(r.body)
	for try := 1; ; try++ {
		a, err := s.send(ctx, r, payload)
		if err != nil {
			return s.broken(ctx, c, r, err)
		}
		if a.status != http.StatusTooManyRequests {
			body, fault = r.judge(a)
			return body, fault, nil
		}
		wait, told := retryAfter(a.header, s.deps.Clock())
		if try > 1 || !told || wait > retryWithin {
			return nil, free("%s rate limit exceeded; try again later", r.name), nil
		}
		if err := pause(ctx, wait); err != nil {
			return s.broken(ctx, c, r, err)
		}
	}
}

// free is the result of a call that is not counted: it was refused, or the platform is why nothing came of it.
func free(format string, args ...any) *hob.Result {
	r := refused(format, args...)
	return &r
}

// serviceAnswer is what a service answered.
type serviceAnswer struct {
	status int
	header http.Header
	body   []byte
}

// send makes one try.
func (s *Set) send(ctx context.Context, r serviceRequest, payload []byte) (*serviceAnswer, error) {
	open := s.deps.Egress.UserClient
	if r.operator {
		open = s.deps.Egress.OperatorClient
	}
	client, err := open(r.base)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+r.path, bytes.NewReader(payload))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", r.name, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", egress.DefaultUserAgent)
	r.header(req.Header)
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxServiceBody+1))
	if err != nil {
		return nil, err
	}
	return &serviceAnswer{status: res.StatusCode, header: res.Header, body: body}, nil
}

// broken is what comes of a request without an answer.
func (s *Set) broken(ctx context.Context, c hob.Call, r serviceRequest, cause error) ([]byte, *hob.Result, error) {
	if gone := cancelled(ctx, c.Name); gone != nil {
		return nil, nil, gone
	}
	s.noAnswer(c, cause, r.hide)
	var e *egress.Error
	var fault *hob.Result
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		fault = free("%s did not answer within %s", r.name, r.timeout)
	case errors.As(cause, &e) && r.operator && unsent(cause): // who asks cannot do anything about the address
		fault = free("%s could not be reached; the server's log says why", r.name)
	case errors.As(cause, &e):
		fault = free("%s could not be reached: %s", r.name, e.Message)
	default:
		fault = free("%s could not be reached, or broke off its answer", r.name)
	}
	fault.Note = noteOf(cause, r.hide)
	return nil, fault, nil
}

// judge tells a good answer from a fault.
func (r serviceRequest) judge(a *serviceAnswer) ([]byte, *hob.Result) {
	switch {
	case a.status/100 == 2 && len(a.body) > maxServiceBody:
		return nil, free("%s answered with more than %d bytes", r.name, maxServiceBody)
	case a.status/100 == 2:
		return a.body, nil
	}
	text, _ := cut(r.hide(serviceError(a.body)), maxErrorBody)
	res := errorJSON("%s answered with status %d: %s", r.name, a.status, cmp.Or(text, http.StatusText(a.status), "no further information"))
	res.Free = a.status < 400 || a.status >= 500
	return nil, &res
}

// hide takes the key out of a text.
func (r serviceRequest) hide(text string) string {
	if len(r.key) < minRedacted {
		return text
	}
	return strings.ReplaceAll(text, r.key, hob.Mask)
}

// reads says whether a body is JSON of the form that is wanted, and reads it.
func reads(body []byte, into any) bool { return json.Unmarshal(body, into) == nil }

// serviceError is what a service says of a fault: its error or message, else the text as it is.
func serviceError(body []byte) string {
	var told struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &told) == nil {
		var text string
		if json.Unmarshal(told.Error, &text) == nil && text != "" {
			return text
		}
		if told.Message != "" {
			return told.Message
		}
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(body)), "\ufffd")
}

// retryAfter reads Retry-After, in seconds or as a date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := h.Get("Retry-After")
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 && n < 1e6 {
		return time.Duration(n * float64(time.Second)), true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}
