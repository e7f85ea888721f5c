package hob

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the class of an error; the API maps each to one HTTP status.
type Kind string

// The kinds. An error of another type counts as Internal and its text is shown to nobody but the log.
const (
	Invalid       Kind = "invalid_request"        // 400: the caller's input is wrong; the message names the field
	Unauthorized  Kind = "unauthorized"           // 401: no usable credentials
	Forbidden     Kind = "forbidden"              // 403: known caller, lacking right
	NotFound      Kind = "not_found"              // 404: absent, or not the caller's to see
	Conflict      Kind = "conflict"               // 409: collides with what is there
	TooLarge      Kind = "too_large"              // 413: over a size limit
	Unprocessable Kind = "unprocessable"          // 422: the same Idempotency-Key with another body
	RateLimited   Kind = "rate_limited"           // 429: try again after RetryAfter
	Unavailable   Kind = "unavailable"            // 503: overloaded or shutting down; try again after RetryAfter
	Internal      Kind = "internal"               // 500: ours; the text stays in the log
	Fenced        Kind = "fenced"                 // 500: this process lost the lease of a run and may not write to it
	Method        Kind = "method_not_allowed"     // 405
	MediaType     Kind = "unsupported_media_type" // 415
)

// Error is the one error type that crosses packages: a kind for code, a sentence for people.
type Error struct {
	Kind    Kind
	Code    string // snake_case, for clients; the kind's own text when nothing finer was set
	Message string // the fact and the way out
	Details map[string]any

	RetryAfter time.Duration // with RateLimited and Unavailable
	Err        error         // the cause, never shown to callers
}

// Error returns the message, and the cause for logs where there is one.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// WithCode sets the code that clients switch on and returns the error.
func (e *Error) WithCode(code string) *Error { e.Code = code; return e }

// With adds one detail and returns the error.
func (e *Error) With(key string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[key] = value
	return e
}

// Errorf makes an error of a kind. The message is shown to callers: never format a secret or an inner error that is meant
// for the log into it.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: string(kind), Message: fmt.Sprintf(format, args...)}
}

// Wrap makes an Internal error out of err, told as the operation that met it.
func Wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// KindOf returns the kind of err, Internal for errors of other types and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
