package settings_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/settings"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// memory is a store of settings without rights: what is judged here happens before it.
type memory struct {
	mu     sync.Mutex
	values map[hob.WorkspaceID]map[string]hob.StoredSetting
	writes int
	fault  error
}

func (m *memory) StoredSettings(_ context.Context, ws hob.WorkspaceID) (map[string]hob.StoredSetting, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.values[ws]), m.fault
}

func (m *memory) ChangeSettings(_ context.Context, by hob.Principal, change map[string]*hob.StoredSetting) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return m.fault
	}
	m.writes++
	if m.values == nil {
		m.values = map[hob.WorkspaceID]map[string]hob.StoredSetting{}
	}
	if m.values[by.Workspace] == nil {
		m.values[by.Workspace] = map[string]hob.StoredSetting{}
	}
	for k, v := range change {
		if v == nil {
			delete(m.values[by.Workspace], k)
		} else {
			m.values[by.Workspace][k] = *v
		}
	}
	return nil
}

// sample is a registry with every type of value.
func sample() []settings.Key {
	number := func(n float64) *float64 { return &n }
	return []settings.Key{
		{Name: "COUNT", Category: "agents", Type: hob.IntSetting, Default: "10", Min: number(1), Max: number(100)},
		{Name: "RATIO", Category: "agents", Type: hob.FloatSetting, Default: "0.5", Min: number(0), Max: number(1)},
		{Name: "NAME", Category: "agents", Type: hob.StringSetting, MaxBytes: 8},
		{Name: "MODE", Category: "compaction", Type: hob.StringSetting, Default: "slow", Choices: []string{"slow", "fast"}},
		{Name: "ON", Category: "compaction", Type: hob.BoolSetting, Default: "false"},
		{Name: "TOKEN", Category: "usage", Type: hob.StringSetting, Secret: true, Env: "TOKEN_OF_THE_OPERATOR"},
		{Name: "PAIRS", Category: "usage", Type: hob.StringSetting},
		{Name: "OBJECT", Category: "usage", Type: hob.StringSetting, JSON: true},
	}
}

func open(t *testing.T, c settings.Config) (*settings.Set, *memory) {
	t.Helper()
	m := &memory{}
	c.Store = m
	if c.Keys == nil {
		c.Keys = sample()
	}
	s, err := settings.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, m
}

func admin(ws hob.WorkspaceID) hob.Principal { return hob.System(ws) }

