package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"hob"
	"hob/internal/api"
)

func TestOpenAPI_IsTheRouteTable(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	r := w.do(ask{"GET", "/api/openapi.json", "", "", nil})
	golden(t, "openapi.golden.json", r.body)
	type operation struct {
		OperationID string                                   `json:"operationId"`
		Parameters  []struct{ Name, In, Description string } `json:"parameters"`
		Responses   map[string]json.RawMessage               `json:"responses"`
	}
	doc := as[struct {
		OpenAPI    string
		Paths      map[string]map[string]operation
		Components struct{ Schemas map[string]json.RawMessage }
	}](t, r, 200)
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("version %s", doc.OpenAPI)
	}
	ids := map[string]bool{}
	for _, rt := range api.Routes() {
		if rt.Path == "/{$}" || strings.HasPrefix(rt.Path, "/docs") {
			continue
		}
		rt.Path = strings.ReplaceAll(rt.Path, "...}", "}")
		op, ok := doc.Paths[rt.Path][strings.ToLower(rt.Method)]
		if !ok {
			t.Errorf("%s %s is not described", rt.Method, rt.Path)
			continue
		}
		if ids[op.OperationID] || op.OperationID == "" {
			t.Errorf("%s %s has the operation id %q of another", rt.Method, rt.Path, op.OperationID)
		}
		ids[op.OperationID] = true
		for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(rt.Path, -1) {
			if !slices.ContainsFunc(op.Parameters, func(p struct{ Name, In, Description string }) bool {
				return p.Name == m[1] && p.In == "path" && p.Description != ""
			}) {
				t.Errorf("%s %s does not declare and describe {%s}", rt.Method, rt.Path, m[1])
			}
		}
		if _, guarded := op.Responses["401"]; guarded == rt.Open {
			t.Errorf("%s %s: open is %t, but its answers are %v", rt.Method, rt.Path, rt.Open, op.Responses)
		}
	}
	for _, m := range regexp.MustCompile(`"\$ref": "([^"]+)"`).FindAllStringSubmatch(string(r.body), -1) {
		if name, ok := strings.CutPrefix(m[1], "#/components/schemas/"); !ok || doc.Components.Schemas[name] == nil {
			t.Errorf("the reference %s leads nowhere", m[1])
		}
	}
	for name := range doc.Components.Schemas {
		schemaOf(t, doc.Components.Schemas, name)
	}
}

func schemaOf(t *testing.T, all map[string]json.RawMessage, name string) *jsonschema.Schema {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(all[name])))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("mem:"+name, v); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:" + name)
	if err != nil {
		t.Fatalf("the schema %s is none: %v", name, err)
	}
	return s
}

// The answers that the scenario recorded fit the schemas that are promised for them.
func TestOpenAPI_AnswersFitTheirSchemas(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	doc := as[struct {
		Components struct{ Schemas map[string]json.RawMessage }
	}](t, w.do(ask{"GET", "/api/openapi.json", "", "", nil}), 200)
	s := w.scene(w.service)
	for path, name := range map[string]string{
		"/health": "HealthAnswer", "/api/me": "MeAnswer", "/api/agents": "AgentList", "/api/agents/{id}": "AgentAnswer",
		"/api/agents/{id}/tools": "AssignmentList", "/api/tools": "ToolList", "/api/agents/runs/{run_id}": "RunRecord",
		"/api/agents/{id}/sessions": "SessionList", "/api/sessions/{session_id}": "Session", "/api/sessions/{session_id}/messages": "MessageList",
		"/api/sessions/{session_id}/runs": "RunList", "/api/keys": "KeyList", "/api/settings": "SettingsAnswer",
		"/api/ai-provider-keys": "ProviderKeyList", "/api/ai-provider-keys/platform_supported": "ProvidersAnswer",
		"/api/provider-profiles": "ProfileList", "/api/usage?group_by=model": "UsageAnswer",
		"/api/keys/{key_id}": "Key", "/api/nothing": "ErrorAnswer",
		"/storage/v1/bucket": "BucketList", "/storage/v1/bucket/{bucket}": "Bucket", "/storage/v1/object/info/{bucket}/{path}": "ObjectRow",
		"/storage/v1/bucket/absent": "StorageFault",
	} {
		r := w.do(ask{"GET", s.fill(path), w.service, "", nil})
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(r.body)))
		if err != nil {
			t.Fatal(err)
		}
		if err := schemaOf(t, doc.Components.Schemas, name).Validate(v); err != nil {
			t.Errorf("%s is no %s: %v", path, name, err)
		}
	}
}

