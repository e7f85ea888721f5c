//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"hob"
)

// pace is how slow the outside world is. Everything is drawn anew for each call, from the seed and the call's own name.
type pace struct {
	word time.Duration // between two words of the model
	tool time.Duration // at most before a tool acts, and again before it answers
}

// world is the outside of Hob: a model that plays the plan in a message, and the tools, on one address, with the ledger.
type world struct {
	*ledger
	h    *harness
	pace pace
	addr string
	http *http.Server
}

// newWorld starts the model and the tools of a part.
func newWorld(ctx context.Context, h *harness, p pace) (*world, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the model and the tools: %w", err)
	}
	w := &world{ledger: newLedger(), h: h, pace: p, addr: l.Addr().String()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", w.model)
	mux.HandleFunc("POST /tool/{name}", w.tool)
	w.http = &http.Server{Handler: mux, ReadHeaderTimeout: startTime}
	go func() { _ = w.http.Serve(l) }() // always ErrServerClosed, from close
	return w, nil
}

func (w *world) close() { _ = w.http.Close() } // whoever is still connected is of no use to anybody

// chatRequest is what the model looks at of a request.
type chatRequest struct {
	Messages []struct {
		Role       string     `json:"role"`
		Content    text       `json:"content"`
		ToolCallID hob.CallID `json:"tool_call_id"`
	} `json:"messages"`
	Tools []json.RawMessage `json:"tools"`
}

// text is content as text or as a list of parts.
type text string

// UnmarshalJSON reads either form; null is empty.
func (t *text) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(t))
	}
	var parts []struct{ Text string }
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		*t += text(p.Text)
	}
	return nil
}

// model plays the plan of the last message of the user: the step that is due, or the text.
func (w *world) model(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever asked has gone
	}
	var in chatRequest
	if err := json.Unmarshal(body, &in); err != nil {
		w.refuse(rw, err)
		return
	}
	last := len(in.Messages) - 1
	for last >= 0 && in.Messages[last].Role != "user" {
		last--
	}
	if last < 0 {
		w.refuse(rw, errors.New("no message of the user"))
		return
	}
	mark, p, err := readMessage(string(in.Messages[last].Content))
	if err != nil {
		w.refuse(rw, err)
		return
	}
	step, results := 0, map[hob.CallID]string{}
	var inOrder []string
	for _, m := range in.Messages[last+1:] {
		switch m.Role {
		case "assistant":
			step++
		case "tool":
			results[m.ToolCallID] = string(m.Content)
			inOrder = append(inOrder, string(m.Content))
		}
	}
	w.reads(mark, results)
	rw.Header().Set("Content-Type", "text/event-stream")
	s := stream{rw, http.NewResponseController(rw), r.Context()}
	if step < len(p.steps) {
		s.calls(mark, step, p.steps[step], inOrder)
		return
	}
	s.text(mark, p, w.pace.word, inOrder)
}

func (w *world) refuse(rw http.ResponseWriter, err error) {
	w.odd("the model cannot read a request: %v", err)
	http.Error(rw, `{"error":{"message":"`+strings.ReplaceAll(err.Error(), `"`, `'`)+`","type":"invalid_request_error"}}`, http.StatusBadRequest)
}

// stream is an answer of the model under way.
type stream struct {
	w   io.Writer
	out *http.ResponseController
	ctx context.Context //nolint:containedctx // of one request
}

func (s stream) send(delta any, finish string) bool {
	if finish != "null" {
		finish = `"` + finish + `"`
	}
	_, err := fmt.Fprintf(s.w, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"chaos","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n",
		encode(delta), finish)
	return err == nil && s.out.Flush() == nil
}

func (s stream) done(finish string) {
	s.send(map[string]any{}, finish)
	_, _ = io.WriteString(s.w, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"chaos","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20}}`+
		"\n\ndata: [DONE]\n\n") // a reader that has gone is no fault
}

// calls asks for the tools of a step.
func (s stream) calls(mark string, step int, tools, results []string) {
	var calls []any
	for i, tool := range tools {
		calls = append(calls, map[string]any{"index": i, "id": callID(mark, step, i), "type": "function", "function": map[string]any{
			"name": tool, "arguments": string(encode(arguments(mark, step, i, results))),
		}})
	}
	s.send(map[string]any{"role": "assistant", "tool_calls": calls}, "null")
	s.done("tool_calls")
}

// text says the answer, word by word.
func (s stream) text(mark string, p plan, pause time.Duration, results []string) {
	for i := range p.words {
		if !s.send(map[string]any{"content": word(mark, i)}, "null") {
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
	s.send(map[string]any{"content": digest(results)}, "null")
	s.done("stop")
}

// tool carries out a call, as any receiver would: it acts, whether or not whoever asked still waits for the answer.
func (w *world) tool(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the request never came whole
	}
	var in struct{ Mark string }
	key := r.Header.Get("Idempotency-Key")
	if err := json.Unmarshal(body, &in); err != nil || in.Mark == "" || key == "" {
		w.odd("tool %s, key %q: a body without a mark: %s", r.PathValue("name"), key, body)
		http.Error(rw, "what is this?", http.StatusBadRequest)
		return
	}
	a := w.arrival(act{
		key: key, tool: r.PathValue("name"), mark: in.Mark, body: string(body), run: hob.RunID(r.Header.Get("X-Run-Id")),
	})
	luck := chance(w.h.options.seed, key)
	time.Sleep(time.Duration(luck.Int64N(int64(w.pace.tool) + 1)))
	said := w.effect(a)
	time.Sleep(time.Duration(luck.Int64N(int64(w.pace.tool) + 1)))
	rw.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(rw, said) // whoever asked may have died
}

// encode is v as JSON; what is given to it always can be.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return b
}
