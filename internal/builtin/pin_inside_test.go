package builtin

import (
	"encoding/json"
	"testing"

	"hob"
)

// A key that is no option is pinned wherever the schema leaves room for an argument of its name, and where it leaves none
// nobody can give one.
func TestBinding_PinsWhateverTheSchemaDoesNotForbid(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		schema string
		pinned bool
		shown  string // to the model
	}{
		"in properties": {`{"type":"object","properties":{"x":{},"y":{}},"required":["x"]}`, true, `{"type":"object","properties":{"y":{}}}`},
		"no properties": {`{"type":"object"}`, true, `{"type":"object"}`},
		"root $ref": {
			`{"type":"object","$ref":"#/$defs/in","$defs":{"in":{"properties":{"x":{},"y":{}},"required":["x"]}}}`, true,
			`{"type":"object","$defs":{"in":{"properties":{"x":{},"y":{}},"required":["x"]}},"allOf":[{"properties":{"y":{}}}]}`,
		},
		"$ref in allOf": {
			`{"type":"object","allOf":[{"$ref":"#/$defs/in"},{"properties":{"x":{}}}],"$defs":{"in":{"properties":{"x":{}}}}}`, true,
			`{"type":"object","allOf":[{"allOf":[{"properties":{}}]},{"properties":{}}],"$defs":{"in":{"properties":{"x":{}}}}}`,
		},
		"$ref that does not name it": {
			`{"type":"object","$ref":"#/$defs/in","$defs":{"in":{"properties":{"y":{}}}}}`, true,
			`{"type":"object","$ref":"#/$defs/in","$defs":{"in":{"properties":{"y":{}}}}}`,
		},
		"what refers to itself": {
			`{"type":"object","$ref":"#/$defs/in","$defs":{"in":{"properties":{"x":{}},"anyOf":[{"$ref":"#/$defs/in"},true]}}}`, true, "",
		},
		"allOf":             {`{"type":"object","properties":{"y":{}},"allOf":[{"properties":{"x":{}}}]}`, true, `{"type":"object","properties":{"y":{}},"allOf":[{"properties":{}}]}`},
		"dependentSchemas":  {`{"type":"object","additionalProperties":true,"properties":{"y":{}},"dependentSchemas":{"y":{"properties":{"x":{}},"required":["x"]}}}`, true, `{"type":"object","additionalProperties":true,"properties":{"y":{}},"dependentSchemas":{"y":{"properties":{}}}}`},
		"a pattern":         {`{"type":"object","properties":{"y":{}},"patternProperties":{"^x":{}},"additionalProperties":false}`, true, ""},
		"others":            {`{"type":"object","properties":{"y":{}},"additionalProperties":{"type":"string"}}`, true, ""},
		"others, true":      {`{"type":"object","properties":{"y":{}},"additionalProperties":true}`, true, ""},
		"unevaluated":       {`{"type":"object","properties":{"y":{}},"unevaluatedProperties":false}`, true, ""},
		"no others":         {`{"type":"object","properties":{"y":{}},"additionalProperties":false}`, false, ""},
		"none at all":       {`{"type":"object","additionalProperties":false}`, false, ""},
		"listed alone":      {`{"type":"object","properties":{"y":{}}}`, false, ""},
		"patterns of other": {`{"type":"object","patternProperties":{"^z":{}},"additionalProperties":false}`, false, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := parseSchema(json.RawMessage(tt.schema)); err != nil {
				t.Fatal(err)
			}
			b := newBinding(customSource(&hob.Tool{Type: hob.HTTPTool, InputSchema: json.RawMessage(tt.schema)}), json.RawMessage(`{"x":"v"}`))
			if b.err != nil || (string(b.pinned["x"]) == `"v"`) != tt.pinned || (len(b.ignored) == 0) != tt.pinned {
				t.Fatalf("pinned %s, ignored %q, error %v", b.pinned, b.ignored, b.err)
			}
			if _, err := parseSchema(b.schema); err != nil {
				t.Errorf("the model gets %s: %v", b.schema, err)
			}
			if tt.shown != "" && string(b.schema) != tt.shown {
				t.Errorf("the model gets %s\nwant %s", b.schema, tt.shown)
			}
			if tt.pinned && string(b.full) != tt.schema {
				t.Errorf("calls are checked against %s", b.full)
			}
		})
	}
}

func TestWithout_LeavesNoReferenceToWhatIsGone(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"a":{"type":"string"},"b":{"$ref":"#/properties/a"}}}`
	if got := string(without(json.RawMessage(schema), hob.PinnedArgs{"a": json.RawMessage("1")})); got != schema {
		t.Errorf("got %s", got)
	}
}