// values are a change as it comes in JSON.
func values(t *testing.T, text string) map[string]json.RawMessage {
	t.Helper()
	var v map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestChange_TellsWhatIsWrongWithEachValue(t *testing.T) {
	t.Parallel()
	s, m := open(t, settings.Config{Checks: map[string]func(string) error{
		"PAIRS": func(v string) error {
			if !json.Valid([]byte(v)) {
				return hob.Errorf(hob.Invalid, "Value must be JSON")
			}
			return nil
		},
	}})
	for body, want := range map[string]string{
		`{"NOTHING":1}`:                       "Unknown setting: NOTHING",
		`{"COUNT":"many"}`:                    "Invalid int value: many",
		`{"COUNT":1.5}`:                       "Invalid int value: 1.5",
		`{"COUNT":true}`:                      "Invalid int value: true",
		`{"COUNT":null}`:                      "Invalid int value: null",
		`{"COUNT":[1]}`:                       "Invalid int value: [1]",
		`{"COUNT":""}`:                        "Invalid int value: ",
		`{"COUNT":1e400}`:                     "Invalid int value: 1e400",
		`{"COUNT":0}`:                         "Value must be >= 1",
		`{"COUNT":101}`:                       "Value must be <= 100",
		`{"RATIO":"NaN"}`:                     "Invalid float value: NaN",
		`{"RATIO":"x"}`:                       "Invalid float value: x",
		`{"RATIO":1.01}`:                      "Value must be <= 1",
		`{"RATIO":-0.01}`:                     "Value must be >= 0",
		`{"NAME":"nine bytes"}`:               "Value must be at most 8 bytes",
		`{"NAME":{"a":1}}`:                    `Invalid str value: {"a":1}`,
		`{"MODE":"medium"}`:                   "Value must be one of: slow, fast",
		`{"MODE":""}`:                         "Value must be one of: slow, fast",
		`{"ON":"maybe"}`:                      "Invalid bool value: maybe",
		`{"ON":2}`:                            "Invalid bool value: 2",
		`{"PAIRS":"{"}`:                       "Value must be JSON",
		`{"TOKEN":["s3cret"]}`:                "Invalid str value",
		`{"PAIRS":"` + long(64<<10+1) + `"}`:  "Value must be at most 65536 bytes",
		`{"COUNT":"` + long(100) + `"}`:       "Invalid int value: " + long(64) + "…",
		`{"` + long(100) + `":1}`:             "Unknown setting: " + long(64) + "…",
		`{"COUNT":99999999999999999999999.0}`: "Invalid int value: 99999999999999999999999.0",
	} {
		_, err := s.Change(t.Context(), admin("w"), values(t, body))
		var e *hob.Error
		if !errors.As(err, &e) || e.Kind != hob.Invalid || e.Message != "Validation failed" || e.Code != "validation_failed" {
			t.Errorf("%.80s: %v", body, err)
			continue
		}
		if len(e.Details) != 1 {
			t.Errorf("%.80s: details %v", body, e.Details)
		}
		for key, got := range e.Details {
			if got != want {
				t.Errorf("%.80s: %s: %q, want %q", body, key, got, want)
			}
		}
	}
	if m.writes != 0 {
		t.Errorf("%d refused changes were written", m.writes)
	}
	if _, err := s.Change(t.Context(), admin("w"), nil); err == nil || err.Error() != "No settings provided" {
		t.Errorf("nothing: %v", err)
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestChange_IsAllOrNothingAndTellsEveryFault(t *testing.T) {
	t.Parallel()
	s, m := open(t, settings.Config{})
	_, err := s.Change(t.Context(), admin("w"), values(t, `{"COUNT":5,"RATIO":7,"MODE":"medium"}`))
	var e *hob.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is %v", err)
	}
	want := map[string]any{"RATIO": "Value must be <= 1", "MODE": "Value must be one of: slow, fast"}
	if diff := cmp.Diff(want, e.Details); diff != "" || m.writes != 0 {
		t.Errorf("%d writes, details (-want +got):\n%s", m.writes, diff)
	}
	flood := map[string]json.RawMessage{}
	for i := range 1000 {
		flood["K"+strconv.Itoa(i)] = json.RawMessage("1")
	}
	if _, err = s.Change(t.Context(), admin("w"), flood); !errors.As(err, &e) || len(e.Details) != 100 {
		t.Errorf("a flood of faults: %d are told, want 100", len(e.Details))
	}
}

func TestChange_TakesEveryFormOfAValue(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]any{
		`{"COUNT":7}`: int64(7), `{"COUNT":"7"}`: int64(7), `{"COUNT":" 7 "}`: int64(7), `{"COUNT":7.0}`: int64(7), `{"COUNT":1e2}`: int64(100),
		`{"COUNT":1}`: int64(1), `{"RATIO":0}`: 0.0, `{"RATIO":1}`: 1.0, `{"RATIO":"0.25"}`: 0.25, `{"RATIO":1e-7}`: 1e-7,
		`{"ON":true}`: true, `{"ON":"Yes"}`: true, `{"ON":1}`: true, `{"ON":"1"}`: true, `{"ON":false}`: false, `{"ON":"no"}`: false, `{"ON":0}`: false,
		`{"NAME":"a"}`: "a", `{"NAME":" a "}`: "a", `{"NAME":""}`: "", `{"NAME":12}`: "12", `{"NAME":true}`: "true", `{"MODE":"fast"}`: "fast",
	} {
		s, m := open(t, settings.Config{})
		given := values(t, body)
		updated, err := s.Change(t.Context(), admin("w"), given)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		key := updated[0]
		if got := listed(t, s, "w")[key].Value; got != want || len(updated) != 1 {
			t.Errorf("%s: reads as %#v, want %#v; updated %v", body, got, want, updated)
		}
		if m.values["w"][key].Secret {
			t.Errorf("%s is stored as a secret", key)
		}
	}
}

func TestChange_TakesAnObjectWhereOneIsMeant(t *testing.T) {
	t.Parallel()
	s, _ := open(t, settings.Config{})
	for _, sent := range []string{`{"a": {"b": [1, 2]}}`, `"{ \"a\" :\n{\"b\":[1,2]} }"`} {
		if _, err := s.Change(t.Context(), admin("w"), values(t, `{"OBJECT":`+sent+`}`)); err != nil {
			t.Errorf("%s: %v", sent, err)
		}
		if got, err := s.Value(t.Context(), "w", "OBJECT"); err != nil || got != `{"a":{"b":[1,2]}}` {
			t.Errorf("%s became %q, %v", sent, got, err)
		}
	}
	for sent, want := range map[string]string{
		`"{\"a\": 1,\n \"é\": oops}"`: "line 2, column 7: invalid character 'o'",
		`"{\"a\": 1"`:                 "line 1, column 7: unexpected end of JSON input",
		`"[1]"`:                       "must be a JSON object",
		`[1]`:                         "Invalid str value",
		`"null"`:                      "must be a JSON object",
	} {
		_, err := s.Change(t.Context(), admin("w"), values(t, `{"OBJECT":`+sent+`}`))
		var e *hob.Error
		if !errors.As(err, &e) || !strings.Contains(fmt.Sprint(e.Details["OBJECT"]), want) {
			t.Errorf("%s: %+v, want %q", sent, err, want)
		}
	}
	if _, err := s.Change(t.Context(), admin("w"), values(t, `{"PAIRS":{}}`)); hob.KindOf(err) != hob.Invalid {
		t.Errorf("an object for a text: %v", err)
	}
}

func TestOne_IsAsInTheListAndTellsWhereItsValueIsFrom(t *testing.T) {
	t.Parallel()
	env := map[string]string{"HOB_COUNT": "20", "HOB_RATIO": "0.25"}
	s, m := open(t, settings.Config{Getenv: func(name string) string { return env[name] }})
	if _, err := s.Change(t.Context(), admin("w"), values(t, `{"COUNT":30,"TOKEN":"ours"}`)); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"COUNT": hob.FromWorkspace, "TOKEN": hob.FromWorkspace, "RATIO": hob.FromEnvironment, "NAME": hob.FromDefault, "MODE": hob.FromDefault,
	} {
		one, err := s.One(t.Context(), "w", key)
		if err != nil || one.Source != want {
			t.Errorf("%s is from %q, %v, want %q", key, one.Source, err, want)
		}
		if diff := cmp.Diff(listed(t, s, "w")[key], one); diff != "" {
			t.Errorf("%s (-listed +alone):\n%s", key, diff)
		}
	}
	m.values["w"]["COUNT"] = hob.StoredSetting{Value: "many"} // which counts as none
	if one, err := s.One(t.Context(), "w", "COUNT"); err != nil || one.Source != hob.FromEnvironment || one.Value != int64(20) {
		t.Errorf("a stored value that is not valid: %+v, %v", one, err)
	}
	if _, err := s.One(t.Context(), "w", "NOTHING"); hob.KindOf(err) != hob.NotFound {
		t.Errorf("an unknown setting: %v", err)
	}
	m.fault = errors.New("gone")
	if _, err := s.One(t.Context(), "w", "COUNT"); !errors.Is(err, m.fault) {
		t.Errorf("of a store that is gone: %v", err)
	}
}

