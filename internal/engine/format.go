package engine

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"hob"
)

// format is the form that an answer must have.
type format struct {
	schema *checker // nil: any JSON object
}

// formatOf reads a response_format in OpenAI's form: {"type":"text"}, {"type":"json_object"} or {"type":"json_schema",
// "json_schema":{"name":…,"schema":{…}}}. The error is Invalid.
func (e *Engine) formatOf(raw json.RawMessage) (*format, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil //nolint:nilnil // any form will do
	}
	bad := func(must string, args ...any) error {
		return hob.Errorf(hob.Invalid, "response_format"+must, args...).With("field", "response_format")
	}
	var in struct {
		Type       string `json:"type"`
		JSONSchema *struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"schema"`
			Strict *bool           `json:"strict"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, hob.FieldError("response_format", err)
	}
	switch in.Type {
	case "text":
		return nil, nil //nolint:nilnil // any form will do
	case "json_object":
		return &format{}, nil
	case "json_schema":
		if in.JSONSchema == nil || len(in.JSONSchema.Schema) == 0 {
			return nil, bad(".json_schema.schema is missing")
		}
		if !plainFormatName(in.JSONSchema.Name) {
			return nil, bad(".json_schema.name must be 1 to 64 letters, digits, _ or -")
		}
		s, err := e.schemas.getAny(in.JSONSchema.Schema)
		if err != nil {
			return nil, bad(".json_schema.schema %s", err.Error())
		}
		return &format{schema: s}, nil
	}
	return nil, bad(".type must be text, json_object or json_schema")
}

func plainFormatName(name string) bool { return usableCallID.MatchString(name) }

// check says what is wrong with an answer, "" if nothing.
func (f *format) check(answer string) string {
	raw := []byte(bareJSON(answer))
	if err := hob.CheckJSON(raw); err != nil {
		return "it is no valid JSON: " + err.Error()
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return "it is no valid JSON"
	}
	if f.schema == nil {
		if _, ok := v.(map[string]any); !ok {
			return "it is no JSON object"
		}
		return ""
	}
	return strings.Join(f.schema.faults(v, len(raw)), "; ")
}

// bareJSON takes off what models like to put around JSON: a code fence, and space.
func bareJSON(answer string) string {
	s := strings.TrimSpace(answer)
	if rest, ok := strings.CutPrefix(s, "```"); ok {
		if head, body, ok := strings.Cut(rest, "\n"); ok && !strings.ContainsAny(head, "{[\"") {
			if body, ok := strings.CutSuffix(strings.TrimSpace(body), "```"); ok {
				return strings.TrimSpace(body)
			}
		}
	}
	return s
}

// misfit asks the model once more for an answer that is not in the form that was asked for. false: the answer stands.
func (a *active) misfit(step int, last bool, ans *answer) bool {
	if a.plan.format == nil || a.repairs > 0 || len(ans.calls) > 0 && !last {
		return false
	}
	text := ans.text.String()
	wrong := a.plan.format.check(text)
	if wrong == "" {
		return false
	}
	if strings.TrimSpace(text) == "" {
		text = "(no answer)"
	}
	if most := a.space.threshold / 4; estimateTokens(text) > most {
		text = shorten(text, most)
	}
	a.repairs++
	a.wrong = []hob.Message{
		{Role: hob.RoleAssistant, Content: text},
		{Role: hob.RoleUser, Content: "Your answer is not in the form that was asked for: " + preview(wrong, 2000) +
			". Answer again with the JSON alone, without any text or code fence around it."},
	}
	*ans = answer{}
	a.log.write(func(b *batch) {
		b.event(hob.EventResponseRepair, func(h hob.EventHead) any {
			return hob.ResponseRepairEvent{EventHead: h, Step: step, Error: wrong}
		})
		b.event(hob.EventStepReset, func(h hob.EventHead) any {
			return hob.StepResetEvent{EventHead: h, Step: step, Reason: hob.CodeResponseFormat}
		})
	})
	return true
}
