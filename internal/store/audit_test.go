package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"hob"
	"hob/internal/store"
)

// verify reads the chain of the default workspace.
func verify(t testing.TB, c store.Config, expect string) store.AuditChain {
	t.Helper()
	log, err := store.OpenAudit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	chains, err := log.Verify(t.Context(), expect)
	if err != nil {
		t.Fatal(err)
	}
	for _, chain := range chains {
		if chain.Workspace == hob.DefaultWorkspace {
			return chain
		}
	}
	t.Fatal("the default workspace has no entries")
	return store.AuditChain{}
}

// TestAudit_NothingIsDoneThatCannotBeNoted: without its table, no act goes through, and nothing of it is kept.
func TestAudit_NothingIsDoneThatCannotBeNoted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db := open(t, c)
		a := agentOf(t, db, "a")
		raw(t, c, `ALTER TABLE audit RENAME TO gone`)
		if _, err := db.CreateAgent(t.Context(), system(), hob.Agent{Name: "b", Model: "m"}); err == nil {
			t.Error("an agent was made")
		}
		if _, err := db.StartRun(t.Context(), keyed(a.ID, "k", 1)); err == nil {
			t.Error("a run was started")
		}
		if err := db.DeleteAgent(t.Context(), system(), a.ID); err == nil {
			t.Error("an agent was deleted")
		}
		raw(t, c, `ALTER TABLE gone RENAME TO audit`)
		page, err := db.Agents(t.Context(), system(), hob.ListOptions{})
		if err != nil || page.Total != 1 {
			t.Errorf("%d agents, %v; want the one from before", page.Total, err)
		}
		if _, err := db.StartRun(t.Context(), keyed(a.ID, "k", 1)); err != nil {
			t.Error(err)
		}
	})
}

// TestAudit_ChainHoldsWithManyWriters: what several processes write at once becomes one chain. On SQLite the second
// process is one that notes what it did to the whole, such as a backup.
func TestAudit_ChainHoldsWithManyWriters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		first := open(t, c)
		stores := []*store.DB{first}
		if c.DSN != "" {
			stores = append(stores, open(t, c))
		}
		const writers, each = 6, 20
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				for n := range each {
					note := hob.AuditEntry{Action: "request.refused", Kind: "request", Object: fmt.Sprintf("%d/%d", i, n)}
					var err error
					if c.DSN == "" && i == 0 && n%5 == 0 {
						note.Workspace, note.Actor = hob.DefaultWorkspace, "system:"
						err = store.NoteAudit(t.Context(), c, note)
					} else {
						err = stores[i%len(stores)].NoteAudit(t.Context(), system(), note)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		list, err := first.Audit(t.Context(), system(), hob.AuditFilter{Limit: 1000})
		if err != nil || len(list) != writers*each {
			t.Fatalf("%d entries, %v; want %d", len(list), err, writers*each)
		}
		if got := verify(t, c, list[17].Hash); got.Broken != nil || got.Linked != writers*each || got.Loose != 0 || got.Expected != 18 {
			t.Errorf("%+v, broken %+v", got, got.Broken)
		}
	})
}

// TestAudit_IsLinkedBySoon: on Postgres nobody has to ask for it.
func TestAudit_IsLinkedBySoon(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db := open(t, c)
		agentOf(t, db, "a")
		for began := time.Now(); verify(t, c, "").Loose > 0; time.Sleep(20 * time.Millisecond) {
			if time.Since(began) > 10*time.Second {
				t.Fatal("the entry is still not linked")
			}
		}
		// What a process that ended left behind is linked by the next, where entries are not linked as they are written.
		raw(t, c, looseRow)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		next := open(t, c)
		list, err := next.Audit(t.Context(), system(), hob.AuditFilter{})
		must(t, err)
		must(t, next.Close())
		got := verify(t, c, "")
		if c.DSN != "" {
			if got.Loose != 0 || got.Linked != 2 || got.Broken != nil || len(list) != 2 {
				t.Errorf("%+v, listed %d", got, len(list))
			}
			return
		}
		if got.Loose != 1 || got.Linked != 1 || got.Place != 1 || len(list) != 1 || got.Broken == nil || !strings.Contains(got.Broken.What, "not written by Hob") {
			t.Errorf("%+v, broken %+v, listed %d", got, got.Broken, len(list))
		}
	})
}

