package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"hob"
)

// Checkup is what a look at a session's stored history found.
type Checkup struct {
	Session   hob.SessionID `json:"session_id"`
	Runs      []CheckedRun  `json:"runs"`      // from the oldest
	Summaries []Summed      `json:"summaries"` // from the oldest; the last counts
	Faults    []Fault       `json:"faults"`    // in order
}

// CheckedRun is a run in a Checkup, as it was found.
type CheckedRun struct {
	ID       hob.RunID  `json:"run_id"`
	Turn     int64      `json:"turn"`
	Status   hob.Status `json:"status"`
	Messages int        `json:"messages"`
	Chars    int        `json:"chars"` // as Message.Chars counts

	n     int64
	ended bool
}

// Summed is a session's summary with the time when it was made.
type Summed struct {
	Turn      int64    `json:"turn"`
	Index     int      `json:"index"`
	Text      string   `json:"text"`
	CreatedAt hob.Time `json:"created_at"`

	n int64
}

// checkupPage is how many runs' messages a checkup holds at once.
const checkupPage = 64

// CheckSession looks for places where a session's stored history breaks the rules of hob.Message, and changes nothing.
// Hob writes none; they are in what was restored by hand or written by another program. Runs under way are not judged:
// what is missing there may still come.
func (s *DB) CheckSession(ctx context.Context, by hob.Principal, id hob.SessionID) (Checkup, error) {
	t := s.read()
	x, err := readSession(ctx, t, by, "", id)
	if err != nil {
		return Checkup{}, err
	}
	c, err := examine(ctx, t, x, nil)
	return c, hob.Wrap("check a session", err)
}

// RepairSession mends what CheckSession finds, all or nothing, and returns what it found. Events are not changed: they
// tell what happened. A server that is running may remember the history as it was.
func (s *DB) RepairSession(ctx context.Context, by hob.Principal, id hob.SessionID) (Checkup, error) {
	var c Checkup
	err := s.write(ctx, "repair a session", func(ctx context.Context, t *tx) error {
		x, err := readSession(ctx, t, by, hob.ScopeAdmin, id)
		if err != nil {
			return err
		}
		// Nobody deletes the session, and no run starts in it, until this is done.
		n, err := t.exec(ctx, `UPDATE sessions SET updated_at = updated_at WHERE n = ?`, x.n)
		if err != nil {
			return err
		}
		if n == 0 {
			return hob.Absent(hob.SessionObject)
		}
		if c, err = examine(ctx, t, x, s.mendRows); err != nil {
			return err
		}
		after, err := examine(ctx, t, x, nil)
		if err == nil && len(after.Faults) > 0 {
			f := after.Faults[0]
			err = fmt.Errorf("turn %d, message %d: after the repair %s; nothing was changed", f.Turn, f.Index, f.What)
		}
		t.did(by, "session.repair", "session", string(x.ID), nil, nil).Detail = details("faults", strconv.Itoa(len(c.Faults)))
		return err
	})
	if err != nil {
		return Checkup{}, err
	}
	return c, nil
}

// repair writes what became of a run's messages; idx are the places where they were stored.
type repair func(ctx context.Context, t *tx, r CheckedRun, idx []int, m mended) error

// examine goes through a session's runs. fix, where set, is called for each run with faults.
func examine(ctx context.Context, t *tx, x storedSession, fix repair) (Checkup, error) {
	c := Checkup{Session: x.ID, Faults: []Fault{}}
	var err error
	if c.Summaries, err = many(ctx, t, scanSummed, `SELECT n, turn, idx, text, created_at FROM summaries WHERE session_n = ? ORDER BY n`, x.n); err != nil {
		return c, err
	}
	if c.Runs, err = many(ctx, t, scanChecked, `SELECT n, id, turn, status, completed_at FROM runs WHERE session_n = ? ORDER BY turn`, x.n); err != nil {
		return c, err
	}
	m := &mender{used: map[hob.CallID]bool{}, newID: hob.NewCallID}
	// First the runs under way, whose calls keep their ids.
	for _, ended := range []bool{false, true} {
		for page := range slices.Chunk(inState(c.Runs, ended), checkupPage) {
			stored, err := storedMessages(ctx, t, page)
			if err != nil {
				return c, err
			}
			for _, r := range page {
				if err := c.judge(ctx, t, m, r, stored[r.n], fix); err != nil {
					return c, err
				}
			}
		}
	}
	return c, nil
}

// inState are the runs that have ended, or those that have not.
func inState(runs []CheckedRun, ended bool) []*CheckedRun {
	var list []*CheckedRun
	for i := range runs {
		if runs[i].ended == ended {
			list = append(list, &runs[i])
		}
	}
	return list
}

