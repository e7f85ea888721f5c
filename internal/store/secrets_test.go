package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hob"
	"hob/internal/store"
)

// TestSecrets_ThatDoNotOpen: a value that was moved to another place is nobody's any more. Model calls and settings do
// without it, and the list of keys clears it away.
func TestSecrets_ThatDoNotOpen(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db, err := store.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.PutProviderKeys(t.Context(), system(), []hob.ProviderKey{
			{Provider: "openai", Key: "sk-0123456789abc"}, {Provider: "google", Key: "g-0123456789abc"}, {Provider: "local", BaseURL: "http://a/v1"},
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.ChangeSettings(t.Context(), system(), map[string]*hob.StoredSetting{
			"A": {Value: "a", Secret: true}, "B": {Value: "b", Secret: true}, "C": {Value: "c"},
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		raw(t, c, `UPDATE provider_keys SET sealed = (SELECT sealed FROM provider_keys WHERE provider = 'openai') WHERE provider = 'google'`,
			`UPDATE settings SET sealed = (SELECT sealed FROM settings WHERE key = 'A') WHERE key = 'B'`)
		db = open(t, c)
		got, err := db.StoredSettings(t.Context(), hob.DefaultWorkspace)
		if _, there := got["B"]; err != nil || len(got) != 2 || got["A"].Value != "a" || got["C"].Value != "c" || there {
			t.Errorf("settings: %v, %v", got, err)
		}
		providers := func(list []hob.ProviderKey, err error) string {
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, k := range list {
				names = append(names, k.Provider)
			}
			return strings.Join(names, " ")
		}
		if p := providers(db.OpenProviderKeys(t.Context(), hob.DefaultWorkspace)); p != "local openai" {
			t.Errorf("for model calls: %s", p)
		}
		// Its mask does not bring it back, and the key itself does.
		if _, err := db.PutProviderKeys(t.Context(), system(), []hob.ProviderKey{{Provider: "google", Key: hob.Mask}}); hob.KindOf(err) != hob.Invalid {
			t.Errorf("put with the mask: %v", err)
		}
		if p := providers(db.ProviderKeys(t.Context(), system())); p != "local openai" {
			t.Errorf("listed: %s", p)
		}
		if err := db.DeleteProviderKey(t.Context(), system(), "google"); hob.KindOf(err) != hob.NotFound {
			t.Errorf("the row is still there: %v", err)
		}
		if _, err := db.PutProviderKeys(t.Context(), system(), []hob.ProviderKey{{Provider: "google", Key: "g-new-0123456789"}}); err != nil {
			t.Fatal(err)
		}
		if p := providers(db.OpenProviderKeys(t.Context(), hob.DefaultWorkspace)); p != "google local openai" {
			t.Errorf("after a new key: %s", p)
		}
	})
}

// TestSecrets_OfSettingsAndProvidersAreNotInTheFiles reads what a thief of the disk reads.
func TestSecrets_OfSettingsAndProvidersAreNotInTheFiles(t *testing.T) {
	t.Parallel()
	c := store.Config{Dir: t.TempDir()}
	db := open(t, c)
	if _, err := db.PutProviderKeys(t.Context(), system(), []hob.ProviderKey{{Provider: "openai", Key: "sk-tops3cret-value", BaseURL: "http://visible.example/v1"}}); err != nil {
		t.Fatal(err)
	}
	if err := db.ChangeSettings(t.Context(), system(), map[string]*hob.StoredSetting{"EXA_API_KEY": {Value: "tops3cret-value", Secret: true}}); err != nil {
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
	if !bytes.Contains(all, []byte("visible.example")) || !bytes.Contains(all, []byte("EXA_API_KEY")) {
		t.Fatal("the files do not hold the rows at all")
	}
	if bytes.Contains(all, []byte("tops3cret")) {
		t.Error("the files hold a secret")
	}
}

// TestConfigured_IsAskedOnceWhereNobodyElseWrites: what a run's start asks for comes from memory on SQLite, and another
// process's change is seen at once on Postgres.
func TestConfigured_IsAskedOnceWhereNobodyElseWrites(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		db := open(t, c)
		if err := db.ChangeSettings(t.Context(), system(), map[string]*hob.StoredSetting{"k": {Value: "mine"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := db.PutProviderKeys(t.Context(), system(), []hob.ProviderKey{{Provider: "p", BaseURL: "mine"}}); err != nil {
			t.Fatal(err)
		}
		if err := db.PutProfile(t.Context(), system(), hob.ModelProfile{Endpoint: "mine", Model: "m"}); err != nil {
			t.Fatal(err)
		}
		read := func() string {
			settings, err := db.StoredSettings(t.Context(), hob.DefaultWorkspace)
			if err != nil {
				t.Fatal(err)
			}
			keys, err := db.OpenProviderKeys(t.Context(), hob.DefaultWorkspace)
			if err != nil {
				t.Fatal(err)
			}
			profiles, err := db.Profiles(t.Context())
			if err != nil || len(keys) != 1 || len(profiles) != 1 {
				t.Fatalf("%v %v %v", keys, profiles, err)
			}
			return settings["k"].Value + " " + keys[0].BaseURL + " " + profiles[0].Endpoint
		}
		if got := read(); got != "mine mine mine" {
			t.Fatal(got)
		}
		raw(t, c, `UPDATE settings SET value = 'theirs'`, `UPDATE provider_keys SET base_url = 'theirs'`, `UPDATE model_profiles SET endpoint = 'theirs'`)
		want := "mine mine mine"
		if c.DSN != "" {
			want = "theirs theirs theirs"
		}
		if got := read(); got != want {
			t.Errorf("read %s, want %s", got, want)
		}
		if err := db.ChangeSettings(t.Context(), system(), map[string]*hob.StoredSetting{"other": {}}); err != nil { // all is forgotten
			t.Fatal(err)
		}
		if got := read(); got != "theirs theirs theirs" {
			t.Errorf("after a change: %s", got)
		}
	})
}

// TestUsage_IsFoundByAnIndex: reports and budgets look at the entries they are about, however long the ledger is.
func TestUsage_IsFoundByAnIndex(t *testing.T) {
	t.Parallel()
	at := hob.Time{Time: hob.SystemClock()}
	id := hob.AgentID(hob.NewUUID())
	for name, tc := range map[string]struct {
		ask  func(db *store.DB) error
		want string
	}{
		"a week": {func(db *store.DB) error {
			_, err := db.Usage(t.Context(), system(), hob.UsageFilter{Since: at, Until: at, GroupBy: hob.ByModel})
			return err
		}, "usage_workspace (workspace_id=? AND created_at>? AND created_at<?)"},
		"an agent's week": {func(db *store.DB) error {
			_, err := db.Usage(t.Context(), system(), hob.UsageFilter{Since: at, Agent: id})
			return err
		}, "usage_agent (workspace_id=? AND agent_id=? AND created_at>?)"},
		"a run": {func(db *store.DB) error {
			n := keyed(agentOf(t, db, "a").ID, "k", 1)
			if _, err := db.StartRun(t.Context(), n); err != nil {
				return err
			}
			_, err := db.Usage(t.Context(), system(), hob.UsageFilter{Run: n.Run.ID})
			return err
		}, "usage_run (run_n=?)"},
		"an agent's budget": {func(db *store.DB) error {
			_, err := db.AgentUsage(t.Context(), id, at)
			return err
		}, "usage_agent (workspace_id=? AND agent_id=? AND created_at>?)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, store.Config{Dir: t.TempDir()})
			if err := tc.ask(db); err != nil {
				t.Fatal(err)
			}
			asked := 0
			for _, s := range db.Statements() {
				if !strings.Contains(s, "FROM usage") {
					continue
				}
				asked++
				plan, err := db.Plan(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				if text := strings.Join(plan, "\n"); !strings.Contains(text, tc.want) {
					t.Errorf("%s\n%s", text, s)
				}
			}
			if asked != 1 {
				t.Errorf("%d statements about the ledger", asked)
			}
		})
	}
}
