//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// turn is one step of the straight way of a ten-tool run: a request to the model and, but for the last one, the request
// to the tool that its answer asks for.
type turn struct{ chat, tool []byte }

// converse goes the straight way once, decoding everything, and keeps the requests it made. The fake model asks for the
// same calls each time, so the measured clients only repeat them: the floor is what the network and the two servers cost.
func (b *bench) converse(ctx context.Context, m *model) ([]turn, error) {
	turns, _, err := b.converseFrom(ctx, m, firstMessages())
	return turns, err
}

// converseFrom is converse behind messages of which the last one is the question. It also gives all messages there are
// in the end, the answer too.
func (b *bench) converseFrom(ctx context.Context, m *model, messages []any) ([]turn, []any, error) {
	model, err := connect(ctx, b.clock, m.addr, patience)
	if err != nil {
		return nil, nil, err
	}
	defer model.close()
	tool, err := connect(ctx, b.clock, b.tools.addr, patience)
	if err != nil {
		return nil, nil, err
	}
	defer tool.close()
	var turns []turn
	messages = slices.Clone(messages)
	for range toolSteps + 1 {
		t := turn{chat: chat(m.addr, messages, chatTools())}
		answer, err := ask(model, t.chat)
		if err != nil {
			return nil, nil, err
		}
		if len(answer.Calls) == 0 {
			return append(turns, t), append(messages, fromModel(answer.Text)), wholeConversation(turns)
		}
		call := answer.Calls[0]
		t.tool = b.toolRequest(call.Function.Arguments)
		result, err := body(tool, t.tool)
		if err != nil {
			return nil, nil, fmt.Errorf("call the tool: %w", err)
		}
		messages = append(messages,
			map[string]any{"role": "assistant", "content": answer.Text, "tool_calls": answer.Calls},
			map[string]any{"role": "tool", "tool_call_id": call.ID, "content": result})
		turns = append(turns, t)
	}
	return nil, nil, fmt.Errorf("the fake model still asks for tools after %d of them", toolSteps)
}

// wholeConversation says whether the model asked for as many calls as the measurement means.
func wholeConversation(turns []turn) error {
	if len(turns) != toolSteps {
		return fmt.Errorf("the fake model asked for %d tool calls, want %d", len(turns), toolSteps)
	}
	return nil
}

func (b *bench) toolRequest(arguments string) []byte {
	return request{method: http.MethodPost, host: b.tools.addr, path: toolPath, body: json.RawMessage(arguments)}.bytes()
}

// ask sends a request to the model and decodes its answer.
func ask(w *wire, chat []byte) (chatAnswer, error) {
	var lines []string
	var r chatReader
	err := w.exchange(chat, func(line []byte) {
		r.line(line)
		lines = append(lines, string(line))
	})
	if err = errors.Join(err, r.verdict()); err != nil {
		return chatAnswer{}, fmt.Errorf("ask the model: %w", err)
	}
	return assemble(lines)
}

// body sends a request and gives the answer's text.
func body(w *wire, r []byte) (string, error) {
	var text []byte
	err := w.exchange(r, func(line []byte) { text = append(text, line...) })
	return string(text), err
}

// conversation is a client that goes the straight way.
type conversation struct {
	model, tool *wire
	turns       []turn
}

// conversations opens clients that repeat the turns, each with a connection to the model and one to the tool.
func (b *bench) conversations(m *model, turns []turn) opener {
	return func(ctx context.Context, lives time.Duration) (client, error) {
		model, err := connect(ctx, b.clock, m.addr, lives)
		if err != nil {
			return nil, err
		}
		tool, err := connect(ctx, b.clock, b.tools.addr, lives)
		if err != nil {
			model.close()
			return nil, err
		}
		return &conversation{model: model, tool: tool, turns: turns}, nil
	}
}

// dialogues opens clients that go the straight way of one conversation after the other. Where one client ended, the next
// goes on.
func (b *bench) dialogues(m *model, all [][]turn) opener {
	next := 0
	inner := b.conversations(m, nil)
	return func(ctx context.Context, lives time.Duration) (client, error) {
		one, err := inner(ctx, lives)
		if err != nil {
			return nil, err
		}
		return &dialogue{conversation: one.(*conversation), all: all, next: &next}, nil //nolint:forcetypeassert // conversations opens nothing else
	}
}

type dialogue struct {
	*conversation
	all  [][]turn
	next *int
}

func (d *dialogue) run() (time.Duration, error) {
	d.turns = d.all[*d.next%len(d.all)]
	*d.next++
	return d.conversation.run()
}

func (c *conversation) close() {
	c.model.close()
	c.tool.close()
}

func (c *conversation) run() (time.Duration, error) {
	for i, t := range c.turns {
		var r chatReader
		if err := c.model.exchange(t.chat, r.line); err != nil {
			return 0, fmt.Errorf("model call %d: %w", i+1, err)
		}
		if err := r.verdict(); err != nil {
			return 0, fmt.Errorf("model call %d: %w", i+1, err)
		}
		if t.tool == nil {
			return 0, nil
		}
		if err := c.tool.exchange(t.tool, func([]byte) {}); err != nil {
			return 0, fmt.Errorf("tool call %d: %w", i+1, err)
		}
	}
	return 0, errors.New("a conversation without a last answer")
}
