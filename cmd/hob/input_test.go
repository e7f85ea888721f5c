package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/client"
)

// TestBadInput_IsRefusedAndWritesNothing sends what no client should, and wants a typed error and an unchanged store.
func TestBadInput_IsRefusedAndWritesNothing(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := install(t, map[string]string{"HOB_DATABASE_URL": database}).serve()
			c := s.client()
			agent := demo(t, c)
			before := inventory(t, c, agent)
			for _, r := range badRequests(string(agent)) {
				t.Run(r.name, func(t *testing.T) { r.send(t, s) })
			}
			if diff := cmp.Diff(before, inventory(t, c, agent)); diff != "" {
				t.Errorf("the store changed (-before +after):\n%s", diff)
			}
			mustContain(t, "health", fmt.Sprint(c.Health(t.Context())), "healthy")
		})
	}
}

func TestModelOfNobody_WarnsAndDoesNotRun(t *testing.T) {
	t.Parallel()
	c := install(t, nil).serve().client()
	name, model := "later", "openai/gpt-4.1"
	a, err := c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &model})
	if err != nil || !strings.Contains(strings.Join(a.Warnings, " "), "OPENAI_API_KEY") {
		t.Fatalf("%v, warnings %q: they should name OPENAI_API_KEY", err, a.Warnings)
	}
	_, err = c.Run(t.Context(), a.ID, client.RunRequest{Message: "hi"})
	if hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "OPENAI_API_KEY") {
		t.Errorf("run: %v, want a refusal that names OPENAI_API_KEY", err)
	}
	if sessions, err := c.Sessions(t.Context(), a.ID, client.SessionQuery{}); err != nil || sessions.Total != 0 {
		t.Errorf("%d sessions (%v), want none", sessions.Total, err)
	}
}

