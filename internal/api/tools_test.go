package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hob"
)

// Every bound of a tool: what is just within it is taken, and one more is refused with the field's name.
func TestTools_BoundsOfWhatIsWritten(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := "/api/agents/" + string(w.agent("fixed"))
	headers := func(n, size int) string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("X-%d", i)] = strings.Repeat("v", size)
		}
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tool := func(name, more string) string {
		return `{"name":"` + name + `","endpoint":"https://x.example",` + more + toolBody + `}`
	}
	schema := func(size int) string { // of a schema with this many bytes
		frame := `{"type":"object","title":""}`
		return `{"name":"s` + fmt.Sprint(size) + `","description":"d","type":"http","url":"https://x.example","input_schema":{"type":"object","title":"` +
			strings.Repeat("x", size-len(frame)) + `"}}`
	}
	var ids []string // names of tools, as JSON
	for i := range 129 {
		made := as[struct{ ID string }](t, w.do(ask{"POST", "/api/tools", w.service, tool(fmt.Sprintf("tool_%d", i), ""), nil}), 201)
		ids = append(ids, `"`+made.ID+`"`)
	}
	list := func(n int) string { return `{"tool_ids":[` + strings.Join(ids[:n], ",") + `]}` }
	for _, c := range []struct {
		what, method, path, within, beyond, field string
		status                                    int
	}{
		{"name", "POST", "/api/tools", tool(strings.Repeat("n", 64), ""), tool(strings.Repeat("n", 65), ""), "name", 201},
		{
			"description", "POST", "/api/tools", `{"name":"d1","description":"` + strings.Repeat("d", 16<<10) + `","type":"http","url":"https://x.example","input_schema":{}}`,
			`{"name":"d2","description":"` + strings.Repeat("d", 16<<10+1) + `","type":"http","url":"https://x.example","input_schema":{}}`, "description", 201,
		},
		{"schema", "POST", "/api/tools", schema(64 << 10), schema(64<<10 + 1), "input_schema", 201},
		{"headers", "POST", "/api/tools", tool("h1", `"headers":`+headers(50, 1)+","), tool("h2", `"headers":`+headers(51, 1)+","), "config.headers", 201},
		{"header value", "POST", "/api/tools", tool("v1", `"headers":`+headers(1, 8<<10)+","), tool("v2", `"headers":`+headers(1, 8<<10+1)+","), "config.headers", 201},
		{"timeout", "POST", "/api/tools", tool("t1", `"timeout_seconds":300,`), tool("t2", `"timeout_seconds":300.1,`), "config.timeout_seconds", 201},
		{"timeout in milliseconds", "POST", "/api/tools", tool("t3", `"timeout_ms":300000,`), tool("t4", `"timeout_ms":300001,`), "config.timeout_seconds", 201},
		{
			"suffix", "PUT", "/api/tools/clock", `{"description_suffix":"` + strings.Repeat("s", 4<<10) + `"}`,
			`{"description_suffix":"` + strings.Repeat("s", 4<<10+1) + `"}`, "description_suffix", 200,
		},
		{"tool_ids", "PATCH", agent, list(128), list(129), "tool_ids", 200},
	} {
		if r := w.do(ask{c.method, c.path, w.service, c.within, nil}); r.status != c.status {
			t.Errorf("%s: what is within the bound is answered %d %s", c.what, r.status, r.body)
		}
		if f := wantFault(t, w.do(ask{c.method, c.path, w.service, c.beyond, nil}), 400, ""); f.Details["field"] != c.field {
			t.Errorf("%s: what is beyond the bound: %+v, want the field %s", c.what, f, c.field)
		}
	}
}

// Two changes at once of a builtin tool are both kept.
func TestTools_ChangesOfABuiltinAtOnceAreBothKept(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	version := int64(1)
	for i := range 20 {
		var both sync.WaitGroup
		for _, body := range []string{fmt.Sprintf(`{"is_active":%t}`, i%2 == 0), fmt.Sprintf(`{"description_suffix":"round %d"}`, i)} {
			both.Go(func() {
				if r := w.do(ask{"PUT", "/api/tools/clock", w.service, body, nil}); r.status != 200 {
					t.Errorf("%s: %d %s", body, r.status, r.body)
				}
			})
		}
		both.Wait()
		version += 2
		got := as[struct {
			Suffix  string `json:"description_suffix"`
			Active  bool   `json:"is_active"`
			Version int64
		}](t, w.do(ask{"GET", "/api/tools/clock", w.service, "", nil}), 200)
		if got.Active != (i%2 == 0) || got.Suffix != fmt.Sprintf("round %d", i) || got.Version != version {
			t.Fatalf("round %d: %+v, want version %d", i, got, version)
		}
	}
}

