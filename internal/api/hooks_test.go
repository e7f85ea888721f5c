package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
)

// hookRow is a hook as it is answered.
type hookRow struct {
	ID            string
	Agent         string `json:"agent_id"`
	Matcher       *string
	Config        map[string]any
	Enabled       bool
	Position      int
	SigningSecret string `json:"signing_secret"`
	Warnings      []string
}

func keysOf(t *testing.T, raw json.RawMessage) []string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(fields))
}

func TestHooks_AreAddedListedMovedAndDeleted(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := w.agent("fixed")
	path := "/api/agents/" + string(agent) + "/hooks"
	approval := w.do(ask{"POST", path, w.service, `{"event":"PreToolUse","type":"approval","config":{},"position":5}`, nil})
	if diff := cmp.Diff([]string{"agent_id", "config", "created_at", "enabled", "event", "id", "matcher", "position", "type"}, keysOf(t, approval.body)); diff != "" {
		t.Errorf("the keys of a new hook (-want +got):\n%s", diff)
	}
	a := as[hookRow](t, approval, 201)
	if a.Agent != string(agent) || a.Matcher != nil || len(a.Config) != 0 || !a.Enabled || a.Position != 5 {
		t.Errorf("the new hook is %+v", a)
	}
	body := `{"event":"PostToolUse","type":"http","matcher":"clock","enabled":false,"config":{"url":"https://x.example/hook","headers":{"X-Key":"s3cret-value","X-None":null},"timeout_seconds":2.5}}`
	h := as[hookRow](t, w.do(ask{"POST", path, w.service, body, nil}), 201)
	want := map[string]any{"url": "https://x.example/hook", "headers": map[string]any{"X-Key": hob.Mask}, "timeout_seconds": 2.5}
	if diff := cmp.Diff(want, h.Config); diff != "" || h.Enabled || *h.Matcher != "clock" {
		t.Errorf("the http hook is %+v (-want +got):\n%s", h, diff)
	}
	if !regexp.MustCompile(`^whsec_[0-9a-f]{48}$`).MatchString(h.SigningSecret) {
		t.Errorf("the secret is %q", h.SigningSecret)
	}
	listed := w.do(ask{"GET", path, user(t, "anybody"), "", nil})
	rows := as[struct{ Hooks []json.RawMessage }](t, listed, 200).Hooks
	if diff := cmp.Diff([]string{"config", "created_at", "enabled", "event", "id", "matcher", "position", "signing_secret", "type"}, keysOf(t, rows[0])); diff != "" {
		t.Errorf("the keys of a row (-want +got):\n%s", diff)
	}
	order := func() (ids []string) {
		for _, r := range as[struct{ Hooks []hookRow }](t, w.do(ask{"GET", path, w.service, "", nil}), 200).Hooks {
			ids = append(ids, r.ID)
		}
		return ids
	}
	if got := order(); !slices.Equal(got, []string{h.ID, a.ID}) {
		t.Errorf("the order is %v", got)
	}
	for _, r := range []reply{listed, w.do(ask{"GET", path + "/" + strings.ToUpper(h.ID), w.service, "", nil})} {
		if strings.Contains(string(r.body), "s3cret") || strings.Contains(string(r.body), h.SigningSecret) || !strings.Contains(string(r.body), `"signing_secret":"`+hob.Mask) {
			t.Errorf("secrets: %s", r.body)
		}
	}
	moved := as[hookRow](t, w.do(ask{"PATCH", path + "/" + h.ID, w.service, `{"position":1000000,"enabled":true}`, nil}), 200)
	if moved.Position != 1_000_000 || !moved.Enabled || moved.Agent != string(agent) || moved.SigningSecret != hob.Mask {
		t.Errorf("moved: %+v", moved)
	}
	if got := order(); !slices.Equal(got, []string{a.ID, h.ID}) {
		t.Errorf("after the move the order is %v", got)
	}
	if got := as[struct {
		Deliveries []hob.Delivery
		Limit      int
	}](t, w.do(ask{"GET", path + "/" + h.ID + "/deliveries?limit=1000", w.service, "", nil}), 200); got.Deliveries == nil || len(got.Deliveries) != 0 || got.Limit != 200 {
		t.Errorf("deliveries: %+v", got)
	}
	if r := w.do(ask{"DELETE", path + "/" + h.ID, w.service, "", nil}); string(r.body) != `{"deleted":true}`+"\n" {
		t.Errorf("deleted: %d %s", r.status, r.body)
	}
	for _, r := range []ask{
		{"DELETE", path + "/" + h.ID, w.service, "", nil},
		{"GET", path + "/" + h.ID, w.service, "", nil},
		{"PATCH", path + "/" + h.ID, w.service, `{"enabled":true}`, nil},
		{"GET", path + "/" + h.ID + "/deliveries", w.service, "", nil},
		{"DELETE", path + "/x", w.service, "", nil},
	} {
		if f := wantFault(t, w.do(r), 404, "Hook not found"); f.Code != "hook_not_found" {
			t.Errorf("%s %s: %+v", r.method, r.path, f)
		}
	}
	wantFault(t, w.do(ask{"GET", "/api/agents/" + noUUID + "/hooks", w.service, "", nil}), 404, "Agent not found")
	wantFault(t, w.do(ask{"POST", "/api/agents/" + noUUID + "/hooks", w.service, body, nil}), 404, "Agent not found")
}

