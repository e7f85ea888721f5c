package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hob"
	"hob/internal/builtin"
	"hob/internal/fakeweb"
)

const exaKey = "exa-key-of-the-operator"

// browsing is a set with a fake Exa, which has no key where off is set.
func browsing(t *testing.T, off bool) (*builtin.Set, *fakeweb.Exa) {
	t.Helper()
	exa := fakeweb.NewExa(exaKey)
	srv := httptest.NewServer(exa)
	t.Cleanup(srv.Close)
	d := builtin.Deps{Exa: builtin.Service{Key: exaKey, BaseURL: srv.URL}}
	if off {
		d.Exa.Key = ""
	}
	return newSet(t, d), exa
}

func webRow(config hob.ToolConfig) hob.Tool {
	return hob.Tool{
		ID: "t-web", Name: "news", Description: "Searches the news.", Type: hob.WebTool, IsActive: true, Config: config,
		InputSchema: json.RawMessage(`{"type":"object","properties":{}}`),
	}
}

// loadFor loads one assignment for a model that can do as much.
func loadFor(t *testing.T, s *builtin.Set, a hob.AssignedTool, search, domains bool) (hob.ToolRunner, string) {
	t.Helper()
	g := grant(a)
	g.WebSearch, g.SearchDomains = search, domains
	tools, warnings, err := s.Tools(t.Context(), g)
	if err != nil || len(tools)+len(warnings) != 1 {
		t.Fatalf("%d tools, warnings %q: %v", len(tools), warnings, err)
	}
	if len(tools) == 0 {
		return nil, warnings[0]
	}
	return tools[0], ""
}

