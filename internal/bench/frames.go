//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// payload gives what a line of an event stream carries behind "data:"; false for any other line.
func payload(line []byte) ([]byte, bool) {
	data, found := bytes.CutPrefix(line, []byte("data:"))
	return bytes.TrimPrefix(data, []byte(" ")), found
}

// chatReader watches an OpenAI stream.
type chatReader struct {
	text     bool // there was text
	finished bool // [DONE] has come
	failure  string
}

func (r *chatReader) line(line []byte) {
	data, ok := payload(line)
	if !ok {
		return
	}
	switch {
	case bytes.Equal(data, []byte("[DONE]")):
		r.finished = true
	case bytes.HasPrefix(data, []byte(`{"error"`)):
		r.failure = string(data)
	case !r.text:
		r.text = hasText(data, `"content":"`)
	}
}

func (r *chatReader) hasText() bool { return r.text }

func (r *chatReader) verdict() error {
	switch {
	case r.failure != "":
		return fmt.Errorf("the model answered %s", r.failure)
	case !r.finished:
		return errors.New("the model's stream ended without [DONE]")
	}
	return nil
}

// runReader watches the stream of a run.
type runReader struct {
	text     bool // there was text
	last     []byte
	complete bool
	good     bool
}

// The beginnings and marks of Hob's frames: the event's name stands first in each.
const (
	completeHead = `{"event":"complete"`
	chunkHead    = `{"event":"chunk"`
	deltaHead    = `{"event":"content_delta"`
	errorHead    = `{"event":"error"`
	goodStatus   = `"status":"completed"`
)

func (r *runReader) line(line []byte) {
	data, ok := payload(line)
	if !ok {
		return
	}
	switch {
	case bytes.HasPrefix(data, []byte(chunkHead)):
		r.text = r.text || hasText(data, `"content":"`)
	case bytes.HasPrefix(data, []byte(deltaHead)):
		r.text = r.text || hasText(data, `"delta":"`)
	case bytes.HasPrefix(data, []byte(completeHead)):
		r.complete = true
		r.good = bytes.Contains(data, []byte(goodStatus))
		if !r.good {
			r.last = append(r.last, data...)
		}
	case bytes.HasPrefix(data, []byte(errorHead)):
		r.last = append(r.last, data...)
	}
}

func (r *runReader) hasText() bool { return r.text }

func (r *runReader) verdict() error {
	switch {
	case !r.complete:
		return fmt.Errorf("the run's stream ended without complete %s", clip(r.last))
	case !r.good:
		return fmt.Errorf("the run did not complete: %s", clip(r.last))
	}
	return nil
}

// hasText says whether the JSON string behind key is not empty.
func hasText(data []byte, key string) bool {
	at := bytes.Index(data, []byte(key))
	return at >= 0 && at+len(key) < len(data) && data[at+len(key)] != '"'
}

func clip(b []byte) string { return string(b[:min(len(b), 400)]) }

// toolCall is a call that a model asked for.
type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// chatAnswer is one whole answer of a model, put together from its stream.
type chatAnswer struct {
	Text  string
	Calls []toolCall
}

// assemble puts the lines of an OpenAI stream together. It decodes everything, so it is for the set-up of a
// measurement only.
func assemble(lines []string) (chatAnswer, error) {
	var a chatAnswer
	for _, line := range lines {
		data, ok := payload([]byte(line))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		var c struct {
			Choices []struct {
				Delta struct {
					Content   string `json:"content"`
					ToolCalls []struct {
						Index int `json:"index"`
						toolCall
					} `json:"tool_calls"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(data, &c); err != nil {
			return a, fmt.Errorf("decode %s: %w", clip(data), err)
		}
		if len(c.Choices) == 0 {
			continue
		}
		d := c.Choices[0].Delta
		a.Text += d.Content
		for _, t := range d.ToolCalls {
			for len(a.Calls) <= t.Index {
				a.Calls = append(a.Calls, toolCall{Type: "function"})
			}
			call := &a.Calls[t.Index]
			call.ID += t.ID
			call.Function.Name += t.Function.Name
			call.Function.Arguments += t.Function.Arguments
		}
	}
	return a, nil
}

// request is one HTTP/1.1 request, made before any clock starts.
type request struct {
	method, host, path string
	key                string // bearer key; "" = none
	body               []byte
	accept             string
}

// bytes is the request as it is sent.
func (r request) bytes() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.method, r.path, r.host)
	if r.key != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", r.key)
	}
	if r.accept != "" {
		fmt.Fprintf(&b, "Accept: %s\r\n", r.accept)
	}
	if r.body != nil {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(r.body))
	}
	b.WriteString("\r\n")
	return append([]byte(b.String()), r.body...)
}

// encode is v as JSON; what is given to it always can be.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return b
}
