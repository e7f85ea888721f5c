package api_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hob"
	"hob/internal/api"
)

// takenOver lets a stream be taken over from net/http almost at once.
func takenOver(c *api.Config) { c.Limits.TakeOver = 10 * time.Millisecond }

// settled is surely longer than takenOver.
const settled = 100 * time.Millisecond

// raw is a client that sees each byte.
type raw struct {
	t *testing.T
	*net.TCPConn
	in *bufio.Reader
}

func (w *world) dial() *raw {
	w.t.Helper()
	c, err := (&net.Dialer{}).DialContext(w.t.Context(), "tcp", w.server.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &raw{w.t, c.(*net.TCPConn), bufio.NewReader(c)} //nolint:forcetypeassert // tcp was dialled
}

// get is a request for a path, by the service key.
func (w *world) get(path, proto string) string {
	return fmt.Sprintf("GET %s HTTP/%s\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", path, proto, w.service)
}

func (r *raw) say(text string) {
	r.t.Helper()
	if _, err := io.WriteString(r, text); err != nil {
		r.t.Fatal(err)
	}
}

// answer reads the head of an answer.
func (r *raw) answer(status int) *http.Response {
	r.t.Helper()
	a, err := http.ReadResponse(r.in, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if a.StatusCode != status {
		r.t.Fatalf("status %d, want %d", a.StatusCode, status)
	}
	return a
}

func (r *raw) feed(a *http.Response) *feed {
	return &feed{t: r.t, answer: a, in: bufio.NewReader(a.Body), numbered: true}
}

// slow starts a run that waits for the model, and gives the path of its events. It goes on without readers.
func (w *world) slow(model string) (run hob.RunID, events string) {
	w.t.Helper()
	f := w.stream(ask{"POST", "/api/agents/" + string(w.agent(model)) + "/run/stream", w.service, `{"message":"hi","on_disconnect":"continue"}`, nil})
	run = f.next().Run
	return run, "/api/agents/runs/" + string(run) + "/events"
}

// log is what a run's readers should have got: the bytes of its numbered frames.
func (w *world) framesOf(run hob.RunID) string {
	w.t.Helper()
	var b strings.Builder
	for after := int64(0); ; {
		list, err := w.store.Events(w.t.Context(), hob.System(hob.DefaultWorkspace), run, after, 100)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(list) == 0 {
			return b.String()
		}
		for _, e := range list {
			fmt.Fprintf(&b, "id: %d\ndata: %s\n\n", e.Seq, e.Data)
			after = e.Seq
		}
	}
}

// streams waits until so many streams are open.
func (w *world) streams(n int) {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); w.metric("hob_open_streams") != n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("%d streams are open, want %d", w.metric("hob_open_streams"), n)
		}
	}
}

func TestLine_OneConnectionCarriesStreamAfterStream(t *testing.T) {
	t.Parallel()
	w := begin(t, takenOver)
	r := w.dial()
	for _, model := range []string{"slow", "steady"} {
		if model == "slow" {
			time.AfterFunc(settled, w.model.end)
		}
		run, events := w.slow(model)
		r.say(w.get(events, "1.1"))
		a := r.answer(200)
		body, err := io.ReadAll(a.Body)
		if err != nil || a.Close || string(body) != w.framesOf(run) {
			t.Errorf("%s: close %t, %d bytes of %d (%v)", model, a.Close, len(body), len(w.framesOf(run)), err)
		}
	}
	time.Sleep(settled) // the connection waits
	r.say(w.get("/health", "1.1"))
	r.answer(200)
}

func TestLine_WhatComesBehindTheRequestIsReadAfterTheStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text   string
		late   bool // sent while the stream is open
		status int
	}{
		"request at once": {"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", false, 200},
		"request later":   {"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", true, 200},
		"garbage at once": {"\x00\xff no request\r\n\r\n", false, 400},
		"garbage later":   {strings.Repeat("x", 200<<10) + "\r\n\r\n", true, 431},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, takenOver)
			run, events := w.slow("slow")
			r := w.dial()
			get := w.get(events, "1.1")
			if !c.late {
				get += c.text
			}
			r.say(get)
			a := r.answer(200)
			time.Sleep(settled)
			if c.late {
				r.say(c.text)
			}
			time.AfterFunc(settled, w.model.end)
			body, err := io.ReadAll(a.Body)
			if err != nil || string(body) != w.framesOf(run) {
				t.Errorf("%d bytes of %d (%v)", len(body), len(w.framesOf(run)), err)
			}
			r.answer(c.status)
		})
	}
}

