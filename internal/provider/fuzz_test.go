package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"hob"
)

// seeds adds the data of every recorded event of a dialect.
func seeds(f *testing.F, dialect string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dialect, "*.sse"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no recorded streams: %v", err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(body) {
			if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:")); ok {
				f.Add(bytes.TrimSpace(data))
			}
		}
	}
}

// told is what a decoder made of one event.
type told struct {
	Text, Reasoning, Model, Ended string
	Chosen                        bool
}

// FuzzScanText compares the scanner with the general decoder: what the scanner accepts, both must read alike.
func FuzzScanText(f *testing.F) {
	seeds(f, "openai")
	f.Add([]byte(`{"choices":[{"index":0,"delta":{"content":"a\u00e9\ud83d\ude00\ud83d"},"finish_reason":null}],"usage":null}`))
	f.Add([]byte(`{"id":"x","object":"chat.completion.chunk","created":-1.5e+3,"model":"m","choices":[{"delta":{}}]} `))
	f.Fuzz(func(t *testing.T, data []byte) {
		var fast, slow chatDecoder
		var a, b told
		// An event before it, of the same stream: what is remembered of that may not change how this one is read.
		if at := bytes.Index(data, []byte(`"content":"`)); at > 0 {
			other := append(bytes.Clone(data[:at]), `"content":"`...)
			if end := bytes.IndexByte(data[len(other):], '"'); end >= 0 {
				fast.scanText(append(other, data[len(other)+end:]...))
				fast.answer, fast.chosen = fast.answer[:0], false
			}
		}
		if !fast.scanText(data) {
			return
		}
		if err := slow.decode(data); err != nil {
			t.Fatalf("the scanner accepted what the decoder refuses with %v: %q", err, data)
		}
		a = told{string(fast.answer), string(fast.reasoning), fast.model, fast.ended, fast.chosen}
		b = told{string(slow.answer), string(slow.reasoning), slow.model, slow.ended, slow.chosen}
		if diff := cmp.Diff(b, a); diff != "" || len(slow.calls.calls) > 0 || slow.usage != nil {
			t.Errorf("%q (-decoder +scanner):\n%s", data, diff)
		}
	})
}

// FuzzScanMessagesText does the same for the other dialect.
func FuzzScanMessagesText(f *testing.F) {
	seeds(f, "anthropic")
	f.Fuzz(func(t *testing.T, data []byte) {
		var fast, slow messagesDecoder
		if !fast.scanText(data) {
			return
		}
		var e messagesEvent
		if err := unmarshal(data, &e); err != nil {
			t.Fatalf("the scanner accepted what the decoder refuses: %q", data)
		}
		if _, err := slow.take(&e, data); err != nil {
			t.Fatal(err)
		}
		if string(fast.answer) != string(slow.answer) {
			t.Errorf("%q: scanner %q, decoder %q", data, fast.answer, slow.answer)
		}
	})
}

// events reads all events of a source, as copies.
func events(src io.Reader) (out []string, err error) {
	r := newEventReader(src)
	defer r.release()
	for {
		f, err := r.next()
		if err != nil {
			return out, err
		}
		out = append(out, string(f.event)+"\x00"+string(f.data))
	}
}

// FuzzEventReader feeds a source whole and byte by byte; the events must be the same, and none may be lost.
func FuzzEventReader(f *testing.F) {
	for _, dialect := range []string{"openai", "anthropic", "gemini"} {
		files, err := filepath.Glob(filepath.Join("testdata", dialect, "*.sse"))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(body)
		}
	}
	f.Add([]byte("data: a\rdata: b\n\r\n\rdata:{}\ndata:[DONE]\nevent: x\n\n:\n\n\xef\xbb\xbfdata"))
	f.Fuzz(func(t *testing.T, body []byte) {
		whole, err1 := events(bytes.NewReader(body))
		bytewise, err2 := events(iotest.OneByteReader(bytes.NewReader(body)))
		if !errors.Is(err1, io.EOF) || !errors.Is(err2, io.EOF) {
			t.Fatalf("errors %v and %v", err1, err2)
		}
		if diff := cmp.Diff(whole, bytewise); diff != "" {
			t.Errorf("%q (-whole +bytewise):\n%s", body, diff)
		}
		if !bytes.ContainsAny(body, "\r") && len(body) > 3 {
			if diff := cmp.Diff(reference(string(body)), whole); diff != "" {
				t.Errorf("%q (-reference +reader):\n%s", body, diff)
			}
		}
	})
}