func TestHooks_TheSecretOfTheClientIsTaken(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	path := "/api/agents/" + string(w.agent("fixed")) + "/hooks"
	for body, want := range map[string]string{
		`{"event":"PreToolUse","type":"http","config":{"url":"https://x.example","secret":"0123456789abcdef","on_error":"deny"}}`: "^0123456789abcdef$",
		`{"event":"PreToolUse","type":"http","config":{"url":"https://x.example","secret":""}}`:                                   "^whsec_",
		`{"event":"PreToolUse","type":"approval","config":{"notify_url":"https://x.example"}}`:                                    "^whsec_",
		`{"event":"PreToolUse","type":"approval","config":{}}`:                                                                    "^$",
		`{"event":"PreToolUse","type":"rule","config":{"condition":"zone IN [\"UTC\"]"}}`:                                         "^$",
	} {
		h := as[hookRow](t, w.do(ask{"POST", path, w.service, body, nil}), 201)
		if !regexp.MustCompile(want).MatchString(h.SigningSecret) || h.Config["secret"] != nil {
			t.Errorf("%s: secret %q, config %v", body, h.SigningSecret, h.Config)
		}
	}
}

// An address may authorise by its query or its user: it is whole for those alone who may change the hooks.
func TestHooks_AddressesAreWholeForThoseWhoConfigure(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	path := "/api/agents/" + string(w.agent("fixed")) + "/hooks"
	member := user(t, "anybody")
	for _, c := range []struct{ given, seen string }{
		{"https://x.example/a%2Fb?token=hush", "https://x.example/a%2Fb?…"},
		{"https://x.example:8443/a/", "https://x.example:8443/a/"},
		{"https://x.example?hush", "https://x.example?…"},
	} {
		for kind, key := range map[string]string{"http": "url", "approval": "notify_url"} {
			made := as[hookRow](t, w.do(ask{"POST", path, w.service, `{"event":"PreToolUse","type":"` + kind + `","config":{"` + key + `":"` + c.given + `"}}`, nil}), 201)
			for who, want := range map[string]string{w.service: c.given, member: c.seen} {
				one := as[hookRow](t, w.do(ask{"GET", path + "/" + made.ID, who, "", nil}), 200)
				if one.Config[key] != want || one.SigningSecret != hob.Mask {
					t.Errorf("%s %s: %v, want %s", kind, c.given, one.Config[key], want)
				}
				rows := as[struct{ Hooks []hookRow }](t, w.do(ask{"GET", path, who, "", nil}), 200).Hooks
				i := slices.IndexFunc(rows, func(h hookRow) bool { return h.ID == made.ID })
				if i < 0 || rows[i].Config[key] != want {
					t.Errorf("%s %s in the list: %+v, want %s", kind, c.given, rows, want)
				}
			}
		}
	}
}