func TestLine_AnOldClientsStreamEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	for _, get := range []struct{ proto, head string }{{"1.0", ""}, {"1.0", "Connection: keep-alive\r\n"}, {"1.1", "Connection: close\r\n"}} {
		t.Run(get.proto+get.head, func(t *testing.T) {
			t.Parallel()
			w := begin(t, takenOver)
			run, events := w.slow("slow")
			r := w.dial()
			r.say(strings.Replace(w.get(events, get.proto), "Host: x\r\n", "Host: x\r\n"+get.head, 1))
			a := r.answer(200)
			time.AfterFunc(settled, w.model.end)
			body, err := io.ReadAll(a.Body)
			if err != nil || string(body) != w.framesOf(run) || !a.Close || (len(a.TransferEncoding) > 0) != (get.proto == "1.1") {
				t.Errorf("close %t, encoding %v, %d bytes of %d (%v)", a.Close, a.TransferEncoding, len(body), len(w.framesOf(run)), err)
			}
			if rest, err := io.ReadAll(r.in); err != nil || len(rest) > 0 {
				t.Errorf("behind the end: %q (%v)", rest, err)
			}
		})
	}
}

func TestLine_AQuietStreamHasItsHeadSoon(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	run, events := w.slow("slow")
	var last int64
	for last < 3 { // start, step_started and the first text
		time.Sleep(5 * time.Millisecond)
		got, err := w.store.Run(t.Context(), hob.System(hob.DefaultWorkspace), run)
		if err != nil {
			t.Fatal(err)
		}
		last = got.LastSeq
	}
	begun := time.Now()
	f := w.stream(ask{"GET", events + "?after=" + strconv.FormatInt(last, 10), w.service, "", nil})
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("the head came after %s", took)
	}
	w.model.end()
	seqs(t, f.rest(), last+1)
}

func TestLine_AClientThatClosesItsSideHasLeft(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]time.Duration{"taken over": settled, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, func(c *api.Config) {
				if takenOver(c); settle == 0 {
					c.Limits.TakeOver = time.Hour
				}
			})
			agent := w.agent("slow")
			body := `{"message":"hi","disconnect_grace_seconds":0.1}`
			r := w.dial()
			r.say(fmt.Sprintf("POST /api/agents/%s/run/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
				agent, w.service, len(body), body))
			f := r.feed(r.answer(200))
			f.numbered = false
			run := f.next().Run
			time.Sleep(settle)
			if err := r.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			var err error
			for err == nil {
				_, err = f.read()
			}
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the stream of one that left ends as if it were whole (%v)", err)
			}
			w.becomes(run, hob.Cancelled)
		})
	}
}

func TestLine_APanicIsAnsweredAndCounted(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Store = panicky{c.Store} })
	run, events := w.slow("fixed")
	w.becomes(run, hob.Completed)
	last := strings.Count(w.framesOf(run), "id: ")
	wantFault(t, w.do(ask{"GET", events + "?after=" + strconv.Itoa(last), w.service, "", nil}), 500, "")
	if n := w.metric("hob_http_panics_total"); n != 1 {
		t.Errorf("%d panics are counted", n)
	}
}

// panicky is a store that falls over a run.
type panicky struct{ hob.Store }

func (panicky) Run(context.Context, hob.Principal, hob.RunID) (hob.Run, error) {
	panic("secret detail")
}

func TestShutdown_WaitsForStreams(t *testing.T) {
	t.Parallel()
	w := begin(t, takenOver)
	_, events := w.slow("slow")
	waiting := w.dial() // its connection waits for another request
	waiting.say(w.get("/health", "1.1"))
	_, _ = io.Copy(io.Discard, waiting.answer(200).Body)
	f := w.stream(ask{"GET", events, w.service, "", nil})
	f.next()
	time.Sleep(settled)
	stopped := make(chan error, 1)
	go func() { stopped <- api.Shutdown(t.Context(), w.server.Config) }()
	select {
	case err := <-stopped:
		t.Fatalf("stopped under a stream (%v)", err)
	case <-time.After(3 * settled):
	}
	w.model.end()
	if all := f.rest(); all[len(all)-1].Type != hob.EventComplete {
		t.Errorf("the stream ends with %s", all[len(all)-1].Type)
	}
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("does not stop after the last stream")
	}
}

func TestClose_CutsStreamsAndWaitingConnections(t *testing.T) {
	t.Parallel()
	w := begin(t, takenOver)
	ended := w.dial()
	run, events := w.slow("steady")
	ended.say(w.get(events, "1.1"))
	if body, err := io.ReadAll(ended.answer(200).Body); err != nil || string(body) != w.framesOf(run) {
		t.Fatalf("%d bytes (%v)", len(body), err)
	}
	_, events = w.slow("slow")
	f := w.stream(ask{"GET", events, w.service, "", nil})
	f.next()
	time.Sleep(settled)
	now, cancel := context.WithTimeout(t.Context(), settled)
	defer cancel()
	if err := api.Shutdown(now, w.server.Config); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown under a stream: %v", err)
	}
	if err := api.Close(w.server.Config); err != nil {
		t.Error(err)
	}
	var err error
	for err == nil {
		_, err = f.read()
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("the stream ends as if it were whole")
	}
	if n, err := ended.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the waiting connection: %d bytes (%v)", n, err)
	}
}

