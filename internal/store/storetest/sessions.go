package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func sessionCases() map[string]func(*world) {
	return map[string]func(*world){
		"SessionBelongsToItsMaker":       sessionOwner,
		"SessionIsSeededWithTurns":       sessionSeed,
		"SessionListFilters":             sessionFilters,
		"SessionListSearchesLiterally":   sessionSearch,
		"SessionListPagesByLastActivity": sessionPages,
		"SessionDeletionTakesItsRuns":    sessionDeletion,
		"SessionRunsComeFromTheOldest":   sessionRuns,
	}
}

func (w *world) newSession(by hob.Principal, seed ...hob.SeedTurn) hob.Session {
	w.t.Helper()
	s, err := w.s.CreateSession(w.ctx, by, hob.Session{Agent: &w.agent.ID}, seed)
	w.must(err)
	return s
}

func sessionOwner(w *world) {
	made, err := w.s.CreateSession(w.ctx, w.alice, hob.Session{
		Agent: &w.agent.ID, Data: json.RawMessage(`{"a":1}`), Metadata: json.RawMessage(`{"b":2}`), Owner: "user:forged",
	}, nil)
	w.must(err)
	if made.Owner != w.alice.Owner() || made.UserID == nil || *made.UserID != w.alice.ID || !strings.HasPrefix(string(made.ID), "sess_") || !hob.IsUUID(made.UUID) {
		w.t.Fatalf("made: %+v", made)
	}
	got, err := w.s.Session(w.ctx, w.alice, made.ID)
	w.must(err)
	if d := cmp.Diff(made, got); d != "" {
		w.t.Fatalf("-made +read:\n%s", d)
	}
	_, err = w.s.CreateSession(w.ctx, w.alice, hob.Session{Agent: &w.agent.ID, UserID: &w.bob.ID}, nil)
	w.want(hob.Forbidden, err)
	forBob, err := w.s.CreateSession(w.ctx, w.service, hob.Session{Agent: &w.agent.ID, UserID: &w.bob.ID}, nil)
	w.must(err)
	_, err = w.s.Session(w.ctx, w.bob, forBob.ID)
	w.must(err)
	_, err = w.s.Session(w.ctx, w.alice, forBob.ID)
	w.want(hob.NotFound, err)
	if s := w.newSession(w.service); s.Owner != "" || s.UserID != nil {
		w.t.Fatalf("a service key's session has owner %q", s.Owner)
	}
	_, err = w.s.CreateSession(w.ctx, w.service, hob.Session{ID: made.ID, Agent: &w.agent.ID}, nil)
	w.want(hob.Conflict, err)
	_, err = w.s.CreateSession(w.ctx, w.service, hob.Session{}, nil)
	w.want(hob.NotFound, err)
	_, err = w.s.CreateSession(w.ctx, w.service, hob.Session{Agent: point(hob.AgentID(hob.NewUUID()))}, nil)
	w.want(hob.NotFound, err)
	_, err = w.s.CreateSession(w.ctx, w.service, hob.Session{ID: hob.SessionID(strings.Repeat("s", hob.MaxSessionID+1)), Agent: &w.agent.ID}, nil)
	w.want(hob.Invalid, err)
}

func sessionSeed(w *world) {
	long := strings.Repeat("é", 150)
	ses := w.newSession(w.alice, hob.SeedTurn{User: long, Assistant: "a1"}, hob.SeedTurn{User: "u2", Assistant: "a2"})
	runs, err := w.s.SessionRuns(w.ctx, w.alice, ses.ID, 10, 0)
	w.must(err)
	same(w, "runs", len(runs), 2)
	for i, r := range runs {
		if !strings.HasPrefix(string(r.Run.ID), "seed_") || len(r.Run.ID) != 17 || r.Run.Status != hob.Completed || r.Run.Turn != int64(i+1) || len(r.Messages) != 2 {
			w.t.Fatalf("seeded run %d: %+v", i, r)
		}
	}
	same(w, "content", runs[1].Run.Content, "a2")
	page, err := w.s.Sessions(w.ctx, w.alice, w.agent.ID, hob.SessionFilter{Limit: 5})
	w.must(err)
	row := page.Items[0]
	if row.RunCount != 2 || row.LastActivityAt.IsZero() || row.FirstMessage != strings.Repeat("é", 100) {
		w.t.Fatalf("row: %+v", row)
	}
	w.want("", func() error { _, err := w.s.Load(w.ctx, runs[0].Run.ID); return err }())
	same(w, "turn after two seeded ones", w.begin(w.alice, ses.ID).Turn, 3)
}

