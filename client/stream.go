package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"hob"
)

const (
	maxFrame  = 32 << 20 // bytes of one event
	headShare = 4        // of the patience, what one try may wait for the head of an answer
	leastHead = time.Second
)

// The ways in which a stream ends before its run's last event.
var (
	errBroken = errors.New("the stream ended before the run did")       // it may be taken up again
	errSilent = errors.New("the server took the request and is silent") // likewise
	errOdd    = errors.New("an event cannot be read")                   // it may not
)

// RunStream runs an agent and gives the run's events as they come, the last one complete. A stream that breaks after
// its first event goes on where it was, as with Events. One that breaks before may have started a run: with an
// IdempotencyKey the request is sent again for as long as Patience says, also where the server refused it for now, and
// finds that run; without one the break is the error. Breaking off the range closes the connection; the server then cancels the run
// after its grace period unless on_disconnect says otherwise. An error is the last element.
func (c *Client) RunStream(ctx context.Context, agent hob.AgentID, in RunRequest) iter.Seq2[hob.Event, error] {
	return func(yield func(hob.Event, error) bool) {
		r := request{method: http.MethodPost, path: path("api", "agents", string(agent), "run", "stream"), header: idempotent(in.IdempotencyKey), body: in}
		f := follower{yield: yield}
		err := c.stream(ctx, r, &f)
		for err != nil && in.IdempotencyKey != "" && f.last == 0 && c.again(ctx, &f, err) {
			err = c.stream(ctx, r, &f)
		}
		if f.over {
			return
		}
		if err != nil && f.last > 0 && ctx.Err() == nil && passing(err) {
			err = c.comeBack(ctx, f.run, &f, err)
		}
		if err != nil && !f.over {
			yield(hob.Event{}, err)
		}
	}
}

// again pauses before a start with a key is sent once more, false where it is not.
func (c *Client) again(ctx context.Context, f *follower, err error) bool {
	if ctx.Err() != nil || !passing(err) || hob.KindOf(err) == hob.Internal && isTyped(err) {
		return false
	}
	d, ok := f.pause(err, c.patience())
	return ok && pause(ctx, d) == nil
}

// isTyped says whether err is the server's own word.
func isTyped(err error) bool {
	var e *hob.Error
	return errors.As(err, &e)
}

// Events gives a run's events behind a position, from its log and then as they come, the last one complete. A broken
// stream is taken up again where it was, for as long as Patience says; then the error is Unavailable and tells the run and
// the position to come back with. What the server refuses, as a run that is not there, is an error at once. An error is
// the last element.
func (c *Client) Events(ctx context.Context, id hob.RunID, after int64) iter.Seq2[hob.Event, error] {
	return func(yield func(hob.Event, error) bool) {
		f := follower{yield: yield, last: after}
		if err := c.resume(ctx, id, &f); err != nil && !f.over {
			yield(hob.Event{}, err)
		}
	}
}

// resume follows a run through breaks until it is over.
func (c *Client) resume(ctx context.Context, id hob.RunID, f *follower) error {
	for {
		r := request{
			method: http.MethodGet, path: path("api", "agents", "runs", string(id), "events"),
			header: http.Header{"Last-Event-Id": {strconv.FormatInt(f.last, 10)}},
		}
		err := c.stream(ctx, r, f)
		switch {
		case f.over || err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !passing(err):
			return err
		}
		if err := c.wait(ctx, id, f, err); err != nil {
			return err
		}
	}
}

// comeBack is resume for a stream that just broke with err.
func (c *Client) comeBack(ctx context.Context, id hob.RunID, f *follower, err error) error {
	if err := c.wait(ctx, id, f, err); err != nil {
		return err
	}
	return c.resume(ctx, id, f)
}

// wait pauses before the next try after err, or says that the patience is over.
func (c *Client) wait(ctx context.Context, id hob.RunID, f *follower, err error) error {
	d, ok := f.pause(err, c.patience())
	if !ok {
		return gaveUp(id, f, err)
	}
	return pause(ctx, d)
}

func (c *Client) patience() time.Duration { return cmp.Or(c.Patience, DefaultPatience) }

// headTime is how long a try to take a stream up waits for the head of the answer.
func (c *Client) headTime() time.Duration {
	patience := c.patience()
	if patience < 0 {
		patience = DefaultPatience
	}
	return max(patience/headShare, leastHead)
}

// passing says whether what ended a stream may be over soon. A server's word about the request or the run is not, nor is an
// event that cannot be read: it would come again as it is.
func passing(err error) bool {
	var e *hob.Error
	if errors.As(err, &e) {
		return e.Kind == hob.RateLimited || e.Kind == hob.Unavailable || e.Kind == hob.Internal
	}
	return !errors.Is(err, errOdd)
}

