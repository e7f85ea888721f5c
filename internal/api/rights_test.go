package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"hob"
	"hob/internal/api"
)

// The callers of the matrix, in the order of a row's statuses.
func callers() []string {
	return []string{"service", "admin", "configure", "run", "read", "approve", "bound", "owner", "other", "anonymous", "revoked", "expired"}
}

// The statuses of a row, one letter each: + success, f 403, n 404, u 401, c 409, b 400 (allowed as far as the body).
// "owner" is the user whose session and run the paths name; "bound" is an admin key of another agent.
func matrix() map[string]string {
	const open, service, settings = "++++++++++++", "++ffffnffuuu", "+++fffnffuuu"
	const bytes = "++ff+fnnnuuu"
	const whole = "++fffffffuuu" // of the whole workspace: not for a bound key
	return map[string]string{
		"GET /health":           open,
		"GET /api/health":       open,
		"GET /health/ready":     open,
		"GET /api/openapi.json": open,
		"GET /docs":             open,
		"GET /docs/docs.js":     open,
		"GET /docs/docs.css":    open,
		"GET /docs/copy.js":     open,
		"GET /docs/index.js":    open,
		"GET /docs/favicon.svg": open,
		"GET /{$}":              open,
		"GET /metrics":          open, // of this machine; from elsewhere see TestMetrics_NeedAnAdminFromElsewhere
		"GET /api/me":           "+++++++++uuu",

		// Buckets are the workspace's: users and bound keys see none, but for public and signed addresses.
		"GET /storage/v1/bucket":                                  "++ff+f+++uuu",
		"POST /storage/v1/bucket":                                 settings,
		"GET /storage/v1/bucket/{bucket}":                         bytes,
		"PUT /storage/v1/bucket/{bucket}":                         settings,
		"DELETE /storage/v1/bucket/{bucket}":                      "cccfffnffuuu", // it is not empty
		"POST /storage/v1/bucket/{bucket}/empty":                  settings,
		"POST /storage/v1/object/{bucket}/{path...}":              settings,
		"PUT /storage/v1/object/{bucket}/{path...}":               settings,
		"GET /storage/v1/object/{bucket}/{path...}":               bytes,
		"DELETE /storage/v1/object/{bucket}/{path...}":            settings,
		"GET /storage/v1/object/authenticated/{bucket}/{path...}": bytes,
		"GET /storage/v1/object/public/{bucket}/{path...}":        open,
		"GET /storage/v1/object/sign/{bucket}/{path...}":          open,
		"POST /storage/v1/object/sign/{bucket}/{path...}":         bytes,
		"POST /storage/v1/object/sign/{bucket}":                   bytes,
		"GET /storage/v1/object/info/{bucket}/{path...}":          bytes,
		"POST /storage/v1/object/list/{bucket}":                   bytes,
		"DELETE /storage/v1/object/{bucket}":                      settings,
		"POST /storage/v1/object/copy":                            settings,
		"POST /storage/v1/object/move":                            settings,

		"GET /api/agents":                                                "++ff+f+++uuu",
		"POST /api/agents":                                               "+++ffffffuuu",
		"GET /api/agents/{id}":                                           "++ff+fn++uuu",
		"PATCH /api/agents/{id}":                                         settings,
		"DELETE /api/agents/{id}":                                        settings,
		"GET /api/agents/{id}/tools":                                     "++ff+fn++uuu",
		"GET /api/agents/{id}/tools/effective":                           "++ff+fn++uuu",
		"POST /api/agents/{id}/tools":                                    settings,
		"PATCH /api/agents/{id}/tools/{assignment_id}":                   settings,
		"DELETE /api/agents/{id}/tools/{assignment_id}":                  settings,
		"GET /api/tools":                                                 "++ff+f+++uuu",
		"POST /api/tools":                                                "+++ffffffuuu",
		"POST /api/tools/{id}/test":                                      whole,
		"GET /api/tools/{id}":                                            "++ff+f+++uuu",
		"PUT /api/tools/{id}":                                            "+++ffffffuuu",
		"DELETE /api/tools/{id}":                                         "+++ffffffuuu",
		"GET /api/tools/{id}/versions":                                   "++ff+f+++uuu",
		"POST /api/tools/{id}/versions/{version}/restore":                "+++ffffffuuu",
		"POST /api/agents/{id}/run":                                      "++f+ffn++uuu",
		"POST /api/agents/{id}/run/stream":                               "++f+ffn++uuu",
		"GET /api/agents/runs/{run_id}":                                  "++fnnfn+nuuu",
		"GET /api/agents/runs/{run_id}/events":                           "++fnnfn+nuuu",
		"POST /api/agents/runs/{run_id}/cancel":                          "++fnffn+nuuu",
		"GET /api/agents/runs/{run_id}/approvals":                        "++fnnnn+nuuu",
		"POST /api/agents/runs/{run_id}/approve":                         "++fffnn+nuuu",
		"GET /api/approvals":                                             "++f++++++uuu",
		"GET /api/approvals/{approval_id}":                               "++fnnnn+nuuu",
		"GET /api/agents/{id}/hooks":                                     "++ff+fn++uuu",
		"POST /api/agents/{id}/hooks":                                    settings,
		"GET /api/agents/{id}/hooks/{hook_id}":                           "++ff+fn++uuu",
		"PATCH /api/agents/{id}/hooks/{hook_id}":                         settings,
		"DELETE /api/agents/{id}/hooks/{hook_id}":                        settings,
		"GET /api/agents/{id}/hooks/{hook_id}/deliveries":                settings,
		"GET /api/runs/held":                                             whole,
		"POST /api/runs/held/release":                                    whole,
		"GET /api/agents/{id}/sessions":                                  "++ff+fn++uuu",
		"POST /api/agents/{id}/sessions":                                 "++f+ffn++uuu",
		"DELETE /api/agents/{id}/sessions/{session_id}":                  "++fnffn+nuuu",
		"GET /api/sessions/{session_id}":                                 "++ffnfn+nuuu",
		"GET /api/sessions/{session_id}/messages":                        "++ffnfn+nuuu",
		"GET /api/sessions/{session_id}/runs":                            "++ffnfn+nuuu",
		"GET /api/sessions/{session_id}/runs/{run_id}/retrieved-context": "++ffnfn+nuuu",
		"DELETE /api/sessions/{session_id}":                              "++fnffn+nuuu",
		"GET /api/keys":                                                  "++ffff+ffuuu",
		"POST /api/keys":                                                 "++fffffffuuu", // a bound key makes bound keys only
		"GET /api/keys/{key_id}":                                         service,
		"DELETE /api/keys/{key_id}":                                      service,
		"GET /api/settings":                                              whole,
		"PUT /api/settings":                                              whole,
		"GET /api/settings/{key}":                                        whole,
		"PUT /api/settings/{key}":                                        whole,
		"DELETE /api/settings/{key}":                                     whole,
		"POST /api/settings/reset-category":                              whole,
		"GET /api/ai-provider-keys":                                      whole,
		"GET /api/ai-provider-keys/platform_supported":                   whole,
		"POST /api/ai-provider-keys":                                     whole,
		"PUT /api/ai-provider-keys":                                      whole,
		"DELETE /api/ai-provider-keys/{provider}":                        whole,
		"POST /api/ai-provider-keys/validate":                            whole,
		"GET /api/provider-profiles":                                     whole,
		"PUT /api/provider-profiles":                                     whole,
		"DELETE /api/provider-profiles":                                  whole,
		"GET /api/audit":                                                 whole,
		"GET /api/usage":                                                 "++ff+f+++uuu",
	}
}

