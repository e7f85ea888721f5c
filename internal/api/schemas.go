package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"hob"
)

// schemas collects the schemas of bodies under the names of their types.
type schemas struct {
	byName map[string]*jsonschema.Schema
	facts  any // a value of the type of profiles' facts; nil = any object
}

func nameOf(v any) string {
	name := reflect.TypeOf(v).Name()
	return strings.ToUpper(name[:1]) + name[1:]
}

// ref makes the schema of v's type if there is none yet and points to it.
func (t schemas) ref(v any) (*jsonschema.Schema, error) {
	name := nameOf(v)
	if t.byName[name] == nil {
		s, err := jsonschema.ForType(reflect.TypeOf(v), &jsonschema.ForOptions{TypeSchemas: wireTypes()})
		if err != nil {
			return nil, err
		}
		loosen(s)
		if err := shape(name, s); err != nil {
			return nil, err
		}
		if err := t.shapeProfiles(name, s); err != nil {
			return nil, err
		}
		mark(s)
		t.byName[name] = s
	}
	return &jsonschema.Schema{Ref: "#/components/schemas/" + name}, nil
}

// wireTypes are the types whose JSON is not what their Go form tells.
func wireTypes() map[reflect.Type]*jsonschema.Schema {
	enum := func(values ...any) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Enum: values} }
	scopes := make([]any, 0, len(hob.Scopes()))
	for _, s := range hob.Scopes() {
		scopes = append(scopes, string(s))
	}
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[hob.Time]():            {Types: []string{"string", "null"}, Format: "date-time"},
		reflect.TypeFor[json.RawMessage]():     {},
		reflect.TypeFor[[]byte]():              {Type: "string", ContentEncoding: "base64"},
		reflect.TypeFor[hob.Scope]():           enum(scopes...),
		reflect.TypeFor[hob.Secret]():          {Type: "string", Description: "reads as a mask; a mask sent back means unchanged"},
		reflect.TypeFor[hob.ReasoningEffort](): enum("none", "minimal", "low", "medium", "high"),
		reflect.TypeFor[hob.Disconnect]():      enum("cancel", "continue"),
		reflect.TypeFor[hob.Buffering]():       enum("stream", "hold"),
		reflect.TypeFor[hob.HookEvent]():       enum(anyOf(hob.HookEvents())...),
		reflect.TypeFor[hob.HookType]():        enum(anyOf(hob.HookTypes())...),
		reflect.TypeFor[hob.FailMode]():        enum(string(hob.FailAllow), string(hob.FailDeny)),
		reflect.TypeFor[hob.HookAction]():      enum("pass", "allow", "ask", "deny"),
		reflect.TypeFor[hob.HookStatus]():      enum("succeeded", "failed", "timed_out", "queued"),
		reflect.TypeFor[hob.DeliveryStatus]():  enum("queued", "delivered", "failed"),
		reflect.TypeFor[hob.ApprovalStatus]():  enum(anyOf(approvalStatuses())...),
		reflect.TypeFor[hob.Money]():           {Type: "number", Description: "US dollars"},
		reflect.TypeFor[hob.SettingType]():     enum("int", "float", "str", "bool"),
		reflect.TypeFor[hob.UsageGroup]():      enum("", "action", "component", "agent", "model", "day"),
		reflect.TypeFor[hob.CallStatus]():      enum("planned", "awaiting_approval", "intent", "returned", "result"),
		reflect.TypeFor[hob.PartType]():        enum("text", "image"),
		reflect.TypeFor[hob.Status]():          enum("queued", "running", "awaiting_approval", "completed", "failed", "cancelled"),
	}
}

// anyOf is a list of values for a schema.
func anyOf[T ~string](list []T) []any {
	values := make([]any, len(list))
	for i, v := range list {
		values[i] = string(v)
	}
	return values
}

// loosen takes back what the Go types do not promise: objects may get further fields, and lists are never null.
func loosen(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.AdditionalProperties != nil && len(s.Properties) > 0 {
		s.AdditionalProperties = nil
	}
	if slices.Equal(s.Types, []string{"null", "array"}) {
		s.Types, s.Type = nil, "array"
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		loosen(s.Properties[name])
	}
	loosen(s.Items)
	loosen(s.AdditionalProperties)
}

// notYet begins the description of every field that a later version will give its meaning.
const notYet = "not available yet"

// mark sets a property for programs on the fields whose description says that they are not available yet.
func mark(s *jsonschema.Schema) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		if strings.HasPrefix(p.Description, notYet) {
			p.Extra = map[string]any{"x-hob-not-available": true}
		}
		mark(p)
	}
	if s.Items != nil {
		mark(s.Items)
	}
}

