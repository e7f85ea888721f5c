package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
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
		OperationID string                      `json:"operationId"`
		Parameters  []struct{ Name, In string } `json:"parameters"`
		Responses   map[string]json.RawMessage  `json:"responses"`
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
			if !slices.Contains(op.Parameters, struct{ Name, In string }{m[1], "path"}) {
				t.Errorf("%s %s does not declare {%s}", rt.Method, rt.Path, m[1])
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
		"/api/sessions/{session_id}/runs": "RunList", "/api/keys": "KeyList", "/api/keys/{key_id}": "Key", "/api/nothing": "ErrorAnswer",
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
	for path, want := range map[string]string{"/": "hob chat", "/docs": "/docs/docs.js", "/docs/docs.js": "openapi.json", "/docs/docs.css": "body"} {
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
	if r := w.do(ask{"GET", "/", "", "", nil}); !strings.Contains(string(r.body), "1.2.3") || !strings.Contains(string(r.body), `href="/docs"`) {
		t.Errorf("the index is %s", r.body)
	}
}

func TestPages_SampleBodiesAreOfRealSchemas(t *testing.T) {
	t.Parallel()
	js, err := os.ReadFile("page/docs.js")
	if err != nil {
		t.Fatal(err)
	}
	w := begin(t, nil)
	body := string(w.do(ask{"GET", "/api/openapi.json", "", "", nil}).body)
	for _, m := range regexp.MustCompile(`(\w+Input):`).FindAllStringSubmatch(string(js), -1) {
		if !strings.Contains(body, fmt.Sprintf("%q: {", m[1])) {
			t.Errorf("the page has a sample for %s, which is no schema", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`"#/components/schemas/(\w+Input)"`).FindAllStringSubmatch(body, -1) {
		if !strings.Contains(string(js), m[1]+":") {
			t.Errorf("the page has no sample for %s", m[1])
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
