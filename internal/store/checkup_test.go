package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/store"
)

// talked makes the session s: a turn of a call with its result and an answer, whose summary covers the call; a turn that
// uses the tool again; a turn under way whose call waits. It gives their runs.
func talked(t *testing.T, db *store.DB) []hob.RunID {
	t.Helper()
	a := agentOf(t, db, "a")
	var runs []hob.RunID
	for i, id := range []hob.CallID{"c1", "c2", "c3"} {
		n := keyed(a.ID, string(id), 1)
		n.Session.ID, n.Message.Content = "s", fmt.Sprintf("question %d", i+1)
		if _, err := db.StartRun(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		c := hob.RunCommit{Run: n.Run.ID, Epoch: 1, Owner: "p", Base: 1, Messages: []hob.Message{
			{Role: hob.RoleAssistant, Content: "let me see", Calls: []hob.ToolCall{{ID: id, Name: "t", Arguments: json.RawMessage(`{}`)}}},
		}, Calls: []hob.CallState{{ID: id, Step: 1, Name: "t", Status: hob.CallDone, Result: hob.Result{Text: "r"}}}}
		if i < 2 {
			c.Messages = append(c.Messages, hob.Message{Role: hob.RoleTool, CallID: id, Name: "t", Content: "r"},
				hob.Message{Role: hob.RoleAssistant, Content: "answer"})
			c.Outcome = &hob.Outcome{Status: hob.Completed, Content: "answer"}
		}
		if i == 0 {
			c.Summary = &hob.Summary{Index: 3, Text: "sum"}
		}
		if err := db.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, n.Run.ID)
	}
	return runs
}

func of(run int) string {
	return fmt.Sprintf("run_n = (SELECT n FROM runs WHERE turn = %d)", run)
}

// faults writes a checkup's faults as turn.index what, a line each.
func faults(c store.Checkup) string {
	var out []string
	for _, f := range c.Faults {
		out = append(out, fmt.Sprintf("%d.%d %s", f.Turn, f.Index, f.What))
	}
	return strings.Join(out, "\n")
}

func TestCheckSession_FindsNothingInWhatHobWrote(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		db := open(t, c)
		runs := talked(t, db)
		got, err := db.CheckSession(t.Context(), system(), "s")
		if err != nil || len(got.Faults) != 0 || got.Session != "s" {
			t.Fatalf("%+v, %v", got, err)
		}
		for i, r := range got.Runs {
			status, messages, chars := hob.Completed, 4, 10+10+3+1+6 // texts, the call's name and arguments
			if i == 2 {
				status, messages, chars = hob.Running, 2, 10+10+3
			}
			if r.ID != runs[i] || r.Turn != int64(i+1) || r.Status != status || r.Messages != messages || r.Chars != chars {
				t.Errorf("run %d: %+v, want %s with %d messages of %d characters", i, r, status, messages, chars)
			}
		}
		if len(got.Runs) != 3 || len(got.Summaries) != 1 || got.Summaries[0].Text != "sum" || got.Summaries[0].Turn != 1 || got.Summaries[0].Index != 3 || got.Summaries[0].CreatedAt.IsZero() {
			t.Errorf("%d runs, summaries %+v", len(got.Runs), got.Summaries)
		}
		if repaired, err := db.RepairSession(t.Context(), system(), "s"); err != nil || cmp.Diff(faults(got), faults(repaired)) != "" {
			t.Errorf("repair: %+v, %v", repaired, err)
		}
		for _, try := range []func() (store.Checkup, error){
			func() (store.Checkup, error) { return db.CheckSession(t.Context(), system(), "none") },
			func() (store.Checkup, error) { return db.RepairSession(t.Context(), system(), "none") },
		} {
			if _, err := try(); hob.KindOf(err) != hob.NotFound {
				t.Errorf("an absent session: %v", err)
			}
		}
		reader := hob.Principal{Kind: hob.UserPrincipal, ID: "u", Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeRead, hob.ScopeRun}}
		if _, err := db.RepairSession(t.Context(), reader, "s"); hob.KindOf(err) != hob.NotFound {
			t.Errorf("a stranger repairs: %v", err)
		}
	})
}

