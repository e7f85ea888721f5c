//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// prove makes one run through Hob and decodes all of it: before anything is measured it has to be the run that is meant,
// with the same text as on the straight way and with every tool call carried out.
func (s *stand) prove(ctx context.Context, k kind) error {
	said, err := answer(ctx, s.clock, s.model)
	if err != nil {
		return err
	}
	w, err := connect(ctx, s.clock, s.addr, patience)
	if err != nil {
		return err
	}
	defer w.close()
	t := s.through()
	look := t.watch()
	var lines []string
	err = w.exchange(t.requests[0], func(line []byte) {
		look.line(line)
		lines = append(lines, string(line))
	})
	if err == nil {
		err = look.verdict()
	}
	if err != nil {
		return fmt.Errorf("a first run: %w", err)
	}
	got, err := retell(lines)
	if err != nil {
		return fmt.Errorf("a first run: %w", err)
	}
	want := told{Text: said, Pieces: said}
	if k == toolModel {
		want.Tools = toolSteps
	}
	if got != want {
		return fmt.Errorf("a first run gave %+v, want %+v", got, want)
	}
	return nil
}

// told is what the events of a run amount to.
type told struct {
	Text   string // of complete
	Pieces string // of the text as it came, put together; the answer of the last step
	Tools  int    // results that are no errors
}

// retell adds a run's events up.
func retell(lines []string) (told, error) {
	var t told
	deltas := false
	for _, line := range lines {
		data, ok := payload([]byte(line))
		if !ok {
			continue
		}
		var e struct {
			Event, Delta, Content, Result string
			IsError                       bool `json:"is_error"`
		}
		if err := json.Unmarshal(data, &e); err != nil {
			return t, fmt.Errorf("decode %s: %w", clip(data), err)
		}
		switch e.Event {
		case "step_started":
			t.Pieces, deltas = "", false
		case "content_delta":
			t.Pieces += e.Delta
			deltas = true
		case "chunk":
			if !deltas { // behind deltas it has the whole text again
				t.Pieces += e.Content
			}
		case "tool_result":
			if e.IsError {
				return t, fmt.Errorf("a tool call failed: %s", e.Result)
			}
			t.Tools++
		case "complete":
			t.Text = e.Content
		}
	}
	return t, nil
}
