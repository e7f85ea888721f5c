// Package settings knows what a workspace can set at run time: the registry of keys, the checks of their values, and the
// one way in which a value is found: what the workspace set, else the operator's environment, else the default.
//
// It is not for what the operator gives a server at its start (package config) nor for the settings of one agent
// (hob.Settings). It keeps nothing itself, and it does not know who reads a key: readers get Set.Value as a
// hob.SettingReader.
package settings

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"hob"
)

// maxFaults is how many bad values of one change are told.
const maxFaults = 100

// Config is what a Set needs.
type Config struct {
	Store  hob.SettingStore
	Getenv func(string) string // "" for variables that are not set; nil = no environment
	// Checks judge values of keys beyond type, range and choices. An error's text goes to the client.
	Checks map[string]func(value string) error
	Keys   []Key // nil = Registry()
}

// Set is the settings of all workspaces. It is safe for concurrent use.
type Set struct {
	store hob.SettingStore
	keys  []*key // as they are shown
	named map[string]*key
}

// key is a Key with what this server makes of it.
type key struct {
	Key
	check    func(string) error
	fallback string // the operator's value, else the default
	source   string // of the fallback
	good     atomic.Pointer[string]
}

// New makes the settings. A variable of the environment that holds no valid value is an error, which is Invalid and names
// it.
func New(c Config) (*Set, error) {
	if c.Getenv == nil {
		c.Getenv = func(string) string { return "" }
	}
	if c.Keys == nil {
		c.Keys = Registry()
	}
	s := &Set{store: c.Store, named: make(map[string]*key, len(c.Keys))}
	for _, row := range c.Keys {
		k := &key{Key: row, check: c.Checks[row.Name], fallback: row.Default, source: hob.FromDefault}
		if v := c.Getenv(k.variable()); v != "" {
			text, err := k.canonical(v)
			if err != nil {
				return nil, hob.Errorf(hob.Invalid, "%s: %s", k.variable(), err.Error()).With("option", k.variable())
			}
			k.fallback, k.source = text, hob.FromEnvironment
		}
		s.keys = append(s.keys, k)
		s.named[k.Name] = k
	}
	return s, nil
}

// Value is the hob.SettingReader of all keys. A stored value that is not valid any more counts as none. A key that is not
// registered is an Internal error: it is asked for by code, not by a client.
func (s *Set) Value(ctx context.Context, ws hob.WorkspaceID, name string) (string, error) {
	k := s.named[name]
	if k == nil {
		return "", hob.Errorf(hob.Internal, "the setting %q is not registered", name)
	}
	stored, err := s.store.StoredSettings(ctx, ws)
	if err != nil {
		return "", hob.Wrap("read the settings", err)
	}
	return k.of(stored), nil
}

// of is the value in force.
func (k *key) of(stored map[string]hob.StoredSetting) string {
	text, _ := k.from(stored)
	return text
}

// from is the value in force and where it is from.
func (k *key) from(stored map[string]hob.StoredSetting) (text, source string) {
	v, ok := stored[k.Name]
	if !ok {
		return k.fallback, k.source
	}
	if good := k.good.Load(); good != nil && *good == v.Value {
		return v.Value, hob.FromWorkspace
	}
	text, err := k.canonical(v.Value)
	if err != nil {
		return k.fallback, k.source
	}
	if text == v.Value {
		k.remember(text)
	}
	return text, hob.FromWorkspace
}

// remember spares the next reader of the same value its check.
func (k *key) remember(good string) { k.good.Store(&good) }

// List gives every setting of a workspace by category, secrets masked. A setting's default is what holds where the
// workspace sets nothing.
func (s *Set) List(ctx context.Context, ws hob.WorkspaceID) (map[string]hob.SettingCategory, error) {
	stored, err := s.store.StoredSettings(ctx, ws)
	if err != nil {
		return nil, hob.Wrap("read the settings", err)
	}
	list := map[string]hob.SettingCategory{}
	for _, c := range Categories() {
		list[c.Name] = hob.SettingCategory{Label: c.Label, Settings: []hob.Setting{}}
	}
	for _, k := range s.keys {
		c := list[k.Category]
		c.Settings = append(c.Settings, k.described(stored))
		list[k.Category] = c
	}
	return list, nil
}

// One gives one setting as List has it. A key that is not registered is NotFound.
func (s *Set) One(ctx context.Context, ws hob.WorkspaceID, name string) (hob.Setting, error) {
	k := s.named[name]
	if k == nil {
		return hob.Setting{}, unknown(name)
	}
	stored, err := s.store.StoredSettings(ctx, ws)
	if err != nil {
		return hob.Setting{}, hob.Wrap("read the settings", err)
	}
	return k.described(stored), nil
}

func (k *key) described(stored map[string]hob.StoredSetting) hob.Setting {
	text, source := k.from(stored)
	return hob.Setting{
		Key: k.Name, Label: k.Label, Description: k.Description, Type: k.Type, Default: k.shown(k.fallback, ""),
		Value: k.shown(text, hob.Mask), Source: source, Advanced: k.Advanced, Secret: k.Secret, Min: k.Min, Max: k.Max,
		Choices: k.Choices, Subcategory: k.Subcategory,
	}
}

