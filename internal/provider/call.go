package provider

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"hob"
	"hob/internal/egress"
)

// Defaults of how long and how often a provider is tried. Config can change them.
const (
	DefaultRetries     = 3
	DefaultRetryBase   = 500 * time.Millisecond // the first wait; it doubles
	MaxBackoff         = 8 * time.Second        // of our own waits
	MaxRetryAfter      = 60 * time.Second       // of waits the provider asks for
	DefaultFirstWait   = 120 * time.Second      // silence before the first delta
	DefaultThinkerWait = 10 * time.Minute       // the same for models that think without a sign of life
	DefaultIdle        = 60 * time.Second       // silence between deltas
	DefaultTotal       = 10 * time.Minute       // of one model call with its retries
)

// drainWait is how long a finished answer may take to close, so that its connection can be used again.
const drainWait = 50 * time.Millisecond

// errWebPage is what a wrong address often gives.
var errWebPage = errors.New("the address answers with a web page instead of a model's answer")

// Causes with which a call's own context ends.
var (
	errSilent = errors.New("the stream was silent for too long")
	errTotal  = errors.New("the answer took too long in all")
)

// caller sends the requests of one provider. It is the one place for retries, time limits and the sorting of errors.
type caller struct {
	name   string // of the provider, for messages
	keyVar string // the variable that holds its key
	urlVar string // the variable that holds its address
	base   string
	client func() (*http.Client, error)
	clean  redactor
	limits limits
}

type limits struct {
	retries                         int
	retryBase, first, thinker, idle time.Duration
	total                           time.Duration
	now                             func() time.Time
}

// exchange is one request in a provider's dialect.
type exchange struct {
	path   string
	header http.Header
	body   []byte
	text   int // bytes of the body that are text, images left out
	window int // the model's, in tokens
	silent bool
	decode func() decoder // a fresh one for each try
}

// decoder turns events into deltas.
type decoder interface {
	// event takes the data of one event. done means that nothing of interest follows.
	event(data []byte) (done bool, err error)
	// flush passes on the text held back. It is called whenever waiting for further input might block.
	flush()
	// finish passes on what is left. torn tells that the source ended without saying so; the answer may still be whole.
	finish(torn error) error
	// attach names where deltas go.
	attach(s *sink)
}

// stream sends the request, again where that may help and nothing was passed on yet.
func (c *caller) stream(ctx context.Context, x exchange, yield func(hob.Delta, error) bool) {
	ctx, stop := context.WithTimeoutCause(ctx, c.limits.total, errTotal)
	defer stop()
	for attempt := 0; ; attempt++ {
		f := c.try(ctx, x, yield)
		if f == nil {
			return
		}
		if !f.again || attempt >= c.limits.retries {
			yield(hob.Delta{}, f.err)
			return
		}
		if !c.pause(ctx, attempt, f) {
			yield(hob.Delta{}, c.ended(ctx, f.err))
			return
		}
	}
}

