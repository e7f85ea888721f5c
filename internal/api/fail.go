package api

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"hob"
)

// statusOf is the one place where kinds of error become statuses.
func statusOf(k hob.Kind) int {
	switch k {
	case hob.Invalid:
		return http.StatusBadRequest
	case hob.Unauthorized:
		return http.StatusUnauthorized
	case hob.Forbidden:
		return http.StatusForbidden
	case hob.NotFound:
		return http.StatusNotFound
	case hob.Method:
		return http.StatusMethodNotAllowed
	case hob.Conflict:
		return http.StatusConflict
	case hob.TooLarge:
		return http.StatusRequestEntityTooLarge
	case hob.MediaType:
		return http.StatusUnsupportedMediaType
	case hob.Unprocessable:
		return http.StatusUnprocessableEntity
	case hob.RateLimited:
		return http.StatusTooManyRequests
	case hob.Unavailable:
		return http.StatusServiceUnavailable
	case hob.Internal, hob.Fenced:
	}
	return http.StatusInternalServerError
}

// errorAnswer is the body of every error.
type errorAnswer struct {
	Error   string         `json:"error"`
	Message string         `json:"message"` // the same text
	Code    string         `json:"code"`    // for programs
	Details map[string]any `json:"details,omitempty"`
	// Fields repeats a detail of that name where the clients of provider keys look for it.
	Fields any `json:"fields,omitempty" jsonschema:"by provider, why it refuses the key"`
}

// fieldsDetail is the detail with one reason per field.
const fieldsDetail = "fields"

// fail answers with an error. What is ours, and what has no kind, is logged here and nowhere else, and its text is not
// shown.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	id := r.Header.Get(requestIDHeader)
	var e *hob.Error
	if !errors.As(err, &e) {
		e = &hob.Error{Kind: hob.Internal, Err: err}
	}
	status := statusOf(e.Kind)
	if status == http.StatusInternalServerError {
		s.Log.LogAttrs(r.Context(), slog.LevelError, "a request went wrong",
			slog.String("request_id", id), slog.String("method", shortMethod(r.Method)), slog.String("route", r.Pattern),
			slog.String("error", err.Error()))
		s.write(w, http.StatusInternalServerError, internalAt(r.URL.Path, id))
		return
	}
	h := w.Header()
	switch e.Kind {
	case hob.RateLimited, hob.Unavailable:
		if e.Kind == hob.RateLimited && e.RetryAfter <= 0 {
			break // waiting does not help, as with a budget that has no end
		}
		wait := max(1, int64((e.RetryAfter+time.Second-1)/time.Second))
		h.Set("Retry-After", strconv.FormatInt(wait, 10))
	case hob.Unauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case hob.TooLarge, hob.MediaType:
		h.Set("Connection", "close") // the rest of the body is not worth reading
	default:
	}
	code := e.Code
	if code == "" {
		code = string(e.Kind)
	}
	answer := errorAnswer{Error: e.Message, Message: e.Message, Code: code, Details: e.Details, Fields: e.Details[fieldsDetail]}
	body, err := marshal(faultFor(r.URL.Path, status, e, answer))
	if err != nil {
		body = internalBody(id)
	}
	s.write(w, status, body)
}

// internalBody is the answer to faults of ours. The id is plain (plainID), so it needs no escaping.
func internalBody(id string) []byte {
	const text = "Something went wrong in the server; its log says what, under the request id"
	return []byte(`{"error":"` + text + `","message":"` + text + `","code":"internal","details":{"request_id":"` + id + `"}}` + "\n")
}