// listed are the settings of a workspace by key.
func listed(t *testing.T, s *settings.Set, ws hob.WorkspaceID) map[string]hob.Setting {
	t.Helper()
	list, err := s.List(t.Context(), ws)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]hob.Setting{}
	for _, c := range list {
		for _, k := range c.Settings {
			all[k.Key] = k
		}
	}
	return all
}

func TestValue_StoredThenEnvironmentThenDefault(t *testing.T) {
	t.Parallel()
	env := map[string]string{"HOB_COUNT": " 20 ", "TOKEN_OF_THE_OPERATOR": "theirs"}
	s, m := open(t, settings.Config{Getenv: func(name string) string { return env[name] }})
	want := func(ws hob.WorkspaceID, key, value string) {
		t.Helper()
		if got, err := s.Value(t.Context(), ws, key); err != nil || got != value {
			t.Errorf("%s of %s is %q, %v, want %q", key, ws, got, err, value)
		}
	}
	want("w", "RATIO", "0.5")
	want("w", "COUNT", "20")
	want("w", "TOKEN", "theirs")
	want("w", "NAME", "")
	if k := listed(t, s, "w"); k["COUNT"].Default != int64(20) || k["TOKEN"].Value != hob.Mask || k["TOKEN"].Default != "" {
		t.Errorf("with the environment: %+v, %+v", k["COUNT"], k["TOKEN"])
	}
	for range 2 { // the second time from what is known to be good
		if _, err := s.Change(t.Context(), admin("w"), values(t, `{"COUNT":30,"TOKEN":"ours"}`)); err != nil {
			t.Fatal(err)
		}
		want("w", "COUNT", "30")
		want("w", "COUNT", "30")
		want("w", "TOKEN", "ours")
		want("another", "COUNT", "20")
	}
	for _, bad := range []string{"many", "0", "1e9", ""} { // as a former version may have taken it
		m.values["w"]["COUNT"] = hob.StoredSetting{Value: bad}
		want("w", "COUNT", "20")
		if got := listed(t, s, "w")["COUNT"].Value; got != int64(20) {
			t.Errorf("with %q stored the list has %v", bad, got)
		}
	}
	m.fault = errors.New("gone")
	if _, err := s.Value(t.Context(), "w", "COUNT"); !errors.Is(err, m.fault) {
		t.Errorf("of a store that is gone: %v", err)
	}
	if _, err := s.Value(t.Context(), "w", "NOTHING"); hob.KindOf(err) != hob.Internal {
		t.Errorf("a key that does not exist: %v", err)
	}
}

