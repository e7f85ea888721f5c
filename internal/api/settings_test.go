package api_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/api"
	"hob/internal/settings"
)

const keysPath = "/api/ai-provider-keys"

func TestSettings_SecretsAreNeverShown(t *testing.T) {
	t.Parallel()
	var set *settings.Set
	w := begin(t, func(c *api.Config) {
		var err error
		if set, err = settings.New(settings.Config{
			Store: c.Store,
			Keys:  []settings.Key{{Name: "EXA_API_KEY", Category: "agents", Label: "Exa", Type: hob.StringSetting, Secret: true}},
		}); err != nil {
			t.Fatal(err)
		}
		c.Settings = set
	})
	value := func() string {
		v, err := set.Value(t.Context(), hob.DefaultWorkspace, "EXA_API_KEY")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var seen strings.Builder
	put := func(text string) map[string]any {
		r := w.do(ask{"PUT", "/api/settings/EXA_API_KEY", w.service, `{"value":"` + text + `"}`, nil})
		list := w.do(ask{"GET", "/api/settings", w.service, "", nil})
		seen.Write(r.body)
		seen.Write(list.body)
		return as[map[string]any](t, r, 200)
	}
	if got := put("s3cret-of-exa"); got["value"] != hob.Mask || value() != "s3cret-of-exa" {
		t.Errorf("set: %v, the value is %q", got, value())
	}
	if got := put(hob.Mask); got["value"] != hob.Mask || value() != "s3cret-of-exa" {
		t.Errorf("the mask sent back: %v, the value is %q", got, value())
	}
	if got := as[map[string]any](t, w.do(ask{"DELETE", "/api/settings/EXA_API_KEY", w.service, "", nil}), 200); got["default"] != "" || value() != "" {
		t.Errorf("reset: %v, the value is %q", got, value())
	}
	if told := seen.String() + w.log.String(); strings.Contains(told, "s3cret") {
		t.Errorf("the secret is told: %s", told)
	}
}

func TestSettings_ChangesAreLoggedWithoutValues(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	w.do(ask{"PUT", "/api/settings", w.service, `{"settings":{"AGENT_DEFAULT_MODEL":"a-model-of-note"}}`, nil})
	w.do(ask{"DELETE", "/api/settings/CUSTOM_TOOL_TIMEOUT", w.service, "", nil})
	w.do(ask{"POST", "/api/settings/reset-category", w.service, `{"category":"usage"}`, nil})
	w.do(ask{"POST", keysPath, w.service, `{"provider":"my-server","api_key":"key-of-note-1","base_url":"https://note.example.com/v1"}`, nil})
	w.do(ask{"PUT", keysPath, w.service, `{"openai":"key-of-note-2"}`, nil})
	w.do(ask{"DELETE", keysPath + "/openai", w.service, "", nil})
	w.do(ask{"PUT", "/api/provider-profiles", w.service, `{"endpoint":"https://note.example.com","model":"m","facts":{}}`, nil})
	log := w.log.String()
	for _, line := range []string{
		`"settings were changed" workspace=default by=service by_id=\S+ names=AGENT_DEFAULT_MODEL `,
		`"settings were reset" workspace=default by=service by_id=\S+ names=CUSTOM_TOOL_TIMEOUT `, `"settings were reset" .* names=MODEL_PRICES `,
		`"provider keys were changed" workspace=default by=service by_id=\S+ names=my-server `, `"provider keys were changed" .* names=openai `,
		`"provider keys were deleted" .* names=openai `, `"a model profile was changed" .* names=m `,
	} {
		if !regexp.MustCompile(line).MatchString(log) {
			t.Errorf("the log has no %q:\n%s", line, log)
		}
	}
	if strings.Contains(log, "of-note") {
		t.Errorf("the log has a value:\n%s", log)
	}
}

func TestSettings_AKeyOfOneAgentIsTooNarrow(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	bound := w.key(hob.Key{Name: "bound", Scopes: []hob.Scope{hob.ScopeAdmin}, Agent: w.agent("fixed")})
	for _, path := range []string{"/api/settings", keysPath, keysPath + "/platform_supported", "/api/provider-profiles"} {
		if f := wantFault(t, w.do(ask{"GET", path, bound, "", nil}), 403, "bound to one agent"); f.Code != "key_bound" {
			t.Errorf("%s: code %s", path, f.Code)
		}
	}
}

func TestSettings_AreUnavailableWithoutTheirPart(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Settings = nil })
	wantFault(t, w.do(ask{"GET", "/api/settings", w.service, "", nil}), 503, "not available on this server")
	wantFault(t, w.do(ask{"PUT", "/api/settings", w.service, `{}`, nil}), 503, "not available on this server")
}

