package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"hob"
)

const (
	// MaxSchema bounds a custom tool's input schema, in bytes: every byte is sent to the model with every step.
	MaxSchema = 64 << 10
	// schemaURL stands for the schema in references; nothing is ever loaded from it.
	schemaURL = "https://schema.invalid/tool"
	// maxNesting bounds how deep without looks into allOf and its kind.
	maxNesting = 8
)

// inputSchema is a JSON Schema of a tool's arguments. It is compiled when something is checked against it.
type inputSchema struct {
	refers     bool // it holds references
	raw        json.RawMessage
	doc        map[string]any
	properties map[string]any
	compiler   *jsonschema.Compiler // nil until it is needed
}

// noLoader refuses every reference to another document: the library's own loader would read local files.
type noLoader struct{}

// Load refuses.
func (noLoader) Load(string) (any, error) {
	return nil, errors.New("references to other documents are not followed")
}

func badSchema(format string, args ...any) error {
	return hob.Errorf(hob.Invalid, "input_schema "+format, args...).With("field", "input_schema")
}

// parseSchema reads a tool's input schema: an object schema in any draft since 4 that refers to nothing outside itself.
// Errors are Invalid.
func parseSchema(raw json.RawMessage) (*inputSchema, error) {
	s, err := readSchema(raw)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if _, err := s.compiler.Compile(schemaURL); err != nil {
		return nil, badSchema("is not a JSON Schema: %s", schemaFault(err))
	}
	return s, nil
}

// readSchema is parseSchema for one that was judged when it was written, or will be before anything is checked against it:
// compiling takes long. No schema and null stand for an object without known properties; a schema without "type" gets
// "object", which model providers insist on.
func readSchema(raw json.RawMessage) (*inputSchema, error) {
	if t := bytes.TrimSpace(raw); len(t) == 0 || string(t) == "null" {
		raw = json.RawMessage(`{"type":"object"}`)
	}
	if len(raw) > MaxSchema {
		return nil, badSchema("must be at most %d bytes", MaxSchema)
	}
	if err := hob.CheckJSON(raw); err != nil {
		return nil, badSchema("is not usable: %s", messageOf(err))
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, badSchema("is not valid JSON")
	}
	doc, ok := parsed.(map[string]any)
	if !ok {
		return nil, badSchema("must be an object")
	}
	switch doc["type"] {
	case "object":
	case nil:
		raw = untyped(raw)
	default:
		return nil, badSchema(`must have "type": "object"`)
	}
	s := &inputSchema{raw: raw, doc: doc}
	s.properties, _ = doc["properties"].(map[string]any)
	s.refers = refers(doc)
	return s, nil
}

// prepare makes the compiler of the schema.
func (s *inputSchema) prepare() error {
	if s.compiler != nil {
		return nil
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaURL, s.doc); err != nil {
		return badSchema("is not a JSON Schema")
	}
	s.compiler = c
	return nil
}

// refers says whether there is a reference anywhere in a schema.
func refers(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef" || refers(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, refers)
	}
	return false
}

// untyped puts "type": "object" in front of the members of an object schema.
func untyped(raw json.RawMessage) json.RawMessage {
	ms, _ := members(raw)
	return object(append([]member{{"type", json.RawMessage(`"object"`)}}, ms...))
}

func (s *inputSchema) has(property string) bool {
	_, ok := s.properties[property]
	return ok
}

// forbids says whether no call may have an argument of a name: it stands in no properties, and others are refused. One that
// only lists properties refuses others too, as the check of a call does. Where a schema leaves that to its parts, or to what
// it refers to, nothing is forbidden: the parts are judged at the call.
func (s *inputSchema) forbids(property string) bool {
	if s.has(property) || s.matches(property) {
		return false
	}
	if s.doc["additionalProperties"] == false {
		return true
	}
	for _, open := range []string{
		"additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf",
	} {
		if _, ok := s.doc[open]; ok {
			return false
		}
	}
	return len(s.properties) > 0
}

// matches says whether a name fits a pattern of the schema, or may fit one that cannot be read.
func (s *inputSchema) matches(property string) bool {
	patterns, _ := s.doc["patternProperties"].(map[string]any)
	for p := range patterns {
		if re, err := regexp.Compile(p); err != nil || re.MatchString(property) {
			return true
		}
	}
	return false
}

// checkProperty says whether a value fits the schema of a property; the error is Invalid and names it. A schema with
// references can ask for work without end, so values are checked against it at the call alone, where that is bounded.
func (s *inputSchema) checkProperty(name string, value json.RawMessage) error {
	if s.refers {
		return nil
	}
	if err := s.prepare(); err != nil {
		return err
	}
	pointer := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	property, err := s.compiler.Compile(schemaURL + "#/properties/" + escapeFragment(pointer))
	if err != nil {
		return badKey(name, "cannot be checked: the property's schema is not usable")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return badKey(name, "is not valid JSON")
	}
	if err := property.Validate(v); err != nil {
		return badKey(name, "does not fit the tool's input schema: %s", schemaFault(err))
	}
	return nil
}

// escapeFragment writes a JSON pointer as part of a URL.
func escapeFragment(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// schemaFault is the first concrete fault of a schema or value, in one line and without the document's made-up address.
func schemaFault(err error) string {
	var bad *jsonschema.SchemaValidationError
	if errors.As(err, &bad) {
		err = bad.Err
	}
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return strings.ReplaceAll(err.Error(), schemaURL, "")
	}
	for len(v.Causes) > 0 {
		v = v.Causes[0]
	}
	text := v.ErrorKind.LocalizedString(message.NewPrinter(language.English))
	text = strings.ReplaceAll(text, schemaURL, "")
	if len(v.InstanceLocation) > 0 {
		return "at /" + strings.Join(v.InstanceLocation, "/") + ": " + text
	}
	return text
}

// member is one member of a JSON object, in the order of its text.
type member struct {
	name  string
	value json.RawMessage
}

// members splits a JSON object without changing the order or the text of its values.
func members(raw json.RawMessage) ([]member, bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var ms []member
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false
		}
		ms = append(ms, member{name, value})
	}
	if _, err := dec.Token(); err != nil {
		return nil, false
	}
	_, err := dec.Token()
	return ms, errors.Is(err, io.EOF)
}

// object is the inverse of members.
func object(ms []member) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range ms {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(encode(m.name))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// encode is JSON without HTML escapes; v must be of a type that always can be encoded.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings, numbers, raw JSON that was parsed before: cannot fail
	return bytes.TrimRight(b.Bytes(), "\n")
}