// scene is what the paths of a request name.
type scene struct {
	agent, session, run, tool, assignment, key string
	token                                      string // of a signed link, as a query
	fresh                                      string // an object that is not there, for an upload
	hook, waiting, approval                    string // of agent; a run that waits, and what for
}

func TestRights_EveryRouteAndEveryCaller(t *testing.T) {
	t.Parallel()
	rows := matrix()
	for _, r := range api.Routes() {
		name := r.Method + " " + r.Path
		row, ok := rows[name]
		if !ok {
			t.Errorf("the route %s has no row in matrix() above", name)
			continue
		}
		if len(row) != len(callers()) {
			t.Errorf("the row of %s has %d statuses, want %d", name, len(row), len(callers()))
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("the matrix has a row for %s, which is no route", name)
	}
	if t.Failed() {
		t.FailNow() // what follows reads a row for each route
	}
	w := begin(t, func(c *api.Config) { c.Limits.Off = true })
	keys := w.callerKeys()
	s := w.scene(keys["owner"])
	a := w.waiting(keys["owner"])
	for _, r := range api.Routes() {
		row := matrix()[r.Method+" "+r.Path]
		for i, caller := range callers() {
			t.Run(fmt.Sprintf("%s %s as %s", r.Method, r.Path, caller), func(t *testing.T) {
				s.fresh, s.waiting, s.approval = "", string(a.RunID), a.ApprovalID
				if r.Method == http.MethodPost {
					s.fresh = hob.RandomHex(8)
				}
				got := w.do(ask{method: r.Method, path: s.fill(r.Path) + s.query(r.Method, r.Path), key: keys[caller], body: s.body(r.Method, r.Path)})
				if want := row[i]; !slices.Contains(statuses(want), got.status) {
					t.Errorf("status %d, want %c: %.300s", got.status, want, got.body)
				}
				if r.Method != http.MethodGet && got.status < 300 { // it may have changed or deleted what it names
					s = w.scene(keys["owner"])
				}
				if strings.HasSuffix(r.Path, "/approve") && got.status < 300 {
					a = w.waiting(keys["owner"])
				}
			})
		}
	}
}

func statuses(letter byte) []int {
	switch letter {
	case '+':
		return []int{200, 201, 202, 204}
	case 'f':
		return []int{http.StatusForbidden}
	case 'n':
		return []int{http.StatusNotFound}
	case 'u':
		return []int{http.StatusUnauthorized}
	case 'c':
		return []int{http.StatusConflict}
	}
	return nil
}

func (w *world) callerKeys() map[string]string {
	w.t.Helper()
	elsewhere := w.agent("fixed")
	revoked := w.scoped(hob.ScopeAdmin)
	w.revoke(revoked)
	return map[string]string{
		"service": w.service, "admin": w.scoped(hob.ScopeAdmin), "configure": w.scoped(hob.ScopeConfigure),
		"run": w.scoped(hob.ScopeRun), "read": w.scoped(hob.ScopeRead), "approve": w.scoped(hob.ScopeApprove),
		"bound": w.key(hob.Key{Name: "bound", Scopes: []hob.Scope{hob.ScopeAdmin}, Agent: elsewhere}),
		"owner": user(w.t, "owner"), "other": user(w.t, "other"), "anonymous": "", "revoked": revoked,
		"expired": token(w.t, jwtSecret, jwt.MapClaims{"sub": "owner", "aud": "authenticated", "exp": time.Now().Add(-time.Hour).Unix()}),
	}
}

func (w *world) scene(owner string) scene {
	w.t.Helper()
	s := scene{agent: string(w.agent("fixed"))}
	run := as[struct {
		Run     string `json:"run_id"`
		Session string `json:"session_id"`
	}](w.t, w.do(ask{"POST", "/api/agents/" + s.agent + "/run", owner, `{"message":"hi"}`, nil}), 200)
	s.run, s.session = run.Run, run.Session
	id := func(path, body string) string {
		return as[struct{ ID string }](w.t, w.do(ask{"POST", path, w.service, body, nil}), 201).ID
	}
	s.hook = id("/api/agents/"+s.agent+"/hooks", `{"event":"PreToolUse","type":"rule","config":{"condition":"zone CONTAINS Mars"}}`)
	s.tool = id("/api/tools", `{"name":"t_`+hob.RandomHex(8)+`","endpoint":"https://x.example",`+toolBody+`}`)
	s.assignment = id("/api/agents/"+s.agent+"/tools", `{"tool_name":"clock"}`)
	s.key = id("/api/keys", `{"name":"k"}`)
	if r := w.do(ask{"PUT", "/api/ai-provider-keys", w.service, `{"openai":"sk-0123456789"}`, nil}); r.status != http.StatusOK {
		w.t.Fatalf("set a provider key: %d %s", r.status, r.body)
	}
	if r := w.do(ask{"PUT", "/api/provider-profiles", w.service, s.body("PUT", "/api/provider-profiles"), nil}); r.status != http.StatusOK {
		w.t.Fatalf("keep a profile: %d %s", r.status, r.body)
	}
	s.token = w.storageScene()
	return s
}

func (s scene) fill(path string) string {
	if name, ok := strings.CutPrefix(path, "/storage/v1/"); ok {
		object := "2026/june.txt"
		if strings.HasPrefix(name, "object/{bucket}/{path...}") && s.fresh != "" {
			object = s.fresh
		}
		return strings.NewReplacer("{bucket}", storageBucket, "{path...}", object, "{path}", object).Replace(path)
	}
	id := s.agent
	if strings.HasPrefix(path, "/api/tools") {
		id = s.tool
	}
	if s.waiting != "" && (strings.HasSuffix(path, "/approve") || strings.HasSuffix(path, "/approvals")) {
		path = strings.Replace(path, "{run_id}", s.waiting, 1)
	}
	if path == "/api/tools/{id}/test" { // the other is carried out by nobody here
		id = "clock"
	}
	return strings.NewReplacer("{$}", "", "{id}", id, "{run_id}", s.run, "{session_id}", s.session, "{assignment_id}", s.assignment,
		"{hook_id}", s.hook, "{approval_id}", s.approval, "{key_id}", s.key, "{key}", "CUSTOM_TOOL_TIMEOUT", "{provider}", "openai", "{version}", "1").Replace(path)
}

// query are the parameters that the route needs.
func (s scene) query(method, path string) string {
	if method+" "+path == "GET /storage/v1/object/sign/{bucket}/{path...}" {
		return s.token
	}
	if method+" "+path == "DELETE /api/provider-profiles" {
		return "?endpoint=https://x.example/v1&model=m"
	}
	return ""
}

// body is a body that the route takes.
func (s scene) body(method, path string) string {
	switch method + " " + path {
	case "POST /storage/v1/bucket":
		return `{"id":"b_` + hob.RandomHex(8) + `"}`
	case "PUT /storage/v1/bucket/{bucket}":
		return `{"public":true}`
	case "POST /storage/v1/object/sign/{bucket}":
		return `{"paths":["2026/june.txt"]}`
	case "DELETE /storage/v1/object/{bucket}":
		return `{"prefixes":["2026/old.txt"]}`
	case "POST /storage/v1/object/copy", "POST /storage/v1/object/move":
		return `{"bucketId":"` + storageBucket + `","sourceKey":"2026/june.txt","destinationKey":"` + hob.RandomHex(8) + `"}`
	case "POST /api/agents", "PATCH /api/agents/{id}", "POST /api/keys":
		return `{"name":"x"}`
	case "POST /api/agents/{id}/tools":
		return `{"tool_name":"database_query"}`
	case "POST /api/agents/{id}/hooks":
		return `{"event":"PreToolUse","type":"approval","config":{}}`
	case "PATCH /api/agents/{id}/hooks/{hook_id}":
		return `{"enabled":false}`
	case "PATCH /api/agents/{id}/tools/{assignment_id}":
		return `{"config_override":{}}`
	case "POST /api/tools":
		return `{"name":"t_` + hob.RandomHex(8) + `","endpoint":"https://x.example",` + toolBody + `}`
	case "PUT /api/tools/{id}":
		return `{"description":"new"}`
	case "POST /api/agents/{id}/run", "POST /api/agents/{id}/run/stream":
		return `{"message":"hi"}`
	case "PUT /api/settings":
		return `{"settings":{"CUSTOM_TOOL_TIMEOUT":60}}`
	case "PUT /api/settings/{key}":
		return `{"value":60}`
	case "POST /api/runs/held/release":
		return `{"all":true}`
	case "POST /api/settings/reset-category":
		return `{"category":"agents"}`
	case "POST /api/ai-provider-keys", "POST /api/ai-provider-keys/validate":
		return `{"provider":"openai","api_key":"sk-0123456789"}`
	case "PUT /api/ai-provider-keys":
		return `{"openai":"sk-0123456789"}`
	case "PUT /api/provider-profiles":
		return `{"endpoint":"https://x.example/v1","model":"m","facts":{}}`
	case "POST /api/agents/runs/{run_id}/approve":
		return `{"approved":true}`
	}
	return ""
}

func TestRights_TheUnseenIsAnsweredAsTheAbsent(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	s := w.scene(user(t, "owner"))
	other := user(t, "other")
	absent := scene{agent: s.agent, run: "run_000000000000", session: "sess_000000000000"}
	for _, path := range []string{
		"GET /api/agents/runs/{run_id}", "GET /api/agents/runs/{run_id}/events", "POST /api/agents/runs/{run_id}/cancel",
		"GET /api/sessions/{session_id}", "GET /api/sessions/{session_id}/messages", "DELETE /api/sessions/{session_id}",
	} {
		method, path, _ := strings.Cut(path, " ")
		hidden := w.do(ask{method, s.fill(path), other, "", nil})
		missing := w.do(ask{method, absent.fill(path), other, "", nil})
		if hidden.status != 404 || string(hidden.body) != string(missing.body) {
			t.Errorf("%s %s: hidden %d %s, missing %d %s", method, path, hidden.status, hidden.body, missing.status, missing.body)
		}
	}
	r := w.do(ask{"POST", "/api/agents/" + s.agent + "/run", other, `{"message":"hi","session_id":"` + s.session + `"}`, nil})
	wantFault(t, r, 404, "Session not found")
}

func TestRights_ARunOnlyKeyFollowsWhatItStarted(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent, key := w.agent("slow"), w.scoped(hob.ScopeRun)
	events := w.stream(ask{"POST", "/api/agents/" + string(agent) + "/run/stream", key, `{"message":"hi"}`, nil})
	start := events.next()
	w.model.end()
	if last := events.rest(); last[len(last)-1].Type != hob.EventComplete {
		t.Errorf("the stream ends with %s", last[len(last)-1].Type)
	}
	again := w.stream(ask{"GET", "/api/agents/runs/" + string(start.Run) + "/events", key, "", nil})
	if first := again.next(); first.Type != hob.EventStart {
		t.Errorf("the log begins with %s", first.Type)
	}
	again.rest()
}