// inventory writes down all that the API lists.
func inventory(t *testing.T, c *client.Client, agent hob.AgentID) string {
	t.Helper()
	agents, err := c.Agents(t.Context(), client.AgentQuery{})
	if err != nil {
		t.Fatal(err)
	}
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	given, err := c.Assignments(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := c.Sessions(t.Context(), agent, client.SessionQuery{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := c.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent([]any{agents, tools, given, sessions, keys}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type badRequest struct {
	name, method, path, body string
	status                   int
	code                     string // "" = any
	header                   map[string]string
}

func badRequests(agent string) []badRequest {
	const absent = "00000000-0000-4000-8000-000000000000"
	run := "/api/agents/" + agent + "/run"
	return []badRequest{
		{name: "no key", method: "GET", path: "/api/agents", status: 401, code: "authorization_required", header: map[string]string{"Authorization": ""}},
		{name: "wrong key", method: "GET", path: "/api/agents", status: 401, code: "invalid_token", header: map[string]string{"Authorization": "Bearer hob_wrong"}},
		{name: "wrong scheme", method: "GET", path: "/api/agents", status: 401, header: map[string]string{"Authorization": "Basic eDp5"}},
		{name: "forged token", method: "POST", path: run, body: `{"message":"x"}`, status: 401, header: map[string]string{"Authorization": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0."}},
		{name: "no JSON", method: "POST", path: run, body: `{"message":`, status: 400, code: "invalid_json"},
		{name: "two values", method: "POST", path: run, body: `{"message":"a"}{}`, status: 400, code: "invalid_json"},
		{name: "key twice", method: "POST", path: run, body: `{"message":"a","message":"b"}`, status: 400, code: "invalid_json"},
		{name: "not UTF-8", method: "POST", path: run, body: "{\"message\":\"\xff\"}", status: 400, code: "invalid_json"},
		{name: "too deep", method: "POST", path: run, body: `{"message":"x","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, status: 400, code: "invalid_json"},
		{name: "an array", method: "POST", path: run, body: `[]`, status: 400},
		{name: "no body", method: "POST", path: run, status: 400},
		{name: "no message", method: "POST", path: run, body: `{}`, status: 400},
		{name: "empty message", method: "POST", path: run + "/stream", body: `{"message":"  "}`, status: 400},
		{name: "number as message", method: "POST", path: run + "/stream", body: `{"message":5}`, status: 400},
		{name: "steps out of range", method: "POST", path: run + "/stream", body: `{"message":"x","max_steps":1000}`, status: 400},
		{name: "steps as text", method: "POST", path: run + "/stream", body: `{"message":"x","max_steps":"5"}`, status: 400},
		{name: "session id too long", method: "POST", path: run, body: `{"message":"x","session_id":"` + strings.Repeat("s", 256) + `"}`, status: 400},
		{name: "wrong media type", method: "POST", path: run, body: "message=x", status: 415, header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}},
		{name: "too large", method: "POST", path: "/api/agents", body: `{"name":"x","system_prompt":"` + strings.Repeat("x", 2<<20) + `"}`, status: 413},
		{name: "run too large", method: "POST", path: run, body: `{"message":"` + strings.Repeat("x", 9<<20) + `"}`, status: 413},
		{name: "absent agent", method: "POST", path: "/api/agents/" + absent + "/run", body: `{"message":"x"}`, status: 404, code: "agent_not_found"},
		{name: "absent agent, streamed", method: "POST", path: "/api/agents/" + absent + "/run/stream", body: `{"message":"x"}`, status: 404, code: "agent_not_found"},
		{name: "id that is none", method: "GET", path: "/api/agents/%27%20OR%201=1", status: 404, code: "agent_not_found"},
		{name: "absent run", method: "GET", path: "/api/agents/runs/run_000000000000", status: 404, code: "run_not_found"},
		{name: "absent run's events", method: "GET", path: "/api/agents/runs/run_000000000000/events", status: 404, code: "run_not_found"},
		{name: "absent session", method: "GET", path: "/api/sessions/nobody", status: 404, code: "session_not_found"},
		{name: "absent tool", method: "DELETE", path: "/api/tools/" + absent, status: 404, code: "tool_not_found"},
		{name: "absent key", method: "DELETE", path: "/api/keys/" + absent, status: 404, code: "key_not_found"},
		{name: "nothing there", method: "GET", path: "/api/nothing", status: 404},
		{name: "other method", method: "PUT", path: "/api/agents", body: `{}`, status: 405},
		{name: "agent without name", method: "POST", path: "/api/agents", body: `{"model":"scripted/demo"}`, status: 400},
		{name: "agent with settings of another type", method: "POST", path: "/api/agents", body: `{"name":"x","model":"scripted/demo","settings":{"max_steps":"many"}}`, status: 400},
		{name: "agent with a script that is none", method: "PATCH", path: "/api/agents/" + agent, body: `{"settings":{"temperature":9}}`, status: 400},
		{name: "bad sort", method: "GET", path: "/api/agents?sort=password", status: 400},
		{name: "tool nobody knows", method: "POST", path: "/api/agents/" + agent + "/tools", body: `{"tool_name":"rm_rf"}`, status: 400},
		{name: "tool twice", method: "POST", path: "/api/agents/" + agent + "/tools", body: `{"tool_name":"current_time"}`, status: 409},
		{name: "system schema", method: "POST", path: "/api/agents/" + agent + "/tools", body: `{"tool_name":"database_query","config_override":{"schemas":{"pg_catalog":["pg_authid"]}}}`, status: 400},
		{name: "private endpoint", method: "POST", path: "/api/tools", status: 400, body: `{"name":"in","description":"d","type":"http","input_schema":{"type":"object"},"config":{"endpoint":"http://169.254.169.254/"}}`},
		{name: "schema that is none", method: "POST", path: "/api/tools", status: 400, body: `{"name":"in","description":"d","type":"http","input_schema":{"type":"objekt"},"config":{"endpoint":"https://example.com/"}}`},
		{name: "key with an unknown scope", method: "POST", path: "/api/keys", body: `{"name":"x","scopes":["fly"]}`, status: 400},
		{name: "key in the past", method: "POST", path: "/api/keys", body: `{"name":"x","expires_at":"2001-01-01T00:00:00Z"}`, status: 400},
	}
}

// send wants the status, and an error as JSON.
func (r badRequest) send(t *testing.T, s *serving) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.method, s.url+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var told struct{ Error, Message, Code string }
	if err := json.NewDecoder(bufio.NewReader(answer.Body)).Decode(&told); err != nil {
		t.Fatalf("status %d, and the body is no JSON: %v", answer.StatusCode, err)
	}
	if answer.StatusCode != r.status {
		t.Errorf("status %d (%s), want %d", answer.StatusCode, told.Error, r.status)
	}
	if told.Error == "" || told.Error != told.Message || told.Code == "" {
		t.Errorf("the error is %+v", told)
	}
	if r.code != "" && told.Code != r.code {
		t.Errorf("code %s, want %s", told.Code, r.code)
	}
}