func TestRepairSession_MendsDamageOfTheRows(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db, err := store.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		talked(t, db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		raw(t, c,
			// The first turn: its call has no result, and an empty message stands before it.
			`DELETE FROM messages WHERE idx = 2 AND `+of(1),
			`UPDATE messages SET idx = idx + 10 WHERE idx > 0 AND `+of(1),
			`INSERT INTO messages (run_n, idx, role, chars, text) SELECT n, 1, 'assistant', 0, '' FROM runs WHERE turn = 1`,
			`UPDATE summaries SET idx = 13`,
			// The second: its call has the first's id, its answer is no JSON.
			`UPDATE messages SET body = replace(body, 'c2', 'c1') WHERE `+of(2),
			`UPDATE tool_calls SET call_id = 'c1' WHERE call_id = 'c2'`,
			`UPDATE messages SET body = '{"role":' WHERE idx = 3 AND `+of(2),
			// The third is under way: nothing is wrong with a call that waits.
		)
		db = open(t, c)
		want := strings.Join([]string{
			`1.1 the message is empty`,
			`1.11 the call "c1" has no result`,
			`2.1 the call id "c1" is used twice in the session`,
			`2.3 the stored message cannot be read: unexpected end of JSON input`,
		}, "\n")
		found, err := db.CheckSession(t.Context(), system(), "s")
		if d := cmp.Diff(want, faults(found)); err != nil || d != "" {
			t.Fatalf("%v, -want +found:\n%s", err, d)
		}
		again, err := db.CheckSession(t.Context(), system(), "s")
		if d := cmp.Diff(want, faults(again)); err != nil || d != "" {
			t.Fatalf("checking changed something: %v\n%s", err, d)
		}
		repaired, err := db.RepairSession(t.Context(), system(), "s")
		if d := cmp.Diff(want, faults(repaired)); err != nil || d != "" {
			t.Fatalf("%v, -want +repaired:\n%s", err, d)
		}
		after, err := db.CheckSession(t.Context(), system(), "s")
		if err != nil || len(after.Faults) != 0 {
			t.Errorf("after the repair: %+v, %v", after.Faults, err)
		}
		// The summary covers what it covered: all but the user's message and the answer.
		if len(after.Summaries) != 1 || after.Summaries[0].Index != 3 {
			t.Errorf("summary: %+v", after.Summaries)
		}
		runs, err := db.SessionRuns(t.Context(), system(), "s", 10, 0)
		if err != nil || len(runs) != 3 {
			t.Fatalf("%d runs, %v", len(runs), err)
		}
		var all []hob.Message
		for _, r := range runs[:2] {
			all = append(all, r.Messages...)
		}
		if err := hob.Validate(all); err != nil || len(all) != 8 {
			t.Errorf("%d messages, %v", len(all), err)
		}
		missing := runs[0].Messages[2]
		if missing.CallID != "c1" || !missing.IsError || !strings.Contains(missing.Content, "missing from the record") {
			t.Errorf("in place of the result: %+v", missing)
		}
		second := runs[1]
		if id := second.Messages[1].Calls[0].ID; id == "c1" || second.Calls[0].ID != id || second.Messages[2].CallID != id || second.Messages[2].Content != "r" {
			t.Errorf("the second call: %+v, %+v", second.Messages, second.Calls)
		}
		if m := second.Messages[3]; m.Content != "answer" || m.Role != hob.RoleAssistant {
			t.Errorf("the message that could not be read: %+v", m)
		}
		if runs[0].Calls[0].ID != "c1" || len(runs[2].Messages) != 2 {
			t.Errorf("what was in order: %+v, %+v", runs[0].Calls, runs[2].Messages)
		}
		h, err := db.History(t.Context(), system(), "s", hob.HistoryRange{Before: 3, Budget: 1000})
		if err != nil || len(h.Runs) != 2 || len(h.Runs[0].Messages) != 2 || h.Runs[0].Chars != len("question 1answer") {
			t.Errorf("history: %+v, %v", h, err)
		}
	})
}

// TestRepairSession_OfManyRuns: a long session is gone through in parts, and ids of early runs count for late ones.
func TestRepairSession_OfManyRuns(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		db := open(t, c)
		a := agentOf(t, db, "a")
		turns := make([]hob.SeedTurn, 150)
		for i := range turns {
			turns[i] = hob.SeedTurn{User: fmt.Sprintf("u%d", i), Assistant: "a"}
		}
		if _, err := db.CreateSession(t.Context(), system(), hob.Session{ID: "s", Agent: &a.ID}, turns); err != nil {
			t.Fatal(err)
		}
		const call = `{"role":"assistant","content":"","tool_calls":[{"id":"same","name":"t","arguments":"{}"}]}`
		raw(t, c, `UPDATE messages SET text = '', body = '`+call+`' WHERE idx = 1`)
		found, err := db.RepairSession(t.Context(), system(), "s")
		// Each call has arguments in a text and no result, and all but the first an id that is taken.
		if err != nil || len(found.Faults) != 3*len(turns)-1 || len(found.Runs) != len(turns) {
			t.Fatalf("%d faults, %v", len(found.Faults), err)
		}
		for i := 1; i < len(found.Faults); i++ {
			if found.Faults[i].Turn < found.Faults[i-1].Turn {
				t.Fatalf("fault %d is of turn %d, the one before of %d", i, found.Faults[i].Turn, found.Faults[i-1].Turn)
			}
		}
		after, err := db.CheckSession(t.Context(), system(), "s")
		if err != nil || len(after.Faults) != 0 {
			t.Errorf("after the repair %d faults, %v", len(after.Faults), err)
		}
	})
}

// TestRepairSession_OfBytesThatAreNoText: Postgres takes none; a SQLite file may hold them.
func TestRepairSession_OfBytesThatAreNoText(t *testing.T) {
	t.Parallel()
	c := store.Config{Dir: t.TempDir()}
	db := open(t, c)
	talked(t, db)
	raw(t, c, `UPDATE messages SET text = CAST(x'61FF62' AS TEXT) WHERE idx = 0 AND `+of(1),
		`UPDATE messages SET body = CAST(replace(body, '"t"', CAST(x'2274FF22' AS TEXT)) AS TEXT) WHERE idx = 2 AND `+of(1),
		`UPDATE messages SET body = '{"role":"assistant","content":"","reasoning":{"artefact":"' || CAST(x'FF' AS TEXT) || '"}}' WHERE idx = 3 AND `+of(1))
	found, err := db.RepairSession(t.Context(), system(), "s")
	want := "1.0 the text is not valid UTF-8\n1.2 the stored message is not valid UTF-8\n1.3 the stored message is not valid UTF-8\n1.3 the text is not valid UTF-8"
	if d := cmp.Diff(want, faults(found)); err != nil || d != "" {
		t.Fatalf("%v, -want +found:\n%s", err, d)
	}
	runs, err := db.SessionRuns(t.Context(), system(), "s", 1, 0)
	if err != nil || runs[0].Messages[0].Content != "a\uFFFDb" || runs[0].Messages[2].Name != "t\uFFFD" {
		t.Errorf("%+v, %v", runs, err)
	}
	if after, err := db.CheckSession(t.Context(), system(), "s"); err != nil || len(after.Faults) != 0 {
		t.Errorf("after the repair: %+v, %v", after.Faults, err)
	}
}