func TestHooks_WrongOnesAreRefused(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	path := "/api/agents/" + string(w.agent("fixed")) + "/hooks"
	rule := func(config string) string { return `{"event":"PreToolUse","type":"rule","config":` + config + `}` }
	called := func(config string) string {
		return `{"event":"PreToolUse","type":"http","config":{"url":"https://x.example"` + config + `}}`
	}
	const required = "event, type, and config are required"
	for _, c := range []struct{ body, text, field string }{
		{`{}`, required, "event"},
		{`{"event":"PreToolUse","config":{}}`, required, "type"},
		{`{"event":"PreToolUse","type":"approval"}`, required, "config"},
		{`{"event":"PreToolUse","type":"approval","config":null}`, required, "config"},
		{`{"event":"PreToolUse","type":"approval","configuration":{}}`, required + `; unknown: "configuration"`, "config"},
		{`{"event":"PreToolUse","type":"approval","config":"x"}`, "config must be an object", "config"},
		{`{"event":"PreToolUse","type":"approval","config":[]}`, "config must be an object", "config"},
		{`{"event":"before_run","type":"approval","config":{}}`, "event must be one of OnRunStart, PreToolUse, OnDelegation, PostToolUse, PreResponse, OnRunComplete", "event"},
		{`{"event":"PreToolUse","type":"webhook","config":{}}`, "type must be one of http, rule, approval", "type"},
		{`{"event":7,"type":"webhook","config":{}}`, "event must be text", "event"},
		{`{"event":"PostToolUse","type":"approval","config":{}}`, "type must be http for PostToolUse", "type"},
		{`{"event":"OnRunComplete","type":"rule","config":{"condition":"a IN [1]"}}`, "type must be http for OnRunComplete", "type"},
		{`{"event":"OnRunStart","type":"approval","matcher":"clock","config":{}}`, "matcher is for events of tools", "matcher"},
		{`{"event":"PreToolUse","type":"approval","position":-1001,"config":{}}`, "position must be a whole number from -1000 to 1000000", "position"},
		{`{"event":"PreToolUse","type":"approval","position":1000001,"config":{}}`, "position must be a whole number", "position"},
		{`{"event":"PreToolUse","type":"approval","position":"first","config":{}}`, "position must be a whole number, not string", "position"},
		{`{"event":"PreToolUse","type":"approval","config":{"on_error":"ignore"}}`, "config.on_error must be allow or deny", "config.on_error"},
		{`{"event":"PreToolUse","type":"approval","config":{"timeout":-1}}`, "config.timeout must be a number of seconds", "config.timeout"},
		{`{"event":"PreToolUse","type":"approval","config":{"timeout":"5"}}`, "config.timeout must be a number, not string", "config.timeout"},
		{`{"event":"PreToolUse","type":"approval","config":{"approvers":["boss"]}}`, "config.approvers[0] must be owner", "config.approvers[0]"},
		{`{"event":"PreToolUse","type":"approval","config":{"notify_url":"http://127.0.0.1/x"}}`, "config.notify_url is refused: the address is private", "config.notify_url"},
		{`{"event":"PreToolUse","type":"http","config":{}}`, "config.url is required", "config.url"},
		{`{"event":"PreToolUse","type":"http","config":{"url":"http://127.0.0.1/x"}}`, "config.url is refused: the address is private; --egress-allow", "config.url"},
		{`{"event":"PreToolUse","type":"http","config":{"url":"ftp://x.example"}}`, "config.url must be a whole address", "config.url"},
		{called(`,"timeout_seconds":0`), "config.timeout_seconds must be a number above 0 and at most 30", "config.timeout_seconds"},
		{called(`,"timeout_seconds":30.5`), "config.timeout_seconds must be", "config.timeout_seconds"},
		{called(`,"headers":{"Host":"x"}`), "config.headers cannot set Host", "config.headers"},
		{called(`,"headers":{"X-Hob-Signature":"x"}`), "config.headers cannot set X-Hob-Signature", "config.headers"},
		{called(`,"headers":{"X-Key":"` + hob.Mask + `"}`), "config.headers has the mask", "config.headers"},
		{called(`,"secret":"` + strings.Repeat("s", 15) + `"`), "config.secret must have 16 to 256 characters", "config.secret"},
		{called(`,"secret":"` + strings.Repeat("s", 257) + `"`), "config.secret must have 16 to 256 characters", "config.secret"},
		{called(`,"secret":"` + hob.Mask + hob.Mask + `"`), "and not be the mask", "config.secret"},
		{rule(`{}`), "config.condition is required", "config.condition"},
		{rule(`{"condition":"zone is UTC"}`), "config.condition has", "config.condition"},
		{rule(`{"condition":"zone MATCHES ("}`), "config.condition has a pattern that is not valid", "config.condition"},
		{rule(`{"rules":{}}`), "config.rules must be a list of rules", "config.rules"},
		{rule(`{"rules":[{"condition":"a IN [1]"},7]}`), "config.rules[1] must be an object", "config.rules[1]"},
		{rule(`{"rules":[null]}`), "config.rules[0] must be an object", "config.rules[0]"},
		{rule(`{"rules":[{"condition":"a IN [1]","when":1}]}`), `config.rules[0] has the unknown key "when"; a rule has condition, action, message, ignore_case`, "config.rules[0]"},
		{rule(`{"rules":[{"condition":"a IN [1]"},{"condition":"a IN x"}]}`), "config.rules[1].condition must have a JSON list", "config.rules[1].condition"},
		{rule(`{"rules":[{"condition":7}]}`), "config.rules[0].condition must be text", "config.rules[0].condition"},
	} {
		f := wantFault(t, w.do(ask{"POST", path, w.service, c.body, nil}), 400, c.text)
		if f.Details["field"] != c.field {
			t.Errorf("%s: field %v, want %s", c.body, f.Details["field"], c.field)
		}
		if ruled := strings.Contains(c.field, "rules") || c.field == "config.condition"; ruled && f.Code != "invalid_rule" && !strings.Contains(c.text, "must be text") {
			t.Errorf("%s: code %s", c.body, f.Code)
		}
	}
	if list := as[struct{ Hooks []hookRow }](t, w.do(ask{"GET", path, w.service, "", nil}), 200).Hooks; len(list) != 0 {
		t.Errorf("something was kept: %+v", list)
	}
}

