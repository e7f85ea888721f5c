package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func settingCases() map[string]func(*world) {
	return map[string]func(*world){
		"SettingsAreKeptAllOrNone":               settingsKept,
		"SettingMaskKeepsTheStoredValue":         settingMask,
		"SettingsAreTheAdministrators":           settingRights,
		"SettingsReadAreTheReadersOwn":           settingsApart,
		"ProviderKeyIsKeptAndMasked":             providerKeyKept,
		"ProviderKeyIsReplaced":                  providerKeyReplaced,
		"ProviderKeysArePutAllOrNone":            providerKeysTogether,
		"ProviderKeyMaskKeepsTheStoredKey":       providerKeyMask,
		"ProviderKeyIsDeletedOnce":               providerKeyDeleted,
		"ProviderKeysAreTheAdministrators":       providerKeyRights,
		"ProviderKeysPutTogetherStayOne":         providerKeyRace,
		"ProfilesAreKeptByEndpointAndModel":      profilesKept,
		"ProfileIsDeletedOnce":                   profileDeleted,
		"ProfilesAreWrittenByAdministratorsOnly": profileRights,
	}
}

// bound is an administrator's key that is bound to one agent.
func (w *world) boundAdmin() hob.Principal {
	p := w.boundTo(w.agent.ID)
	p.Scopes = []hob.Scope{hob.ScopeAdmin}
	return p
}

func (w *world) settings() map[string]hob.StoredSetting {
	w.t.Helper()
	got, err := w.s.StoredSettings(w.ctx, hob.DefaultWorkspace)
	w.must(err)
	return got
}

func (w *world) sameSettings(want map[string]hob.StoredSetting) {
	w.t.Helper()
	if d := cmp.Diff(want, w.settings()); d != "" {
		w.t.Fatalf("-want +stored:\n%s", d)
	}
}

func settingsKept(w *world) {
	w.sameSettings(map[string]hob.StoredSetting{})
	w.must(w.s.ChangeSettings(w.ctx, w.service, map[string]*hob.StoredSetting{
		"A": {Value: "1"}, "B": {Value: ""}, "S": {Value: "s3cret-value", Secret: true},
	}))
	w.sameSettings(map[string]hob.StoredSetting{"A": {Value: "1"}, "B": {}, "S": {Value: "s3cret-value", Secret: true}})
	w.must(w.s.ChangeSettings(w.ctx, w.service, map[string]*hob.StoredSetting{"A": {Value: "2"}, "B": nil, "never": nil}))
	w.sameSettings(map[string]hob.StoredSetting{"A": {Value: "2"}, "S": {Value: "s3cret-value", Secret: true}})
	// A secret may become a plain value and the other way round.
	w.must(w.s.ChangeSettings(w.ctx, w.service, map[string]*hob.StoredSetting{"A": {Value: "hidden", Secret: true}, "S": {Value: "shown"}}))
	w.sameSettings(map[string]hob.StoredSetting{"A": {Value: "hidden", Secret: true}, "S": {Value: "shown"}})
	w.want(hob.Invalid, w.s.ChangeSettings(w.ctx, w.service, map[string]*hob.StoredSetting{"A": {Value: "3"}, "": {Value: "x"}, "Z": {Value: "z"}}))
	w.sameSettings(map[string]hob.StoredSetting{"A": {Value: "hidden", Secret: true}, "S": {Value: "shown"}})
	got, err := w.s.StoredSettings(w.ctx, "elsewhere")
	w.must(err)
	same(w, "settings of another workspace", len(got), 0)
}

func settingMask(w *world) {
	w.must(w.s.ChangeSettings(w.ctx, w.service, map[string]*hob.StoredSetting{"S": {Value: "one", Secret: true}}))
	w.must(w.s.ChangeSettings(w.ctx, w.service, map[string]*hob.StoredSetting{
		"S": {Value: hob.Mask, Secret: true}, "never": {Value: hob.Mask + "last", Secret: true}, "plain": {Value: hob.Mask},
	}))
	w.sameSettings(map[string]hob.StoredSetting{"S": {Value: "one", Secret: true}, "plain": {Value: hob.Mask}})
}

