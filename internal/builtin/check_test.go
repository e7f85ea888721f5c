package builtin_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"hob"
	"hob/internal/builtin"
)

func TestCheckAssignment(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{Database: &tables{text: "t", count: 1}, Exa: builtin.Service{Key: "k"}})
	tests := map[string]struct {
		tool, config  string
		warning, fail string // "" = none
	}{
		"nothing":             {"current_time", ``, "", ""},
		"null":                {"current_time", `null`, "", ""},
		"rules":               {"current_time", `{"rules":[{"condition":"timezone IN [\"UTC\"]","action":"allow","message":"m","ignore_case":true}]}`, "", ""},
		"rules are no list":   {"current_time", `{"rules":"anything"}`, "", "config_override.rules must be a list"},
		"no condition":        {"current_time", `{"rules":[{"condition":"a IN []"},{"action":"deny"}]}`, "", "at 1, counted from 0, a rule without condition"},
		"no rule":             {"current_time", `{"rules":[null]}`, "", "a rule without condition"},
		"no key of a rule":    {"current_time", `{"rules":[{"condition":"a IN []","Action":"deny"}]}`, "", `the key "Action"`},
		"wrong type":          {"current_time", `{"rules":[{"condition":5}]}`, "", `the key "condition"`},
		"pin":                 {"current_time", `{"timezone":"Europe/Berlin"}`, "", ""},
		"pin of a wrong type": {"current_time", `{"timezone":5}`, "", "config_override.timezone does not fit the tool's input schema: got number, want string"},
		"pin outside an enum": {"http_request", `{"method":"TRACE"}`, "", "config_override.method does not fit"},
		"pin of any type":     {"http_request", `{"body":[1]}`, "", ""},
		"nested pin":          {"http_request", `{"headers":{"A":1}}`, "", "at /A: got number, want string"},
		"unknown key":         {"current_time", `{"zone":"UTC"}`, "config_override.zone is ignored: current_time has no argument", ""},
		"unknown tool":        {"web_browse", `{}`, "", "the builtin tools are "},
		"hosts":               {"http_request", `{"allowed_hosts":["api.example.com","*.example.org:8443"]}`, "", ""},
		"hosts not a list":    {"http_request", `{"allowed_hosts":"api.example.com"}`, "", "must be a list"},
		"hosts null":          {"http_request", `{"allowed_hosts":null}`, "", "at least one host"},
		"hosts empty":         {"http_request", `{"allowed_hosts":[]}`, "", "at least one host"},
		"hosts with scheme":   {"http_request", `{"allowed_hosts":["https://example.com"]}`, "", "leave out the scheme"},
		"methods":             {"http_request", `{"methods":["GET"]}`, "", ""},
		"methods unknown":     {"http_request", `{"methods":["TRACE"]}`, "", "config_override.methods has"},
		"methods empty":       {"http_request", `{"methods":[]}`, "", "at least one method"},
		"timeout":             {"http_request", `{"timeout_seconds":300}`, "", ""},
		"timeout too long":    {"http_request", `{"timeout_seconds":301}`, "", "above 0 and at most 300"},
		"timeout none":        {"http_request", `{"timeout_seconds":0}`, "", "above 0 and at most 300"},
		"length":              {"http_request", `{"max_chars":200000}`, "", ""},
		"length too long":     {"web_search", `{"max_chars":200001}`, "", "a whole number from 100 to 200000"},
		"length too short":    {"web_scrape", `{"max_chars":99}`, "", "a whole number from 100 to 200000"},
		"calls":               {"web_search", `{"max_calls_per_run":1000}`, "", ""},
		"calls too many":      {"web_search", `{"max_calls_per_run":1001}`, "", "a whole number from 1 to 1000"},
		"calls not whole":     {"web_search", `{"max_calls_per_run":1.5}`, "", "a whole number from 1 to 1000"},
		"result":              {"http_request", `{"result":"full"}`, "", ""},
		"result unknown":      {"http_request", `{"result":"half"}`, "", "must be body or full"},
		"recovery":            {"http_request", `{"recovery":"keyed"}`, "", ""},
		"recovery unknown":    {"http_request", `{"recovery":"local_tx"}`, "", "config_override.recovery must be read, keyed or once"},
		"recovery elsewhere":  {"current_time", `{"recovery":"read"}`, "is ignored", ""},
		"tables":              {"database_query", `{"schemas":{"main":["t"]}}`, "", ""},
		"tables malformed":    {"database_query", `{"schemas":[]}`, "", "schemas must be"},
		"no tables":           {"database_query", `{}`, "will not work: its assignment lists no tables", ""},
		"duplicate key":       {"current_time", `{"timezone":"UTC","timezone":"UTC"}`, "", "stands twice"},
		"no object":           {"current_time", `"x"`, "", "must be an object"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			warning, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, tt.tool, json.RawMessage(tt.config))
			checkInvalid(t, err, tt.fail)
			if (warning == "") != (tt.warning == "") || !strings.Contains(warning, tt.warning) {
				t.Errorf("warning %q, want %q", warning, tt.warning)
			}
		})
	}
}

