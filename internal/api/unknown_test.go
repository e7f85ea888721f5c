package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hob"
	"hob/internal/api"
)

func TestSettings_UnusedKeysAreKeptAndNamed(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	type answer struct {
		ID       string
		Settings map[string]any
		Warnings []string
	}
	for settings, want := range map[string][]string{
		`{"temprature":0.1,"theme":"dark"}`: {
			`settings: "temprature" is kept but has no effect; did you mean "temperature"?`,
			`settings: "theme" is kept but has no effect`,
		},
		`{"maxSteps":2}`:              {`settings: "maxSteps" is kept but has no effect; did you mean "max_steps"?`},
		`{"scripts":"x"}`:             {`settings: "scripts" is kept but has no effect; did you mean "script"?`},
		`{"max_steps":2,"Script":""}`: nil, // letter case makes no other key
		`null`:                        nil,
	} {
		body := `{"name":"a","model":"fixed","settings":` + settings + `}`
		a := as[answer](t, w.do(ask{"POST", "/api/agents", w.service, body, nil}), 201)
		b := as[answer](t, w.do(ask{"PATCH", "/api/agents/" + a.ID, w.service, `{"settings":` + settings + `}`, nil}), 200)
		if !slices.Equal(a.Warnings, want) || !slices.Equal(b.Warnings, want) {
			t.Errorf("%s: warnings %q and %q, want %q", settings, a.Warnings, b.Warnings, want)
		}
		var sent map[string]any
		if err := json.Unmarshal([]byte(settings), &sent); err != nil || len(b.Settings) != len(sent) {
			t.Errorf("%s is kept as %v", settings, b.Settings)
		}
	}
	var many []string
	for i := range 13 {
		many = append(many, fmt.Sprintf(`"own_%02d":1`, i))
	}
	a := as[answer](t, w.do(ask{"POST", "/api/agents", w.service, `{"name":"a","settings":{` + strings.Join(many, ",") + `}}`, nil}), 201)
	if n := len(a.Warnings); n != 12 || !strings.Contains(a.Warnings[n-1], "3 more keys") { // one is about the model
		t.Errorf("%d warnings: %q", n, a.Warnings)
	}
}

func TestSettings_TheKnownKeysTakeEffect(t *testing.T) {
	t.Parallel()
	keys := hob.SettingsKeys()
	for _, key := range []string{"max_steps", "temperature", "disconnect_grace_seconds", "fallback_model", "script"} {
		if !slices.Contains(keys, key) {
			t.Errorf("%s is not among %q", key, keys)
		}
	}
	if slices.Contains(keys, "") || slices.Contains(keys, "-") {
		t.Errorf("names that are none: %q", keys)
	}
}

func TestSettings_AScriptThatDoesNotParseIsRefused(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) {
		c.CheckScript = func(source string) error {
			if strings.HasPrefix(source, "text: ") {
				return nil
			}
			return hob.Errorf(hob.Invalid, `script line 1: unknown directive "say"; known are text`).WithCode("invalid_script").With("line", 1)
		}
	})
	id := string(w.agent("fixed"))
	const bad, good = `{"name":"a","settings":{"script":"say: x"}}`, `{"name":"a","settings":{"script":"text: x"}}`
	for _, a := range []ask{{"POST", "/api/agents", w.service, bad, nil}, {"PATCH", "/api/agents/" + id, w.service, bad, nil}} {
		f := wantFault(t, w.do(a), 400, `settings.script: script line 1: unknown directive "say"; known are text`)
		if f.Code != "invalid_script" || f.Details["field"] != "settings.script" || f.Details["line"] != 1.0 {
			t.Errorf("%s: %+v", a.method, f)
		}
	}
	as[hob.Agent](t, w.do(ask{"POST", "/api/agents", w.service, good, nil}), 201)
	as[hob.Agent](t, w.do(ask{"PATCH", "/api/agents/" + id, w.service, good, nil}), 200)
}

func TestMissingFields_NameWhatWasSentInstead(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := "/api/agents/" + string(w.agent("fixed"))
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", agent + "/run", `{"mesage":"hi"}`, `message is required; unknown: "mesage"`},
		{"POST", agent + "/run/stream", `{"input":"hi"}`, `message is required; unknown: "input"`},
		{"POST", agent + "/run", `{}`, `message is required`},
		{"POST", agent + "/run", `{"message":"","mesage":"hi"}`, `message is required`},
		{"POST", "/api/agents", `{"naem":"a"}`, `Name is required; unknown: "naem"`},
		{"PATCH", agent, `{"d":1,"a":1,"c":1,"b":1,"e":1}`, `No valid fields to update; unknown: "a", "b", "c" and 2 more`},
		{"POST", agent + "/tools", `{"tool":"clock"}`, `tool_name is required; unknown: "tool"`},
		{"POST", "/api/tools", `{"naem":"a"}`, `name, description, type, and input_schema are required; unknown: "naem"`},
		{"POST", "/api/keys", `{"naem":"a"}`, `name is required: text of at most 255 bytes; unknown: "naem"`},
		{"POST", "/api/agents/runs/run_000000000000/approve", `{"aproved":true}`, `Request body must include 'approved' (boolean); unknown: "aproved"`},
	} {
		if f := wantFault(t, w.do(ask{c.method, c.path, w.service, c.body, nil}), 400, c.want); f.Error != c.want {
			t.Errorf("%s %s %s: %q, want %q", c.method, c.path, c.body, f.Error, c.want)
		}
	}
}

func TestTools_AnAddressIsAFullURL(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	for _, address := range []string{"weather", "/weather", "api.example.com/weather", "ftp://api.example.com", "https:///x", "https://%zz"} {
		f := wantFault(t, w.do(ask{"POST", "/api/tools", w.service, `{"name":"weather","endpoint":"` + address + `",` + toolBody + `}`, nil}), 400,
			"config.endpoint must be a full http or https URL")
		if f.Details["field"] != "config.endpoint" {
			t.Errorf("%s: details %v", address, f.Details)
		}
	}
}

// What a run leaves out is told once, in the answer and in the stream.
func TestRuns_WarningsReachBothKindsOfReader(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := "/api/agents/" + string(w.agent("fixed"))
	as[map[string]any](t, w.do(ask{"POST", agent + "/tools", w.service, `{"tool_name":"clock"}`, nil}), 201)
	const body, unknown = `{"message":"hi","colour":1}`, `unknown field ignored: "colour"`
	once := map[string]string{"Idempotency-Key": "one"}
	type answer struct{ Warnings []string }
	first := as[answer](t, w.do(ask{"POST", agent + "/run", w.service, body, once}), 200).Warnings
	if len(first) != 2 || first[0] != unknown || !strings.Contains(first[1], "tools") {
		t.Errorf("warnings %q", first)
	}
	if again := as[answer](t, w.do(ask{"POST", agent + "/run", w.service, body, once}), 200).Warnings; !slices.Equal(again, first) {
		t.Errorf("the same again warns %q", again)
	}
	var told []string
	for line := range strings.Lines(string(w.do(ask{"POST", agent + "/run/stream", w.service, body, nil}).body)) {
		var e struct{ Event, Message string }
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &e) == nil && e.Event == "warning" {
			told = append(told, e.Message)
		}
	}
	if !slices.Equal(told, []string{unknown}) {
		t.Errorf("the stream warns %q", told)
	}
}