// gaveUp is the error of a reader that no server gave a stream for too long.
func gaveUp(id hob.RunID, f *follower, err error) error {
	gone := hob.Errorf(hob.Unavailable, "the stream of run %s cannot be read (tried for %s); come back with Events(%s, %d)",
		id, f.gone.Round(time.Millisecond), id, f.last).With("run_id", id).With("after", f.last)
	var e *hob.Error
	if errors.As(err, &e) {
		gone.RetryAfter = e.RetryAfter
	}
	gone.Err = err
	return gone
}

// follower hands events on and remembers how far they came.
type follower struct {
	yield func(hob.Event, error) bool
	run   hob.RunID
	last  int64
	over  bool // complete was given, or the caller has enough

	tries int           // since the last event
	gone  time.Duration // without a stream since the last event
	lost  time.Time     // when the stream broke; zero while there is one
}

// give hands one event on; false ends the reading. Events that were given before are left out.
func (f *follower) give(e hob.Event, run hob.RunID) bool {
	if e.Seq <= f.last {
		return true
	}
	f.last, f.run, f.tries, f.gone = e.Seq, run, 0, 0
	f.over = !f.yield(e, nil) || e.Type == hob.EventComplete
	return !f.over
}

// found notes that there is a stream again.
func (f *follower) found() {
	if !f.lost.IsZero() {
		f.gone += time.Since(f.lost)
		f.lost = time.Time{}
	}
}

// pause is how long to wait before the next try after err, false when the patience is over. The waits grow and are
// scattered, so that the readers of a server that is back do not all come at once; none is shorter than the server asks.
// The last try is made when the patience ends.
func (f *follower) pause(err error, patience time.Duration) (time.Duration, bool) {
	now := time.Now() //nolint:forbidigo // a bound in real time
	if f.lost.IsZero() {
		f.lost = now
	}
	f.gone, f.lost = f.gone+now.Sub(f.lost), now
	left := patience - f.gone
	longest := firstPause
	for range f.tries {
		longest = min(2*longest, maxPause)
	}
	f.tries++
	d := longest/2 + rand.N(longest/2)
	var e *hob.Error
	if errors.As(err, &e) {
		if e.RetryAfter > left {
			return 0, false
		}
		d += e.RetryAfter
	}
	return min(d, left), left > 0
}

// stream sends a request and reads its events. nil means that the stream ended whole without any: the server says so of
// a run whose last event the caller has.
func (c *Client) stream(ctx context.Context, r request, f *follower) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var late *time.Timer
	if r.method == http.MethodGet { // its head comes soon, also of a run that is silent
		late = time.AfterFunc(c.headTime(), func() { end(errSilent) })
	}
	answer, err := c.send(ctx, r)
	if late != nil && !late.Stop() && errors.Is(context.Cause(ctx), errSilent) {
		if err == nil {
			_ = answer.Body.Close()
		}
		return errSilent
	}
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	f.found()
	got := false
	err = frames(answer.Body, func(data []byte) (bool, error) {
		var head hob.EventHead
		if err := json.Unmarshal(data, &head); err != nil {
			return false, fmt.Errorf("%w: %w", errOdd, err)
		}
		got = true
		return f.give(hob.Event{Seq: head.Seq, Type: head.Event, Data: data, Time: head.TS}, head.Run), nil
	})
	if err != nil || f.over {
		return err
	}
	if !got && r.method == http.MethodGet && f.last > 0 {
		return nil
	}
	return errBroken
}

// frames reads server-sent events and gives the data of each, until give says no. io.EOF is no error.
func frames(r io.Reader, give func(data []byte) (bool, error)) error {
	in := bufio.NewReader(r)
	var data []byte
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the stream: %w", err)
		}
		switch {
		case len(line) == 0:
			if len(data) == 0 {
				continue
			}
			more, err := give(data)
			if err != nil || !more {
				return err
			}
			data = nil
		case bytes.HasPrefix(line, []byte("data:")):
			if len(data)+len(line) > maxFrame {
				return fmt.Errorf("%w: it is longer than %d bytes", errOdd, maxFrame)
			}
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(line[len("data:"):], []byte(" "))...)
		}
	}
}

// readLine reads a line without its end. A line that the stream breaks off in is not given.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if err == nil && line == nil {
			return bytes.TrimRight(part, "\r\n"), nil
		}
		if line = append(line, part...); len(line) > maxFrame {
			return nil, fmt.Errorf("%w: it is longer than %d bytes", errOdd, maxFrame)
		}
		if err == nil {
			return bytes.TrimRight(line, "\r\n"), nil
		}
	}
}
