package storetest

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func startCases() map[string]func(*world) {
	return map[string]func(*world){
		"StartKeepsTheWholeRun":               startKept,
		"StartMakesOrEntersTheSession":        startSession,
		"StartIsRefusedInForeignSessions":     startForeign,
		"StartIsRefusedWithoutRight":          startForbidden,
		"StartWithTheSameKeyGivesTheSameRun":  startReplayed,
		"StartKeyEndsWithItsTimeAndItsRun":    startKeyEnds,
		"EarlierRunIsFoundByItsKey":           startEarlier,
		"ReadersElsewhereAreNoted":            followNoted,
		"StartThatFailsLeavesNothing":         startAtomic,
		"StartWithTheSamePinKeepsTheRightOne": startPins,
	}
}

func startKept(w *world) {
	n := w.newRun(w.alice, w.agent.ID, "s")
	n.Run.Options = hob.RunOptions{Stream: true, Context: "extra", Tuning: hob.Tuning{MaxSteps: point(7)}}
	n.Message = hob.Message{Role: hob.RoleUser, Content: "look", Parts: []hob.Part{{Type: hob.TextPart, Text: "look"}, {Type: hob.ImagePart, Data: []byte{0, 255, 1}, MediaType: "image/png"}}}
	n.Events = append(n.Events, event(2, hob.EventStepStarted, ""))
	got, err := w.s.StartRun(w.ctx, n)
	w.must(err)
	want := n.Run
	want.Turn, want.LastSeq, want.NewSession, want.StartedAt = 1, 2, true, n.Run.CreatedAt
	if d := cmp.Diff(hob.StartedRun{Run: want}, got); d != "" {
		w.t.Fatalf("-want +started:\n%s", d)
	}
	read, err := w.s.Run(w.ctx, w.alice, n.Run.ID)
	w.must(err)
	if d := cmp.Diff(want, read); d != "" {
		w.t.Fatalf("-want +read:\n%s", d)
	}
	st, err := w.s.Load(w.ctx, n.Run.ID)
	w.must(err)
	if d := cmp.Diff(hob.RunState{Run: want, Actions: map[string]int64{}, Pin: n.Pin, Messages: []hob.Message{n.Message}, Step: 1, Told: 1}, st); d != "" {
		w.t.Fatalf("-want +loaded:\n%s", d)
	}
	events, err := w.s.Events(w.ctx, w.alice, n.Run.ID, 0, 10)
	w.must(err)
	if d := cmp.Diff(n.Events, events); d != "" {
		w.t.Fatalf("events -want +read:\n%s", d)
	}
}

func startSession(w *world) {
	first, second := w.begin(w.alice, "mine"), w.begin(w.alice, "mine")
	if first.Turn != 1 || !first.NewSession || second.Turn != 2 || second.NewSession {
		w.t.Fatalf("turns %d, %d; new %v, %v", first.Turn, second.Turn, first.NewSession, second.NewSession)
	}
	ses, err := w.s.Session(w.ctx, w.alice, "mine")
	w.must(err)
	if ses.Owner != w.alice.Owner() || *ses.Agent != w.agent.ID || ses.Turns != 2 || *ses.UserID != w.alice.ID || !hob.IsUUID(ses.UUID) {
		w.t.Fatalf("session: %+v", ses)
	}
	page, err := w.s.Sessions(w.ctx, w.alice, w.agent.ID, hob.SessionFilter{Limit: 10})
	w.must(err)
	if row := page.Items[0]; row.RunCount != 2 || row.FirstMessage != "hello from "+string(first.ID) || row.LastActivityAt.IsZero() {
		w.t.Fatalf("row: %+v", row)
	}
	// One that was made empty is entered, and takes its first message from its first run.
	empty := w.newSession(w.alice)
	r := w.begin(w.alice, empty.ID)
	if r.Turn != 1 || r.NewSession {
		w.t.Fatalf("run in an empty session: turn %d, new %v", r.Turn, r.NewSession)
	}
	page, err = w.s.Sessions(w.ctx, w.alice, w.agent.ID, hob.SessionFilter{Limit: 10, Search: string(empty.ID)})
	w.must(err)
	same(w, "first message", page.Items[0].FirstMessage, "hello from "+string(r.ID))
	// The agent's id may be written in capitals.
	capital := w.start(w.newRun(w.alice, hob.AgentID(strings.ToUpper(string(w.agent.ID))), empty.ID))
	if capital.Turn != 2 || capital.Agent != w.agent.ID {
		w.t.Fatalf("run of an agent in capitals: turn %d of %s", capital.Turn, capital.Agent)
	}
	// A session that the service key makes for a user is the user's.
	n := w.newRun(w.service, w.agent.ID, "for bob")
	n.Session.UserID = &w.bob.ID
	w.start(n)
	same(w, "bob's turn", w.begin(w.bob, "for bob").Turn, 2)
	n = w.newRun(w.key, w.agent.ID, "claimed for bob")
	n.Session.UserID = &w.bob.ID // not the key's to say
	w.start(n)
	_, err = w.s.Session(w.ctx, w.bob, "claimed for bob")
	w.want(hob.NotFound, err)
	// Whoever sees all may go on in a user's session; it stays the user's.
	same(w, "turn of the service key", w.begin(w.service, "mine").Turn, 3)
	_, err = w.s.Session(w.ctx, w.alice, "mine")
	w.must(err)
}