// A version that the rules no longer allow is not brought back, and the tool stays what it is.
func TestTools_AVersionThatIsNoLongerAllowedIsNotRestored(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	made, err := w.store.CreateTool(t.Context(), hob.System(hob.DefaultWorkspace), hob.Tool{
		Name: "inner", Description: "d", Type: hob.HTTPTool, IsActive: true, InputSchema: json.RawMessage(`{"type":"object"}`),
		Config: hob.ToolConfig{Endpoint: "http://127.0.0.1/x", Method: "POST"}, // as it was before the rules changed
	})
	if err != nil {
		t.Fatal(err)
	}
	path := "/api/tools/" + string(made.ID)
	as[map[string]any](t, w.do(ask{"PUT", path, w.service, `{"url":"https://x.example"}`, nil}), 200)
	wantFault(t, w.do(ask{"POST", path + "/versions/1/restore", w.service, "", nil}), 400, "config.endpoint is refused: the address is private")
	got := as[struct{ Version int64 }](t, w.do(ask{"GET", path, w.service, "", nil}), 200)
	if got.Version != 2 {
		t.Errorf("version %d after a refused restore, want 2", got.Version)
	}
}

// What a workspace set for a builtin tool counts for what an assignment lacks.
func TestTools_AnAssignmentIsJudgedOverTheWorkspacesConfig(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := "/api/agents/" + string(w.agent("fixed"))
	const tables = `{"schemas":{"main":["orders"]}}`
	as[map[string]any](t, w.do(ask{"PUT", "/api/tools/database_query", w.service, `{"config":` + tables + `}`, nil}), 200)
	a := as[struct {
		ID       string
		Warnings []string
	}](t, w.do(ask{"POST", agent + "/tools", w.service, `{"tool_name":"database_query"}`, nil}), 201)
	if len(a.Warnings) != 0 {
		t.Errorf("warnings %q, although the workspace grants tables", a.Warnings)
	}
	f := wantFault(t, w.do(ask{"PUT", "/api/tools/database_query", w.service, `{"config":{"rules":[1]}}`, nil}), 400, "config.rules[0] must be an object")
	if f.Details["field"] != "config.rules[0]" || f.Code != "invalid_rule" {
		t.Errorf("details %v", f.Details)
	}
	// Without the workspace's, the assignment has nothing.
	as[map[string]any](t, w.do(ask{"PUT", "/api/tools/database_query", w.service, `{"config":{}}`, nil}), 200)
	b := as[struct{ Warnings []string }](t, w.do(ask{"PATCH", agent + "/tools/" + a.ID, w.service, `{"config_override":{}}`, nil}), 200)
	if len(b.Warnings) != 1 || !strings.Contains(b.Warnings[0], "lists no tables") {
		t.Errorf("warnings %q", b.Warnings)
	}
}

// The status of an assignment is that of the tool for this agent.
func TestTools_AnAssignmentSaysWhetherItIsOffered(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := "/api/agents/" + string(w.agent("fixed"))
	made := as[struct{ ID string }](t, w.do(ask{"POST", "/api/tools", w.service, `{"name":"weather","url":"https://x.example","is_active":false,` + toolBody + `}`, nil}), 201)
	given := as[struct{ Warnings []string }](t, w.do(ask{"POST", agent + "/tools", w.service, `{"tool_name":"weather"}`, nil}), 201)
	if len(given.Warnings) != 1 || !strings.Contains(given.Warnings[0], "weather is switched off") {
		t.Errorf("warnings %q", given.Warnings)
	}
	as[map[string]any](t, w.do(ask{"POST", agent + "/tools", w.service, `{"tool_name":"clock"}`, nil}), 201)
	for _, c := range []struct {
		method, path, body string // a change, "" for none
		want               string // weather's and clock's
	}{
		{"", "", "", "inactive:it is switched off available:"},
		{"PUT", "/api/tools/" + made.ID, `{"is_active":true}`, "available: available:"},
		{"PATCH", agent, `{"tool_ids":["` + made.ID + `"]}`, "available: unavailable:the agent's tool_ids do not name it"},
		{"PUT", "/api/tools/clock", `{"is_active":false}`, "available: inactive:it is switched off"},
		{"PATCH", agent, `{"tool_ids":[]}`, "unavailable:the agent's tool_ids do not name it inactive:it is switched off"},
	} {
		if c.method != "" {
			as[map[string]any](t, w.do(ask{c.method, c.path, w.service, c.body, nil}), 200)
		}
		list := as[struct {
			Tools []struct{ Status, Reason string }
		}](t, w.do(ask{"GET", agent + "/tools", w.service, "", nil}), 200)
		var got []string
		for _, a := range list.Tools {
			got = append(got, a.Status+":"+a.Reason)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("after %s %s: %q, want %q", c.path, c.body, strings.Join(got, " "), c.want)
		}
	}
}