// shown is a value as clients see it; mask stands for a secret that is set.
func (k *key) shown(text, mask string) any {
	if k.Secret {
		if text == "" {
			return ""
		}
		return mask
	}
	return k.typed(text)
}

// Change sets values, all or none, and returns the keys that were set, sorted. A secret that is sent back as it reads stays
// as it is and is not among them; an empty one is taken away, and so is one whose address is changed without it: that is
// among the keys. The error is Invalid and tells, by key, what is wrong.
func (s *Set) Change(ctx context.Context, by hob.Principal, values map[string]json.RawMessage) ([]string, error) {
	if len(values) == 0 {
		return nil, hob.Errorf(hob.Invalid, "No settings provided").With("field", "settings")
	}
	change := map[string]*hob.StoredSetting{}
	faults := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		k := s.named[name]
		if k == nil {
			faults[clip(name)] = "Unknown setting: " + clip(name)
		} else if text, err := k.accept(values[name]); err != nil {
			faults[name] = err.Error()
		} else if !k.Secret {
			change[name] = &hob.StoredSetting{Value: text}
		} else if text == "" {
			change[name] = nil
		} else if !strings.HasPrefix(text, hob.Mask) {
			change[name] = &hob.StoredSetting{Value: text, Secret: true}
		}
		if len(faults) == maxFaults {
			break
		}
	}
	if len(faults) > 0 {
		e := hob.Errorf(hob.Invalid, "Validation failed").WithCode("validation_failed")
		e.Details = faults
		return nil, e
	}
	if len(change) > 0 {
		if err := s.write(ctx, by, change); err != nil {
			return nil, hob.Wrap("change the settings", err)
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(change))...), nil
}

// write writes a change, to which it adds that secrets do not follow their addresses: whoever may not read one must not be
// able to have it sent elsewhere.
func (s *Set) write(ctx context.Context, by hob.Principal, change map[string]*hob.StoredSetting) error {
	for _, k := range s.keys {
		value, changes := change[k.Name]
		if k.Receives == "" || !changes {
			continue
		}
		stored, err := s.store.StoredSettings(ctx, by.Workspace)
		if err != nil {
			return err
		}
		next := k.fallback
		if value != nil {
			next = value.Value
		}
		_, sent := change[k.Receives]
		if _, kept := stored[k.Receives]; kept && !sent && next != k.of(stored) {
			change[k.Receives] = nil
		}
	}
	return s.store.ChangeSettings(ctx, by, change)
}

// ChangeOne sets one value, by the rules of Change, and returns it as it reads then, with the other keys that were taken
// away by it. A key that is not registered is NotFound.
func (s *Set) ChangeOne(ctx context.Context, by hob.Principal, name string, value json.RawMessage) (shown any, cleared []string, err error) {
	k := s.named[name]
	if k == nil {
		return nil, nil, unknown(name)
	}
	updated, err := s.Change(ctx, by, map[string]json.RawMessage{name: value})
	if err != nil {
		return nil, nil, err
	}
	stored, err := s.store.StoredSettings(ctx, by.Workspace)
	if err != nil {
		return nil, nil, hob.Wrap("read the settings", err)
	}
	return k.shown(k.of(stored), hob.Mask), without(updated, name), nil
}

func without(keys []string, name string) []string {
	return slices.DeleteFunc(keys, func(k string) bool { return k == name })
}

// Reset takes back what a workspace set for a key and returns what holds now, "" for a secret, with the other keys that
// were taken away by it. A key that is not registered is NotFound.
func (s *Set) Reset(ctx context.Context, by hob.Principal, name string) (def any, cleared []string, err error) {
	k := s.named[name]
	if k == nil {
		return nil, nil, unknown(name)
	}
	change := map[string]*hob.StoredSetting{name: nil}
	if err := s.write(ctx, by, change); err != nil {
		return nil, nil, hob.Wrap("reset a setting", err)
	}
	return k.shown(k.fallback, ""), without(slices.Sorted(maps.Keys(change)), name), nil
}

// ResetCategory takes back what a workspace set for the keys of a category and returns all of them.
func (s *Set) ResetCategory(ctx context.Context, by hob.Principal, category string) ([]string, error) {
	var names []string
	for _, c := range Categories() {
		names = append(names, c.Name)
	}
	if !slices.Contains(names, category) {
		return nil, hob.Errorf(hob.Invalid, "Unknown category: %s", clip(category)).With("field", "category").With("allowed", names)
	}
	change := map[string]*hob.StoredSetting{}
	keys := []string{}
	for _, k := range s.keys {
		if k.Category == category {
			change[k.Name] = nil
			keys = append(keys, k.Name)
		}
	}
	if len(keys) == 0 {
		return keys, nil
	}
	if err := s.store.ChangeSettings(ctx, by, change); err != nil {
		return nil, hob.Wrap("reset a category of settings", err)
	}
	return keys, nil
}

func unknown(name string) error {
	return hob.Errorf(hob.NotFound, "Unknown setting: %s", clip(name)).WithCode("unknown_setting")
}

// maxShown is how much of a client's own text stands in a message, in bytes.
const maxShown = 64

func clip(s string) string {
	if len(s) > maxShown {
		s = s[:maxShown] + "…"
	}
	return strings.ToValidUTF8(s, "\ufffd")
}
