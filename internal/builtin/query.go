package builtin

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"

	"hob"
)

// queryString writes the arguments of a call as URL query parameters, in their order: text as it is, numbers and
// booleans as JSON, lists as one parameter per element, objects (and lists in lists) as JSON. null says nothing and is
// left out. Names and values are escaped, so that an argument can be neither another parameter nor another part of the
// URL.
//
// A name that the endpoint's own query already has is refused: the model would overrule what the tool's author fixed.
func queryString(args json.RawMessage, fixed url.Values) (string, error) {
	ms, ok := members(args)
	if !ok {
		return "", hob.Errorf(hob.Invalid, "the arguments must be a JSON object")
	}
	var b strings.Builder
	for _, m := range ms {
		if _, taken := fixed[m.name]; taken {
			return "", hob.Errorf(hob.Invalid, "the argument %q is fixed by the tool's endpoint and cannot be given", m.name)
		}
		values := []json.RawMessage{m.value}
		if m.value[0] == '[' {
			values = nil
			if err := json.Unmarshal(m.value, &values); err != nil {
				return "", hob.Errorf(hob.Invalid, "the argument %q is not valid JSON", m.name)
			}
		}
		for _, v := range values {
			addParameter(&b, m.name, v)
		}
	}
	return b.String(), nil
}

func addParameter(b *strings.Builder, name string, value json.RawMessage) {
	var text string
	switch {
	case string(value) == "null":
		return
	case value[0] == '"':
		if json.Unmarshal(value, &text) != nil {
			return
		}
	default:
		var compact bytes.Buffer
		if json.Compact(&compact, value) != nil {
			return
		}
		text = compact.String()
	}
	if b.Len() > 0 {
		b.WriteByte('&')
	}
	b.WriteString(escapeQuery(name))
	b.WriteByte('=')
	b.WriteString(escapeQuery(text))
}

// escapeQuery writes blanks as %20, which every server reads; "+" is a blank for some only.
func escapeQuery(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// withQuery adds parameters to an endpoint that may have some of its own.
func withQuery(endpoint, query string) string {
	endpoint, _, _ = strings.Cut(endpoint, "#")
	switch {
	case query == "":
		return endpoint
	case !strings.Contains(endpoint, "?"):
		return endpoint + "?" + query
	case strings.HasSuffix(endpoint, "?"), strings.HasSuffix(endpoint, "&"):
		return endpoint + query
	}
	return endpoint + "&" + query
}