func TestDefaultModel_IsThatOfTheWorkspace(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) {
		c.DefaultModel = func(_ context.Context, ws hob.WorkspaceID) (string, string) {
			if ws == "" {
				return "model-of-the-server", ""
			}
			return "model-of-" + string(ws), "nobody serves it"
		}
	})
	a := as[struct {
		Model    string
		Warnings []string
	}](t, w.do(ask{"POST", "/api/agents", w.service, `{"name":"x"}`, nil}), 201)
	if a.Model != "model-of-default" || !cmp.Equal(a.Warnings, []string{"nobody serves it"}) {
		t.Errorf("the agent is %+v", a)
	}
	if page := string(w.do(ask{"GET", "/", "", "", nil}).body); !strings.Contains(page, "model-of-the-server") {
		t.Errorf("the index, which anybody may read, shows what is a workspace's:\n%s", page)
	}
}

// keyed is what the store has of the provider keys.
func (w *world) keyed() map[string]string {
	w.t.Helper()
	list, err := w.store.OpenProviderKeys(w.t.Context(), hob.DefaultWorkspace)
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{}
	for _, k := range list {
		all[k.Provider] = string(k.Key) + " " + k.BaseURL
	}
	return all
}

func TestProviderKeys_WhatIsRefusedIsNotStored(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	put := func(method, body string) reply { return w.do(ask{method, keysPath, w.service, body, nil}) }
	as[[]hob.ProviderKey](t, put("PUT", `{"openai":"sk-first-0123456"}`), 200)
	before := w.keyed()
	for _, c := range []struct{ method, body, fields string }{
		{"POST", `{"provider":"openai","api_key":"refused-0123456"}`, "openai"},
		{"POST", `{"provider":"my-server","api_key":"refused-0123456","base_url":"https://x.example/v1"}`, "my-server"},
		{"PUT", `{"openai":"sk-second-0123456","anthropic":"refused-0123456","openrouter":"refused-0123456"}`, "anthropic openrouter"},
	} {
		f := as[struct {
			Error  string
			Fields map[string]string
		}](t, put(c.method, c.body), 400)
		for _, name := range strings.Fields(c.fields) {
			if f.Error != "Validation failed" || f.Fields[name] != name+" says 401" || len(f.Fields) != len(strings.Fields(c.fields)) {
				t.Errorf("%s: %+v", c.body, f)
			}
		}
	}
	wantFault(t, put("POST", `{"provider":"openai","api_key":"broken-0123456"}`), 500, "Something went wrong")
	wantFault(t, put("PUT", `{"openai":"broken-0123456","anthropic":"sk-ant-0123456"}`), 500, "Something went wrong")
	if diff := cmp.Diff(before, w.keyed()); diff != "" {
		t.Errorf("what is stored changed:\n%s", diff)
	}
	k := as[hob.ProviderKey](t, put("POST", `{"provider":"openai","api_key":"nobody-there-0123456"}`), 200)
	if k.IsValid || !k.LastValidatedAt.IsZero() || w.keyed()["openai"] != "nobody-there-0123456 " {
		t.Errorf("a key that nobody could judge: %+v, stored %v", k, w.keyed())
	}
}

