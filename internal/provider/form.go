package provider

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"hob"
)

// refusedBefore is the error of a request that is not sent, because the provider could not do what it asks for.
func refusedBefore(provider, format string, args ...any) error {
	return &hob.ProviderError{Class: hob.ClassBadRequest, Message: provider + ": " + fmt.Sprintf(format, args...)}
}

// noSearch is the error of a request for a search that the provider has not.
func noSearch(provider, model string) error {
	return refusedBefore(provider, "the model %s cannot search the web itself; turn web_search off, or use a model that can "+
		"(any of openrouter, a Gemini or a newer Claude)", quote(model))
}

// The kinds of answerForm.
const (
	formJSON   = "json_object"
	formSchema = "json_schema"
)

// answerForm is hob.Request.ResponseFormat, read. Its zero value wants nothing.
type answerForm struct {
	kind   string // "", formJSON or formSchema
	name   string
	strict bool
	schema json.RawMessage
}

const defaultFormName = "answer"

// readForm reads a response_format in OpenAI's form. The error is a *hob.ProviderError in the name of provider.
func readForm(provider string, raw json.RawMessage) (answerForm, error) {
	if !present(raw) {
		return answerForm{}, nil
	}
	var in struct {
		Type   string `json:"type"`
		Schema *struct {
			Name   string          `json:"name"`
			Strict bool            `json:"strict"`
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return answerForm{}, refusedBefore(provider, "response_format must be an object as OpenAI has it, with type and json_schema")
	}
	switch in.Type {
	case "text":
		return answerForm{}, nil
	case formJSON:
		return answerForm{kind: formJSON}, nil
	case formSchema:
		if in.Schema == nil || !isObject(in.Schema.Schema) {
			return answerForm{}, refusedBefore(provider, "response_format.json_schema.schema must be a JSON Schema")
		}
		return answerForm{kind: formSchema, name: formName(in.Schema.Name), strict: in.Schema.Strict, schema: in.Schema.Schema}, nil
	}
	return answerForm{}, refusedBefore(provider, "response_format.type must be text, %s or %s, not %q", formJSON, formSchema, quote(in.Type))
}

// formName makes a name that OpenAI takes; it is told to the model and means nothing else.
func formName(name string) string {
	if name == "" {
		return defaultFormName
	}
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && plainName(string(r)) {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), MaxToolName)]
}

// words say the form to a model that has no field for it.
func (f answerForm) words() string {
	switch f.kind {
	case formJSON:
		return "Answer with one JSON object and nothing else: no introduction, no code fence."
	case formSchema:
		return "Answer with one JSON value that fits the following JSON Schema and nothing else: no introduction, no " +
			"code fence.\n" + string(f.schema)
	}
	return ""
}

// schemaRules are what a vendor demands of a schema that its decoder enforces.
type schemaRules struct {
	refused  []string // keywords
	required bool     // every property must be required
	depth    int      // of nesting at most
}

// OpenAI's strict mode, and Anthropic's output_config.format, which enforces less and so refuses more.
var (
	strictRules = schemaRules{
		refused: []string{
			"allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else", "oneOf", "patternProperties",
			"propertyNames", "minProperties", "maxProperties", "unevaluatedProperties", "contains", "prefixItems", "uniqueItems",
		},
		required: true, depth: 10,
	}
	anthropicRules = schemaRules{
		refused: []string{
			"not", "dependentRequired", "dependentSchemas", "if", "then", "else", "oneOf", "patternProperties",
			"propertyNames", "minProperties", "maxProperties", "unevaluatedProperties", "contains", "prefixItems", "uniqueItems",
			"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "maxItems",
			"minItems", "pattern",
		},
		depth: 10,
	}
)

// fits says whether a schema keeps the rules: an object at its root, every object closed, nothing refused, no recursion.
func (s schemaRules) fits(schema json.RawMessage) bool {
	root := schemaNode(schema)
	if root == nil || !isType(root, "object") {
		return false
	}
	return s.node(root, root, nil, s.depth)
}

func schemaNode(raw json.RawMessage) map[string]json.RawMessage {
	var node map[string]json.RawMessage
	if json.Unmarshal(raw, &node) != nil {
		return nil
	}
	return node
}

// isType says whether a schema allows a type and, null aside, no other.
func isType(node map[string]json.RawMessage, want string) bool {
	var one string
	if json.Unmarshal(node["type"], &one) == nil {
		return one == want
	}
	var several []string
	if json.Unmarshal(node["type"], &several) != nil {
		return false
	}
	return slices.Contains(several, want) && !slices.ContainsFunc(several, func(s string) bool { return s != want && s != "null" })
}

// node checks one schema. within are the references that led to it.
func (s schemaRules) node(root, node map[string]json.RawMessage, within []string, depth int) bool {
	if node == nil || depth < 0 {
		return false
	}
	for _, word := range s.refused {
		if _, ok := node[word]; ok {
			return false
		}
	}
	if ref, ok := node["$ref"]; ok {
		path := looseText(ref)
		target, ok := definition(root, path)
		return ok && !slices.Contains(within, path) && s.node(root, target, append(slices.Clip(within), path), depth)
	}
	if (isType(node, "object") || present(node["properties"])) && !s.object(root, node, within, depth) {
		return false
	}
	if items, ok := node["items"]; ok && !s.node(root, schemaNode(items), within, depth-1) {
		return false
	}
	for _, word := range []string{"anyOf", "allOf"} {
		var list []json.RawMessage
		if raw, ok := node[word]; ok && json.Unmarshal(raw, &list) != nil {
			return false
		}
		for _, raw := range list {
			if !s.node(root, schemaNode(raw), within, depth-1) {
				return false
			}
		}
	}
	return true
}

func (s schemaRules) object(root, node map[string]json.RawMessage, within []string, depth int) bool {
	if string(node["additionalProperties"]) != "false" {
		return false
	}
	properties := schemaNode(node["properties"])
	var required []string
	if raw, ok := node["required"]; ok && json.Unmarshal(raw, &required) != nil {
		return false
	}
	for name, raw := range properties {
		if s.required && !slices.Contains(required, name) || !s.node(root, schemaNode(raw), within, depth-1) {
			return false
		}
	}
	return true
}

// definition finds what a reference within the schema means.
func definition(root map[string]json.RawMessage, ref string) (map[string]json.RawMessage, bool) {
	for _, at := range []string{"$defs", "definitions"} {
		if name, ok := strings.CutPrefix(ref, "#/"+at+"/"); ok {
			target := schemaNode(schemaNode(root[at])[name])
			return target, target != nil
		}
	}
	return nil, false
}
