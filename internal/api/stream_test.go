package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/api"
)

func TestStream_FramesAreWhatTheStrictestClientReads(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.agent("calls")
	w.do(ask{"POST", "/api/agents/" + string(agent) + "/tools", w.service, `{"tool_name":"clock"}`, nil})
	f := w.stream(ask{"POST", "/api/agents/" + string(agent) + "/run/stream", w.service, `{"message":"hi"}`, nil})
	h := f.answer.Header
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	all := f.rest()
	seqs(t, all, 1)
	want := []string{
		"start", "step_started", "tool_call", "tool_result", "step_completed", "step_started", "content_delta", "step_completed", "chunk", "complete",
	}
	if diff := cmp.Diff(want, names(all)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var end hob.CompleteEvent
	if err := json.Unmarshal(all[len(all)-1].raw, &end); err != nil {
		t.Fatal(err)
	}
	if end.Content != "world\n\ndata: x" || end.Status != hob.Completed || end.Error != nil || len(end.ToolCalls) != 1 {
		t.Errorf("complete is %+v", end)
	}
}

func TestStream_AFailedRunEndsWithErrorAndComplete(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.agent("broken")
	all := w.stream(ask{"POST", "/api/agents/" + string(agent) + "/run/stream", w.service, `{"message":"hi"}`, nil}).rest()
	if n := names(all); len(n) < 2 || n[len(n)-2] != "error" || n[len(n)-1] != "complete" {
		t.Errorf("the events are %v", n)
	}
	r := w.do(ask{"POST", "/api/agents/" + string(agent) + "/run", w.service, `{"message":"hi"}`, nil})
	got := as[struct {
		Status hob.Status
		Error  *string
		Code   *string
	}](t, r, 200)
	if got.Status != hob.Failed || got.Error == nil || got.Code == nil || *got.Code != hob.CodeProviderError {
		t.Errorf("the answer is %s", r.body)
	}
}

func TestEvents_GoOnFromAnyPosition(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.agent("fixed")
	first := w.stream(ask{"POST", "/api/agents/" + string(agent) + "/run/stream", w.service, `{"message":"hi"}`, nil}).rest()
	path := "/api/agents/runs/" + string(first[0].Run) + "/events"
	last := first[len(first)-1].Seq
	for after := range last + 1 {
		for name, a := range map[string]ask{
			"query":  {"GET", path + "?after=" + strconv.FormatInt(after, 10), w.service, "", nil},
			"header": {"GET", path + "?after=1", w.service, "", map[string]string{"Last-Event-ID": strconv.FormatInt(after, 10)}},
		} {
			f := w.stream(a)
			got := f.rest()
			seqs(t, got, after+1)
			if int64(len(got)) != last-after || len(f.ids) != len(got) {
				t.Errorf("%s after %d: %d events with %d ids, want %d", name, after, len(got), len(f.ids), last-after)
			}
			for i := range got {
				if f.ids[i] != strconv.FormatInt(got[i].Seq, 10) || string(got[i].raw) != string(first[got[i].Seq-1].raw) {
					t.Errorf("%s after %d: event %d is not what was streamed", name, after, got[i].Seq)
				}
			}
		}
	}
	for _, bad := range []string{"x", "-1", "+1", "1.0", "", "%201", "99999999999999999999", strconv.FormatInt(last+1, 10)} {
		r := w.do(ask{"GET", path + "?after=" + bad, w.service, "", nil})
		if f := wantFault(t, r, 400, "Last-Event-ID"); f.Code != "invalid_event_id" {
			t.Errorf("after=%s: code %s", bad, f.Code)
		}
	}
	wantFault(t, w.do(ask{"GET", path, w.service, "", map[string]string{"Last-Event-ID": "abc"}}), 400, "")
	if r := w.do(ask{"HEAD", path, w.service, "", nil}); r.status != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: status %d", r.status)
	}
}

func TestEvents_AnswerOldClients(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.agent("fixed")
	run := w.stream(ask{"POST", "/api/agents/" + string(agent) + "/run/stream", w.service, `{"message":"hi"}`, nil}).rest()[0].Run
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "GET /api/agents/runs/%s/events HTTP/1.0\r\nAuthorization: Bearer %s\r\n\r\n", run, w.service)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	f := &feed{t: t, answer: answer, in: bufio.NewReader(answer.Body), numbered: true}
	all := f.rest()
	seqs(t, all, 1)
	if len(answer.TransferEncoding) != 0 || names(all)[len(all)-1] != "complete" {
		t.Errorf("encoding %v, events %v", answer.TransferEncoding, names(all))
	}
}

