package provider_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hob"
	"hob/internal/egress"
	"hob/internal/fakeai"
	"hob/internal/provider"
)

// raw connects OpenAI's provider to a handler that does what no fake of a vendor would. The second result counts requests.
func raw(t *testing.T, change func(*provider.Config), handle http.HandlerFunc) (hob.Model, *provider.Registry, *atomic.Int32) {
	t.Helper()
	n := &atomic.Int32{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n.Add(1)
		handle(w, r)
	}))
	guard := egress.New(egress.Config{})
	t.Cleanup(func() { guard.Close(); srv.Close() })
	c := provider.Config{
		OpenAI: provider.Endpoint{Key: testKey, BaseURL: srv.URL + "/v1"}, Clients: guard, RetryBase: time.Millisecond,
	}
	if change != nil {
		change(&c)
	}
	r := provider.New(c)
	m, err := r.Open(t.Context(), hob.DefaultWorkspace, "openai/m")
	if err != nil {
		t.Fatal(err)
	}
	return m, r, n
}

func sse(w io.Writer, data string) { _, _ = fmt.Fprintf(w, "data: %s\n\n", data) }

func sseText(w io.Writer, text string) {
	sse(w, `{"choices":[{"index":0,"delta":{"content":"`+text+`"}}]}`)
}

func sseEnd(w io.Writer) {
	sse(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
	sse(w, "[DONE]")
}

func TestCircuit_OpensForABrokenEndpointOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply fakeai.Reply
		opens bool
	}{
		"500": {fakeai.Error(500, "no"), true}, "501": {fakeai.Error(501, "no"), true}, "529": {fakeai.Error(529, "no"), true},
		"503 that asks to wait": {fakeai.Error(503, "no").WithRetryAfter("0.001"), true},
		"cut at once":           {fakeai.Reply{CutAfter: -1}, true},
		"error in the stream":   {fakeai.Reply{ErrorAfter: 1, Text: []string{"x"}, Type: "server_error", Message: "no"}, true},
		"silence":               {fakeai.Reply{Wait: time.Minute}, true},
		"400":                   {fakeai.Error(400, "no"), false}, "401": {fakeai.Error(401, "no"), false},
		"404": {fakeai.Error(404, "no"), false}, "408": {fakeai.Error(408, "no"), false}, "429": {fakeai.Error(429, "no"), false},
		"cut behind a delta": {fakeai.Reply{Text: []string{"a", "b"}, CutAfter: 2, Interval: time.Millisecond}, false},
		"no JSON":            {fakeai.Reply{Raw: []byte("data: {nonsense\n\n")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, vendors[0], fakeai.Always(c.reply), func(c *provider.Config) {
				c.BreakAfter, c.Retries, c.FirstWait = 2, -1, 150*time.Millisecond
			})
			for range 3 {
				collect(t, b.model, ask("hi"))
			}
			want := 3
			if c.opens {
				want = 2
			}
			if got := len(b.fake.Requests()); got != want {
				t.Errorf("%d requests, want %d", got, want)
			}
		})
	}
}

func TestCircuit_AFailedSummaryLeavesItClosed(t *testing.T) {
	t.Parallel()
	b := newBed(t, vendors[0], fakeai.Always(fakeai.Error(500, "no")), func(c *provider.Config) { c.BreakAfter, c.Retries = 2, -1 })
	r := ask("hi")
	r.Component = hob.ComponentCompaction
	for range 4 {
		collect(t, b.model, r)
	}
	if got := len(b.fake.Requests()); got != 4 {
		t.Errorf("%d requests came through, want 4", got)
	}
}

func TestImages_OfEarlierTurnsAreMentionedToModelsThatCannotReadThem(t *testing.T) {
	t.Parallel()
	b := newBed(t, vendors[1], fakeai.Always(fakeai.Text("I see.")), nil)
	picture := []hob.Part{{Type: hob.TextPart, Text: "look"}, {Type: hob.ImagePart, MediaType: "application/pdf", Data: []byte("x")}}
	r := ask("and now?")
	r.Messages = []hob.Message{
		{Role: hob.RoleUser, Parts: picture}, {Role: hob.RoleAssistant, Content: "nice"}, {Role: hob.RoleUser, Content: "and now?"},
	}
	if got := collect(t, b.model, r); got.Err != nil {
		t.Fatal(got.Err)
	}
	if sent := b.fake.Requests()[0].Messages[0]; !strings.Contains(sent.Text, "a picture") || sent.Images != 0 {
		t.Errorf("the model was sent %+v", sent)
	}
	if r.Messages[0].Parts[1].Type != hob.ImagePart {
		t.Error("the caller's messages were changed")
	}
	r.Messages = r.Messages[:1]
	if got := collect(t, b.model, r); got.Err == nil || !strings.Contains(got.Err.Error(), "application/pdf") {
		t.Errorf("a picture of this turn: %v", got.Err)
	}
}

