package provider

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"hob"
)

// Known are the names of the facts that were found out, sorted.
func (p Facts) Known() []string {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil // it has no values that could fail
	}
	var known map[string]json.RawMessage
	if json.Unmarshal(raw, &known) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(known))
}

// Changes says, in a few words each, what runs do otherwise with the report's facts than by the tables alone. It is empty
// for a model that is as the tables say, and for Gemini's dialect, whose adapter takes no facts.
func (r ProbeReport) Changes() []string {
	if r.Dialect == geminiName {
		return nil
	}
	table := familyOf(r.Model)
	return append(changesOfFamily(table, r.Facts.over(table)), r.Facts.over(table).quirks.changes()...)
}

// changesOfFamily compares what is known of a model with what the table says of it.
func changesOfFamily(table, now family) []string {
	var list []string
	add := func(changed bool, text string) {
		if changed {
			list = append(list, text)
		}
	}
	either := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	add(now.systemRole() != table.systemRole(), "instructions are sent as "+now.systemRole())
	add(now.completionTokens != table.completionTokens, "the length is bounded by "+either(now.completionTokens, fieldCompletion, fieldMaxTokens))
	add(now.noTemperature != table.noTemperature, "temperature is "+either(now.noTemperature, "not sent", "sent"))
	if now.effort != table.effort {
		least := map[effort]string{
			effortClassic: string(hob.EffortLow), effortMinimal: effortLeast, effortNone: string(hob.EffortNone),
		}[now.effort]
		add(true, "reasoning_effort is "+either(least == "", "not sent", "sent, from "+least+" on"))
	}
	add(now.form != table.form, "the form of an answer is asked for "+map[formKind]string{
		formNative: "by its schema", formObject: "as JSON, with the schema in words", formWords: "in words",
	}[now.form])
	add(now.textOnly != table.textOnly, "images are "+either(now.textOnly, "refused", "sent"))
	add(now.echo != table.echo, "reasoning is "+either(now.echo, "sent back within a turn", "not sent back"))
	add(now.window != table.window, fmt.Sprintf("the window is %d tokens", now.window))
	return list
}

// changes says what quirks do.
func (q quirks) changes() []string {
	var list []string
	for _, one := range []struct {
		is   bool
		text string
	}{
		{q.noStreamOptions, "stream_options is not sent"},
		{q.noStrict, "schemas are not called strict"},
		{q.nameLimit != 0 && q.nameLimit != MaxToolName, fmt.Sprintf("names of tools have at most %d characters", q.nameLimit)},
		{q.oneCall, "one call at a time is asked for"},
		{q.toolsOnLast, "the list of tools is sent on the last step, too"},
		{q.noToolChoice, "tool_choice is not sent"},
		{q.sameIDs, "ids of calls are passed over"},
	} {
		if one.is {
			list = append(list, one.text)
		}
	}
	return list
}