// shape tells of a body what its Go type cannot: the forms of what is decoded by hand, and ranges.
func shape(name string, s *jsonschema.Schema) error {
	switch p := s.Properties; name {
	case "BucketInput", "BucketChange":
		p["file_size_limit"].Types = []string{"null", "integer", "string"}
		listOrNull(p["allowed_mime_types"])
	case "Bucket":
		listOrNull(p["allowed_mime_types"])
	case "BucketList":
		listOrNull(s.Items.Properties["allowed_mime_types"])
	case "RunInput":
		describeMessage(p["message"])
		p["tools"].Types = []string{"null", "boolean"}
		for _, list := range []string{"knowledge_bases", "context_items", "runtime_knowledge_bases"} {
			p[list].Types = []string{"null", "array"}
		}
		p["context_handler_id"].Types = []string{"null", "string"}
		least := 1.0
		p["max_context_tokens"].Minimum = &least
		bounds(p)
	case "AgentInput":
		settings, err := jsonschema.For[hob.Settings](&jsonschema.ForOptions{TypeSchemas: wireTypes()})
		if err != nil {
			return err
		}
		loosen(settings)
		bounds(settings.Properties)
		least, above, most := 1.0, 0.0, float64(hob.MaxBudget)
		budget := settings.Properties["agent_budget"].Properties
		budget["period"].Enum = []any{"day", "month", "total"}
		budget["max_tokens_total"].Minimum = &least
		budget["max_cost"].ExclusiveMinimum, budget["max_cost"].Maximum = &above, &most
		settings.Properties["max_steps"].Default = json.RawMessage(strconv.Itoa(hob.DefaultMaxSteps))
		settings.Type, settings.Types = "", []string{"null", "object"}
		settings.Description = p["settings"].Description
		settings.AdditionalProperties = &jsonschema.Schema{}
		p["settings"] = settings
		nullable(p["tool_ids"])
		mostTools := maxToolIDs
		p["tool_ids"].MaxItems = &mostTools
	case "AgentAnswer":
		nullable(p["tool_ids"])
	case "AgentList":
		nullable(p["agents"].Items.Properties["tool_ids"])
	case "KeyInput":
		p["scopes"].Types = []string{"null", "array"}
		p["scopes"].Items = wireTypes()[reflect.TypeFor[hob.Scope]()]
	case "SettingsInput":
		p["settings"].Type, p["settings"].Types = "object", nil
		p["settings"].AdditionalProperties = &jsonschema.Schema{Types: []string{"string", "number", "boolean", "object"}}
	case "SettingInput":
		p["value"].Types = []string{"string", "number", "boolean", "object"}
	case "CategoryInput":
		p["category"].Type, p["category"].Types = "string", nil
	case "RunResult":
		shapeApproval(p["approvals"].Items)
		fallthrough
	case "RunRecord":
		codes(p["code"])
	case "RunList":
		codes(p["runs"].Items.Properties["code"])
	case "CancelAnswer":
		p["status"].Enum = []any{"cancelling", string(hob.Completed), string(hob.Failed), string(hob.Cancelled)}
	case "Setting":
		shapeSetting(s)
	case "SettingsAnswer":
		shapeSetting(p["categories"].AdditionalProperties.Properties["settings"].Items)
	case "ToolInput":
		p["input_schema"].Types = []string{"null", "object"}
		p["type"].Enum, p["kind"].Enum = toolKinds(), toolKinds()
	case "ToolAnswer":
		statuses(p["status"])
	case "ToolList":
		statuses(p["tools"].Items.Properties["status"])
	case "AssignmentList":
		statuses(p["tools"].Items.Properties["status"])
	case "AssignmentInput", "OverrideInput":
		p["config_override"].Types = []string{"null", "object"}
		p["config_override"].PropertyOrder, p["config_override"].Properties = overrideKeys()
	case "SessionInput":
		text := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }
		p["initial_messages"].Types = []string{"null", "array"}
		p["initial_messages"].Items = &jsonschema.Schema{
			Type: "object", Required: []string{"role", "content"}, PropertyOrder: []string{"role", "content"},
			Properties: map[string]*jsonschema.Schema{
				"role": {Type: "string", Enum: []any{string(hob.RoleUser), string(hob.RoleAssistant)}}, "content": text(),
			},
		}
	}
	return shapePeople(name, s)
}

// nullable is a list whose absence means something else than an empty one.
func nullable(s *jsonschema.Schema) { s.Type, s.Types = "", []string{"null", "array"} }

func statuses(s *jsonschema.Schema) {
	s.Enum = []any{statusAvailable, statusInactive, statusUnavailable}
}

// toolKinds are the types of tools that can be made.
func toolKinds() []any { return []any{nil, string(hob.HTTPTool), string(hob.WebTool)} }

// shapeProfiles gives the facts of model profiles their form, wherever they stand.
func (t schemas) shapeProfiles(name string, s *jsonschema.Schema) error {
	switch name {
	case "ProfileInput", "ProfileAnswer":
		return t.describeFacts(s)
	case "ProfileList":
		return t.describeFacts(s.Properties["profiles"].Items)
	}
	return nil
}

func shapeSetting(s *jsonschema.Schema) {
	s.Properties["source"].Enum = []any{hob.FromWorkspace, hob.FromEnvironment, hob.FromDefault}
	s.Properties["source"].Description = "where the value is from"
}