func settingRights(w *world) {
	change := map[string]*hob.StoredSetting{"A": {Value: "1"}}
	for _, by := range []hob.Principal{w.alice, w.key, w.boundTo(w.agent.ID), w.boundAdmin()} {
		w.want(hob.Forbidden, w.s.ChangeSettings(w.ctx, by, change))
	}
	w.sameSettings(map[string]hob.StoredSetting{})
}

// settingsApart: who changes what was read does not change what the next one reads.
func settingsApart(w *world) {
	w.must(w.s.ChangeSettings(w.ctx, w.service, map[string]*hob.StoredSetting{"A": {Value: "1"}}))
	w.settings()["A"] = hob.StoredSetting{Value: "spoilt"}
	w.sameSettings(map[string]hob.StoredSetting{"A": {Value: "1"}})
	w.put(hob.ProviderKey{Provider: "openai", BaseURL: "http://a/v1"})
	w.openKeys()[0].Key = "spoilt"
	same(w, "key", string(w.openKeys()[0].Key), "")
}

func (w *world) put(keys ...hob.ProviderKey) []hob.ProviderKey {
	w.t.Helper()
	got, err := w.s.PutProviderKeys(w.ctx, w.service, keys)
	w.must(err)
	return got
}

func (w *world) openKeys() []hob.ProviderKey {
	w.t.Helper()
	got, err := w.s.OpenProviderKeys(w.ctx, hob.DefaultWorkspace)
	w.must(err)
	return got
}

func providerKeyKept(w *world) {
	same(w, "keys at first", len(w.openKeys()), 0)
	tested := now()
	put := w.put(
		hob.ProviderKey{Provider: "openai", Key: "sk-0123456789abcdef", IsValid: true, LastValidatedAt: tested},
		hob.ProviderKey{Provider: "anthropic", Key: "tiny-key", BaseURL: "https://models.example/v1"},
		hob.ProviderKey{Provider: "local", BaseURL: "http://10.0.0.7:8000/v1"},
	)
	list, err := w.s.ProviderKeys(w.ctx, w.service)
	w.must(err)
	if d := cmp.Diff([]hob.ProviderKey{put[1], put[2], put[0]}, list); d != "" {
		w.t.Fatalf("-put +listed by provider:\n%s", d)
	}
	// Of a key that is short too little would be left to guess.
	for i, want := range []string{hob.Mask + "cdef", hob.Mask, ""} {
		same(w, "mask of "+put[i].Provider, put[i].MaskedKey, want)
		same(w, "secret of "+put[i].Provider, string(put[i].Key), "")
		if !hob.IsUUID(put[i].ID) || put[i].CreatedAt.IsZero() || !put[i].CreatedAt.Equal(put[i].UpdatedAt.Time) {
			w.t.Fatalf("a new key has id %q and times %v, %v", put[i].ID, put[i].CreatedAt, put[i].UpdatedAt)
		}
	}
	if !put[0].IsValid || !put[0].LastValidatedAt.Equal(tested.Time) || put[1].IsValid || !put[1].LastValidatedAt.IsZero() {
		w.t.Fatalf("validation: %+v", put)
	}
	shown, err := json.Marshal(w.openKeys())
	w.must(err)
	if text := string(shown) + fmt.Sprintf("%v %+v", w.openKeys(), w.openKeys()); strings.Contains(text, "0123456789") || strings.Contains(text, "tiny") {
		w.t.Fatal("an opened key shows its secret")
	}
	var opened []string
	for _, k := range w.openKeys() {
		opened = append(opened, k.Provider+"="+string(k.Key)+"@"+k.BaseURL)
	}
	same(w, "opened", strings.Join(opened, " "),
		"anthropic=tiny-key@https://models.example/v1 local=@http://10.0.0.7:8000/v1 openai=sk-0123456789abcdef@")
	elsewhere, err := w.s.OpenProviderKeys(w.ctx, "elsewhere")
	w.must(err)
	same(w, "keys of another workspace", len(elsewhere), 0)
}