func startForeign(w *world) {
	w.begin(w.alice, "alices")
	w.begin(w.service, "services")
	for _, id := range []hob.SessionID{"alices", "services"} {
		_, err := w.s.StartRun(w.ctx, w.newRun(w.bob, w.agent.ID, id))
		w.want(hob.NotFound, err)
		same(w, "text", err.Error(), hob.Absent(hob.SessionObject).Error())
		// Another agent does not turn the foreign session into a conflict, which would tell that it is there.
		_, err = w.s.StartRun(w.ctx, w.newRun(w.bob, w.other.ID, id))
		w.want(hob.NotFound, err)
	}
	_, err := w.s.StartRun(w.ctx, w.newRun(w.alice, w.other.ID, "alices"))
	w.want(hob.Conflict, err)
	ses, err := w.s.Session(w.ctx, w.alice, "alices")
	w.must(err)
	same(w, "turns after refusals", ses.Turns, 1)
	same(w, "next turn", w.begin(w.alice, "alices").Turn, 2)
}

func startForbidden(w *world) {
	reader := w.alice
	reader.Scopes = []hob.Scope{hob.ScopeRead}
	_, err := w.s.StartRun(w.ctx, w.newRun(reader, w.agent.ID, "s"))
	w.want(hob.Forbidden, err)
	_, err = w.s.StartRun(w.ctx, w.newRun(w.boundTo(w.other.ID), w.agent.ID, "s"))
	w.want(hob.NotFound, err)
	_, err = w.s.StartRun(w.ctx, w.newRun(w.stranger, w.agent.ID, "s"))
	w.want(hob.NotFound, err)
	for _, id := range []hob.AgentID{hob.AgentID(hob.NewUUID()), "", "not-a-uuid"} {
		_, err = w.s.StartRun(w.ctx, w.newRun(w.alice, id, "s"))
		w.want(hob.NotFound, err)
	}
	_, err = w.s.StartRun(w.ctx, w.newRun(w.alice, w.agent.ID, ""))
	w.want(hob.Invalid, err)
	_, err = w.s.Session(w.ctx, w.service, "s")
	w.want(hob.NotFound, err)
}

func idempotent(n hob.NewRun, key, digest string, keep time.Duration) hob.NewRun {
	n.Idempotency = &hob.Idempotency{Scope: n.Run.Principal.Owner() + " run", Key: key, Digest: digest, Keep: keep}
	return n
}

func startReplayed(w *world) {
	first := w.start(idempotent(w.newRun(w.alice, w.agent.ID, "s"), "k", "d", time.Hour))
	again, err := w.s.StartRun(w.ctx, idempotent(w.newRun(w.alice, w.agent.ID, "s"), "k", "d", time.Hour))
	w.must(err)
	if !again.Replayed || again.Run.ID != first.ID || again.Run.Turn != 1 {
		w.t.Fatalf("second request: %+v", again)
	}
	_, err = w.s.StartRun(w.ctx, idempotent(w.newRun(w.alice, w.agent.ID, "s"), "k", "other", time.Hour))
	w.want(hob.Unprocessable, err)
	if e, ok := err.(*hob.Error); !ok || e.Code != "idempotency_key_reused" { //nolint:errorlint // the contract is the bare type
		w.t.Fatalf("code of %v", err)
	}
	ses, err := w.s.Session(w.ctx, w.alice, "s")
	w.must(err)
	same(w, "turns", ses.Turns, 1)
	// The same key of somebody else, and another key, make new runs.
	w.start(idempotent(w.newRun(w.bob, w.agent.ID, "b"), "k", "d", time.Hour))
	same(w, "turn", w.start(idempotent(w.newRun(w.alice, w.agent.ID, "s"), "k2", "d", time.Hour)).Turn, 2)
}