// checkInvalid wants an Invalid error that names its field and contains a text; "" wants none.
func checkInvalid(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("error %v", err)
		}
		return
	}
	var e *hob.Error
	if !errors.As(err, &e) || e.Kind != hob.Invalid || !strings.Contains(e.Message, want) {
		t.Errorf("error %v, want Invalid with %q", err, want)
	}
}

func TestCheckAssignment_TablesThatDoNotWorkAreAWarning(t *testing.T) {
	t.Parallel()
	config := json.RawMessage(`{"schemas":{"main":["t"]}}`)
	tests := map[string]struct {
		deps builtin.Deps
		want string
	}{
		"absent": {builtin.Deps{Database: &tables{}}, "none of the tables in config_override.schemas exists: main.t; hob doctor lists those"},
		"down":   {builtin.Deps{Database: &tables{err: errDown}}, "the database cannot answer now"},
		"off":    {builtin.Deps{DatabaseOff: "the role lacks CREATEROLE"}, "database tools are off: the role lacks CREATEROLE"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			warning, err := newSet(t, tt.deps).CheckAssignment(t.Context(), hob.DefaultWorkspace, "database_query", config)
			if err != nil || !strings.Contains(warning, tt.want) || strings.Contains(warning, "10.1.2.3") {
				t.Errorf("warning %q, error %v", warning, err)
			}
		})
	}
}

func TestCheckAssignment_NamesTablesThatDoNotExist(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{Database: &tables{text: "t", count: 1}})
	many := `{"schemas":{"main":["t"` + strings.Repeat(`,"u"`, 12) + `]}}`
	for _, tool := range []string{"database_query", "database_write"} {
		for config, want := range map[string]string{
			`{"schemas":{"main":["t","u"]}}`: "config_override.schemas names tables that do not exist: main.u; hob doctor lists those that can be granted",
			many:                             strings.Repeat("main.u, ", 9) + "main.u and 2 more; hob doctor",
		} {
			if w, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, tool, json.RawMessage(config)); err != nil || !strings.Contains(w, want) {
				t.Errorf("%s: %q, %v", tool, w, err)
			}
		}
		_, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, tool, json.RawMessage(`{"schemas":5}`))
		var e *hob.Error
		if !errors.As(err, &e) || e.Details["field"] != "config_override.schemas" || !strings.Contains(e.Message, `{"schemas":{"main":["customers","orders"]}}`) {
			t.Errorf("%s: %v", tool, err)
		}
	}
}

// What the workspace lacks is said once, where the tool is assigned.
func TestCheckAssignment_SaysWhatTheToolLacks(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	for tool, want := range map[string]string{
		"web_search": "web_search will not work: Exa API key not configured.", "web_browsing": "web_browsing will not work: no configured model provider",
		"code_execute": "code_execute will not work: Code sandbox is not configured: ", "storage_read": "storage_read will not work: this server stores no files",
		"database_query": "database_query will not work: database tools are off", "database_write": "database_write will not work: database tools are off",
	} {
		w, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, tool, nil)
		if err != nil || !strings.HasPrefix(w, want) || strings.Count(w, "will not work") != 1 {
			t.Errorf("%s: %q, %v", tool, w, err)
		}
	}
}

func TestCheckCustomAssignment(t *testing.T) {
	t.Parallel()
	s, row := newSet(t, builtin.Deps{}), named("weather")
	warning, err := s.CheckCustomAssignment(row, json.RawMessage(`{"units":"c","wind":true}`))
	if err != nil || !strings.Contains(warning, "config_override.wind is ignored") {
		t.Errorf("warning %q, error %v", warning, err)
	}
	_, err = s.CheckCustomAssignment(row, json.RawMessage(`{"days":9}`))
	checkInvalid(t, err, "config_override.days does not fit")
	// Names that need escaping inside a reference are found too.
	row.InputSchema = json.RawMessage(`{"type":"object","properties":{"a/b ~%ü":{"type":"boolean"}}}`)
	_, err = s.CheckCustomAssignment(row, json.RawMessage(`{"a/b ~%ü":1}`))
	checkInvalid(t, err, "does not fit the tool's input schema: got number, want boolean")
}

