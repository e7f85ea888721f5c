package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"

	"hob"
)

const (
	maxFrame  = 32 << 20 // bytes of one event
	maxBreaks = 6        // breaks of a stream in a row, without an event between them
)

// The ways in which a stream ends before its run's last event.
var (
	errBroken = errors.New("the stream ended before the run did") // it may be taken up again
	errOdd    = errors.New("an event cannot be read")             // it may not
)

// RunStream runs an agent and gives the run's events as they come, the last one complete. A stream that breaks after
// its first event goes on where it was, through Events. Breaking off the range closes the connection; the server then
// cancels the run after its grace period unless on_disconnect says otherwise. An error is the last element.
func (c *Client) RunStream(ctx context.Context, agent hob.AgentID, in RunRequest) iter.Seq2[hob.Event, error] {
	return func(yield func(hob.Event, error) bool) {
		r := request{method: http.MethodPost, path: path("api", "agents", string(agent), "run", "stream"), header: idempotent(in.IdempotencyKey), body: in}
		f := follower{yield: yield}
		err := c.stream(ctx, r, &f)
		if f.over {
			return
		}
		if err != nil && f.last > 0 && ctx.Err() == nil {
			err = c.resume(ctx, f.run, &f)
		}
		if err != nil && !f.over {
			yield(hob.Event{}, err)
		}
	}
}

// Events gives a run's events behind a position, from its log and then as they come, the last one complete. A broken
// stream is taken up again where it was. An error is the last element.
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
	for breaks := 0; ; breaks++ {
		before := f.last
		r := request{
			method: http.MethodGet, path: path("api", "agents", "runs", string(id), "events"),
			header: http.Header{"Last-Event-Id": {strconv.FormatInt(f.last, 10)}},
		}
		err := c.stream(ctx, r, f)
		if f.over || err == nil {
			return nil
		}
		if f.last > before {
			breaks = 0
		}
		var e *hob.Error
		if errors.As(err, &e) && e.Kind != hob.RateLimited && e.Kind != hob.Unavailable {
			return err // the server's word
		}
		if errors.Is(err, errOdd) {
			return err
		}
		if ctx.Err() != nil || breaks == maxBreaks {
			return err
		}
		wait := min(firstPause<<breaks, maxPause)
		if e != nil {
			wait = min(max(wait, e.RetryAfter), maxWait)
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// follower hands events on and remembers how far they came.
type follower struct {
	yield func(hob.Event, error) bool
	run   hob.RunID
	last  int64
	over  bool // complete was given, or the caller has enough
}

// give hands one event on; false ends the reading. Events that were given before are left out.
func (f *follower) give(e hob.Event, run hob.RunID) bool {
	if e.Seq <= f.last {
		return true
	}
	f.last, f.run = e.Seq, run
	f.over = !f.yield(e, nil) || e.Type == hob.EventComplete
	return !f.over
}

// stream sends a request and reads its events. nil means that the stream ended whole without any: the server says so of
// a run whose last event the caller has.
func (c *Client) stream(ctx context.Context, r request, f *follower) error {
	answer, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
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
				return fmt.Errorf("read the stream: an event is longer than %d bytes", maxFrame)
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
			return nil, fmt.Errorf("an event is longer than %d bytes", maxFrame)
		}
		if err == nil {
			return bytes.TrimRight(line, "\r\n"), nil
		}
	}
}