func providerKeyReplaced(w *world) {
	first := w.put(hob.ProviderKey{Provider: "openai", Key: "sk-first-0123456789", BaseURL: "https://a.example/v1", IsValid: true, LastValidatedAt: now()})[0]
	second := w.put(hob.ProviderKey{Provider: "openai", Key: "sk-second-0123456789"})[0]
	want := hob.ProviderKey{ID: first.ID, Provider: "openai", MaskedKey: hob.Mask + "6789", CreatedAt: first.CreatedAt, UpdatedAt: second.UpdatedAt}
	if d := cmp.Diff(want, second); d != "" || !second.UpdatedAt.After(first.CreatedAt.Time) {
		w.t.Fatalf("updated at %v after %v; -want +got:\n%s", second.UpdatedAt, first.CreatedAt, d)
	}
	open := w.openKeys()
	if len(open) != 1 || open[0].Key != "sk-second-0123456789" || open[0].BaseURL != "" {
		w.t.Fatalf("after the replacement: %+v", open)
	}
}

func providerKeysTogether(w *world) {
	w.put(hob.ProviderKey{Provider: "openai", Key: "sk-kept-0123456789"})
	for name, keys := range map[string][]hob.ProviderKey{
		"no provider":  {{Key: "k"}},
		"nothing":      {{Provider: "google"}},
		"twice":        {{Provider: "google", Key: "a"}, {Provider: "google", Key: "b"}},
		"unknown mask": {{Provider: "openai", Key: "sk-lost-0123456789"}, {Provider: "google", Key: hob.Mask}},
	} {
		got, err := w.s.PutProviderKeys(w.ctx, w.service, keys)
		if hob.KindOf(err) != hob.Invalid || got != nil {
			w.t.Fatalf("%s: %v, %v", name, got, err)
		}
	}
	if open := w.openKeys(); len(open) != 1 || open[0].Key != "sk-kept-0123456789" {
		w.t.Fatalf("refused keys left: %+v", open)
	}
	same(w, "nothing to put", len(w.put()), 0)
}

func providerKeyMask(w *world) {
	const secret = "sk-secret-0123456789"
	at := hob.ProviderKey{Provider: "openai", Key: secret, BaseURL: "https://a.example/v1"}
	w.put(at)
	tested := now()
	for _, mask := range []hob.Secret{hob.Mask, hob.Mask + "6789"} {
		got := w.put(hob.ProviderKey{Provider: "openai", Key: mask, BaseURL: at.BaseURL, IsValid: true, LastValidatedAt: tested})[0]
		if got.MaskedKey != hob.Mask+"6789" || !got.IsValid || !got.LastValidatedAt.Equal(tested.Time) {
			w.t.Fatalf("put with the mask: %+v", got)
		}
		same(w, "key", string(w.openKeys()[0].Key), secret)
	}
	_, err := w.s.PutProviderKeys(w.ctx, w.service, []hob.ProviderKey{{Provider: "openai", Key: hob.Mask, BaseURL: "https://evil.example/v1"}})
	w.want(hob.Invalid, err)
	same(w, "address", w.openKeys()[0].BaseURL, at.BaseURL)
	w.put(hob.ProviderKey{Provider: "openai", BaseURL: at.BaseURL}) // without a key from now on
	_, err = w.s.PutProviderKeys(w.ctx, w.service, []hob.ProviderKey{{Provider: "openai", Key: hob.Mask, BaseURL: at.BaseURL}})
	w.want(hob.Invalid, err)
}

func providerKeyDeleted(w *world) {
	w.put(hob.ProviderKey{Provider: "openai", Key: "a"}, hob.ProviderKey{Provider: "google", Key: "b"})
	same(w, "keys", len(w.openKeys()), 2)
	w.must(w.s.DeleteProviderKey(w.ctx, w.service, "openai"))
	w.want(hob.NotFound, w.s.DeleteProviderKey(w.ctx, w.service, "openai"))
	w.want(hob.NotFound, w.s.DeleteProviderKey(w.ctx, w.stranger, "google"))
	open := w.openKeys()
	if len(open) != 1 || open[0].Provider != "google" {
		w.t.Fatalf("left: %+v", open)
	}
}

func providerKeyRights(w *world) {
	w.put(hob.ProviderKey{Provider: "openai", Key: "a"})
	for _, by := range []hob.Principal{w.alice, w.key, w.boundTo(w.agent.ID), w.boundAdmin()} {
		_, err := w.s.ProviderKeys(w.ctx, by)
		w.want(hob.Forbidden, err)
		_, err = w.s.PutProviderKeys(w.ctx, by, []hob.ProviderKey{{Provider: "openai", Key: "b"}})
		w.want(hob.Forbidden, err)
		w.want(hob.Forbidden, w.s.DeleteProviderKey(w.ctx, by, "openai"))
	}
	same(w, "key", string(w.openKeys()[0].Key), "a")
	list, err := w.s.ProviderKeys(w.ctx, w.stranger)
	w.must(err)
	same(w, "keys another workspace sees", len(list), 0)
}

