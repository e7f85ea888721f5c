package store

import (
	"context"
	"encoding/json"
	"fmt"

	"hob"
)

// messageArgs adds a message's row to args. The text has a column of its own, where it is searched and counted; body
// holds the whole message only when there is more to it than a role and a text.
func messageArgs(args []any, run int64, idx int, m hob.Message) ([]any, error) {
	text := m.Text()
	chars := m.Chars()
	var body any
	if len(m.Parts) > 0 || len(m.Calls) > 0 || m.CallID != "" || m.Name != "" || m.IsError || m.Reasoning != nil {
		if len(m.Parts) == 0 {
			m.Content = "" // it is in the text column
		}
		b, err := json.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("encode message %d: %w", idx, err)
		}
		body = string(b)
	}
	return append(args, run, int64(idx), string(m.Role), int64(chars), text, body), nil
}

// runMessage is a message with the number of its run.
type runMessage struct {
	run int64
	m   hob.Message
}

const messageColumns = `run_n, role, text, body`

func scanMessage(r row) (runMessage, error) {
	var x runMessage
	var text string
	var body []byte
	if err := r.Scan(&x.run, &x.m.Role, &text, &body); err != nil {
		return x, err
	}
	if body == nil {
		x.m.Content = text
		return x, nil
	}
	if err := json.Unmarshal(body, &x.m); err != nil {
		return x, fmt.Errorf("read a message of run %d: %w", x.run, err)
	}
	if len(x.m.Parts) == 0 {
		x.m.Content = text
	}
	return x, nil
}

// messagesOf reads the messages of runs, in order, by run.
func messagesOf(ctx context.Context, t *tx, runs []int64) (map[int64][]hob.Message, error) {
	if len(runs) == 0 {
		return map[int64][]hob.Message{}, nil
	}
	in, args := inList(runs)
	list, err := many(ctx, t, scanMessage, `SELECT `+messageColumns+` FROM messages WHERE run_n IN `+in+` ORDER BY run_n, idx`, args...)
	return byRun(list), err
}

func byRun(list []runMessage) map[int64][]hob.Message {
	out := map[int64][]hob.Message{}
	for _, x := range list {
		out[x.run] = append(out[x.run], x.m)
	}
	return out
}
