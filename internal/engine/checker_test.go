package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// doubling is a schema of n levels, each of which applies the one below twice.
func doubling(n int, apply func(below string) string, last string) string {
	defs := []string{`"a0":` + last}
	for i := 1; i <= n; i++ {
		defs = append(defs, fmt.Sprintf(`"a%d":%s`, i, apply(fmt.Sprintf(`{"$ref":"#/$defs/a%d"}`, i-1))))
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/a%d","$defs":{%s}}`, n, strings.Join(defs, ","))
}

func TestChecker_NoSchemaTakesMoreWorkThanIsAllowed(t *testing.T) {
	t.Parallel()
	twice := func(keyword string) func(string) string {
		return func(below string) string { return `{"` + keyword + `":[` + below + `,` + below + `]}` }
	}
	nested := `{"x":1}`
	for range 40 {
		nested = `{"x":` + nested + `}`
	}
	many := make([]string, 20_000)
	for i := range many {
		many[i] = fmt.Sprintf(`"v%d"`, i)
	}
	for name, c := range map[string]struct{ schema, value string }{
		"anyOf":        {doubling(60, twice("anyOf"), `{"type":"string"}`), `{"x":1}`},
		"oneOf":        {doubling(60, twice("oneOf"), `{"type":"string"}`), `{"x":1}`},
		"allOf":        {doubling(60, twice("allOf"), `{"minProperties":1}`), `{"x":1}`},
		"inside not":   {doubling(60, func(b string) string { return `{"not":{"anyOf":[` + b + `,` + b + `]}}` }, `{"type":"string"}`), `{"x":1}`},
		"recursive":    {`{"anyOf":[{"required":["y"],"properties":{"x":{"$ref":"#"}}},{"required":["z"],"properties":{"x":{"$ref":"#"}}}]}`, nested},
		"if and then":  {doubling(60, func(b string) string { return `{"if":` + b + `,"then":` + b + `,"else":` + b + `}` }, `{"minProperties":1}`), `{"x":1}`},
		"enum of many": {`{"items":{"enum":[` + strings.Join(many[:5000], ",") + `]}}`, `[` + strings.Join(many, ",") + `]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := compileAny(json.RawMessage(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			from := time.Now()
			f := format{schema: s}
			wrong := f.check(c.value)
			if took := time.Since(from); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if !strings.Contains(wrong, "more work") && !strings.Contains(wrong, "too large") {
				t.Errorf("the value counts as %q", preview(wrong, 200))
			}
		})
	}
}

func TestChecker_HonestSchemasAreChecked(t *testing.T) {
	t.Parallel()
	big := `[` + strings.TrimSuffix(strings.Repeat(`{"id":1,"tag":"a"},`, 4_000), ",") + `]`
	for _, c := range []struct{ schema, value, wrong string }{
		{`{"items":{"type":"object","properties":{"id":{"type":"integer"},"tag":{"enum":["a","b"]}},"required":["id"]}}`, big, ""},
		{`{"type":"array","items":{"required":["nope"]}}`, `[{"a":1}]`, "missing property 'nope'"},
		{doubling(8, func(b string) string { return `{"anyOf":[` + b + `,` + b + `]}` }, `{"type":"object"}`), `{"x":1}`, ""},
		{`{"properties":{"next":{"$ref":"#"},"v":{"type":"integer"}}}`, `{"v":1,"next":{"v":2,"next":{"v":"x"}}}`, "next.next.v"},
		{`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"type":"object"}`, ""},
		{`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"type":7}`, "type"},
	} {
		s, err := compileAny(json.RawMessage(c.schema))
		if err != nil {
			t.Fatalf("%s: %v", c.schema, err)
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if wrong := (&format{schema: s}).check(c.value); (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
					t.Errorf("%s: the value counts as %q", preview(c.schema, 100), preview(wrong, 300))
				}
			})
		}
		group.Wait()
	}
}

func TestChecker_LargePatternsAreRefusedAndTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	var patterns []string
	for i := range 2900 {
		patterns = append(patterns, fmt.Sprintf(`"x{990}%d":{}`, i))
	}
	if _, err := compileAny(json.RawMessage(`{"patternProperties":{` + strings.Join(patterns, ",") + `}}`)); err == nil {
		t.Error("2,900 large patterns were taken")
	}
	var c schemaCache
	for i := range 600 {
		raw := fmt.Sprintf(`{"description":"%s %d"}`, strings.Repeat("x", 60_000), i)
		if _, err := c.getAny(json.RawMessage(raw)); err != nil {
			t.Fatal(err)
		}
		sum := 0
		for key, s := range c.byID {
			sum += s.size(key)
		}
		if sum != c.bytes || sum > maxCachedBytes || len(c.byID) == 0 {
			t.Fatalf("%d bytes are kept, counted as %d", sum, c.bytes)
		}
	}
}

func TestChecker_AWrongSchemaIsToldByItsPlace(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"objekt"}`:                          "at /type: ",
		`{"properties":{"a":{"minimum":"x"}}}`:       "at /properties/a/minimum: ",
		`{"$ref":"#/$defs/nope"}`:                    "nope",
		`{"properties":{"a":{"pattern":"("}}}`:       "a",
		`{"$ref":"https://example.com/schema.json"}`: "not allowed",
	} {
		_, err := compileAny(json.RawMessage(schema))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "metaschema") {
			t.Errorf("%s: %v", schema, err)
		}
	}
}
