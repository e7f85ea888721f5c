package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"hob"
)

// The parts of an OpenAPI 3.1 document that Hob's has. Field order is the order in the file.
type (
	document struct {
		OpenAPI    string                          `json:"openapi"`
		Info       info                            `json:"info"`
		Servers    []serverRef                     `json:"servers"`
		Security   []map[string][]string           `json:"security"`
		Tags       []tagInfo                       `json:"tags"`
		Paths      map[string]map[string]operation `json:"paths"`
		Components components                      `json:"components"`
	}
	info struct {
		Title       string `json:"title"`
		Version     string `json:"version"`
		Description string `json:"description"`
	}
	serverRef struct {
		URL string `json:"url"`
	}
	tagInfo struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	components struct {
		Schemas         map[string]*jsonschema.Schema `json:"schemas"`
		SecuritySchemes map[string]map[string]string  `json:"securitySchemes"`
	}
	operation struct {
		OperationID string                 `json:"operationId"`
		Summary     string                 `json:"summary"`
		Description string                 `json:"description,omitempty"`
		Tags        []string               `json:"tags"`
		Security    *[]map[string][]string `json:"security,omitempty"`
		Scope       hob.Scope              `json:"x-hob-scope,omitempty"`
		Parameters  []parameter            `json:"parameters,omitempty"`
		RequestBody *requestBody           `json:"requestBody,omitempty"`
		Responses   map[string]response    `json:"responses"`
	}
	parameter struct {
		Name        string            `json:"name"`
		In          string            `json:"in"`
		Required    bool              `json:"required,omitempty"`
		Description string            `json:"description,omitempty"`
		Schema      map[string]string `json:"schema"`
	}
	requestBody struct {
		Required bool             `json:"required"`
		Content  map[string]media `json:"content"`
	}
	response struct {
		Description string           `json:"description"`
		Content     map[string]media `json:"content,omitempty"`
	}
	media struct {
		Schema *jsonschema.Schema `json:"schema,omitempty"`
	}
)

const (
	jsonType   = "application/json"
	eventsType = "text/event-stream"
	aboutHob   = "Hob serves AI agents: make an agent, give it tools, run it, follow its events. Every call but the ones " +
		"marked otherwise carries the header Authorization: Bearer KEY. Every error is an object with error, message and " +
		"code. Unknown fields of a body are ignored and named in warnings."
	aboutEvents = "Server-sent events: frames of the form data: {json}, each with event, seq and run_id; a comment every " +
		"15 seconds of silence; the last event is complete."
)

// serveOpenAPI answers with the description of this API.
func serveOpenAPI(c *call) error {
	doc, err := c.s.openapi()
	if err != nil {
		return hob.Wrap("describe the API", err)
	}
	c.s.write(c.w, http.StatusOK, doc)
	return nil
}

// describe makes the OpenAPI document from the table of routes.
func (s *server) describe() ([]byte, error) {
	d := document{
		OpenAPI: "3.1.0", Info: info{"Hob", s.Version, aboutHob}, Servers: []serverRef{{"/"}},
		Security: []map[string][]string{{"key": {}}},
		Tags: []tagInfo{
			{tagAgents, "A model with a task: instructions, settings, tools"},
			{tagRuns, "One turn of an agent: a message in, steps, an answer out"},
			{tagSessions, "Conversations with an agent"},
			{tagTools, "What agents can be given"},
			{tagKeys, "Who may call this API, and for what"},
			{tagServer, "The server itself"},
		},
		Paths: map[string]map[string]operation{},
		Components: components{
			Schemas: map[string]*jsonschema.Schema{},
			SecuritySchemes: map[string]map[string]string{
				"key": {"type": "http", "scheme": "bearer", "description": "An API key, a service key, or an end user's signed token"},
			},
		},
	}
	types := schemas{byName: d.Components.Schemas}
	for _, rt := range routes() {
		if rt.tag == "" {
			continue // pages
		}
		op, err := types.operation(rt)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", rt.method, rt.path, err)
		}
		path := d.Paths[rt.path]
		if path == nil {
			path = map[string]operation{}
			d.Paths[rt.path] = path
		}
		path[strings.ToLower(rt.method)] = op
	}
	return json.MarshalIndent(d, "", " ")
}

// schemas collects the schemas of bodies under the names of their types.
type schemas struct{ byName map[string]*jsonschema.Schema }

func (t schemas) operation(rt route) (operation, error) {
	op := operation{
		OperationID: operationID(rt), Summary: rt.summary, Tags: []string{rt.tag}, Scope: rt.scope,
		Parameters: parameters(rt), Responses: map[string]response{},
	}
	if rt.open {
		op.Security = &[]map[string][]string{}
	}
	if rt.in != nil {
		s, err := t.ref(rt.in)
		if err != nil {
			return op, err
		}
		op.RequestBody = &requestBody{Required: len(t.byName[nameOf(rt.in)].Required) > 0, Content: map[string]media{jsonType: {s}}}
	}
	ok := response{Description: http.StatusText(rt.status)}
	switch {
	case rt.stream:
		op.Description = aboutEvents
		ok.Content = map[string]media{eventsType: {}}
	case rt.out != nil:
		s, err := t.ref(rt.out)
		if err != nil {
			return op, err
		}
		ok.Content = map[string]media{jsonType: {s}}
	}
	op.Responses[strconv.Itoa(rt.status)] = ok
	fault, err := t.ref(errorAnswer{})
	if err != nil {
		return op, err
	}
	for _, status := range failures(rt) {
		op.Responses[strconv.Itoa(status)] = response{http.StatusText(status), map[string]media{jsonType: {fault}}}
	}
	return op, nil
}

// failures are the statuses of a route's errors.
func failures(rt route) []int {
	list := slices.Clone(rt.errors)
	if !rt.open {
		list = append(list, http.StatusUnauthorized, http.StatusTooManyRequests)
		if rt.scope != "" {
			list = append(list, http.StatusForbidden)
		}
	}
	if rt.in != nil {
		list = append(list, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	} else if len(rt.query) > 0 {
		list = append(list, http.StatusBadRequest)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// operationID names a route for generated clients: the handler's words are in its method and path.
func operationID(rt route) string {
	parts := []string{strings.ToLower(rt.method)}
	for _, p := range strings.FieldsFunc(rt.path, func(r rune) bool { return strings.ContainsRune("/{}-_.", r) }) {
		parts = append(parts, strings.ToUpper(p[:1])+p[1:])
	}
	return strings.Join(parts, "")
}

func parameters(rt route) []parameter {
	var list []parameter
	for _, part := range strings.Split(rt.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			list = append(list, parameter{
				Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Schema: map[string]string{"type": "string"},
			})
		}
	}
	for _, q := range rt.query {
		p := parameter{Name: q.name, In: "query", Description: q.about, Schema: map[string]string{"type": q.kind}}
		if q.kind == "header" {
			p.In, p.Schema = "header", map[string]string{"type": "string"}
		}
		list = append(list, p)
	}
	return list
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
		reflect.TypeFor[hob.Status]():          enum("queued", "running", "awaiting_approval", "completed", "failed", "cancelled"),
	}
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
