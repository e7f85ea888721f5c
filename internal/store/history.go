package store

import (
	"context"
	"slices"

	"hob"
)

// historyPage is how many runs are looked at in one go when a history is gathered.
const historyPage = 32

// pastRun is a finished run as a history needs it.
type pastRun struct {
	n, turn, chars int64
	status         hob.Status
	code, err      string
}

func scanPastRun(r row) (p pastRun, err error) {
	err = r.Scan(&p.n, &p.turn, &p.status, &p.code, &p.err, &p.chars)
	return p, err
}

// History gives what was said in a range of turns. Only as many runs are read as fit into the budget, however long the
// session is. Runs that failed or were cancelled are told too, as far as they are whole: see told.
func (s *DB) History(ctx context.Context, by hob.Principal, id hob.SessionID, r hob.HistoryRange) (hob.History, error) {
	ctx, t := s.lookUp(ctx)
	x, err := readSession(ctx, t, by, "", id)
	if err != nil || r.Before <= r.After+1 {
		return hob.History{}, err
	}
	runs, cut, err := pastRuns(ctx, t, x.n, r)
	if err != nil {
		return hob.History{}, hob.Wrap("gather a history", err)
	}
	ns := make([]int64, len(runs))
	for i, p := range runs {
		ns[i] = p.n
	}
	messages, err := messagesOf(ctx, t, ns)
	if err != nil {
		return hob.History{}, hob.Wrap("read a history", err)
	}
	h := hob.History{Cut: cut, Runs: make([]hob.PastRun, 0, len(runs))}
	for _, p := range slices.Backward(runs) {
		h.Runs = append(h.Runs, hob.PastRun{Turn: p.turn, Chars: int(p.chars), Messages: told(p, messages[p.n])})
	}
	return h, nil
}

// pastRuns picks the finished runs of a range, the newest first, while their messages fit into the budget. cut says that
// not all of them did.
func pastRuns(ctx context.Context, t *tx, session int64, in hob.HistoryRange) (picked []pastRun, cut bool, err error) {
	budget, before := int64(in.Budget), in.Before
	for {
		page, err := many(ctx, t, scanPastRun, `SELECT r.n, r.turn, r.status, d.code, d.error,
				(SELECT CAST(coalesce(sum(m.chars), 0) AS BIGINT) FROM messages m WHERE m.run_n = r.n)
			FROM runs r JOIN run_details d ON d.run_n = r.n
			WHERE r.session_n = ? AND r.turn > ? AND r.turn < ? AND r.completed_at <> 0 ORDER BY r.turn DESC LIMIT ?`,
			session, in.After, before, int64(historyPage))
		if err != nil {
			return nil, false, err
		}
		for _, r := range page {
			if budget -= r.chars; budget < 0 && len(picked) > 0 {
				return picked, true, nil
			}
			picked = append(picked, r)
			before = r.turn
		}
		if len(page) < historyPage {
			return picked, false, nil
		}
	}
}

// told gives a run's messages as a later turn may read them, a valid sequence whatever happened to the run: calls stand
// only with all their results, and where the agent gave no answer a closing message says so.
func told(r pastRun, messages []hob.Message) []hob.Message {
	out := make([]hob.Message, 0, len(messages)+1)
	for i := 0; i < len(messages); i++ {
		switch m := messages[i]; {
		case m.Role == hob.RoleTool: // without its call
		case len(m.Calls) > 0:
			end := i + 1 + len(m.Calls)
			if end > len(messages) {
				end = len(messages)
			}
			if pair := messages[i:end]; hob.Validate(pair) == nil {
				out = append(out, pair...)
				i = end - 1
			}
		case hob.Validate(messages[i:i+1]) == nil:
			out = append(out, m)
		}
	}
	if n := len(out); n == 0 || out[n-1].Role == hob.RoleAssistant && len(out[n-1].Calls) == 0 {
		return out
	}
	return append(out, hob.Message{Role: hob.RoleAssistant, Content: closing(r)})
}

// closing is what stands for the answer of a turn that has none.
func closing(r pastRun) string {
	why := r.err
	if why == "" {
		why = r.code
	}
	switch {
	case why != "":
		return "[The previous turn ended before an answer: " + why + "]"
	case r.status == hob.Completed:
		return "[The previous turn gave no answer.]"
	}
	return "[The previous turn ended before an answer: " + string(r.status) + "]"
}