// TestWebKind_ProviderElseExaElseUnavailable is the rule of the kind: who searches, and what is said where nobody can.
func TestWebKind_ProviderElseExaElseUnavailable(t *testing.T) {
	t.Parallel()
	with, _ := browsing(t, false)
	without, _ := browsing(t, true)
	allowed := hob.ToolConfig{AllowedDomains: []string{"YR.no"}, MaxUses: 2}
	bounded := &hob.WebSearchOptions{MaxUses: 2, AllowedDomains: []string{"yr.no"}}
	free := &hob.WebSearchOptions{MaxUses: 5}
	for name, c := range map[string]struct {
		tool            hob.AssignedTool
		search, domains bool
		native          *hob.WebSearchOptions // nil: a function where there is an Exa
		why             string                // where there is none
	}{
		"the provider can":                 {assign("web_browsing", ""), true, true, free, ""},
		"the provider cannot":              {assign("web_browsing", ""), false, false, nil, "does not search the web by itself"},
		"without domains":                  {assign("web_browsing", ""), true, false, free, ""},
		"held to domains":                  {assign("web_browsing", `{"allowed_domains":["YR.no"],"max_uses":2}`), true, true, bounded, ""},
		"held to domains it cannot keep":   {assign("web_browsing", `{"blocked_domains":["yr.no"]}`), true, false, nil, "cannot hold its searches to domains"},
		"a pinned argument":                {assign("web_browsing", `{"num_results":3}`), true, true, nil, "arguments are pinned"},
		"rules":                            {assign("web_browsing", `{"rules":[{"condition":"query CONTAINS x"}]}`), true, true, nil, "rules set"},
		"no rules":                         {assign("web_browsing", `{"rules":[]}`), true, true, &hob.WebSearchOptions{MaxUses: 5}, ""},
		"a row":                            {assignCustom(webRow(allowed), ""), true, true, bounded, ""},
		"a row that the provider can't do": {assignCustom(webRow(allowed), ""), true, false, nil, "cannot hold its searches to domains"},
	} {
		r, why := loadFor(t, with, c.tool, c.search, c.domains)
		if r == nil {
			t.Errorf("%s: %s", name, why)
			continue
		}
		spec := r.Spec()
		if spec.Native != (c.native != nil) || spec.Kind != hob.WebTool {
			t.Errorf("%s: native %t of kind %s", name, spec.Native, spec.Kind)
		}
		if diff := cmp.Diff(c.native, spec.Search, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		r, why = loadFor(t, without, c.tool, c.search, c.domains)
		if c.native != nil {
			if r == nil || !r.Spec().Native {
				t.Errorf("%s, without Exa: %s", name, why)
			}
			continue
		}
		if r != nil || !strings.Contains(why, c.why) || !strings.Contains(why, "Exa API key not configured. Set it in Settings > Tools.") {
			t.Errorf("%s, without Exa: %v, %q", name, r, why)
		}
	}
}

func TestWebKind_TheFunctionSearchesAsWebSearchDoes(t *testing.T) {
	t.Parallel()
	s, exa := browsing(t, false)
	plain, _ := loadFor(t, s, assign("web_search", ""), false, false)
	for _, tool := range []hob.AssignedTool{assign("web_browsing", ""), assignCustom(webRow(hob.ToolConfig{}), "")} {
		r, _ := loadFor(t, s, tool, false, false)
		if diff := cmp.Diff(string(plain.Spec().Schema), string(r.Spec().Schema)); diff != "" {
			t.Errorf("%s has another schema than web_search:\n%s", r.Spec().Name, diff)
		}
		want := call(t, plain, `{"query":"agents","search_type":"deep"}`)
		if diff := cmp.Diff(want, call(t, r, `{"query":"agents","search_type":"deep"}`)); diff != "" || want.Action != hob.ActionWebSearchDeep {
			t.Errorf("%s (-web_search +it):\n%s", r.Spec().Name, diff)
		}
	}
	if n := len(exa.Requests()); n != 4 {
		t.Errorf("Exa was asked %d times", n)
	}
}

// TestWebKind_TheFunctionKeepsToItsDomains: what the model asks for is narrowed, never widened.
func TestWebKind_TheFunctionKeepsToItsDomains(t *testing.T) {
	t.Parallel()
	allowed := hob.ToolConfig{AllowedDomains: []string{"yr.no", "met.no"}}
	blocked := hob.ToolConfig{BlockedDomains: []string{"spam.example"}}
	for name, c := range map[string]struct {
		config           hob.ToolConfig
		args             string
		include, exclude string
		error            string
	}{
		"all that is allowed":  {allowed, `{"query":"q"}`, "[yr.no met.no]", "<nil>", ""},
		"a part of it":         {allowed, `{"query":"q","include_domains":["www.YR.no/oslo","bbc.com"]}`, "[www.yr.no/oslo]", "<nil>", ""},
		"a wildcard":           {allowed, `{"query":"q","include_domains":["*.met.no"]}`, "[*.met.no]", "<nil>", ""},
		"nothing of it":        {allowed, `{"query":"q","include_domains":["notyr.no"]}`, "", "", "must be of yr.no, met.no"},
		"what is blocked":      {blocked, `{"query":"q"}`, "<nil>", "[spam.example]", ""},
		"and more":             {blocked, `{"query":"q","exclude_domains":["a.example","spam.example"]}`, "<nil>", "[a.example spam.example]", ""},
		"only what is blocked": {blocked, `{"query":"q","include_domains":["x.spam.example"]}`, "", "", "must not be of spam.example"},
	} {
		s, exa := browsing(t, false)
		r, _ := loadFor(t, s, assignCustom(webRow(c.config), ""), false, false)
		res := call(t, r, c.args)
		if c.error != "" {
			if !res.IsError || !res.Free || !strings.Contains(res.Text, c.error) || len(exa.Requests()) != 0 {
				t.Errorf("%s: %+v", name, res)
			}
			continue
		}
		asked := exa.Requests()
		if len(asked) != 1 || fmt.Sprint(asked[0].Body["includeDomains"]) != c.include || fmt.Sprint(asked[0].Body["excludeDomains"]) != c.exclude {
			t.Errorf("%s: asked %v, %s", name, asked, res.Text)
		}
	}
}

func TestWebKind_SearchesForOneAnswerAreBounded(t *testing.T) {
	t.Parallel()
	s, exa := browsing(t, false)
	r, _ := loadFor(t, s, assign("web_browsing", `{"max_uses":2}`), false, false)
	at := func(step, attempt int) hob.Result {
		c := callOf(r, `{"query":"q"}`)
		c.Step, c.Attempt = step, attempt
		res, err := r.Call(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for i, c := range []struct {
		step, attempt int
		ok            bool
	}{{1, 1, true}, {1, 1, true}, {1, 1, false}, {1, 2, true}, {2, 1, true}} {
		res := at(c.step, c.attempt)
		if c.ok == res.IsError || !c.ok && (!res.Free || !strings.Contains(res.Text, "web_browsing may search 2 times for one answer")) {
			t.Errorf("call %d: %.100s", i, res.Text)
		}
	}
	if n := len(exa.Requests()); n != 4 {
		t.Errorf("Exa was asked %d times", n)
	}
}

func TestWebKind_KeysOfAnAssignmentAreStrict(t *testing.T) {
	t.Parallel()
	s, _ := browsing(t, false)
	many := `["` + strings.Repeat(`a.example","`, builtin.MaxWebDomains) + `b.example"]`
	for config, want := range map[string]string{
		`{"allowed_domains":"yr.no"}`:                                 "config_override.allowed_domains must be a list",
		`{"allowed_domains":[]}`:                                      "config_override.allowed_domains must be a list",
		`{"blocked_domains":["https://yr.no"]}`:                       `config_override.blocked_domains has "https://yr.no", which is no domain`,
		`{"blocked_domains":` + many + `}`:                            "1 to 100 domains",
		`{"allowed_domains":["a.no"],"blocked_domains":["b.no"]}`:     "config_override.blocked_domains cannot be given beside allowed_domains",
		`{"max_uses":0}`:                                              "config_override.max_uses must be a whole number from 1 to 20",
		`{"max_uses":21}`:                                             "config_override.max_uses must be a whole number from 1 to 20",
		`{"max_uses":"many"}`:                                         "config_override.max_uses must be a whole number from 1 to 20",
		`{"allowed_domains":["a.no"],"max_uses":20,"num_results":10}`: "",
	} {
		_, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, "web_browsing", json.RawMessage(config))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || hob.KindOf(err) != hob.Invalid) {
			t.Errorf("%.80s: %v, want %q", config, err, want)
		}
	}
}

func TestWebKind_ARowNeedsAQuery(t *testing.T) {
	t.Parallel()
	s, _ := browsing(t, false)
	row := webRow(hob.ToolConfig{})
	for schema, ok := range map[string]bool{
		`{"type":"object","properties":{}}`:                          true,
		`{"type":"object","properties":{"query":{"type":"string"}}}`: true,
		`{"type":"object","properties":{"q":{"type":"string"}}}`:     false,
	} {
		row.InputSchema = json.RawMessage(schema)
		if err := s.CheckTool(row); ok != (err == nil) {
			t.Errorf("%s: %v", schema, err)
		}
	}
	row.InputSchema = json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"}},"required":["query"],"additionalProperties":false}`)
	r, _ := loadFor(t, s, assignCustom(row, ""), false, false)
	if string(r.Spec().Schema) != string(row.InputSchema) || call(t, r, `{"query":"q"}`).IsError {
		t.Errorf("a row's own schema is %s", r.Spec().Schema)
	}
}

func TestWebKind_UnavailableSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	ctx, ws := t.Context(), hob.DefaultWorkspace
	with, _ := browsing(t, false)
	without, _ := browsing(t, true)
	native := newSet(t, builtin.Deps{Searches: func(context.Context, hob.WorkspaceID) bool { return true }})
	for _, tool := range []hob.Tool{{Name: "web_browsing"}, webRow(hob.ToolConfig{})} {
		want := "no configured model provider searches the web by itself, and the search of the server is missing: " +
			"Exa API key not configured. Set it in Settings > Tools."
		if got := without.Unavailable(ctx, ws, tool); !strings.HasPrefix(got, want) || !strings.Contains(got, "PUT /api/settings/EXA_API_KEY") {
			t.Errorf("%s: %q", tool.Name, got)
		}
		if a, b := with.Unavailable(ctx, ws, tool), native.Unavailable(ctx, ws, tool); a != "" || b != "" {
			t.Errorf("%s: %q with Exa, %q with a provider that searches", tool.Name, a, b)
		}
	}
}

// TestWebKind_ARowSharesNothingWithAnHTTPTool: rows of both kinds may have the same schema and the same configuration.
func TestWebKind_ARowSharesNothingWithAnHTTPTool(t *testing.T) {
	t.Parallel()
	s, _ := browsing(t, false)
	web, http := webRow(hob.ToolConfig{}), customRow("https://example.com", "POST")
	web.InputSchema = json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"}}}`)
	http.InputSchema, http.Name = web.InputSchema, "other"
	tools, warnings := load(t, s, assignCustom(web, `{}`), assignCustom(http, `{}`))
	if len(tools) != 2 {
		t.Errorf("%d tools, %q", len(tools), warnings)
	}
}
