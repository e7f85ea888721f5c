package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Kind classifies an [Error] for logs, metrics and status codes.
type Kind string

const (
	// Refused means that the guard forbids the destination. Its text equals
	// that of Unreachable.
	Refused Kind = "refused"
	// Unreachable means that the destination is allowed, but no connection
	// came about.
	Unreachable Kind = "unreachable"
	// Timeout means that the exchange began but did not end within its time.
	Timeout Kind = "timeout"
	// Canceled means that the caller's context was cancelled.
	Canceled Kind = "canceled"
	// TooLarge means headers above the cap, or a body that unpacks beyond the
	// permitted ratio.
	TooLarge Kind = "too_large"
	// BadURL means that the URL cannot be accepted in any configuration.
	BadURL Kind = "bad_url"
	// BadRequest means that method, headers, limits or allowed hosts of the
	// request are malformed or not permitted.
	BadRequest Kind = "bad_request"
	// BadAllow means that an entry of HOB_EGRESS_ALLOW is malformed.
	BadAllow Kind = "bad_allow"
	// BadResponse means that the other side does not speak proper HTTP, closed
	// the connection midway or used an encoding that was not asked for.
	BadResponse Kind = "bad_response"
	// BadTLS means that the other side's certificate or TLS version is not
	// acceptable.
	BadTLS Kind = "bad_tls"
	// BadRedirect means too many redirects, a redirect from https to http, or
	// one that would carry the body to another host.
	BadRedirect Kind = "bad_redirect"
	// Busy means that no slot became free within the request's time.
	Busy Kind = "busy"
	// Late means that the time to begin the request was over: nothing of it was
	// sent.
	Late Kind = "late"
	// Closed means that the guard was closed.
	Closed Kind = "closed"
)

// refusedText is the whole answer for a forbidden and for an unreachable
// destination. One text, because a difference would turn a tool into a port
// scanner of the private network.
const refusedText = "destination not allowed or not reachable: private and special addresses, " +
	"unusual ports and hosts outside the tool's list are refused"

// Error is every error of this package.
type Error struct {
	Kind Kind
	// Message may be shown to a model or a user: it holds nothing about the
	// network that the guard hides.
	Message string
	// Refusal is set when the guard forbade the destination: what to audit.
	Refusal *Refusal

	cause error
}

// Error returns Message alone.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, for errors.Is. Its text may name addresses: log
// it, never show it.
func (e *Error) Unwrap() error { return e.cause }

// Detail describes the error for the operator's log: kind, rule, address and
// cause. It must not reach a model.
func (e *Error) Detail() string {
	var b strings.Builder
	b.WriteString(string(e.Kind))
	if r := e.Refusal; r != nil {
		fmt.Fprintf(&b, " %s: host %q port %d", r.Rule, r.Host, r.Port)
		if r.Address.IsValid() {
			fmt.Fprintf(&b, " address %s", r.Address)
		}
	}
	if e.cause != nil {
		fmt.Fprintf(&b, ": %v", e.cause)
	}
	return b.String()
}

// Rule names why a destination was refused.
type Rule string

// The rules, from the narrowest to the widest cause.
const (
	RuleOwnListener  Rule = "own_listener"     // one of Hob's own listeners
	RuleLoopback     Rule = "loopback"         // this machine
	RulePrivate      Rule = "private"          // RFC 1918, unique local, shared address space
	RuleLinkLocal    Rule = "link_local"       // includes the usual metadata address
	RulePlatform     Rule = "platform_service" // metadata and platform services of cloud providers
	RuleMulticast    Rule = "multicast"        // multicast and broadcast
	RuleUnspecified  Rule = "unspecified"      // 0.0.0.0 and ::
	RuleZone         Rule = "zone"             // an IPv6 address with a zone
	RuleEmbedded     Rule = "embedded"         // an IPv6 form that carries a forbidden IPv4 address
	RuleSpecial      Rule = "special_purpose"  // anything else of the IANA registries
	RulePort         Rule = "port"             // a port that nothing opens
	RuleAllowedHosts Rule = "allowed_hosts"    // outside Request.AllowedHosts
	RuleOperatorBase Rule = "operator_base"    // an operator's or user's client was asked for another origin
)