func TestLine_ASlowReaderIsCutAndFindsTheRest(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"reads nothing": time.Hour, "reads bytes": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, func(c *api.Config) { takenOver(c); c.Limits.WriteTime = 500 * time.Millisecond })
			run, events := w.slow("long") // 1.2 MB of text
			quick := w.stream(ask{"GET", events, w.service, "", nil})
			slow := w.dial()
			_ = slow.SetReadBuffer(4 << 10)
			slow.say(w.get(events, "1.1"))
			one := &drip{slow.TCPConn, pause, make(chan struct{})}
			slow.in = bufio.NewReaderSize(one, 16)
			got := make(chan []byte, 1)
			go func() { got <- whole(slow.in) }()
			all := quick.rest() // while the other does not read
			seqs(t, all, 1)
			w.becomes(run, hob.Completed)
			w.streams(0)
			close(one.hurry)
			log, had := w.framesOf(run), string(<-got)
			if !strings.HasPrefix(log, had) || len(log)-len(had) < 500<<10 {
				t.Fatalf("the slow reader had %d of %d bytes", len(had), len(log))
			}
			had = had[:strings.LastIndex(had, "\n\n")+2]
			a := w.do(ask{"GET", events, w.service, "", map[string]string{"Last-Event-ID": strconv.Itoa(strings.Count(had, "\nid: ") + 1)}})
			if had+string(a.body) != log {
				t.Errorf("%d bytes and then %d are not the log of %d", len(had), len(a.body), len(log))
			}
			for end := time.Now().Add(5 * time.Second); !strings.Contains(w.log.String(), "too slow"); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the log does not tell of it")
				}
			}
		})
	}
}

// drip reads a byte at a time, until it has to hurry.
type drip struct {
	*net.TCPConn
	pause time.Duration
	hurry chan struct{}
}

func (d *drip) Read(b []byte) (int, error) {
	select {
	case <-d.hurry:
		return d.TCPConn.Read(b)
	case <-time.After(d.pause):
		return d.TCPConn.Read(b[:1])
	}
}

// whole is the body of an answer as far as it came. An answer that ends whole is nil.
func whole(in *bufio.Reader) []byte {
	a, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil
	}
	defer func() { _ = a.Body.Close() }()
	body, err := io.ReadAll(a.Body)
	if err == nil {
		return nil
	}
	return body
}

func TestEvents_ReadersCutAnywhereMissNothingAndGetNothingTwice(t *testing.T) {
	t.Parallel()
	w := begin(t, takenOver)
	const readers = 30
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	run, events := w.slow("steady")
	var group sync.WaitGroup
	var cuts atomic.Int64
	got := make([]bytes.Buffer, readers)
	for i := range readers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // a test's
			time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			for !w.readSome(&got[i], events, random) {
				cuts.Add(1)
				time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
			}
		})
	}
	group.Wait()
	log := w.framesOf(run)
	for i := range got {
		if got[i].String() != log {
			t.Errorf("reader %d has %d bytes that are not the log of %d", i, got[i].Len(), len(log))
		}
	}
	if n := cuts.Load(); n < 200 {
		t.Errorf("only %d cuts", n)
	}
}

// readSome follows from where got ends, for a random number of bytes, and keeps the complete frames. It says whether the
// run's end was among them.
func (w *world) readSome(got *bytes.Buffer, events string, random *rand.Rand) bool {
	const mark = "\nid: "
	last := "0"
	if at := strings.LastIndex("\n"+got.String(), mark); at >= 0 {
		last, _, _ = strings.Cut(("\n" + got.String())[at+len(mark):], "\n")
	}
	head, proto := "", []string{"1.0", "1.1"}[random.IntN(2)]
	if random.IntN(2) == 0 {
		events += "?after=" + last
	} else {
		head = "Last-Event-ID: " + last + "\r\n"
	}
	c, err := (&net.Dialer{}).DialContext(w.t.Context(), "tcp", w.server.Listener.Addr().String())
	if err != nil {
		w.t.Error(err)
		return true
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Duration(50+random.IntN(400)) * time.Millisecond))
	_, _ = io.WriteString(c, strings.Replace(w.get(events, proto), "Host: x\r\n", "Host: x\r\n"+head, 1)) // the answer tells
	cut := int64(random.IntN(9000))
	if random.IntN(8) == 0 {
		cut = 1 << 30
	}
	a, err := http.ReadResponse(bufio.NewReaderSize(io.LimitReader(c, cut), 16), nil)
	if err != nil {
		return false
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK {
		w.t.Errorf("status %d behind %s", a.StatusCode, last)
		return true
	}
	body, err := io.ReadAll(a.Body)
	end := bytes.LastIndex(body, []byte("\n\n"))
	over := end >= 0 && bytes.Contains(body[:end], []byte(`data: {"event":"complete"`))
	if proto == "1.1" && err == nil && !over {
		w.t.Errorf("a stream ends as if it were whole behind %s", last)
	}
	if end >= 0 {
		got.Write(body[:end+2])
	}
	return over
}
