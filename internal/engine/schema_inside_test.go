package engine

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"hob"
)

func TestSchema_HasABoundedNumberOfParts(t *testing.T) {
	t.Parallel()
	wide := func(n int, property string) json.RawMessage { // n parts: itself, the object of its properties and these
		list := make([]string, n-2)
		for i := range list {
			list[i] = fmt.Sprintf(`"p%d":%s`, i, property)
		}
		return json.RawMessage(`{"type":"object","properties":{` + strings.Join(list, ",") + `}}`)
	}
	for _, property := range []string{`{"type":"string"}`, `{}`, `true`} {
		if _, err := compile(wide(MaxSchemaParts, property)); err != nil {
			t.Errorf("at the bound: %v", err)
		}
		_, err := compile(wide(MaxSchemaParts+1, property))
		if hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "at most 1000 parts") {
			t.Errorf("above the bound: %v", err)
		}
	}
	deep := strings.Repeat(`{"properties":{"a":`, hob.MaxJSONDepth/2) + `{}` + strings.Repeat(`}}`, hob.MaxJSONDepth/2)
	if _, err := compile(json.RawMessage(deep)); hob.KindOf(err) != hob.Invalid {
		t.Errorf("a schema of more than %d levels: %v", hob.MaxJSONDepth, err)
	}
}

func TestSchema_ComesToPartsOfTheValue(t *testing.T) {
	t.Parallel()
	for raw, ok := range map[string]bool{
		`{"allOf":[{"$ref":"#"}]}`: false,
		`{"$ref":"#"}`:             false,
		`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}},"properties":{"x":{"$ref":"#/$defs/a"}}}`: false,
		`{"not":{"$ref":"#"}}`:                                  false,
		`{"if":true,"then":{"$ref":"#"}}`:                       false,
		`{"dependentSchemas":{"a":{"$ref":"#"}}}`:               false,
		`{"$dynamicAnchor":"n","oneOf":[{"$dynamicRef":"#n"}]}`: false,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","anyOf":[{"$recursiveRef":"#"}]}`: false,
		`{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":{"$ref":"#"}}}`:    false,

		`{"properties":{"next":{"$ref":"#"}}}`:                                                                                             true,
		`{"properties":{"all":{"items":{"$ref":"#"}}},"additionalProperties":{"$ref":"#"}}`:                                                true,
		`{"$defs":{"n":{"type":"object","properties":{"left":{"$ref":"#/$defs/n"}}}},"allOf":[{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}]}`: true,
	} {
		_, err := compile(json.RawMessage(raw))
		if (err == nil) != ok || err != nil && (hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "refers to itself")) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// What the cache counts for a schema is no less than what it takes, give or take a quarter.
func TestSchemaCache_CountsWhatASchemaTakes(t *testing.T) { //nolint:paralleltest // it measures the heap
	const schemas, properties = 20, 900
	var c schemaCache
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range schemas {
		list := make([]string, properties)
		for k := range list {
			list[k] = fmt.Sprintf(`"p%d_%d":{"type":"string"}`, i, k)
		}
		if _, err := c.get(json.RawMessage(`{"properties":{` + strings.Join(list, ",") + `}}`)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	taken := int(after.HeapAlloc) - int(before.HeapAlloc)
	if len(c.byID) != schemas || taken > c.bytes*5/4 {
		t.Errorf("%d schemas take %d bytes and are counted as %d", len(c.byID), taken, c.bytes)
	}
	runtime.KeepAlive(&c)
}
