package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"hob"
	"hob/internal/egress"
)

// refused sorts an answer with an error status.
func (c *caller) refused(res *http.Response, x exchange) *failedTry {
	body, err := plain(res, res.Body)
	said := []byte(nil)
	if err == nil {
		said, _ = io.ReadAll(io.LimitReader(body, maxErrorBody)) // a short body is judged as it is
	}
	e, typed := readVendorError(said)
	if !typed {
		e.Message = string(said)
	}
	f := c.vendor(res.StatusCode, e, x)
	if wait := retryAfter(res.Header, c.limits.now()); wait > 0 {
		f.wait, f.err.RetryAfter = wait, wait
	}
	switch res.Header.Get("X-Should-Retry") {
	case "true":
		f.again = true
	case "false":
		f.again = false
	}
	return f
}

// vendor makes the failure for an error the provider reported.
func (c *caller) vendor(status int, e vendorError, x exchange) *failedTry {
	class := classify(status, e)
	// Not every provider has a code for a prompt that is too long. A request refused as invalid is taken for one if the
	// refusal is one of the known sentences, or if its text cannot fit the window, at three bytes a token.
	if class == hob.ClassBadRequest && status == http.StatusBadRequest &&
		(saysTooLong(e) || x.window > 0 && x.text/3 >= x.window) {
		class = hob.ClassPromptTooLong
	}
	again := retryable(status) && e.Code != codeNoQuota && e.Type != codeNoQuota && class != hob.ClassPromptTooLong
	says := verdictWorks
	if status >= http.StatusInternalServerError {
		says = verdictBroken
	}
	return &failedTry{again: again, says: says, wait: e.Wait, err: &hob.ProviderError{
		Class: class, Status: status, Message: c.clean.clean(c.message(status, class, e, x.path)), RetryAfter: e.Wait,
	}}
}

// message tells what was answered at a path, and what to look at.
func (c *caller) message(status int, class hob.ErrorClass, e vendorError, path string) string {
	said := quote(c.clean.clean(e.Message))
	if said == "" {
		said = http.StatusText(status)
	}
	text := fmt.Sprintf("%s answered %d: %s", c.name, status, said)
	switch {
	case class == hob.ClassUnauthorized && c.keyVar == "":
		return text
	case status == http.StatusPaymentRequired:
		return text + " (check the credit of the account behind " + c.keyVar + ")"
	case class == hob.ClassUnauthorized:
		return text + " (check " + c.keyVar + ")"
	case status >= 300 && status < 400:
		return text + " (redirects are not followed; check " + c.urlVar + ")"
	case (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) && LacksVersion(c.base+path):
		return text + " (does the address lack /v1? else check the model's name and " + c.urlVar + ")"
	case status == http.StatusNotFound:
		return text + " (check the model's name and " + c.urlVar + ")"
	}
	return text
}

// LacksVersion says whether no part of an address's path is a version, as /v1 or /v1beta: OpenAI's dialect has it in the
// base URL, where it is easily left out, and the others in the path of each request.
func LacksVersion(address string) bool {
	u, err := url.Parse(address)
	return err == nil && !slices.ContainsFunc(strings.Split(u.Path, "/"), func(part string) bool {
		return len(part) > 1 && part[0] == 'v' && part[1] >= '0' && part[1] <= '9'
	})
}

// streamError is an error the provider reported inside a stream.
type streamError struct {
	status int
	vendorError
}

func (v *streamError) Error() string { return v.Message }