// looseRow puts an entry into the log that is not linked.
const looseRow = `INSERT INTO audit (workspace_id, place, at, actor, action, kind, object, run_id, call_id, digest, before, after, decision,
	rule, detail, request_id, address, prev, hash) VALUES ('default', 0, 1, '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '')`

// TestLoad_LinksWhatComesWithoutLinks: what Postgres had not linked when it was dumped is linked by the load where nobody
// would do it later.
func TestLoad_LinksWhatComesWithoutLinks(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, from store.Config) {
		from = made(t, func(testing.TB) store.Config { return from }, box(t))
		agentOf(t, open(t, from), "a")
		raw(t, from, looseRow, looseRow)
		to := store.Config{Dir: t.TempDir(), Box: from.Box}
		d := dump(t, from)
		_, err := store.Load(t.Context(), to, store.Loading{Shape: d.Shape(), Chunks: d.Chunks(t.Context())})
		must(t, err)
		if got := verify(t, to, ""); got.Loose != 0 || got.Linked != 3 || got.Broken != nil {
			t.Errorf("%+v, broken %+v", got, got.Broken)
		}
	})
}

// TestAudit_EveryTamperingIsFound changes each column of the table, takes rows away, puts some in and lets some change places.
func TestAudit_EveryTamperingIsFound(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db := open(t, c)
		for i := range 6 {
			agentOf(t, db, fmt.Sprint(i))
		}
		list, err := db.Audit(t.Context(), system(), hob.AuditFilter{})
		if err != nil || len(list) != 6 {
			t.Fatal(len(list), err)
		}
		head := list[5].Hash
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		raw(t, c, `CREATE TABLE kept AS SELECT * FROM audit`)
		try := func(name string, place int64, stmts ...string) {
			t.Helper()
			raw(t, c, stmts...)
			if got := verify(t, c, head); got.Broken == nil || got.Broken.Place != place {
				t.Errorf("%s: broken %+v, want at place %d", name, got.Broken, place)
			}
			raw(t, c, `DELETE FROM audit`, `INSERT INTO audit SELECT * FROM kept`)
			if got := verify(t, c, head); got.Broken != nil || got.Expected != 6 {
				t.Fatalf("put back after %s: %+v", name, got.Broken)
			}
		}
		for _, column := range []string{
			"actor", "action", "kind", "object", "run_id", "call_id", "digest", "before", "after", "decision", "rule", "detail",
			"request_id", "address", "prev", "hash",
		} {
			try("another "+column, 3, `UPDATE audit SET `+column+` = 'x' WHERE place = 3`)
		}
		try("another time", 3, `UPDATE audit SET at = at + 1 WHERE place = 3`)
		try("a row less", 4, `DELETE FROM audit WHERE place = 3`)
		try("rows less", 5, `DELETE FROM audit WHERE place IN (3, 4)`)
		try("the first row less", 2, `DELETE FROM audit WHERE place = 1`)
		try("another place", 4, `UPDATE audit SET place = 9 WHERE place = 3`)
		try("a place that is none", 0, `UPDATE audit SET place = -1 WHERE place = 3`)
		if c.DSN == "" {
			try("a row without a place", 0, looseRow)
		}
		try("two rows that changed places", 3, `UPDATE audit SET place = 99 WHERE place = 3`, `UPDATE audit SET place = 3 WHERE place = 4`,
			`UPDATE audit SET place = 4 WHERE place = 99`)
		try("a row more", 3, `UPDATE audit SET place = place + 10 WHERE place > 2`, `UPDATE audit SET place = place - 9 WHERE place > 2`,
			`INSERT INTO audit SELECT 1000 + n, workspace_id, 3, at, actor, action, kind, object, run_id, call_id, digest, before, after, decision,
			rule, detail, request_id, address, prev, hash FROM audit WHERE place = 2`)
		// A cut end leaves a chain that holds: only a hash that was noted before tells.
		raw(t, c, `DELETE FROM audit WHERE place > 4`)
		if got := verify(t, c, head); got.Broken != nil || got.Expected != 0 || got.Place != 4 {
			t.Errorf("a cut end: %+v", got)
		}
	})
}

