package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"hob"
)

const (
	// maxSuffix bounds what a workspace puts behind a builtin's description, in bytes: the model reads it with every step.
	maxSuffix = 4 << 10
	// changeTries is how often a change of a builtin is made anew where another one came between. Each time another one was
	// made, so that all come to an end.
	changeTries = 1000
)

// builtinInput is what can be changed of a builtin tool.
type builtinInput struct {
	IsActive *bool           `json:"is_active"`
	Suffix   *string         `json:"description_suffix"`
	Config   json.RawMessage `json:"config"`
}

func (s *server) isBuiltin(name string) bool { _, ok := s.builtins[name]; return ok }

// changeOf is what a workspace changed of a builtin tool, or that it changed nothing.
func changeOf(changes map[string]hob.BuiltinChange, name string) hob.BuiltinChange {
	if c, ok := changes[name]; ok {
		return c
	}
	return hob.BuiltinChange{IsActive: true, Version: 1}
}

// builtinAnswer is a builtin tool as the workspace has it.
func (c *call) builtinAnswer(t hob.Tool, change hob.BuiltinChange, warnings []string) toolAnswer {
	t.ID, t.Type, t.IsActive = "", cmp.Or(t.Type, hob.BuiltinTool), change.IsActive
	a := c.answer(t, warnings)
	a.ID, a.Suffix, a.Version = nil, change.Suffix, change.Version
	a.Config.builtin = object(change.Config)
	if change.Suffix != "" {
		a.Description += "\n\n" + change.Suffix
	}
	return a
}

// updateBuiltin changes what a workspace may change of a builtin tool. Unlike elsewhere, other fields are refused: they
// would seem to change what the platform gives.
func updateBuiltin(c *call, t hob.Tool) error {
	raw, err := c.content()
	if err != nil {
		return err
	}
	var in builtinInput
	b, err := decode(raw, &in, fieldsOf(reflect.TypeFor[builtinInput](), nil), true)
	switch {
	case err != nil:
		return err
	case len(b.unknown) > 0:
		return hob.Errorf(hob.Invalid, "%s is a builtin tool: only is_active, description_suffix and config can be changed, not %s", t.Name, shown(b.unknown[0])).
			WithCode("builtin_tool").With("field", clip(b.unknown[0]))
	case len(b.fields) == 0:
		return hob.Errorf(hob.Invalid, "No data provided")
	case b.null("is_active"):
		return hob.Errorf(hob.Invalid, "is_active must be true or false, not null").With("field", "is_active")
	case in.Suffix != nil && len(*in.Suffix) > maxSuffix:
		return hob.Errorf(hob.Invalid, "description_suffix must be at most %d bytes", maxSuffix).With("field", "description_suffix")
	}
	var warnings []string
	if b.has("config") {
		if warnings, err = c.checkDefaults(t, object(in.Config)); err != nil {
			return err
		}
	}
	change, err := c.changeBuiltin(t.Name, func(change *hob.BuiltinChange) {
		if in.IsActive != nil {
			change.IsActive = *in.IsActive
		}
		if b.has("description_suffix") {
			change.Suffix = ""
			if in.Suffix != nil {
				change.Suffix = strings.TrimSpace(*in.Suffix)
			}
		}
		if b.has("config") {
			change.Config = object(in.Config)
		}
	})
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, c.builtinAnswer(t, change, warnings))
}

// changeBuiltin makes a change on top of the newest one.
func (c *call) changeBuiltin(name string, set func(*hob.BuiltinChange)) (hob.BuiltinChange, error) {
	for try := 1; ; try++ {
		changes, err := c.s.Store.Builtins(c.Context(), c.by)
		if err != nil {
			return hob.BuiltinChange{}, err
		}
		change := changeOf(changes, name)
		set(&change)
		err = c.s.Store.ChangeBuiltin(c.Context(), c.by, name, change)
		if err == nil {
			change.Version++
			return change, nil
		}
		if hob.KindOf(err) != hob.Conflict || try == changeTries || c.Context().Err() != nil {
			return hob.BuiltinChange{}, err
		}
	}
}

// checkDefaults judges a builtin's config: it takes what the config_override of an assignment takes.
func (c *call) checkDefaults(t hob.Tool, config json.RawMessage) ([]string, error) {
	a := hob.Assignment{Workspace: c.by.Workspace, ToolType: builtinType, ToolName: t.Name, ConfigOverride: config}
	warnings, err := c.judge(a, nil)
	for i := range warnings {
		warnings[i] = strings.ReplaceAll(warnings[i], "config_override", "config")
	}
	var e *hob.Error
	if !errors.As(err, &e) {
		return warnings, err
	}
	renamed := hob.Errorf(e.Kind, "%s", strings.ReplaceAll(e.Message, "config_override", "config")).WithCode(e.Code)
	if field, ok := e.Details["field"].(string); ok {
		renamed = renamed.With("field", strings.Replace(field, "config_override", "config", 1))
	}
	return nil, renamed
}