func TestPages_LoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	for path, want := range map[string]string{
		"/": "hob chat", "/docs": "/docs/docs.js", "/docs/docs.js": "openapi.json", "/docs/docs.css": "body",
		"/docs/copy.js": "clipboard", "/docs/index.js": "/health/ready", "/docs/favicon.svg": "<svg",
	} {
		r := w.do(ask{"GET", path, "", "", nil})
		if r.status != http.StatusOK || !strings.Contains(string(r.body), want) {
			t.Errorf("%s: status %d, without %q", path, r.status, want)
		}
		policy := r.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if r.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s may be sniffed", path)
		}
		if m := regexp.MustCompile(`(?i)(src|href)="(https?:)?//|@import|\burl\(|<style|style=|\bon\w+="|innerHTML|<script>`).Find(r.body); m != nil {
			t.Errorf("%s has %q", path, m)
		}
	}
}

// The address that the page shows is the one that its reader asked, without any script.
func TestPages_TheIndexShowsTheAddressItWasAskedAt(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	for proto, want := range map[string]string{"": "<span class=\"origin\">http://hob.example:8443</span>/api/agents", "https": "<span class=\"origin\">https://hob.example:8443</span>/docs"} {
		req := httptest.NewRequest(http.MethodGet, "http://hob.example:8443/", nil)
		req.Header.Set("X-Forwarded-Proto", proto)
		got := httptest.NewRecorder()
		w.handler.ServeHTTP(got, req)
		if page := got.Body.String(); !strings.Contains(page, want) || strings.Contains(page, "127.0.0.1:8787") {
			t.Errorf("behind %q the page does not show %s:\n%s", proto, want, page)
		}
	}
}

func TestPages_TheIndexSaysWhichModelThereIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model, warning string
		with, without  []string
	}{
		"connected": {"gpt-4.1", "", []string{"<code>gpt-4.1</code>"}, []string{"Only the demo"}},
		"a demo": {
			"scripted/demo", "nothing <is> connected; set OPENAI_API_KEY",
			[]string{"Only the demo", "Nothing &lt;is&gt; connected; set OPENAI_API_KEY."},
			nil,
		},
		"not known": {"", "", []string{"hob chat demo"}, []string{"<dt>Model</dt>"}},
	} {
		w := begin(t, func(cfg *api.Config) {
			cfg.Version = "1.2.3<b>"
			cfg.DefaultModel = func(context.Context, hob.WorkspaceID) (string, string) { return c.model, c.warning }
			if c.model == "" {
				cfg.DefaultModel = nil
			}
		})
		w.do(ask{"POST", "/api/agents", w.service, `{"name":"confidential","model":"fixed"}`, nil})
		page := string(w.do(ask{"GET", "/", "", "", nil}).body)
		for _, text := range append(c.with, "1.2.3&lt;b&gt;", `href="/docs"`, "service.key", `href="/docs/favicon.svg"`) {
			if !strings.Contains(page, text) {
				t.Errorf("%s: the index does not say %q:\n%s", name, text, page)
			}
		}
		for _, text := range append(c.without, "confidential") {
			if strings.Contains(page, text) {
				t.Errorf("%s: the index says %q", name, text)
			}
		}
	}
}

// requestBodies are what the document says of the bodies it asks for, by method and path.
func requestBodies(t *testing.T, w *world) (map[string]requestBody, map[string]json.RawMessage) {
	t.Helper()
	doc := as[struct {
		Paths map[string]map[string]struct {
			RequestBody *struct {
				Required bool
				Content  map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
					Example json.RawMessage
				}
			}
		}
		Components struct{ Schemas map[string]json.RawMessage }
	}](t, w.do(ask{"GET", "/api/openapi.json", "", "", nil}), 200)
	bodies := map[string]requestBody{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			if op.RequestBody != nil {
				content, ok := op.RequestBody.Content["application/json"]
				if !ok {
					continue // an upload
				}
				bodies[strings.ToUpper(method)+" "+path] = requestBody{
					op.RequestBody.Required, strings.TrimPrefix(content.Schema.Ref, "#/components/schemas/"), content.Example,
				}
			}
		}
	}
	return bodies, doc.Components.Schemas
}

