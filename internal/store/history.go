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
	if err != nil {
		return hob.History{}, err
	}
	var h hob.History
	sum, err := summary(ctx, t, x.n, r.Before)
	if err != nil {
		return hob.History{}, hob.Wrap("read a session's summary", err)
	}
	if sum.Turn > 0 {
		h.Summary = &sum
		r.After = max(r.After, sum.Turn-1)
	}
	if r.Before <= r.After+1 {
		return h, nil
	}
	runs, cut, err := pastRuns(ctx, t, x.n, r, sum)
	if err != nil {
		return hob.History{}, hob.Wrap("gather a history", err)
	}
	messages, err := pastMessages(ctx, t, runs, sum)
	if err != nil {
		return hob.History{}, hob.Wrap("read a history", err)
	}
	h.Cut, h.Runs = cut, make([]hob.PastRun, 0, len(runs))
	for _, p := range slices.Backward(runs) {
		h.Runs = append(h.Runs, hob.PastRun{Turn: p.turn, Chars: int(p.chars), Messages: told(p, messages[p.n])})
	}
	return h, nil
}

// summary is the newest one of the session's turns up to one; the zero Summary where there is none: turns count from 1.
func summary(ctx context.Context, t *tx, session, upTo int64) (hob.Summary, error) {
	sum, err := one(ctx, t, scanSummary, `SELECT turn, idx, text FROM summaries WHERE session_n = ? AND turn <= ?
		ORDER BY turn DESC, idx DESC, n DESC LIMIT 1`,
		session, upTo)
	if none(err) {
		return hob.Summary{}, nil
	}
	return sum, err
}

func scanSummary(r row) (x hob.Summary, err error) {
	err = r.Scan(&x.Turn, &x.Index, &x.Text)
	return x, err
}

// pastRuns picks the finished runs of a range, the newest first, while their messages fit into the budget. cut says that
// not all of them did. What the summary covers of its own run does not count.
func pastRuns(ctx context.Context, t *tx, session int64, in hob.HistoryRange, sum hob.Summary) (picked []pastRun, cut bool, err error) {
	budget, before := int64(in.Budget), in.Before
	for {
		page, err := many(ctx, t, scanPastRun, `SELECT r.n, r.turn, r.status, d.code, d.error,
				(SELECT CAST(coalesce(sum(m.chars), 0) AS BIGINT) FROM messages m
					WHERE m.run_n = r.n AND (r.turn <> ? OR m.idx = 0 OR m.idx >= ?))
			FROM runs r JOIN run_details d ON d.run_n = r.n
			WHERE r.session_n = ? AND r.turn > ? AND r.turn < ? AND r.completed_at <> 0 ORDER BY r.turn DESC LIMIT ?`,
			sum.Turn, int64(sum.Index), session, in.After, before, int64(historyPage))
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

// pastMessages reads the messages of runs but for those that the summary covers.
func pastMessages(ctx context.Context, t *tx, runs []pastRun, sum hob.Summary) (map[int64][]hob.Message, error) {
	if len(runs) == 0 {
		return map[int64][]hob.Message{}, nil
	}
	covered := int64(0) // the number of the summary's run
	ns := make([]int64, len(runs))
	for i, p := range runs {
		if ns[i] = p.n; p.turn == sum.Turn {
			covered = p.n
		}
	}
	in, args := inList(ns)
	list, err := many(ctx, t, scanMessage, `SELECT `+messageColumns+` FROM messages
		WHERE run_n IN `+in+` AND (run_n <> ? OR idx = 0 OR idx >= ?) ORDER BY run_n, idx`, append(args, covered, int64(sum.Index))...)
	return byRun(list), err
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
