package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"hob"
)

// The parts of an OpenAPI 3.1 document that Hob's has. Field order is the order in the file.
type (
	document struct {
		OpenAPI    string                `json:"openapi"`
		Info       info                  `json:"info"`
		Servers    []serverRef           `json:"servers"`
		Security   []map[string][]string `json:"security"`
		Tags       []tagInfo             `json:"tags"`
		Paths      paths                 `json:"paths"`
		Components components            `json:"components"`
	}
	// paths keep the order of the table of routes, which is the one to read them in.
	paths struct {
		order  []string
		byPath map[string]map[string]operation // by method
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
		Name        string         `json:"name"`
		In          string         `json:"in"`
		Required    bool           `json:"required,omitempty"`
		Description string         `json:"description,omitempty"`
		Schema      map[string]any `json:"schema"`
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
		Schema  *jsonschema.Schema `json:"schema,omitempty"`
		Example json.RawMessage    `json:"example,omitempty"`
	}
)

const (
	jsonType   = "application/json"
	eventsType = "text/event-stream"
	aboutHob   = "Hob serves AI agents: make an agent, give it tools, run it, follow its events. Every call but the ones " +
		"marked otherwise carries the header Authorization: Bearer KEY. Every error is an object with error, message and " +
		"code. Unknown fields of a body are ignored and named in warnings. Fields that are not available yet say so."
	// requiredMark begins what is said of parameters that must be there.
	requiredMark = "required: "
	aboutEvents  = "Server-sent events: frames of the form data: {json}, each with event, seq and run_id; a comment every " +
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
			{tagHooks, "Who is asked about an agent's runs: services, rules, people"},
			{tagRuns, "One turn of an agent: a message in, steps, an answer out"},
			{tagApprovals, "What runs wait for people to decide"},
			{tagSessions, "Conversations with an agent"},
			{tagTools, "What agents can be given"},
			{tagKeys, "Who may call this API, and for what"},
			{tagSettings, "What a workspace changes while the server runs"},
			{tagModels, "How a workspace reaches models: keys, endpoints of its own, what is known of a model"},
			{tagStorage, "Files of a workspace, in buckets; addresses and bodies as clients of Supabase Storage know them"},
			{tagUsage, "What was used, and what it cost"},
			{tagAudit, "The audit log: who did what to what, each entry with the hash of the one before"},
			{tagServer, "The server itself"},
		},
		Paths: paths{byPath: map[string]map[string]operation{}},
		Components: components{
			Schemas: map[string]*jsonschema.Schema{},
			SecuritySchemes: map[string]map[string]string{
				"key": {"type": "http", "scheme": "bearer", "description": "An API key, a service key, or an end user's signed token"},
			},
		},
	}
	types := schemas{byName: d.Components.Schemas, facts: s.Facts}
	if err := types.events(); err != nil {
		return nil, fmt.Errorf("describe events: %w", err)
	}
	for _, rt := range routes() {
		if rt.tag == "" {
			continue // pages
		}
		op, err := types.operation(rt)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", rt.method, rt.path, err)
		}
		d.Paths.add(rt, op)
	}
	return json.MarshalIndent(d, "", " ")
}

func (p *paths) add(rt route, op operation) {
	path := strings.ReplaceAll(rt.path, "...}", "}")
	if p.byPath[path] == nil {
		p.byPath[path] = map[string]operation{}
		p.order = append(p.order, path)
	}
	p.byPath[path][strings.ToLower(rt.method)] = op
}

// MarshalJSON writes the paths as an object.
func (p paths) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, path := range p.order {
		if i > 0 {
			b = append(b, ',')
		}
		operations, err := json.Marshal(p.byPath[path])
		if err != nil {
			return nil, err
		}
		b = append(append(strconv.AppendQuote(b, path), ':'), operations...)
	}
	return append(b, '}'), nil
}

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
		op.RequestBody = &requestBody{Required: !rt.bodyless, Content: map[string]media{jsonType: {s, exampleOf(rt)}}}
	}
	anyBytes := map[string]media{"*/*": {Schema: &jsonschema.Schema{Type: "string", Format: "binary"}}}
	if rt.upload {
		op.RequestBody = &requestBody{Required: false, Content: anyBytes}
	}
	ok := response{Description: http.StatusText(rt.status)}
	switch {
	case rt.download:
		ok.Content = anyBytes
	case rt.stream:
		op.Description = aboutEvents
		ok.Content = map[string]media{eventsType: {Schema: &jsonschema.Schema{Ref: "#/components/schemas/" + eventsSchema}}}
	case rt.out != nil:
		s, err := t.ref(rt.out)
		if err != nil {
			return op, err
		}
		ok.Content = map[string]media{jsonType: {Schema: s}}
	}
	op.Responses[strconv.Itoa(rt.status)] = ok
	if rt.also != 0 {
		op.Responses[strconv.Itoa(rt.also)] = response{http.StatusText(rt.also), ok.Content}
	}
	var faulty any = errorAnswer{}
	if rt.tag == tagStorage {
		faulty = storageFault{}
	}
	fault, err := t.ref(faulty)
	if err != nil {
		return op, err
	}
	for _, status := range failures(rt) {
		op.Responses[strconv.Itoa(status)] = response{http.StatusText(status), map[string]media{jsonType: {Schema: fault}}}
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

// aboutPart says what stands at a place of a path.
func aboutPart(rt route, name string) string {
	switch name {
	case "run_id":
		return "the run's id, as in run_0123456789ab"
	case "session_id":
		return "the session's id: sess_0123456789ab, or the one a client chose"
	case "assignment_id":
		return "the assignment's id, a UUID; the agent's tools list it"
	case "key_id":
		return "the key's id, a UUID"
	case "key":
		return "the setting's key, as in CUSTOM_TOOL_TIMEOUT"
	case "bucket":
		return "the bucket's id"
	case "path":
		return "the object's name, with its slashes"
	case "provider":
		return "openai, anthropic, google, openrouter, or the name of an endpoint of your own"
	}
	if rt.tag == tagTools {
		return "the tool's id, a UUID"
	}
	return "the agent's id, a UUID"
}

func parameters(rt route) []parameter {
	var list []parameter
	for _, part := range strings.Split(rt.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "}"), "...")
			list = append(list, parameter{
				Name: name, In: "path", Required: true, Description: aboutPart(rt, name), Schema: map[string]any{"type": "string"},
			})
		}
	}
	for _, q := range rt.query {
		p := parameter{Name: q.name, In: "query", Description: q.about, Schema: map[string]any{"type": q.kind}}
		if q.kind == "header" {
			p.In, p.Schema = "header", map[string]any{"type": "string"}
		}
		if values := valuesOf(q.name); values != nil {
			p.Schema["enum"] = values
		}
		p.Required = strings.HasPrefix(q.about, requiredMark)
		list = append(list, p)
	}
	return list
}