func sessionFilters(w *world) {
	early := w.newSession(w.alice)
	time.Sleep(2 * time.Millisecond)
	middle := w.newSession(w.alice, hob.SeedTurn{User: "u", Assistant: "a"})
	time.Sleep(2 * time.Millisecond)
	late := w.newSession(w.alice, hob.SeedTurn{User: "u", Assistant: "a"}, hob.SeedTurn{User: "u", Assistant: "a"})
	for _, c := range []struct {
		f    hob.SessionFilter
		want []hob.SessionID
	}{
		{hob.SessionFilter{}, []hob.SessionID{late.ID, middle.ID, early.ID}}, // one without runs is last
		{hob.SessionFilter{MinRuns: point[int64](1)}, []hob.SessionID{late.ID, middle.ID}},
		{hob.SessionFilter{MaxRuns: point[int64](0)}, []hob.SessionID{early.ID}},
		{hob.SessionFilter{MinRuns: point[int64](1), MaxRuns: point[int64](1)}, []hob.SessionID{middle.ID}},
		{hob.SessionFilter{CreatedAfter: middle.CreatedAt}, []hob.SessionID{late.ID, middle.ID}},
		{hob.SessionFilter{CreatedBefore: middle.CreatedAt}, []hob.SessionID{middle.ID, early.ID}},
		{hob.SessionFilter{CreatedAfter: late.CreatedAt, CreatedBefore: early.CreatedAt}, nil},
	} {
		c.f.Limit = 10
		page, err := w.s.Sessions(w.ctx, w.alice, w.agent.ID, c.f)
		w.must(err)
		var got []hob.SessionID
		for _, s := range page.Items {
			got = append(got, s.ID)
		}
		if d := cmp.Diff(c.want, got); d != "" || int(page.Total) != len(got) {
			w.t.Errorf("filter %+v (-want +got), total %d:\n%s", c.f, page.Total, d)
		}
	}
	page, err := w.s.Sessions(w.ctx, w.alice, w.other.ID, hob.SessionFilter{Limit: 10})
	w.must(err)
	same(w, "sessions of another agent", page.Total, 0)
	_, err = w.s.Sessions(w.ctx, w.alice, hob.AgentID(hob.NewUUID()), hob.SessionFilter{Limit: 10})
	w.want(hob.NotFound, err)
}

