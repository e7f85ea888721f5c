package builtin

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"hob"
)

// without returns a schema that does not mention the pinned arguments: not among its properties, not as required, not in the
// parts that allOf, anyOf, oneOf, then, else and dependentSchemas put beside them, and not in what any of these refers to
// inside the schema. "not" and "if" stay as they are: less in them would demand more. The order of everything else is kept,
// as models read the first properties with most care.
//
// The result guides the model only. What it sends is checked, with the pinned arguments laid over, against the whole
// schema.
func without(schema json.RawMessage, pinned hob.PinnedArgs) json.RawMessage {
	var doc any
	if json.Unmarshal(schema, &doc) != nil {
		return schema
	}
	s := stripping{pinned: pinned, root: schema, room: MaxSchema, named: hasNames(doc)}
	out := s.strip(schema, 0)
	for _, ref := range references(doc, nil) {
		if _, there := part(schema, ref); !there {
			continue
		}
		if _, there := part(out, ref); !there { // another argument is described as the pinned one is
			return schema
		}
	}
	return out
}

// hasNames says whether parts of a schema may have names of their own, beside their places.
func hasNames(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			_, text := value.(string)
			if text && (key == "$id" || key == "id" || key == "$anchor" || key == "$dynamicAnchor") || hasNames(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasNames)
	}
	return false
}

// references lists what the parts of a schema refer to.
func references(v any, refs []string) []string {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if ref, ok := value.(string); ok && key == "$ref" {
				refs = append(refs, ref)
			}
			refs = references(value, refs)
		}
	case []any:
		for _, value := range v {
			refs = references(value, refs)
		}
	}
	return refs
}

// stripping is what the parts of one schema have in common while pinned arguments are taken out.
type stripping struct {
	pinned hob.PinnedArgs
	root   json.RawMessage
	room   int  // bytes that may still be written in place of references
	named  bool // parts of the schema may have names of their own: none stands twice
}

func (s *stripping) strip(schema json.RawMessage, depth int) json.RawMessage {
	ms, ok := members(schema)
	if !ok || depth > maxNesting {
		return schema
	}
	kept := ms[:0:0]
	for _, m := range ms {
		switch m.name {
		case "properties":
			m.value = dropMembers(m.value, s.pinned)
		case "dependentSchemas":
			m.value = s.stripMembers(dropMembers(m.value, s.pinned), depth+1)
		case "dependentRequired", "dependencies":
			m.value = dropDependencies(m.value, s.pinned)
		case "required":
			if m.value = dropNames(m.value, s.pinned); string(m.value) == "[]" {
				continue
			}
		case "allOf", "anyOf", "oneOf":
			m.value = s.stripEach(m.value, depth+1)
		case "then", "else":
			m.value = s.strip(m.value, depth+1)
		}
		kept = append(kept, m)
	}
	return object(s.inline(kept, depth))
}

// inline puts what a schema refers to, without the pinned arguments, into its place. A part that does not mention them, or
// that is no part of this schema, stays referred to.
func (s *stripping) inline(ms []member, depth int) []member {
	at := slices.IndexFunc(ms, func(m member) bool { return m.name == "$ref" })
	if at < 0 || s.named {
		return ms
	}
	var ref string
	if json.Unmarshal(ms[at].value, &ref) != nil || ref == "#" {
		return ms
	}
	target, ok := part(s.root, ref)
	if !ok || s.room < len(target) {
		return ms
	}
	s.room -= len(target)
	part := s.strip(target, depth+1)
	if bytes.Equal(part, s.tidy(target)) {
		return ms
	}
	rest := slices.Delete(slices.Clone(ms), at, at+1)
	if all := slices.IndexFunc(rest, func(m member) bool { return m.name == "allOf" }); all >= 0 {
		var list []json.RawMessage
		if json.Unmarshal(rest[all].value, &list) != nil {
			return ms
		}
		rest[all].value = encode(append(list, part))
		return rest
	}
	return append(rest, member{"allOf", encode([]json.RawMessage{part})})
}

// tidy is a schema as strip writes one from which it takes nothing.
func (s *stripping) tidy(schema json.RawMessage) json.RawMessage {
	none := stripping{named: true}
	return none.strip(schema, 0)
}

// part finds what a reference names inside a schema: the place of a JSON pointer.
func part(root json.RawMessage, ref string) (json.RawMessage, bool) {
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, false
	}
	if text, err := url.PathUnescape(pointer); err == nil {
		pointer = text
	}
	at := root
	for _, step := range strings.Split(pointer, "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		if ms, ok := members(at); ok {
			i := slices.IndexFunc(ms, func(m member) bool { return m.name == step })
			if i < 0 {
				return nil, false
			}
			at = ms[i].value
			continue
		}
		var list []json.RawMessage
		n, err := strconv.Atoi(step)
		if err != nil || json.Unmarshal(at, &list) != nil || n < 0 || n >= len(list) {
			return nil, false
		}
		at = list[n]
	}
	return at, true
}

func (s *stripping) stripEach(list json.RawMessage, depth int) json.RawMessage {
	var schemas []json.RawMessage
	if json.Unmarshal(list, &schemas) != nil {
		return list
	}
	for i := range schemas {
		schemas[i] = s.strip(schemas[i], depth)
	}
	return encode(schemas)
}

func (s *stripping) stripMembers(raw json.RawMessage, depth int) json.RawMessage {
	ms, ok := members(raw)
	if !ok {
		return raw
	}
	for i := range ms {
		ms[i].value = s.strip(ms[i].value, depth)
	}
	return object(ms)
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