func startKeyEnds(w *world) {
	first := w.start(idempotent(w.newRun(w.alice, w.agent.ID, "s"), "k", "d", time.Millisecond))
	time.Sleep(5 * time.Millisecond)
	second := w.start(idempotent(w.newRun(w.alice, w.agent.ID, "s"), "k", "other", time.Hour))
	if second.ID == first.ID || second.Turn != 2 {
		w.t.Fatalf("after the key's time: run %s, turn %d", second.ID, second.Turn)
	}
	again := w.start(idempotent(w.newRun(w.alice, w.agent.ID, "s"), "k", "other", time.Hour))
	same(w, "the key means the second run now", again.ID, second.ID)
	w.must(w.s.DeleteSession(w.ctx, w.alice, "", "s"))
	// The run is gone, and what it did is done: the same request makes no second one, in the same session or another.
	for _, session := range []hob.SessionID{"s", "t"} {
		_, err := w.s.StartRun(w.ctx, idempotent(w.newRun(w.alice, w.agent.ID, session), "k", "other", time.Hour))
		w.want(hob.NotFound, err)
		if e, ok := err.(*hob.Error); !ok || e.Code != "run_deleted" { //nolint:errorlint // the contract is the bare type
			w.t.Fatalf("code of %v", err)
		}
		_, err = w.s.Session(w.ctx, w.alice, session)
		w.want(hob.NotFound, err)
	}
	_, err := w.s.StartRun(w.ctx, idempotent(w.newRun(w.alice, w.agent.ID, "s"), "k", "third", time.Hour))
	w.want(hob.Unprocessable, err)
}

func startEarlier(w *world) {
	n := idempotent(w.newRun(w.alice, w.agent.ID, "s"), "k", "d", time.Hour)
	_, found, err := w.s.EarlierRun(w.ctx, w.alice, *n.Idempotency)
	w.must(err)
	same(w, "found before", found, false)
	first := w.start(n)
	run, found, err := w.s.EarlierRun(w.ctx, w.alice, *n.Idempotency)
	w.must(err)
	same(w, "found", found, true)
	same(w, "run", run.ID, first.ID)
	_, _, err = w.s.EarlierRun(w.ctx, w.bob, *n.Idempotency)
	w.want(hob.NotFound, err)
	other := *n.Idempotency
	other.Digest = "another"
	_, _, err = w.s.EarlierRun(w.ctx, w.alice, other)
	w.want(hob.Unprocessable, err)
	w.must(w.s.DeleteAgent(w.ctx, w.service, w.agent.ID))
	_, found, err = w.s.EarlierRun(w.ctx, w.alice, *n.Idempotency)
	w.must(err)
	same(w, "found without its agent", found, true)
}

func followNoted(w *world) {
	r := w.begin(w.alice, "s")
	followed := func(what string, want bool) {
		w.t.Helper()
		got, err := w.s.Followed(w.ctx, r.ID)
		w.must(err)
		same(w, what, got, want)
	}
	followed("followed", false)
	w.must(w.s.Follow(w.ctx, r.ID, time.Hour))
	followed("followed after it was noted", true)
	w.must(w.s.Commit(w.ctx, step(r, event(2, hob.EventChunk, "x"))))
	followed("followed behind a commit", true)
	w.must(w.s.Follow(w.ctx, r.ID, time.Millisecond))
	time.Sleep(5 * time.Millisecond)
	followed("followed after its time", false)
	w.must(w.s.Follow(w.ctx, "run_unknown", time.Hour))
}

func startAtomic(w *world) {
	first := w.begin(w.alice, "s")
	n := idempotent(w.newRun(w.alice, w.agent.ID, "new"), "k", "d", time.Hour)
	n.Run.ID = first.ID
	_, err := w.s.StartRun(w.ctx, n)
	w.want(hob.Conflict, err)
	_, err = w.s.Session(w.ctx, w.alice, "new")
	w.want(hob.NotFound, err)
	n.Run.ID = hob.NewRunID()
	got, err := w.s.StartRun(w.ctx, n)
	w.must(err)
	if got.Replayed || got.Run.Turn != 1 {
		w.t.Fatalf("the refused start left something behind: %+v", got)
	}
	bad := w.newRun(w.alice, w.agent.ID, "gap")
	bad.Events = append(bad.Events, event(3, hob.EventChunk, ""))
	if _, err := w.s.StartRun(w.ctx, bad); err == nil {
		w.t.Fatal("events with a gap were taken")
	}
	_, err = w.s.Session(w.ctx, w.alice, "gap")
	w.want(hob.NotFound, err)
}

func startPins(w *world) {
	pins := []json.RawMessage{json.RawMessage(`{"a":1}`), json.RawMessage(`{"a":2}`), json.RawMessage(`{"a":1}`)}
	var ids []hob.RunID
	for _, pin := range pins {
		n := w.newRun(w.alice, w.agent.ID, "s")
		n.Pin = pin
		ids = append(ids, w.start(n).ID)
	}
	w.must(w.s.DeleteSession(w.ctx, w.alice, "", "s"))
	for i, pin := range pins {
		n := w.newRun(w.alice, w.agent.ID, "s")
		n.Pin = pin
		ids[i] = w.start(n).ID
	}
	for i, id := range ids {
		st, err := w.s.Load(w.ctx, id)
		w.must(err)
		same(w, "pin", string(st.Pin), string(pins[i]))
	}
}
