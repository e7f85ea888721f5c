package api_test

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/client"
)

// holding is a world on a file, with runs that are held as a restore leaves them.
func holding(t *testing.T, runs ...hob.RunID) (*world, *client.Client, hob.AgentID) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hob.db")
	w := beginOn(t, path, nil)
	id := w.agent("fixed")
	by := hob.System(hob.DefaultWorkspace)
	agent, err := w.store.Agent(t.Context(), by, id)
	if err != nil {
		t.Fatal(err)
	}
	pin, err := json.Marshal(hob.Pin{Agent: agent, Tools: []hob.ToolSpec{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		if _, err := w.store.StartRun(t.Context(), hob.NewRun{
			Run:   hob.Run{ID: run, Workspace: hob.DefaultWorkspace, Agent: id, Principal: by, Model: "fixed", Status: hob.Running, Epoch: 1, LeaseOwner: "gone"},
			Lease: time.Hour, Session: hob.Session{ID: "sess_" + hob.SessionID(run)}, Message: hob.Message{Role: hob.RoleUser, Content: "hello"}, Pin: pin,
			Events: []hob.Event{{Seq: 1, Type: hob.EventToolCall, Time: hob.FromMicros(1_000_000), Data: json.RawMessage(`{"event":"tool_call","tool_name":"mail"}`)}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `UPDATE runs SET held = 1, lease_owner = '', lease_until = 0`); err != nil {
		t.Fatal(err)
	}
	c := client.New(w.server.URL, w.service)
	t.Cleanup(c.Close)
	return w, c, id
}

// ended waits until a run has ended.
func ended(t *testing.T, c *client.Client, id hob.RunID) hob.RunRecord {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		r, err := c.RunRecord(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status.Final() {
			return r
		}
	}
	t.Fatalf("run %s does not end", id)
	return hob.RunRecord{}
}

func TestHeld_RunsWaitUntilTheyAreReleasedOrCancelled(t *testing.T) {
	t.Parallel()
	_, c, agent := holding(t, "run_aaaaaaaaaaaa", "run_bbbbbbbbbbbb", "run_cccccccccccc")
	list, err := c.HeldRuns(t.Context())
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	want := client.HeldRun{
		ID: "run_aaaaaaaaaaaa", Agent: agent, AgentName: "helper", Session: "sess_run_aaaaaaaaaaaa", Turn: 1, Status: hob.Running, CreatedAt: list[0].CreatedAt,
		LastEvent: &client.HeldEvent{Seq: 1, Type: hob.EventToolCall, At: hob.FromMicros(1_000_000), Tool: "mail"},
	}
	if diff := cmp.Diff(want, list[0]); diff != "" || list[0].CreatedAt.IsZero() {
		t.Errorf("-want +got:\n%s", diff)
	}
	if r, err := c.RunRecord(t.Context(), list[0].ID); err != nil || !r.Held {
		t.Errorf("held: %v, %v", r.Held, err)
	}
	// Its session takes new messages meanwhile.
	if r, err := c.Run(t.Context(), agent, client.RunRequest{Message: "and now?", SessionID: list[0].Session}); err != nil || r.Status != hob.Completed {
		t.Errorf("a new turn: %+v, %v", r, err)
	}
	// A cancelled one is taken up to be ended, and two looks for abandoned runs leave the others.
	if _, err := c.Cancel(t.Context(), list[1].ID); err != nil {
		t.Error(err)
	}
	if r := ended(t, c, list[1].ID); r.Status != hob.Cancelled || r.Held {
		t.Errorf("cancelled: %s, held %v", r.Status, r.Held)
	}
	time.Sleep(2200 * time.Millisecond)
	if _, err := c.ReleaseHeld(t.Context(), list[0].ID, "run_000000000000"); hob.KindOf(err) != hob.NotFound {
		t.Errorf("an unknown run: %v", err)
	}
	if left, err := c.HeldRuns(t.Context()); err != nil || len(left) != 2 {
		t.Errorf("after two looks: %+v, %v", left, err)
	}
	for i, want := range []int64{1, 0} { // the second time it is not held any more
		if n, err := c.ReleaseHeld(t.Context(), list[0].ID); err != nil || n != want {
			t.Errorf("release %d: %d, %v", i+1, n, err)
		}
	}
	if r := ended(t, c, list[0].ID); r.Status != hob.Completed || r.Held {
		t.Errorf("released: %s, held %v", r.Status, r.Held)
	}
	if n, err := c.ReleaseHeld(t.Context()); err != nil || n != 1 {
		t.Errorf("release all: %d, %v", n, err)
	}
	ended(t, c, list[2].ID)
}

func TestHeld_BadRequestsAreTold(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	many, _ := json.Marshal(map[string]any{"run_ids": make([]string, 1001)})
	const which = `name the runs to release in run_ids, or send {"all": true}`
	for body, text := range map[string]string{
		`{"run_ids":"run_1"}`: "run_ids", `[]`: "object", string(many): "at most 1000", "": "body",
		`{}`: which, `{"run_ids":[]}`: which, `{"run_ids":null}`: which, `{"run_id":"run_aaaaaaaaaaaa"}`: which, `{"all":false}`: which,
		`{"all":true,"run_ids":["run_aaaaaaaaaaaa"]}`: which,
	} {
		wantFault(t, w.do(ask{"POST", "/api/runs/held/release", w.service, body, nil}), 400, text)
	}
	if n := as[struct{ Released int64 }](t, w.do(ask{"POST", "/api/runs/held/release", w.service, `{"all":true}`, nil}), 200); n.Released != 0 {
		t.Errorf("released %d of none", n.Released)
	}
	if got := w.do(ask{"GET", "/api/runs/held", w.service, "", nil}); string(got.body) != `{"runs":[]}`+"\n" {
		t.Errorf("held: %s", got.body)
	}
}