func TestNew_RefusesABadEnvironment(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"HOB_COUNT": "1000", "HOB_MODE": "medium", "HOB_ON": "perhaps"} {
		_, err := settings.New(settings.Config{Store: &memory{}, Keys: sample(), Getenv: func(n string) string {
			if n == name {
				return value
			}
			return ""
		}})
		if hob.KindOf(err) != hob.Invalid || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestSecrets_AreMaskedAndKeptByTheirMask(t *testing.T) {
	t.Parallel()
	s, m := open(t, settings.Config{})
	put := func(value string, updated ...string) {
		t.Helper()
		got, err := s.Change(t.Context(), admin("w"), map[string]json.RawMessage{"TOKEN": json.RawMessage(`"` + value + `"`)})
		if err != nil || !cmp.Equal(got, append([]string{}, updated...)) {
			t.Errorf("put %q: updated %v, %v, want %v", value, got, err, updated)
		}
	}
	shows := func(want any) {
		t.Helper()
		if got := listed(t, s, "w")["TOKEN"].Value; got != want {
			t.Errorf("the secret reads %q, want %q", got, want)
		}
	}
	shows("")
	put(hob.Mask) // of nothing
	shows("")
	put("s3cret", "TOKEN")
	shows(hob.Mask)
	put(hob.Mask)
	put(hob.Mask + "cret")
	if got := m.values["w"]["TOKEN"]; got != (hob.StoredSetting{Value: "s3cret", Secret: true}) {
		t.Errorf("after its mask the secret is %+v", got)
	}
	if got, _, err := s.ChangeOne(t.Context(), admin("w"), "TOKEN", json.RawMessage(`"other"`)); err != nil || got != hob.Mask {
		t.Errorf("a changed secret is answered %v, %v", got, err)
	}
	if got, _, err := s.Reset(t.Context(), admin("w"), "TOKEN"); err != nil || got != "" {
		t.Errorf("a reset secret is answered %v, %v", got, err)
	}
	shows("")
	put("again", "TOKEN")
	put("", "TOKEN")
	if _, there := m.values["w"]["TOKEN"]; there {
		t.Error("an empty secret is kept")
	}
}

// A secret goes to the address that it was set for: changing that, or giving it back, takes the secret away, unless it is
// sent in the same change.
func TestChange_SecretsDoNotFollowTheirAddress(t *testing.T) {
	t.Parallel()
	keys := append(sample(), settings.Key{Name: "ADDRESS", Category: "usage", Type: hob.StringSetting, Default: "https://a.example", Receives: "TOKEN"})
	s, m := open(t, settings.Config{Keys: keys})
	change := func(text string, want ...string) {
		t.Helper()
		updated, err := s.Change(t.Context(), admin("w"), values(t, text))
		if diff := cmp.Diff(want, updated); err != nil || diff != "" {
			t.Errorf("%s: %v, (-want +got):\n%s", text, err, diff)
		}
	}
	has := func(want bool) {
		t.Helper()
		if _, there := m.values["w"]["TOKEN"]; there != want {
			t.Errorf("the secret is there: %t", there)
		}
	}
	change(`{"TOKEN":"one"}`, "TOKEN")
	change(`{"ADDRESS":"https://a.example"}`, "ADDRESS") // as it was
	has(true)
	change(`{"ADDRESS":"https://b.example"}`, "ADDRESS", "TOKEN")
	has(false)
	change(`{"ADDRESS":"https://c.example","TOKEN":"two"}`, "ADDRESS", "TOKEN")
	has(true)
	change(`{"ADDRESS":"https://d.example","TOKEN":"`+hob.Mask+`"}`, "ADDRESS", "TOKEN")
	has(false)
	change(`{"TOKEN":"three"}`, "TOKEN")
	if _, cleared, err := s.Reset(t.Context(), admin("w"), "ADDRESS"); err != nil || len(cleared) != 1 || cleared[0] != "TOKEN" {
		t.Errorf("reset: %v, %v", cleared, err)
	}
	has(false)
	change(`{"TOKEN":"four"}`, "TOKEN")
	if _, cleared, err := s.ChangeOne(t.Context(), admin("w"), "ADDRESS", json.RawMessage(`"https://e.example"`)); err != nil || len(cleared) != 1 {
		t.Errorf("change: %v, %v", cleared, err)
	}
	has(false)
	for _, bad := range []string{`{"TOKEN":"a\nb"}`, `{"TOKEN":"a\u0007b"}`} {
		if _, err := s.Change(t.Context(), admin("w"), values(t, bad)); hob.KindOf(err) != hob.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestReset_GivesBackTheDefault(t *testing.T) {
	t.Parallel()
	s, m := open(t, settings.Config{})
	updated, err := s.Change(t.Context(), admin("w"), values(t, `{"ON":true,"COUNT":30,"MODE":"fast","NAME":"x"}`))
	if diff := cmp.Diff([]string{"COUNT", "MODE", "NAME", "ON"}, updated); err != nil || diff != "" {
		t.Fatalf("updated: %v, (-want +got):\n%s", err, diff)
	}
	if got, _, err := s.Reset(t.Context(), admin("w"), "COUNT"); err != nil || got != int64(10) {
		t.Errorf("reset COUNT: %v, %v", got, err)
	}
	keys, err := s.ResetCategory(t.Context(), admin("w"), "compaction")
	if diff := cmp.Diff([]string{"MODE", "ON"}, keys); err != nil || diff != "" {
		t.Errorf("reset a category: %v, (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(map[string]hob.StoredSetting{"NAME": {Value: "x"}}, m.values["w"]); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	_, _, err = s.Reset(t.Context(), admin("w"), "NOTHING")
	if hob.KindOf(err) != hob.NotFound || err.Error() != "Unknown setting: NOTHING" {
		t.Errorf("reset an unknown key: %v", err)
	}
	if _, _, err = s.ChangeOne(t.Context(), admin("w"), "NOTHING", json.RawMessage("1")); hob.KindOf(err) != hob.NotFound {
		t.Errorf("change an unknown key: %v", err)
	}
	_, err = s.ResetCategory(t.Context(), admin("w"), "nothing")
	if hob.KindOf(err) != hob.Invalid || err.Error() != "Unknown category: nothing" {
		t.Errorf("reset an unknown category: %v", err)
	}
}

func TestRegistry_IsWellFormed(t *testing.T) {
	t.Parallel()
	labels := map[string]string{}
	for _, c := range settings.Categories() {
		labels[c.Name] = c.Label
	}
	if diff := cmp.Diff(map[string]string{"agents": "Agents", "tools": "Tools", "compaction": "Context compaction", "usage": "Usage and cost"}, labels); diff != "" {
		t.Errorf("categories (-want +got):\n%s", diff)
	}
	seen := map[string]bool{}
	for _, k := range settings.Registry() {
		if seen[k.Name] || labels[k.Category] == "" || k.Label == "" || k.Description == "" || k.Type == "" {
			t.Errorf("%+v is twice there or lacks something", k)
		}
		seen[k.Name] = true
	}
	s, _ := open(t, settings.Config{Keys: settings.Registry()})
	for name, k := range listed(t, s, "w") { // a default that its own check refuses would read as nothing
		if text, err := s.Value(t.Context(), "w", name); err != nil || k.Default != k.Value {
			t.Errorf("%s: %q, %v, %v", name, text, k.Default, err)
		}
		if raw, err := json.Marshal(k.Default); err != nil {
			t.Error(err)
		} else if _, _, err := s.ChangeOne(t.Context(), admin("w"), name, raw); err != nil {
			t.Errorf("the default of %s is refused: %v", name, err)
		}
	}
}

func TestMarkdown_IsThePage(t *testing.T) {
	t.Parallel()
	const path = "../../docs/settings.md"
	if *update {
		if err := os.WriteFile(path, []byte(settings.Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(page), settings.Markdown()); diff != "" {
		t.Errorf("%s (-page +registry), -update rewrites it:\n%s", path, diff)
	}
}

func BenchmarkValue(b *testing.B) {
	s, err := settings.New(settings.Config{Store: fixed{"COUNT": {Value: "30"}}, Keys: sample()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if v, err := s.Value(b.Context(), "w", "COUNT"); err != nil || v != "30" {
			b.Fatal(v, err)
		}
	}
}

// fixed is a store whose map is at hand, as the real one's cache is.
type fixed map[string]hob.StoredSetting

func (f fixed) StoredSettings(context.Context, hob.WorkspaceID) (map[string]hob.StoredSetting, error) {
	return f, nil
}

func (fixed) ChangeSettings(context.Context, hob.Principal, map[string]*hob.StoredSetting) error {
	return nil
}
