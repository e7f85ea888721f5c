package builtin

import (
	"bytes"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"hob"
)

// An endpoint may hold placeholders: https://shop.example.com/items/{id}?lang={lang}. At a call each is filled with the
// argument of its name, which is then sent nowhere else. One stands for a part of one path segment or of one value of the
// query, never for a part of the address before the path: where a call goes is the author's to say, not a model's.

// placeholder is one of them. Braces have no other meaning in an endpoint.
var placeholder = regexp.MustCompile(`\{([A-Za-z0-9_.-]{1,64})\}`)

// placeholders are the names that an endpoint has placeholders for, in their order. The error is Invalid: one stands where
// none may, or a brace is none.
func placeholders(endpoint string) ([]string, error) {
	if !strings.ContainsAny(endpoint, "{}") {
		return nil, nil
	}
	path := pathAt(endpoint)
	address, rest := endpoint[:path], endpoint[path:]
	rest, fragment, _ := strings.Cut(rest, "#")
	_, query, _ := strings.Cut(rest, "?")
	if strings.ContainsAny(address+fragment, "{}") {
		return nil, badConfig("endpoint", "has a placeholder outside its path and query; the host cannot be one")
	}
	if strings.ContainsAny(placeholder.ReplaceAllString(rest, ""), "{}") {
		return nil, badConfig("endpoint", "has a brace that is no placeholder; one is written {name}, where name is an argument; a brace itself as %%7B or %%7D")
	}
	for _, pair := range strings.Split(query, "&") {
		if name, _, _ := strings.Cut(pair, "="); strings.Contains(name, "{") {
			return nil, badConfig("endpoint", "has a placeholder for the name of a query parameter; only a value can be one")
		}
	}
	var names []string
	for _, m := range placeholder.FindAllStringSubmatch(rest, -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names, nil
}

// pathAt is where the path of a URL begins, or the query where it has no path.
func pathAt(endpoint string) int {
	from := 0
	if i := strings.Index(endpoint, "://"); i >= 0 {
		from = i + len("://")
	}
	if i := strings.IndexAny(endpoint[from:], "/?#"); i >= 0 {
		return from + i
	}
	return len(endpoint)
}

// checkPlaceholders judges an endpoint's placeholders by the arguments that there will be: a call without one could not be
// made.
func checkPlaceholders(endpoint string, schema *inputSchema) ([]string, error) {
	names, err := placeholders(endpoint)
	if err != nil {
		return nil, err
	}
	required, _ := schema.doc["required"].([]any)
	for _, name := range names {
		if !schema.has(name) || !slices.Contains(required, any(name)) {
			return nil, badConfig("endpoint", "has the placeholder {%s}, so input_schema must have the property %q and list it in required", name, name)
		}
	}
	return names, nil
}

// filled puts the arguments of a call into an endpoint's placeholders, and gives the others. The error is Invalid and names
// the argument.
func filled(endpoint string, args json.RawMessage) (string, json.RawMessage, error) {
	names, err := placeholders(endpoint)
	if err != nil || len(names) == 0 {
		return endpoint, args, err
	}
	given, ok := members(args)
	if !ok {
		return "", nil, hob.Errorf(hob.Invalid, "the arguments must be a JSON object")
	}
	values := make(map[string]string, len(names))
	rest := make([]member, 0, len(given))
	for _, m := range given {
		if !slices.Contains(names, m.name) {
			rest = append(rest, m)
			continue
		}
		if values[m.name], ok = plainValue(m.value); !ok {
			return "", nil, hob.Errorf(hob.Invalid, "the argument %q must be text, a number or a boolean: it is a part of the address", m.name)
		}
	}
	whole, query, hasQuery := strings.Cut(endpoint, "?")
	at := pathAt(whole)
	segments := strings.Split(whole[at:], "/")
	for i, s := range segments {
		if segments[i], err = filledSegment(s, values); err != nil {
			return "", nil, err
		}
	}
	out := whole[:at] + strings.Join(segments, "/")
	if hasQuery {
		for _, m := range placeholder.FindAllStringSubmatch(query, -1) {
			if _, ok := values[m[1]]; !ok {
				return "", nil, missingPart(m[1])
			}
		}
		out += "?" + placeholder.ReplaceAllStringFunc(query, func(p string) string { return escapeQuery(values[p[1:len(p)-1]]) })
	}
	return out, object(rest), nil
}

// filledSegment fills the placeholders of one segment of a path, which it stays: what is filled in is escaped, and nothing
// that a server on the way might read as a step up or to the side is let through.
func filledSegment(segment string, values map[string]string) (string, error) {
	var bad error
	out := placeholder.ReplaceAllStringFunc(segment, func(p string) string {
		name := p[1 : len(p)-1]
		value, ok := values[name]
		switch {
		case bad != nil:
		case !ok:
			bad = missingPart(name)
		case value == "":
			bad = hob.Errorf(hob.Invalid, "the argument %q must not be empty: it is a part of the address", name)
		case steps(value):
			bad = hob.Errorf(hob.Invalid, "the argument %q must not have a part that is . or ..: it is a part of the address", name)
		}
		return url.PathEscape(value)
	})
	if bad == nil && out != segment && steps(out) { // two that are one together
		bad = hob.Errorf(hob.Invalid, "the arguments make a path segment that is . or ..")
	}
	return out, bad
}

// steps says whether a text has a part between slashes, of either kind, that is a dot or two, also where a server would
// see that only after it has decoded the text, however often.
func steps(text string) bool {
	for {
		for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == '\\' }) {
			if part, _, _ = strings.Cut(part, ";"); part == "." || part == ".." {
				return true
			}
		}
		plain, err := url.PathUnescape(text)
		if err != nil || plain == text {
			return false
		}
		text = plain
	}
}

func missingPart(name string) error {
	return hob.Errorf(hob.Invalid, "the argument %q is missing: it is a part of the address", name)
}

// plainValue is how a value of one piece reads in an address.
func plainValue(raw json.RawMessage) (text string, ok bool) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || string(raw) == "null":
		return "", false
	case raw[0] == '"':
		return text, json.Unmarshal(raw, &text) == nil
	}
	return string(raw), true
}
