package store_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hob"
	"hob/internal/store"
)

// TestHooks_SecretsAreNotInTheFiles reads what a thief of the disk reads.
func TestHooks_SecretsAreNotInTheFiles(t *testing.T) {
	t.Parallel()
	c := store.Config{Dir: t.TempDir()}
	db := open(t, c)
	a := agentOf(t, db, "a")
	h, err := db.CreateHook(t.Context(), system(), hob.Hook{
		Agent: a.ID, Event: hob.PreToolUse, Type: hob.HTTPHook, Enabled: true,
		Config: hob.HookConfig{
			URL: "https://visible.example/hook", Secret: "tops3cret-signing", Headers: map[string]hob.Secret{"X-Visible": "tops3cret-header"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.UpdateHook(t.Context(), system(), a.ID, h.ID, hob.HookPatch{Position: new(int)}); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(filepath.Join(c.Dir, store.FileName) + suffix)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	if !bytes.Contains(all, []byte("visible.example")) {
		t.Fatal("the files do not hold the row at all")
	}
	if bytes.Contains(all, []byte("tops3cret")) {
		t.Error("the files hold a secret")
	}
}

// TestHooks_SecretsOpenInTheirOwnRowAlone: what was copied from another hook does not sign in its name.
func TestHooks_SecretsOpenInTheirOwnRowAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db := open(t, c)
		a, b := agentOf(t, db, "a"), agentOf(t, db, "b")
		var ids []hob.HookID
		for _, agent := range []hob.AgentID{a.ID, b.ID} {
			h, err := db.CreateHook(t.Context(), system(), hob.Hook{
				Agent: agent, Event: hob.PreToolUse, Type: hob.HTTPHook, Config: hob.HookConfig{Secret: hob.Secret("s-" + agent)},
			})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, h.ID)
		}
		raw(t, c, `UPDATE hooks SET sealed = (SELECT sealed FROM hooks WHERE id = '`+string(ids[0])+`') WHERE id = '`+string(ids[1])+`'`)
		if list, err := db.Hooks(t.Context(), system(), a.ID); err != nil || string(list[0].Config.Secret) != "s-"+string(a.ID) {
			t.Errorf("its own: %v, %v", list, err)
		}
		if list, err := db.Hooks(t.Context(), system(), b.ID); err == nil || !strings.Contains(err.Error(), "open the secrets of hook "+string(ids[1])) {
			t.Errorf("another's: %v, %v", list, err)
		}
	})
}

func TestSweepDeliveries_DeletesWhatHasBeenDoneForDays(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		db := open(t, c)
		a := agentOf(t, db, "a")
		h, err := db.CreateHook(t.Context(), system(), hob.Hook{Agent: a.ID, Event: hob.OnRunComplete, Type: hob.HTTPHook})
		if err != nil {
			t.Fatal(err)
		}
		n := keyed(a.ID, "k", time.Hour)
		if _, err := db.StartRun(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		done := hob.RunCommit{Run: n.Run.ID, Epoch: 1, Outcome: &hob.Outcome{Status: hob.Completed}}
		for _, id := range []string{"queued", "delivered", "failed", "recent"} {
			done.Deliveries = append(done.Deliveries, hob.Delivery{ID: id, Hook: h.ID})
		}
		if err := db.Commit(t.Context(), done); err != nil {
			t.Fatal(err)
		}
		for id, status := range map[string]hob.DeliveryStatus{
			"delivered": hob.DeliveryDelivered, "failed": hob.DeliveryFailed, "recent": hob.DeliveryFailed,
		} {
			if err := db.DeliveryDone(t.Context(), id, status, "", 0); err != nil {
				t.Fatal(err)
			}
		}
		sweep := func(want int64) {
			t.Helper()
			if n, err := db.SweepDeliveries(t.Context()); err != nil || n != want {
				t.Errorf("%d deleted, %v, want %d", n, err, want)
			}
		}
		sweep(0)
		// As if all but the recent one were done that long ago.
		const week = 7 * 24 * time.Hour
		raw(t, c, fmt.Sprintf(`UPDATE deliveries SET next_at = next_at - %d WHERE id <> 'recent'`, week.Microseconds()))
		sweep(2)
		sweep(0)
		list, err := db.Deliveries(t.Context(), system(), a.ID, h.ID, 10)
		if err != nil || len(list) != 2 || list[0].ID != "recent" || list[1].ID != "queued" {
			t.Errorf("left: %+v, %v", list, err)
		}
	})
}

// TestClaim_DoesNotComeByRestingRuns: thousands may wait for people, and every process looks for runs to drive every few
// seconds.
func TestClaim_DoesNotComeByRestingRuns(t *testing.T) {
	t.Parallel()
	db := open(t, store.Config{Dir: t.TempDir()})
	if _, err := db.Claim(t.Context(), "p", time.Minute, 1, false); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Renew(t.Context(), "p", time.Minute); err != nil {
		t.Fatal(err)
	}
	looked := map[string]int{}
	for _, s := range db.Statements() {
		plan, err := db.Plan(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(s, "UPDATE runs") {
			continue
		}
		for _, line := range plan {
			switch {
			case strings.Contains(line, "USING INDEX runs_open") && strings.Contains(s, "status <> 'awaiting_approval'"):
				looked["driven"]++
			case strings.Contains(line, "SEARCH runs USING") && strings.Contains(line, "INDEX runs_resting (wake_at>? AND wake_at<?)"):
				looked["due"]++
			case strings.Contains(line, "SCAN runs"):
				t.Errorf("%s\n\t%s", line, s)
			}
		}
	}
	if looked["driven"] != 2 || looked["due"] != 1 { // claim and renew; claim
		t.Errorf("looked for runs by their indexes: %v", looked)
	}
}

// TestCommit_OfAPlainStepAsksNobody: what hooks and people need costs the commits of other runs no statement.
func TestCommit_OfAPlainStepAsksNobody(t *testing.T) {
	t.Parallel()
	db := open(t, store.Config{Dir: t.TempDir()})
	n := keyed(agentOf(t, db, "a").ID, "k", time.Hour)
	if _, err := db.StartRun(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	before := db.Statements()
	for i, o := range []*hob.Outcome{nil, {Status: hob.Running}, {Status: hob.Completed}} {
		if err := db.Commit(t.Context(), hob.RunCommit{
			Run: n.Run.ID, Epoch: 1, Owner: "p", Lease: time.Minute, Events: []hob.Event{benchEvent(int64(i + 1))},
			Base: i + 1, Messages: []hob.Message{{Role: hob.RoleAssistant, Content: "x"}}, Outcome: o,
		}); err != nil {
			t.Fatal(err)
		}
	}
	var made []string
	for _, s := range db.Statements() {
		if !slices.Contains(before, s) {
			made = append(made, strings.Join(strings.Fields(s)[:3], " "))
		}
	}
	slices.Sort(made)
	// The three ways in which a run moves on, its events, and its outcome; the start wrote its message with the same text.
	if want := []string{"INSERT INTO run_events", "UPDATE run_details SET", "UPDATE runs SET", "UPDATE runs SET", "UPDATE runs SET"}; !slices.Equal(made, want) {
		t.Errorf("statements: %q, want %q", made, want)
	}
}