func TestStream_SilenceIsToldByComments(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) {
		c.Limits.KeepAlive, c.Limits.BodyTime = 20*time.Millisecond, 60*time.Millisecond // the body's time is not the stream's
	})
	agent := w.agent("slow")
	f := w.stream(ask{"POST", "/api/agents/" + string(agent) + "/run/stream", w.service, `{"message":"hi"}`, nil})
	time.AfterFunc(150*time.Millisecond, w.model.end)
	seqs(t, f.rest(), 1)
	if f.comments < 2 {
		t.Errorf("%d comments in 150 ms of silence", f.comments)
	}
}

func TestStream_EndsSoonAfterItsKey(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.agent("slow")
	soon := token(t, jwtSecret, map[string]any{"sub": "u", "aud": "authenticated", "exp": float64(time.Now().Add(1500*time.Millisecond).UnixMilli()) / 1000})
	revoked := w.scoped(hob.ScopeRun)
	for name, key := range map[string]string{"expired token": soon, "revoked key": revoked} {
		t.Run(name, func(t *testing.T) {
			f := w.stream(ask{"POST", "/api/agents/" + string(agent) + "/run/stream", key, `{"message":"hi","on_disconnect":"continue"}`, nil})
			run := f.next().Run
			if key == revoked {
				w.revoke(key)
			}
			for {
				if _, err := f.read(); err != nil {
					if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
						t.Error("the stream ends as if it were whole")
					}
					break
				}
			}
			want := hob.Running // its owner may come back with a new token
			if key == revoked {
				want = hob.Cancelled
			}
			w.becomes(run, want)
		})
	}
}

// becomes waits for a run's status.
func (w *world) becomes(run hob.RunID, want hob.Status) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		got, err := w.store.Run(w.t.Context(), hob.System(hob.DefaultWorkspace), run)
		if err != nil {
			w.t.Fatal(err)
		}
		if got.Status == want {
			return
		}
		if got.Status.Final() || time.Now().After(end) {
			w.t.Fatalf("the run is %s, want %s", got.Status, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestRun_AWaitingAnswerEndsWithItsKey(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	path, key := "/api/agents/"+string(w.agent("slow"))+"/run", w.scoped(hob.ScopeRun)
	answer := make(chan reply, 1)
	go func() { answer <- w.do(ask{"POST", path, key, `{"message":"hi"}`, nil}) }()
	for w.metric("hob_runs_accepted_total") < 1 {
		time.Sleep(5 * time.Millisecond)
	}
	w.revoke(key)
	wantFault(t, <-answer, http.StatusUnauthorized, "the key was revoked")
}

func TestEvents_AReadersRevokedKeyEndsNobodyElsesRun(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	own := w.stream(ask{"POST", "/api/agents/" + string(w.agent("slow")) + "/run/stream", w.service, `{"message":"hi"}`, nil})
	run, admin := own.next().Run, w.scoped(hob.ScopeAdmin)
	other := w.stream(ask{"GET", "/api/agents/runs/" + string(run) + "/events", admin, "", nil})
	other.next()
	w.revoke(admin)
	for err := error(nil); err == nil; {
		_, err = other.read()
	}
	w.becomes(run, hob.Running)
	w.model.end()
	if all := own.rest(); all[len(all)-1].Type != hob.EventComplete {
		t.Errorf("the owner's stream ends with %s", all[len(all)-1].Type)
	}
}

func TestStream_ASlowReaderIsCutAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.WriteTime = 300 * time.Millisecond })
	agent := w.agent("long") // 1.2 MB of text
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) //nolint:forcetypeassert // tcp was dialled
	body := `{"message":"hi","on_disconnect":"continue"}`
	_, _ = fmt.Fprintf(conn, "POST /api/agents/%s/run/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		agent, w.service, len(body), body)
	end := time.Now().Add(20 * time.Second)
	for w.metric("hob_open_streams") != 0 || w.metric("hob_runs_accepted_total") == 0 {
		if time.Now().After(end) {
			t.Fatal("the slow reader still holds its stream")
		}
		time.Sleep(20 * time.Millisecond)
	}
	list := as[struct{ Sessions []hob.SessionRow }](t, w.do(ask{"GET", "/api/agents/" + string(agent) + "/sessions", w.service, "", nil}), 200)
	runs := as[struct {
		Runs []struct {
			RunID hob.RunID `json:"run_id"`
		}
	}](t, w.do(ask{"GET", "/api/sessions/" + string(list.Sessions[0].ID) + "/runs", w.service, "", nil}), 200)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	run, _, err := w.engine.Wait(ctx, hob.System(hob.DefaultWorkspace), runs.Runs[0].RunID)
	if err != nil || run.Status != hob.Completed {
		t.Errorf("the run ended as %s (%v)", run.Status, err)
	}
}

