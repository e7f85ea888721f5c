// Package hook sends events to http hooks: those of a run that wait for an answer, and those that are told from the store
// beside the runs, which are tried again until they arrive. Every request goes through the egress guard and is signed.
//
// It is not for deciding which hooks are asked, nor for what an answer means for a run: that is the engine's. It keeps no
// state beyond what is under way.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"hob"
	"hob/internal/egress"
)

// Bounds of one exchange.
const (
	MaxAnswer = 256 << 10                            // bytes of an answer; a longer one is none
	MaxTime   = hob.MaxHookSeconds * time.Second     // of one exchange, whatever time a request asks for
	usualTime = hob.DefaultHookSeconds * time.Second // of one that asks for none
)

// Config is what a Sender needs.
type Config struct {
	Egress *egress.Guard
	Clock  hob.Clock         // nil = the system's
	Log    *slog.Logger      // nil = none
	Store  hob.DeliveryStore // of what Serve sends
	Limits Limits
	// Version is told to receivers, in the header User-Agent.
	Version string
}

// Limits are the numbers of Serve; zero values take the documented ones.
type Limits struct {
	Parallel int           // deliveries under way at once; 16
	Every    time.Duration // between two looks into the store without a Kick; 1 s
	Drain    time.Duration // that deliveries under way still have when Serve is to end; 5 s
}

// Sender sends events to http hooks.
type Sender struct {
	Config
	wake chan struct{}
	down bool // the store could not be read when Serve last looked
}

var _ hob.HookCaller = (*Sender)(nil)

// New makes a Sender. CallHook is ready at once; deliveries are made while Serve runs.
func New(c Config) *Sender {
	if c.Clock == nil {
		c.Clock = hob.SystemClock
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Limits.Parallel <= 0 {
		c.Limits.Parallel = 16
	}
	if c.Limits.Every <= 0 {
		c.Limits.Every = time.Second
	}
	if c.Limits.Drain <= 0 {
		c.Limits.Drain = 5 * time.Second
	}
	return &Sender{Config: c, wake: make(chan struct{}, 1)}
}

// failure is why an exchange came to nothing: a text for a run's trace, and what errors.Is finds, where that is of use.
type failure struct {
	text  string
	cause error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.cause }

func failed(format string, args ...any) error { return &failure{text: fmt.Sprintf(format, args...)} }

// CallHook asks an http hook about an event of a run, once.
func (s *Sender) CallHook(ctx context.Context, r hob.HookRequest) (hob.HookAnswer, error) {
	res, err := s.send(ctx, message{
		to: &r.Hook, url: r.URL, event: string(r.Hook.Event), delivery: r.Delivery, attempt: r.Attempt, body: r.Body, timeout: r.Timeout, most: MaxAnswer,
	})
	if err != nil {
		return hob.HookAnswer{}, err
	}
	switch {
	case res.Status >= 300 && res.Status < 400:
		return hob.HookAnswer{}, failed("the hook answered with a redirect (HTTP %d), which is not followed", res.Status)
	case res.Status != http.StatusOK:
		return hob.HookAnswer{}, failed("the hook answered with HTTP %d; only 200 is a decision", res.Status)
	case res.Truncated:
		return hob.HookAnswer{}, failed("the hook's answer is longer than %d bytes", MaxAnswer)
	}
	return readAnswer(res.Body)
}

// message is one event on its way.
type message struct {
	to       *hob.Hook
	url      string
	event    string
	delivery string
	attempt  int
	body     json.RawMessage
	timeout  time.Duration
	most     int64 // bytes of the answer that are read
}

// send carries out one exchange. The error is a failure.
func (s *Sender) send(ctx context.Context, m message) (*egress.Response, error) {
	header, err := s.header(m)
	if err != nil {
		return nil, err
	}
	timeout := m.timeout
	if timeout <= 0 {
		timeout = usualTime
	}
	timeout = min(timeout, MaxTime)
	res, err := s.Egress.Do(ctx, egress.Request{
		Pool:   "hook:" + string(m.to.Workspace) + ":" + string(m.to.ID),
		Method: http.MethodPost, URL: m.url, Header: header, Body: m.body,
		Timeout: timeout, MaxBody: m.most, Redirects: 0,
	})
	if err != nil {
		return nil, transportFailure(ctx, err, timeout)
	}
	return res, nil
}

// header is what is sent along with an event. It is the one place where a hook's secrets are opened.
func (s *Sender) header(m message) (http.Header, error) {
	secret := string(m.to.Config.Secret)
	if secret == "" || secret == hob.Mask {
		return nil, failed("the hook's signing secret is not there")
	}
	header := make(http.Header, len(m.to.Config.Headers)+6)
	for name, value := range m.to.Config.Headers {
		if value == hob.Mask {
			return nil, failed("the value of the hook's header %s is not there", name)
		}
		header.Set(name, string(value))
	}
	// Behind the hook's own, so that none of these can be another's.
	header.Set("Content-Type", "application/json")
	header.Set("User-Agent", s.userAgent())
	header.Set("X-Hob-Event", m.event)
	header.Set("X-Hob-Delivery", m.delivery)
	header.Set("X-Hob-Attempt", strconv.Itoa(max(m.attempt, 1)))
	header.Set("X-Hob-Signature", sign(secret, s.Clock().Unix(), m.body))
	return header, nil
}

func (s *Sender) userAgent() string {
	if s.Version == "" {
		return egress.DefaultUserAgent
	}
	return egress.DefaultUserAgent + "/" + s.Version
}

// transportFailure tells why there was no answer. The guard's texts hold neither secrets nor addresses.
func transportFailure(ctx context.Context, err error, timeout time.Duration) error {
	var e *egress.Error
	if !errors.As(err, &e) {
		return &failure{text: "the hook could not be called", cause: err}
	}
	switch {
	case e.Kind == egress.Canceled:
		return &failure{text: "the call of the hook was cancelled", cause: context.Canceled}
	case e.Kind == egress.Timeout && ctx.Err() == nil:
		return &failure{text: fmt.Sprintf("the hook did not answer within %s", timeout), cause: context.DeadlineExceeded}
	case e.Kind == egress.Timeout, errors.Is(err, context.DeadlineExceeded):
		return &failure{text: "the hook could not be reached, or did not answer, in time", cause: context.DeadlineExceeded}
	}
	return failed("the hook gave no answer: %s", e.Message)
}
