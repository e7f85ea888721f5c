package api

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"hob"
)

const (
	maxHinted = 3 // unknown fields named in an error
	// maxEdits is how many letters a name may differ from a known one that it is taken for, of a name of any length; a
	// short name must not differ in more than a third.
	maxEdits = 3
)

// hint appends the unknown fields of a body to the error for one that lacks something: the field that is missed is
// mostly there, under a misspelt name.
func (b body) hint(err error) error {
	var e *hob.Error
	if len(b.unknown) == 0 || !errors.As(err, &e) {
		return err
	}
	names := make([]string, 0, maxHinted)
	for _, name := range b.unknown[:min(len(b.unknown), maxHinted)] {
		names = append(names, shown(name))
	}
	text := strings.Join(names, ", ")
	if more := len(b.unknown) - maxHinted; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	hinted := *e
	hinted.Message += "; unknown: " + text
	return &hinted
}

// checkSettings judges what only shows when an agent's settings are used: a script that does not parse is Invalid, keys
// that nothing reads are named in warnings, and a fallback model that nobody serves. Such keys are stored all the same, since other clients keep their own there.
func (c *call) checkSettings(raw json.RawMessage) ([]string, error) {
	settings, err := hob.ParseSettings(raw)
	if err != nil {
		return nil, err
	}
	if c.s.CheckScript != nil && strings.TrimSpace(settings.Script) != "" {
		if err := c.s.CheckScript(settings.Script); err != nil {
			var e *hob.Error
			if !errors.As(err, &e) || e.Kind != hob.Invalid {
				return nil, hob.Wrap("check the script", err)
			}
			bad := hob.Errorf(hob.Invalid, "settings.script: %s", e.Message).WithCode(e.Code).With("field", "settings.script")
			if line, ok := e.Details["line"]; ok {
				bad = bad.With("line", line)
			}
			return nil, bad
		}
	}
	warnings := unusedSettings(raw)
	if settings.FallbackModel != "" {
		for _, w := range c.modelWarning(settings.FallbackModel) {
			warnings = append(warnings, "settings.fallback_model: "+w)
		}
	}
	return warnings, nil
}

// unusedSettings names the keys of settings that nothing reads. Letter case does not make a key another one.
func unusedSettings(raw json.RawMessage) []string {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		return nil // null or nothing: what is no object was refused before
	}
	known := hob.SettingsKeys()
	var unused []string
	for key := range given {
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) }) {
			unused = append(unused, key)
		}
	}
	slices.Sort(unused)
	var warnings []string
	for _, key := range unused[:min(len(unused), maxWarned)] {
		text := "settings: " + shown(key) + " is kept but has no effect"
		if near := nearest(key, known); near != "" {
			text += "; did you mean " + strconv.Quote(near) + "?"
		}
		warnings = append(warnings, text)
	}
	if more := len(unused) - maxWarned; more > 0 {
		warnings = append(warnings, "settings: "+strconv.Itoa(more)+" more keys are kept but have no effect")
	}
	return warnings
}

// nearest is the known name that a client most likely meant, "" where none is close.
func nearest(name string, known []string) string {
	if len(name) > maxNameSeen {
		return ""
	}
	best, least := "", maxEdits+1
	for _, k := range known {
		if n := edits(plainName(name), plainName(k)); n < least && n*3 <= len(k) {
			best, least = k, n
		}
	}
	return best
}

// plainName is a name without what clients spell differently: maxSteps, max-steps and max_steps are the same.
func plainName(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(name))
}

// edits counts the bytes to put in, leave out or change that make a of b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
