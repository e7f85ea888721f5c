package builtin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hob"
	"hob/internal/builtin"
)

func TestBuiltinChange_ATurnedOffToolIsNotLoaded(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	off := assign("current_time", "")
	off.Builtin = &hob.BuiltinChange{Suffix: "x"}
	tools, warnings := load(t, s, off, assign("http_request", ""))
	if len(tools) != 1 || tools[0].Spec().Name != "http_request" {
		t.Errorf("%d tools", len(tools))
	}
	if len(warnings) != 1 || warnings[0] != `tool "current_time" is not loaded: it is switched off` {
		t.Errorf("warnings %q", warnings)
	}
}

func TestBuiltinChange_TheSuffixStandsBehindTheDescription(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	plain := one(t, s, assign("current_time", "")).Spec().Description
	a := assign("current_time", "")
	a.Builtin = &hob.BuiltinChange{IsActive: true, Suffix: "Only for office hours."}
	if got, want := one(t, s, a).Spec().Description, plain+"\n\nOnly for office hours."; got != want {
		t.Errorf("description %q, want %q", got, want)
	}
}

func TestBuiltinChange_TheConfigLiesUnderTheAssignments(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	for _, c := range []struct{ workspace, assignment, method, url string }{
		{`{"method":"GET"}`, ``, `"GET"`, ""},
		{`{"method":"GET"}`, `{}`, `"GET"`, ""},
		{`{"method":"GET"}`, `{"url":"https://example.com/"}`, `"GET"`, `"https://example.com/"`},
		{`{"method":"GET"}`, `{"method":"POST"}`, `"POST"`, ""},
		{``, `{"method":"POST"}`, `"POST"`, ""},
	} {
		a := assign("http_request", c.assignment)
		a.Builtin = &hob.BuiltinChange{IsActive: true, Config: json.RawMessage(c.workspace)}
		pinned := one(t, s, a).Spec().Pinned
		if string(pinned["method"]) != c.method || string(pinned["url"]) != c.url {
			t.Errorf("%s under %s: pinned %s", c.workspace, c.assignment, pinned)
		}
	}
}

// An assignment adds to the workspace's rules, and can take none of them away.
func TestBuiltinChange_RulesAreJoined(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	const first, second = `{"condition":"url CONTAINS a","action":"allow"}`, `{"condition":"url CONTAINS b","message":"m","ignore_case":true}`
	a := hob.Rule{Condition: "url CONTAINS a", Action: "allow"}
	b := hob.Rule{Condition: "url CONTAINS b", Message: "m", IgnoreCase: true}
	for _, c := range []struct {
		workspace, assignment string
		want                  []hob.Rule
	}{
		{`{}`, `{}`, nil},
		{`{}`, `{"rules":null}`, nil},
		{`{}`, `{"rules":[` + second + `]}`, []hob.Rule{b}},
		{`{"rules":[` + first + `]}`, ``, []hob.Rule{a}},
		{`{"rules":[` + first + `]}`, `{"method":"GET"}`, []hob.Rule{a}},
		{`{"rules":[` + first + `]}`, `{"rules":null}`, []hob.Rule{a}},
		{`{"rules":[` + first + `]}`, `{"rules":[]}`, []hob.Rule{a}},
		{`{"rules":[` + first + `]}`, `{"rules":[` + second + `,` + first + `]}`, []hob.Rule{a, b, a}},
		{`{"method":"GET"}`, `{"rules":[` + second + `]}`, []hob.Rule{b}},
	} {
		x := assign("http_request", c.assignment)
		x.Builtin = &hob.BuiltinChange{IsActive: true, Config: json.RawMessage(c.workspace)}
		if diff := cmp.Diff(c.want, one(t, s, x).Spec().Rules, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s under %s (-want +got):\n%s", c.workspace, c.assignment, diff)
		}
	}
	if diff := cmp.Diff([]hob.Rule{b}, one(t, s, assignCustom(named("weather"), `{"rules":[`+second+`]}`)).Spec().Rules); diff != "" {
		t.Errorf("a custom tool (-want +got):\n%s", diff)
	}
}

// A tool never runs without the rules that somebody wrote for it: where they cannot be read it is not loaded.
func TestRules_WhatCannotBeReadTurnsTheToolOff(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	some := func(n int) string {
		return `{"rules":[` + strings.TrimSuffix(strings.Repeat(`{"condition":"url CONTAINS a"},`, n), ",") + `]}`
	}
	for _, c := range []struct{ workspace, assignment, want string }{
		{``, `{"rules":"deny"}`, "must be a list"},
		{``, `{"rules":{"condition":"url CONTAINS a"}}`, "must be a list"},
		{`{"rules":"deny"}`, ``, "must be a list"},
		{`{"rules":"deny"}`, `{"rules":[]}`, "must be a list"},
		{`{"rules":[{}]}`, `{"rules":[{"condition":"url CONTAINS a"}]}`, "without condition"},
		{``, `{"rules":[{"condition":"url CONTAINS a","acton":"deny"}]}`, "acton"},
		{``, some(hob.MaxRules + 1), "101 rules"},
		{some(hob.MaxRules), some(1), "101 rules"},
	} {
		x := assign("http_request", c.assignment)
		x.Builtin = &hob.BuiltinChange{IsActive: true, Config: json.RawMessage(c.workspace)}
		tools, warnings := load(t, s, x)
		if len(tools) != 0 || len(warnings) != 1 || !strings.Contains(warnings[0], c.want) {
			t.Errorf("%.60s under %.60s: %d tools, warnings %q", c.workspace, c.assignment, len(tools), warnings)
		}
	}
	if _, warnings := load(t, s, assignCustom(named("weather"), `{"rules":[5]}`)); len(warnings) != 1 || !strings.Contains(warnings[0], "must be a list of rules") {
		t.Errorf("a custom tool: warnings %q", warnings)
	}
	if spec := one(t, s, assign("http_request", some(hob.MaxRules))).Spec(); len(spec.Rules) != hob.MaxRules {
		t.Errorf("the most rules that are allowed: %d", len(spec.Rules))
	}
}