func providerKeyRace(w *world) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := w.s.PutProviderKeys(w.ctx, w.service, []hob.ProviderKey{{Provider: "openai", Key: hob.Secret(fmt.Sprintf("sk-0123456789-%d", i))}})
			if err != nil {
				w.t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := w.s.ProviderKeys(w.ctx, w.service)
	w.must(err)
	same(w, "keys", len(list), 1)
	same(w, "keys that open", len(w.openKeys()), 1)
}

func profilesKept(w *world) {
	list, err := w.s.Profiles(w.ctx)
	w.must(err)
	same(w, "profiles at first", len(list), 0)
	day := hob.Time{Time: hob.SystemClock().Add(-24 * time.Hour)}
	profiles := []hob.ModelProfile{
		{Endpoint: "http://b/v1", Model: "m", TestedAt: day, Facts: json.RawMessage(`{"tools":true}`)},
		{Endpoint: "http://a/v1", Model: "m2", TestedAt: day, Facts: json.RawMessage(`{}`)},
		{Endpoint: "http://a/v1", Model: "m1", TestedAt: day},
	}
	for _, p := range profiles {
		w.must(w.s.PutProfile(w.ctx, w.service, p))
	}
	again := hob.ModelProfile{Endpoint: "http://b/v1", Model: "m", Facts: json.RawMessage(`{"tools":false}`)}
	w.must(w.s.PutProfile(w.ctx, w.service, again))
	list, err = w.s.Profiles(w.ctx)
	w.must(err)
	same(w, "profiles", len(list), 3)
	if !list[2].TestedAt.After(day.Time) {
		w.t.Fatalf("a profile without a time was tested at %v", list[2].TestedAt)
	}
	profiles[2].Facts, again.TestedAt = json.RawMessage(`{}`), list[2].TestedAt
	if d := cmp.Diff([]hob.ModelProfile{profiles[2], profiles[1], again}, list); d != "" {
		w.t.Fatalf("-want +listed:\n%s", d)
	}
	for _, p := range []hob.ModelProfile{
		{Model: "m"},
		{Endpoint: "e"},
		{Endpoint: "e", Model: "m", Facts: json.RawMessage(`[1]`)},
		{Endpoint: "e", Model: "m", Facts: json.RawMessage(`{"a":`)},
	} {
		w.want(hob.Invalid, w.s.PutProfile(w.ctx, w.service, p))
	}
}

func profileDeleted(w *world) {
	for _, model := range []string{"m", "other"} {
		w.must(w.s.PutProfile(w.ctx, w.service, hob.ModelProfile{Endpoint: "http://a/v1", Model: model}))
	}
	w.want(hob.NotFound, w.s.DeleteProfile(w.ctx, w.service, "http://b/v1", "m"))
	w.must(w.s.DeleteProfile(w.ctx, w.service, "http://a/v1", "m"))
	w.want(hob.NotFound, w.s.DeleteProfile(w.ctx, w.service, "http://a/v1", "m"))
	list, err := w.s.Profiles(w.ctx)
	w.must(err)
	if len(list) != 1 || list[0].Model != "other" {
		w.t.Fatalf("left are %+v", list)
	}
}

func profileRights(w *world) {
	w.must(w.s.PutProfile(w.ctx, w.service, hob.ModelProfile{Endpoint: "kept", Model: "m"}))
	for _, by := range []hob.Principal{w.alice, w.key, w.boundTo(w.agent.ID), w.boundAdmin()} {
		w.want(hob.Forbidden, w.s.PutProfile(w.ctx, by, hob.ModelProfile{Endpoint: "e", Model: "m"}))
		w.want(hob.Forbidden, w.s.DeleteProfile(w.ctx, by, "kept", "m"))
	}
	list, err := w.s.Profiles(w.ctx)
	w.must(err)
	same(w, "profiles", len(list), 1)
}