type requestBody struct {
	required bool
	schema   string
	example  json.RawMessage
}

// Every example fits its schema, and the server takes it as it stands. Without a body, what needs one is refused.
func TestOpenAPI_BodiesHaveExamplesThatWork(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) {
		c.Builtins = func() []hob.Tool {
			return append(builtins(), hob.Tool{Name: "current_time", InputSchema: json.RawMessage(`{"type":"object"}`), IsActive: true})
		}
	})
	bodies, schemas := requestBodies(t, w)
	s := w.scene(w.service)
	for route, b := range bodies {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(b.example)))
		if err != nil {
			t.Errorf("%s: the example %s: %v", route, b.example, err)
			continue
		}
		if err := schemaOf(t, schemas, b.schema).Validate(v); err != nil {
			t.Errorf("%s: the example is no %s: %v", route, b.schema, err)
		}
		method, path, _ := strings.Cut(route, " ")
		if r := w.do(ask{method, s.fill(path), w.service, "", nil}); (r.status == 400) != b.required {
			t.Errorf("%s: required is %t, but without a body the status is %d", route, b.required, r.status)
		}
		r := w.do(ask{method, s.fill(path), w.service, string(b.example), nil})
		if r.status >= 300 && !strings.HasSuffix(path, "/approve") || strings.Contains(string(r.body), "unknown field") {
			t.Errorf("%s: the example is answered %d: %s", route, r.status, r.body)
		}
	}
}

// What a schema forbids the server refuses, and what it allows the server takes.
func TestOpenAPI_BodySchemasAgreeWithTheServer(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	_, schemas := requestBodies(t, w)
	agent := "/api/agents/" + string(w.agent("fixed"))
	for _, c := range []struct {
		schema, path string
		taken        bool
		bodies       []string
	}{
		{"RunInput", agent + "/run", true, []string{
			`{"message":"x","max_steps":100,"temperature":2,"max_tokens":1,"timeout_seconds":86400,"disconnect_grace_seconds":0,"max_context_tokens":1}`,
			`{"message":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"https://x.example/a.png"}},{"type":"image_url","image_url":"https://x.example/a.png"}]}`,
			`{"message":"x","tools":null,"session_id":null,"knowledge_bases":[],"response_format":null,"max_steps":null,"colour":1}`,
		}},
		{"RunInput", agent + "/run", false, []string{
			`{}`, `{"message":""}`, `{"message":[]}`, `{"message":7}`, `{"message":[{"type":"audio"}]}`, `{"message":"x","tools":"yes"}`,
			`{"message":"x","max_steps":0}`, `{"message":"x","max_steps":101}`, `{"message":"x","temperature":2.1}`, `{"message":"x","temperature":-1}`,
			`{"message":"x","max_tokens":0}`, `{"message":"x","timeout_seconds":0}`, `{"message":"x","timeout_seconds":86401}`,
			`{"message":"x","disconnect_grace_seconds":3601}`, `{"message":"x","max_context_tokens":0}`, `{"message":"x","response_format":"json"}`,
			`{"message":"x","reasoning_effort":"huge"}`, `{"message":"x","on_disconnect":"stay"}`,
			`{"message":"x","max_tokens_total":0}`, `{"message":"x","max_cost":0}`, `{"message":"x","max_cost":1000001}`,
			`{"message":"x","max_seconds":0}`, `{"message":"x","max_seconds":86401}`, `{"message":"x","max_tool_calls":-1}`,
		}},
		{"AgentInput", "/api/agents", true, []string{
			`{"name":"a","settings":{"max_steps":1,"theme":{"dark":true},"fallback_model":"fixed","script":"text: x"}}`, `{"name":"a","settings":null}`,
			`{"name":"a","settings":{"max_cost":0.01,"max_tool_calls":0,"agent_budget":{"period":"month","max_tokens_total":1,"max_cost":1000000}}}`,
		}},
		{"AgentInput", "/api/agents", false, []string{
			`{"name":"a","settings":[]}`, `{"name":"a","settings":{"max_steps":0}}`, `{"name":"a","settings":{"script":7}}`,
			`{"name":"a","settings":{"response_format":"json"}}`, `{"name":"a","settings":{"reasoning_effort":"huge"}}`,
			`{"name":"a","settings":{"agent_budget":{"period":"year","max_cost":1}}}`, `{"name":"a","settings":{"agent_budget":{"period":"day","max_cost":0}}}`,
			`{"name":"a","settings":{"agent_budget":{"period":"day","max_tokens_total":0}}}`, `{"name":"a","settings":{"agent_budget":{"max_cost":1}}}`,
		}},
		{"ApproveInput", "/api/agents/runs/run_000000000000/approve", false, []string{`{}`, `{"approved":"true"}`, `{"approved":null}`}},
		{"CategoryInput", "/api/settings/reset-category", false, []string{`{}`, `{"category":null}`, `{"category":7}`}},
		{"ProviderKeyInput", "/api/ai-provider-keys", false, []string{`{"api_key":"k"}`, `{"provider":7,"api_key":"k"}`, `{"provider":"openai","api_key":7}`}},
		{"ProviderKeyInput", "/api/ai-provider-keys", true, []string{
			`{"provider":"openai","api_key":"k","colour":1}`, `{"provider":"box","base_url":"https://x.example/v1","api_key":null}`,
		}},
		{"KeyInput", "/api/keys", false, []string{`{"name":"a","scopes":"read"}`, `{"name":"a","scopes":["all"]}`}},
		{"SessionInput", agent + "/sessions", false, []string{`{"initial_messages":{}}`, `{"initial_messages":[{"role":"system","content":"x"}]}`}},
		{"AssignmentInput", agent + "/tools", false, []string{`{"tool_name":"clock","config_override":[]}`}},
		{"AssignmentInput", agent + "/tools", true, []string{`{"tool_name":"database_query","config_override":{"schemas":{"main":["orders"]},"timeout":5}}`}},
	} {
		schema := schemaOf(t, schemas, c.schema)
		for _, body := range c.bodies {
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r := w.do(ask{"POST", c.path, w.service, body, nil})
			if fits := schema.Validate(v) == nil; fits != c.taken || (r.status < 300) != c.taken || !c.taken && r.status != 400 {
				t.Errorf("%s %s: fits its schema: %t, is answered %d %s", c.schema, body, fits, r.status, r.body)
			}
		}
	}
}