// pause waits before the next try. It is false when the context ends first, which is known at once if it has a deadline.
func (c *caller) pause(ctx context.Context, attempt int, f *failedTry) bool {
	const doublings = 8 // more are beyond MaxBackoff, and the shift must not overflow
	wait := min(c.limits.retryBase<<min(attempt, doublings), MaxBackoff)
	wait = wait/2 + rand.N(wait/2+1) //nolint:gosec // jitter, no secret
	if f.wait > 0 {
		wait = max(wait, min(f.wait, MaxRetryAfter))
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ended is the error of a call whose context ended: cancelled where the caller ended it, else what went wrong before.
func (c *caller) ended(ctx context.Context, last *hob.ProviderError) *hob.ProviderError {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTotal) {
		return c.cancelled(ctx)
	}
	return last
}

func (c *caller) cancelled(ctx context.Context) *hob.ProviderError {
	return &hob.ProviderError{
		Class: hob.ClassCancelled, Message: c.name + ": the model call was cancelled", Err: context.Cause(ctx),
	}
}

// try makes one request and passes its deltas on. It returns nil when the sequence is complete or nobody listens any
// more.
func (c *caller) try(parent context.Context, x exchange, yield func(hob.Delta, error) bool) *failedTry {
	if err := parent.Err(); err != nil {
		return &failedTry{err: c.ended(parent, c.timedOut())}
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	first := c.limits.first
	if x.silent {
		first = c.limits.thinker
	}
	dog := watch(first, cancel)
	defer dog.pause()
	out := &sink{yield: yield, dog: dog, idle: c.limits.idle}

	res, err := c.send(ctx, x)
	if err != nil {
		return c.broken(ctx, parent, out, x, err)
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return c.refused(res, x)
	}
	if err := c.read(res, x, dog, out); err != nil && !out.stopped {
		return c.broken(ctx, parent, out, x, err)
	}
	if out.finished { // read to the end, so that the connection can be used again
		dog.limit = drainWait
		dog.alive()
		_, _ = io.CopyN(io.Discard, res.Body, maxErrorBody)
	}
	return nil
}

func (c *caller) send(ctx context.Context, x exchange) (*http.Response, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+x.path, bytes.NewReader(x.body))
	if err != nil {
		return nil, err
	}
	req.Header = x.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/json")
	req.Header.Set("Accept-Encoding", "identity") // compression would hold deltas back
	req.Header.Set("User-Agent", "hob")
	return client.Do(req)
}

// read decodes the answer's body, whether it is the stream that was asked for or one JSON document.
func (c *caller) read(res *http.Response, x exchange, dog *watchdog, out *sink) error {
	events := newEventReader(watchedBody{res.Body, dog})
	defer events.release()
	d := x.decode()
	// The first byte tells more than the header: some servers call their error objects a stream, and streams plain text.
	if b := events.peek(); b == '{' || b == '[' || b == '<' {
		d.attach(out)
		return c.readDocument(events, d, b)
	}
	return c.events(events, d, out)
}

// events decodes an event stream.
func (c *caller) events(events *eventReader, d decoder, out *sink) error {
	d.attach(out)
	for !out.stopped {
		if !events.waiting() {
			d.flush()
		}
		f, err := events.next()
		if err != nil {
			return d.finish(err)
		}
		done, err := d.event(f.data)
		if err != nil {
			if f.torn && errors.Is(err, errMalformed) {
				return d.finish(io.ErrUnexpectedEOF)
			}
			d.flush()
			return err
		}
		if done {
			return d.finish(nil)
		}
	}
	return nil
}

// readDocument takes an answer that is no event stream: one JSON value, or several behind each other.
func (c *caller) readDocument(events *eventReader, d decoder, first byte) error {
	if first == '<' {
		return errWebPage
	}
	body, torn := events.rest()
	if first == '[' {
		if e, ok := readVendorError(body); ok {
			return &streamError{status: e.status(), vendorError: e}
		}
	}
	docs, whole := documents(body)
	for _, doc := range docs {
		if _, err := d.event(doc); err != nil {
			d.flush()
			return err
		}
	}
	if torn == nil && !whole {
		torn = io.ErrUnexpectedEOF
	}
	return d.finish(torn)
}

// refused sorts an answer with an error status.
func (c *caller) refused(res *http.Response, x exchange) *failedTry {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	e, typed := readVendorError(body)
	if !typed {
		e.Message = string(body)
	}
	f := c.vendor(res.StatusCode, e, x)
	f.wait = retryAfter(res.Header, c.limits.now())
	f.err.RetryAfter = f.wait
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
	// Not every provider has a code for a prompt that is too long. A request refused as invalid whose text cannot fit the
	// window, at three bytes a token, is taken for one.
	if class == hob.ClassBadRequest && status == http.StatusBadRequest && x.window > 0 && x.text/3 >= x.window {
		class = hob.ClassPromptTooLong
	}
	again := retryable(status) && e.Code != codeNoQuota && e.Type != codeNoQuota && class != hob.ClassPromptTooLong
	return &failedTry{again: again, err: &hob.ProviderError{
		Class: class, Status: status, Message: c.clean.clean(c.message(status, class, e)),
	}}
}

func (c *caller) message(status int, class hob.ErrorClass, e vendorError) string {
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
	case status == http.StatusNotFound:
		return text + " (check the model's name and " + c.urlVar + ")"
	}
	return text
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
		f = &failedTry{err: c.timedOut()}
	default:
		f = &failedTry{err: c.connection(ctx, err), again: transient(err) || context.Cause(ctx) != nil}
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

func (c *caller) connection(ctx context.Context, err error) *hob.ProviderError {
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
	case errors.Is(err, errWebPage):
		e.Class, e.Message = hob.ClassBadRequest, c.name+": "+err.Error()+"; check "+c.urlVar
	case errors.Is(err, errSilent):
		e.Message = c.name + ": " + errSilent.Error()
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
	case egress.Unreachable, egress.Timeout, egress.Canceled, egress.BadResponse, egress.Busy:
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
		errors.Is(err, errWebPage), errors.Is(err, errCallsTooLong):
		return false
	case errors.As(err, &dns):
		return !dns.IsNotFound
	}
	return true
}