func TestProviderKeys_NoSecretLeavesTheServer(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	var seen strings.Builder
	for _, a := range []ask{
		{"POST", keysPath, w.service, `{"provider":"openai","api_key":"sk-TOPSECRET-0123"}`, nil},
		{"POST", keysPath, w.service, `{"provider":"my-server","api_key":"sk-TOPSECRET-0456","base_url":"https://x.example/v1"}`, nil},
		{"PUT", keysPath, w.service, `{"anthropic":"sk-TOPSECRET-0789","openrouter":null}`, nil},
		{"POST", keysPath, w.service, `{"provider":"openrouter","api_key":"refused-TOPSECRET"}`, nil},
		{"POST", keysPath, w.service, `{"provider":"openrouter","api_key":"sk TOPSECRET"}`, nil},
		{"POST", keysPath, w.service, `{"provider":"openrouter","api_key":["sk-TOPSECRET"]}`, nil},
		{"POST", keysPath + "/validate", w.service, `{"provider":"openrouter","api_key":"nobody-there-TOPSECRET"}`, nil},
		{"GET", keysPath, w.service, "", nil},
	} {
		seen.Write(w.do(a).body)
	}
	if told := seen.String() + w.log.String(); strings.Contains(told, "TOPSECRET") || !strings.Contains(told, hob.Mask+"0789") {
		t.Errorf("a secret is told, or no mask: %s", told)
	}
}

func TestProviderKeys_MasksAndAddressesKeepWhatIsStored(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	post := func(body string, status int) {
		t.Helper()
		if r := w.do(ask{"POST", keysPath, w.service, body, nil}); r.status != status {
			t.Errorf("%s: status %d, want %d: %s", body, r.status, status, r.body)
		}
	}
	post(`{"provider":"box","api_key":"key-0123456789","base_url":"https://a.example/v1"}`, 201)
	post(`{"provider":"box","api_key":"`+hob.Mask+`6789"}`, 200)
	post(`{"provider":"box","api_key":"`+hob.Mask+`","base_url":"https://a.example/v1/"}`, 200)
	post(`{"provider":"box","api_key":"`+hob.Mask+`","base_url":"https://b.example/v1"}`, 400)
	want := map[string]string{"box": "key-0123456789 https://a.example/v1"}
	if diff := cmp.Diff(want, w.keyed()); diff != "" {
		t.Errorf("after masks (-want +got):\n%s", diff)
	}
	post(`{"provider":"box","base_url":"https://b.example/v1"}`, 200) // without a key: none goes along
	want["box"] = " https://b.example/v1"
	if diff := cmp.Diff(want, w.keyed()); diff != "" {
		t.Errorf("after a move (-want +got):\n%s", diff)
	}
	post(`{"provider":"box"}`, 400)
}

func TestProviderKeys_Bounds(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var left []time.Duration
	w := begin(t, func(c *api.Config) {
		c.ValidateKey = func(ctx context.Context, _ hob.ProviderKey) (bool, string, error) {
			deadline, _ := ctx.Deadline()
			mu.Lock()
			defer mu.Unlock()
			left = append(left, time.Until(deadline))
			return true, "", nil
		}
	})
	name, long := strings.Repeat("a", 32), strings.Repeat("a", 8192)
	address := "https://a.example/" + strings.Repeat("a", 2048-len("https://a.example/"))
	for body, status := range map[string]int{
		`{"provider":"` + name + `","base_url":"https://a.example/v1"}`:                          201,
		`{"provider":"` + name + `a","base_url":"https://a.example/v1"}`:                         400,
		`{"provider":"-a","base_url":"https://a.example/v1"}`:                                    400,
		`{"provider":"a.b","base_url":"https://a.example/v1"}`:                                   400,
		`{"provider":"9_b-c","base_url":"https://a.example/v1"}`:                                 201,
		`{"provider":"scripted","base_url":"https://a.example/v1"}`:                              400,
		`{"provider":"openai","api_key":"` + long + `"}`:                                         201,
		`{"provider":"anthropic","api_key":"` + long + `a"}`:                                     400,
		`{"provider":"c","base_url":"` + address + `"}`:                                          201,
		`{"provider":"d","base_url":"` + address + `a"}`:                                         400,
		`{"provider":"e","base_url":"https://user:pass@a.example/v1"}`:                           400,
		`{"provider":"f","base_url":"https://a.example/v1#x"}`:                                   400,
		`{"provider":"g","base_url":"ftp://a.example/v1"}`:                                       400,
		`{"provider":"h","base_url":"https://a.example/v1","api_key":"` + "ü" + `"}`:             400,
		`{"provider":"openrouter","api_key":"` + hob.Mask + `"}`:                                 400,
		`{"provider":"i","base_url":"https://a.example/v1","api_key":"` + hob.Mask + `"}`:        400,
		`{"provider":"openrouter","api_key":"key-0123456789","base_url":"https://a.example/v1"}`: 400,
	} {
		if r := w.do(ask{"POST", keysPath, w.service, body, nil}); r.status != status {
			t.Errorf("%.90s: status %d, want %d: %.200s", body, r.status, status, r.body)
		}
	}
	for _, d := range left {
		if d <= 0 || d > 10*time.Second {
			t.Errorf("a provider is given %s to judge a key, want at most 10s", d)
		}
	}
	facts := `{"a":"` + strings.Repeat("a", 64<<10-len(`{"a":""}`)) + `"}`
	for body, status := range map[string]int{facts: 200, facts + " ": 200, `{"b":1,` + facts[1:]: 400} {
		r := w.do(ask{"PUT", "/api/provider-profiles", w.service, `{"endpoint":"https://a.example","model":"m","facts":` + body + `}`, nil})
		if r.status != status {
			t.Errorf("facts of %d bytes: status %d, want %d: %.200s", len(body), r.status, status, r.body)
		}
	}
}