// judge looks at one run's messages.
func (c *Checkup) judge(ctx context.Context, t *tx, m *mender, r *CheckedRun, stored []storedMessage, fix repair) error {
	messages, idx := make([]hob.Message, len(stored)), make([]int, len(stored))
	var shown []Fault
	for i, x := range stored {
		messages[i], idx[i] = x.m, x.idx
		r.Messages++
		r.Chars += x.m.Chars()
		if x.fault.What != "" {
			x.fault.Index = i
			shown = append(shown, x.fault)
		}
	}
	if !r.ended {
		for _, x := range messages {
			for _, call := range x.Calls {
				m.used[call.ID] = true
			}
		}
		return nil
	}
	out := m.mend(messages, shown...)
	for _, f := range out.faults {
		f.Run, f.Turn, f.Index = r.ID, r.Turn, idx[f.Index]
		c.Faults = append(c.Faults, f)
	}
	if fix == nil || len(out.faults) == 0 {
		return nil
	}
	return fix(ctx, t, *r, idx, out)
}

// mendRows writes a run's mended messages in the place of the stored ones, and lets calls and summaries follow.
func (s *DB) mendRows(ctx context.Context, t *tx, r CheckedRun, idx []int, m mended) error {
	var args []any
	for i, msg := range m.messages {
		var err error
		if args, err = messageArgs(args, r.n, i, msg); err != nil {
			return err
		}
	}
	if _, err := t.exec(ctx, `DELETE FROM messages WHERE run_n = ?`, r.n); err != nil {
		return fmt.Errorf("delete messages: %w", err)
	}
	if err := s.texts.messages.insert(ctx, t, args); err != nil {
		return fmt.Errorf("insert messages: %w", err)
	}
	for old, id := range m.renamed {
		if _, err := t.exec(ctx, `UPDATE tool_calls SET call_id = ? WHERE run_n = ? AND call_id = ?`, string(id), r.n, string(old)); err != nil {
			return fmt.Errorf("rename a call: %w", err)
		}
	}
	sums, err := many(ctx, t, scanSummed, `SELECT n, turn, idx, text, created_at FROM summaries
		WHERE session_n = (SELECT session_n FROM runs WHERE n = ?) AND turn = ? AND idx > 0`, r.n, r.Turn)
	if err != nil {
		return fmt.Errorf("read summaries: %w", err)
	}
	for _, sum := range sums {
		first, _ := slices.BinarySearch(idx, sum.Index) // the first message that it does not cover
		if _, err := t.exec(ctx, `UPDATE summaries SET idx = ? WHERE n = ?`, int64(m.moved(first)), sum.n); err != nil {
			return fmt.Errorf("move a summary: %w", err)
		}
	}
	return nil
}

func scanSummed(r row) (x Summed, err error) {
	var created int64
	err = r.Scan(&x.n, &x.Turn, &x.Index, &x.Text, &created)
	x.CreatedAt = hob.FromMicros(created)
	return x, err
}

func scanChecked(r row) (x CheckedRun, err error) {
	var completed int64
	err = r.Scan(&x.n, &x.ID, &x.Turn, &x.Status, &completed)
	x.ended = completed != 0
	return x, err
}

// storedMessage is a message as far as it can be read, with what keeps it from being read whole.
type storedMessage struct {
	run   int64
	idx   int
	m     hob.Message
	fault Fault
}

func storedMessages(ctx context.Context, t *tx, runs []*CheckedRun) (map[int64][]storedMessage, error) {
	ns := make([]int64, len(runs))
	for i, r := range runs {
		ns[i] = r.n
	}
	in, args := inList(ns)
	list, err := many(ctx, t, scanStored, `SELECT run_n, idx, role, text, body FROM messages WHERE run_n IN `+in+` ORDER BY run_n, idx`, args...)
	out := map[int64][]storedMessage{}
	for _, x := range list {
		out[x.run] = append(out[x.run], x)
	}
	return out, err
}

// scanStored is scanMessage for rows that may not be in order. JSON that is not valid UTF-8 would be read as if it were.
func scanStored(r row) (storedMessage, error) {
	var x storedMessage
	var role, text string
	var body []byte
	if err := r.Scan(&x.run, &x.idx, &role, &text, &body); err != nil {
		return x, err
	}
	x.m.Role = hob.Role(role)
	if body != nil {
		if err := json.Unmarshal(body, &x.m); err != nil {
			x.m = hob.Message{Role: hob.Role(role)}
			x.fault = Fault{What: "the stored message cannot be read: " + err.Error(), Repair: "its role and text are kept"}
		} else if !utf8.Valid(body) {
			x.fault = Fault{What: "the stored message is not valid UTF-8", Repair: "what is not reads as U+FFFD"}
		}
	}
	if len(x.m.Parts) == 0 {
		x.m.Content = text
	}
	return x, nil
}
