package fakeai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// checkChatForm checks response_format, once the messages are known.
func checkChatForm(b *chatBody, p *Parsed) error {
	if len(b.ResponseFormat) == 0 {
		return nil
	}
	var format struct {
		Type   string `json:"type"`
		Schema *struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Strict      *bool           `json:"strict"`
			Schema      json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := strict(b.ResponseFormat, &format); err != nil {
		return invalid("response_format", "Invalid type for 'response_format': %s", err)
	}
	switch format.Type {
	case "text":
		return nil
	case "json_object":
		p.Form.JSON = true
		if !p.mentions("json") {
			return invalid("messages", "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.")
		}
		return nil
	case "json_schema":
	default:
		return invalid("response_format.type", "Invalid value: '%s'.", format.Type)
	}
	at := "response_format.json_schema"
	switch s := format.Schema; {
	case s == nil || s.Name == "":
		return invalid(at+".name", "Missing required parameter: '%s.name'.", at)
	case !toolName.MatchString(s.Name):
		return invalid(at+".name", "Invalid '%s.name': string does not match pattern.", at)
	case !object(s.Schema):
		return invalid(at+".schema", "Missing required parameter: '%s.schema'.", at)
	}
	p.Form = AnswerForm{JSON: true, Schema: format.Schema.Schema, Strict: format.Schema.Strict != nil && *format.Schema.Strict}
	if !p.Form.Strict {
		return nil
	}
	if err := closed(p.Form.Schema, true); err != nil {
		return invalid("response_format", "Invalid schema for response_format '%s': %s", format.Schema.Name, err)
	}
	return nil
}

// strict decodes a value whose members must all be known.
func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// mentions says whether a word stands anywhere in the messages.
func (p *Parsed) mentions(word string) bool {
	if strings.Contains(strings.ToLower(p.System), word) {
		return true
	}
	return slices.ContainsFunc(p.Messages, func(m Message) bool { return strings.Contains(strings.ToLower(m.Text), word) })
}

// closed reports the first object of a schema that is open to other members or, with all, has members that may be absent.
func closed(raw json.RawMessage, all bool) error {
	var node any
	if err := json.Unmarshal(raw, &node); err != nil {
		return err
	}
	root, ok := node.(map[string]any)
	if !ok || root["type"] != "object" {
		return fmt.Errorf("schema must be a JSON Schema of 'type: \"object\"'")
	}
	return closedNode("", node, all)
}

func closedNode(at string, node any, all bool) error {
	switch v := node.(type) {
	case []any:
		for i, one := range v {
			if err := closedNode(fmt.Sprintf("%s/%d", at, i), one, all); err != nil {
				return err
			}
		}
	case map[string]any:
		if properties, isObject := v["properties"].(map[string]any); isObject || v["type"] == "object" {
			if v["additionalProperties"] != false {
				return fmt.Errorf("In context=(%s), 'additionalProperties' is required to be supplied and to be false", at) //nolint:staticcheck // the vendor's words
			}
			required, _ := v["required"].([]any)
			for name := range properties {
				if all && !slices.Contains(required, any(name)) {
					return fmt.Errorf("In context=(%s), 'required' is required to be supplied and to be an array including every key "+ //nolint:staticcheck // the vendor's words
						"in properties. Missing '%s'", at, name)
				}
			}
		}
		for _, word := range []string{"not", "if", "then", "else", "dependentRequired", "patternProperties"} {
			if _, ok := v[word]; ok {
				return fmt.Errorf("In context=(%s), '%s' is not permitted", at, word) //nolint:staticcheck // the vendor's words
			}
		}
		for name, inner := range v {
			if name == "enum" || name == "const" || name == "required" {
				continue
			}
			if err := closedNode(at+"/"+name, inner, all); err != nil {
				return err
			}
		}
	}
	return nil
}

// enforced are the models of Anthropic's that take output_config.format.
func enforced(model string) bool {
	for _, old := range []string{"claude-2", "claude-3", "claude-opus-4-0", "claude-opus-4-1", "claude-sonnet-4-0", "claude-sonnet-4-2", "claude-opus-4-2"} {
		if strings.HasPrefix(model, old) {
			return false
		}
	}
	return true
}

// checkOutputConfig checks Anthropic's effort and format.
func checkOutputConfig(b *messagesBody, p *Parsed) error {
	if len(b.Output) == 0 {
		return nil
	}
	var out struct {
		Effort string `json:"effort"`
		Format *struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	}
	if err := strict(b.Output, &out); err != nil {
		return invalid("", "output_config: %s", err)
	}
	if out.Effort != "" && !slices.Contains([]string{"low", "medium", "high", "max"}, out.Effort) {
		return invalid("", "output_config.effort: Input should be 'low', 'medium', 'high' or 'max'")
	}
	if out.Format == nil {
		return nil
	}
	switch {
	case out.Format.Type != "json_schema":
		return invalid("", "output_config.format.type: Input should be 'json_schema'")
	case !enforced(b.Model):
		return invalid("", "output_config.format: this model does not support structured outputs")
	case !object(out.Format.Schema):
		return invalid("", "output_config.format.schema: Field required")
	}
	if err := closed(out.Format.Schema, false); err != nil {
		return invalid("", "output_config.format.schema: %s", err)
	}
	for _, word := range []string{"minimum", "maximum", "minLength", "maxLength", "multipleOf", "maxItems", "oneOf"} {
		if bytes.Contains(out.Format.Schema, []byte(`"`+word+`":`)) {
			return invalid("", "output_config.format.schema: property '%s' is not supported", word)
		}
	}
	p.Form = AnswerForm{JSON: true, Schema: out.Format.Schema, Strict: true}
	return nil
}
