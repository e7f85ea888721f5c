package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// outcome is what a consumer sees of an answer, wherever its pieces were parted.
type outcome struct {
	Text      string          `json:"text,omitempty"`
	Reasoning string          `json:"reasoning,omitempty"`
	Searches  []hob.WebSearch `json:"searches,omitempty"`
	Searched  int             `json:"searched,omitempty"`
	Calls     []hob.ModelCall `json:"calls,omitempty"`
	Artefact  json.RawMessage `json:"artefact,omitempty"`
	Finish    string          `json:"finish,omitempty"`
	Usage     *hob.Usage      `json:"usage,omitempty"`
	Model     string          `json:"model,omitempty"`
	Error     string          `json:"error,omitempty"`
	Class     hob.ErrorClass  `json:"class,omitempty"`
}

func (o *outcome) add(t *testing.T, d hob.Delta) {
	t.Helper()
	if o.Finish != "" {
		t.Errorf("a delta came behind the last one: %+v", d)
	}
	o.Text += d.Text
	o.Reasoning += d.Reasoning
	if d.Call != nil {
		o.Calls = append(o.Calls, *d.Call)
	}
	if d.Artefact != nil {
		o.Artefact = d.Artefact
	}
	o.Searches = append(o.Searches, d.Searches...)
	o.Finish, o.Usage, o.Model, o.Searched = d.Finish, d.Usage, d.Model, d.Searched
}

var dialects = map[string]func() decoder{
	"openai": func() decoder {
		d := &chatDecoder{}
		d.calls.known = func(name string) bool { return name == "weather" || name == "clock" }
		return d
	},
	"anthropic": func() decoder { return &messagesDecoder{} },
	"gemini":    func() decoder { return &geminiDecoder{} },
}

// replay decodes a recorded body as a try of a caller does.
func replay(t *testing.T, decode func() decoder, body io.Reader) outcome {
	t.Helper()
	var o outcome
	c := &caller{name: "test", keyVar: "TEST_KEY", urlVar: "TEST_URL", limits: Config{}.limits()}
	dog := watch(time.Hour, time.Hour, func(error) {})
	defer dog.pause()
	out := &sink{dog: dog, idle: time.Hour, stall: time.Hour, yield: func(d hob.Delta, _ error) bool { o.add(t, d); return true }}
	err := c.read(&http.Response{Header: http.Header{}, Body: io.NopCloser(body)}, exchange{decode: decode}, out)
	if err != nil {
		f := c.broken(t.Context(), t.Context(), out, exchange{}, err)
		o.Error, o.Class = f.err.Message, f.err.Class
	}
	if (err == nil) != (o.Finish != "") {
		t.Errorf("an answer must end with a finish reason or an error, not %q and %v", o.Finish, err)
	}
	return o
}

// TestReplay feeds every recorded stream whole, byte by byte and cut behind every line.
func TestReplay(t *testing.T) {
	t.Parallel()
	for dialect, decode := range dialects {
		files, err := filepath.Glob(filepath.Join("testdata", dialect, "*.sse"))
		if err != nil || len(files) < 15 {
			t.Fatalf("%d recorded streams of %s: %v", len(files), dialect, err)
		}
		for _, file := range files {
			t.Run(dialect+"/"+strings.TrimSuffix(filepath.Base(file), ".sse"), func(t *testing.T) {
				t.Parallel()
				body, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				whole := replay(t, decode, bytes.NewReader(body))
				golden(t, strings.TrimSuffix(file, ".sse")+".golden", whole)
				if diff := cmp.Diff(whole, replay(t, decode, iotest.OneByteReader(bytes.NewReader(body)))); diff != "" {
					t.Errorf("byte by byte the answer differs (-whole +bytes):\n%s", diff)
				}
				if diff := cmp.Diff(whole, replay(t, decode, iotest.DataErrReader(bytes.NewReader(body)))); diff != "" {
					t.Errorf("with the end in the last read the answer differs (-whole +end):\n%s", diff)
				}
				cuts(t, decode, body, whole)
			})
		}
	}
}

// cuts ends the stream behind every line and in the midst of it: what was passed on must be a beginning of the whole, and
// a cut answer may pass for a complete one only if its end was told.
func cuts(t *testing.T, decode func() decoder, body []byte, whole outcome) {
	t.Helper()
	for at := 0; at < len(body); at++ {
		if body[at] != '\n' && body[at] != '\r' && (at == 0 || body[at-1] != '{') {
			continue
		}
		got := replay(t, decode, bytes.NewReader(body[:at]))
		if !strings.HasPrefix(whole.Text, got.Text) || !strings.HasPrefix(whole.Reasoning, got.Reasoning) {
			t.Errorf("cut at %d it said %q %q, which is no beginning of %q %q", at, got.Text, got.Reasoning, whole.Text, whole.Reasoning)
		}
		if n := len(got.Searches); n > len(whole.Searches) || n > 0 && !cmp.Equal(whole.Searches[:n], got.Searches) {
			t.Errorf("cut at %d it had searched for %v, which is no beginning of %v", at, got.Searches, whole.Searches)
		}
		if got.Finish == "" {
			continue
		}
		if diff := cmp.Diff(whole.Calls, got.Calls); diff != "" || got.Text != whole.Text || got.Finish != whole.Finish {
			t.Errorf("cut at %d it passed for complete (-whole +cut): %q %q\n%s", at, got.Text, got.Finish, diff)
		}
		reset := replay(t, decode, io.MultiReader(bytes.NewReader(body[:at]), iotest.ErrReader(errors.New("connection reset"))))
		// An event that ends the answer may be whole but for its line end: a reset there loses it, and says so.
		if reset.Text != got.Text && (reset.Error == "" || !strings.HasPrefix(got.Text, reset.Text)) {
			t.Errorf("reset at %d it said %q, at an end %q", at, reset.Text, got.Text)
		}
	}
}

func golden(t *testing.T, file string, got outcome) {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(got); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// TestReplay_EveryRecordHasItsGolden keeps goldens without a record from staying behind.
func TestReplay_EveryRecordHasItsGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, err := os.Stat(strings.TrimSuffix(f, ".golden") + ".sse"); err != nil {
			t.Error(err)
		}
	}
}