func TestOpenAPI_MarksWhatIsNotAvailableYet(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	_, schemas := requestBodies(t, w)
	for schema, fields := range map[string][]string{
		"RunInput":  {"knowledge_bases", "context_handler_id", "context_items", "runtime_knowledge_bases", "max_context_tokens", "citations_enabled"},
		"RunResult": {"context_handler_id", "retrieved_items"},
		"RunRecord": {"context_handler_id", "parent_orchestration_run_id", "parent_workflow_execution_id", "retrieved_context"},
	} {
		var s struct {
			Properties map[string]struct {
				Description  string
				NotAvailable bool `json:"x-hob-not-available"`
			}
		}
		if err := json.Unmarshal(schemas[schema], &s); err != nil {
			t.Fatal(err)
		}
		for name, p := range s.Properties {
			said := strings.HasPrefix(p.Description, "not available yet")
			if wanted := slices.Contains(fields, name); said != wanted || p.NotAvailable != wanted {
				t.Errorf("%s.%s: %q, marked: %t", schema, name, p.Description, p.NotAvailable)
			}
			if schema == "RunInput" && p.Description == "" {
				t.Errorf("%s.%s is not described", schema, name)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"message":"hi"}`, `{"message":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}`, `{"message":"a\u0000"}`, `{"message":"\\u0000"}`,
		`{"Message":"x","message":"y","max_steps":1e3}`, `[]`, `{"a":{"b":[1,{}]}}`, "\xff", `{"message":"\ud800"}`, `{"tools":[]`, `{"temperature":1e400,"message":"x"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		warnings, err := api.Decode(raw)
		if err != nil {
			if k := hob.KindOf(err); k != hob.Invalid {
				t.Errorf("%q: an error of kind %s: %v", raw, k, err)
			}
			return
		}
		if !json.Valid(raw) || len(warnings) > 11 {
			t.Errorf("%q is taken, with %d warnings", raw, len(warnings))
		}
	})
}