// A change leaves of a config what it does not give, and says which secrets did not go along to another address.
func TestTools_AChangeOfConfigIsPartial(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	made := as[struct{ ID string }](t, w.do(ask{"POST", "/api/tools", w.service, `{"name":"stock","description":"d","type":"http","input_schema":{"type":"object"},
		"config":{"endpoint":"https://a.example/x","method":"GET","headers":{"X-Key":"secret","X-Other":"o"},"timeout_seconds":7,"recovery":"read","effect":"read"}}`, nil}), 201)
	before := hob.ToolConfig{
		Endpoint: "https://a.example/x", Method: "GET", TimeoutSeconds: 7, Recovery: hob.RecoverRead, Effect: hob.EffectRead,
		Headers: map[string]hob.Secret{"X-Key": "secret", "X-Other": "o"},
	}
	for _, c := range []struct {
		body, warning string
		change        func(*hob.ToolConfig)
	}{
		{`{"config":{}}`, "", func(*hob.ToolConfig) {}},
		{`{"config":{"timeout_seconds":5}}`, "", func(c *hob.ToolConfig) { c.TimeoutSeconds = 5 }},
		{`{"config":{"timeout_ms":null,"recovery":null}}`, "", func(c *hob.ToolConfig) { c.TimeoutSeconds, c.Recovery = 0, "" }},
		{`{"effect":"write","config":{"effect":"write"}}`, "unknown field", func(c *hob.ToolConfig) { c.Effect = hob.EffectWrite }},
		{`{"config":{"headers":{"X-Key":"` + hob.Mask + `"}}}`, "", func(c *hob.ToolConfig) { delete(c.Headers, "X-Other") }},
		{`{"config":{"endpoint":"https://b.example/x"}}`, "the header X-Key was cleared", func(c *hob.ToolConfig) { c.Endpoint, c.Headers = "https://b.example/x", nil }},
		{`{"config":{"headers":{"A":"1"}},"method":null}`, "", func(c *hob.ToolConfig) { c.Headers, c.Method = map[string]hob.Secret{"A": "1"}, "POST" }},
		{`{"headers":null}`, "", func(c *hob.ToolConfig) { c.Headers = nil }},
		{`{"config":{"headers":{"A":"1"}}}`, "", func(c *hob.ToolConfig) { c.Headers = map[string]hob.Secret{"A": "1"} }},
		{`{"config":{"headers":{}}}`, "", func(c *hob.ToolConfig) { c.Headers = nil }},
	} {
		got := as[struct{ Warnings []string }](t, w.do(ask{"PUT", "/api/tools/" + made.ID, w.service, c.body, nil}), 200)
		if all := strings.Join(got.Warnings, "\n"); !strings.Contains(all, c.warning) || c.warning == "" && all != "" {
			t.Errorf("%s: warnings %q, want %q", c.body, all, c.warning)
		}
		c.change(&before)
		row, err := w.store.Tool(t.Context(), hob.System(hob.DefaultWorkspace), hob.ToolID(made.ID))
		if d := cmp.Diff(before, row.Config, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Errorf("%s: %v %s", c.body, err, d)
		}
	}
	wantFault(t, w.do(ask{"PUT", "/api/tools/" + made.ID, w.service, `{"config":{"endpoint":null}}`, nil}), 400, "config.endpoint is required")
}
