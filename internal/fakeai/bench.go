package fakeai

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Bench says what a bench handler answers.
type Bench struct {
	Tokens   int           // of the final text, one event each
	Steps    int           // tool steps before it; the first offered tool is called
	Interval time.Duration // between two events; 0 = all in one write
}

// Handler is a model for measurements: OpenAI's dialect, every answer made in advance, nothing checked and next to nothing
// read, so that the numbers are those of the client. It is found at /v1/chat/completions and lists itself at /v1/models.
func (b Bench) Handler() http.Handler {
	h := &benchHandler{Bench: b, strict: New(Options{Reply: ToolSteps(b.Steps, Tokens(b.Tokens))})}
	p := Parsed{Model: benchModel, Stream: true, IncludeUsage: true}
	h.events = chatEvents(p, Tokens(b.Tokens))
	h.text = bytes.Join(h.events, nil)
	for i := range b.Steps {
		call := Call{ID: "call_" + nameMark + strconv.Itoa(i), Name: nameMark, Arguments: `{"step":` + strconv.Itoa(i+1) + `}`}
		h.calls = append(h.calls, bytes.Join(chatEvents(p, Calls(call)), nil))
	}
	return h
}

const (
	benchModel = "bench"
	nameMark   = "TOOLNAME" // where the offered tool's name goes
)

type benchHandler struct {
	Bench
	strict *Server // answers what is no stream
	events [][]byte
	text   []byte
	calls  [][]byte
}

func (h *benchHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" {
		h.strict.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	if !bytes.Contains(body, []byte(`"stream":true`)) {
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.strict.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	if name, step := h.step(body); name != nil {
		_, _ = w.Write(bytes.ReplaceAll(h.calls[step], []byte(nameMark), name))
		return
	}
	if h.Interval <= 0 {
		_, _ = w.Write(h.text)
		return
	}
	out := http.NewResponseController(w)
	for i, e := range h.events {
		if i > 0 && !pause(r, h.Interval) {
			return
		}
		_, _ = w.Write(e)
		_ = out.Flush()
	}
}

// step finds the first offered tool's name and which step is due; the name is nil when the text is.
func (h *benchHandler) step(body []byte) (name []byte, step int) {
	if h.Steps == 0 {
		return nil, 0
	}
	turn := body[bytes.LastIndex(body, []byte(`"role":"user"`))+1:]
	step = bytes.Count(turn, []byte(`"role":"tool"`))
	if step >= h.Steps {
		return nil, 0
	}
	const before = `"tools":[{"type":"function","function":{"name":"`
	at := bytes.LastIndex(body, []byte(before))
	if at < 0 {
		return nil, 0
	}
	name, _, _ = bytes.Cut(body[at+len(before):], []byte{'"'})
	return name, step
}