func TestHooks_BoundsThatAreJustKept(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	path := "/api/agents/" + string(w.agent("fixed")) + "/hooks"
	for _, body := range []string{
		`{"event":"PreToolUse","type":"approval","position":-1000,"config":{"timeout":0}}`,
		`{"event":"PreToolUse","type":"approval","position":1000000,"config":{"timeout":2592000}}`,
		`{"event":"PreToolUse","type":"http","config":{"url":"https://x.example","timeout_seconds":30,"secret":"` + strings.Repeat("é", 256) + `"}}`,
	} {
		as[hookRow](t, w.do(ask{"POST", path, w.service, body, nil}), 201)
	}
	for i := range hob.MaxHooks - 3 {
		h := hob.Hook{Agent: hob.AgentID(strings.Split(path, "/")[3]), Event: hob.PreToolUse, Type: hob.ApprovalHook, Position: i}
		if _, err := w.store.CreateHook(t.Context(), hob.System(hob.DefaultWorkspace), h); err != nil {
			t.Fatal(err)
		}
	}
	f := wantFault(t, w.do(ask{"POST", path, w.service, `{"event":"PreToolUse","type":"approval","config":{}}`, nil}), 409, "the agent has 100 hooks")
	if f.Code != "too_many_hooks" {
		t.Errorf("code %s", f.Code)
	}
}

func TestHooks_NothingElseOfThemChanges(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	path := "/api/agents/" + string(w.agent("fixed")) + "/hooks"
	h := as[hookRow](t, w.do(ask{"POST", path, w.service, `{"event":"PreToolUse","type":"approval","config":{}}`, nil}), 201)
	for body, text := range map[string]string{
		``:                                "No data provided",
		`{}`:                              "No data provided",
		`{"enabled":null}`:                "No valid fields to update",
		`{"enabled":"no"}`:                "enabled must be true or false",
		`{"position":0.5}`:                "position must be a whole number",
		`{"position":1000001}`:            "position must be a whole number from -1000 to 1000000",
		`{"enabled":false,"config":{}}`:   `a hook is not changed but for enabled and position: delete it and add another; not "config"`,
		`{"matcher":"x","event":"x"}`:     `delete it and add another; not "event"`,
		`{"position":1,"colour":"green"}`: `delete it and add another; not "colour"`,
	} {
		wantFault(t, w.do(ask{"PATCH", path + "/" + h.ID, w.service, body, nil}), 400, text)
	}
	if got := as[hookRow](t, w.do(ask{"GET", path + "/" + h.ID, w.service, "", nil}), 200); !got.Enabled || got.Position != 0 {
		t.Errorf("the hook is %+v", got)
	}
}