func sessionSearch(w *world) {
	for id, said := range map[string]string{"sess-a": "100% of it", "sess-b": "100 of it", "find_me": "x", "findXme": "y"} {
		n := w.newRun(w.alice, w.agent.ID, hob.SessionID(id))
		n.Message.Content = said
		r := w.start(n)
		c := ending(r, hob.Completed, "The Answer to "+said)
		c.Messages = append([]hob.Message{
			{Role: hob.RoleAssistant, Calls: []hob.ToolCall{{ID: "c1", Name: "t", Arguments: json.RawMessage(`{}`)}}},
			{Role: hob.RoleTool, CallID: "c1", Name: "t", Content: "toolsecret"},
		}, c.Messages...)
		w.must(w.s.Commit(w.ctx, c))
	}
	for q, want := range map[string]int64{
		"100%": 1, "find_me": 1, "find": 2, "SESS-A": 1, "the answer": 4, "toolsecret": 0, `\`: 0, "answer to 100": 2, "absent": 0,
	} {
		page, err := w.s.Sessions(w.ctx, w.alice, w.agent.ID, hob.SessionFilter{Limit: 10, Search: q})
		w.must(err)
		if page.Total != want || int64(len(page.Items)) != want {
			w.t.Errorf("search %q: %d of %d, want %d", q, len(page.Items), page.Total, want)
		}
		page, err = w.s.Sessions(w.ctx, w.bob, w.agent.ID, hob.SessionFilter{Limit: 10, Search: q})
		w.must(err)
		same(w, "what bob finds with "+q, page.Total, 0)
	}
}

func sessionPages(w *world) {
	for i := range 5 {
		w.begin(w.alice, hob.SessionID(fmt.Sprintf("s%d", i)))
	}
	w.begin(w.alice, "s1") // comes back to the front
	var got []string
	for offset := 0; offset < 6; offset += 2 {
		page, err := w.s.Sessions(w.ctx, w.alice, w.agent.ID, hob.SessionFilter{Limit: 2, Offset: offset})
		w.must(err)
		same(w, "total", page.Total, 5)
		for _, s := range page.Items {
			got = append(got, string(s.ID))
		}
	}
	same(w, "order", strings.Join(got, " "), "s1 s4 s3 s2 s0")
}

func sessionDeletion(w *world) {
	open, kept := w.begin(w.alice, "gone"), w.begin(w.alice, "kept")
	c := step(open, event(2, hob.EventChunk, "x"))
	c.Messages, c.Base = []hob.Message{{Role: hob.RoleAssistant, Content: "x"}}, 1
	c.Usage = []hob.UsageEntry{{Component: "run", Model: "m", Usage: hob.Usage{TotalTokens: 3}}}
	w.must(w.s.Commit(w.ctx, c))
	w.want(hob.NotFound, w.s.DeleteSession(w.ctx, w.bob, "", "gone"))
	w.want(hob.NotFound, w.s.DeleteSession(w.ctx, w.alice, w.other.ID, "gone"))
	w.want(hob.NotFound, w.s.DeleteSession(w.ctx, w.alice, "not-a-uuid", "gone"))
	_, err := w.s.Session(w.ctx, w.alice, "gone")
	w.must(err)
	w.must(w.s.DeleteSession(w.ctx, w.alice, w.agent.ID, "gone"))
	w.want(hob.NotFound, w.s.DeleteSession(w.ctx, w.alice, "", "gone"))
	_, err = w.s.Run(w.ctx, w.alice, open.ID)
	w.want(hob.NotFound, err)
	_, err = w.s.Events(w.ctx, w.alice, open.ID, 0, 10)
	w.want(hob.NotFound, err)
	_, err = w.s.Load(w.ctx, open.ID)
	w.want(hob.NotFound, err)
	w.want(hob.Fenced, w.s.Commit(w.ctx, step(open, event(3, hob.EventChunk, "y"))))
	// The id is free: a new session begins with its first turn.
	again := w.begin(w.alice, "gone")
	if again.Turn != 1 || !again.NewSession {
		w.t.Fatalf("the new session's run: turn %d, new %v", again.Turn, again.NewSession)
	}
	d, err := w.s.RunDetail(w.ctx, w.alice, again.ID)
	w.must(err)
	if len(d.Messages) != 1 || len(d.Events) != 1 {
		w.t.Fatalf("the new session's run has rows of the old one: %+v", d)
	}
	_, err = w.s.Run(w.ctx, w.alice, kept.ID)
	w.must(err)
	w.must(w.s.DeleteSession(w.ctx, w.service, "", "kept"))
}

func sessionRuns(w *world) {
	var ids []hob.RunID
	for range 5 {
		ids = append(ids, w.begin(w.alice, "s").ID)
	}
	var got []hob.RunID
	for offset := 0; offset < 6; offset += 2 {
		list, err := w.s.SessionRuns(w.ctx, w.alice, "s", 2, offset)
		w.must(err)
		for _, d := range list {
			got = append(got, d.Run.ID)
			if len(d.Messages) != 1 || d.Messages[0].Content != "hello from "+string(d.Run.ID) || len(d.Events) != 1 {
				w.t.Fatalf("story of %s: %+v", d.Run.ID, d)
			}
		}
	}
	if d := cmp.Diff(ids, got); d != "" {
		w.t.Fatalf("-want +got:\n%s", d)
	}
	_, err := w.s.SessionRuns(w.ctx, w.bob, "s", 2, 0)
	w.want(hob.NotFound, err)
}