// describeMessage gives the two forms of a user's message.
func describeMessage(s *jsonschema.Schema) {
	most, least := maxParts, 1
	address := &jsonschema.Schema{Type: "string", Description: "an https address, or a data: address that holds the picture"}
	s.OneOf = []*jsonschema.Schema{
		{Type: "string", MinLength: &least},
		{Type: "array", MinItems: &least, MaxItems: &most, Items: &jsonschema.Schema{
			Type: "object", Required: []string{"type"}, PropertyOrder: []string{"type", "text", "image_url"},
			Properties: map[string]*jsonschema.Schema{
				"type": {Type: "string", Enum: []any{"text", "image_url"}},
				"text": {Type: "string", Description: "of a text part"},
				"image_url": {
					Description: "of a picture: {\"url\": …}, or the address itself",
					OneOf: []*jsonschema.Schema{
						address,
						{Type: "object", Required: []string{"url"}, Properties: map[string]*jsonschema.Schema{"url": address.CloneSchemas()}},
					},
				},
			},
		}},
	}
}

// bounds sets the ranges of the tuning fields.
func bounds(p map[string]*jsonschema.Schema) {
	number := func(n float64) *float64 { return &n }
	p["max_steps"].Minimum, p["max_steps"].Maximum = number(1), number(hob.MaxMaxSteps)
	p["temperature"].Minimum, p["temperature"].Maximum = number(0), number(2)
	p["max_tokens"].Minimum = number(1)
	p["timeout_seconds"].ExclusiveMinimum, p["timeout_seconds"].Maximum = number(0), number(hob.MaxRunSeconds)
	p["max_tokens_total"].Minimum = number(1)
	p["max_cost"].ExclusiveMinimum, p["max_cost"].Maximum = number(0), number(hob.MaxBudget)
	p["max_seconds"].ExclusiveMinimum, p["max_seconds"].Maximum = number(0), number(hob.MaxRunSeconds)
	p["max_tool_calls"].Minimum = number(0)
	p["disconnect_grace_seconds"].Minimum, p["disconnect_grace_seconds"].Maximum = number(0), number(hob.MaxGraceSeconds)
	p["response_format"].Types = []string{"null", "object"}
}

// exampleOf is a body that a route takes as it stands, but for the names in it.
func exampleOf(rt route) json.RawMessage {
	var text string
	switch rt.in.(type) {
	case agentInput:
		text = `{"name":"helper","system_prompt":"Be brief.","settings":{"max_steps":10}}`
		if rt.method == http.MethodPatch {
			text = `{"system_prompt":"Be brief and kind."}`
		}
	case runInput:
		text = `{"message":"Hello! What time is it?"}`
		if !rt.stream {
			text = `{"message":"Hello! What time is it?","tools":true}`
		}
	case assignmentInput:
		text = `{"tool_name":"current_time"}`
	case overrideInput:
		text = `{"config_override":{"timezone":"Europe/Berlin"}}`
	case toolInput:
		text = `{"name":"weather","description":"Tells the weather of a city","type":"http",` +
			`"input_schema":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]},` +
			`"config":{"endpoint":"https://api.example.com/weather","method":"GET"}}`
		if rt.method == http.MethodPut {
			text = `{"description":"Tells today's weather of a city"}`
		}
	case bucketInput:
		text = `{"id":"invoices","allowed_mime_types":["application/pdf","image/*"]}`
	case bucketChange:
		text = `{"public":false,"file_size_limit":20971520}`
	case listInput:
		text = `{"prefix":"2026/","limit":100,"sortBy":{"column":"name","order":"asc"}}`
	case signManyInput:
		text = `{"expiresIn":3600,"paths":["2026/june.txt"]}`
	case prefixesInput:
		text = `{"prefixes":["2026/old.txt"]}`
	case moveInput:
		text = `{"bucketId":"reports","sourceKey":"2026/june.txt","destinationKey":"2026/june-copy.txt"}`
		if strings.HasSuffix(rt.path, "move") {
			text = `{"bucketId":"reports","sourceKey":"2026/draft.txt","destinationKey":"2026/final.txt"}`
		}
	case signInput:
		text = `{"expiresIn":3600}`
	case approveInput:
		text = `{"approved":true}`
	case hookInput:
		text = `{"event":"PreToolUse","type":"approval","matcher":"database_write","config":{"message":"May it write?","timeout":3600}}`
	case hookChange:
		text = `{"enabled":false}`
	case keyInput:
		text = `{"name":"website","scopes":["read","run"]}`
	case sessionInput:
		text = `{}`
	case settingsInput:
		text = `{"settings":{"CUSTOM_TOOL_TIMEOUT":60}}`
	case settingInput:
		text = `{"value":60}`
	case categoryInput:
		text = `{"category":"agents"}`
	case providerKeyInput:
		text = `{"provider":"openai","api_key":"sk-0123456789"}`
	case providerKeysInput:
		text = `{"openai":"sk-0123456789","anthropic":null}`
	case profileInput:
		text = `{"endpoint":"https://models.example.com/v1","model":"llama3","facts":{"window":8192}}`
	case toolTestInput:
		text = `{"arguments":{"timezone":"Europe/Paris"}}`
	case releaseInput:
		text = `{"all":true}`
	}
	return json.RawMessage(text)
}