func TestHooks_DoubtfulOnesAreWarnedOf(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := "/api/agents/" + string(w.agent("fixed"))
	as[map[string]any](t, w.do(ask{"POST", agent + "/tools", w.service, `{"tool_name":"clock"}`, nil}), 201)
	post := func(fields string) string {
		return warned(t, w.do(ask{"POST", agent + "/hooks", w.service, `{` + fields + `}`, nil}), 201)
	}
	const approval = `"event":"PreToolUse","type":"approval","config":{}`
	const open = "config.on_error is allow: where the hook cannot be asked, what it would have blocked goes on; deny is safer for "
	const seen = "readers of a stream have seen the text by the time the hook decides about it"
	for _, c := range []struct{ fields, want string }{
		{approval, ""},
		{`"matcher":"cl*|c?ock",` + approval, ""},
		{`"matcher":"",` + approval, ""},
		{`"matcher":"clock|database_write| mcp__*",` + approval, `matcher: the agent has no tool that matches "database_write", "mcp__*"`},
		{`"colour":1,` + approval, `unknown field ignored: "colour"`},
		{`"event":"PreToolUse","type":"http","config":{"url":"https://x.example"}`, open + "PreToolUse"},
		{`"event":"PreToolUse","type":"http","config":{"url":"https://x.example","on_error":"deny"}`, ""},
		{`"event":"PostToolUse","type":"http","config":{"url":"https://x.example"}`, ""},
		{`"event":"PreResponse","type":"rule","config":{"condition":"output CONTAINS x"}`, seen},
		{
			`"event":"PreToolUse","type":"approval","config":{"timeout_seconds":5,"aprovers":["any"],"url":"https://x.example","Timeout":7,"colour":1}`,
			`did you mean "timeout"?
did you mean "approvers"?
"config.colour"
config.timeout_seconds is ignored: hooks of type approval do not read it
config.url is ignored: hooks of type approval do not read it`,
		},
	} {
		got := post(c.fields)
		for want := range strings.SplitSeq(c.want, "\n") {
			if !strings.Contains(got, want) || c.want == "" && got != "" {
				t.Errorf("%s: warnings %q, want %q", c.fields, got, want)
			}
		}
	}
	as[map[string]any](t, w.do(ask{"PATCH", agent, w.service, `{"settings":{"response_buffering":"hold"}}`, nil}), 200)
	if got := post(`"event":"PreResponse","type":"rule","config":{"condition":"output CONTAINS x"}`); got != "" {
		t.Errorf("with text that is held: %q", got)
	}
	f := wantFault(t, w.do(ask{"PATCH", agent, w.service, `{"settings":{"response_buffering":"later"}}`, nil}), 400, "settings.response_buffering must be stream or hold")
	if f.Details["field"] != "settings.response_buffering" {
		t.Errorf("details %v", f.Details)
	}
}

func TestRules_OfAnAssignmentAreJudgedAndShown(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := "/api/agents/" + string(w.agent("fixed"))
	body := func(rules string) string { return `{"tool_name":"clock","config_override":{"rules":` + rules + `}}` }
	many := strings.TrimSuffix(strings.Repeat(`{"condition":"zone CONTAINS x"},`, hob.MaxRules+1), ",")
	for rules, text := range map[string]string{
		`"x"`:                                    "config_override.rules must be a list of rules",
		`[1]`:                                    "config_override.rules[0] must be an object",
		`[{}]`:                                   "config_override.rules[0].condition must be text of the form",
		`[{"condition":"zone LIKE x"}]`:          "config_override.rules[0].condition has",
		`[{"condition":"a IN [1]","Action":""}]`: `config_override.rules[0] has the unknown key "Action"`,
		`[{"condition":"a IN [1]","action":"ask"}]`: "config_override.rules[0].action must be deny or allow",
		`[` + many + `]`: fmt.Sprintf("config_override.rules has %d rules; %d are allowed", hob.MaxRules+1, hob.MaxRules),
	} {
		f := wantFault(t, w.do(ask{"POST", agent + "/tools", w.service, body(rules), nil}), 400, text)
		if field, _ := f.Details["field"].(string); f.Code != "invalid_rule" || !strings.HasPrefix(field, "config_override.rules") {
			t.Errorf("%s: %+v", rules, f)
		}
	}
	const own, all = `[{"condition":"zone STARTS_WITH Mars","message":"not there"}]`, `[{"condition":"zone IN [\"UTC\"]","action":"allow"}]`
	a := as[struct{ ID string }](t, w.do(ask{"POST", agent + "/tools", w.service, body(own), nil}), 201)
	as[map[string]any](t, w.do(ask{"PUT", "/api/tools/clock", w.service, `{"config":{"rules":` + all + `}}`, nil}), 200)
	tools := as[struct{ Tools []struct{ Rules []hob.Rule } }](t, w.do(ask{"GET", agent + "/tools/effective", w.service, "", nil}), 200).Tools
	want := []hob.Rule{{Condition: `zone IN ["UTC"]`, Action: "allow"}, {Condition: "zone STARTS_WITH Mars", Message: "not there"}}
	if diff := cmp.Diff(want, tools[0].Rules); diff != "" {
		t.Errorf("the rules in effect (-want +got):\n%s", diff)
	}
	f := wantFault(t, w.do(ask{"PATCH", agent + "/tools/" + a.ID, w.service, `{"config_override":{"rules":[{"condition":"x"}]}}`, nil}), 400, "config_override.rules[0].condition")
	if f.Code != "invalid_rule" {
		t.Errorf("a change: %+v", f)
	}
	as[map[string]any](t, w.do(ask{"PATCH", agent + "/tools/" + a.ID, w.service, `{"config_override":{"rules":null}}`, nil}), 200)
}
