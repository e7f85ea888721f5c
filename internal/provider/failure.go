package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"hob"
)

// Bounds of what is kept of an error answer.
const (
	maxErrorBody = 64 << 10 // bytes read
	maxQuote     = 500      // bytes quoted in a message
)

// failedTry is a failed try: the error as the caller gets it, and whether another try may help.
type failedTry struct {
	err   *hob.ProviderError
	again bool
	wait  time.Duration // what the provider asked to wait, 0 where it said nothing
	says  verdict       // about the endpoint
}

// vendorError is the error object of all dialects, as lenient as servers are with it.
type vendorError struct {
	Message string
	Type    string
	Code    string
	Status  int           // where the code is a number
	Wait    time.Duration // asked for in the object itself, as Google does
}

// readVendorError finds the error object in a body or an event: {"error":{…}}, {"error":"text"}, {"type":"error",
// "error":{…}}, {"message":…,"code":…} or {"detail":…}. The second result is false where there is none.
func readVendorError(body []byte) (vendorError, bool) {
	var outer struct {
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Code    json.RawMessage `json:"code"`
		Type    json.RawMessage `json:"type"`
	}
	body = bytes.TrimSpace(body)
	if len(body) > 0 && body[0] == '[' { // some servers wrap the object in an array
		var list []json.RawMessage
		if json.Unmarshal(body, &list) == nil && len(list) > 0 {
			body = list[0]
		}
	}
	if json.Unmarshal(body, &outer) != nil {
		return vendorError{}, false
	}
	if present(outer.Error) {
		if outer.Error[0] != '{' {
			return vendorError{Message: looseText(outer.Error), Code: looseText(outer.Code)}, true
		}
		var inner struct {
			Message json.RawMessage `json:"message"`
			Type    json.RawMessage `json:"type"`
			Code    json.RawMessage `json:"code"`
			Status  json.RawMessage `json:"status"`
			Details json.RawMessage `json:"details"`
		}
		if json.Unmarshal(outer.Error, &inner) != nil {
			return vendorError{Message: string(outer.Error)}, true
		}
		e := vendorError{Message: looseText(inner.Message), Type: looseText(inner.Type), Code: looseText(inner.Code)}
		e.Status, _ = strconv.Atoi(e.Code)
		e.google(inner.Status, inner.Details)
		return e, true
	}
	message := outer.Message
	if !present(message) {
		message = outer.Detail
	}
	if !present(message) {
		return vendorError{}, false
	}
	e := vendorError{Message: looseText(message), Type: looseText(outer.Type), Code: looseText(outer.Code)}
	e.Status, _ = strconv.Atoi(e.Code)
	return e, true
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// looseText is a JSON string's text, or the JSON itself where it is none.
func looseText(raw json.RawMessage) string {
	if !present(raw) {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// errorTypes are the documented error types and codes of all dialects with the status they stand for. In a stream,
// where the HTTP status is 200 already, they are all there is.
var errorTypes = map[string]int{
	"invalid_request_error": http.StatusBadRequest, "not_found_error": http.StatusNotFound,
	"authentication_error": http.StatusUnauthorized, "invalid_api_key": http.StatusUnauthorized,
	"permission_error": http.StatusForbidden, "billing_error": http.StatusPaymentRequired,
	"request_too_large":   http.StatusRequestEntityTooLarge,
	"rate_limit_error":    http.StatusTooManyRequests,
	"rate_limit_exceeded": http.StatusTooManyRequests, "insufficient_quota": http.StatusTooManyRequests,
	"timeout_error": http.StatusGatewayTimeout, "api_error": http.StatusInternalServerError,
	"server_error": http.StatusInternalServerError, "overloaded_error": statusOverloaded,

	"INVALID_ARGUMENT": http.StatusBadRequest, "FAILED_PRECONDITION": http.StatusBadRequest, googleBadKey: http.StatusUnauthorized,
	"UNAUTHENTICATED": http.StatusUnauthorized, "PERMISSION_DENIED": http.StatusForbidden, "NOT_FOUND": http.StatusNotFound,
	"RESOURCE_EXHAUSTED": http.StatusTooManyRequests, "INTERNAL": http.StatusInternalServerError,
	"UNAVAILABLE": http.StatusServiceUnavailable, "DEADLINE_EXCEEDED": http.StatusGatewayTimeout,
}

// statusOverloaded is what Anthropic answers when it has no capacity.
const statusOverloaded = 529

// Codes that decide by themselves, whatever the status.
const (
	codeContextLength = "context_length_exceeded"
	codeNoQuota       = "insufficient_quota"
)

// status is the status an error of a stream stands for.
func (e vendorError) status() int {
	if e.Status >= 400 && e.Status < 600 {
		return e.Status
	}
	if s, ok := errorTypes[e.Code]; ok {
		return s
	}
	if s, ok := errorTypes[e.Type]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// retryable are the answers after which the same request may succeed.
func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, statusOverloaded:
		return true
	}
	return false
}

// classify sorts an answer by status and typed code.
func classify(status int, e vendorError) hob.ErrorClass {
	switch {
	case e.Code == codeContextLength || e.Type == codeContextLength, status == http.StatusRequestEntityTooLarge:
		return hob.ClassPromptTooLong
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired,
		e.Type == googleBadKey:
		return hob.ClassUnauthorized
	case status == http.StatusTooManyRequests:
		return hob.ClassRateLimit
	case retryable(status), status >= 500:
		return hob.ClassModelError
	}
	return hob.ClassBadRequest
}

// maxAsked bounds what a provider may ask to wait. What is told beyond it is taken for this.
const maxAsked = 24 * time.Hour

// retryAfter reads how long the provider wants to be left alone: retry-after-ms, or Retry-After in seconds or as a date.
// It is 0 where the provider said nothing that can be understood.
func retryAfter(h http.Header, now time.Time) time.Duration { return min(askedWait(h, now), maxAsked) }

func askedWait(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil && s >= 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// quote makes text of a provider fit for a message: valid UTF-8, one line, at most maxQuote bytes.
func quote(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxQuote {
		return text
	}
	cut := maxQuote - len("…")
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + "…"
}

// redactor removes secrets from texts, as they are and as they look inside JSON, an address or an escaped quote.
type redactor []string

func (r redactor) clean(text string) string {
	for _, secret := range r {
		text = strings.ReplaceAll(text, secret, hob.Mask)
		if q := jsonInside(secret); q != secret {
			text = strings.ReplaceAll(text, q, hob.Mask)
		}
		if q := url.QueryEscape(secret); q != secret {
			text = strings.ReplaceAll(text, q, hob.Mask)
		}
	}
	return text
}

// redactorFor knows an endpoint's secrets: its key, and a password in its address.
func redactorFor(key hob.Secret, base *url.URL) redactor {
	var r redactor
	if key != "" {
		r = append(r, string(key))
	}
	if password, ok := base.User.Password(); ok && password != "" {
		r = append(r, password)
	}
	return r
}

// cleanError is an error whose text was cleaned; what it is can still be told.
type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string { return e.text }
func (e *cleanError) Unwrap() error { return e.err }

func (r redactor) wrap(err error) error {
	text := err.Error()
	if cleaned := r.clean(text); cleaned != text {
		return &cleanError{cleaned, err}
	}
	return err
}

// bare strips what the HTTP client wraps around an error: its text names the whole address, which may hold a secret.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