func TestCircuit_AnUnreachableEndpointOpensIt(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String() + "/v1"
	_ = l.Close()
	m, r, _ := raw(t, func(c *provider.Config) { c.OpenAI.BaseURL, c.BreakAfter, c.Retries = nobody, 2, 5 }, nil)
	a := collect(t, m, ask("hi"))
	if a.Err == nil || !strings.Contains(a.Err.Message, "2 tries in a row failed") || !strings.Contains(a.Err.Message, "no connection") {
		t.Errorf("got %+v", a.Err)
	}
	if list := r.Circuits(); len(list) != 1 || list[0].Provider != "openai" || list[0].BaseURL != nobody {
		t.Errorf("listed %+v", list)
	}
}

func TestCircuit_TheCallersCancelSaysNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, vendors[0], fakeai.Always(fakeai.Reply{Wait: time.Minute}), func(c *provider.Config) { c.BreakAfter = 1 })
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if a := collectWith(ctx, t, b.model, ask("hi")); a.Err == nil || a.Err.Class != hob.ClassCancelled {
			t.Errorf("got %+v", a.Err)
		}
		cancel()
	}
}

func TestCircuit_EndsTheRetriesOfACallAndClosesAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		var now atomic.Int64
		var broken atomic.Bool
		broken.Store(true)
		b := newBed(t, v, func(fakeai.Parsed) fakeai.Reply {
			if broken.Load() {
				return fakeai.Error(503, "broken")
			}
			return fakeai.Text("Hi.")
		}, func(c *provider.Config) {
			c.Retries = 9
			c.Clock = func() time.Time { return time.Unix(now.Load(), 0) }
		})
		a := collect(t, b.model, ask("hi"))
		if len(b.fake.Requests()) != provider.DefaultBreakAfter || a.Err == nil || a.Err.Class != hob.ClassModelError ||
			a.Err.Status != 503 || a.Err.RetryAfter < provider.DefaultBreakFor || !strings.Contains(a.Err.Message, "broken") {
			t.Fatalf("%d requests, %+v", len(b.fake.Requests()), a.Err)
		}
		start := time.Now()
		if a = collect(t, b.model, ask("hi")); a.Err == nil || a.Err.RetryAfter == 0 || time.Since(start) > time.Second {
			t.Errorf("an open circuit gave %+v after %s", a.Err, time.Since(start))
		}
		now.Add(60)
		collect(t, b.model, ask("hi"))
		if n := len(b.fake.Requests()); n != provider.DefaultBreakAfter+1 {
			t.Errorf("the open circuit was tried %d times", n-provider.DefaultBreakAfter)
		}
		broken.Store(false)
		now.Add(300)
		for range 2 {
			if a = collect(t, b.model, ask("hi")); a.Err != nil || a.Text != "Hi." {
				t.Errorf("got %+v", a.Err)
			}
		}
	})
}

func TestDeadlines_EachEndsACall(t *testing.T) {
	t.Parallel()
	const short = 150 * time.Millisecond
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	drip := func(what string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, what)
				flush(w)
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		want   string
		class  hob.ErrorClass
	}{
		"headers never come": {hang, "silent", hob.ClassModelError},
		"headers and no body": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			flush(w)
			hang(w, r)
		}, "silent", hob.ClassModelError},
		"silence behind a delta": {func(w http.ResponseWriter, r *http.Request) {
			sseText(w, "a")
			flush(w)
			hang(w, r)
		}, "silent", hob.ClassCut},
		"a byte at a time":   {drip("x"), "signs of life", hob.ClassModelError},
		"keep-alives":        {drip(": ping\n\n"), "signs of life", hob.ClassModelError},
		"events of nothing":  {drip("data: {\"choices\":[]}\n\n"), "signs of life", hob.ClassModelError},
		"white space":        {drip(" \n"), "signs of life", hob.ClassModelError},
		"a document dripped": {drip(`{"a":[`), "signs of life", hob.ClassModelError},
		"keep-alives behind a delta": {func(w http.ResponseWriter, r *http.Request) {
			sseText(w, "a")
			drip(": ping\n\n")(w, r)
		}, "signs of life", hob.ClassCut},
		"an error's body that never ends": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			flush(w)
			hang(w, r)
		}, "answered 500", hob.ClassModelError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _, _ := raw(t, func(c *provider.Config) {
				c.FirstWait, c.Idle, c.Stall, c.Retries = short, short, 2*short, -1
			}, c.handle)
			start := time.Now()
			a := collect(t, m, ask("hi"))
			if a.Err == nil || a.Err.Class != c.class || !strings.Contains(a.Err.Message, c.want) {
				t.Errorf("got %+v", a.Err)
			}
			if d := time.Since(start); d > 15*time.Second {
				t.Errorf("it took %s", d)
			}
		})
	}
}

