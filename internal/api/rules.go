package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"hob"
	"hob/internal/engine"
)

// readRules reads a list of rules that stands at a place in a body, nil where there is none. A key that is none of a rule's
// is refused: a rule that is not obeyed is worse than none.
func readRules(at string, raw json.RawMessage) ([]hob.Rule, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, badRule(at, at+" must be a list of rules, each an object with a condition")
	}
	known := fieldsOf(reflect.TypeFor[hob.Rule](), nil)
	rules := make([]hob.Rule, len(list))
	for i, r := range list {
		place := fmt.Sprintf("%s[%d]", at, i)
		var fields map[string]json.RawMessage
		if json.Unmarshal(r, &fields) != nil || fields == nil {
			return nil, badRule(place, place+" must be an object with a condition")
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if !slices.Contains(known, name) {
				return nil, badRule(place, fmt.Sprintf("%s has the unknown key %s; a rule has %s", place, shown(name), strings.Join(known, ", ")))
			}
		}
		if err := json.Unmarshal(r, &rules[i]); err != nil {
			return nil, hob.FieldError(place, err)
		}
	}
	return rules, nil
}

func badRule(field, text string) error {
	return hob.Errorf(hob.Invalid, "%s", text).WithCode(codeInvalidRule).With("field", field)
}

// codeInvalidRule is the code of errors about rules.
const codeInvalidRule = "invalid_rule"

// checkRules judges the rules of an assignment, which stand at a place in a body.
func checkRules(at string, raw json.RawMessage) error {
	rules, err := readRules(at, raw)
	if err != nil {
		return err
	}
	_, err = engine.CompileRules(rules)
	return ruleError(strings.TrimSuffix(at, "rules"), err)
}

// ruleError names in an error about rules where in the body it is, and gives it the code of such errors. Others stay as
// they are.
func ruleError(at string, err error) error {
	var e *hob.Error
	if !errors.As(err, &e) || e.Kind != hob.Invalid {
		return err
	}
	field, _ := e.Details["field"].(string)
	if !strings.Contains(field, "rules") && !strings.HasPrefix(field, "config.condition") {
		return err
	}
	return badRule(at+field, at+e.Message)
}

// rulesOf are the rules about a tool of an agent's scope, in the order in which they are asked. What is stored was judged
// when it was written.
func rulesOf(a hob.AssignedTool) []hob.Rule {
	var rules []hob.Rule
	layers := []json.RawMessage{a.ConfigOverride}
	if a.Builtin != nil {
		layers = []json.RawMessage{a.Builtin.Config, a.ConfigOverride}
	}
	for _, layer := range layers {
		var config struct {
			Rules []hob.Rule `json:"rules"`
		}
		if json.Unmarshal(layer, &config) == nil {
			rules = append(rules, config.Rules...)
		}
	}
	return rules
}
