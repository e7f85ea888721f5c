package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"hob"
)

const (
	maxSchemaBytes = 64 << 10
	// MaxSchemaParts bounds a schema's objects, trues and falses, which each part of it is: compiling one takes a time that
	// grows with their square.
	MaxSchemaParts = 1000
	maxSchemas     = 1024 // compiled schemas kept; the cache starts anew when it is full
	maxCachedBytes = 64 << 20
	// What is kept of a schema, beside its text twice: measured.
	partBytes   = 1 << 10 // of one part
	regexpBytes = 64      // of one instruction of a pattern
)

// schema is a compiled schema of a tool's arguments.
type schema struct {
	compiled *checker
	// known, where not nil, are the only arguments the tool takes: its schema lists properties and says nothing about
	// others.
	known map[string]bool
}

// size is about what a schema of a text takes, in bytes.
func (s *schema) size(text string) int {
	return 2*len(text) + partBytes*s.compiled.parts + regexpBytes*s.compiled.instructions
}

// schemaCache keeps compiled schemas, within a bound of their number and of the memory that they take.
type schemaCache struct {
	mu    sync.Mutex
	byID  map[string]*schema
	bytes int
}

// get compiles the schema of a tool's arguments, or takes it from the cache.
func (c *schemaCache) get(raw json.RawMessage) (*schema, error) {
	return c.fetch(string(raw), func() (*schema, error) { return compile(raw) })
}

// getAny is get for a schema of any value.
func (c *schemaCache) getAny(raw json.RawMessage) (*checker, error) {
	s, err := c.fetch("any "+string(raw), func() (*schema, error) {
		compiled, err := compileAny(raw)
		return &schema{compiled: compiled}, err
	})
	if err != nil {
		return nil, err
	}
	return s.compiled, nil
}

func (c *schemaCache) fetch(key string, make func() (*schema, error)) (*schema, error) {
	c.mu.Lock()
	s := c.byID[key]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := make()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.byID[key]; other != nil { // made meanwhile
		return other, nil
	}
	size := s.size(key)
	if c.byID == nil || len(c.byID) >= maxSchemas || c.bytes+size > maxCachedBytes {
		c.byID, c.bytes = map[string]*schema{}, 0
	}
	c.byID[key] = s
	c.bytes += size
	return s, nil
}

// CheckSchema says whether a schema can describe a tool's arguments: a JSON Schema of an object, at most 64 KB and MaxSchemaParts,
// without references outside itself and such that come back to themselves for the same value. The error is Invalid.
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
func compileAny(raw json.RawMessage) (*checker, error) {
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
	if n := parts(doc); n > MaxSchemaParts {
		return nil, fmt.Errorf("must have at most %d parts (objects, true and false), not %d", MaxSchemaParts, n)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	left := regexpSize
	c.UseRegexpEngine(boundedRegexps(&left))
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("mem:schema", doc); err != nil {
		return nil, fmt.Errorf("is not a valid JSON Schema: %s", schemaFault(err))
	}
	compiled, err := c.Compile("mem:schema")
	if err != nil {
		return nil, fmt.Errorf("is not a valid JSON Schema: %s", schemaFault(err))
	}
	if at := circle(compiled); at != "" {
		return nil, fmt.Errorf("refers to itself at %s without coming to a part of the value: no value could be checked against it", preview(at, maxFault))
	}
	made := newChecker(compiled)
	made.instructions = regexpSize - left
	return made, nil
}

// parts counts the objects, trues and falses of a document: as many schemas it has at most.
func parts(v any) int {
	n := 0
	switch v := v.(type) {
	case bool:
		return 1
	case map[string]any:
		n = 1
		for _, value := range v {
			n += parts(value)
		}
	case []any:
		for _, value := range v {
			n += parts(value)
		}
	}
	return n
}

// circle finds a part of a schema that applies itself to the same value over and over, and tells its place; "" where there
// is none. One that comes back to itself for a part of the value, as a tree's node does, is fine.
func circle(root *jsonschema.Schema) string {
	const open, done = 1, 2
	state := map[*jsonschema.Schema]int{}
	var same func(s *jsonschema.Schema) string // follows what is applied to the same value
	same = func(s *jsonschema.Schema) string {
		if s == nil || state[s] == done {
			return ""
		}
		if state[s] == open {
			return "#" + strings.TrimPrefix(s.Location, "mem:schema#")
		}
		state[s] = open
		for _, next := range applied(s) {
			if at := same(next); at != "" {
				return at
			}
		}
		state[s] = done
		return ""
	}
	at := ""
	everyPart(root, func(s *jsonschema.Schema) {
		if at == "" {
			at = same(s)
		}
	})
	return at
}

// applied lists what a schema applies to the value that it is applied to itself.
func applied(s *jsonschema.Schema) []*jsonschema.Schema {
	list := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		list = append(list, s.DynamicRef.Ref)
	}
	list = slices.Concat(list, s.AllOf, s.AnyOf, s.OneOf)
	for _, d := range s.DependentSchemas {
		list = append(list, d)
	}
	for _, d := range s.Dependencies {
		if d, ok := d.(*jsonschema.Schema); ok {
			list = append(list, d)
		}
	}
	return list
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
	return strings.Join(append(faults, s.compiled.faults(v, len(args))...), "; ")
}

// Bounds of what is told of the faults of one value: how many, and characters of each.
const (
	maxFaults = 10
	maxFault  = 400
)

func appendFaults(faults []string, v *jsonschema.ValidationError) []string {
	if len(v.Causes) == 0 && len(faults) < maxFaults {
		where := strings.Join(v.InstanceLocation, ".")
		text := v.ErrorKind.LocalizedString(message.NewPrinter(language.English))
		if where != "" {
			text = where + ": " + text
		}
		return append(faults, preview(text, maxFault))
	}
	for _, cause := range v.Causes {
		faults = appendFaults(faults, cause)
	}
	return faults
}

// schemaFault is the first concrete fault of a schema, with its place, in one line.
func schemaFault(err error) string {
	var bad *jsonschema.SchemaValidationError
	if errors.As(err, &bad) {
		err = bad.Err
	}
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		line, _, _ := strings.Cut(strings.ReplaceAll(err.Error(), "mem:schema", ""), "\n")
		return preview(line, maxFault)
	}
	for len(v.Causes) > 0 {
		v = v.Causes[0]
	}
	text := preview(v.ErrorKind.LocalizedString(message.NewPrinter(language.English)), maxFault)
	if len(v.InstanceLocation) > 0 {
		return "at /" + strings.Join(v.InstanceLocation, "/") + ": " + text
	}
	return text
}