func TestStream_ALeavingClientEndsTheRunAfterTheGracePeriod(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.agent("slow")
	ctx, leave := context.WithCancel(t.Context())
	r := w.request(ask{"POST", "/api/agents/" + string(agent) + "/run/stream", w.service, `{"message":"hi","disconnect_grace_seconds":0.1}`, nil})
	answer, err := w.server.Client().Do(r.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{t: t, answer: answer, in: bufio.NewReader(answer.Body)}
	run := f.next().Run
	leave()
	_ = answer.Body.Close()
	wait, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		got, err := w.store.Run(wait, hob.System(hob.DefaultWorkspace), run)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.Final() {
			if got.Status != hob.Cancelled || got.Code != hob.CodeClientDisconnected {
				t.Errorf("the run ended as %s, %s", got.Status, got.Code)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestCancel_EndsARunningRun(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.agent("slow")
	f := w.stream(ask{"POST", "/api/agents/" + string(agent) + "/run/stream", w.service, `{"message":"hi"}`, nil})
	run := f.next().Run
	got := as[struct{ Status string }](t, w.do(ask{"POST", "/api/agents/runs/" + string(run) + "/cancel", w.service, "", nil}), 202)
	if got.Status != "cancelling" {
		t.Errorf("status %q", got.Status)
	}
	all := f.rest()
	var end hob.CompleteEvent
	if err := json.Unmarshal(all[len(all)-1].raw, &end); err != nil || end.Status != hob.Cancelled {
		t.Errorf("the last event is %s (%v)", all[len(all)-1].raw, err)
	}
}

func TestStream_AnEndingServerCutsInsteadOfEndingWhole(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.agent("slow")
	path := "/api/agents/" + string(agent) + "/run"
	f := w.stream(ask{"POST", path + "/stream", w.service, `{"message":"hi"}`, nil})
	run := f.next()
	sync := make(chan reply, 1)
	go func() { sync <- w.do(ask{"POST", path, w.service, `{"message":"hi"}`, nil}) }()
	for w.metric("hob_runs_accepted_total") < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	now, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	_ = w.engine.Drain(now) // it says that runs are left
	for {
		if _, err := f.read(); err != nil {
			if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error("the stream ends as if it were whole")
			}
			break
		}
	}
	if e := wantFault(t, <-sync, http.StatusServiceUnavailable, "shutting down"); e.Details["run_id"] == "" {
		t.Error("the answer does not name the run")
	}
	r := w.do(ask{"GET", "/api/agents/runs/" + string(run.Run), w.service, "", nil})
	last := as[struct {
		LastSeq int64 `json:"last_seq"`
	}](t, r, 200).LastSeq
	after := "/events?after=" + strconv.FormatInt(last, 10)
	wantFault(t, w.do(ask{"GET", "/api/agents/runs/" + string(run.Run) + after, w.service, "", nil}), 503, "shutting down")
}

func TestSend_OneWriteOneFlushNoMemory(t *testing.T) { // not parallel: it counts allocations
	out := &counting{}
	send := api.Sender(api.New(api.Config{}), out)
	batch := make([]hob.Event, 50)
	want := ""
	for i := range batch {
		batch[i] = hob.Event{Seq: int64(i + 1), Data: json.RawMessage(`{"event":"content_delta","delta":"x"}`)}
		want += "data: " + string(batch[i].Data) + "\n\n"
	}
	if err := send(batch); err != nil {
		t.Fatal(err)
	}
	if out.text != want || out.writes != 1 || out.flushes != 1 {
		t.Errorf("%d writes and %d flushes of %q", out.writes, out.flushes, out.text)
	}
	out.mute = true
	if n := testing.AllocsPerRun(200, func() { _ = send(batch) }); n > 0 {
		t.Errorf("%v allocations for a batch", n)
	}
	*out = counting{}
	long := hob.Event{Seq: 1, Data: json.RawMessage(`"` + strings.Repeat("x", 20<<10) + `"`)}
	if err := send([]hob.Event{long, long, long, long}); err != nil {
		t.Fatal(err)
	}
	if frame := "data: " + string(long.Data) + "\n\n"; out.writes != 11 || out.most > 8<<10 || out.text != strings.Repeat(frame, 4) {
		t.Errorf("80 KB went out in %d writes, the largest of %d bytes", out.writes, out.most)
	}
}

// counting counts what reaches the connection.
type counting struct {
	writes, flushes, most int
	text                  string
	mute                  bool
}

func (*counting) Header() http.Header { return nil }
func (*counting) WriteHeader(int)     {}
func (c *counting) Flush()            { c.flushes++ }
func (c *counting) Write(b []byte) (int, error) {
	c.writes++
	c.most = max(c.most, len(b))
	if !c.mute {
		c.text += string(b)
	}
	return len(b), nil
}

func (*counting) SetWriteDeadline(time.Time) error { return nil }