// broken sorts what went wrong with a connection, or inside a stream. parent is the caller's context, ctx that of the try.
func (c *caller) broken(ctx, parent context.Context, out *sink, x exchange, err error) *failedTry {
	if parent.Err() != nil && !errors.Is(context.Cause(parent), errTotal) {
		return &failedTry{err: c.cancelled(parent)}
	}
	var f *failedTry
	var v *streamError
	switch {
	case errors.As(err, &v):
		f = c.vendor(v.status, v.vendorError, x)
	case errors.Is(context.Cause(ctx), errTotal):
		f = &failedTry{err: c.timedOut(), says: verdictBroken}
	default:
		f = &failedTry{err: c.connection(ctx, err, x.path), again: transient(err) || context.Cause(ctx) != nil}
		if f.err.Class == hob.ClassModelError && !misread(err) {
			f.says = verdictBroken
		}
	}
	if out.began {
		f.again = false
		if f.err.Class == hob.ClassModelError || f.err.Class == hob.ClassRateLimit {
			f.err.Class = hob.ClassCut
		}
	}
	return f
}

func (c *caller) timedOut() *hob.ProviderError {
	return &hob.ProviderError{
		Class: hob.ClassModelError, Message: fmt.Sprintf("%s: no whole answer within %s", c.name, c.limits.total), Err: errTotal,
	}
}

// connection sorts what went wrong with a request to a path before or without an answer in the dialect.
func (c *caller) connection(ctx context.Context, err error, path string) *hob.ProviderError {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	err = c.clean.wrap(bare(err))
	e := &hob.ProviderError{Class: hob.ClassModelError, Err: err}
	var ours *hob.Error
	var guard *egress.Error
	var network net.Error
	switch {
	case errors.As(err, &guard) && guard.Kind == egress.Unreachable:
		e.Message = c.name + ": no connection to the provider; check that it runs, and " + c.urlVar
	case errors.As(err, &guard) && refusal(guard):
		e.Class, e.Message = hob.ClassBadRequest, c.name+": "+guard.Message+"; check "+c.urlVar
	case errors.As(err, &ours):
		e.Class, e.Message = hob.ClassBadRequest, c.name+": "+ours.Message
	case (errors.Is(err, errWebPage) || errors.Is(err, errNoModel)) && LacksVersion(c.base+path):
		e.Class, e.Message = hob.ClassBadRequest, c.name+": "+err.Error()+"; does the address lack /v1? else check "+c.urlVar
	case errors.Is(err, errWebPage), errors.Is(err, errNoModel):
		e.Class, e.Message = hob.ClassBadRequest, c.name+": "+err.Error()+"; check "+c.urlVar
	case errors.Is(err, errSilent), errors.Is(err, errStalled):
		e.Message = c.name + ": " + err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.Message = c.name + ": the connection broke before the answer was complete"
	case errors.As(err, &network):
		e.Message = c.name + ": no connection to the provider (" + quote(err.Error()) + "); check " + c.urlVar
	default:
		e.Message = c.name + ": " + quote(err.Error())
	}
	e.Message = c.clean.clean(e.Message)
	return e
}

// refusal says whether the guard will say the same at the next try.
func refusal(e *egress.Error) bool {
	switch e.Kind {
	case egress.Refused, egress.BadURL, egress.BadRequest, egress.BadAllow, egress.BadTLS, egress.BadRedirect, egress.TooLarge,
		egress.Closed:
		return true
	case egress.Unreachable, egress.Timeout, egress.Canceled, egress.BadResponse, egress.Busy, egress.Late:
	}
	return false
}

// transient says whether a connection that failed so may succeed at the next try: everything but refusals of our own,
// wrong certificates, names that do not exist and frames that are too large.
func transient(err error) bool {
	var ours *hob.Error
	var guard *egress.Error
	var cert *tls.CertificateVerificationError
	var dns *net.DNSError
	switch {
	case errors.As(err, &guard):
		return !refusal(guard)
	case errors.As(err, &ours), errors.As(err, &cert), errors.Is(err, errFrameTooLarge),
		errors.Is(err, errWebPage), errors.Is(err, errNoModel), errors.Is(err, errCallsTooLong):
		return false
	case errors.As(err, &dns):
		return !dns.IsNotFound
	}
	return true
}

// misread says whether an answer came that was not understood. It tells nothing about how the endpoint is.
func misread(err error) bool {
	for _, e := range []error{errMalformed, errNoAnswer, errFrameTooLarge, errCallsTooLong} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