// TestAudit_HoldsNoSecret writes every kind of secret and reads what is there of the log.
func TestAudit_HoldsNoSecret(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db := open(t, c)
		ctx, by := t.Context(), system()
		const secret = "tops3cret"
		headers := map[string]hob.Secret{"X-Key": secret + "-header"}
		a := agentOf(t, db, "a")
		tool, err := db.CreateTool(ctx, by, hob.Tool{Name: "t", Type: "http", Config: hob.ToolConfig{Endpoint: "https://x.example", Headers: headers}})
		must(t, err)
		_, err = db.UpdateTool(ctx, by, tool.ID, hob.ToolPatch{Config: &hob.ToolConfig{
			Endpoint: "https://y.example", Headers: map[string]hob.Secret{"X-Key": secret + "-again"},
		}})
		must(t, err)
		_, err = db.RestoreTool(ctx, by, tool.ID, 1)
		must(t, err)
		h, err := db.CreateHook(ctx, by, hob.Hook{Agent: a.ID, Event: hob.PreToolUse, Type: hob.HTTPHook, Config: hob.HookConfig{
			URL: "https://h.example", Headers: headers, Secret: secret + "-signing",
		}})
		must(t, err)
		must(t, db.DeleteHook(ctx, by, a.ID, h.ID))
		for _, value := range []string{secret + "-setting", secret + "-other"} {
			must(t, db.ChangeSettings(ctx, by, map[string]*hob.StoredSetting{"k": {Value: value, Secret: true}}))
		}
		must(t, db.ChangeSettings(ctx, by, map[string]*hob.StoredSetting{"k": nil}))
		_, err = db.PutProviderKeys(ctx, by, []hob.ProviderKey{{Provider: "openai", Key: "sk-" + secret + "-provider"}})
		must(t, err)
		must(t, db.DeleteProviderKey(ctx, by, "openai"))
		_, err = db.CreateKey(ctx, by, hob.Key{Name: "n", Prefix: "hob_k_ab", Scopes: []hob.Scope{hob.ScopeRead}}, []byte(secret+"-hash"))
		must(t, err)
		list, err := db.Audit(ctx, by, hob.AuditFilter{Limit: 1000})
		must(t, err)
		var text bytes.Buffer
		actions := map[string]int{}
		for _, e := range list {
			line, err := json.Marshal(e)
			must(t, err)
			text.Write(line)
			actions[e.Action]++
		}
		for action, want := range map[string]int{
			"agent.create": 1, "tool.create": 1, "tool.update": 1, "tool.restore": 1, "hook.create": 1, "hook.delete": 1, "setting.change": 3,
			"provider_key.put": 1, "provider_key.delete": 1, "key.create": 1,
		} {
			if actions[action] != want {
				t.Errorf("%d entries of %s, want %d", actions[action], action, want)
			}
		}
		if bytes.Contains(text.Bytes(), []byte(secret)) {
			t.Errorf("a secret is told:\n%s", &text)
		}
	})
}

