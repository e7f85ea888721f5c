package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"hob"
)

// Settings are the settings of workspaces, as package settings has them: checked, changed all or none, secrets masked.
type Settings interface {
	List(ctx context.Context, ws hob.WorkspaceID) (map[string]hob.SettingCategory, error)
	One(ctx context.Context, ws hob.WorkspaceID, key string) (hob.Setting, error)
	Change(ctx context.Context, by hob.Principal, values map[string]json.RawMessage) (updated []string, err error)
	ChangeOne(ctx context.Context, by hob.Principal, key string, value json.RawMessage) (shown any, cleared []string, err error)
	Reset(ctx context.Context, by hob.Principal, key string) (def any, cleared []string, err error)
	ResetCategory(ctx context.Context, by hob.Principal, category string) (keys []string, err error)
}

type (
	settingsInput struct {
		Settings map[string]json.RawMessage `json:"settings" jsonschema:"values by key: numbers, true or false, text, or an object where a key is one (MODEL_PRICES); a secret's mask leaves it as it is"`
	}
	settingInput struct {
		Value json.RawMessage `json:"value" jsonschema:"a number, true or false, text, or an object where the key is one (MODEL_PRICES)"`
	}
	categoryInput struct {
		Category *string `json:"category" jsonschema:"one of the categories of the list"`
	}

	settingsAnswer struct {
		Categories map[string]hob.SettingCategory `json:"categories"`
	}
	settingsChanged struct {
		OK       bool     `json:"ok"`
		Updated  []string `json:"updated" jsonschema:"the keys that were set"`
		Warnings []string `json:"warnings,omitempty"`
	}
	settingChanged struct {
		OK       bool     `json:"ok"`
		Key      string   `json:"key"`
		Value    any      `json:"value" jsonschema:"as it reads now; a mask for a secret"`
		Warnings []string `json:"warnings,omitempty"`
	}
	settingReset struct {
		OK       bool     `json:"ok"`
		Key      string   `json:"key"`
		Default  any      `json:"default" jsonschema:"what holds now; empty text for a secret"`
		Warnings []string `json:"warnings,omitempty"`
	}
	categoryReset struct {
		OK       bool     `json:"ok"`
		Category string   `json:"category"`
		Keys     []string `json:"reset_keys"`
		Warnings []string `json:"warnings,omitempty"`
	}
)

// settings gives the settings to a caller that may see the whole workspace.
func (c *call) settings() (Settings, error) {
	if c.s.Settings == nil {
		return nil, hob.Errorf(hob.Unavailable, "settings are not available on this server")
	}
	return c.s.Settings, c.whole("settings")
}

// whole refuses keys that are bound to one agent what belongs to the whole workspace.
func (c *call) whole(what string) error {
	if c.by.Agent != "" {
		return hob.Errorf(hob.Forbidden, "your key is bound to one agent; %s belong to the whole workspace", what).WithCode("key_bound")
	}
	return nil
}

// changed logs who changed what. Values stay out of the log.
func (c *call) changed(what string, names ...string) {
	c.s.Log.LogAttrs(c.Context(), slog.LevelInfo, what, slog.String("workspace", string(c.by.Workspace)),
		slog.String("by", string(c.by.Kind)), slog.String("by_id", c.by.ID), slog.String("names", strings.Join(names, " ")),
		slog.String("request_id", c.id))
}

func listSettings(c *call) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	list, err := s.List(c.Context(), c.by.Workspace)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, settingsAnswer{list})
}

func getSetting(c *call) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	one, err := s.One(c.Context(), c.by.Workspace, c.PathValue("key"))
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, one)
}

// modelSettings are the keys whose values are model strings, and the values of them that name no model.
func modelSettings() map[string]string {
	return map[string]string{"AGENT_DEFAULT_MODEL": "", "COMPACTION_MODEL": "same", "VISION_MODEL": ""}
}

// settingWarnings says which of the values that were set are models that nobody serves, or that are asked of another
// provider than they seem to name. They are kept all the same, as an agent's are.
func (c *call) settingWarnings(values map[string]json.RawMessage, updated []string) []string {
	var warnings []string
	for _, key := range updated {
		none, isModel := modelSettings()[key]
		var model string
		if !isModel || json.Unmarshal(values[key], &model) != nil || model == "" || model == none {
			continue
		}
		for _, w := range c.modelWarning(model) {
			warnings = append(warnings, key+": "+w)
		}
	}
	return warnings
}

func putSettings(c *call) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	var in settingsInput
	b, err := c.decode(&in, false)
	if err != nil {
		return err
	}
	updated, err := s.Change(c.Context(), c.by, in.Settings)
	if err != nil {
		if len(in.Settings) == 0 {
			err = b.hint(err)
		}
		return err
	}
	c.changed("settings were changed", updated...)
	warnings := append(b.warnings, c.settingWarnings(in.Settings, updated)...)
	for _, key := range updated {
		if raw, sent := in.Settings[key]; !sent || isMask(raw) {
			warnings = append(warnings, clearedSettings([]string{key})...)
		}
	}
	return c.reply(http.StatusOK, settingsChanged{true, filled(updated), warnings})
}

// isMask says whether a value is that of a secret as it reads.
func isMask(raw json.RawMessage) bool {
	var text string
	return json.Unmarshal(raw, &text) == nil && strings.HasPrefix(strings.TrimSpace(text), hob.Mask)
}

// clearedSettings tells of secrets that did not go along to another address.
func clearedSettings(keys []string) []string {
	var warnings []string
	for _, key := range keys {
		warnings = append(warnings, key+" was cleared, since the address that it is sent to changed; set it again, or with the address in one change")
	}
	return warnings
}

func putSetting(c *call) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	var in settingInput
	b, err := c.decode(&in, false)
	if err != nil {
		return err
	}
	if !b.has("value") {
		return b.hint(hob.Errorf(hob.Invalid, "value is required").With("field", "value"))
	}
	key := c.PathValue("key")
	shown, cleared, err := s.ChangeOne(c.Context(), c.by, key, in.Value)
	if err != nil {
		return err
	}
	c.changed("settings were changed", append([]string{key}, cleared...)...)
	warnings := append(b.warnings, c.settingWarnings(map[string]json.RawMessage{key: in.Value}, []string{key})...)
	warnings = append(warnings, clearedSettings(cleared)...)
	return c.reply(http.StatusOK, settingChanged{true, key, shown, warnings})
}

func resetSetting(c *call) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	key := c.PathValue("key")
	def, cleared, err := s.Reset(c.Context(), c.by, key)
	if err != nil {
		return err
	}
	c.changed("settings were reset", append([]string{key}, cleared...)...)
	return c.reply(http.StatusOK, settingReset{true, key, def, clearedSettings(cleared)})
}

func resetCategory(c *call) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	var in categoryInput
	b, err := c.decode(&in, false)
	if err != nil {
		return err
	}
	if blank(in.Category) {
		return b.hint(hob.Errorf(hob.Invalid, "category is required").With("field", "category"))
	}
	category := strings.TrimSpace(*in.Category)
	keys, err := s.ResetCategory(c.Context(), c.by, category)
	if err != nil {
		return err
	}
	c.changed("settings were reset", keys...)
	return c.reply(http.StatusOK, categoryReset{true, category, filled(keys), b.warnings})
}