// A config that was right when it was written may not fit an assignment; the run goes without the tool and is told.
func TestBuiltinChange_AConfigThatDoesNotFitIsNamed(t *testing.T) {
	t.Parallel()
	a := assign("http_request", `{"url":"https://example.com/"}`)
	a.Builtin = &hob.BuiltinChange{IsActive: true, Config: json.RawMessage(`{"allowed_hosts":[]}`)}
	tools, warnings := load(t, newSet(t, builtin.Deps{}), a)
	if len(tools) != 0 || len(warnings) != 1 || !strings.Contains(warnings[0], "allowed_hosts") {
		t.Errorf("%d tools, warnings %q", len(tools), warnings)
	}
}

func TestUnavailable_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	change := func(f func(*hob.Tool)) hob.Tool { row := named("weather"); f(&row); return row }
	for name, tt := range map[string]struct {
		tool hob.Tool
		want string // "" = nothing
	}{
		"builtin":            {hob.Tool{Name: "current_time"}, ""},
		"no such builtin":    {hob.Tool{Name: "nothing"}, "no builtin tool of that name"},
		"custom":             {named("weather"), ""},
		"custom, off":        {change(func(r *hob.Tool) { r.IsActive = false }), ""}, // another matter
		"of another type":    {change(func(r *hob.Tool) { r.Type = hob.MCPTool }), `type "mcp"`},
		"a builtin's name":   {change(func(r *hob.Tool) { r.Name = "http_request" }), "rename it"},
		"no usable recovery": {change(func(r *hob.Tool) { r.Config.Recovery = hob.RecoverLocal }), "config.recovery"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := s.Unavailable(t.Context(), hob.DefaultWorkspace, tt.tool)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCheckTool_TypesAndTheirConfigs(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	web := func(c hob.ToolConfig) hob.Tool {
		return hob.Tool{Name: "news", Type: hob.WebTool, InputSchema: json.RawMessage(`{"type":"object"}`), Config: c}
	}
	http := func(f func(*hob.ToolConfig)) hob.Tool { row := named("weather"); f(&row.Config); return row }
	domains := func(n int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("d%d.example.com", i)
		}
		return list
	}
	for name, tt := range map[string]struct {
		tool hob.Tool
		fail string // "" = none
	}{
		"web":                           {web(hob.ToolConfig{}), ""},
		"web with domains":              {web(hob.ToolConfig{AllowedDomains: domains(builtin.MaxWebDomains), MaxUses: builtin.MaxWebUses}), ""},
		"web without domains":           {web(hob.ToolConfig{BlockedDomains: []string{"sub.example.co.uk"}, Effect: hob.EffectRead}), ""},
		"web with both lists":           {web(hob.ToolConfig{AllowedDomains: domains(1), BlockedDomains: domains(1)}), "config.blocked_domains cannot be given beside"},
		"web with too many domains":     {web(hob.ToolConfig{BlockedDomains: domains(builtin.MaxWebDomains + 1)}), "config.blocked_domains must have at most 100"},
		"web with an address":           {web(hob.ToolConfig{AllowedDomains: []string{"https://example.com"}}), "which is no domain"},
		"web with too many uses":        {web(hob.ToolConfig{MaxUses: builtin.MaxWebUses + 1}), "config.max_uses must be a whole number from 1 to 20"},
		"web with negative uses":        {web(hob.ToolConfig{MaxUses: -1}), "config.max_uses"},
		"web with an endpoint":          {web(hob.ToolConfig{Endpoint: "https://example.com"}), "config.endpoint is for tools of type http"},
		"web that writes":               {web(hob.ToolConfig{Effect: hob.EffectWrite}), "config.effect must be read"},
		"http":                          {http(func(*hob.ToolConfig) {}), ""},
		"http that reads":               {http(func(c *hob.ToolConfig) { c.Effect = hob.EffectRead }), ""},
		"http with a secret effect":     {http(func(c *hob.ToolConfig) { c.Effect = hob.EffectSecret }), "config.effect must be read, write or external"},
		"http with domains":             {http(func(c *hob.ToolConfig) { c.AllowedDomains = domains(1) }), "is for tools of type web"},
		"http with uses":                {http(func(c *hob.ToolConfig) { c.MaxUses = 1 }), "is for tools of type web"},
		"of a type that is not a row's": {hob.Tool{Name: "x", Type: hob.MCPTool}, `type must be "http" or "web", not "mcp"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkInvalid(t, s.CheckTool(tt.tool), tt.fail)
		})
	}
}