// TestAudit_LongTextsAreCut holds the bounds of an entry.
func TestAudit_LongTextsAreCut(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db := open(t, c)
		long := strings.Repeat("ü", 600) + "\x00"
		must(t, db.NoteAudit(t.Context(), system(), hob.AuditEntry{Action: "request.refused", Kind: "k\x00", Object: "a" + long, Detail: json.RawMessage(`{"a":"` + strings.Repeat("x", 5000) + `"}`)}))
		must(t, db.NoteAudit(hob.WithOrigin(context.WithoutCancel(t.Context()), hob.Origin{Request: "r", Address: "1.2.3.4"}), system(),
			hob.AuditEntry{Action: "request.refused", Detail: json.RawMessage(`{"a": "<b>"}`)}))
		list, err := db.Audit(t.Context(), system(), hob.AuditFilter{})
		must(t, err)
		if e := list[0]; len(e.Object) > 1026 || e.Kind != "k\uFFFD" || string(e.Detail) != `{"bytes":5008}` {
			t.Errorf("%+v", e)
		}
		if e := list[1]; e.Request != "r" || e.Address != "1.2.3.4" || string(e.Detail) != `{"a":"\u003cb\u003e"}` {
			t.Errorf("%+v", e)
		}
		if got := verify(t, c, ""); got.Broken != nil {
			t.Errorf("%+v", got.Broken)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAudit_LongReasonsAreCut: of a reason an entry keeps the beginning.
func TestAudit_LongReasonsAreCut(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db := open(t, c)
		n := keyed(agentOf(t, db, "a").ID, "k", 1)
		n.Run.Status, n.Run.Epoch, n.Run.LeaseOwner, n.Lease = hob.Running, 1, "p1", time.Minute
		run, err := db.StartRun(t.Context(), n)
		must(t, err)
		must(t, db.Commit(t.Context(), hob.RunCommit{
			Run: run.Run.ID, Epoch: 1, Owner: "p1", Lease: time.Minute, Outcome: &hob.Outcome{Status: hob.AwaitingApproval},
			Approvals: []hob.Approval{{ApprovalID: "a1", Status: hob.ApprovalPending, ToolName: "t", Approvers: []string{"any"}}},
		}))
		by := hob.Principal{Kind: hob.UserPrincipal, ID: "u", Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeApprove}}
		_, err = db.Decide(t.Context(), by, hob.Decision{Run: run.Run.ID, Approval: "a1", Reason: strings.Repeat("é", 501)})
		must(t, err)
		list, err := db.Audit(t.Context(), system(), hob.AuditFilter{Action: "approval.decide"})
		must(t, err)
		if len(list) != 1 || strings.Count(string(list[0].Detail), "é") != 500 {
			t.Errorf("%+v", list)
		}
	})
}

// TestAudit_ManyLooseEntriesAreLinkedInGroups: more than one transaction links are linked in order of their rows. On SQLite
// that is what a load does.
func TestAudit_ManyLooseEntriesAreLinkedInGroups(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		must(t, open(t, c).Close())
		const many = 600
		rows := make([]string, many)
		for i := range rows {
			rows[i] = fmt.Sprintf(`('%s', 0, %d, 'a', 'x', 'k', '%d', '', '', '', '', '', '', '')`, [2]string{"default", "other"}[i%2], i+1, i)
		}
		raw(t, c, `INSERT INTO audit (workspace_id, place, at, actor, action, kind, object, run_id, call_id, digest, decision, detail, prev, hash)
			VALUES `+strings.Join(rows, ", "))
		if c.DSN == "" {
			d, into := dump(t, c), store.Config{Dir: t.TempDir(), Box: c.Box}
			_, err := store.Load(t.Context(), into, store.Loading{Shape: d.Shape(), Chunks: d.Chunks(t.Context())})
			must(t, err)
			c = into
		}
		db := open(t, c)
		list, err := db.Audit(t.Context(), system(), hob.AuditFilter{Limit: 1000, Action: "x"})
		must(t, err)
		if len(list) != many/2 {
			t.Fatalf("%d entries are linked, want %d", len(list), many/2)
		}
		for i, e := range list {
			if e.Object != fmt.Sprint(2*i) {
				t.Fatalf("entry %d tells of %s", i, e.Object)
			}
		}
		if c.DSN != "" && db.Stats().Commits < 3 {
			t.Errorf("%d transactions linked them", db.Stats().Commits)
		}
		if got := verify(t, c, ""); got.Broken != nil || got.Loose != 0 {
			t.Errorf("%+v", got)
		}
	})
}