// reference is the plainest reader for streams with LF line ends.
func reference(body string) (out []string) {
	body = strings.TrimPrefix(body, byteOrderMark)
	event, data, any := "", "", false
	end := func() {
		if any {
			out = append(out, event+"\x00"+data)
		}
		event, data, any = "", "", false
	}
	for line := range strings.Lines(body) {
		whole := strings.HasSuffix(line, "\n")
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && whole:
			end()
		case name == "data" && any && !strings.Contains(data, "\n") && isDocument([]byte(data)):
			end()
			data, any = value, true
		case name == "data" && any:
			data += "\n" + value
		case name == "data":
			data, any = value, true
		case name == "event":
			event = value
		}
	}
	end()
	return out
}

// FuzzDecode feeds whole bodies to all dialects: nothing may panic, every answer must end in a finish reason or an
// error, and what comes out must be valid UTF-8.
func FuzzDecode(f *testing.F) {
	for _, dialect := range []string{"openai", "anthropic", "gemini"} {
		files, err := filepath.Glob(filepath.Join("testdata", dialect, "*.sse"))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(body)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, dialect := range []string{"openai", "anthropic", "gemini"} {
			o := replay(t, dialects[dialect], bytes.NewReader(body))
			for _, s := range []string{o.Text, o.Reasoning, o.Error} {
				if !utf8.ValidString(s) {
					t.Errorf("%s: invalid UTF-8 in %q", dialect, s)
				}
			}
			for _, c := range o.Calls {
				if c.Name == "" && c.Arguments == "" || !utf8.ValidString(c.Arguments) {
					t.Errorf("%s: call %+v", dialect, c)
				}
			}
			if o.Artefact != nil && !json.Valid(o.Artefact) {
				t.Errorf("%s: artefact %q", dialect, o.Artefact)
			}
		}
	})
}

// FuzzAssembler cuts two calls' arguments at random places, in the standard shape, and wants them back.
func FuzzAssembler(f *testing.F) {
	f.Add("Oslo", "Rome", []byte{1, 3, 200, 7})
	f.Add("{}", `{"a":`, []byte{0, 0, 1})
	f.Fuzz(func(t *testing.T, a, b string, cuts []byte) {
		want := []string{string(argsOf(a)), string(argsOf(b))}
		rest := [][]byte{[]byte(want[0]), []byte(want[1])}
		asm := assembler{}
		step := func(p callPart) {
			if err := asm.add([]callPart{p}); err != nil {
				t.Fatal(err)
			}
		}
		for i, name := range []string{"weather", "clock"} {
			step(callPart{indexed: true, index: i, id: name, name: name})
		}
		for n, c := range cuts {
			i := n % 2
			size := min(int(c), len(rest[i]))
			step(callPart{indexed: true, index: i, args: rest[i][:size]})
			rest[i] = rest[i][size:]
		}
		for i := range rest {
			step(callPart{indexed: true, index: i, args: rest[i]})
		}
		got, err := asm.done()
		if err != nil || len(got) != 2 || got[0].Arguments != want[0] || got[1].Arguments != want[1] {
			t.Errorf("want %q, got %+v, %v", want, got, err)
		}
	})
}

func argsOf(city string) []byte {
	return append(appendString([]byte(`{"city":`), city), '}')
}

// FuzzAppendString compares the string encoder with encoding/json.
func FuzzAppendString(f *testing.F) {
	f.Add("a\"\\\n\t\x00\u2028\xff\xed\xa0\x80é<>&😀")
	f.Fuzz(func(t *testing.T, s string) {
		var want, got string
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		enc := appendString(nil, s)
		if err := json.Unmarshal(enc, &got); err != nil || got != want || !utf8.Valid(enc) {
			t.Errorf("%q became %q: %v", s, enc, err)
		}
	})
}