func TestCheckTool(t *testing.T) {
	t.Parallel()
	srv := serve(t, nil)
	s := newSet(t, builtin.Deps{}, srv)
	tests := map[string]struct {
		change func(*hob.Tool)
		fail   string
	}{
		"as it is":                  {func(*hob.Tool) {}, ""},
		"allowed private":           {func(r *hob.Tool) { r.Config.Endpoint = srv.URL }, ""},
		"no schema":                 {func(r *hob.Tool) { r.InputSchema = nil }, ""},
		"reserved name":             {func(r *hob.Tool) { r.Name = "knowledge_search" }, "reserved"},
		"reserved in another case":  {func(r *hob.Tool) { r.Name = "MCP__x" }, "reserved"},
		"builtin's in another case": {func(r *hob.Tool) { r.Name = "Current_Time" }, "builtin tool"},
		"builtin's name":            {func(r *hob.Tool) { r.Name = "current_time" }, "builtin tool"},
		"type":                      {func(r *hob.Tool) { r.Type = "grpc" }, `type must be "http"`},
		"schema type":               {func(r *hob.Tool) { r.InputSchema = json.RawMessage(`{"type":"string"}`) }, `"type": "object"`},
		"schema list":               {func(r *hob.Tool) { r.InputSchema = json.RawMessage(`[]`) }, "must be an object"},
		"schema duplicate":          {func(r *hob.Tool) { r.InputSchema = json.RawMessage(`{"type":"object","type":"object"}`) }, "stands twice"},
		"schema pattern":            {func(r *hob.Tool) { r.InputSchema = json.RawMessage(`{"properties":{"a":{"pattern":"("}}}`) }, "is not a JSON Schema"},
		"schema remote":             {func(r *hob.Tool) { r.InputSchema = json.RawMessage(`{"$ref":"https://example.com/s"}`) }, "not followed"},
		"schema too large": {func(r *hob.Tool) {
			r.InputSchema = json.RawMessage(`{"title":"` + strings.Repeat("x", builtin.MaxSchema) + `"}`)
		}, "at most 65536 bytes"},
		"no endpoint":         {func(r *hob.Tool) { r.Config.Endpoint = "" }, "config.endpoint is required"},
		"scheme":              {func(r *hob.Tool) { r.Config.Endpoint = "ftp://example.com" }, "only http and https"},
		"private endpoint":    {func(r *hob.Tool) { r.Config.Endpoint = "http://10.0.0.1/" }, "HOB_EGRESS_ALLOW"},
		"method":              {func(r *hob.Tool) { r.Config.Method = "CONNECT" }, "config.method must be one of"},
		"method in any case":  {func(r *hob.Tool) { r.Config.Method = "patch" }, ""},
		"timeout negative":    {func(r *hob.Tool) { r.Config.TimeoutSeconds = -1 }, "config.timeout_seconds"},
		"timeout too long":    {func(r *hob.Tool) { r.Config.TimeoutSeconds = 300.5 }, "at most 300"},
		"timeout no number":   {func(r *hob.Tool) { r.Config.TimeoutSeconds = math.NaN() }, "config.timeout_seconds"},
		"recovery":            {func(r *hob.Tool) { r.Config.Recovery = hob.RecoverLocal }, "config.recovery must be"},
		"header name":         {func(r *hob.Tool) { r.Config.Headers = map[string]hob.Secret{"a b": "x"} }, "name that is not valid"},
		"header value":        {func(r *hob.Tool) { r.Config.Headers = map[string]hob.Secret{"A": "hush\r\nB: c"} }, "control character in the value of A"},
		"own key":             {func(r *hob.Tool) { r.Config.Headers = map[string]hob.Secret{"idempotency-key": "x"} }, "Idempotency-Key"},
		"fixed query":         {func(r *hob.Tool) { r.Config.Endpoint = "https://example.com/?city=Rome" }, `already has the query parameter "city"`},
		"fixed query in POST": {func(r *hob.Tool) { r.Config.Endpoint, r.Config.Method = "https://example.com/?city=Rome", "" }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := named("weather")
			tt.change(&row)
			err := s.CheckTool(row)
			checkInvalid(t, err, tt.fail)
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
}
