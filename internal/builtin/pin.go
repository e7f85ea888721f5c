package builtin

import (
	"encoding/json"
	"slices"

	"hob"
)

// without returns a schema that does not mention the pinned arguments: not among its properties, not as required, and
// not in the parts that allOf, anyOf, oneOf, then and else put beside them. "not" and "if" stay as they are: less in
// them would demand more. The order of everything else is kept, as models read the first properties with most care.
//
// The result guides the model only. What it sends is checked, with the pinned arguments laid over, against the whole
// schema.
func without(schema json.RawMessage, pinned hob.PinnedArgs) json.RawMessage {
	return strip(schema, pinned, 0)
}

func strip(schema json.RawMessage, pinned hob.PinnedArgs, depth int) json.RawMessage {
	ms, ok := members(schema)
	if !ok || depth > maxNesting {
		return schema
	}
	kept := ms[:0:0]
	for _, m := range ms {
		switch m.name {
		case "properties", "dependentSchemas":
			m.value = dropMembers(m.value, pinned)
		case "dependentRequired", "dependencies":
			m.value = dropDependencies(m.value, pinned)
		case "required":
			if m.value = dropNames(m.value, pinned); string(m.value) == "[]" {
				continue
			}
		case "allOf", "anyOf", "oneOf":
			m.value = stripEach(m.value, pinned, depth+1)
		case "then", "else":
			m.value = strip(m.value, pinned, depth+1)
		}
		kept = append(kept, m)
	}
	return object(kept)
}

func stripEach(list json.RawMessage, pinned hob.PinnedArgs, depth int) json.RawMessage {
	var schemas []json.RawMessage
	if json.Unmarshal(list, &schemas) != nil {
		return list
	}
	for i, s := range schemas {
		schemas[i] = strip(s, pinned, depth)
	}
	return encode(schemas)
}

func dropMembers(raw json.RawMessage, pinned hob.PinnedArgs) json.RawMessage {
	ms, ok := members(raw)
	if !ok {
		return raw
	}
	return object(slices.DeleteFunc(ms, func(m member) bool { return pinned[m.name] != nil }))
}

// dropDependencies removes pinned arguments as what others depend on. What depends on a pinned one goes too: it is
// always there, and the whole schema still says so.
func dropDependencies(raw json.RawMessage, pinned hob.PinnedArgs) json.RawMessage {
	ms, ok := members(dropMembers(raw, pinned))
	if !ok {
		return raw
	}
	for i := range ms {
		ms[i].value = dropNames(ms[i].value, pinned)
	}
	return object(ms)
}

// dropNames removes pinned names from a list of names; what is no such list stays.
func dropNames(raw json.RawMessage, pinned hob.PinnedArgs) json.RawMessage {
	var names []string
	if json.Unmarshal(raw, &names) != nil {
		return raw
	}
	kept := slices.DeleteFunc(names, func(n string) bool { return pinned[n] != nil })
	return encode(append([]string{}, kept...))
}
