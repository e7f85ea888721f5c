package agentsql

import "fmt"

// Kind classes an Error.
type Kind string

// The kinds of Error.
const (
	Refused     Kind = "refused"     // the statement is not allowed
	Invalid     Kind = "invalid"     // the statement or grant is not well formed
	Timeout     Kind = "timeout"     // its time was up
	TooLarge    Kind = "too_large"   // it needed more memory or longer values than allowed
	Busy        Kind = "busy"        // too many statements run already
	Unavailable Kind = "unavailable" // the database cannot be used
	Failed      Kind = "failed"      // the statement failed while running (division by zero …)
	// Powerful: the database's user can do more than it should.
	Powerful Kind = "powerful_role"
	// OutcomeUnknown: a change's commit was sent and its answer was lost.
	OutcomeUnknown Kind = "outcome_unknown"
)

// Messages of the wire contract.
const (
	msgOnlySelect = "Only SELECT queries are allowed"
	msgMulti      = "Multi-statement queries are not allowed"
)

// Error is a failure the model may read. Message holds no address, path,
// credential, nor the name or a value of anything outside the grant.
type Error struct {
	Kind    Kind
	Message string

	// cause is for the operator's log only and may hold all of that.
	cause error
}

func (e *Error) Error() string { return e.Message }

// Cause is the underlying error for the operator's log, nil when there is
// none. It is not part of the Unwrap chain, lest a formatted chain shows it.
func (e *Error) Cause() error { return e.cause }

func refuse(format string, args ...any) *Error {
	return &Error{Kind: Refused, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *Error {
	return &Error{Kind: Invalid, Message: fmt.Sprintf(format, args...)}
}

func unavailable(cause error, format string, args ...any) *Error {
	return &Error{Kind: Unavailable, Message: fmt.Sprintf(format, args...), cause: cause}
}

func timedOut(l Limits, cause error) *Error {
	return &Error{Kind: Timeout, Message: fmt.Sprintf("The query took longer than %s and was stopped", l.Timeout), cause: cause}
}
