package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// maxTapped bounds what of an answer is kept to look at.
const maxTapped = 4 << 20

// tap gives clients that keep a copy of the last answer. It is for one call after the other.
type tap struct {
	Clients
	body []byte
}

func (t *tap) forget() { t.body = nil }

// OperatorClient gives the inner one's client with a transport that listens.
func (t *tap) OperatorClient(baseURL string) (*http.Client, error) {
	inner, err := t.Clients.OperatorClient(baseURL)
	if err != nil {
		return nil, err
	}
	listening := *inner
	listening.Transport = &tapTransport{inner: inner.Transport, tap: t}
	return &listening, nil
}

type tapTransport struct {
	inner http.RoundTripper
	tap   *tap
}

func (t *tapTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.inner.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	t.tap.forget()
	res.Body = &tappedBody{res.Body, t.tap}
	return res, nil
}

type tappedBody struct {
	io.ReadCloser
	tap *tap
}

func (b *tappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if room := maxTapped - len(b.tap.body); room > 0 {
		b.tap.body = append(b.tap.body, p[:min(n, room)]...)
	}
	return n, err
}

// wire is how an answer came.
type wire struct {
	events    int // of a stream; 0 = one document
	texts     int // of them with text
	usage     bool
	finish    []string // as they were spelt
	reasoning string   // the field, "" where there was none
	deltas    string   // of calls; "" without calls
	callIDs   string
}

// observe looks at an answer as it came. Only OpenAI's dialect comes in shapes.
func observe(dialect string, body []byte) wire {
	var w wire
	shape := callShape{}
	each := func(data []byte) {
		switch dialect {
		case openaiName:
			w.chat(data, &shape)
		case anthropicName:
			w.messages(data)
		default:
			w.gemini(data)
		}
	}
	r := newEventReader(bytes.NewReader(body))
	defer r.release()
	if b := r.peek(); b == '{' || b == '[' {
		all, _ := r.rest() // reading from memory does not fail
		docs, _ := documents(all)
		for _, doc := range docs {
			each(doc)
		}
	} else {
		for {
			f, err := r.next()
			if err != nil {
				break
			}
			w.events++
			each(bytes.TrimSpace(f.data))
		}
	}
	w.deltas, w.callIDs = shape.deltas(), shape.ids()
	return w
}

func (w *wire) end(reason string) {
	if reason != "" {
		w.finish = append(w.finish, reason)
	}
}

func (w *wire) chat(data []byte, shape *callShape) {
	var c chatChunk
	if err := json.Unmarshal(data, &c); err != nil {
		var wrong *json.UnmarshalTypeError
		if !errors.As(err, &wrong) {
			return
		}
	}
	w.usage = w.usage || c.Usage != nil || c.Groq != nil && c.Groq.Usage != nil
	for _, choice := range c.Choices {
		w.end(choice.FinishReason)
		w.usage = w.usage || choice.Usage != nil
		m := choice.Delta
		if m == nil {
			m = choice.Message
		}
		if m == nil {
			continue
		}
		answer, inner := contentParts(m.Content)
		if answer != "" {
			w.texts++
		}
		switch {
		case contentText(m.ReasoningContent) != "":
			w.reasoning = reasoningContent
		case present(m.ReasoningDetails) && string(m.ReasoningDetails) != "[]":
			w.reasoning = "reasoning_details"
		case contentText(m.Reasoning) != "":
			w.reasoning = reasoningPlain
		case inner != "":
			w.reasoning = "thinking"
		}
		shape.add(m.parts())
	}
}

func (w *wire) messages(data []byte) {
	var e messagesEvent
	if json.Unmarshal(data, &e) != nil {
		return
	}
	w.usage = w.usage || e.Usage != nil || e.Message != nil && e.Message.Usage != nil
	w.end(e.StopReason)
	if e.Delta != nil {
		w.end(e.Delta.StopReason)
		if e.Delta.Text != "" {
			w.texts++
		}
	}
	if e.Block != nil && strings.HasSuffix(e.Block.Type, "thinking") {
		w.reasoning = "thinking"
	}
}

func (w *wire) gemini(data []byte) {
	var c struct {
		Candidates []struct {
			Content struct {
				Parts []struct {
					Text    string `json:"text"`
					Thought bool   `json:"thought"`
				} `json:"parts"`
			} `json:"content"`
			FinishReason string `json:"finishReason"`
		} `json:"candidates"`
		Usage json.RawMessage `json:"usageMetadata"`
	}
	if json.Unmarshal(data, &c) != nil {
		return
	}
	w.usage = w.usage || present(c.Usage)
	for _, one := range c.Candidates {
		w.end(one.FinishReason)
		for _, part := range one.Content.Parts {
			if part.Thought {
				w.reasoning = "thought"
			} else if part.Text != "" {
				w.texts++
			}
		}
	}
}

// callShape is how the tool calls of an answer came.
type callShape struct{ calls []*shapedCall }

type shapedCall struct {
	index  int
	id     string
	pieces [][]byte
}

// add takes the calls of one event. A piece belongs to the call of its index, else of its id, else to the last one unless
// it names a tool beside others.
func (s *callShape) add(parts []callPart) {
	for i, p := range parts {
		c := s.find(p, i)
		if c == nil {
			c = &shapedCall{index: -1}
			if p.indexed {
				c.index = p.index
			}
			s.calls = append(s.calls, c)
		}
		if c.id == "" {
			c.id = p.id
		}
		if len(p.args) > 0 {
			c.pieces = append(c.pieces, bytes.Clone(p.args))
		}
	}
}

func (s *callShape) find(p callPart, pos int) *shapedCall {
	for _, c := range s.calls {
		if p.indexed && c.index == p.index && (p.name == "" || !c.whole() || c.id == p.id) {
			return c
		}
	}
	if p.indexed || pos > 0 || len(s.calls) == 0 {
		return nil
	}
	last := s.calls[len(s.calls)-1]
	if p.name != "" && last.whole() && (len(p.args) == 0 || !bytes.HasPrefix(p.args, last.pieces[0])) {
		return nil
	}
	return last
}

// whole says whether the arguments so far are complete, read one piece behind the other or the last one alone.
func (c *shapedCall) whole() bool {
	n := len(c.pieces)
	return n > 0 && (isObject(c.pieces[n-1]) || isObject(bytes.Join(c.pieces, nil)))
}

func (s *callShape) deltas() string {
	found := ""
	for _, c := range s.calls {
		shape := deltasSplit
		switch {
		case len(c.pieces) <= 1:
			shape = deltasWhole
		case c.growing():
			shape = deltasCumulative
		}
		if found == "" || shape != deltasWhole {
			found = shape
		}
	}
	return found
}

// growing says whether every piece begins with the one before.
func (c *shapedCall) growing() bool {
	for i := 1; i < len(c.pieces); i++ {
		if len(c.pieces[i]) <= len(c.pieces[i-1]) || !bytes.HasPrefix(c.pieces[i], c.pieces[i-1]) {
			return false
		}
	}
	return true
}

func (s *callShape) ids() string {
	if len(s.calls) == 0 {
		return ""
	}
	seen := map[string]bool{}
	for _, c := range s.calls {
		switch {
		case c.id == "":
			return idsMissing
		case seen[c.id]:
			return idsDuplicate
		}
		seen[c.id] = true
	}
	return idsPresent
}
