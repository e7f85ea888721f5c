package provider

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
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
	DefaultStall       = 5 * time.Minute        // signs of life without progress, as keep-alives are
	DefaultTotal       = 10 * time.Minute       // of one model call with its retries
)

// errorWait is how long the body of an error answer may take. Its status is known already.
const errorWait = 10 * time.Second

// drainWait is how long a finished answer may take to close, so that its connection can be used again.
const drainWait = 50 * time.Millisecond

// Answers that are no model's.
var (
	errWebPage = errors.New("the address answers with a web page instead of a model's answer") // as a wrong address often does
	errNoModel = errors.New("the address answers with something that is no model's answer")
)

// Causes with which a call's own context ends.
var (
	errSilent  = errors.New("the stream was silent for too long")
	errStalled = errors.New("the stream gave signs of life for too long and no answer")
	errTotal   = errors.New("the answer took too long in all")
)

// errCircuitOpen marks a call that was not made because the endpoint is broken.
var errCircuitOpen = errors.New("the endpoint is left alone because it failed")

// caller sends the requests to one endpoint: an address with a key. It is the one place for retries, time limits and the
// sorting of errors.
type caller struct {
	name    string // of the provider, for messages
	keyVar  string // the variable that holds its key
	urlVar  string // the variable that holds its address
	base    string
	client  func() (*http.Client, error)
	clean   redactor
	limits  limits
	breaker *breaker // nil = none

	profiles *profiles // nil = none
	endpoint string    // by which they are found
}

type limits struct {
	retries                                int
	retryBase, first, thinker, idle, stall time.Duration
	total                                  time.Duration
	breaker                                breakLimits
	now                                    hob.Clock
}

// exchange is one request in a provider's dialect.
type exchange struct {
	path   string
	header http.Header
	body   []byte
	text   int // bytes of the body that are text, images left out
	window int // the model's, in tokens
	silent bool
	aside  bool           // its failure says nothing of the endpoint: another model may be asked there, and the run goes on without
	decode func() decoder // a fresh one for each try
}

// aside says whether a request is beside what a run needs to go on.
func aside(r hob.Request) bool { return r.Component == hob.ComponentCompaction }

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

// stream sends the request, again where that may help and nothing was passed on yet. It does not wait for an endpoint
// whose circuit is open, nor for one that asks to be left alone for longer than MaxRetryAfter: its caller may have another
// model.
func (c *caller) stream(ctx context.Context, x exchange, yield func(hob.Delta, error) bool) {
	ctx, stop := context.WithTimeoutCause(ctx, c.limits.total, errTotal)
	defer stop()
	for attempt := 0; ; attempt++ {
		f := c.try(ctx, x, yield)
		if f == nil {
			return
		}
		if f.again && f.wait > MaxRetryAfter {
			f.again = false
			f.err.Message += fmt.Sprintf("; %s asks to be left alone for %s", c.name, f.wait.Round(time.Second))
		}
		if !f.again || attempt >= c.limits.retries {
			yield(hob.Delta{}, f.err)
			return
		}
		if open := c.breaker.refuses(); open != nil {
			open.Status = f.err.Status
			yield(hob.Delta{}, open)
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
		wait = max(wait, f.wait)
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

// try makes one request, if the circuit is closed, and passes its deltas on. It returns nil when the sequence is complete
// or nobody listens any more.
func (c *caller) try(parent context.Context, x exchange, yield func(hob.Delta, error) bool) *failedTry {
	if err := parent.Err(); err != nil {
		return &failedTry{err: c.ended(parent, c.timedOut())}
	}
	pass, refused := c.breaker.enter()
	if refused != nil {
		return &failedTry{err: refused}
	}
	defer c.breaker.leave(pass)
	out := &sink{
		yield: yield, idle: c.limits.idle, stall: c.limits.stall,
		works: func() { c.breaker.report(pass, verdictWorks, "", 0) },
	}
	f := c.exchange(parent, x, out)
	if f != nil && !out.began && (!x.aside || f.says != verdictBroken) {
		c.breaker.report(pass, f.says, f.err.Message, f.wait)
	}
	return f
}

// exchange makes one request and reads its answer.
func (c *caller) exchange(parent context.Context, x exchange, out *sink) *failedTry {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	first := c.limits.first
	if x.silent {
		first = max(first, c.limits.thinker)
	}
	dog := watch(first, max(first, c.limits.stall), cancel)
	defer dog.pause()
	out.dog = dog

	res, err := c.send(ctx, x)
	if err != nil {
		return c.broken(ctx, parent, out, x, err)
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		dog.limit = errorWait
		dog.alive()
		return c.refused(res, x)
	}
	if err := c.read(res, x, out); err != nil && !out.stopped {
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
func (c *caller) read(res *http.Response, x exchange, out *sink) error {
	body, err := plain(res, watchedBody{res.Body, out.dog})
	if err != nil {
		return err
	}
	events := newEventReader(body)
	defer events.release()
	d := x.decode()
	// The first byte tells more than the header: some servers call their error objects a stream, and streams plain text.
	first, kind := events.peek(), res.Header.Get("Content-Type")
	switch {
	case first == '{' || first == '[' || first == '<':
		d.attach(out)
		return c.readDocument(events, d, first)
	case first != 0 && (first < ' ' || first >= utf8.RuneSelf || foreign(kind)):
		return noModel(kind)
	}
	err = c.events(events, d, out)
	if errors.Is(err, errNoEvent) {
		if first != 0 && first != ':' && !strings.HasPrefix(strings.ToLower(kind), "text/event-stream") {
			return noModel(kind)
		}
		return io.ErrUnexpectedEOF
	}
	return err
}

func noModel(kind string) error {
	if kind == "" {
		return errNoModel
	}
	return fmt.Errorf("%w (%s)", errNoModel, quote(kind))
}

// plain undoes a compression that was not asked for, as some proxies add one. What it is, the error names.
func plain(res *http.Response, body io.Reader) (io.Reader, error) {
	switch coding := strings.ToLower(strings.TrimSpace(res.Header.Get("Content-Encoding"))); coding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		return z, nil
	default:
		return nil, fmt.Errorf("%w (compressed as %s, which was not asked for)", errNoModel, quote(coding))
	}
}

// foreign says whether a content type cannot be a model's answer, whatever its first byte. Text can: some servers call
// their streams so.
func foreign(kind string) bool {
	kind, _, _ = mime.ParseMediaType(kind) // one that cannot be read is "" and tells nothing
	top, _, _ := strings.Cut(kind, "/")
	return top == "image" || top == "audio" || top == "video" || top == "font" || kind == "text/html" || kind == "application/pdf"
}

// errNoEvent is a stream that ended before its first event.
var errNoEvent = errors.New("the stream held no event")

// events decodes an event stream. The error is errNoEvent where there was none in it.
func (c *caller) events(events *eventReader, d decoder, out *sink) error {
	d.attach(out)
	g, _ := d.(gatherer)
	gathered, none := 0, true
	for !out.stopped {
		if !events.waiting() {
			d.flush()
		}
		f, err := events.next()
		if err != nil {
			if none && errors.Is(err, io.EOF) {
				return errNoEvent
			}
			return d.finish(err)
		}
		none = false
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
		if g == nil {
			continue
		}
		if n := g.gathered(); n > gathered {
			gathered = n
			out.dog.progress()
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
