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
	got, err := s.told(ctx, s.through().requests[0])
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

// told makes a run and decodes all of its events.
func (v *server) told(ctx context.Context, request []byte) (told, error) {
	w, err := connect(ctx, v.clock, v.addr, patience)
	if err != nil {
		return told{}, err
	}
	defer w.close()
	look := runs()
	var lines []string
	err = w.exchange(request, func(line []byte) {
		look.line(line)
		lines = append(lines, string(line))
	})
	if err == nil {
		err = look.verdict()
	}
	if err != nil {
		return told{}, err
	}
	return retell(lines)
}

// told is what the events of a run amount to.
type told struct {
	Text   string // of complete
	Pieces string // of the text as it came, put together; the answer of the last step
	Tools  int    // results that are no errors

	Summaries int // that were made and did
	Cuts      int // events and warnings of a conversation that the model does not get whole
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
			Event, Delta, Content, Result, Code, Method string

			IsError   bool `json:"is_error"`
			Succeeded bool `json:"succeeded"`
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
		case "proactive_compact", "reactive_compact", "reactive_truncate", "compaction":
			t.Cuts++
			if e.Method == "summary" && e.Succeeded {
				t.Summaries++
			}
		case "warning":
			if e.Code == "history_cut" {
				t.Cuts++
			}
		case "complete":
			t.Text = e.Content
		}
	}
	return t, nil
}