// FuzzScript parses anything; what parses must play to an end on any history.
func FuzzScript(f *testing.F) {
	f.Add(demoScript, "How many orders are open?", `[{"open_orders":3}]`)
	f.Add("text: a\ntext: {{rows}}\n---\ncall#x: t {\"a\":\"{{message}}\"}\ncut\n===\nwhen: a* | b c\ntext: x", "b c", "[[1]]")
	f.Add("error: 429 x\n---\nlimit: 3\nreasoning: y\nfinish: length\nusage: 1 2\nchunks: 3\npace: 1ms", "", "{")
	f.Fuzz(func(t *testing.T, source, message, result string) {
		script, err := ParseScript(source)
		if err != nil {
			if hob.KindOf(err) != hob.Invalid {
				t.Errorf("the error is no Invalid: %v", err)
			}
			return
		}
		s := &scripted{scripts: map[string]*Script{"x": script}, noDelay: true}
		history := []hob.Message{{Role: hob.RoleUser, Content: message}}
		for step := 1; step <= 4; step++ {
			ended := false
			for d, err := range s.Stream(t.Context(), hob.Request{Model: "x", Messages: history, Step: step}) {
				if ended {
					t.Fatal("goes on behind its end")
				}
				ended = err != nil || d.Finish != ""
			}
			if !ended {
				t.Fatal("has no end")
			}
			history = append(history,
				hob.Message{Role: hob.RoleAssistant, Calls: []hob.ToolCall{{ID: "c", Name: "t", Arguments: json.RawMessage("{}")}}},
				hob.Message{Role: hob.RoleTool, CallID: "c", Content: result})
		}
	})
}

// textStream is a stream of n text deltas of OpenAI's dialect.
func textStream(n int) []byte {
	const event = `data: {"id":"chatcmpl-AbCdEfGhIjKlMnOp","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o",` +
		`"service_tier":"default","system_fingerprint":"fp_0123456789","choices":[{"index":0,"delta":{"content":" token"},` +
		`"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aB3dE5"}` + "\n\n"
	return []byte(strings.Repeat(event, n) + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n")
}

// oneEvent gives one event per read, as a network does with a model that writes token by token.
type oneEvent struct{ rest []byte }

func (r *oneEvent) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := bytes.Index(r.rest, []byte("\n\n")) + 2
	n = copy(p, r.rest[:n])
	r.rest = r.rest[n:]
	return n, nil
}

const benchDeltas = 1_000

func benchmark(b *testing.B, source func() io.Reader) {
	c := &caller{limits: Config{}.limits()}
	dog := watch(time.Hour, time.Hour, func(error) {})
	defer dog.pause()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		out := &sink{dog: dog, idle: time.Hour, stall: time.Hour, yield: func(d hob.Delta, _ error) bool { n += len(d.Text); return true }}
		events := newEventReader(watchedBody{source(), dog})
		err := c.events(events, &chatDecoder{}, out)
		events.release()
		if err != nil || n != benchDeltas*len(" token") {
			b.Fatalf("%d bytes: %v", n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchDeltas), "ns/delta")
}

// BenchmarkDelta is the cost of one text delta that comes alone: reading, decoding, watching the time, passing on.
func BenchmarkDelta(b *testing.B) {
	body := textStream(benchDeltas)
	benchmark(b, func() io.Reader { return &oneEvent{body} })
}

// BenchmarkDeltaTogether is the same for deltas that arrive together.
func BenchmarkDeltaTogether(b *testing.B) {
	body := textStream(benchDeltas)
	benchmark(b, func() io.Reader { return bytes.NewReader(body) })
}

// BenchmarkDeltaGeneral is the general decoder alone, for comparison.
func BenchmarkDeltaGeneral(b *testing.B) {
	event := bytes.TrimPrefix(bytes.TrimSpace(textStream(1)), []byte("data: "))
	event, _, _ = bytes.Cut(event, []byte("\n"))
	b.ReportAllocs()
	d := &chatDecoder{}
	for b.Loop() {
		d.answer = d.answer[:0]
		if err := d.decode(event); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDelta_CostsAtMostOneAllocation is the bound that streaming at scale rests on.
func TestDelta_CostsAtMostOneAllocation(t *testing.T) {
	body := textStream(benchDeltas)
	c := &caller{limits: Config{}.limits()}
	dog := watch(time.Hour, time.Hour, func(error) {})
	defer dog.pause()
	got := testing.AllocsPerRun(20, func() {
		out := &sink{dog: dog, idle: time.Hour, stall: time.Hour, yield: func(hob.Delta, error) bool { return true }}
		events := newEventReader(&oneEvent{body})
		defer events.release()
		if err := c.events(events, &chatDecoder{}, out); err != nil {
			t.Error(err)
		}
	})
	const beside = 40 // per stream
	if got > benchDeltas+beside {
		t.Errorf("%d deltas cost %.0f allocations", benchDeltas, got)
	}
}