// Refusal describes one refused destination.
type Refusal struct {
	Pool    string // Request.Pool, or the user client's; empty for CheckURL and operator clients
	Host    string // canonical host name or address literal
	Port    uint16
	Rule    Rule
	Address netip.Addr // the forbidden address; invalid when none was looked at
}

// words say what a rule forbids.
func (r Rule) words() string {
	switch r {
	case RuleOwnListener:
		return "an address that this server listens on"
	case RuleLoopback:
		return "an address of this machine"
	case RulePrivate:
		return "a private address"
	case RuleLinkLocal:
		return "a link-local address"
	case RulePlatform:
		return "an address of cloud platforms"
	case RulePort:
		return "a port that nothing opens"
	case RuleAllowedHosts:
		return "outside the allowed_hosts of the assignment"
	case RuleOperatorBase:
		return "another origin than the one that is set"
	case RuleMulticast, RuleUnspecified, RuleZone, RuleEmbedded, RuleSpecial:
	}
	return "a special address (" + string(r) + ")"
}

// Explain tells an administrator what was refused, by which rule, and what opens it. It must not reach a model.
func (r Refusal) Explain() string {
	at := net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
	text := fmt.Sprintf("refused: %s is %s", at, r.Rule.words())
	if r.Address.IsValid() && r.Address.String() != r.Host {
		text += " (" + r.Address.String() + ")"
	}
	switch r.Rule {
	case RuleLoopback, RulePrivate, RuleSpecial, RulePort:
		return text + "; HOB_EGRESS_ALLOW=" + at + " opens it to all tools"
	case RuleLinkLocal, RulePlatform, RuleEmbedded: // which an entry by name does not open
		return text + "; HOB_EGRESS_ALLOW=" + netip.AddrPortFrom(r.Address, r.Port).String() + " opens it to all tools"
	case RuleAllowedHosts:
		return text + "; config_override.allowed_hosts opens it"
	default:
		return text + "; nothing opens it"
	}
}

// fail builds an error whose text is the formatted message.
func fail(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

func unreachable(cause error) *Error {
	return &Error{Kind: Unreachable, Message: refusedText, cause: cause}
}

// classify turns an error of one exchange into an [Error]. connecting tells
// that a dial of this exchange was still under way: running out of time then
// reads like any unreachable destination.
func classify(ctx context.Context, err error, connecting bool, timeout time.Duration) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	if ctxErr := ctx.Err(); ctxErr != nil || errors.Is(err, context.DeadlineExceeded) {
		switch {
		case errors.Is(ctxErr, context.Canceled):
			return &Error{Kind: Canceled, Message: "request cancelled", cause: err}
		case connecting:
			return unreachable(err)
		default:
			return &Error{Kind: Timeout, Message: fmt.Sprintf("no complete answer within %s", timeout), cause: err}
		}
	}
	var cert *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	text := err.Error()
	switch {
	case errors.As(err, &cert), errors.As(err, &alert), errors.As(err, &record),
		strings.Contains(text, "tls: "), strings.Contains(text, "TLS handshake timeout"):
		return &Error{Kind: BadTLS, Message: "secure connection not possible: the server's certificate or TLS version was not accepted (1.2 or later is needed)", cause: err}
	case strings.Contains(text, "response headers exceeded"), strings.Contains(text, "header list larger"),
		strings.Contains(text, "response header list"):
		return &Error{Kind: TooLarge, Message: fmt.Sprintf("response headers are larger than %d bytes", MaxHeaderBytes), cause: err}
	}
	return &Error{Kind: BadResponse, Message: "the server closed the connection or did not answer with valid HTTP", cause: err}
}