func TestDeadlines_ProgressIsNotOnlyDeltas(t *testing.T) {
	t.Parallel()
	m, _, _ := raw(t, func(c *provider.Config) {
		c.FirstWait, c.Idle, c.Stall = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
	}, func(w http.ResponseWriter, _ *http.Request) {
		sse(w, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"weather","arguments":"{\"city\":\""}}]}}]}`)
		for range 12 { // a long call, three times as slow as silence may be
			_ = http.NewResponseController(w).Flush()
			time.Sleep(75 * time.Millisecond)
			sse(w, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}}]}`)
		}
		sse(w, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]},"finish_reason":"tool_calls"}]}`)
	})
	r := ask("hi")
	r.Tools = []hob.ToolSpec{weather}
	if a := collect(t, m, r); a.Err != nil || len(a.Calls) != 1 || a.Calls[0].Arguments != `{"city":"xxxxxxxxxxxx"}` {
		t.Errorf("got %+v, %v", a.Calls, a.Err)
	}
}

func TestDeadlines_ASlowConsumerIsNotTheProvidersSilence(t *testing.T) {
	t.Parallel()
	m, _, _ := raw(t, func(c *provider.Config) {
		c.FirstWait, c.Idle, c.Stall = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	}, func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			sseText(w, "a")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
		sseEnd(w)
	})
	r := ask("hi")
	r.Model = m.Model
	text := ""
	for d, err := range m.Provider.Stream(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		text += d.Text
		time.Sleep(250 * time.Millisecond)
	}
	if text != "aaa" {
		t.Errorf("got %q", text)
	}
}

func TestAnswers_ThatAreNoModels(t *testing.T) {
	t.Parallel()
	write := func(kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"a web page":      {write("text/html", "<!doctype html><p>Hi"), "a web page"},
		"plain text":      {write("text/plain", "It works!"), "no model's answer (text/plain)"},
		"a picture":       {write("image/png", "\x89PNG\r\n\x1a\n"), "no model's answer (image/png)"},
		"a text of HTML":  {write("text/html; charset=utf-8", "Hi"), "no model's answer (text/html"},
		"binary, no type": {write("application/octet-stream", "\x01\x02"), "no model's answer (application/octet-stream)"},
		"another compression": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = w.Write([]byte("x"))
		}, "compressed as br"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _, n := raw(t, nil, c.handle)
			a := collect(t, m, ask("hi"))
			if a.Err == nil || a.Err.Class != hob.ClassBadRequest || !strings.Contains(a.Err.Message, c.want) ||
				!strings.Contains(a.Err.Message, "OPENAI_BASE_URL") || n.Load() != 1 {
				t.Errorf("%d requests, %+v", n.Load(), a.Err)
			}
		})
	}
	for name, handle := range map[string]http.HandlerFunc{
		"nothing": write("text/event-stream", ""), "a comment": write("text/plain", ": hi\n\n"), "half a line": write("text/event-stream", "data"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _, n := raw(t, func(c *provider.Config) { c.Retries = 1 }, handle)
			a := collect(t, m, ask("hi"))
			if a.Err == nil || a.Err.Class != hob.ClassModelError || !strings.Contains(a.Err.Message, "broke") || n.Load() != 2 {
				t.Errorf("%d requests, %+v", n.Load(), a.Err)
			}
		})
	}
}

func TestAnswers_ACompressedOneIsRead(t *testing.T) {
	t.Parallel()
	zip := func(body string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, body)
		_ = z.Close()
		return b.Bytes()
	}
	var stream strings.Builder
	sseText(&stream, "Hi.")
	sseEnd(&stream)
	m, _, n := raw(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("asked for %q", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Header.Get("X-Fail") == "" {
			_, _ = w.Write(zip(stream.String()))
		}
	})
	if a := collect(t, m, ask("hi")); a.Err != nil || a.Text != "Hi." || n.Load() != 1 {
		t.Errorf("got %+v", a)
	}
	m, _, _ = raw(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(zip(`{"error":{"message":"no such model"}}`))
	})
	if a := collect(t, m, ask("hi")); a.Err == nil || !strings.Contains(a.Err.Message, "no such model") {
		t.Errorf("got %+v", a.Err)
	}
}

func TestAnswers_OneThatNeverEndsEndsAtTheTotal(t *testing.T) {
	t.Parallel()
	m, _, _ := raw(t, func(c *provider.Config) { c.Total = 400 * time.Millisecond }, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			sseText(w, "again ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond)
		}
	})
	start := time.Now()
	a := collect(t, m, ask("hi"))
	if a.Err == nil || a.Err.Class != hob.ClassCut || !strings.Contains(a.Err.Message, "no whole answer within") || time.Since(start) > 10*time.Second {
		t.Errorf("after %s: %+v", time.Since(start), a.Err)
	}
}

func TestRetryAfter_DecidesWhetherACallWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header, value string
		tries         int
		told          time.Duration // at least
	}{
		"seconds":           {"Retry-After", "0.01", 2, 0},
		"milliseconds":      {"Retry-After-Ms", "10", 2, 0},
		"the most":          {"Retry-After", "60", 1, 60 * time.Second}, // longer than the call may take in all
		"too long":          {"Retry-After", "61", 1, 61 * time.Second},
		"too long, in ms":   {"Retry-After-Ms", "61000", 1, 61 * time.Second},
		"a date":            {"Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), 1, 59 * time.Minute},
		"an absurd number":  {"Retry-After", "999999999", 1, 24 * time.Hour},
		"an absurd date":    {"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT", 1, 24 * time.Hour},
		"no number at all":  {"Retry-After", "soon", 2, 0},
		"beyond a duration": {"Retry-After", "1e300", 2, 0},
		"negative":          {"Retry-After", "-5", 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _, n := raw(t, func(c *provider.Config) { c.Retries, c.Total = 1, 30*time.Second }, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(c.header, c.value)
				w.WriteHeader(http.StatusTooManyRequests)
			})
			start := time.Now()
			a := collect(t, m, ask("hi"))
			if a.Err == nil || a.Err.Class != hob.ClassRateLimit || a.Err.RetryAfter < c.told || a.Err.RetryAfter > 24*time.Hour {
				t.Errorf("got %+v", a.Err)
			}
			if n.Load() != int32(c.tries) || time.Since(start) > 10*time.Second {
				t.Errorf("%d tries in %s, want %d", n.Load(), time.Since(start), c.tries)
			}
		})
	}
}

// nowhere is a look-up that finds nothing. It counts.
type nowhere struct{ asked atomic.Int32 }

func (n *nowhere) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	n.asked.Add(1)
	return nil, &net.DNSError{Err: "no such host", Name: "models.example", IsNotFound: true}
}

func TestConnections_ANameThatIsNotFoundIsTriedAgain(t *testing.T) {
	t.Parallel()
	look := &nowhere{}
	guard := egress.New(egress.Config{Resolver: look})
	t.Cleanup(guard.Close)
	m, _, _ := raw(t, func(c *provider.Config) { c.OpenAI.BaseURL, c.Clients = "https://models.example/v1", guard }, nil)
	a := collect(t, m, ask("hi"))
	if a.Err == nil || a.Err.Class != hob.ClassModelError || !strings.Contains(a.Err.Message, "OPENAI_BASE_URL") {
		t.Errorf("got %+v", a.Err)
	}
	if n := look.asked.Load(); n != 1+provider.DefaultRetries {
		t.Errorf("looked up %d times", n)
	}
}

func TestConnections_AWrongCertificateIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	var shakes atomic.Int32
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			shakes.Add(1)
		}
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	m, _, _ := raw(t, func(c *provider.Config) { c.OpenAI.BaseURL = srv.URL + "/v1" }, nil)
	a := collect(t, m, ask("hi"))
	if a.Err == nil || a.Err.Class != hob.ClassModelError || !strings.Contains(a.Err.Message, "certificate") || shakes.Load() != 1 {
		t.Errorf("after %d connections: %+v", shakes.Load(), a.Err)
	}
}