func TestUsage_EachSeesTheirOwnAndTheRowsAddUp(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	owner, other := user(t, "owner"), user(t, "other")
	first, second := w.agent("fixed"), w.agent("calls")
	for _, a := range []ask{
		{"POST", "/api/agents/" + string(first) + "/run", owner, `{"message":"hi"}`, nil},
		{"POST", "/api/agents/" + string(first) + "/run", other, `{"message":"hi"}`, nil},
		{"POST", "/api/agents/" + string(second) + "/run", other, `{"message":"hi"}`, nil},
	} {
		if r := w.do(a); r.status != http.StatusOK {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	type report struct {
		Usage []hob.UsageRow
		Total hob.UsageRow
	}
	ask1 := func(key, query string) report {
		t.Helper()
		return as[report](t, w.do(ask{"GET", "/api/usage?" + query, key, "", nil}), 200)
	}
	today := time.Now().UTC().Format(time.DateOnly)
	yesterday := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	for name, c := range map[string]struct {
		got         report
		calls, rows int64
	}{
		"an admin":                {ask1(w.service, ""), 3, 1},
		"an admin by agent":       {ask1(w.service, "group_by=agent"), 3, 2},
		"an admin of one agent":   {ask1(w.service, "group_by=model&agent_id="+strings.ToUpper(string(first))), 2, 1},
		"an admin by day":         {ask1(w.service, "group_by=day&since="+yesterday+"&until="+today), 3, 1},
		"an admin until today":    {ask1(w.service, "group_by=day&until="+yesterday), 0, 0},
		"an admin until midnight": {ask1(w.service, "group_by=day&until="+today+"T00:00:00Z"), 0, 0},
		"an admin of a model":     {ask1(w.service, "group_by=component&model=calls"), 1, -1},
		"the owner":               {ask1(owner, "group_by=agent"), 1, 1},
		"the other":               {ask1(other, "group_by=agent"), 2, 2},
		"a stranger":              {ask1(user(t, "stranger"), "group_by=agent"), 0, 0},
		"a key bound to an agent": {ask1(w.key(hob.Key{Name: "b", Scopes: []hob.Scope{hob.ScopeAdmin}, Agent: second}), "group_by=agent"), 1, 1},
	} {
		sum := int64(0)
		for _, r := range c.got.Usage {
			sum += r.TotalTokens
		}
		if c.got.Total.Calls != c.calls || c.got.Total.TotalTokens != 5*c.calls || sum != 5*c.calls || c.rows >= 0 && int64(len(c.got.Usage)) != c.rows {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
	if day := ask1(w.service, "group_by=day").Usage[0].Key; day != today && day != yesterday {
		t.Errorf("the day is %q", day)
	}
}
