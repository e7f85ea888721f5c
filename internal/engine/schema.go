package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"hob"
)

const (
	maxSchemaBytes = 64 << 10
	maxSchemas     = 1024 // compiled schemas kept; the cache starts anew when it is full
)

// schema is a compiled schema of a tool's arguments.
type schema struct {
	compiled *jsonschema.Schema
	// known, where not nil, are the only arguments the tool takes: its schema lists properties and says nothing about
	// others.
	known map[string]bool
}

type schemaCache struct {
	mu   sync.Mutex
	byID map[string]*schema
}

func (c *schemaCache) get(raw json.RawMessage) (*schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[string(raw)]; s != nil {
		return s, nil
	}
	s, err := compile(raw)
	if err != nil {
		return nil, err
	}
	c.keep(string(raw), s)
	return s, nil
}

// getAny is get for a schema of any value; it gives the compiled schema alone.
func (c *schemaCache) getAny(raw json.RawMessage) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := "any " + string(raw)
	if s := c.byID[key]; s != nil {
		return s.compiled, nil
	}
	compiled, err := compileAny(raw)
	if err != nil {
		return nil, err
	}
	c.keep(key, &schema{compiled: compiled})
	return compiled, nil
}

func (c *schemaCache) keep(key string, s *schema) {
	if c.byID == nil || len(c.byID) >= maxSchemas {
		c.byID = map[string]*schema{}
	}
	c.byID[key] = s
}

// CheckSchema says whether a schema can describe a tool's arguments: a JSON Schema of an object, at most 64 KB, without
// references outside itself. The error is Invalid.
func (e *Engine) CheckSchema(raw json.RawMessage) error {
	_, err := compile(raw)
	return err
}

func compile(raw json.RawMessage) (*schema, error) {
	bad := func(format string, args ...any) error {
		return hob.Errorf(hob.Invalid, "input_schema "+format, args...).With("field", "input_schema")
	}
	compiled, err := compileAny(raw)
	if err != nil {
		return nil, bad("%s", err.Error())
	}
	var top struct {
		Type                  json.RawMessage
		Properties            map[string]json.RawMessage
		AdditionalProperties  json.RawMessage
		PatternProperties     json.RawMessage
		UnevaluatedProperties json.RawMessage
		Ref                   string `json:"$ref"`
		AllOf, AnyOf, OneOf   []json.RawMessage
	}
	if err := json.Unmarshal(raw, &top); err != nil || bytes.TrimSpace(raw)[0] != '{' {
		return nil, bad("must be a JSON Schema object")
	}
	if t := string(top.Type); t != "" && t != `"object"` {
		return nil, bad(`must have "type": "object"`)
	}
	s := &schema{compiled: compiled}
	open := top.AdditionalProperties != nil || top.PatternProperties != nil || top.UnevaluatedProperties != nil ||
		top.Ref != "" || len(top.AllOf)+len(top.AnyOf)+len(top.OneOf) > 0
	if len(top.Properties) > 0 && !open {
		s.known = make(map[string]bool, len(top.Properties))
		for name := range top.Properties {
			s.known[name] = true
		}
	}
	return s, nil
}

// compileAny compiles a JSON Schema. The error continues a sentence about it.
func compileAny(raw json.RawMessage) (*jsonschema.Schema, error) {
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("must be at most %d bytes", maxSchemaBytes)
	}
	if err := hob.CheckJSON(raw); err != nil {
		return nil, fmt.Errorf("is not valid: %w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("is not valid JSON")
	}
	if _, ok := doc.(map[string]any); !ok {
		return nil, errors.New("must be a JSON Schema object")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("mem:schema", doc); err != nil {
		return nil, fmt.Errorf("is not a valid JSON Schema: %s", firstLine(err))
	}
	compiled, err := c.Compile("mem:schema")
	if err != nil {
		return nil, fmt.Errorf("is not a valid JSON Schema: %s", firstLine(err))
	}
	return compiled, nil
}

// noLoader refuses every reference: schemas come from outside, and one must not make the server read a file or a URL.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("references outside the schema are not allowed")
}

// check says what is wrong with arguments, all of it at once, so that the model can mend it in one step. "" is right.
func (s *schema) check(args json.RawMessage) string {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return "the arguments are not valid JSON"
	}
	var faults []string
	if m, ok := v.(map[string]any); ok && s.known != nil {
		for name := range m {
			if !s.known[name] {
				faults = append(faults, fmt.Sprintf("unknown argument %q", name))
			}
		}
	}
	return strings.Join(append(faults, faultsOf(s.compiled, v)...), "; ")
}

// faultsOf tells in what a value is not as a schema wants it.
func faultsOf(s *jsonschema.Schema, v any) []string {
	var invalid *jsonschema.ValidationError
	if err := s.Validate(v); errors.As(err, &invalid) {
		return appendFaults(nil, invalid)
	}
	return nil
}

const maxFaults = 10

func appendFaults(faults []string, v *jsonschema.ValidationError) []string {
	if len(v.Causes) == 0 && len(faults) < maxFaults {
		where := strings.Join(v.InstanceLocation, ".")
		text := v.ErrorKind.LocalizedString(message.NewPrinter(language.English))
		if where != "" {
			text = where + ": " + text
		}
		return append(faults, text)
	}
	for _, cause := range v.Causes {
		faults = appendFaults(faults, cause)
	}
	return faults
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return preview(line, 200)
}
