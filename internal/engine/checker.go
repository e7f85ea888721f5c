package engine

import (
	"errors"
	"reflect"
	"regexp"
	"regexp/syntax"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of checking a value against a schema. Both come from outside, and a small schema can ask for more work than a
// machine has: alternatives of alternatives double with each level.
const (
	checkSteps   = 50_000     // schemas applied to one value, and as many again as it has bytes
	checkCompare = 50_000_000 // values of enums and patterns, times the bytes of a value
	regexpSize   = 50_000     // instructions of all patterns of one schema
)

// checker checks values against a schema, within the bounds.
type checker struct {
	schema *jsonschema.Schema
	weight int // values of enums and patterns in the schema

	parts, instructions int // of the schema, and of its patterns

	mu   sync.Mutex // a check at a time: left belongs to it
	left int
}

var errTooMuch = errors.New("the schema asks for more work than is allowed; make it simpler")

// newChecker makes every part of the schema count its uses.
func newChecker(s *jsonschema.Schema) *checker {
	c := &checker{schema: s}
	everyPart(s, func(part *jsonschema.Schema) {
		c.parts++
		c.meter(part)
	})
	return c
}

// everyPart visits each part of a schema once.
func everyPart(s *jsonschema.Schema, do func(*jsonschema.Schema)) {
	seen := map[*jsonschema.Schema]bool{}
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			part, ok := v.Interface().(*jsonschema.Schema)
			if !ok || part == nil || seen[part] {
				return
			}
			seen[part] = true
			do(part)
			for i := range v.Elem().NumField() {
				if f := v.Elem().Field(i); v.Elem().Type().Field(i).IsExported() {
					visit(f)
				}
			}
		case reflect.Slice:
			for i := range v.Len() {
				visit(v.Index(i))
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				visit(v.MapIndex(key))
			}
		case reflect.Interface:
			if !v.IsNil() {
				visit(v.Elem())
			}
		default:
		}
	}
	visit(reflect.ValueOf(s))
}

// meter lets a part of the schema count its uses. It does so as a format, which is looked at before anything that applies
// further schemas.
func (c *checker) meter(part *jsonschema.Schema) {
	if part.Enum != nil {
		c.weight += len(part.Enum.Values)
	}
	const ofPattern = 20 // enum values that a pattern weighs as much as
	c.weight += ofPattern * len(part.PatternProperties)
	format := part.Format
	counting := jsonschema.Format{Name: "counted", Validate: func(v any) error {
		if c.left--; c.left < 0 { // what applies further schemas is not come to, so the check ends
			return errTooMuch
		}
		if format != nil {
			return format.Validate(v)
		}
		return nil
	}}
	if format != nil {
		counting.Name = format.Name
	}
	part.Format = &counting
}

// faults tells in what a value, of a size in bytes, is not as the schema wants it.
func (c *checker) faults(v any, size int) []string {
	if c.weight*size > checkCompare {
		return []string{"the value is too large to be checked against this schema"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = checkSteps + size
	err := c.schema.Validate(v)
	if c.left < 0 {
		return []string{errTooMuch.Error()}
	}
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return appendFaults(nil, invalid)
	}
	return nil
}

// boundedRegexps compiles the patterns of one schema, as long as they are not too large together.
// left is how many instructions they may still have.
func boundedRegexps(left *int) jsonschema.RegexpEngine {
	return func(pattern string) (jsonschema.Regexp, error) {
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			return nil, err
		}
		prog, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			return nil, err
		}
		if *left -= len(prog.Inst); *left < 0 {
			return nil, errors.New("the patterns of the schema are too large")
		}
		return regexp.Compile(pattern)
	}
}
